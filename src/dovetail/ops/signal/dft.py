"""Discrete Fourier transforms: DFT, RDFT, IRDFT. The last axis holds the real and the imaginary part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, axes_in, is_static, static
from dovetail.ops.shape_values import elements_of, host_view_of, integers_of, is_size, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_MATRIX_LIMIT = 1 << 20
"""Largest number of elements of a matrix to which the transform of an axis is decomposed."""


class _Transform(Op):
    """_Transform is the base of DFT, RDFT and IRDFT, which transform ``axes`` one after the other.

    Each axis is cut or zero-padded to ``signal_size`` elements before the transform; -1, the default, keeps the size
    (2 * (n - 1) for the real result of IRDFT).
    """

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a transform")

    def plan(self, shape: Sequence[Any], axes: View, lengths: View | None, onesided_input: bool) -> list[tuple[int, Any]] | None:
        """Return pairs of an axis and its transform length; None if the axes are not known."""
        count = length_of_vector(axes, "axes")
        if lengths is not None:
            length_count = length_of_vector(lengths, "lengths", scalar=True)
            if count is not None and length_count is not None and symbolic.equal(count, length_count) is False:
                raise RuleError(
                    "attribute.length", f"signal_size ({length_count} elements) must have one element per axis ({count})"
                )
        known_axes = integers_of(axes)
        if known_axes is None:
            return None
        if not known_axes:
            raise RuleError("attribute.length", "a transform needs at least 1 axis, got 0")
        indices = axes_in(known_axes, len(shape))
        signal_sizes: list[Any] | None = [-1] * len(indices) if lengths is None else elements_of(lengths)
        if signal_sizes is None:
            return [(axis, None) for axis in indices]
        plan: list[tuple[int, Any]] = []
        for index, (axis, length) in enumerate(zip(indices, signal_sizes, strict=True)):
            if isinstance(length, symbolic.Dim):
                # A symbolic length that may be negative may be -1, which means the size of the axis.
                plan.append((axis, length if is_size(length) else None))
                continue
            if length < -1 or length == 0:
                raise RuleError("attribute.range", f"signal_size must be at least -1, got {length}")
            is_half = onesided_input and index == len(indices) - 1
            size = 2 * (shape[axis] - 1) if is_half else shape[axis]
            if length == -1 and is_half and isinstance(size, int) and size < 1:
                raise RuleError("attribute.range", f"the length of a transform must be at least 1, got {size}")
            plan.append((axis, size if length == -1 else length))
        return plan


def _by_matrices(b: Builder, op: DFT, x: Value, axes: Value, lengths: Value | None) -> Any:
    """Emit a MatMul for each axis by the matrix of the axis's transform, whose rows are the transforms of unit vectors."""
    shape = x.shape
    if (
        shape is None
        or not is_static(x.type)
        or integers_of(axes) is None
        or (lengths is not None and integers_of(lengths) is None)
    ):
        raise UnsupportedError("type.unknown", "the decomposition needs static sizes, axes and signal_size")
    plan = op.plan(shape[:-1], axes, lengths, op.onesided and op.inverse)
    assert plan is not None
    rank = len(shape)
    last = plan[-1][0]
    steps = [(axis, length, False) for axis, length in plan[:-1]]
    one = (last, plan[-1][1], op.onesided)
    # The one-sided axis comes first in the forward transform and last in the inverse transform.
    for axis, length, onesided in [*steps, one] if op.inverse else [one, *reversed(steps)]:
        sizes = list(static(x.shape))
        rows = sizes[axis] * sizes[-1]
        columns = 2 * (length // 2 + 1) if onesided and not op.inverse else length if onesided else 2 * length
        if rows * columns > _MATRIX_LIMIT:
            text = f"the matrix of the transform must have at most {_MATRIX_LIMIT} elements, got {rows * columns}"
            raise UnsupportedError("type.unknown", text)
        refuse_table((rows, rows), 8, "the unit vectors of a transform")
        unit = np.eye(rows).reshape(rows, sizes[axis], sizes[-1])
        matrices = _transform(np, unit, [(1, int(length))], op.inverse, onesided)
        order = [*(other for other in range(rank - 1) if other != axis), axis, rank - 1]
        moved = b.Reshape(b.Transpose(x, order), [*(sizes[other] for other in order[:-2]), rows], special_zero=False)
        matrix = b.constant(matrices.reshape(rows, math.prod(matrices.shape[1:])).astype(x.dtype.numpy), x.dtype)
        y = b.Reshape(b.MatMul(moved, matrix), [*(sizes[other] for other in order[:-2]), *matrices.shape[1:]], special_zero=False)
        x = b.Transpose(y, [order.index(other) for other in range(rank)])
    return x


def _transform(xp: Namespace, x: Array, plan: list[tuple[int, int]], inverse: bool, onesided: bool) -> Any:
    """Compute the transform in f64 for f64, otherwise in f32. Only numpy arrays may have lengths of 0."""
    wide = arrays.cast(xp, x, dtypes.f64 if arrays.element(x) == "f64" else dtypes.f32)
    signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    (last, length), steps = plan[-1], plan[:-1]
    full = xp.fft.ifft if inverse else xp.fft.fft
    if onesided and not inverse:
        signal = _fft(xp.fft.rfft, signal, length, last)
    for axis, size in steps if inverse else reversed(steps):
        signal = _fft(full, signal, size, axis)
    if onesided and inverse:
        if not signal.shape[last]:
            # numpy's irfft of 0 frequencies reads uninitialized memory.
            signal = np.zeros((*signal.shape[:last], 1, *signal.shape[last:][1:]), signal.dtype)
        return xp.fft.irfft(signal, n=length, axis=last)[..., None]
    if not onesided:
        signal = _fft(full, signal, length, last)
    return xp.stack([xp.real(signal), xp.imag(signal)], axis=-1)


def _fft(function: Callable[..., Any], signal: Array, length: int, axis: int) -> Any:
    """Apply an FFT along ``axis``. Length 0, which numpy refuses, gives empty sums: no frequency, or one 0 from rfft."""
    if length:
        return function(signal, n=length, axis=axis)
    frequencies = 1 if function is np.fft.rfft else 0
    return np.zeros((*signal.shape[:axis], frequencies, *signal.shape[axis + 1 :]), np.result_type(signal, np.complex64))


class DFT(
    _Transform,
    sig="x: F, axes!: I, signal_size?!: I1 -> y: F",
    openvino=(
        "DFT-7(x, axes, signal_size? | inverse=false, onesided=false)",
        "IDFT-7(x, axes, signal_size? | inverse=true, onesided=false)",
    ),
):
    """Compute the discrete Fourier transform over each of ``axes``, or with ``inverse`` its inverse.

    Element k of the result is ``sum(x[n] * exp(-2 pi i k n / N))``, or with ``inverse`` ``sum(x[n] * exp(2 pi i k n / N)) / N``.
    ``axes`` are indices among all axes of ``x`` but the last. The last axis holds the real and the imaginary part, or only the
    real part.

    With ``onesided`` a real ``x`` gives the first N // 2 + 1 frequencies along the last of ``axes``; these frequencies determine
    all others. With ``onesided`` and ``inverse`` ``x`` holds these frequencies, and the result is real, with one element in the
    last axis. ``signal_size``: each axis is cut or zero-padded to that many elements before the transform; -1 keeps the size (2 *
    (n - 1) for n frequencies of one side).
    Sources: ONNX DFT 17, 20; OpenVINO DFT-7, IDFT-7.
    """

    inverse: bool = False
    onesided: bool = False

    def shape(self, x: View, axes: View, lengths: View | None = None) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            raise RuleError("shape.rank", f"rank must be at least 2 (signal and complex parts), got {len(x.shape)}")
        parts = x.shape[-1]
        part_counts = (1, 2) if not self.onesided else (2,) if self.inverse else (1,)
        if all(symbolic.equal(parts, count) is False for count in part_counts):
            expected = " or ".join(map(str, part_counts))
            raise RuleError("shape.disagree", f"size of the last axis (complex parts) must be {expected}, got {parts}")
        shape: list[Any] = list(x.shape[:-1])
        plan = self.plan(shape, axes, lengths, self.onesided and self.inverse)
        if plan is None:
            return (*[None] * len(shape), 1 if self.onesided and self.inverse else 2)
        for axis, length in plan:
            shape[axis] = length
        if self.onesided and not self.inverse:
            last, length = plan[-1]
            shape[last] = None if length is None else length // 2 + 1
        return (*shape, 1 if self.onesided and self.inverse else 2)

    def evaluate(self, xp: Namespace, x: Array, axes: Array, lengths: Array | None = None) -> Any:
        axes_view: Any = host_view_of(axes)
        plan = self.plan(x.shape[:-1], axes_view, host_view_of(lengths), self.onesided and self.inverse)
        assert plan is not None
        lengths_of_axes = [(axis, int(length)) for axis, length in plan]
        if not arrays.is_numpy(xp) and 0 not in x.shape and all(length for _, length in lengths_of_axes):
            return xp.astype(_transform(xp, x, lengths_of_axes, self.inverse, self.onesided), x.dtype)
        data = arrays.to_numpy(x)
        y = _transform(np, data, lengths_of_axes, self.inverse, self.onesided)
        return arrays.from_numpy(xp, y.astype(data.dtype), x)

    def decompose(self, b: Builder, x: Value, axes: Value, lengths: Value | None = None) -> Any:
        return _by_matrices(b, self, x, axes, lengths)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axes: Value, lengths: Value | None = None) -> Any:
        """Apply the conjugate transform per axis, multiply (``inverse``: divide) by N, and cut or pad to the size of ``x``."""
        plan = self.plan(x.dims[:-1], axes, lengths, self.onesided and self.inverse)
        if plan is None:
            raise UnsupportedError("constant.needed", "the gradient needs axes known before run time")
        wide = b.Cast(g, to=dtypes.f32) if x.dtype.bits < 32 else g
        order = list(range(len(plan)))
        # The gradient visits the axes in reverse order of the transform.
        for index in order if not self.inverse else reversed(order):
            is_half = self.onesided and index == order[-1]
            wide = self._step_back(b, wide, x, plan[index], _length_at(b, lengths, index), is_half)
        if symbolic.equal(x.dims[-1], 1) is True and not (self.onesided and not self.inverse):
            wide = b.Slice(wide, [0], [1], [-1])
        gradient = b.Cast(wide, to=x.dtype) if x.dtype.bits < 32 else wide
        return [gradient, *(None for item in (axes, lengths) if item is not None)]

    def _step_back(self, b: Builder, g: Value, x: Value, step: tuple[int, Any], signal_size: Any, is_half: bool) -> Any:
        axis, length = step
        size = b.Gather(b.Shape(x, output_type=dtypes.i64), b.constant(axis), axis=0)
        if isinstance(length, int):
            count = b.constant(length)
        elif is_half and not self.inverse:
            count = size if signal_size is None else b.Where(b.Equal(signal_size, -1), size, signal_size)
        else:
            count = b.Gather(b.Shape(g, output_type=dtypes.i64), b.constant(axis), axis=0)
        axes, divisor = b.constant([axis]), b.Cast(count, to=g.dtype)
        if not self.inverse:
            g = b.Multiply(b.add(DFT(inverse=True), g, axes, count)[0], divisor)
            g = b.Slice(g, [0], [1], [-1]) if is_half else g
        else:
            g = b.Divide(b.add(DFT(onesided=is_half), g, axes, count)[0], divisor)
            if is_half:
                g = b.Multiply(g, _frequency_counts(b, count, g, axis))
                length = None if length is None else length // 2 + 1
                count = b.Add(b.Divide(count, 2), 1)
        return _resize_axis(b, g, axis, (length, count), (x.dims[axis], size))


def _length_at(b: Builder, lengths: Value | None, index: int) -> Any:
    """Return the transform length at ``index`` as a scalar; None if there are no lengths."""
    if lengths is None:
        return None
    sizes = lengths if lengths.dtype == "i64" else b.Cast(lengths, to=dtypes.i64)
    return sizes if lengths.shape == () else b.Gather(sizes, b.constant(index), axis=0)


def _frequency_counts(b: Builder, count: Value, like: Value, axis: int) -> Any:
    """Return the number of times that each one-sided frequency occurs among ``count`` frequencies.

    The number is 1 for the first frequency and for frequency count / 2, otherwise 2.
    """
    frequency = b.Range(0, b.Add(b.Divide(count, 2), 1), 1, output_type=dtypes.i64)
    is_single = b.Or(b.Equal(frequency, 0), b.Equal(b.Multiply(frequency, 2), count))
    times = b.Where(is_single, b.constant(1.0, like.dtype), b.constant(2.0, like.dtype))
    return b.Unsqueeze(times, [*range(1, len(like.dims) - axis)])


def _resize_axis(b: Builder, g: Value, axis: int, source: tuple[Any, Any], target: tuple[Any, Any]) -> Any:
    """Cut or pad ``g`` along an axis from ``source`` to ``target``, which are pairs of a static size and a run-time size."""
    (source_size, count), (target_size, size) = source, target
    if source_size is not None and symbolic.equal(source_size, target_size) is True:
        return g
    padding = b.Reshape(b.Maximum(b.Subtract(size, count), 0), [1])
    padded = b.Pad(g, b.Concat([0], padding, axis=0), None, [axis])
    return b.Slice(padded, [0], b.Reshape(size, [1]), [axis])


class RDFT(_Transform, sig="x: F, axes!: I, signal_size?!: I1 -> y: F", openvino="RDFT-9(x, axes, signal_size?)"):
    """Compute the one-sided DFT of real numbers, [..., 2] with real and imaginary part. Source: OpenVINO RDFT-9."""

    def shape(self, x: View, axes: View, lengths: View | None = None) -> Any:
        if x.shape is None:
            return None
        plan = self.plan(x.shape, axes, lengths, False)
        if plan is None:
            return (*[None] * len(x.shape), 2)
        shape: list[Any] = list(x.shape)
        for axis, length in plan:
            shape[axis] = length
        shape[plan[-1][0]] = None if plan[-1][1] is None else plan[-1][1] // 2 + 1
        return (*shape, 2)

    def decompose(self, b: Builder, x: Value, axes: Value, lengths: Value | None = None) -> Any:
        signal_size = () if lengths is None else (lengths,)
        return b.add(DFT(onesided=True), b.Unsqueeze(x, [-1]), axes, *signal_size)[0]


class IRDFT(_Transform, sig="x: F, axes!: I, signal_size?!: I1 -> y: F", openvino="IRDFT-9(x, axes, signal_size?)"):
    """Compute the real inverse of a one-sided DFT ``x`` [..., 2]. Source: OpenVINO IRDFT-9."""

    def shape(self, x: View, axes: View, lengths: View | None = None) -> Any:
        shape = DFT(True, True).shape(x, axes, lengths)
        return None if shape is None else shape[:-1]

    def decompose(self, b: Builder, x: Value, axes: Value, lengths: Value | None = None) -> Any:
        signal_size = () if lengths is None else (lengths,)
        return b.Squeeze(b.add(DFT(True, True), x, axes, *signal_size)[0], [-1])


def padded_lengths(shape: Shape, plan: list[tuple[int, Any]]) -> list[int] | None:
    """Return the end padding of each axis; None if a padding is not known, or if no axis needs padding."""
    padding = [0] * len(shape)
    for axis, length in plan:
        if not isinstance(shape[axis], int) or not isinstance(length, int):
            return None
        padding[axis] = max(length - shape[axis], 0)
    return padding if math.fsum(padding) else None
