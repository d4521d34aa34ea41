"""The grammar: layers and how they are wired."""

from __future__ import annotations

from fuzz.construct import Construct, table

LAYERS = table(
    Construct("layer", "h = self.{a}(h)", "self.{a} = {CD}", "D"),
    Construct("layer_act", "h = {act}(self.{a}(h))", "self.{a} = {CD}", "D"),
    Construct("layer_norm_act", "h = {act}(self.{b}(h))\nh = self.{a}(h)", "self.{a} = {CD}\nself.{b} = {norm}", "D"),
    Construct("act", "h = {act}(h)"),
    Construct("norm", "h = self.{a}(h)", "self.{a} = {norm}"),
    Construct("residual", "h = h + self.{b}({act}(self.{a}(h)))", "self.{a} = {CD}\nself.{b} = {DC}"),
    Construct("two_paths", "h = self.{a}(h) + {act}(self.{b}(h))", "self.{a} = {CD}\nself.{b} = {CD}", "D"),
    Construct("gate", "h = h * torch.sigmoid(self.{a}(h))", "self.{a} = {CC}"),
    Construct(
        "swiglu",
        "h = self.{d}(F.silu(self.{a}(h)) * self.{b}(h))",
        "self.{a} = {CD}\nself.{b} = {CD}\nself.{d} = {DC}",
    ),
    Construct("glu", "h = F.glu(self.{a}(h), {c})", "self.{a} = {C2D}", "D"),
    Construct("twice", "h = self.{a}({act}(self.{a}(h)))", "self.{a} = {CC}"),
    Construct(
        "module_list",
        "for layer in self.{a}:\n    h = {act}(layer(h))",
        "self.{a} = nn.ModuleList([{CC}, {CC}])",
    ),
    Construct("sequential", "h = self.{a}(h)", "self.{a} = nn.Sequential({CD}, nn.ReLU(inplace=True), {DC})"),
    Construct("channel_scale", "h = h * self.{a}{up}", "self.{a} = nn.Parameter(torch.randn({C}))"),
    Construct("scale_of_one", "h = h * self.{a}", "self.{a} = nn.Parameter(torch.ones(1))"),
    Construct(
        "layer_scale",
        "h = h + self.{b}{up} * self.{a}(h)",
        "self.{a} = {CC}\nself.{b} = nn.Parameter(torch.randn({C}))",
    ),
    Construct("bare_matmul", "h = h @ self.{a}", "self.{a} = nn.Parameter(torch.randn({C}, {D}))", "D", "FS"),
    Construct(
        "bare_einsum",
        'h = torch.einsum("oi,bihw->bohw", self.{a}, h)',
        "self.{a} = nn.Parameter(torch.randn({D}, {C}))",
        "D",
        "I",
    ),
    Construct("prelu", "h = self.{a}(h)", "self.{a} = nn.PReLU({C})", domains="FI"),
    Construct("weight_norm", "h = self.{a}(h)", "self.{a} = parametrizations.weight_norm({CD})", "D"),
    Construct(
        "skip_over_two", "{u} = h\nh = {act}(self.{a}(h))\nh = self.{b}(h) + {u}", "self.{a} = {CC}\nself.{b} = {CC}"
    ),
    Construct("detached", "h = h + self.{a}(h.detach())", "self.{a} = {CC}"),
    Construct("without_gradient", "with torch.no_grad():\n    {u} = self.{a}(h)\nh = h * {u}", "self.{a} = {CC}"),
    Construct("never_used", "h = {act}(h)", "self.{a} = {CD}"),
    Construct("second_output", "outputs.append(self.{a}(h))", "self.{a} = {CD}"),
    Construct("hidden_output", "outputs.append(h.sum())"),
    # images
    Construct("depthwise", "h = self.{a}(h)", "self.{a} = nn.Conv2d({C}, {C}, 3, padding=1, groups={C})", domains="I"),
    Construct(
        "grouped",
        "h = self.{a}(h)",
        "self.{a} = nn.Conv2d({C}, 2 * {D}, 1, groups={g})",
        "2 * D",
        "I",
        "2 * D % g == 0",
    ),
    Construct(
        "transposed",
        "h = F.avg_pool2d(self.{a}(h), 2)",
        "self.{a} = nn.ConvTranspose2d({C}, {D}, 2, stride=2)",
        "D",
        "I",
    ),
    Construct("max_pool", "h = F.max_pool2d(h, 3, 1, 1)", domains="I"),
    Construct("upsample", "h = F.avg_pool2d(F.interpolate(h, scale_factor=2), 2)", domains="I"),
    Construct(
        "squeeze_excite",
        "{u} = h.mean((2, 3), keepdim=True)\nh = h * torch.sigmoid(self.{b}(torch.relu(self.{a}({u}))))",
        "self.{a} = nn.Conv2d({C}, {D}, 1)\nself.{b} = nn.Conv2d({D}, {C}, 1)",
        domains="I",
    ),
    # sequences
    Construct(
        "conv1d",
        "h = self.{a}(h.transpose(1, 2)).transpose(1, 2)",
        "self.{a} = nn.Conv1d({C}, {D}, 3, padding=1)",
        "D",
        "S",
    ),
    Construct("positions", "h = h + self.{a}", "self.{a} = nn.Parameter(torch.randn({T}, {C}))", domains="S"),
    Construct(
        "class_token",
        "h = torch.cat([self.{a}.expand(len(h), -1, -1), h], 1)",
        "self.{a} = nn.Parameter(torch.randn(1, 1, {C}))",
        domains="S",
        length="T + 1",
    ),
    Construct(
        "mixer",
        "h = h + self.{a}(h.transpose(1, 2)).transpose(1, 2)",
        "self.{a} = nn.Linear({T}, {T})",
        domains="S",
    ),
    Construct(
        "attention_module",
        "h = h + self.{a}(h, h, h, need_weights=False)[0]",
        "self.{a} = nn.MultiheadAttention({C}, 2, batch_first=True)",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct(
        "attention_qkv",
        """\
{u}, {v}, {w} = (z.unflatten(-1, (2, -1)).transpose(1, 2) for z in self.{a}(h).chunk(3, -1))
h = h + self.{b}(F.scaled_dot_product_attention({u}, {v}, {w}).transpose(1, 2).flatten(2))""",
        "self.{a} = nn.Linear({C}, 6 * {D})\nself.{b} = nn.Linear(2 * {D}, {C})",
        domains="S",
        when="D <= 6",
    ),
    Construct(
        "attention_by_hand",
        """\
{u} = self.{a}(h) @ self.{b}(h).transpose(1, 2) * {E} ** -0.5
h = h + {u}.softmax(-1) @ self.{d}(h)""",
        "self.{a} = {CE}\nself.{b} = {CE}\nself.{d} = {CC}",
        domains="S",
    ),
    Construct(
        "encoder_layer",
        "h = self.{a}(h)",
        "self.{a} = nn.TransformerEncoderLayer({C}, 2, {D}, dropout=0.0, batch_first=True)",
        domains="S",
        when="C % 2 == 0",
    ),
    Construct("self_similarity", "h = (h @ h.transpose(1, 2)).softmax(-1) @ h", domains="S"),
    Construct("channel_similarity", "h = h @ (h.transpose(1, 2) @ h).softmax(-1)", domains="S"),
    Construct("lstm", "h, _ = self.{a}(h)", "self.{a} = nn.LSTM({C}, {D}, batch_first=True)", "D", "S"),
    Construct("gru", "h = self.{a}(h)[0]", "self.{a} = nn.GRU({C}, {D}, batch_first=True)", "D", "S"),
    Construct(
        "rnn_both_ways",
        "h = self.{a}(h)[0]",
        "self.{a} = nn.RNN({C}, {D}, batch_first=True, bidirectional=True)",
        "2 * D",
        "S",
    ),
    Construct(
        "cell_in_a_loop",
        """\
{u} = h.new_zeros(len(h), {D})
{v} = []
for token in h.unbind(1):
    {u} = self.{a}(token, {u})
    {v}.append({u})
h = torch.stack({v}, 1)""",
        "self.{a} = nn.GRUCell({C}, {D})",
        "D",
        "S",
    ),
    Construct("last_state", "h = self.{a}(h)[1][0]", "self.{a} = nn.GRU({C}, {D}, batch_first=True)", "D", "S", to="F"),
    # vectors
    Construct("cell", "h = self.{a}(h)", "self.{a} = nn.RNNCell({C}, {D})", "D", "F"),
    Construct("bilinear", "h = self.{a}(h, h)", "self.{a} = nn.Bilinear({C}, {C}, {D})", "D", "F"),
)
