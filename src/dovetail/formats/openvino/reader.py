"""From the elements of an IR file to a foreign graph, every independent fault in one pass. Knows no operator's meaning.

OpenVINO's own reader (``XmlDeserializer``) takes the last of two layers with one id and the first of two edges; such files
mean different things to different readers and are refused here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail import dims
from dovetail.dtypes import DType
from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.openvino import fields, packing, rt_info
from dovetail.formats.openvino.versions import resolve
from dovetail.types import INT64_MAX, Shape, Size, Tensor

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

BODIES = {"body": "port_map", "then_body": "then_port_map", "else_body": "else_port_map"}
MAP_NUMBERS = ("external_port_id", "internal_layer_id", "axis", "start", "end", "stride", "part_size")
PURPOSES = ("current_iteration", "execution_condition")
# What the tools of IR 10 wrote instead of the model's rt_info; OpenVINO reads them where that is missing.
LEGACY = ("meta_data", "quantization_parameters")
NESTING = 32
MOST_FAULTS = 1000


@dataclass(slots=True)
class _Layer:
    id: str
    name: str
    kind: str
    version: str
    element: Element
    output_names: str | None = None
    inputs: dict[int, list[rt_info.Item]] = field(default_factory=dict)
    outputs: dict[int, ForeignValue] = field(default_factory=dict)
    children: dict[str, Element] = field(default_factory=dict)
    rt_info: list[rt_info.Item] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"layer {self.id}"


class TooMany(Exception):
    """More faults than anybody reads: the rest of the file is not looked at."""


class Reader:
    """Reads one file. ``weights`` gives the bytes of the .bin when the first constant asks for them."""

    def __init__(self, file: str, weights: Callable[[], packing.Bytes]) -> None:
        self.file = file
        self.errors: list[DovetailError] = []
        self._weights = weights
        self._bytes: packing.Bytes | None = None
        self._bytes_failed = False
        self._sizes: dict[tuple[str | None, ...], tuple[Size | None, ...] | str] = {}
        self._symbols: set[str] = set()

    # Faults

    def fault(self, code: str, message: str, layer: _Layer | None = None) -> None:
        self._add(FormatError(code, message), layer)

    def unsupported(self, code: str, message: str, layer: _Layer | None = None) -> None:
        self._add(UnsupportedError(code, message), layer)

    def _add(self, error: DovetailError, layer: _Layer | None = None) -> None:
        if layer is not None:
            error = type(error)(error.code, f"layer {layer.id}: {error.message}", node=layer.name or layer.place)
        self.errors.append(error.at(file=self.file))
        if len(self.errors) >= MOST_FAULTS:
            raise TooMany

    # Graphs

    def graph(self, element: Element, path: str = "", depth: int = 0) -> ForeignGraph:
        """The graph in ``element`` (net or a body); ``path`` sets the names of its unknown dimensions apart."""
        graph = ForeignGraph(name=element.get("name", "") if not depth else "")
        sections = self._sections(element, depth)
        layers = self._layers(sections.get("layers"), path)
        sources = self._edges(sections.get("edges"), layers)
        for layer in self._sorted(layers, sources):
            self._place(graph, layer, sources, path, depth)
        if not graph.outputs and not self.errors:
            self.fault("ir.result_missing", "the graph has no Result layer")
        info = self._info(sections.get("rt_info"))
        if info:
            graph.metadata["rt_info"] = info
        for tag in LEGACY:
            if tag in sections:
                graph.metadata[tag] = self._info(sections[tag])
        return graph

    def _sections(self, element: Element, depth: int) -> dict[str, Element]:
        known = ("layers", "edges", "rt_info") if depth else ("layers", "edges", "rt_info", *LEGACY)
        self._attributes(element, () if depth else ("name", "version"))
        found: dict[str, Element] = {}
        for child in element:
            if child.tag not in known:
                self.unsupported("ir.element_unknown", f"<{element.tag}> holds <{child.tag}>, which dovetail does not know")
            elif child.tag in found:
                self.fault("ir.element_repeated", f"<{element.tag}> holds two <{child.tag}>")
            else:
                found[child.tag] = child
        if "layers" not in found:
            self.fault("ir.element_missing", f"<{element.tag}> has no <layers>")
        return found

    def _layers(self, section: Element | None, path: str) -> dict[str, _Layer]:
        layers: dict[str, _Layer] = {}
        for element in () if section is None else section:
            if element.tag != "layer":
                self.unsupported("ir.element_unknown", f"<layers> holds <{element.tag}>, which dovetail does not know")
                continue
            layer = self._layer(element, path)
            if layer is None:
                continue
            if layer.id in layers:
                self.fault(
                    "ir.layer_repeated", f"two layers have the id {layer.id}, {layers[layer.id].name!r} is the first", layer
                )
            else:
                layers[layer.id] = layer
        return layers

    def _layer(self, element: Element, path: str) -> _Layer | None:
        get = element.get
        layer = _Layer(get("id", "?"), get("name", ""), get("type", ""), get("version", ""), element, get("output_names"))
        known = ("id", "name", "type", "version", "output_names") if layer.kind == "Result" else ("id", "name", "type", "version")
        self._attributes(element, known, layer)
        missing = [name for name in ("id", "name", "type", "version") if element.get(name) is None]
        if missing:
            self.fault("ir.attribute_missing", f"<layer> has no {', '.join(missing)}", layer)
        if "id" in missing or not self._is_number(layer.id, "the layer's id", layer):
            return None
        layer.id = str(int(layer.id))
        for child in element:
            if child.tag in layer.children:
                self.fault("ir.element_repeated", f"the layer holds two <{child.tag}>", layer)
            elif child.tag == "input":
                for port in self._ports(child, layer):
                    self._input(port, layer)
            elif child.tag == "output":
                for port in self._ports(child, layer):
                    self._output(port, layer, path)
            elif child.tag == "rt_info":
                layer.rt_info = self._info(child, layer)
            elif child.tag not in ("data", "back_edges") and child.tag not in BODIES and child.tag not in BODIES.values():
                self.unsupported("ir.element_unknown", f"<layer> holds <{child.tag}>, which dovetail does not know", layer)
            layer.children[child.tag] = child
        layer.inputs = dict(sorted(layer.inputs.items()))
        layer.outputs = dict(sorted(layer.outputs.items()))
        return layer

    # Ports

    def _ports(self, section: Element, layer: _Layer) -> Iterable[Element]:
        self._attributes(section, (), layer)
        for port in section:
            if port.tag == "port":
                yield port
            else:
                self.unsupported("ir.element_unknown", f"<{section.tag}> holds <{port.tag}>", layer)

    def _input(self, port: Element, layer: _Layer) -> None:
        self._attributes(port, ("id", "precision"), layer)
        number = self._port_id(port, layer.inputs, "input", layer)
        self._shape(port, layer)
        if number is not None:
            layer.inputs[number] = self._info(port.find("rt_info"), layer)

    def _output(self, port: Element, layer: _Layer, path: str) -> None:
        self._attributes(port, ("id", "precision", "names"), layer)
        number = self._port_id(port, layer.outputs, "output", layer)
        sizes = self._shape(port, layer)
        if number is None:
            return
        key = f"{layer.id}:{number}"
        shape: Shape | None = None
        # A port without dims is a scalar or of unknown rank: OpenVINO writes both so.
        if sizes:
            shape = tuple(dims.symbol(f"?{path}{key}.{axis}") if size is None else size for axis, size in enumerate(sizes))
        value = ForeignValue(key, Tensor(self._dtype(port.get("precision", "UNSPECIFIED"), layer), shape))
        value.names = fields.names(port.get("names", ""))
        info = self._info(port.find("rt_info"), layer)
        if info:
            value.metadata["rt_info"] = info
        layer.outputs[number] = value

    def _port_id(self, port: Element, taken: Iterable[int], side: str, layer: _Layer) -> int | None:
        text = port.get("id")
        if text is None:
            self.fault("ir.attribute_missing", f"an {side} port has no id", layer)
            return None
        if not self._is_number(text, f"an {side} port's id", layer):
            return None
        if int(text) in taken:
            self.fault("ir.port_repeated", f"two {side} ports have the id {int(text)}", layer)
            return None
        return int(text)

    def _shape(self, port: Element, layer: _Layer) -> tuple[Size | None, ...]:
        """The sizes that a port declares, None for an unknown one."""
        texts: list[str | None] = []
        for child in port:
            if child.tag == "dim":
                texts.append(child.text)
                if child.keys() or len(child):
                    self.unsupported("ir.element_unknown", "<dim> holds more than a number", layer)
            elif child.tag != "rt_info":
                self.unsupported("ir.element_unknown", f"<port> holds <{child.tag}>", layer)
        known = tuple(texts)
        found = self._sizes.get(known)
        if found is None:
            found = self._sizes[known] = fields.port_sizes(known)
        if isinstance(found, str):
            self.fault("ir.dims", found, layer)
            return ()
        return found

    def _dtype(self, text: str, layer: _Layer) -> DType | None:
        try:
            return fields.TYPES[text.upper()]
        except KeyError:
            self.unsupported("ir.dtype", f"{text!r} is no element type that dovetail knows", layer)
            return None

    # Edges and order

    def _edges(self, section: Element | None, layers: dict[str, _Layer]) -> dict[tuple[str, int], str]:
        """What each input port reads: (layer, port) -> key."""
        sources: dict[tuple[str, int], str] = {}
        wanted = ("from-layer", "from-port", "to-layer", "to-port")
        for edge in () if section is None else section:
            if edge.tag != "edge":
                self.unsupported("ir.element_unknown", f"<edges> holds <{edge.tag}>, which dovetail does not know")
                continue
            self._attributes(edge, wanted)
            ends = [edge.get(name, "") for name in wanted]
            text = f"the edge {ends[0]}:{ends[1]} -> {ends[2]}:{ends[3]}"
            if not all(fields.NUMBER.fullmatch(end) for end in ends):
                self.fault("ir.edge", f"{text} needs four whole numbers ({', '.join(wanted)})")
                continue
            self._edge([int(end) for end in ends], text, layers, sources)
        for layer in layers.values():
            for number in layer.inputs:
                if (layer.id, number) not in sources:
                    self.fault("ir.port_unconnected", f"no edge leads to the input port {number}", layer)
        return sources

    def _edge(self, ends: list[int], text: str, layers: dict[str, _Layer], sources: dict[tuple[str, int], str]) -> None:
        start, end = layers.get(str(ends[0])), layers.get(str(ends[2]))
        if start is None or end is None:
            gone = ends[0] if start is None else ends[2]
            self.fault("ir.edge_dangling", f"{text}: there is no layer {gone}", end if start is None else start)
        elif ends[1] not in start.outputs:
            self.fault("ir.edge_dangling", f"{text}: layer {start.id} has no output port {ends[1]}", end)
        elif ends[3] not in end.inputs:
            self.fault("ir.edge_dangling", f"{text}: layer {end.id} has no input port {ends[3]}", end)
        elif (end.id, ends[3]) in sources:
            self.fault("ir.edge_repeated", f"{text}: another edge leads to this port already", end)
        else:
            sources[end.id, ends[3]] = f"{start.id}:{ends[1]}"

    def _sorted(self, layers: dict[str, _Layer], sources: dict[tuple[str, int], str]) -> list[_Layer]:
        """The layers in an order in which each comes after what it reads, as near to the file's as that allows."""
        order = list(layers.values())
        position = {layer.id: index for index, layer in enumerate(order)}
        needs = [0] * len(order)
        users: list[list[int]] = [[] for _ in order]
        is_sorted = True
        for (identity, _), key in sources.items():
            start, end = position[key.partition(":")[0]], position[identity]
            is_sorted = is_sorted and start < end
            needs[end] += 1
            users[start].append(end)
        if is_sorted:
            return order
        ready = [index for index, count in enumerate(needs) if not count]
        found: list[_Layer] = []
        while ready:
            index = heapq.heappop(ready)
            found.append(order[index])
            for user in users[index]:
                needs[user] -= 1
                if not needs[user]:
                    heapq.heappush(ready, user)
        if len(found) < len(order):
            stuck = [order[index] for index, count in enumerate(needs) if count]
            names = ", ".join(repr(layer.name) for layer in stuck[:5])
            self.fault("ir.cycle", f"{len(stuck)} layers wait for each other in a cycle: {names}", stuck[0])
            found.extend(stuck)
        # Inputs and outputs keep the file's order, which is that of OpenVINO's model.inputs and model.outputs.
        results = [layer for layer in order if layer.kind == "Result"]
        parameters = [layer for layer in order if layer.kind == "Parameter"]
        return parameters + [layer for layer in found if layer.kind not in ("Result", "Parameter")] + results

    # Layers

    def _place(self, graph: ForeignGraph, layer: _Layer, sources: dict[tuple[str, int], str], path: str, depth: int) -> None:
        data = layer.children.get("data")
        attributes: dict[str, Any] = {} if data is None else dict(data.attrib)
        if data is not None and len(data):
            self.unsupported("ir.element_unknown", f"<data> holds <{data[0].tag}>", layer)
        if any(name.startswith("{") for name in attributes):
            self.unsupported("ir.attribute_unknown", "an attribute in a namespace", layer)
        inputs = [sources.get((layer.id, number)) for number in layer.inputs]
        if layer.kind in ("Parameter", "Const", "Result"):
            self._end(graph, layer, attributes, inputs, path)
            return
        kind, version, domain = resolve(layer.kind, layer.version)
        self._bodies(layer, attributes, path, depth)
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

    def _end(self, graph: ForeignGraph, layer: _Layer, data: dict[str, str], inputs: list[str | None], path: str) -> None:
        """A layer at an end of the graph: Parameter, Const or Result."""
        counts = (1, 0) if layer.kind == "Result" else (0, 1)
        if (len(inputs), len(layer.outputs)) != counts:
            self.fault(
                "ir.ports",
                f"{layer.kind} has {len(inputs)} input and {len(layer.outputs)} output ports, not {counts[0]} and {counts[1]}",
                layer,
            )
            return
        if not layer.version.startswith("opset"):
            self.unsupported("ir.version", f"{layer.kind} of {layer.version!r}", layer)
        bodies = [tag for tag in layer.children if tag not in ("data", "input", "output", "rt_info")]
        if bodies:
            self.unsupported("ir.element_unknown", f"{layer.kind} holds <{bodies[0]}>", layer)
        if layer.kind == "Result":
            self._result(graph, layer, data, inputs[0])
            return
        (value,) = layer.outputs.values()
        value.metadata["name"] = layer.name
        value.metadata["layer"] = layer.id
        if layer.rt_info:
            value.metadata["layer_rt_info"] = layer.rt_info
        (self._parameter if layer.kind == "Parameter" else self._constant)(graph, layer, data, value, path)

    def _result(self, graph: ForeignGraph, layer: _Layer, data: dict[str, str], key: str | None) -> None:
        self._data(data, (), layer)
        if key is None:
            return
        value = ForeignValue(key, metadata={"result": layer.name, "layer": layer.id})
        source = graph.values.get(key) or next((item for item in graph.inputs if item.key == key), None)
        if source is not None:
            value.type = source.type
            # Without names of its own a Result has those of the tensor that it reads (OpenVINO's reader).
            value.names = fields.names(layer.output_names or "") or source.names
        if layer.rt_info:
            value.metadata["result_rt_info"] = layer.rt_info
        (info,) = layer.inputs.values()
        if info:
            value.metadata["result_port_rt_info"] = info
        graph.outputs.append(value)

    def _parameter(self, graph: ForeignGraph, layer: _Layer, data: dict[str, str], value: ForeignValue, path: str) -> None:
        graph.inputs.append(value)
        if self._data(data, ("shape", "element_type"), layer):
            name = self._unique(path + (value.names[0] if value.names else layer.name))
            value.type = Tensor(self._dtype(data["element_type"], layer), self._partial(data["shape"], name, layer))

    def _unique(self, name: str) -> str:
        # Layer names may come twice, and one name would make two unknown sizes equal.
        while name in self._symbols:
            name += "'"
        self._symbols.add(name)
        return name

    def _partial(self, text: str, name: str, layer: _Layer) -> Shape | None:
        """A partial shape: "1,3,?", "1..8,2..", "..." (rank unknown), "" (scalar)."""
        inner = text.strip()
        if inner.startswith("[") and inner.endswith("]"):
            inner = inner[1:-1].strip()
        if inner == "...":
            return None
        shape: list[Size] = []
        for axis, piece in enumerate(inner.split(",") if inner else ()):
            match = fields.SIZES.fullmatch(piece)
            size = None if match is None else fields.size_of(match, f"?{name}.{axis}")
            if size is None:
                self.fault("ir.shape", f"{piece.strip()!r} in the shape {text!r} is no size", layer)
                return None
            shape.append(size)
        if fields.overflows(shape):
            self.fault("ir.dims", f"the shape {text!r} has more than 2**63 - 1 elements", layer)
            return None
        return tuple(shape)

    def _constant(self, graph: ForeignGraph, layer: _Layer, data: dict[str, str], value: ForeignValue, path: str) -> None:
        graph.values[value.key] = value
        if not self._data(data, ("element_type", "shape", "offset", "size"), layer):
            return
        dtype = self._dtype(data["element_type"], layer)
        shape = self._partial(data["shape"], "", layer)
        numbers = [self._is_number(data[name], name, layer) for name in ("offset", "size")]
        if dtype is None or shape is None or not all(numbers):
            if data["element_type"].upper() in fields.TYPES and dtype is None:
                self.fault("ir.dtype", f"a constant of type {data['element_type']!r}", layer)
            return
        sizes = tuple(size for size in shape if isinstance(size, int))
        if len(sizes) < len(shape):
            self.fault("ir.shape", f"a constant's shape has to be known, and is {data['shape']!r}", layer)
            return
        value.type = Tensor(dtype, sizes)
        weights = self._weight_bytes(layer)
        if weights is None:
            return
        try:
            array = fields.constant(weights, dtype, sizes, int(data["offset"]), int(data["size"]))
        except DovetailError as error:
            self._add(error, layer)
            return
        graph.constants[value.key] = ForeignTensor(dtype, array)

    def _weight_bytes(self, layer: _Layer) -> packing.Bytes | None:
        if self._bytes is None and not self._bytes_failed:
            try:
                self._bytes = self._weights()
            except DovetailError as error:
                self._bytes_failed = True
                self._add(error, layer)
        return self._bytes

    # Bodies

    def _bodies(self, layer: _Layer, attributes: dict[str, Any], path: str, depth: int) -> None:
        found = [tag for tag in BODIES if tag in layer.children]
        maps = [tag for tag in (*BODIES.values(), "back_edges") if tag in layer.children]
        clash = [tag for tag in (*found, *maps) if tag in attributes]
        if clash:
            self.fault("ir.attribute_unknown", f"<data> has an attribute {clash[0]!r}, which is an element's name", layer)
        if (found or maps) and list(layer.inputs) != list(range(len(layer.inputs))):
            # OpenVINO takes external_port_id for the input's index, whatever the ids of the ports are.
            self.fault("ir.port_map", "the input ports of a layer with a body have to be numbered from 0", layer)
        if depth >= NESTING and found:
            self.unsupported("ir.depth", f"bodies nest deeper than {NESTING} levels", layer)
            return
        for tag in found:
            body = self.graph(layer.children[tag], f"{path}{layer.id}.{tag}/", depth + 1)
            attributes[tag] = body
            if BODIES[tag] in layer.children:
                attributes[BODIES[tag]] = self._port_map(layer.children[BODIES[tag]], layer, body)
        for tag in maps:
            if tag != "back_edges" and next(name for name, other in BODIES.items() if other == tag) not in found:
                self.fault("ir.port_map", f"<{tag}> without its body", layer)
        if "back_edges" in maps:
            whole = attributes.get("body") or ForeignGraph()
            attributes["back_edges"] = self._back_edges(layer.children["back_edges"], layer, whole)

    def _port_map(self, element: Element, layer: _Layer, body: ForeignGraph) -> list[dict[str, str]]:
        """The entries, with ``port`` = input or output; external ids are renumbered: inputs from 0, outputs after them."""
        self._attributes(element, (), layer)
        outer = {"input": list(layer.inputs), "output": list(layer.outputs)}
        inner = {"input": _layer_ids(body.inputs), "output": _layer_ids(body.outputs)}
        entries = []
        for child in element:
            if child.tag not in outer:
                self.unsupported("ir.element_unknown", f"<{element.tag}> holds <{child.tag}>", layer)
                continue
            self._attributes(child, (*MAP_NUMBERS, "purpose"), layer)
            entry = {"port": child.tag, **child.attrib}
            if not self._is_entry(entry, layer):
                continue
            number = int(entry["external_port_id"])
            if number != -1 and number not in outer[child.tag]:
                self.fault("ir.port_map", f"<{element.tag}> names the {child.tag} port {number}, which the layer has not", layer)
                continue
            if entry["internal_layer_id"] not in inner[child.tag]:
                what = f"layer {entry['internal_layer_id']} is no {child.tag} of the body"
                self.fault("ir.port_map", f"<{element.tag}>: {what}", layer)
                continue
            if number != -1:
                place = outer[child.tag].index(number)
                entry["external_port_id"] = str(place if child.tag == "input" else place + len(outer["input"]))
            entries.append(entry)
        return entries

    def _is_entry(self, entry: dict[str, str], layer: _Layer) -> bool:
        missing = [name for name in MAP_NUMBERS[:2] if name not in entry]
        if missing:
            self.fault("ir.port_map", f"an entry has no {', '.join(missing)}", layer)
        if entry.get("purpose", PURPOSES[0]) not in PURPOSES:
            self.unsupported("ir.port_map", f"the purpose {entry['purpose']!r}", layer)
        wrong = [name for name in MAP_NUMBERS if name in entry and not self._is_number(entry[name], name, layer, -(2**63))]
        return not missing and not wrong

    def _back_edges(self, element: Element, layer: _Layer, body: ForeignGraph) -> list[dict[str, str]]:
        self._attributes(element, (), layer)
        starts, ends = _layer_ids(body.outputs), _layer_ids(body.inputs)
        edges: list[dict[str, str]] = []
        for child in element:
            self._attributes(child, ("from-layer", "to-layer", "from-port", "to-port"), layer)
            start, end = child.get("from-layer"), child.get("to-layer")
            if child.tag != "edge" or start is None or end is None or start not in starts or end not in ends:
                self.fault(
                    "ir.back_edge",
                    f"the back edge {start} -> {end} leads from no Result or to no Parameter of the body",
                    layer,
                )
            elif any(end == edge["to-layer"] for edge in edges):
                self.fault("ir.back_edge", f"two back edges lead to layer {end}", layer)
            else:
                edges.append({"from-layer": start, "to-layer": end})
        return edges

    # Attributes

    def _attributes(self, element: Element, known: tuple[str, ...], layer: _Layer | None = None) -> None:
        for name in element.keys():  # noqa: SIM118 (an element iterates over its children)
            if name not in known:
                self.unsupported("ir.attribute_unknown", f"<{element.tag}> has the unknown attribute {name!r}", layer)

    def _data(self, data: dict[str, str], known: tuple[str, ...], layer: _Layer) -> bool:
        missing = [name for name in known if name not in data]
        unknown = [name for name in data if name not in known]
        if missing:
            self.fault("ir.attribute_missing", f"{layer.kind} has no {', '.join(missing)}", layer)
        if unknown:
            self.unsupported("ir.attribute_unknown", f"{layer.kind} has the unknown attribute {unknown[0]!r}", layer)
        return not missing

    def _is_number(self, text: str, what: str, layer: _Layer, least: int = 0) -> bool:
        if fields.NUMBER.fullmatch(text) is None or not least <= int(text) <= INT64_MAX:
            self.fault("ir.number", f"{what} is {text[:40]!r}, no whole number from {least} to 2**63 - 1", layer)
            return False
        return True

    def _info(self, element: Element | None, layer: _Layer | None = None) -> list[rt_info.Item]:
        if element is None or not len(element):
            return []
        try:
            return rt_info.items_of(element)
        except DovetailError as error:
            self._add(error, layer)
            return []


def _layer_ids(values: list[ForeignValue]) -> set[str]:
    return {value.metadata["layer"] for value in values}
