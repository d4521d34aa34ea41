"""Which rule an operation follows, by name. Operations that torch tags as pointwise need no entry."""

from __future__ import annotations

from meristem.tracing.ops.context import OpRuleFunction
from meristem.tracing.ops.contracting import attention, contraction, convolution
from meristem.tracing.ops.elementwise import copied_into, drawn, made_of_constants, nothing, pointwise, restrided, same
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
from meristem.tracing.ops.rearranging import (
    along_a_dimension,
    channel_shuffle,
    columns_to_image,
    complex_pairs,
    embedding,
    gather,
    image_to_columns,
    index,
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
    reduction,
    softmax,
    spatial,
    weight_norm,
)


def _table() -> dict[str, OpRuleFunction]:
    families: list[tuple[OpRuleFunction, str]] = [
        (
            same,
            "clone contiguous detach alias lift_fresh _to_copy to native_dropout dropout bernoulli bernoulli_ uniform_ "
            "normal_ zero_ fill_ random_ exponential_ view_as_real_copy _conj _neg_view resolve_conj resolve_neg "
            "alpha_dropout feature_dropout _fake_quantize_learnable_per_tensor_affine fake_quantize_per_tensor_affine",
        ),
        (
            pointwise,
            "where masked_fill _prelu_kernel prelu clamp complex polar lerp addcmul addcdiv hardswish "
            "rrelu_with_noise log_sigmoid_forward real imag floor_divide special_i0",
        ),
        (
            made_of_constants,
            "zeros ones empty full rand randn randint scalar_tensor zeros_like ones_like "
            "empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full empty_strided "
            "new_empty_strided",
        ),
        (drawn, "normal"),
        (restrided, "as_strided"),
        (copied_into, "copy_"),
        (view, "view reshape _unsafe_view flatten unflatten _reshape_alias ravel"),
        (permute, "permute"),
        (transpose, "transpose t numpy_T adjoint swapaxes transpose_ t_"),
        (expand, "expand"),
        (unsqueeze, "unsqueeze unsqueeze_"),
        (squeeze, "squeeze squeeze_"),
        (repeat, "repeat"),
        (concatenate, "cat"),
        (stack, "stack"),
        (
            split,
            "split unsafe_split split_with_sizes unsafe_split_with_sizes chunk unsafe_chunk tensor_split",
        ),
        (gated_halves, "glu"),
        (unbind, "unbind"),
        (select, "select"),
        (slice_, "slice"),
        (pad, "constant_pad_nd"),
        (pixel_shuffle, "pixel_shuffle"),
        (pixel_unshuffle, "pixel_unshuffle"),
        (channel_shuffle, "channel_shuffle native_channel_shuffle"),
        (unfold_windows, "unfold"),
        (image_to_columns, "im2col"),
        (columns_to_image, "col2im"),
        (embedding, "embedding _embedding_bag _embedding_bag_forward_only"),
        (index, "index _unsafe_index"),
        (
            along_a_dimension,
            "cumsum cumprod roll flip sort topk argsort index_select _fft_c2c _fft_r2c _fft_c2r cummax cummin "
            "logcumsumexp diff",
        ),
        (triangle, "tril triu tril_ triu_"),
        (gather, "gather take_along_dim"),
        (real_pairs, "view_as_real"),
        (complex_pairs, "view_as_complex"),
        (contraction, "mm bmm addmm baddbmm mv dot addmv matmul"),
        (
            attention,
            "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
            "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
            "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math",
        ),
        (convolution, "convolution _convolution convolution_overrideable"),
        (
            batch_norm,
            "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
            "batch_norm _batch_norm_with_update _batch_norm_no_update miopen_batch_norm",
        ),
        (layer_norm, "native_layer_norm layer_norm _fused_rms_norm rms_norm"),
        (group_norm, "native_group_norm"),
        (weight_norm, "_weight_norm_interface"),
        (softmax, "softmax _softmax _log_softmax _safe_softmax log_softmax"),
        (
            reduction,
            "sum mean amax amin var std var_mean std_mean linalg_vector_norm norm logsumexp prod any all nansum "
            "aminmax",
        ),
        (extreme, "max min median"),
        (
            spatial,
            "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d avg_pool1d max_pool1d max_pool2d "
            "max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
            "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d "
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
            "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
            "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
            "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
            "replication_pad3d grid_sampler_2d grid_sampler_3d",
        ),
        (nothing, "randperm arange linspace eye tril_indices triu_indices logspace hann_window range"),  # by position
        (
            nothing,
            "_assert_async _assert_tensor_metadata sym_size sym_numel _local_scalar_dense item is_nonzero equal",
        ),
    ]
    return {name: rule for rule, names in families for name in names.split()}


TABLE: dict[str, OpRuleFunction] = _table()
