"""The grammar: moving, cutting and joining elements; reductions across channels."""

from __future__ import annotations

from fuzz.construct import Construct, table

MOVES = table(
    Construct("flip", "h = torch.flip(h, ({c},))"),
    Construct("roll", "h = torch.roll(h, 1, {c})"),
    Construct("there_and_back", "h = {act}(h.transpose(0, {c})).transpose(0, {c})"),
    Construct(
        "channels_last",
        "h = self.{a}(h.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)",
        "self.{a} = nn.LayerNorm({C})",
        domains="I",
    ),
    Construct("split_and_merge", "h = {act}(h.unflatten({c}, ({g}, -1))).flatten({c}, {c} + 1)"),
    Construct("shuffle", "h = h.unflatten({c}, ({g}, -1)).transpose({c}, {c} + 1).flatten({c}, {c} + 1)"),
    Construct("mean_of_parts", "h = h.unflatten({c}, ({g}, -1)).mean({c})", width="C // g"),
    Construct("sum_in_parts", "h = h.unflatten({c}, ({g}, {C} // {g})).sum({c} + 1)", width="g"),
    Construct("hard_view", "h = h.reshape(len(h), {T}, {g}, {C} // {g}).flatten(2)", domains="S"),
    Construct(
        "view_by_size", "h = h.reshape(len(h), {T}, {g}, h.shape[-1] // {g}).transpose(2, 3).flatten(2)", domains="S"
    ),
    Construct("twice_itself", "h = torch.cat([h, h], {c})", width="2 * C"),
    Construct("dense", "h = torch.cat([h, self.{a}(h)], {c})", "self.{a} = {CD}", "C + D"),
    Construct(
        "branches", "h = torch.cat([self.{a}(h), {act}(self.{b}(h))], {c})", "self.{a} = {CD}\nself.{b} = {CE}", "D + E"
    ),
    Construct("with_ones", "h = torch.cat([h, torch.ones_like(h[{ix}:1])], {c})", width="C + 1"),
    Construct("swap_halves", "{u}, {v} = h.chunk(2, {c})\nh = torch.cat([{v}, {u}], {c})", when="C % 2 == 0"),
    Construct(
        "product_of_halves",
        "{u}, {v} = h.chunk(2, {c})\nh = {u} * torch.sigmoid({v})",
        width="C // 2",
        when="C % 2 == 0",
    ),
    Construct(
        "one_half_moves_on", "{u}, {v} = h.chunk(2, {c})\nh = torch.cat([{u}, {act}({v})], {c})", when="C % 2 == 0"
    ),
    Construct("uneven_split", "{u}, {v} = h.split([{k}, {C} - {k}], {c})\nh = torch.cat([{v}, torch.tanh({u})], {c})"),
    Construct(
        "split_by_size", "{u}, {v} = h.split(h.shape[{c}] // 2, {c})\nh = {u} + {v}", width="C // 2", when="C % 2 == 0"
    ),
    Construct("split_by_rest", "{u}, {v} = h.split([{k}, h.shape[{c}] - {k}], {c})\nh = torch.cat([{v}, {u}], {c})"),
    Construct("first_few", "h = h[{ix}:{k}]", width="k"),
    Construct("all_but_first", "h = h[{ix}1:]", width="C - 1"),
    Construct("last_few", "h = h[{ix}-{k}:]", width="k"),
    Construct("first_half", "h = h[{ix}: h.shape[{c}] // 2]", width="C // 2"),
    Construct("every_other", "h = h[{ix}::2]", width="(C + 1) // 2"),
    Construct("narrow", "h = h.narrow({c}, 1, {k})", width="k"),
    Construct("by_index", "h = h[{ix}[0, 2, 1]]", width="3", when="C >= 3"),
    Construct("index_select", "h = h.index_select({c}, torch.arange(0, h.shape[{c}], 2))", width="(C + 1) // 2"),
    Construct("reversed_index", "h = h[{ix}torch.arange({n} - 1, -1, -1)]"),
    Construct("led_by_the_first", "h = h * torch.sigmoid(h[{ix}:1])"),
    Construct("led_by_the_last", "h = h + h.select({c}, -1).unsqueeze({c})"),
    Construct("shifted_sum", "h = h[{ix}1:] + h[{ix}:-1]", width="C - 1"),
    Construct("interleave", "h = torch.stack([h, {act}(h)], {c} + 1).flatten({c}, {c} + 1)", width="2 * C"),
    Construct(
        "stack_in_front", "h = torch.stack([h, self.{a}(h)], {c}).flatten({c}, {c} + 1)", "self.{a} = {CC}", "2 * C"
    ),
    Construct("repeat_interleave", "h = h.repeat_interleave(2, {c})", width="2 * C"),
    Construct("pad_vector", "h = F.pad(h, (0, {k}))", width="C + k", domains="FS"),
    Construct("pad_image", "h = F.pad(h, (0, 0, 0, 0, 1, {k}))", width="C + k + 1", domains="I"),
    Construct(
        "pixel_shuffle", "h = F.avg_pool2d(F.pixel_shuffle(h, 2), 2)", width="C // 4", domains="I", when="C % 4 == 0"
    ),
    Construct(
        "pixel_unshuffle", "h = F.interpolate(F.pixel_unshuffle(h, 2), scale_factor=2)", width="4 * C", domains="I"
    ),
    Construct("sum_of_units", "h = h * sum(h.unbind({c})).unsqueeze({c})"),
    Construct("unit_by_unit", "h = torch.stack([h.select({c}, i) * 2 for i in range(h.shape[{c}])], {c})"),
    # to another domain
    Construct("tokens_of_image", "h = h.flatten(2).transpose(1, 2)", domains="I", to="S", length="16"),
    Construct("global_pool", "h = h.mean((2, 3))", domains="I", to="F"),
    Construct("flatten_image", "h = F.adaptive_avg_pool2d(h, 2).flatten(1)", width="4 * C", domains="I", to="F"),
    Construct("flatten_tokens", "h = h.flatten(1)", width="T * C", domains="S", to="F"),
    Construct("mean_of_tokens", "h = h.mean(1)", domains="S", to="F"),
    Construct("first_token", "h = h[:, 0]", domains="S", to="F"),
    Construct("tokens_of_vector", "h = torch.stack([h, {act}(h)], 1)", domains="F", to="S", length="2"),
    Construct("units_as_tokens", "h = self.{a}(h.unsqueeze(-1)).mean(1)", "self.{a} = nn.Linear(1, {D})", "D", "F"),
)

REDUCTIONS = table(
    Construct("centred", "h = h - h.mean({c}, keepdim=True)"),
    Construct("unit_length", "h = F.normalize(h, dim={c})"),
    Construct("softmax", "h = h.softmax({c})"),
    Construct("share_of_sum", "h = h / (1 + h.abs().sum({c}, keepdim=True))"),
    Construct("above_minimum", "h = h - h.amin({c}, keepdim=True)"),
    Construct("times_maximum", "h = h * h.max({c}, keepdim=True).values"),
    Construct("log_sum", "h = h - h.logsumexp({c}, keepdim=True)"),
    Construct(
        "standardised", "h = (h - h.mean({c}, keepdim=True)) / (h.var({c}, unbiased=False, keepdim=True) + 1).sqrt()"
    ),
    Construct(
        "own_rms_norm",
        "h = self.{a}{up} * h * torch.rsqrt(h.pow(2).mean({c}, keepdim=True) + 1e-5)",
        "self.{a} = nn.Parameter(torch.randn({C}))",
    ),
    Construct("own_mean", "h = h - h.sum({c}, keepdim=True) / {n}"),
    Construct("functional_norm", "h = F.layer_norm(h, h.shape[-1:])", domains="FS"),
    Construct("running_sum", "h = h.cumsum({c})"),
    Construct("sorted", "h = h.sort({c}).values"),
    Construct("top", "h = h.topk({k}, {c}).values", width="k"),
    Construct("outer_product", 'h = torch.einsum("bi,bj->bij", h, h).flatten(1)', width="C * C", domains="F"),
    Construct(
        "image_gram", "{u} = h.flatten(2)\nh = h * ({u} @ {u}.transpose(1, 2)).mean(1)[..., None, None]", domains="I"
    ),
    Construct("distances", "h = h * torch.cdist(h, h)[..., :1]", domains="S"),
    Construct("cosine", "h = h * F.cosine_similarity(h, h.roll(1, 0), dim={c}).unsqueeze({c})"),
    Construct("whole_mean", "h = h - h.mean()"),
    Construct("whole_norm", "h = h / (1 + h.norm())"),
)
