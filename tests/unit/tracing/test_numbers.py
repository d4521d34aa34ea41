"""Numbers that a model makes while it runs: those by position and those in which a width is pin the units they meet."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import meristem
from between import Between, WithRealNumbers, assert_free_and_exact, pinned

BY_POSITION: dict[str, Callable[[Tensor, int], Tensor]] = {
    "arange": lambda x, n: x + torch.arange(n),
    "linspace": lambda x, n: x * torch.linspace(0, 1, n),
    "logspace": lambda x, n: x * torch.logspace(0, 1, n),
    "eye": lambda x, n: x @ (torch.eye(n) + 1),
    "randperm": lambda x, n: x + torch.randperm(n),
    "a window that has no rule": lambda x, n: x * torch.hamming_window(n),
    "a triangle": lambda x, n: x * torch.ones(n, n).tril()[n // 2],
    "a running sum": lambda x, n: x * torch.ones(n).cumsum(0),
    "joined constants": lambda x, n: x * torch.cat([torch.zeros(n // 2), torch.ones(n - n // 2)]),
    "padded constants": lambda x, n: x * F.pad(torch.ones(n - n // 2), (n // 2, 0)),
    "each twice": lambda x, n: x + torch.arange(n - n // 2).repeat_interleave(2)[:n],
    "all twice": lambda x, n: x + torch.arange(n - n // 2).repeat(2)[:n],
    "a column repeated": lambda x, n: x + torch.arange(n)[:, None].expand(-1, 3).reshape(-1).view(n, 3)[:, 0],
}


@pytest.mark.parametrize("name", BY_POSITION)
def test_numbers_by_position_pin(name: str) -> None:
    """The third live unit is another one than the third of the full network, so it would get another's number."""
    why = pinned(Between(BY_POSITION[name]))
    assert "meets a fixed dimension" in why or "contracted with a fixed dimension" in why


CONSTANT: dict[str, Callable[[Tensor, int], Tensor]] = {
    "ones": lambda x, n: x * torch.ones(n, dtype=x.dtype),
    "full": lambda x, n: x + torch.full((len(x), n), 0.5, dtype=x.dtype),
    "repeated": lambda x, n: x + torch.full((len(x), 1), 0.5, dtype=x.dtype).repeat(1, n),
    "a number for each sample": lambda x, n: x * torch.arange(len(x))[:, None].expand(-1, n),
    "not a number": lambda x, n: x.masked_fill(x > 1e9, float("nan")),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants_fit_any_width(name: str) -> None:
    assert_free_and_exact(Between(CONSTANT[name]))


def test_random_numbers_fit_any_width() -> None:
    """Which units there are does not matter to noise, unless the units say how it is drawn."""
    assert not pinned(Between(lambda x, n: x + torch.normal(0.0, 1.0, (n,))))
    assert not pinned(Between(lambda x, n: x + torch.randn(n)))
    assert pinned(Between(lambda x, n: torch.normal(x, 1.0)))


def _codes(x: Tensor, n: int) -> Tensor:
    return x * torch.randn(n, generator=torch.Generator().manual_seed(7))


def _codes_of_the_global_generator(x: Tensor, n: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return x * torch.randn(n).sign()


@pytest.mark.parametrize("codes", [_codes, _codes_of_the_global_generator])
@pytest.mark.parametrize("kind", [Between, WithRealNumbers])
def test_codes_of_a_seeded_generator_are_numbers_by_position(
    kind: type[Between], codes: Callable[[Tensor, int], Tensor]
) -> None:
    assert "meets a fixed dimension" in pinned(kind(codes))


OF_A_WIDTH: dict[str, Callable[[Tensor, int], Tensor]] = {
    "factor": lambda x, n: x / math.sqrt(n),
    "alpha": lambda x, n: torch.addmm(x, x[:, :1] * 0 + 1, x.new_ones(1, n), alpha=n),
    "beta": lambda x, n: torch.addmm(x, x.new_ones(len(x), 1), x.new_ones(1, n), beta=1 / n),
    "value": lambda x, n: torch.addcmul(x, x, x, value=1 / n),
    "weight": lambda x, n: torch.lerp(x, x * x, 1 / n),
    "fill": lambda x, n: x * torch.full((n,), 1 / n),
    "bound": lambda x, n: x.clamp(max=n),
    "other": lambda x, n: torch.where(x > 0, x, 1 / n),
    "chance": lambda x, n: x * torch.ones(n).bernoulli_(1 / n),
    "a tensor": lambda x, n: x / torch.tensor(n),
    "a tensor on the same device": lambda x, n: x / torch.tensor(float(n), device=x.device).sqrt(),
    "a tensor like another": lambda x, n: x * x.new_tensor(n),
    "a tensor of several": lambda x, n: x * torch.as_tensor([1.0, 1 / n]).sum(),
    "a number of numpy's": lambda x, n: x * torch.from_numpy(np.array(1 / n, dtype=np.float32)),
    "numbers of numpy's": lambda x, n: x * torch.from_numpy(np.full((len(x), 1), 1 / n, dtype=np.float32)),
    "softmax of constants": lambda x, n: x * torch.softmax(torch.zeros(n), 0),
    "a sum of constants": lambda x, n: x / torch.ones(n).sum(),
    "a sum over constants like the units": lambda x, n: x / torch.ones_like(x).sum(1, keepdim=True),
    "a norm of constants": lambda x, n: x / torch.ones(n).norm(),
    "a product of constants": lambda x, n: x * torch.full((n,), 0.5).prod(),
    "constants times constants": lambda x, n: x * (torch.ones(n) @ torch.ones(n)),
    "a matrix of constants": lambda x, n: x * torch.mm(torch.ones(len(x), n), torch.ones(n, 1)),
    "a sum over a running index": lambda x, n: x / torch.arange(n).sum(),
    "the last of a running index": lambda x, n: x / (1 + torch.arange(n)[-1]),
    "the end of a range": lambda x, n: x / torch.linspace(1, n, 3)[-1],
    "a range that starts at a width": lambda x, n: x / torch.arange(n, n + 1),
    "a sum of what is expanded to the width": lambda x, n: x * x.mean(1, True).expand(-1, n).sum(1, True),
    "how many there are": lambda x, n: x / (torch.ones(n) > 0).count_nonzero(),
    "a running sum of constants": lambda x, n: x / torch.ones(n).cumsum(0)[-1],
    "a window over constants": lambda x, n: x * F.avg_pool1d(torch.ones(1, 1, n + 1), n, 1, 1).amax(),
    "the product of sums": lambda x, n: x * torch.einsum("i,j->", torch.ones(n), torch.ones(3)),
}


@pytest.mark.parametrize("name", OF_A_WIDTH)
def test_numbers_of_a_width_pin(name: str) -> None:
    """Scaling by a width would make the small network another function than the masked one."""
    assert "a number in the computation depends on its size" in pinned(Between(OF_A_WIDTH[name]))


@pytest.mark.parametrize("name", ["a tensor", "a tensor on the same device", "weight"])
def test_numbers_of_a_width_in_a_run_with_real_numbers(name: str) -> None:
    assert "a number in the computation depends on its size" in pinned(WithRealNumbers(OF_A_WIDTH[name]))


def test_tensors_of_the_same_numbers_are_free() -> None:
    assert_free_and_exact(Between(lambda x, n: x * torch.tensor([0.5, x.new_tensor(3.0).item()]).sum() / len(x)))


class Attention(nn.Module):
    """Two heads of three dimensions; ``scale`` and ``mask`` are made of the queries."""

    def __init__(self, scale: Callable[[Tensor], float], mask: Callable[[Tensor], Tensor | None]) -> None:
        super().__init__()
        self.num_heads, self.scale, self.mask = 2, scale, mask
        self.qkv, self.head = nn.Linear(5, 18), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, self.num_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q), scale=self.scale(q))
        return self.head(out.transpose(1, 2).reshape(b, n, -1))


class RealAttention(Attention):
    """The fused operation is only seen with real numbers; elsewhere torch takes it apart."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 1 if x.sum() > 1000 else x)


def slopes(q: Tensor) -> Tensor:
    """A bias for each head by its number."""
    return torch.arange(q.size(1), dtype=q.dtype)[:, None, None] * torch.ones(4, 4, dtype=q.dtype)


TOKENS = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [Attention, RealAttention])
def test_the_scale_of_attention(kind: type[Attention]) -> None:
    """A plain number is the same at any width; one that is a power of a head's size follows it."""
    for scale in (lambda q: 0.5, lambda q: q.size(-1) ** -0.5, lambda q: 2 / q.size(-1), lambda q: None):
        model = kind(scale, lambda q: None)
        assert meristem.trace(model, TOKENS).full == {"qkv:heads": 2, "qkv": 3}
        assert_free_and_exact(model, (TOKENS,))


@pytest.mark.parametrize("kind", [Attention, RealAttention])
def test_a_scale_that_is_no_power_of_a_size(kind: type[Attention]) -> None:
    """It pins that size, not the heads: what it is in the masked network cannot be told."""
    model = kind(lambda q: (q.size(-1) + 1) ** -0.5, lambda q: None)
    assert meristem.trace(model, TOKENS).full == {"qkv:heads": 2}
    assert_free_and_exact(model, (TOKENS,))


class ByHand(nn.Module):
    """What a head computes is scaled by numbers of its own size and of others."""

    def __init__(self, changed: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.num_heads, self.changed = 2, changed
        self.qkv, self.head = nn.Linear(5, 24), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, self.num_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = torch.softmax(self.changed(q @ k.transpose(-2, -1), q.size(-1)), -1)
        return self.head((weights @ v).transpose(1, 2).reshape(b, n, -1))


FOLLOWED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "multiplied": lambda scores, d: scores * d**-0.5,
    "divided": lambda scores, d: scores / math.sqrt(d),
    "in place": lambda scores, d: scores.mul_(1 / math.sqrt(d)),
    "a third of it": lambda scores, d: scores * (d**-0.5 / 3),
    "twice": lambda scores, d: (scores * d**-0.25) * d**-0.25,
    "and a number": lambda scores, d: scores * d**-0.5 * 0.3,
}
UNFOLLOWED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "the same number": lambda scores, d: scores * d**-0.5 * 0.5,
    "the same number before": lambda scores, d: scores * 0.5 * d**-0.5,
    "rounded": lambda scores, d: scores * round(1 / math.sqrt(d), 2),
    "added": lambda scores, d: scores + d**-0.5,
    "a logarithm": lambda scores, d: scores / math.log(d + 1),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_numbers_that_follow_a_size_that_is_run_across(name: str) -> None:
    model = ByHand(FOLLOWED[name])
    space = meristem.trace(model, TOKENS)
    assert space.full == {"qkv:heads": 2, "qkv": 4}
    assert space.groups["qkv"].mixes_units
    assert not space.groups["qkv:heads"].mixes_units
    assert_free_and_exact(model, (TOKENS,))


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_numbers_that_follow_a_size_in_another_way(name: str) -> None:
    model = ByHand(UNFOLLOWED[name])
    assert meristem.trace(model, TOKENS).full == {"qkv:heads": 2}
    assert_free_and_exact(model, (TOKENS,))


@pytest.mark.parametrize("kind", [Attention, RealAttention])
def test_a_bias_by_the_number_of_the_head(kind: type[Attention]) -> None:
    assert meristem.trace(kind(lambda q: 0.5, slopes), TOKENS).full == {"qkv": 3}


class SizeOfAnother(nn.Module):
    """Six layers of as many units; the output of one is shaped by the width of another."""

    def __init__(self, shaped: int, by: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 8, 1) for _ in range(6))
        self.shaped, self.by = shaped, by
        self.heads = nn.ModuleList(nn.Linear(16, 2) if at == shaped else nn.Conv2d(8, 2, 1) for at in range(6))

    def forward(self, x: Tensor) -> Tensor:
        made = [layer(x) for layer in self.layers]
        read = [
            head(out).mean((2, 3)) for head, out in zip(self.heads, made, strict=True) if isinstance(head, nn.Conv2d)
        ]
        tokens = made[self.shaped].reshape(len(x), made[self.by].shape[1], -1)
        return sum(read, torch.zeros(())) + self.heads[self.shaped](tokens).mean(1)


@pytest.mark.parametrize(("shaped", "by"), [(0, 2), (0, 4), (2, 4), (1, 3), (1, 5), (3, 5)])
def test_the_width_of_another_layer_ties_both_or_pins(shaped: int, by: int) -> None:
    """Random widths must not be the same by accident: then nothing would show that they have to be."""
    space = meristem.trace(SizeOfAnother(shaped, by), torch.randn(2, 3, 4, 4))
    assert not {f"layers.{shaped}", f"layers.{by}"} <= set(space.groups)
    assert len(space.groups) >= 4
