"""Laws of Gemm: the decomposition into MatMul and Add, and the fusion of MatMul and Add."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, are_equal_shapes
from dovetail.laws.law import Inputs, Result, Types, is_read_once, producer
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import Gemm, MatMul


def decompose_gemm(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Rewrite a Gemm of f32 or f64 with factors of 1 as MatMul and Add, which is how the reference computes Gemm."""
    assert isinstance(op, Gemm)
    x, y, bias = (*xs, None)[:3]
    if x is None or y is None or x.dtype.name not in ("f32", "f64") or op.alpha != 1 or (bias is not None and op.beta != 1):
        return None
    product = b.MatMul(x, y, transpose_a=op.transpose_a, transpose_b=op.transpose_b)
    return product if bias is None else b.Add(product, bias)


def fuse_gemm(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Fuse MatMul of two matrices and Add of a constant into Gemm, which may add the constant before the last product."""
    assert isinstance(op, Add)
    y = types[0]
    if not op.broadcast or not isinstance(y, Tensor) or y.dtype is None or y.dtype.name not in ("f32", "f64", "f16"):
        return None
    for product, bias in (xs, xs[::-1]):
        matmul = producer(product, MatMul)
        if product is None or bias is None or matmul is None or bias.constant is None:
            continue
        if not is_read_once(b.graph, product) or not are_equal_shapes(product.shape, y.shape):
            continue
        if any(x.shape is None or len(x.shape) != 2 for x in (matmul.input(0), matmul.input(1))):
            continue
        assert isinstance(matmul.op, MatMul)
        form = {"transpose_a": matmul.op.transpose_a, "transpose_b": matmul.op.transpose_b}
        return b.Gemm(matmul.input(0), matmul.input(1), bias, **form)
    return None
