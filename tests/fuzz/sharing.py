"""The grammar: weights with several names, weights in plain containers, frozen parts."""

from __future__ import annotations

from fuzz.construct import Construct, table

SHARING = table(
    Construct(
        "alias_in_list",
        "h = {call}(h, self.{b}[0], self.{b}[1])",
        "self.{a} = {plain_CD}\nself.{b} = [self.{a}.weight, self.{a}.bias]",
        "D",
    ),
    Construct(
        "alias_in_tuple", "h = {call}(h, self.{b}[0])", "self.{a} = {plain_CD}\nself.{b} = (self.{a}.weight,)", "D"
    ),
    Construct(
        "alias_in_dict",
        'h = {call}(h, self.{b}["w"])',
        'self.{a} = {plain_CD}\nself.{b} = {{"w": self.{a}.weight}}',
        "D",
    ),
    Construct(
        "alias_in_nested",
        'h = {call}(h, self.{b}["layers"][0][0])',
        'self.{a} = {plain_CD}\nself.{b} = {{"layers": [(self.{a}.weight,)]}}',
        "D",
    ),
    Construct(
        "alias_in_namespace",
        "h = {call}(h, self.{b}.weight)",
        "self.{a} = {plain_CD}\nself.{b} = SimpleNamespace(weight=self.{a}.weight)",
        "D",
    ),
    Construct(
        "alias_beside_layer",
        "h = self.{a}(h) / (1 + self.{b}[0].norm())",
        "self.{a} = {CD}\nself.{b} = [self.{a}.weight]",
        "D",
    ),
    Construct(
        "detached_alias",
        "h = self.{a}(h) / (1 + self.{b}.norm())",
        "self.{a} = {CD}\nself.{b} = self.{a}.weight.detach()",
        "D",
    ),
    Construct(
        "modules_in_list",
        "for layer in self.{d}:\n    h = {act}(layer(h))",
        "self.{a} = {CC}\nself.{b} = {CC}\nself.{d} = [self.{a}, self.{b}]",
    ),
    Construct("module_in_partial", "h = self.{b}(h)", "self.{a} = {CD}\nself.{b} = functools.partial(self.{a})", "D"),
    Construct("bound_method", "h = self.{b}(h)", "self.{a} = {CD}\nself.{b} = self.{a}.forward", "D"),
    Construct("not_registered", "h = self.{a}[0](h)", "self.{a} = [{CD}.double()]", "D"),
    Construct(
        "tied_layers",
        "h = self.{b}({act}(self.{a}(h)))",
        "self.{a} = {CC}\nself.{b} = {CC}\nself.{b}.weight = self.{a}.weight",
    ),
    Construct("same_module_twice", "h = self.{b}({act}(self.{a}(h)))", "self.{a} = {CC}\nself.{b} = self.{a}"),
    Construct(
        "tied_transposed",
        "h = h + F.linear({act}(self.{a}(h)), self.{a}.weight.t())",
        "self.{a} = nn.Linear({C}, {D})",
        domains="FS",
    ),
    Construct(
        "weight_of_another",
        "h = {call}(h, self.{a}.weight * 2, self.{b}.bias)",
        "self.{a} = {plain_CD}\nself.{b} = {plain_CD}",
        "D",
    ),
    Construct(
        "weight_norm_by_hand",
        "{u} = self.{a}.weight\nh = {call}(h, {u} / {u}.flatten(1).norm(dim=1).view(-1, *[1] * ({u}.dim() - 1)))",
        "self.{a} = {plain_CD}",
        "D",
    ),
    Construct(
        "weight_penalty", "outputs.append(self.{a}.weight.pow(2).sum())\nh = self.{a}(h)", "self.{a} = {CD}", "D"
    ),
    Construct("weight_mean", "h = self.{a}(h) - self.{a}.weight.mean()", "self.{a} = {CD}", "D"),
    Construct(
        "parameter_list",
        "for scale in self.{a}:\n    h = h * scale{up}",
        "self.{a} = nn.ParameterList([nn.Parameter(torch.randn({C})) for _ in range(2)])",
    ),
    # frozen
    Construct("frozen", "h = {act}(self.{a}(h))", "self.{a} = {CD}\nself.{a}.requires_grad_(False)", "D"),
    Construct("frozen_norm", "h = self.{a}(h)", "self.{a} = {norm}\nself.{a}.requires_grad_(False)"),
    Construct("frozen_bias", "h = self.{a}(h)", "self.{a} = {plain_CD}\nself.{a}.bias.requires_grad_(False)", "D"),
    Construct(
        "frozen_behind_trained",
        "h = self.{b}(torch.relu(self.{a}(h)))",
        "self.{a} = {CD}\nself.{b} = {DC}\nself.{b}.requires_grad_(False)",
    ),
    Construct("frozen_scale", "h = h * self.{a}{up}", "self.{a} = nn.Parameter(torch.randn({C}), requires_grad=False)"),
    Construct(
        "low_rank",
        "h = self.{a}(h) + self.{d}(self.{b}(h))",
        "self.{a} = {CE}\nself.{a}.requires_grad_(False)\nself.{b} = {CD}\nself.{d} = {DE}",
        "E",
    ),
)
