"""Resampling: another number of elements along some axes, each computed from the nearest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, View, axes_in
from dovetail.limits import current, refuse_array, refuse_memory
from dovetail.ops.shape_values import elements_of

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
POLICIES = ("stretch", "not_larger", "not_smaller")

_HALF = np.float32(0.5)

# In f32, as onnxruntime and OpenVINO compute: from the place in the result, the scale, both lengths and the region to the
# place in x.
_COORDINATES: dict[str, Callable[..., Any]] = {
    "half_pixel": lambda y, scale, out, size, roi: (y + _HALF) / scale - _HALF,
    "half_pixel_symmetric": lambda y, scale, out, size, roi: (
        np.float32(size / 2 * (1 - out / (float(scale) * size)) if size else 0) + (y + _HALF) / scale - _HALF
    ),
    "pytorch_half_pixel": lambda y, scale, out, size, roi: (y + _HALF) / scale - _HALF if out > 1 else 0 * y,
    "asymmetric": lambda y, scale, out, size, roi: y / scale,
    "tf_half_pixel_for_nn": lambda y, scale, out, size, roi: (y + _HALF) / scale,
    "align_corners": lambda y, scale, out, size, roi: y * np.float32(size - 1) / np.float32(out - 1) if out > 1 else 0 * y,
    "align_corners_scaled": lambda y, scale, out, size, roi: _align_scaled(y, float(scale) * size, size),
    "tf_crop_and_resize": lambda y, scale, out, size, roi: _crop(y, out, size, *roi),
}


def _align_scaled(y: Array, length: float, size: int) -> Any:
    """``length`` may be a fraction, in which a scale ends where no whole element does."""
    return 0 * y if length == 1 else (y * (size - 1) / (length - 1)).astype(np.float32)


def _crop(y: Array, out: int, size: int, start: float, end: float) -> Any:
    if out > 1:
        places = start * (size - 1) + y.astype(np.float64) * (end - start) * (size - 1) / (out - 1)
    else:
        places = 0 * y + 0.5 * (start + end) * (size - 1)
    return places.astype(np.float32)


_SINCE_18 = ", antialias, axes?, keep_aspect_ratio_policy"


def _line(version: int, inputs: str, more: str = "", attributes: str = "") -> str:
    """How ONNX spells it; what a version reads differs too much for one line."""
    coordinates = (
        "half_pixel:half_pixel,asymmetric:asymmetric,pytorch_half_pixel:pytorch_half_pixel,tf_crop_and_resize:tf_crop_and_resize,"
        "align_corners:align_corners_scaled,align_corners:align_corners"
    )
    nearest = ",".join(f"{name}:{name}" for name in NEAREST if name != "simple")
    return (
        f"> Resize-{version}(x, {inputs}; mode, coordinate_transformation_mode~{{{coordinates}{more}}}, "
        f"nearest_mode~{{{nearest}}}, cubic_coeff_a, exclude_outside, extrapolation_value{attributes})"
    )


class Axis(NamedTuple):
    """What becomes of one axis: ``size`` elements to ``out``, at ``scale``; ``roi``: the part of it that is looked at;
    ``narrows``: whether weights that reach less far where there are more elements are asked for.
    """

    axis: int
    size: Any
    out: Any
    scale: Any
    roi: tuple[float, float] = (0.0, 1.0)
    narrows: bool = False


class Taps(NamedTuple):
    """Row i: element i of the result is the sum of ``weights[i]`` times the elements ``places[i]``; ``outside`` marks those of no
    place.
    """

    places: Any
    weights: Any
    outside: Any


class Resize(
    Op,
    sig="x: T, sizes?!: I, scales?!: F1, roi?!: F2 -> y: T",
    onnx=(
        "> Upsample-9(x, scales; mode~{nearest:nearest,linear:linear} | coordinate_transformation_mode=asymmetric, "
        "nearest_mode=simple)",
        "> Resize-10(x, scales; mode~{nearest:nearest,linear:linear} | coordinate_transformation_mode=asymmetric, "
        "nearest_mode=simple)",
        _line(11, "roi, scales, sizes?", ",tf_half_pixel_for_nn:tf_half_pixel_for_nn"),
        _line(13, "roi?, scales?, sizes?"),
        _line(18, "roi?, scales?, sizes?", "", _SINCE_18),
        _line(19, "roi?, scales?, sizes?", ",half_pixel_symmetric:half_pixel_symmetric", _SINCE_18),
    ),
):
    """``x`` with ``sizes`` elements along ``axes`` (all when left out), or floor(size * scale) with ``scales``; one of the two is
    given.

    Element i of the result stands at a place of ``x`` that ``coordinates`` computes, with s the scale, or the ratio of the sizes:
    ``half_pixel`` (i + 0.5) / s - 0.5; ``pytorch_half_pixel`` the same, 0 for a single element; ``half_pixel_symmetric`` the same
    around the middle of the whole scaled length; ``asymmetric`` i / s; ``tf_half_pixel_for_nn`` (i + 0.5) / s; ``align_corners``
    i * (n - 1) / (m - 1) from n to m elements, and ``align_corners_scaled`` with n * s for m; ``tf_crop_and_resize`` the same
    between the fractions ``roi`` (all begins, all ends) of the axis, giving ``extrapolation_value`` outside of ``x``. ``mode``
    ``nearest`` takes the element that ``nearest`` says (``simple``: ceil where s < 1, else floor), at most the last; ``linear``
    and ``cubic`` (Keys, with ``cubic_coefficient``) weigh neighbours, border elements repeated, or with ``exclude_outside`` left
    out and the rest weighed up. ``antialias`` widens the weights by 1 / s where s < 1; with ``narrow`` it also narrows them by s
    where s > 1 beside an axis of s < 1, and what reaches no element is 0. With ``policy`` not_larger, not_smaller the axes share
    the least or greatest ratio, rounded to whole sizes, halves up. Empty ``sizes``, ``scales``, ``roi`` are as if left out.
    Places are computed in f32. Integers are moved by ``nearest`` only: how to round them sources disagree. Sources: ONNX Resize
    10 to 19, Upsample 1 to 9, and onnx.reference; OpenVINO Interpolate-1, -4, -11.
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

    def validate(self) -> None:
        for name, known in (
            ("mode", MODES),
            ("coordinate_transformation_mode", tuple(_COORDINATES)),
            ("nearest_mode", NEAREST),
            ("keep_aspect_ratio_policy", POLICIES),
        ):
            if getattr(self, name) not in known:
                raise RuleError("resize.mode", f"{name} {getattr(self, name)!r} is none of {', '.join(known)}")
        if self.antialias and self.mode == "nearest":
            raise RuleError("resize.antialias", "antialias weighs neighbours, and the mode is nearest")
        if self.narrow and not self.antialias:
            raise RuleError("resize.antialias", "weights are narrowed by antialias, which is not asked for")

    def shape(self, x: View, sizes: View | None = None, scales: View | None = None, roi: View | None = None) -> Any:
        sizes, scales, roi = (_present(item) for item in (sizes, scales, roi))
        if (sizes is None) == (scales is None):
            raise RuleError("resize.target", "either sizes or scales are needed, and not both")
        dtype = getattr(x.type, "dtype", None)
        if self.mode != "nearest" and dtype is not None and not dtype.is_float:
            raise UnsupportedError("resize.integer", f"{self.mode} of {dtype}, which sources round differently")
        for item, count in ((sizes, 1), (scales, 1), (roi, 2)):
            self._check_length(x, item, count)
        if x.shape is None:
            return None
        found = self.plan(x, sizes, scales, roi)
        shape: list[Any] = list(x.shape)
        for axis in self.places(len(x.shape)) if found is None else ():
            shape[axis] = None
        for each in found or ():
            shape[each.axis] = each.out
        return tuple(shape)

    def _check_length(self, x: View, item: View | None, count: int) -> None:
        if item is None or item.shape is None:
            return
        if len(item.shape) != 1:
            raise RuleError("resize.target", f"sizes, scales and regions are vectors, not {item.type}")
        axes = len(self.axes) if self.axes is not None else None if x.shape is None else len(x.shape)
        if axes is not None and symbolic.equal(item.shape[0], axes * count) is False:
            raise RuleError("resize.target", f"{item.shape[0]} elements for {axes} axes")

    def places(self, rank: int) -> tuple[int, ...]:
        """The axes counted from the front."""
        return tuple(range(rank)) if self.axes is None else axes_in(self.axes, rank)

    def plan(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> list[Axis] | None:
        """What becomes of each axis; None where sizes or scales are not known."""
        shape = x.dims
        axes = self.places(len(shape))
        regions = self._regions(roi, len(axes))
        whole = [(0.0, 1.0)] * len(axes)
        lengths = [shape[axis] for axis in axes]
        if sizes is not None:
            if sizes.value is None:
                return None
            self._check_length(x, sizes, 1)
            wanted = elements_of(sizes) or []
            outs, ratios = self._fitted(lengths, wanted)
        else:
            known = known_scales(scales)
            if known is None or regions is None:
                return None
            ratios = known
            outs = [_scaled(*item) for item in zip(lengths, ratios, regions or whole, strict=True)]
        narrows = self.narrow and any(ratio is not None and ratio < 1 for ratio in ratios)
        return [Axis(*row, narrows) for row in zip(axes, lengths, outs, ratios, regions or whole, strict=True)]

    def _regions(self, roi: Any, count: int) -> list[tuple[float, float]] | None:
        """The part of each axis that is looked at; None where it is not known."""
        if self.coordinate_transformation_mode != "tf_crop_and_resize":
            return [(0.0, 1.0)] * count
        if roi is None:
            raise RuleError("resize.roi", "tf_crop_and_resize needs a region")
        values = known_floats(roi)
        return None if values is None else [(values[index], values[index + count]) for index in range(count)]

    def _fitted(self, lengths: Sequence[Any], wanted: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        negative = [size for size in wanted if isinstance(size, int) and size < 0]
        if negative:
            raise RuleError("resize.target", f"a size of {negative[0]}")
        known = all(isinstance(size, int) and size > 0 for size in lengths) and all(isinstance(size, int) for size in wanted)
        if self.keep_aspect_ratio_policy == "stretch":
            return list(wanted), [_ratio(out, size) for out, size in zip(wanted, lengths, strict=True)]
        if not known:
            return [None] * len(wanted), [None] * len(wanted)
        choose = min if self.keep_aspect_ratio_policy == "not_larger" else max
        scale = choose(np.float32(out) / np.float32(size) for out, size in zip(wanted, lengths, strict=True))
        return [_floor(np.float32(size), scale, _HALF) for size in lengths], [scale] * len(wanted)

    def value(self, *xs: View) -> Any:
        """Shape values do not come out of resampling."""
        raise Unknown

    def evaluate(
        self, xp: Namespace, x: Array, sizes: Array | None = None, scales: Array | None = None, roi: Array | None = None
    ) -> Any:
        rows = self._rows(x, sizes, scales, roi)
        if self.mode == "nearest" and self.coordinate_transformation_mode != "tf_crop_and_resize":
            for row in rows:
                x = xp.take(x, _indices(xp, self.taps(row).places[:, 0], x), axis=row.axis)
            return x
        wide = arrays.widened(xp, x)
        outside: Any = np.zeros((1,) * x.ndim, dtype=bool)
        for row in rows:
            taps = self.taps(row)
            wide = _weighed(xp, wide, row.axis, taps)
            outside = outside | taps.outside.reshape((-1, *(1,) * (x.ndim - row.axis - 1)))
        if outside.any():
            value = xp.asarray(self.extrapolation_value, dtype=wide.dtype)
            wide = xp.where(arrays.from_numpy(xp, outside, x), value, wide)
        kind = arrays.element(x)
        return wide if arrays.element(wide) is kind else arrays.cast(xp, wide, kind, saturate=False)

    def _rows(self, x: Array, sizes: Array | None, scales: Array | None, roi: Array | None) -> list[Axis]:
        from dovetail.ir.types import Tensor

        seen = View(Tensor(arrays.element(x), tuple(x.shape)))
        views = [
            None if item is None or not np.size(item) else View(Tensor(None, np.shape(item)), np.asarray(item))
            for item in (sizes, scales, roi)
        ]
        rows = self.plan(seen, *views)
        assert rows is not None
        for row in rows:
            _check_source(row)
        return [row for row in rows if not self.is_identity(row)]

    def is_identity(self, row: Axis) -> bool:
        """Whether an axis stays as it is."""
        if row.roi != (0.0, 1.0) or self.coordinate_transformation_mode == "tf_half_pixel_for_nn":
            return False
        if row.out is None or symbolic.equal(row.size, row.out) is not True:
            return False
        return row.scale is not None and bool(row.scale == 1)

    def taps(self, row: Axis) -> Taps:
        """The elements that those of the result are made of. Raises EngineError [resize.empty], [run.memory]."""
        _check_source(row)
        if not row.out:
            return Taps(np.zeros((0, 1), np.int64), np.ones((0, 1)), np.zeros(0, dtype=bool))
        scale, out, size = np.float32(row.scale), row.out, row.size
        refuse_array((out,), 32, "the table of a resize")
        stretch = 1.0 if not self.antialias else float(scale) if row.narrows else min(float(scale), 1.0)
        reach = 0.0 if self.mode == "nearest" else (1 if self.mode == "linear" else 2) / max(stretch, 1e-45)
        # Places, distances and weights, 8 bytes each.
        nbytes = 24.0 * out * (2 * reach + 1)
        refuse_memory(current().limits, int(min(nbytes, 2.0**62)), "a table of the elements that a Resize reads")
        y = np.arange(out, dtype=np.float32)
        with np.errstate(all="ignore"):
            x = _COORDINATES[self.coordinate_transformation_mode](y, scale, out, size, row.roi)
        crop = self.coordinate_transformation_mode == "tf_crop_and_resize"
        outside = (x < 0) | (x > size - 1) if crop else np.zeros(out, dtype=bool)
        if self.mode == "nearest":
            places = np.clip(_nearest(x, self.nearest_mode, bool(scale < 1)), 0, max(size - 1, 0))[:, None]
            return Taps(places, np.ones(places.shape), outside)
        span = np.arange(int(np.floor(-reach)), int(np.ceil(reach)) + 1)
        places = np.floor(x).astype(np.int64)[:, None] + span
        distance = np.abs(x.astype(np.float64)[:, None] - places) * stretch
        weights = np.clip(1 - distance, 0, None) if self.mode == "linear" else _keys(distance, self.cubic_coeff_a)
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= size), 0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        used = np.flatnonzero((weights != 0).any(axis=0)) if weights.any() else np.arange(1)
        return Taps(np.clip(places, 0, max(size - 1, 0))[:, used], weights[:, used], outside)

    def matrix(self, row: Axis) -> Any:
        """The weights of one axis as a matrix [out, size], in f64; rows that stand outside are 0."""
        refuse_array((row.out, row.size), 16, "the matrix of a resize")
        taps = self.taps(row)
        found = np.zeros((row.out, row.size))
        np.add.at(found, (np.arange(row.out)[:, None], taps.places), taps.weights)
        return np.where(taps.outside[:, None], 0, found)

    def known_rows(self, x: View, sizes: View | None, scales: View | None, roi: View | None) -> list[Axis]:
        """The axes that change. Raises UnsupportedError [resize.dynamic] where their sizes are not all known."""
        sizes, scales, roi = (_present(item) for item in (sizes, scales, roi))
        rows = self.plan(x, sizes, scales, roi)
        if rows is None or (self.coordinate_transformation_mode == "tf_crop_and_resize" and known_floats(roi) is None):
            raise UnsupportedError("resize.dynamic", f"{self}, whose sizes only run time knows")
        rows = [row for row in rows if not self.is_identity(row)]
        for row in rows:
            if not (isinstance(row.size, int) and isinstance(row.out, int)):
                raise UnsupportedError("resize.dynamic", f"{self} of axis {row.axis}, whose size only run time knows")
        return rows

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
        """Each axis is a product with a matrix of weights; its gradient one with the matrix turned."""
        gradients = [None for item in (sizes, scales, roi) if item is not None]
        sizes, scales, roi = (_present(item) for item in (sizes, scales, roi))
        rows = self.plan(x, sizes, scales, roi)
        if self.coordinate_transformation_mode == "tf_crop_and_resize" and known_floats(roi) is None:
            rows = None
        if rows is None or not all(map(self._is_known, rows)):
            return [self._gradient_at_run_time(b, g, y, x, (sizes, scales, roi), rows), *gradients]
        rows = [row for row in rows if not self.is_identity(row)]
        outside = self._outside(rows, len(x.dims))
        if outside.any():
            g = b.Where(b.constant(outside), b.constant(0.0, x.dtype), g)
        for row in reversed(rows):
            g = _product(b, g, row.axis, self.matrix(row).T)
        return [g, *gradients]

    def _is_known(self, row: Axis) -> bool:
        return self.is_identity(row) or (isinstance(row.size, int) and isinstance(row.out, int) and row.scale is not None)

    def _gradient_at_run_time(
        self,
        b: Builder,
        g: Value,
        y: Value,
        x: Value,
        inputs: tuple[Value | None, Value | None, Value | None],
        rows: list[Axis] | None,
    ) -> Any:
        """The same, with matrices that the run computes."""
        from dovetail.ops.nn.resize_matrices import product, run_time_matrices

        unchanged = {row.axis for row in rows or () if self.is_identity(row)}
        for axis, matrix in run_time_matrices(b, self, x, y, inputs, unchanged):
            g = product(b, g, axis, matrix)
        return g

    def _outside(self, rows: Sequence[Axis], rank: int) -> Any:
        found: Any = np.zeros((1,) * rank, dtype=bool)
        for row in rows:
            found = found | self.taps(row).outside.reshape((-1, *(1,) * (rank - row.axis - 1)))
        return found

    def canonical(self, x: View, sizes: View | None = None, scales: View | None = None, roi: View | None = None) -> Op:
        """Attributes that mean nothing here are left at their defaults."""
        changes: dict[str, Any] = {}
        if self.mode != "nearest":
            changes["nearest_mode"] = "round_prefer_floor"
        else:
            changes["exclude_outside"] = False
        if self.mode != "cubic":
            changes["cubic_coeff_a"] = -0.75
        if self.coordinate_transformation_mode != "tf_crop_and_resize":
            changes["extrapolation_value"] = 0.0
        if _present(sizes) is None:
            changes["keep_aspect_ratio_policy"] = "stretch"
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
            values = None if _present(scales) is None else known_scales(scales)
            if values is not None and (all(each >= 1 for each in values) or all(each <= 1 for each in values)):
                changes["nearest_mode"] = "floor" if all(each >= 1 for each in values) else "ceil"
        return self.with_(**changes)

    def _may_narrow(self, x: View, sizes: View | None, scales: View | None) -> bool:
        """Whether one axis may get more elements and another one fewer."""
        if not self.narrow:
            return False
        if x.shape is None:
            return True
        rows = (
            self.plan(x, _present(sizes), _present(scales), None)
            if self.coordinate_transformation_mode != "tf_crop_and_resize"
            else None
        )
        if rows is None or any(row.scale is None for row in rows):
            return True
        return any(row.scale < 1 for row in rows) and any(row.scale > 1 for row in rows)

    def is_whole(self, x: View, sizes: View | None, scales: View | None) -> bool:
        """Whether every scaled length is known to be a whole number of elements."""
        if _present(sizes) is not None:
            return True
        found = None if _present(scales) is None else known_scales(scales)
        if found is None or x.shape is None:
            return False
        lengths = [x.shape[axis] for axis in self.places(len(x.shape))]
        pairs = zip(lengths, (float(scale) for scale in found), strict=True)
        return all(scale.is_integer() or (isinstance(size, int) and (size * scale).is_integer()) for size, scale in pairs)

    def _written_out(self, b: Builder, x: Value, sizes: Value | None, scales: Value | None, roi: Value | None) -> Any:
        """The same over all axes, with empty vectors for inputs that are left out."""
        rank = len(x.dims)
        axes = self.places(rank)
        none = b.constant(np.zeros(0, np.float32))
        sizes, scales, roi = (_present(item) for item in (sizes, scales, roi))
        if axes != tuple(range(rank)):
            if sizes is not None:
                whole = shape_value(b, x)
                whole = b.constant(whole, sizes.dtype) if isinstance(whole, list) else whole
                sizes = b.ScatterElements(whole, b.constant(list(axes)), b.Cast(sizes, to=whole.dtype), axis=0)
            if scales is not None:
                scales = b.ScatterElements(b.constant(np.ones(rank, np.float32)), b.constant(list(axes)), scales, axis=0)
            if roi is not None:
                places = [*axes, *(axis + rank for axis in axes)]
                roi = b.ScatterElements(
                    b.constant(np.repeat(np.array([0, 1], np.float32), rank)), b.constant(places), roi, axis=0
                )
        return b.add(self.with_(axes=None), x, sizes, none if scales is None else scales, none if roi is None else roi)[0]

    def decompose(
        self, b: Builder, x: Value, sizes: Value | None = None, scales: Value | None = None, roi: Value | None = None
    ) -> Any:
        """With every axis and input written out, which the first versions demand; and then axis after axis: elements picked by
        place, or a product with a matrix of weights.
        """
        if (
            (roi is None or scales is None)
            and self.keep_aspect_ratio_policy == "stretch"
            and not self.antialias
            and self.coordinate_transformation_mode != "half_pixel_symmetric"
            # Which moves the elements of an axis of the same length too.
            and (
                self.coordinate_transformation_mode != "tf_half_pixel_for_nn"
                or self.places(len(x.dims)) == tuple(range(len(x.dims)))
            )
        ):
            return self._written_out(b, x, sizes, scales, roi)
        rows = self.known_rows(x, sizes, scales, roi)
        y = x
        for row in rows:
            if self.mode == "nearest":
                y = b.Gather(y, self.taps(row).places[:, 0], axis=row.axis)
            else:
                y = _product(b, y, row.axis, self.matrix(row))
        outside = self._outside(rows, len(x.dims))
        if outside.any():
            y = b.Where(b.constant(outside), b.constant(self.extrapolation_value, x.dtype), y)
        return y if rows else b.Identity(x)


def _check_source(row: Axis) -> None:
    if not row.size and row.out:
        raise EngineError("resize.empty", f"axis {row.axis} of size 0 has nothing to make {row.out} elements of")


def _present(item: View | None) -> Any:
    """An input, None where it is left out or empty."""
    if item is None or (item.shape is not None and len(item.shape) == 1 and symbolic.equal(item.shape[0], 0) is True):
        return None
    return item


def known_floats(item: View | None) -> list[Any] | None:
    """The elements of a float input in f32, where they are known before anything runs."""
    data = getattr(item, "constant", None)
    if data is None and item is not None:
        data = item.value
    return None if data is None else list(np.asarray(data).astype(np.float32))


def known_scales(item: View | None) -> list[Any] | None:
    """Scales as :func:`known_floats`. Raises RuleError [resize.scale] unless they are above 0."""
    found = known_floats(item)
    if found is not None and not all(0 < scale < np.inf for scale in found):
        raise RuleError("resize.scale", f"scales {[float(scale) for scale in found]} should be above 0")
    return found


def _ratio(out: Any, size: Any) -> Any:
    if symbolic.equal(out, size) is True:
        return np.float32(1)
    if isinstance(out, int) and isinstance(size, int) and size:
        return np.float32(out) / np.float32(size)
    return None


def _scaled(size: Any, scale: Any, roi: tuple[float, float]) -> Any:
    """floor(size * scale), of the part of the axis that ``roi`` gives, in f32."""
    whole = tuple(roi) == (0.0, 1.0)
    if isinstance(size, int):
        part = np.float32(size) if whole else np.float32(size) * (np.float32(roi[1]) - np.float32(roi[0]))
        return _floor(part, scale)
    exact = Fraction(float(scale))
    if not whole or exact.denominator > 1024:
        return None
    return size * exact.numerator // exact.denominator


def _floor(size: Any, scale: Any, more: Any = 0) -> int:
    """floor(size * scale + more) in f32. Raises RuleError [resize.scale] where that is no number."""
    with np.errstate(all="ignore"):
        found = np.floor(size * scale + more)
    if not np.isfinite(found):
        raise RuleError("resize.scale", f"an axis of {size} scaled by {scale} has no size")
    return int(found)


def _nearest(x: Array, mode: str, is_smaller: bool) -> Any:
    if mode == "simple":
        mode = "ceil" if is_smaller else "floor"
    steps: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda places: np.ceil(places - _HALF),
        "round_prefer_ceil": lambda places: np.floor(places + _HALF),
    }
    return steps[mode](x).astype(np.int64)


def _keys(distance: Array, a: float) -> Any:
    """Keys' cubic kernel: 1 at 0, 0 at all other integers and from 2 on."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _indices(xp: Namespace, places: Array, like: Array) -> Any:
    return arrays.from_numpy(xp, places if arrays.is_numpy(xp) else places.astype(np.int32), like)


def _weighed(xp: Namespace, x: Array, axis: int, taps: Taps) -> Any:
    total: Any = None
    after = (1,) * (x.ndim - axis - 1)
    for tap in range(taps.places.shape[1]):
        weights = taps.weights[:, tap].astype(arrays.element(x).numpy).reshape((-1, *after))
        part = xp.take(x, _indices(xp, taps.places[:, tap], x), axis=axis) * arrays.from_numpy(xp, weights, x)
        total = part if total is None else total + part
    return total


def _product(b: Builder, x: Value, axis: int, matrix: Array) -> Any:
    """``x`` with its ``axis`` multiplied by ``matrix`` [out, size], in f32 at least."""
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
