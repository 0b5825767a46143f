"""Table of terms: a Builder that normalizes operators, and creates one term for equal operators and operands (hash-consing)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType, DTypeLike
from dovetail.ir.edit import connect
from dovetail.ir.evaluate import fold_op
from dovetail.ir.graph import VALUE_LIMIT, Node, Operand, Value
from dovetail.ir.op import UNFORESEEN, Op, has, host_inputs, infer_types, infer_values
from dovetail.ir.types import Shape, Size, Tensor, Type, Unknown
from dovetail.laws.law import Result
from dovetail.laws.terms.keys import digest, operator_key
from dovetail.laws.terms.opaque import BoundParameter, KnownIntegers, Opaque
from dovetail.laws.terms.steps import ProofSteps
from dovetail.ops.constant import Constant
from dovetail.ops.runtime_attributes import RuntimeAttributes
from dovetail.ops.shape_values import elements_over_sizes

Rule: TypeAlias = "Callable[[Terms, Op, list[Value | None], list[Type]], Result]"
"""Function that returns terms equal to the outputs of an operator, or None if the rule does not apply.

Its parameters are the table, the operator, the operands and the inferred types of the outputs.
"""
Rules: TypeAlias = Callable[[type[Op]], Sequence[tuple[str, Rule]]]

MAX_DEPTH = 48
"""Maximum nesting of applied rules; operators at a greater depth are interned without rules."""
FOLD_BYTES = 1 << 26
"""Maximum size in bytes of a constant that is computed for comparison."""
FOLD_TOTAL = 1 << 29
"""Maximum size in bytes of all constants that are computed for comparison."""
SMALL = 1 << 12
"""Maximum size in bytes of a constant that is always hashed.

A larger constant is hashed if another constant has the same type and the same sampled elements.
"""
_SAMPLE = 64


class OutOfTime(Exception):
    """OutOfTime means that the deadline of a proof has passed."""


class Fold(NamedTuple):
    """Fold is the source of a constant: an operator on constants, or a function that moves the elements of ``operands[0]``.

    With a function, ``op`` is the operator that moves the elements so, or None.
    """

    op: Op | None
    operands: tuple[Value | None, ...]
    function: Callable[[Any], Any] | None = None


class Terms(Builder):
    """Terms is a graph in which equal values are one Value. ``rules`` returns the rules that normalize an operator class.

    ``applied`` holds the names of all rules with a name that were applied to create the requested terms. ``steps`` records the
    steps by which terms were created.
    """

    def __init__(self, rules: Rules, *, deadline: float | None = None, prefix: str = "", steps: ProofSteps | None = None) -> None:
        super().__init__(strict=False)
        self.rules = rules
        self.steps = steps
        self.deadline = deadline
        self.applied: set[str] = set()
        self.sources: dict[int, list[tuple[Value, Any]]] = {}
        """Maps the ids of terms to the terms of which they are slices, with the spans of the slices."""
        self.folds: dict[int, Fold] = {}
        """Maps the ids of constants of floats that no graph holds to the operators that compute them."""
        self.magnitudes: dict[int, tuple[Value, Value | None]] = {}
        """Maps the ids of terms to the terms and their magnitudes, which `rules/products.py` finds; None stands for 1."""
        self._prefix = prefix
        self._memo: dict[Hashable, list[Value]] = {}
        self._names: dict[Hashable, frozenset[str]] = {}
        self._constants: dict[Hashable, list[tuple[Value, bytes | None]]] = {}
        self._numbers: dict[int, int] = {}
        self._depth = 0
        self._folded = 0

    # Terms

    def add(self, op: Op, *inputs: Operand | None, names: Sequence[str | None] | None = None, name: str = "") -> list[Value]:
        """Return the terms that equal an operator applied to terms."""
        xs = self._values(op, inputs)
        while xs and xs[-1] is None:
            xs.pop()
        return self.term(op, xs)

    def term(self, op: Op, xs: list[Value | None]) -> list[Value]:
        """Return the terms that equal ``op`` applied to ``xs``."""
        if isinstance(op, Constant):
            return [self.constant(op.data, op.dtype)]
        if self.deadline is not None and monotonic() > self.deadline:
            raise OutOfTime
        if isinstance(op, RuntimeAttributes) and (resolved := op.resolve(xs)) is not None:
            own = list(op.own_inputs(xs))
            terms = self.term(resolved, own)
            if self.steps is not None:
                self.steps.begin()
                self.steps.add(resolved, own, terms)
                self.steps.end(op, xs, terms)
                self.steps.add(op, xs, terms)
            return terms
        key = (operator_key(op), *map(id, xs))
        if (known := self._memo.get(key)) is not None:
            self.applied |= self._names.get(key, frozenset())
            if self.steps is not None:
                self.steps.add(op, xs, known)
            return known
        outer, self.applied = self.applied, set()
        found: list[Value] | None = None
        if self.steps is not None:
            self.steps.begin()
        try:
            terms = found = self._new_term(op, xs)
        finally:
            names, self.applied = frozenset(self.applied), outer | self.applied
            if self.steps is not None:
                self.steps.end(op, xs, found)
        if self.steps is not None:
            self.steps.add(op, xs, terms)
        self._memo[key] = terms
        # Terms that a key holds by identity must stay alive: graph.nodes holds them.
        if names:
            self._names[key] = names
        return terms

    def _new_term(self, op: Op, xs: list[Value | None]) -> list[Value]:
        if not op.holds_graphs and (folded := self.fold_constants(op, xs)) is not None:
            return folded
        op = self._canonical(op, xs)
        types = infer_types(op, tuple(xs), self._stem(op))
        values = infer_values(op, tuple(xs), types)
        if len(types) == 1 and (known := self.known_term(values[0], types[0])) is not None:
            return [known]
        if self._depth < MAX_DEPTH:
            self._depth += 1
            try:
                for name, rule in self.rules(type(op)):
                    if (result := self._apply(rule, op, xs, types)) is not None:
                        if name:
                            self.applied.add(name)
                        return result
            finally:
                self._depth -= 1
        return self.intern(op, xs, types, values)

    def _apply(self, rule: Rule, op: Op, xs: list[Value | None], types: list[Type]) -> list[Value] | None:
        """Apply one rule; None if the rule meets unknown types, raises an error, or gives a result of another type."""
        mark = 0 if self.steps is None else self.steps.mark()
        try:
            result = rule(self, op, xs, types)
        except (Unknown, symbolic.Inexact, DovetailError, *UNFORESEEN):
            result = None
        if result is not None:
            values = [result] if isinstance(result, Value) else [y for y in result if y is not None]
            if len(values) == len(types) and all(map(_may_replace, values, types)):
                return values
        if self.steps is not None:
            self.steps.forget(mark)
        return None

    def intern(self, op: Op, xs: list[Value | None], types: list[Type], values: Sequence[Any] | None = None) -> list[Value]:
        """Return the term of an operator and operands without applying rules; a term that does not exist is created."""
        key = ("node", operator_key(op), *self._operand_keys(op, xs), *map(_type_key, types))
        if (known := self._memo.get(key)) is not None:
            if self.steps is not None:
                self.steps.add(op, xs, known)
            return known
        outputs = [Value(self.graph.claim(self._stem(op)), type) for type in types]
        for y, value in zip(outputs, values or (), strict=False):
            if value is not None:
                y.value = value
        self.graph.nodes.append(connect(Node(op, list(xs), outputs)))
        self._memo[key] = outputs
        for y in outputs:
            self.number_of(y)
        if self.steps is not None:
            self.steps.add(op, xs, outputs)
        return outputs

    def _operand_keys(self, op: Op, xs: list[Value | None]) -> list[Hashable]:
        """Return the keys of the operands: the elements if shape rules read them and they are known, else the id."""
        hosts = host_inputs(op, len(xs)) if op.signature.has_hosts else ()
        return [
            ("integers", *elements) if x is not None and host and (elements := known_elements(x)) is not None else id(x)
            for x, host in zip(xs, hosts or (False,) * len(xs), strict=True)
        ]

    def _canonical(self, op: Op, xs: list[Value | None]) -> Op:
        if not has(op, "canonical"):
            return op
        try:
            return op.canonical(*xs)
        except (Unknown, symbolic.Inexact, DovetailError, *UNFORESEEN):
            return op

    def _stem(self, op: Op) -> str:
        return f"{self._prefix}{op.title.lower()}_{len(self.graph.nodes)}"

    def plain(self, op: Op, xs: Sequence[Value | None]) -> Value:
        """Return the term of an operator with one output without applying rules."""
        if self.deadline is not None and monotonic() > self.deadline:
            raise OutOfTime
        types = infer_types(op, tuple(xs), self._stem(op))
        return self.intern(op, list(xs), types)[0]

    def opaque(self, key: Hashable, xs: Sequence[Value | None], types: Sequence[Type]) -> list[Value]:
        """Return the outputs of an operator that is compared only by ``key``; a new term has outputs of ``types``."""
        whole = ("opaque", key, len(types), *map(id, xs))
        if (known := self._memo.get(whole)) is None:
            op = Opaque(key=key, result_types=tuple(types), outputs=len(types))
            known = self._memo[whole] = self.intern(op, list(xs), self.fresh_types(types))
        return known

    def parameter(self, depth: int, position: int, type: Type) -> Value:
        """Return input ``position`` of the subgraph at ``depth``; each size of None in ``type`` is a new symbol."""
        op = BoundParameter(depth=depth, position=position, type=type)
        key = ("parameter", depth, position, type if depth >= 0 else None)
        if (known := self._memo.get(key)) is None:
            known = self._memo[key] = self.intern(op, [], self.fresh_types([type]))
        return known[0]

    def fresh_types(self, types: Sequence[Type]) -> list[Type]:
        """Return types with a new symbol for each size of None."""
        stem = f"?{self._prefix}open_{len(self.graph.nodes)}"
        return [
            Tensor(
                type.dtype,
                tuple(
                    symbolic.symbol(f"{stem}:{index}.{axis}") if size is None else size for axis, size in enumerate(type.shape)
                ),
            )
            if isinstance(type, Tensor) and type.shape is not None
            else type
            for index, type in enumerate(types)
        ]

    def number_of(self, x: Value) -> int:
        """Return the number of a term, in the order in which terms were created."""
        return self._numbers.setdefault(id(x), len(self._numbers))

    # Integers that inference knows

    def known_term(self, value: np.ndarray[Any, Any] | None, type: Type) -> Value | None:
        """Return the term of an integer value whose elements are known as expressions over sizes; None for other values."""
        if value is None or not isinstance(type, Tensor) or type.dtype is None:
            return None
        elements = elements_over_sizes(value)
        if elements is None:
            return None
        shape = tuple(map(int, np.shape(value)))
        if not any(isinstance(item, symbolic.Dim) for item in elements):
            return self.constant(np.array(elements, dtype=type.dtype.numpy).reshape(shape), type.dtype)
        return self.integers(elements, type.dtype, shape)

    def integers(self, elements: tuple[Size, ...], dtype: DType, shape: tuple[int, ...]) -> Value:
        """Return the term of integers as expressions over sizes."""
        op = KnownIntegers(elements=elements, dtype=dtype, extents=shape)
        return self.intern(op, [], op.types(), [op.value()])[0]

    # Constants

    def constant(self, data: Operand, dtype: DTypeLike | None = None, name: str | None = None) -> Value:
        """Return the term of a constant; constants of equal elements are one term."""
        value = super().constant(data, dtype, name)
        self.graph.nodes.pop()
        array = value.constant
        assert array is not None
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array).reshape(array.shape)
            value = super().constant(array, value.dtype)
            self.graph.nodes.pop()
        form = (value.dtype.name, array.shape)
        if array.dtype.hasobject or array.nbytes <= SMALL:
            key: Hashable = (*form, digest(array))
            bucket = self._constants.setdefault(key, [])
            return bucket[0][0] if bucket else self._keep(value, bucket, None)
        flat, middle = array.reshape(-1), array.size // 2
        sample = b"".join(flat[start : start + _SAMPLE].tobytes() for start in (0, middle, array.size - _SAMPLE))
        bucket = self._constants.setdefault((*form, sample), [])
        if not bucket:
            return self._keep(value, bucket, None)
        own = digest(array)
        for index, (other, code) in enumerate(bucket):
            if code is None:
                assert other.constant is not None
                if other.constant is array:
                    return other
                code = digest(other.constant)
                bucket[index] = other, code
            if code == own:
                return other
        return self._keep(value, bucket, own)

    def new_constant(self, data: Operand, dtype: DTypeLike) -> Value:
        """Return a new term of a constant that is not merged with constants of equal elements."""
        value = super().constant(data, dtype)
        self.number_of(value)
        return value

    def _keep(self, value: Value, bucket: list[tuple[Value, bytes | None]], code: bytes | None) -> Value:
        assert value.node is not None and value.constant is not None
        self.graph.nodes.append(value.node)
        if value.dtype.name == "boolean" and value.constant.size <= VALUE_LIMIT:
            # Rules of shape values also read booleans, but a Constant sets no shape value for booleans.
            value.value = value.constant
        bucket.append((value, code))
        self.number_of(value)
        return value

    def move_constant(self, op: Op | None, xs: Sequence[Value], function: Callable[[Any], Any]) -> Value:
        """Return the constant whose elements are those of the constant ``xs[0]``, moved by ``function``.

        ``op`` with the operands ``xs`` is the operator that does the same; None is the first one of equal elements.
        """
        count = len(self.graph.nodes)
        moved = self._moved_constant(xs[0], function)
        if id(xs[0]) in self.folds:
            self._record_fold(count, moved, Fold(op, tuple(xs), function))
        if self.steps is not None and op is not None:
            self.steps.begin()
            self.steps.end(op, xs, [moved])
            self.steps.add(op, xs, [moved])
        return moved

    def _moved_constant(self, x: Value, function: Callable[[Any], Any]) -> Value:
        array = np.asarray(function(x.constant))
        return self.constant(np.ascontiguousarray(array).reshape(array.shape), x.dtype)

    def fold_constants(self, op: Op, xs: list[Value | None]) -> list[Value] | None:
        """Evaluate an operator on constants; None if an input is not constant or a result too large."""
        count = len(self.graph.nodes)
        folded = self._folded_constants(op, xs)
        if folded is not None and len(folded) == 1:
            self._record_fold(count, folded[0], Fold(op, tuple(xs)))
        if folded is not None and self.steps is not None:
            self.steps.begin()
            self.steps.end(op, xs, folded)
            self.steps.add(op, xs, folded)
        return folded

    def _record_fold(self, count: int, value: Value, fold: Fold) -> None:
        """Record the source of a float constant, if it is a new one of a graph that had ``count`` nodes."""
        is_new = len(self.graph.nodes) > count and self.graph.nodes[-1] is value.node
        if is_new and isinstance(value.type, Tensor) and value.dtype.name == "f32":
            self.folds[id(value)] = fold

    def _folded_constants(self, op: Op, xs: list[Value | None]) -> list[Value] | None:
        if not xs or not all(x is None or x.constant is not None for x in xs) or self._folded > FOLD_TOTAL:
            return None
        try:
            arrays = fold_op(op, xs, FOLD_BYTES, is_counted=False)
        except (DovetailError, Unknown, symbolic.Inexact, *UNFORESEEN):
            return None
        if arrays is None:
            return None
        self._folded += sum(array.nbytes for array, _ in arrays)
        return [self.constant(array, dtype) for array, dtype in arrays]


def known_elements(x: Value) -> tuple[Size, ...] | None:
    """Return the elements of an integer term as expressions over sizes; None if they are not known."""
    if not isinstance(x.type, Tensor) or x.type.dtype is None or not x.type.dtype.is_integer:
        return None
    value = x.value if x.constant is not None else x._value
    return None if value is None else elements_over_sizes(value)


def known_shape(x: Value) -> Shape | None:
    """Return the shape of a tensor of known rank, else None."""
    return x.type.shape if isinstance(x.type, Tensor) else None


def _may_replace(value: Value, type: Type) -> bool:
    """Return whether a term has the element type of ``type``, and no rank or size that contradicts ``type``."""
    if not isinstance(value.type, Tensor) or not isinstance(type, Tensor):
        return value.type == type
    if type.dtype is not None and value.type.dtype is not type.dtype:
        return False
    first, second = value.type.shape, type.shape
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        a is b or a is None or b is None or symbolic.equal(a, b) is not False for a, b in zip(first, second, strict=True)
    )


def _type_key(type: Type) -> Any:
    """Return the part of an output's type that identifies a term: the element type, since sizes follow from the operands."""
    return type.dtype if isinstance(type, Tensor) else type.__class__
