"""Export a graph as a foreign model: the graph is legalized, then each node becomes one or more foreign nodes.

One error reports all nodes that the target cannot express exactly.
"""

from __future__ import annotations

from dovetail.errors import DovetailError, RuleError, UnsupportedError, raise_all
from dovetail.formats.dialect import Dialect
from dovetail.formats.export_context import ExportContext, declarable_type
from dovetail.formats.export_errors import ExportErrors
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.format_traits import VersionOf
from dovetail.formats.legalize import Legalizer
from dovetail.formats.mapping_selection import MappingSelector
from dovetail.formats.raw_subgraphs import rename_captures
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import INFERRED, Graph, Model, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.types import Unknown
from dovetail.ops.constant import Constant, DefaultInput, Foreign


def export_model(model: Model, dialect: Dialect, version_of: VersionOf, *, drop_identities: bool = False) -> ForeignModel:
    """Export ``model`` in ``dialect``. Raises UnsupportedError with all nodes that cannot be exported.

    ``drop_identities``: readers of an Identity read its input instead, and the Identity is not exported. An Identity is kept if
    it separates two outputs of the model, or an input from an output: such formats have one list of names per value.
    """
    errors = ExportErrors(model.file)
    graph = copy_graph(model.graph)
    if model.format != dialect.name:
        strip_metadata(graph)
    selector = MappingSelector(dialect, version_of)
    Legalizer(dialect, selector, errors).legalize(graph)
    states = frozenset(name for state in model.states for name in (state.input, *state.outputs))
    exporter = GraphExporter(dialect, selector, errors, drop_identities=drop_identities, states=states)
    foreign = exporter.export_graph(graph, {})
    raise_all(errors.list(), f"nodes that {dialect.name} cannot express")
    warnings = [*errors.warnings.values()]
    return ForeignModel(
        dialect.name, foreign, dict(model.versions), dict(model.metadata), None, model.producer, model.doc, warnings
    )


class GraphExporter:
    """GraphExporter exports the legalized graphs of one model.

    ``states``: the names of inputs and outputs that belong to states; the format has no ports for them.
    """

    def __init__(
        self,
        dialect: Dialect,
        selector: MappingSelector,
        errors: ExportErrors,
        *,
        drop_identities: bool,
        states: frozenset[str] = frozenset(),
    ) -> None:
        self.dialect = dialect
        self.errors = errors
        self.context = ExportContext(dialect, selector, self)
        self._drop_identities = drop_identities
        self._merged_names: dict[str, dict[str, None]] = {}
        self._states = states
        self._depth = 0
        # The keys of the model's inputs, and of the model's outputs that have been exported so far.
        self._border_keys: set[str] = set()

    def export_graph(self, graph: Graph, outer_keys: dict[int, str], own_input_count: int | None = None) -> ForeignGraph:
        """Export one graph; see :meth:`ExportContext.export_graph`."""
        context = self.context
        foreign = ForeignGraph(graph.name, doc=graph.doc, metadata=dict(graph.metadata))
        saved, context.foreign = context.foreign, foreign
        context.keys.update(outer_keys)
        own_inputs = graph.inputs[:own_input_count]
        for value in own_inputs:
            foreign.inputs.append(context.declare(value))
        is_model, self._depth = not self._depth, self._depth + 1
        if is_model:
            pairs = zip(own_inputs, foreign.inputs, strict=True)
            self._border_keys = {item.key for value, item in pairs if value.name not in self._states}
            # Values of subgraphs may have the names of outputs.
            for value in dict.fromkeys(graph.outputs):
                if id(value) not in context.keys:
                    context.reserve_key(value)
        outputs = {id(value) for value in graph.outputs}
        borders = {id(value) for value in graph.outputs if value.name not in self._states} if is_model else set()
        # Constants come first, as in an import: a file that is read back is then exported in the same order.
        for node in sorted(graph.nodes, key=lambda node: not isinstance(node.op, Constant | DefaultInput)):
            self._export_or_report(node, outputs)
            if borders:
                self._border_keys.update(context.keys[id(y)] for y in node.outputs if id(y) in borders and id(y) in context.keys)
        self._depth -= 1
        # Inputs are checked after the nodes that read them, because the errors of nodes are more specific.
        for value in own_inputs:
            self._check_input(value)
        for key, names in self._merged_names.items():
            if key in foreign.values:
                foreign.values[key].names = tuple(names)
        for value in graph.outputs:
            foreign.outputs.append(self._output(value))
        self._remove_folded_constants(graph)
        context.foreign = saved
        return foreign

    def _export_or_report(self, node: Node, outputs: set[int]) -> None:
        context = self.context
        origin = self.errors.origin_of(node)
        try:
            if not self.errors.has(origin):
                self._export_node(node, outputs)
        except (DovetailError, Unknown, symbolic.Inexact) as error:
            # The graph is valid, so that a RuleError means that the target operator does not support the type.
            self.errors.add(origin, error if isinstance(error, UnsupportedError) else _unsupported_error_of(node, error))
        if self.errors.has(origin):
            for y in node.outputs:
                # The outputs are declared although the export failed, so that errors of nodes that read them are reported too.
                context.typed.setdefault(context.keys.setdefault(id(y), y.name), y)

    def _export_node(self, node: Node, outputs: set[int]) -> None:
        context, op = self.context, node.op
        kind = type(op).__name__
        exporter = self.dialect.exporters.get(kind)
        if isinstance(op, Constant) and not (exporter is not None and id(node.outputs[0]) in outputs):
            item = context.declare(node.outputs[0])
            context.foreign.constants[item.key] = ForeignTensor(op.dtype, op.storage, node.outputs[0].name)
            return
        if isinstance(op, DefaultInput):
            self._export_default(node.outputs[0], op)
            return
        if kind == "Identity" and self._drop_identities and not self._separates_borders(node, outputs):
            self._drop_identity(node)
            return
        if exporter is not None:
            foreign_nodes = exporter(context, node)
        elif isinstance(op, Foreign):
            foreign_nodes = [self._export_foreign(node, op)]
        else:
            foreign_nodes = [context.export_by_mapping(node)]
        context.foreign.nodes.extend(foreign_nodes)
        last = foreign_nodes[-1]
        # A core input that became a foreign attribute is not an input of the foreign node.
        inputs = [None if key is None else context.typed.get(key) for key in last.inputs]
        self.dialect.check_types(last, inputs, node.outputs)

    def _separates_borders(self, node: Node, outputs: set[int]) -> bool:
        """Return whether the output of an Identity is an output of the model, and its input is an input or an earlier output."""
        x, y = node.inputs[0], node.outputs[0]
        return (
            self._depth == 1
            and id(y) in outputs
            and y.name not in self._states
            and self.context.keys.get(id(x)) in self._border_keys
        )

    def _export_default(self, value: Value, op: DefaultInput) -> None:
        """Export an optional input as a constant, and add its key to ``defaults``, the constants that a caller may override."""
        foreign = self.context.foreign
        item = self.context.declare(value)
        foreign.constants[item.key] = ForeignTensor(op.dtype, op.default, value.name)
        foreign.metadata["defaults"] = [*foreign.metadata.get("defaults", ()), item.key]

    def _drop_identity(self, node: Node) -> None:
        """Give the output of an Identity the key of its input, and merge the names of the two values."""
        x, y = node.inputs[0], node.outputs[0]
        assert x is not None
        keys = self.context.keys
        keys[id(y)] = keys[id(x)]
        item = self.context.foreign.values.get(keys[id(x)])
        if item is not None:
            self._merged_names.setdefault(item.key, dict.fromkeys(item.names)).update(dict.fromkeys((y.name, *y.names)))

    def _export_foreign(self, node: Node, op: Foreign) -> ForeignNode:
        """Export a preserved node of an unknown operator to the format that the node was imported from."""
        context = self.context
        if op.format != self.dialect.name:
            if op.fault is not None:
                raise op.refusal
            reason = self.dialect.unsupported_reasons.get(op.kind)
            message = f"{op.kind}-{op.version} of {op.format} has no known equivalent in {self.dialect.name}"
            raise UnsupportedError("op.unknown", f"{message}: {reason}" if reason else message)
        target_version = context.version_of(op.domain, op.kind)
        if self.dialect.has_opsets and target_version != op.version and (target_version or not op.domain):
            if op.fault is not None:
                raise op.refusal
            target = f"has {op.kind}-{target_version}" if target_version else f"has no {op.kind}"
            raise UnsupportedError("opset.version", f"{op.kind}-{op.version} is unknown to dovetail, and the target {target}")
        keys = [context.key(x) for x in node.inputs]
        own_count = len(keys) - len(op.captures)
        attributes = dict(op.attributes)
        if self.dialect.subgraphs_capture:
            names = {name: key for name, key in zip(op.captures, keys[own_count:], strict=True) if key is not None}
            claim = context.claim_apart()
            attributes = {name: rename_captures(value, names, claim) for name, value in attributes.items()}
        outputs: list[str | None] = [context.declare(y).key for y in node.outputs]
        return ForeignNode(
            op.kind, op.version, keys[:own_count], outputs, attributes, op.domain, node.name, node.location, node.doc,
            dict(node.metadata),
        )  # fmt: skip

    def _check_input(self, value: Value) -> None:
        """Report a graph input whose type the format does not support."""
        try:
            self.dialect.check_types(ForeignNode("", 1, [], []), [], [value])
            if declarable_type(value.type) is not value.type:
                raise RuleError("type.dims", f"the input must have at most 2**63 - 1 elements, got {value.type}")
        except RuleError as error:
            refusal = UnsupportedError(error.code, error.message, node=value.name, file=self.errors.file)
            self.errors.add_input(value.name, refusal)

    def _output(self, value: Value) -> ForeignValue:
        names = self.context.describe(value).names
        if value.name in names:
            # Several values may share one key; the name of the output becomes the primary name.
            names = (value.name, *(name for name in names if name != value.name))
        key = self.context.keys[id(value)]
        return ForeignValue(key, declarable_type(value.type), names, value.doc, dict(value.metadata))

    def _remove_folded_constants(self, graph: Graph) -> None:
        """Remove constants that became attributes of all their readers. Constants without readers in the model stay."""
        foreign, keys = self.context.foreign, self.context.keys
        read = {key for node in foreign.nodes for key in node.inputs} | {keys[id(value)] for value in graph.outputs}
        for node in graph.nodes:
            y = node.outputs[0] if node.outputs else None
            if y is None or y.storage is None or not y.uses or any(True for user, _ in y.uses for _ in bodies(user.op)):
                continue
            key = keys[id(y)]
            if key not in read:
                foreign.constants.pop(key, None)
                foreign.values.pop(key, None)


def _unsupported_error_of(node: Node, error: DovetailError | Unknown | symbolic.Inexact) -> DovetailError:
    if isinstance(error, RuleError):
        return UnsupportedError(error.code, error.message)
    if isinstance(error, DovetailError):
        return error
    return UnsupportedError("type.unknown", f"the export of {type(node.op).__name__} needs types that inference leaves unknown")


def strip_metadata(graph: Graph) -> None:
    """Remove the metadata of the format that the graph was imported from; metadata of inferred shapes stays."""
    graph.metadata = {}
    for value in graph.values():
        value.metadata = {name: item for name, item in value.metadata.items() if name == INFERRED}
    for node in graph.nodes:
        node.metadata = {}
        for _, body in bodies(node.op):
            strip_metadata(body)
