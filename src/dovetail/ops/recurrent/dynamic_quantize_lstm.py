"""LSTM with dynamically quantized matrix products: DynamicQuantizeLSTM."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.arrays import is_numpy
from dovetail.ops.quantization.integer_matmul_conv import DynamicQuantizeMatMul
from dovetail.ops.quantization.quantize_linear import dynamic_scale, quantize
from dovetail.ops.quantization.scales import as_columns
from dovetail.ops.recurrent.cell_math import ArrayBackend, Data, GraphBackend
from dovetail.ops.recurrent.layers import LSTM, HasShape

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class QuantizedMatrix(NamedTuple):
    """QuantizedMatrix holds quantized weights, scale and zero point, of all directions or of one."""

    codes: Data
    scale: Data
    point: Data

    def of(self, direction: int) -> QuantizedMatrix:
        return QuantizedMatrix(*(None if part is None else part[direction] for part in self))


class _KeepsIntegers:
    """_KeepsIntegers is a backend mixin that keeps weights quantized until a product is computed."""

    def widen(self, x: Data) -> Any:
        return x if isinstance(x, QuantizedMatrix) else super().widen(x)  # type: ignore[misc]

    def index(self, x: Data, i: int) -> Any:
        return x.of(i) if isinstance(x, QuantizedMatrix) else super().index(x, i)  # type: ignore[misc]

    def prepare_weights(self, weights: Data) -> Any:
        return weights


class _ExactWeights(NamedTuple):
    """_ExactWeights holds the weights minus the zero point in f64, which represents every partial sum exactly, and the scale."""

    matrix: Data
    scale: Data


class QuantizedArrayBackend(_KeepsIntegers, ArrayBackend):
    """QuantizedArrayBackend computes products with quantized weights as DynamicQuantizeMatMul does."""

    def prepare_weights(self, weights: Data) -> Any:
        """Convert numpy weights to f64 once for all time steps, because BLAS has no integer matrix product."""
        if not is_numpy(self.xp):
            return weights
        matrix = weights.codes.astype(np.float64)
        if weights.point is not None:
            matrix -= as_columns(self.xp, weights.point)
        return _ExactWeights(matrix, weights.scale)

    def matmul(self, x: Data, factor: Data) -> Any:
        if not isinstance(factor, _ExactWeights):
            return DynamicQuantizeMatMul().evaluate(self.xp, x, *factor)
        scale, point = dynamic_scale(self.xp, x)
        codes = quantize(self.xp, x / scale, point, dtypes.u8).astype(np.float64) - point
        # DynamicQuantizeMatMul accumulates in i32, which wraps around.
        sums = np.matmul(codes, factor.matrix).astype(np.int64).astype(np.int32)
        return sums.astype(np.float32) * (scale * as_columns(self.xp, factor.scale))


class _QuantizedGraphBackend(_KeepsIntegers, GraphBackend):
    def matmul(self, x: Data, factor: Data) -> Any:
        return self.b.DynamicQuantizeMatMul(x, *factor)


class DynamicQuantizeLSTM(
    LSTM,
    sig="x: f32, w: I1, r: I2, b?: f32, sequence_lens?: I, initial_h?: f32, initial_c?: f32, p?: f32, w_scale: f32, "
    "w_zero_point: I1, r_scale: f32, r_zero_point: I2 -> y: f32, y_h: f32, y_c: f32",
    onnx=(
        "com.microsoft:DynamicQuantizeLSTM-1(x, w, r, b?, sequence_lens?, initial_h?, initial_c?, p?, w_scale, w_zero_point, "
        "r_scale, r_zero_point; hidden_size?, direction=forward, activations~{Affine:affine,Elu:elu,HardSigmoid:hardsigmoid,"
        "LeakyRelu:leakyrelu,Relu:relu,ScaledTanh:scaledtanh,Sigmoid:sigmoid,Softplus:softplus,Softsign:softsign,Tanh:tanh,"
        "ThresholdedRelu:thresholdedrelu}?, activation_alpha?, activation_beta?, clip?, input_forget=0 "
        "| layout=sequence_first, summed_bias=false, weights_format=iofc)"
    ),
):
    """DynamicQuantizeLSTM computes LSTM with the matrix products of DynamicQuantizeMatMul.

    ``x`` is quantized once for all time steps, the state h at each time step. ``w`` [directions, input, 4 * hidden] and ``r``
    [directions, hidden, 4 * hidden] are quantized; scales and zero points have one number per direction, or one per column of a
    direction's matrix. ``sequence_lens`` is refused, because values after the end of a row would change the quantization of all
    rows. Source: com.microsoft DynamicQuantizeLSTM, as in onnxruntime.
    """

    def sizes_of(self, *xs: HasShape | None) -> dict[str, Any]:
        if xs[4] is not None:
            raise UnsupportedError("op.unsupported", "DynamicQuantizeLSTM with sequence_lens is not supported")
        return super().sizes_of(xs[0], *map(_transposed_shape_of, xs[1:3]), *xs[3:8])

    def evaluate(self, xp: Namespace, *xs: Array | None) -> Any:
        return self._compute(QuantizedArrayBackend(xp), self.sizes_of(*xs), *_group_weights(xs))

    def decompose(self, b: Builder, *xs: Value | None) -> Any:
        sizes = self.sizes_of(*xs)
        self.check_hidden_size(sizes)
        with b:
            return list(self._compute(_QuantizedGraphBackend(b), sizes, *_group_weights(xs)))

    def vjp(self, b: Builder, g: tuple[Value | None, ...], y: tuple[Value, ...], /, *xs: Value | None) -> Any:
        raise UnsupportedError("grad.op", "quantization has no gradient")


def _transposed_shape_of(weights: Data) -> Any:
    """Return an object with the weights' shape in the order of LSTM: the last two axes swapped."""
    shape = weights.shape
    return SimpleNamespace(shape=None if shape is None or len(shape) != 3 else (shape[0], shape[2], shape[1]))


def _group_weights(xs: Sequence[Data]) -> list[Any]:
    """Return the inputs in the order of LSTM, with weights, scale and zero point joined in a QuantizedMatrix."""
    x, w, r, bias, lengths, h, c, peephole, w_scale, w_point, r_scale, r_point = xs
    return [x, QuantizedMatrix(w, w_scale, w_point), QuantizedMatrix(r, r_scale, r_point), bias, lengths, h, c, peephole]
