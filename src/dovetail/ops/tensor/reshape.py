"""The same elements under another shape: Reshape, Flatten, Squeeze, Unsqueeze."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.ir.op import Op, Windows
from dovetail.ir.types import axes_in, total
from dovetail.ops.builders import reshape_like
from dovetail.ops.shape_values import (
    REFUSED_SIZE,
    as_i64,
    elements_of,
    host_view_of,
    integers_of,
    is_size,
    length_of_vector,
    shape_of_rank,
    view_of,
)


class Reshape(
    Op,
    sig="x: T, target!: I -> y: T",
    onnx=(
        "Reshape-1(x; shape:target, consumed_inputs:_)",
        "Reshape-5,13(x, target)",
        "Reshape-14,19,21,23,24,25(x, target; allowzero~not:copy_zeros=0)",
    ),
    openvino="Reshape-1(x, target; special_zero:copy_zeros | empty=cancel/refuse)",
):
    """The elements of ``x`` in row-major order under the shape ``target``, a vector.

    With ``copy_zeros`` a 0 copies the input's dimension at its index, which has to be below the rank; otherwise it is a size of
    zero. At most one -1 is computed so that the volumes agree. ``empty`` rules on -1 where the other sizes multiply to 0:
    ``refuse``; ``cancel`` divides by the sizes that are not copied ([0, 3] by [0, -1] is [0, 3]); ``zero`` makes it 0, and
    refuses the target [0] unless that copies. Where a literal 0 stands beside -1, every choice refuses. A symbol in the target
    is a size, also when it turns out to be 0. Sources: ONNX Reshape 1 to 25 (allowzero), OpenVINO Reshape-1 (special_zero),
    nGraph Reshape v1.
    """

    copy_zeros: bool = True
    empty: str = "refuse"

    def shape(self, x: Any, target: Any) -> Any:
        length = self._check_target(target)
        wanted = elements_of(target)
        if wanted is None:
            return shape_of_rank(length)
        negative = [size for size in wanted if isinstance(size, int) and size < -1]
        if negative:
            raise RuleError("reshape.target", f"size {negative[0]} in the target is below -1")
        if all(isinstance(size, int) for size in wanted):
            total(size for size in wanted if size != -1)
        if self.empty == "zero" and not self.copy_zeros and wanted == [0]:
            raise RuleError("reshape.target", "a target of [0] has to copy")
        free = [place for place, size in enumerate(wanted) if size == -1]
        if len(free) > 1:
            raise RuleError("reshape.target", f"{len(free)} sizes of -1 in the target; at most one can be computed")
        copied = [place for place, size in enumerate(wanted) if size == 0] if self.copy_zeros else []
        if free and not self.copy_zeros and 0 in wanted:
            raise RuleError("reshape.target", "a size of 0 and one of -1 in the same target")
        vague = [place for place, size in enumerate(wanted) if self._is_vague(size)]
        shape = x.shape
        if shape is None:
            return tuple(None if place in (*free, *vague, *copied) else size for place, size in enumerate(wanted))
        for place in copied:
            if place >= len(shape):
                raise RuleError("reshape.target", f"0 at index {place} copies from a rank of {len(shape)}")
        sizes: list[Any] = [shape[place] if place in copied else size for place, size in enumerate(wanted)]
        if vague:
            return self._settle(shape, sizes, free, vague)
        if not free:
            self._check_volume(shape, sizes)
            return tuple(sizes)
        (place,) = free
        sizes[place] = self._computed(shape, sizes, place, copied)
        return tuple(sizes)

    def _check_target(self, target: Any) -> Any:
        dtype = target.type.dtype
        if dtype is not None and dtype.bits < 8:
            raise RuleError("type.class", f"input 'target' should be an integer type of 8 to 64 bits, not {dtype}")
        if target.shape is None:
            return None
        if len(target.shape) != 1:
            raise RuleError("reshape.target", f"the target should be a vector, not of rank {len(target.shape)}")
        (length,) = target.shape
        return length

    def _is_vague(self, size: Any) -> bool:
        """Whether an element of the target may turn out to be a special value."""
        return not isinstance(size, int) and not is_size(size)

    def _settle(self, shape: Any, sizes: list[Any], free: list[int], vague: list[int]) -> Any:
        """Sizes that only run time knows stay open; one alone follows from the volume."""
        found = None
        if len(vague) == 1 and not free:
            rest = total(size for place, size in enumerate(sizes) if place not in vague)
            if symbolic.equal(rest, 0) is False:
                found = symbolic.exact_quotient(total(shape), rest)
        return tuple(found if place in vague else None if place in free else size for place, size in enumerate(sizes))

    def _check_volume(self, shape: Any, sizes: list[Any]) -> None:
        ours, theirs = total(shape), total(sizes)
        if symbolic.equal(ours, theirs) is False:
            raise RuleError("reshape.volume", f"{ours} elements do not make a shape of {theirs}")

    def _computed(self, shape: Any, sizes: list[Any], free: int, copied: list[int]) -> Any:
        rest = [size for place, size in enumerate(sizes) if place != free]
        literal = total(size for place, size in enumerate(sizes) if place != free and place not in copied)
        volume, known = total(shape), total(rest)
        if known == 0 and self.empty == "refuse":
            raise RuleError("reshape.target", f"-1 beside sizes that multiply to 0, from {list(shape)}")
        if self.empty == "zero" and symbolic.equal(known, 0) is not False:
            return 0 if isinstance(known, int) else None
        # The dimensions that were copied stand on both sides and cancel, also when they are 0.
        left = total(size for place, size in enumerate(shape) if place not in copied)
        if isinstance(left, int) and isinstance(literal, int):
            if left % literal:
                raise RuleError("reshape.volume", f"{volume} elements do not divide by {known}")
            return left // literal
        quotient = symbolic.exact_quotient(left, literal)
        if quotient is not None:
            return quotient
        return left // literal if symbolic.equal(literal, 0) is False else None

    def canonical(self, x: Any, target: Any) -> Op:
        """Without a 0 that copies, and without one beside -1, all choices say the same."""
        wanted = elements_of(target)
        empty = "refuse" if self.empty == "cancel" and not self.copy_zeros else self.empty
        if wanted is None:
            return self.with_(empty=empty)
        zeros = [place for place, size in enumerate(wanted) if symbolic.equal(size, 0) is not False]
        if not zeros:
            return Reshape()
        beside = [x.shape[place] if x.shape is not None and place < len(x.shape) else None for place in zeros]
        if not any(self._is_vague(size) or size == -1 for size in wanted):
            empty = "refuse"
        if all(size is not None and symbolic.equal(size, 0) is False for size in beside):
            empty = "refuse"
        return Reshape(self.copy_zeros or all(size == 0 for size in beside), empty)

    def evaluate(self, xp: Any, x: Any, target: Any) -> Any:
        return xp.reshape(x, self.shape(view_of(x), host_view_of(target)))

    def vjp(self, b: Any, g: Any, y: Any, x: Any, target: Any) -> Any:
        return [reshape_like(b, g, x), None]

    def windows(self, x: Any, target: Any) -> Windows:
        return Windows.whole(x.shape)

    def decompose(self, b: Any, x: Any, target: Any) -> Any:
        """With every size written out, for a format that rules otherwise on -1 beside a copied 0; None where it is so already."""
        if self.empty == "refuse":
            return None
        if not self.copy_zeros:
            # A format that has no such ruling answers where nGraph refuses [0].
            return b.Reshape(x, target, copy_zeros=False)
        wanted, shape = elements_of(target), self.shape(x, target)
        if wanted is not None and all(isinstance(size, int) for size in wanted):
            sizes = [shape[place] if size == -1 else size for place, size in enumerate(wanted)]
            if sizes.count(0) == wanted.count(0) and all(isinstance(size, int) for size in sizes):
                return b.Reshape(x, sizes)
            if all(isinstance(size, int) for size in shape):
                return b.Reshape(x, list(shape), copy_zeros=False)
        return b.Reshape(x, self._written(b, x, target), copy_zeros=False)

    def _written(self, b: Any, x: Any, target: Any) -> Any:
        """The sizes, computed; what is to be refused becomes a size that no format takes."""
        zero, one, free, wrong = (b.constant(number, dtypes.i64) for number in (0, 1, -1, REFUSED_SIZE))
        given = as_i64(b, target)
        shape, length = b.Shape(x, dtype=dtypes.i64), b.Shape(given, dtype=dtypes.i64)
        rank = b.Shape(shape, dtype=dtypes.i64)
        beside = b.Slice(b.Concat(shape, b.Expand(wrong, length), axis=0), [0], length)
        copies = b.Slice(b.Concat(b.Equal(given, zero), b.Expand(b.constant(False), rank), axis=0), [0], rank)
        left = b.ReduceProd(b.Where(copies, one, shape), [0])
        literal = b.ReduceProd(b.Where(b.Greater(given, zero), given, one), [0])
        is_free = b.Equal(given, free)
        count = b.ReduceSum(b.Cast(is_free, to=dtypes.i64), [0])
        # A product that wraps to 0 must not be divided by; it does not fit either.
        size = b.Divide(left, b.Where(b.Equal(literal, zero), one, literal))
        fits = b.And(b.Equal(b.Multiply(size, literal), left), b.LessEqual(count, one))
        sizes = b.Where(b.Equal(given, zero), beside, b.Where(is_free, b.Where(fits, size, wrong), given))
        if self.empty == "zero":
            is_empty = b.Equal(b.ReduceProd(b.Where(is_free, one, sizes), [0]), zero)
            sizes = b.Where(b.And(is_free, is_empty), zero, sizes)
        return sizes


class Flatten(
    Op,
    sig="x: T -> y: T",
    onnx=("Flatten-1,9(x; axis~front=1)", "Flatten-11,13,21,23,24,25(x; axis=1)"),
):
    """``x`` as a matrix: the sizes before ``axis`` multiplied are the rows, the others the columns.

    ``axis`` in [-rank, rank]; the product of no sizes is 1. Source: ONNX Flatten 1 to 25.
    """

    axis: int = 1

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None, None
        axis = self._axis(len(x.shape))
        return total(x.shape[:axis]), total(x.shape[axis:])

    def _axis(self, rank: int) -> int:
        if not -rank <= self.axis <= rank:
            raise RuleError("axis.range", f"axis {self.axis} is not in [{-rank}, {rank}]")
        return self.axis + rank if self.axis < 0 else self.axis

    def canonical(self, x: Any) -> Op:
        return self if x.shape is None else Flatten(self._axis(len(x.shape)))

    def evaluate(self, xp: Any, x: Any) -> Any:
        return xp.reshape(x, self.shape(view_of(x)))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [reshape_like(b, g, x)]

    def windows(self, x: Any) -> Windows:
        return Windows.whole(x.shape)

    def decompose(self, b: Any, x: Any) -> Any:
        rows, columns = self.shape(x)
        if isinstance(rows, int) and isinstance(columns, int):
            return b.Reshape(x, [rows, columns], copy_zeros=False)
        if isinstance(columns, int) and columns:
            return b.Reshape(x, [-1, columns])
        if isinstance(rows, int) and rows:
            return b.Reshape(x, [rows, -1])
        if x.shape is not None and self._axis(len(x.shape)) == 1:
            # The copied size cancels, so that -1 is the product of the others also when it is 0.
            return b.Reshape(x, [0, -1], empty="cancel")
        before, after = b.Shape(x, start=0, end=self.axis), b.Shape(x, start=self.axis)
        if self.axis == 0:
            before = b.constant(np.zeros(0, dtype=np.int64))
        target = b.Concat(b.ReduceProd(before, [0], keepdims=True), b.ReduceProd(after, [0], keepdims=True), axis=0)
        return b.Reshape(x, target, copy_zeros=False)


class Squeeze(
    Op,
    sig="x: T, axes?!: I -> y: T",
    onnx=(
        "Squeeze-1(x; axes~front? | skip=false)",
        "Squeeze-11(x; axes? | skip=false)",
        "Squeeze-13,21,23,24,25(x, axes? | skip=false)",
    ),
    openvino=("Squeeze-1(x, axes? | skip=true)", "Squeeze-15(x, axes?; allow_axis_skip:_ | skip=true)"),
):
    """``x`` without its ``axes``, which have the size 1; without ``axes``: without every axis of size 1.

    With ``skip`` an axis of another size stays; otherwise it is an error, also when it is found at run time. Each axis comes
    once. Sources: ONNX Squeeze 1 to 25; OpenVINO Squeeze-1, -15 (whose ``allow_axis_skip`` speaks of inference only).
    """

    skip: bool = False

    def shape(self, x: Any, axes: Any = None) -> Any:
        if axes is not None:
            count = length_of_vector(axes, "axes", scalar=True)
        if x.shape is None:
            return None
        rank = len(x.shape)
        if axes is None:
            return _without(x.shape, range(rank), skip=True)
        places = integers_of(axes)
        if places is None:
            return (None,) * (rank - count) if isinstance(count, int) and count <= rank and not self.skip else None
        return _without(x.shape, axes_in(places, rank), self.skip)

    def canonical(self, x: Any, axes: Any = None) -> Op:
        """Where every axis that is named is known to have the size 1, nothing is skipped."""
        places = None if axes is None else integers_of(axes)
        if not self.skip or (axes is not None and (places is None or x.shape is None)):
            return self
        ones = places is None or all(symbolic.equal(x.shape[place], 1) is True for place in axes_in(places, len(x.shape)))
        return Squeeze() if ones else self

    def evaluate(self, xp: Any, x: Any, axes: Any = None) -> Any:
        shape = tuple(x.shape)
        self.shape(view_of(x), host_view_of(axes))
        places = range(len(shape)) if axes is None else axes_in(_now(host_view_of(axes)), len(shape))
        gone = tuple(place for place in places if shape[place] == 1)
        return xp.squeeze(x, axis=gone) if gone else x

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any = None) -> Any:
        if axes is None:
            return [reshape_like(b, g, x)]
        return [reshape_like(b, g, x) if self.skip else b.Unsqueeze(g, axes), None]

    def windows(self, x: Any, axes: Any = None) -> Windows:
        return Windows.whole(x.shape)

    def decompose(self, b: Any, x: Any, axes: Any = None) -> Any:
        """The same with axes counted from the front."""
        places = None if axes is None else integers_of(axes)
        if places is None or x.shape is None or all(place >= 0 for place in places):
            return None
        return b.apply("Squeeze", x, list(axes_in(places, len(x.shape))), skip=self.skip)


def _without(shape: Any, places: Any, skip: bool) -> Any:
    """``shape`` without ``places``; unknown (None) where only run time tells whether one of them stays."""
    gone = []
    for place in places:
        is_one = symbolic.equal(shape[place], 1)
        if is_one is False and not skip:
            raise RuleError("squeeze.size", f"axis {place} has the size {shape[place]}, not 1")
        if is_one is None and skip:
            return None
        if is_one is not False:
            gone.append(place)
    return tuple(size for place, size in enumerate(shape) if place not in gone)


def _now(x: Any) -> list[int]:
    """Elements that have to be numbers, here and now."""
    found = integers_of(x)
    if found is None:
        raise symbolic.Inexact("axes are not known")
    return found


class Unsqueeze(
    Op,
    sig="x: T, axes!: I -> y: T",
    onnx=(
        "Unsqueeze-1(x; axes~front)",
        "Unsqueeze-11(x; axes)",
        "Unsqueeze-13,21,23,24,25(x, axes)",
    ),
    openvino="Unsqueeze-1(x, axes)",
):
    """``x`` with a new axis of size 1 at each of ``axes``, which are counted in the result; each comes once.

    Sources: ONNX Unsqueeze 1 to 25; OpenVINO Unsqueeze-1.
    """

    def shape(self, x: Any, axes: Any) -> Any:
        count = length_of_vector(axes, "axes", scalar=True)
        if x.shape is None or not isinstance(count, int):
            return None
        rank = len(x.shape) + count
        places = integers_of(axes)
        if places is None:
            return shape_of_rank(rank)
        found = axes_in(places, rank)
        sizes = iter(x.shape)
        return tuple(1 if place in found else next(sizes) for place in range(rank))

    def evaluate(self, xp: Any, x: Any, axes: Any) -> Any:
        self.shape(view_of(x), host_view_of(axes))
        for place in sorted(axes_in(_now(host_view_of(axes)), x.ndim + int(np.size(axes)))):
            x = xp.expand_dims(x, axis=place)
        return x

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        return [b.Squeeze(g, axes), None]

    def windows(self, x: Any, axes: Any) -> Windows:
        return Windows.whole(x.shape)

    def decompose(self, b: Any, x: Any, axes: Any) -> Any:
        """The same with axes counted from the front."""
        places = integers_of(axes)
        if places is None or x.shape is None or all(place >= 0 for place in places):
            return None
        return b.Unsqueeze(x, list(axes_in(places, len(x.shape) + len(places))))
