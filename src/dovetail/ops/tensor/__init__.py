"""Shape, layout and indexing of tensors: Concat, Split, Reshape, Transpose, Gather, Scatter."""

from dovetail.ops.tensor import (
    concat_split,
    depth_to_space,
    gather,
    gather_tree,
    nonzero_compress,
    onehot_trilu_eye,
    pad,
    reshape,
    scatter,
    shape,
    slice,
    topk,
    transpose_expand_tile,
    unique_searchsorted,
)

__all__ = [
    "concat_split",
    "depth_to_space",
    "gather",
    "gather_tree",
    "nonzero_compress",
    "onehot_trilu_eye",
    "pad",
    "reshape",
    "scatter",
    "shape",
    "slice",
    "topk",
    "transpose_expand_tile",
    "unique_searchsorted",
]
