"""Rules by operator class, their target and their log, for the passes of simplify."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import inherit
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies
from dovetail.ir.rewrite import rewrite
from dovetail.laws.law import Result, is_among

Rule: TypeAlias = Callable[[Builder, Node], Result]
Rules: TypeAlias = Mapping[type[Op], Rule]


@dataclass(frozen=True, slots=True)
class Change:
    """One node that a pass replaced or removed: its name and its operator."""

    node: str
    op: str


@dataclass(slots=True)
class Target:
    """The file that the simplified model will be written to, and the log of the pass that runs.

    ``format`` is "onnx", "openvino" or "" (unknown), ``opset`` the version of ONNX's operators (0: none); ``is_subgraph`` is true
    while the pass changes a subgraph.
    """

    format: str = ""
    opset: int = 0
    is_subgraph: bool = False
    changes: list[Change] = field(default_factory=list)

    def log(self, node: Node) -> None:
        """Log that ``node`` was replaced or removed."""
        self.changes.append(Change(node.label, node.op.title))


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and all subgraphs of its nodes, the innermost first."""
    for node in graph.nodes:
        for _, body in bodies(node.op):
            yield from graphs_of(body)
    yield graph


def apply_rules(graph: Graph, rules: Rules, target: Target) -> int:
    """Apply to each node the rule of its operator class. Returns the number of replaced nodes.

    A rule that the rules of operators refuse keeps the node. So does one that would make a graph output of a graph input or of
    another output, which takes an Identity, and one that gives no value for an output that is read.
    """

    def rule(b: Builder, node: Node) -> Result:
        function = rules.get(type(node.op))
        if function is None:
            return None
        mark = len(b.graph.nodes)
        try:
            result = function(b, node)
        except RuleError:
            return None
        if result is None or not _keeps_outputs(b.graph, node, result):
            return None
        inherit(b.graph, mark, node)
        if node.name and len(b.graph.nodes) > mark and isinstance(result, Value) and result.node is b.graph.nodes[-1]:
            b.graph.nodes[-1].name = node.name
        target.log(node)
        return result

    return rewrite(graph, rule, fold=True) if any(type(node.op) in rules for node in graph.nodes) else 0


def _keeps_outputs(graph: Graph, node: Node, result: Value | Sequence[Value | None]) -> bool:
    news = [result] if isinstance(result, Value) else result
    return all(
        not old.uses and not is_among(old, graph.outputs) if new is None else can_replace(graph, old, new)
        for old, new in zip(node.outputs, news, strict=True)
    )


def can_replace(graph: Graph, old: Value, new: Value) -> bool:
    """Return whether ``new`` may replace ``old``: a graph output stays a value of its own that a node produces."""
    if not is_among(old, graph.outputs):
        return True
    return new.node is not None and not is_among(new, graph.outputs)
