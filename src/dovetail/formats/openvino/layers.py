"""Read the layers of an IR graph, and their ports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import FormatError
from dovetail.formats.foreign import ForeignValue
from dovetail.formats.openvino import rt_info, xml_attributes
from dovetail.formats.openvino.diagnostics import Checks, Layer
from dovetail.ir import symbolic
from dovetail.ir.types import Shape, Size, Tensor

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# The tag of each subgraph element, and the tag of its port map.
BODIES = {"body": "port_map", "then_body": "then_port_map", "else_body": "else_port_map"}
# The attributes of each element.
_OF_LAYER = frozenset(("id", "name", "type", "version"))
_OF_RESULT = _OF_LAYER | {"output_names"}
_OF_INPUT = frozenset(("id", "precision"))
_OF_OUTPUT = _OF_INPUT | {"names"}
_NONE: frozenset[str] = frozenset()


class LayerReader:
    """LayerReader reads the layers of graphs; ``path`` makes the names of unknown dimensions unique among graphs."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self._sizes: dict[tuple[str | None, ...], tuple[Size | None, ...] | str] = {}

    def layers(self, section: Element | None, path: str) -> dict[str, Layer]:
        layers: dict[str, Layer] = {}
        for element in () if section is None else section:
            if element.tag != "layer":
                self.checks.ignore_element("layers", element)
                continue
            layer = self._layer(element, path)
            if layer is None:
                continue
            if layer.id in layers:
                self.checks.add_fault(
                    "ir.repeated", f"layer ids must be unique, got {layer.id} also for {layers[layer.id].name!r}", layer
                )
            else:
                layers[layer.id] = layer
        return layers

    def _layer(self, element: Element, path: str) -> Layer | None:
        get = element.get
        layer = Layer(get("id", "?"), get("name", ""), get("type", ""), get("version", ""), element, get("output_names"))
        self.checks.ignore_attributes(element, _OF_RESULT if layer.kind == "Result" else _OF_LAYER, layer)
        missing = [name for name in ("id", "name", "type", "version") if get(name) is None]
        if missing:
            self.checks.add_fault("ir.missing", f"<layer> must have {', '.join(missing)}", layer)
        if "id" in missing or not self.checks.is_number(layer.id, "the layer's id", layer):
            return None
        layer.id = str(int(layer.id))
        for child in element:
            if child.tag in layer.children and child.tag == "rt_info":
                # <rt_info> does not affect results; the first of several is read.
                self.checks.deviate(FormatError("ir.repeated", "a layer must have one <rt_info>, got two"), layer)
                continue
            if child.tag in layer.children:
                self.checks.add_fault("ir.repeated", f"a layer must have one <{child.tag}>, got two", layer)
            elif child.tag == "input":
                for port in self._ports(child, layer):
                    self._input(port, layer)
            elif child.tag == "output":
                for port in self._ports(child, layer):
                    self._output(port, layer, path)
            elif child.tag == "rt_info":
                layer.rt_info = self.checks.info(child, layer)
            elif child.tag not in ("data", "back_edges") and child.tag not in BODIES and child.tag not in BODIES.values():
                self.checks.add_unsupported_error("ir.unknown", f"<layer> must not have the unknown element <{child.tag}>", layer)
            layer.children[child.tag] = child
        if len(layer.inputs) > 1:
            layer.inputs = dict(sorted(layer.inputs.items()))
        if len(layer.outputs) > 1:
            layer.outputs = dict(sorted(layer.outputs.items()))
        return layer

    def _ports(self, section: Element, layer: Layer) -> Iterable[Element]:
        self.checks.ignore_attributes(section, _NONE, layer)
        for port in section:
            if port.tag == "port":
                yield port
            else:
                self.checks.ignore_element(section.tag, port, layer)

    def _input(self, port: Element, layer: Layer) -> None:
        self.checks.ignore_attributes(port, _OF_INPUT, layer)
        number = self._port_id(port, layer.inputs, "input", layer)
        self._shape(port, layer)
        if number is not None:
            layer.inputs[number] = self.checks.info(port.find("rt_info"), layer)

    def _output(self, port: Element, layer: Layer, path: str) -> None:
        self.checks.ignore_attributes(port, _OF_OUTPUT, layer)
        number = self._port_id(port, layer.outputs, "output", layer)
        sizes = self._shape(port, layer)
        if number is None:
            return
        key = f"{layer.id}:{number}"
        shape: Shape | None = None
        # A port without <dim> is a scalar or has an unknown rank; OpenVINO writes no difference.
        if sizes:
            shape = tuple(symbolic.symbol(f"?{path}{key}.{axis}") if size is None else size for axis, size in enumerate(sizes))
        value = ForeignValue(key, Tensor(self.checks.dtype(port.get("precision", "UNSPECIFIED"), layer), shape))
        value.names = xml_attributes.parse_names(port.get("names", ""))
        if info := self.checks.info(port.find("rt_info"), layer):
            value.metadata.update(rt_info.read_port(info))
        layer.outputs[number] = value

    def _port_id(self, port: Element, taken: Iterable[int], side: str, layer: Layer) -> int | None:
        text = port.get("id")
        if text is None:
            self.checks.add_fault("ir.missing", f"an {side} port must have an id", layer)
            return None
        if not self.checks.is_number(text, f"an {side} port's id", layer):
            return None
        if int(text) in taken:
            self.checks.add_fault("ir.repeated", f"ids of {side} ports must be unique, got {int(text)} twice", layer)
            return None
        return int(text)

    def _shape(self, port: Element, layer: Layer) -> tuple[Size | None, ...]:
        """Return the declared sizes of a port; None for an unknown size."""
        texts: list[str | None] = []
        for child in port:
            if child.tag == "dim":
                texts.append(child.text)
                if child.keys() or len(child):
                    self.checks.add_unsupported_error("ir.unknown", "<dim> must contain only a number", layer)
            elif child.tag != "rt_info":
                self.checks.ignore_element("port", child, layer)
        known_names = tuple(texts)
        sizes = self._sizes.get(known_names)
        if sizes is None:
            sizes = self._sizes[known_names] = xml_attributes.port_sizes(known_names)
        if isinstance(sizes, str) and any(
            text is None or xml_attributes.LEADING_NUMBER.match(text) is None for text in known_names
        ):
            self.checks.add_fault("ir.number", sizes, layer)
            return ()
        if isinstance(sizes, str):
            # Inference computes the sizes, so that none is needed here; OpenVINO reads only the leading number of each <dim>.
            self.checks.deviate(FormatError("ir.number", sizes), layer)
            return tuple(None for _ in known_names)
        return sizes
