"""Rewriting of graphs by rules that replace one node at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dovetail.ir.builder import Builder
from dovetail.ir.edit import disconnect, move_readers, take_name
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import Unknown
from dovetail.symbolic import Inexact

Rule: TypeAlias = Callable[[Builder, Node], Value | Sequence[Value | None] | None]
"""Returns the values that replace a node's outputs, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule, *, fold: bool = False) -> int:
    """Offer each node, in order, to ``rule(b, node)``. Where it returns values, these (one per output, written through ``b``
    just before the node) take the place of the node's outputs, with their names. Returns how many nodes were replaced.
    """
    old_nodes, graph.nodes = graph.nodes, []
    b = Builder(graph=graph, fold=fold)
    outputs = {id(value) for value in graph.outputs}
    inputs = {id(value) for value in graph.inputs}
    changed = 0
    for place, node in enumerate(old_nodes):
        mark = len(graph.nodes)
        try:
            made = rule(b, node)
        except (Unknown, Inexact):
            # A rule that asks what is not known leaves the node as it is.
            made = None
        except BaseException:
            graph.nodes.extend(old_nodes[place:])
            raise
        if made is None:
            for extra in reversed(graph.nodes[mark:]):
                disconnect(extra)
            del graph.nodes[mark:]
            graph.nodes.append(node)
            continue
        changed += 1
        news = [made] if isinstance(made, Value) else list(made)
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
                # At once: a rule may ask what the results are.
                graph.outputs = [new if value is old else value for value in graph.outputs]
            if was_output or (new.node is not None and new.node in graph.nodes[mark:]):
                take_name(graph, old, new)
        for y in node.outputs:
            graph.release(y.name)
    return changed
