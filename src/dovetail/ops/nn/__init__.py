"""Neural network layers: convolution, pooling, normalization, Resize."""

from dovetail.ops.nn import (
    adaptive_pool,
    causal_conv,
    col2im,
    conv,
    deform_conv,
    dropout,
    grid_sample,
    group_conv,
    lrn,
    normalization,
    pool,
    resize,
    resize_matrices,
    sliding_window,
)

__all__ = [
    "adaptive_pool",
    "causal_conv",
    "col2im",
    "conv",
    "deform_conv",
    "dropout",
    "grid_sample",
    "group_conv",
    "lrn",
    "normalization",
    "pool",
    "resize",
    "resize_matrices",
    "sliding_window",
]
