"""Converters for operators of the domain ai.onnx.ml."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import numpy as np

from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
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


@ONNX.importer("Binarizer", 1, domain=DOMAIN)
def import_binarizer(ctx: ImportContext) -> Value:
    """Import Binarizer: x > threshold, in the type of x; integers are compared with the threshold rounded down."""
    x = ctx.input(0)
    threshold: float = ctx.attribute("threshold", "float", 0.0)
    b = ctx.b
    if x.dtype.is_float:
        # The threshold is an f32 attribute; it is converted to the type of x for the comparison.
        return b.Cast(b.Greater(x, b.constant(np.array(threshold, x.dtype.numpy), x.dtype)), to=x.dtype)
    if not x.dtype.is_integer:
        raise RuleError("type.class", f"input 'x' must be numbers, got {x.dtype}")
    low, high = x.dtype.range()
    if math.isnan(threshold) or threshold >= high:
        return b.Multiply(x, 0)
    if threshold < low:
        return b.Add(b.Multiply(x, 0), 1)
    return b.Cast(b.Greater(x, b.constant(math.floor(threshold), x.dtype)), to=x.dtype)


@ONNX.importer("ArrayFeatureExtractor", 1, domain=DOMAIN)
def import_array_feature_extractor(ctx: ImportContext) -> Value:
    """Import ArrayFeatureExtractor: Gather along the last axis by the flattened indices; a vector result becomes one row."""
    x, indices = ctx.input(0), ctx.input(1)
    rank = len(x.dims)
    if rank == 0:
        raise RuleError("shape.rank", "ArrayFeatureExtractor: x must have at least rank 1, got a scalar")
    features = ctx.b.Gather(x, ctx.b.Reshape(indices, [-1]), axis=rank - 1, bounds="natural")
    return ctx.b.Unsqueeze(features, [0]) if rank == 1 else features


# Labels


@ONNX.importer("LabelEncoder", 1, domain=DOMAIN)
def import_label_encoder_1(ctx: ImportContext) -> tuple[Op, list[Value | None]]:
    """Import LabelEncoder-1, which maps strings to their indices in a list, or indices to strings."""
    from dovetail.ops.ml.label_encoder import LabelEncoder

    x = ctx.input(0)
    classes = _string_array(ctx.attribute("classes_strings", "tuple[str, ...]", ()))
    string, number = ctx.attribute("default_string", "str", "_Unused"), ctx.attribute("default_int64", "int", -1)
    texts, numbers = ctx.add_constant(classes, dtypes.string), ctx.add_constant(np.arange(len(classes)), dtypes.i64)
    if x.dtype == "string":
        return LabelEncoder(), [x, texts, numbers, ctx.add_constant(np.array(number), dtypes.i64)]
    return LabelEncoder(), [x, numbers, texts, ctx.add_constant(_string_array((string,))[0], dtypes.string)]


@ONNX.importer("CategoryMapper", 1, domain=DOMAIN)
def import_category_mapper(ctx: ImportContext) -> tuple[Op, list[Value | None]]:
    """Import CategoryMapper, which maps strings to integers, or integers to strings."""
    from dovetail.ops.ml.label_encoder import LabelEncoder

    x = ctx.input(0)
    texts = _string_array(ctx.attribute("cats_strings", "tuple[str, ...]", ()))
    numbers = ctx.attribute("cats_int64s", "tuple[int, ...]", ())
    string, number = ctx.attribute("default_string", "str", "_Unused"), ctx.attribute("default_int64", "int", -1)
    if len(texts) != len(numbers):
        raise FormatError(
            "attribute.length",
            f"CategoryMapper: cats_strings ({len(texts)}) and cats_int64s ({len(numbers)}) must have equal lengths",
        )
    tables = ctx.add_constant(texts, dtypes.string), ctx.add_constant(np.array(numbers, np.int64), dtypes.i64)
    if x.dtype == "string":
        return LabelEncoder(), [x, *tables, ctx.add_constant(np.array(number), dtypes.i64)]
    return LabelEncoder(), [x, *reversed(tables), ctx.add_constant(_string_array((string,))[0], dtypes.string)]


@ONNX.importer("LabelEncoder", 2, 4, domain=DOMAIN)
def import_label_encoder(ctx: ImportContext) -> tuple[Op, list[Value | None]]:
    from dovetail.ops.ml.label_encoder import LabelEncoder

    keys, values = _table_constant(ctx, "keys"), _table_constant(ctx, "values")
    dtype = values.dtype
    default_tensor = ctx.attribute("default_tensor", "Any", None)
    defaults = {name: ctx.attribute(*parameters) for name, parameters in _OTHERS.items()}
    if default_tensor is not None:
        if not isinstance(default_tensor, ForeignTensor) or default_tensor.dtype is not dtype or default_tensor.data.size != 1:
            raise FormatError("attribute.value", f"LabelEncoder: default_tensor must be one element of {dtype}")
        default = default_tensor.data.reshape(())
    elif dtype.name in defaults:
        default = (
            _string_array((defaults["string"],)).reshape(()) if dtype == "string" else np.array(defaults[dtype.name], dtype.numpy)
        )
    else:
        default = np.array(-0.0 if dtype.is_float else -1, dtype.numpy)
    return LabelEncoder(), [ctx.input(0), keys, values, ctx.add_constant(default, dtype)]


def _string_array(items: Any) -> Any:
    strings = np.empty(len(items), dtype=object)
    strings[:] = items
    return strings


def _table_constant(ctx: ImportContext, side: str) -> Value:
    """Add a constant for the keys or the values of a LabelEncoder, from the only attribute that holds them."""
    names = [name for name in (*_LISTS, "tensor") if f"{side}_{name}" in ctx.node.attributes]
    if len(names) != 1:
        raise FormatError(
            "attribute.conflict", f"LabelEncoder needs exactly one attribute for its {side}, got {', '.join(names) or 'none'}"
        )
    if names != ["tensor"]:
        items = ctx.attribute(f"{side}_{names[0]}", _KINDS[names[0]])
        return ctx.add_constant(_string_array(items) if names == ["strings"] else items, _LISTS[names[0]])
    tensor = ctx.attribute(f"{side}_tensor", "Any")
    if not isinstance(tensor, ForeignTensor):
        raise FormatError("attribute.value", f"LabelEncoder: {side}_tensor must be a tensor")
    return ctx.add_constant(tensor.data, tensor.dtype)


@ONNX.exporter("LabelEncoder")
def export_label_encoder(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    x, *tables = node.inputs
    version = ctx.version_of(DOMAIN, "LabelEncoder")
    items = [
        constant_of(table, f"LabelEncoder: {name}")
        for name, table in zip(("keys", "values", "default"), tables, strict=True)
        if table is not None
    ]
    dtypes_ = [table.dtype for table in tables if table is not None]
    if version == 1:
        kind, attributes = _version_1_attributes(items, [dtype.name for dtype in dtypes_])
        return [ctx.add_node(node, DOMAIN, kind, 1, [ctx.key(x)], attributes)]
    attributes = {
        **_table_attribute("keys", items[0], dtypes_[0], version),
        **_table_attribute("values", items[1], dtypes_[1], version),
    }
    name = _OTHERS.get(dtypes_[1].name, ("default_tensor",))[0]
    attributes[name] = items[2].item() if name != "default_tensor" else ForeignTensor(dtypes_[1], items[2].reshape(1))
    return [ctx.add_node(node, DOMAIN, "LabelEncoder", version or 0, [ctx.key(x)], attributes)]


def _table_attribute(side: str, data: np.ndarray[Any, Any], dtype: DType, version: int | None) -> dict[str, Any]:
    name = next((name for name, dtype_of_form in _LISTS.items() if dtype_of_form is dtype), "tensor")
    if name == "tensor" and (version or 0) < 4:
        raise UnsupportedError("op.unsayable", f"LabelEncoder-{version} does not support {side} of type {dtype}")
    return {f"{side}_{name}": ForeignTensor(dtype, data) if name == "tensor" else data.tolist()}


def _version_1_attributes(items: list[Any], names: list[str]) -> tuple[str, dict[str, Any]]:
    """Return kind and attributes of the ai.onnx.ml 1 operator that maps between strings and integers.

    It is LabelEncoder if the integers are 0, 1, 2, ..., else CategoryMapper.
    """
    keys, values, default_value = items
    indices, texts = (values, keys) if names[:2] == ["string", "i64"] else (keys, values)
    if sorted(names[:2]) != ["i64", "string"]:
        raise UnsupportedError("op.unsayable", f"{DOMAIN} 1 maps between strings and i64, not {names[0]} to {names[1]}")
    default = {"default_int64" if names[1] == "i64" else "default_string": default_value.item()}
    if indices.tolist() == list(range(len(indices))):
        return "LabelEncoder", {"classes_strings": texts.tolist(), **default}
    return "CategoryMapper", {"cats_int64s": indices.tolist(), "cats_strings": texts.tolist(), **default}


# Maps


@ONNX.importer("DictVectorizer", 1, domain=DOMAIN)
def import_dict_vectorizer(ctx: ImportContext) -> Op:
    map_type = map_type_of(ctx.input(0).type)
    dtype = dtype_in(map_type)
    if dtype is None:
        raise RuleError("type.kind", f"the input of DictVectorizer must be a map with a known value type, got {map_type}")
    numbers = ctx.attribute("int64_vocabulary", "tuple[int, ...]", ())
    return DictVectorizer(numbers, ctx.attribute("string_vocabulary", "tuple[str, ...]", ()), dtype)


@ONNX.exporter("DictVectorizer")
def export_dict_vectorizer(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    name = "string_vocabulary" if op.string_vocabulary else "int64_vocabulary"
    version = ctx.version_of(DOMAIN, "DictVectorizer")
    return [
        ctx.add_node(node, DOMAIN, "DictVectorizer", version or 1, [*map(ctx.key, node.inputs)], {name: [*getattr(op, name)]})
    ]


# Trees

_AGGREGATES = ("average", "sum", "min", "max")
_TRANSFORMS = ("none", "softmax", "logistic")
_NODE_COLUMNS = (
    "tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs",
    "leaf_targetids",
)  # fmt: skip


@ONNX.importer("TreeEnsemble", 5, domain=DOMAIN)
def import_tree_ensemble(ctx: ImportContext) -> Op:
    x = ctx.input(0)
    ctx.ignore("nodes_hitrates")
    columns = {name: ctx.attribute(name, "tuple[bool, ...]" if "leafs" in name else "tuple[int, ...]") for name in _NODE_COLUMNS}
    modes = tuple(int(mode) for mode in _tensor(ctx, "nodes_modes", "u8"))
    splits = _tensor(ctx, "nodes_splits", x.dtype.name)
    members = _tensor(ctx, "membership_values", x.dtype.name) if "membership_values" in ctx.node.attributes else []
    groups = [tuple(group) for is_mark, group in groupby(members, math.isnan) if not is_mark]
    aggregate = ctx.attribute("aggregate_function", "int", 1)
    transform = ctx.attribute("post_transform", "int", 0)
    if transform in (3, 4):
        raise UnsupportedError(
            "op.unsupported",
            "post_transform must be NONE, SOFTMAX or LOGISTIC: TreeEnsemble does not specify SOFTMAX_ZERO and PROBIT",
        )
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise FormatError(
            "attribute.value",
            f"TreeEnsemble: aggregate_function must be in [0, 3] and post_transform in [0, 4], got {aggregate} and {transform}",
        )
    targets = ctx.attribute("n_targets", "int", max(columns["leaf_targetids"], default=0) + 1)
    return TreeEnsemble(
        n_targets=targets,
        nodes_modes=modes,
        # The split value of a membership test is unused: 0 makes equal trees equal.
        nodes_splits=tuple(0.0 if mode == MEMBER else split for split, mode in zip(splits, modes, strict=False)),
        leaf_weights=tuple(_tensor(ctx, "leaf_weights", x.dtype.name)),
        nodes_missing_value_tracks_true=ctx.attribute("nodes_missing_value_tracks_true", "tuple[bool, ...]", ()),
        membership_values=tuple(groups),
        aggregate_function=_AGGREGATES[aggregate],
        post_transform=_TRANSFORMS[transform],
        **columns,
    )


def _tensor(ctx: ImportContext, name: str, dtype: str) -> list[float]:
    tensor = ctx.attribute(name, "Any")
    if not isinstance(tensor, ForeignTensor) or tensor.dtype.name != dtype:
        raise FormatError("attribute.value", f"TreeEnsemble: {name} must be a tensor of {dtype}")
    return [float(item) for item in tensor.data.reshape(-1).tolist()]


@ONNX.exporter("TreeEnsemble", domain=DOMAIN, supports=lambda op, version: not op.leaf_sizes)  # type: ignore[attr-defined]
def export_tree_ensemble(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x = node.input(0)
    version = ctx.version("TreeEnsemble", DOMAIN)

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
    return [ctx.add_node(node, DOMAIN, "TreeEnsemble", version, [ctx.key(x)], attributes)]
