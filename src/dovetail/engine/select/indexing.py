"""Selection of kernels that gather, sort, scan and count: Gather*, TopK, ArgMax/ArgMin, NMS tables, CumSum, Range."""

from __future__ import annotations

from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.engine.rewrite.nms import NmsTable
from dovetail.ir.graph import Node
from dovetail.ir.types import axis_in
from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
from dovetail.ops.reduction.cumulative import CumSum
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
from dovetail.ops.tensor.shape import Range
from dovetail.ops.tensor.topk import TopK

SORTABLE = ("f32", "f64", "i32", "i64")
"""Element types for which there are kernels that sort, compare and sum along an axis."""
Reads = list[RunTensor | None]
Writes = list[RunTensor]


def select_gather(op: Gather, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, indices = reads[:2]
    assert x is not None and indices is not None
    batch = op.batch_dims + (len(indices.sizes) if op.batch_dims < 0 else 0)
    attributes = {"axis": axis_in(op.axis, len(x.sizes)), "batch": batch}
    attributes |= {"wrap": int(op.bounds != "natural"), "zero": int(op.bounds == "zero")}
    return _select_gather("gather", node, x, indices, writes, attributes)


def select_gather_elements(op: GatherElements, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, indices = reads[:2]
    assert x is not None and indices is not None
    return _select_gather("gather_elements", node, x, indices, writes, {"axis": axis_in(op.axis, len(x.sizes))})


def select_gather_nd(op: GatherND, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, indices = reads[:2]
    assert x is not None and indices is not None
    return _select_gather("gather_nd", node, x, indices, writes, {"batch": op.batch_dims})


def _select_gather(
    kernel: str, node: Node, x: RunTensor, indices: RunTensor, writes: Writes, attributes: dict[str, int]
) -> KernelCall | str:
    if indices.dtype is None or indices.dtype.name not in ("i32", "i64"):
        return f"indices of {indices.dtype}"
    return KernelCall(kernel, (node,), [x, indices], writes, attributes)


def select_top_k(op: TopK, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None and x.dtype is not None
    if x.dtype.name not in SORTABLE:
        return f"sorting of {x.dtype}"
    attributes = {"axis": axis_in(op.axis, len(x.sizes)), "largest": int(op.largest), "by_place": int(op.sort == "index")}
    return KernelCall("top_k", (node,), [x], writes, attributes)


def select_arg_min_max(op: ArgMax | ArgMin, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None and x.dtype is not None
    if x.dtype.name not in SORTABLE:
        return f"comparison of {x.dtype}"
    attributes = {
        "axis": axis_in(op.axis, len(x.sizes)),
        "greatest": int(isinstance(op, ArgMax)),
        "last": int(op.select_last_index),
    }
    return KernelCall("argminmax", (node,), [x], writes, attributes)


def select_nms(op: NmsTable, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    return KernelCall("nms", (node,), reads, writes, {"center": int(op.center_point_box), "inclusive": int(op.inclusive)})


def select_cum_sum(op: CumSum, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, axis = reads[:2]
    assert x is not None and x.dtype is not None and axis is not None and axis.data is not None
    if x.dtype.name not in SORTABLE:
        return f"cumulative sum of {x.dtype}"
    attributes = {"axis": axis_in(int(axis.data.reshape(())), len(x.sizes))}
    attributes |= {"exclusive": int(op.exclusive), "reverse": int(op.reverse)}
    return KernelCall("cumsum", (node,), [x], writes, attributes)


def select_range(op: Range, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    if any(tensor is None or tensor.dtype is not writes[0].dtype for tensor in reads) or writes[0].dtype not in ("i32", "i64"):
        return "a range of other types than i32 and i64, or of mixed types"
    start, _, step = (int(tensor.data.reshape(())) for tensor in reads)  # type: ignore[union-attr]
    return KernelCall("range", (node,), [], writes, {"start": start, "step": step})
