"""What goes into an operator and what comes out, as its class says it: ``inputs -> outputs``, each ``name: type``.

``*name`` is repeated, ``name?`` optional, ``name!`` is read by shape rules and stays a host numpy array in every walk. A type is
an element type by name (``i64``) or a variable, whose first letter says what it may be: T any, N number, R real number, F float,
I integer, Z signed integer; ``any`` is anything, not only a tensor. A variable that occurs twice is the same type in both places.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from dovetail import dtypes
from dovetail.dtypes import DType

_CLASSES = {
    letter: frozenset(item.name for item in dtypes.ALL if not kinds or item.kind in kinds.split())
    for letter, kinds in {
        "T": "",
        "N": "float int uint complex",
        "R": "float int uint",
        "F": "float",
        "I": "int uint",
        "Z": "int",
    }.items()
}
CLASS_NAMES = {
    "N": "a number type",
    "R": "a real number type",
    "F": "a float type",
    "I": "an integer type",
    "Z": "a signed integer type",
}


class Port(NamedTuple):
    """One input or output of a signature. ``allowed``: the names of the element types that it may have, None where it may be
    anything, not only a tensor."""

    name: str
    type: str
    allowed: frozenset[str] | None
    repeated: bool = False
    optional: bool = False
    host: bool = False


class Signature:
    """What goes into an operator and what comes out. ``least``: how many inputs it needs; ``repeated``: the place of the
    repeated one; ``has_hosts``: whether shape rules read some input."""

    __slots__ = ("has_hosts", "inputs", "least", "outputs", "repeated")

    def __init__(self, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.repeated = next((place for place, port in enumerate(inputs) if port.repeated), None)
        needed = [place for place, port in enumerate(inputs) if not port.optional and not port.repeated]
        # An optional input before a required one keeps its place.
        self.least = len(needed) if self.repeated is not None else max(needed, default=-1) + 1
        self.has_hosts = any(port.host for port in inputs)

    def port(self, index: int, count: int) -> Port:
        """The port that input ``index`` of ``count`` belongs to."""
        repeated = self.repeated
        if repeated is None or index < repeated:
            return self.inputs[index]
        after = len(self.inputs) - repeated - 1
        return self.inputs[repeated] if index < count - after else self.inputs[index - count]


def _parse_ports(text: str) -> tuple[Port, ...]:
    ports = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, kind = (piece.strip() for piece in part.partition(":"))
        bare = name.strip("*?!")
        ports.append(Port(bare, kind, _allowed(kind), name.startswith("*"), "?" in name, "!" in name))
    return tuple(ports)


@cache
def _allowed(kind: str) -> frozenset[str] | None:
    """The names of the element types that a type of a signature stands for."""
    if kind == "any":
        return None
    return frozenset((kind,)) if kind in dtypes._BY_NAME else _CLASSES[kind[0]]


def parse_signature(text: str) -> Signature:
    inputs, _, outputs = text.partition("->")
    return Signature(_parse_ports(inputs), _parse_ports(outputs))


def allows(variable: str, dtype: DType) -> bool:
    """Whether a type of a signature may be ``dtype``."""
    allowed = _allowed(variable)
    return allowed is None or dtype.name in allowed
