"""Foreign models: the format-neutral content of a file, between the codecs and the import and export of graphs.

A codec reads a file into a ForeignModel and writes a ForeignModel to a file. Values have keys that are unique in their graph
(ONNX: the name; IR: ``layer:port``). Attribute values have the types of the format: typed Python values for ONNX, the strings of
the XML for IR. This module knows no operators.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import Diagnostic
from dovetail.ir.dtypes import DType
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import Type


@dataclass(slots=True)
class ForeignTensor:
    """ForeignTensor is a constant of a file.

    ``storage`` has one numpy element per tensor element (see dtypes), and is a read-only view of the file where possible;
    elements of few bits may be PackedElements, which each read of ``data`` unpacks.
    """

    dtype: DType
    storage: Any
    name: str = ""

    @property
    def data(self) -> Any:
        """The elements, one per numpy element."""
        return self.storage.unpack() if isinstance(self.storage, PackedElements) else self.storage


@dataclass(slots=True)
class ForeignValue:
    """ForeignValue is one value of a file: key, names, declared type, documentation and metadata.

    ``names`` may be empty; the primary name is the first.
    """

    key: str
    type: Type | None = None
    names: tuple[str, ...] = ()
    doc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The primary name of the value; without names, the name of the value's layer or else the key."""
        return self.names[0] if self.names else str(self.metadata.get("name", self.key))


@dataclass(slots=True)
class ForeignNode:
    """ForeignNode is one ONNX node or one IR layer.

    ``version`` is the version of the operator: ONNX since_version, or the number of the IR opset that introduced the operator.
    ``inputs`` and ``outputs`` are value keys; None stands for an absent optional input or output. ``place`` is the position in
    the file ("node 12", "layer 17"). A subgraph attribute is a ForeignGraph, a tensor attribute a ForeignTensor, a type attribute
    a Type.
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
        """The text that identifies the node in messages: its name, or else its position in the file, or else its kind."""
        return self.name or self.place or self.kind

    @property
    def operator(self) -> str:
        """The text that identifies the operator in messages: ``domain.Kind-version``."""
        return f"{self.domain + '.' if self.domain else ''}{self.kind}-{self.version}"


@dataclass(slots=True)
class ForeignGraph:
    """ForeignGraph is a graph of a file with topologically sorted nodes; codecs sort the nodes and refuse cycles."""

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
    """ForeignModel is the content of a model file.

    ``versions``: ONNX opset imports by domain, or {"ir": 11}. ``metadata`` is preserved and written back. ``warnings``: content
    of an exported model that the format expresses in another form.
    """

    format: str
    graph: ForeignGraph
    versions: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    producer: tuple[str, str] = ("", "")
    doc: str = ""
    warnings: list[Diagnostic] = field(default_factory=list)


def topological_order(sources: Sequence[Collection[int]]) -> list[int]:
    """Return the positions of nodes in topological order; among ready nodes the lowest position comes first.

    ``sources[i]`` holds the positions of the nodes whose outputs node ``i`` reads. Nodes that are in a cycle, or that depend on
    a cycle, are left out.
    """
    readers: list[list[int]] = [[] for _ in sources]
    for index, positions in enumerate(sources):
        for position in positions:
            readers[position].append(index)
    waiting = list(map(len, sources))
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order
