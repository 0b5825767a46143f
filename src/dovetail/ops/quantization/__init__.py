"""Quantization: QuantizeLinear, DequantizeLinear and operators on quantized tensors."""

from dovetail.ops.quantization import (
    integer_matmul_conv,
    matmul_nbits,
    qlinear,
    quantize_linear,
    scales,
)

__all__ = [
    "integer_matmul_conv",
    "matmul_nbits",
    "qlinear",
    "quantize_linear",
    "scales",
]
