"""Which kernels choose elements by index, order them, or count them, and how their attributes are said to them."""

from __future__ import annotations

from typing import Any

from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.ir.graph import Node
from dovetail.ir.types import axis_in
from dovetail.ops.reduction.argminmax import ArgMax

ORDERED = ("f32", "f64", "i32", "i64")
"""Element types whose lines are ordered and summed up."""


def gather_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, indices = reads[:2]
    assert x is not None and indices is not None
    batch = op.batch_dims + (len(indices.sizes) if op.batch_dims < 0 else 0)
    attributes = {"axis": axis_in(op.axis, len(x.sizes)), "batch": batch}
    attributes |= {"wrap": int(op.bounds != "natural"), "zero": int(op.bounds == "zero")}
    return _chosen_by("gather", node, x, indices, writes, attributes)


def gather_elements_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, indices = reads[:2]
    assert x is not None and indices is not None
    return _chosen_by("gather_elements", node, x, indices, writes, {"axis": axis_in(op.axis, len(x.sizes))})


def gather_nd_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, indices = reads[:2]
    assert x is not None and indices is not None
    return _chosen_by("gather_nd", node, x, indices, writes, {"batch": op.batch_dims})


def _chosen_by(
    kernel: str, node: Node, x: RunTensor, indices: RunTensor, writes: list[RunTensor], attributes: dict[str, Any]
) -> KernelCall | str:
    if indices.dtype is None or indices.dtype.name not in ("i32", "i64"):
        return f"indices of {indices.dtype}"
    return KernelCall(kernel, (node,), [x, indices], writes, attributes)


def top_k_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x = reads[0]
    assert x is not None and x.dtype is not None
    if x.dtype.name not in ORDERED:
        return f"the order of {x.dtype}"
    attributes = {"axis": axis_in(op.axis, len(x.sizes)), "largest": int(op.largest), "by_place": int(op.sort == "index")}
    return KernelCall("top_k", (node,), [x], writes, attributes)


def arg_extreme_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x = reads[0]
    assert x is not None and x.dtype is not None
    if x.dtype.name not in ORDERED:
        return f"the order of {x.dtype}"
    attributes = {
        "axis": axis_in(op.axis, len(x.sizes)),
        "greatest": int(isinstance(op, ArgMax)),
        "last": int(op.select_last_index),
    }
    return KernelCall("arg_extreme", (node,), [x], writes, attributes)


def suppress_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    return KernelCall("suppress", (node,), reads, writes, {"center": int(op.center), "inclusive": int(op.inclusive)})


def cum_sum_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, axis = reads[:2]
    assert x is not None and x.dtype is not None and axis is not None and axis.data is not None
    if x.dtype.name not in ORDERED:
        return f"sums of {x.dtype}"
    attributes = {"axis": axis_in(int(axis.data.reshape(())), len(x.sizes))}
    attributes |= {"exclusive": int(op.exclusive), "reverse": int(op.reverse)}
    return KernelCall("cum_sum", (node,), [x], writes, attributes)


def range_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    if any(tensor is None or tensor.dtype is not writes[0].dtype for tensor in reads) or writes[0].dtype not in ("i32", "i64"):
        return "a range of other types than i32 and i64, or between others"
    start, _, step = (int(tensor.data.reshape(())) for tensor in reads)  # type: ignore[union-attr]
    return KernelCall("range", (node,), [], writes, {"start": start, "step": step})
