"""dovetail.concat, split and copy: the operators Concat, Split and Transpose on arrays.

The compiled core handles calls with plain numpy arrays itself. The functions here check all other calls, and compute in numpy if
the core is not compiled. The variable DOVETAIL_THREADS sets the number of threads, by default the number of processors that this
process may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, combinations, pairwise
from operator import index
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dovetail.errors import ArgumentTypeError, EngineError, RuleError
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import INT64_MAX, agree, axis_in

# numpy replaces the core only if the core was not compiled; a compiled core that fails to load raises ImportError.
try:
    import dovetail._native as _compiled
except ModuleNotFoundError:
    _compiled = None  # type: ignore[assignment]

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def _quick(function: F) -> F:
    """Return the native version of ``function``, which calls ``function`` itself unless all arguments are plain arrays."""
    maker = getattr(_compiled, f"quick_{function.__name__}", None)
    return cast(F, maker(function)) if maker else function


@_quick
@check_keywords
def concat(arrays: Sequence[Any], axis: int, out: Any = None) -> Array:
    """Concatenate arrays along ``axis``, which may be negative; all other sizes must be equal.

    ``arrays``: one or more arrays of equal element type and of rank 1 or more. They are neither broadcast nor promoted; sizes may
    be 0. An array is a numpy array of any strides, or an object that supports DLPack (torch, jax). Elements are copied bit by
    bit. ``out`` is the array to write and return; it may share memory with the inputs.

    Raises RuleError [node.inputs] without arrays, [axis.range], [shape.range], [shape.rank], [shape.disagree], [type.disagree]
    for arrays that differ. Raises ArgumentTypeError [attribute.value] for an axis that is no integer. Raises EngineError
    [array.library] for an object that is no array; [array.dtype] for elements that are Python objects; [output.array] for an
    ``out`` of wrong shape or type, that is read-only, or whose elements overlap in memory.

    Source: Concat of ONNX.

    >>> dovetail.concat([np.zeros((1, 2)), np.ones((1, 2))], axis=0)
    array([[0., 0.],
           [1., 1.]])
    """
    parts = [_array(item) for item in _items(arrays)]
    shape, axis = _concat_shape(parts, _axis(axis))
    result = np.empty(shape, parts[0].dtype) if out is None else _writable(out, shape, parts[0].dtype)
    sources = [part.copy() if np.may_share_memory(part, result) else part for part in parts]
    if _compiled is None or _compiled.try_concat(sources, axis, result) is None:
        np.concatenate(sources, axis, out=result)
    return result if out is None else out


@_quick
@check_keywords
def split(array: Any, lengths: Iterable[int], axis: int, out: Sequence[Any] | None = None, copy: bool = False) -> list[Array]:
    """Split ``array`` along ``axis`` into pieces of ``lengths``, whose sum is the size of the axis.

    The pieces are views of ``array``, copies with ``copy``, or the arrays of ``out``, one for each length. Lengths are at least
    0; one length may be -1, which stands for the remainder. A negative axis counts from the end.

    Raises RuleError [shape.rank], [axis.range]; [split.sizes] for lengths with a wrong sum. Raises ArgumentTypeError
    [attribute.value] for an axis and [split.sizes] for lengths that are no integers. Raises EngineError [output.array] if arrays
    of ``out`` overlap or their number differs from the number of lengths, and the EngineErrors of :func:`concat`.

    Source: Split of ONNX.

    >>> dovetail.split(np.arange(5), [2, -1], axis=0)
    [array([0, 1]), array([2, 3, 4])]
    """
    source = _array(array)
    axis = axis_in(_axis(axis), _rank(source))
    sizes = _lengths(lengths, source.shape[axis])
    views = _views(source, sizes, axis)
    if out is None and not copy:
        return views
    pieces = [np.empty(view.shape, view.dtype) for view in views] if out is None else _all_writable(out, views)
    if any(np.may_share_memory(piece, source) for piece in pieces):
        source = source.copy()
    if _compiled is None or _compiled.try_split(source, sizes, axis, pieces) is None:
        for piece, view in zip(pieces, _views(source, sizes, axis), strict=True):
            piece[...] = view
    return pieces if out is None else list(out)


@_quick
@check_keywords
def copy(view: Any, out: Any = None) -> Array:
    """Copy a view of any strides, such as a transposed or sliced array, to a contiguous array.

    ``out`` is the array to write and return. Raises EngineError [array.library], [array.dtype], [output.array] like
    :func:`concat`.

    Source: Transpose and Slice of ONNX, applied as numpy views.

    >>> dovetail.copy(np.array([[1, 2], [3, 4]]).T)
    array([[1, 3],
           [2, 4]])
    """
    source = _array(view)
    target = np.empty(source.shape, source.dtype) if out is None else _writable(out, source.shape, source.dtype)
    if np.may_share_memory(source, target):
        source = source.copy()
    if _compiled is None or _compiled.try_copy(source, target) is None:
        target[...] = source
    return target if out is None else out


def _items(arrays: Iterable[Any]) -> list[Any]:
    try:
        return list(arrays)
    except TypeError:
        raise ArgumentTypeError("node.inputs", f"arrays must be a sequence, got {type(arrays).__name__}") from None


def _array(item: Any) -> Array:
    """Return a numpy array that shares the memory of ``item``."""
    if isinstance(item, np.ma.MaskedArray) or not isinstance(item, np.ndarray | np.generic):
        item = _import_dlpack(item)
    array = np.asarray(item)
    if array.dtype.hasobject or array.dtype.kind == "T":
        raise EngineError("array.dtype", f"elements must not be Python objects, got {array.dtype}")
    return array


def _import_dlpack(item: object) -> Array:
    if not hasattr(item, "__dlpack__") or isinstance(item, np.ma.MaskedArray):
        raise EngineError("array.library", f"an array must be numpy's or support DLPack, got {type(item).__name__}")
    try:
        return np.from_dlpack(item)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise EngineError("array.library", f"numpy must be able to share the memory of {type(item).__name__}: {error}") from None


def _axis(axis: object) -> int:
    try:
        return index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError("attribute.value", f"axis must be an integer, got {axis!r}") from None


def _rank(array: Array) -> int:
    if array.ndim == 0:
        raise RuleError("shape.rank", "an array must have rank 1 or more, got a scalar")
    return array.ndim


def _concat_shape(parts: list[Array], axis: int) -> tuple[tuple[int, ...], int]:
    """Return the shape of the result, and the axis counted from the front."""
    if not parts:
        raise RuleError("node.inputs", "needs at least 1 input, got 0")
    axis = axis_in(axis, _rank(parts[0]))
    sizes = list(parts[0].shape)
    for number, part in enumerate(parts[1:], 1):
        if part.ndim != len(sizes):
            raise RuleError("shape.rank", f"ranks must be equal, got {len(sizes)} and {part.ndim}")
        if part.dtype != parts[0].dtype:
            raise RuleError("type.disagree", f"element types must be equal, got {parts[0].dtype} and {part.dtype}")
        for i, size in enumerate(part.shape):
            sizes[i] = sizes[i] + size if i == axis else int(agree(sizes[i], size, (0, i), (number, i)))
    if sizes[axis] > INT64_MAX:
        raise RuleError("shape.range", f"the sum of the sizes along axis {axis} must be at most 2**63 - 1, got {sizes[axis]}")
    return tuple(sizes), axis


def _lengths(lengths: Iterable[int], size: int) -> list[int]:
    try:
        numbers = list(map(index, lengths))
    except TypeError:
        raise ArgumentTypeError("split.sizes", f"lengths must be integers, got {lengths!r}") from None
    if numbers.count(-1) > 1 or any(length < -1 for length in numbers):
        raise RuleError("split.sizes", f"lengths must be at least 0, only one length may be -1, got {numbers}")
    rest = size - sum(length for length in numbers if length != -1)
    if rest < 0 or (rest != 0 and -1 not in numbers):
        raise RuleError("split.sizes", f"the sum of lengths must be {size}, got {numbers}")
    return [rest if length == -1 else length for length in numbers]


def _views(source: Array, sizes: list[int], axis: int) -> list[Array]:
    before = (slice(None),) * axis
    return [source[(*before, slice(first, last))] for first, last in pairwise([0, *accumulate(sizes)])]


def _writable(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    array = _array(out)
    if array.shape != shape or array.dtype != dtype:
        raise EngineError("output.array", f"out must be {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}")
    if not array.flags.writeable:
        raise EngineError("output.array", "out must be writable, got a read-only array")
    extent = array.itemsize - 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1):
        if stride <= extent and array.size:
            raise EngineError("output.array", f"the elements of out must not overlap, got strides {array.strides}")
        extent += (size - 1) * stride
    return array


def _all_writable(out: Sequence[Any], views: list[Array]) -> list[Array]:
    if not hasattr(out, "__len__"):
        raise EngineError("output.array", f"out must be a sequence of arrays, got {type(out).__name__}")
    if len(out) != len(views):
        raise EngineError("output.array", f"out must have {len(views)} arrays, got {len(out)}")
    arrays = [_writable(item, view.shape, view.dtype) for item, view in zip(out, views, strict=True)]
    if any(np.shares_memory(one, other) for one, other in combinations(arrays, 2) if np.may_share_memory(one, other)):
        raise EngineError("output.array", "arrays of out must not share memory")
    return arrays
