"""The grammar: writing in place, into views, and into tensors made for it."""

from __future__ import annotations

from fuzz.construct import Construct, table

WRITES = table(
    Construct("zero_one", "h = h.clone()\nh[{ix}0] = 0"),
    Construct("zero_few", "h = h.clone()\nh[{ix}:{k}] = 0"),
    Construct("halve_every_other", "h = h.clone()\nh[{ix}::2] *= 0.5"),
    Construct("shift_the_rest", "h = h.clone()\nh[{ix}{k}:] += 1"),
    Construct("first_half_in_place", "h = h.clone()\nh[{ix}: h.shape[{c}] // 2].relu_()"),
    Construct("narrow_in_place", "h = h.clone()\nh.narrow({c}, 0, {k}).mul_(0.3)"),
    Construct("select_in_place", "h = h.clone()\nh.select({c}, -1).fill_(0.5)"),
    Construct("copy_of_a_unit", "h = h.clone()\nh[{ix}0] = h[{ix}1]"),
    Construct("sum_into_a_unit", "h = h.clone()\nh[{ix}-1] += h[{ix}:{k}].sum({c})"),
    Construct("view_of_a_view", "h = h.clone()\nh[{ix}1:][{ix}::2].zero_()"),
    Construct("view_of_parts", "h = h.clone()\nh.unflatten({c}, ({g}, -1)).select({c}, 0).mul_(2)"),
    Construct("transposed_view", "h = h.clone()\nh.transpose(0, {c})[:{k}] *= 3"),
    Construct("flat_view", "h = h.clone().contiguous()\nh.view(-1)[:3] = 1"),
    Construct("units_by_index", "h = h.clone()\nh[{ix}[0, 1]] = 0.5"),
    Construct("layer_into_part", "h = h.clone()\nh[{ix}:{k}] = self.{a}(h.clone())[{ix}:{k}]", "self.{a} = {CC}"),
    Construct("spatial_write", "h = h.clone()\nh[:, :, 0] = 0", domains="I"),
    Construct(
        "token_write",
        "h = h.clone()\nh[:, 0] = self.{a}(h[:, -1].clone())",
        "self.{a} = nn.Linear({C}, {C})",
        domains="S",
    ),
    Construct(
        "all_in_place",
        "h = self.{a}(h)\nh += 1\nh.mul_(self.{b}{up})",
        "self.{a} = {CD}\nself.{b} = nn.Parameter(torch.randn({D}))",
        "D",
    ),
    Construct("in_place_on_residual", "{u} = self.{a}(h)\n{v} = {u}\n{u} += 1\nh = h + {v}", "self.{a} = {CC}"),
    Construct("part_of_zeros", "{u} = torch.zeros_like(h)\n{u}[{ix}:{k}] = h[{ix}:{k}]\nh = {u}"),
    Construct("copy_into_new", "{u} = h.new_zeros(h.shape)\n{u}.copy_(h)\nh = {u}"),
    Construct("all_into_empty", "{u} = torch.empty_like(h)\n{u}[:] = h\nh = {u}"),
    Construct(
        "interleaved",
        "{u} = torch.empty_like(h)\n{u}[{ix}::2] = h[{ix}::2]\n{u}[{ix}1::2] = torch.tanh(h[{ix}1::2])\nh = {u}",
    ),
    Construct(
        "into_larger",
        "{u} = torch.zeros(len(h), {C} + {k}, dtype=h.dtype)\n{u}[:, :{n}] = h\nh = {u}",
        width="C + k",
        domains="F",
    ),
    Construct("base_after_view", "h = h.clone()\n{u} = h[{ix}:{k}]\nh.mul_(2)\nh = h * {u}.mean({c}, keepdim=True)"),
    Construct("masked_in_place", "h = h.clone()\nh.masked_fill_(h > 1, 0.0)"),
    Construct("index_fill", "h = h.index_fill({c}, torch.tensor([0]), 0.5)"),
    Construct("index_add", "h = h.index_add({c}, torch.tensor([0]), h.narrow({c}, 1, 1))"),
    Construct("index_copy", "h = h.index_copy({c}, torch.tensor([1]), h.narrow({c}, 0, 1))"),
    Construct("scatter_units", "h = h.scatter({c}, torch.zeros_like(h[{ix}:1], dtype=torch.long), 0.5)"),
    Construct("gather_units", "h = h.gather({c}, torch.zeros_like(h, dtype=torch.long))"),
    Construct("where_late", "h = torch.where(torch.arange({n}) < {k}, h, torch.tanh(h))", domains="FS"),
    Construct(
        "diagonal_write",
        "{u} = h.transpose(1, 2) @ h\n{u}.diagonal(dim1=1, dim2=2).zero_()\nh = h @ {u} / 10",
        domains="S",
    ),
)
