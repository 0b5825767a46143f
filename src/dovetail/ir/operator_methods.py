"""OperatorMethods: the operators of the registry as methods of a Builder.

Type checkers and editors read the stub ``operator_methods.pyi`` instead, which has one method for each operator with its inputs,
attributes and documentation. ``python -m dovetail.ir.operator_stub`` generates it from the registry.
"""

from __future__ import annotations

import re
from inspect import Signature
from typing import Any

from dovetail.errors import MissingAttributeError
from dovetail.ir.op import REGISTRY, Op
from dovetail.ir.suggestions import closest

_MAPPED_NAME = re.compile(r"\W*(?:[\w.-]+:)?(\w+)")
"""A pattern for the beginning of an op mapping; its group is the name of the foreign operator."""


class OperatorMethods:
    """OperatorMethods is the base class of Builder: attribute ``b.Kind`` is an OperatorMethod of the operator ``Kind``."""

    def __getattr__(self, kind: str) -> OperatorMethod:
        if kind.startswith("_"):
            # The protocols of copy, pickle and inspect look up names that begin with an underscore.
            raise AttributeError(kind)
        return OperatorMethod(self, operator_class(kind))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *REGISTRY})


class OperatorMethod:
    """OperatorMethod is one operator bound to a builder; a call adds a node of the operator."""

    __slots__ = ("_builder", "_operator")

    def __init__(self, builder: Any, operator: type[Op]) -> None:
        self._builder = builder
        self._operator = operator

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        return self._builder.apply(self._operator.__name__, *inputs, **attributes)

    def __repr__(self) -> str:
        return f"<operator {self.__name__}{self.__signature__}>"

    @property
    def __name__(self) -> str:
        return self._operator.__name__

    @property
    def __doc__(self) -> str | None:
        return self._operator.__doc__

    @property
    def __signature__(self) -> Signature:
        # Deferred import for start-up time: only help() and editors need the signature.
        from dovetail.ir.operator_stub import method_signature

        return method_signature(self._operator)


def operator_class(kind: str) -> type[Op]:
    """Look up an operator by name. Raises MissingAttributeError [name.unknown] with the closest names."""
    operator = REGISTRY.get(kind)
    if operator is None:
        raise MissingAttributeError("name.unknown", f"no operator is named {kind!r}{_suggest_operator(kind)}")
    return operator


def _suggest_operator(name: str) -> str:
    """Return a suggestion for an unknown name: the operator that ONNX or OpenVINO calls ``name``, or else a similar name."""
    for operator, cls in REGISTRY.items():
        for line in (*cls.onnx, *cls.openvino):
            match = _MAPPED_NAME.match(line)
            if match and match[1] == name:
                return f": did you mean {operator!r}?"
    return closest(name, REGISTRY)
