"""Write a model in the text form. docs/text_form.md has the grammar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.formats.text.grammar import MAX_DEPTH, VERSION, name_text, quote
from dovetail.formats.text.literals import Array, LiteralWriter, Symbols
from dovetail.ir import dtypes
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import bodies
from dovetail.ops.constant import Constant
from dovetail.storage.safetensors_file import SafetensorsFile
from dovetail.storage.weights_file import Label, contiguous_bytes

KINDS = ("inputs", "constants", "nodes")
"""The kinds of values: inputs of a graph, outputs of Constant nodes, outputs of other nodes."""


class TextWriter:
    """TextWriter writes one model; tensors that are not in the text are stored in ``weights``."""

    def __init__(self, weights: SafetensorsFile) -> None:
        self._weights = weights
        self._symbols = Symbols()
        self._literals = LiteralWriter(self._symbols, self._store)
        self._named: tuple[str, ...] = KINDS

    def _store(self, data: Array, dtype: dtypes.DType, name: str) -> str:
        index = self._weights.store(contiguous_bytes(data), Label(name, dtype, data.shape))
        return self._weights.names[index]

    def lines(self, model: Model) -> list[str]:
        """Return the lines of the model after the first line. Raises one error with all values that text cannot express."""
        write = self._literals.value
        self._named = _named_kinds(model.graph)
        head = [
            f"{key} {write(value)}"
            for key, value in (
                ("format", model.format),
                ("versions", model.versions),
                ("producer", tuple(model.producer)),
                ("doc", model.doc),
                ("metadata", model.metadata),
                ("states", [tuple(state) for state in model.states]),
                ("named", list(self._named) if self._named != KINDS else None),
            )
            if value is not None and (key == "named" or value not in ("", ("", ""), {}, []))
        ]
        graph = [*self._graph(model.graph, "graph", 0)]
        errors: list[DovetailError] = list(self._literals.faults)
        raise_all(errors, f"values that the text form cannot express in {model.file or 'the model'}")
        return [*head, *self._symbols.lines(), *graph]

    def _graph(self, graph: Graph, title: str, depth: int) -> Iterator[str]:
        if depth > MAX_DEPTH:
            self._literals.faults.append(
                UnsupportedError("op.unsayable", f"the text form cannot express subgraphs of more than {MAX_DEPTH} levels")
            )
            return
        write = self._literals.value
        start = "  " * (2 * depth)
        yield f"{start}{title} {name_text(graph.name)}"
        inner = start + "  "
        for key, fact in (("doc", graph.doc), ("metadata", graph.metadata), ("fault", graph.fault)):
            if fact:
                yield f"{inner}.{key} {write(fact)}"
        for x in graph.inputs:
            yield f"{inner}input {self._value(x)}"
            yield from self._facts(x, inner + "  ", "")
        for node in graph.nodes:
            yield from self._node(node, inner, depth)
        for y in graph.outputs:
            yield f"{inner}output {name_text(y.name)}"

    def _value(self, value: Value) -> str:
        return f"{name_text(value.name)}: {self._literals.type(value.type)}"

    def _facts(self, value: Value, start: str, owner: str) -> Iterator[str]:
        """Yield a line with the names, documentation and metadata of a value, unless all of them have their default."""
        facts: dict[str, Any] = {}
        if value.names != usual_names(value, self._named):
            facts["names"] = list(value.names)
        if value.doc:
            facts["doc"] = value.doc
        if value.metadata:
            facts["metadata"] = value.metadata
        if facts:
            yield f"{start}.value {owner}{self._literals.value(facts)}"

    def _node(self, node: Node, start: str, depth: int) -> Iterator[str]:
        outputs = ", ".join(map(self._value, node.outputs))
        inputs = ", ".join("-" if x is None else name_text(x.name) for x in node.inputs)
        name = node.outputs[0].name if node.outputs else node.label
        if type(node.op) is Constant:
            text = self._literals.array(node.op.data, node.op.dtype, name)
        else:
            text = self._literals.operator(node.op, name, inputs)
        label = f" {quote(node.name)}" if node.name else ""
        # The line of a node without outputs starts with "="; its indentation separates it from descriptions of the node above.
        yield f"{start}{outputs}{' ' if outputs else ''}= {text}{label}"
        facts = {key: fact for key, fact in (("doc", node.doc), ("metadata", node.metadata)) if fact}
        if facts:
            yield f"{start}  .node {self._literals.value(facts)}"
        for index, y in enumerate(node.outputs):
            yield from self._facts(y, start + "  ", f"{index} ")
        for key, body in bodies(node.op):
            yield from self._graph(body, f"graph {key}", depth + 1)


def usual_names(value: Value, named: Collection[str]) -> tuple[str, ...]:
    """Return the names that a value has by default in the text: its name if its kind is in ``named``, else none."""
    return (value.name,) if _kind_of(value) in named else ()


def _kind_of(value: Value) -> str:
    node = value.node
    return "inputs" if node is None else "constants" if type(node.op) is Constant else "nodes"


def _named_kinds(graph: Graph) -> tuple[str, ...]:
    """Return the kinds of values of which at least as many have their primary name as the only name as have no names."""
    counts: Counter[str] = Counter()
    for value in graph.values():
        counts[_kind_of(value)] += (value.names == (value.name,)) - (not value.names)
    return tuple(kind for kind in KINDS if counts[kind] >= 0)


def first_line(location: str | None, digest: str) -> str:
    """Return the first line of the text form, which names the weights file."""
    return f"dovetail {VERSION}" + ("" if location is None else f" weights {quote(location)} {quote(digest)}")
