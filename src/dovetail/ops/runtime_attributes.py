"""RuntimeAttributes: an operator that reads some attributes (an axis, axes, a count) from inputs at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.attribute_types import REQUIRED, Field
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply, type_of
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, check_inputs, draws, host_inputs, output_count
from dovetail.ir.signature import Signature, parse_signature
from dovetail.ir.types import Bounded, Shape, Size, Tensor, Type, Unknown, View
from dovetail.ops.shape_values import as_i64, elements_of, host_view_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace

MAX_CHOICES = 512
"""Largest number of combinations of axes for which types are inferred."""
_INTEGER_KINDS = ("int", "int | None", "tuple[int, ...]", "tuple[int, ...] | None")


class _Choice(NamedTuple):
    """_Choice holds a form, the operator with one combination of axes: the canonical operator and the output types."""

    op: Op
    types: list[Type]


class _InnerSignature:
    """_InnerSignature gives an instance the inner operator's signature, extended by one host input for each of ``names``."""

    def __get__(self, instance: RuntimeAttributes | None, owner: type[Op]) -> Signature:
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
    """Test whether an attribute may be read from an input: only integers and lists of integers may."""
    return field.annotation in _INTEGER_KINDS


class RuntimeAttributes(Op):
    """Apply ``op`` with the attributes ``names`` read from the last inputs, in the order of ``names``.

    The values that ``op`` itself has for these attributes are unused. An integer attribute is read from a tensor of one element,
    a list of integers from a tensor of rank 0 or 1. The inputs of ``op`` come first; an omitted optional input keeps its
    position. If the attribute values are known, the rules of ``op`` apply. Otherwise an attribute named ``axis`` or ``axes`` may
    be any of the axes, and the output types are types that hold for all choices. Sources:
    OpenVINO's VariadicSplit-1, Split-1, Gather-1, -7, -8, ScatterElementsUpdate-3, -12, ScatterUpdate-3, Unique-10, LRN-1.
    """

    is_in_catalog = False
    sig = "*xs: any -> *ys: any"
    signature = _InnerSignature()

    op: Op
    names: tuple[str, ...]
    outputs: int = 1

    def validate(self) -> None:
        for name in self.names:
            field = self.op.fields_by_name.get(name)
            if field is None or not can_be_input(field):
                known = ", ".join(field.name for field in self.op.fields if can_be_input(field)) or "none"
                raise RuleError(
                    "attribute.unknown",
                    f"{self.title}: a run-time attribute must be an integer attribute ({known}), got {name!r}",
                )
        if self.outputs != output_count(self.op):
            raise RuleError(
                "node.outputs", f"the number of outputs must be that of {self.op} ({output_count(self.op)}), got {self.outputs}"
            )

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
        cls, kind: type[Op], attributes: dict[str, Any], own: Iterable[Any], runtime: dict[str, Any]
    ) -> tuple[Op, list[Any]]:
        """Return an operator that applies ``kind`` with the attributes ``runtime`` read from inputs, and its input list.

        If the values of ``runtime`` are known, the operator is an instance of ``kind``.
        """
        op = kind(**{**attributes, **{name: _placeholder(kind, name) for name in runtime}})
        xs = list(own)
        if op.signature.repeated is None:
            xs += [None] * (len(op.signature.inputs) - len(xs))
        xs += runtime.values()
        results = cls(op, tuple(runtime), output_count(op))
        known = results.resolve(xs)
        return (results, xs) if known is None else (known, results.own_inputs(xs))

    # The inputs of `op`, and the inputs that hold attributes

    def own_inputs(self, xs: Iterable[Any]) -> list[Any]:
        """Return the inputs of ``op``: all inputs but the attribute inputs, without trailing None."""
        result = list(xs)[: -len(self.names)]
        while result and result[-1] is None:
            result.pop()
        return result

    def attribute_inputs(self, xs: Iterable[Any]) -> list[Any]:
        return list(xs)[-len(self.names) :]

    def resolve(self, xs: Iterable[Any]) -> Op | None:
        """Return ``op`` with the attribute values that the last inputs hold; None if one of the values is unknown."""
        result = {}
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            known = elements_of(x)
            if known is None or not all(isinstance(item, int) for item in known):
                return None
            result[name] = self._attribute(name, known, x.shape)
        return self.op.with_(**result)

    def _attribute(self, name: str, known: list[int], shape: Shape) -> Any:
        self._check_shape(name, shape)
        return tuple(known) if self._is_list(name) else known[0]

    def _is_list(self, name: str) -> bool:
        return self.op.fields_by_name[name].annotation.startswith("tuple")

    def _check_shape(self, name: str, shape: Shape | None) -> None:
        if shape is None:
            return
        if len(shape) > 1:
            raise RuleError("shape.rank", f"{name} must have the rank 0 or 1, got {len(shape)}")
        if not self._is_list(name) and shape and symbolic.equal(shape[0], 1) is False:
            raise RuleError("shape.single", f"{name} must have one element, got {shape[0]}")

    # The rules

    def types(self, *xs: View) -> list[Type]:
        check_inputs(self, xs)
        op, own = self.resolve(xs), self.own_inputs(xs)
        if op is not None:
            return op.types(*own)
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            self._check_shape(name, x.shape)
        result = self._choices(xs)
        if result is None:
            return self._types_without_shapes(own)
        return [_common_type_of([choice.types[index] for choice in result]) for index in range(self.outputs)]

    def _types_without_shapes(self, own: list[Any]) -> list[Type]:
        """Return the output types of ``op``: the element types, and unknown shapes."""
        views = [None if x is None else View(Tensor(x.type.dtype, None) if isinstance(x.type, Tensor) else x.type) for x in own]
        result = self.op.types(*views)
        return [Tensor(type.dtype, None) if isinstance(type, Tensor) else type for type in result]

    def _choices(self, xs: Iterable[Any]) -> list[_Choice] | None:
        """Return the distinct forms that ``op`` may take; None if the forms are unknown or too many.

        Raises RuleError if every form breaks a rule of its operator.
        """
        xs = list(xs)
        ranges = self._ranges(xs)
        if ranges is None:
            return None
        result: dict[Op, _Choice] = {}
        fault: RuleError | None = None
        for form in self._forms(xs, ranges):
            if isinstance(form, _Choice):
                result.setdefault(form.op, form)
            else:
                fault = form or fault
        if not result:
            raise fault or RuleError("axis.range", "at least one axis must be in range, got none")
        return list(result.values())

    def _ranges(self, xs: list[Any]) -> list[range] | None:
        """Return the range of axes for each element of the attributes; None for unknown ranges or too many combinations."""
        own = self.own_inputs(xs)
        first = own[0]
        if first is None or not isinstance(first.type, Tensor) or first.shape is None:
            return None
        rank = len(first.shape)
        result: list[range] = []
        for name, x in zip(self.names, self.attribute_inputs(xs), strict=True):
            if name not in ("axis", "axes"):
                return None
            count: Any = 1
            if self._is_list(name):
                count = None if x.shape is None else x.shape[0] if x.shape else 1
            if not isinstance(count, int) or count > rank:
                return None
            result += [range(rank)] * count
        return result if rank ** len(result) <= MAX_CHOICES else None

    def _forms(self, xs: list[Any], ranges: list[range]) -> Iterator[_Choice | RuleError | None]:
        """Yield for each combination of axes the form, the error that the form raises, or None if the inputs exclude the axes."""
        own, inputs = self.own_inputs(xs), self.attribute_inputs(xs)
        elements: list[Any] = []
        for name, x in zip(self.names, inputs, strict=True):
            known = elements_of(x)
            count = 1 if not self._is_list(name) else x.shape[0] if x.shape else 1
            elements += [None] * count if known is None else known
        for axes in product(*ranges):
            if not all(
                _is_possible(element, axis, len(span)) for element, axis, span in zip(elements, axes, ranges, strict=True)
            ):
                yield None
                continue
            try:
                form = self.op.with_(**self._attributes_of(axes, inputs))
                yield _Choice(form.canonical(*own), form.types(*own))
            except RuleError as error:
                yield error

    def _attributes_of(self, axes: tuple[int, ...], inputs: list[Any]) -> dict[str, Any]:
        """Return the attributes by name for one combination of axes."""
        result: dict[str, Any] = {}
        rest = list(axes)
        for name, x in zip(self.names, inputs, strict=True):
            count = 1 if not self._is_list(name) else x.shape[0] if x.shape else 1
            result[name] = tuple(rest[:count]) if self._is_list(name) else rest[0]
            del rest[:count]
        return result

    def value(self, *xs: View) -> Any:
        op = self.resolve(xs)
        if op is None:
            raise Unknown
        return op.value(*self.own_inputs(xs))

    def evaluate(self, xp: Namespace, *xs: Array) -> Any:
        result = {
            name: self._attribute(name, [int(item) for item in np.asarray(x).reshape(-1).tolist()], np.shape(x))
            for name, x in zip(self.names, self.attribute_inputs(xs), strict=True)
        }
        op, own = self.op.with_(**result), self.own_inputs(xs)
        # Inference knows only the set of possible forms, so that the rules of the selected form are checked here.
        hosts = host_inputs(op, len(own))
        views = (None if x is None else host_view_of(x) if host else View(type_of(x)) for x, host in zip(own, hosts, strict=True))
        op.types(*views)
        return apply(op, xp, own)

    def decompose(self, b: Builder, *xs: Value) -> Any:
        """Emit one branch for each form that ``op`` may take. Nested If operators select the branch.

        Raises UnsupportedError [constant.needed] if the forms are unknown.
        """
        op, own = self.resolve(xs), self.own_inputs(xs)
        if op is not None:
            return b.add(op, *own)
        ranges = self._ranges(list(xs))
        if ranges is None or not ranges:
            names = f"{' and '.join(self.names)} of {type(self.op).__name__}"
            raise UnsupportedError("constant.needed", f"{names} must be constant, got a computed value")
        table, forms = self._table(list(xs), ranges)
        if not forms:
            self._choices(xs)
        index = self._form_number(b, self.attribute_inputs(xs), ranges, table, len(forms))
        return _select_form(b, index, forms, own, 0, len(forms))

    def _table(self, xs: list[Any], ranges: list[range]) -> tuple[list[int], list[Op]]:
        """Return the form's index for each combination of axes (_NO_FORM for an invalid combination), and the forms."""
        numbers: dict[Op, int] = {}
        table = [
            numbers.setdefault(form.op, len(numbers)) if isinstance(form, _Choice) else _NO_FORM
            for form in self._forms(xs, ranges)
        ]
        return table, list(numbers)

    def _form_number(self, b: Builder, inputs: list[Any], ranges: list[range], table: list[int], count: int) -> Any:
        """Emit the index of the selected form. At run time Gather refuses an axis out of range and the index _NO_FORM."""
        code: Any = None
        flat = [b.Reshape(as_i64(b, x), [-1]) for x in inputs]
        joined = flat[0] if len(flat) == 1 else b.Concat(*flat, axis=0)
        for index, span in enumerate(ranges):
            axis = b.Reshape(joined, []) if len(ranges) == 1 else b.Gather(joined, b.constant(np.array(index)), axis=0)
            axis = b.Gather(b.constant(np.arange(len(span))), axis, axis=0)
            code = axis if code is None else b.Add(b.Multiply(code, b.constant(np.array(len(span)))), axis)
        if table == list(range(count)):
            return code
        position = b.Gather(b.constant(np.array(table)), code, axis=0)
        return position if _NO_FORM not in table else b.Gather(b.constant(np.arange(count)), position, axis=0)


_NO_FORM = 2**31 - 1
"""Form index of an invalid combination of axes: out of range for Gather, which refuses it."""


def _is_possible(element: Size | None, axis: int, rank: int) -> bool:
    """Test whether an element of a shape value may denote ``axis``, counted from the front or from the back."""
    return element is None or any(symbolic.equal(element, number) is not False for number in (axis, axis - rank))


def _select_form(b: Builder, index: Value, forms: list[Op], own: list[Any], first: int, stop: int) -> list[Value]:
    """Emit the outputs of the form ``index``, an index in [first, stop). Nested If operators select the form by binary search."""
    middle = max((first + stop) // 2, first + 1)
    branches = [_branch(forms, own, index, *part) for part in ((first, middle), (min(middle, stop - 1), stop))]
    captures = [index, *(x for x in own if x is not None)]
    choose: Any = b.apply
    results = choose(
        "If",
        b.Less(index, b.constant(np.array(middle))),
        *captures,
        then_branch=branches[0],
        else_branch=branches[1],
        outputs=output_count(forms[0]),
    )
    return list(results)


def _branch(forms: list[Op], own: list[Any], position: Value, first: int, stop: int) -> Graph:
    b = Builder(f"forms_{first}_{stop}")
    number = b.input_of("number", position.type)
    inputs = [None if x is None else b.input_of(f"x{index}", x.type) for index, x in enumerate(own)]
    for x, value in zip(own, inputs, strict=True):
        if value is not None and x.value is not None:
            value.value = x.value
    results = b.add(forms[first], *inputs) if stop - first == 1 else _select_form(b, number, forms, inputs, first, stop)
    b.graph.outputs = results
    return b.graph


def _common_type_of(types: list[Type]) -> Type:
    """Return a type that holds for each value of one of ``types``."""
    first = types[0]
    if not all(isinstance(type, Tensor) for type in types):
        return first if all(type == first for type in types) else Tensor(None, None)
    tensors = [type for type in types if isinstance(type, Tensor)]
    dtype = tensors[0].dtype if len({type.dtype for type in tensors}) == 1 else None
    shapes = [type.shape for type in tensors if type.shape is not None]
    if len(shapes) != len(tensors) or len({len(shape) for shape in shapes}) != 1:
        return Tensor(dtype, None)
    sizes: Any = tuple(_common_size_of(column) for column in zip(*shapes, strict=True))
    return Tensor(dtype, sizes)


def _common_size_of(sizes: tuple[Any, ...]) -> Any:
    """Return the common value of ``sizes`` if they are equal, otherwise their bounds; None if a size is unknown."""
    if any(size is None for size in sizes):
        return None
    if all(size == sizes[0] for size in sizes):
        return sizes[0]
    lows, highs = zip(
        *((size.low, size.high) if isinstance(size, Bounded) else symbolic.bounds(size) for size in sizes), strict=True
    )
    return Bounded(min(low or 0 for low in lows), None if None in highs else max(highs))


def as_attributes(b: Builder, node: Node) -> list[Value] | None:
    """Replace a RuntimeAttributes node with known attribute values by the inner operator; return None for any other node."""
    if not isinstance(node.op, RuntimeAttributes):
        return None
    op = node.op.resolve(node.inputs)
    return None if op is None else b.add(op, *node.op.own_inputs(node.inputs))


def _placeholder(kind: type[Op], name: str) -> Any:
    """Return the placeholder of an attribute that is read from an input: its default, or else 0 or an empty tuple.

    Raises RuleError [attribute.unknown] if the attribute cannot be an input.
    """
    field = kind.fields_by_name.get(name)
    if field is None or not can_be_input(field):
        raise RuleError("attribute.unknown", f"{kind.__name__} has no integer attribute {name!r}")
    if field.default is not REQUIRED:
        return field.default
    return () if field.annotation.startswith("tuple") else 0
