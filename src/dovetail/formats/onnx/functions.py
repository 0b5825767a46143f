"""Inline model-local functions. Source: onnx.proto, ``FunctionProto``; onnx/docs/IR.md, "Functions".

The documentation and properties of a function are dropped. Each call gives new names to the nodes, values and symbols of the
function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignValue
from dovetail.formats.onnx.messages import present, refuse_rest, texts
from dovetail.formats.onnx.names import label, subgraphs
from dovetail.formats.onnx.reader import (
    FIELDS,
    Call,
    Faults,
    GraphReader,
    Reference,
    call_of,
    plain_domain,
    since_version,
)
from dovetail.formats.onnx.value_info import rename_symbols
from dovetail.formats.onnx.writer import kind_of
from dovetail.ir.limits import Limits, current
from dovetail.ir.types import sizes_in

if TYPE_CHECKING:
    from onnx import FunctionProto

LONGEST_PLACE = 256
"""The maximum length, in characters, of the call path in the position of an inlined node."""

_Names = dict[str, str | None]
_Kept = dict[str, Any]


@dataclass(slots=True)
class ModelFunction:
    """ModelFunction is a model-local function; attributes of its nodes may be References."""

    name: str
    inputs: list[str]
    outputs: list[str]
    parameters: set[str]
    defaults: ForeignNode
    nodes: list[ForeignNode]
    values: dict[str, ForeignValue]
    imports: dict[str, int]


def key_of(proto: FunctionProto) -> Call:
    """Return the key of a function: the domain, name and overload by which a node calls it."""
    domain, name, overload = texts((proto.domain, proto.name, proto.overload), "names of a function")
    return plain_domain(domain), name, overload


def read_function(proto: FunctionProto, reader: GraphReader, imports: dict[str, int]) -> ModelFunction:
    """Read a function with a ``reader`` for the opset imports of the function."""
    fields = present(proto, "function")
    for ignored in ("domain", "overload", "doc_string", "metadata_props", "opset_import"):
        fields.pop(ignored, None)
    name = fields.pop("name", "")
    if not name:
        raise FormatError("name.missing", "a function must have a name")
    inputs = texts(fields.pop("input", ()), "inputs")
    outputs = texts(fields.pop("output", ()), "outputs")
    if len(set(inputs)) < len(inputs):
        raise FormatError("graph.repeated", f"the inputs of function {name!r} must have different names, got {inputs}")
    parameters = texts(fields.pop("attribute", ()), "attributes")
    defaults = ForeignNode(name, 0, [], [], place=f"function {name!r}")
    for attribute in fields.pop("attribute_proto", ()):
        key, value = reader.attribute(attribute, defaults)
        if key in defaults.attributes or key in parameters:
            raise FormatError("attribute.repeated", f"function {name!r} must declare each attribute once, got {key!r} twice")
        defaults.attributes[key] = value
    index = f"function {name!r}/"
    values = reader.values(fields.pop("value_info", ()), index)
    nodes = reader.nodes(fields.pop("node", ()), index, 0)
    refuse_rest(fields, "function")
    return ModelFunction(name, inputs, outputs, {*parameters, *defaults.attributes}, defaults, nodes, values, imports)


def inline(graph: ForeignGraph, functions: Mapping[Call, ModelFunction], imports: Mapping[str, int], faults: Faults) -> None:
    """Replace every call in ``graph`` by the nodes of the called function.

    Raises FormatErrors [graph.cycle], [node.inputs], [graph.dangling], [attribute.unknown], [attribute.type],
    [graph.repeated]; UnsupportedErrors [limits.exceeded].
    """
    _refuse_size(graph, functions)
    _Inliner(graph, functions, imports, faults).run()


def walk(nodes: Iterable[ForeignNode]) -> Iterator[ForeignNode]:
    """Yield every node of ``nodes``, and every node of their subgraphs."""
    for node in nodes:
        yield node
        for _, inner in subgraphs(node):
            yield from walk(inner.nodes)


class _Cost(NamedTuple):
    """_Cost is the cost of a list of nodes after inlining: number of nodes, call depth, number and size of new names."""

    nodes: int = 0
    depth: int = 0
    names: int = 0
    """The number of new names; each new name begins with a prefix for its call."""
    name_bytes: int = 0
    """The total size of the new names in bytes."""

    def in_call(self, prefix: int) -> _Cost:
        """Return the cost of the same nodes within a call whose prefix has ``prefix`` bytes."""
        return self._replace(name_bytes=self.name_bytes + self.names * prefix)

    def plus(self, other: _Cost) -> _Cost:
        return _Cost(
            self.nodes + other.nodes,
            max(self.depth, other.depth),
            self.names + other.names,
            self.name_bytes + other.name_bytes,
        )


def _refuse_size(graph: ForeignGraph, functions: Mapping[Call, ModelFunction]) -> None:
    """Raise an error, before any inlining, for recursive functions and if inlining would exceed the limits."""
    costs: dict[Call, _Cost] = {}
    limits = current().limits

    def measure(nodes: Iterable[ForeignNode], stack: tuple[Call, ...]) -> _Cost:
        nodes_made = names = name_bytes = 0
        total = _Cost()
        for node in walk(nodes):
            if call_of(node) in functions:
                total = total.plus(measure_call(call_of(node), stack).in_call(_prefix_length(node)))
                continue
            own = own_names(node)
            nodes_made, names, name_bytes = nodes_made + 1, names + len(own), name_bytes + sum(map(len, own))
        total = total.plus(_Cost(nodes_made, 0, names, name_bytes))
        return total._replace(depth=total.depth + 1)

    def measure_call(call: Call, stack: tuple[Call, ...]) -> _Cost:
        if call in stack:
            names = " -> ".join(name for _, name, _ in (*stack[stack.index(call) :], call))
            raise FormatError("graph.cycle", f"functions must not be recursive: {names}")
        if call not in costs:
            if len(stack) >= limits.depth:
                raise _too_deep(limits)
            costs[call] = measure(functions[call].nodes, (*stack, call)).plus(_cost_of_symbols(functions[call]))
        return costs[call]

    cost = measure(graph.nodes, ())
    if cost.depth > limits.depth + 1:
        raise _too_deep(limits)
    if cost.nodes > limits.function_nodes + len(graph.nodes):
        raise UnsupportedError(
            "limits.exceeded", f"inlined functions would have {cost.nodes} nodes; {limits.describe('function_nodes')}"
        )
    own = sum(len(name) for node in walk(graph.nodes) if call_of(node) not in functions for name in own_names(node))
    if cost.name_bytes - own > limits.name_bytes:
        raise UnsupportedError(
            "limits.exceeded",
            f"inlined functions would have {cost.name_bytes - own} bytes of names; {limits.describe('name_bytes')}",
        )


def _cost_of_symbols(function: ModelFunction) -> _Cost:
    """Return the cost of the symbol names in the types that a function declares."""
    types = [value.type for value in function.values.values() if value.type is not None]
    names = [str(size) for type in types for size in sizes_in(type) if not isinstance(size, int)]
    return _Cost(0, 0, len(names), sum(map(len, names)))


def own_names(node: ForeignNode) -> list[str]:
    """Return the names that a call copies with a node: the names of the node, of its outputs and of its subgraphs' inputs."""
    inner = (value.key for _, graph in subgraphs(node) for value in graph.inputs)
    return [*filter(None, (node.name, *node.outputs)), *inner]


def _prefix_length(call: ForeignNode) -> int:
    return 1 + len(call.name or max((name for name in call.outputs if name), key=len, default=call.kind))


def _too_deep(limits: Limits) -> UnsupportedError:
    return UnsupportedError(
        "limits.exceeded", f"functions must nest at most {limits.depth} levels deep; {limits.describe('depth')}"
    )


class _Inliner:
    def __init__(
        self, graph: ForeignGraph, functions: Mapping[Call, ModelFunction], imports: Mapping[str, int], faults: Faults
    ) -> None:
        self._main = graph
        self._functions = functions
        self._imports = imports
        self._faults = faults
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._copies = 0

    def run(self) -> None:
        self._take(self._main)
        self._graph(self._main)

    def _take(self, graph: ForeignGraph) -> None:
        self._taken.update(value.key for value in graph.inputs)
        self._taken.update(graph.constants, graph.values)
        for node in walk(graph.nodes):
            self._taken.update(name for name in node.outputs if name)
            for _, inner in subgraphs(node):
                self._taken.update(value.key for value in inner.inputs)
                self._taken.update(inner.constants)

    def _graph(self, graph: ForeignGraph) -> None:
        nodes: list[ForeignNode] = []
        for node in graph.nodes:
            try:
                nodes.extend(self._expand(node, graph))
            except DovetailError as error:
                self._faults.add(error, label(node))
        graph.nodes = nodes

    def _expand(self, node: ForeignNode, graph: ForeignGraph) -> list[ForeignNode]:
        """Return ``[node]``, or the inlined nodes if ``node`` is a call; declarations of inner values are added to ``graph``."""
        for _, inner in subgraphs(node):
            self._graph(inner)
        function = self._functions.get(call_of(node))
        if function is None:
            return [node]
        return [item for inner in self._body(function, node, graph) for item in self._expand(inner, graph)]

    def _body(self, function: ModelFunction, call: ForeignNode, graph: ForeignGraph) -> list[ForeignNode]:
        self._refuse_misfit(function, call)
        prefix = f"{call.name or next(filter(None, call.outputs), function.name)}/"
        names: _Names = dict.fromkeys(function.inputs)
        names.update(zip(function.inputs, call.inputs, strict=False))
        passed: list[tuple[str, str]] = []
        names_of_call: set[str] = set()
        for name, target in zip(function.outputs, call.outputs, strict=False):
            if target is not None and (name in names or name in names_of_call):
                passed.append((name, target))
            elif target is not None:
                names_of_call.add(name)
                names[name] = target
        self._name_outputs(function, names, names_of_call, prefix)
        for name, value in function.values.items():
            target = names.get(name)
            if target is not None and name not in names_of_call and name not in function.inputs:
                graph.values[target] = _rename_value(value, target, prefix)
        copies = [self._copy(node, names, function, call, prefix) for node in function.nodes]
        return copies + [self._identity(function, call, names, name, target) for name, target in passed]

    def _refuse_misfit(self, function: ModelFunction, call: ForeignNode) -> None:
        for actual, declared, side in ((call.inputs, function.inputs, "inputs"), (call.outputs, function.outputs, "outputs")):
            if len(actual) > len(declared):
                raise FormatError(
                    "node.inputs",
                    f"a call of function {function.name!r} must have at most {len(declared)} {side}, got {len(actual)}",
                )
        unknown = [key for key in call.attributes if key not in function.parameters]
        if unknown:
            # The unknown attributes have no effect, because no node of the function refers to them.
            names = ", ".join(map(repr, unknown))
            self._faults.deviate(
                FormatError("attribute.unknown", f"function {function.name!r} has no attribute {names}"), label(call)
            )

    def _name_outputs(self, function: ModelFunction, names: _Names, call_names: set[str], prefix: str) -> None:
        written: set[str] = set(function.inputs)
        for node in function.nodes:
            for name in filter(None, node.outputs):
                if name in written:
                    raise FormatError(
                        "graph.repeated", f"function {function.name!r} must write each value once, got {name!r} twice"
                    )
                written.add(name)
                if name not in call_names:
                    names[name] = self._fresh(prefix + name)
        unwritten = [name for name in function.outputs if name not in written]
        if unwritten:
            raise FormatError("graph.dangling", f"function {function.name!r} must write its output {unwritten[0]!r}")

    def _place(self, call: ForeignNode, node: ForeignNode) -> str:
        """Return the position of a copy of ``node``: the call path, or a number if the path exceeds LONGEST_PLACE."""
        if len(call.place) + len(node.place) < LONGEST_PLACE:
            return f"{call.place}/{node.place}"
        self._copies += 1
        return f"{node.place} #{self._copies}"

    def _fresh(self, base: str) -> str:
        name = base
        while name in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}.{self._counts[base]}"
        self._taken.add(name)
        return name

    def _identity(self, function: ModelFunction, call: ForeignNode, names: _Names, name: str, target: str) -> ForeignNode:
        """Return an Identity that gives a distinct name to a function output that is also an input or another output."""
        source = names[name]
        if source is None:
            raise FormatError(
                "graph.dangling", f"a call of function {function.name!r} must have the input {name!r}, which the function returns"
            )
        opset = function.imports.get("", self._imports.get(""))
        if opset is None:
            raise FormatError(
                "opset.missing",
                f"function {function.name!r} must import an opset with Identity, because it returns its input {name!r}",
            )
        return ForeignNode("Identity", since_version("", "Identity", opset), [source], [target], place=call.place)

    def _copy(self, node: ForeignNode, names: _Names, function: ModelFunction, call: ForeignNode, prefix: str) -> ForeignNode:
        copy = replace(
            node,
            inputs=[_rename_operand(name, names, node) for name in node.inputs],
            outputs=[_rename_operand(name, names, node) for name in node.outputs],
            attributes={},
            name=f"{prefix}{node.name}" if node.name else "",
            place=self._place(call, node),
            metadata=dict(node.metadata),
        )
        for key, value in node.attributes.items():
            if isinstance(value, Reference):
                self._bind(copy, key, value, function, call)
            elif isinstance(value, ForeignGraph):
                copy.attributes[key] = self._subgraph(value, names, function, call, prefix)
            elif isinstance(value, list) and value and isinstance(value[0], ForeignGraph):
                copy.attributes[key] = [self._subgraph(item, names, function, call, prefix) for item in value]
            else:
                copy.attributes[key] = value
        return copy

    def _bind(self, node: ForeignNode, key: str, reference: Reference, function: ModelFunction, call: ForeignNode) -> None:
        """Set attribute ``key`` to the value that the call passes, or else to the default of the function.

        Without either value the attribute stays absent (onnx/docs/IR.md).
        """
        if reference.name not in function.parameters:
            raise FormatError(
                "attribute.reference",
                f"{key!r} must refer to an attribute that {function.name!r} declares, got {reference.name!r}",
            )
        source = call if reference.name in call.attributes else function.defaults
        if reference.name not in source.attributes:
            return
        value = source.attributes[reference.name]
        kind = kind_of(value)
        if reference.kind and kind is not None and _DENSE.get(reference.kind, reference.kind) != kind:
            raise FormatError(
                "attribute.type",
                f"attribute {reference.name!r}, used by {key!r}, must be {FIELDS[reference.kind]}, got {FIELDS[kind]}",
            )
        node.attributes[key] = value
        _carry_notes(source, reference.name, node, key)

    def _subgraph(
        self, graph: ForeignGraph, outer: _Names, function: ModelFunction, call: ForeignNode, prefix: str
    ) -> ForeignGraph:
        names = dict(outer)
        own = [value.key for value in graph.inputs] + list(graph.constants)
        own += [name for node in graph.nodes for name in node.outputs if name]
        for name in own:
            names[name] = self._fresh(prefix + name)

        def rename(value: ForeignValue) -> ForeignValue:
            return _rename_value(value, _new_name_of(value.key, names), prefix)

        return ForeignGraph(
            graph.name,
            inputs=[rename(value) for value in graph.inputs],
            outputs=[rename(value) for value in graph.outputs],
            nodes=[self._copy(node, names, function, call, prefix) for node in graph.nodes],
            constants={
                _new_name_of(key, names): replace(tensor, name=_new_name_of(key, names))
                for key, tensor in graph.constants.items()
            },
            values={_new_name_of(key, names): rename(value) for key, value in graph.values.items() if names.get(key)},
            doc=graph.doc,
            metadata=_rename_in_metadata(graph.metadata, names),
        )


# A sparse attribute has been read as a dense tensor before a reference is bound to it.
_DENSE = {11: 4, 12: 9}


def _rename_operand(name: str | None, names: _Names, node: ForeignNode) -> str | None:
    if name is None:
        return None
    if name not in names:
        raise FormatError("graph.dangling", f"{node.kind} in {node.place} reads {name!r}, which no node produces")
    return names[name]


def _new_name_of(name: str, names: _Names) -> str:
    new_name = names.get(name)
    if new_name is None:
        raise FormatError("graph.dangling", f"no node produces {name!r}")
    return new_name


def _rename_value(value: ForeignValue, name: str, prefix: str) -> ForeignValue:
    return replace(value, key=name, names=(name,), type=rename_symbols(value.type, prefix), metadata=dict(value.metadata))


def _rename_in_metadata(metadata: _Kept, names: _Names) -> _Kept:
    renamed_metadata = dict(metadata)
    for key in ("overridable", "defaults", "inputs", "sparse"):
        if key in renamed_metadata:
            renamed_metadata[key] = [_new_name_of(name, names) for name in renamed_metadata[key]]
    if "notes" in renamed_metadata:
        renamed_metadata["notes"] = {_new_name_of(name, names): note for name, note in renamed_metadata["notes"].items()}
    if "quantization_annotation" in renamed_metadata:
        renamed_metadata["quantization_annotation"] = [
            (names.get(name) or name, {key: names.get(value) or value for key, value in keys.items()})
            for name, keys in renamed_metadata["quantization_annotation"]
        ]
    return renamed_metadata


def _carry_notes(source: ForeignNode, name: str, node: ForeignNode, key: str) -> None:
    """Copy the metadata that ``source`` has for its attribute ``name`` to the metadata of attribute ``key`` of ``node``."""

    def here(path: str) -> str | None:
        return key + path[len(name) :] if path == name or path.startswith(f"{name}[") else None

    for kind in ("notes", "empty", "attribute_docs"):
        moved = {target: note for path, note in source.metadata.get(kind, {}).items() if (target := here(path))}
        if moved:
            node.metadata[kind] = {**node.metadata.get(kind, {}), **moved}
    sparse = [target for path in source.metadata.get("sparse", []) if (target := here(path))]
    if sparse:
        node.metadata["sparse"] = [*node.metadata.get("sparse", []), *sparse]
