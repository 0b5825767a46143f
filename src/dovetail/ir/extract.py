"""Extraction of the part of a model between given input and output values."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.errors import Diagnostic, DovetailError, RuleError, raise_all
from dovetail.ir.edit import copy_model, copy_node, copy_value
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.selection import Scope, names_of, select_scope
from dovetail.ir.state_interface import drop_incomplete_states
from dovetail.ir.suggestions import check_keywords


@check_keywords
def extract(model: Model, inputs: str | Iterable[str] | None = None, outputs: str | Iterable[str] | None = None) -> Model:
    """Extract the part of ``model`` that computes ``outputs`` from ``inputs``, as a new model that shares constant data.

    ``inputs`` and ``outputs`` are names of any values. The default inputs are the graph inputs that the outputs depend on, the
    default outputs all graph outputs. If the outputs depend on further graph inputs, these stay inputs, each with a warning
    [extract.input] in the ``warnings`` of the part. A state whose input or output is not in the part is dropped, with a warning
    [state.incomplete].

    Types are copied from ``model`` and not inferred anew. An input that shapes depend on must therefore be passed the elements
    that the value has in ``model``. A value of a subgraph of If or Loop is named "node/value". The part is then one run of that
    subgraph: the subgraph's inputs become inputs of the part, captured constants become constants.

    Raises RuleError [name.unknown], [name.ambiguous], [name.scope] (values of several graphs), [extract.path] (an input that no
    output depends on), each with every such name in ``diagnostics``.

    >>> with dovetail.Builder() as b: y, z = b.output("y", b.Exp(x := b.input("x", "f32", ("n",)))), b.output("z", b.Relu(x))
    >>> dovetail.extract(b.model, outputs="z")
    <Model '': (x: f32[n]) -> (z: f32[n]), 1 nodes>
    """
    input_names = [] if inputs is None else names_of(inputs)
    output_names = [value.name for value in model.outputs] if outputs is None else names_of(outputs)
    if not output_names:
        raise RuleError("extract.path", "a part needs at least one output, got none", file=model.file)
    scope, selected = select_scope(model, [*input_names, *output_names])
    sources = _distinct(selected[: len(input_names)])
    targets = _distinct(selected[len(input_names) :])
    nodes, needed = _nodes_between(scope.graph, sources, targets)
    _check_paths(model, sources, targets, needed)
    cut = {id(value) for value in sources}
    constants = _captured_constants(scope, model.graph)
    remaining = [value for value in scope.graph.inputs if id(value) in needed and id(value) not in cut]
    captured = [value for value in remaining if id(value) in constants]
    extra = [value for value in remaining if id(value) not in constants]
    part = copy_model(model, _copy_part(scope.graph, [*sources, *extra], targets, captured, constants, nodes))
    if scope.node is not None:
        part.graph.name = scope.path
    part.warnings = []
    if inputs is not None:
        part.warnings += [_input_warning(value, model) for value in extra]
    part.warnings += drop_incomplete_states(part)
    return part


def _distinct(values: list[Value]) -> list[Value]:
    return list({id(value): value for value in values}.values())


def _nodes_between(graph: Graph, sources: list[Value], targets: list[Value]) -> tuple[list[Node], set[int]]:
    """Return the nodes that compute ``targets`` from ``sources``, and the identities of the targets and of all values read."""
    cut = {id(value) for value in sources}
    needed = {id(value) for value in targets}
    nodes = []
    for node in reversed(graph.nodes):
        if any(id(y) in needed and id(y) not in cut for y in node.outputs):
            nodes.append(node)
            needed.update(id(x) for x in node.inputs if x is not None)
    return nodes[::-1], needed


def _check_paths(model: Model, sources: list[Value], targets: list[Value], needed: set[int]) -> None:
    """Raise RuleError [extract.path] for each input that the outputs do not depend on, or that is an output itself."""
    errors: list[DovetailError] = []
    ends = ", ".join(repr(value.name) for value in targets)
    target_ids = {id(value) for value in targets}
    for value in sources:
        if id(value) not in needed:
            message = f"the outputs {ends} must depend on the input {value.name!r} by a path that the other inputs do not cut"
        elif id(value) in target_ids:
            message = f"the value {value.name!r} must not be both an input and an output of the part"
        else:
            continue
        errors.append(RuleError("extract.path", message, file=model.file))
    raise_all(errors, "inputs of the part that its outputs do not depend on")


def _captured_constants(scope: Scope, graph: Graph) -> dict[int, Node]:
    """Return the Constants of outer graphs that a subgraph captures, by the identities of the subgraph's inputs."""
    if scope.node is None:
        return {}
    node = scope.node
    inner = scope.graph.inputs
    count = len(node.inputs) - node.op.first_capture
    if not count:
        return {}
    pairs = zip(inner[-count:], node.inputs[-count:], strict=True)
    return {
        id(x): outer.node for x, outer in pairs if outer is not None and outer.node is not None and outer.constant is not None
    }


def _copy_part(
    graph: Graph, inputs: list[Value], outputs: list[Value], captured: list[Value], constants: dict[int, Node], nodes: list[Node]
) -> Graph:
    """Copy ``nodes`` into a new graph with these inputs and outputs; ``captured`` inputs become copies of ``constants``."""
    part = Graph(graph.name)
    part.doc, part.metadata, part._released = graph.doc, dict(graph.metadata), dict(graph._released)
    copies: dict[int, Value] = {}
    own_inputs = {id(value) for value in graph.inputs}
    for value in inputs:
        new = copy_value(value, copies)
        if id(value) not in own_inputs:
            # The caller of the part passes the elements of this value, so that they are unknown here.
            new.value = None
            new.names = new.names or (new.name,)
        part.inputs.append(new)
    cut = {id(value): copies[id(value)] for value in inputs}
    for value in captured:
        constant = copy_node(constants[id(value)], {})
        copies[id(value)] = constant.outputs[0]
        constant.outputs[0].name = value.name
        part.nodes.append(constant)
    unread: list[tuple[Value, str]] = []
    for node in nodes:
        copy = copy_node(node, copies)
        for y, new in zip(node.outputs, copy.outputs, strict=True):
            if id(y) in cut:
                # Another output of the node is needed; output y itself is an input of the part.
                copies[id(y)] = cut[id(y)]
                new.names, new.metadata = (), {}
                unread.append((new, y.name))
        part.nodes.append(copy)
    part.outputs = [copies[id(value)] for value in outputs]
    _forget_elements(part, [value for value in inputs if id(value) not in own_inputs], cut)
    for new in part.outputs:
        new.names = new.names or (new.name,)
    _claim_names(part, unread)
    return part


def _forget_elements(part: Graph, sources: list[Value], cut: dict[int, Value]) -> None:
    """Remove the known elements of values that were computed from the elements of values that are inputs of the part."""
    unknown = {id(cut[id(value)]) for value in sources if value._value is not None or value.constant is not None}
    if not unknown:
        return
    for node in part.nodes:
        if any(id(x) in unknown for x in node.inputs):
            for y in node.outputs:
                y.value = None
                unknown.add(id(y))


def _claim_names(part: Graph, unread: list[tuple[Value, str]]) -> None:
    """Reserve the names of all values. Values in ``unread`` are named like inputs of the part, and get the next free names."""
    others = {id(value) for value, _ in unread}
    for value in part.values():
        if id(value) not in others:
            part.claim(value.name)
    for value, name in unread:
        value.name = part.claim(name)


def _input_warning(value: Value, model: Model) -> Diagnostic:
    message = f"the outputs also depend on the input {value.name!r}, which stays an input of the part"
    return Diagnostic("extract.input", message, file=model.file, severity="warning")
