"""Rewrite of TreeEnsemble to the tables of nodes and leaves that the native kernel reads."""

from __future__ import annotations

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View
from dovetail.ops.ml.tree_ensemble import MEMBER, TreeEnsemble

_KERNEL_AGGREGATES = ("sum", "average", "min", "max")


class TreeEnsembleSums(
    Op,
    sig="x: F, nodes: i32, splits: F, roots: i32, leaf_starts: i32, leaf_targets: i32, leaf_weights: F, members: F -> y: F",
    is_registered=False,
):
    """TreeEnsembleSums returns the aggregates of ``ensemble``, a TreeEnsemble without transform, from tables.

    A row of ``nodes`` is: feature, mode, whether NaN takes the true branch, next node if true, next node if false, begin and end
    in ``members``. Indices of leaves follow the indices of nodes. The weights of leaf i are
    ``leaf_weights[leaf_starts[i]:leaf_starts[i + 1]]``. Only the engine uses this operator.
    """

    ensemble: TreeEnsemble

    @property
    def aggregate_index(self) -> int:
        """The index by which the kernel identifies the aggregate function."""
        return _KERNEL_AGGREGATES.index(self.ensemble.aggregate_function)

    def shape(self, x: View, *tables: View) -> Shape:
        shape: Shape = self.ensemble.shape(x)
        return shape

    def evaluate(self, xp: Namespace, x: Array, *tables: Array) -> Array:
        (y,) = apply(self.ensemble, xp, [x])
        return y


def rewrite_tree_ensemble(b: Builder, op: TreeEnsemble, x: Value) -> Value | None:
    """Rewrite TreeEnsemble to TreeEnsembleSums and its transform; None for types other than f32 and f64."""
    if x.dtype.name not in ("f32", "f64") or x.shape is None:
        return None
    tables = [b.constant(table, dtypes.dtype(table.dtype)) for table in _tables_of(op, x)]
    # with_() checks millions of attributes again, so it is called only where a transform has to be removed.
    without_transform = op if op.post_transform == "none" else op.with_(post_transform="none")
    assert isinstance(without_transform, TreeEnsemble)
    (sums,) = b.add(TreeEnsembleSums(without_transform), x, *tables)
    if op.post_transform == "none":
        return sums
    return b.Softmax(sums, axis=1) if op.post_transform == "softmax" else b.Sigmoid(sums)


def _tables_of(op: TreeEnsemble, x: Value) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    count, dtype = len(op.nodes_featureids), x.dtype.numpy
    members = np.zeros((count, 2), np.int64)
    ends = np.cumsum([0, *map(len, op.membership_values)])
    members[np.array(op.nodes_modes) == MEMBER] = np.stack([ends[:-1], ends[1:]], axis=1)
    branches = [
        np.array(targets, np.int64) + count * np.array(is_leaf, bool)
        for targets, is_leaf in ((op.nodes_truenodeids, op.nodes_trueleafs), (op.nodes_falsenodeids, op.nodes_falseleafs))
    ]
    missing = np.array(op.nodes_missing_value_tracks_true or (False,) * count, bool)
    nodes = np.stack([op.nodes_featureids, op.nodes_modes, missing, *branches, members[:, 0], members[:, 1]], axis=1).astype(
        np.int32
    )
    sizes = op.leaf_sizes or (1,) * len(op.leaf_targetids)
    starts = np.cumsum([0, *sizes])
    tables = [nodes, np.array(op.nodes_splits, dtype), np.array(op.tree_roots), starts, np.array(op.leaf_targetids)]
    values = [np.array(op.leaf_weights, dtype), np.array([item for group in op.membership_values for item in group], dtype)]
    return [table if table.dtype == dtype else table.astype(np.int32) for table in tables] + values
