"""Prior (anchor) boxes in each cell of a grid: PriorBox and PriorBoxClustered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import View
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import elements_of, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_SIZES = "min_size=[], max_size=[], aspect_ratio=[], density=[], fixed_ratio=[], fixed_size=[]"
_REST = "clip=false, flip=false, step=0, offset, variance=[], scale_all_sizes=true"


class _Prior(NamedTuple):
    """_Prior describes a prior box: the offset of its center from the cell's center, half its sides, and whether it is clipped.

    The unit of the half sides is the height of the image to the power ``power``.
    """

    x: float
    y: float
    width: float
    height: float
    clip: bool = False
    power: float = 0.0


class _PriorBoxBase(Op):
    """_PriorBoxBase is the base class of PriorBox and PriorBoxClustered, whose output is [2, 4 * boxes].

    Row 0 holds the corners [x1, y1, x2, y2] of all boxes as fractions of the image; row 1 holds four variances for each
    box. ``output_size`` is [rows, columns] of the grid, and ``image_size`` is [height, width] of the image.
    """

    clip: bool = False
    offset: float = 0.0
    variance: tuple[float, ...] = ()

    def validate(self) -> None:
        if len(self.variance) not in (0, 1, 4):
            raise RuleError("attribute.length", f"variance must have 0, 1 or 4 numbers, got {len(self.variance)}")

    def priors(self) -> list[_Prior]:
        """Return the priors of one cell."""
        raise NotImplementedError

    def steps_of(self, b: Builder, grid: Value, image: Value) -> tuple[Any, float]:
        """Return the distance of adjacent cells [down, across], and the offset of cell centers as a fraction of the distance."""
        raise NotImplementedError

    def shape(self, output_size: View, image_size: View) -> Any:
        for x, name in ((output_size, "output_size"), (image_size, "image_size")):
            length = length_of_vector(x, name)
            if length is not None and symbolic.equal(length, 2) is False:
                raise RuleError("shape.disagree", f"{name} must be two numbers, got {length}")
        grid = elements_of(output_size)
        return (2, None if grid is None else grid[0] * grid[1] * (4 * len(self.priors())))

    def value(self, output_size: View, image_size: View) -> Any:
        raise symbolic.Inexact("prior boxes")

    def decompose(self, b: Builder, output_size: Value, image_size: Value) -> Any:
        priors = self.priors()
        grid, image = (as_type(b, x, dtypes.f32) for x in (output_size, image_size))
        steps, shift = self.steps_of(b, grid, image)
        counts = as_type(b, output_size, dtypes.i64)
        height = b.Gather(image, [0], axis=0)
        shape = b.Concat(counts, b.constant([len(priors)]), axis=0)
        low, high = [], []
        for axis, offsets, half_sizes in (
            (1, [prior.x for prior in priors], [prior.width for prior in priors]),
            (0, [prior.y for prior in priors], [prior.height for prior in priors]),
        ):
            cell_index = b.Cast(b.Range(b.constant(0), b.Gather(counts, np.array(axis), axis=0), b.constant(1)), to=dtypes.f32)
            centers = b.Multiply(b.Add(cell_index, shift), b.Gather(steps, [axis], axis=0))
            centers = b.Add(b.Unsqueeze(centers, [0, 2] if axis else [1, 2]), b.constant(np.array(offsets, np.float32)))
            half = b.constant(np.array(half_sizes, np.float32))
            if any(prior.power for prior in priors):
                half = b.Multiply(half, b.Power(height, b.constant(np.array([prior.power for prior in priors], np.float32))))
            length = b.Gather(image, [axis], axis=0)
            low.append(b.Unsqueeze(b.Expand(b.Divide(b.Subtract(centers, half), length), shape), [3]))
            high.append(b.Unsqueeze(b.Expand(b.Divide(b.Add(centers, half), length), shape), [3]))
        first, last = b.Concat(*low, axis=3), b.Concat(*high, axis=3)
        is_clipped = np.array([[prior.clip] for prior in priors])
        if is_clipped.any():
            clipped = b.constant(is_clipped)
            first, last = b.Where(clipped, b.Maximum(first, 0.0), first), b.Where(clipped, b.Minimum(last, 1.0), last)
        boxes = b.Concat(first, last, axis=3)
        boxes = b.Maximum(b.Minimum(boxes, 1.0), 0.0) if self.clip else boxes
        variance = np.resize(np.array(self.variance or (0.1,), np.float32), (1, 1, 1, 4))
        variances = b.Expand(b.constant(variance), b.Shape(boxes))
        return b.Concat(b.Reshape(boxes, [1, -1]), b.Reshape(variances, [1, -1]), axis=0)


class PriorBox(
    _PriorBoxBase,
    sig="output_size!: I, image_size!: I1 -> y: f32",
    openvino=(
        f"PriorBox-1(output_size, image_size; {_SIZES}, {_REST} | min_max_aspect_ratios_order=true)",
        f"PriorBox-8(output_size, image_size; {_SIZES}, {_REST}, min_max_aspect_ratios_order=true)",
    ),
):
    """PriorBox places the prior boxes of a single-shot detector in each cell of a grid: [2, 4 * boxes].

    Row 0 holds the corners [x1, y1, x2, y2] of all boxes as fractions of the image, row 1 four variances for each box:
    ``variance``, where one number counts for all four, and 0.1 is the default. ``output_size`` is [rows, columns] of the grid,
    ``image_size`` [height, width] of the image.

    The center of cell i is at ``(i + offset) * step``; where ``step`` is 0, cells divide the image evenly. Each ``fixed_size``
    gives ``density`` by ``density`` shifted boxes for each ratio in ``fixed_ratio``; without ``fixed_ratio``, for the square
    and each ratio in ``aspect_ratio``. Then each ``min_size`` gives a square, a square of side sqrt(min_size * max_size) if it
    has a ``max_size``, and one box for each ratio in ``aspect_ratio``. Without ``min_max_aspect_ratios_order``, the boxes for
    ratios precede the square for ``max_size``. With ``flip``, each ratio other than 1 is followed by its inverse.

    Without ``scale_all_sizes``, ``min_size`` and ``step`` are multiples of the image's height, and ratios apply to the first
    ``min_size`` only. A ``step`` of -1 is then the height of a cell. ``clip`` clips all boxes to the image; boxes of a
    ``fixed_size`` are always clipped.
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
            raise RuleError(
                "attribute.length",
                f"density must have one number per fixed_size ({len(self.fixed_size)}), got {len(self.density)} numbers",
            )
        if any(density < 1 for density in self.density):
            raise RuleError("attribute.range", f"densities must be at least 1, got {list(self.density)}")
        if len(self.priors()) != self.openvino_count():
            raise UnsupportedError(
                "op.unsupported",
                f"{self}: OpenVINO's shape rule counts {self.openvino_count()} boxes per cell, but OpenVINO's kernel "
                f"{len(self.priors())}",
            )

    def ratios(self) -> list[float]:
        """Return each ratio in ``aspect_ratio`` once, without 1; with ``flip``, also the inverse of each ratio."""
        ratios = [1.0]
        for ratio in self.aspect_ratio:
            if all(abs(ratio - other) >= 1e-6 for other in ratios):
                ratios += [ratio, 1 / ratio] if self.flip else [ratio]
        return [ratio for ratio in ratios if abs(ratio - 1) >= 1e-6]

    def openvino_count(self) -> int:
        """Return the number of boxes per cell according to OpenVINO's shape rule."""
        ratios = len(self.ratios()) + 1
        if not self.scale_all_sizes:
            return ratios + len(self.min_size) - 1
        count = ratios * len(self.min_size) + len(self.max_size)
        if self.fixed_size:
            count = ratios * len(self.fixed_size)
        return count + sum((len(self.fixed_ratio) or ratios) * (int(density) ** 2 - 1) for density in self.density)

    def priors(self) -> list[_Prior]:
        priors: list[_Prior] = []
        for size, density in zip(self.fixed_size, self.density, strict=True):
            if self.fixed_ratio:
                shapes = [_half_sides_of(size, ratio) for ratio in self.fixed_ratio]
            else:
                shapes = [(int(size) / 2, int(size) / 2), *(_half_sides_of(size, ratio) for ratio in self.ratios())]
            shift = int(size / int(density))
            offsets = [shift / 2 + step * shift - int(size) // 2 for step in range(int(density))]
            priors += [_Prior(x, y, *half, True) for half in shapes for y in offsets for x in offsets]
        unit = 0.0 if self.scale_all_sizes else 1.0
        for index, size in enumerate(self.min_size):
            priors.append(_Prior(0, 0, size / 2, size / 2, False, unit))
            max_size_priors = []
            if index < len(self.max_size):
                # The side is the geometric mean of min_size and max_size; max_size is in pixels.
                half = float(np.sqrt(size * self.max_size[index])) / 2
                max_size_priors = [_Prior(0, 0, half, half, False, unit / 2)]
            has_ratios = self.scale_all_sizes or index == len(self.min_size) - 1
            base = size if self.scale_all_sizes else self.min_size[0]
            ratio_priors = (
                [_Prior(0, 0, *_half_sides_of(base, ratio), False, unit) for ratio in self.ratios()] if has_ratios else []
            )
            priors += max_size_priors + ratio_priors if self.min_max_aspect_ratios_order else ratio_priors + max_size_priors
        return priors

    def steps_of(self, b: Builder, grid: Value, image: Value) -> tuple[Any, float]:
        if not self.step:
            return b.Divide(image, grid), 0.5
        if self.scale_all_sizes:
            return b.constant([self.step] * 2), self.offset
        height = b.Gather(image, [0, 0], axis=0)
        return b.Divide(height, b.Gather(grid, [0, 0], axis=0)) if self.step == -1 else b.Multiply(height, self.step), self.offset


def _half_sides_of(size: float, ratio: float) -> tuple[float, float]:
    """Return half the width and half the height of a box with the area size * size and the aspect ratio ``ratio``."""
    root = float(np.sqrt(ratio))
    return size / 2 * root, size / 2 / root


class PriorBoxClustered(
    _PriorBoxBase,
    sig="output_size!: I, image_size!: I1 -> y: f32",
    openvino=(
        "PriorBoxClustered-1(output_size, image_size; width=[], height=[], clip=true, step=0, step_w=0, step_h=0, offset, "
        "variance=[])"
    ),
):
    """PriorBoxClustered places a box for each ``width`` and ``height`` in each cell of a grid: [2, 4 * boxes], as PriorBox.

    The center of cell i is at ``(i + offset) * step``. ``step_w`` and ``step_h`` take precedence over ``step``; where all three
    are 0, cells divide the image evenly.
    Source: OpenVINO PriorBoxClustered-1.
    """

    width: tuple[float, ...] = ()
    height: tuple[float, ...] = ()
    clip: bool = True
    step: float = 0.0
    step_w: float = 0.0
    step_h: float = 0.0
    offset: float = 0.0
    variance: tuple[float, ...] = ()

    def validate(self) -> None:
        super().validate()
        if len(self.width) != len(self.height):
            raise RuleError(
                "attribute.length", f"width ({len(self.width)}) and height ({len(self.height)}) must have equal lengths"
            )

    def priors(self) -> list[_Prior]:
        return [_Prior(0, 0, width / 2, height / 2) for width, height in zip(self.width, self.height, strict=True)]

    def steps_of(self, b: Builder, grid: Value, image: Value) -> tuple[Any, float]:
        steps = [self.step_h or self.step, self.step_w or self.step]
        return (b.constant(steps) if any(steps) else b.Divide(image, grid)), self.offset
