"""Divide modules into calls: if edges leave a module and return to it, each call becomes a frame, to avoid cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from dovetail.ir.graph import Node
from dovetail.ir.modules import MAX_PARTS

Part: TypeAlias = tuple[str, int]
"""The name of a module, and the number of its call."""
Edges: TypeAlias = Mapping[Node, Sequence[Node]]


def call_paths(paths: Mapping[Node, tuple[str, ...]], after: Edges) -> dict[Node, tuple[Part, ...]]:
    """Return the path of each node as modules and calls, such that edges between the modules of one frame form no cycle.

    ``after`` has the readers of each node. The nodes of ``paths`` must be in topological order. All nodes of a module that is on
    no cycle belong to call 0. Complexity: O(MAX_PARTS * edges * log nodes).
    """
    found: dict[Node, tuple[Part, ...]] = dict.fromkeys(paths, ())
    for depth in range(min(max(map(len, paths.values()), default=0), MAX_PARTS)):
        around: dict[tuple[Part, ...], list[Node]] = {}
        for node in paths:
            if len(found[node]) == depth:
                around.setdefault(found[node], []).append(node)
        for outer, nodes in around.items():
            # A node without a module at this depth counts as a module, so that cycles through the node are found.
            names = {node: paths[node][depth] if len(paths[node]) > depth else node for node in nodes}
            for node, call in _calls(names, after).items():
                if isinstance(name := names[node], str):
                    found[node] = (*outer, (name, call))
    return found


def _calls(names: Mapping[Node, str | Node], after: Edges) -> dict[Node, int]:
    """Return for each node the number of its module's call; modules on cycles are divided into few calls.

    The nodes of a cycle are ordered such that the order leaves a module as late as possible.
    """
    calls = dict.fromkeys(names, 0)
    modules: dict[str | Node, dict[str | Node, None]] = {name: {} for name in names.values()}
    for node, name in names.items():
        for reader in after[node]:
            if reader in names and names[reader] != name:
                modules[name][names[reader]] = None
    cycle_of = {name: number for number, cycle in enumerate(_cycles(modules)) for name in cycle}
    cycles: dict[int, list[Node]] = {}
    for node, name in names.items():
        if name in cycle_of:
            cycles.setdefault(cycle_of[name], []).append(node)
    for nodes in cycles.values():
        latest: dict[str | Node, int] = {}
        current: str | Node | None = None
        for node in _order_by_module(nodes, names, after):
            if names[node] != current:
                current = names[node]
                latest[current] = latest.get(current, -1) + 1
            calls[node] = latest[names[node]]
    return calls


def _order_by_module(nodes: Sequence[Node], names: Mapping[Node, str | Node], after: Edges) -> Iterator[Node]:
    """Yield nodes in a topological order that leaves a module only when none of its nodes is ready."""
    position = {node: number for number, node in enumerate(nodes)}
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for reader in after[node]:
            if reader in waiting:
                waiting[reader] += 1
    everything: list[int] = []
    ready: dict[str | Node, list[int]] = {}
    is_done = [False] * len(nodes)

    def push(node: Node) -> None:
        heappush(everything, position[node])
        heappush(ready.setdefault(names[node], []), position[node])

    for node in nodes:
        if not waiting[node]:
            push(node)
    module: list[int] = []
    while everything:
        if not module:
            number = heappop(everything)
            if is_done[number]:
                continue
            module = ready[names[nodes[number]]]
        number = heappop(module)
        is_done[number] = True
        yield nodes[number]
        for reader in after[nodes[number]]:
            if reader in waiting:
                waiting[reader] -= 1
                if not waiting[reader]:
                    push(reader)


def _cycles(after: Mapping[str | Node, Mapping[str | Node, None]]) -> Iterator[list[str | Node]]:
    """Yield the strongly connected components of at least two items (Tarjan's algorithm)."""
    number: dict[str | Node, int] = {}
    low: dict[str | Node, int] = {}
    stack: dict[str | Node, None] = {}
    for start in after:
        pending: list[tuple[str | Node, Iterator[str | Node]]] = []

        def enter(item: str | Node, pending: list[tuple[str | Node, Iterator[str | Node]]] = pending) -> None:
            number[item] = low[item] = len(number)
            stack[item] = None
            pending.append((item, iter(after[item])))

        if start not in number:
            enter(start)
        while pending:
            item, readers = pending[-1]
            reader = next(readers, None)
            if reader is not None:
                if reader not in number:
                    enter(reader)
                elif reader in stack:
                    low[item] = min(low[item], number[reader])
                continue
            pending.pop()
            if pending:
                low[pending[-1][0]] = min(low[pending[-1][0]], low[item])
            if low[item] == number[item]:
                component = [stack.popitem()[0]]
                while component[-1] != item:
                    component.append(stack.popitem()[0])
                if len(component) > 1:
                    yield component
