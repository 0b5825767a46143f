"""dovetail.concat, split and copy: the operators Concat, Split and Transpose on arrays.

The compiled core does it at the speed of the memory, on all threads, and answers plain calls by itself; the functions here know
every rule, and do the same in numpy where there is no core. Threads: as many as DOVETAIL_THREADS says, else all that this process
may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, combinations, pairwise
from operator import index
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dovetail.errors import EngineError, RuleError
from dovetail.ir.types import INT64_MAX, agree, axis_in

# Only a missing core is replaced by numpy; a core that does not load raises ImportError.
try:
    import dovetail._native as _compiled
except ModuleNotFoundError:
    _compiled = None  # type: ignore[assignment]

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def _quick(function: F) -> F:
    """Wrap a function by the native one of its name, which calls ``function`` for all but plain arrays."""
    maker = getattr(_compiled, f"quick_{function.__name__}", None)
    return cast(F, maker(function)) if maker else function


@_quick
def concat(arrays: Sequence[Any], axis: int, out: Any = None) -> Array:
    """Concatenate arrays along ``axis``, which may be negative; all other sizes must be equal.

    At least one array, none of them a scalar, all of one element type: nothing is broadcast or promoted, a size of 0 is an
    ordinary size, and every element keeps its bits. Arrays may be numpy's, of any strides and of any type but objects, or give
    themselves by DLPack (torch, jax). ``out`` is written and returned; it may share memory with the inputs.

    Raises RuleError: [node.inputs] no array; [shape.scalar]; [axis.range]; [shape.rank], [shape.disagree], [type.disagree] arrays
    that differ; [shape.overflow]. Raises EngineError: [array.library] something that is no array; [array.dtype] elements that are
    objects; [array.out] an ``out`` of another shape or type, that is read-only, or holds an element twice.
    """
    parts = [_array(each) for each in arrays]
    shape, axis = _concat_shape(parts, index(axis))
    whole = np.empty(shape, parts[0].dtype) if out is None else _writable(out, shape, parts[0].dtype)
    apart = [part.copy() if np.may_share_memory(part, whole) else part for part in parts]
    if _compiled is None or _compiled.try_concat(apart, axis, whole) is None:
        np.concatenate(apart, axis, out=whole)
    return whole if out is None else out


@_quick
def split(array: Any, lengths: Iterable[int], axis: int, out: Sequence[Any] | None = None, copy: bool = False) -> list[Array]:
    """Split ``array`` along ``axis`` into pieces of ``lengths``, which add up to its size there.

    The pieces are views of ``array``, unless ``copy`` asks for arrays of their own or ``out`` gives one for each to be written.
    Lengths are at least 0; one of them may be -1, the remainder. The axis counts from the end when negative.

    Raises RuleError: [shape.scalar]; [axis.range]; [split.sizes] lengths that do not suit. Raises EngineError: [array.library],
    [array.dtype], [array.out] as in :func:`concat`, and [array.out] where there are not as many as lengths, or two overlap.
    """
    whole = _array(array)
    axis = axis_in(index(axis), _rank(whole))
    sizes = _lengths(lengths, whole.shape[axis])
    views = _views(whole, sizes, axis)
    if out is None and not copy:
        return views
    pieces = [np.empty(view.shape, view.dtype) for view in views] if out is None else _all_writable(out, views)
    if any(np.may_share_memory(piece, whole) for piece in pieces):
        whole = whole.copy()
    if _compiled is None or _compiled.try_split(whole, sizes, axis, pieces) is None:
        for piece, view in zip(pieces, _views(whole, sizes, axis), strict=True):
            piece[...] = view
    return pieces if out is None else list(out)


@_quick
def copy(view: Any, out: Any = None) -> Array:
    """Copy a view of any strides, as of transposition or slicing, to a contiguous array. ``out`` is written and returned.

    Raises EngineError: [array.library], [array.dtype], [array.out] as in :func:`concat`.
    """
    source = _array(view)
    target = np.empty(source.shape, source.dtype) if out is None else _writable(out, source.shape, source.dtype)
    if np.may_share_memory(source, target):
        source = source.copy()
    if _compiled is None or _compiled.try_copy(source, target) is None:
        target[...] = source
    return target if out is None else out


def _array(given: Any) -> Array:
    """Return a numpy array that shares the memory."""
    if isinstance(given, np.ma.MaskedArray) or not isinstance(given, np.ndarray | np.generic):
        given = _import_dlpack(given)
    array = np.asarray(given)
    if array.dtype.hasobject or array.dtype.kind == "T":
        raise EngineError("array.dtype", f"elements of type {array.dtype} refer to objects, which are not moved as bytes")
    return array


def _import_dlpack(given: Any) -> Array:
    if not hasattr(given, "__dlpack__") or isinstance(given, np.ma.MaskedArray):
        raise EngineError("array.library", f"{type(given).__name__} is no array: pass numpy's, or one that knows DLPack")
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise EngineError("array.library", f"{type(given).__name__} does not give its memory to numpy: {error}") from None


def _rank(array: Array) -> int:
    if array.ndim == 0:
        raise RuleError("shape.scalar", "a scalar has no axis to join or cut along")
    return array.ndim


def _concat_shape(parts: list[Array], axis: int) -> tuple[tuple[int, ...], int]:
    """Return the shape of the result, and the axis counted from the front."""
    if not parts:
        raise RuleError("node.inputs", "at least one input is needed")
    axis = axis_in(axis, _rank(parts[0]))
    sizes = list(parts[0].shape)
    for part in parts[1:]:
        if part.ndim != len(sizes):
            raise RuleError("shape.rank", f"ranks {len(sizes)}, {part.ndim} should be equal")
        if part.dtype != parts[0].dtype:
            raise RuleError("type.disagree", f"element types {parts[0].dtype}, {part.dtype} should be equal")
        for place, size in enumerate(part.shape):
            sizes[place] = sizes[place] + size if place == axis else int(agree(sizes[place], size))
    if sizes[axis] > INT64_MAX:
        raise RuleError("shape.overflow", f"the sizes along axis {axis} add up to {sizes[axis]}, more than 2**63 - 1")
    return tuple(sizes), axis


def _lengths(lengths: Iterable[int], size: int) -> list[int]:
    found = list(map(index, lengths))
    if found.count(-1) > 1 or any(length < -1 for length in found):
        raise RuleError("split.sizes", f"lengths {found}: each is at least 0, or one of them -1, the remainder")
    rest = size - sum(length for length in found if length != -1)
    if rest < 0 or (rest != 0 and -1 not in found):
        raise RuleError("split.sizes", f"lengths {found} should add up to {size}")
    return [rest if length == -1 else length for length in found]


def _views(whole: Array, sizes: list[int], axis: int) -> list[Array]:
    before = (slice(None),) * axis
    return [whole[(*before, slice(first, last))] for first, last in pairwise([0, *accumulate(sizes)])]


def _writable(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    array = _array(out)
    if array.shape != shape or array.dtype != dtype:
        raise EngineError("array.out", f"out is {array.dtype}{list(array.shape)}, the result {dtype}{list(shape)}")
    if not array.flags.writeable:
        raise EngineError("array.out", "out is read-only")
    reached = array.itemsize - 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1):
        if stride <= reached and array.size:
            raise EngineError("array.out", f"out holds some element more than once: strides {array.strides}")
        reached += (size - 1) * stride
    return array


def _all_writable(out: Sequence[Any], views: list[Array]) -> list[Array]:
    if len(out) != len(views):
        raise EngineError("array.out", f"{len(out)} arrays for {len(views)} pieces")
    arrays = [_writable(each, view.shape, view.dtype) for each, view in zip(out, views, strict=True)]
    if any(np.shares_memory(one, other) for one, other in combinations(arrays, 2) if np.may_share_memory(one, other)):
        raise EngineError("array.out", "two of the arrays to write share memory")
    return arrays
