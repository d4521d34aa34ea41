"""The grammar: attention and other ways in which tokens and channels look at each other, as people write them."""

from __future__ import annotations

from fuzz.construct import Construct, table

_QKV = "self.{a} = nn.Linear({C}, 24)\nself.{b} = nn.Linear(8, {C})"
_MIXED = "h = h + self.{b}({w}.transpose(1, 2).reshape(len(h), -1, 8))"

ATTENTION = table(
    Construct(
        "one_matrix_reshaped",
        """\
{u}, {v}, {w} = self.{a}(h).reshape(len(h), {T}, 3, 2, 4).permute(2, 0, 3, 1, 4)
{w} = ({u} @ {v}.transpose(-2, -1) * 0.5).softmax(-1) @ {w}
"""
        + _MIXED,
        _QKV,
        domains="S",
    ),
    Construct(
        "one_matrix_unbound",
        """\
{u}, {v}, {w} = self.{a}(h).reshape(len(h), {T}, 3, self.{d}, -1).permute(2, 0, 3, 1, 4).unbind(0)
{w} = F.scaled_dot_product_attention({u}, {v}, {w}, scale=0.5)
h = h + self.{b}({w}.transpose(1, 2).flatten(2))""",
        _QKV + "\nself.{d} = 2",
        domains="S",
    ),
    Construct(
        "as_wide_as_its_input",
        """\
{u}, {v}, {w} = self.{a}(h).split({n}, -1)
{u}, {v}, {w} = (z.view(len(h), {T}, 2, {n} // 2).transpose(1, 2) for z in ({u}, {v}, {w}))
{w} = F.scaled_dot_product_attention({u}, {v}, {w}, is_causal=True)
h = h + self.{b}({w}.transpose(1, 2).contiguous().view(len(h), {T}, {n}))""",
        "self.{a} = nn.Linear({C}, 3 * {C})\nself.{b} = nn.Linear({C}, {C})",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "three_layers",
        """\
{u}, {v}, {w} = (layer(h).view(len(h), {T}, 2, -1).transpose(1, 2) for layer in self.{a})
{u} = {u} @ {v}.transpose(2, 3) / math.sqrt({v}.shape[-1])
{w} = {u}.masked_fill(torch.triu(torch.ones({T}, {T}, dtype=torch.bool), 1), -torch.inf).softmax(-1) @ {w}
h = h + self.{b}({w}.transpose(1, 2).flatten(2))""",
        "self.{a} = nn.ModuleList([nn.Linear({C}, 8, bias=False) for _ in range(3)])\nself.{b} = nn.Linear(8, {C})",
        domains="S",
    ),
    Construct(
        "einsum_of_heads",
        """\
{u}, {v}, {w} = (torch.einsum("btc,chd->bhtd", h, z) for z in (self.{a}, self.{b}, self.{d}))
{w} = torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", {u}, {v}).softmax(-1), {w})
h = h + torch.einsum("bhtd,chd->btc", {w}, self.{d})""",
        """\
self.{a} = nn.Parameter(torch.randn({C}, 2, 3))
self.{b} = nn.Parameter(torch.randn({C}, 2, 3))
self.{d} = nn.Parameter(torch.randn({C}, 2, 3))""",
        domains="S",
    ),
    Construct(
        "few_keys",
        """\
{u} = self.{a}(h).unflatten(-1, (4, -1)).transpose(1, 2)
{v} = self.{b}(h).unflatten(-1, (2, -1)).transpose(1, 2).repeat_interleave(2, 1)
{w} = F.scaled_dot_product_attention({u}, {v}, {v}, scale=1.0)
h = h + self.{d}({w}.transpose(1, 2).flatten(2))""",
        "self.{a} = nn.Linear({C}, 12)\nself.{b} = nn.Linear({C}, 6)\nself.{d} = nn.Linear(12, {C})",
        domains="S",
    ),
    Construct(
        "keys_expanded",
        """\
{u} = self.{a}(h).view(len(h), {T}, 2, 2, -1)
{v} = self.{b}(h).view(len(h), {T}, 2, 1, {u}.shape[-1]).expand(-1, -1, -1, 2, -1)
{w} = torch.einsum("bikgd,bjkgd->bkgij", {u}, {v}).softmax(-1)
h = h + self.{d}(torch.einsum("bkgij,bjkgd->bikgd", {w}, {v}).flatten(2))""",
        "self.{a} = nn.Linear({C}, 12)\nself.{b} = nn.Linear({C}, 6)\nself.{d} = nn.Linear(12, {C})",
        domains="S",
    ),
    Construct(
        "normed_keys",
        """\
{u}, {v}, {w} = self.{a}(h).unflatten(-1, (2, -1)).transpose(1, 2).chunk(3, -1)
{w} = F.scaled_dot_product_attention(F.normalize({u}, dim=-1), self.{d}({v}), {w}, scale=2.0)
h = h + self.{b}({w}.transpose(1, 2).flatten(2))""",
        _QKV + "\nself.{d} = nn.RMSNorm(4)",
        domains="S",
    ),
    Construct(
        "talking_heads",
        """\
{u} = self.{a}(h).unflatten(-1, (2, -1)).transpose(1, 2)
{w} = self.{d}(({u} @ {u}.transpose(2, 3)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1) @ {u}
h = h + self.{b}({w}.transpose(1, 2).flatten(2))""",
        "self.{a} = nn.Linear({C}, 8)\nself.{b} = nn.Linear(8, {C})\nself.{d} = nn.Linear(2, 2)",
        domains="S",
    ),
    Construct(
        "linear_attention",
        """\
{u}, {v}, {w} = self.{a}(h).chunk(3, -1)
h = h + self.{b}(F.elu({u} + 1) @ (F.elu({v}).add(1).transpose(1, 2) @ {w}))""",
        _QKV,
        domains="S",
    ),
    Construct(
        "channels_attend",
        """\
{u}, {v}, {w} = self.{a}(h).transpose(1, 2).chunk(3, 1)
h = h + self.{b}((F.normalize({u}, dim=-1) @ {v}.transpose(1, 2)).softmax(-1).matmul({w}).transpose(1, 2))""",
        _QKV,
        domains="S",
    ),
    Construct(
        "learned_queries",
        """\
{u} = self.{a}.expand(len(h), -1, -1) @ h.transpose(1, 2)
h = h + self.{b}({u}.softmax(-1) @ h).mean(1, keepdim=True)""",
        "self.{a} = nn.Parameter(torch.randn(1, 4, {C}))\nself.{b} = {CC}",
        domains="S",
    ),
    Construct(
        "pooled_by_attention",
        "h = (h * self.{a}(h).softmax(1)).sum(1)",
        "self.{a} = nn.Linear({C}, 1)",
        domains="S",
        to="F",
    ),
    Construct(
        "memory_of_keys",
        "h = h + (h @ self.{a}.t()).softmax(-1) @ self.{b}",
        "self.{a} = nn.Parameter(torch.randn({D}, {C}))\nself.{b} = nn.Parameter(torch.randn({D}, {C}))",
        domains="FS",
    ),
    Construct(
        "cross_attention",
        "h = h + self.{a}(h, self.{b}(h), self.{b}(h))[0]",
        "self.{a} = nn.MultiheadAttention({C}, 2, batch_first=True, kdim={D}, vdim={D})\nself.{b} = {CD}",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "decoder_layer",
        "h = self.{a}(h, h.flip(1))",
        "self.{a} = nn.TransformerDecoderLayer({C}, 2, {D}, 0.0, batch_first=True, norm_first=True)",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "encoder_stack",
        "h = self.{a}(h, src_key_padding_mask=torch.arange({T}).expand(len(h), -1) >= {T})",
        "self.{a} = nn.TransformerEncoder(nn.TransformerEncoderLayer({C}, 2, {D}, 0.0, batch_first=True), 2)",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "windows",
        """\
{u} = h.unflatten(2, (2, 2)).unflatten(4, (2, 2)).permute(0, 2, 4, 3, 5, 1).flatten(1, 2).flatten(2, 3)
{u} = {u} + ({u} @ {u}.transpose(2, 3)).softmax(-1) @ self.{a}({u})
h = {u}.unflatten(2, (2, 2)).unflatten(1, (2, 2)).permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)""",
        "self.{a} = nn.Linear({C}, {C})",
        domains="I",
    ),
    Construct(
        "slots_of_experts",
        """\
{u} = self.{a}(h).softmax(-1)
h = h + torch.einsum("bte,betc->btc", {u}, torch.stack([layer(h) for layer in self.{b}], 1))""",
        "self.{a} = nn.Linear({C}, 2)\nself.{b} = nn.ModuleList([nn.Linear({C}, {C}), nn.Linear({C}, {C})])",
        domains="S",
    ),
    Construct(
        "best_expert",
        """\
{u}, {v} = self.{a}(h).softmax(-1).topk(1, -1)
{w} = torch.zeros_like(h)
for i, expert in enumerate(self.{b}):
    {w} = {w} + torch.where({v} == i, {u} * expert(h), 0)
h = h + {w}""",
        "self.{a} = nn.Linear({C}, 2)\nself.{b} = nn.ModuleList([nn.Linear({C}, {C}), nn.Linear({C}, {C})])",
        domains="FS",
    ),
    Construct(
        "batched_experts",
        """\
{u} = torch.einsum("btc,ecd->betd", h, self.{a}) + self.{b}[:, None]
h = torch.einsum("betd,bte->btd", torch.relu({u}), h.mean(-1, keepdim=True).softmax(1).expand(-1, -1, 2))""",
        "self.{a} = nn.Parameter(torch.randn(2, {C}, {D}))\nself.{b} = nn.Parameter(torch.randn(2, {D}))",
        "D",
        "S",
    ),
    Construct(
        "slow_state",
        """\
{u}, {v} = torch.zeros_like(h[:, 0]), []
for token in h.unbind(1):
    {u} = torch.sigmoid(self.{a}) * {u} + token
    {v}.append({u})
h = torch.stack({v}, 1)""",
        "self.{a} = nn.Parameter(torch.randn({C}))",
        domains="S",
    ),
    Construct(
        "state_space",
        """\
{u}, {v} = h.new_zeros(len(h), h.shape[-1], 4), []
for token in h.unbind(1):
    {u} = {u} * torch.exp(-self.{a}.exp()) + token.unsqueeze(-1) * self.{b}
    {v}.append({u}.sum(-1) + self.{d} * token)
h = torch.stack({v}, 1)""",
        """\
self.{a} = nn.Parameter(torch.randn({C}, 4))
self.{b} = nn.Parameter(torch.randn(4))
self.{d} = nn.Parameter(torch.ones({C}))""",
        domains="S",
    ),
    Construct(
        "decay_of_each_channel",
        "h = torch.cumsum(h * torch.exp({u} * self.{a}), 1) * torch.exp(-{u} * self.{a})".join(
            ["{u} = torch.arange({T}).unsqueeze(1)\n", ""]
        ),
        "self.{a} = nn.Parameter(torch.rand({C}))",
        domains="S",
    ),
    Construct(
        "token_shift",
        "{u} = F.pad(h, (0, 0, 1, -1))\nh = h * self.{a} + {u} * (1 - self.{a})",
        "self.{a} = nn.Parameter(torch.rand({C}))",
        domains="S",
    ),
    Construct(
        "fourier_mixing",
        "h = h + torch.fft.fft(torch.fft.fft(h, dim=-1), dim=1).real",
        domains="S",
    ),
    Construct("fourier_along_tokens", "h = torch.fft.irfft(torch.fft.rfft(h, dim=1), n={T}, dim=1)", domains="S"),
    Construct(
        "spatial_gate",
        "{u}, {v} = h.chunk(2, -1)\nh = {u} * self.{b}(self.{a}({v}).transpose(1, 2)).transpose(1, 2)",
        "self.{a} = nn.LayerNorm({C} // 2)\nself.{b} = nn.Linear({T}, {T})",
        "C // 2",
        "S",
        "C % 2 == 0",
    ),
)
