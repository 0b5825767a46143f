"""Decision trees as the native kernel walks them: tables of nodes and leaves, made once for a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.interpreter.evaluate import apply
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.ml.tree_ensemble import AGGREGATES, MEMBER, TreeEnsemble

_KERNEL_ORDER = ("sum", "average", "min", "max")


class TreeEnsembleSums(
    Op,
    sig="x: F, nodes: i32, splits: F, roots: i32, leaf_starts: i32, leaf_targets: i32, leaf_weights: F, members: F -> y: F",
    is_registered=False,
):
    """What ``whole``, a TreeEnsemble, says of ``x``, with its attributes as tables. Not one of a model's operators.

    A row of ``nodes`` is a feature, a mode, whether NaN goes the true way, the next node where the test holds and where it does
    not (leaves are numbered behind the nodes), and where its ``members`` begin and end. The weights of leaf i are those from
    ``leaf_starts[i]`` to ``leaf_starts[i + 1]``.
    """

    whole: Any

    def shape(self, x: Any, *tables: Any) -> Any:
        return self.whole.shape(x)

    def evaluate(self, xp: Any, x: Any, *tables: Any) -> Any:
        (y,) = apply(self.whole, xp, [x])
        return y


def with_tables(b: Builder, op: TreeEnsemble, x: Value) -> Value | None:
    """A TreeEnsemble by the tables of the native kernel, as far as its sums: a transform comes after. None for other types than
    f32 and f64."""
    if x.dtype.name not in ("f32", "f64") or x.shape is None:
        return None
    (sums,) = b.add(
        TreeEnsembleSums(op.with_(transform="none")),
        x,
        *(b.constant(table, dtypes.dtype(table.dtype)) for table in _tables(op, x)),
    )
    if op.transform == "none":
        return sums
    return b.Softmax(sums, axis=1) if op.transform == "softmax" else b.Sigmoid(sums)


def _tables(op: TreeEnsemble, x: Value) -> list[Any]:
    count, kind = len(op.features), x.dtype.numpy
    members = np.zeros((count, 2), np.int64)
    ends = np.cumsum([0, *(len(group) for group in op.members)])
    members[np.array(op.modes) == MEMBER] = np.stack([ends[:-1], ends[1:]], axis=1)
    ways = [
        np.array(goes, np.int64) + count * np.array(is_leaf, bool)
        for goes, is_leaf in ((op.true_next, op.true_leaf), (op.false_next, op.false_leaf))
    ]
    missing = np.array(op.missing_true or (False,) * count, bool)
    nodes = np.stack([op.features, op.modes, missing, *ways, members[:, 0], members[:, 1]], axis=1).astype(np.int32)
    sizes = op.leaf_sizes or (1,) * len(op.leaf_targets)
    starts = np.cumsum([0, *sizes])
    tables = [nodes, np.array(op.splits, kind), np.array(op.roots), starts, np.array(op.leaf_targets)]
    values = [np.array(op.leaf_weights, kind), np.array([item for group in op.members for item in group], kind)]
    return [table if table.dtype == kind else table.astype(np.int32) for table in tables] + values


def forest_work(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    if any(tensor is None or tensor.data is None for tensor in reads[1:]):
        return "trees that are no constants"
    assert op.whole.aggregate in AGGREGATES
    return KernelCall("tree_ensemble", (node,), reads, writes, {"aggregate": _KERNEL_ORDER.index(op.whole.aggregate)})
