"""The grammar: control flow on sizes, and what modules remember of them."""

from __future__ import annotations

from fuzz.construct import Construct, table

CONTROL = table(
    Construct("if_wide", "if h.shape[{c}] >= {C}:\n    h = torch.tanh(h)"),
    Construct("if_wider_than", "h = torch.relu(h) if h.shape[{c}] > {k} else h"),
    Construct("either_or", "h = torch.tanh(h) if h.shape[{c}] > {k} else torch.sigmoid(h)"),
    Construct("if_even", "if h.shape[{c}] % 2 == 0:\n    h = torch.sin(h)"),
    Construct("if_large", "if h.numel() > {C} * 4:\n    h = h.relu()"),
    Construct("function_of_parity", "h = (torch.tanh, torch.sin)[h.shape[{c}] % 2](h)"),
    Construct("once_for_each_unit", "for _ in range(h.shape[{c}]):\n    h = 0.9 * h"),
    Construct("once_for_each_pair", "for _ in range(h.shape[{c}] // 2):\n    h = torch.tanh(h)"),
    Construct("halving", "{u} = h.shape[{c}]\nwhile {u} > 2:\n    h, {u} = torch.tanh(h), {u} // 2"),
    Construct(
        "layers_by_width",
        "for layer in self.{a}[: h.shape[{c}] // 3]:\n    h = h + layer(h)",
        "self.{a} = nn.ModuleList([{CC}, {CC}])",
    ),
    Construct("layer_by_width", "h = self.{a}[h.shape[{c}] % 2](h)", "self.{a} = nn.ModuleList([{CD}, {CD}])", "D"),
    Construct(
        "if_weight_is_tall",
        "h = self.{a}(h)\nif len(self.{a}.weight) > {D} // 2:\n    h = torch.tanh(h)",
        "self.{a} = {CD}",
        "D",
    ),
    Construct("if_same_shape", "{u} = self.{a}(h)\nh = h + {u} if h.shape == {u}.shape else {u}", "self.{a} = {CC}"),
    Construct(
        "if_other_shape", "{u} = self.{a}(h)\nh = h + {u} if h.shape == {u}.shape else {u}", "self.{a} = {CD}", "D"
    ),
    Construct("at_most", "h = h[{ix}: min({k}, h.shape[{c}])]", width="k"),
    Construct("pad_up_to", "h = F.pad(h, (0, max(0, 12 - h.shape[-1])))", width="max(C, 12)", domains="FS"),
    Construct(
        "reduce_if_wide",
        "{u} = h.sum({c}, keepdim=True) if h.shape[{c}] > {k} else h.mean({c}, keepdim=True)\nh = h - {u}",
    ),
    Construct("groups_by_width", "h = F.group_norm(h, 2 if h.shape[1] % 2 == 0 else 1)", domains="FI"),
    Construct("assertion", "assert h.shape[{c}] == {C}"),
    Construct(
        "assertion_of_layer", "assert h.shape[{c}] == self.{a}.weight.shape[1]\nh = self.{a}(h)", "self.{a} = {CD}", "D"
    ),
    Construct("remembered_width", "h = h.reshape(len(h), self.{a})", "self.{a} = {C}", domains="F"),
    Construct("remembered_parts", "h = h.unflatten(-1, (self.{a}, -1)).sum(-2)", "self.{a} = {g}", "C // g", "FS"),
    Construct(
        "cached_by_width",
        """\
if self.{a} is None or len(self.{a}) != h.shape[{c}]:
    self.{a} = torch.linspace(0, 1, h.shape[{c}])
h = h * self.{a}{up}""",
        "self.{a} = None",
    ),
    Construct(
        "cached_ones",
        """\
if self.{a} is None or len(self.{a}) != h.shape[{c}]:
    self.{a} = torch.ones(h.shape[{c}])
h = h * self.{a}{up}""",
        "self.{a} = None",
    ),
    Construct("if_training", "h = torch.tanh(h) if self.training else torch.sin(h)"),
    Construct("if_shallow", "if h.dim() > 2:\n    h = torch.tanh(h)"),
    Construct("over_tokens", "for i in range(h.shape[1]):\n    h = h + h[:, i : i + 1] / 4", domains="S"),
    Construct(
        "compared_sizes",
        "{u} = self.{a}(h)\nh = {u} * 2 if {u}.shape[{c}] > h.shape[{c}] else {u}",
        "self.{a} = {CD}",
        "D",
    ),
)
