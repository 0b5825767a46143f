"""Collect the errors of an IR file and its deviations from the format, and refuse unknown attributes of XML elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignValue
from dovetail.formats.openvino import rt_info, xml_attributes
from dovetail.ir.dtypes import DType
from dovetail.ir.types import INT64_MAX
from dovetail.storage.deviations import Deviations

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_ERRORS = 1000


@dataclass(slots=True)
class Layer:
    """Layer is one layer of the file, with its ports by number and its child elements by tag."""

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


def _with_layer(error: DovetailError, layer: Layer | None) -> DovetailError:
    if layer is None:
        return error
    return type(error)(error.code, f"layer {layer.id}: {error.message}", node=layer.name or layer.place)


class TooManyErrors(Exception):
    """TooManyErrors reports that MAX_ERRORS is reached; the rest of the file is not read."""


class Checks:
    """Checks collects the errors and deviations of one file; without ``deviations`` each deviation is an error."""

    def __init__(self, file: str, deviations: Deviations | None = None) -> None:
        self.file = file
        self.deviations = deviations
        self.errors: list[DovetailError] = []

    def add_fault(self, code: str, message: str, layer: Layer | None = None) -> None:
        self.add(FormatError(code, message), layer)

    def add_unsupported_error(self, code: str, message: str, layer: Layer | None = None) -> None:
        self.add(UnsupportedError(code, message), layer)

    def deviate(self, error: DovetailError, layer: Layer | None = None) -> None:
        """Report a deviation."""
        if self.deviations is None:
            self.add(error, layer)
        else:
            self.deviations.add(_with_layer(error, layer).at(file=self.file))

    def add(self, error: DovetailError, layer: Layer | None = None) -> None:
        self.errors.append(_with_layer(error, layer).at(file=self.file))
        if len(self.errors) >= MAX_ERRORS:
            raise TooManyErrors

    def refuse_attributes(self, element: Element, known_names: frozenset[str], layer: Layer | None = None) -> None:
        for name in element.keys():
            if name not in known_names:
                self.add_unsupported_error("ir.unknown", f"<{element.tag}> must not have the unknown attribute {name!r}", layer)

    def ignore_attributes(self, element: Element, known_names: frozenset[str], layer: Layer | None = None) -> None:
        """Report unknown attributes of structural elements, which OpenVINO ignores, as deviations."""
        if known_names.issuperset(element.attrib):
            return
        for name in element.keys():
            if name not in known_names:
                self._ignore_attribute(f"<{element.tag}>", name, layer)

    def ignore_element(self, parent: str, child: Element, layer: Layer | None = None) -> None:
        """Report an unknown structural element, which OpenVINO ignores, as a deviation."""
        message = f"<{parent}> must not have the unknown element <{child.tag}>"
        self.deviate(UnsupportedError("ir.unknown", message), layer)

    def _ignore_attribute(self, owner: str, name: str, layer: Layer | None) -> None:
        error = UnsupportedError("ir.unknown", f"{owner} must not have the unknown attribute {name!r}")
        if ":" in name and not name.startswith("xmlns:"):
            # An attribute in an XML namespace belongs to an extension; the declaration of a prefix has no effect.
            self.add(error, layer)
        else:
            self.deviate(error, layer)

    def has_data(self, data: dict[str, str], known_names: tuple[str, ...], layer: Layer) -> bool:
        missing = [name for name in known_names if name not in data]
        unknown = [name for name in data if name not in known_names]
        if missing:
            self.add_fault("ir.missing", f"{layer.kind} must have {', '.join(missing)}", layer)
        for name in unknown:
            self._ignore_attribute(layer.kind, name, layer)
        return not missing

    def is_number(self, text: str, label: str, layer: Layer, minimum: int = 0) -> bool:
        if not minimum and len(text) < 19 and text.isascii() and text.isdecimal():
            return True
        if xml_attributes.NUMBER.fullmatch(text) is None or not minimum <= int(text) <= INT64_MAX:
            self.add_fault("ir.number", f"{label} must be an integer from {minimum} to 2**63 - 1, got {text[:40]!r}", layer)
            return False
        return True

    def info(self, element: Element | None, layer: Layer | None = None) -> list[rt_info.Item]:
        if element is None or not len(element):
            return []
        try:
            return rt_info.items_of(element)
        except DovetailError as error:
            self.add(error, layer)
            return []

    def dtype(self, text: str, layer: Layer) -> DType | None:
        try:
            return xml_attributes.TYPES[text.upper()]
        except KeyError:
            self.add_unsupported_error("dtype.unknown", f"the element type must be known to dovetail, got {text!r}", layer)
            return None
