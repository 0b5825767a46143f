"""Write a foreign graph as the XML and constants of IR version 11, in OpenVINO's layout.

Layers are numbered in their order: Parameters, then nodes, then Results; each constant precedes its first reader. Ports of a
layer are numbered from 0: inputs, then outputs. Unknown dimensions of ports are -1; the attribute ``shape`` of a Parameter has
the bounds of its dimensions.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, RuleError, UnsupportedError, raise_all
from dovetail.formats.fixpoint import Weights
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.openvino import constants, rt_info
from dovetail.formats.openvino.layers import BODIES
from dovetail.formats.openvino.opsets import format_version
from dovetail.formats.openvino.port_maps import MAP_NUMBERS
from dovetail.formats.openvino.reader import LEGACY
from dovetail.formats.openvino.rt_info import DEPTH, Item
from dovetail.formats.openvino.xml_attributes import PRECISIONS, format_shape
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import current
from dovetail.ir.types import Tensor, Type
from dovetail.storage import file_pair
from dovetail.storage.weights_file import Label, WeightsFile

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
_SPECIAL = re.compile('[&<>"\t\n\r]')
# Characters that XML 1.0 excludes, even as character references (production 2, Char).
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class IrWriter:
    """IrWriter writes one file: ``layers`` stores the constants in ``weights``, then ``document`` returns the XML."""

    def __init__(self, file: str, weights: Weights | WeightsFile) -> None:
        self.file = file
        self.errors: list[DovetailError] = []
        self._weights = weights
        self._lines: list[str] = []
        self._types: dict[Type | None, tuple[str, tuple[str, ...]]] = {}

    def layers(self, model: ForeignModel) -> None:
        """Write the layers, and store their constants; faults are collected, and ``document`` raises them."""
        self._lines = ['<?xml version="1.0"?>', f'<net name={self.quote(model.graph.name)} version="11">']
        self._graph(model.graph, 1, 0)

    def document(self, model: ForeignModel, digest: str | None) -> bytes:
        """Return the XML with the ``digest`` of the weights file (None: without a digest). Raises all faults of the model."""
        layers = len(self._lines)
        info = copy.deepcopy([*model.metadata.get("rt_info", ()), *model.graph.metadata.get("rt_info", ())])
        if digest is not None:
            rt_info.set_value(info, digest, *file_pair.RT_INFO)
        self._section("rt_info", info, 1)
        for tag in LEGACY:
            self._section(tag, model.metadata.get(tag, []), 1)
        self._lines.append("</net>\n")
        raise_all(self.errors, f"faults in the model to write to {self.file}")
        text = "\n".join(self._lines).encode()
        del self._lines[layers:]
        return text

    # Faults

    def _refuse(self, error: DovetailError, node: str | None = None) -> None:
        self.errors.append(error.at(node=node, file=self.file))

    # Text

    def quote(self, text: str) -> str:
        excluded = _FORBIDDEN.search(text)
        if excluded is not None:
            self._refuse(UnsupportedError("name.invalid", f"{text!r} must not contain {excluded[0]!r}, which XML excludes"), text)
            return '""'
        if _SPECIAL.search(text):
            text = _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)
        return f'"{text}"'

    def _attributes(self, pairs: Iterable[tuple[str, str]], node: str | None = None) -> str:
        parts = []
        for name, text in pairs:
            if _XML_NAME.fullmatch(name) is None:
                self._refuse(UnsupportedError("name.invalid", f"{name!r} must be a valid XML attribute name"), node)
                continue
            parts.append(f" {name}={self.quote(text)}")
        return "".join(parts)

    def _section(self, tag: str, items: list[Item], indent: int) -> None:
        if items:
            tabs = "\t" * indent
            self._lines.append(f"{tabs}<{tag}>")
            self._items(items, indent + 1, 0)
            self._lines.append(f"{tabs}</{tag}>")

    def _items(self, items: list[Item], indent: int, depth: int) -> None:
        tabs = "\t" * indent
        for item in items:
            tag = item["tag"]
            if _XML_NAME.fullmatch(tag) is None or depth > DEPTH:
                self._refuse(
                    UnsupportedError("name.invalid", f"rt_info: {tag!r} must be a valid element, at most {DEPTH} levels deep")
                )
                continue
            head = f"{tabs}<{tag}{self._attributes(item['attributes'].items())}"
            text, children = item.get("text", ""), item["children"]
            if not text and not children:
                self._lines.append(f"{head} />")
                continue
            self._lines.append(f"{head}>{self.quote(text)[1:-1]}")
            self._items(children, indent + 1, depth + 1)
            if children:
                self._lines.append(f"{tabs}</{tag}>")
            else:
                self._lines[-1] += f"</{tag}>"

    # Graphs

    def _graph(self, graph: ForeignGraph, indent: int, depth: int) -> tuple[dict[str, str], dict[str, str]]:
        """Write layers and edges; return the maps from the old to the new ``layer`` of each input, and of each output."""
        tabs = "\t" * indent
        layers = _Layers(self, graph, indent + 1, depth)
        self._lines.append(f"{tabs}<layers>")
        inputs, outputs = layers.write()
        self._lines.append(f"{tabs}</layers>")
        self._lines.append(f"{tabs}<edges>")
        self._lines.extend(
            f'{tabs}\t<edge from-layer="{start}" from-port="{port}" to-layer="{end}" to-port="{to_port}" />'
            for start, port, end, to_port in sorted(layers.edges)
        )
        self._lines.append(f"{tabs}</edges>")
        return inputs, outputs

    def type_text(self, type: Type | None, node: str | None) -> tuple[str, tuple[str, ...]]:
        """Return the texts of a port's precision and dimensions."""
        texts_of_type = self._types.get(type)
        if texts_of_type is None:
            if type is not None and not isinstance(type, Tensor):
                self._refuse(UnsupportedError("type.kind", f"a value in OpenVINO IR must be a tensor, got {type}"), node)
                type = None
            dtype = None if type is None else type.dtype
            shape = () if type is None or type.shape is None else type.shape
            texts = tuple(str(size) if isinstance(size, int) else "-1" for size in shape)
            texts_of_type = self._precision(dtype, node), texts
            self._types[type] = texts_of_type
        return texts_of_type

    def element_type(self, dtype: DType | None, node: str | None) -> str:
        if dtype is None:
            return "dynamic"
        if dtype.openvino is None:
            self._refuse(UnsupportedError("dtype.unknown", f"the element type must be one of OpenVINO IR, got {dtype}"), node)
            return "dynamic"
        return dtype.openvino

    def _precision(self, dtype: DType | None, node: str | None) -> str:
        name = self.element_type(dtype, node)
        return "UNSPECIFIED" if name == "dynamic" else PRECISIONS.get(name, name.upper())

    def store(self, tensor: ForeignTensor, name: str) -> tuple[int, int]:
        """Store the bytes of a tensor; return the offset and the size of the stored bytes."""
        data = constants.pack(tensor.storage, tensor.dtype)
        if not len(data):
            # The trailer keeps the .bin file from being empty: OpenVINO treats an empty file as missing, and fails on constants.
            return 0, 0
        return self._weights.store(np.frombuffer(data, np.uint8), Label(name, tensor.dtype, tensor.storage.shape)), len(data)

    def names(self, names: tuple[str, ...], node: str | None) -> str:
        """Return tensor names as a comma-separated list; report names that a list cannot contain."""
        for index, name in enumerate(names):
            if not name or (name.endswith("\\") and index < len(names) - 1):
                self._refuse(
                    UnsupportedError(
                        "name.invalid", f"a tensor name in a list must not be empty or end with a backslash, got {name!r}"
                    ),
                    node,
                )
        return ",".join(name.replace(",", "\\,") for name in names)


class _Layers:
    """_Layers writes the layers of one graph."""

    def __init__(self, writer: IrWriter, graph: ForeignGraph, indent: int, depth: int) -> None:
        self.writer = writer
        self.graph = graph
        self.tabs = "\t" * indent
        self.indent = indent
        self.depth = depth
        self.count = 0
        self.edges: list[tuple[int, int, int, int]] = []
        self.ends: dict[str, tuple[int, int]] = {}
        self.values: dict[str, ForeignValue] = {**graph.values, **{value.key: value for value in graph.inputs}}
        self.lines = writer._lines
        self.taken = {node.name for node in graph.nodes}

    def write(self) -> tuple[dict[str, str], dict[str, str]]:
        inputs: dict[str, str] = {}
        outputs: dict[str, str] = {}
        for value in self.graph.inputs:
            inputs[str(value.metadata.get("layer", value.key))] = str(self.count)
            self._parameter(value)
        for node in self.graph.nodes:
            self._constants(node.inputs)
            self._node(node)
        self._constants([value.key for value in self.graph.outputs])
        self._constants(list(self.graph.constants))
        if not self.graph.outputs:
            self._refuse(RuleError("graph.outputs", "the graph must have at least 1 output, got 0"))
        for value in self.graph.outputs:
            outputs[str(value.metadata.get("layer", value.key))] = str(self.count)
            self._result(value)
        return inputs, outputs

    def _refuse(self, error: DovetailError, node: str | None = None) -> None:
        self.writer._refuse(error, node)

    def _open(self, name: str, kind: str, version: str, extra: str = "") -> int:
        number = self.count
        self.count += 1
        quoted = self.writer.quote
        self.lines.append(
            f'{self.tabs}<layer id="{number}" name={quoted(name)} type={quoted(kind)} version={quoted(version)}{extra}>'
        )
        return number

    def _close(self) -> None:
        self.lines.append(f"{self.tabs}</layer>")

    def _define(self, key: str, layer: int, port: int) -> None:
        if key in self.ends:
            self._refuse(RuleError("graph.repeated", f"one node must produce each value, got two for {key!r}"))
        self.ends[key] = layer, port

    # Layers

    def _parameter(self, value: ForeignValue) -> None:
        name = _layer_name(value)
        type = value.type
        if type is not None and not isinstance(type, Tensor):
            self._refuse(UnsupportedError("type.kind", f"an input in OpenVINO IR must be a tensor, got {type}"), name)
            type = None
        number = self._open(name, "Parameter", "opset1")
        element = self.writer.element_type(None if type is None else type.dtype, name)
        shape = "..." if type is None or type.shape is None else format_shape(type.shape)
        self.lines.append(f'{self.tabs}\t<data shape="{shape}" element_type="{element}" />')
        self.writer._section("rt_info", value.metadata.get("layer_rt_info", []), self.indent + 1)
        self._outputs([value.key], number, 0, name)
        self._close()

    def _constants(self, keys: Iterable[str | None]) -> None:
        for key in keys:
            tensor = None if key is None or key in self.ends else self.graph.constants.get(key)
            if key is not None and tensor is not None:
                self._constant(key, tensor)

    def _constant(self, key: str, tensor: ForeignTensor) -> None:
        value = self.values.get(key) or ForeignValue(key)
        name = str(value.metadata.get("name") or tensor.name or _layer_name(value))
        try:
            offset, size = self.writer.store(tensor, name)
        except DovetailError as error:
            self._refuse(error, name)
            offset, size = 0, 0
        number = self._open(name, "Const", "opset1")
        shape = ", ".join(map(str, tensor.storage.shape))
        element = tensor.dtype.openvino
        self.lines.append(f'{self.tabs}\t<data element_type="{element}" shape="{shape}" offset="{offset}" size="{size}" />')
        self.writer._section("rt_info", value.metadata.get("layer_rt_info", []), self.indent + 1)
        # The type comes from the data, not from the declaration.
        self.values[key] = ForeignValue(key, Tensor(tensor.dtype, tensor.storage.shape), value.names, metadata=value.metadata)
        self._outputs([key], number, 0, name)
        self._close()

    def _result(self, value: ForeignValue) -> None:
        source = self.values.get(value.key)
        stem = value.names[0] if value.names else value.key if source is None else _layer_name(source)
        name = str(value.metadata.get("result") or f"{stem}/sink_port_0")
        names = ""
        if value.names and (source is None or value.names != source.names):
            names = f" output_names={self.writer.quote(self.writer.names(value.names, name))}"
        number = self._open(name, "Result", "opset1", names)
        self.writer._section("rt_info", value.metadata.get("result_rt_info", []), self.indent + 1)
        info = value.metadata.get("result_port_rt_info", [])
        self._inputs([value.key], number, name, {"0": info} if info else {})
        self._close()

    def _node(self, node: ForeignNode) -> None:
        name = node.name or self._fresh(node.kind)
        keys = list(node.inputs)
        while keys and keys[-1] is None:
            keys.pop()
        inputs = [key for key in keys if key is not None]
        if len(inputs) < len(keys):
            self._refuse(UnsupportedError("op.unsayable", f"{node.kind}: inputs before the last one must not be absent"), name)
        number = self._open(name, node.kind, format_version(node.version, node.domain))
        texts, bodies = self._split(node, name)
        if texts:
            self.lines.append(f"{self.tabs}\t<data{self.writer._attributes(texts.items(), name)} />")
        self.writer._section("rt_info", node.metadata.get("rt_info", []), self.indent + 1)
        self._inputs(inputs, number, name, node.metadata.get("input_rt_info", {}))
        if node.outputs:
            self._outputs(node.outputs, number, len(inputs), name)
        if bodies:
            self._bodies(bodies, name)
        self._close()

    def _fresh(self, kind: str) -> str:
        index = self.count
        while f"{kind}_{index}" in self.taken:
            index += 1
        self.taken.add(f"{kind}_{index}")
        return f"{kind}_{index}"

    def _split(self, node: ForeignNode, name: str) -> tuple[dict[str, str], dict[str, Any]]:
        texts: dict[str, str] = {}
        bodies: dict[str, Any] = {}
        for key, value in node.attributes.items():
            if isinstance(value, str):
                texts[key] = value
            elif key in BODIES or key in BODIES.values() or key == "back_edges":
                bodies[key] = value
            else:
                message = f"{node.kind}: {key} must be a string, got {type(value).__name__}"
                self._refuse(UnsupportedError("op.unsayable", message), name)
        return texts, bodies

    # Ports

    def _inputs(self, keys: list[str], number: int, name: str, infos: dict[str, list[Item]]) -> None:
        if not keys:
            return
        self.lines.append(f"{self.tabs}\t<input>")
        for index, key in enumerate(keys):
            end = self.ends.get(key)
            if end is None:
                self._refuse(RuleError("graph.dangling", f"input {index} reads {key!r}, which no earlier layer produces"), name)
            else:
                self.edges.append((*end, number, index))
            source = self.values.get(key)
            self._port(index, None if source is None else source.type, "", infos.get(str(index), []), name)
        self.lines.append(f"{self.tabs}\t</input>")

    def _outputs(self, keys: list[str | None] | list[str], number: int, first: int, name: str) -> None:
        self.lines.append(f"{self.tabs}\t<output>")
        for index, key in enumerate(keys, first):
            # An absent output needs a port too, because ports are numbered.
            value = ForeignValue("") if key is None else self.values.get(key) or ForeignValue(key)
            if key is not None:
                self._define(key, number, index)
            names = f" names={self.writer.quote(self.writer.names(value.names, name))}" if value.names else ""
            self._port(index, value.type, names, rt_info.port_items_of(value.metadata), name)
        self.lines.append(f"{self.tabs}\t</output>")

    def _port(self, index: int, type: Type | None, names: str, info: list[Item], name: str) -> None:
        precision, texts = self.writer.type_text(type, name)
        tabs = self.tabs + "\t\t"
        head = f'{tabs}<port id="{index}" precision="{precision}"{names}'
        if not texts and not info:
            self.lines.append(f"{head} />")
            return
        self.lines.append(f"{head}>")
        self.lines.extend(f"{tabs}\t<dim>{text}</dim>" for text in texts)
        self.writer._section("rt_info", info, self.indent + 3)
        self.lines.append(f"{tabs}</port>")

    # Bodies

    def _bodies(self, parts: dict[str, Any], name: str) -> None:
        if self.depth >= (limits := current().limits).depth:
            self._refuse(
                UnsupportedError(
                    "limits.exceeded", f"subgraphs must nest at most {limits.depth} levels deep; {limits.describe('depth')}"
                ),
                name,
            )
            return
        tabs = self.tabs + "\t"
        renumbered: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        for tag in BODIES:
            if isinstance(parts.get(tag), ForeignGraph):
                self.lines.append(f"{tabs}<{tag}>")
                renumbered[tag] = self.writer._graph(parts[tag], self.indent + 2, self.depth + 1)
                self.writer._section("rt_info", parts[tag].metadata.get("rt_info", []), self.indent + 2)
                self.lines.append(f"{tabs}</{tag}>")
        for tag, map_tag in BODIES.items():
            if map_tag in parts:
                self._port_map(map_tag, parts[map_tag], renumbered.get(tag, ({}, {})), name)
        if "back_edges" in parts:
            inputs, outputs = renumbered.get("body", ({}, {}))
            self.lines.append(f"{tabs}<back_edges>")
            for edge in parts["back_edges"]:
                ends = outputs.get(edge["from-layer"]), inputs.get(edge["to-layer"])
                if None in ends:
                    self._refuse(RuleError("ir.edge", f"the back edge {edge} must name layers of the body"), name)
                self.lines.append(f'{tabs}\t<edge from-layer="{ends[0]}" to-layer="{ends[1]}" />')
            self.lines.append(f"{tabs}</back_edges>")

    def _port_map(
        self, tag: str, entries: list[dict[str, str]], renumbered: tuple[dict[str, str], dict[str, str]], name: str
    ) -> None:
        tabs = self.tabs + "\t"
        self.lines.append(f"{tabs}<{tag}>")
        for entry in entries:
            number = renumbered[entry["port"] == "output"].get(entry["internal_layer_id"])
            if number is None:
                message = f"{tag}: {entry['internal_layer_id']!r} must be an {entry['port']} of the body"
                self._refuse(RuleError("ir.edge", message), name)
                continue
            texts = {**entry, "internal_layer_id": number}
            attributes = [(key, texts[key]) for key in (*MAP_NUMBERS, "purpose") if key in texts]
            self.lines.append(f"{tabs}\t<{entry['port']}{self.writer._attributes(attributes, name)} />")
        self.lines.append(f"{tabs}</{tag}>")


def _layer_name(value: ForeignValue) -> str:
    return str(value.metadata.get("name") or (value.names[0] if value.names else value.key))
