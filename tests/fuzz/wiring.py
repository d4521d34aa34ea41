"""The grammar: layers called, wrapped and fed in other ways than by ``self.layer(h)``."""

from __future__ import annotations

from fuzz.construct import Construct, table

WIRING = table(
    Construct("hook_behind", "h = self.{a}(h)", "self.{a} = {CD}\nself.{a}.register_forward_hook(doubled)", "D"),
    Construct("hook_before", "h = self.{a}(h)", "self.{a} = {CD}\nself.{a}.register_forward_pre_hook(negated)", "D"),
    Construct(
        "checkpointed",
        "h = checkpoint(self.{a}, h, use_reentrant=False)",
        "self.{a} = nn.Sequential({CD}, nn.Tanh())",
        "D",
    ),
    Construct(
        "functional_call",
        "h = torch.func.functional_call(self.{a}, {{k: 2 * v for k, v in self.{a}.named_parameters()}}, (h,))",
        "self.{a} = {CD}",
        "D",
    ),
    Construct("straight_through", "h = h * SignThrough.apply(self.{a}(h))", "self.{a} = {CC}"),
    Construct("own_backward", "h = SwishWithLittleMemory.apply(self.{a}(h))", "self.{a} = {CD}", "D"),
    Construct(
        "own_backward_across",
        "h = OwnSoftmax.apply(self.{a}(h).transpose(-1, {c})).transpose(-1, {c})",
        "self.{a} = {CD}",
        "D",
    ),
    Construct("rounded", "{u} = h + (torch.round(h) - h).detach()\nh = self.{a}({u})", "self.{a} = {CD}", "D"),
    Construct(
        "rounded_weight",
        """\
{u} = self.{a}.weight
{u} = {u} + (torch.round(4 * {u}) / 4 - {u}).detach()
h = {call}(h, {u}, self.{a}.bias)""",
        "self.{a} = {plain_CD}",
        "D",
    ),
    Construct(
        "scaled_by_largest_weight",
        "h = {call}(h, self.{a}.weight / self.{a}.weight.detach().abs().max(), self.{a}.bias)",
        "self.{a} = {plain_CD}",
        "D",
    ),
    Construct(
        "equalised_rate",
        "h = {call}(h, self.{a}.weight * self.{b}, self.{a}.bias)",
        "self.{a} = {plain_CD}\nself.{b} = 1 / math.sqrt({C})",
        "D",
    ),
    Construct("pruned_by_torch", "h = self.{a}(h)", "self.{a} = prune.l1_unstructured({CD}, 'weight', 0.3)", "D"),
    Construct("spectral_norm", "h = self.{a}(h)", "self.{a} = parametrizations.spectral_norm({CD})", "D"),
    Construct(
        "own_parametrization",
        "h = self.{a}(h)",
        'self.{a} = {CD}\nnn.utils.parametrize.register_parametrization(self.{a}, "weight", nn.Tanh())',
        "D",
    ),
    Construct(
        "centred_weight",
        "{u} = self.{a}.weight\nh = {call}(h, {u} - {u}.mean(1, keepdim=True), self.{a}.bias)",
        "self.{a} = {plain_CD}",
        "D",
    ),
    Construct(
        "modulated",
        "{u}, {v} = self.{b}(h{pool}).chunk(2, -1)\nh = self.{a}(h) * (1 + {u}{back}) + {v}{back}",
        "self.{a} = {CD}\nself.{b} = nn.Linear({C}, 2 * {D})",
        "D",
    ),
    Construct(
        "six_modulations",
        """\
{u} = self.{b}(F.silu(h{pool})).chunk(3, -1)
h = h + {u}[2]{back} * self.{a}(h * (1 + {u}[0]{back}) + {u}[1]{back})""",
        "self.{a} = {CC}\nself.{b} = nn.Linear({C}, 3 * {C})",
    ),
    Construct(
        "generated_weight",
        "h = F.linear(h, self.{b}(self.{a}).view({D}, {C}))",
        "self.{a} = nn.Parameter(torch.randn(3))\nself.{b} = nn.Linear(3, {D} * {C})",
        "D",
        "FS",
    ),
    Construct(
        "generated_scale",
        "h = h * self.{b}(self.{a}){up}",
        "self.{a} = nn.Parameter(torch.randn(3))\nself.{b} = nn.Linear(3, {C})",
    ),
    Construct(
        "mixture_of_weights",
        "{u} = self.{a}.softmax(0)\nh = {call}(h, sum(w * layer.weight for w, layer in zip({u}, self.{b})))",
        "self.{a} = nn.Parameter(torch.randn(2))\nself.{b} = nn.ModuleList([{plain_CD}, {plain_CD}])",
        "D",
    ),
    Construct(
        "stacked_weights",
        "h = {call}(h, torch.cat([layer.weight for layer in self.{b}]))",
        "self.{b} = nn.ModuleList([{plain_CD}, {plain_CE}])",
        "D + E",
    ),
    Construct(
        "bilinear_of_halves",
        "{u}, {v} = self.{a}(h).chunk(2, -1)\nh = {u} * {v}",
        "self.{a} = nn.Linear({C}, 2 * {D})",
        "D",
        "FS",
    ),
    Construct("largest_of_pieces", "h = self.{a}(h).unflatten({c}, (-1, 2)).amax({c} + 1)", "self.{a} = {C2D}", "D"),
    Construct(
        "addmm",
        "h = torch.addmm(self.{a}, h, self.{b})",
        "self.{a} = nn.Parameter(torch.randn({D}))\nself.{b} = nn.Parameter(torch.randn({C}, {D}))",
        "D",
        "F",
    ),
    Construct(
        "lerp", "h = torch.lerp(h, self.{a}(h), self.{b})", "self.{a} = {CC}\nself.{b} = nn.Parameter(torch.rand(()))"
    ),
    Construct(
        "addcmul", "h = torch.addcmul(h, self.{a}(h), self.{b}(h), value=0.5)", "self.{a} = {CC}\nself.{b} = {CC}"
    ),
    Construct(
        "tensordot",
        "h = torch.tensordot(h, self.{a}, dims=1)",
        "self.{a} = nn.Parameter(torch.randn({C}, {D}))",
        "D",
        "FS",
    ),
    Construct(
        "of_a_dict",
        'h = self.{a}["out"](torch.tanh(self.{a}["in"](h)))',
        'self.{a} = nn.ModuleDict({{"in": {CD}, "out": {DC}}})',
    ),
    Construct(
        "parameters_of_a_dict",
        'h = h * self.{a}["scale"]{up} + self.{a}["shift"]{up}',
        'self.{a} = nn.ParameterDict({{name: nn.Parameter(torch.randn({C})) for name in ("scale", "shift")}})',
    ),
    Construct(
        "by_name", 'for i in range(2):\n    h = getattr(self, f"{a}_{{i}}")(h)', "self.{a}_0 = {CD}\nself.{a}_1 = {DC}"
    ),
    Construct(
        "in_pairs",
        "for one, other in zip(self.{a}, self.{b}):\n    h = h + other({act}(one(h)))",
        "self.{a} = nn.ModuleList([{CD}, {CE}])\nself.{b} = nn.ModuleList([{DC}, {EC}])",
    ),
    Construct(
        "every_second",
        "for i, layer in enumerate(self.{a}):\n    h = h + layer(h) if i % 2 else torch.tanh(layer(h))",
        "self.{a} = nn.ModuleList([{CC}, {CC}, {CC}])",
    ),
    Construct(
        "densely",
        "{u} = [h]\nfor layer in self.{a}:\n    {u}.append(layer(torch.cat({u}, {c})))\nh = torch.cat({u}, {c})",
        "self.{a} = nn.ModuleList([{CD}, {MD}])",
        "C + 2 * D",
    ),
    Construct(
        "weighted_sum_of_layers",
        """\
{u} = [h]
for layer in self.{a}:
    {u}.append(torch.tanh(layer({u}[-1])))
h = (torch.stack({u}, -1) * self.{b}.softmax(0)).sum(-1)""",
        "self.{a} = nn.ModuleList([{CC}, {CC}])\nself.{b} = nn.Parameter(torch.randn(3))",
    ),
    Construct(
        "norm_without_scale",
        "h = F.layer_norm(self.{a}(h), (self.{a}.out_features,))",
        "self.{a} = nn.Linear({C}, {D})",
        "D",
        "FS",
    ),
    Construct(
        "running_mean",
        """\
if self.training:
    with torch.no_grad():
        self.{a}.lerp_(h{pool}.mean(0).flatten(), 0.1)
h = h - self.{a}{up}""",
        'self.register_buffer("{a}", torch.zeros({C}))',
        domains="FI",
    ),
    Construct(
        "nearest_code",
        "{u} = torch.cdist(h{pool}, self.{a}.weight).argmin(-1)\nh = h + self.{a}({u}){back}",
        "self.{a} = nn.Embedding(5, {C})",
    ),
    Construct(
        "code_through",
        "{u} = self.{a}(torch.cdist(h, self.{a}.weight).argmin(-1))\nh = h + ({u} - h).detach()",
        "self.{a} = nn.Embedding(5, {C})",
        domains="FS",
    ),
    Construct("dropped_paths", "h = h + self.{b}(self.{a}(h))", "self.{a} = {CC}\nself.{b} = nn.Dropout(0.0)"),
    Construct("in_place_residual", "{u} = self.{a}(h)\n{u} += h\nh = F.relu({u}, inplace=True)", "self.{a} = {CC}"),
    Construct("concatenated_act", "h = torch.cat([F.relu(h), F.relu(-h)], {c})", width="2 * C"),
    Construct("learned_act", "h = torch.where(h > 0, h, self.{a}{up} * h)", "self.{a} = nn.Parameter(torch.rand({C}))"),
    Construct(
        "rational_act",
        "h = (h * self.{a}{up} + 1) / (1 + (h * self.{b}{up}).square())",
        "self.{a} = nn.Parameter(torch.rand({C}))\nself.{b} = nn.Parameter(torch.rand({C}))",
    ),
    Construct("sine_act", "h = torch.sin(30 * self.{a}(h))", "self.{a} = {CD}", "D"),
)
