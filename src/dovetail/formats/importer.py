"""Import a foreign model as a graph: each foreign node becomes equivalent core operators with inferred types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dovetail.errors import Diagnostic, DovetailError, EngineError, FormatError, RuleError, UnsupportedError, raise_all
from dovetail.formats.declared_types import declared_warning
from dovetail.formats.dialect import Dialect, ImportResult
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import Reading, apply_mapping
from dovetail.formats.import_scope import ImportScope
from dovetail.formats.raw_subgraphs import captured_keys
from dovetail.formats.undeclared_domains import refuse_ambiguous
from dovetail.ir import symbolic
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import connect, disconnect, rename
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.limits import counting
from dovetail.ir.op import DEFAULT_NEEDED, REGISTRY, UNFORESEEN, Op, failure, faults, infer_types, infer_values, output_count
from dovetail.ir.types import UNKNOWN, Tensor, Type, Unknown, forget_element_sizes, is_shape_of
from dovetail.storage.deviations import Deviations


def import_model(foreign: ForeignModel, dialect: Dialect, deviations: Deviations | None = None) -> Model:
    """Import ``foreign`` with every type inferred.

    ``deviations`` collects departures from the format that all readers which accept the file interpret alike. Its ``faults``
    collects the errors of nodes that break a rule of their operator, or that dovetail does not support exactly. Such a node is
    preserved as a Foreign operator, whose ``fault`` is the error. Without ``deviations``, all deviations and faults are errors.
    Raises the first error, with all errors of the same pass in its ``diagnostics``.
    """
    importer = GraphImporter(dialect, foreign.graph, file=foreign.file, deviations=deviations)
    scope = importer.scope
    scope.undeclared_domains = frozenset(foreign.metadata.pop("undeclared_domains", ()))
    with counting() as usage, usage.cache_inferences():
        graph = importer.import_graph()
    refused = scope.errors if deviations is not None else [*scope.errors, *scope.faults]
    raise_all(refused, f"faults in {foreign.file or 'the model'}")
    model = Model(graph, format=foreign.format, versions=foreign.versions, file=foreign.file)
    model.metadata, model.producer, model.doc = dict(foreign.metadata), foreign.producer, foreign.doc
    model.warnings = scope.warnings + _fault_warnings(graph, scope.faults, foreign.file)
    if deviations is not None:
        deviations.faults += scope.faults
    model.states = scope.variables.add_states(scope.b, foreign.file)
    return model


def _fault_warnings(graph: Graph, node_faults: list[DovetailError], file: str | None) -> list[Diagnostic]:
    """Return warnings for preserved nodes and for faulty subgraphs; only a run that executes one raises its error."""
    subgraph_faults = [fault for node in graph.nodes for fault in faults(node.op)]
    items = [item for fault in (*node_faults, *subgraph_faults) for item in fault.diagnostics]
    return list(dict.fromkeys(replace(item, file=item.file or file, severity="warning") for item in items))


class GraphImporter:
    """GraphImporter imports one graph. A subgraph is imported by another GraphImporter, whose scope has an ``outer`` scope."""

    def __init__(
        self,
        dialect: Dialect,
        foreign: ForeignGraph,
        *,
        file: str | None = None,
        outer: ImportScope | None = None,
        deviations: Deviations | None = None,
    ) -> None:
        self.dialect = dialect
        self.scope = ImportScope(foreign, is_text=dialect.is_text, file=file, outer=outer, deviations=deviations)
        self.graph = self.scope.graph
        self._mark = 0

    def import_graph(self) -> Graph:
        """Import the whole graph. Errors are collected in the scope; a RecursionError is raised."""
        scope = self.scope
        _import_inputs(scope)
        _import_constants(scope)
        for node in scope.foreign.nodes:
            try:
                self._import_node(node)
            except RecursionError:
                raise
            except DovetailError as error:
                self._preserve_or_report(node, error)
            except UNFORESEEN as error:
                self._preserve_or_report(node, failure(error))
        _import_outputs(scope)
        scope.constants.remove_folded_constants()
        return self.graph

    def import_subgraph(self, foreign: ForeignGraph, captures: list[Value]) -> Graph:
        """Import a closed subgraph; see :meth:`ImportContext.import_subgraph`."""
        inner = GraphImporter(self.dialect, foreign, file=self.scope.file, outer=self.scope)
        inner.import_graph()
        graph, own_count = inner.graph, len(foreign.inputs)
        inner_captures = inner.scope.captures
        input_of = {id(outer): value for outer, value in zip(inner_captures, graph.inputs[own_count:], strict=True)}
        del graph.inputs[own_count:]
        for outer in captures:
            value = input_of.pop(id(outer), None)
            graph.inputs.append(Value(graph.claim(outer.name), outer.type) if value is None else value)
        for outer in inner_captures:
            if id(outer) in input_of:
                captures.append(outer)
                graph.inputs.append(input_of[id(outer)])
        return graph

    def apply_mappings(self, node: ForeignNode, inputs: list[Value | None]) -> Reading:
        """Import ``node`` by the first op mapping that accepts it; if none does, raise the error of the first mapping."""
        first_error: DovetailError | None = None
        for mapping in self.dialect.mappings_for(node):
            deviations: list[DovetailError] = []
            try:
                reading = apply_mapping(self.scope, mapping, node, inputs, deviations.append)
            except DovetailError as error:
                first_error = first_error or error
                continue
            if deviations and self.scope.deviations is None:
                # If the import does not collect deviations, a mapping with deviations does not accept the node.
                first_error = first_error or deviations[0]
                continue
            for deviation in deviations:
                self.scope.deviate(deviation, node)
            return reading
        assert first_error is not None
        raise first_error

    # One node

    def _preserve_or_report(self, node: ForeignNode, error: DovetailError) -> None:
        """Report ``error`` if it concerns the file's structure; for any other error, preserve the node and record its fault."""
        if _is_structural(error):
            _report_error(self.scope, node, error)
        elif error.code == "constant.needed" and (name := self._default_of(node)) is not None:
            # This error is not a fault of the file: a run and a conversion to IR use the default of the input as a constant.
            message = f"{error.message.partition(', got')[0]}, but depends on the optional input {name!r}"
            self._add_faulty_node(
                node, UnsupportedError(DEFAULT_NEEDED, f"{message}; load the model with freeze_defaults"), self._mark
            )
        else:
            self._add_faulty_node(node, error, self._mark)
            self.scope.faults.append(error)

    def _default_of(self, node: ForeignNode) -> str | None:
        """Return the name of an optional input from which an input of ``node`` is computed; None if there is none."""
        pending, seen = [x for x in self._inputs_of(node) if x is not None], set()
        while pending:
            x = pending.pop()
            if x.node is None or id(x) in seen:
                continue
            seen.add(id(x))
            if type(x.node.op).__name__ == "DefaultInput":
                return x.name
            pending += [operand for operand in x.node.inputs if operand is not None]
        return None

    def _import_node(self, node: ForeignNode) -> None:
        scope = self.scope
        self._mark = len(self.graph.nodes)
        xs = self._inputs_of(node)
        node = self.dialect.normalize(node, partial(scope.deviate, node=node))
        if node.domain in scope.undeclared_domains:
            first_version = self.dialect.first_version(node.domain, node.kind)
            refuse_ambiguous(node, first_version, partial(self._read_as_one, xs=xs))
        scope.b.location = node.place
        if not self._run_importer(node, xs):
            mappings = self.dialect.mappings_for(node)
            op, inputs = self.apply_mappings(node, xs) if mappings else self._as_foreign(node, xs)
            self._add_node(node, op, inputs, xs)

    def _inputs_of(self, node: ForeignNode) -> list[Value | None]:
        """Return the inputs of a node, without trailing absent inputs. Raises FormatError [graph.dangling]."""
        xs: list[Value | None] = []
        for key in node.inputs:
            value = None if key is None else self.scope.values.get(key) or self.scope.lookup(key)
            if value is None and key is not None:
                raise FormatError("graph.dangling", f"{node.kind} reads {key!r}, which no node produces")
            xs.append(value)
        while xs and xs[-1] is None:
            xs.pop()
        return xs

    def _read_as_one(self, node: ForeignNode, xs: list[Value | None]) -> Reading | None:
        """Return the core operator and the inputs of a node; None if the node is unknown or becomes several operators."""
        importer = self.dialect.importer_of(node.domain, node.kind, node.version)
        result = None if importer is None else importer(ImportContext(self.scope, node, xs, self))
        if isinstance(result, Op):
            return result, xs
        if result is not None:
            return result if isinstance(result, tuple) else None
        return self.apply_mappings(node, xs) if self.dialect.mappings_for(node) else None

    def _run_importer(self, node: ForeignNode, xs: list[Value | None]) -> bool:
        """Import a node by the registered importer of its operator, and return True.

        Returns False if the operator has no importer, or the importer leaves the node to the op mappings.
        """
        importer = self.dialect.importer_of(node.domain, node.kind, node.version)
        if importer is None:
            return False
        mark = len(self.graph.nodes)
        context = ImportContext(self.scope, node, xs, self)
        try:
            result = importer(context)
        except DovetailError as error:
            # The error must name the foreign node, not the core node that the importer was adding.
            error.node = node.label
            if not self._may_never_run(node, error):
                raise
            self._add_faulty_node(node, error, mark)
            return True
        except (Unknown, symbolic.Inexact):
            raise UnsupportedError(
                "type.unknown", f"the import of {node.operator} needs types that inference leaves unknown"
            ) from None
        if result is None:
            return False
        context.refuse_unread_attributes()
        self._add_result(node, result, xs, mark)
        return True

    def _add_result(self, node: ForeignNode, result: ImportResult, xs: list[Value | None], mark: int) -> None:
        if isinstance(result, Op):
            self._add_node(node, result, xs, xs)
        elif isinstance(result, tuple) and isinstance(result[0], Op):
            self._add_node(node, result[0], result[1], xs)
        else:
            self._adopt(node, xs, [result] if isinstance(result, Value) else list(result or ()), mark)

    def _add_node(self, node: ForeignNode, op: Op, inputs: list[Value | None], xs: list[Value | None]) -> None:
        """Add the single core node into which a foreign node is imported."""
        scope, graph = self.scope, self.graph
        count = self._output_count(node, op)
        names = [scope.name_of(key) for key in node.outputs[:count]]
        first_name = names[0] if names else ""
        if "outputs" in op.fields_by_name and output_count(op) != count:
            # Checked before inference, which allocates memory for each output.
            raise _output_count_error(node, output_count(op), count)
        values: Sequence[object] = [None] * count
        try:
            types = infer_types(op, tuple(inputs), graph.stem(first_name))
            values = infer_values(op, tuple(inputs), types)
        except DovetailError as error:
            error.at(op=describe_op(op, inputs))
            if not self._may_never_run(node, error):
                raise error from None
            types = self._set_fault(node, error)
        if len(types) != count:
            raise _output_count_error(node, len(types), count)
        outputs = [
            Value(graph.claim(name or f"{first_name or node.kind}:{index}"), type)
            for index, (name, type) in enumerate(zip(names, types, strict=True))
        ]
        for y, value in zip(outputs, values, strict=True):
            y.value = value
        core_node = Node(op, inputs, outputs, node.name, node.place)
        core_node.doc, core_node.metadata, core_node.kind = node.doc, node.metadata, node.kind
        graph.nodes.append(connect(core_node))
        self._set_outputs(node, xs, outputs)

    def _adopt(self, node: ForeignNode, xs: list[Value | None], results: list[Value], mark: int) -> None:
        """Name the results of an importer after the foreign outputs; a result that existed before is copied by an Identity."""
        scope, graph = self.scope, self.graph
        if len(results) < len(node.outputs):
            raise _output_count_error(node, len(results), len(node.outputs))
        new_values = {id(y) for core_node in graph.nodes[mark:] for y in core_node.outputs}
        outputs = []
        for key, value in zip(node.outputs, results, strict=False):
            name = scope.name_of(key)
            if id(value) not in new_values:
                value = scope.b.add(REGISTRY["Identity"](), value)[0]
            new_values.discard(id(value))
            if name:
                graph.release(value.name)
                value.name = graph.claim(name)
            outputs.append(value)
        for core_node in graph.nodes[mark:]:
            core_node.metadata = core_node.metadata or node.metadata
        computing = [core_node for core_node in graph.nodes[mark:] if type(core_node.op).__name__ != "Constant"]
        if len(computing) == 1:
            computing[0].kind = node.kind
        if len(graph.nodes) > mark and node.name:
            graph.nodes[-1].name = node.name
        self._set_outputs(node, xs, outputs)

    def _set_outputs(self, node: ForeignNode, xs: list[Value | None], outputs: list[Value]) -> None:
        """Enter the outputs of ``node`` into the scope, and check all types against the version of the operator."""
        self._declare_outputs(node, outputs)
        self.dialect.check_types(node, xs, outputs)

    def _declare_outputs(self, node: ForeignNode, outputs: list[Value]) -> None:
        """Enter the outputs of a node into the scope, with the names and types that the file declares."""
        scope = self.scope
        for key, y in zip(node.outputs, outputs, strict=False):
            if key is None:
                continue
            scope.values[key] = y
            item = scope.foreign.values.get(key)
            if item is not None:
                scope.describe(y, item)
                scope.apply_declared_type(y, item)
            output = scope.declared_outputs.get(key)
            if output is not None and (item is None or item.type != output.type):
                scope.apply_declared_type(y, output)
                scope.merged_outputs.add(key)

    def _output_count(self, node: ForeignNode, op: Op) -> int:
        """Return the number of outputs of ``node``. Absent outputs beyond those of ``op`` are a deviation and are not counted."""
        count, max_count = len(node.outputs), output_count(op)
        if max_count < count and not any(node.outputs[max_count:]) and not any(field.name == "outputs" for field in op.fields):
            message = f"{node.kind} must have at most {max_count} outputs, got {count} (absent outputs included)"
            self.scope.deviate(RuleError("node.outputs", message), node)
            return max_count
        return count

    # Nodes that no core operator expresses

    def _as_foreign(self, node: ForeignNode, xs: list[Value | None]) -> Reading:
        """Return a Foreign operator that preserves ``node``, and its inputs.

        The inputs are those that the file lists, followed by the outer values that subgraphs of ``node`` read.
        """
        attributes = tuple(node.attributes.items())
        captures = tuple(captured_keys(node.attributes)) if self.dialect.subgraphs_capture else ()
        op = REGISTRY["Foreign"](self.dialect.name, node.domain, node.kind, node.version, attributes, len(node.outputs), captures)
        if not captures:
            return op, xs
        absent: list[Value | None] = [None] * (len(node.inputs) - len(xs))
        return op, [*xs, *absent, *self._inputs_of(replace(node, inputs=list(captures)))]

    def _may_never_run(self, node: ForeignNode, error: DovetailError) -> bool:
        """Return whether ``error`` is deferred to run time: a rule about sizes is violated in a subgraph that may never run."""
        is_about_sizes = isinstance(error, RuleError) and error.code.partition(".")[0] not in ("type", "node")
        has_subgraphs = any(isinstance(value, ForeignGraph) for value in node.attributes.values())
        return self.scope.outer is not None and is_about_sizes and not has_subgraphs

    def _set_fault(self, node: ForeignNode, error: DovetailError) -> list[Type]:
        """Make ``error`` the graph's fault, raised by a run, unless it has one; return unknown types for the node's outputs."""
        error.at(node=node.label, file=self.scope.file)
        self.graph.fault = self.graph.fault or error.with_traceback(None)
        return [UNKNOWN] * len(node.outputs)

    def _add_faulty_node(self, node: ForeignNode, error: DovetailError, mark: int) -> None:
        """Replace the nodes added after index ``mark`` by a Foreign node, whose execution raises ``error``."""
        graph = self.graph
        error.at(node=node.label, file=self.scope.file)
        if self.scope.outer is not None:
            self._set_fault(node, error)
        added = [core_node for core_node in graph.nodes[mark:] if type(core_node.op).__name__ != "Constant"]
        for core_node in reversed(added):
            disconnect(core_node)
            graph.nodes.remove(core_node)
            for y in core_node.outputs:
                graph.release(y.name)
        op, xs = self._as_foreign(node, self._inputs_of(node))
        names = [self.scope.name_of(key) for key in node.outputs]
        outputs = [Value(graph.claim(name or f"{node.kind}:{index}")) for index, name in enumerate(names)]
        core_node = Node(op.with_(fault=error.with_traceback(None)), xs, outputs, node.name, node.place)
        core_node.doc, core_node.metadata = node.doc, node.metadata
        graph.nodes.append(connect(core_node))
        self._declare_outputs(node, outputs)


def _is_structural(error: DovetailError) -> bool:
    """Return whether an error concerns the file's structure or exceeds a limit, instead of concerning one operator."""
    subject = error.code.partition(".")[0]
    is_of_file = isinstance(error, FormatError) and subject in ("graph", "opset", "state", "data", "file")
    return is_of_file or isinstance(error, EngineError) or error.code == "inference.steps"


def _output_count_error(node: ForeignNode, produced: int, expected: int) -> RuleError:
    return RuleError("node.outputs", f"{node.kind} must have {produced} outputs with these attributes and inputs, got {expected}")


def _report_error(scope: ImportScope, node: ForeignNode, error: DovetailError) -> None:
    """Collect an error. The outputs of the node get their declared or unknown types, so that only independent errors follow."""
    scope.errors.append(error.at(node=node.label, file=scope.file))
    for key in node.outputs:
        if key is not None and key not in scope.values:
            item = scope.foreign.values.get(key)
            type = UNKNOWN if item is None or item.type is None else forget_element_sizes(item.type)
            scope.values[key] = Value(scope.graph.claim(key), type)


def _import_inputs(scope: ImportScope) -> None:
    graph, foreign = scope.graph, scope.foreign
    graph.doc, graph.metadata = foreign.doc, dict(foreign.metadata)
    for item in foreign.inputs:
        value = Value(graph.claim(item.name), forget_element_sizes(item.type or UNKNOWN))
        scope.describe(value, item)
        if value.type != item.type and item.type is not None:
            value.metadata["declared"] = item.type
        graph.inputs.append(value)
        scope.values[item.key] = value


def _import_constants(scope: ImportScope) -> None:
    constant = REGISTRY["Constant"]
    defaults = frozenset(scope.graph.metadata.pop("defaults", ()))
    for key, tensor in scope.foreign.constants.items():
        item = scope.foreign.values.get(key)
        type = Tensor(tensor.dtype, tensor.storage.shape)
        if key in defaults and item is not None:
            _import_default(scope, key, tensor, item)
            continue
        value = Value(scope.graph.claim(tensor.name or (key if item is None else item.name)), type)
        if item is not None:
            scope.describe(value, item)
            scope.apply_declared_type(value, item)
            value.type = type
        scope.graph.nodes.append(connect(Node(constant(tensor.storage, tensor.dtype), [], [value])))
        scope.values[key] = value


def _import_default(scope: ImportScope, key: str, tensor: ForeignTensor, item: ForeignValue) -> None:
    """Import a constant that a caller may override as a DefaultInput."""
    type = Tensor(tensor.dtype, tensor.data.shape)
    declared = item.type if isinstance(item.type, Tensor) and item.type.dtype is tensor.dtype else None
    if declared is not None and not is_shape_of(declared.shape, type.shape):
        scope.report_declaration(declared_warning(item.name, item.type, type, scope.file))
        declared = None
    value = Value(scope.graph.claim(item.name), declared or type)
    scope.describe(value, item)
    scope.graph.nodes.append(connect(Node(REGISTRY["DefaultInput"](tensor.data, tensor.dtype, declared), [], [value])))
    scope.values[key] = value


def _import_outputs(scope: ImportScope) -> None:
    returned: set[int] = set()
    for item in scope.foreign.outputs:
        value = scope.lookup(item.key)
        if value is None:
            message = f"no node produces the output {item.name!r}"
            scope.errors.append(FormatError("graph.dangling", message, file=scope.file))
            continue
        if id(value) in returned or (item.names and _is_renamed_input(scope, value, item)):
            value = scope.b.add(REGISTRY["Identity"](), value, names=[item.name])[0]
        elif item.names and item.names[0] != value.name and item.names[0] in value.names:
            rename(scope.graph, value, item.names[0])
        inner_item = scope.foreign.values.get(item.key)
        is_first = scope.declared_outputs[item.key] is item and value is scope.values.get(item.key)
        is_merged = is_first and item.key in scope.merged_outputs
        if not is_merged and (inner_item is None or inner_item.type != item.type):
            type = value.type
            scope.apply_declared_type(value, item)
            if value.node is None:
                # Readers of a graph input were inferred from the declaration of the input, not of the output.
                value.type = type
        value.doc = value.doc or item.doc
        value.metadata.update(item.metadata)
        scope.graph.outputs.append(value)
        returned.add(id(value))


def _is_renamed_input(scope: ImportScope, value: Value, item: ForeignValue) -> bool:
    """Return whether an output is a graph input under another name, which needs an Identity."""
    return value.node is None and item.names[0] != value.name and scope.values.get(item.key) is value
