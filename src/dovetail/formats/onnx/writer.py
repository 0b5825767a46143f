"""Write a ForeignGraph to a GraphProto; fields that the reader preserved in metadata are written back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.onnx.messages import parse_message, put_properties
from dovetail.formats.onnx.names import label
from dovetail.formats.onnx.reader import FIELDS, since_version
from dovetail.formats.onnx.schemas import schema
from dovetail.formats.onnx.tensors import Elsewhere, write_sparse, write_tensor
from dovetail.formats.onnx.value_info import write_type, write_value
from dovetail.ir.types import Map, Optional, Sequence, Tensor

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto

FLOAT = 1
"""The ``AttributeProto.AttributeType`` of a single float32 number."""
_FLOAT_MAX = float(np.finfo(np.float32).max)
_LIST_OF = {1: 6, 2: 7, 3: 8, 4: 9, 5: 10, 13: 14}
_SPARSE = {4: 11, 9: 12}
# onnx.proto, ``Version``: the IR versions that introduced element types.
_IR_OF_DTYPE = {
    "bf16": 4, "f8e4m3": 9, "f8e4m3fnuz": 9, "f8e5m2": 9, "f8e5m2fnuz": 9, "u4": 10, "i4": 10,
    "f4e2m1": 11, "f8e8m0": 12, "u2": 13, "i2": 13, "f6e2m3": 14, "f6e3m2": 14,
}  # fmt: skip


class GraphWriter:
    """GraphWriter writes the graphs of one model under its opset imports.

    ``ir_version`` is the minimum IR version that the graphs written so far need. ``errors`` has the errors of nodes and values
    that cannot be written.
    """

    def __init__(self, versions: Mapping[str, int], elsewhere: Elsewhere | None) -> None:
        self._versions = versions
        self._elsewhere = elsewhere
        self.ir_version = 1
        self.errors: list[DovetailError] = []

    def graph(self, proto: GraphProto, graph: ForeignGraph) -> None:
        # onnx.checker requires a graph name; some files have none.
        proto.name = graph.name or "graph"
        if graph.doc:
            proto.doc_string = graph.doc
        metadata = graph.metadata
        put_properties(proto.metadata_props, metadata.get("metadata_props", {}))
        for name, keys in metadata.get("quantization_annotation", ()):
            annotation = proto.quantization_annotation.add()
            annotation.tensor_name = name
            put_properties(annotation.quant_parameter_tensor_names, keys)
        listed = (*metadata.get("overridable", ()), *metadata.get("defaults", ()))
        overridable = [name for name in listed if name in graph.constants]
        if metadata.get("defaults"):
            self.ir_version = max(self.ir_version, 4)
        self._constants(proto, graph)
        self._inputs(proto, graph, overridable)
        for value in graph.outputs:
            self._value(proto.output.add(), value)
        for key, value in graph.values.items():
            if key not in overridable:
                self._value(proto.value_info.add(), value)
        for node in graph.nodes:
            try:
                self._node(proto.node.add(), node)
            except DovetailError as error:
                self.errors.append(error.at(node=label(node)))

    def _value(self, proto: Any, value: ForeignValue) -> None:
        try:
            write_value(proto, value)
        except DovetailError as error:
            self.errors.append(error.at(node=value.key))

    def _constants(self, proto: GraphProto, graph: ForeignGraph) -> None:
        notes = graph.metadata.get("notes", {})
        sparse = set(graph.metadata.get("sparse", ()))
        for name, tensor in graph.constants.items():
            try:
                if name in sparse:
                    self._tensor(proto.sparse_initializer.add(), tensor, name, notes.get(name, {}), True)
                else:
                    self._tensor(proto.initializer.add(), tensor, name, notes.get(name, {}), False)
            except DovetailError as error:
                self.errors.append(error.at(node=f"initializer {name!r}"))

    def _inputs(self, proto: GraphProto, graph: ForeignGraph, overridable: list[str]) -> None:
        values = {value.key: value for value in graph.inputs}
        for name in overridable:
            tensor = graph.constants[name]
            values[name] = graph.values.get(name) or ForeignValue(name, Tensor(tensor.dtype, np.shape(tensor.data)), (name,))
        order = [name for name in graph.metadata.get("inputs", ()) if name in values]
        for name in order if len(order) == len(values) else values:
            self._value(proto.input.add(), values[name])
        if len(overridable) < len(graph.constants):
            self.ir_version = max(self.ir_version, 4)

    def _tensor(self, proto: Any, tensor: ForeignTensor, name: str, notes: dict[str, Any], sparse: bool) -> None:
        self.ir_version = max(self.ir_version, _IR_OF_DTYPE.get(tensor.dtype.name, 1), 6 if sparse else 1)
        if sparse:
            write_sparse(proto, tensor, name, notes)
        else:
            write_tensor(proto, tensor, name, notes, self._elsewhere)

    def _node(self, proto: NodeProto, node: ForeignNode) -> None:
        self._check_version(node)
        proto.input.extend([name or "" for name in node.inputs])
        proto.output.extend([name or "" for name in node.outputs])
        proto.op_type = node.kind
        for field, value in (("name", node.name), ("domain", node.domain), ("doc_string", node.doc)):
            if value:
                setattr(proto, field, value)
        if overload := node.metadata.get("overload", ""):
            proto.overload = overload
        put_properties(proto.metadata_props, node.metadata.get("metadata_props", {}))
        for stored in node.metadata.get("device_configurations", ()):
            if not parse_message(proto.device_configurations.add(), stored):
                message = "a device configuration must be a valid protobuf message"
                self.errors.append(UnsupportedError("proto.parse", message, node=label(node)))
        for name, value in node.attributes.items():
            self._attribute(proto.attribute.add(), name, value, node)

    def _check_version(self, node: ForeignNode) -> None:
        opset = self._versions.get(node.domain)
        if opset is None:
            raise UnsupportedError(
                "opset.missing", f"the model must import an opset of domain {node.domain!r}, which {node.kind} needs"
            )
        current = since_version(node.domain, node.kind, opset)
        if current != node.version:
            raise UnsupportedError(
                "opset.version", f"{node.kind} must have version {current} in opset {opset}, got {node.version}"
            )

    def _attribute(self, proto: AttributeProto, name: str, value: Any, node: ForeignNode) -> None:
        proto.name = name
        if doc := node.metadata.get("attribute_docs", {}).get(name, ""):
            proto.doc_string = doc
        kind = kind_of(value) or _empty_kind(node, name)
        sparse = node.metadata.get("sparse", ())
        if kind in _SPARSE and (name in sparse or f"{name}[0]" in sparse):
            kind = _SPARSE[kind]
        proto.type = kind  # type: ignore[assignment]
        field = FIELDS[kind]
        if kind in (1, 2, 3):
            setattr(proto, field, _plain(kind, value, name))
        elif kind in (6, 7, 8):
            getattr(proto, field).extend([_plain(kind - 5, item, name) for item in value])
        elif kind in (4, 5, 11, 13):
            getattr(proto, field).SetInParent()
            self._message(getattr(proto, field), kind, value, name, node)
        else:
            for index, item in enumerate(value):
                self._message(getattr(proto, field).add(), _ONE_OF[kind], item, f"{name}[{index}]", node)

    def _message(self, proto: Any, kind: int, value: Any, path: str, node: ForeignNode) -> None:
        notes = node.metadata.get("notes", {}).get(path, {})
        if kind == 5:
            self.graph(proto, value)
        elif kind == 13:
            write_type(proto, value, notes.get("denotations", {}))
        else:
            self._tensor(proto, value, value.name, notes, kind == 11)


_ONE_OF = {9: 4, 10: 5, 12: 11, 14: 13}


def kind_of(value: object) -> int | None:
    """Return the AttributeType of an attribute value; None for an empty list. Raises UnsupportedError [attribute.value]."""
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return 2
    if isinstance(value, (float, np.floating)):
        return FLOAT
    if isinstance(value, str):
        return 3
    if isinstance(value, ForeignTensor):
        return 4
    if isinstance(value, ForeignGraph):
        return 5
    if isinstance(value, (Tensor, Sequence, Optional, Map)):
        return 13
    if isinstance(value, (list, tuple)):
        return _list_kind(value)
    raise UnsupportedError("attribute.value", f"an attribute value must have an ONNX attribute type, got {type(value).__name__}")


def _list_kind(values: Iterable[Any]) -> int | None:
    kinds = {kind_of(value) for value in values}
    if not kinds:
        return None
    if len(kinds) > 1 or not kinds <= _LIST_OF.keys():
        raise UnsupportedError("attribute.value", "all items of a list attribute must have one type")
    return _LIST_OF[kinds.pop() or 0]


def _empty_kind(node: ForeignNode, name: str) -> int:
    """Return the AttributeType of an empty list, from the metadata of the node or the schema of the operator."""
    if name in node.metadata.get("empty", {}):
        return int(node.metadata["empty"][name])
    definition = schema(node.domain, node.kind, node.version)
    if definition is None or name not in definition.lists:
        raise UnsupportedError("attribute.value", f"the attribute {name!r} must have a known type, got an empty list")
    return definition.lists[name]


def _plain(kind: int, value: Any, name: str) -> Any:
    if kind == 2:
        if not -(2**63) <= int(value) < 2**63:
            raise UnsupportedError("attribute.range", f"{name} must be in the range of int64, got {value}")
        return int(value)
    if kind == 1:
        number = float(value)
        if math.isfinite(number) and abs(number) > _FLOAT_MAX:
            raise UnsupportedError("attribute.range", f"{name} must be in the range of float32, got {number}")
        return number
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise UnsupportedError("text.encoding", f"the attribute {name!r} must be encodable as UTF-8") from None
