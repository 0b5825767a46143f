"""Rewriting of graphs by rules that replace one node at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dovetail.ir.builder import Builder
from dovetail.ir.edit import disconnect, move_readers, take_name
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.symbolic import Inexact
from dovetail.ir.types import Unknown

Rule: TypeAlias = Callable[[Builder, Node], Value | Sequence[Value | None] | None]
"""A rewrite rule: it returns the values that replace a node's outputs, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule, *, fold: bool = False, copy_limit: int | None = None) -> int:
    """Apply ``rule(b, node)`` to each node in order. Returns the number of replaced nodes.

    A rule adds new nodes through ``b`` before the node and returns one value per output. These values replace the node's outputs
    and take their names. If a rule raises Unknown or Inexact, the node is kept. ``fold`` and ``copy_limit`` are passed to the
    Builder.
    """
    old_nodes, graph.nodes = graph.nodes, []
    b = Builder(graph=graph, fold=fold)
    b.copy_limit = copy_limit
    outputs = {id(value) for value in graph.outputs}
    inputs = {id(value) for value in graph.inputs}
    changed = 0
    for position, node in enumerate(old_nodes):
        mark = len(graph.nodes)
        try:
            replacement = rule(b, node)
        except (Unknown, Inexact):
            replacement = None
        except BaseException:
            graph.nodes.extend(old_nodes[position:])
            raise
        if replacement is None:
            for extra in reversed(graph.nodes[mark:]):
                disconnect(extra)
            del graph.nodes[mark:]
            graph.nodes.append(node)
            continue
        changed += 1
        news = [replacement] if isinstance(replacement, Value) else list(replacement)
        disconnect(node)
        for old, new in zip(node.outputs, news, strict=True):
            if new is None or new is old:
                continue
            was_output = id(old) in outputs
            if was_output and (id(new) in inputs or id(new) in outputs):
                new = b.apply("Identity", new)
            move_readers(old, new)
            if was_output:
                outputs.add(id(new))
                # The outputs are replaced before the next node is visited, because its rule may read the graph's outputs.
                graph.outputs = [new if value is old else value for value in graph.outputs]
            if was_output or (new.node is not None and new.node in graph.nodes[mark:]):
                take_name(graph, old, new)
        for y in node.outputs:
            graph.release(y.name)
    return changed
