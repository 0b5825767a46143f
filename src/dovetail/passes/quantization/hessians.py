"""Hessians of the squared errors of products and convolutions: ``x.T @ x``, summed over the rows x that they read in some calls.

A row of a convolution is the patch of its input that one element of the result reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Model, Node, Value
from dovetail.ops.casts import as_type
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, resolve_auto_pad
from dovetail.ops.nn.group_conv import GroupConv
from dovetail.passes.quantization.calibration import Call, keep_initial_states
from dovetail.passes.quantization.codes import Array
from dovetail.passes.quantization.weights import CONVOLUTION, PRODUCT, ModelWeight
from dovetail.runtime.compilation import compile

MAX_BYTES = 512 << 20
"""Bytes of the Hessians of one group of weights; the calls run once for each group."""
PATCHES = 16
"""Number of patches of all calls for each element of a patch, above which a convolution skips positions of its result."""
MIN_PATCHES = 4096


def has_hessian(weight: ModelWeight) -> bool:
    """Return whether all readers of a weight are products of rows, or convolutions of patches, with the weight."""
    if not weight.is_linear:
        return False
    if weight.kind == CONVOLUTION:
        return all(isinstance(node.op, Conv | GroupConv) and node.outputs[0].shape is not None for node, _ in weight.readers)
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
        own = 16 * _channel_groups(weight.node) * weight.matrix_shape[1] ** 2
        if not groups or size + own > MAX_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(index)
        size += own
    return groups


def collect_hessians(model: Model, weights: Sequence[ModelWeight], calls: Sequence[Call]) -> list[list[Array]]:
    """Return for each weight two Hessians in f64 [groups, depth, depth]: that of the even and that of the odd calls.

    The weights are values of ``model``, whose graph changes.
    """
    graph = model.graph
    b = Builder(graph=graph)
    sizes = _find_sizes(model, weights, calls[0])
    hessians: dict[tuple[int, object], Value] = {}
    keys: list[list[tuple[int, object]]] = []
    for weight in weights:
        keys.append([])
        for node, index in weight.readers:
            x = node.input(0)
            op = _plain_convolution(node) if weight.kind == CONVOLUTION else None
            key: tuple[int, object] = (id(x), None if op is None else (op, node.input(index).dims))
            keys[-1].append(key)
            if key in hessians:
                continue
            rows = as_type(b, x, dtypes.f32)
            if op is None:
                rows = b.Reshape(rows, [1, -1, weight.matrix_shape[1]], special_zero=False)
                hessians[key] = b.MatMul(rows, rows, transpose_a=True)
            else:
                wanted = max(PATCHES * weight.matrix_shape[1], MIN_PATCHES) / len(calls)
                patches = _patches(b, op, rows, weight, sizes[id(node)], wanted)
                hessians[key] = b.MatMul(patches, patches, transpose_b=True)
    keep_initial_states(model)
    names = {key: b.output(graph.free_name("hessian"), value).name for key, value in hessians.items()}
    remove_dead(graph)
    program = compile(model)
    sums: dict[tuple[int, object], list[Array]] = {}
    for number, call in enumerate(calls):
        found = program(call)
        for key, name in names.items():
            hessian = np.asarray(found[name]).astype(np.float64)
            pair = sums.setdefault(key, [np.zeros_like(hessian), np.zeros_like(hessian)])
            pair[number % 2] += hessian
    return [[sum((sums[key][half] for key in each), np.zeros(())) for half in (0, 1)] for each in keys]


def _find_sizes(model: Model, weights: Sequence[ModelWeight], call: Call) -> dict[int, tuple[int, ...]]:
    """Return the shapes of the results of convolutions in one call."""
    nodes = [node for weight in weights if weight.kind == CONVOLUTION for node, _ in weight.readers]
    sizes: dict[int, tuple[Any, ...]] = {id(node): node.outputs[0].dims for node in nodes}
    unknown = [node for node in nodes if not all(isinstance(size, int) for size in node.outputs[0].dims)]
    if unknown:
        graph = model.graph
        old_outputs, mark = graph.outputs, len(graph.nodes)
        b = Builder(graph=graph)
        shapes = [b.Shape(node.outputs[0]) for node in unknown]
        keep_initial_states(model)
        graph.outputs = [*graph.outputs, *shapes]
        found = compile(model)(call)
        sizes.update({id(node): tuple(np.asarray(found[y.name]).tolist()) for node, y in zip(unknown, shapes, strict=True)})
        graph.outputs = old_outputs
        remove_dead(graph, kept={id(node) for node in graph.nodes[:mark]})
    return sizes


def _channel_groups(node: Node) -> int:
    if isinstance(node.op, GroupConv):
        return int(node.input(1).dims[0])
    return node.op.group if isinstance(node.op, Conv) else 1


def _plain_convolution(node: Node) -> Conv:
    """Return the Conv that a Conv or GroupConv is, with the groups as an attribute."""
    op = node.op
    assert isinstance(op, Conv | GroupConv)
    return Conv(op.strides, op.pads, op.dilations, op.auto_pad, _channel_groups(node))


def _patches(b: Builder, op: Conv, x: Value, weight: ModelWeight, sizes: Sequence[int], wanted: float) -> Value:
    """Emit the patches of a convolution [groups, elements of a patch, patches]; positions of the result are skipped.

    They are results of a convolution with weights of one 1 for each element of a patch. ``sizes`` are those of the result, and
    ``wanted`` the number of patches of a call: larger strides leave out the others.
    """
    groups = op.group
    shape = [int(size) for size in weight.value.dims][-len(sizes) + 1 :]
    depth = prod(shape)
    kernels = b.constant(np.tile(np.eye(depth, dtype=np.float32).reshape(depth, *shape), (groups, *[1] * len(shape))))
    fixed, padded, _ = resolve_auto_pad(b, op, x, kernels)
    spatial = len(shape) - 1
    skip = ceil(max(1.0, prod((sizes[0], *sizes[2:])) / wanted) ** (1 / spatial))
    steps = fixed.steps(spatial)[0]
    y = b.add(fixed.with_(strides=tuple(step * skip for step in steps)), padded, kernels)[0]
    split = b.Reshape(y, [0, groups, depth, -1])
    patches: Value = b.Reshape(b.Transpose(split, [1, 2, 0, 3]), [groups, depth, -1])
    return patches
