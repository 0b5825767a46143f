"""GridSample and AffineGrid."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import elements_of, join_sizes, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


class GridSample(
    Op,
    sig="x: T, grid: F -> y: T",
    onnx=(
        "GridSample-16(x~planar, grid; align_corners=0, mode~{nearest:nearest,bilinear:linear,bicubic:cubic}=bilinear, "
        "padding_mode=zeros)",
        "GridSample-20,22(x, grid; align_corners=0, mode=linear, padding_mode=zeros)",
    ),
    openvino=(
        "GridSample-9(x, grid; align_corners=false, mode~{nearest:nearest,bilinear:linear,bicubic:cubic}=bilinear, "
        "padding_mode=zeros)"
    ),
):
    """Sample ``x`` [batch, channels, *sizes] at positions ``grid`` [batch, *outs, axes]; the result is [batch, channels, *outs].

    A position has one number per spatial axis, the last axis first. The numbers -1 and 1 are the outer edges of the first and
    the last element, or with ``align_corners`` the centers of these elements. ``nearest`` takes the nearest element, ties to
    even; ``linear`` interpolates between two elements per axis, ``cubic`` between four (Keys, a = -0.75).

    With ``padding_mode`` ``zeros`` elements outside ``x`` are 0, and with ``border`` they equal the edge element.
    ``reflection`` mirrors positions at the edges, or with ``align_corners`` at the centers of the outermost elements.
    Sources: ONNX GridSample 16, 20, 22; OpenVINO GridSample-9.
    """

    align_corners: bool = False
    mode: str = "linear"
    padding_mode: str = "zeros"

    def validate(self) -> None:
        for name, values in (("mode", MODES), ("padding_mode", PADDINGS)):
            if getattr(self, name) not in values:
                raise RuleError("attribute.value", f"{name} must be one of {', '.join(values)}, got {getattr(self, name)!r}")

    def shape(self, x: View, grid: View) -> Any:
        dtype = getattr(x.type, "dtype", None)
        if self.mode != "nearest" and dtype is not None and not dtype.is_float:
            raise UnsupportedError(
                "op.unsupported", f"mode {self.mode} needs floats, got {dtype}: sources round integers differently"
            )
        for item, name in ((x, "x"), (grid, "grid")):
            if item.shape is not None and len(item.shape) < 3:
                raise RuleError("shape.rank", f"rank of {name} must be at least 3, got {len(item.shape)}")
        if x.shape is None or grid.shape is None:
            shape = x.shape or grid.shape
            return None if shape is None else (None,) * len(shape)
        if len(x.shape) != len(grid.shape):
            raise RuleError("shape.rank", f"ranks of x ({len(x.shape)}) and grid ({len(grid.shape)}) must be equal")
        if symbolic.equal(grid.shape[-1], len(x.shape) - 2) is False:
            raise RuleError(
                "shape.disagree",
                f"last axis of grid ({grid.shape[-1]}) must have one element per spatial axis ({len(x.shape) - 2})",
            )
        return (agree(x.shape[0], grid.shape[0], ("x", 0), ("grid", 0)), x.shape[1], *grid.shape[1:-1])

    def decompose(self, b: Builder, x: Value, grid: Value) -> Any:
        """Gather the elements for each combination of neighbours with GatherND, and add the weighted elements."""
        count = len(x.dims) - 2
        wide = dtypes.f64 if "f64" in (x.dtype, grid.dtype) else dtypes.f32
        grid = as_type(b, grid, wide)
        taps = []
        for axis in range(count):
            size = size_of(b, x, axis + 2, wide)
            coordinate = b.Gather(grid, np.array(count - 1 - axis), axis=count + 1)
            taps.append([_Tap(self, b, tap, weight, size) for tap, weight in self.taps(b, self.position_of(b, coordinate, size))])
        rows = b.Transpose(x, [0, *range(2, count + 2), 1])
        total: Any = None
        for chosen in product(*taps):
            term = self._term(b, rows, chosen, wide)
            total = term if total is None else b.Add(total, term)
        return as_type(b, b.Transpose(total, [0, count + 1, *range(1, count + 1)]), x.dtype)

    def _term(self, b: Builder, rows: Value, chosen: Any, wide: Any) -> Any:
        indices = b.Concat(*(b.Unsqueeze(tap.index, [-1]) for tap in chosen), axis=-1)
        elements = b.GatherND(rows, indices, batch_dims=1)
        inside = [tap.inside for tap in chosen if tap.inside is not None]
        if inside:
            mask = inside[0]
            for other in inside[1:]:
                mask = b.And(mask, other)
            elements = b.Where(b.Unsqueeze(mask, [-1]), elements, b.constant(np.zeros((), elements.dtype.numpy), elements.dtype))
        if self.mode == "nearest":
            return elements
        weight = chosen[0].weight
        for tap in chosen[1:]:
            weight = b.Multiply(weight, tap.weight)
        return b.Multiply(as_type(b, elements, wide), b.Unsqueeze(weight, [-1]))

    def position_of(self, b: Builder, coordinate: Value, size: Value) -> Any:
        """Convert grid coordinates to positions, in elements, along an axis of ``size`` elements."""
        if self.align_corners:
            return b.Multiply(b.Divide(b.Add(coordinate, 1.0), 2.0), b.Subtract(size, 1.0))
        return b.Divide(b.Subtract(b.Multiply(b.Add(coordinate, 1.0), size), 1.0), 2.0)

    def taps(self, b: Builder, position: Value) -> list[tuple[Any, Any]]:
        """Return pairs of a neighbour's index and the neighbour's weight, which is None for ``nearest``."""
        if self.mode == "nearest":
            return [(b.Round(position), None)]
        first = b.Floor(position)
        share = b.Subtract(position, first)
        if self.mode == "linear":
            return [(first, b.Subtract(1.0, share)), (b.Add(first, 1.0), share)]
        return [(b.Add(first, float(step)), _keys_weight(b, share, step)) for step in (-1, 0, 1, 2)]


class _Tap:
    """_Tap holds one neighbour per position along an axis: clamped index, weight, mask of positions inside ``x`` (or None)."""

    def __init__(self, op: GridSample, b: Builder, position: Any, weight: Any, size: Any) -> None:
        self.weight, self.inside = weight, None
        last = b.Subtract(size, 1.0)
        if op.padding_mode == "zeros":
            self.inside = b.And(b.GreaterEqual(position, 0.0), b.LessEqual(position, last))
        if op.padding_mode == "reflection":
            position = _reflect(b, position, *((0.0, last) if op.align_corners else (-0.5, b.Subtract(size, 0.5))))
        self.index = b.Cast(b.Minimum(b.Maximum(position, 0.0), last), to=dtypes.i64)


def _reflect(b: Builder, position: Value, low: float, high: Value) -> Any:
    """Reflect positions at ``low`` and ``high`` until the positions are between the two bounds."""
    span = b.Subtract(high, low)
    # With align_corners the span of an axis of one element is 0, and the period must be positive.
    period = b.Maximum(b.Multiply(span, 2.0), 1.0)
    rest = b.Abs(b.Subtract(position, low))
    rest = b.Subtract(rest, b.Multiply(b.Floor(b.Divide(rest, period)), period))
    return b.Add(b.Minimum(rest, b.Subtract(period, rest)), low)


def _keys_weight(b: Builder, share: Value, step: int) -> Any:
    """Return Keys' cubic weight of the neighbour at floor(position) + ``step``; ``share`` is position - floor(position)."""
    a = _CUBIC
    distance = b.Add(share, 1.0) if step == -1 else share if step == 0 else b.Subtract(float(step), share)
    terms = (a, -5 * a, 8 * a, -4 * a) if step in (-1, 2) else (a + 2, -(a + 3), 0.0, 1.0)
    polynomial = b.Multiply(distance, terms[0])
    for term in terms[1:-1]:
        polynomial = b.Multiply(b.Add(polynomial, term), distance)
    return b.Add(polynomial, terms[-1])


def size_of(b: Builder, x: Value, axis: int, kind: DType) -> Any:
    """Return the size of an axis as a scalar of type ``kind``."""
    size = shape_value(b, x, [axis])
    if isinstance(size, list):
        return b.constant(size[0], kind)
    return b.Cast(b.Reshape(size, []), to=kind)


class AffineGrid(Op, sig="theta: F, size!: I -> y: F", onnx="AffineGrid-20(theta, size; align_corners=0)"):
    """Compute a grid for GridSample, [batch, *outs, axes], from affine matrices ``theta`` and an image's size.

    ``theta`` is [batch, axes, axes + 1], and ``size`` is [batch, channels, *outs]. Positions of elements along each axis are
    evenly spaced, where -1 and 1 are the outer edges of the first and the last element, or with ``align_corners`` the centers of
    these elements. A matrix multiplies the vector [position along the last axis, ..., position along the first axis, 1].
    Source: ONNX AffineGrid 20.
    """

    align_corners: bool = False

    def shape(self, theta: View, size: View) -> Any:
        count = length_of_vector(size, "size")
        if theta.shape is not None and len(theta.shape) != 3:
            raise RuleError("shape.rank", f"theta must have rank 3, got {len(theta.shape)}")
        if not isinstance(count, int):
            return None
        axes = count - 2
        if axes not in (2, 3):
            raise RuleError("attribute.length", f"size must have 4 or 5 elements, got {count}")
        sizes = elements_of(size) or [None] * count
        if theta.shape is not None:
            for actual, expected in ((theta.shape[1], axes), (theta.shape[2], axes + 1)):
                if symbolic.equal(actual, expected) is False:
                    raise RuleError(
                        "shape.disagree",
                        f"theta must hold {axes} by {axes + 1} matrices, got {theta.shape[1]} by {theta.shape[2]}",
                    )
        batch = None if theta.shape is None else theta.shape[0]
        if batch is not None and sizes[0] is not None:
            batch = agree(batch, sizes[0], ("theta", 0), "element 0 of size")
        return (batch, *sizes[2:], axes)

    def decompose(self, b: Builder, theta: Value, size: Value) -> Any:
        length = length_of_vector(size, "size")
        axes = (length if isinstance(length, int) else theta.dims[2] + 1) - 2
        if not isinstance(axes, int):
            raise UnsupportedError("type.unknown", "AffineGrid needs the number of axes before run time")
        kind = wide_type(theta.dtype)
        sizes = elements_of(size)
        static_sizes = sizes if sizes is not None and all(isinstance(item, int) for item in sizes) else None
        if self.align_corners and static_sizes is not None and 1 in static_sizes[2:]:
            raise UnsupportedError("op.unsupported", "align_corners needs at least 2 elements per axis, got 1: sources differ")
        vector = size if size.dtype == "i64" else b.Cast(size, to=dtypes.i64)
        spatial: Any = static_sizes[2:] if static_sizes is not None else b.Slice(vector, [2], [axes + 2], [0])
        columns = []
        for axis in reversed(range(axes)):
            count = (
                b.constant(static_sizes[axis + 2]) if static_sizes is not None else b.Gather(vector, np.array(axis + 2), axis=0)
            )
            steps = b.Cast(b.Range(b.constant(0), count, b.constant(1)), to=kind)
            extent = b.Cast(count, to=kind)
            if self.align_corners:
                coordinate = b.Divide(b.Multiply(steps, 2.0), b.Subtract(extent, 1.0))
            else:
                coordinate = b.Divide(b.Add(b.Multiply(steps, 2.0), 1.0), extent)
            coordinate = b.Subtract(coordinate, 1.0)
            coordinate = b.Unsqueeze(coordinate, list(range(1, axes - axis))) if axis < axes - 1 else coordinate
            columns.append(b.Unsqueeze(b.Expand(coordinate, spatial), [-1]))
        ones = b.Expand(b.constant(np.ones((1,) * (axes + 1), kind.numpy), kind), join_sizes(b, [spatial, [1]]))
        positions = b.Reshape(b.Concat(*columns, ones, axis=-1), [-1, axes + 1], special_zero=False)
        transformed = b.MatMul(positions, b.Transpose(as_type(b, theta, kind), [0, 2, 1]))
        y = b.Reshape(transformed, join_sizes(b, [shape_value(b, theta, [0]), spatial, [axes]]), special_zero=False)
        return as_type(b, y, theta.dtype)
