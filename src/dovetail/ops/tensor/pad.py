"""Pad, which crops for negative pads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op, Windows
from dovetail.ir.types import INT64_MAX, Size, View, axes_in, static
from dovetail.ops.builders import zeros_like
from dovetail.ops.shape_values import (
    elements_of,
    host_view_of,
    indices_of_axis,
    integers_of,
    join_sizes,
    length_of_vector,
    shape_of_rank,
    view_of,
)
from dovetail.ops.tensor.slice import MAX_WINDOWS, Run, windows_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MODES = ("constant", "reflect", "edge", "wrap", "symmetric")
_BEFORE_19 = "{constant:constant,reflect:reflect,edge:edge}"
_FROM_19 = "{constant:constant,reflect:reflect,edge:edge,wrap:wrap}"


class Pad(
    Op,
    sig="data: T, pads!: I, constant_value?: T, axes?!: I1 -> output: T",
    onnx=(
        f"Pad-1(data; paddings:pads, value:constant_value?, mode~{_BEFORE_19}=constant)",
        f"Pad-2(data; pads, value:constant_value?, mode~{_BEFORE_19}=constant)",
        f"Pad-11,13(data, pads, constant_value?; mode~{_BEFORE_19}=constant)",
        f"Pad-18(data, pads, constant_value?, axes?; mode~{_BEFORE_19}=constant)",
        f"Pad-19,21,23,24,25(data, pads, constant_value?, axes?; mode~{_FROM_19}=constant)",
    ),
):
    """Pad ``data`` with ``pads[i]`` elements at the beginning and ``pads[n + i]`` at the end of ``axes[i]``, for n axes.

    Negative pads crop. ``pads`` is a vector; without ``axes`` all axes are padded. ``mode`` determines the new elements:
    ``constant``: ``constant_value`` (by default 0, False or the empty string); ``edge``: the nearest element; ``reflect`` and
    ``symmetric``: the mirrored elements, without and with the border; ``wrap``: the elements of the other end. With ``wrap``
    crops apply before padding; in the other modes padding may repeat elements that the other side crops. A resulting size below
    0 becomes 0.
    Sources: ONNX Pad 1 to 25; OpenVINO Pad-1, -12; numpy.pad.
    """

    mode: str = "constant"

    def validate(self) -> None:
        if self.mode not in MODES:
            raise RuleError("attribute.value", f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")

    def shape(self, data: View, pads: View, constant_value: View | None = None, axes: View | None = None) -> Any:
        if constant_value is not None and constant_value.shape is not None and len(constant_value.shape) > 1:
            raise RuleError("shape.single", f"constant_value must be a scalar, got rank {len(constant_value.shape)}")
        if data.shape is None:
            length_of_vector(pads, "pads")
            return None
        rows = self._pads_by_axis(data, pads, axes)
        if rows is None:
            return shape_of_rank(len(data.shape))
        sizes: list[Any] = list(data.shape)
        for axis, (before, after) in rows.items():
            known = before is not None and after is not None
            sizes[axis] = symbolic.maximum(sizes[axis] + before + after, 0) if known else None
            self._check_border(axis, data.shape[axis], before, after)
        return tuple(sizes)

    def _check_border(self, axis: int, size: Size | None, before: Size | None, after: Size | None) -> None:
        added = [pad for pad in (before, after) if isinstance(pad, int) and pad > 0]
        if self.mode != "constant" and added and isinstance(size, int) and size == 0:
            raise RuleError("shape.empty", f"mode {self.mode} needs elements along axis {axis}, whose size is 0")

    def _pads_by_axis(self, data: View, pads: View, axes: View | None) -> dict[int, tuple[Any, Any]] | None:
        """Return a dictionary from each padded axis to its pads before and after; None if the padded axes are unknown."""
        rank = len(data.dims)
        length = length_of_vector(pads, "pads")
        count = rank if axes is None else length_of_vector(axes, "axes")
        if isinstance(length, int) and isinstance(count, int) and length != 2 * count:
            raise RuleError(
                "attribute.length", f"the number of pads must be twice the number of axes ({2 * count}), got {length}"
            )
        indices = list(range(rank)) if axes is None else integers_of(axes)
        if indices is None:
            return None
        wanted = elements_of(pads) or [None] * (2 * len(indices))
        result = axes_in(indices, rank)
        return {axis: (wanted[index], wanted[len(result) + index]) for index, axis in enumerate(result)}

    def evaluate(
        self, xp: Namespace, data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None
    ) -> Any:
        self.shape(view_of(data), host_view_of(pads), None, host_view_of(axes))
        rows = self._pads_by_axis(view_of(data), host_view_of(pads), host_view_of(axes)) or {}
        pairs = [rows.get(axis, (0, 0)) for axis in range(data.ndim)]
        if not all(isinstance(pad, int) for pair in pairs for pad in pair):
            raise symbolic.Inexact
        if self.mode == "wrap":
            data = arrays.pad(xp, data, [min(before, 0) for before, _ in pairs], [min(after, 0) for _, after in pairs])
            pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
        fill = _zero(data) if constant_value is None else xp.reshape(constant_value, ())
        return arrays.pad(xp, data, [before for before, _ in pairs], [after for _, after in pairs], self.mode, fill)

    def vjp(
        self,
        b: Builder,
        g: Value,
        y: Value,
        data: Value,
        pads: Value,
        constant_value: Value | None = None,
        axes: Value | None = None,
    ) -> Any:
        rest = [None] * (axes is not None)
        if self.mode == "constant":
            gradients = [b.Pad(g, b.Negative(pads), None, axes), None]
            if constant_value is None:
                return [*gradients, *([None, *rest] if rest else [])]
            one = b.constant(np.ones((), dtype=data.dtype.numpy), data.dtype)
            new = b.Pad(zeros_like(b, data), pads, one, axes)
            gradient = b.ReduceSum(b.Multiply(g, new), keepdims=False)
            return [*gradients, b.Reshape(gradient, list(static(constant_value.shape))), *rest]
        from dovetail.ops.tensor.scatter import gradient_of_gather

        rows = None if data.shape is None else self._pads_by_axis(data, pads, axes)
        if rows is None:
            raise UnsupportedError("constant.needed", "the gradient of Pad needs constant axes")
        for index, (axis, pair) in enumerate(rows.items()):
            if pair == (0, 0):
                continue
            axis_pads = list(pair) if None not in pair else b.Gather(pads, [index, len(rows) + index], axis=0)
            if isinstance(axis_pads, list) and not all(isinstance(pad, int) for pad in axis_pads):
                axis_pads = b.Gather(pads, [index, len(rows) + index], axis=0)
            # Padding the indices of the axis gives the source index of every element of the result.
            indices = b.Pad(indices_of_axis(b, data, axis), axis_pads, mode=self.mode)
            g = gradient_of_gather(b, g, indices, axis, shape_value(b, data, [axis]))
        return [g, None, *([None] if constant_value is not None or rest else []), *rest]

    def windows(self, data: View, pads: View, constant_value: View | None = None, axes: View | None = None) -> Windows:
        shape, target = static(data.shape), static(self.shape(data, pads, constant_value, axes))
        rows = self._pads_by_axis(data, pads, axes)
        fill: Any = 0
        if constant_value is not None:
            fill_value = getattr(constant_value, "constant", None)
            if fill_value is None:
                raise UnsupportedError("constant.needed", "windows of Pad need a constant fill value")
            fill = fill_value.reshape(()).item()
        pieces = []
        for axis, size in enumerate(shape):
            before, after = (rows or {}).get(axis, (0, 0))
            pieces.append(list(_runs_of_pad(self.mode, size, before, after, target[axis])))
        return Windows(tuple(windows_of(pieces, shape, target)), fill if self.mode == "constant" else None)

    def decompose(
        self, b: Builder, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Any:
        """Decompose to pads for all axes, or to Gather along each axis; None for mode ``constant`` without ``axes``."""
        rows = None if data.shape is None else self._pads_by_axis(data, pads, axes)
        if rows is None:
            return None
        if axes is not None:
            return b.apply("Pad", data, self._pads_of_all_axes(b, data, pads, rows), constant_value, mode=self.mode)
        if self.mode == "constant":
            return None
        for index, (axis, pair) in enumerate(rows.items()):
            if pair == (0, 0):
                continue
            if not all(isinstance(pad, int) for pad in pair):
                data = b.Gather(data, self._source_indices_at_run_time(b, data, pads, axis, index, len(rows)), axis=axis)
                continue
            if self.mode == "wrap" and min(pair) < 0:
                data = b.Slice(data, [max(-pair[0], 0)], [min(pair[1], 0) or INT64_MAX], [axis])
                pair = (max(pair[0], 0), max(pair[1], 0))
            data = b.Gather(data, self._source_indices(b, data, axis, *pair), axis=axis)
        return data

    def _source_indices(self, b: Builder, data: Value, axis: int, before: int, after: int) -> Any:
        """Return the source index along an axis for each index of the result."""
        length = data.dims[axis]
        if isinstance(length, int):
            return Pad(self.mode).evaluate(np, np.arange(length), np.array([before, after]))
        size = b.Gather(b.Shape(data), b.constant(np.array(axis)), axis=0)
        return self._indices_within(b, b.Range(b.constant(-before), b.Add(size, after), b.constant(1)), size)

    def _source_indices_at_run_time(self, b: Builder, data: Value, pads: Value, axis: int, index: int, count: int) -> Any:
        """Emit the source indices along ``axis`` (padded axis number ``index`` of ``count``) for pads computed at run time.

        In mode ``wrap``, crops are applied before padding.
        """
        vector = pads if pads.dtype == "i64" else b.Cast(pads, to=dtypes.i64)
        before, after = (b.Gather(vector, b.constant(np.array(position)), axis=0) for position in (index, index + count))
        size = b.Gather(b.Shape(data, output_type=dtypes.i64), b.constant(np.array(axis)), axis=0)
        if self.mode != "wrap":
            return self._indices_within(b, b.Range(b.Negative(before), b.Add(size, after), b.constant(1)), size)
        zero = b.constant(0, dtypes.i64)
        first, end = b.Maximum(b.Negative(before), zero), b.Add(size, b.Minimum(after, zero))
        kept = b.Maximum(b.Subtract(end, first), zero)
        begin, stop = b.Negative(b.Maximum(before, zero)), b.Add(kept, b.Maximum(after, zero))
        return b.Add(first, self._indices_within(b, b.Range(begin, stop, b.constant(1)), kept))

    def _indices_within(self, b: Builder, indices: Value, size: Value) -> Any:
        """Map indices, which may be outside an axis of ``size`` elements, to indices inside the axis by ``mode``."""
        last = b.Subtract(size, 1)
        match self.mode:
            case "edge":
                return b.Minimum(b.Maximum(indices, 0), last)
            case "wrap":
                return b.Mod(indices, size)
            case "symmetric":
                phase = b.Mod(indices, b.Multiply(size, 2))
                return b.Minimum(phase, b.Subtract(b.Subtract(b.Multiply(size, 2), 1), phase))
        phase = b.Mod(indices, b.Maximum(b.Multiply(last, 2), 1))
        return b.Subtract(last, b.Abs(b.Subtract(phase, last)))

    def _pads_of_all_axes(self, b: Builder, data: Value, pads: Value, rows: dict[int, tuple[Any, Any]]) -> Any:
        """Return the pads of all axes, which are 0 for the axes that ``axes`` does not contain."""
        indices = {axis: index for index, axis in enumerate(rows)}
        vector = pads if pads.dtype == "i64" or pads.constant is not None else b.Cast(pads, to=dtypes.i64)
        parts: list[Any] = []
        for side in (0, 1):
            for axis in range(len(data.dims)):
                pad = rows.get(axis, (0, 0))[side]
                position = side * len(rows) + indices.get(axis, 0)
                parts.append(pad if isinstance(pad, int) else b.Gather(vector, [position], axis=0))
        return join_sizes(b, parts)


def _zero(x: Array) -> Any:
    return "" if getattr(x.dtype, "kind", "") == "O" and not isinstance(x, symbolic.SymbolicArray) else 0


def _runs_of_pad(mode: str, size: int, before: int, after: int, target: int) -> Iterator[Run]:
    """Yield the runs of consecutive indices of one axis that a Pad copies."""
    if mode == "constant":
        start, stop = max(0, -before), min(size, size + after)
        if stop > start:
            yield Run(stop - start, start, 1, start + before)
        return
    if mode != "edge" and before + after > MAX_WINDOWS * (2 * size + 2):
        raise UnsupportedError("op.unsupported", f"a movement may have at most {MAX_WINDOWS} windows, this Pad needs more")
    indices = Pad(mode).evaluate(np, np.arange(size), np.array([before, after]))
    # A run ends at each index at which the step between source indices changes.
    steps = np.diff(indices)
    breaks = np.flatnonzero(np.diff(steps)) + 1
    if len(breaks) > 2 * MAX_WINDOWS:
        raise UnsupportedError("op.unsupported", f"a movement may have at most {MAX_WINDOWS} windows, this Pad needs more")
    index = 0
    while index < target:
        step = int(steps[index]) if index + 1 < target else 1
        if step in (-1, 0, 1) and index + 1 < target:
            following = np.searchsorted(breaks, index, side="right")
            end = int(breaks[following]) + 1 if following < len(breaks) else target
        else:
            step, end = 1, index + 1
        yield Run(end - index, int(indices[index]), step, index)
        index = end
