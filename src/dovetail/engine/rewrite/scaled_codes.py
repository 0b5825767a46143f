"""ScaledCodes: constants ``(number - point) * scale`` of few bits, recognized in the operators that compute them.

These are DequantizeLinear; Cast, Subtract, Multiply and Reshape, as OpenVINO's models have them; and FakeQuantize of a constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.ir import arrays, dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import Shape, axis_in
from dovetail.ops.elementwise.binary import Multiply, Subtract
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, FakeQuantize
from dovetail.ops.tensor.reshape import Reshape

_FLOATS = ("f16", "bf16", "f32")


class ScaledCodes(NamedTuple):
    """ScaledCodes holds a constant ``(number - points) * scales``, whose numbers have the codes ``storage``, packed or an array.

    Along each axis, scales and points have 1 element, one for each element of the codes, or, along ``block_axis``, one for each
    block of ``block`` elements. Before a Reshape that merges the axes of blocks, the codes have one axis more. ``rounding`` is
    the type to which the operators round each element once, f32 or narrower; None where they round in another way.
    """

    storage: Array | PackedElements
    dtype: DType
    scales: Array
    points: Array | None = None
    block_axis: int = -1
    block: int = 0
    rounding: DType | None = dtypes.f32

    @property
    def codes(self) -> Array:
        """The codes, one per numpy element."""
        return self.storage.unpack() if isinstance(self.storage, PackedElements) else self.storage


def weights_of(value: Value, *, reads_fake_quantize: bool = False) -> ScaledCodes | None:
    """Return the weights that ``value`` is computed from, or None if it is no constant of few bits with scales.

    ``reads_fake_quantize``: FakeQuantize of a constant has codes too, where its elements are exactly ``(number - points) *
    scales``.
    """
    node = value.node
    if node is None:
        return None
    if value.storage is not None:
        return _codes_of(value, value.dtype) if value.dtype.name in _FLOATS else None
    match node.op, node.inputs:
        case Cast(), [Value() as source] if value.dtype.name in _FLOATS:
            if source.storage is not None:
                return _codes_of(source, value.dtype)
            weights = weights_of(source, reads_fake_quantize=reads_fake_quantize)
            if weights is None or value.dtype in ("f32", weights.rounding):
                return weights
            return weights._replace(rounding=None)
        case Multiply(), [Value() as first, Value() as second]:
            for one, other in ((first, second), (second, first)):
                factor = _numbers_of(other)
                weights = None if factor is None else weights_of(one)
                if weights is not None and factor is not None:
                    return _with_scales(weights, factor)
        case Subtract(), [Value() as first, Value() as second]:
            weights, points = weights_of(first), _numbers_of(second)
            if weights is not None and points is not None and weights.points is None and bool(np.all(weights.scales == 1)):
                # bf16 has 8 bits, and does not represent all differences of two numbers of 8 bits.
                is_exact = value.dtype != "bf16" or (weights.dtype.is_integer and weights.dtype.bits < 8)
                return _align(weights._replace(points=points, rounding=weights.rounding if is_exact else None))
        case DequantizeLinear(), [Value() as codes, Value() as scale, *rest] if codes.storage is not None:
            return _weights_of_dequantize(node.op, codes, scale, rest[0] if rest else None)
        case Reshape(), [Value() as source, Value()] if value.shape is not None:
            weights = weights_of(source, reads_fake_quantize=reads_fake_quantize)
            return None if weights is None else _reshape(weights, value.shape)
        case FakeQuantize(), [Value() as source, *limits] if reads_fake_quantize:
            numbers, bounds = _numbers_of(source), [_numbers_of(limit) for limit in limits if limit is not None]
            if numbers is not None and value.dtype == "f32" and all(bound is not None for bound in bounds):
                return _weights_of_fake_quantize(node.op, numbers, [bound for bound in bounds if bound is not None])
    return None


def _codes_of(source: Value, rounding: DType) -> ScaledCodes | None:
    storage = source.storage
    assert storage is not None
    is_small = source.dtype.bits <= 8 or source.dtype.name in ("f16", "bf16")
    ones = np.ones((1,) * storage.ndim, np.float32)
    return ScaledCodes(storage, source.dtype, ones, rounding=rounding) if is_small and storage.ndim else None


def _numbers_of(value: Value) -> Array | None:
    """Return a constant, or a cast of one, as f32."""
    rounding = value.dtype
    if value.constant is None and value.node is not None and isinstance(value.node.op, Cast):
        value = value.node.input(0)
    if value.constant is None or value.dtype.name == "string" or not rounding.is_float:
        return None
    found: Array = arrays.cast(np, np.asarray(value.constant), rounding, value.dtype)
    return arrays.cast(np, found, dtypes.f32, rounding)


def _with_scales(weights: ScaledCodes, factor: Array) -> ScaledCodes | None:
    if weights.block or not bool(np.all(weights.scales == 1)):
        return None
    return _align(weights._replace(scales=factor))


def _align(weights: ScaledCodes) -> ScaledCodes | None:
    """Return the weights with scales and points of as many axes as the codes; None if these do not broadcast to the codes."""
    rank = weights.storage.ndim
    full: list[Array] = []
    for array in (weights.scales, *([] if weights.points is None else [weights.points])):
        if array.ndim > rank:
            return None
        full.append(array.reshape((1,) * (rank - array.ndim) + array.shape))
        if any(size not in (1, own) for size, own in zip(full[-1].shape, weights.storage.shape, strict=True)):
            return None
    return weights._replace(scales=full[0], points=full[1] if full[1:] else None)


def _weights_of_dequantize(op: DequantizeLinear, codes: Value, scale: Value, zero_point: Value | None) -> ScaledCodes | None:
    storage, factors, points = codes.storage, _numbers_of(scale), None
    if storage is None or storage.ndim == 0 or factors is None or codes.dtype.bits > 8:
        return None
    if zero_point is not None:
        if zero_point.constant is None:
            return None
        points = arrays.cast(np, np.asarray(zero_point.constant), dtypes.f32, zero_point.dtype)
    rounding = op.output_dtype or scale.dtype
    if rounding == "f64" or scale.dtype == "f64":
        return None
    if op.block_size:
        axis = axis_in(op.axis or 0, storage.ndim)
        return ScaledCodes(storage, codes.dtype, factors, points, axis, op.block_size, rounding)
    if factors.size != 1:
        shape = [1] * storage.ndim
        shape[axis_in(op.axis or 0, storage.ndim)] = -1
        factors, points = factors.reshape(shape), None if points is None else points.reshape(shape)
    elif points is not None:
        factors, points = factors.reshape(()), points.reshape(())
    return _align(
        ScaledCodes(storage, codes.dtype, factors.reshape(()) if factors.size == 1 else factors, points, rounding=rounding)
    )


def _weights_of_fake_quantize(op: FakeQuantize, numbers: Array, bounds: list[Array]) -> ScaledCodes | None:
    """Return the codes of FakeQuantize of ``numbers``; None if the elements of the result are no codes with scales, exactly."""
    if op.levels > 256 or any(bound.ndim > numbers.ndim for bound in bounds) or not numbers.ndim:
        return None
    steps, bits = op.levels - 1, next(bits for bits in (2, 4, 8) if op.levels <= 2**bits)
    shapes = [(1,) * (numbers.ndim - bound.ndim) + bound.shape for bound in bounds]
    output_low, output_high = (
        bound.astype(np.float64).reshape(shape) for bound, shape in list(zip(bounds, shapes, strict=True))[2:]
    )
    with np.errstate(all="ignore"):
        scales = ((output_high - output_low) / steps).astype(np.float32)
        offsets = np.rint(-output_low / scales)
        elements = op.evaluate(np, numbers, *bounds)
        codes = np.rint(elements / scales.astype(np.float64) + offsets)
        is_inside = np.all((codes >= 0) & (codes <= steps)) and np.all((offsets >= 0) & (offsets <= steps))
        if not is_inside or not np.array_equal((codes - offsets).astype(np.float32) * scales, elements):
            return None
    half = 2 ** (bits - 1)
    if np.all(offsets == offsets.flat[0]) and codes.max(initial=0) - offsets.flat[0] < half and offsets.flat[0] <= half:
        signed = dtypes.dtype(f"i{bits}")
        return ScaledCodes((codes - offsets.flat[0]).astype(np.int8).astype(signed.numpy), signed, scales)
    unsigned = dtypes.dtype(f"u{bits}")
    points = offsets.astype(np.float32)
    return _align(ScaledCodes(codes.astype(np.uint8).astype(unsigned.numpy), unsigned, scales, points))


def _reshape(weights: ScaledCodes, shape: Shape) -> ScaledCodes | None:
    """Return weights in which two axes are merged, where scales and points have 1 element along the inner one."""
    sizes = weights.storage.shape
    if tuple(shape) == sizes:
        return weights
    if len(shape) != len(sizes) - 1 or weights.block:
        return None
    parameters = [weights.scales, *([] if weights.points is None else [weights.points])]
    for axis in reversed(range(len(shape))):
        inner = axis + 1
        merged = (*sizes[:axis], sizes[axis] * sizes[inner], *sizes[inner + 1 :])
        if tuple(shape) != merged or any(array.shape[inner] != 1 for array in parameters):
            continue
        storage, squeezed = weights.storage.reshape(merged), [array.squeeze(inner) for array in parameters]
        if any(array.shape[axis] != 1 for array in squeezed):
            squeezed = [np.broadcast_to(array, (*array.shape[:axis], sizes[axis], *array.shape[inner:])) for array in squeezed]
            weights = weights._replace(block_axis=axis, block=sizes[inner])
        return weights._replace(storage=storage, scales=squeezed[0], points=squeezed[1] if squeezed[1:] else None)
    return None
