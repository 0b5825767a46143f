"""Decision tree ensembles: TreeEnsemble of ai.onnx.ml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import View, axis_in
from dovetail.ops.elementwise.logical import ComparisonOp

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, NOT_EQUAL, MEMBER = range(7)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""The comparisons of a node, in the order of TreeEnsemble's modes; a leaf has the mode LEAF."""
_COMPARISONS = {kind.branch: kind for kind in ComparisonOp.__subclasses__()}
AGGREGATES = ("average", "sum", "min", "max")
TRANSFORMS = ("none", "softmax", "logistic")
MAX_DEPTH = 4096


class TreeEnsemble(Op, sig="x: F -> y: F"):
    """TreeEnsemble evaluates decision trees for each row of ``x``: [N, n_targets].

    The path through a tree begins at its node in ``tree_roots``. Node i compares feature ``nodes_featureids[i]`` with
    ``nodes_splits[i]`` by one of seven ``nodes_modes`` (``<=``, ``<``, ``>=``, ``>``, ``==``, ``!=``, membership in the next of
    ``membership_values``). The path continues at ``nodes_truenodeids[i]`` where the comparison holds, else at
    ``nodes_falsenodeids[i]``. This id names a leaf where ``nodes_trueleafs[i]`` or ``nodes_falseleafs[i]`` is true, else a
    node. For a NaN the comparison holds where ``nodes_missing_value_tracks_true[i]`` is true.

    Leaf k contributes ``leaf_weights[k]`` to the target ``leaf_targetids[k]``. ``aggregate_function`` combines the trees:
    ``sum``, ``average`` over all trees, ``min`` or ``max`` of the trees with a weight for the target (0 where no tree has one).
    ``post_transform`` is applied to each row. With ``leaf_sizes``, leaf k has ``leaf_sizes[k]`` entries of ``leaf_targetids``
    and ``leaf_weights``, in the order of the leaves.
    Sources: ONNX ai.onnx.ml TreeEnsemble 5; for leaves with several targets, TreeEnsembleRegressor 3.
    """

    n_targets: int
    tree_roots: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_modes: tuple[int, ...]
    nodes_splits: tuple[float, ...]
    nodes_truenodeids: tuple[int, ...]
    nodes_trueleafs: tuple[bool, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_falseleafs: tuple[bool, ...]
    leaf_targetids: tuple[int, ...]
    leaf_weights: tuple[float, ...]
    nodes_missing_value_tracks_true: tuple[bool, ...] = ()
    membership_values: tuple[tuple[float, ...], ...] = ()
    aggregate_function: str = "sum"
    post_transform: str = "none"
    leaf_sizes: tuple[int, ...] = ()

    def validate(self) -> None:
        count, weights = len(self.nodes_featureids), len(self.leaf_targetids)
        columns = (
            self.nodes_modes,
            self.nodes_splits,
            self.nodes_truenodeids,
            self.nodes_trueleafs,
            self.nodes_falsenodeids,
            self.nodes_falseleafs,
        )
        if any(len(column) != count for column in columns) or len(self.nodes_missing_value_tracks_true) not in (0, count):
            raise RuleError(
                "tree.nodes",
                f"nodes_* attributes must have the length of nodes_featureids ({count}), got {[*map(len, columns)]} and "
                f"{len(self.nodes_missing_value_tracks_true)}",
            )
        if len(self.leaf_weights) != weights:
            raise RuleError("tree.nodes", f"leaf_weights must have {weights} entries, got {len(self.leaf_weights)}")
        if (outside := first_outside(self.leaf_targetids, self.n_targets)) is not None:
            raise RuleError("tree.nodes", f"leaf_targetids must be in [0, {self.n_targets - 1}], got {outside}")
        if self.leaf_sizes and (sum(self.leaf_sizes) != weights or min(self.leaf_sizes) < 0):
            raise RuleError(
                "tree.nodes",
                f"leaf_sizes must not be negative, and their sum ({sum(self.leaf_sizes)}) must equal the number of weights "
                f"({weights})",
            )
        if first_outside(self.nodes_modes, MEMBER + 1) is not None or self.nodes_modes.count(MEMBER) != len(
            self.membership_values
        ):
            raise RuleError(
                "tree.nodes",
                f"nodes_modes must be in [0, {MEMBER}], and membership_values must have an entry for each mode {MEMBER}, "
                f"got modes {sorted(set(self.nodes_modes))} and {len(self.membership_values)} entries",
            )
        if self.aggregate_function not in AGGREGATES or self.post_transform not in TRANSFORMS:
            raise RuleError(
                "attribute.value",
                f"aggregate_function must be one of {', '.join(AGGREGATES)} and post_transform one of {', '.join(TRANSFORMS)}, "
                f"got {self.aggregate_function!r} and {self.post_transform!r}",
            )
        if not self.tree_roots or min(self.nodes_featureids, default=0) < 0:
            raise RuleError(
                "tree.nodes",
                f"tree_roots must not be empty and nodes_featureids not negative, got {len(self.tree_roots)} roots and "
                f"{min(self.nodes_featureids, default=0)}",
            )
        self.depth()

    def leaf_count(self) -> int:
        return len(self.leaf_sizes) or len(self.leaf_targetids)

    def depth(self) -> int:
        """Return the number of nodes on the longest path. Raises RuleError [tree.nodes] for a cycle or a missing node."""
        next_ids = np.array([self.nodes_truenodeids, self.nodes_falsenodeids], np.int64)
        is_leaf = np.array([self.nodes_trueleafs, self.nodes_falseleafs], bool)
        return depth_of(np.array(self.tree_roots), next_ids, is_leaf, self.leaf_count())

    def shape(self, x: View) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) != 2:
            raise RuleError("shape.rank", f"x must have rank 2, got {len(x.shape)}")
        width = x.shape[axis_in(1, 2)]
        if isinstance(width, int) and max(self.nodes_featureids) >= width:
            raise RuleError("shape.disagree", f"x must have at least {max(self.nodes_featureids) + 1} features, got {width}")
        return (x.shape[0], self.n_targets)

    def decompose(self, b: Builder, x: Value) -> Any:
        """Traverse all trees for all rows at once, one node per step; a path that has reached a leaf stays at this leaf."""
        walk = _TreeWalk(self, b, x)
        position = None
        for _ in range(self.depth()):
            position = walk.step(position)
        contributions = walk.contributions_of_leaf_table(position) if self.leaf_sizes else walk.contributions(position)
        return self._apply_transform(b, self._aggregate(b, x, *contributions))

    def _aggregate(self, b: Builder, x: Value, weights: Value, has_weight: Value) -> Any:
        """Combine the weights of all trees, [N, trees, targets] with 0 for a missing weight, to one number per target."""
        if self.aggregate_function in ("sum", "average"):
            total = b.ReduceSum(weights, [1], keepdims=False)
            return total if self.aggregate_function == "sum" else b.Divide(total, _constant(b, x, len(self.tree_roots)))
        reduction, worst = ("ReduceMin", np.inf) if self.aggregate_function == "min" else ("ReduceMax", -np.inf)
        best = b.apply(reduction, b.Where(has_weight, weights, _constant(b, x, worst)), [1], keepdims=False)
        any_weight = b.ReduceMax(b.Cast(has_weight, to=dtypes.i32), [1], keepdims=False)
        return b.Where(b.Greater(any_weight, b.constant(0, dtypes.i32)), best, _constant(b, x, 0))

    def _apply_transform(self, b: Builder, y: Value) -> Any:
        if self.post_transform == "none":
            return y
        return b.Softmax(y, axis=1) if self.post_transform == "softmax" else b.Sigmoid(y)


class _TreeWalk:
    """_TreeWalk emits the paths of all rows through all trees; positions are indices of nodes, followed by those of leaves."""

    def __init__(self, op: TreeEnsemble, b: Builder, x: Value) -> None:
        self.op, self.b, self.x = op, b, x
        self.count, leaves = len(op.nodes_featureids), op.leaf_count()
        leaf_ids = list(range(self.count, self.count + leaves))
        self.nodes_featureids = np.array([*op.nodes_featureids, *[0] * leaves], np.int64)
        self.nodes_modes = np.array([*op.nodes_modes, *[LESS] * leaves], np.int64)
        self.nodes_splits = np.array([*op.nodes_splits, *[0.0] * leaves], x.dtype.numpy)
        self.missing = np.array([*(op.nodes_missing_value_tracks_true or [False] * self.count), *[False] * leaves])
        pairs = ((op.nodes_truenodeids, op.nodes_trueleafs), (op.nodes_falsenodeids, op.nodes_falseleafs))
        self.true, self.false = (
            np.array([*(next_id + self.count * is_leaf for next_id, is_leaf in zip(*pair, strict=True)), *leaf_ids], np.int64)
            for pair in pairs
        )
        longest = max(map(len, op.membership_values), default=0)
        self.membership_values = np.full((self.count + leaves, max(longest, 1)), np.nan, x.dtype.numpy)
        for node, members in zip(np.flatnonzero(self.nodes_modes == MEMBER), op.membership_values, strict=True):
            self.membership_values[node, : len(members)] = members

    def _rows_at(self, table: Array, position: Value | None) -> Any:
        """Return the table rows at the current positions: [trees] in the first step, then [N, trees]."""
        if position is None:
            return self.b.constant(table[list(self.op.tree_roots)])
        return self.b.Gather(self.b.constant(table), position, axis=0)

    def step(self, position: Value | None) -> Any:
        b = self.b
        feature = self._rows_at(self.nodes_featureids, position)
        value = b.Gather(self.x, feature, axis=1) if position is None else b.GatherElements(self.x, feature, axis=1)
        goes_true = self._compare(value, position)
        if self.op.nodes_missing_value_tracks_true and any(self.op.nodes_missing_value_tracks_true):
            goes_true = b.Or(goes_true, b.And(b.IsNaN(value), self._rows_at(self.missing, position)))
        return b.Where(goes_true, self._rows_at(self.true, position), self._rows_at(self.false, position))

    def _compare(self, value: Value, position: Value | None) -> Any:
        b, modes = self.b, sorted(set(self.op.nodes_modes))
        split, mode = self._rows_at(self.nodes_splits, position), self._rows_at(self.nodes_modes, position)
        result = None
        for test in modes:
            if test == MEMBER:
                is_equal = b.Equal(b.Unsqueeze(value, [2]), self._rows_at(self.membership_values, position))
                is_true = b.Greater(b.ReduceMax(b.Cast(is_equal, to=dtypes.i32), [2], keepdims=False), b.constant(0, dtypes.i32))
            else:
                (is_true,) = b.add(_COMPARISONS[MODES[test]](), value, split)
            result = is_true if result is None else b.Where(b.Equal(mode, b.constant(test, dtypes.i64)), is_true, result)
        return result

    def contributions(self, position: Value | None) -> tuple[Any, Any]:
        """Return each tree's weight for each target, and a mask of existing weights; every leaf has one target."""
        b, op = self.b, self.op
        weights = self._rows_at(np.array([*[0.0] * self.count, *op.leaf_weights], self.x.dtype.numpy), position)
        targets = self._rows_at(np.array([*[0] * self.count, *op.leaf_targetids], np.int64), position)
        refuse_table((op.n_targets,), 8, "the targets of a tree ensemble")
        has_weight = b.Equal(b.Unsqueeze(targets, [2]), b.constant(np.arange(op.n_targets)))
        return b.Where(has_weight, b.Unsqueeze(weights, [2]), _constant(b, self.x, 0)), has_weight

    def contributions_of_leaf_table(self, position: Value | None) -> tuple[Any, Any]:
        """Return the weights and the mask of ``contributions`` from a table of leaves with any number of targets."""
        op = self.op
        leaves = self.count + np.repeat(np.arange(len(op.leaf_sizes)), op.leaf_sizes)
        targets, leaf_weights = np.array(op.leaf_targetids, np.int64), np.array(op.leaf_weights, self.x.dtype.numpy)
        has_weight = np.zeros((self.count + len(op.leaf_sizes), op.n_targets), bool)
        has_weight[leaves, targets] = True
        weights = np.zeros(has_weight.shape, self.x.dtype.numpy)
        if op.aggregate_function in ("min", "max"):
            weights[has_weight] = np.inf if op.aggregate_function == "min" else -np.inf
        ufunc: Any = {"min": np.minimum, "max": np.maximum}.get(op.aggregate_function, np.add)
        ufunc.at(weights, (leaves, targets), leaf_weights)
        return self._rows_at(weights, position), self._rows_at(has_weight, position)


def depth_of(roots: Array, next_ids: Array, is_leaf: Array, leaf_count: int) -> int:
    """Return the number of nodes on the longest path.

    ``next_ids`` [2, nodes] are the ids of the next node or leaf: row 0 where a node's comparison holds, row 1 where it fails.
    Raises RuleError [tree.nodes] for a cycle, a missing node or a missing leaf.
    """
    count = next_ids.shape[1]
    if np.any((roots < 0) | (roots >= count)) or np.any(~is_leaf & ((next_ids < 0) | (next_ids >= count))):
        raise RuleError("tree.nodes", f"node ids must be in [0, {count - 1}]")
    if np.any(is_leaf & ((next_ids < 0) | (next_ids >= leaf_count))):
        raise RuleError("tree.nodes", f"leaf ids must be in [0, {leaf_count - 1}]")
    # Topological order, level by level: the nodes of a cycle are never visited.
    predecessors = np.bincount(next_ids[~is_leaf], minlength=count)
    front, visited, depth = np.flatnonzero(predecessors == 0), 0, 0
    while front.size:
        visited, depth = visited + front.size, depth + 1
        nodes, counts = np.unique(next_ids[:, front][~is_leaf[:, front]], return_counts=True)
        predecessors[nodes] -= counts
        front = nodes[predecessors[nodes] == 0]
    if visited < count or depth > MAX_DEPTH:
        reason = "nodes must not form a cycle" if visited < count else f"a path may have at most {MAX_DEPTH} nodes, got {depth}"
        raise RuleError("tree.nodes", reason)
    return depth


def first_outside(numbers: tuple[int, ...], end: int) -> int | None:
    """Return the first of ``numbers`` outside of [0, end), or None; a test by min and max is fast for millions of numbers."""
    if not numbers or (min(numbers) >= 0 and max(numbers) < end):
        return None
    return next(number for number in numbers if not 0 <= number < end)


def _constant(b: Builder, x: Value, value: float) -> Any:
    return b.constant(np.array(value, x.dtype.numpy), x.dtype)
