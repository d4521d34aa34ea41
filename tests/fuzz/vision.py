"""The grammar: what people put into networks for images."""

from __future__ import annotations

from fuzz.construct import Construct, table


def _image(name: str, forward: str, init: str = "", width: str = "C", **where: str) -> Construct:
    return Construct(name, forward, init, width, "I", **where)


VISION = table(
    _image(
        "blur",
        "h = F.conv2d(h, self.{a}.expand({n}, 1, 3, 3), padding=1, groups={n})",
        'self.register_buffer("{a}", torch.ones(1, 1, 3, 3) / 9)',
    ),
    _image(
        "blur_repeated",
        "h = F.conv2d(h, self.{a}, padding=1, groups=h.shape[1])",
        'self.register_buffer("{a}", torch.ones(1, 1, 3, 3).repeat({C}, 1, 1, 1) / 9)',
    ),
    _image(
        "depthwise_separable",
        "h = self.{b}(self.{a}(h))",
        "self.{a} = nn.Conv2d({C}, {C}, 3, padding=1, groups={C})\nself.{b} = {CD}",
        "D",
    ),
    _image(
        "depth_multiplier", "h = self.{a}(h)", "self.{a} = nn.Conv2d({C}, 2 * {C}, 3, padding=1, groups={C})", "2 * C"
    ),
    _image(
        "inverted_bottleneck",
        "h = h + self.{d}(F.relu6(self.{b}(F.relu6(self.{a}(h)))))",
        "self.{a} = {CD}\nself.{b} = nn.Conv2d({D}, {D}, 3, padding=1, groups={D})\nself.{d} = {DC}",
    ),
    _image("reflected", "h = self.{a}(h)", "self.{a} = nn.Conv2d({C}, {D}, 3, padding=1, padding_mode='reflect')", "D"),
    _image("padded_by_hand", "h = self.{a}(F.pad(h, (1, 1, 1, 1)))", "self.{a} = nn.Conv2d({C}, {D}, 3)", "D"),
    _image(
        "transposed_in_groups",
        "h = F.max_pool2d(self.{a}(h), 2)",
        "self.{a} = nn.ConvTranspose2d({C}, {g} * {D}, 2, 2, groups={g})",
        "g * D",
        when="g * D <= 24",
    ),
    _image(
        "efficient_attention",
        "{u} = h.mean((2, 3)).unsqueeze(1)\nh = h * torch.sigmoid(self.{a}({u})).transpose(1, 2).unsqueeze(-1)",
        "self.{a} = nn.Conv1d(1, 1, 3, padding=1)",
    ),
    _image(
        "where_to_look",
        "{u} = torch.cat([h.mean(1, keepdim=True), h.amax(1, keepdim=True)], 1)\nh = h * torch.sigmoid(self.{a}({u}))",
        "self.{a} = nn.Conv2d(2, 1, 3, padding=1)",
    ),
    _image(
        "mean_and_maximum",
        "h = h * torch.sigmoid(self.{a}(h.mean((2, 3))) + self.{a}(h.amax((2, 3))))[..., None, None]",
        "self.{a} = nn.Sequential(nn.Linear({C}, {D}), nn.ReLU(), nn.Linear({D}, {C}))",
    ),
    _image(
        "excite_flat",
        "{u} = self.{b}(F.silu(self.{a}(h.mean((2, 3)))))\nh = h * torch.sigmoid({u}).view(*{u}.shape, 1, 1)",
        "self.{a} = nn.Linear({C}, {D})\nself.{b} = nn.Linear({D}, {C})",
    ),
    _image(
        "excite_by_size",
        """\
{u}, {v}, _, _ = h.size()
{w} = F.adaptive_avg_pool2d(h, 1).view({u}, {v})
h = h * torch.sigmoid(self.{a}({w})).view({u}, {v}, 1, 1).expand_as(h)""",
        "self.{a} = nn.Linear({C}, {C})",
    ),
    _image(
        "selective_kernels",
        """\
{u} = torch.stack([self.{a}(h), self.{b}(h)], 1)
{v} = self.{d}({u}.sum(1).mean((2, 3))).view(len(h), 2, -1, 1, 1).softmax(1)
h = ({u} * {v}).sum(1)""",
        "self.{a} = {CD}\nself.{b} = {CD}\nself.{d} = nn.Linear({D}, 2 * {D})",
        "D",
    ),
    _image(
        "split_attention",
        """\
{u} = self.{a}(h)
{v} = sum({u}.chunk(2, 1)).mean((2, 3))
{v} = self.{b}({v}).unflatten(1, (2, -1)).softmax(1)
h = sum(x * y[..., None, None] for x, y in zip({u}.chunk(2, 1), {v}.unbind(1)))""",
        "self.{a} = {C2D}\nself.{b} = nn.Linear({D}, 2 * {D})",
        "D",
    ),
    _image(
        "response_norm",
        "{u} = h.norm(dim=(2, 3), keepdim=True)\nh = h + self.{a}{up} * h * {u} / (1e-6 + {u}.mean(1, keepdim=True))",
        "self.{a} = nn.Parameter(torch.randn({C}))",
    ),
    _image(
        "own_layer_norm",
        """\
{u} = h.mean(1, keepdim=True)
{v} = (h - {u}).pow(2).mean(1, keepdim=True)
h = (h - {u}) / torch.sqrt({v} + 1e-6) * self.{a}[:, None, None] + self.{b}[:, None, None]""",
        "self.{a} = nn.Parameter(torch.ones({C}))\nself.{b} = nn.Parameter(torch.zeros({C}))",
    ),
    _image(
        "own_batch_norm",
        """\
{u}, {v} = h.mean((0, 2, 3), keepdim=True), h.var((0, 2, 3), keepdim=True)
h = (h - {u}) * torch.rsqrt({v} + 1e-5) * self.{a}""",
        "self.{a} = nn.Parameter(torch.ones(1, {C}, 1, 1))",
    ),
    _image("local_response", "h = F.local_response_norm(h, 3)"),
    _image("groups_of_a_width", "h = F.group_norm(h, h.shape[1] // 2)", when="C % 2 == 0"),
    _image("norm_without_affine", "h = self.{a}(h)", "self.{a} = nn.BatchNorm2d({C}, affine=False)"),
    _image("norm_without_statistics", "h = self.{a}(h)", "self.{a} = nn.BatchNorm2d({C}, track_running_stats=False)"),
    _image("over_all_but_samples", "h = F.layer_norm(h, h.shape[1:])"),
    _image(
        "adaptive_instance_norm",
        """\
{u} = F.instance_norm(h)
{v}, {w} = self.{a}(h.mean((2, 3))).view(len(h), 2, {n}, 1, 1).unbind(1)
h = {u} * {v} + {w}""",
        "self.{a} = nn.Linear({C}, 2 * {C})",
    ),
    _image(
        "modulated_weights",
        """\
{u} = self.{a}.weight[None] * self.{b}(h.mean((2, 3)))[:, None, :, None, None]
{u} = {u} * torch.rsqrt({u}.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
h = F.conv2d(h.reshape(1, -1, 4, 4), {u}.flatten(0, 1), groups=len({u})).view(len({u}), -1, 4, 4)""",
        "self.{a} = {plain_CD}\nself.{b} = nn.Linear({C}, {C})",
        "D",
    ),
    _image(
        "standardised_weight",
        """\
{u} = self.{a}.weight
{u} = ({u} - {u}.mean((1, 2, 3), keepdim=True)) / ({u}.std((1, 2, 3), keepdim=True) + 1e-5)
h = F.conv2d(h, {u}, self.{a}.bias, padding=1)""",
        "self.{a} = nn.Conv2d({C}, {D}, 3, padding=1)",
        "D",
    ),
    _image(
        "merged_kernels",
        "{u} = self.{a}.weight + F.pad(self.{b}.weight, (1, 1, 1, 1))\nh = F.conv2d(h, {u}, self.{a}.bias, padding=1)",
        "self.{a} = nn.Conv2d({C}, {D}, 3, padding=1)\nself.{b} = nn.Conv2d({C}, {D}, 1, bias=False)",
        "D",
    ),
    _image(
        "unfolded",
        "{u} = F.unfold(h, 3, padding=1)\nh = self.{a}({u}.transpose(1, 2)).transpose(1, 2).unflatten(2, (4, 4))",
        "self.{a} = nn.Linear(9 * {C}, {D})",
        "D",
    ),
    _image("unfolded_and_folded", "h = F.fold(F.unfold(h, 2, stride=2), (4, 4), 2, stride=2)"),
    _image(
        "own_neighbourhood",
        """\
{u} = self.{a}(h).softmax(1).unsqueeze(1)
h = (F.unfold(h, 3, padding=1).view(len(h), {n}, 9, 4, 4) * {u}).sum(2)""",
        "self.{a} = nn.Conv2d({C}, 9, 1)",
    ),
    _image(
        "shifted", "{u} = h.chunk(2, 1)\nh = torch.cat([{u}[0].roll(1, 2), {u}[1].roll(1, 3)], 1)", when="C % 2 == 0"
    ),
    _image(
        "shifted_in_time",
        """\
{u} = torch.zeros_like(h)
{v} = h.shape[1] // 4
{u}[:-1, :{v}] = h[1:, :{v}]
{u}[1:, {v} : 2 * {v}] = h[:-1, {v} : 2 * {v}]
{u}[:, 2 * {v} :] = h[:, 2 * {v} :]
h = {u}""",
        when="C >= 4",
    ),
    _image(
        "part_of_a_convolution",
        "{u}, {v} = h.split([{k}, {C} - {k}], 1)\nh = torch.cat([self.{a}({u}), {v}], 1)",
        "self.{a} = nn.Conv2d({k}, {k}, 3, padding=1)",
    ),
    _image(
        "ghosts",
        "{u} = self.{a}(h)\nh = torch.cat([{u}, self.{b}({u})], 1)",
        "self.{a} = {CD}\nself.{b} = nn.Conv2d({D}, {D}, 3, padding=1, groups={D})",
        "2 * D",
    ),
    _image(
        "pyramid_of_pools",
        """\
{u} = [h]
for _ in range(2):
    {u}.append(F.max_pool2d({u}[-1], 3, 1, 1))
h = self.{a}(torch.cat({u}, 1))""",
        "self.{a} = nn.Conv2d(3 * {C}, {D}, 1)",
        "D",
    ),
    _image(
        "atrous_pyramid",
        """\
{u} = [layer(h) for layer in self.{a}]
{u}.append(F.interpolate(self.{b}(h.mean((2, 3), keepdim=True)), size=h.shape[-2:]))
h = torch.cat({u}, 1)""",
        "self.{a} = nn.ModuleList([nn.Conv2d({C}, {D}, 3, padding=r, dilation=r) for r in (1, 2)])\nself.{b} = {CE}",
        "2 * D + E",
        when="2 * D + E <= 24",
    ),
    _image(
        "u_net",
        """\
{u} = torch.relu(self.{a}(F.max_pool2d(h, 2)))
h = self.{b}(torch.cat([F.interpolate({u}, scale_factor=2.0), h], 1))""",
        "self.{a} = {CD}\nself.{b} = nn.Conv2d({C} + {D}, {E}, 1)",
        "E",
    ),
    _image(
        "skip_gate",
        "{u} = torch.sigmoid(self.{d}(torch.relu(self.{a}(h) + self.{b}(h))))\nh = torch.cat([h * {u}, h], 1)",
        "self.{a} = {CD}\nself.{b} = {CD}\nself.{d} = nn.Conv2d({D}, 1, 1)",
        "2 * C",
    ),
    _image(
        "unpooled",
        "{u}, {v} = F.max_pool2d(h, 2, return_indices=True)\nh = F.max_unpool2d(self.{a}({u}), {v}, 2)",
        "self.{a} = {CC}",
    ),
    _image(
        "space_to_depth",
        """\
{u} = torch.cat([h[..., ::2, ::2], h[..., 1::2, ::2], h[..., ::2, 1::2], h[..., 1::2, 1::2]], 1)
h = F.interpolate(self.{a}({u}), scale_factor=2)""",
        "self.{a} = nn.Conv2d(4 * {C}, {D}, 1)",
        "D",
    ),
    _image(
        "spatial_transformer",
        """\
{u} = self.{a}(h.mean((2, 3))).view(-1, 2, 3)
h = F.grid_sample(h, F.affine_grid({u}, list(h.shape), align_corners=False), align_corners=False)""",
        "self.{a} = nn.Linear({C}, 6)",
    ),
    _image(
        "warped",
        "{u} = torch.tanh(self.{a}(h)).permute(0, 2, 3, 1)\nh = F.grid_sample(h, {u}, align_corners=True)",
        "self.{a} = nn.Conv2d({C}, 2, 1)",
    ),
    _image(
        "sum_of_squares_pool",
        "h = h.clamp(min=1e-6).pow(self.{a}).mean((2, 3)).pow(1 / self.{a})",
        "self.{a} = nn.Parameter(torch.tensor(3.0))",
        to="F",
    ),
    _image("pooled_twice", "h = torch.cat([h.mean((2, 3)), h.amax((2, 3))], 1)", width="2 * C", to="F"),
    _image(
        "covariance_pool",
        "{u} = self.{a}(h).flatten(2)\nh = ({u} @ {u}.transpose(1, 2) / 16).flatten(1)",
        "self.{a} = nn.Conv2d({C}, 4, 1)",
        "16",
        to="F",
    ),
    _image(
        "patches",
        "h = self.{a}(h).flatten(2).transpose(1, 2)",
        "self.{a} = nn.Conv2d({C}, {D}, 2, 2)",
        "D",
        to="S",
        length="4",
    ),
    _image(
        "patches_by_view",
        "h = h.unflatten(2, (2, 2)).unflatten(4, (2, 2)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)",
        width="4 * C",
        to="S",
        length="4",
    ),
    _image(
        "volumes",
        "h = self.{a}(h.unsqueeze(2)).squeeze(2)",
        "self.{a} = nn.Conv3d({C}, {D}, (1, 3, 3), padding=(0, 1, 1))",
        "D",
    ),
    _image(
        "channels_as_depth",
        "h = self.{a}(h.unsqueeze(1)).mean(1)",
        "self.{a} = nn.Conv3d(1, {D}, (1, 3, 3), padding=(0, 1, 1))",
    ),
    _image(
        "axes_in_turn",
        "h = h + self.{a}(h.mean(3, keepdim=True)) + self.{a}(h.mean(2, keepdim=True))",
        "self.{a} = nn.Conv2d({C}, {C}, 1)",
    ),
    _image(
        "coordinate_attention",
        """\
{u} = torch.cat([h.mean(3, keepdim=True), h.mean(2, keepdim=True).transpose(2, 3)], 2)
{v}, {w} = torch.relu(self.{a}({u})).split([4, 4], 2)
h = h * torch.sigmoid(self.{b}({v})) * torch.sigmoid(self.{d}({w}.transpose(2, 3)))""",
        "self.{a} = {plain_CD}\nself.{b} = {plain_DC}\nself.{d} = {plain_DC}",
    ),
    _image(
        "low_frequencies",
        "{u} = torch.fft.rfft2(h)\nh = torch.fft.irfft2({u} * self.{a}, s=(4, 4))",
        "self.{a} = nn.Parameter(torch.rand({C}, 4, 3))",
    ),
    _image(
        "rows_through_a_gru",
        """\
{u} = h.permute(0, 2, 3, 1).flatten(0, 1)
h = self.{a}({u})[0].unflatten(0, (len(h), -1)).permute(0, 3, 1, 2)""",
        "self.{a} = nn.GRU({C}, {D}, batch_first=True)",
        "D",
    ),
)
