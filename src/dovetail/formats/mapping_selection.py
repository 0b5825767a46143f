"""Select the op mapping that exports a core operator, and the equivalent form of the operator that the mapping can express."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, NamedTuple

from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.format_traits import FormatTraits, VersionOf
from dovetail.formats.import_node import constant_of
from dovetail.ir import op_mapping
from dovetail.ir.arrays import Array
from dovetail.ir.attribute_types import REQUIRED
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import OpMapping, ParamMapping
from dovetail.ops.runtime_attributes import RuntimeAttributes

RewriteResult = Value | Sequence[Value | None] | None
"""A result of a rewrite: the values that replace a node's outputs; None if the rewrite leaves the node unchanged."""

Arguments = dict[str, Any]
"""Maps the names of inputs in a signature to the inputs: a Value, None if absent, or a list for a repeated input."""


class NoFit(Exception):
    """NoFit reports that an op mapping cannot express a node; the message is the reason."""


class SelectedMapping(NamedTuple):
    """SelectedMapping is an op mapping, the form of the operator that it can express, and the version of the foreign operator."""

    mapping: OpMapping
    op: Op
    version: int


class MappingSelector:
    """MappingSelector selects op mappings for one target: a format, and a version of each foreign operator."""

    def __init__(self, format: FormatTraits, version_of: VersionOf) -> None:
        self.format = format
        self.version_of = version_of
        self._selected: dict[Node, tuple[list[object], SelectedMapping]] = {}

    def select(self, node: Node) -> SelectedMapping:
        """Return the mapping that exports ``node``. Raises NoFit.

        Three forms of the operator are tried: the original, the canonical form, and the canonical form with the attributes that a
        mapping lacks or fixes at the mapping's values. Selections are cached; a cached selection is valid as long as operator,
        inputs and types of the node are the same objects.
        """
        types = (value.type for value in (*node.inputs, *node.outputs) if value is not None)
        state: list[object] = [node.op, *node.inputs, *types]
        old_state, selected = self._selected.get(node, ((), None))
        if selected is None or len(state) != len(old_state) or not all(map(is_, state, old_state)):
            selected = self._select(node)
            self._selected[node] = state, selected
        return selected

    def _select(self, node: Node) -> SelectedMapping:
        reason: NoFit | None = None
        inner, runtime_names = (node.op.op, node.op.names) if isinstance(node.op, RuntimeAttributes) else (node.op, ())
        mappings = self.format.export_mappings(type(inner))
        if not mappings:
            raise NoFit(
                self.format.unsupported_reasons.get(
                    type(inner).__name__, "the format has no equivalent operator that dovetail knows"
                )
            )
        canonical = inner if runtime_names else inner.canonical(*node.inputs)
        first: SelectedMapping | None = None
        for form in ("original",) if runtime_names else ("original", "canonical", "reduced"):
            for mapping in mappings:
                version = self.version_of(mapping.domain, mapping.kind)
                if version not in mapping.versions:
                    state = f"{mapping.kind}-{version} is unknown to dovetail" if version else f"the target has no {mapping.kind}"
                    reason = reason or NoFit(state)
                    continue
                op = inner if form == "original" else canonical if form == "canonical" else reduce_to(canonical, mapping, node)
                try:
                    _check_fit(node, op, mapping)
                except NoFit as error:
                    reason = error
                    continue
                assert version is not None
                selected = SelectedMapping(mapping, op, version)
                if len(mappings) == 1 or self.supports_types(node, selected):
                    return selected
                first = first or selected
            if first is not None:
                return first
        assert reason is not None
        raise reason

    def supports_types(self, node: Node, selected: SelectedMapping) -> bool:
        """Return whether the foreign operator supports the types of ``node``."""
        mapping = selected.mapping
        foreign = ForeignNode(mapping.kind, selected.version, [], [], domain=mapping.domain)
        try:
            self.format.check_types(foreign, _foreign_inputs(mapping, node), node.outputs)
        except RuleError:
            return False
        return True


def _check_fit(node: Node, op: Op, mapping: OpMapping) -> None:
    """Raise NoFit if ``mapping`` cannot express ``op`` with the inputs of ``node``."""
    for name, texts in mapping.fixed:
        field = op_mapping.field_of(mapping.op, name)
        if field is not None and op.__dict__[name] not in [op_mapping.fixed_value(field, text) for text in texts]:
            raise NoFit(f"{mapping.kind} implies {name}={texts[0]}")
    for field in op.fields:
        if field.name != "outputs" and not mapping.has_param(field.name) and op.__dict__[field.name] != field.default:
            raise NoFit(f"{mapping.kind} has no {field.name}={op.__dict__[field.name]!r}")
    inputs = arguments(node.op, node.inputs)
    for name, x in inputs.items():
        if x is not None and x != [] and not mapping.has_param(name):
            raise NoFit(f"{mapping.kind} has no input {name!r}")
    if isinstance(node.op, RuntimeAttributes):
        _check_runtime_attributes(node.op.names, inputs, mapping)
    _check_inputs(op, inputs, mapping)
    _check_attributes(op, inputs, mapping)


def _check_inputs(op: Op, inputs: Arguments, mapping: OpMapping) -> None:
    for param in mapping.inputs:
        is_attribute = op_mapping.field_of(op.__class__, param.name) is not None
        if is_attribute and inputs.get(param.name) is not None:
            continue
        if not is_attribute and not param.is_repeated:
            if inputs.get(param.name) is None and not param.is_optional and param.default is None:
                raise NoFit(f"{mapping.kind} needs the input {param.name!r}")
            if param.conversion == "enlarging" and _has_less_than_one(inputs.get(param.name)):
                raise NoFit(f"{mapping.kind} needs {param.name} of at least 1")
            if param.conversion == "planar" and _has_other_rank(inputs.get(param.name), 4):
                raise NoFit(f"{mapping.kind} needs {param.name} of rank 4")
        elif param.conversion:
            export_value(param, op.__dict__.get(param.name), mapping)


def _has_less_than_one(x: Value | None) -> bool:
    data = None if x is None else constant_or_none(x)
    return data is not None and bool((data < 1).any())


def _has_other_rank(x: Value | None, rank: int) -> bool:
    return x is not None and x.shape is not None and len(x.shape) != rank


def _check_attributes(op: Op, inputs: Arguments, mapping: OpMapping) -> None:
    for param in mapping.attributes:
        if param.is_ignored:
            continue
        if op_mapping.field_of(op.__class__, param.name) is not None:
            export_value(param, op.__dict__[param.name], mapping)
        elif inputs.get(param.name) is None:
            if not param.is_optional:
                raise NoFit(f"{mapping.kind} needs {param.name!r}")
        else:
            data = constant_or_none(inputs[param.name])
            if data is None:
                raise NoFit(f"{mapping.kind} needs a constant {param.name!r}")
            export_value(param, as_attribute(data, op, param.name), mapping)


def _check_runtime_attributes(names: Sequence[str], inputs: Arguments, mapping: OpMapping) -> None:
    """Raise NoFit if an attribute in ``names``, which is computed at run time, is not an input of the foreign operator."""
    params = {param.name: param for param in mapping.inputs}
    for name in names:
        if name not in params:
            raise NoFit(f"{mapping.kind} needs a constant {name!r}")
        try:
            op_mapping.check_rank(params[name], inputs[name].shape)
        except FormatError as error:
            raise NoFit(error.message) from None


def export_value(param: ParamMapping, value: object, mapping: OpMapping) -> Any:
    """Convert a core attribute value to a foreign attribute value. Raises NoFit if the foreign operator lacks the value."""
    if value is None:
        if not param.is_optional:
            raise NoFit(f"{mapping.kind} needs {param.name!r}")
        return None
    try:
        return op_mapping.export_value(param, value)
    except KeyError:
        raise NoFit(f"{mapping.kind} has no {param.name}={value!r}") from None


def reduce_to(canonical: Op, mapping: OpMapping, node: Node) -> Op:
    """Return ``canonical`` with the attributes that ``mapping`` fixes or lacks set to the mapping's values.

    Returns ``canonical`` unchanged if the changed operator would not be equivalent for the inputs of ``node``.
    """
    changes = {
        field.name: field.default
        for field in canonical.fields
        if field.name != "outputs" and field.default is not REQUIRED and not mapping.has_param(field.name)
    }
    for name, texts in mapping.fixed:
        field = op_mapping.field_of(mapping.op, name)
        if field is not None and name != "outputs":
            changes[name] = op_mapping.fixed_value(field, texts[0])
    reduced = canonical.with_(**changes)
    return reduced if reduced != canonical and reduced.canonical(*node.inputs) == canonical else canonical


def _foreign_inputs(mapping: OpMapping, node: Node) -> list[Value | None]:
    """Return the inputs of ``node`` in the order of the foreign operator; None for each input that is a core attribute."""
    inputs = arguments(node.op, node.inputs)
    xs: list[Value | None] = []
    for param in mapping.inputs:
        x = inputs.get(param.name)
        xs.extend(x if isinstance(x, list) else [x])
    return xs


def arguments(op: Op, xs: Sequence[Value | None]) -> Arguments:
    """Map the names of inputs in the signature of ``op`` to the inputs; a repeated input is a list."""
    inputs: Arguments = {}
    position = 0
    for port in op.signature.inputs:
        if port.repeated:
            inputs[port.name] = list(xs[position:])
            position = len(xs)
        else:
            inputs[port.name] = xs[position] if position < len(xs) else None
            position += 1
    return inputs


def constant_or_none(x: Value) -> Array | None:
    """Return the elements of ``x`` if it is constant; None if it is computed at run time."""
    try:
        return constant_of(x, "")
    except UnsupportedError:
        return None


def as_attribute(data: Array, op: Op, name: str) -> Any:
    """Return a constant input as an attribute value: a tuple of numbers if shape rules read the input, otherwise one number.

    A constant of several elements is always a tuple.
    """
    is_list = next(port.host for port in op.signature.inputs if port.name == name)
    return data.reshape(()).item() if data.ndim == 0 or (data.size == 1 and not is_list) else tuple(data.tolist())
