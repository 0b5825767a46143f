"""A trace of JAX as a flat list of steps, whose values are identified by numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

NODE_SCOPE = re.compile(r"\bnode(\d+)\b")
"""A pattern for the name scope of a node in a trace; the group is the node's index in its graph."""
_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat")


class Primitive(NamedTuple):
    """Primitive is one step: name, parameters, operands (None: a literal), results, and the index of its node or None."""

    name: str
    params: Mapping[str, Any]
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    node: int | None


class TraceSteps:
    """TraceSteps holds the steps of a trace in order.

    ``inputs`` and ``outputs`` are numbers of values (None: a literal); ``shapes`` has the shape of each value by number.
    """

    def __init__(self, jaxpr: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.steps: list[Primitive] = []
        values: dict[Any, int | None] = {}
        self.inputs = [self._add(values, variable) for variable in jaxpr.jaxpr.invars]
        for variable in jaxpr.jaxpr.constvars:
            self._add(values, variable)
        self._flatten(jaxpr.jaxpr, values, None)
        self.outputs = [self._read(values, variable) for variable in jaxpr.jaxpr.outvars]
        self.producers = {result: step for step in self.steps for result in step.results}

    def _add(self, values: dict[Any, int | None], variable: Any) -> int:
        values[variable] = len(self.shapes)
        self.shapes.append(tuple(getattr(variable.aval, "shape", ())))
        return len(self.shapes) - 1

    @staticmethod
    def _read(values: Mapping[Any, int | None], atom: Any) -> int | None:
        return None if hasattr(atom, "val") else values[atom]

    def _flatten(self, jaxpr: Any, values: dict[Any, int | None], node: int | None) -> None:
        for equation in jaxpr.eqns:
            scope = NODE_SCOPE.search(str(equation.source_info.name_stack))
            inside = int(scope[1]) if scope else node
            operands = tuple(self._read(values, atom) for atom in equation.invars)
            name = equation.primitive.name
            body = next((equation.params[key] for key in ("jaxpr", "call_jaxpr") if key in equation.params), None)
            if name in _CALLS and body is not None:
                inner = getattr(body, "jaxpr", body)
                local: dict[Any, int | None] = dict(zip(inner.invars, operands, strict=True))
                for variable in inner.constvars:
                    self._add(local, variable)
                self._flatten(inner, local, inside)
                for outer, atom in zip(equation.outvars, inner.outvars, strict=True):
                    found = self._read(local, atom)
                    values[outer] = self._add(values, outer) if found is None else found
                continue
            results = tuple(self._add(values, variable) for variable in equation.outvars)
            self.steps.append(Primitive(name, equation.params, operands, results, inside))


def reshaped_axis(before: Sequence[int], after: Sequence[int], axis: int, parts: int) -> int | None:
    """Return the axis of ``after`` that is split if ``axis`` of ``before`` is split into ``parts`` equal blocks, or None."""
    leading = 1
    for size in before[:axis]:
        leading *= size
    product = 1
    for index, size in enumerate(after):
        if product == leading and size > 1:
            return index if size % parts == 0 else None
        product *= size
    return None
