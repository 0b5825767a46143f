"""Read the elements of an IR file into a foreign graph, and collect all errors in one pass; the reader knows no operators.

OpenVINO's reader (``XmlDeserializer``) uses the last of two layers with one id, and the first of two edges to one port. Such
files are refused, because other readers interpret them differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.openvino import constants, edges, port_maps, xml_attributes
from dovetail.formats.openvino.diagnostics import Checks, Layer
from dovetail.formats.openvino.layers import BODIES, LayerReader
from dovetail.formats.openvino.opsets import resolve
from dovetail.ir.limits import current, weight_of_node
from dovetail.ir.types import Shape, Tensor
from dovetail.storage.deviations import Deviations

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Tools of IR 10 wrote these sections instead of the model's rt_info; OpenVINO reads them if rt_info is missing.
LEGACY = ("meta_data", "quantization_parameters")
# Elements that describe preprocessing of the inputs; older tools applied it, OpenVINO ignores it.
PREPROCESSING = ("pre-process", "preprocess")


class Reader:
    """Reader reads one IR file. ``weights`` returns the bytes of the .bin file; it is called once, at the first constant."""

    def __init__(self, file: str, weights: Callable[[], constants.Bytes], deviations: Deviations | None = None) -> None:
        self.checks = Checks(file, deviations)
        self._layers = LayerReader(self.checks)
        self._weights = weights
        self._bytes: constants.Bytes | None = None
        self._bytes_failed = False
        self._symbols: set[str] = set()
        self._read = 0

    def graph(self, element: Element, path: str = "", depth: int = 0) -> ForeignGraph:
        """Read the graph in ``element``, <net> or a body; ``path`` makes the names of its unknown dimensions unique."""
        graph = ForeignGraph(name=element.get("name", "") if not depth else "")
        sections = self._sections(element, depth)
        layers = self._layers.layers(sections.get("layers"), path)
        self._read += sum(weight_of_node(len(layer.inputs) + len(layer.outputs)) for layer in layers.values())
        if self._read > (limits := current().limits).nodes:
            raise UnsupportedError("limits.exceeded", f"the model has at least {self._read} layers; {limits.describe('nodes')}")
        sources = edges.read_edges(self.checks, sections.get("edges"), layers)
        for layer in edges.sort(self.checks, layers, sources):
            self._add_layer(graph, layer, sources, path, depth)
        if not graph.outputs and not self.checks.errors:
            self.checks.add_fault("graph.outputs", "the graph must have a Result layer")
        info = self.checks.info(sections.get("rt_info"))
        if info:
            graph.metadata["rt_info"] = info
        for tag in LEGACY:
            if tag in sections:
                graph.metadata[tag] = self.checks.info(sections[tag])
        return graph

    def _sections(self, element: Element, depth: int) -> dict[str, Element]:
        known_tags = ("layers", "edges", "rt_info") if depth else ("layers", "edges", "rt_info", *LEGACY)
        self.checks.ignore_attributes(element, frozenset(() if depth else ("name", "version")))
        sections: dict[str, Element] = {}
        for child in element:
            if child.tag in PREPROCESSING:
                message = f"<{element.tag}> must not have <{child.tag}>, which changes the results in tools that support it"
                self.checks.add_unsupported_error("ir.unknown", message)
            elif child.tag not in known_tags:
                self.checks.ignore_element(element.tag, child)
            elif child.tag in sections and child.tag == "rt_info":
                self.checks.deviate(FormatError("ir.repeated", f"<{element.tag}> must have one <rt_info>, got two"))
            elif child.tag in sections:
                self.checks.add_fault("ir.repeated", f"<{element.tag}> must have one <{child.tag}>, got two")
            else:
                sections[child.tag] = child
        if "layers" not in sections:
            self.checks.add_fault("ir.missing", f"<{element.tag}> must have <layers>")
        return sections

    def _add_layer(self, graph: ForeignGraph, layer: Layer, sources: dict[tuple[str, int], str], path: str, depth: int) -> None:
        data = layer.children.get("data")
        attributes: dict[str, Any] = {} if data is None else dict(data.attrib)
        if data is not None and len(data):
            self.checks.add_unsupported_error("ir.unknown", f"<data> must not have the unknown element <{data[0].tag}>", layer)
        if ":" in "".join(attributes):
            self.checks.add_unsupported_error("ir.unknown", "attributes in an XML namespace are not supported", layer)
        inputs = [sources.get((layer.id, number)) for number in layer.inputs]
        if layer.kind in ("Parameter", "Const", "Result"):
            self._read_end(graph, layer, attributes, inputs, path)
            return
        kind, version, domain = resolve(layer.kind, layer.version)
        self._read_subgraphs(layer, attributes, path, depth)
        node = ForeignNode(kind, version, list(inputs), [value.key for value in layer.outputs.values()], attributes)
        node.domain, node.name, node.place = domain, layer.name, layer.place
        if layer.rt_info:
            node.metadata["rt_info"] = layer.rt_info
        ports = {str(index): info for index, info in enumerate(layer.inputs.values()) if info}
        if ports:
            node.metadata["input_rt_info"] = ports
        for index, value in enumerate(layer.outputs.values()):
            if not value.names:
                value.metadata["name"] = layer.name if len(layer.outputs) == 1 else f"{layer.name}.{index}"
            graph.values[value.key] = value
        graph.nodes.append(node)

    def _read_end(self, graph: ForeignGraph, layer: Layer, data: dict[str, str], inputs: list[str | None], path: str) -> None:
        """Read a Parameter, Const or Result."""
        counts = (1, 0) if layer.kind == "Result" else (0, 1)
        if (len(inputs), len(layer.outputs)) != counts:
            self.checks.add_fault(
                "ir.edge",
                f"{layer.kind} must have {counts[0]} input and {counts[1]} output ports, "
                f"got {len(inputs)} and {len(layer.outputs)}",
                layer,
            )
            return
        if not layer.version.startswith("opset"):
            self.checks.add_unsupported_error("ir.version", f"{layer.kind} must be of an opset, got {layer.version!r}", layer)
        unknown_tags = [tag for tag in layer.children if tag not in ("data", "input", "output", "rt_info")]
        if unknown_tags:
            self.checks.add_unsupported_error(
                "ir.unknown", f"{layer.kind} must not have the unknown element <{unknown_tags[0]}>", layer
            )
        if layer.kind == "Result":
            self._result(graph, layer, data, inputs[0])
            return
        (value,) = layer.outputs.values()
        value.metadata["name"] = layer.name
        value.metadata["layer"] = layer.id
        if layer.rt_info:
            value.metadata["layer_rt_info"] = layer.rt_info
        (self._parameter if layer.kind == "Parameter" else self._constant)(graph, layer, data, value, path)

    def _result(self, graph: ForeignGraph, layer: Layer, data: dict[str, str], key: str | None) -> None:
        self.checks.has_data(data, (), layer)
        if key is None:
            return
        value = ForeignValue(key, metadata={"result": layer.name, "layer": layer.id})
        source = graph.values.get(key) or next((item for item in graph.inputs if item.key == key), None)
        if source is not None:
            value.type = source.type
            # A Result without names gets the names of its input, as in OpenVINO's reader.
            value.names = xml_attributes.parse_names(layer.output_names or "") or source.names
        if layer.rt_info:
            value.metadata["result_rt_info"] = layer.rt_info
        (info,) = layer.inputs.values()
        if info:
            value.metadata["result_port_rt_info"] = info
        graph.outputs.append(value)

    def _parameter(self, graph: ForeignGraph, layer: Layer, data: dict[str, str], value: ForeignValue, path: str) -> None:
        graph.inputs.append(value)
        if layer.name in value.names:
            # OpenVINO's importer of ONNX names the layer as the input, and sorts the names of its tensor.
            value.names = tuple(dict.fromkeys((layer.name, *value.names)))
        if self.checks.has_data(data, ("shape", "element_type"), layer):
            name = self._unique(path + (value.names[0] if value.names else layer.name))
            value.type = Tensor(self.checks.dtype(data["element_type"], layer), self._parse_shape(data["shape"], name, layer))

    def _unique(self, name: str) -> str:
        # Layer names need not be unique, but equal symbol names would make two unknown sizes equal.
        while name in self._symbols:
            name += "'"
        self._symbols.add(name)
        return name

    def _parse_shape(self, text: str, name: str, layer: Layer) -> Shape | None:
        try:
            return xml_attributes.parse_shape(text, name)
        except FormatError as error:
            self.checks.add_fault(error.code, error.message, layer)
            return None

    def _constant(self, graph: ForeignGraph, layer: Layer, data: dict[str, str], value: ForeignValue, path: str) -> None:
        graph.values[value.key] = value
        if not self.checks.has_data(data, ("element_type", "shape", "offset", "size"), layer):
            return
        dtype = self.checks.dtype(data["element_type"], layer)
        shape = self._parse_shape(data["shape"], "", layer)
        numbers = [self.checks.is_number(data[name], name, layer) for name in ("offset", "size")]
        if dtype is None or shape is None or not all(numbers):
            if data["element_type"].upper() in xml_attributes.TYPES and dtype is None:
                self.checks.add_fault(
                    "dtype.unknown", f"a constant must have a known element type, got {data['element_type']!r}", layer
                )
            return
        sizes = tuple(size for size in shape if isinstance(size, int))
        if len(sizes) < len(shape):
            self.checks.add_fault("ir.number", f"a constant must have a static shape, got {data['shape']!r}", layer)
            return
        value.type = Tensor(dtype, sizes)
        weights = self._weight_bytes(layer)
        if weights is None:
            return
        accept = partial(self.checks.deviate, layer=layer)
        try:
            array = xml_attributes.read_elements(weights, dtype, sizes, int(data["offset"]), int(data["size"]), accept)
        except DovetailError as error:
            self.checks.add(error, layer)
            return
        graph.constants[value.key] = ForeignTensor(dtype, array)

    def _weight_bytes(self, layer: Layer) -> constants.Bytes | None:
        if self._bytes is None and not self._bytes_failed:
            try:
                self._bytes = self._weights()
            except DovetailError as error:
                self._bytes_failed = True
                self.checks.add(error, layer)
        return self._bytes

    def _read_subgraphs(self, layer: Layer, attributes: dict[str, Any], path: str, depth: int) -> None:
        body_tags = [tag for tag in BODIES if tag in layer.children]
        maps = [tag for tag in (*BODIES.values(), "back_edges") if tag in layer.children]
        clash = [tag for tag in (*body_tags, *maps) if tag in attributes]
        if clash:
            self.checks.add_fault("ir.unknown", f"<data>: the attribute {clash[0]!r} must not have the name of an element", layer)
        if (body_tags or maps) and list(layer.inputs) != list(range(len(layer.inputs))):
            # OpenVINO interprets external_port_id as the index of the input, independent of the ids of the ports.
            self.checks.add_fault("ir.edge", "the input ports of a layer with a body must be numbered from 0", layer)
        if depth >= (limits := current().limits).depth and body_tags:
            self.checks.add_unsupported_error(
                "limits.exceeded", f"subgraphs must nest at most {limits.depth} levels deep; {limits.describe('depth')}", layer
            )
            return
        for tag in body_tags:
            body = self.graph(layer.children[tag], f"{path}{layer.id}.{tag}/", depth + 1)
            attributes[tag] = body
            if BODIES[tag] in layer.children:
                attributes[BODIES[tag]] = port_maps.read_port_map(self.checks, layer.children[BODIES[tag]], layer, body)
        for tag in maps:
            if tag != "back_edges" and next(name for name, map_tag in BODIES.items() if map_tag == tag) not in body_tags:
                self.checks.add_fault("ir.edge", f"<{tag}> must have a body", layer)
        if "back_edges" in maps:
            whole = attributes.get("body") or ForeignGraph()
            attributes["back_edges"] = port_maps.read_back_edges(self.checks, layer.children["back_edges"], layer, whole)
