"""From a foreign model to a graph: each foreign node becomes the core operators that mean the same, types inferred on the way."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.dtypes import DType
from dovetail.errors import Diagnostic, DovetailError, FormatError, RuleError, UnsupportedError, raise_all
from dovetail.formats.deviations import Deviations
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignValue
from dovetail.formats.import_context import Lifting
from dovetail.formats.import_node import spelled
from dovetail.formats.op_mapping import Spelling
from dovetail.formats.undeclared_domains import refuse_ambiguous
from dovetail.ir.builder import Builder, written
from dovetail.ir.edit import connect, disconnect, rename
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import REGISTRY, UNFORESEEN, Op, bodies, failure, faults, infer_types, infer_values, output_count
from dovetail.ir.state import State
from dovetail.ir.types import UNKNOWN, Size, Tensor, Type, Unknown, is_unnamed, opened, sizes_in
from dovetail.limits import counting


@dataclass(slots=True)
class Variable:
    """A variable of a file on its way in: the graph input, what it begins with, what is to be kept."""

    input: Value | None = None
    first: Value | None = None
    kept: Value | None = None


Reading = tuple[Op, list[Value | None]]
"""An operator of ours, and its inputs."""

SMALL = 64
"""The most elements of a constant that nodes share."""


def lift(foreign: ForeignModel, dialect: Dialect, deviations: Deviations | None = None) -> Model:
    """The graph that ``foreign`` means, with every type inferred. ``deviations`` collects what departs from the format and
    means the same to all who accept it; without it that is a fault.

    Raises the first fault found, with all others of the same pass in its ``diagnostics``.
    """
    lifter = Lifter(dialect, foreign.graph, file=foreign.file, deviations=deviations)
    lifter.assumed = frozenset(foreign.metadata.pop("assumed_domains", ()))
    with counting() as usage, usage.remembering():
        graph = lifter.run()
    raise_all(lifter.errors, f"faults in {foreign.file or 'the model'}")
    model = Model(graph, format=foreign.format, versions=foreign.versions, file=foreign.file)
    model.metadata, model.producer, model.doc = dict(foreign.metadata), foreign.producer, foreign.doc
    model.warnings = lifter.warnings + _faults_within(graph, foreign.file)
    model.states = lifter.states()
    return model


def _faults_within(graph: Graph, file: str | None) -> list[Diagnostic]:
    """Warnings of the bodies that cannot run: their errors belong to the runs that take them."""
    items = [item for node in graph.nodes for fault in faults(node.op) for item in fault.diagnostics]
    return list(dict.fromkeys(replace(item, file=item.file or file, severity="warning") for item in items))


class Lifter:
    """Lifts one graph; a sub-graph gets a Lifter of its own whose ``outer`` is this one."""

    def __init__(
        self,
        dialect: Dialect,
        foreign: ForeignGraph,
        *,
        file: str | None = None,
        outer: Lifter | None = None,
        deviations: Deviations | None = None,
    ) -> None:
        self.dialect = dialect
        self.deviations: Deviations | None = deviations if outer is None else outer.deviations
        self.assumed: frozenset[str] = frozenset() if outer is None else outer.assumed
        self.foreign = foreign
        self.file = file
        self.outer = outer
        self.graph = Graph(foreign.name)
        self.b = Builder(graph=self.graph, fold=True, strict=False)
        self.found: dict[str, Value] = {}
        self.captures: list[Value] = []
        self.variables: dict[str, Variable] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self.errors: list[DovetailError] = [] if outer is None else outer.errors
        self.warnings: list[Diagnostic] = [] if outer is None else outer.warnings

    def run(self) -> Graph:
        self._enter()
        for node in self.foreign.nodes:
            try:
                self._node(node)
            except RecursionError:
                raise
            except DovetailError as error:
                self._refuse(node, error)
            except UNFORESEEN as error:
                self._refuse(node, failure(error))
        self._leave()
        self._drop_spent()
        return self.graph

    def _refuse(self, node: ForeignNode, error: DovetailError) -> None:
        self.errors.append(error.at(node=node.name or node.place or node.kind, file=self.file))
        self._give_up(node)

    def deviate(self, error: DovetailError, node: ForeignNode) -> None:
        """Note a deviation, which is a fault where none are collected."""
        error.at(node=node.name or node.place or node.kind, file=self.file)
        if self.deviations is None:
            self.errors.append(error)
        else:
            self.deviations.add(error)

    # State

    def remember(self, variable: str, type: Type, first: Value | None) -> Value:
        """A new graph input for what was kept under a name.

        Raises UnsupportedError [state.body], FormatError [state.repeated].
        """
        found = self._variable(variable)
        if found.input is not None:
            raise FormatError("state.repeated", f"the variable {variable!r} is read twice")
        found.input = Value(self.graph.claim(variable), type)
        found.first = first
        self.graph.inputs.append(found.input)
        return found.input

    def keep(self, variable: str, kept: Value) -> None:
        """Note what is to be kept under a name."""
        found = self._variable(variable)
        if found.kept is not None:
            raise FormatError("state.repeated", f"the variable {variable!r} is kept twice")
        found.kept = kept

    def _variable(self, name: str) -> Variable:
        if self.outer is not None:
            raise UnsupportedError("state.body", f"the variable {name!r} is read or kept inside of a body")
        return self.variables.setdefault(name, Variable())

    def states(self) -> list[State]:
        """The variables as graph inputs and outputs."""
        found = []
        for name, variable in self.variables.items():
            if variable.input is None:
                raise FormatError("state.unread", f"the variable {name!r} is kept and never read", file=self.file)
            output = self._state_output(variable.kept or variable.input, f"{variable.input.name}/next")
            first = None if variable.first is None else self._state_output(variable.first, f"{variable.input.name}/first")
            found.append(State(name, variable.input.name, output, first))
        return found

    def _state_output(self, value: Value, name: str) -> str:
        # What comes from a model that was written here has its name already.
        is_own = value.name == name and value.node is not None and all(value is not each for each in self.graph.outputs)
        made: Value = value if is_own else self.b.apply("Identity", value)
        rename(self.graph, made, name)
        self.graph.outputs.append(made)
        return made.name

    def _drop_spent(self) -> None:
        """Take out the constants that have become attributes or other constants, and are read by nothing else."""
        kept = {id(value) for value in self.graph.outputs}
        nodes = []
        for node in self.graph.nodes:
            value = node.outputs[0] if node.outputs else None
            if value is not None and id(value) in self.b.spent and not value.uses and id(value) not in kept:
                self.graph.release(value.name)
            else:
                nodes.append(node)
        self.graph.nodes = nodes

    def _enter(self) -> None:
        graph, foreign = self.graph, self.foreign
        graph.doc, graph.metadata = foreign.doc, dict(foreign.metadata)
        for item in foreign.inputs:
            value = Value(graph.claim(_name(item)), opened(item.type or UNKNOWN))
            self._describe(value, item)
            if value.type != item.type and item.type is not None:
                value.metadata["declared"] = item.type
            graph.inputs.append(value)
            self.found[item.key] = value
        constant = REGISTRY["Constant"]
        for key, tensor in foreign.constants.items():
            known = foreign.values.get(key)
            type = Tensor(tensor.dtype, tensor.data.shape)
            name = tensor.name or (key if known is None else _name(known))
            value = Value(graph.claim(name), type)
            if known is not None:
                self._describe(value, known)
                self._declared(value, known)
                value.type = type
            graph.nodes.append(connect(Node(constant(tensor.data, tensor.dtype), [], [value])))
            self.found[key] = value

    def _leave(self) -> None:
        graph = self.graph
        seen: set[int] = set()
        for item in self.foreign.outputs:
            value = self.lookup(item.key)
            if value is None:
                self.errors.append(FormatError("graph.dangling", f"no node makes the output {_name(item)!r}", file=self.file))
                continue
            if id(value) in seen or (item.names and self._is_renamed(value, item)):
                value = self.b.add(REGISTRY["Identity"](), value, names=[_name(item)])[0]
            elif item.names and item.names[0] != value.name and item.names[0] in value.names:
                rename(graph, value, item.names[0])
            inside = self.foreign.values.get(item.key)
            if inside is None or inside.type != item.type:
                self._declared(value, item)
            value.doc = value.doc or item.doc
            value.metadata.update(item.metadata)
            graph.outputs.append(value)
            seen.add(id(value))

    def _is_renamed(self, value: Value, item: ForeignValue) -> bool:
        """A graph input that leaves the graph under another name needs a node of its own there."""
        return value.node is None and item.names[0] != value.name and self.found.get(item.key) is value

    def spend(self, x: Value) -> None:
        """Note that ``x`` was read as an attribute."""
        if x.constant is not None:
            self.b.spent.add(id(x))

    def lookup(self, key: str) -> Value | None:
        """The value of ``key`` here, or the input through which an outer value comes in."""
        value = self.found.get(key)
        if value is None and self.outer is not None:
            outside = self.outer.lookup(key)
            if outside is not None:
                self.captures.append(outside)
                value = Value(self.graph.claim(outside.name), outside.type)
                value.value = outside.value
                self.graph.inputs.append(value)
                self.found[key] = value
        return value

    def body(self, foreign: ForeignGraph, captures: list[Value]) -> Graph:
        inner = Lifter(self.dialect, foreign, file=self.file, outer=self)
        inner.run()
        graph, own = inner.graph, len(foreign.inputs)
        brought = {id(outside): value for outside, value in zip(inner.captures, graph.inputs[own:], strict=True)}
        del graph.inputs[own:]
        for outside in captures:
            value = brought.pop(id(outside), None)
            graph.inputs.append(Value(graph.claim(outside.name), outside.type) if value is None else value)
        for outside in inner.captures:
            if id(outside) in brought:
                captures.append(outside)
                graph.inputs.append(brought[id(outside)])
        return graph

    def _node(self, node: ForeignNode) -> None:
        xs: list[Value | None] = []
        for key in node.inputs:
            value = None if key is None else self.found.get(key) or self.lookup(key)
            if value is None and key is not None:
                raise FormatError("graph.dangling", f"{node.kind} reads {key!r}, which nothing makes")
            xs.append(value)
        while xs and xs[-1] is None:
            xs.pop()
        node = self.dialect.mend(node, partial(self.deviate, node=node))
        if node.domain in self.assumed:
            refuse_ambiguous(self, node, xs)
        compose = self.dialect.lifts.get((node.domain, node.kind, node.version))
        self.b.place = node.place
        if compose is not None:
            mark = len(self.graph.nodes)
            lifting = Lifting(self.b, node, xs, self)
            try:
                made = compose(lifting)
            except DovetailError as error:
                # Not the name of what was being written in its place.
                error.node = node.name or node.place or node.kind
                if not self._may_never_run(node, error):
                    raise
                self._refused(node, xs, error, mark)
                return
            except (Unknown, symbolic.Inexact):
                raise UnsupportedError("type.unknown", f"how {_kind(node)} is read depends on types that are not known") from None
            if made is not None:
                lifting.finish()
                if isinstance(made, Op):
                    self._direct(node, made, xs, xs)
                elif isinstance(made, tuple) and isinstance(made[0], Op):
                    self._direct(node, made[0], made[1], xs)
                else:
                    self._adopt(node, xs, [made] if isinstance(made, Value) else list(made), mark)
                return
        spellings = self.dialect.readers(node)
        op, inputs = self.first_fitting(spellings, node, xs) if spellings else self._foreign(node, xs)
        self._direct(node, op, inputs, xs)

    def first_fitting(self, spellings: tuple[Spelling, ...], node: ForeignNode, xs: list[Value | None]) -> Reading:
        """Read by the first slot line that fits; where none does, the first one's reason is told."""
        first: DovetailError | None = None
        for spelling in spellings:
            found: list[DovetailError] = []
            try:
                reading = spelled(self, spelling, node, xs, found.append)
            except DovetailError as error:
                first = first or error
                continue
            if found and self.deviations is None:
                # The strict reading: the line does not fit.
                first = first or found[0]
                continue
            for deviation in found:
                self.deviate(deviation, node)
            return reading
        assert first is not None
        raise first

    def _direct(self, node: ForeignNode, op: Op, inputs: list[Value | None], xs: list[Value | None]) -> None:
        """One foreign node, one of ours."""
        count = self._outputs_of(node, op)
        names = [self._name_of(key) for key in node.outputs[:count]]
        first = names[0] if names else ""
        if "outputs" in op.fields_by_name and output_count(op) != count:
            # Before anything is made for each of them.
            raise RuleError("node.outputs", f"{node.kind} makes {output_count(op)} outputs here, and the node has {count}")
        given = tuple(inputs)
        values: list[Any] = [None] * count
        try:
            types = infer_types(op, given, self.graph.stem(first))
            values = infer_values(op, given, types)
        except DovetailError as error:
            error.at(op=written(op, inputs))
            if not self._may_never_run(node, error):
                raise error from None
            types = self._fault(node, error)
        if len(types) != count:
            raise RuleError("node.outputs", f"{node.kind} makes {len(types)} outputs here, and the node has {count}")
        graph = self.graph
        outputs = [
            Value(graph.claim(name or f"{first or node.kind}:{index}"), type)
            for index, (name, type) in enumerate(zip(names, types, strict=True))
        ]
        for y, value in zip(outputs, values, strict=True):
            y.value = value
        made = Node(op, inputs, outputs, node.name, node.place)
        made.doc, made.metadata = node.doc, node.metadata
        graph.nodes.append(connect(made))
        self._settle(node, xs, outputs)

    def _may_never_run(self, node: ForeignNode, error: DovetailError) -> bool:
        """Whether a node is kept whose rule refuses the sizes of its inputs, because it is in a body."""
        is_of_sizes = isinstance(error, RuleError) and error.code.partition(".")[0] not in ("type", "node")
        return self.outer is not None and is_of_sizes and not any(isinstance(x, ForeignGraph) for x in node.attributes.values())

    def _fault(self, node: ForeignNode, error: DovetailError) -> list[Type]:
        error.at(node=node.name or node.place or node.kind, file=self.file)
        self.graph.fault = self.graph.fault or error.with_traceback(None)
        return [UNKNOWN] * len(node.outputs)

    def _refused(self, node: ForeignNode, xs: list[Value | None], error: DovetailError, mark: int) -> None:
        """Keep a node as its file says it, with the error that it raises when it runs."""
        self._fault(node, error)
        begun = [made for made in self.graph.nodes[mark:] if type(made.op).__name__ != "Constant"]
        for made in reversed(begun):
            disconnect(made)
            self.graph.nodes.remove(made)
            for y in made.outputs:
                self.graph.release(y.name)
        op, inputs = self._foreign(node, xs)
        self._direct(node, op.with_(fault=error), inputs, xs)

    def _outputs_of(self, node: ForeignNode, op: Op) -> int:
        """How many outputs the node has; names left out after the operator's last output stand for nothing."""
        count, most = len(node.outputs), output_count(op)
        if most < count and not any(node.outputs[most:]) and not any(field.name == "outputs" for field in op.fields):
            self.deviate(
                RuleError("node.outputs", f"{node.kind} makes {most} outputs, and the node leaves out {count - most} more"), node
            )
            return most
        return count

    def _adopt(self, node: ForeignNode, xs: list[Value | None], made: list[Value], mark: int) -> None:
        """One foreign node, several of ours: the results get the foreign names; a value that is older gets an Identity."""
        if len(made) < len(node.outputs):
            raise RuleError("node.outputs", f"{node.kind} makes {len(made)} outputs here, and the node has {len(node.outputs)}")
        young = {id(y) for each in self.graph.nodes[mark:] for y in each.outputs}
        outputs = []
        for key, value in zip(node.outputs, made, strict=False):
            name = self._name_of(key)
            if id(value) not in young:
                value = self.b.add(REGISTRY["Identity"](), value)[0]
            young.discard(id(value))
            if name:
                self.graph.release(value.name)
                value.name = self.graph.claim(name)
            outputs.append(value)
        for each in self.graph.nodes[mark:]:
            each.metadata = each.metadata or node.metadata
        if len(self.graph.nodes) > mark and node.name:
            self.graph.nodes[-1].name = node.name
        self._settle(node, xs, outputs)

    def _settle(self, node: ForeignNode, xs: list[Value | None], outputs: list[Value]) -> None:
        for key, y in zip(node.outputs, outputs, strict=False):
            if key is None:
                continue
            self.found[key] = y
            item = self.foreign.values.get(key)
            if item is not None:
                self._describe(y, item)
                self._declared(y, item)
        self.dialect.check_types(node, xs, outputs)

    def _name_of(self, key: str | None) -> str:
        """What the file calls a value; nothing for an output left out."""
        if key is None:
            return ""
        item = self.foreign.values.get(key)
        return key if item is None else _name(item)

    def _describe(self, value: Value, item: ForeignValue) -> None:
        value.names, value.doc, value.metadata = item.names, item.doc, dict(item.metadata)

    def _declared(self, value: Value, item: ForeignValue) -> None:
        """Hold the inferred type against the declared one: fill in what inference left open, warn where the file is wrong."""
        declared, known = item.type, value.type
        if declared is None or declared == known:
            return
        if not isinstance(declared, Tensor) or not isinstance(known, Tensor):
            if known == UNKNOWN:
                value.type = opened(declared)
            return
        merged, wrong = merge_declared(known, declared, self._sizes_of_inputs(known))
        if known.shape is None and declared.shape is not None and _has_other_rank(value, len(declared.shape)):
            merged, wrong = known, True
        if wrong:
            message = f"{value.name} is declared {declared}, and is {known}"
            self.warnings.append(Diagnostic("type.declared", message, value.name, self.file, severity="warning"))
            # Sizes of a declaration that is wrong fill in nothing.
            merged = Tensor(merged.dtype, known.shape)
        value.type = merged

    def _sizes_of_inputs(self, type: Tensor) -> set[Size]:
        """Of the sizes of ``type`` those that a caller chooses: unnamed ones of the inputs."""
        unnamed = [size for size in type.shape or () if is_unnamed(size)]
        if not unnamed:
            return set()
        theirs = {size for x in self.graph.inputs for size in sizes_in(x.type) if is_unnamed(size)}
        return theirs.intersection(unnamed)

    def _give_up(self, node: ForeignNode) -> None:
        """After a fault: what the node makes is unknown, so that only independent faults are reported after it."""
        for key in node.outputs:
            if key is not None and key not in self.found:
                item = self.foreign.values.get(key)
                self.found[key] = Value(
                    self.graph.claim(key), opened(item.type) if item is not None and item.type is not None else UNKNOWN
                )

    def _foreign(self, node: ForeignNode, xs: list[Value | None]) -> tuple[Op, list[Value | None]]:
        bodies = [name for name, value in node.attributes.items() if isinstance(value, ForeignGraph)]
        if bodies:
            raise UnsupportedError("op.unknown", f"{_kind(node)} has sub-graphs, and dovetail does not know it")
        op = REGISTRY["Foreign"](
            self.dialect.name, node.domain, node.kind, node.version, tuple(node.attributes.items()), len(node.outputs)
        )
        return op, xs

    def shared(self, data: Any, dtype: DType) -> Value:
        """A constant that the file has no value of its own for; a small one is written once, for all nodes that say the same."""
        array = np.asarray(data, dtype=dtype.numpy)
        if array.size > SMALL or array.dtype.hasobject:
            return self.b.constant(array, dtype)
        key = dtype.name, array.shape, array.tobytes()
        if key not in self._shared:
            self._shared[key] = self.b.constant(array, dtype)
        return self._shared[key]


def _kind(node: ForeignNode) -> str:
    return f"{node.domain + '.' if node.domain else ''}{node.kind}-{node.version}"


def _name(item: ForeignValue) -> str:
    return item.names[0] if item.names else str(item.metadata.get("name", item.key))


def _has_other_rank(value: Value, rank: int) -> bool:
    """Whether a branch of the If that makes ``value`` gives it another rank."""
    if value.node is None or type(value.node.op).__name__ != "If":
        return False
    shapes = [body.outputs[value.index].shape for _, body in bodies(value.node.op)]
    return any(shape is not None and len(shape) != rank for shape in shapes)


def merge_declared(known: Tensor, declared: Tensor, chosen: Set[Size] = frozenset()) -> tuple[Tensor, bool]:
    """The inferred type, with unknown parts filled in from the declared one, and whether the two contradict each other.

    ``chosen`` are sizes that a caller chooses, which no number in a declaration can fix.
    """
    dtype = known.dtype or declared.dtype
    wrong = known.dtype is not None and declared.dtype is not None and known.dtype is not declared.dtype
    if known.shape is None or declared.shape is None:
        return Tensor(dtype, known.shape if declared.shape is None else declared.shape), wrong
    if len(known.shape) != len(declared.shape):
        return Tensor(dtype, known.shape), True
    sizes: list[Size] = []
    for ours, theirs in zip(known.shape, declared.shape, strict=True):
        if ours.__class__ is int:
            wrong = wrong or (theirs.__class__ is int and theirs != ours)
            sizes.append(ours)
        elif is_unnamed(ours) and not is_unnamed(theirs) and not (theirs.__class__ is int and ours in chosen):
            sizes.append(theirs)
        else:
            wrong = wrong or symbolic.equal(ours, theirs) is False
            sizes.append(ours)
    return Tensor(dtype, tuple(sizes)), wrong
