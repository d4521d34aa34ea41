"""Constructs that are known to go wrong, each with a module that shows it. The fuzzer leaves them out.

``test_fuzz.py`` fails when one of them goes right: then its line goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_WRITTEN_CONSTANTS = {  # a write into a view of a constant tensor does not reach the tensor
    "ones_but_first": "2 F layer_act:2 ones_but_first:2",
    "ones_in_first_half": "2 F layer_act:2 ones_in_first_half:2",
    "chunk_negated": "2 F layer_act:2 chunk_negated:2",
}
_NUMBERS_OF_WIDTHS = {  # what is computed from a constant tensor of that width
    "softmax_of_zeros": "2 F layer_act:2 softmax_of_zeros:2",
    "log_softmax_of_ones": "2 F layer_act:2 log_softmax_of_ones:2",
    "normalised_ones": "2 F layer_act:2 normalised_ones:2",
    "ones_over_their_sum": "2 F layer_act:2 ones_over_their_sum:2",
    "seeded_code": "2 F layer_act:2 seeded_code:2",
    "sum_of_ones": "2 F layer_act:2 sum_of_ones:2",
    "norm_of_ones": "2 F layer_act:2 norm_of_ones:2",
    "product_of_twos": "2 F layer_act:2 product_of_twos:2",
    "dot_of_ones": "2 F layer_act:2 dot_of_ones:2",
    "sum_of_ones_like": "0 F layer_act:0 sum_of_ones_like:0",
}
_CONTROL_FLOW = {  # the proof compares numbers, not what is called in which order
    "if_wide": "0 F layer_act:0 if_wide:0",
    "if_wider_than": "0 F layer_act:0 if_wider_than:0",
    "either_or": "0 F layer_act:0 either_or:0",
    "if_even": "1 F layer_act:1 if_even:1",
    "if_large": "40 I layer_act:40 if_large:40",
    "function_of_parity": "1 F layer_act:1 function_of_parity:1",
    "once_for_each_unit": "0 F layer_act:0 once_for_each_unit:0",
    "once_for_each_pair": "0 F layer_act:0 once_for_each_pair:0",
    "halving": "0 F layer_act:0 halving:0",
    "layers_by_width": "0 F layer_act:0 layers_by_width:0",
    "if_weight_is_tall": "0 F layer_act:0 if_weight_is_tall:0",
    "reduce_if_wide": "5 F layer_act:5 reduce_if_wide:5",
    "compared_sizes": "2 F layer_act:2 compared_sizes:2",
}
_ALIASES = {  # what a plain container of a module holds is not resized
    "alias_in_list": "0 F layer_act:0 alias_in_list:0",
    "alias_in_tuple": "0 F layer_act:0 alias_in_tuple:0",
    "alias_in_dict": "0 F layer_act:0 alias_in_dict:0",
    "alias_in_nested": "0 F layer_act:0 alias_in_nested:0",
    "alias_in_namespace": "0 F layer_act:0 alias_in_namespace:0",
    "alias_beside_layer": "0 F layer_act:0 alias_beside_layer:0",
}
_FROZEN = {  # frozen weights lose units
    "frozen": "0 F layer_act:0 frozen:0",
    "frozen_norm": "0 F layer_act:0 frozen_norm:0",
    "frozen_bias": "0 F layer_act:0 frozen_bias:0",
    "frozen_behind_trained": "0 F layer_act:0 frozen_behind_trained:0",
    "frozen_scale": "0 F layer_act:0 frozen_scale:0",
    "low_rank": "0 F layer_act:0 low_rank:0",
}
_REFERENCE = {  # the masked reference replays operations with gradients where the model has switched them off
    "without_gradient": "0 F layer_act:0 without_gradient:0",
}

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {**_WRITTEN_CONSTANTS, **_NUMBERS_OF_WIDTHS, **_CONTROL_FLOW, **_ALIASES, **_FROZEN, **_REFERENCE}
)
