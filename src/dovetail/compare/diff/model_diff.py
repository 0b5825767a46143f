"""dovetail.diff: the differences between two models, independent of names, node order and formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

from dovetail.compare.diff.changes import FactChange, GraphChanges, NodeChange, NodeComparison
from dovetail.compare.diff.conversion import convert_pairs
from dovetail.compare.diff.dimensions import Dimensions
from dovetail.compare.diff.interface import Pairs, PortChange, compare_ports, pair_ports
from dovetail.compare.diff.node_matches import LARGE, Matching, match_nodes
from dovetail.compare.diff.side import Interner, Side
from dovetail.errors import printable
from dovetail.formats import load
from dovetail.ir.graph import Graph, Model
from dovetail.ir.limits import Limits, counting
from dovetail.ir.suggestions import check_keywords
from dovetail.storage.mapped_files import check_mapped_files


@dataclass(frozen=True, slots=True)
class ModelDiff:
    """ModelDiff holds the differences between two models.

    ``changes`` are differences of nodes. ``ports`` compares all inputs and outputs, equal ones included. ``properties`` are
    differences of formats, opsets, metadata and states. ``matched`` is the number of nodes in both models. ``renamed`` is the
    number of matched nodes with different names. ``resized`` is the number of values whose types differ only because types of
    earlier values differ. ``notes`` say where the comparison is coarser than it could be.
    """

    first: str
    second: str
    formats: tuple[str, str]
    nodes: tuple[int, int]
    changes: tuple[NodeChange, ...] = field(repr=False)
    ports: tuple[PortChange, ...] = field(repr=False)
    properties: tuple[FactChange, ...] = field(repr=False)
    matched: int
    renamed: int
    resized: int
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """True if no node, type or weight differs, and, for models of one format, no opset, metadata or number of states."""
        is_same_file = self.formats[0] != self.formats[1] or not self.properties
        return not self.changes and not any(port.is_difference for port in self.ports) and is_same_file

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes by kind of difference."""
        counts = Counter(matched=self.matched)
        for item in self.changes:
            counts[item.kind] += max(len(item.first), len(item.second))
        return {kind: counts[kind] for kind in ("matched", "changed", "added", "removed", "replaced")}

    def node_numbers(self, side: str = "second") -> dict[str, float]:
        """Return a number for each different node, by its name in model ``side``, for :func:`dovetail.report.draw.draw_model`.

        The number is the fraction of changed elements if only weights differ, else 1.
        """
        numbers: dict[str, float] = {}
        for item in self.changes:
            shares = [1.0 if each.changed is None else each.changed / max(each.size, 1) for each in item.weights]
            only_weights = bool(shares) and not (item.attributes or item.operands)
            for label in item.first if side == "first" else item.second:
                numbers[label] = max(shares) if only_weights else 1.0
        return numbers

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "same": self.is_same,
            "formats": self.formats,
            "nodes": self.nodes,
            "counts": self.counts,
            "renamed": self.renamed,
            "resized": self.resized,
            "changes": [item.as_dict() for item in self.changes],
            "ports": [asdict(item) for item in self.ports],
            "properties": [asdict(item) for item in self.properties],
            "notes": self.notes,
        }

    def html(self) -> str:
        """Return a self-contained HTML page with both models side by side."""
        from dovetail.report.diff_page import page

        return page(self)

    def __str__(self) -> str:
        from dovetail.report.diff_text import diff_text

        return diff_text(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.counts.items() if count)
        return printable(f"<diff of {self.first!r} and {self.second!r}: {'same' if self.is_same else 'different'}; {counts}>")


@check_keywords
def diff(a: Model | str | PathLike[str], b: Model | str | PathLike[str], *, limits: Limits | None = None) -> ModelDiff:
    """Compare two models of the same format or of different ones; names and the order of nodes do not matter.

    Nodes are matched by what they compute and by what reads them. Weights are compared by blocks. Models of different formats or
    opsets are also compared after a conversion in memory, so that differences of the formats are not reported; the ``notes`` say
    so.

    Raises FormatError [file.changed], and the errors of :func:`load` for paths.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> with dovetail.Builder() as c: z = c.output("y", c.Abs(c.input("x", "f32", ("n", 2))))
    >>> dovetail.diff(b.model, c.model)
    <diff of 'a' and 'b': different; 1 changed>
    """
    models = tuple(each if isinstance(each, Model) else load(each, limits=limits) for each in (a, b))
    for model in models:
        check_mapped_files(model.graph, model.file)
    first, second = models
    with counting(first.limits):
        found = _diff_models(first, second)
        if not found.changes:
            return found
        for one, other, note in convert_pairs(first, second):
            converted = _diff_models(one, other)
            if _extent(converted) < _extent(found):
                changed = {name: getattr(converted, name) for name in ("changes", "ports", "matched", "renamed", "resized")}
                found = replace(found, **changed, notes=(note, *converted.notes))
            if not found.changes or max(found.nodes) > LARGE:
                break
        return found


def _extent(found: ModelDiff) -> int:
    """Return the number of nodes that differ."""
    return sum(len(item.first) + len(item.second) for item in found.changes)


def _diff_models(first: Model, second: Model) -> ModelDiff:
    inputs = pair_ports(first.inputs, second.inputs)
    outputs = pair_ports(first.outputs, second.outputs)
    dimensions = Dimensions((first.inputs[one], second.inputs[other]) for one, other in inputs)
    total = GraphChanges()
    waiting = [("", first.graph, second.graph, inputs, outputs)]
    while waiting:
        path, one, other, own_inputs, own_outputs = waiting.pop()
        comparison = NodeComparison(_match(one, other, own_inputs, own_outputs), dimensions, path, own_outputs)
        for inner, left, right in comparison.run():
            pairs = [pair_ports(x, y, by_position=True) for x, y in ((left.inputs, right.inputs), (left.outputs, right.outputs))]
            waiting.append((inner, left, right, pairs[0], pairs[1]))
        total.add(comparison.found)
    ports = compare_ports("input", first.inputs, second.inputs, inputs, dimensions)
    ports += compare_ports("output", first.outputs, second.outputs, outputs, dimensions)
    return ModelDiff(
        first.title if first.file or first.graph.name else "a",
        second.title if second.file or second.graph.name else "b",
        (first.format, second.format),
        (len(first.graph.nodes), len(second.graph.nodes)),
        tuple(total.changes),
        tuple(ports),
        tuple(_compare_properties(first, second)),
        total.matched,
        total.renamed,
        total.resized,
        tuple(dict.fromkeys(total.notes)),
    )


def _match(first: Graph, second: Graph, inputs: Pairs, outputs: Pairs) -> Matching:
    """Match two graphs; the result does not depend on the order of the arguments."""
    interner = Interner()
    one, other = Side(first, interner), Side(second, interner)
    if _order(one) <= _order(other):
        return match_nodes((one, other), inputs, outputs)
    return match_nodes((other, one), _swap(inputs), _swap(outputs)).mirror()


def _order(side: Side) -> tuple[int, list[str], list[str]]:
    return len(side.nodes), [node.label for node in side.nodes], [node.title for node in side.nodes]


def _swap(pairs: Pairs) -> Pairs:
    return [(second, first) for first, second in pairs]


def _compare_properties(first: Model, second: Model) -> Iterable[FactChange]:
    if first.format != second.format:
        yield FactChange("format", first.format or "built", second.format or "built")
    else:
        yield from _compare_entries("opset", first.versions, second.versions)
    yield from _compare_entries("metadata", first.metadata, second.metadata)
    if len(first.states) != len(second.states):
        yield FactChange("states", str(len(first.states)), str(len(second.states)))


def _compare_entries(name: str, first: dict[str, Any], second: dict[str, Any]) -> Iterable[FactChange]:
    for key in dict.fromkeys([*first, *second]):
        before, after = (str(entries[key]) if key in entries else "nothing" for entries in (first, second))
        if before != after:
            yield FactChange(f"{name} {key}".rstrip(), before, after)
