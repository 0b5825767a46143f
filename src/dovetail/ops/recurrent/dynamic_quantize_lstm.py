"""A recurrent layer whose products are products of integers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dovetail import dtypes
from dovetail.arrays import is_numpy
from dovetail.errors import UnsupportedError
from dovetail.ops.quantization.integer_matmul_conv import DynamicQuantizeMatMul
from dovetail.ops.quantization.quantize_linear import dynamic_scale, quantize
from dovetail.ops.quantization.scales import as_columns
from dovetail.ops.recurrent.cell_math import Arrays, Values
from dovetail.ops.recurrent.layers import LSTM


class _Weights(NamedTuple):
    """Codes with their scale and zero point, for each direction."""

    codes: Any
    scale: Any
    point: Any

    def of(self, place: int) -> _Weights:
        return _Weights(*(None if each is None else each[place] for each in self))


class _ByCodes:
    """Weights that stay codes until their product is taken."""

    def wide(self, x: Any) -> Any:
        return x if isinstance(x, _Weights) else super().wide(x)  # type: ignore[misc]

    def part(self, x: Any, place: int) -> Any:
        return x.of(place) if isinstance(x, _Weights) else super().part(x, place)  # type: ignore[misc]

    def factor(self, weights: Any) -> Any:
        return weights


class _Exact(NamedTuple):
    """Codes less their zero point in f64, which holds every partial sum, for BLAS; and their scale."""

    matrix: Any
    scale: Any


class _QuantizedArrays(_ByCodes, Arrays):
    def factor(self, weights: Any) -> Any:
        """Once for all time steps: BLAS has no integers."""
        if not is_numpy(self.xp):
            return weights
        matrix = weights.codes.astype(np.float64)
        if weights.point is not None:
            matrix -= as_columns(self.xp, weights.point)
        return _Exact(matrix, weights.scale)

    def product(self, x: Any, factor: Any) -> Any:
        if not isinstance(factor, _Exact):
            return DynamicQuantizeMatMul().evaluate(self.xp, x, *factor)
        scale, point = dynamic_scale(self.xp, x)
        codes = quantize(self.xp, x / scale, point, dtypes.u8).astype(np.float64) - point
        # The sums are those of i32, which wraps.
        sums = np.matmul(codes, factor.matrix).astype(np.int64).astype(np.int32)
        return sums.astype(np.float32) * (scale * as_columns(self.xp, factor.scale))


class _QuantizedValues(_ByCodes, Values):
    def product(self, x: Any, factor: Any) -> Any:
        return self.b.DynamicQuantizeMatMul(x, *factor)


class DynamicQuantizeLSTM(
    LSTM,
    sig="x: f32, w: I1, r: I2, bias?: f32, lengths?: I, h?: f32, c?: f32, peephole?: f32, w_scale: f32, w_zero_point: I1, "
    "r_scale: f32, r_zero_point: I2 -> y: f32, last_h: f32, last_c: f32",
    onnx=(
        "com.microsoft:DynamicQuantizeLSTM-1(x, w, r, bias?, lengths?, h?, c?, peephole?, w_scale, w_zero_point, r_scale, "
        "r_zero_point; hidden_size?, direction=forward, activations~{Affine:affine,Elu:elu,HardSigmoid:hardsigmoid,"
        "LeakyRelu:leakyrelu,Relu:relu,ScaledTanh:scaledtanh,Sigmoid:sigmoid,Softplus:softplus,Softsign:softsign,Tanh:tanh,"
        "ThresholdedRelu:thresholdedrelu}?, activation_alpha:alphas?, activation_beta:betas?, clip?, input_forget=0 "
        "| layout=sequence_first, summed=false, gates=iofc)"
    ),
):
    """LSTM with products as DynamicQuantizeMatMul has them: ``x`` is quantised as a whole, h at each moment.

    ``w`` [directions, input, 4 * hidden] and ``r`` [directions, hidden, 4 * hidden] are codes; scales and zero points have one
    number a direction, or one for each of its columns. Rows of several lengths are refused: what lies after their ends would
    have a part in how all is quantised. Source: com.microsoft DynamicQuantizeLSTM, as onnxruntime computes it.
    """

    def sizes(self, *xs: Any) -> dict[str, Any]:
        if xs[4] is not None:
            raise UnsupportedError(
                "recurrent.quantized", "which moments of shorter rows are quantised with the others is not known"
            )
        return super().sizes(xs[0], *map(_turned, xs[1:3]), *xs[3:8])

    def evaluate(self, xp: Any, *xs: Any) -> Any:
        return self._computed(_QuantizedArrays(xp), self.sizes(*xs), *_gathered(xs))

    def decompose(self, b: Any, *xs: Any) -> Any:
        sizes = self.sizes(*xs)
        self.check_known(sizes)
        with b:
            return list(self._computed(_QuantizedValues(b), sizes, *_gathered(xs)))

    def vjp(self, b: Any, g: Any, y: Any, /, *xs: Any) -> Any:
        raise UnsupportedError("grad.quantize", "what the slope of rounding should stand for, no specification says")


def _turned(weights: Any) -> Any:
    """Weights as LSTM has them, to ask their shape."""
    shape = weights.shape
    return SimpleNamespace(shape=None if shape is None or len(shape) != 3 else (shape[0], shape[2], shape[1]))


def _gathered(xs: Any) -> list[Any]:
    """The inputs as LSTM has them, weights together with their scales."""
    x, w, r, bias, lengths, h, c, peephole, w_scale, w_point, r_scale, r_point = xs
    return [x, _Weights(w, w_scale, w_point), _Weights(r, r_scale, r_point), bias, lengths, h, c, peephole]
