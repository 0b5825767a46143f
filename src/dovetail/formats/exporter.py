"""From a graph to a foreign model: first rewritten into operators that the format can spell, then spelled node by node.

Everything that cannot be said exactly is collected, and refused in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError, raise_all
from dovetail.formats import op_mapping
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.import_node import constant_of
from dovetail.formats.op_mapping import Slot, Spelling
from dovetail.formats.readback import check_rewritten
from dovetail.ir.builder import Builder, written
from dovetail.ir.edit import copy_graph, inherit, remove_dead
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import REQUIRED, UNFORESEEN, Op, bodies, failure, has
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import INT64_MAX, Tensor, Type, Unknown, opened
from dovetail.ops.runtime_attributes import RuntimeAttributes, as_attributes

VersionOf = Callable[[str, str], int | None]
"""The version of an operator (domain, kind) that the target has; None where it has no such operator."""


class _NoFit(Exception):
    """A spelling cannot say this node; the text says why."""


def lower(model: Model, dialect: Dialect, version_of: VersionOf, *, sink: bool = False) -> ForeignModel:
    """``model`` as a foreign model of ``dialect``. Raises UnsupportedError with all nodes that stand in the way.

    ``sink`` says that Identity is spelled as nothing: its readers read what it reads.
    """
    lowering = Lowering(dialect, version_of, file=model.file, sink=sink)
    graph = copy_graph(model.graph)
    if model.format != dialect.name:
        strip_metadata(graph)
    lowering.prepare(graph)
    foreign = lowering.graph(graph, {})
    raise_all(list(lowering.refused.values()), f"nodes that {dialect.name} cannot say")
    result = ForeignModel(dialect.name, foreign, dict(model.versions), dict(model.metadata), None, model.producer, model.doc)
    return result


class _Origin(NamedTuple):
    """What a refusal says of a node of the model, also when others have been written in its place. ``op`` is None for a node that
    was read as several: there the message says which of these stands in the way."""

    label: str
    place: str
    op: Op | None
    inputs: tuple[Value | None, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.label, self.place

    @property
    def text(self) -> str | None:
        return None if self.op is None else written(self.op, self.inputs)


def sayable(type: Type) -> Type:
    """``type`` as a file may declare it: without a shape that has more elements than 63 bits count, which readers refuse."""
    if not isinstance(type, Tensor) or type.shape is None or 0 in type.shape:
        return type
    return type if prod(size for size in type.shape if isinstance(size, int)) <= INT64_MAX else Tensor(type.dtype, None)


class Lowering:
    """One model on its way out."""

    def __init__(self, dialect: Dialect, version_of: VersionOf, *, file: str | None, sink: bool) -> None:
        self.dialect = dialect
        self.version_of = version_of
        self.file = file
        self.sink = sink
        self.refused: dict[tuple[str, str], DovetailError] = {}
        self.origins: dict[Node, _Origin] = {}
        self.made: dict[Value, str] = {}
        self.last: dict[str, Node] = {}
        self.keys: dict[int, str] = {}
        self.taken: set[str] = set()
        self.sunk: dict[str, dict[str, None]] = {}
        self.foreign = ForeignGraph()
        self.typed: dict[str, Any] = {}

    # Rewriting

    def prepare(self, graph: Graph) -> None:
        """Rewrite until every operator that the format cannot spell is one that it can, or is left to be refused."""
        self.last.update((node.place, node) for node in graph.nodes if node.place)
        for _ in range(8):
            if not rewrite(graph, self._rule, fold=True):
                break
        remove_dead_made(graph)
        self._number_made(graph)
        for node in graph.nodes:
            for _, body in bodies(node.op):
                self.prepare(body)

    def _number_made(self, graph: Graph) -> None:
        """Give what was made the first free names: those that it was made with kept clear of what has been replaced since."""
        named = [(y, self.made[y]) for node in graph.nodes for y in node.outputs if self.made.get(y) == y.name]
        for y, _ in named:
            graph.release(y.name)
        for y, name in named:
            stem, _, number = name.rpartition("_")
            stem, count = stem if number.isdigit() else name, 1
            found = stem
            while graph.is_taken(found):
                count += 1
                found = f"{stem}_{count}"
            y.name = graph.claim(found)

    def _rule(self, b: Builder, node: Node) -> Any:
        origin = self._origin(node)
        if origin.key in self.refused:
            return None
        mark = len(b.graph.nodes)
        b.place = node.place
        try:
            made = self._rewritten(b, node)
            check_rewritten(node, made)
        except (Unknown, symbolic.Inexact):
            # A rule that needs types which are not known leaves the node as it is.
            return None
        except DovetailError as error:
            self._refuse(origin, error)
            return None
        except UNFORESEEN as error:
            self._refuse(origin, failure(error))
            return None
        if made is not None:
            inherit(b.graph, mark, node)
            self.origins.update(dict.fromkeys(b.graph.nodes[mark:], origin))
            self.made.update((y, y.name) for each in b.graph.nodes[mark:] for y in each.outputs)
            if len(b.graph.nodes) > mark and node.name:
                b.graph.nodes[-1].name = node.name
        return made

    def _rewritten(self, b: Builder, node: Node) -> Any:
        """By the format's own rule for the operator; else, where the target has no word for it, by other operators."""
        if (known := as_attributes(b, node)) is not None:
            return known
        kind = type(node.op).__name__
        rule, other = self.dialect.lowers.get(kind), self.dialect.substitutes.get(kind)
        made = None if rule is None else rule(b, node)
        if made is not None or not (other or has(node.op, "decompose")) or self._can_say(node):
            return made
        made = None if other is None else other(b, node)
        return node.op.decompose(b, *node.inputs) if made is None and has(node.op, "decompose") else made

    def _origin(self, node: Node) -> _Origin:
        """The model's own node in whose place ``node`` was written."""
        found = self.origins.get(node)
        if found is None:
            last = self.last.get(node.place, node)
            found = _Origin(last.label, node.place, node.op if last is node else None, tuple(node.inputs))
        return found

    def _refuse(self, origin: _Origin, error: DovetailError) -> None:
        """Note that a node stands in the way, once: under its own name, not that of what was being written in its place."""
        error.node, error.op = origin.label, origin.text
        self.refused.setdefault(origin.key, error.at(file=self.file))

    def _can_say(self, node: Node) -> bool:
        kind = type(node.op).__name__
        if kind in ("Constant", "Foreign"):
            return True
        if kind in self.dialect.emits:
            domain = self.dialect.domains.get(kind, "")
            version = self.version_of(domain, kind)
            return not (domain or kind in self.dialect.substitutes) or (
                version is not None and self.dialect.says[kind](node.op, version)
            )
        try:
            spelling, _, version = self._fit(node)
        except (_NoFit, RuleError):
            # A form that would fit may break the operator's own rules.
            return False
        return self._has_types(node, spelling, version)

    # Spelling

    def graph(self, graph: Graph, outer: dict[int, str], own_inputs: int | None = None) -> ForeignGraph:
        """One graph, spelled. ``outer`` gives the keys of body inputs that stand for values outside."""
        saved, self.foreign = self.foreign, ForeignGraph(graph.name, doc=graph.doc, metadata=dict(graph.metadata))
        foreign = self.foreign
        self.keys.update(outer)
        for value in graph.inputs[:own_inputs]:
            foreign.inputs.append(self._declare(value))
        outputs = {id(value) for value in graph.outputs}
        for node in graph.nodes:
            origin = self._origin(node)
            try:
                if origin.key not in self.refused:
                    self._node(node, outputs)
            except (DovetailError, Unknown, symbolic.Inexact) as error:
                # The graph is sound: where a rule is broken, it is the target that lacks the type.
                self._refuse(origin, error if isinstance(error, UnsupportedError) else _refusal(node, error))
            if origin.key in self.refused:
                for y in node.outputs:
                    # Who reads it may stand in the way as well.
                    self.typed.setdefault(self.keys.setdefault(id(y), y.name), y)
        # After the nodes that read them, which say more.
        for value in graph.inputs[:own_inputs]:
            try:
                self.dialect.check_types(ForeignNode("", 1, [], []), [], [value])
                if sayable(value.type) is not value.type:
                    raise RuleError("type.dims", f"the input has more than 2**63 - 1 elements: {value.type}")
            except RuleError as error:
                refusal = UnsupportedError(error.code, error.message, node=value.name, file=self.file)
                self.refused.setdefault((value.name, ""), refusal)
        for key, sunk in self.sunk.items():
            if key in foreign.values:
                foreign.values[key].names = tuple(sunk)
        for value in graph.outputs:
            names = self._value(value).names
            if value.name in names:
                # It may share its key with values of other names: its own leads.
                names = (value.name, *(name for name in names if name != value.name))
            foreign.outputs.append(
                ForeignValue(self.keys[id(value)], sayable(value.type), names, value.doc, dict(value.metadata))
            )
        self._drop_said(graph, foreign)
        self.foreign = saved
        return foreign

    def _drop_said(self, graph: Graph, foreign: ForeignGraph) -> None:
        """Leave out constants whose every reader says them as attributes. Those that nobody read before either stay."""
        read = {key for node in foreign.nodes for key in node.inputs} | {self.keys[id(value)] for value in graph.outputs}
        for node in graph.nodes:
            y = node.outputs[0] if node.outputs else None
            if y is None or y.constant is None or not y.uses or any(True for user, _ in y.uses for _ in bodies(user.op)):
                continue
            key = self.keys[id(y)]
            if key not in read:
                foreign.constants.pop(key, None)
                foreign.values.pop(key, None)

    def body(self, graph: Graph, captured: Sequence[Value | None] | None = None) -> ForeignGraph:
        """A body, spelled: closed as it is, or with its inputs read from outside where ``captured`` are given."""
        if captured is None:
            return self.graph(graph, {})
        outer = {id(inner): self.keys[id(x)] for inner, x in zip(graph.inputs, captured, strict=True) if x is not None}
        return self.graph(graph, outer, 0)

    def own_outputs(self, graph: Graph) -> None:
        """Let every output of a body be made in it, once: what comes in from outside goes through an Identity."""
        b = Builder(graph=graph)
        seen: set[int] = {id(value) for value in graph.inputs}
        for index, value in enumerate(graph.outputs):
            if id(value) in seen:
                graph.outputs[index] = value = b.apply("Identity", value)
            seen.add(id(value))

    def key(self, value: Value | None) -> str | None:
        return None if value is None else self.keys[id(value)]

    def _value(self, value: Value) -> ForeignValue:
        # A value that its own format left without names, or known by its layer's, stays so.
        named = value.names if "name" in value.metadata or value.name in value.names else (value.name, *value.names)
        metadata = dict(value.metadata)
        declared = metadata.pop("declared", None)
        type = declared if declared is not None and opened(declared) == value.type else value.type
        return ForeignValue(self.keys[id(value)], sayable(type), named, value.doc, metadata)

    def _declare(self, value: Value) -> ForeignValue:
        """Give ``value`` a key that is unique in the whole model, and enter what is known of it."""
        key = self.claim(value.name)
        self.keys[id(value)] = key
        self.typed[key] = value
        item = self._value(value)
        self.foreign.values[key] = item
        return item

    def claim(self, name: str) -> str:
        key, count = name, 1
        while key in self.taken:
            count += 1
            key = f"{name}_{count}"
        self.taken.add(key)
        return key

    def _node(self, node: Node, outputs: set[int]) -> None:
        op = node.op
        kind = type(op).__name__
        emit = self.dialect.emits.get(kind)
        if kind == "Constant" and not (emit is not None and id(node.outputs[0]) in outputs):
            item = self._declare(node.outputs[0])
            self.foreign.constants[item.key] = ForeignTensor(op.dtype, op.data, node.outputs[0].name)  # type: ignore[attr-defined]
            return
        if kind == "Identity" and self.sink:
            self._sink(node)
            return
        if emit is not None:
            made = emit(self, node)
        elif kind == "Foreign":
            made = [self._foreign(node)]
        else:
            made = [self.spelled(node)]
        self.foreign.nodes.extend(made)
        # What stands among their attributes is no input of theirs.
        inputs = [None if key is None else self.typed.get(key) for key in made[-1].inputs]
        self.dialect.check_types(made[-1], inputs, node.outputs)

    def _sink(self, node: Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        assert x is not None
        self.keys[id(y)] = self.keys[id(x)]
        item = self.foreign.values.get(self.keys[id(x)])
        if item is not None:
            self.sunk.setdefault(item.key, dict.fromkeys(item.names)).update(dict.fromkeys((y.name, *y.names)))

    def _foreign(self, node: Node) -> ForeignNode:
        op: Any = node.op
        if op.format != self.dialect.name:
            reason = self.dialect.reasons.get(op.kind)
            what = f"{op.kind}-{op.version} of {op.format} has no known equal in {self.dialect.name}"
            raise UnsupportedError("op.unknown", f"{what}: {reason}" if reason else what)
        there = self.version_of(op.domain, op.kind)
        if self.dialect.has_opsets and there != op.version and (there or not op.domain):
            has_there = f"has {op.kind}-{there}" if there else f"has no {op.kind}"
            raise UnsupportedError("opset.version", f"{op.kind}-{op.version} is not known, and the target {has_there}")
        return self.finish(node, op.domain, op.kind, op.version, [self.key(x) for x in node.inputs], dict(op.attributes))

    def finish(
        self, node: Node, domain: str, kind: str, version: int, inputs: list[str | None], attributes: dict[str, Any]
    ) -> ForeignNode:
        """A foreign node for ``node``, its outputs declared. Raises UnsupportedError [op.unsayable] for too few inputs."""
        fixed, least = self.dialect.arity(domain, kind, version)
        kept = min(fixed, least)
        while len(inputs) > kept and inputs[-1] is None:
            inputs.pop()
        inputs = inputs + [None] * (kept - len(inputs))
        if len(inputs) < least:
            what = f"{kind}-{version} takes at least {least} inputs, and would have {len(inputs)}"
            raise UnsupportedError("op.unsayable", f"{self.dialect.name} cannot say {_bare(node.op)}: {what}")
        outputs: list[str | None] = [self._declare(y).key for y in node.outputs]
        return ForeignNode(
            kind, version, inputs, outputs, attributes, domain, node.name, node.place, node.doc, dict(node.metadata)
        )

    def spelled(self, node: Node) -> ForeignNode:
        """``node`` as the slot line that fits it says. Raises UnsupportedError [op.unsayable]."""
        spelling, fitted, version = self._fit_or_raise(node)
        return self._spelled(node, fitted, spelling, version)

    def _fit_or_raise(self, node: Node) -> tuple[Spelling, Op, int]:
        try:
            return self._fit(node)
        except _NoFit as reason:
            raise UnsupportedError("op.unsayable", f"{self.dialect.name} cannot say {_bare(node.op)}: {reason}") from None

    def _fit(self, node: Node) -> tuple[Spelling, Op, int]:
        """The spelling to use, the operator in the form that fits it, and the version to write. Raises _NoFit."""
        reason: _NoFit | None = None
        inner, late = (node.op.op, node.op.names) if isinstance(node.op, RuntimeAttributes) else (node.op, ())
        writers = self.dialect.writers(inner)
        if not writers:
            raise _NoFit(self.dialect.reasons.get(type(inner).__name__, "it has no such operator that dovetail knows"))
        plain = inner if late else inner.canonical(*node.inputs)
        first: tuple[Spelling, Op, int] | None = None
        for form in ("as it is",) if late else ("as it is", "plain", "shortened"):
            for spelling in writers:
                version = self.version_of(spelling.domain, spelling.kind)
                if version not in spelling.versions:
                    is_there = f"{spelling.kind}-{version} is unknown" if version else f"the target has no {spelling.kind}"
                    reason = reason or _NoFit(is_there)
                    continue
                op = inner if form == "as it is" else plain if form == "plain" else shortened(plain, spelling, node)
                try:
                    self._check_fit(node, op, spelling)
                except _NoFit as error:
                    reason = error
                    continue
                assert version is not None
                if len(writers) == 1 or self._has_types(node, spelling, version):
                    return spelling, op, version
                first = first or (spelling, op, version)
            if first is not None:
                return first
        assert reason is not None
        raise reason

    def _has_types(self, node: Node, spelling: Spelling, version: int) -> bool:
        """Whether the target's operator takes the types of ``node``."""
        foreign = ForeignNode(spelling.kind, version, [], [], domain=spelling.domain)
        try:
            self.dialect.check_types(foreign, _in_their_order(spelling, node), node.outputs)
        except RuleError:
            return False
        return True

    def _check_fit(self, node: Node, op: Op, spelling: Spelling) -> None:
        for name, texts in spelling.fixed:
            field = op_mapping.field_of(spelling.op, name)
            if field is not None and op.__dict__[name] not in [op_mapping.fixed_value(field, text) for text in texts]:
                raise _NoFit(f"{spelling.kind} means {name}={texts[0]}")
        for field in op.fields:
            if field.name != "outputs" and not spelling.covers(field.name) and op.__dict__[field.name] != field.default:
                raise _NoFit(f"{spelling.kind} has no {field.name}={op.__dict__[field.name]!r}")
        given = arguments(node.op, node.inputs)
        for name, x in given.items():
            if x is not None and x != [] and not spelling.covers(name):
                raise _NoFit(f"{spelling.kind} has no input {name!r}")
        if isinstance(node.op, RuntimeAttributes):
            self._check_inputs_for_attributes(node.op.names, given, spelling)
        for slot in spelling.inputs:
            if op_mapping.field_of(op.__class__, slot.ours) is not None and given.get(slot.ours) is not None:
                continue
            if op_mapping.field_of(op.__class__, slot.ours) is None and not slot.repeated:
                if given.get(slot.ours) is None and not slot.optional and slot.default is None:
                    raise _NoFit(f"{spelling.kind} needs the input {slot.ours!r}")
            elif slot.how:
                self._out(slot, op.__dict__.get(slot.ours), spelling)
        for slot in spelling.attributes:
            if slot.is_ignored:
                continue
            if op_mapping.field_of(op.__class__, slot.ours) is not None:
                self._out(slot, op.__dict__[slot.ours], spelling)
            elif given.get(slot.ours) is None:
                if not slot.optional:
                    raise _NoFit(f"{spelling.kind} needs {slot.ours!r}")
            else:
                data = constant_or_none(given[slot.ours])
                if data is None:
                    raise _NoFit(f"{spelling.kind} needs {slot.ours!r} to be constant")
                self._out(slot, _plain(data, op, slot.ours), spelling)

    def _check_inputs_for_attributes(self, names: Sequence[str], given: dict[str, Any], spelling: Spelling) -> None:
        """Hold attributes that are inputs against the slots, which may have them as attributes alone. Raises _NoFit."""
        places = {slot.ours: slot for slot in spelling.inputs}
        for name in names:
            if name not in places:
                raise _NoFit(f"{spelling.kind} needs {name!r} to be constant")
            try:
                op_mapping.check_rank(places[name], given[name].shape)
            except FormatError as error:
                raise _NoFit(error.message) from None

    def _out(self, slot: Slot, value: Any, spelling: Spelling) -> Any:
        if value is None:
            if not slot.optional:
                raise _NoFit(f"{spelling.kind} needs {slot.ours!r}")
            return None
        try:
            return op_mapping.convert_out(slot, value)
        except KeyError:
            raise _NoFit(f"{spelling.kind} has no {slot.ours}={value!r}") from None

    def _spelled(self, node: Node, op: Op, spelling: Spelling, version: int) -> ForeignNode:
        given = arguments(node.op, node.inputs)
        inputs: list[str | None] = []
        for slot in spelling.inputs:
            if op_mapping.field_of(spelling.op, slot.ours) is not None and given.get(slot.ours) is None:
                inputs.append(self.constant_key(node, slot.ours, op.__dict__[slot.ours], slot))
            elif slot.repeated:
                inputs.extend(self.key(x) for x in given[slot.ours])
            else:
                inputs.append(self.key(given.get(slot.ours)))
        attributes: dict[str, Any] = {}
        for slot in spelling.attributes:
            if slot.is_ignored:
                continue
            field = op_mapping.field_of(spelling.op, slot.ours)
            if field is not None:
                value = self._out(slot, op.__dict__[slot.ours], spelling)
                if value == () and slot.optional and field.default == ():
                    # An empty list that means the same as none.
                    continue
            else:
                x = given.get(slot.ours)
                value = None if x is None else self._out(slot, _plain(constant_or_none(x), op, slot.ours), spelling)
            if value is None:
                continue
            if len(slot.theirs) == 2:
                half = len(value) // 2
                for name, part in zip(slot.theirs, (value[:half], value[half:]), strict=True):
                    attributes[name] = self.dialect.spell(part)
            else:
                attributes[slot.theirs[0]] = self.dialect.spell(value)
        return self.finish(node, spelling.domain, spelling.kind, version, inputs, attributes)

    def constant_key(self, node: Node, name: str, value: Any, slot: Slot | None = None) -> str | None:
        """The key of a new constant that holds an attribute's value; None for None."""
        if value is None:
            return None
        if isinstance(value, float):
            data: np.ndarray[Any, Any] = np.asarray(value, dtype=_float_beside(node).numpy)
        else:
            data = np.asarray(value, dtype=np.int64)
        if slot is not None and slot.how == "vector":
            data = data.reshape(-1)
        return self.initializer(node, ForeignTensor(dtypes.dtype(data.dtype), data, ""), name)

    def initializer(self, node: Node, tensor: ForeignTensor, name: str = "value") -> str:
        """The key of a new constant beside ``node``."""
        key = self.claim(f"{node.label}/{name}")
        self.foreign.constants[key] = replace(tensor, name=key)
        type = Tensor(tensor.dtype, tensor.data.shape)
        self.foreign.values[key] = self.typed[key] = ForeignValue(key, type, (), "", {"name": key})
        return key


def _bare(op: Op) -> str:
    """The operator as written; one that only writing knows, by the name of what it writes."""
    return str(op).lstrip("_")


def shortened(plain: Op, spelling: Spelling, node: Node) -> Op:
    """The operator as ``spelling`` would have it (what it implies set, what it has no word for left out), where that means the
    same for these inputs; otherwise as it is."""
    changes = {
        field.name: field.default
        for field in plain.fields
        if field.name != "outputs" and field.default is not REQUIRED and not spelling.covers(field.name)
    }
    for name, texts in spelling.fixed:
        field = op_mapping.field_of(spelling.op, name)
        if field is not None and name != "outputs":
            changes[name] = op_mapping.fixed_value(field, texts[0])
    short = plain.with_(**changes)
    return short if short != plain and short.canonical(*node.inputs) == plain else plain


def _in_their_order(spelling: Spelling, node: Node) -> list[Value | None]:
    """The inputs as ``spelling`` puts them; None for an attribute of ours among them."""
    given = arguments(node.op, node.inputs)
    xs: list[Value | None] = []
    for slot in spelling.inputs:
        found = given.get(slot.ours)
        xs.extend(found if isinstance(found, list) else [found])
    return xs


def arguments(op: Op, xs: Sequence[Value | None]) -> dict[str, Any]:
    """The inputs by the names of the signature; a list for a repeated one."""
    found: dict[str, Any] = {}
    position = 0
    for port in op.signature.inputs:
        if port.repeated:
            found[port.name] = list(xs[position:])
            position = len(xs)
        else:
            found[port.name] = xs[position] if position < len(xs) else None
            position += 1
    return found


def _float_beside(node: Node) -> dtypes.DType:
    """The element type of a float that stands among the inputs: that of the first input where it is a float type."""
    type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    dtype = getattr(type, "dtype", None)
    return dtype if dtype is not None and dtype.is_float else dtypes.f32


def constant_or_none(x: Value) -> np.ndarray[Any, Any] | None:
    try:
        return constant_of(x, "")
    except UnsupportedError:
        return None


def _plain(data: Any, op: Op, name: str) -> Any:
    """A constant input as an attribute value: lists are what shape rules read; any other input is one number."""
    is_list = next(port.host for port in op.signature.inputs if port.name == name)
    return data.reshape(()).item() if data.ndim == 0 or (data.size == 1 and not is_list) else tuple(data.tolist())


def _refusal(node: Node, error: DovetailError | Unknown | symbolic.Inexact) -> DovetailError:
    if isinstance(error, RuleError):
        return UnsupportedError(error.code, error.message)
    if isinstance(error, DovetailError):
        return error
    return UnsupportedError("type.unknown", f"how {type(node.op).__name__} is written depends on types that are not known")


def strip_metadata(graph: Graph) -> None:
    """Drop what only the format that a graph came from has a place for."""
    graph.metadata = {}
    for value in graph.values():
        value.metadata = {}
    for node in graph.nodes:
        node.metadata = {}
        for _, body in bodies(node.op):
            strip_metadata(body)


def remove_dead_made(graph: Graph) -> None:
    """Remove what rewriting left unread; nodes that the user's own file left unread go as well, as they compute nothing."""
    remove_dead(graph)


__all__ = ["Lowering", "VersionOf", "arguments", "lower"]
