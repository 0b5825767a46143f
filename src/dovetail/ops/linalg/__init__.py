"""Linear algebra: MatMul, Gemm, Einsum, Det, Inverse."""

from dovetail.ops.linalg import (
    det_inverse,
    einsum,
    grouped_matmul,
    matmul,
)

__all__ = [
    "det_inverse",
    "einsum",
    "grouped_matmul",
    "matmul",
]
