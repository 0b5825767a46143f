"""Application of rules by operator class, with their target and their log, for the passes of simplify."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import inherit
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op
from dovetail.ir.rewrite import rewrite
from dovetail.laws.law import Result, is_among

G = TypeVar("G")
Rule: TypeAlias = Callable[[Builder, Node], Result]
Rules: TypeAlias = Mapping[type[Op], Rule]


@dataclass(frozen=True, slots=True)
class Change:
    """Change is a node that a pass replaced or removed, by its name and its operator."""

    node: str
    op: str


@dataclass(slots=True)
class Target:
    """Target describes the file of the simplified model, and holds the log of the running pass.

    ``format`` is "onnx", "openvino" or "" (unknown); ``opset`` is the ONNX opset, or 0 for other formats. ``is_subgraph`` is true
    while the pass changes a subgraph.
    """

    format: str = ""
    opset: int = 0
    is_subgraph: bool = False
    changes: list[Change] = field(default_factory=list)

    def log(self, node: Node) -> None:
        """Log that ``node`` was replaced or removed."""
        self.changes.append(Change(node.label, node.op.title))


def replace_groups(
    graph: Graph, target: Target, groups: Mapping[int, tuple[G, int]], write: Callable[[Builder, Node, G], list[Value]]
) -> int:
    """Replace the nodes of groups by the values that ``write`` emits for each group. Returns the number of replaced nodes.

    ``groups`` maps the id of a node to the node's group, and to the position of the node's output in the result of ``write``.
    """
    written: dict[int, list[Value]] = {}

    def rule(b: Builder, node: Node) -> Value | None:
        group, position = groups.get(id(node), (None, 0))
        if group is None:
            return None
        if id(group) not in written:
            written[id(group)] = write(b, node, group)
        target.log(node)
        return written[id(group)][position]

    return rewrite(graph, rule) if groups else 0


def apply_rules(graph: Graph, rules: Rules, target: Target) -> int:
    """Apply to each node the rule of its operator class. Returns the number of replaced nodes.

    A node stays if its rule raises RuleError, or if the rule gives no value for an output that is read. It also stays if a graph
    output would become a graph input or another graph output, because that needs an Identity.
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
    """Return whether ``new`` may replace ``old``; a graph output must remain a node's output that is no other graph output."""
    if not is_among(old, graph.outputs):
        return True
    return new.node is not None and not is_among(new, graph.outputs)
