"""Merge of two models: outputs of the first become inputs of the second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dovetail.errors import Diagnostic, DovetailError, RuleError, raise_all
from dovetail.formats.exporter import strip_metadata
from dovetail.formats.import_constants import FOLDED
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, move_readers, names_in
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.selection import unknown_name, values_by_name
from dovetail.ir.state import State, state_outputs
from dovetail.ir.state_interface import drop_incomplete_states
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.ir.types import Size, Tensor
from dovetail.ops.constant import Identity
from dovetail.passes.unification import Unifier, substitute_symbols, symbols_in


class Connection(NamedTuple):
    """Connection pairs a value of the first model with the input of the second model that the value replaces."""

    value: Value
    input: Value


@check_keywords
def merge(
    first: Model,
    second: Model,
    connect: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    *,
    prefix_first: str = "",
    prefix_second: str = "",
) -> Model:
    """Merge two models into one in which values of ``first`` are inputs of ``second``.

    ``connect`` maps values of ``first`` to inputs of ``second``; a list of pairs may connect one value with several inputs. By
    default the outputs of ``first`` are connected with the inputs of ``second`` of the same names. An empty ``connect`` connects
    nothing. The merged model has the inputs of ``first`` and the unconnected inputs of ``second``. Its outputs are the
    unconnected outputs of ``first`` and all outputs of ``second``.

    Connected types must be equal under a substitution of symbols, which is applied to both models. ``prefix_first`` and
    ``prefix_second`` precede all names of values, nodes and states. Where both models have a name, the first model keeps it, and
    the second model gets ``name_2`` (``name_3``, ...). Inputs and outputs take precedence over inner values. A renamed input or
    output gives a warning [merge.name]. Symbols of equal names that are not unified are renamed likewise.

    The result has the format and metadata of ``first``, metadata of ``second`` that ``first`` lacks, the larger opset of both,
    and the states of both.

    Raises RuleError [name.unknown] and [merge.connection]: for an unknown input of ``second``, an input that is connected twice,
    a connection from ``second`` to ``first``, and every clash of types. Raises the errors of :func:`infer` where a node of the
    second model rejects the sizes of the first.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.merge(b.model, b.model, {"y": "x"})
    <Model '': (x: f32[n, 2]) -> (y: f32[n, 2]), 2 nodes>
    """
    one, other = copy_model(first), copy_model(second)
    connections = select_connections(one, other, connect)
    substitution = _unify(one, other, connections)
    substitute_symbols(one.graph, substitution)
    substitute_symbols(other.graph, substitution)
    one.warnings = []
    for model, prefix in ((one, prefix_first), (other, prefix_second)):
        if prefix:
            _add_prefix(model, prefix)
    if other.format != one.format:
        _strip_metadata(other.graph)
    consumed = {id(value) for value, _ in connections} - _values_of_states(one)
    _rename_collisions(one, other, connections, consumed)
    _join(one, other, connections, consumed)
    _merge_facts(one, other)
    one.warnings += drop_incomplete_states(one)
    if substitution or any(_is_open(x) and not _is_open(value) for value, x in connections):
        # Connected inputs of the second model may have more specific types now, which its nodes may reject.
        with counting(one.limits):
            infer_graph(one.graph, file=one.file)
    return one


def _strip_metadata(graph: Graph) -> None:
    """Remove the metadata of a format, but keep the FOLDED marks of constants that the import has folded."""
    folded = [value for value in graph.values() if value.metadata.get(FOLDED)]
    strip_metadata(graph)
    for value in folded:
        value.metadata[FOLDED] = True


def _is_open(value: Value) -> bool:
    return isinstance(value.type, Tensor) and (value.type.dtype is None or value.type.shape is None)


# Connections


def select_connections(
    first: Model, second: Model, connect: Mapping[str, str] | Iterable[tuple[str, str]] | None
) -> list[Connection]:
    """Return the connections that ``connect`` names, by default those of equal names.

    Raises RuleError [name.unknown], [merge.connection].
    """
    inputs = _by_all_names(second.inputs)
    if connect is None:
        outputs = _by_all_names(first.outputs)
        own_state_outputs = state_outputs(first)
        pairs = [(name, name) for name, value in outputs.items() if name in inputs and value.name not in own_state_outputs]
        pairs = list({id(inputs[name]): (name, name) for name, _ in pairs}.values())
        if not pairs:
            listed = ", ".join(repr(value.name) for value in second.inputs)
            message = f"without `connect`, an output of the first model must have the name of an input of the second: {listed}"
            raise RuleError("merge.connection", message)
    else:
        pairs = list(connect.items() if isinstance(connect, Mapping) else connect)
    values = values_by_name(first.graph)
    errors: list[DovetailError] = []
    connections: dict[int, Connection] = {}
    for name, input_name in pairs:
        is_backward = name in _by_all_names(second.outputs) and input_name in _by_all_names(first.inputs)
        if is_backward and (name not in values or input_name not in inputs):
            actual = f"the output {name!r} of the second and the input {input_name!r} of the first"
            message = f"a connection must lead from the first model to the second, got {actual}"
            errors.append(RuleError("merge.connection", message))
            continue
        if name not in values:
            errors.append(unknown_name(first, values, name))
        if input_name not in inputs:
            suggestion = closest(input_name, inputs)
            message = f"the second model has no input {input_name!r}{suggestion}"
            errors.append(RuleError("merge.connection", message, file=second.file))
        elif id(inputs[input_name]) in connections:
            message = f"the input {input_name!r} of the second model must be connected once"
            errors.append(RuleError("merge.connection", message, file=second.file))
        elif name in values:
            connections[id(inputs[input_name])] = Connection(values[name], inputs[input_name])
    raise_all(errors, "faults of the connections")
    return list(connections.values())


def _by_all_names(values: list[Value]) -> dict[str, Value]:
    names = {name: value for value in values for name in value.names}
    return {**names, **{value.name: value for value in values}}


# Types


def _unify(first: Model, second: Model, connections: list[Connection]) -> dict[str, Size]:
    """Rename symbols of ``second`` whose names ``first`` has, and return the substitution that makes connected types equal.

    Raises RuleError [merge.connection] with every clash.
    """
    known = symbols_in(first.graph)
    own = symbols_in(second.graph)
    renamed: dict[str, Size] = {}
    taken = {*known, *own}
    for name, symbol in own.items():
        if name in known:
            free = _free_name(name, taken)
            taken.add(free)
            renamed[name] = symbolic.symbol(free, *symbolic.bounds(symbol))
    substitute_symbols(second.graph, renamed)
    unifier = Unifier()
    errors: list[DovetailError] = []
    for value, x in connections:
        try:
            unifier.unify_types(value.type, x.type)
        except RuleError as error:
            message = f"{value.name!r} cannot be the input {x.name!r} of the second model: {error.message}"
            errors.append(RuleError("merge.connection", message))
    raise_all(errors, "clashes of types")
    return unifier.substitution


def _free_name(name: str, taken: set[str]) -> str:
    count = 2
    while f"{name}_{count}" in taken:
        count += 1
    return f"{name}_{count}"


# Names


def _add_prefix(model: Model, prefix: str) -> None:
    """Put ``prefix`` before the names of all values, nodes and states of ``model``."""
    graph = model.graph
    names = {value: f"{prefix}{value.name}" for value in graph.values()}
    for value, name in names.items():
        # The first read creates symbols of unknown elements, named after the value: read before the renaming.
        _ = value.value
        value.name = name
        value.names = tuple(f"{prefix}{alias}" for alias in value.names) or (name,)
    graph._names = {}
    for name in names.values():
        graph.claim(name)
    for node in graph.nodes:
        node.name = node.name and f"{prefix}{node.name}"
    model.states = [
        State(
            f"{prefix}{state.variable}",
            f"{prefix}{state.input}",
            f"{prefix}{state.output}",
            None if state.initial is None else f"{prefix}{state.initial}",
        )
        for state in model.states
    ]


def _values_of_states(model: Model) -> set[int]:
    """Return the ids of the model outputs that belong to states; these stay outputs where they are connected."""
    names = state_outputs(model)
    return {id(value) for value in model.outputs if value.name in names}


def _rename_collisions(first: Model, second: Model, connections: list[Connection], consumed: set[int]) -> None:
    """Rename values, nodes and states so that their names are unique in both models; inputs and outputs have precedence."""
    connected = {id(x) for _, x in connections}
    outputs = [value for value in first.outputs if id(value) not in consumed]
    interface = {id(value): value for value in (*first.inputs, *outputs)}
    free = [value for value in second.inputs if id(value) not in connected]
    other_interface = {id(value): value for value in (*free, *second.outputs) if id(value) not in connected}
    taken = {name for value in interface.values() for name in (value.name, *value.names)}
    every = taken | names_in(first.graph) | names_in(second.graph)
    renamed: dict[str, str] = {}
    for value in other_interface.values():
        name = _claim(value, taken, every)
        if name is not None:
            renamed[name] = value.name
            message = f"the name {name!r} of the second model is {value.name!r} in the merged model: the first has that name too"
            first.warnings.append(Diagnostic("merge.name", message, file=second.file, severity="warning"))
    for graph, ends in ((first.graph, interface), (second.graph, other_interface)):
        for value in graph.values():
            if id(value) not in ends and id(value) not in connected:
                _claim(value, taken, every)
    _rename_nodes(first.graph, second.graph)
    variables = {state.variable for state in first.states}
    states = []
    for state in second.states:
        variable = _free_name(state.variable, variables) if state.variable in variables else state.variable
        variables.add(variable)
        initial = None if state.initial is None else renamed.get(state.initial, state.initial)
        x, y = renamed.get(state.input, state.input), renamed.get(state.output, state.output)
        states.append(State(variable, x, y, initial))
    second.states = states


def _claim(value: Value, taken: set[str], every: set[str]) -> str | None:
    """Add the names of ``value`` to ``taken``, and rename the value if its name is taken. Return the old name of a renamed value.

    A new name is not among ``every``. Aliases that are taken are dropped.
    """
    old = value.name
    if old in taken:
        _ = value.value
        value.name = _free_name(old, every)
        every.add(value.name)
        value.names = tuple(value.name if name == old else name for name in value.names) or (value.name,)
    value.names = tuple(name for name in value.names if name == value.name or name not in taken)
    taken.update((value.name, *value.names))
    return old if old != value.name else None


def _rename_nodes(first: Graph, second: Graph) -> None:
    """Rename the nodes of ``second`` whose names also occur in ``first``, since ONNX requires unique node names."""
    taken = {node.name for node in first.nodes if node.name}
    every = taken | {node.name for node in second.nodes}
    for node in second.nodes:
        if node.name in taken:
            node.name = _free_name(node.name, every)
            every.add(node.name)


# The merged graph


def _join(first: Model, second: Model, connections: list[Connection], consumed: set[int]) -> None:
    """Move the nodes of ``second`` into the graph of ``first``."""
    graph, other = first.graph, second.graph
    source_of = {id(x): value for value, x in connections}
    outputs = [value for value in graph.outputs if id(value) not in consumed]
    graph.nodes += other.nodes
    _merge_graph_metadata(graph, other)
    for value, x in connections:
        if _is_open(value) and not _is_open(x):
            value.type = x.type
        move_readers(x, value)
    graph.inputs += [value for value in other.inputs if id(value) not in source_of]
    graph._names = {}
    for value in graph.values():
        graph.claim(value.name)
    for name, count in other._released.items():
        graph._released[name] = max(graph._released.get(name, 0), count)
    graph.outputs = outputs
    b = Builder(graph=graph)
    present = {id(value) for value in outputs}
    for value in other.outputs:
        source = source_of.get(id(value))
        if source is not None:
            # A connected input of the second model is also an output of the second model.
            has_name = source.name == value.name and id(source) not in present
            value = source if has_name else b.add(Identity(), source, names=[value.name])[0]
            value.names = value.names or (value.name,)
        graph.outputs.append(value)
        present.add(id(value))


def _merge_graph_metadata(graph: Graph, other: Graph) -> None:
    """Merge the metadata of ``other`` into ``graph``: lists are joined; entries of ``graph`` otherwise have precedence."""
    merged = {**other.metadata, **graph.metadata}
    for name, items in other.metadata.items():
        mine = graph.metadata.get(name)
        if isinstance(mine, list) and isinstance(items, list):
            merged[name] = [*mine, *items]
        elif isinstance(mine, dict) and isinstance(items, dict):
            merged[name] = {**items, **mine}
    merged.pop("inputs", None)
    graph.metadata = merged


# Versions, metadata and states


def _merge_facts(first: Model, second: Model) -> None:
    """Merge versions, metadata and states into ``first``."""
    for domain, version in second.versions.items():
        first.versions[domain] = max(version, first.versions.get(domain, 0))
    first.states = [*first.states, *second.states]
    first.doc = first.doc or second.doc
    if first.format == second.format:
        _merge_metadata(first, second)
    elif second.metadata.get("metadata_props") or second.metadata.get("rt_info"):
        message = f"the metadata of the second model is dropped, because its format is {second.format} and not {first.format}"
        first.warnings.append(Diagnostic("merge.metadata", message, file=second.file, severity="warning"))


def _merge_metadata(first: Model, second: Model) -> None:
    """Add the metadata of ``second`` that ``first`` lacks; warn where both models have a key with different texts."""
    for name, item in second.metadata.items():
        mine = first.metadata.get(name)
        if isinstance(mine, dict) and isinstance(item, dict):
            different = [key for key in mine if key in item and mine[key] != item[key]]
            first.metadata[name] = {**item, **mine}
            for key in different:
                message = (
                    f"the metadata {key!r} of the second model is dropped, because the first has other metadata of that name"
                )
                first.warnings.append(Diagnostic("merge.metadata", message, file=second.file, severity="warning"))
        elif isinstance(mine, list) and isinstance(item, list):
            first.metadata[name] = [*mine, *(entry for entry in item if entry not in mine)]
        elif name == "ir_version" and isinstance(mine, int):
            first.metadata[name] = max(mine, item)
        else:
            first.metadata.setdefault(name, item)
