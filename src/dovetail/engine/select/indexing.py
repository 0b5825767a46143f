"""Selection of kernels that gather, scatter, sort, scan and count: Gather*, Scatter*, Trilu, TopK, ArgMax, NMS, CumSum, Range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.ir.graph import Node
from dovetail.ir.types import axis_in

if TYPE_CHECKING:
    from dovetail.engine.rewrite.nms import NmsTable
    from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
    from dovetail.ops.reduction.cumulative import CumProd, CumSum
    from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
    from dovetail.ops.tensor.onehot_trilu_eye import Trilu
    from dovetail.ops.tensor.scatter import ScatterElements, ScatterND, ScatterUpdate
    from dovetail.ops.tensor.shape import Range
    from dovetail.ops.tensor.topk import TopK

SORTABLE = ("f32", "f64", "i32", "i64")
"""Element types for which there are kernels that sort, compare and sum along an axis."""
INDEX_TYPES = ("i32", "i64", "u32", "u64")
"""Element types of indices that kernels read."""
COMBINABLE = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "boolean")
"""Element types that reductions and scatters combine natively."""
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
    if indices.dtype is None or indices.dtype.name not in INDEX_TYPES:
        return f"indices of {indices.dtype}"
    return KernelCall(kernel, (node,), [x, indices], writes, attributes)


def select_scatter_elements(op: ScatterElements, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    if op.reduction == "mean" or not op.use_init_val:
        return "a mean, or a reduction without the initial elements"
    return _select_scatter("scatter_elements", op, node, reads, writes, {"axis": axis_in(op.axis, len(writes[0].sizes))})


def select_scatter_nd(op: ScatterND, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    return _select_scatter("scatter_nd", op, node, reads, writes, {})


def select_scatter_update(op: ScatterUpdate, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    return _select_scatter("scatter_update", op, node, reads, writes, {"axis": axis_in(op.axis, len(writes[0].sizes))})


def _select_scatter(
    kernel: str,
    op: ScatterElements | ScatterND | ScatterUpdate,
    node: Node,
    reads: Reads,
    writes: Writes,
    attributes: dict[str, int | str],
) -> KernelCall | str:
    data, indices = reads[:2]
    assert data is not None and indices is not None
    if indices.dtype is None or indices.dtype.name not in INDEX_TYPES:
        return f"indices of {indices.dtype}"
    reduction = getattr(op, "reduction", "replace")
    if reduction != "replace" and (data.dtype is None or data.dtype.name not in COMBINABLE):
        return f"the reduction {reduction} of {data.dtype}"
    return KernelCall(kernel, (node,), reads, writes, {**attributes, "reduction": reduction})


def select_trilu(op: Trilu, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, k = (*reads, None)[:2]
    assert x is not None
    diagonal = 0 if k is None or k.data is None else int(k.data.reshape(()))
    rows, columns = x.sizes[-2:]
    return KernelCall("trilu", (node,), [x], writes, {"k": min(max(diagonal, -rows), columns), "upper": int(op.upper)})


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
        "greatest": int(type(op).__name__ == "ArgMax"),
        "last": int(op.select_last_index),
    }
    return KernelCall("argminmax", (node,), [x], writes, attributes)


def select_nms(op: NmsTable, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    return KernelCall("nms", (node,), reads, writes, {"center": int(op.center_point_box), "inclusive": int(op.inclusive)})


def select_cumulative(op: CumSum | CumProd, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, axis = reads[:2]
    assert x is not None and x.dtype is not None and axis is not None and axis.data is not None
    if x.dtype.name not in SORTABLE:
        return f"cumulation of {x.dtype}"
    attributes = {"axis": axis_in(int(axis.data.reshape(())), len(x.sizes))}
    attributes |= {"exclusive": int(op.exclusive), "reverse": int(op.reverse), "product": int(type(op).__name__ == "CumProd")}
    return KernelCall("cumsum", (node,), [x], writes, attributes)


def select_range(op: Range, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    kinds = {tensor.dtype for tensor in reads if tensor is not None}
    is_float = writes[0].dtype in ("f32", "f64")
    if not (kinds == {writes[0].dtype} or is_float) or not kinds <= {"i32", "i64"}:
        return "a range of floats, or of other integers than i32 and i64"
    start, _, step = (int(tensor.data.reshape(())) for tensor in reads)  # type: ignore[union-attr]
    return KernelCall("range", (node,), [], writes, {"start": start, "step": step})
