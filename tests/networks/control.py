"""If and Loop, whose subgraphs are small networks of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.ir.graph import Graph
from dovetail.ir.op import REGISTRY
from networks.elementwise import activation, broadcast
from networks.maker import Maker
from networks.network import Input
from networks.reference import exact

Steps = Callable[[Maker], Any]


def _inner(m: Maker, captures: Sequence[str]) -> Maker:
    """Return a maker for a subgraph whose first inputs are like the captures."""
    inner = Maker(m.random.getrandbits(60))
    inner.depth = m.depth + 1
    inner.kind = m.kind
    for place, name in enumerate(captures):
        array = m.answer(name).actual
        inner.network.inputs.append(Input(f"x{place}", m.dtype(name), array.shape))
        inner.answers[0][f"x{place}"] = exact(array)
        inner.network.shots[0][f"x{place}"] = array
        inner.values.append(f"x{place}")
    return inner


def _graph(inner: Maker, outputs: Sequence[str]) -> Graph:
    inner.network.outputs = list(outputs)
    return inner.network.model().graph


def _alike(inner: Maker, x: str, steps: Sequence[Steps]) -> str:
    """Return a value of the type and shape of ``x`` after some steps, bounded, so that it may be a state."""
    for _ in range(inner.number(0, 2)):
        inner.among(steps)(inner)
    y = str(inner.among(inner.alike(x)[-2:]))
    other = broadcast(inner, y)
    if other is not None and inner.shape(other) == inner.shape(y):
        y = inner.one("Add", y, other) or y
    return inner.one("Tanh", y) or activation(inner, y) or y


def if_(m: Maker, steps: Sequence[Steps]) -> str | None:
    if m.depth > 1:
        return None
    captures = _captures(m)
    if not captures:
        return None
    condition = m.pick(lambda x: m.count(x) == 1, dtype="boolean")
    if condition is None or m.chance(0.5):
        whole = m.one("ReduceMax", captures[0], None, keepdims=False)
        condition = None if whole is None else m.one("Greater", whole, m.constant(m.real(m.among((-9.0, 0.7, 2.0)))))
    if condition is None:
        return None
    branches = []
    for _ in range(2):
        inner = _inner(m, captures)
        branches.append(_graph(inner, [_alike(inner, "x0", steps)]))
    return m.one(REGISTRY["If"](then_branch=branches[0], else_branch=branches[1], outputs=1), condition, *captures)


def loop(m: Maker, steps: Sequence[Steps]) -> str | None:
    if m.depth > 1:
        return None
    captures = _captures(m)
    if not captures:
        return None
    inner = _inner(m, captures)
    state = _alike(inner, "x0", steps)
    going = inner.constant(np.array(True))
    part = inner.among(
        [state, *[y for y in inner.values if inner.dtype(y) == inner.kind and inner.rank(y) and y not in ("x0", state)][-2:]]
    )
    stacked = inner.one("Unsqueeze", part, inner.ints(0))
    outputs = [going, state, *([stacked] if stacked else [])]
    inner.network.inputs.insert(0, Input("trip", "i64", ()))
    body = _graph(inner, outputs)
    op = REGISTRY["Loop"](body=body, carried=1, scan_outputs=((0, False),) * bool(stacked), outputs=len(outputs) - 1)
    trips = m.constant(np.int64(m.number(1, 4)))
    found = m.add(op, trips, None, *captures)
    return None if found is None else found[0]


def _captures(m: Maker) -> list[str]:
    def suits(x: str) -> bool:
        return not m.is_open(x) and 0 < m.count(x) <= 1000

    first = m.pick(suits)
    second = m.pick(suits)
    if first is None:
        return []
    return [first] if second is None or m.chance(0.5) else [first, second]
