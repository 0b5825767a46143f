"""A foreign node read by a slot line: its inputs and attributes become those of an operator of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats import op_mapping
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.op_mapping import Spelling
from dovetail.interpreter.evaluate import constant_value
from dovetail.ir.graph import Value
from dovetail.ir.op import REQUIRED, Op
from dovetail.ir.types import Tensor
from dovetail.ops.runtime_attributes import RuntimeAttributes, can_be_input

if TYPE_CHECKING:
    from dovetail.formats.importer import Lifter


def spelled(
    lifter: Lifter, spelling: Spelling, node: ForeignNode, xs: list[Value | None], deviate: Callable[[DovetailError], None]
) -> tuple[Op, list[Value | None]]:
    """The operator that a slot line makes of a node, and its inputs. ``deviate`` gets the node's deviations.

    Raises FormatError where the node does not fit the line.
    """
    most = len(spelling.inputs)
    if len(node.inputs) > most >= len(xs) and not any(slot.repeated for slot in spelling.inputs):
        deviate(
            RuleError("node.inputs", f"{node.kind} takes {most} inputs, and the node leaves out {len(node.inputs) - most} more")
        )
    attributes, inputs, late = _from_inputs(lifter, spelling, xs)
    for slot in spelling.attributes:
        if slot.is_ignored:
            continue
        given = (_words if lifter.dialect.is_text else _numbers)(spelling, slot, node.attributes, deviate)
        value = op_mapping.read_attribute(spelling, slot, given, is_text=lifter.dialect.is_text)
        if slot.how == "front" and op_mapping.is_negative(value):
            deviate(op_mapping.value_fault(spelling, slot, node.attributes))
        if value is REQUIRED:
            continue
        if op_mapping.field_of(spelling.op, slot.ours) is not None:
            attributes[slot.ours] = value
        else:
            inputs[slot.ours] = _constant_input(lifter, spelling, slot.ours, value, xs)
    op_mapping.refuse_unknown(spelling, node.attributes)
    attributes.update(spelling.implied)
    if "outputs" in spelling.op.fields_by_name and "outputs" not in attributes:
        attributes["outputs"] = len(node.outputs)
    ordered: list[Value | None] = []
    for port in spelling.op.signature.inputs:
        if port.repeated:
            ordered.extend(inputs.get(port.name) or [])
        else:
            ordered.append(inputs.get(port.name))
    while ordered and ordered[-1] is None:
        ordered.pop()
    return RuntimeAttributes.with_inputs(spelling.op, attributes, ordered, late) if late else (spelling.op(**attributes), ordered)


def _words(
    spelling: Spelling, slot: op_mapping.Slot, attributes: dict[str, Any], deviate: Callable[[DovetailError], None]
) -> dict[str, Any]:
    """The attributes, which are texts, with the word of a slot in the case of the specification: OpenVINO reads either."""
    raw = attributes.get(slot.theirs[0])
    word = op_mapping.other_case(slot, raw) if slot.how == "table" and isinstance(raw, str) else None
    if word is None:
        return attributes
    deviate(FormatError("attribute.value", f"{spelling.kind}: {slot.theirs[0]} = {raw!r} is not {word!r}"))
    return {**attributes, slot.theirs[0]: word}


def _numbers(
    spelling: Spelling, slot: op_mapping.Slot, attributes: dict[str, Any], deviate: Callable[[DovetailError], None]
) -> dict[str, Any]:
    """The attributes with integers as floats, where a slot is for floats."""
    field = op_mapping.field_of(spelling.op, slot.ours)
    raw = attributes.get(slot.theirs[0])
    number = None if field is None or slot.how == "table" else op_mapping.as_floats(field.annotation, raw)
    if number is None:
        return attributes
    deviate(FormatError("attribute.value", f"{spelling.kind}: {slot.theirs[0]} = {raw!r} is not of the type float"))
    return {**attributes, slot.theirs[0]: number}


def _from_inputs(
    lifter: Lifter, spelling: Spelling, xs: list[Value | None]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Value]]:
    """What the foreign inputs give: attributes, inputs, and inputs that only run time makes attributes of."""
    attributes: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    late: dict[str, Value] = {}
    if len(xs) > len(spelling.inputs) and not any(slot.repeated for slot in spelling.inputs):
        raise FormatError("node.inputs", f"{spelling.kind} takes {len(spelling.inputs)} inputs, not {len(xs)}")
    for index, slot in enumerate(spelling.inputs):
        if slot.repeated:
            inputs[slot.ours] = xs[index:]
            break
        x = xs[index] if index < len(xs) else None
        field = op_mapping.field_of(spelling.op, slot.ours)
        if field is None:
            if x is None and not slot.optional and slot.default is None:
                raise FormatError("node.inputs", f"{spelling.kind} needs the input {slot.ours!r}")
            if x is None and slot.default is not None:
                x = _constant_input(lifter, spelling, slot.ours, slot.default, xs)
            inputs[slot.ours] = x
        elif x is not None:
            try:
                data = constant_of(x, f"{spelling.kind}: {slot.ours}")
            except UnsupportedError:
                if not can_be_input(field):
                    raise
                op_mapping.check_rank(slot, x.shape)
                late[slot.ours] = x
                continue
            lifter.spend(x)
            attributes[slot.ours] = op_mapping.read_constant(slot, field, data)
        elif slot.default is not None:
            attributes[slot.ours] = op_mapping.fixed_value(field, slot.default)
        elif not slot.optional:
            raise FormatError("node.inputs", f"{spelling.kind} needs the input {slot.ours!r}")
    return attributes, inputs, late


def _constant_input(lifter: Lifter, spelling: Spelling, name: str, raw: Any, xs: list[Value | None]) -> Value:
    """A foreign attribute that is an input of ours. Raises FormatError [attribute.value]."""
    if isinstance(raw, ForeignTensor):
        return lifter.shared(raw.data, raw.dtype)
    try:
        return _number_input(lifter, spelling, name, raw, xs)
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        if isinstance(error, DovetailError):
            raise
        raise FormatError("attribute.value", f"{spelling.kind}: {name} = {raw!r} does not become a tensor") from None


def _number_input(lifter: Lifter, spelling: Spelling, name: str, raw: Any, xs: list[Value | None]) -> Value:
    port = next(port for port in spelling.op.signature.inputs if port.name == name)
    if isinstance(raw, str):
        text = raw.strip().removeprefix("[").removesuffix("]")
        items = [piece.strip() for piece in text.split(",")] if "," in text or port.host else [text]
        items = [item for item in items if item]
        numbers: list[Any] = [float(item) if not item.lstrip("+-").isdigit() else int(item) for item in items]
        raw = numbers if "," in text or port.host else numbers[0]
    data = np.asarray(raw)
    data = data if data.size else data.astype(np.int64)
    kind = _input_dtype(spelling, port.type, xs)
    if kind.is_integer and data.dtype.kind not in "iu":
        raise FormatError("attribute.value", f"{spelling.kind}: {name} = {raw!r} is no list of integers")
    return lifter.shared(data, kind)


def _input_dtype(spelling: Spelling, variable: str, xs: list[Value | None]) -> Any:
    exact = dtypes._BY_NAME.get(variable)
    if exact is not None:
        return exact
    for port, x in zip(spelling.op.signature.inputs, xs, strict=False):
        if port.type == variable and x is not None and isinstance(x.type, Tensor) and x.type.dtype is not None:
            return x.type.dtype
    return dtypes.i64 if variable[0] in "IZT" else dtypes.f32


def constant_of(x: Value, what: str) -> np.ndarray[Any, Any]:
    """The elements of an input that has to be known when the model is read.

    Raises UnsupportedError [constant.needed] where they are not constant.
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
    found = constant_value(x)
    if found is None:
        raise UnsupportedError("constant.needed", f"{what} is computed at run time, and has to be a constant here")
    return found
