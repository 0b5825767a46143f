"""Signatures of operators: ``inputs -> outputs``, lists of ``name: type``.

``*name`` is a repeated, ``name?`` an optional parameter. ``name!`` is an input that shape rules read; it stays a numpy array on
the host in every array library. A type is the name of an element type (``i64``), a type variable, or ``any`` for values of every
type (tensors, sequences, maps, optionals). The first letter of a type variable is its class: T any, N number, R real number,
F float, I integer, Z signed integer. All occurrences of a type variable stand for the same type.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from dovetail.errors import RuleError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType

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
    """Port is one input or output of a signature.

    ``allowed`` holds the names of the allowed element types. It is None for the type ``any``, which also allows sequences and
    maps.
    """

    name: str
    type: str
    allowed: frozenset[str] | None
    repeated: bool = False
    optional: bool = False
    host: bool = False


class Signature:
    """Signature holds the inputs and outputs of an operator.

    ``min_inputs`` is the minimum number of inputs, ``repeated`` the index of the repeated input or None. ``has_hosts`` states
    that shape rules read the elements of some inputs.
    """

    __slots__ = ("has_hosts", "inputs", "min_inputs", "outputs", "repeated")

    def __init__(self, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.repeated = next((index for index, port in enumerate(inputs) if port.repeated), None)
        required = [index for index, port in enumerate(inputs) if not port.optional and not port.repeated]
        # An optional input before a required one is passed as None.
        self.min_inputs = len(required) if self.repeated is not None else max(required, default=-1) + 1
        self.has_hosts = any(port.host for port in inputs)

    def port(self, index: int, count: int) -> Port:
        """Return the port of input ``index`` of a node with ``count`` inputs."""
        repeated = self.repeated
        if repeated is None or index < repeated:
            return self.inputs[index]
        after = len(self.inputs) - repeated - 1
        return self.inputs[repeated] if index < count - after else self.inputs[index - count]


_PORT = re.compile(r"\*?([^\W\d]\w*)[?!]*\s*:\s*(\w+)")


def _parse_ports(text: str) -> tuple[Port, ...]:
    ports = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if _PORT.fullmatch(part) is None:
            raise RuleError("argument.value", f"an input or output of a signature must be name: type, got {part!r}")
        name, _, kind = (piece.strip() for piece in part.partition(":"))
        bare = name.strip("*?!")
        ports.append(Port(bare, kind, _dtype_names(kind), name.startswith("*"), "?" in name, "!" in name))
    return tuple(ports)


@cache
def _dtype_names(kind: str) -> frozenset[str] | None:
    """Return the names of the element types that a signature's type ``kind`` allows; None for the type ``any``."""
    if kind == "any":
        return None
    if dtypes.by_name(kind):
        return frozenset((kind,))
    if kind[0] not in _CLASSES:
        rule = f"a type in a signature must be an element type, any, or a variable that begins with {', '.join(_CLASSES)}"
        raise RuleError("argument.value", f"{rule}, got {kind!r}")
    return _CLASSES[kind[0]]


def parse_signature(text: str) -> Signature:
    """Parse the text of a signature, ``inputs -> outputs``. Raises RuleError [argument.value]."""
    inputs, arrow, outputs = text.partition("->")
    if not arrow:
        raise RuleError("argument.value", f"a signature must be inputs -> outputs, got {text!r}")
    return Signature(_parse_ports(inputs), _parse_ports(outputs))


def allows(variable: str, dtype: DType) -> bool:
    """Return whether a signature's type ``variable`` allows the element type ``dtype``."""
    allowed = _dtype_names(variable)
    return allowed is None or dtype.name in allowed
