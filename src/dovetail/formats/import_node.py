"""Import one foreign node by an op mapping: the node's inputs and attributes become those of a core operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_constants import ImportedConstants
from dovetail.formats.import_scope import ImportScope
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.arrays import Array
from dovetail.ir.attribute_types import REQUIRED
from dovetail.ir.dtypes import DType
from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import Attributes, OpMapping, ParamMapping
from dovetail.ir.types import Tensor
from dovetail.ops.runtime_attributes import RuntimeAttributes, can_be_input

Reading = tuple[Op, list[Value | None]]
"""A core operator and its inputs."""
Deviate = Callable[[DovetailError], None]


def apply_mapping(scope: ImportScope, mapping: OpMapping, node: ForeignNode, xs: list[Value | None], deviate: Deviate) -> Reading:
    """Map a foreign node to a core operator and the operator's inputs. ``deviate`` receives the deviations of the node.

    Raises FormatError if the mapping does not accept the node.
    """
    max_count = len(mapping.inputs)
    if len(node.inputs) > max_count >= len(xs) and not any(param.is_repeated for param in mapping.inputs):
        deviate(
            RuleError(
                "node.inputs",
                f"{node.kind} must have at most {max_count} inputs, got {len(node.inputs)} (absent inputs included)",
            )
        )
    attributes, inputs, runtime_attributes = _read_inputs(scope.constants, mapping, xs)
    convert = _convert_case if scope.is_text else _convert_integers
    for param in mapping.attributes:
        if param.is_ignored:
            continue
        value = op_mapping.read_attribute(
            mapping, param, convert(mapping, param, node.attributes, deviate), is_text=scope.is_text
        )
        if param.conversion == "front" and op_mapping.is_negative(value):
            deviate(op_mapping.value_error(mapping, param, node.attributes))
        if value is REQUIRED:
            continue
        if op_mapping.field_of(mapping.op, param.name) is not None:
            attributes[param.name] = value
        else:
            inputs[param.name] = _add_constant_input(scope.constants, mapping, param.name, value, xs)
    op_mapping.refuse_unknown(mapping, node.attributes)
    attributes.update(mapping.implied)
    if "outputs" in mapping.op.fields_by_name and "outputs" not in attributes:
        attributes["outputs"] = len(node.outputs)
    ordered: list[Value | None] = []
    for port in mapping.op.signature.inputs:
        if port.repeated:
            ordered.extend(inputs.get(port.name) or [])
        else:
            ordered.append(inputs.get(port.name))
    while ordered and ordered[-1] is None:
        ordered.pop()
    if runtime_attributes:
        return RuntimeAttributes.with_inputs(mapping.op, attributes, ordered, runtime_attributes)
    return mapping.op(**attributes), ordered


def _convert_case(mapping: OpMapping, param: ParamMapping, attributes: Attributes, deviate: Deviate) -> Attributes:
    """Convert an enumeration value to the letter case of the specification and report a deviation; OpenVINO accepts any case."""
    raw = attributes.get(param.foreign_names[0])
    word = op_mapping.other_case(param, raw) if param.conversion == "table" and isinstance(raw, str) else None
    if word is None:
        return attributes
    deviate(FormatError("attribute.value", f"{mapping.kind}: {param.foreign_names[0]} must be {word!r}, got {raw!r}"))
    return {**attributes, param.foreign_names[0]: word}


def _convert_integers(mapping: OpMapping, param: ParamMapping, attributes: Attributes, deviate: Deviate) -> Attributes:
    """Convert integers of a foreign attribute to floats and report a deviation, if the core attribute consists of floats."""
    field = op_mapping.field_of(mapping.op, param.name)
    raw = attributes.get(param.foreign_names[0])
    number = None if field is None or param.conversion == "table" else op_mapping.as_floats(field.annotation, raw)
    if number is None:
        return attributes
    deviate(FormatError("attribute.value", f"{mapping.kind}: {param.foreign_names[0]} must be of type float, got {raw!r}"))
    return {**attributes, param.foreign_names[0]: number}


def _read_inputs(
    constants: ImportedConstants, mapping: OpMapping, xs: list[Value | None]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Value]]:
    """Map foreign inputs to core attributes, core inputs, and core attributes that are computed at run time."""
    attributes: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    runtime_attributes: dict[str, Value] = {}
    if len(xs) > len(mapping.inputs) and not any(param.is_repeated for param in mapping.inputs):
        raise FormatError("node.inputs", f"{mapping.kind} must have at most {len(mapping.inputs)} inputs, got {len(xs)}")
    for index, param in enumerate(mapping.inputs):
        if param.is_repeated:
            inputs[param.name] = xs[index:]
            break
        x = xs[index] if index < len(xs) else None
        field = op_mapping.field_of(mapping.op, param.name)
        if field is None:
            if x is None and not param.is_optional and param.default is None:
                raise FormatError("node.inputs", f"{mapping.kind} needs the input {param.name!r}")
            if x is None and param.default is not None:
                x = _add_constant_input(constants, mapping, param.name, param.default, xs)
            inputs[param.name] = x
        elif x is not None:
            try:
                data = constant_of(x, f"{mapping.kind}: {param.name}")
            except UnsupportedError:
                if not can_be_input(field):
                    raise
                op_mapping.check_rank(param, x.shape)
                runtime_attributes[param.name] = x
                continue
            constants.mark_folded_constant(x)
            attributes[param.name] = op_mapping.read_constant(param, field, data)
        elif param.default is not None:
            attributes[param.name] = op_mapping.fixed_value(field, param.default)
        elif not param.is_optional:
            raise FormatError("node.inputs", f"{mapping.kind} needs the input {param.name!r}")
    return attributes, inputs, runtime_attributes


def _add_constant_input(constants: ImportedConstants, mapping: OpMapping, name: str, raw: Any, xs: list[Value | None]) -> Value:
    """Add a constant for a foreign attribute that corresponds to a core input. Raises FormatError [attribute.value]."""
    if isinstance(raw, ForeignTensor):
        return constants.add(raw.data, raw.dtype)
    try:
        return constants.add(*_parse_tensor(mapping, name, raw, xs))
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        if isinstance(error, DovetailError):
            raise
        raise FormatError("attribute.value", f"{mapping.kind}: {name} must be a tensor, got {raw!r}") from None


def _parse_tensor(mapping: OpMapping, name: str, raw: object, xs: list[Value | None]) -> tuple[Array, DType]:
    port = next(port for port in mapping.op.signature.inputs if port.name == name)
    if isinstance(raw, str):
        text = raw.strip().removeprefix("[").removesuffix("]")
        items = [item.strip() for item in text.split(",")] if "," in text or port.host else [text]
        items = [item for item in items if item]
        numbers: list[Any] = [float(item) if not item.lstrip("+-").isdigit() else int(item) for item in items]
        raw = numbers if "," in text or port.host else numbers[0]
    data = np.asarray(raw)
    data = data if data.size else data.astype(np.int64)
    dtype = _input_dtype(mapping, port.type, xs)
    if dtype.is_integer and data.dtype.kind not in "iu":
        raise FormatError("attribute.value", f"{mapping.kind}: {name} must be a list of integers, got {raw!r}")
    return data, dtype


def _input_dtype(mapping: OpMapping, variable: str, xs: list[Value | None]) -> DType:
    """Return the element type of an input whose type in the signature is ``variable``, a type or a type variable.

    A type variable is resolved by another input of the same variable. If there is none, the type is i64 for I, Z and T, else f32.
    """
    exact = dtypes._BY_NAME.get(variable)
    if exact is not None:
        return exact
    for port, x in zip(mapping.op.signature.inputs, xs, strict=False):
        if port.type == variable and x is not None and isinstance(x.type, Tensor) and x.type.dtype is not None:
            return x.type.dtype
    return dtypes.i64 if variable[0] in "IZT" else dtypes.f32


def constant_of(x: Value, label: str) -> Array:
    """Return the elements of an input that must be constant at import; ``label`` names the input in messages.

    Raises UnsupportedError [constant.needed] if the input is not constant.
    """
    data = x.constant
    if data is not None:
        return data
    value = x.value
    if value is not None:
        array = np.asarray(value)
        if array.dtype != object:
            return array
        if all(isinstance(item, int) for item in array.ravel()):
            return array.astype(np.int64)
    folded = constant_value(x)
    if folded is None:
        raise UnsupportedError("constant.needed", f"{label} must be a constant, got a value computed at run time")
    return folded
