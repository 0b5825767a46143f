"""Converters for TreeEnsembleRegressor and TreeEnsembleClassifier, whose numbers are float lists or tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import FormatError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.converters.ai_onnx_ml import DOMAIN
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.graph import Node
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import coerce
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleClassifier, TreeEnsembleRegressor

_INTEGERS = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
_MISSING = "nodes_missing_value_tracks_true"
_DEPRECATED = 5


@ONNX.importer("TreeEnsembleRegressor", 1, 3, _DEPRECATED, domain=DOMAIN)
def import_tree_ensemble_regressor(ctx: ImportContext) -> Op:
    columns = {name: ctx.attribute(name, "tuple[int, ...]", ()) for name in ("target_treeids", "target_nodeids", "target_ids")}
    targets = ctx.attribute("n_targets", "int", max(columns["target_ids"], default=0) + 1)
    aggregate = ctx.attribute("aggregate_function", "str", "SUM").lower()
    weights = _numbers(ctx, "target_weights")
    return TreeEnsembleRegressor(
        n_targets=targets, aggregate_function=aggregate, target_weights=weights, **columns, **_node_columns(ctx)
    )


@ONNX.importer("TreeEnsembleClassifier", 1, 3, _DEPRECATED, domain=DOMAIN)
def import_tree_ensemble_classifier(ctx: ImportContext) -> Op:
    columns = {
        name: ctx.attribute(name, "tuple[int, ...]", ())
        for name in ("class_treeids", "class_nodeids", "class_ids", "classlabels_int64s")
    }
    strings = ctx.attribute("classlabels_strings", "tuple[str, ...]", ())
    weights = _numbers(ctx, "class_weights")
    return TreeEnsembleClassifier(classlabels_strings=strings, class_weights=weights, **columns, **_node_columns(ctx))


def _node_columns(ctx: ImportContext) -> dict[str, Any]:
    ctx.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    columns = {name: ctx.attribute(name, "tuple[int, ...]", ()) for name in _INTEGERS}
    modes = ctx.attribute("nodes_modes", "tuple[str, ...]", ())
    return {
        **columns,
        "nodes_modes": modes,
        "nodes_values": _numbers(ctx, "nodes_values"),
        "base_values": _numbers(ctx, "base_values"),
        _MISSING: tuple(value == 1 for value in ctx.attribute(_MISSING, "tuple[int, ...]", ())),
        "post_transform": ctx.attribute("post_transform", "str", "NONE"),
    }


def _numbers(ctx: ImportContext, name: str) -> tuple[float, ...]:
    """Return the elements of an attribute that is a list of floats, or a tensor of the type in which the trees compare.

    That type is f64 or f32.
    """
    names = [candidate for candidate in (name, f"{name}_as_tensor") if candidate in ctx.node.attributes]
    if len(names) > 1:
        raise FormatError("attribute.value", f"{ctx.node.kind} must have either {names[0]} or {names[1]}, got both")
    if names != [f"{name}_as_tensor"]:
        result: tuple[float, ...] = ctx.attribute(name, "tuple[float, ...]", ())
        return result
    tensor = ctx.attribute(names[0], "Any")
    expected = "f64" if ctx.input(0).dtype is dtypes.f64 else "f32"
    if not isinstance(tensor, ForeignTensor) or tensor.dtype.name != expected:
        raise FormatError(
            "attribute.value", f"{ctx.node.kind}: {names[0]} must be a tensor of {expected}, the type in which the trees compare"
        )
    values: tuple[float, ...] = coerce("tuple[float, ...]", tensor.data.reshape(-1).astype(np.float64).tolist())
    return values


def _is_expressible(op: Op, version: int) -> bool:
    """Return whether ``version`` of the operator is not deprecated, and can represent the numbers of ``op`` exactly."""
    return version < _DEPRECATED and (version >= 3 or _are_f32(op))


def _are_f32(op: Any) -> bool:
    return all(_is_f32(column) for column in (op.nodes_values, op.base_values, op.weight_columns()[3]))


def _is_f32(values: tuple[float, ...]) -> bool:
    wide = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        return bool(np.array_equal(wide.astype(np.float32).astype(np.float64), wide, equal_nan=True))


@ONNX.exporter("TreeEnsembleRegressor", "TreeEnsembleClassifier", domain=DOMAIN, supports=_is_expressible)
def export_tree_ensemble(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x = node.input(0)
    kind = type(op).__name__
    version = ctx.version(kind, DOMAIN)
    attributes: dict[str, Any] = {name: list(getattr(op, name)) for name in (*_INTEGERS, "nodes_modes")}
    if op.nodes_missing_value_tracks_true:
        attributes[_MISSING] = [int(value) for value in op.nodes_missing_value_tracks_true]
    if op.post_transform != "NONE":
        attributes["post_transform"] = op.post_transform
    if isinstance(op, TreeEnsembleRegressor):
        names: tuple[str, ...] = ("target_treeids", "target_nodeids", "target_ids")
        attributes |= {"n_targets": op.n_targets, "aggregate_function": op.aggregate_function.upper()}
    else:
        labels = "classlabels_strings" if op.classlabels_strings else "classlabels_int64s"
        names = ("class_treeids", "class_nodeids", "class_ids", labels)
    attributes |= {name: list(getattr(op, name)) for name in names}
    weights = "target_weights" if isinstance(op, TreeEnsembleRegressor) else "class_weights"
    for name in ("nodes_values", "base_values", weights):
        attributes |= _number_attribute(name, getattr(op, name), x.dtype is dtypes.f64 and not _are_f32(op))
    return [ctx.add_node(node, DOMAIN, kind, version, [ctx.key(x)], attributes)]


def _number_attribute(name: str, values: tuple[float, ...], as_tensor: bool) -> dict[str, Any]:
    if not values:
        return {}
    if as_tensor:
        return {f"{name}_as_tensor": ForeignTensor(dtypes.f64, np.array(values, np.float64))}
    return {name: [float(value) for value in np.array(values, np.float32)]}
