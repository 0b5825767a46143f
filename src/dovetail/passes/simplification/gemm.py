"""Pass ``gemm``: a product of matrices and the bias after it become one Gemm of ONNX."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import MatMul
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, are_equal_shapes, is_read_once, producer

MIN_OPSET = 7
"""The first opset in which the bias of Gemm broadcasts as the bias of Add does."""


def fuse_gemm(graph: Graph, target: Target) -> int:
    """Fuse MatMul of two matrices and Add into Gemm, in ONNX. Returns the number of removed nodes.

    A Gemm may add the bias before the last product, so that results change by rounding.
    """
    if target.format != "onnx" or target.opset < MIN_OPSET:
        return 0
    return apply_rules(graph, RULES, target)


def _fuse(b: Builder, node: Node) -> Result:
    y = node.outputs[0]
    if not getattr(node.op, "broadcast", False) or y.dtype.name not in ("f32", "f64", "f16"):
        return None
    for index in (0, 1):
        product, bias = node.input(index), node.input(1 - index)
        matmul = producer(product, MatMul)
        if matmul is None or not is_read_once(b.graph, product) or not are_equal_shapes(product.shape, y.shape):
            continue
        op = matmul.op
        assert isinstance(op, MatMul)
        if bias.constant is None or any(x.shape is None or len(x.shape) != 2 for x in (matmul.input(0), matmul.input(1))):
            continue
        result: Value = b.Gemm(matmul.input(0), matmul.input(1), bias, transpose_a=op.transpose_a, transpose_b=op.transpose_b)
        return result
    return None


RULES: Rules = {Add: _fuse}
