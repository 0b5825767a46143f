"""Edits of a model by the names of values. Each edit returns a new model, and is also a method of Model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, RuleError, UnsupportedError, raise_all
from dovetail.formats.import_constants import FOLDED
from dovetail.formats.openvino import rt_info
from dovetail.formats.roundtrip_metadata import PATH, PROPERTY as OPENVINO_RECORD
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType, DTypeLike
from dovetail.ir.edit import copy_model, move_readers, names_in, remove_dead, rename
from dovetail.ir.graph import EXTENSIONS, Graph, Model, Operand, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.inputs_outputs import to_array
from dovetail.ir.limits import counting
from dovetail.ir.selection import names_of, select_values
from dovetail.ir.state import PROPERTY as STATES, state_inputs
from dovetail.ir.state_interface import drop_incomplete_states
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant

RESERVED_PROPERTIES = (STATES, OPENVINO_RECORD)
"""Metadata properties that dovetail itself writes and reads."""


# Names


def rename_values(model: Model, names: Mapping[str, str]) -> Model:
    """Return ``model`` with values renamed from the keys to the values of ``names`` at once, so that names may be swapped.

    A port of OpenVINO IR with several names keeps its other names.

    Raises RuleError [name.unknown], [argument.type], [name.taken].
    """
    new = copy_model(model)
    values = select_values(new, list(names))
    # The name of an OpenVINO layer selects the layer's output value.
    own = zip(values, names.items(), strict=True)
    names = {old if old in (value.name, *value.names) else value.name: target for value, (old, target) in own}
    remaining = names_in(new.graph) - set(names)
    errors: list[DovetailError] = []
    for target in names.values():
        if not isinstance(target, str) or not target:
            errors.append(RuleError("argument.type", f"a name must be a string that is not empty, got {target!r}"))
        elif target in remaining:
            errors.append(RuleError("name.taken", f"the name {target!r} is taken", file=model.file))
        remaining.add(target)
    raise_all(errors, "names that values cannot have")
    primary: dict[str, str] = {}
    for value, (old, target) in zip(values, names.items(), strict=True):
        # The first read creates symbols of unknown elements, named after the value: read before the renaming.
        _ = value.value
        value.names = tuple(target if name == old else name for name in value.names) or (target,)
        if value.name == old:
            new.graph.release(old)
            primary[old] = target
    for value, (old, target) in zip(values, names.items(), strict=True):
        if primary.get(old) == target:
            value.name = new.graph.claim(target)
    new.states = [
        state._replace(
            input=primary.get(state.input, state.input),
            output=primary.get(state.output, state.output),
            initial=None if state.initial is None else primary.get(state.initial, state.initial),
        )
        for state in new.states
    ]
    return new


# Outputs


def set_outputs(model: Model, names: str | Iterable[str]) -> Model:
    """Return ``model`` with the values ``names`` as its outputs, in this order, and without nodes that no output needs.

    All inputs stay. A state whose values are no longer inputs and outputs of the model is dropped, with a warning
    [state.incomplete]. Raises RuleError [name.unknown], [graph.outputs] where ``names`` is empty.
    """
    new = copy_model(model)
    selected = select_values(new, names_of(names))
    if not selected:
        raise RuleError("graph.outputs", "a model needs at least one output, got none", file=model.file)
    new.graph.outputs = list({id(value): value for value in selected}.values())
    for value in new.graph.outputs:
        # An unnamed port of OpenVINO IR gets a name, because callers select outputs by name.
        value.names = value.names or (value.name,)
    remove_dead(new.graph)
    new.warnings += drop_incomplete_states(new)
    return new


def add_outputs(model: Model, names: str | Iterable[str]) -> Model:
    """Return ``model`` with the values ``names`` appended to its outputs. Raises RuleError [name.unknown]."""
    added = names_of(names)
    select_values(model, added)
    return set_outputs(model, [*(value.name for value in model.outputs), *added])


def drop_outputs(model: Model, names: str | Iterable[str]) -> Model:
    """Return ``model`` without the outputs ``names``. Raises RuleError [name.unknown], [output.unknown], [graph.outputs]."""
    dropped = select_values(model, names_of(names))
    outputs = {id(value) for value in model.outputs}
    listed = ", ".join(repr(value.name) for value in model.outputs)
    raise_all(
        [
            RuleError("output.unknown", f"{value.name!r} must be an output of the model, one of {listed}", file=model.file)
            for value in dropped
            if id(value) not in outputs
        ],
        "names that are no outputs",
    )
    ids = {id(value) for value in dropped}
    return set_outputs(model, [value.name for value in model.outputs if id(value) not in ids])


# Constants


def with_constants(model: Model, data: Mapping[str, Operand]) -> Model:
    """Return ``model`` with new elements for the constants that ``data`` names. Types are inferred again.

    An array must have the element type of the constant, and may have another shape. A Python number fills the shape of the
    constant. Numbers and lists of numbers must be exactly representable in the element type of the constant.

    Raises RuleError [name.unknown], RuleError [constant.computed] for a value that is no constant, UnsupportedError
    [constant.computed] for a constant that loading has also folded into attributes or other constants, EngineError
    [input.dtype], [input.type] for the data, and the errors of :func:`dovetail.infer`.
    """
    new = copy_model(model)
    errors: list[DovetailError] = []
    for value, item in zip(select_values(new, list(data)), data.values(), strict=True):
        try:
            _replace_constant(value, item)
        except DovetailError as error:
            errors.append(error.at(file=model.file))
    raise_all(errors, "constants that cannot be replaced")
    with counting(new.limits):
        infer_graph(new.graph, file=new.file)
    return new


def _replace_constant(value: Value, item: Operand) -> None:
    node = value.node
    if node is None or not isinstance(node.op, Constant):
        producer = "a graph input" if node is None else f"an output of {type(node.op).__name__}"
        raise RuleError("constant.computed", f"the replaced value {value.name!r} must be a constant, got {producer}")
    if value.metadata.get(FOLDED):
        raise UnsupportedError(
            "constant.computed",
            f"the constant {value.name!r} was folded into attributes or other constants when the model was loaded, "
            "and replacing it would change only some of its readers",
        )
    array = np.asarray(to_array(item, value))
    if isinstance(item, bool | int | float):
        array = np.full(node.op.storage.shape, array)
    array = np.array(array, order="C")
    array.flags.writeable = False
    node.op = Constant(array, node.op.dtype)
    value.type = Tensor(value.dtype, array.shape)
    value.value = None


# Input types


def convert_inputs(model: Model, dtypes_by_name: Mapping[str, DTypeLike]) -> Model:
    """Return ``model`` with new element types for the inputs in ``dtypes_by_name``; a Cast restores each former type.

    Each input keeps its name and shape. Raises RuleError [name.unknown], [input.unknown] for a value that is no input,
    [type.kind] for an input that is no tensor of known element type, UnsupportedError [dtype.unknown], [input.shared]
    for an input that is a state or also an output.
    """
    new = copy_model(model)
    pairs = list(zip(select_values(new, list(dtypes_by_name)), dtypes_by_name.values(), strict=True))
    errors: list[DovetailError] = []
    conversions: list[tuple[Value, DType]] = []
    for value, target in pairs:
        try:
            dtype = dtypes.dtype(target)
            _check_conversion(new, value)
            conversions.append((value, dtype))
        except DovetailError as error:
            errors.append(error.at(file=model.file))
    raise_all(errors, "inputs whose type cannot be converted")
    conversions = [(value, dtype) for value, dtype in conversions if value.dtype is not dtype]
    # Shapes may depend on the elements of integer inputs.
    has_integers = any(value.dtype.is_integer for value, _ in conversions)
    for value, dtype in reversed(conversions):
        _insert_cast(new.graph, value, dtype)
    if has_integers:
        with counting(new.limits):
            infer_graph(new.graph, file=new.file)
    return new


def _check_conversion(model: Model, value: Value) -> None:
    name = value.name
    if value.node is not None:
        listed = ", ".join(repr(each.name) for each in model.inputs)
        raise RuleError("input.unknown", f"{name!r} must be an input of the model, one of {listed}")
    if not isinstance(value.type, Tensor) or value.type.dtype is None:
        raise RuleError("type.kind", f"the input {name!r} must be a tensor of known element type, got {value.type}")
    if name in state_inputs(model):
        message = f"the input {name!r} must keep its type: it is the input of a state, whose output has the same type"
        raise UnsupportedError("input.shared", message)
    if any(value is output for output in model.outputs):
        raise UnsupportedError("input.shared", f"the input {name!r} must keep its type: it is also an output of the model")


def _insert_cast(graph: Graph, value: Value, dtype: DType) -> None:
    """Change the element type of a graph input, and insert a Cast to the former element type before all readers."""
    former = value.dtype
    readers = Value("")
    move_readers(value, readers)
    value.type = Tensor(dtype, value.shape)
    value.value = None
    b = Builder(graph=graph)
    cast: Value = b.apply("Cast", value, to=former)
    rename(graph, cast, f"{value.name}_{former}")
    graph.nodes.insert(0, graph.nodes.pop())
    move_readers(readers, cast)


# Metadata


def set_metadata(model: Model, entries: Mapping[str, str]) -> Model:
    """Return ``model`` with ``entries`` set in its metadata: ``metadata_props`` of an ONNX model, ``rt_info`` of an IR model.

    In ``rt_info`` the key "a/b" is the entry b of the entry a. Raises RuleError [argument.type] for keys and texts that are no
    strings, [name.taken] for keys that dovetail itself writes.
    """
    new = copy_model(model)
    errors: list[DovetailError] = []
    for key, text in entries.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key:
            errors.append(RuleError("argument.type", f"metadata must be strings, got {key!r}: {text!r}"))
        elif key in RESERVED_PROPERTIES or (model.format == "openvino" and key.split("/")[0] == PATH[0]):
            errors.append(RuleError("name.taken", f"the metadata {key!r} is written by dovetail and must not be set"))
    raise_all(errors, "metadata that cannot be set")
    if model.format == "openvino":
        info: list[Any] = _copy_items(model.metadata.get("rt_info", []))
        for key, text in entries.items():
            rt_info.set_value(info, text, *key.split("/"))
        new.metadata["rt_info"] = info
        return new
    if model.format == "onnx":
        new.metadata["metadata_props"] = {**model.metadata.get("metadata_props", {}), **entries}
        return new
    record = dict(model.metadata.get("onnx", {}))
    record["metadata_props"] = {**record.get("metadata_props", {}), **entries}
    new.metadata["onnx"] = record
    return new


def _copy_items(items: list[Any]) -> list[Any]:
    """Copy the items of rt_info, which ``copy_model`` does not copy."""
    return [{**item, "attributes": dict(item["attributes"]), "children": _copy_items(item["children"])} for item in items]


EXTENSIONS.rename_values = rename_values
EXTENSIONS.set_outputs = set_outputs
EXTENSIONS.add_outputs = add_outputs
EXTENSIONS.drop_outputs = drop_outputs
EXTENSIONS.with_constants = with_constants
EXTENSIONS.convert_inputs = convert_inputs
EXTENSIONS.set_metadata = set_metadata
