"""One foreign node on its way in, as the ``lift`` functions of compose modules see it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.dtypes import DType
from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats import op_mapping
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_node import constant_of
from dovetail.ir.builder import Builder
from dovetail.ir.edit import inline
from dovetail.ir.graph import Graph, Value
from dovetail.ir.op import REQUIRED, Field, Op
from dovetail.ir.types import UNKNOWN

if TYPE_CHECKING:
    from dovetail.formats.importer import Lifter


class Lifting:
    """The node, its inputs as values, and the Builder that writes in its place."""

    def __init__(self, b: Builder, node: ForeignNode, inputs: list[Value | None], lifter: Lifter) -> None:
        self.b = b
        self.node = node
        self.inputs = inputs
        self.lifter = lifter
        self._read: set[str] = set()

    def input(self, index: int) -> Value:
        """A required input. Raises FormatError [node.inputs]."""
        x = self.optional(index)
        if x is None:
            raise FormatError("node.inputs", f"{self.node.kind} needs input {index}")
        return x

    def optional(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def ranked(self, index: int, rank: int) -> Value:
        """A required input of this rank. Raises RuleError [input.rank], and Unknown where the rank is."""
        x = self.input(index)
        if len(x.dims) != rank:
            raise RuleError("input.rank", f"{self.node.kind}: input {index} should be of rank {rank}, not {len(x.dims)}")
        return x

    def attribute(self, name: str, annotation: str, default: Any = REQUIRED) -> Any:
        """A foreign attribute, coerced. Raises FormatError [attribute.missing], [attribute.value]."""
        self._read.add(name)
        if name not in self.node.attributes:
            if default is REQUIRED:
                raise FormatError("attribute.missing", f"{self.node.kind} needs the attribute {name!r}")
            return default
        raw = self.node.attributes[name]
        if not self.lifter.dialect.is_text and (number := op_mapping.as_floats(annotation, raw)) is not None:
            self.deviate(FormatError("attribute.value", f"{self.node.kind}: {name} = {raw!r} is not of the type float"))
            raw = number
        if (annotation == "Graph") != isinstance(raw, ForeignGraph):
            raise FormatError("attribute.value", f"{self.node.kind}: {name} is {'no' if annotation == 'Graph' else 'a'} graph")
        try:
            if not self.lifter.dialect.is_text:
                op_mapping.refuse_texts(annotation, [raw])
            return op_mapping.coerce(annotation, raw)
        except ValueError:
            raise FormatError("attribute.value", f"{self.node.kind}: {name} = {raw!r} is no {annotation}") from None

    def deviate(self, error: DovetailError) -> None:
        """Note a deviation, which is a fault where none are collected."""
        if self.lifter.deviations is None:
            raise error
        self.lifter.deviate(error, self.node)

    def shared(self, data: Any, dtype: DType) -> Value:
        """An attribute's value as an input: see :meth:`Lifter.shared`."""
        return self.lifter.shared(data, dtype)

    def ignore(self, *names: str) -> None:
        """Attributes that the specification calls ignored."""
        self._read.update(names)

    def constant(self, index: int, annotation: str, default: Any = REQUIRED, how: str = "") -> Any:
        """An input that has to be a constant, as an attribute value."""
        x = self.optional(index)
        if x is None:
            if default is REQUIRED:
                raise FormatError("node.inputs", f"{self.node.kind} needs input {index}")
            return default
        self.lifter.spend(x)
        return op_mapping.read_constant(
            op_mapping.Slot((f"input {index}",), f"input {index}", how=how),
            Field(f"input {index}", annotation, REQUIRED),
            constant_of(x, f"{self.node.kind}: input {index}"),
        )

    def attribute_or_input(self, index: int, annotation: str) -> Any:
        """A required input as an attribute value where it is constant; else the input itself, which a Builder takes for it."""
        x = self.input(index)
        try:
            return self.constant(index, annotation)
        except UnsupportedError:
            return x

    def finish(self) -> None:
        """Refuse attributes that nobody asked for."""
        extra = [name for name in self.node.attributes if name not in self._read]
        if extra:
            raise UnsupportedError(
                "attribute.unknown", f"{self.node.kind} has no attribute {', '.join(map(repr, extra))} that dovetail knows"
            )

    def reading(self, *inputs: Value | None, **attributes: Any) -> tuple[Op, list[Value | None]]:
        """What the slot lines make of this node with these inputs and attributes in place of its own."""
        self._read.update(self.node.attributes)
        node = replace(self.node, attributes=attributes)
        return self.lifter.first_fitting(self.lifter.dialect.readers(node), node, list(inputs))

    def body(self, graph: ForeignGraph, captures: list[Value]) -> Graph:
        """A sub-graph, closed: what it reads from outside joins ``captures`` and becomes inputs after its own."""
        return self.lifter.body(graph, captures)

    def inlined(self, body: Graph, inputs: list[Value], faults: int) -> list[Value]:
        """The outputs of a sub-graph whose nodes are written here; values of which nothing is known where it has faults, which
        are those that the lifter knows beyond the first ``faults``."""
        if len(self.lifter.errors) > faults:
            return [Value(self.b.graph.claim("unknown"), UNKNOWN) for _ in body.outputs]
        return inline(self.b, body, inputs)
