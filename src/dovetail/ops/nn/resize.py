"""Resize: interpolation along some axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import current, refuse_array, refuse_memory, refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Unknown, View, axes_in
from dovetail.ops.nn.interpolation import (
    COORDINATES,
    NEAREST,
    ResizeAxis,
    Taps,
    interpolate,
    keys_kernel,
    keys_roundings,
    round_positions,
    to_library_indices,
)
from dovetail.ops.nn.resize_sizes import (
    changes_length,
    drop_empty,
    floor_product,
    has_same_length,
    known_floats,
    known_scales,
    ratio_of,
    scale_size,
)
from dovetail.ops.shape_values import elements_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MODES = ("nearest", "linear", "cubic")
POLICIES = ("stretch", "not_larger", "not_smaller")
CONVENTIONS = ("onnx", "openvino")


_SINCE_18 = ", antialias, axes?, keep_aspect_ratio_policy"


def _line(version: int, inputs: str, more: str = "", attributes: str = "") -> str:
    """Return the op mapping of one ONNX version: inputs and attributes differ between versions."""
    coordinates = (
        "half_pixel:half_pixel,asymmetric:asymmetric,pytorch_half_pixel:pytorch_half_pixel,tf_crop_and_resize:tf_crop_and_resize,"
        "align_corners:align_corners_scaled,align_corners:align_corners"
    )
    nearest = ",".join(f"{name}:{name}" for name in NEAREST if name != "simple")
    return (
        f"> Resize-{version}(x, {inputs}; mode, coordinate_transformation_mode~{{{coordinates}{more}}}, "
        f"nearest_mode~{{{nearest}}}, cubic_coeff_a, exclude_outside, extrapolation_value{attributes})"
    )


class Resize(
    Op,
    sig="x: T, sizes?!: I, scales?!: F1, roi?!: F2 -> y: T",
    onnx=(
        "> Upsample-9(x, scales~enlarging; mode~{nearest:nearest,linear:linear} | coordinate_transformation_mode=asymmetric, "
        "nearest_mode=simple)",
        "> Resize-10(x, scales; mode~{nearest:nearest,linear:linear} | coordinate_transformation_mode=asymmetric, "
        "nearest_mode=simple)",
        _line(11, "roi, scales, sizes?", ",tf_half_pixel_for_nn:tf_half_pixel_for_nn"),
        _line(13, "roi?, scales?, sizes?"),
        _line(18, "roi?, scales?, sizes?", "", _SINCE_18),
        _line(19, "roi?, scales?, sizes?", ",half_pixel_symmetric:half_pixel_symmetric", _SINCE_18),
    ),
):
    """Resize ``x`` to ``sizes`` elements along ``axes`` (default: all), or with ``scales`` to floor(size * scale).

    Either ``sizes`` or ``scales`` is given; empty ``sizes``, ``scales`` and ``roi`` count as absent. An axis is resized from n to
    m elements with the scale s, which is m / n if ``sizes`` is given. ``coordinate_transformation_mode`` defines the position in
    ``x`` of output element i:

    - ``half_pixel``: (i + 0.5) / s - 0.5
    - ``pytorch_half_pixel``: as ``half_pixel``, but 0 if m is 1
    - ``half_pixel_symmetric``: as ``half_pixel``, plus n / 2 * (1 - m / (n * s))
    - ``asymmetric``: i / s
    - ``tf_half_pixel_for_nn``: (i + 0.5) / s
    - ``align_corners``: i * (n - 1) / (m - 1)
    - ``align_corners_scaled``: i * (n - 1) / (n * s - 1)
    - ``tf_crop_and_resize``: as ``align_corners``, between the fractions ``roi`` of the axis (the begins of all axes, then the
      ends); elements at positions outside ``x`` are ``extrapolation_value``

    ``mode`` ``nearest`` rounds positions by ``nearest_mode`` (``simple``: ceil if s < 1, else floor) and clamps them to the axis.
    ``linear`` and ``cubic`` (Keys, a = ``cubic_coeff_a``) interpolate, and repeat the border elements outside ``x``. With
    ``exclude_outside``, elements outside ``x`` have no weight, and the other weights are rescaled. ``antialias`` widens the
    weights by 1 / s if s < 1. ``narrow`` narrows the weights by s on an axis of s > 1 if another axis has s < 1; output elements
    that no weight reaches are 0.

    With ``keep_aspect_ratio_policy`` not_larger or not_smaller all axes share the least or greatest ratio, and sizes are
    rounded, ties up. Positions are computed in f32. ``linear`` and ``cubic`` compute integers in f32, and round the result once:
    to nearest, ties to even, saturated.

    The ``convention`` ``openvino`` computes m as floor(n * (s + 1e-6)) from ``scales``, copies an axis that keeps its length, and
    fixes the rounding of integers, which ONNX leaves open.
    Sources: ONNX Resize 10 to 19, Upsample 1 to 9, and onnx.reference; OpenVINO Interpolate-1, -4, -11.
    """

    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    antialias: bool = False
    narrow: bool = False
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    axes: tuple[int, ...] | None = None
    keep_aspect_ratio_policy: str = "stretch"
    convention: str = "onnx"

    def validate(self) -> None:
        for name, values in (
            ("mode", MODES),
            ("coordinate_transformation_mode", tuple(COORDINATES)),
            ("nearest_mode", NEAREST),
            ("keep_aspect_ratio_policy", POLICIES),
            ("convention", CONVENTIONS),
        ):
            if getattr(self, name) not in values:
                raise RuleError("attribute.value", f"{name} must be one of {', '.join(values)}, got {getattr(self, name)!r}")
        if self.antialias and self.mode == "nearest":
            raise RuleError("attribute.conflict", "antialias needs mode linear or cubic, got nearest")
        if self.narrow and not self.antialias:
            raise RuleError("attribute.conflict", "narrow needs antialias true, got false")

    def shape(self, x: View, sizes: View | None = None, scales: View | None = None, roi: View | None = None) -> Any:
        sizes, scales, roi = (drop_empty(item) for item in (sizes, scales, roi))
        if (sizes is None) == (scales is None):
            raise RuleError(
                "attribute.conflict",
                f"Resize needs exactly one of sizes and scales, got {'neither' if sizes is None else 'both'}",
            )
        dtype = getattr(x.type, "dtype", None)
        if self.mode != "nearest" and dtype is not None and not (dtype.is_float or dtype.is_integer):
            raise RuleError("attribute.conflict", f"mode {self.mode} needs numbers, got {dtype}")
        for item, count in ((sizes, 1), (scales, 1), (roi, 2)):
            self._check_length(x, item, count)
        if x.shape is None:
            return None
        rows = self.plan(x, sizes, scales, roi)
        shape: list[Any] = list(x.shape)
        for axis in self.axis_indices(len(x.shape)) if rows is None else ():
            shape[axis] = None
        for row in rows or ():
            shape[row.axis] = row.out
        return tuple(shape)

    def _check_length(self, x: View, item: View | None, count: int) -> None:
        if item is None or item.shape is None:
            return
        if len(item.shape) != 1:
            raise RuleError("shape.rank", f"sizes, scales and roi must be vectors, got {item.type}")
        axes = len(self.axes) if self.axes is not None else None if x.shape is None else len(x.shape)
        if axes is not None and symbolic.equal(item.shape[0], axes * count) is False:
            raise RuleError(
                "attribute.length",
                f"sizes and scales must have one element per axis and roi two: {axes * count} elements, got {item.shape[0]}",
            )

    def axis_indices(self, rank: int) -> tuple[int, ...]:
        """Return ``axes`` as indices of at least 0; all axes of ``rank`` if ``axes`` is None."""
        return tuple(range(rank)) if self.axes is None else axes_in(self.axes, rank)

    def plan(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> list[ResizeAxis] | None:
        """Return a ResizeAxis for each of ``axes``; None if the output sizes or the scales are not known."""
        shape = x.dims
        axes = self.axis_indices(len(shape))
        regions = self._regions(roi, len(axes))
        whole = [(0.0, 1.0)] * len(axes)
        lengths = [shape[axis] for axis in axes]
        if sizes is not None:
            if sizes.value is None:
                return None
            self._check_length(x, sizes, 1)
            target_sizes = elements_of(sizes) or []
            outs, ratios = self._apply_aspect_policy(lengths, target_sizes)
        else:
            scale_factors = known_scales(scales)
            if scale_factors is None or regions is None:
                return None
            ratios = scale_factors
            has_margin = self.convention == "openvino"
            outs = [scale_size(*item, has_margin) for item in zip(lengths, ratios, regions or whole, strict=True)]
        narrows = self.narrow and any(ratio is not None and ratio < 1 for ratio in ratios)
        return [ResizeAxis(*row, narrows) for row in zip(axes, lengths, outs, ratios, regions or whole, strict=True)]

    def _regions(self, roi: View | None, count: int) -> list[tuple[float, float]] | None:
        """Return the sampled part of each axis as fractions (begin, end); None if ``roi`` is not known."""
        if self.coordinate_transformation_mode != "tf_crop_and_resize":
            return [(0.0, 1.0)] * count
        if roi is None:
            raise RuleError("attribute.conflict", "coordinate_transformation_mode tf_crop_and_resize needs roi, got none")
        values = known_floats(roi)
        return None if values is None else [(values[index], values[index + count]) for index in range(count)]

    def _apply_aspect_policy(self, lengths: Sequence[Any], target_sizes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        negative = [size for size in target_sizes if isinstance(size, int) and size < 0]
        if negative:
            raise RuleError("shape.range", f"sizes must not be negative, got {negative[0]}")
        is_static = all(isinstance(size, int) and size > 0 for size in lengths) and all(
            isinstance(size, int) for size in target_sizes
        )
        if self.keep_aspect_ratio_policy == "stretch":
            return list(target_sizes), [ratio_of(out, size) for out, size in zip(target_sizes, lengths, strict=True)]
        if not is_static:
            return [None] * len(target_sizes), [None] * len(target_sizes)
        choose = min if self.keep_aspect_ratio_policy == "not_larger" else max
        scale = choose(np.float32(out) / np.float32(size) for out, size in zip(target_sizes, lengths, strict=True))
        return [floor_product(np.float32(size), scale, np.float32(0.5)) for size in lengths], [scale] * len(target_sizes)

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through interpolation."""
        raise Unknown

    def evaluate(
        self, xp: Namespace, x: Array, sizes: Array | None = None, scales: Array | None = None, roi: Array | None = None
    ) -> Any:
        rows = self._rows(x, sizes, scales, roi)
        if self.mode == "nearest" and self.coordinate_transformation_mode != "tf_crop_and_resize":
            for row in rows:
                x = xp.take(x, to_library_indices(xp, self.taps(row).indices[:, 0], x), axis=row.axis)
            return x
        kind = arrays.element(x)
        if not rows:
            return x
        wide = arrays.cast(xp, x, dtypes.f32, saturate=False) if kind.is_integer else arrays.widen(xp, x)
        outside: Any = np.zeros((1,) * x.ndim, dtype=bool)
        for row in rows:
            taps = self.taps(row)
            wide = interpolate(xp, wide, row.axis, taps)
            outside = outside | taps.outside.reshape((-1, *(1,) * (x.ndim - row.axis - 1)))
        if outside.any():
            value = xp.asarray(self.extrapolation_value, dtype=wide.dtype)
            wide = xp.where(arrays.from_numpy(xp, outside, x), value, wide)
        if kind.is_integer:
            wide = xp.round(wide)
            # A cast to an integer type of fewer than 8 bits does not saturate, but keeps the low bits.
            return arrays.cast(xp, xp.clip(wide, *_range_of(kind)) if kind.bits < 8 else wide, kind)
        return wide if arrays.element(wide) is kind else arrays.cast(xp, wide, kind, saturate=False)

    def _rows(self, x: Array, sizes: Array | None, scales: Array | None, roi: Array | None) -> list[ResizeAxis]:
        view = View(Tensor(arrays.element(x), tuple(x.shape)))
        views = [
            None if item is None or not np.size(item) else View(Tensor(None, np.shape(item)), np.asarray(item))
            for item in (sizes, scales, roi)
        ]
        rows = self.plan(view, *views)
        assert rows is not None
        for row in rows:
            _check_source(row)
        return [row for row in rows if not self.is_identity(row)]

    def is_identity(self, row: ResizeAxis) -> bool:
        """Test whether Resize is known to leave an axis unchanged."""
        if row.roi != (0.0, 1.0) or row.out is None or symbolic.equal(row.size, row.out) is not True:
            return False
        if self.convention == "openvino":
            return True
        return self.coordinate_transformation_mode != "tf_half_pixel_for_nn" and row.scale is not None and bool(row.scale == 1)

    def taps(self, row: ResizeAxis) -> Taps:
        """Compute the taps of an axis. Raises EngineError [shape.empty], [run.memory]."""
        _check_source(row)
        if not row.out:
            return Taps(np.zeros((0, 1), np.int64), np.ones((0, 1)), np.zeros(0, dtype=bool))
        scale, out, size = np.float32(row.scale), row.out, row.size
        self.refuse_taps(row)
        stretch, reach = self._reach(row)
        y = np.arange(out, dtype=np.float32)
        with np.errstate(all="ignore"):
            x = COORDINATES[self.coordinate_transformation_mode](y, scale, out, size, row.roi)
        crop = self.coordinate_transformation_mode == "tf_crop_and_resize"
        outside = (x < 0) | (x > size - 1) if crop else np.zeros(out, dtype=bool)
        if self.mode == "nearest":
            indices = np.clip(round_positions(x, self.nearest_mode, bool(scale < 1)), 0, max(size - 1, 0))[:, None]
            return Taps(indices, np.ones(indices.shape), outside)
        span = np.arange(int(np.floor(-reach)), int(np.ceil(reach)) + 1)
        indices = np.floor(x).astype(np.int64)[:, None] + span
        distance = np.abs(x.astype(np.float64)[:, None] - indices) * stretch
        if self.mode == "linear":
            weights, roundings = np.clip(1 - distance, 0, None), 2.0
        else:
            weights, roundings = keys_kernel(distance, self.cubic_coeff_a), keys_roundings(self.cubic_coeff_a)
        if self.exclude_outside:
            weights = np.where((indices < 0) | (indices >= size), 0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
            roundings *= 2 * len(span)
        used = np.flatnonzero((weights != 0).any(axis=0)) if weights.any() else np.arange(1)
        return Taps(np.clip(indices, 0, max(size - 1, 0))[:, used], weights[:, used], outside, roundings)

    def _reach(self, row: ResizeAxis) -> tuple[float, float]:
        """Return the factor for distances between elements and positions, and the largest distance with a nonzero weight."""
        scale = float(np.float32(row.scale))
        stretch = 1.0 if not self.antialias else scale if row.narrows else min(scale, 1.0)
        return stretch, 0.0 if self.mode == "nearest" else (1 if self.mode == "linear" else 2) / max(stretch, 1e-45)

    def refuse_taps(self, row: ResizeAxis) -> None:
        """Raise EngineError [run.memory] if the taps of an axis need more memory than allowed."""
        refuse_array((row.out,), 32, "the sampling table of a resize")
        # Positions, distances and weights, 8 bytes each.
        nbytes = 24.0 * row.out * (2 * self._reach(row)[1] + 1)
        refuse_memory(current().limits, int(min(nbytes, 2.0**62)), "a table of the elements that a Resize reads")

    def matrix(self, row: ResizeAxis) -> Any:
        """Return the weights of one axis as a matrix [out, size] of f64; rows outside the input are 0."""
        refuse_table((row.out, row.size), 16, "the matrix of a Resize")
        taps = self.taps(row)
        weights = np.zeros((row.out, row.size))
        np.add.at(weights, (np.arange(row.out)[:, None], taps.indices), taps.weights)
        return np.where(taps.outside[:, None], 0, weights)

    def known_rows(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> list[ResizeAxis]:
        """Return a ResizeAxis for each axis that changes. Raises UnsupportedError [type.unknown] if a size is not known."""
        sizes, scales, roi = (drop_empty(item) for item in (sizes, scales, roi))
        rows = self.plan(x, sizes, scales, roi)
        if rows is None or (self.coordinate_transformation_mode == "tf_crop_and_resize" and known_floats(roi) is None):
            raise UnsupportedError("type.unknown", f"{self} needs sizes or scales before run time")
        rows = [row for row in rows if not self.is_identity(row)]
        for row in rows:
            if not (isinstance(row.size, int) and isinstance(row.out, int)):
                raise UnsupportedError("type.unknown", f"{self} needs the size of axis {row.axis} before run time")
        return rows

    def scales_of(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> list[float]:
        """Return the scale of each axis from 2 on: 0 if the sizes determine the scale, -1 for an axis that is not resized."""
        rows = self.plan(x, *(drop_empty(item) for item in (sizes, scales, roi))) or ()
        follows = drop_empty(sizes) is not None and self.keep_aspect_ratio_policy == "stretch"
        found = {row.axis: 0.0 if follows else float(np.float32(row.scale)) for row in rows}
        return [found.get(axis, -1.0) for axis in range(2, len(x.dims))]

    def is_planned(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> bool:
        """Test whether the sizes, scales and regions that determine the taps are known before the run."""
        rows = self.plan(x, sizes, scales, roi)
        is_cropped = self.coordinate_transformation_mode == "tf_crop_and_resize"
        return rows is not None and all(map(self._is_known, rows)) and not (is_cropped and known_floats(roi) is None)

    def vjp(
        self,
        b: Builder,
        g: Value,
        y: Value,
        x: Value,
        sizes: Value | None = None,
        scales: Value | None = None,
        roi: Value | None = None,
    ) -> Any:
        """Multiply the gradient by the transposed weight matrix of each axis."""
        gradients = [None for item in (sizes, scales, roi) if item is not None]
        sizes, scales, roi = (drop_empty(item) for item in (sizes, scales, roi))
        rows = self.plan(x, sizes, scales, roi)
        if rows is None or not self.is_planned(x, sizes, scales, roi):
            if self.coordinate_transformation_mode == "tf_crop_and_resize" and known_floats(roi) is None:
                rows = None
            return [self._gradient_at_run_time(b, g, y, x, (sizes, scales, roi), rows), *gradients]
        rows = [row for row in rows if not self.is_identity(row)]
        outside = self._outside(rows, len(x.dims))
        if outside.any():
            g = b.Where(b.constant(outside), b.constant(0.0, x.dtype), g)
        for row in reversed(rows):
            g = _product(b, g, row.axis, self.matrix(row).T)
        return [g, *gradients]

    def _is_known(self, row: ResizeAxis) -> bool:
        return self.is_identity(row) or (isinstance(row.size, int) and isinstance(row.out, int) and row.scale is not None)

    def _gradient_at_run_time(
        self,
        b: Builder,
        g: Value,
        y: Value,
        x: Value,
        inputs: tuple[Value | None, Value | None, Value | None],
        rows: list[ResizeAxis] | None,
    ) -> Any:
        """Compute the gradient with weight matrices built at run time."""
        from dovetail.ops.nn.resize_matrices import product, run_time_matrices

        unchanged = {row.axis for row in rows or () if self.is_identity(row)}
        for axis, matrix in run_time_matrices(b, self, x, y, inputs, unchanged):
            g = product(b, g, axis, matrix)
        return g

    def _outside(self, rows: Sequence[ResizeAxis], rank: int) -> Any:
        outside: Any = np.zeros((1,) * rank, dtype=bool)
        for row in rows:
            refuse_table((row.out,), 32, "the mask of a Resize")
            outside = outside | self.taps(row).outside.reshape((-1, *(1,) * (rank - row.axis - 1)))
        return outside

    def canonical(self, x: View, sizes: View | None = None, scales: View | None = None, roi: View | None = None) -> Op:
        """Reset attributes without effect to their defaults."""
        changes: dict[str, Any] = {}
        if self.mode != "nearest":
            changes["nearest_mode"] = "round_prefer_floor"
        else:
            changes["exclude_outside"] = False
        if self.mode != "cubic":
            changes["cubic_coeff_a"] = -0.75
        if self.coordinate_transformation_mode != "tf_crop_and_resize":
            changes["extrapolation_value"] = 0.0
        if drop_empty(sizes) is None:
            changes["keep_aspect_ratio_policy"] = "stretch"
        if self.convention == "openvino" and self.is_same_in_onnx(x, sizes, scales):
            changes["convention"] = "onnx"
        if not self.antialias or not self._may_narrow(x, sizes, scales):
            changes["narrow"] = False
        if (
            self.coordinate_transformation_mode == "align_corners_scaled"
            and self.keep_aspect_ratio_policy == "stretch"
            and self.is_whole(x, sizes, scales)
        ):
            changes["coordinate_transformation_mode"] = "align_corners"
        if x.shape is not None and self.axes is not None:
            changes["axes"] = axes_in(self.axes, len(x.shape))
            if changes["axes"] == tuple(range(len(x.shape))):
                changes["axes"] = None
        if self.nearest_mode == "simple" and self.mode == "nearest":
            values = None if drop_empty(scales) is None else known_scales(scales)
            if values is not None and (all(scale >= 1 for scale in values) or all(scale <= 1 for scale in values)):
                changes["nearest_mode"] = "floor" if all(scale >= 1 for scale in values) else "ceil"
        return self.with_(**changes)

    def is_same_in_onnx(self, x: View, sizes: View | None, scales: View | None) -> bool:
        """Test whether the conventions ``openvino`` and ``onnx`` are known to give the same result."""
        dtype = getattr(x.type, "dtype", None)
        if self.mode != "nearest" and (dtype is None or not dtype.is_float):
            return False
        if x.shape is None or self.coordinate_transformation_mode == "tf_crop_and_resize":
            return False
        by_scales = drop_empty(sizes) is None
        rows = self.plan(x, drop_empty(sizes), drop_empty(scales), None)
        if rows is None:
            # With `sizes` the conventions differ only in an axis that keeps its length, which tf_half_pixel_for_nn shifts.
            return not by_scales and self.coordinate_transformation_mode != "tf_half_pixel_for_nn"
        return all(self.is_row_same_in_onnx(row, by_scales) for row in rows)

    def is_row_same_in_onnx(self, row: ResizeAxis, by_scales: bool) -> bool:
        """Test whether the conventions ``openvino`` and ``onnx`` are known to give the same result along an axis."""
        is_shifted = self.coordinate_transformation_mode == "tf_half_pixel_for_nn"
        if row.scale is not None and row.scale == 1 and not is_shifted:
            return True
        equal = None if row.size is None or row.out is None else symbolic.equal(row.size, row.out)
        if equal is not False and (by_scales or is_shifted) and not changes_length(row.scale):
            return False
        return not by_scales or has_same_length(row.size, row.scale)

    def _may_narrow(self, x: View, sizes: View | None, scales: View | None) -> bool:
        """Test whether one axis may be enlarged while another one is reduced."""
        if not self.narrow:
            return False
        if x.shape is None:
            return True
        rows = (
            self.plan(x, drop_empty(sizes), drop_empty(scales), None)
            if self.coordinate_transformation_mode != "tf_crop_and_resize"
            else None
        )
        if rows is None or any(row.scale is None for row in rows):
            return True
        return any(row.scale < 1 for row in rows) and any(row.scale > 1 for row in rows)

    def is_whole(self, x: View, sizes: View | None, scales: View | None) -> bool:
        """Test whether every scaled length is known to be an integer."""
        if drop_empty(sizes) is not None:
            return True
        factors = None if drop_empty(scales) is None else known_scales(scales)
        if factors is None or x.shape is None:
            return False
        lengths = [x.shape[axis] for axis in self.axis_indices(len(x.shape))]
        pairs = zip(lengths, (float(scale) for scale in factors), strict=True)
        return all(scale.is_integer() or (isinstance(size, int) and (size * scale).is_integer()) for size, scale in pairs)

    def _with_all_inputs(self, b: Builder, x: Value, sizes: Value | None, scales: Value | None, roi: Value | None) -> Any:
        """Emit the operator over all axes, with empty vectors for absent inputs, as early ONNX versions need them."""
        rank = len(x.dims)
        axes = self.axis_indices(rank)
        none = b.constant(np.zeros(0, np.float32))
        sizes, scales, roi = (drop_empty(item) for item in (sizes, scales, roi))
        if axes != tuple(range(rank)):
            if sizes is not None:
                whole = shape_value(b, x)
                whole = b.constant(whole, sizes.dtype) if isinstance(whole, list) else whole
                sizes = b.ScatterElements(whole, b.constant(list(axes)), b.Cast(sizes, to=whole.dtype), axis=0)
            if scales is not None:
                scales = b.ScatterElements(b.constant(np.ones(rank, np.float32)), b.constant(list(axes)), scales, axis=0)
            if roi is not None:
                indices = [*axes, *(axis + rank for axis in axes)]
                roi = b.ScatterElements(
                    b.constant(np.repeat(np.array([0, 1], np.float32), rank)), b.constant(indices), roi, axis=0
                )
        return b.add(self.with_(axes=None), x, sizes, none if scales is None else scales, none if roi is None else roi)[0]

    def _in_f32(self, b: Builder, x: Value, *targets: Value | None) -> Any:
        """Cast integers to f32, resize them, and round the results to the integer type."""
        rows = self.plan(x, *(drop_empty(item) for item in (*targets, None, None, None)[:3]))
        if rows is not None and all(map(self.is_identity, rows)):
            return b.Identity(x)
        y = b.Round(b.add(self, b.Cast(x, to=dtypes.f32), *targets)[0])
        low, high = (b.constant(np.float32(bound)) for bound in _range_of(x.dtype))
        return b.Cast(b.Minimum(b.Maximum(y, low), high), to=x.dtype)

    def decompose(
        self, b: Builder, x: Value, sizes: Value | None = None, scales: Value | None = None, roi: Value | None = None
    ) -> Any:
        """Lower a Resize of integers to f32, an ONNX-compatible Resize to one of all axes, and any other to Gather or MatMul.

        Gather (mode nearest) or MatMul with a weight matrix (other modes) handles one axis after the other. If sizes are not
        known before the run, indices and weights are computed at run time.
        """
        if self.mode != "nearest" and x.dtype.is_integer:
            return self._in_f32(b, x, sizes, scales, roi)
        if (
            (roi is None or scales is None)
            and self.convention == "onnx"
            and self.keep_aspect_ratio_policy == "stretch"
            and not self.antialias
            and self.coordinate_transformation_mode != "half_pixel_symmetric"
            # tf_half_pixel_for_nn also moves elements along an axis of unchanged size, so that no axis may be added.
            and (
                self.coordinate_transformation_mode != "tf_half_pixel_for_nn"
                or self.axis_indices(len(x.dims)) == tuple(range(len(x.dims)))
            )
        ):
            return self._with_all_inputs(b, x, sizes, scales, roi)
        inputs = tuple(drop_empty(item) for item in (sizes, scales, roi))
        if not self.is_planned(x, *inputs):
            from dovetail.ops.nn.resize_matrices import resize_at_run_time

            unchanged = {row.axis for row in self.plan(x, *inputs) or () if self.is_identity(row)}
            return resize_at_run_time(b, self, x, inputs, unchanged)
        rows = self.known_rows(x, sizes, scales, roi)
        y = x
        for row in rows:
            if self.mode == "nearest":
                refuse_table((row.out,), 32, "the indices of a Resize")
                y = b.Gather(y, self.taps(row).indices[:, 0], axis=row.axis)
            else:
                y = _product(b, y, row.axis, self.matrix(row))
        outside = self._outside(rows, len(x.dims))
        if outside.any():
            y = b.Where(b.constant(outside), b.constant(self.extrapolation_value, x.dtype), y)
        return y if rows else b.Identity(x)


def _range_of(kind: DType) -> tuple[Any, Any]:
    """Return the least and the greatest f32 in the range of an integer type."""
    low, high = kind.range()
    bounds = np.float32(low), np.float32(high)
    return bounds[0], bounds[1] if int(bounds[1]) <= high else np.nextafter(bounds[1], np.float32(0))


def _check_source(row: ResizeAxis) -> None:
    if not row.size and row.out:
        raise EngineError("shape.empty", f"axis {row.axis} of size 0 cannot be resized to {row.out} elements")


def _product(b: Builder, x: Value, axis: int, matrix: Array) -> Any:
    """Multiply ``axis`` of ``x`` by ``matrix`` [out, size], in f32 at least."""
    kind, rank = x.dtype, len(x.dims)
    wide = dtypes.f32 if kind.bits < 32 else kind
    y = x if kind is wide else b.Cast(x, to=wide)
    if axis == rank - 1:
        y = b.MatMul(y, b.constant(np.ascontiguousarray(matrix.T).astype(wide.numpy), wide))
    elif axis == rank - 2:
        y = b.MatMul(b.constant(matrix.astype(wide.numpy), wide), y)
    else:
        order = [*range(axis), *range(axis + 1, rank), axis]
        y = b.MatMul(b.Transpose(y, order), b.constant(np.ascontiguousarray(matrix.T).astype(wide.numpy), wide))
        y = b.Transpose(y, [*range(axis), rank - 1, *range(axis, rank - 1)])
    return y if kind is wide else b.Cast(y, to=kind)
