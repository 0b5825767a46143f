"""Boxes that a detector starts from, in each cell of a grid: PriorBox, PriorBoxClustered."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import elements_of, length_of_vector

_SIZES = "min_size=[], max_size=[], aspect_ratio=[], density=[], fixed_ratio=[], fixed_size=[]"
_REST = "clip=false, flip=false, step=0, offset, variance=[], scale_all_sizes=true"


class _Cell(NamedTuple):
    """One box of a cell: how far its middle is from the cell's, half its size, and whether it is kept inside the picture. The
    size is in units of the picture's height to ``power``."""

    x: float
    y: float
    width: float
    height: float
    clip: bool = False
    power: float = 0.0


class _Priors(Op):
    """``size`` [rows, columns] of the grid and ``picture`` [height, width] to [2, 4 * boxes]: the corners [x1, y1, x2, y2] of all
    boxes, in parts of the picture, then four variances for each."""

    clip: bool = False
    offset: float = 0.0
    variance: tuple[float, ...] = ()

    def validate(self) -> None:
        if len(self.variance) not in (0, 1, 4):
            raise RuleError("prior.variance", f"{len(self.variance)} variances, not 1 or 4")

    def cells(self) -> list[_Cell]:
        """The boxes of one cell."""
        raise NotImplementedError

    def steps(self, b: Any, grid: Any, picture: Any) -> tuple[Any, float]:
        """How far cells are apart, down and across, and which part of that their middles are from the edge."""
        raise NotImplementedError

    def shape(self, size: Any, picture: Any) -> Any:
        for x, what in ((size, "size"), (picture, "picture")):
            length = length_of_vector(x, what)
            if length is not None and symbolic.equal(length, 2) is False:
                raise RuleError("prior.grid", f"{what} should be two numbers, not {length}")
        found = elements_of(size)
        return (2, None if found is None else found[0] * found[1] * (4 * len(self.cells())))

    def value(self, size: Any, picture: Any) -> Any:
        raise symbolic.Inexact("boxes")

    def decompose(self, b: Any, size: Any, picture: Any) -> Any:
        cells = self.cells()
        grid, whole = (as_type(b, x, dtypes.f32) for x in (size, picture))
        steps, shift = self.steps(b, grid, whole)
        counts = as_type(b, size, dtypes.i64)
        height = b.Gather(whole, [0], axis=0)
        shape = b.Concat(counts, b.constant([len(cells)]), axis=0)
        low, high = [], []
        for axis, moves, halves in (
            (1, [cell.x for cell in cells], [cell.width for cell in cells]),
            (0, [cell.y for cell in cells], [cell.height for cell in cells]),
        ):
            numbers = b.Cast(b.Range(b.constant(0), b.Gather(counts, np.array(axis), axis=0), b.constant(1)), to=dtypes.f32)
            middles = b.Multiply(b.Add(numbers, shift), b.Gather(steps, [axis], axis=0))
            middles = b.Add(b.Unsqueeze(middles, [0, 2] if axis else [1, 2]), b.constant(np.array(moves, np.float32)))
            half = b.constant(np.array(halves, np.float32))
            if any(cell.power for cell in cells):
                half = b.Multiply(half, b.Power(height, b.constant(np.array([cell.power for cell in cells], np.float32))))
            length = b.Gather(whole, [axis], axis=0)
            low.append(b.Unsqueeze(b.Expand(b.Divide(b.Subtract(middles, half), length), shape), [3]))
            high.append(b.Unsqueeze(b.Expand(b.Divide(b.Add(middles, half), length), shape), [3]))
        first, last = b.Concat(*low, axis=3), b.Concat(*high, axis=3)
        is_held = np.array([[cell.clip] for cell in cells])
        if is_held.any():
            held = b.constant(is_held)
            first, last = b.Where(held, b.Maximum(first, 0.0), first), b.Where(held, b.Minimum(last, 1.0), last)
        boxes = b.Concat(first, last, axis=3)
        boxes = b.Maximum(b.Minimum(boxes, 1.0), 0.0) if self.clip else boxes
        variance = np.resize(np.array(self.variance or (0.1,), np.float32), (1, 1, 1, 4))
        rest = b.Expand(b.constant(variance), b.Shape(boxes))
        return b.Concat(b.Reshape(boxes, [1, -1]), b.Reshape(rest, [1, -1]), axis=0)


class PriorBox(
    _Priors,
    sig="size!: I, picture!: I1 -> y: f32",
    openvino=(
        f"PriorBox-1(size, picture; {_SIZES}, {_REST} | min_max_aspect_ratios_order=true)",
        f"PriorBox-8(size, picture; {_SIZES}, {_REST}, min_max_aspect_ratios_order=true)",
    ),
):
    """The boxes of a single-shot detector, cell by cell of a grid of ``size`` in a ``picture``: [2, 4 * boxes], the corners [x1,
    y1, x2, y2] in parts of the picture, then ``variance`` for each (one for all four; left out 0.1).

    The middle of cell i is at ``(i + offset) * step``, or in the middle of the picture's own cells where ``step`` is 0. Each
    ``fixed_size`` gives ``density`` by ``density`` squares, shifted against each other, and the same for each ratio in
    ``fixed_ratio``, or in ``aspect_ratio``; then each ``min_size`` a square, with ``max_size`` one of the root of their product,
    and one for each ratio, after that unless ``min_max_aspect_ratios_order``. Ratios other than 1 also come turned with ``flip``.
    Without ``scale_all_sizes`` sizes and steps are in parts of the picture's height, -1 is a step of one cell, and ratios are of
    the first ``min_size`` alone. ``clip`` keeps all within the picture; those of ``fixed_size`` are.
    Source: OpenVINO PriorBox-1, -8.
    """

    min_size: tuple[float, ...] = ()
    max_size: tuple[float, ...] = ()
    aspect_ratio: tuple[float, ...] = ()
    density: tuple[float, ...] = ()
    fixed_ratio: tuple[float, ...] = ()
    fixed_size: tuple[float, ...] = ()
    clip: bool = False
    flip: bool = False
    step: float = 0.0
    offset: float = 0.0
    variance: tuple[float, ...] = ()
    scale_all_sizes: bool = True
    min_max_aspect_ratios_order: bool = True

    def validate(self) -> None:
        super().validate()
        if self.fixed_size and len(self.density) != len(self.fixed_size):
            raise RuleError("prior.density", f"{len(self.density)} densities for {len(self.fixed_size)} fixed sizes")
        if any(density < 1 for density in self.density):
            raise RuleError("prior.density", f"densities {list(self.density)}")
        if len(self.cells()) != self.counted():
            raise UnsupportedError(
                "prior.sizes", f"{self}: OpenVINO counts {self.counted()} boxes a cell, and has {len(self.cells())}"
            )

    def ratios(self) -> list[float]:
        """Each ratio once, 1 left out."""
        found = [1.0]
        for ratio in self.aspect_ratio:
            if all(abs(ratio - other) >= 1e-6 for other in found):
                found += [ratio, 1 / ratio] if self.flip else [ratio]
        return [ratio for ratio in found if abs(ratio - 1) >= 1e-6]

    def counted(self) -> int:
        """How many boxes OpenVINO says that a cell has."""
        ratios = len(self.ratios()) + 1
        if not self.scale_all_sizes:
            return ratios + len(self.min_size) - 1
        found = ratios * len(self.min_size) + len(self.max_size)
        if self.fixed_size:
            found = ratios * len(self.fixed_size)
        return found + sum((len(self.fixed_ratio) or ratios) * (int(density) ** 2 - 1) for density in self.density)

    def cells(self) -> list[_Cell]:
        found: list[_Cell] = []
        for size, density in zip(self.fixed_size, self.density, strict=True):
            if self.fixed_ratio:
                shapes = [_turned(size, ratio) for ratio in self.fixed_ratio]
            else:
                shapes = [(int(size) / 2, int(size) / 2), *(_turned(size, ratio) for ratio in self.ratios())]
            shift = int(size / int(density))
            places = [shift / 2 + step * shift - int(size) // 2 for step in range(int(density))]
            found += [_Cell(x, y, *half, True) for half in shapes for y in places for x in places]
        unit = 0.0 if self.scale_all_sizes else 1.0
        for index, size in enumerate(self.min_size):
            found.append(_Cell(0, 0, size / 2, size / 2, False, unit))
            middle = []
            if index < len(self.max_size):
                # A root of two sizes, of which the second is in elements.
                half = float(np.sqrt(size * self.max_size[index])) / 2
                middle = [_Cell(0, 0, half, half, False, unit / 2)]
            is_due = self.scale_all_sizes or index == len(self.min_size) - 1
            base = size if self.scale_all_sizes else self.min_size[0]
            turned = [_Cell(0, 0, *_turned(base, ratio), False, unit) for ratio in self.ratios()] if is_due else []
            found += middle + turned if self.min_max_aspect_ratios_order else turned + middle
        return found

    def steps(self, b: Any, grid: Any, picture: Any) -> tuple[Any, float]:
        if not self.step:
            return b.Divide(picture, grid), 0.5
        if self.scale_all_sizes:
            return b.constant([self.step] * 2), self.offset
        height = b.Gather(picture, [0, 0], axis=0)
        return b.Divide(height, b.Gather(grid, [0, 0], axis=0)) if self.step == -1 else b.Multiply(height, self.step), self.offset


def _turned(size: float, ratio: float) -> tuple[float, float]:
    """Half the sides of a box of one area and another ratio."""
    root = float(np.sqrt(ratio))
    return size / 2 * root, size / 2 / root


class PriorBoxClustered(
    _Priors,
    sig="size!: I, picture!: I1 -> y: f32",
    openvino=(
        "PriorBoxClustered-1(size, picture; width:widths=[], height:heights=[], clip=true, step=0, step_w=0, step_h=0, offset, "
        "variance=[])"
    ),
):
    """Boxes of given ``widths`` and ``heights``, cell by cell of a grid of ``size`` in a ``picture``: [2, 4 * boxes] as of
    PriorBox.

    The middle of cell i is at ``(i + offset) * step``, where ``step_w`` and ``step_h`` go before ``step``, and where all are 0
    the picture is cut evenly. Source: OpenVINO PriorBoxClustered-1.
    """

    widths: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    clip: bool = True
    step: float = 0.0
    step_w: float = 0.0
    step_h: float = 0.0
    offset: float = 0.0
    variance: tuple[float, ...] = ()

    def validate(self) -> None:
        super().validate()
        if len(self.widths) != len(self.heights):
            raise RuleError("prior.sizes", f"{len(self.widths)} widths, {len(self.heights)} heights")

    def cells(self) -> list[_Cell]:
        return [_Cell(0, 0, width / 2, height / 2) for width, height in zip(self.widths, self.heights, strict=True)]

    def steps(self, b: Any, grid: Any, picture: Any) -> tuple[Any, float]:
        steps = [self.step_h or self.step, self.step_w or self.step]
        return (b.constant(steps) if any(steps) else b.Divide(picture, grid)), self.offset
