"""Checks of operator classes that are defined outside of dovetail, when Python executes their definition.

The classes of dovetail are checked by its tests, which keeps their definition fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from dovetail.errors import RuleError
from dovetail.ir import dtypes
from dovetail.ir.attribute_types import REQUIRED, Field, WrongType, attribute_type
from dovetail.ir.op_mapping import OpMapping, OpMappingError, imported_kind, is_mappable, parse
from dovetail.ir.suggestions import closest

if TYPE_CHECKING:
    from dovetail.ir.op import Op

KEYWORDS = ("sig", "onnx", "openvino", "is_registered")
"""The keywords of a class header."""


def check_header(cls: type[Op], sig: object, mappings: tuple[object, ...], unknown: Mapping[str, object]) -> None:
    """Check the keywords of a class header, and that the class body has none of them.

    Raises RuleError [attribute.unknown], [argument.type], [argument.value].
    """
    for name in unknown:
        raise RuleError("attribute.unknown", f"{cls.__name__}: a class has no keyword {name!r}{closest(name, KEYWORDS)}")
    if sig is not None and not isinstance(sig, str):
        raise RuleError("argument.type", f"{cls.__name__}: sig must be a string, got {sig!r}")
    for name, lines in zip(("onnx", "openvino"), mappings, strict=True):
        if not isinstance(lines, str) and not (isinstance(lines, tuple | list) and all(isinstance(line, str) for line in lines)):
            raise RuleError("argument.type", f"{cls.__name__}: {name} must be an op mapping or a tuple of them, got {lines!r}")
    for name, value in cls.__dict__.items():
        if name in KEYWORDS or _is_mapping(value):
            word = name if name in KEYWORDS else "onnx"
            example = f"class {cls.__name__}(Op, {word}=...)"
            hint = "" if name in KEYWORDS else closest(name, KEYWORDS)
            _refuse(cls, f"{name} must be a keyword of the class header, as in {example}, got a class attribute{hint}")
    if any(mappings) and sig is None and not cls.sig:
        _refuse(cls, "a class with op mappings needs a signature, sig='x: F -> y: F'")


def check_class(cls: type[Op]) -> None:
    """Check the attributes, the signature and the op mappings of a class. Raises RuleError [argument.value]."""
    inputs = {port.name for port in cls.signature.inputs}
    for field in cls.fields:
        _check_field(cls, field, inputs)
    variables = {port.type for port in cls.signature.inputs}
    for port in cls.signature.outputs:
        if port.type not in variables and port.type != "any" and not dtypes.by_name(port.type) and not _has_rule(cls, "types"):
            _refuse(cls, f"the output {port.name!r} must have the type of an input, or an element type, got {port.type!r}")
    for format, lines in (("onnx", cls.onnx), ("openvino", cls.openvino)):
        for line in lines:
            try:
                mapping = parse(cls, line)
            except OpMappingError as error:
                _refuse(cls, f"{format}, position {error.position} of {line!r}: {error.message}")
            for fault in _mapping_faults(cls, format, mapping):
                _refuse(cls, f"{format}: {fault}, got {line!r}")


def _is_mapping(value: object) -> bool:
    lines = value if isinstance(value, tuple | list) else (value,)
    return bool(lines) and all(isinstance(line, str) and imported_kind(line) is not None for line in lines)


def _check_field(cls: type[Op], field: Field, inputs: set[str]) -> None:
    if field.name in inputs:
        _refuse(cls, f"{field.name!r} must be an input or an attribute, got both")
    if field.name in cls.__mro__[-2].__dict__:
        rule = f"the attribute {field.name!r} must not have the name of a rule or property of Op"
        _refuse(cls, f"{rule}; an op mapping can rename it, as in {field.name}:{field.name}_of_operator")
    if field.default is REQUIRED:
        return
    check = attribute_type(field.annotation)
    if field.default.__class__ not in check.classes:
        try:
            check.convert(field.default)
        except WrongType:
            _refuse(cls, f"the default of the attribute {field.name!r} must be {check.text}, got {field.default!r}")


def _mapping_faults(cls: type[Op], format: str, mapping: OpMapping) -> Iterator[str]:
    """Yield the reasons for which ``mapping`` could not read or write any node."""
    if format == "openvino" and mapping.domain and mapping.versions != (1,):
        yield f"the version of {mapping.domain}:{mapping.kind} must be 1, as IR has no versions in an opset of its own"
    for param in mapping.attributes:
        field = cls.fields_by_name.get(param.name)
        if field is not None and not is_mappable(field.annotation):
            types = "bool, int, float, str, DType, a Literal, or a tuple of one of them such as tuple[int, ...]"
            yield f"the mapped attribute {field.name!r} must be annotated as {types}, not {field.annotation!r}"
    for field in cls.fields:
        if field.default is REQUIRED and field.name != "outputs" and not mapping.has_param(field.name):
            yield f"{mapping.kind} must map the attribute {field.name!r}, which has no default"
    for port in cls.signature.inputs:
        if not port.optional and not mapping.has_param(port.name):
            yield f"{mapping.kind} must map the input {port.name!r}"


def _has_rule(cls: type[Op], rule: str) -> bool:
    return any(rule in base.__dict__ for base in cls.__mro__ if base.__module__ != "dovetail.ir.op")


def _refuse(cls: type[Op], fault: str) -> NoReturn:
    raise RuleError("argument.value", f"{cls.__name__}: {fault}")
