"""The grammar: constants that are as wide as the channels, and numbers that depend on how many there are."""

from __future__ import annotations

from fuzz.construct import Construct, table


def _mask(name: str, lines: str, **where: str) -> Construct:
    """A vector of channels, made by ``lines``, as a factor."""
    return Construct(name, f"{lines}\nh = h * {{u}}{{up}}", **where)


CONSTANTS = table(
    _mask("ones", "{u} = torch.ones({n})"),
    _mask("ones_but_first", "{u} = torch.ones({n})\n{u}[0] = 0"),
    _mask("alternating", "{u} = torch.ones({n})\n{u}[::2] = -1"),
    _mask("zeros_then_ones", "{u} = torch.zeros({n})\n{u}[:{k}] = 1"),
    _mask("ones_in_first_half", "{u} = torch.zeros({n})\n{u}[: {n} // 2] = 1"),
    _mask("view_zeroed", "{u} = torch.ones({n})\n{v} = {u}[:{k}]\n{v}.zero_()"),
    _mask("narrow_filled", "{u} = torch.ones({n})\n{u}.narrow(0, 0, {k}).fill_(2)"),
    _mask("chunk_negated", "{u} = torch.ones({n})\n{u}.chunk(2)[0].neg_()"),
    _mask("row_of_view_zeroed", "{u} = torch.ones({n})\n{u}.view({g}, -1)[0] = 0"),
    _mask("written_by_index", "{u} = torch.ones({n})\n{u}[torch.tensor([0, 1])] = 0.5"),
    _mask("written_in_a_loop", "{u} = torch.zeros({n})\nfor i in range({k}):\n    {u}[i] += i"),
    _mask("first_of_last_dimension", "{u} = torch.zeros(2, {n})\n{u}[..., :{k}] = 1\n{u} = {u}[0]"),
    _mask("half_constant", "{u} = torch.full(({n},), 0.5)"),
    _mask("counted", "{u} = torch.arange({n})"),
    _mask("linspace", "{u} = torch.linspace(0, 1, {n})"),
    _mask("softmax_of_zeros", "{u} = torch.softmax(torch.zeros({n}), 0)"),
    _mask("log_softmax_of_ones", "{u} = torch.log_softmax(torch.ones({n}), 0)"),
    _mask("cumsum_of_ones", "{u} = torch.ones({n}).cumsum(0)"),
    _mask("normalised_ones", "{u} = F.normalize(torch.ones({n}), dim=0)"),
    _mask("ones_over_their_sum", "{u} = torch.ones({n})\n{u} = {u} / {u}.sum()"),
    _mask("seeded_code", "{u} = torch.randn({n}, generator=torch.Generator().manual_seed(0))"),
    _mask("joined_constants", "{u} = torch.cat([torch.ones({k}), torch.zeros({n} - {k})])"),
    _mask("padded_constant", "{u} = F.pad(torch.ones({n} - 1), (0, 1))"),
    _mask("stacked_constants", "{u} = torch.stack([torch.ones({n}), torch.zeros({n})]).mean(0)"),
    _mask("one_hot", "{u} = F.one_hot(torch.tensor(1), {n})"),
    _mask("python_list", "{u} = torch.tensor([1.0 + i for i in range({n})])"),
    _mask("numpy_window", "{u} = torch.from_numpy(np.hanning({n}))"),
    _mask("compared", "{u} = torch.arange({n}) >= {k}"),
    _mask("clamped_count", "{u} = torch.arange({n}).clamp(max=2)"),
    _mask("sorted_code", "{u} = torch.linspace(1, -1, {n}).sort().values"),
    _mask("outer_constant", "{u} = torch.outer(torch.arange(2.0), torch.ones({n}))[1]"),
    _mask("outer_count", "{u} = torch.outer(torch.ones(2), torch.arange(1.0, {n} + 1))[1]"),
    _mask("diagonal_of_eye", "{u} = torch.eye({n}).diagonal()"),
    _mask("row_of_eye", "{u} = torch.eye({n})[0]"),
    _mask("sum_of_triangle", "{u} = torch.tril(torch.ones({n}, {n})).sum(0)"),
    Construct("sum_of_ones", "h = h / torch.ones({n}).sum()"),
    Construct("norm_of_ones", "h = h / torch.ones({n}).norm()"),
    Construct("mean_of_ones", "h = h * torch.ones({n}).mean()"),
    Construct("product_of_twos", "h = h / torch.full(({n},), 1.1).prod()"),
    Construct("dot_of_ones", "h = h * (torch.ones(1, {n}) @ torch.ones({n}, 1))[0] ** -0.5"),
    Construct("identity_matmul", "h = h @ torch.eye({n}, dtype=h.dtype)", domains="FS"),
    Construct("triangle_matmul", "h = h @ torch.tril(torch.ones({n}, {n}, dtype=h.dtype))", domains="FS"),
    Construct("ones_matmul", "h = h * (h @ torch.ones({n}, 1, dtype=h.dtype))", domains="FS"),
    Construct("sum_of_ones_like", "h = h / torch.ones_like(h).sum({c}, keepdim=True)"),
    Construct("mean_of_ones_like", "h = h * torch.ones_like(h).mean({c}, keepdim=True)"),
    Construct(
        "sines",
        """\
{u} = torch.zeros({T}, {n})
{v} = torch.arange({T}).unsqueeze(1) / 100 ** (torch.arange(0, {n}, 2) / {n})
{u}[:, 0::2] = torch.sin({v})
{u}[:, 1::2] = torch.cos({v})[:, : {n} // 2]
h = h + {u}""",
        domains="S",
    ),
    Construct("shared_sines", "h = h + torch.sin(torch.arange({T})).unsqueeze(1)", domains="S"),
    Construct("noise_free_mask", "h = h * (torch.rand_like(h) >= 0)"),
    # buffers
    Construct("buffer_of_ones", "h = h * self.{a}{up}", 'self.register_buffer("{a}", torch.ones({C}))'),
    Construct("buffer_by_position", "h = h * self.{a}{up}", 'self.register_buffer("{a}", torch.arange({C}) / {C})'),
    Construct(
        "buffer_in_part", "h = h * self.{a}[: h.shape[{c}]]{up}", 'self.register_buffer("{a}", torch.arange(32.0))'
    ),
    Construct("plain_attribute", "h = h * self.{a}{up}", "self.{a} = torch.linspace(0, 1, {C})"),
    # numbers
    Construct("by_width", "h = h / {n}"),
    Construct("by_root_of_width", "h = h * {n} ** -0.5"),
    Construct("log_of_width", "h = h + math.log({n})"),
    Construct("width_as_tensor", "h = h / torch.tensor(float({n})).sqrt()"),
    Construct("by_size_of_tensor", "h = h / h.numel()"),
    Construct("by_spatial_size", "h = h / h[0, 0].numel()"),
    Construct("by_attribute", "h = self.{a}(h) / self.{a}.weight.shape[0]", "self.{a} = {CD}", "D"),
    Construct("half_the_width", "h = h / (h.shape[{c}] // 2)"),
    Construct("parity_of_width", "h = h * (1 + h.shape[{c}] % 2)"),
    Construct("width_as_exponent", "h = torch.tanh(h) ** (1 + 2 * h.shape[{c}])"),
    Construct("leak_of_width", "h = F.leaky_relu(h, 1 / h.shape[{c}])"),
    Construct("clamp_of_width", "h = h.clamp(-1 / {n}, 1 / {n})"),
)
