"""Small networks as people write them for themselves, in their habits rather than ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiScaleCnn(nn.Module):
    """Branches of several kernels, joined."""

    def __init__(self, channels: tuple[int, ...] = (8, 12)) -> None:
        super().__init__()
        self.stages, before = nn.ModuleList(), 3
        for width in channels:
            branches = nn.ModuleList(nn.Conv2d(before, width // 2, k, padding=k // 2) for k in (1, 3))
            self.stages.append(nn.ModuleDict({"branches": branches, "norm": nn.BatchNorm2d(width)}))
            before = width
        self.fc = nn.Linear(before, 4)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = F.relu(stage["norm"](torch.cat([branch(x) for branch in stage["branches"]], dim=1)))
        return self.fc(x.mean(dim=[-2, -1]))


class UNetWithTime(nn.Module):
    """A small denoiser: sines of the step, added to every level."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.inc, self.down, self.up = (nn.Conv2d(*sizes, 3, padding=1) for sizes in ((1, 8), (8, 16), (24, 8)))
        self.to_inc, self.to_down = nn.Linear(16, 8), nn.Linear(16, 16)
        self.norm, self.out = nn.GroupNorm(4, 16), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        half = 4
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, dtype=x.dtype, device=x.device) / half)
        angles = t[:, None].to(x.dtype) * frequencies[None]
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1))
        one = F.silu(self.inc(x) + self.to_inc(time)[:, :, None, None])
        two = F.silu(self.norm(self.down(F.avg_pool2d(one, 2))) + self.to_down(time)[..., None, None])
        up = F.interpolate(two, scale_factor=2, mode="nearest")
        return self.out(F.silu(self.up(torch.cat((up, one), 1))))


class SetTransformer(nn.Module):
    """Points attend to inducing points that are learned, and are pooled by a seed."""

    def __init__(self, width: int = 12, points: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.inducing = nn.Parameter(torch.randn(1, points, width))
        self.seed = nn.Parameter(torch.randn(1, 1, width))
        self.to_points = nn.MultiheadAttention(width, 3, batch_first=True)
        self.back = nn.MultiheadAttention(width, 3, batch_first=True)
        self.pool = nn.MultiheadAttention(width, 3, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        inner, _ = self.to_points(self.inducing.repeat(x.size(0), 1, 1), x, x)
        x = x + self.back(x, inner, inner)[0]
        pooled, weights = self.pool(self.seed.expand(x.size(0), -1, -1), x, x, need_weights=True)
        return self.head(pooled.squeeze(1)) + weights.sum() * 0


class GraphAttention(nn.Module):
    """Attention along edges, normalised where they arrive by a softmax of one's own."""

    def __init__(self, width: int = 6, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.out_channels = heads, width
        self.lin = nn.Linear(5, heads * width, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, heads, width))
        self.att_dst = nn.Parameter(torch.randn(1, heads, width))
        self.head = nn.Linear(heads * width, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x).view(-1, self.heads, self.out_channels)
        src, dst = edge_index[0], edge_index[1]
        score = F.leaky_relu((h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst], 0.2).exp()
        total = torch.zeros(x.size(0), self.heads, dtype=x.dtype, device=x.device).index_add_(0, dst, score)
        message = h[src] * (score / (total[dst] + 1e-16)).unsqueeze(-1)
        out = torch.zeros_like(h).index_add_(0, dst, message)
        return self.head(F.elu(out.flatten(1)))


class NeuralOde(nn.Module):
    """The same layer again and again, in steps of Runge and Kutta, with the time as one more input."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.lift, self.f, self.g = nn.Linear(4, width), nn.Linear(width + 1, 16), nn.Linear(16, width)
        self.head = nn.Linear(width, 2)

    def slope(self, t: float, x: Tensor) -> Tensor:
        return self.g(torch.tanh(self.f(torch.cat([x, torch.full_like(x[:, :1], t)], 1))))

    def forward(self, x: Tensor) -> Tensor:
        x, h = self.lift(x), 0.5
        for step in range(2):
            t = step * h
            k1 = self.slope(t, x)
            k2 = self.slope(t + h / 2, x + h / 2 * k1)
            x = x + h * k2
        return self.head(x)


class Autoencoder(nn.Module):
    """A variational one: two heads, noise, and a decoder that unflattens."""

    def __init__(self, latent: int = 6) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(8 * 2 * 2, latent), nn.Linear(8 * 2 * 2, latent)
        self.fc = nn.Linear(latent, 8 * 2 * 2)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(6, 1, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-5, 5)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu * logvar.exp()
        return self.decoder(F.relu(self.fc(z)).view(-1, 8, 2, 2))


class SelectiveScan(nn.Module):
    """A state space whose steps depend on the input, by a loop over time, with a convolution in front."""

    def __init__(self, width: int = 8, inner: int = 12, state: int = 4) -> None:
        super().__init__()
        self.inner, self.state, self.rank = inner, state, 2
        self.embed, self.in_proj = nn.Linear(3, width), nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 3, groups=inner, padding=2)
        self.x_proj, self.dt = nn.Linear(inner, self.rank + 2 * state, bias=False), nn.Linear(self.rank, inner)
        self.log_a, self.d = nn.Parameter(torch.rand(inner, state)), nn.Parameter(torch.ones(inner))
        self.out, self.head = nn.Linear(inner, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.embed(x)
        u, gate = self.in_proj(skip).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        dt, b, c = self.x_proj(u).split([self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(torch.einsum("btd,dn->btdn", dt, -torch.exp(self.log_a)))
        drive = torch.einsum("btd,btn,btd->btdn", dt, b, u)
        h, ys = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            ys.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
        y = (torch.stack(ys, dim=1) + u * self.d) * F.silu(gate)
        return self.head(skip + self.out(y))


class Recommender(nn.Module):
    """Factors of users and things, their product beside a small network of both."""

    def __init__(self, factors: int = 6) -> None:
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(7, factors), nn.Embedding(9, factors)
        self.user_mlp, self.item_mlp = nn.Embedding(7, 8), nn.Embedding(9, 8)
        layers: list[nn.Module] = []
        for before, after in ((16, 12), (12, 6)):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.mlp, self.predict = nn.Sequential(*layers), nn.Linear(factors + 6, 1)
        self.user_bias, self.item_bias = nn.Embedding(7, 1), nn.Embedding(9, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = pairs.T
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], -1))
        score = self.predict(torch.cat([gmf, mlp], -1)) + self.user_bias(user) + self.item_bias(item)
        return torch.sigmoid(score).squeeze(-1)


class FactorisationMachine(nn.Module):
    """Pairs of features by the square of a sum less the sum of squares."""

    def __init__(self, fields: int = 4, width: int = 8) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * 5)
        self.embedding, self.linear = nn.Embedding(5 * fields, width), nn.Embedding(5 * fields, 1)
        self.deep = nn.Sequential(nn.Linear(fields * width, 12), nn.ReLU(), nn.Dropout(0.0), nn.Linear(12, 1))

    def forward(self, x: Tensor) -> Tensor:
        e = self.embedding(x + self.offsets)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        return self.linear(x + self.offsets).sum(1) + pairs + self.deep(e.view(e.size(0), -1))


class Siamese(nn.Module):
    """One network for two inputs, compared by distance and cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 10), nn.PReLU(10), nn.BatchNorm1d(10), nn.Linear(10, 8))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = self.net(a), self.net(b)
        logits = self.scale.exp() * F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t()
        return logits + F.pairwise_distance(a, b)[:, None]


class DuelingQ(nn.Module):
    """Value and advantage, less its mean, over a shared trunk; noise is scaled by learned sigmas."""

    def __init__(self, hidden: int = 10, actions: int = 3) -> None:
        super().__init__()
        self.trunk = nn.Linear(4, hidden)
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, actions)
        self.sigma = nn.Parameter(torch.full((actions, hidden), 0.1))
        self.register_buffer("noise", torch.randn(hidden))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.trunk(x))
        weight = self.advantage.weight + self.sigma * self.noise
        advantage = F.linear(h, weight, self.advantage.bias)
        return self.value(h) + advantage - advantage.mean(dim=1, keepdim=True)


class LiquidCell(nn.Module):
    """A recurrent cell of one's own, with gates in one matrix and a state that starts from a parameter."""

    def __init__(self, hidden: int = 7) -> None:
        super().__init__()
        self.hidden = hidden
        self.x2h, self.h2h = nn.Linear(3, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.h0, self.tau = nn.Parameter(torch.zeros(1, hidden)), nn.Parameter(torch.ones(hidden))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.h0.expand(len(x), -1), x.new_zeros(len(x), self.h0.shape[1])
        outputs = []
        for step in x.unbind(1):
            i, f, g, o = (self.x2h(step) + self.h2h(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(self.norm(c)) / (1 + F.softplus(self.tau))
            outputs.append(h)
        return self.head(torch.stack(outputs, 1))


class PatchMixer(nn.Module):
    """An MLP-Mixer with einops-like reshapes, layer scale and drop path."""

    def __init__(self, width: int = 10, patches: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            block = nn.Module()
            block.norm1, block.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            block.token = nn.Sequential(nn.Linear(patches, 6), nn.GELU(), nn.Linear(6, patches))
            block.channel = nn.Sequential(nn.Linear(width, 14), nn.GELU(), nn.Linear(14, width))
            block.gamma = nn.Parameter(0.1 * torch.ones(width))
            self.blocks.append(block)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).mT
        for block in self.blocks:
            x = x + block.token(block.norm1(x).mT).mT
            x = x + block.gamma * block.channel(block.norm2(x))
        return self.head(x.mean(1))


class PointNet(nn.Module):
    """Shared layers for all points, a learned rotation of the features, and the largest value of each."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.k = width
        self.one, self.two = nn.Conv1d(3, width, 1), nn.Conv1d(width, 12, 1)
        self.bn, self.turn = nn.BatchNorm1d(width), nn.Linear(width, width * width)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.one(x)))
        turn = self.turn(x.max(2)[0]).view(-1, self.k, self.k) + torch.eye(self.k, dtype=x.dtype, device=x.device)
        x = torch.bmm(turn, x)
        return self.head(torch.max(self.two(x), 2, keepdim=True)[0].view(len(x), -1))


class KolmogorovArnold(nn.Module):
    """A spline on every edge, as a sum of bumps."""

    def __init__(self, sizes: tuple[int, ...] = (4, 6, 2), bumps: int = 3) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(-1, 1, bumps))
        pairs = list(itertools.pairwise(sizes))
        self.coefficients = nn.ParameterList(nn.Parameter(torch.randn(o, i, bumps)) for i, o in pairs)
        self.base = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in pairs)

    def forward(self, x: Tensor) -> Tensor:
        for coefficients, base in zip(self.coefficients, self.base, strict=True):
            bumps = torch.exp(-((x.unsqueeze(-1) - self.centres) ** 2) * 2)
            x = base(F.silu(x)) + torch.einsum("bik,oik->bo", bumps, coefficients)
        return x


class HyperNetwork(nn.Module):
    """Tasks make the scale and shift of a backbone's layers, by one table for all layers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.tasks = nn.Embedding(3, 5)
        self.layers = nn.ModuleList([nn.Linear(4, width), nn.Linear(width, width)])
        self.film = nn.ModuleList([nn.Linear(5, 2 * width) for _ in range(2)])
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        e = self.tasks(task)
        for layer, film in zip(self.layers, self.film, strict=True):
            gamma, beta = torch.split(film(e), film.out_features // 2, dim=-1)
            x = F.gelu((1 + gamma) * layer(x) + beta)
        return self.head(x)


class VectorQuantiser(nn.Module):
    """Codes of an image, with the gradient passed straight through and a table that is a buffer."""

    def __init__(self, width: int = 6, codes: int = 5) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv2d(1, width, 2, 2), nn.ConvTranspose2d(width, 1, 2, 2)
        self.codebook = nn.Parameter(torch.randn(codes, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.shape[-1])
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codebook.t() + self.codebook.pow(2).sum(1)
        q = F.embedding(d.argmin(1), self.codebook).view(z.shape)
        loss = (q - z.detach()).pow(2).mean() + 0.25 * (q.detach() - z).pow(2).mean()
        q = z + (q - z).detach()
        return self.decode(q.permute(0, 3, 1, 2)), loss


class TwoTower(nn.Module):
    """A frozen backbone, an adapter beside it, and a momentum copy that is never trained."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width))
        self.backbone.requires_grad_(False)
        self.down, self.up = nn.Linear(width, 3), nn.Linear(3, width)
        self.online, self.target = nn.Linear(width, 6), nn.Linear(width, 6)
        self.target.requires_grad_(False)
        self.predict = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = self.backbone(x)
        h = h + self.up(F.relu(self.down(h)))
        with torch.no_grad():
            goal = self.target(h)
        return F.cosine_similarity(self.predict(self.online(h)), goal, dim=-1)


class Rotary(nn.Module):
    """Llama as people shorten it: RMS norms, rotary angles kept in a buffer, few keys, SwiGLU, tied logits."""

    def __init__(self, vocab: int = 11, width: int = 16, heads: int = 4, kv: int = 2, head_dim: int = 4) -> None:
        super().__init__()
        self.heads, self.kv, self.head_dim = heads, kv, head_dim
        self.tok = nn.Embedding(vocab, width)
        self.wq, self.wo = (
            nn.Linear(width, heads * head_dim, bias=False),
            nn.Linear(heads * head_dim, width, bias=False),
        )
        self.wk, self.wv = (nn.Linear(width, kv * head_dim, bias=False) for _ in range(2))
        self.w1, self.w3, self.w2 = nn.Linear(width, 20), nn.Linear(width, 20), nn.Linear(20, width)
        self.n1, self.n2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        angles = torch.outer(torch.arange(8.0), 1 / 100 ** (torch.arange(0, head_dim, 2) / head_dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @staticmethod
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotate(self, x: Tensor) -> Tensor:
        cos, sin = self.cos[: x.size(1), None], self.sin[: x.size(1), None]
        one, two = x[..., ::2], x[..., 1::2]
        return torch.stack((one * cos - two * sin, one * sin + two * cos), -1).flatten(-2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens)
        b, t, _ = x.shape
        h = self.norm(x, self.n1)
        q = self.rotate(self.wq(h).view(b, t, self.heads, self.head_dim))
        k = self.rotate(self.wk(h).view(b, t, self.kv, self.head_dim))
        v = self.wv(h).view(b, t, self.kv, self.head_dim)
        k, v = (y.repeat_interleave(self.heads // self.kv, dim=2) for y in (k, v))
        mask = torch.full((t, t), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * 0.5 + mask
        x = x + self.wo(torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(b, t, -1))
        h = self.norm(x, self.n2)
        x = x + self.w2(F.silu(self.w1(h)) * self.w3(h))
        return x @ self.tok.weight.t()


class Superresolution(nn.Module):
    """Residual in residual, scaled by 0.2, with a pixel shuffle and a bicubic shortcut."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width + 4 * i, 4, 3, padding=1) for i in range(2))
        self.fuse, self.up = nn.Conv2d(width + 8, width, 1), nn.Conv2d(width, 4 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        kept = [h]
        for conv in self.body:
            kept.append(F.leaky_relu(conv(torch.cat(kept, 1)), 0.2, inplace=True))
        h = h + 0.2 * self.fuse(torch.cat(kept, 1))
        up = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return self.last(F.pixel_shuffle(self.up(h), 2)) + up


_EDGES = torch.tensor([[0, 1, 2, 3, 4, 1], [1, 2, 0, 4, 3, 3]])
Made = tuple[Callable[[], nn.Module], tuple[Any, ...], float]  # how it is made, inputs, the least share that is free
NETWORKS: dict[str, Made] = {
    "several kernels": (MultiScaleCnn, (torch.randn(2, 3, 6, 6),), 0.4),
    "denoiser": (UNetWithTime, (torch.randn(2, 1, 8, 8), torch.tensor([3, 7])), 0.9),
    "set transformer": (SetTransformer, (torch.randn(2, 5, 3),), -1.0),
    "graph attention": (GraphAttention, (torch.randn(5, 5), _EDGES), 0.9),
    "neural ode": (NeuralOde, (torch.randn(3, 4),), 0.8),
    "variational autoencoder": (Autoencoder, (torch.randn(2, 1, 8, 8),), 0.5),
    "selective scan": (SelectiveScan, (torch.randn(2, 5, 3),), 0.9),
    "recommender": (Recommender, (torch.tensor([[1, 2], [3, 4], [6, 8]]),), 0.9),
    "factorisation machine": (FactorisationMachine, (torch.randint(0, 5, (3, 4)),), 0.9),
    "siamese": (Siamese, (torch.randn(3, 6), torch.randn(3, 6)), 0.9),
    "dueling q": (DuelingQ, (torch.randn(3, 4),), 0.5),
    "liquid cell": (LiquidCell, (torch.randn(2, 4, 3),), 0.9),
    "patch mixer": (PatchMixer, (torch.randn(2, 3, 8, 8),), 0.9),
    "point net": (PointNet, (torch.randn(2, 3, 7),), 0.1),
    "kolmogorov-arnold": (KolmogorovArnold, (torch.randn(3, 4),), 0.9),
    "hyper network": (HyperNetwork, (torch.randn(3, 4), torch.tensor([0, 1, 2])), 0.9),
    "vector quantiser": (VectorQuantiser, (torch.randn(2, 1, 4, 4),), 0.9),
    "two towers": (TwoTower, (torch.randn(3, 5),), 0.1),
    "rotary": (Rotary, (torch.randint(0, 11, (2, 6)),), 0.9),
    "super-resolution": (Superresolution, (torch.randn(2, 1, 6, 6),), 0.9),
}
