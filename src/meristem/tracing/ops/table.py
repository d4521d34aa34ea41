"""The table of operations: one entry holds all that the tracer knows about an operation.

To add an operation, add its name to the entry it behaves like, or give it an entry of its own; a new way for labels to
flow is a function in the file of its family (``moving.py``, ``reducing.py``, ...). An operation that torch tags as
pointwise needs an entry only if more than its rule is to be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from meristem.tracing.ops import shapes
from meristem.tracing.ops.contracting import (
    attention,
    contraction,
    convolution,
    distances,
    grouped_product,
    trilinear,
)
from meristem.tracing.ops.elementwise import (
    copied_into,
    drawn,
    made_of_constants,
    nothing,
    pointwise,
    quantised,
    restrided,
    same,
)
from meristem.tracing.ops.lookups import (
    embedding,
    gather,
    index,
    index_put,
    masked_scatter,
    packed,
    positions_found,
    scatter,
    segments,
    slices_written,
    unpacked,
)
from meristem.tracing.ops.moving import (
    concatenate,
    expand,
    gated_halves,
    pad,
    permute,
    repeat,
    select,
    slice_,
    split,
    squeeze,
    stack,
    transpose,
    unbind,
    unsqueeze,
    view,
)
from meristem.tracing.ops.op import Op
from meristem.tracing.ops.rearranging import (
    along_a_dimension,
    channel_shuffle,
    columns_to_image,
    complex_pairs,
    image_to_columns,
    pixel_shuffle,
    pixel_unshuffle,
    real_pairs,
    triangle,
    unfold_windows,
)
from meristem.tracing.ops.reducing import (
    batch_norm,
    extreme,
    group_norm,
    layer_norm,
    position_of_extreme,
    reduction,
    softmax,
    spatial,
    weight_norm,
)

_ELEMENT_BY_ELEMENT: tuple[tuple[Op, str], ...] = (
    (Op(combines=True, shape=shapes.elementwise_pair), "add sub"),
    (Op(combines=True, light=True, shape=shapes.elementwise_pair), "mul"),
    (Op(combines=True, light=True), "div"),
    (Op(combines=True), "rsub"),
    (Op(light=True), "relu sigmoid tanh neg gelu silu leaky_relu elu mish softplus hardtanh hardsigmoid"),
    (Op(pointwise, combines=True), "lerp addcmul addcdiv"),
    (Op(pointwise, light=True), "hardswish _prelu_kernel"),
    (
        Op(pointwise),
        "where masked_fill prelu clamp complex polar rrelu_with_noise log_sigmoid_forward real imag floor_divide "
        "special_i0",
    ),
    (Op(same, light=True, shape=shapes.clone), "clone"),
    (Op(same, light=True), "_to_copy native_dropout"),
    (
        Op(same),
        "contiguous detach alias lift_fresh to dropout bernoulli bernoulli_ uniform_ normal_ zero_ fill_ random_ "
        "exponential_ view_as_real_copy _conj _neg_view resolve_conj resolve_neg alpha_dropout feature_dropout",
    ),
    (
        Op(quantised),
        "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fake_quantize_learnable_per_tensor_affine "
        "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_learnable_per_channel_affine",
    ),
    (Op(restrided), "as_strided"),
    (Op(copied_into), "copy_"),
)

_WITHOUT_INPUT: tuple[tuple[Op, str], ...] = (
    (
        Op(made_of_constants),
        "zeros ones empty full rand randn randint scalar_tensor zeros_like ones_like empty_like full_like rand_like "
        "randn_like new_zeros new_ones new_empty new_full empty_strided new_empty_strided",
    ),
    (Op(drawn), "normal"),
    (Op(nothing), "randperm arange linspace eye tril_indices triu_indices logspace hann_window range"),  # by position
    (
        Op(nothing),
        "_assert_async _assert_tensor_metadata sym_size sym_numel _local_scalar_dense item is_nonzero equal",
    ),
)

_MOVING: tuple[tuple[Op, str], ...] = (
    (Op(view, moves=True), "view reshape _unsafe_view flatten unflatten _reshape_alias ravel"),
    (Op(permute, moves=True), "permute"),
    (Op(transpose, moves=True), "transpose t numpy_T adjoint swapaxes"),
    (Op(unsqueeze, moves=True), "unsqueeze"),
    (Op(squeeze, moves=True), "squeeze"),
    (Op(expand), "expand"),
    (Op(repeat), "repeat"),
    (Op(concatenate, shape=shapes.cat), "cat"),
    (Op(stack), "stack"),
    (
        Op(split),
        "split unsafe_split split_with_sizes unsafe_split_with_sizes chunk unsafe_chunk tensor_split",
    ),
    (Op(gated_halves), "glu"),
    (Op(unbind), "unbind"),
    (Op(select), "select"),
    (Op(slice_), "slice"),
    (Op(pad), "constant_pad_nd"),
    (Op(pixel_shuffle), "pixel_shuffle"),
    (Op(pixel_unshuffle), "pixel_unshuffle"),
    (Op(channel_shuffle), "channel_shuffle native_channel_shuffle"),
    (Op(unfold_windows), "unfold"),
    (Op(image_to_columns), "im2col"),
    (Op(columns_to_image), "col2im"),
    (Op(embedding), "embedding _embedding_bag _embedding_bag_forward_only"),
    (Op(index), "index _unsafe_index"),
    (Op(gather), "gather take_along_dim"),
    (Op(index_put), "index_put _unsafe_index_put _index_put_impl_"),
    (Op(slices_written), "index_add index_copy index_reduce index_fill"),
    (Op(scatter), "scatter scatter_add scatter_reduce"),
    (Op(masked_scatter), "masked_scatter"),
    (Op(positions_found), "nonzero"),
    (Op(segments), "segment_reduce"),
    (Op(packed), "_pack_padded_sequence"),
    (Op(unpacked), "_pad_packed_sequence"),
    (Op(along_a_dimension, shape=shapes.roll), "roll"),
    (
        Op(along_a_dimension),
        "cumsum cumprod flip sort topk argsort index_select _fft_c2c _fft_r2c _fft_c2r cummax cummin logcumsumexp diff",
    ),
    (Op(triangle), "tril triu"),
    (Op(real_pairs), "view_as_real"),
    (Op(complex_pairs), "view_as_complex"),
)

_CONTRACTING: tuple[tuple[Op, str], ...] = (
    (Op(contraction, shape=shapes.addmm), "addmm"),
    (Op(contraction, shape=shapes.mm), "mm"),
    (Op(contraction, shape=shapes.bmm), "bmm"),
    (Op(contraction), "baddbmm mv dot vdot addmv matmul"),
    (Op(grouped_product, shape=shapes.grouped_product), "_grouped_mm"),
    (Op(trilinear), "_trilinear"),
    (Op(distances), "_cdist_forward _euclidean_dist cdist"),
    (
        Op(attention),
        "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math",
    ),
    (Op(convolution, shape=shapes.convolution), "convolution"),
    (Op(convolution), "_convolution convolution_overrideable"),
)

_REDUCING: tuple[tuple[Op, str], ...] = (
    (
        Op(batch_norm, light=True, shape=shapes.batch_norm),
        "native_batch_norm _native_batch_norm_legit_no_training",
    ),
    (Op(batch_norm, light=True), "_native_batch_norm_legit"),
    (
        Op(batch_norm),
        "cudnn_batch_norm batch_norm _batch_norm_with_update _batch_norm_no_update miopen_batch_norm",
    ),
    (Op(layer_norm, zeros_count=True, light=True, shape=shapes.layer_norm), "native_layer_norm"),
    (Op(layer_norm, zeros_count=True, light=True), "_fused_rms_norm rms_norm"),
    (Op(layer_norm, zeros_count=True), "layer_norm"),
    (Op(group_norm, zeros_count=True, light=True), "native_group_norm"),
    (Op(weight_norm), "_weight_norm_interface"),
    (Op(softmax, zeros_count=True, shape=shapes.softmax), "_softmax _log_softmax _safe_softmax"),
    (Op(softmax, zeros_count=True), "softmax log_softmax"),
    (Op(reduction), "sum nansum linalg_vector_norm norm"),
    (Op(reduction, zeros_count=True, shape=shapes.mean), "mean"),
    (
        Op(reduction, zeros_count=True),
        "amax amin var std var_mean std_mean logsumexp prod any all aminmax",
    ),
    (Op(extreme, zeros_count=True), "max min median"),
    (Op(position_of_extreme, zeros_count=True), "argmax argmin"),
    (
        Op(spatial, shape=shapes.upsample),
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d",
    ),
    (
        Op(spatial),
        "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d avg_pool1d max_pool1d max_pool2d "
        "max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d "
        "_upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d "
        "upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
        "replication_pad3d grid_sampler_2d grid_sampler_3d",
    ),
)


def _table() -> dict[str, Op]:
    """Entries by name. The in-place form ``relu_`` has the entry of ``relu``, unless it has one of its own."""
    ops: dict[str, Op] = {}
    for op, names in (*_ELEMENT_BY_ELEMENT, *_WITHOUT_INPUT, *_MOVING, *_CONTRACTING, *_REDUCING):
        for name in names.split():
            assert name not in ops, f"{name} has two entries"
            ops[name] = op
    in_place = {f"{name}_": replace(op, shape=None) for name, op in ops.items() if name[-1] != "_"}
    return {**in_place, **ops}


OPS: Mapping[str, Op] = MappingProxyType(_table())
UNLISTED = Op()  # element by element if torch tags it so, otherwise unknown
