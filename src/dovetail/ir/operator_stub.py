"""The generator of ``operator_methods.pyi``, one typed method for each operator, and of ``operator_index.py``.

``python -m dovetail.ir.operator_stub`` writes both.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Iterator
from inspect import Parameter, Signature
from itertools import groupby
from pathlib import Path
from textwrap import indent

from dovetail.ir.attribute_types import REQUIRED, Field
from dovetail.ir.dtypes import DType
from dovetail.ir.op import REGISTRY, Op
from dovetail.ir.op_mapping import imported_kind

COMMAND = "python -m dovetail.ir.operator_stub"
PATH = Path(__file__).with_name("operator_methods.pyi")
FORMATS = ("onnx", "openvino")
_KINDS_DOCUMENTATION = "Classes that import a foreign operator, by format and ``[domain:]Kind``, where not the one of its name."
INDEX_PATH = Path(__file__).with_name("operator_index.py")

_HEADER = f'''\
# Generated from the registry by `{COMMAND}`; do not edit.
"""The operators of the registry as methods of a Builder.

Inputs are positional: values, or data that becomes a constant; None leaves out an optional input. Attributes are keywords.
An integer attribute may be a Value, which is then read at run time. One output is returned alone, several as a list.
"""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from dovetail.ir.dtypes import DTypeLike
from dovetail.errors import DovetailError
from dovetail.ir.graph import Graph, Operand, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Type

def operator_class(kind: str) -> type[Op]: ...

class OperatorMethods:
    """The base of Builder: each operator is a method."""
'''

_VARIADIC_TUPLE = re.compile(r"tuple\[((?:[^\[\]]|\[[^\[\]]*\])*), \.\.\.\]")
_ARGUMENT_TYPES = {
    "int": "int | Value",
    "int | None": "int | Value | None",
    "tuple[int, ...]": "Sequence[int] | Value",
    "tuple[int, ...] | None": "Sequence[int] | Value | None",
    "DType": "DTypeLike",
    "DType | None": "DTypeLike | None",
}
"""The argument types of attributes whose arguments may have more types than the annotation."""


def method_signature(operator: type[Op], outputs: str = "") -> Signature:
    """Return the signature of an operator's method, with annotations as text.

    ``outputs`` narrows the annotation of the attribute ``outputs`` to one overload: "one", "several" or "any".
    """
    attributes = (_attribute(field, operator, outputs) for field in operator.fields)
    return Signature([*_inputs(operator), *attributes], return_annotation=_return_annotation(operator, outputs))


def _inputs(operator: type[Op]) -> Iterator[Parameter]:
    signature = operator.signature
    taken = {field.name for field in operator.fields}
    for index, port in enumerate(signature.inputs):
        name = f"{port.name}_input" if port.name in taken else port.name
        if port.repeated:
            yield Parameter(name, Parameter.VAR_POSITIONAL, annotation="Operand | None")
            return
        # An optional input before a required or repeated one keeps its position.
        is_last = signature.repeated is None and index >= signature.min_inputs
        annotation = "Operand | None" if port.optional else "Operand"
        default = None if port.optional and is_last else Parameter.empty
        yield Parameter(name, Parameter.POSITIONAL_ONLY, annotation=annotation, default=default)


def _attribute(field: Field, operator: type[Op], outputs: str) -> Parameter:
    annotation = argument_type(field.annotation)
    default = Parameter.empty if field.default is REQUIRED else field.default
    if field.name == "outputs":
        annotation = "int"
        if outputs:
            counts = range(2, len(operator.signature.outputs) + 1)
            several = f"Literal[{', '.join(map(str, counts))}]"
            annotation = {"one": "Literal[1]", "several": several, "any": "int"}[outputs]
            if (outputs == "one") != (default == 1):
                default = Parameter.empty
    return Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def argument_type(annotation: str) -> str:
    """Return the type of an attribute's argument; unlike the annotation it allows any sequence for a tuple."""
    if annotation in _ARGUMENT_TYPES:
        return _ARGUMENT_TYPES[annotation]
    while (wider := _VARIADIC_TUPLE.sub(r"Sequence[\1]", annotation)) != annotation:
        annotation = wider
    return annotation


def _return_annotation(operator: type[Op], outputs: str) -> str:
    if outputs:
        return {"one": "Value", "several": "list[Value]", "any": "Value | list[Value]"}[outputs]
    ports = operator.signature.outputs
    return "Value" if len(ports) == 1 and not ports[0].repeated else "list[Value]"


def _method(operator: type[Op]) -> Iterator[str]:
    ports = operator.signature.outputs
    has_overloads = "outputs" in operator.fields_by_name and not ports[0].repeated
    for outputs in ("one", "several", "any") if has_overloads else ("",):
        if has_overloads:
            yield "    @overload"
        yield f"    def {operator.__name__}({_parameters_text(method_signature(operator, outputs))}"
        yield indent(f'"""{_documentation(operator)}"""', " " * 8)
        yield ""


def _parameters_text(signature: Signature) -> str:
    lines: list[str] = []
    line = ""
    for part in _parts(signature):
        if line and len(line) + len(part) > 118:
            lines.append(f"        {line}")
            line = ""
        line = f"{line}{part}, "
    text = "\n".join([*(row.rstrip() for row in lines), f"        {line.rstrip()}"])
    return f"\n{text}\n    ) -> {signature.return_annotation}:"


def _parts(signature: Signature) -> Iterator[str]:
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *signature.parameters.values()]
    for index, parameter in enumerate(parameters):
        if parameter.kind is Parameter.KEYWORD_ONLY and parameters[index - 1].kind is Parameter.POSITIONAL_ONLY:
            yield "*"
        prefix = "*" if parameter.kind is Parameter.VAR_POSITIONAL else ""
        annotation = "" if parameter.name == "self" else f": {parameter.annotation}"
        default = "" if parameter.default is Parameter.empty else f" = {_default_text(parameter.default)}"
        yield f"{prefix}{parameter.name}{annotation}{default}"
        last_positional = index + 1 == len(parameters) or parameters[index + 1].kind is not Parameter.POSITIONAL_ONLY
        if parameter.kind is Parameter.POSITIONAL_ONLY and last_positional:
            yield "/"


def _default_text(value: object) -> str:
    if isinstance(value, DType):
        return repr(value.name)
    if isinstance(value, float) and not math.isfinite(value):
        return "..."
    return repr(value)


def _documentation(operator: type[Op]) -> str:
    text = inspect.cleandoc(operator.__doc__ or "").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f"{text}\n" if "\n" in text else text


def stub_text() -> str:
    """Return the stub of all registered operators, by family."""
    parts = [_HEADER]
    operators = sorted(REGISTRY.values(), key=lambda operator: (operator.__module__, operator.__name__))
    for module, family in groupby(operators, lambda operator: operator.__module__):
        parts.append(f"    # {module.removeprefix('dovetail.ops.')}\n")
        parts += ["\n".join(_method(operator)) for operator in family]
    lines = (line.rstrip() for line in "\n".join(parts).splitlines())
    return "\n".join(lines).rstrip() + "\n"


def import_operators() -> None:
    """Import every module of the package ``dovetail.ops``, including modules that the index does not name."""
    package = importlib.import_module("dovetail.ops")
    for module in pkgutil.walk_packages(package.__path__, "dovetail.ops."):
        importlib.import_module(module.name)


def index_text() -> str:
    """Return ``operator_index.py``: the module of each operator, and the classes that import each foreign operator."""
    lines = [f"    {name!r}: {operator.__module__!r}," for name, operator in sorted(REGISTRY.items())]
    kinds = [
        text
        for format in FORMATS
        for text in (f"    {format!r}: {{", *(f"        {row[0]!r}: {row[1]!r}," for row in _kinds_of(format)), "    },")
    ]
    parts = [f'"""Module of each operator. Generated by `{COMMAND}`; do not edit."""', "", "MODULES = {", *lines, "}", ""]
    parts += ["KINDS = {", *kinds, "}", f'"""{_KINDS_DOCUMENTATION}"""', ""]
    return "\n".join(parts).replace("'", '"')


def _kinds_of(format: str) -> list[tuple[str, str]]:
    """Map each foreign operator of a format to the classes that import it.

    An operator that only the class with its name imports is left out.
    """
    classes: dict[str, list[str]] = {}
    for name, operator in sorted(REGISTRY.items()):
        for label in dict.fromkeys(imported_kind(line) for line in getattr(operator, format)):
            if label is not None:
                classes.setdefault(label, []).append(name)
    return [(label, " ".join(names)) for label, names in sorted(classes.items()) if names != [label.rpartition(":")[2]]]


if __name__ == "__main__":
    import_operators()
    INDEX_PATH.write_text(index_text(), encoding="utf-8")
    PATH.write_text(stub_text(), encoding="utf-8")
