"""The grammar: where in a sequence or an image something stands, in the ways people tell it to a network."""

from __future__ import annotations

from fuzz.construct import Construct, table

_FREQUENCIES = "torch.exp(torch.arange(0, {n}, 2) * (-math.log(10000.0) / {n}))"

POSITIONS = table(
    Construct(
        "looked_up", "h = h + self.{a}(torch.arange(h.shape[1]))", "self.{a} = nn.Embedding({T}, {C})", domains="S"
    ),
    Construct(
        "looked_up_functionally",
        "h = h + F.embedding(torch.arange(h.size(1)), self.{a})",
        "self.{a} = nn.Parameter(torch.randn({T} + 2, {C}))",
        domains="S",
    ),
    Construct(
        "rows_of_a_parameter",
        "h = h + self.{a}[:, : h.size(1)]",
        "self.{a} = nn.Parameter(torch.randn(1, {T} + 2, {C}))",
        domains="S",
    ),
    Construct(
        "rows_and_channels_of_a_parameter",
        "h = h + self.{a}[: h.size(1), : h.size(2)]",
        "self.{a} = nn.Parameter(torch.randn({T} + 1, {C} + 2))",
        domains="S",
    ),
    Construct(
        "sines_in_a_buffer",
        "h = h + self.{a}[: h.size(1)]",
        """\
{u} = torch.zeros({T} + 3, {C})
{v} = torch.arange({T} + 3.0).unsqueeze(1) * torch.exp(torch.arange(0, {C}, 2) * (-math.log(10000.0) / {C}))
{u}[:, 0::2] = torch.sin({v})
{u}[:, 1::2] = torch.cos({v})[:, : {C} // 2]
self.register_buffer("{a}", {u})""",
        domains="S",
    ),
    Construct(
        "sines_joined",
        f"{{v}} = torch.arange({{T}}).unsqueeze(1) * {_FREQUENCIES}\nh = h + torch.cat([{{v}}.sin(), {{v}}.cos()], -1)",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "sines_through_a_layer",
        """\
{v} = torch.arange({T}, dtype=h.dtype).unsqueeze(1) * torch.arange(1, 4)
h = h + self.{a}(torch.cat([{v}.sin(), {v}.cos()], -1))""",
        "self.{a} = nn.Linear(6, {C})",
        domains="S",
    ),
    Construct(
        "rotated_halves",
        """\
{u} = torch.arange({T}).unsqueeze(1) / torch.arange(1, h.shape[-1] // 2 + 1)
{u} = torch.cat([{u}, {u}], -1)
{v}, {w} = h.chunk(2, -1)
h = h * {u}.cos() + torch.cat([-{w}, {v}], -1) * {u}.sin()""",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "rotated_pairs",
        """\
{u} = torch.arange({T}).unsqueeze(1) / torch.arange(1, h.shape[-1] // 2 + 1)
{v}, {w} = h[..., ::2], h[..., 1::2]
h = torch.stack([{v} * {u}.cos() - {w} * {u}.sin(), {v} * {u}.sin() + {w} * {u}.cos()], -1).flatten(-2)""",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "rotated_as_complex",
        """\
{u} = torch.outer(torch.arange({T}, dtype=h.dtype), self.{a})
{v} = torch.view_as_complex(h.reshape(*h.shape[:-1], -1, 2))
h = torch.view_as_real({v} * torch.polar(torch.ones_like({u}), {u})).flatten(-2)""",
        'self.register_buffer("{a}", 1 / torch.arange(1.0, {C} // 2 + 1))',
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "rotated_heads",
        """\
{u} = self.{a}(h).unflatten(-1, (2, -1)).transpose(1, 2)
{v} = torch.outer(torch.arange({T}), self.{d}).repeat(1, 2)
{u} = {u} * {v}.cos() + torch.cat([-{u}.chunk(2, -1)[1], {u}.chunk(2, -1)[0]], -1) * {v}.sin()
h = h + self.{b}({u}.transpose(1, 2).flatten(2))""",
        """\
self.{a} = nn.Linear({C}, 8)
self.{b} = nn.Linear(8, {C})
self.{d} = 1 / torch.arange(1.0, 3.0)""",
        domains="S",
    ),
    Construct(
        "one_angle_for_all",
        "{u} = torch.arange({T}).view(-1, 1)\nh = h * {u}.cos() + h.roll(1, 1) * {u}.sin()",
        domains="S",
    ),
    Construct(
        "bias_by_distance",
        """\
{u} = self.{a}(h).unflatten(-1, (2, -1)).transpose(1, 2)
{v} = torch.arange({T})[None] - torch.arange({T})[:, None]
{w} = {u} @ {u}.transpose(2, 3) - {v}.abs() * 2.0 ** -torch.arange(2).view(2, 1, 1)
h = h + self.{b}(({w}.softmax(-1) @ {u}).transpose(1, 2).flatten(2))""",
        "self.{a} = nn.Linear({C}, 8)\nself.{b} = nn.Linear(8, {C})",
        domains="S",
    ),
    Construct(
        "bias_for_each_distance",
        """\
{u} = self.{a}(h).unflatten(-1, (2, -1)).transpose(1, 2)
{v} = torch.arange({T})[None] - torch.arange({T})[:, None] + {T} - 1
{w} = {u} @ {u}.transpose(2, 3) + self.{d}({v}).permute(2, 0, 1)
h = h + self.{b}(({w}.softmax(-1) @ {u}).transpose(1, 2).flatten(2))""",
        "self.{a} = nn.Linear({C}, 8)\nself.{b} = nn.Linear(8, {C})\nself.{d} = nn.Embedding(2 * {T} - 1, 2)",
        domains="S",
    ),
    Construct(
        "kept_for_the_length",
        """\
if self.{a} is None or self.{a}.shape[0] < h.shape[1]:
    self.{a} = torch.cos(torch.arange(h.shape[1])).unsqueeze(1)
h = h + self.{a}[: h.shape[1]]""",
        "self.{a} = None",
        domains="S",
    ),
    Construct(
        "kept_for_length_and_width",
        """\
if self.{a} is None or self.{a}.shape != h.shape[1:]:
    self.{a} = torch.cos(torch.outer(torch.arange(h.shape[1]), torch.arange(h.shape[2])))
h = h + self.{a}""",
        "self.{a} = None",
        domains="S",
    ),
    # images
    Construct(
        "coordinates",
        """\
{u}, {v} = torch.meshgrid(torch.arange(h.shape[2]), torch.arange(h.shape[3]), indexing="ij")
h = self.{a}(torch.cat([h, {u}.expand(len(h), 1, -1, -1), {v}.expand(len(h), 1, -1, -1)], 1))""",
        "self.{a} = nn.Conv2d({C} + 2, {D}, 1)",
        "D",
        "I",
    ),
    Construct(
        "rows_and_columns",
        "h = h + torch.cat([self.{a}.unsqueeze(2).expand(-1, -1, 4), self.{b}.unsqueeze(1).expand(-1, 4, -1)])",
        "self.{a} = nn.Parameter(torch.randn({C} // 2, 4))\nself.{b} = nn.Parameter(torch.randn({C} - {C} // 2, 4))",
        domains="I",
    ),
    Construct(
        "resized_positions",
        "h = h + F.interpolate(self.{a}, size=h.shape[2:], mode='bilinear')",
        "self.{a} = nn.Parameter(torch.randn(1, {C}, 3, 3))",
        domains="I",
    ),
    Construct(
        "waves_of_a_step",
        """\
{u} = torch.arange(2, dtype=h.dtype)[:, None] * torch.exp(torch.arange(4) * -1.0)
{u} = self.{b}(F.silu(self.{a}(torch.cat([{u}.sin(), {u}.cos()], -1))))
h = h + {u}[..., None, None]""",
        "self.{a} = nn.Linear(8, {D})\nself.{b} = nn.Linear({D}, {C})",
        domains="I",
    ),
)
