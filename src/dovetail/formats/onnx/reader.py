"""Read a GraphProto into a ForeignGraph; every field is read or refused, and all faults are collected.

Source: onnx.proto, onnx/docs/IR.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import DovetailError, FormatError, UnsupportedError, raise_all
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.onnx.messages import present, properties, refuse_rest, text, texts
from dovetail.formats.onnx.names import label
from dovetail.formats.onnx.schemas import newest_opset, schema
from dovetail.formats.onnx.tensors import TensorReader
from dovetail.formats.onnx.value_info import TypeReader, read_value
from dovetail.ir import dtypes
from dovetail.ir.limits import current, weight_of_node
from dovetail.storage.deviations import Deviations

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

# Domain, name and overload of a called function.
Call = tuple[str, str, str]

_MAX_ERRORS = 1000
_MISSING = object()
# Faults of type declarations that do not affect the meaning of the graph.
_ONLY_DECLARED = ("type.dims", "name.missing")

# AttributeProto.AttributeType -> the name of the field that holds the value.
FIELDS = {
    1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 11: "sparse_tensor", 13: "tp",
    6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs", 12: "sparse_tensors", 14: "type_protos",
}  # fmt: skip
KINDS = {field: kind for kind, field in FIELDS.items()}
# The values of fields that proto3 writers omit: zeros and empty lists.
_DEFAULTS = {"f": 0.0, "i": 0, "s": b""} | {FIELDS[kind]: () for kind in (6, 7, 8, 9, 10, 12, 14)}
_PLAIN_FIELDS = frozenset(("name", "op_type", "doc_string", "domain", "input", "output", "attribute"))
# Kinds of small attributes: floats, ints, strings, lists of them, and tensors of few elements.
_REPEATING = frozenset((1, 2, 3, 4, 6, 7, 8))
_SMALL = 64


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference is an attribute value in a function that stands for the attribute ``name`` of the call."""

    name: str
    kind: int


class Faults:
    """Faults collects the errors and deviations of one file; without ``deviations`` each deviation is an error."""

    def __init__(self, file: str | None, deviations: Deviations | None = None) -> None:
        self.file = file
        self.deviations = deviations
        self.found: list[DovetailError] = []

    def deviate(self, error: DovetailError, node: str | None = None) -> None:
        """Report a deviation."""
        if self.deviations is None:
            self.add(error, node)
        else:
            self.deviations.add(error.at(node=node, file=self.file))

    def add(self, error: DovetailError, node: str | None = None) -> None:
        self.found.append(error.at(node=node, file=self.file))
        if len(self.found) >= _MAX_ERRORS:
            self.report()

    def report(self) -> None:
        for error in self.found:
            error.at(file=self.file)
        raise_all(self.found, f"faults in {self.file or 'the model'}")


@lru_cache(maxsize=65536)
def since_version(domain: str, kind: str, opset: int) -> int:
    """Return the version of an operator at ``opset``; ``opset`` for an unknown operator."""
    result = schema(domain, kind, opset)
    return opset if result is None else result.since_version


class GraphReader:
    """GraphReader reads graphs under the opset imports of a model, or of a function (``in_function``)."""

    def __init__(
        self,
        imports: dict[str, int],
        ir_version: int,
        tensors: TensorReader,
        faults: Faults,
        *,
        functions: Collection[Call] = (),
        in_function: bool = False,
    ) -> None:
        self._imports = imports
        self._ir_version = ir_version
        self._tensors = tensors
        self._types = TypeReader()
        self._faults = faults
        self._functions = functions
        self._in_function = in_function
        self._read = 0
        # The assumed opset versions of domains that the model uses but does not import.
        self.assumed: dict[str, int] = {}
        # A cache of parsed attributes by their serialized bytes, as models repeat a few attributes. Only attributes without
        # metadata are cached.
        self._attributes_found: dict[bytes, tuple[str, Any]] = {}

    def graph(self, proto: GraphProto, path_prefix: str = "", depth: int = 0) -> ForeignGraph:
        """Read a graph. ``path_prefix`` is the path of a subgraph, with a trailing slash."""
        if depth > (limits := current().limits).depth:
            raise UnsupportedError(
                "limits.exceeded", f"graphs must nest at most {limits.depth} levels deep; {limits.describe('depth')}"
            )
        fields = present(proto, "graph")
        graph = ForeignGraph(fields.pop("name", ""), doc=fields.pop("doc_string", ""))
        if entries := fields.pop("metadata_props", None):
            graph.metadata["metadata_props"] = properties(entries, "metadata.repeated", self._faults.deviate)
        if annotations := fields.pop("quantization_annotation", None):
            graph.metadata["quantization_annotation"] = [_annotation(item) for item in annotations]
        notes: dict[str, Any] = {}
        for tensor in fields.pop("initializer", ()):
            self._constant(graph, tensor, notes, path_prefix, False)
        for tensor in fields.pop("sparse_initializer", ()):
            self._constant(graph, tensor, notes, path_prefix, True)
        if notes:
            graph.metadata["notes"] = notes
        inputs = fields.pop("input", ())
        if not path_prefix:
            self._types.declare(inputs)
        self._inputs(graph, inputs, path_prefix)
        graph.outputs = self._values(fields.pop("output", ()), path_prefix, "output")
        for value in self._values(fields.pop("value_info", ()), path_prefix, "value info"):
            self._declare(graph, value)
        graph.nodes = self.nodes(fields.pop("node", ()), path_prefix, depth)
        refuse_rest(fields, "graph")
        return graph

    def nodes(self, protos: Iterable[NodeProto], path_prefix: str, depth: int) -> list[ForeignNode]:
        limits = current().limits
        protos = list(protos)
        self._read += sum(weight_of_node(len(proto.input) + len(proto.output)) for proto in protos)
        if self._read > limits.nodes:
            raise UnsupportedError("limits.exceeded", f"the model has at least {self._read} nodes; {limits.describe('nodes')}")
        return [self._node(proto, f"{path_prefix}node {index}", depth) for index, proto in enumerate(protos)]

    def values(self, protos: Iterable[ValueInfoProto], path_prefix: str) -> dict[str, ForeignValue]:
        """Map the names of the values that a function declares to the declared values."""
        graph = ForeignGraph()
        for value in self._values(protos, path_prefix, "value info"):
            self._declare(graph, value)
        return graph.values

    def _constant(self, graph: ForeignGraph, proto: TensorProto, notes: dict[str, Any], path_prefix: str, sparse: bool) -> None:
        name = ""
        try:
            name = _name_of(proto.values if sparse else proto)
            if not name:
                # No node can read an initializer without a name.
                self._faults.deviate(FormatError("name.missing", "an initializer must have a name"), f"{path_prefix}initializer")
                return
            earlier = graph.constants.get(name)
            # The name is declared even if its data is faulty, so that its readers are not reported too.
            graph.constants[name] = earlier or ForeignTensor(dtypes.f32, None, name)
            accept = partial(self._faults.deviate, node=f"{path_prefix}initializer {name!r}")
            tensor, note = self._tensors.read_sparse(proto, accept) if sparse else self._tensors.read(proto, accept)
            if earlier is not None:
                self._repeat(earlier, tensor, f"{path_prefix}initializer {name!r}")
        except DovetailError as error:
            self._faults.add(error, f"{path_prefix}initializer {name!r}")
            return
        graph.constants[name] = tensor
        if sparse:
            graph.metadata.setdefault("sparse", []).append(name)
        if note:
            notes[name] = note

    def _repeat(self, earlier: ForeignTensor, tensor: ForeignTensor, path_prefix: str) -> None:
        """Report that two initializers have the same name.

        All runtimes use the last of several initializers of equal type and shape: a deviation. Runtimes differ if types or shapes
        differ: an error.
        """
        fault = FormatError("graph.repeated", f"initializers must have different names, got {tensor.name!r} twice")
        if earlier.dtype is not tensor.dtype or np.shape(earlier.storage) != np.shape(tensor.storage):
            raise fault
        self._faults.deviate(fault, path_prefix)

    def _inputs(self, graph: ForeignGraph, protos: Iterable[ValueInfoProto], path_prefix: str) -> None:
        """Read the inputs. An input with the name of an initializer is recorded as overridable, and not added to the inputs."""
        values = self._values(protos, path_prefix, "input")
        names: set[str] = set()
        for value in values:
            if value.key in names:
                self._faults.add(FormatError("graph.repeated", f"inputs must have different names, got {value.key!r} twice"))
            names.add(value.key)
            if not path_prefix and not is_typed(value):
                self._faults.add(FormatError("type.element", f"the input {value.key!r} must have an element type"))
        graph.inputs = [value for value in values if value.key not in graph.constants]
        overridable = [value for value in values if value.key in graph.constants]
        if overridable:
            graph.metadata["overridable"] = [value.key for value in overridable]
            graph.metadata["inputs"] = [value.key for value in values]
            graph.values.update((value.key, value) for value in overridable)

    def _values(self, protos: Iterable[ValueInfoProto], path_prefix: str, side: str) -> list[ForeignValue]:
        values = []
        for index, proto in enumerate(protos):
            location = f"{path_prefix}{side} {index}"
            try:
                values.append(read_value(proto, self._types, path_prefix, partial(self._faults.deviate, node=location)))
            except DovetailError as error:
                if side == "input" or error.code not in _ONLY_DECLARED:
                    self._faults.add(error, location)
                    continue
                # The declaration is not needed: types of node outputs are inferred, and a value without a name has no readers.
                self._faults.deviate(error, location)
                if proto.name:
                    values.append(ForeignValue(proto.name, names=(proto.name,), doc=proto.doc_string))
        return values

    def _declare(self, graph: ForeignGraph, value: ForeignValue) -> None:
        known = graph.values.setdefault(value.key, value)
        if known is value:
            return
        types = f"{known.type} and {value.type}" if known.type != value.type else f"{value.type}"
        self._faults.deviate(
            FormatError("value.repeated", f"each value must be declared once, got {value.key!r} twice: {types}"), value.key
        )
        if known.type != value.type:
            # Neither declaration is used: inference decides, and parts that inference leaves open stay open.
            known.type = None

    def _node(self, proto: NodeProto, path_prefix: str, depth: int) -> ForeignNode:
        node = ForeignNode("", 0, [], [], place=path_prefix)
        try:
            fields = present(proto, "node")
            node.name = fields.get("name", "")
            node.kind = fields.get("op_type", "")
            node.doc = fields.get("doc_string", "")
            node.domain = plain_domain(fields.get("domain", ""))
            if "input" in fields:
                node.inputs = [name or None for name in texts(fields["input"], "inputs")]
            if "output" in fields:
                node.outputs = [name or None for name in texts(fields["output"], "outputs")]
            if "attribute" in fields:
                self._attributes(node, fields["attribute"], depth)
            if not fields.keys() <= _PLAIN_FIELDS:
                self._extras(node, {key: value for key, value in fields.items() if key not in _PLAIN_FIELDS})
            if not node.kind:
                raise FormatError("name.missing", "a node must have an op_type")
            node.version = self._version(node)
        except DovetailError as error:
            self._faults.add(error, label(node))
        return node

    def _extras(self, node: ForeignNode, fields: dict[str, Any]) -> None:
        if entries := fields.pop("metadata_props", None):
            accept = partial(self._faults.deviate, node=label(node))
            node.metadata["metadata_props"] = properties(entries, "metadata.repeated", accept)
        if configurations := fields.pop("device_configurations", None):
            node.metadata["device_configurations"] = [item.SerializeToString(deterministic=True) for item in configurations]
        if overload := fields.pop("overload", ""):
            node.metadata["overload"] = overload
        refuse_rest(fields, "node")

    def _version(self, node: ForeignNode) -> int:
        if self._functions and call_of(node) in self._functions:
            return 0
        opset = self._imports.get(node.domain)
        if opset is None:
            fault = FormatError(
                "opset.missing", f"the model must import an opset of domain {node.domain!r}, which {node.kind} needs"
            )
            opset = self._assumed_opset(node.domain)
            if opset is None:
                raise fault
            self._faults.deviate(fault, label(node))
        return since_version(node.domain, node.kind, opset)

    def _assumed_opset(self, domain: str) -> int | None:
        """Return the assumed opset of a domain that the model does not import: the newest opset, as in onnxruntime."""
        if not self._imports or self._in_function:
            return None
        opset = 1 if domain == "com.microsoft" else newest_opset(domain, 1)
        if opset is not None:
            self.assumed[domain] = opset
        return opset

    def _attributes(self, node: ForeignNode, protos: Iterable[AttributeProto], depth: int) -> None:
        for proto in protos:
            try:
                name, value = self._parse_cached_attribute(proto, node, depth)
                if name in node.attributes:
                    fault = FormatError("attribute.repeated", f"attributes must have different names, got {name!r} twice")
                    if not _is_plain(value) or value != node.attributes[name]:
                        raise fault
                    self._faults.deviate(fault, label(node))
                node.attributes[name] = value
            except DovetailError as error:
                self._faults.add(error, label(node))

    def _parse_cached_attribute(self, proto: AttributeProto, node: ForeignNode, depth: int) -> tuple[str, Any]:
        kind = proto.type
        length = len(proto.ints) + len(proto.floats) + len(proto.strings)
        if kind not in _REPEATING or length > _SMALL or (kind == 4 and not _is_small(proto.t)):
            return self._attribute(proto, node, depth)
        stored = proto.SerializeToString()
        known = self._attributes_found.get(stored)
        if known is None:
            known = self._attribute(proto, node, depth)
            if not node.metadata:
                self._attributes_found[stored] = known
        return (known[0], known[1].copy()) if type(known[1]) is list else known

    def attribute(self, proto: AttributeProto, node: ForeignNode) -> tuple[str, Any]:
        """Return the name and the value of an attribute; other parts of the attribute are added to the metadata of ``node``."""
        return self._attribute(proto, node, 0)

    def _attribute(self, proto: AttributeProto, node: ForeignNode, depth: int) -> tuple[str, Any]:
        fields = present(proto, "attribute")
        name = fields.pop("name", "")
        if not name:
            raise FormatError("name.missing", "an attribute must have a name")
        kind = fields.pop("type", 0)
        if doc := fields.pop("doc_string", ""):
            node.metadata.setdefault("attribute_docs", {})[name] = doc
        if reference := fields.pop("ref_attr_name", ""):
            if not self._in_function and fields:
                # Outside a function a reference has no meaning, and runtimes use the value of the attribute.
                self._faults.deviate(self._reference_fault(name, reference), label(node))
            else:
                return name, self._reference(name, reference, kind, fields)
        field = FIELDS.get(kind) or self._field_of(name, fields)
        value = fields.pop(field, _DEFAULTS.get(field, _MISSING))
        if fields or value is _MISSING:
            present_fields = ", ".join(sorted(fields)) or "nothing"
            raise FormatError("attribute.type", f"the attribute {name!r} must have only the field {field}, got {present_fields}")
        return name, self._value(field, value, name, node, depth)

    def _field_of(self, name: str, fields: dict[str, Any]) -> str:
        """Return the only present field, which determines the type before IR version 2 (onnx.proto, ``AttributeProto.type``)."""
        if self._ir_version >= 2 or len(fields) != 1:
            raise FormatError("attribute.type", f"the attribute {name!r} must have a type")
        return next(iter(fields))

    def _reference_fault(self, name: str, reference: str) -> FormatError:
        return FormatError(
            "attribute.reference", f"the attribute {name!r} must not be a reference (to {reference!r}) outside a function"
        )

    def _reference(self, name: str, reference: str, kind: int, fields: dict[str, Any]) -> Reference:
        if not self._in_function:
            raise self._reference_fault(name, reference)
        if fields:
            raise FormatError("attribute.type", f"the attribute {name!r} must have a reference or a value, got both")
        return Reference(reference, kind)

    def _value(self, field: str, value: Any, name: str, node: ForeignNode, depth: int) -> Any:
        if field in ("i", "f"):
            return value
        if field == "s":
            return _text(value, name)
        if field in ("ints", "floats"):
            items = list(value)
        elif field == "strings":
            try:
                items = list(map(bytes.decode, value))
            except UnicodeDecodeError:
                raise FormatError("text.encoding", f"the attribute {name!r} must be UTF-8") from None
        elif field in _ONE:
            return self._message(field, value, name, node, depth)
        else:
            items = [self._message(_MANY[field], item, f"{name}[{index}]", node, depth) for index, item in enumerate(value)]
        if not items:
            node.metadata.setdefault("empty", {})[name] = KINDS[field]
        return items

    def _message(self, field: str, value: Any, path: str, node: ForeignNode, depth: int) -> Any:
        """Read an attribute value that is a message; ``path`` is the key under which its metadata is stored in ``node``."""
        if field == "g":
            return self.graph(value, f"{node.place}/{path}/", depth + 1)
        content: Any
        notes: dict[str, Any]
        if field == "tp":
            content, denotations = self._types.read(value, f"{node.place}/{path}")
            if content is None:
                raise FormatError("attribute.type", f"the type in {path!r} must not be empty")
            notes = {"denotations": dict(denotations)} if denotations else {}
        elif field == "sparse_tensor":
            content, notes = self._tensors.read_sparse(value, partial(self._faults.deviate, node=label(node)))
            node.metadata.setdefault("sparse", []).append(path)
        else:
            content, notes = self._tensors.read(value, partial(self._faults.deviate, node=label(node)))
        if notes:
            node.metadata.setdefault("notes", {})[path] = notes
        return content


_MANY = {"tensors": "t", "graphs": "g", "sparse_tensors": "sparse_tensor", "type_protos": "tp"}
_ONE = frozenset(_MANY.values())


def _is_plain(value: object) -> bool:
    """Return whether an attribute value is a number, a string, or a list of numbers and strings."""
    return all(isinstance(item, (int, float, str)) for item in (value if isinstance(value, list) else [value]))


def plain_domain(domain: str) -> str:
    """Return ``domain``, but the empty string for "ai.onnx": both names denote one domain (onnx/docs/IR.md)."""
    return "" if domain == "ai.onnx" else domain


def call_of(node: ForeignNode) -> Call:
    """Return the key of the function that a node would call."""
    return node.domain, node.kind, node.metadata.get("overload", "")


def _is_small(proto: TensorProto) -> bool:
    dims = proto.dims
    return len(dims) <= 8 and math.prod(dims) <= _SMALL and not proto.external_data


def _name_of(proto: TensorProto) -> str:
    return text(proto.name, "the name of a tensor")


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FormatError("text.encoding", f"the attribute {name!r} must be UTF-8") from None


def is_typed(value: ForeignValue) -> bool:
    """Return whether the type of a value is declared with an element type."""
    return value.type is not None and getattr(value.type, "dtype", dtypes.f32) is not None


def _annotation(proto: Any) -> tuple[str, dict[str, str]]:
    fields = present(proto, "annotation")
    return fields.get("tensor_name", ""), properties(fields.get("quant_parameter_tensor_names", ()), "metadata.repeated")
