"""Operators of ai.onnx.ml."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import Lifting
from dovetail.formats.import_node import constant_of
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import dtype_in
from dovetail.ops.ml.maps import DictVectorizer, map_type_of
from dovetail.ops.ml.tree_ensemble import MEMBER, TreeEnsemble

DOMAIN = "ai.onnx.ml"
_LISTS = {"strings": dtypes.string, "int64s": dtypes.i64, "floats": dtypes.f32}
_KINDS = {"strings": "tuple[str, ...]", "int64s": "tuple[int, ...]", "floats": "tuple[float, ...]"}
_OTHERS = {
    "string": ("default_string", "str", "_Unused"),
    "i64": ("default_int64", "int", -1),
    "f32": ("default_float", "float", -0.0),
}


@ONNX.lift("Binarizer", 1, domain=DOMAIN)
def lift_binarizer(node: Lifting) -> Value:
    """Whether an element is greater: of integers, than the next integer below."""
    x = node.input(0)
    threshold: float = node.attribute("threshold", "float", 0.0)
    b = node.b
    if x.dtype.is_float:
        # In f32, as the attribute is.
        return b.Cast(b.Greater(x, b.constant(np.array(threshold, x.dtype.numpy), x.dtype)), to=x.dtype)
    if not x.dtype.is_integer:
        raise RuleError("type.class", f"input 'x' should be numbers, not {x.dtype}")
    low, high = x.dtype.range()
    if math.isnan(threshold) or threshold >= high:
        return b.Multiply(x, 0)
    if threshold < low:
        return b.Add(b.Multiply(x, 0), 1)
    return b.Cast(b.Greater(x, b.constant(math.floor(threshold), x.dtype)), to=x.dtype)


@ONNX.lift("ArrayFeatureExtractor", 1, domain=DOMAIN)
def lift_array_feature_extractor(node: Lifting) -> Value:
    """Along the last axis, in the order of all indices; a vector becomes a row."""
    x, indices = node.input(0), node.input(1)
    rank = len(x.dims)
    if rank == 0:
        raise RuleError("shape.scalar", "a scalar has no features")
    found = node.b.Gather(x, node.b.Reshape(indices, [-1]), axis=rank - 1, bounds="natural")
    return node.b.Unsqueeze(found, [0]) if rank == 1 else found


# Labels


@ONNX.lift("LabelEncoder", 1, domain=DOMAIN)
def lift_classes(node: Lifting) -> tuple[Op, list[Value | None]]:
    """From a text to its number, or back."""
    from dovetail.ops.ml.label_encoder import LabelEncoder

    x = node.input(0)
    classes = _texts(node.attribute("classes_strings", "tuple[str, ...]", ()))
    string, number = node.attribute("default_string", "str", "_Unused"), node.attribute("default_int64", "int", -1)
    texts, numbers = node.shared(classes, dtypes.string), node.shared(np.arange(len(classes)), dtypes.i64)
    if x.dtype == "string":
        return LabelEncoder(), [x, texts, numbers, node.shared(np.array(number), dtypes.i64)]
    return LabelEncoder(), [x, numbers, texts, node.shared(_texts((string,))[0], dtypes.string)]


@ONNX.lift("CategoryMapper", 1, domain=DOMAIN)
def lift_category_mapper(node: Lifting) -> tuple[Op, list[Value | None]]:
    """From a text to its category, or back."""
    from dovetail.ops.ml.label_encoder import LabelEncoder

    x = node.input(0)
    texts = _texts(node.attribute("cats_strings", "tuple[str, ...]", ()))
    numbers = node.attribute("cats_int64s", "tuple[int, ...]", ())
    string, number = node.attribute("default_string", "str", "_Unused"), node.attribute("default_int64", "int", -1)
    if len(texts) != len(numbers):
        raise FormatError("label.table", f"CategoryMapper: {len(texts)} cats_strings and {len(numbers)} cats_int64s")
    tables = node.shared(texts, dtypes.string), node.shared(np.array(numbers, np.int64), dtypes.i64)
    if x.dtype == "string":
        return LabelEncoder(), [x, *tables, node.shared(np.array(number), dtypes.i64)]
    return LabelEncoder(), [x, *reversed(tables), node.shared(_texts((string,))[0], dtypes.string)]


@ONNX.lift("LabelEncoder", 2, 4, domain=DOMAIN)
def lift_label_encoder(node: Lifting) -> tuple[Op, list[Value | None]]:
    from dovetail.ops.ml.label_encoder import LabelEncoder

    keys, values = _table(node, "keys"), _table(node, "values")
    dtype = values.dtype
    other = node.attribute("default_tensor", "Any", None)
    defaults = {name: node.attribute(*given) for name, given in _OTHERS.items()}
    if other is not None:
        if not isinstance(other, ForeignTensor) or other.dtype is not dtype or other.data.size != 1:
            raise FormatError("attribute.value", f"LabelEncoder: default_tensor is not one element of {dtype}")
        default = other.data.reshape(())
    elif dtype.name in defaults:
        default = _texts((defaults["string"],)).reshape(()) if dtype == "string" else np.array(defaults[dtype.name], dtype.numpy)
    else:
        default = np.array(-0.0 if dtype.is_float else -1, dtype.numpy)
    return LabelEncoder(), [node.input(0), keys, values, node.shared(default, dtype)]


def _texts(items: Any) -> Any:
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found


def _table(node: Lifting, side: str) -> Value:
    """The one of the attributes for keys, or for values, that is there."""
    given = [name for name in (*_LISTS, "tensor") if f"{side}_{name}" in node.node.attributes]
    if len(given) != 1:
        raise FormatError("label.table", f"LabelEncoder has {', '.join(given) or 'nothing'} for its {side}, where one is needed")
    if given != ["tensor"]:
        items = node.attribute(f"{side}_{given[0]}", _KINDS[given[0]])
        return node.shared(_texts(items) if given == ["strings"] else items, _LISTS[given[0]])
    tensor = node.attribute(f"{side}_tensor", "Any")
    if not isinstance(tensor, ForeignTensor):
        raise FormatError("attribute.value", f"LabelEncoder: {side}_tensor is no tensor")
    return node.shared(tensor.data, tensor.dtype)


@ONNX.emit("LabelEncoder")
def emit_label_encoder(lowering: Lowering, node: Node) -> list[ForeignNode]:
    x, *tables = node.inputs
    version = lowering.version_of(DOMAIN, "LabelEncoder")
    known = [
        constant_of(table, f"LabelEncoder: {name}")
        for name, table in zip(("keys", "values", "default"), tables, strict=True)
        if table is not None
    ]
    dtypes_ = [table.dtype for table in tables if table is not None]
    if version == 1:
        kind, attributes = _classes(known, [dtype.name for dtype in dtypes_])
        return [lowering.finish(node, DOMAIN, kind, 1, [lowering.key(x)], attributes)]
    attributes = {**_said("keys", known[0], dtypes_[0], version), **_said("values", known[1], dtypes_[1], version)}
    name = _OTHERS.get(dtypes_[1].name, ("default_tensor",))[0]
    attributes[name] = known[2].item() if name != "default_tensor" else ForeignTensor(dtypes_[1], known[2].reshape(1))
    return [lowering.finish(node, DOMAIN, "LabelEncoder", version or 0, [lowering.key(x)], attributes)]


def _said(side: str, data: Any, dtype: Any, version: int | None) -> dict[str, Any]:
    name = next((name for name, each in _LISTS.items() if each is dtype), "tensor")
    if name == "tensor" and (version or 0) < 4:
        raise UnsupportedError("op.unsayable", f"LabelEncoder-{version} has no {side} of {dtype}")
    return {f"{side}_{name}": ForeignTensor(dtype, data) if name == "tensor" else data.tolist()}


def _classes(known: list[Any], names: list[str]) -> tuple[str, dict[str, Any]]:
    """The operator of version 1 that says a table of texts and numbers, and its attributes."""
    keys, values, other = known
    places, texts = (values, keys) if names[:2] == ["string", "i64"] else (keys, values)
    if sorted(names[:2]) != ["i64", "string"]:
        raise UnsupportedError("op.unsayable", f"{DOMAIN} 1 has no table from {names[0]} to {names[1]}")
    default = {"default_int64" if names[1] == "i64" else "default_string": other.item()}
    if places.tolist() == list(range(len(places))):
        return "LabelEncoder", {"classes_strings": texts.tolist(), **default}
    return "CategoryMapper", {"cats_int64s": places.tolist(), "cats_strings": texts.tolist(), **default}


# Maps


@ONNX.lift("DictVectorizer", 1, domain=DOMAIN)
def lift_dict_vectorizer(node: Lifting) -> Op:
    found = map_type_of(node.input(0).type)
    dtype = dtype_in(found)
    if dtype is None:
        raise RuleError("type.map", f"DictVectorizer is given {found}, of which nothing says what its values are")
    numbers = node.attribute("int64_vocabulary", "tuple[int, ...]", ())
    return DictVectorizer(numbers, node.attribute("string_vocabulary", "tuple[str, ...]", ()), dtype)


@ONNX.emit("DictVectorizer")
def emit_dict_vectorizer(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    name = "string_vocabulary" if op.string_vocabulary else "int64_vocabulary"
    version = lowering.version_of(DOMAIN, "DictVectorizer")
    return [
        lowering.finish(
            node, DOMAIN, "DictVectorizer", version or 1, [*map(lowering.key, node.inputs)], {name: [*getattr(op, name)]}
        )
    ]


# Trees

_AGGREGATES = ("average", "sum", "min", "max")
_TRANSFORMS = ("none", "softmax", "logistic")
_NODE_COLUMNS = (
    "tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs",
    "leaf_targetids",
)  # fmt: skip


@ONNX.lift("TreeEnsemble", 5, domain=DOMAIN)
def lift_tree_ensemble(node: Lifting) -> Op:
    x = node.input(0)
    node.ignore("nodes_hitrates")
    columns = {name: node.attribute(name, "tuple[bool, ...]" if "leafs" in name else "tuple[int, ...]") for name in _NODE_COLUMNS}
    modes = tuple(int(mode) for mode in _tensor(node, "nodes_modes", "u8"))
    splits = _tensor(node, "nodes_splits", x.dtype.name)
    members = _tensor(node, "membership_values", x.dtype.name) if "membership_values" in node.node.attributes else []
    groups = [tuple(group) for is_mark, group in groupby(members, math.isnan) if not is_mark]
    aggregate = node.attribute("aggregate_function", "int", 1)
    transform = node.attribute("post_transform", "int", 0)
    if transform in (3, 4):
        raise UnsupportedError("tree.transform", "no specification says what SOFTMAX_ZERO and PROBIT are")
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise FormatError("attribute.value", f"TreeEnsemble: aggregate_function = {aggregate}, post_transform = {transform}")
    targets = node.attribute("n_targets", "int", max(columns["leaf_targetids"], default=0) + 1)
    return TreeEnsemble(
        n_targets=targets,
        nodes_modes=modes,
        # What a test of membership is split at means nothing.
        nodes_splits=tuple(0.0 if mode == MEMBER else split for split, mode in zip(splits, modes, strict=False)),
        leaf_weights=tuple(_tensor(node, "leaf_weights", x.dtype.name)),
        nodes_missing_value_tracks_true=node.attribute("nodes_missing_value_tracks_true", "tuple[bool, ...]", ()),
        membership_values=tuple(groups),
        aggregate_function=_AGGREGATES[aggregate],
        post_transform=_TRANSFORMS[transform],
        **columns,
    )


def _tensor(node: Lifting, name: str, dtype: str) -> list[float]:
    found = node.attribute(name, "Any")
    if not isinstance(found, ForeignTensor) or found.dtype.name != dtype:
        raise FormatError("attribute.value", f"TreeEnsemble: {name} is no tensor of {dtype}")
    return [float(item) for item in found.data.reshape(-1).tolist()]


@ONNX.emit("TreeEnsemble", domain=DOMAIN, says=lambda op, version: not op.leaf_sizes)  # type: ignore[attr-defined]
def emit_tree_ensemble(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    (x,) = node.inputs
    assert x is not None
    version = lowering.version_of(DOMAIN, "TreeEnsemble")
    assert version is not None

    def tensor(items: Any) -> ForeignTensor:
        return ForeignTensor(x.dtype, np.array(items, x.dtype.numpy))

    attributes: dict[str, Any] = {name: [int(item) for item in getattr(op, name)] for name in _NODE_COLUMNS}
    attributes |= {
        "n_targets": op.n_targets,
        "nodes_modes": ForeignTensor(dtypes.u8, np.array(op.nodes_modes, np.uint8)),
        "nodes_splits": tensor(op.nodes_splits),
        "leaf_weights": tensor(op.leaf_weights),
        "aggregate_function": _AGGREGATES.index(op.aggregate_function),
        "post_transform": _TRANSFORMS.index(op.post_transform),
    }
    if op.nodes_missing_value_tracks_true:
        attributes["nodes_missing_value_tracks_true"] = [int(item) for item in op.nodes_missing_value_tracks_true]
    if op.membership_values:
        attributes["membership_values"] = tensor([item for group in op.membership_values for item in (*group, math.nan)])
    return [lowering.finish(node, DOMAIN, "TreeEnsemble", version, [lowering.key(x)], attributes)]
