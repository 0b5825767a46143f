"""Hessians of the squared errors of products: ``x.T @ x``, summed over the rows x that the products read in some calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Model, Value
from dovetail.ops.casts import as_type
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.passes.quantization.calibration import Call, keep_initial_states
from dovetail.passes.quantization.codes import Array
from dovetail.passes.quantization.weights import PRODUCT, ModelWeight
from dovetail.runtime.compilation import compile

MAX_BYTES = 512 << 20
"""Bytes of the Hessians of one group of weights; the calls run once for each group."""


def has_hessian(weight: ModelWeight) -> bool:
    """Return whether all readers of a weight are products of rows with the weight."""
    return weight.kind == PRODUCT and all(
        isinstance(node.op, MatMul | Gemm) and not node.op.transpose_a and node.input(0).shape is not None
        for node, _ in weight.readers
    )


def group_weights(weights: Sequence[ModelWeight]) -> list[list[int]]:
    """Split the indices of the weights with a Hessian into groups whose Hessians have at most MAX_BYTES."""
    groups: list[list[int]] = []
    size = 0
    for index, weight in enumerate(weights):
        if not has_hessian(weight):
            continue
        # Two matrices in f64.
        own = 16 * weight.matrix_shape[1] ** 2
        if not groups or size + own > MAX_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(index)
        size += own
    return groups


def collect_hessians(model: Model, weights: Sequence[ModelWeight], calls: Sequence[Call]) -> list[list[Array]]:
    """Return for each weight two Hessians in f64: that of the even and that of the odd calls.

    The weights are values of ``model``, whose graph changes.
    """
    graph = model.graph
    b = Builder(graph=graph)
    products: dict[int, Value] = {}
    for weight in weights:
        for node, _ in weight.readers:
            x = node.input(0)
            if id(x) not in products:
                rows = b.Reshape(as_type(b, x, dtypes.f32), [-1, weight.matrix_shape[1]], special_zero=False)
                products[id(x)] = b.MatMul(rows, rows, transpose_a=True)
    inputs = [[id(node.input(0)) for node, _ in weight.readers] for weight in weights]
    keep_initial_states(model)
    names = {key: b.output(graph.free_name("hessian"), value).name for key, value in products.items()}
    remove_dead(graph)
    program = compile(model)
    sums: dict[int, list[Array]] = {}
    for number, call in enumerate(calls):
        found = program(call)
        for key, name in names.items():
            hessian = np.asarray(found[name]).astype(np.float64)
            pair = sums.setdefault(key, [np.zeros_like(hessian), np.zeros_like(hessian)])
            pair[number % 2] += hessian
    return [[sum((sums[key][half] for key in keys), np.zeros(())) for half in (0, 1)] for keys in inputs]
