"""Elements around a tensor, or fewer of them: Pad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, Windows
from dovetail.ir.types import INT64_MAX, View, axes_in, static
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
from dovetail.ops.tensor.slice import MOST_WINDOWS, Piece, windows_of

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
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
    """``x`` with ``pads[i]`` elements before and ``pads[n + i]`` after it along ``axes[i]``, n axes in all; negative pads crop.

    ``pads`` is a vector, ``axes`` are all when left out. ``mode`` says what the new elements are: ``constant``: ``value`` (0,
    False or the empty text when left out); ``edge``: the nearest one; ``reflect`` and ``symmetric``: the mirrored ones, without
    and with the border; ``wrap``: those of the other end. A crop comes before wrapping; in the other modes it does not hide
    elements from the other side. A size below 0 is 0. Sources: ONNX Pad 1 to 25; OpenVINO Pad-1, -12; numpy.pad.
    """

    mode: str = "constant"

    def validate(self) -> None:
        if self.mode not in MODES:
            raise RuleError("pad.mode", f"{self.mode!r} is none of {', '.join(MODES)}")

    def shape(self, data: View, pads: View, constant_value: View | None = None, axes: View | None = None) -> Any:
        if constant_value is not None and constant_value.shape is not None and len(constant_value.shape) > 1:
            raise RuleError("pad.value", f"the value should be a scalar, not of rank {len(constant_value.shape)}")
        if data.shape is None:
            length_of_vector(pads, "pads")
            return None
        rows = self._rows(data, pads, axes)
        if rows is None:
            return shape_of_rank(len(data.shape))
        sizes: list[Any] = list(data.shape)
        for axis, (before, after) in rows.items():
            known = before is not None and after is not None
            sizes[axis] = symbolic.maximum(sizes[axis] + before + after, 0) if known else None
            self._check_border(axis, data.shape[axis], before, after)
        return tuple(sizes)

    def _check_border(self, axis: int, size: Any, before: Any, after: Any) -> None:
        added = [pad for pad in (before, after) if isinstance(pad, int) and pad > 0]
        if self.mode != "constant" and added and isinstance(size, int) and size == 0:
            raise RuleError("pad.empty", f"axis {axis} of size 0 has nothing to pad with in mode {self.mode}")

    def _rows(self, data: View, pads: View, axes: View | None) -> dict[int, tuple[Any, Any]] | None:
        """What comes before and after, by axis; None where it is not known which axes are padded."""
        rank = len(data.dims)
        length = length_of_vector(pads, "pads")
        count = rank if axes is None else length_of_vector(axes, "axes")
        if isinstance(length, int) and isinstance(count, int) and length != 2 * count:
            raise RuleError("pad.pads", f"{length} pads for {count} axes, where {2 * count} are needed")
        places = list(range(rank)) if axes is None else integers_of(axes)
        if places is None:
            return None
        wanted = elements_of(pads) or [None] * (2 * len(places))
        found = axes_in(places, rank)
        return {axis: (wanted[index], wanted[len(found) + index]) for index, axis in enumerate(found)}

    def evaluate(
        self, xp: Namespace, data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None
    ) -> Any:
        self.shape(view_of(data), host_view_of(pads), None, host_view_of(axes))
        rows = self._rows(view_of(data), host_view_of(pads), host_view_of(axes)) or {}
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
            back = [b.Pad(g, b.Negative(pads), None, axes), None]
            if constant_value is None:
                return [*back, *([None, *rest] if rest else [])]
            one = b.constant(np.ones((), dtype=data.dtype.numpy), data.dtype)
            new = b.Pad(zeros_like(b, data), pads, one, axes)
            slope = b.ReduceSum(b.Multiply(g, new), keepdims=False)
            return [*back, b.Reshape(slope, list(static(constant_value.shape))), *rest]
        from dovetail.ir.builder import shape_value
        from dovetail.ops.tensor.scatter import added_back

        rows = None if data.shape is None else self._rows(data, pads, axes)
        if rows is None:
            raise UnsupportedError("grad.axes", "the gradient needs to know the axes that are padded")
        for index, (axis, pair) in enumerate(rows.items()):
            if pair == (0, 0):
                continue
            mine = list(pair) if None not in pair else b.Gather(pads, [index, len(rows) + index], axis=0)
            if isinstance(mine, list) and not all(isinstance(pad, int) for pad in mine):
                mine = b.Gather(pads, [index, len(rows) + index], axis=0)
            # What the mode makes of the indices along the axis says where every element comes from.
            indices = b.Pad(indices_of_axis(b, data, axis), mine, mode=self.mode)
            g = added_back(b, g, indices, axis, shape_value(b, data, [axis]))
        return [g, None, *([None] if constant_value is not None or rest else []), *rest]

    def windows(self, data: View, pads: View, constant_value: View | None = None, axes: View | None = None) -> Windows:
        shape, target = static(data.shape), static(self.shape(data, pads, constant_value, axes))
        rows = self._rows(data, pads, axes)
        fill: Any = 0
        if constant_value is not None:
            fill_value = getattr(constant_value, "constant", None)
            if fill_value is None:
                raise UnsupportedError("windows.fill", "the value around the tensor is not known")
            fill = fill_value.reshape(()).item()
        pieces = []
        for axis, size in enumerate(shape):
            before, after = (rows or {}).get(axis, (0, 0))
            pieces.append(list(_pieces(self.mode, size, before, after, target[axis])))
        return Windows(tuple(windows_of(pieces, shape, target)), fill if self.mode == "constant" else None)

    def decompose(
        self, b: Builder, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Any:
        """With pads for every axis; then gathered along each axis. None where that is no help."""
        rows = None if data.shape is None else self._rows(data, pads, axes)
        if rows is None:
            return None
        if axes is not None:
            return b.apply("Pad", data, self._everywhere(b, data, pads, rows), constant_value, mode=self.mode)
        if self.mode == "constant":
            return None
        for axis, pair in rows.items():
            if pair == (0, 0):
                continue
            if not all(isinstance(pad, int) for pad in pair):
                raise UnsupportedError("pad.mode", f"mode {self.mode} along axis {axis} by pads that only run time knows")
            if self.mode == "wrap" and min(pair) < 0:
                data = b.Slice(data, [max(-pair[0], 0)], [min(pair[1], 0) or INT64_MAX], [axis])
                pair = (max(pair[0], 0), max(pair[1], 0))
            data = b.Gather(data, self._places(b, data, axis, *pair), axis=axis)
        return data

    def _places(self, b: Builder, data: Value, axis: int, before: int, after: int) -> Any:
        """The index along an axis that each place of the result shows."""
        length = data.dims[axis]
        if isinstance(length, int):
            return Pad(self.mode).evaluate(np, np.arange(length), np.array([before, after]))
        size = b.Gather(b.Shape(data), b.constant(np.array(axis)), axis=0)
        places = b.Range(b.constant(-before), b.Add(size, after), b.constant(1))
        last = b.Subtract(size, 1)
        match self.mode:
            case "edge":
                return b.Minimum(b.Maximum(places, 0), last)
            case "wrap":
                return b.Mod(places, size)
            case "symmetric":
                turn = b.Mod(places, b.Multiply(size, 2))
                return b.Minimum(turn, b.Subtract(b.Subtract(b.Multiply(size, 2), 1), turn))
        turn = b.Mod(places, b.Maximum(b.Multiply(last, 2), 1))
        return b.Subtract(last, b.Abs(b.Subtract(turn, last)))

    def _everywhere(self, b: Builder, data: Value, pads: Value, rows: dict[int, tuple[Any, Any]]) -> Any:
        """The pads of all axes, 0 for those that are not named."""
        places = {axis: index for index, axis in enumerate(rows)}
        vector = pads if pads.dtype == "i64" or pads.constant is not None else b.Cast(pads, to=dtypes.i64)
        parts: list[Any] = []
        for side in (0, 1):
            for axis in range(len(data.dims)):
                pad = rows.get(axis, (0, 0))[side]
                at = side * len(rows) + places.get(axis, 0)
                parts.append(pad if isinstance(pad, int) else b.Gather(vector, [at], axis=0))
        return join_sizes(b, parts)


def _zero(x: Array) -> Any:
    return "" if getattr(x.dtype, "kind", "") == "O" and not isinstance(x, symbolic.Values) else 0


def _pieces(mode: str, size: int, before: int, after: int, target: int) -> Iterator[Piece]:
    """What of an axis goes where: with every mode but ``constant`` the runs of indices that the mode makes."""
    if mode == "constant":
        start, stop = max(0, -before), min(size, size + after)
        if stop > start:
            yield Piece(stop - start, start, 1, start + before)
        return
    if mode != "edge" and before + after > MOST_WINDOWS * (2 * size + 2):
        raise UnsupportedError("windows.many", f"the data lies in more than {MOST_WINDOWS} pieces")
    indices = Pad(mode).evaluate(np, np.arange(size), np.array([before, after]))
    steps = np.diff(indices)
    turns = np.flatnonzero(np.diff(steps)) + 1
    if len(turns) > 2 * MOST_WINDOWS:
        raise UnsupportedError("windows.many", f"the data lies in more than {MOST_WINDOWS} pieces")
    place = 0
    while place < target:
        step = int(steps[place]) if place + 1 < target else 1
        if step in (-1, 0, 1) and place + 1 < target:
            turn = np.searchsorted(turns, place, side="right")
            end = int(turns[turn]) + 1 if turn < len(turns) else target
        else:
            step, end = 1, place + 1
        yield Piece(end - place, int(indices[place]), step, place)
        place = end
