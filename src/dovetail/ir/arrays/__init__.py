"""Array functions that the array API standard lacks, for any library.

A rule's ``evaluate(self, xp, *xs)`` uses the standard's functions of the namespace ``xp`` and the functions below, each of
which takes ``xp`` first. Every function is implemented in the standard's functions without in-place writes, because JAX
arrays are immutable; some functions have a faster implementation for numpy. Types outside the standard (bf16, f8, 4-bit,
strings) are supported in numpy only.

Errors: UnsupportedError [array.library], [array.dtype], [array.cast]; EngineError [index.range],
[shape.empty], [array.divide-by-zero], [array.cast].
"""

from dovetail.ir.arrays.arithmetic import (
    bit_shift,
    erf,
    floor_divide,
    floor_mod,
    log_softmax,
    logsumexp,
    matmul_integers,
    mean,
    power,
    round_half_away,
    round_half_even,
    softmax,
    trunc_divide,
    trunc_mod,
)
from dovetail.ir.arrays.backends import (
    Array,
    Namespace,
    dtype_in,
    element,
    from_numpy,
    is_chunked,
    is_dask,
    is_numpy,
    is_rounding,
    namespace,
    standard,
    to_dask,
    to_numpy,
    widen,
)
from dovetail.ir.arrays.casts import cast
from dovetail.ir.arrays.checks import DeferredCheck, deferring_checks, is_deferring, refuse_elements
from dovetail.ir.arrays.convolution import convolve, convolve_transpose
from dovetail.ir.arrays.erfinv import QUANTILES, erfinv
from dovetail.ir.arrays.indexing import gather_nd, scatter_along, scatter_nd, take, take_along, wrap_indices
from dovetail.ir.arrays.movement import one_hot, pad, repeat, reshape, strided_slice, tile, triangle
from dovetail.ir.arrays.pooling import WindowAxis, pool_max, pool_max_indices, pool_sum
from dovetail.ir.arrays.windows import sliding_windows, window_counts

__all__ = [
    "QUANTILES",
    "Array",
    "DeferredCheck",
    "Namespace",
    "WindowAxis",
    "bit_shift",
    "cast",
    "convolve",
    "convolve_transpose",
    "deferring_checks",
    "dtype_in",
    "element",
    "erf",
    "erfinv",
    "floor_divide",
    "floor_mod",
    "from_numpy",
    "gather_nd",
    "is_chunked",
    "is_dask",
    "is_deferring",
    "is_numpy",
    "is_rounding",
    "log_softmax",
    "logsumexp",
    "matmul_integers",
    "mean",
    "namespace",
    "one_hot",
    "pad",
    "pool_max",
    "pool_max_indices",
    "pool_sum",
    "power",
    "refuse_elements",
    "repeat",
    "reshape",
    "round_half_away",
    "round_half_even",
    "scatter_along",
    "scatter_nd",
    "sliding_windows",
    "softmax",
    "standard",
    "strided_slice",
    "take",
    "take_along",
    "tile",
    "to_dask",
    "to_numpy",
    "triangle",
    "trunc_divide",
    "trunc_mod",
    "widen",
    "window_counts",
    "wrap_indices",
]
