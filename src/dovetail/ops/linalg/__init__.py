"""Linear algebra: MatMul, Gemm, Einsum, Det, Inverse."""
