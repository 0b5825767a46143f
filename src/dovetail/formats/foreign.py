"""A model as a file says it, before it is lifted to a graph: the one structure that every codec reads into and writes from.

Values are named by keys that are unique in their graph (ONNX: the name; IR: ``layer:port``). Attribute values are what the
format can say: ONNX's are typed Python values, IR's are the strings in the xml. Nothing here knows an operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dovetail.dtypes import DType
from dovetail.ir.types import Type


@dataclass(slots=True)
class ForeignTensor:
    """A constant: ``data`` holds one element per numpy element (see dtypes), read-only and without a copy where possible."""

    dtype: DType
    data: Any
    name: str = ""


@dataclass(slots=True)
class ForeignValue:
    """What a file says of one value: its key, its names (primary first, may be empty), declared type, documentation."""

    key: str
    type: Type | None = None
    names: tuple[str, ...] = ()
    doc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ForeignNode:
    """One node or layer. ``version`` is the operator's own (ONNX since_version, IR opset number that introduced it).

    ``inputs`` and ``outputs`` are value keys, None where an optional one is left out. ``place`` says where in the file
    ("node 12", "layer 17"). A sub-graph attribute holds a ForeignGraph; a tensor attribute a ForeignTensor; a type
    attribute a Type.
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


@dataclass(slots=True)
class ForeignGraph:
    """Nodes in an order in which every value is written before it is read (codecs sort, and refuse cycles)."""

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
    """A whole file. ``versions``: ONNX opset imports by domain, or {"ir": 11}. ``metadata`` is kept and written back."""

    format: str
    graph: ForeignGraph
    versions: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    producer: tuple[str, str] = ("", "")
    doc: str = ""
