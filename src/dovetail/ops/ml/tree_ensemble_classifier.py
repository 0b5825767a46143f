"""Decision tree ensembles by node columns: TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.ml.class_labels import Labels, check_labels
from dovetail.ops.ml.linear_models import as_rows, row_count_of
from dovetail.ops.ml.post_transform import apply_transform, apply_transform_to_single_score, check_transform
from dovetail.ops.ml.tree_ensemble import AGGREGATES, MODES, TreeEnsemble, depth_of, first_outside

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_NUMBERS = {mode: number for number, mode in enumerate((*MODES, "LEAF"))}


class Forest(NamedTuple):
    """Forest holds the node columns of a classifier or regressor, converted to the attributes of TreeEnsemble.

    ``branches`` are TreeEnsemble's attributes of nodes and roots, by name. ``leaf_of`` is the leaf index of each weight, -1 for
    a weight of an inner node. ``tree_of`` is the tree index of each leaf.
    """

    branches: dict[str, Array]
    leaf_of: Any
    tree_of: Any

    def check_walks(self) -> None:
        """Check that every path ends at a leaf. Raises RuleError [tree.nodes]."""
        columns = self.branches
        next_ids = np.stack([columns[f"nodes_{side}nodeids"] for side in ("true", "false")])
        is_leaf = np.stack([columns[f"nodes_{side}leafs"] for side in ("true", "false")])
        depth_of(columns["tree_roots"], next_ids, is_leaf, len(self.tree_of))

    def branch_attributes(self) -> dict[str, tuple[Any, ...]]:
        """Return TreeEnsemble's attributes of nodes and roots."""
        return {name: tuple(column.tolist()) for name, column in self.branches.items()}

    def leaf_attributes(self, targets: tuple[int, ...], weights: tuple[float, ...]) -> dict[str, tuple[Any, ...]]:
        """Return TreeEnsemble's attributes of leaves: sizes, targets and weights, in the order of the leaves."""
        order = np.argsort(self.leaf_of, kind="stable")
        order = order[np.searchsorted(self.leaf_of[order], 0) :]
        sizes = np.bincount(self.leaf_of[order], minlength=len(self.tree_of))
        return {
            "leaf_sizes": () if np.all(sizes == 1) else tuple(sizes.tolist()),
            "leaf_targetids": tuple(np.array(targets, np.int64)[order].tolist()),
            "leaf_weights": tuple(np.array(weights, np.float64)[order].tolist()),
        }

    def has_weight(self, targets: tuple[int, ...], target: int) -> bool | None:
        """Return whether every row reaches a leaf with a weight for ``target``; None if the answer depends on the row."""
        has = np.zeros(len(self.tree_of), bool)
        leaves = self.leaf_of[(np.array(targets, np.int64) == target) & (self.leaf_of >= 0)]
        has[leaves] = True
        if not leaves.size:
            return False
        lacking = np.unique(self.tree_of[~has])
        return True if len(lacking) < len(np.unique(self.tree_of)) else None


_FORESTS: dict[int, Forest] = {}
"""Forest of each operator, by the operator's id, until the operator is deleted: validation and decomposition share the Forest."""


def _keep(op: Op, forest: Forest) -> None:
    _FORESTS[id(op)] = forest
    weakref.finalize(op, _FORESTS.pop, id(op), None).atexit = False


class _TreeColumns(Op):
    """_TreeColumns is the base class of both operators: columns with one entry per node, base values and the transform."""

    nodes_treeids: tuple[int, ...]
    nodes_nodeids: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_modes: tuple[str, ...]
    nodes_values: tuple[float, ...]
    nodes_truenodeids: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_missing_value_tracks_true: tuple[bool, ...] = ()
    base_values: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def weight_columns(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        """Return four columns with one entry per weight: tree id, node id, target and weight."""
        raise NotImplementedError

    def target_count(self) -> int:
        raise NotImplementedError

    def validate(self) -> None:
        check_transform(self.post_transform)
        if self.target_count() < 1:
            raise RuleError("tree.nodes", f"there must be at least 1 target, got {self.target_count()}")
        forest = _read_forest(self)
        forest.check_walks()
        _keep(self, forest)

    def forest(self) -> Forest:
        """Return the Forest of the columns, from a cache if this operator was validated before. Raises RuleError [tree.nodes]."""
        return _FORESTS.get(id(self)) or _read_forest(self)

    def trees(self, aggregate: str, forest: Forest | None = None) -> TreeEnsemble:
        """Return the TreeEnsemble that computes the scores before base values and transform."""
        forest = forest or self.forest()
        _, _, targets, weights = self.weight_columns()
        columns: dict[str, Any] = {**forest.branch_attributes(), **forest.leaf_attributes(targets, weights)}
        return TreeEnsemble(n_targets=self.target_count(), aggregate_function=aggregate, **columns)

    def rows(self, b: Builder, x: Value) -> Any:
        """Return ``x`` as a matrix in the type of the comparisons: f64 for an f64 ``x``, else f32."""
        return as_rows(b, x, dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32)

    def write_has_weight(self, b: Builder, rows: Value, forest: Forest) -> list[Any]:
        """Return for each target whether a row's leaves have a weight for the target: a bool for all rows, or [N, 1]."""
        _, _, targets, _ = self.weight_columns()
        answers: list[Any] = [forest.has_weight(targets, target) for target in range(self.target_count())]
        if None not in answers:
            return answers
        columns: dict[str, Any] = {**forest.branch_attributes(), **forest.leaf_attributes(targets, (1.0,) * len(targets))}
        (maximum,) = b.add(TreeEnsemble(n_targets=self.target_count(), aggregate_function="max", **columns), rows)
        has_weight = b.Greater(maximum, b.constant(np.array(0, rows.dtype.numpy), rows.dtype))
        parts = (b.Slice(has_weight, [target], [target + 1], [1]) for target in range(self.target_count()))
        return [part if answer is None else answer for answer, part in zip(answers, parts, strict=True)]

    def count_rows(self, x: View) -> Any:
        """Return the number of rows of ``x``. Raises RuleError [shape.rank], [shape.disagree] for too few features."""
        count = row_count_of(x, None)
        if x.shape is not None and len(x.shape) != 2:
            raise RuleError("shape.rank", f"x must have rank 2, got {len(x.shape)}")
        width = None if x.shape is None else x.shape[-1]
        last_feature = max(self.nodes_featureids, default=0)
        if isinstance(width, int) and last_feature >= width:
            raise RuleError("shape.disagree", f"x must have at least {last_feature + 1} features, got {width}")
        return count


class TreeEnsembleRegressor(_TreeColumns, sig="x: R -> y: f32"):
    """TreeEnsembleRegressor evaluates decision trees for each row of ``x`` in f32: [N, n_targets].

    Entry i of the columns ``nodes_*`` is the node ``nodes_nodeids[i]`` of the tree ``nodes_treeids[i]``; the first entry of a
    tree is the root. A node is a ``LEAF``, or compares feature ``nodes_featureids[i]`` with ``nodes_values[i]``
    (``BRANCH_LEQ``, ``BRANCH_LT``, ``BRANCH_GTE``, ``BRANCH_GT``, ``BRANCH_EQ``, ``BRANCH_NEQ``). The path continues at
    ``nodes_truenodeids[i]`` where the comparison holds, or where the feature is NaN and ``nodes_missing_value_tracks_true[i]``
    is true; else at ``nodes_falsenodeids[i]``. A leaf contributes its ``target_weights`` to its ``target_ids``.
    ``aggregate_function`` combines the contributions of all trees (``sum``, ``average``, ``min``, ``max``), and ``base_values``
    are added.

    Two rules follow onnxruntime: with a single target, only the transform ``PROBIT`` changes the result; with several targets,
    a target without a weight in the row's leaves stays 0. The computation runs in f64 for an f64 ``x``, else in f32.
    Source: ONNX ai.onnx.ml TreeEnsembleRegressor 1, 3, 5.
    """

    n_targets: int = 1
    aggregate_function: str = "sum"
    target_treeids: tuple[int, ...] = ()
    target_nodeids: tuple[int, ...] = ()
    target_ids: tuple[int, ...] = ()
    target_weights: tuple[float, ...] = ()

    def validate(self) -> None:
        if self.aggregate_function not in AGGREGATES:
            raise RuleError(
                "attribute.value", f"aggregate_function must be one of {', '.join(AGGREGATES)}, got {self.aggregate_function!r}"
            )
        super().validate()
        if len(self.base_values) not in (0, self.n_targets):
            raise RuleError(
                "attribute.length", f"the number of base_values ({len(self.base_values)}) must equal n_targets ({self.n_targets})"
            )

    def weight_columns(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        return self.target_treeids, self.target_nodeids, self.target_ids, self.target_weights

    def target_count(self) -> int:
        return self.n_targets

    def shape(self, x: View) -> Any:
        return (self.count_rows(x), self.n_targets)

    def decompose(self, b: Builder, x: Value) -> Any:
        rows, forest = self.rows(b, x), self.forest()
        (scores,) = b.add(self.trees(self.aggregate_function, forest), rows)
        if self.base_values:
            based = b.Add(scores, b.constant(np.array(self.base_values, scores.dtype.numpy), scores.dtype))
            says = [True] if self.n_targets == 1 else self.write_has_weight(b, rows, forest)
            scores = based if all(answer is True for answer in says) else b.Where(_mask_of(b, says), based, scores)
        scores = (apply_transform_to_single_score if self.n_targets == 1 else apply_transform)(b, scores, self.post_transform)
        return scores if scores.dtype is dtypes.f32 else b.Cast(scores, to=dtypes.f32)


class TreeEnsembleClassifier(_TreeColumns, sig="x: R -> y: T, z: f32"):
    """TreeEnsembleClassifier returns the class that decision trees choose for each row of ``x``, and all scores in f32.

    The trees are those of TreeEnsembleRegressor: a leaf contributes its ``class_weights`` to its ``class_ids``, and the score
    of a class is the sum of its weights and its base value. With more than two classes, the class with the greatest score wins,
    the first one of equal scores. A class without a weight in the row's leaves and without a base value cannot win.

    The case of two classes follows onnxruntime, since ONNX does not define this case. Let s be the score of the second class,
    or the score of the first class where the row's leaves have no weight for the second class.

    - The second label is selected where s > 0.5 if all weights are for one class and no weight is negative, else where s > 0.
    - Where weights are for both classes, integer labels are 0 and 1, whatever the class labels are.
    - Where the row's leaves have weights for the first class only, the two scores are ``logistic(-s), logistic(s)`` with
      LOGISTIC. Otherwise they are ``1 - s, s`` if all weights are for one class and no weight is negative, else ``-s, s``.
    - With two base values and weights for both classes in the row's leaves, the second score is the first class's sum of
      weights plus the second base value. The first score is the negative of the second score.

    Source: ONNX ai.onnx.ml TreeEnsembleClassifier 1, 3, 5.
    """

    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    class_treeids: tuple[int, ...] = ()
    class_nodeids: tuple[int, ...] = ()
    class_ids: tuple[int, ...] = ()
    class_weights: tuple[float, ...] = ()

    def validate(self) -> None:
        count = self.target_count()
        super().validate()
        if len(self.base_values) not in ((0, 1, 2) if count == 2 else (0, count)):
            raise RuleError(
                "attribute.length",
                f"the number of base_values ({len(self.base_values)}) must equal the number of classes ({count})",
            )
        if count == 2 and len(self.base_values) < 2 and self.forest().has_weight(self.class_ids, 1) is not True:
            if self.post_transform == "PROBIT":
                raise UnsupportedError(
                    "op.unsupported", "PROBIT must have a score for each class, got rows with a score for the first class only"
                )
            if self.base_values and not self._is_of_one_class():
                raise UnsupportedError(
                    "op.unsupported", "one base value is not supported where rows have weights for the first class only"
                )

    def labels(self) -> Labels:
        return check_labels("TreeEnsembleClassifier", self.classlabels_int64s, self.classlabels_strings)

    def weight_columns(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        return self.class_treeids, self.class_nodeids, self.class_ids, self.class_weights

    def target_count(self) -> int:
        return len(self.labels())

    def _is_of_one_class(self) -> bool:
        return len(set(self.class_ids)) == 1

    def types(self, x: View) -> list[Type]:
        labels, count = self.labels(), self.count_rows(x)
        return [Tensor(labels.dtype, (count,)), Tensor(dtypes.f32, (count, len(labels)))]

    def decompose(self, b: Builder, x: Value) -> Any:
        return _Classification(self, b, self.rows(b, x)).outputs()


class _Classification:
    """_Classification emits the labels and the scores of a TreeEnsembleClassifier."""

    def __init__(self, op: TreeEnsembleClassifier, b: Builder, rows: Value) -> None:
        self.op, self.b, self.rows = op, b, rows
        self.labels = op.labels()
        self.forest = op.forest()

    def outputs(self) -> tuple[Any, Any]:
        (scores,) = self.b.add(self.op.trees("sum", self.forest), self.rows)
        label, scores = self._classify_two(scores) if len(self.labels) == 2 else self._classify_many(scores)
        return label, scores if scores.dtype is dtypes.f32 else self.b.Cast(scores, to=dtypes.f32)

    def _classify_many(self, scores: Value) -> tuple[Any, Any]:
        b, op = self.b, self.op
        chosen = scores
        if op.base_values:
            chosen = scores = b.Add(scores, b.constant(np.array(op.base_values, scores.dtype.numpy), scores.dtype))
        else:
            says = op.write_has_weight(b, self.rows, self.forest)
            if not all(answer is True for answer in says):
                chosen = b.Where(_mask_of(b, says), scores, self._constant(-np.inf))
        return self.labels.gather(b, b.ArgMax(chosen, axis=1, keepdims=False)), apply_transform(b, scores, op.post_transform)

    def _classify_two(self, scores: Value) -> tuple[Any, Any]:
        """Emit the two scores for rows with and without a weight for the second class, and select the scores of each row."""
        b, op = self.b, self.op
        first, second = (b.Slice(scores, [target], [target + 1], [1]) for target in (0, 1))
        has_first, has_second = op.write_has_weight(b, self.rows, self.forest)
        bases = [self._constant(value) for value in op.base_values]
        if len(bases) == 2:
            other = b.Add(first, bases[1])
            with_second = self._where(has_first, b.Negative(other), first), other, other
            lone = self._where(has_first, b.Add(first, bases[0]), first)
            # The score of a class without leaves is the empty sum, 0.
            alone = lone, second, lone
        else:
            lone = self._where(has_first, b.Add(first, bases[0]), first) if bases else first
            with_second = lone, second, second
            alone = (*self._scores_of_single(lone), lone)
        deciding = self._where(has_second, with_second[2], alone[2])
        pairs = [apply_transform(b, b.Concat(*with_second[:2], axis=1), op.post_transform), b.Concat(*alone[:2], axis=1)]
        if len(bases) == 2:
            pairs[1] = apply_transform(b, pairs[1], op.post_transform)
        return self._choose_label(b.Squeeze(deciding, [1])), self._where(has_second, *pairs)

    def _scores_of_single(self, score: Value) -> tuple[Any, Any]:
        """Emit the scores of both classes from ``score``, the score of the first class."""
        b, op = self.b, self.op
        if op.post_transform == "LOGISTIC":
            return b.Sigmoid(b.Negative(score)), b.Sigmoid(score)
        if op._is_of_one_class() and self._is_positive():
            return b.Subtract(self._constant(1), score), score
        return b.Negative(score), score

    def _choose_label(self, deciding: Value) -> Any:
        is_of_one = self.op._is_of_one_class()
        limit = self._constant(0.5 if is_of_one and self._is_positive() else 0)
        pair = self.labels.items if is_of_one or self.labels.dtype == "string" else (0, 1)
        return self.labels.choose(self.b, self.b.Greater(deciding, limit), *pair)

    def _is_positive(self) -> bool:
        return all(weight >= 0 for weight in self.op.class_weights)

    def _where(self, condition: Value | bool, first: Value, second: Value) -> Any:
        if isinstance(condition, bool):
            return first if condition else second
        return self.b.Where(condition, first, second)

    def _constant(self, value: float) -> Any:
        return self.b.constant(np.array(value, self.rows.dtype.numpy), self.rows.dtype)


def _mask_of(b: Builder, says: list[Value | bool]) -> Any:
    """Return the results of ``write_has_weight`` as one mask: [1 or N, targets]."""
    if all(isinstance(answer, bool) for answer in says):
        return b.constant(np.array([says]), dtypes.boolean)
    like = next(answer for answer in says if not isinstance(answer, bool))
    known = {True: b.Or(like, b.Not(like)), False: b.And(like, b.Not(like))}
    return b.Concat(*(known[answer] if isinstance(answer, bool) else answer for answer in says), axis=1)


def _read_forest(op: _TreeColumns) -> Forest:
    ids = [np.array(column, np.int64) for column in (op.nodes_treeids, op.nodes_nodeids)]
    count = len(op.nodes_nodeids)
    for name in ("treeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"):
        size = len(getattr(op, f"nodes_{name}"))
        if size != count and (size or name != "missing_value_tracks_true"):
            raise RuleError("tree.nodes", f"nodes_{name} ({size}) must have as many entries as nodes_nodeids ({count})")
    if not count:
        raise RuleError("tree.nodes", "a tree ensemble must have at least 1 node, got 0")
    words = set(op.nodes_modes) - {*MODES, "LEAF"}
    if words:
        raise RuleError("tree.nodes", f"nodes_modes must be one of {', '.join(MODES)}, LEAF, got {min(words)!r}")
    index = _NodeIndex(*ids)
    modes = np.fromiter(map(_NUMBERS.__getitem__, op.nodes_modes), np.int64, count)
    is_leaf = modes == _NUMBERS["LEAF"]
    features = np.array(op.nodes_featureids, np.int64)
    if np.any(features[~is_leaf] < 0):
        raise RuleError("tree.nodes", f"feature ids must not be negative, got {features[~is_leaf].min()}")
    goes = np.stack([index.rows(ids[0], np.array(column, np.int64), ~is_leaf, name) for name, column in _next_columns(op)])
    return _number_nodes(op, index, modes, features, goes)


def _next_columns(op: _TreeColumns) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return ("nodes_truenodeids", op.nodes_truenodeids), ("nodes_falsenodeids", op.nodes_falsenodeids)


class _NodeIndex:
    """_NodeIndex finds the index of a node in the node columns by tree id and node id.

    Raises RuleError [tree.nodes] for a node that occurs twice, and for a tree whose entries are not consecutive.
    """

    def __init__(self, trees: Array, nodes: Array) -> None:
        starts = np.flatnonzero(np.diff(trees, prepend=trees[0] - 1))
        self.trees = trees[starts]
        if np.unique(self.trees).size != len(starts):
            raise RuleError("tree.nodes", "the nodes of a tree must be consecutive")
        self.roots = starts
        self.sizes = np.diff(starts, append=len(trees))
        self.tree_of = np.repeat(np.arange(len(starts)), self.sizes)
        self._tree_ids = trees
        self._by_id = np.argsort(self.trees, kind="stable")
        # Exporters number the nodes of a tree from 0 in order: the node id is then the offset from the tree's first entry.
        self._places: _Places | None = None
        if not np.array_equal(nodes, np.arange(len(nodes)) - np.repeat(starts, self.sizes)):
            self._places = _Places(trees, nodes, self.tree_of)

    def rows(self, trees: Array, nodes: Array, is_required: Array, name: str) -> Any:
        """Return each node's index, -1 where not ``is_required``. Raises RuleError [tree.nodes] for a missing node."""
        if trees is self._tree_ids:
            tree, exists = self.tree_of, np.ones(len(trees), bool)
        else:
            place = np.minimum(np.searchsorted(self.trees, trees, sorter=self._by_id), len(self.trees) - 1)
            tree = self._by_id[place]
            exists = self.trees[tree] == trees
        if self._places is None:
            rows = self.roots[tree] + nodes
            exists &= (nodes >= 0) & (nodes < self.sizes[tree])
        else:
            rows, is_known = self._places.rows(tree, nodes)
            exists &= is_known
        missing = np.flatnonzero(is_required & ~exists)
        if missing.size:
            raise RuleError(
                "tree.nodes", f"{name} names node {nodes[missing[0]]} of tree {trees[missing[0]]}, which does not exist"
            )
        return np.where(is_required, rows, -1)


class _Places:
    """_Places finds the indices in the node columns of nodes with arbitrary ids."""

    def __init__(self, trees: Array, nodes: Array, tree_of: Array) -> None:
        self.nodes, node_of = np.unique(nodes, return_inverse=True)
        keys = tree_of * len(self.nodes) + node_of
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        twice = np.flatnonzero(np.diff(self.keys) == 0)
        if twice.size:
            row = self.order[twice[0]]
            raise RuleError("tree.nodes", f"node ids of a tree must be unique, got node {nodes[row]} of tree {trees[row]} twice")

    def rows(self, tree: Array, nodes: Array) -> tuple[Any, Any]:
        """Return each node's index in the node columns, and whether the node exists; ``tree`` holds the nodes' tree indices."""
        node = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        keys = tree * len(self.nodes) + node
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.order[index], (self.nodes[node] == nodes) & (self.keys[index] == keys)


def _number_nodes(op: _TreeColumns, index: _NodeIndex, modes: Array, features: Array, goes: Array) -> Forest:
    """Number inner nodes and leaves separately, and return the Forest.

    A tree that is a single leaf gets an inner node whose two branches lead to this leaf.
    """
    is_leaf = modes == _NUMBERS["LEAF"]
    number = np.where(is_leaf, np.cumsum(is_leaf) - 1, np.cumsum(~is_leaf) - 1)
    branches = ~is_leaf
    lone = index.roots[is_leaf[index.roots]]
    added = len(lone)
    missing = np.array(op.nodes_missing_value_tracks_true or (False,) * len(is_leaf), bool)
    roots = number[index.roots].copy()
    roots[is_leaf[index.roots]] = np.count_nonzero(branches) + np.arange(added)
    columns: dict[str, tuple[Any, Any]] = {
        "nodes_featureids": (features[branches], np.zeros(added, np.int64)),
        "nodes_modes": (modes[branches], np.zeros(added, np.int64)),
        "nodes_splits": (np.array(op.nodes_values, np.float64)[branches], np.zeros(added)),
        "nodes_missing_value_tracks_true": (missing[branches], np.zeros(added, bool)),
    }
    for side, rows in zip(("true", "false"), goes, strict=True):
        columns[f"nodes_{side}nodeids"] = number[rows[branches]], number[lone]
        columns[f"nodes_{side}leafs"] = is_leaf[rows[branches]], np.ones(added, bool)
    branch_columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    if not np.any(branch_columns["nodes_missing_value_tracks_true"]):
        branch_columns["nodes_missing_value_tracks_true"] = np.zeros(0, bool)
    return Forest({**branch_columns, "tree_roots": roots}, _leaf_rows(op, index, is_leaf, number), index.tree_of[is_leaf])


def _leaf_rows(op: _TreeColumns, index: _NodeIndex, is_leaf: Array, number: Array) -> Any:
    """Return the leaf index of each weight; -1 for a weight of an inner node, which is ignored as in onnxruntime."""
    trees, nodes, targets, weights = op.weight_columns()
    sizes = len(trees), len(nodes), len(targets), len(weights)
    if len(set(sizes)) > 1:
        raise RuleError(
            "tree.nodes", f"tree ids, node ids, targets and weights must have equal lengths, got {', '.join(map(str, sizes))}"
        )
    if not trees:
        return np.zeros(0, np.int64)
    wrong = first_outside(targets, op.target_count())
    if wrong is not None:
        raise RuleError("tree.nodes", f"targets must be in [0, {op.target_count() - 1}], got {wrong}")
    rows = index.rows(np.array(trees, np.int64), np.array(nodes, np.int64), np.ones(len(trees), bool), "a weight")
    return np.where(is_leaf[rows], number[rows], -1)
