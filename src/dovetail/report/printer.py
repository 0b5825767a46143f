"""Printing of graphs as text: one node per line, with types and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.errors import printable
from dovetail.ir.graph import EXTENSIONS, Graph, Model, Node, Value
from dovetail.ir.op import Op, bodies
from dovetail.ops.runtime_attributes import RuntimeAttributes

INLINE_ELEMENTS = 8
"""The maximum number of elements of a constant that is printed as its values."""


def show(model: Model) -> str:
    """Return a model with inferred types as text; large constants are shown by type and shape only."""
    return "\n".join(_model_lines(model)) + "\n"


def _model_lines(model: Model) -> Iterator[str]:
    versions = [f"{domain or 'opset'} {version}" for domain, version in model.versions.items()]
    yield printable(f"# {model.format or 'built here'}{' · ' if versions else ''}{', '.join(versions)}")
    yield from show_graph(model.graph, model.graph.name or "model")


def show_graph(graph: Graph, name: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of one graph."""
    inputs = ", ".join(_value_text(value) for value in graph.inputs)
    outputs = ", ".join(_value_text(value) for value in graph.outputs)
    yield f"{indent}graph {printable(name)}({inputs}) -> ({outputs}):"
    # Small constants are printed as arguments of their readers.
    for node in graph.nodes:
        if is_inlined(node):
            continue
        yield f"{indent}  {_node_text(node)}"
        for body_name, body in bodies(node.op):
            yield from show_graph(body, body_name, indent + "    ")


def is_inlined(node: Node) -> bool:
    """Return whether a node is a small constant, which is printed as an argument of its readers."""
    storage = node.outputs[0].storage if len(node.outputs) == 1 else None
    return storage is not None and storage.size <= INLINE_ELEMENTS and bool(node.outputs[0].uses)


def _value_text(value: Value) -> str:
    return f"{printable(value.name)}: {printable(str(value.type))}"


def _node_text(node: Node) -> str:
    outputs = ", ".join(_value_text(value) for value in node.outputs)
    if node.op.__class__.__name__ in ("Constant", "DefaultInput"):
        return f"{outputs} = {printable(str(node.op))}"
    if isinstance(node.op, RuntimeAttributes):
        return _runtime_text(node, node.op, outputs)
    attributes = _attributes(node.op)
    inputs = ", ".join(_argument(x) for x in node.inputs)
    between = "; " if attributes and inputs else ""
    return _with_comment(node, f"{outputs} = {printable(_kind(node.op))}({inputs}{between}{', '.join(attributes)})")


def _runtime_text(node: Node, op: RuntimeAttributes, outputs: str) -> str:
    """Return a RuntimeAttributes node as the text of its inner operator, with values as attributes."""
    inputs = ", ".join(map(_argument, op.own_inputs(node.inputs)))
    values = map(_argument, op.attribute_inputs(node.inputs))
    attributes = [*(f"{name}={value}" for name, value in zip(op.names, values, strict=True)), *_attributes(op.op)]
    return _with_comment(node, f"{outputs} = {op.title}({inputs}; {', '.join(attributes)})")


def _with_comment(node: Node, text: str) -> str:
    """Append a comment with the node's name, and with the error of a preserved node."""
    fault = getattr(node.op, "fault", None)
    notes = [printable(node.name)] if node.name else []
    if fault is not None:
        notes.append(f"fault [{fault.code}] {printable(fault.message)}")
    return f"{text}  # {'; '.join(notes)}" if notes else text


def _attributes(op: Op) -> list[str]:
    if (foreign := _foreign_attributes(op)) is not None:
        return foreign
    return [
        f"{field.name}={_attribute(op.__dict__[field.name])}"
        for field in op.fields
        if not (op.__dict__[field.name] is field.default or _same(op.__dict__[field.name], field.default))
        and field.annotation != "Graph"
    ]


def _foreign_attributes(op: Any) -> list[str] | None:
    """Return the foreign attributes of a preserved node as text; None for any other operator."""
    if type(op).__name__ != "Foreign":
        return None
    return [f"{printable(name)}={_raw_attribute(value)}" for name, value in op.attributes]


def _raw_attribute(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_raw_attribute, value)) + "]"
    if hasattr(value, "nodes"):
        return f"graph of {len(value.nodes)} node{'s' * (len(value.nodes) != 1)}"
    if hasattr(value, "data"):
        if value.data.size <= INLINE_ELEMENTS:
            return printable(str(value.data.tolist()))
        return f"{value.dtype}[{', '.join(map(str, value.data.shape))}]"
    return printable(str(value))


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and bool(value == default)


def _kind(op: Any) -> str:
    if type(op).__name__ == "Foreign":
        return f"{op.format}:{op.domain + '.' if op.domain else ''}{op.kind}-{op.version}"
    return type(op).__name__


def _attribute(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_attribute(item) for item in value) + "]"
    return printable(str(value))


def _argument(x: Value | None) -> str:
    if x is None:
        return "-"
    if x.storage is not None and x.node is not None and is_inlined(x.node) and (data := x.constant) is not None:
        return printable(str(data.tolist()))
    return printable(x.name)


EXTENSIONS.model_text = show
