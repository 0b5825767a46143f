"""Access to the compiled core. Without a compiled core, numpy computes the same results more slowly.

``is_compiled`` is true if a compiled core is installed; ``build()`` describes the core.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from operator import index
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.errors import EngineError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Only an absent core is replaced by numpy: a core that fails to load raises ImportError, so that the fault is visible.
try:
    import dovetail._native as _compiled
except ModuleNotFoundError:
    _compiled = None  # type: ignore[assignment]

LOGGER = logging.getLogger("dovetail.core")
"""The logger of the warning WITHOUT_CORE; the command line prints its records on stderr."""
is_compiled: bool = _compiled is not None

WITHOUT_CORE = (
    "dovetail is installed without its native core: models run several times slower. "
    "Install a C++ compiler and Python's headers (Debian, Ubuntu: g++ and python3-dev), then dovetail again"
)
"""The warning that a program logs when it runs without a compiled core."""


def build() -> str:
    """Return the core of this installation: ``native core (gcc 12.2.0)`` or ``pure Python``."""
    return f"native core ({_compiled.compiler})" if is_compiled else "pure Python"


def instruction_set() -> str:
    """Return the instruction set in use: ``amx`` (AVX-512 with the integer matrix unit), ``avx512``, ``avx2``, ``base``;
    ``python`` without a compiled core."""
    if not is_compiled:
        return "python"
    return "amx" if _compiled.has_amx() else str(_compiled.isa())


def has_bf16() -> bool:
    """Return whether the core multiplies in bf16 (AVX512-BF16)."""
    return is_compiled and bool(_compiled.has_bf16())


@cache
def warn_without_core() -> None:
    """Log a warning, once in a process, that the interpreter runs models since there is no compiled core."""
    LOGGER.warning("%s", WITHOUT_CORE)


def core() -> ModuleType | None:
    """Return the module of the compiled core, with programs, thread pools and stores of packed weights; None without a core."""
    return _compiled


class Axis(NamedTuple):
    """Axis is one axis of a window: its size, and its strides in the destination and source buffers, in elements."""

    size: int
    dst_stride: int
    src_stride: int


def copy_window(
    dst: npt.NDArray[Any] | Buffer,
    src: npt.NDArray[Any] | Buffer,
    sizes: Sequence[int],
    dst_offset: int,
    dst_strides: Sequence[int],
    src_offset: int,
    src_strides: Sequence[int],
    itemsize: int,
) -> None:
    """Copy the elements of an affine window from ``src`` to ``dst``, for any element type.

    Both are contiguous buffers of elements of ``itemsize`` bytes. For every position ``p`` within ``sizes``, element
    ``dst_offset + sum(p * dst_strides)`` is set to the value that element ``src_offset + sum(p * src_strides)`` had before the
    call, even if the buffers overlap. Strides may be negative; a source stride of zero repeats an element; the stride of an axis
    of size 1 is ignored. A window with a size of zero copies nothing and may have any offset. Nothing is written on error.

    Raises EngineError [copy.window] for a buffer that is not contiguous, not writable (``dst``) or holds Python objects. Raises
    it too for a window that is malformed, reaches outside a buffer, or writes an element of ``dst`` twice.
    """
    target, source = _bytes_of(dst, "dst"), _bytes_of(src, "src")
    if not target.flags.writeable:
        raise EngineError("copy.window", "dst must be writable, got a read-only buffer")
    itemsize = index(itemsize)
    axes = _axes_of(sizes, dst_strides, src_strides)
    if itemsize < 1:
        raise EngineError("copy.window", f"itemsize must be at least 1, got {itemsize}")
    if any(axis.size == 0 for axis in axes):
        return
    dst_offset, src_offset = index(dst_offset), index(src_offset)
    _check_bounds("dst", [(axis.size, axis.dst_stride) for axis in axes], dst_offset, target.size // itemsize)
    _check_bounds("src", [(axis.size, axis.src_stride) for axis in axes], src_offset, source.size // itemsize)
    _check_written_once(axes)
    copy = _copy_native if is_compiled else _copy_numpy
    copy(target, source, axes, dst_offset, src_offset, itemsize)


def _bytes_of(buffer: npt.NDArray[Any] | Buffer, name: str) -> npt.NDArray[np.uint8]:
    if not isinstance(buffer, np.ndarray):
        try:
            return np.frombuffer(memoryview(buffer).cast("B"), np.uint8)
        except (TypeError, BufferError) as error:
            raise EngineError("copy.window", f"{name} must be a contiguous buffer: {error}") from None
    if buffer.dtype.hasobject:
        raise EngineError("copy.window", f"{name} must hold plain elements, got Python objects")
    if not buffer.flags.c_contiguous:
        raise EngineError("copy.window", f"{name} must be contiguous, got strides {buffer.strides} for shape {buffer.shape}")
    return buffer.reshape(-1).view(np.uint8)


def _axes_of(sizes: Sequence[int], dst_strides: Sequence[int], src_strides: Sequence[int]) -> list[Axis]:
    """Return the axes whose size is not 1."""
    if not len(sizes) == len(dst_strides) == len(src_strides):
        lengths = f"{len(sizes)} sizes, {len(dst_strides)} and {len(src_strides)} strides"
        raise EngineError("copy.window", f"sizes and strides must have the same length, got {lengths}")
    axes = [Axis(*map(index, axis)) for axis in zip(sizes, dst_strides, src_strides, strict=True)]
    if any(axis.size < 0 for axis in axes):
        raise EngineError("copy.window", f"sizes must not be negative, got {tuple(axis.size for axis in axes)}")
    return [axis for axis in axes if axis.size != 1]


def _check_bounds(name: str, axes: list[tuple[int, int]], offset: int, elements: int) -> None:
    reaches = [(size - 1) * stride for size, stride in axes]
    first = offset + sum(reach for reach in reaches if reach < 0)
    last = offset + sum(reach for reach in reaches if reach > 0)
    if first < 0 or last >= elements:
        raise EngineError(
            "copy.window", f"{name}: the window must be inside a buffer of {elements} elements, got elements {first} to {last}"
        )


def _check_written_once(axes: list[Axis]) -> None:
    """Require each stride to exceed the extent of the axes with smaller strides, as in arrays without overlapping elements."""
    reached = 0
    for stride, size in sorted((abs(axis.dst_stride), axis.size) for axis in axes):
        if stride <= reached:
            strides = tuple(axis.dst_stride for axis in axes)
            sizes = tuple(axis.size for axis in axes)
            raise EngineError("copy.window", f"the elements of dst must not overlap, got strides {strides} for sizes {sizes}")
        reached += (size - 1) * stride


def _copy_native(
    dst: npt.NDArray[np.uint8], src: npt.NDArray[np.uint8], axes: list[Axis], dst_offset: int, src_offset: int, itemsize: int
) -> None:
    sizes, dst_strides, src_strides = map(list, zip(*axes, strict=True)) if axes else ([], [], [])
    _compiled.copy_window(dst, src, sizes, dst_offset, dst_strides, src_offset, src_strides, itemsize)


def _copy_numpy(
    dst: npt.NDArray[np.uint8], src: npt.NDArray[np.uint8], axes: list[Axis], dst_offset: int, src_offset: int, itemsize: int
) -> None:
    element = np.dtype((np.void, itemsize))
    sizes = [axis.size for axis in axes]
    dst_strides = [axis.dst_stride * itemsize for axis in axes]
    src_strides = [axis.src_stride * itemsize for axis in axes]
    target: npt.NDArray[Any] = np.ndarray(sizes, element, dst.data, dst_offset * itemsize, dst_strides)
    source: npt.NDArray[Any] = np.ndarray(sizes, element, src.data, src_offset * itemsize, src_strides)
    # numpy's assignment is wrong for some overlapping buffers, for example for a single axis with different strides.
    target[...] = source.copy() if np.may_share_memory(target, source) else source
