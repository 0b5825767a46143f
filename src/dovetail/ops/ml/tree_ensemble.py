"""Decision trees: TreeEnsemble."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import axis_in

LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, NOT_EQUAL, MEMBER = range(7)
_COMPARED = ("LessEqual", "Less", "GreaterEqual", "Greater", "Equal", "NotEqual")
AGGREGATES = ("average", "sum", "min", "max")
TRANSFORMS = ("none", "softmax", "logistic")
DEEPEST = 4096


class TreeEnsemble(Op, sig="x: F -> y: F"):
    """What decision trees say of each row of ``x``: a number for each of ``targets``.

    A way through a tree begins at one of ``roots``. A node compares the feature of its number with its entry of ``splits``, by
    one of seven ``modes`` (``<=``, ``<``, ``>=``, ``>``, ``==``, ``!=``, and whether it is in the next of ``members``), and
    goes on at ``true_next`` or ``false_next``: a node, or where ``true_leaf`` or ``false_leaf`` a leaf. A NaN goes the true way
    where ``missing_true``. A leaf adds its weight to its target; ``aggregate`` says how the trees' are taken together: ``sum``,
    ``average`` over all trees, ``min`` or ``max`` of those that say something (0 where none does). ``transform`` is made of the
    numbers of a row in the end. Where ``leaf_sizes`` are given, a leaf has that many of ``leaf_targets`` and ``leaf_weights``,
    the leaves one after the other. Sources: ONNX ai.onnx.ml TreeEnsemble 5; leaves of several targets, TreeEnsembleRegressor 3.
    """

    targets: int
    roots: tuple[int, ...]
    features: tuple[int, ...]
    modes: tuple[int, ...]
    splits: tuple[float, ...]
    true_next: tuple[int, ...]
    true_leaf: tuple[bool, ...]
    false_next: tuple[int, ...]
    false_leaf: tuple[bool, ...]
    leaf_targets: tuple[int, ...]
    leaf_weights: tuple[float, ...]
    missing_true: tuple[bool, ...] = ()
    members: tuple[tuple[float, ...], ...] = ()
    aggregate: str = "sum"
    transform: str = "none"
    leaf_sizes: tuple[int, ...] = ()

    def validate(self) -> None:
        count, weights = len(self.features), len(self.leaf_targets)
        columns = (self.modes, self.splits, self.true_next, self.true_leaf, self.false_next, self.false_leaf)
        if any(len(column) != count for column in columns) or len(self.missing_true) not in (0, count):
            raise RuleError("tree.nodes", f"{count} nodes, and attributes of other lengths")
        if len(self.leaf_weights) != weights or any(not 0 <= target < self.targets for target in self.leaf_targets):
            raise RuleError("tree.leaves", f"{weights} leaves for {self.targets} targets")
        if self.leaf_sizes and (sum(self.leaf_sizes) != weights or min(self.leaf_sizes) < 0):
            raise RuleError("tree.leaves", f"leaf_sizes add up to {sum(self.leaf_sizes)}, and there are {weights} weights")
        if any(not 0 <= mode <= MEMBER for mode in self.modes) or self.modes.count(MEMBER) != len(self.members):
            raise RuleError("tree.modes", f"modes {sorted(set(self.modes))}, and {len(self.members)} sets of members")
        if self.aggregate not in AGGREGATES or self.transform not in TRANSFORMS:
            raise RuleError("tree.words", f"{self.aggregate!r} and {self.transform!r}")
        if not self.roots or any(feature < 0 for feature in self.features):
            raise RuleError("tree.nodes", "no tree, or a feature below 0")
        self.depth()

    def leaf_count(self) -> int:
        return len(self.leaf_sizes) or len(self.leaf_targets)

    def depth(self) -> int:
        """How many nodes the longest way has. Raises RuleError [tree.nodes] where one does not end, or leads nowhere."""
        goes = np.array([self.true_next, self.false_next], np.int64)
        is_leaf = np.array([self.true_leaf, self.false_leaf], bool)
        count = goes.shape[1]
        if np.any((np.array(self.roots) < 0) | (np.array(self.roots) >= count)) or np.any(
            ~is_leaf & ((goes < 0) | (goes >= count))
        ):
            raise RuleError("tree.nodes", f"a way leads to none of the {count} nodes")
        if np.any(is_leaf & ((goes < 0) | (goes >= self.leaf_count()))):
            raise RuleError("tree.leaves", f"a way leads to none of the {self.leaf_count()} leaves")
        # Nodes are taken away level by level, each after all that lead to it: what a cycle holds is never taken.
        before = np.bincount(goes[~is_leaf], minlength=count)
        front, taken, depth = np.flatnonzero(before == 0), 0, 0
        while front.size:
            taken, depth = taken + front.size, depth + 1
            nodes, times = np.unique(goes[:, front][~is_leaf[:, front]], return_counts=True)
            before[nodes] -= times
            front = nodes[before[nodes] == 0]
        if taken < count or depth > DEEPEST:
            reason = (
                "a way comes back to a node" if taken < count else f"a way through {depth} nodes, and at most {DEEPEST} are taken"
            )
            raise RuleError("tree.nodes", reason)
        return depth

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) != 2:
            raise RuleError("input.rank", f"rows of features are needed, not rank {len(x.shape)}")
        width = x.shape[axis_in(1, 2)]
        if isinstance(width, int) and max(self.features) >= width:
            raise RuleError("tree.features", f"feature {max(self.features)} of {width}")
        return (x.shape[0], self.targets)

    def decompose(self, b: Any, x: Any) -> Any:
        """All rows go all ways at once, a node a step; who is at a leaf stays there."""
        way = _Way(self, b, x)
        at = None
        for _ in range(self.depth()):
            at = way.step(at)
        said = way.said_by_leaves(at) if self.leaf_sizes else way.said_by_targets(at)
        return self._transformed(b, self._together(b, x, *said))

    def _together(self, b: Any, x: Any, weights: Any, is_said: Any) -> Any:
        """What the trees say, [N, trees, targets] (0 where nothing), as a number for each target."""
        if self.aggregate in ("sum", "average"):
            total = b.ReduceSum(weights, [1], keepdims=False)
            return total if self.aggregate == "sum" else b.Divide(total, _number(b, x, len(self.roots)))
        kind, worst = ("ReduceMin", np.inf) if self.aggregate == "min" else ("ReduceMax", -np.inf)
        best = b.apply(kind, b.Where(is_said, weights, _number(b, x, worst)), [1], keepdims=False)
        said = b.ReduceMax(b.Cast(is_said, to=dtypes.i32), [1], keepdims=False)
        return b.Where(b.Greater(said, b.constant(0, dtypes.i32)), best, _number(b, x, 0))

    def _transformed(self, b: Any, y: Any) -> Any:
        if self.transform == "none":
            return y
        return b.Softmax(y, axis=1) if self.transform == "softmax" else b.Sigmoid(y)


class _Way:
    """The way of every row through every tree: nodes by number, leaves behind them."""

    def __init__(self, op: TreeEnsemble, b: Any, x: Any) -> None:
        self.op, self.b, self.x = op, b, x
        self.count, leaves = len(op.features), op.leaf_count()
        stay = list(range(self.count, self.count + leaves))
        self.features = np.array([*op.features, *[0] * leaves], np.int64)
        self.modes = np.array([*op.modes, *[LESS] * leaves], np.int64)
        self.splits = np.array([*op.splits, *[0.0] * leaves], x.dtype.numpy)
        self.missing = np.array([*(op.missing_true or [False] * self.count), *[False] * leaves])
        pairs = ((op.true_next, op.true_leaf), (op.false_next, op.false_leaf))
        self.true, self.false = (
            np.array([*(place + self.count * leaf for place, leaf in zip(*pair, strict=True)), *stay], np.int64) for pair in pairs
        )
        most = max(map(len, op.members), default=0)
        self.members = np.full((self.count + leaves, max(most, 1)), np.nan, x.dtype.numpy)
        for node, members in zip(np.flatnonzero(self.modes == MEMBER), op.members, strict=True):
            self.members[node, : len(members)] = members

    def _row(self, table: Any, at: Any) -> Any:
        """The rows of a table for where everybody is: [trees] at first, then [N, trees]."""
        if at is None:
            return self.b.constant(table[list(self.op.roots)])
        return self.b.Gather(self.b.constant(table), at, axis=0)

    def step(self, at: Any) -> Any:
        b = self.b
        feature = self._row(self.features, at)
        value = b.Gather(self.x, feature, axis=1) if at is None else b.GatherElements(self.x, feature, axis=1)
        goes_true = self._holds(value, at)
        if self.op.missing_true and any(self.op.missing_true):
            goes_true = b.Or(goes_true, b.And(b.IsNaN(value), self._row(self.missing, at)))
        return b.Where(goes_true, self._row(self.true, at), self._row(self.false, at))

    def _holds(self, value: Any, at: Any) -> Any:
        b, modes = self.b, sorted(set(self.op.modes))
        split, mode = self._row(self.splits, at), self._row(self.modes, at)
        found = None
        for each in modes:
            if each == MEMBER:
                same = b.Equal(b.Unsqueeze(value, [2]), self._row(self.members, at))
                holds = b.Greater(b.ReduceMax(b.Cast(same, to=dtypes.i32), [2], keepdims=False), b.constant(0, dtypes.i32))
            else:
                holds = b.apply(_COMPARED[each], value, split)
            found = holds if found is None else b.Where(b.Equal(mode, b.constant(each, dtypes.i64)), holds, found)
        return found

    def said_by_targets(self, at: Any) -> tuple[Any, Any]:
        """The weight that each tree says of each target, and where it says one; a leaf has one target."""
        b, op = self.b, self.op
        weights = self._row(np.array([*[0.0] * self.count, *op.leaf_weights], self.x.dtype.numpy), at)
        targets = self._row(np.array([*[0] * self.count, *op.leaf_targets], np.int64), at)
        is_said = b.Equal(b.Unsqueeze(targets, [2]), b.constant(np.arange(op.targets)))
        return b.Where(is_said, b.Unsqueeze(weights, [2]), _number(b, self.x, 0)), is_said

    def said_by_leaves(self, at: Any) -> tuple[Any, Any]:
        """The same from a table of leaves, of which each has any number of targets."""
        op = self.op
        leaves = self.count + np.repeat(np.arange(len(op.leaf_sizes)), op.leaf_sizes)
        targets, given = np.array(op.leaf_targets, np.int64), np.array(op.leaf_weights, self.x.dtype.numpy)
        is_said = np.zeros((self.count + len(op.leaf_sizes), op.targets), bool)
        is_said[leaves, targets] = True
        weights = np.zeros(is_said.shape, self.x.dtype.numpy)
        if op.aggregate in ("min", "max"):
            weights[is_said] = np.inf if op.aggregate == "min" else -np.inf
        ufunc: Any = {"min": np.minimum, "max": np.maximum}.get(op.aggregate, np.add)
        ufunc.at(weights, (leaves, targets), given)
        return self._row(weights, at), self._row(is_said, at)


def _number(b: Any, x: Any, value: float) -> Any:
    return b.constant(np.array(value, x.dtype.numpy), x.dtype)
