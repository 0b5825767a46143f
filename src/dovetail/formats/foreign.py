"""Format-neutral model of a file: codecs read into it and write from it; import and export convert it from and to a Graph.

Values have keys that are unique in their graph (ONNX: the name; IR: ``layer:port``). Attribute values have the types of the
format: typed Python values for ONNX, the strings of the XML for IR. This module knows no operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dovetail.ir.dtypes import DType
from dovetail.ir.types import Type


@dataclass(slots=True)
class ForeignTensor:
    """A constant. ``data`` has one numpy element per element (see dtypes); it is a read-only view of the file where possible."""

    dtype: DType
    data: Any
    name: str = ""


@dataclass(slots=True)
class ForeignValue:
    """One value of a file: its key, its names (the primary one first; may be empty), its declared type, its documentation."""

    key: str
    type: Type | None = None
    names: tuple[str, ...] = ()
    doc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the primary name, or else the name of the value's layer, or the key."""
        return self.names[0] if self.names else str(self.metadata.get("name", self.key))


@dataclass(slots=True)
class ForeignNode:
    """One node or layer. ``version`` is the operator's own (ONNX since_version, IR opset number that introduced it).

    ``inputs`` and ``outputs`` are value keys; None stands for an absent optional one. ``place`` is the position in the file
    ("node 12", "layer 17"). A subgraph attribute is a ForeignGraph, a tensor attribute a ForeignTensor, a type attribute a
    Type.
    """

    kind: str
    version: int
    inputs: list[str | None]
    outputs: list[str | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    name: str = ""
    place: str = ""
    doc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the node in messages: its name, or else its position in the file, or its kind."""
        return self.name or self.place or self.kind

    @property
    def operator(self) -> str:
        """Return the operator in messages: ``domain.Kind-version``."""
        return f"{self.domain + '.' if self.domain else ''}{self.kind}-{self.version}"


@dataclass(slots=True)
class ForeignGraph:
    """A graph whose nodes are topologically sorted. Codecs sort them, and refuse cycles."""

    name: str = ""
    inputs: list[ForeignValue] = field(default_factory=list)
    outputs: list[ForeignValue] = field(default_factory=list)
    nodes: list[ForeignNode] = field(default_factory=list)
    constants: dict[str, ForeignTensor] = field(default_factory=dict)
    values: dict[str, ForeignValue] = field(default_factory=dict)
    doc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ForeignModel:
    """A whole file. ``versions``: ONNX opset imports by domain, or {"ir": 11}. ``metadata`` is preserved and written back."""

    format: str
    graph: ForeignGraph
    versions: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    producer: tuple[str, str] = ("", "")
    doc: str = ""
