"""Operators that read and write by index, where OpenVINO and the core differ by more than a slot line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dims, dtypes
from dovetail.build import Builder
from dovetail.errors import UnsupportedError
from dovetail.formats.lifting import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.graph import Node, Value
from dovetail.ops.slicing import count_up
from dovetail.types import axis_in


@OPENVINO.lift("GatherND", 5)
def gather_nd(node: Lifting) -> Any:
    """Several batch axes come out as one."""
    batch = node.attribute("batch_dims", "int", 0)
    if batch < 2:
        return None
    rows = node.b.apply("GatherND", node.input(0), node.input(1), batch_dims=batch)
    if rows.shape is None:
        raise UnsupportedError("gather.rank", "GatherND-5 with several batch axes between unknown ranks")
    if all(isinstance(size, int) for size in rows.shape[:batch]):
        return node.b.Reshape(rows, [int(dims.product(rows.shape[:batch])), *_rest(rows, batch)], copy_zeros=False)
    raise UnsupportedError("gather.batch", "GatherND-5 with several batch axes of sizes that only run time knows")


def _rest(rows: Value, batch: int) -> list[int]:
    assert rows.shape is not None
    if not all(isinstance(size, int) for size in rows.shape[batch:]):
        raise UnsupportedError("gather.batch", "GatherND-5 with several batch axes, and sizes that only run time knows")
    return [int(size) for size in rows.shape[batch:]]


@OPENVINO.lower("Gather")
def gather(b: Builder, node: Node) -> Any:
    """OpenVINO gives zeros for an index outside, where the core may refuse."""
    op: Any = node.op
    x, indices = node.inputs
    return None if op.bounds == "zero" else b.add(op.with_(bounds="zero"), x, indices)[0]


@OPENVINO.lower("GatherElements")
def gather_elements(b: Builder, node: Node) -> Any:
    """OpenVINO wants the other axes of both alike: the tensor is cut to them, by Gather, as it optimises Slice away."""
    op: Any = node.op
    x, indices = node.inputs
    assert x is not None and indices is not None
    if x.shape is None or indices.shape is None:
        return None
    axis = axis_in(op.axis, len(x.shape))
    larger = [
        place
        for place, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True))
        if place != axis and dims.equal(size, count) is not True
    ]
    if not larger:
        return None
    for place in larger:
        x = b.Gather(x, count_up(b, indices, place), axis=place)
    return b.GatherElements(x, indices, axis=axis)


@OPENVINO.lower("ScatterUpdate")
def scatter_update(b: Builder, node: Node) -> Any:
    """OpenVINO's CPU plugin takes no scalar index: a vector of one, and one more axis for the update."""
    op: Any = node.op
    x, indices, updates = node.inputs
    assert x is not None and indices is not None
    if indices.shape != () or x.shape is None:
        return None
    axis = axis_in(op.axis, len(x.shape))
    return b.ScatterUpdate(x, b.Unsqueeze(indices, [0]), b.Unsqueeze(updates, [axis]), axis=axis)


@OPENVINO.lift("ScatterNDUpdate", 15)
def scatter_nd(node: Lifting) -> Any:
    """Subtracting is adding the negative."""
    if node.node.attributes.get("reduction") != "sub":
        return None
    node.attribute("reduction", "str")
    x, indices, updates = (node.input(index) for index in range(3))
    if not updates.dtype.is_number:
        raise UnsupportedError("scatter.reduction", f"ScatterNDUpdate that subtracts {updates.dtype}")
    zero = node.b.constant(np.zeros((), dtype=updates.dtype.numpy), updates.dtype)
    return node.b.apply("ScatterND", x, indices, node.b.Subtract(zero, updates), reduction="add")


@OPENVINO.lower("OneHot")
def one_hot(b: Builder, node: Node) -> Any:
    """Integers for indices, scalars for the rest."""
    indices, depth, on, off = node.inputs
    assert indices is not None and depth is not None and on is not None and off is not None
    whole = indices if indices.dtype.is_integer else b.Cast(indices, to=dtypes.i64)
    count = depth if depth.dtype.is_integer else b.Cast(depth, to=dtypes.i64)
    scalars = [x if x.shape == () else b.Reshape(x, []) for x in (count, on, off)]
    made = (whole, *scalars)
    if all(new is old for new, old in zip(made, node.inputs, strict=True)):
        return None
    return b.add(node.op, *made)[0]
