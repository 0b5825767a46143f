"""RuntimeAttributes: an operator whose attributes (an axis, axes, a count) are partly computed at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail import symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import REQUIRED, Field, Op, check_inputs, draws, host_inputs, output_count
from dovetail.ir.signature import Signature, parse_signature
from dovetail.ir.types import Bounded, Shape, Tensor, Type, Unknown, View
from dovetail.ops.shape_values import as_i64, elements_of, host_view_of

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace

MOST_CHOICES = 512
"""The most raw values of an attribute that are tried to learn what may come of it."""
_INTEGER_KINDS = ("int", "int | None", "tuple[int, ...]", "tuple[int, ...] | None")


class _Choice(NamedTuple):
    """One form that the operator may take: its plainest spelling, and the types of its outputs."""

    op: Op
    types: list[Type]


class _InnerSignature:
    """The signature of an instance: that of the operator inside, and one more host input for each of ``names``."""

    def __get__(self, instance: Any, owner: type[Op]) -> Signature:
        if instance is None:
            return parse_signature(owner.sig)
        key = type(instance.op), instance.names
        if key not in _SIGNATURES:
            inner = type(instance.op).signature
            last = parse_signature(", ".join(f"{name}!: I_{name}" for name in instance.names) + " ->").inputs
            _SIGNATURES[key] = Signature((*inner.inputs, *last), inner.outputs)
        return _SIGNATURES[key]


_SIGNATURES: dict[tuple[type[Op], tuple[str, ...]], Signature] = {}


def can_be_input(field: Field) -> bool:
    """Whether an attribute may also come as an input: whole numbers may."""
    return field.annotation in _INTEGER_KINDS


class RuntimeAttributes(Op):
    """``op`` with the attributes ``names`` read from the last inputs, in that order; what ``op`` has in their place is not used.

    An integer attribute is a tensor of one element, a list of integers a tensor of rank 0 or 1. The inputs of ``op`` come first;
    one that is left out keeps its place. Where the values are known the rules are those of ``op``. Elsewhere an attribute called
    ``axis`` or ``axes`` is taken to be each of the axes in turn: what all of these agree in is known. Sources: OpenVINO's
    VariadicSplit-1, Split-1, Gather-1, -7, -8, ScatterElementsUpdate-3, -12, ScatterUpdate-3, Unique-10, LRN-1.
    """

    sig = "*xs: any -> *ys: any"
    signature = _InnerSignature()

    op: Op
    names: tuple[str, ...]
    outputs: int = 1

    def validate(self) -> None:
        for name in self.names:
            field = self.op.fields_by_name.get(name)
            if field is None or not can_be_input(field):
                raise RuleError("attribute.input", f"{type(self.op).__name__} has no integer attribute {name!r}")
        if self.outputs != output_count(self.op):
            raise RuleError("node.outputs", f"{self.outputs} outputs, but {self.op} has {output_count(self.op)}")

    def is_random(self, *xs: View) -> bool:
        return draws(self.op, xs[: -len(self.names)])

    @property
    def title(self) -> str:
        return type(self.op).__name__

    def __repr__(self) -> str:
        rest = repr(self.op).removeprefix(self.title).removeprefix("(").removesuffix(")")
        return f"{self.title}({', '.join([*(f'{name}=<input>' for name in self.names), *([rest] if rest else [])])})"

    @classmethod
    def with_inputs(
        cls, kind: type[Op], attributes: dict[str, Any], own: Iterable[Any], given: dict[str, Any]
    ) -> tuple[Op, list[Any]]:
        """The operator ``kind`` with ``attributes``, those in ``given`` read from inputs, and all of its inputs; the plain
        operator where their values are known."""
        op = kind(**{**attributes, **{name: _unused(kind, name) for name in given}})
        xs = list(own)
        if op.signature.repeated is None:
            xs += [None] * (len(op.signature.inputs) - len(xs))
        xs += given.values()
        made = cls(op, tuple(given), output_count(op))
        known = made.resolved(xs)
        return (made, xs) if known is None else (known, made.own_inputs(xs))

    # The two parts of the inputs

    def own_inputs(self, xs: Iterable[Any]) -> list[Any]:
        """The inputs of ``op``."""
        found = list(xs)[: -len(self.names)]
        while found and found[-1] is None:
            found.pop()
        return found

    def attribute_inputs(self, xs: Iterable[Any]) -> list[Any]:
        return list(xs)[-len(self.names) :]

    def resolved(self, xs: Iterable[Any]) -> Op | None:
        """``op`` with the attributes as the inputs say; None where these are not known."""
        found = {}
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            known = elements_of(x)
            if known is None or not all(isinstance(item, int) for item in known):
                return None
            found[name] = self._attribute(name, known, x.shape)
        return self.op.with_(**found)

    def _attribute(self, name: str, known: list[int], shape: Shape) -> Any:
        self._check_shape(name, shape)
        return tuple(known) if self._is_list(name) else known[0]

    def _is_list(self, name: str) -> bool:
        return self.op.fields_by_name[name].annotation.startswith("tuple")

    def _check_shape(self, name: str, shape: Shape | None) -> None:
        if shape is None:
            return
        if len(shape) > 1:
            raise RuleError("input.rank", f"{name} should be of rank 0 or 1, not {len(shape)}")
        if not self._is_list(name) and shape and symbolic.equal(shape[0], 1) is False:
            raise RuleError("attribute.count", f"{name} should be one number, got {shape[0]}")

    # The rules

    def types(self, *xs: View) -> list[Type]:
        check_inputs(self, xs)
        op, own = self.resolved(xs), self.own_inputs(xs)
        if op is not None:
            return op.types(*own)
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            self._check_shape(name, x.shape)
        found = self._choices(xs)
        if found is None:
            return self._open_types(own)
        return [_merged([choice.types[index] for choice in found]) for index in range(self.outputs)]

    def _open_types(self, own: list[Any]) -> list[Type]:
        """Element types alone: nothing is known of the shapes."""
        blurred = [None if x is None else View(Tensor(x.type.dtype, None) if isinstance(x.type, Tensor) else x.type) for x in own]
        found = self.op.types(*blurred)
        return [Tensor(type.dtype, None) if isinstance(type, Tensor) else type for type in found]

    def _choices(self, xs: Iterable[Any]) -> list[_Choice] | None:
        """Every form that ``op`` may take for the attributes that may come, each once; None where they are too many.

        Raises RuleError where none is sound.
        """
        xs = list(xs)
        ranges = self._ranges(xs)
        if ranges is None:
            return None
        found: dict[Op, _Choice] = {}
        failed: RuleError | None = None
        for form in self._forms(xs, ranges):
            if isinstance(form, _Choice):
                found.setdefault(form.op, form)
            else:
                failed = form or failed
        if not found:
            raise failed or RuleError("axis.range", "no axis is in range")
        return list(found.values())

    def _ranges(self, xs: list[Any]) -> list[range] | None:
        """For each element of the attributes the axes that it may be; None where that is not known, or they are too many."""
        own = self.own_inputs(xs)
        first = own[0]
        if first is None or not isinstance(first.type, Tensor) or first.shape is None:
            return None
        rank = len(first.shape)
        found: list[range] = []
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            if name not in ("axis", "axes"):
                return None
            count: Any = 1
            if self._is_list(name):
                count = None if x.shape is None else x.shape[0] if x.shape else 1
            if not isinstance(count, int) or count > rank:
                return None
            found += [range(rank)] * count
        return found if rank ** len(found) <= MOST_CHOICES else None

    def _forms(self, xs: list[Any], ranges: list[range]) -> Iterator[_Choice | RuleError | None]:
        """For each combination of axes the form that it gives ``op``, or which rule it breaks; None where it cannot come."""
        own, given = self.own_inputs(xs), self.attribute_inputs(xs)
        elements: list[Any] = []
        for name, x in zip(self.names, given, strict=True):
            known = elements_of(x)
            count = 1 if not self._is_list(name) else x.shape[0] if x.shape else 1
            elements += [None] * count if known is None else known
        for axes in product(*ranges):
            if not all(_may_be(element, axis, len(span)) for element, axis, span in zip(elements, axes, ranges, strict=True)):
                yield None
                continue
            try:
                form = self.op.with_(**self._distributed(axes, given))
                yield _Choice(form.canonical(*own), form.types(*own))
            except RuleError as error:
                yield error

    def _distributed(self, axes: tuple[int, ...], given: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        rest = list(axes)
        for name, x in zip(self.names, given, strict=True):
            count = 1 if not self._is_list(name) else x.shape[0] if x.shape else 1
            found[name] = tuple(rest[:count]) if self._is_list(name) else rest[0]
            del rest[:count]
        return found

    def value(self, *xs: View) -> Any:
        op = self.resolved(xs)
        if op is None:
            raise Unknown
        return op.value(*self.own_inputs(xs))

    def evaluate(self, xp: Namespace, *xs: Array) -> Any:
        from dovetail.interpreter.evaluate import apply, type_of

        found = {
            name: self._attribute(name, [int(item) for item in np.asarray(x).reshape(-1).tolist()], np.shape(x))
            for name, x in zip(self.names, self.attribute_inputs(xs), strict=True)
        }
        op, own = self.op.with_(**found), self.own_inputs(xs)
        # No walk has held the rules of this form against these inputs.
        hosts = host_inputs(op, len(own))
        views = (None if x is None else host_view_of(x) if host else View(type_of(x)) for x, host in zip(own, hosts, strict=True))
        op.types(*views)
        return apply(op, xp, own)

    def decompose(self, b: Builder, *xs: Value) -> Any:
        """``op`` for each form that it may take, the one that is meant chosen by If.

        Raises UnsupportedError [constant.needed] where the forms are not known.
        """
        op, own = self.resolved(xs), self.own_inputs(xs)
        if op is not None:
            return b.add(op, *own)
        ranges = self._ranges(list(xs))
        if ranges is None or not ranges:
            what = f"{' and '.join(self.names)} of {type(self.op).__name__}"
            raise UnsupportedError("constant.needed", f"{what} is computed at run time, and has to be a constant here")
        table, forms = self._table(list(xs), ranges)
        if not forms:
            self._choices(xs)
        place = self._place(b, self.attribute_inputs(xs), ranges, table, len(forms))
        return _chosen(b, place, forms, own, 0, len(forms))

    def _table(self, xs: list[Any], ranges: list[range]) -> tuple[list[int], list[Op]]:
        """For each combination of axes the number of its form, and the forms; of one that breaks a rule a number past all."""
        numbers: dict[Op, int] = {}
        table = [
            numbers.setdefault(form.op, len(numbers)) if isinstance(form, _Choice) else _NO_FORM
            for form in self._forms(xs, ranges)
        ]
        return table, list(numbers)

    def _place(self, b: Builder, given: list[Any], ranges: list[range], table: list[int], count: int) -> Any:
        """The number of the form that is meant. Gather itself refuses, when it runs, an axis out of range and a form that breaks
        a rule."""
        code: Any = None
        flat = [b.Reshape(as_i64(b, x), [-1]) for x in given]
        joined = flat[0] if len(flat) == 1 else b.Concat(*flat, axis=0)
        for index, span in enumerate(ranges):
            axis = b.Reshape(joined, []) if len(ranges) == 1 else b.Gather(joined, b.constant(np.array(index)), axis=0)
            axis = b.Gather(b.constant(np.arange(len(span))), axis, axis=0)
            code = axis if code is None else b.Add(b.Multiply(code, b.constant(np.array(len(span)))), axis)
        if table == list(range(count)):
            return code
        place = b.Gather(b.constant(np.array(table)), code, axis=0)
        return place if _NO_FORM not in table else b.Gather(b.constant(np.arange(count)), place, axis=0)


_NO_FORM = 2**31 - 1
"""In a table of forms: no form, an index that Gather refuses."""


def _may_be(element: Any, axis: int, rank: int) -> bool:
    """Whether an element of a shape value may mean this axis, counted from either end."""
    return element is None or any(symbolic.equal(element, number) is not False for number in (axis, axis - rank))


def _chosen(b: Builder, place: Any, forms: list[Op], own: list[Any], first: int, stop: int) -> list[Value]:
    """The outputs of the form whose number is ``place``, which is in [first, stop)."""
    middle = max((first + stop) // 2, first + 1)
    branches = [_branch(forms, own, place, *part) for part in ((first, middle), (min(middle, stop - 1), stop))]
    given = [place, *(x for x in own if x is not None)]
    choose: Any = b.apply
    made = choose(
        "If",
        b.Less(place, b.constant(np.array(middle))),
        *given,
        then_branch=branches[0],
        else_branch=branches[1],
        outputs=output_count(forms[0]),
    )
    return list(made)


def _branch(forms: list[Op], own: list[Any], place: Any, first: int, stop: int) -> Graph:
    b = Builder(f"forms_{first}_{stop}")
    number = b.input_of("number", place.type)
    inputs = [None if x is None else b.input_of(f"x{index}", x.type) for index, x in enumerate(own)]
    for x, value in zip(own, inputs, strict=True):
        if value is not None and x.value is not None:
            value.value = x.value
    made = b.add(forms[first], *inputs) if stop - first == 1 else _chosen(b, number, forms, inputs, first, stop)
    b.graph.outputs = made
    return b.graph


def _merged(types: list[Type]) -> Type:
    """What holds for a value of any of these types."""
    first = types[0]
    if not all(isinstance(type, Tensor) for type in types):
        return first if all(type == first for type in types) else Tensor(None, None)
    tensors = [type for type in types if isinstance(type, Tensor)]
    dtype = tensors[0].dtype if len({type.dtype for type in tensors}) == 1 else None
    shapes = [type.shape for type in tensors if type.shape is not None]
    if len(shapes) != len(tensors) or len({len(shape) for shape in shapes}) != 1:
        return Tensor(dtype, None)
    sizes: Any = tuple(_any_of(column) for column in zip(*shapes, strict=True))
    return Tensor(dtype, sizes)


def _any_of(sizes: tuple[Any, ...]) -> Any:
    """The size that all agree in; else within which bounds it lies."""
    if any(size is None for size in sizes):
        return None
    if all(size == sizes[0] for size in sizes):
        return sizes[0]
    lows, highs = zip(
        *((size.low, size.high) if isinstance(size, Bounded) else symbolic.bounds(size) for size in sizes), strict=True
    )
    return Bounded(min(low or 0 for low in lows), None if None in highs else max(highs))


def as_attributes(b: Builder, node: Node) -> list[Value] | None:
    """A rewriting rule: RuntimeAttributes whose values are known is the operator itself."""
    if not isinstance(node.op, RuntimeAttributes):
        return None
    op = node.op.resolved(node.inputs)
    return None if op is None else b.add(op, *node.op.own_inputs(node.inputs))


def _unused(kind: type[Op], name: str) -> Any:
    """What stands in the place of an attribute that comes as an input: its default, or the plainest value.

    Raises RuleError [attribute.input] where the attribute cannot be an input.
    """
    field = kind.fields_by_name.get(name)
    if field is None or not can_be_input(field):
        raise RuleError("attribute.input", f"{kind.__name__} has no integer attribute {name!r}")
    if field.default is not REQUIRED:
        return field.default
    return () if field.annotation.startswith("tuple") else 0


__all__ = ["RuntimeAttributes", "as_attributes", "can_be_input"]
