"""ExportContext, the state of exporting one model: keys of values, constants and foreign nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Protocol

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.format_traits import FormatTraits
from dovetail.formats.mapping_selection import (
    MappingSelector,
    NoFit,
    SelectedMapping,
    arguments,
    as_attribute,
    constant_or_none,
    export_value,
)
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import ParamMapping
from dovetail.ir.types import INT64_MAX, Tensor, Type, forget_element_sizes


class NodeExporter(Protocol):
    """NodeExporter is the interface through which :class:`ExportContext` exports subgraphs."""

    def export_graph(self, graph: Graph, outer_keys: dict[int, str], own_input_count: int | None = None) -> ForeignGraph:
        """Export a graph; see :meth:`ExportContext.export_graph`."""


class ExportContext:
    """ExportContext is the state of exporting one model; exporters of converter modules receive it.

    ``keys`` maps the ``id`` of each exported value to its key, and ``typed`` maps keys to values and constants. ``foreign`` is
    the foreign graph under construction.
    """

    def __init__(self, format: FormatTraits, selector: MappingSelector, writer: NodeExporter) -> None:
        self.format = format
        self.selector = selector
        self.version_of = selector.version_of
        self.foreign = ForeignGraph()
        self.keys: dict[int, str] = {}
        self.typed: dict[str, Any] = {}
        self._taken_keys: set[str] = set()
        self._reserved_keys: dict[int, str] = {}
        self._key_counts: dict[str, int] = {}
        self._writer = writer

    # Nodes

    def export_by_mapping(self, node: Node) -> ForeignNode:
        """Export a node by the first op mapping that can express the operator. Raises UnsupportedError [op.unsayable]."""
        try:
            selected = self.selector.select(node)
        except NoFit as reason:
            raise UnsupportedError(
                "op.unsayable", f"{self.format.name} cannot express {_operator_text(node.op)}: {reason}"
            ) from None
        return self._apply_mapping(node, selected)

    def _apply_mapping(self, node: Node, selected: SelectedMapping) -> ForeignNode:
        mapping, op, version = selected
        xs = arguments(node.op, node.inputs)
        inputs: list[str | None] = []
        for param in mapping.inputs:
            if op_mapping.field_of(mapping.op, param.name) is not None and xs.get(param.name) is None:
                inputs.append(self.add_attribute_constant(node, param.name, op.__dict__[param.name], param))
            elif param.is_repeated:
                inputs.extend(self.key(x) for x in xs[param.name])
            else:
                inputs.append(self.key(xs.get(param.name)))
        attributes: dict[str, Any] = {}
        empty: dict[str, int] = {}
        for param in mapping.attributes:
            if param.is_ignored:
                continue
            field = op_mapping.field_of(mapping.op, param.name)
            if field is not None:
                value = export_value(param, op.__dict__[param.name], mapping)
                if value == () and param.is_optional and field.default == ():
                    # An empty list is equivalent to an absent attribute.
                    continue
            else:
                x = xs.get(param.name)
                data = None if x is None else constant_or_none(x)
                value = None if data is None else export_value(param, as_attribute(data, op, param.name), mapping)
            if value is None:
                continue
            if field is not None and not self.format.is_text:
                value = op_mapping.with_floats(field.annotation, value)
            if value == () and field is not None and field.annotation in self.format.list_kinds:
                empty[param.foreign_names[0]] = self.format.list_kinds[field.annotation]
            if len(param.foreign_names) == 2:
                half = len(value) // 2
                for name, part in zip(param.foreign_names, (value[:half], value[half:]), strict=True):
                    attributes[name] = self.format.encode_attribute(part)
            else:
                attributes[param.foreign_names[0]] = self.format.encode_attribute(value)
        foreign = self.add_node(node, mapping.domain, mapping.kind, version, inputs, attributes)
        if mapping.op.is_custom and empty:
            # No schema gives the types of these empty lists.
            foreign.metadata["empty"] = empty
        return foreign

    def add_node(
        self, node: Node, domain: str, kind: str, version: int, inputs: list[str | None], attributes: dict[str, Any]
    ) -> ForeignNode:
        """Create the foreign node for ``node``, and declare the outputs of ``node``.

        Raises UnsupportedError [op.unsayable] for too few inputs.
        """
        fixed_count, min_count = self.format.input_arity(domain, kind, version)
        count = min(fixed_count, min_count)
        while len(inputs) > count and inputs[-1] is None:
            inputs.pop()
        inputs = inputs + [None] * (count - len(inputs))
        if len(inputs) < min_count:
            rule = f"{kind}-{version} needs at least {min_count} inputs, got {len(inputs)}"
            raise UnsupportedError("op.unsayable", f"{self.format.name} cannot express {_operator_text(node.op)}: {rule}")
        outputs: list[str | None] = [self.declare(y).key for y in node.outputs]
        return ForeignNode(
            kind, version, inputs, outputs, attributes, domain, node.name, node.location, node.doc, dict(node.metadata)
        )

    def version(self, kind: str, domain: str = "") -> int:
        """Return a foreign operator's version in the target. Raises UnsupportedError [op.unsayable] if the target has none."""
        version = self.version_of(domain, kind)
        if version is None:
            raise UnsupportedError("op.unsayable", f"the target opset has no {kind}")
        return version

    # Subgraphs

    def export_graph(self, graph: Graph, outer_keys: dict[int, str], own_input_count: int | None = None) -> ForeignGraph:
        """Export a graph. Its first ``own_input_count`` inputs (None: all) are declared as inputs of the foreign graph.

        The other inputs stand for values of outer graphs; ``outer_keys`` maps the ``id`` of each such input to its key.
        """
        return self._writer.export_graph(graph, outer_keys, own_input_count)

    def export_subgraph(self, graph: Graph, captures: Sequence[Value | None] | None = None) -> ForeignGraph:
        """Export a subgraph. Its inputs stand for the outer values ``captures``; if that is None, its inputs stay inputs."""
        if captures is None:
            return self.export_graph(graph, {})
        outer_keys = {id(inner): self.keys[id(x)] for inner, x in zip(graph.inputs, captures, strict=True) if x is not None}
        return self.export_graph(graph, outer_keys, 0)

    # Values

    def key(self, value: Value | None) -> str | None:
        return None if value is None else self.keys[id(value)]

    def claim_key(self, name: str) -> str:
        """Return a key that is unique in the whole model: ``name``, or ``name`` with a numeric suffix."""
        key, count = name, self._key_counts.get(name, 1)
        while key in self._taken_keys:
            count += 1
            key = f"{name}_{count}"
        self._key_counts[name] = count
        self._taken_keys.add(key)
        return key

    def reserve_key(self, value: Value) -> None:
        """Keep the name of ``value`` for it, which is exported after other values of that name: an output of the model."""
        self._reserved_keys[id(value)] = self.claim_key(value.name)

    def claim_apart(self) -> Callable[[str], str]:
        """Return a function that maps a key of a subgraph to a key that no value of an enclosing graph has.

        Two subgraphs may use the same key.
        """
        taken = frozenset(self._taken_keys)
        return lambda key: self.claim_key(key) if key in taken else key

    def declare(self, value: Value) -> ForeignValue:
        """Give ``value`` a key, and declare the value in the foreign graph under construction."""
        key = self._reserved_keys.pop(id(value), None) or self.claim_key(value.name)
        self.keys[id(value)] = key
        self.typed[key] = value
        item = self.describe(value)
        self.foreign.values[key] = item
        return item

    def describe(self, value: Value) -> ForeignValue:
        """Return the foreign declaration of a value that has a key."""
        # If the format of origin gives the value no names, or names it after its layer, the exported value has no names either.
        names = value.names if "name" in value.metadata or value.name in value.names else (value.name, *value.names)
        metadata = dict(value.metadata)
        declared = metadata.pop("declared", None)
        type = declared if declared is not None and forget_element_sizes(declared) == value.type else value.type
        return ForeignValue(self.keys[id(value)], declarable_type(type), names, value.doc, metadata)

    def add_attribute_constant(self, node: Node, name: str, value: object, param: ParamMapping | None = None) -> str | None:
        """Add a constant for an attribute value, and return the key of the constant; None if the attribute value is None."""
        if value is None:
            return None
        if isinstance(value, float):
            data: Array = np.asarray(value, dtype=_float_dtype(node).numpy)
        else:
            data = np.asarray(value, dtype=np.int64)
        if param is not None and param.conversion == "vector":
            data = data.reshape(-1)
        return self.add_constant(node, ForeignTensor(dtypes.dtype(data.dtype), data, ""), name)

    def add_constant(self, node: Node, tensor: ForeignTensor, name: str = "value") -> str:
        """Add a constant named after ``node``, and return the key of the constant."""
        key = self.claim_key(f"{node.label}/{name}")
        self.foreign.constants[key] = replace(tensor, name=key)
        item = ForeignValue(key, Tensor(tensor.dtype, tensor.data.shape), (), "", {"name": key})
        self.foreign.values[key] = self.typed[key] = item
        return key


def copy_captured_outputs(graph: Graph) -> None:
    """Insert an Identity for each subgraph output that is an input of the subgraph or repeats another output."""
    b = Builder(graph=graph)
    produced: set[int] = {id(value) for value in graph.inputs}
    for index, value in enumerate(graph.outputs):
        if id(value) in produced:
            graph.outputs[index] = value = b.apply("Identity", value)
        produced.add(id(value))


def declarable_type(type: Type) -> Type:
    """Return ``type`` without its shape if a tensor of that shape has more than 2**63 - 1 elements, which readers refuse."""
    if not isinstance(type, Tensor) or type.shape is None or 0 in type.shape:
        return type
    return type if prod(size for size in type.shape if isinstance(size, int)) <= INT64_MAX else Tensor(type.dtype, None)


def _operator_text(op: Op) -> str:
    """Return an operator with its attributes as text; the underscore of export-only operators (``_Name``) is removed."""
    return str(op).lstrip("_")


def _float_dtype(node: Node) -> dtypes.DType:
    """Return the element type for float constants of ``node``: that of its first input if it is a float type, else f32."""
    type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    dtype = getattr(type, "dtype", None)
    return dtype if dtype is not None and dtype.is_float else dtypes.f32
