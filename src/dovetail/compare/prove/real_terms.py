"""Terms over the real numbers: composed operators are decomposed, sums and products are put into one order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.compare.prove.model_terms import Numbered
from dovetail.compare.rounding.rounding_functions import evaluate_with_error
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType, DTypeLike
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Node, Operand, Value
from dovetail.ir.op import UNFORESEEN, Op
from dovetail.ir.substitution import map_sizes
from dovetail.ir.types import Size, Tensor, Unknown
from dovetail.laws.table import real_rules
from dovetail.laws.terms.opaque import BoundParameter, KnownIntegers, Opaque
from dovetail.laws.terms.steps import ProofSteps
from dovetail.laws.terms.terms import FOLD_BYTES, Fold, OutOfTime, Terms
from dovetail.ops.constant import Constant
from dovetail.ops.elementwise.binary import Add, Subtract
from dovetail.ops.reduction.reduce import ReduceMean, ReduceSum
from dovetail.ops.tensor.transpose_expand_tile import Expand

ULPS = 2
"""Maximum distance in ulp of a computed constant and an equal stored constant, since each of them is rounded once."""
_PLAIN = ("f32", "f64")
MAX_LOSS = 64.0
"""Maximum factor by which a sum of inexact constants may magnify their relative error; a sum that cancels may be any number."""
_SAMPLED = 64
"""Number of the elements of a constant of which the largest is compared first."""
MAX_PLACES = 64
"""Maximum number of buckets in which a constant with a bound of its rounding is listed."""
MAX_BOUNDED = 1 << 22
"""Maximum number of elements of a constant of a rewrite whose rounding is bounded."""
FOLDED = "folded constants up to rounding"
"""The rewrite of a constant that an operator gives in f32 as the constant that it gives over the real numbers."""
MAX_CANDIDATES = 64
"""Maximum number of constants of one shape with which a computed constant is compared."""


class ConstantErrors:
    """ConstantErrors records constants that replace a nearly equal one, and constants whose sum cancels, which must be exact."""

    def __init__(self) -> None:
        self._sources: dict[int, list[Value]] = {}
        self._inexact: set[int] = set()
        self._exact: set[int] = set()

    def add_sources(self, value: Value, sources: Sequence[Value]) -> None:
        """Record the constants from which ``value`` was computed."""
        known = self._sources.setdefault(id(value), [])
        known += [source for source in sources if source is not value and not any(source is each for each in known)]

    def are_inexact(self, values: Sequence[Value]) -> bool:
        """Return whether one of the constants, or a constant from which it was computed, replaces a nearly equal constant."""
        return any(key in self._inexact for key in self._origins(values))

    def may_equal(self, value: Value, *, is_exact: bool) -> bool:
        """Return whether ``value`` may replace another constant; without ``is_exact`` the replacement is recorded as inexact."""
        if is_exact:
            return True
        if id(value) in self._exact:
            return False
        self._inexact.add(id(value))
        return True

    def has_inexact(self) -> bool:
        return bool(self._inexact)

    def keep_exact(self, values: Sequence[Value], bounded: Collection[int] = ()) -> bool:
        """Record that ``values`` and their sources must stay exact. Returns False if one of them is inexact already.

        ``bounded``: ids of constants that may be inexact, since the bound of their rounding is part of a bound of the sum.
        """
        origins = {key for key in self._origins(values) if key not in bounded}
        self._exact |= origins
        return origins.isdisjoint(self._inexact)

    def _origins(self, values: Sequence[Value]) -> set[int]:
        found: set[int] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            if id(value) not in found:
                found.add(id(value))
                pending += self._sources.get(id(value), ())
        return found


class RealTerms(Terms):
    """RealTerms is a table of terms in which a computed constant equals a stored constant up to rounding.

    Constants that rules compute are kept in f64. Two stored constants are equal only if their bits are equal.
    """

    def __init__(self, rules: Any, *, deadline: float | None = None, steps: ProofSteps | None = None) -> None:
        super().__init__(rules, deadline=deadline, prefix="real_", steps=steps)
        self._wide: dict[int, np.ndarray[Any, Any]] = {}
        self._by_shape: dict[tuple[str, tuple[int, ...], int], list[Value]] = {}
        self._partners: dict[int, Value] = {}
        self._listed: set[int] = set()
        self._errors = ConstantErrors()
        self._bounds: dict[int, np.ndarray[Any, Any]] = {}
        """Maps the ids of folded constants to bounds of the rounding of their elements, where these are known."""

    def is_near(self, stored: Value, real: Value) -> bool:
        """Return whether a constant equals one over the real numbers but for the rounding of each element."""
        elements = self.exact_elements(real)
        if stored.constant is None or elements is None or elements.shape != stored.constant.shape:
            return False
        return are_within_rounding(np.asarray(stored.constant, np.float64), elements, stored.dtype)

    def has_near_constants(self) -> bool:
        """Return whether a computed constant equals a stored one up to rounding alone."""
        return self._errors.has_inexact()

    def is_computed(self, x: Value) -> bool:
        """Return whether a constant was computed, so that its elements are not rounded."""
        return id(x) in self._wide

    def exact_elements(self, x: Value) -> np.ndarray[Any, Any] | None:
        """Return the elements of a float constant in f64; elements of a computed constant are not rounded."""
        data = x.constant
        if data is None:
            return None
        wide = self._wide.get(id(x))
        return np.asarray(data, dtype=np.float64) if wide is None else wide

    def fold_again(self, fold: Fold, operands: Sequence[Value | None], stored: Value) -> Value | None:
        """Return the constant that an operator computes of real terms, in f64; None if it is not within rounding of ``stored``.

        ``stored`` is the constant that the operator gives in f32; :func:`evaluate_with_error` has the bound of its rounding.
        """
        xs = [x for x in operands if x is not None]
        if len(xs) < len(operands) or stored.constant is None or stored.constant.nbytes > FOLD_BYTES:
            return None
        if fold.function is not None:
            return self._moved_constant(xs[0], fold.function) if self.is_computed(xs[0]) else None
        floats = [x for x in xs if x.dtype.is_float]
        if fold.op is None or not floats or any(x.dtype.name != "f32" for x in floats):
            return None
        if fold.op.moves_elements and not any(map(self.is_computed, floats)):
            return None
        if any(x.constant is None for x in xs) or sum(x.constant.nbytes for x in floats if x.constant is not None) > FOLD_BYTES:
            return None
        arrays = [self.exact_elements(x) if x.dtype.is_float else x.constant for x in xs]
        errors = [self._error_of(x) if x.dtype.is_float else None for x in xs]
        try:
            found = evaluate_with_error(fold.op, arrays, errors)
        except (DovetailError, Unknown, symbolic.Inexact, *UNFORESEEN):
            return None
        if found is None or found[0].shape != stored.constant.shape:
            return None
        if not are_within_rounding(np.asarray(stored.constant, np.float64), found[0], stored.dtype, found[1]):
            return None
        return self.computed_constant(found[0], stored.dtype, floats, found[1])

    def _error_of(self, x: Value) -> np.ndarray[Any, Any]:
        """Return a bound of the difference between the elements of a constant and those of its rounded form."""
        elements = self.exact_elements(x)
        assert elements is not None
        if not self.is_computed(x):
            return np.zeros_like(elements)
        with np.errstate(all="ignore"):
            rounded = np.asarray(ULPS * np.spacing(np.abs(elements).astype(x.dtype.numpy)), np.float64)
        return np.maximum(rounded, self._bounds[id(x)]) if id(x) in self._bounds else rounded

    def computed_constant(
        self,
        array: np.ndarray[Any, Any],
        dtype: DType,
        sources: Sequence[Value] = (),
        bound: np.ndarray[Any, Any] | None = None,
    ) -> Value:
        """Return a constant for computed elements in f64: a known constant that is equal up to rounding, else a new one.

        ``sources`` are the constants from which the elements were computed, ``bound`` is a bound of the rounding of each element.
        """
        value = self._near_constant(array, dtype, self._errors.are_inexact(sources), bound)
        if value is None:
            with np.errstate(all="ignore"):
                rounded = array.astype(dtype.numpy)
            # A separate term: a stored constant of the same bits becomes this term only after the checks of `constant`.
            value = self.new_constant(rounded, dtype)
            self._wide[id(value)] = array
            if bound is not None:
                self._bounds[id(value)] = bound
            self._list(value, array)
        self._errors.add_sources(value, sources)
        return value

    def _near_constant(
        self, array: np.ndarray[Any, Any], dtype: DType, is_inexact: bool, bound: np.ndarray[Any, Any] | None
    ) -> Value | None:
        """Return a known constant that equals computed elements up to rounding; None if there is none."""
        ones = np.ones_like(array)
        if are_within_rounding(array, ones, dtype):
            # Products of a number and its reciprocal are 1 up to rounding.
            value = super().constant(ones.astype(dtype.numpy), dtype)
            if self._errors.may_equal(value, is_exact=not is_inexact and np.array_equal(array, ones)):
                return value
        for value in self._candidates(array, dtype, bound):
            other = self.exact_elements(value)
            if other is None or not are_within_rounding(array, other, dtype, bound):
                continue
            if self._errors.may_equal(value, is_exact=not is_inexact and np.array_equal(array, other)):
                return value
        return None

    def _candidates(self, array: np.ndarray[Any, Any], dtype: DType, bound: np.ndarray[Any, Any] | None = None) -> list[Value]:
        """Return the constants of ``dtype`` and the shape of ``array`` whose largest sampled elements are near."""
        places = _places_of(array, dtype, bound)
        found = [
            value
            for near in range(places.start - 1, places.stop + 1)
            for value in self._by_shape.get((dtype.name, array.shape, near), ())
        ]
        return list(dict.fromkeys(found))[:MAX_CANDIDATES]

    def _list(self, value: Value, array: np.ndarray[Any, Any]) -> None:
        self._listed.add(id(value))
        for place in _places_of(array, value.dtype, self._bounds.get(id(value))):
            self._by_shape.setdefault((value.dtype.name, array.shape, place), []).append(value)

    def constant(self, data: Operand, dtype: DTypeLike | None = None, name: str | None = None) -> Value:
        """Return the term of a stored constant; a computed constant that is equal up to rounding is the same term."""
        value = super().constant(data, dtype, name)
        if value.dtype.name not in _PLAIN:
            return value
        if id(value) in self._listed:
            return value
        array = np.asarray(value.constant, dtype=np.float64)
        for other in self._candidates(array, value.dtype):
            wide = self._wide.get(id(other))
            partner = self._partners.get(id(other), value)
            # A computed constant equals only one stored constant, because other stored constants have different bits.
            if wide is None or partner is not value:
                continue
            if not are_within_rounding(array, wide, value.dtype, self._bounds.get(id(other))):
                continue
            if id(other) in self._partners or self._errors.may_equal(other, is_exact=np.array_equal(array, wide)):
                self._partners[id(other)] = value
                return other
        self._list(value, array)
        return value

    def _moved_constant(self, x: Value, function: Callable[[Any], Any]) -> Value:
        wide = self._wide.get(id(x))
        if wide is not None:
            bound = self._bounds.get(id(x))
            moved = None if bound is None else np.asarray(function(bound))
            return self.computed_constant(np.asarray(function(wide)), x.dtype, [x], moved)
        value = super()._moved_constant(x, function)
        self._errors.add_sources(value, [x])
        return value

    def _folded_constants(self, op: Op, xs: list[Value | None]) -> list[Value] | None:
        """Evaluate an operator on constants, in f64 if the operator is arithmetic of floats."""
        if not xs or not all(x is None or x.constant is not None for x in xs):
            return None
        floats = [x for x in xs if x is not None and isinstance(x.type, Tensor) and x.dtype.is_float]
        is_computed = any(id(x) in self._wide for x in floats)
        moves = op.moves_elements and len(op.signature.outputs) == 1
        is_reduced = isinstance(op, ReduceMean | ReduceSum)
        if not floats or not (moves or op.is_algebraic or is_reduced) or any(x.dtype.name not in _PLAIN for x in floats):
            return None if is_computed else super()._folded_constants(op, xs)
        if not is_computed and moves and not isinstance(op, Expand):
            moved = super()._folded_constants(op, xs)
            for value in moved or ():
                self._errors.add_sources(value, floats)
            return moved
        if sum(x.constant.nbytes for x in floats if x.constant is not None) > FOLD_BYTES:
            return None
        operands = [None if x is None else self.exact_elements(x) if x.dtype.is_float else x.constant for x in xs]
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(apply(op, np, operands)[0])
        except (DovetailError, Unknown, symbolic.Inexact, *UNFORESEEN):
            return None
        bound = self._bound_of(op, operands, xs, result.size)
        is_sum = isinstance(op, Add | Subtract) or is_reduced
        known = () if bound is None else self._bounds
        if is_sum and _are_cancelled(op, operands, result) and not self._errors.keep_exact(floats, known):
            # The sum is no constant, and equals only the sum of the same constants, which replace no further ones.
            return self.intern(op, xs, [Tensor(floats[0].dtype, result.shape)])
        if result.nbytes > FOLD_BYTES or not np.all(np.isfinite(result)):
            return super()._folded_constants(op, xs) if not is_computed else None
        return [self.computed_constant(result, floats[0].dtype, floats, bound)]

    def _bound_of(self, op: Op, operands: list[Any], xs: list[Value | None], size: int) -> np.ndarray[Any, Any] | None:
        """Return a bound of the rounding of a folded constant in f32; None for a constant that is large or without a bound."""
        if size > MAX_BOUNDED or any(x is None or x.dtype.name == "f64" for x in xs):
            return None
        errors = [self._error_of(x) if x is not None and x.dtype.is_float else None for x in xs]
        try:
            found = evaluate_with_error(op, operands, errors)
        except (DovetailError, Unknown, symbolic.Inexact, *UNFORESEEN):
            return None
        return None if found is None else found[1]


def _are_cancelled(op: Op, operands: list[Any], result: np.ndarray[Any, Any]) -> bool:
    """Return whether an element of a sum is smaller than its operands by a factor of MAX_LOSS: the operands cancel."""
    with np.errstate(all="ignore"):
        if isinstance(op, Add | Subtract):
            total = np.abs(operands[0]) + np.abs(operands[1])
        else:
            total = apply(op, np, [np.abs(operands[0]), *operands[1:]])[0]
        return bool(np.any(total > MAX_LOSS * np.abs(result)))


def _places_of(array: np.ndarray[Any, Any], dtype: DType, bound: np.ndarray[Any, Any] | None = None) -> range:
    """Return the bucket numbers of an array's largest sampled element, which may be off by the largest element of ``bound``.

    Arrays that are equal up to rounding have near numbers. Of more than MAX_PLACES numbers only those in the middle are returned.
    """
    if not array.size:
        return range(1)
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(array.reshape(-1)[:: max(array.size // _SAMPLED, 1)]))
        reach = 0.0 if bound is None else np.max(bound)
        ends = np.maximum([largest - reach, largest, largest + reach], 0.0).astype(dtype.numpy)
    low, place, high = (int(bits) >> 4 for bits in ends.view(np.int32 if dtype.bits == 32 else np.int64))
    return range(max(low, place - MAX_PLACES // 2), min(high, place + MAX_PLACES // 2) + 1)


def are_within_rounding(
    first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], dtype: DType, bound: np.ndarray[Any, Any] | None = None
) -> bool:
    """Return whether two arrays of f64 differ by at most ULPS units in the last place of ``dtype``, element by element.

    With ``bound`` elements may also differ by the elements of ``bound``.
    """
    if bound is not None:
        with np.errstate(all="ignore"):
            within = np.abs(first - second) <= bound
        if bool(np.all(within)):
            return True
        return _is_near(first[~within], second[~within], dtype)
    if first.size and not _is_near(first.reshape(-1)[:16], second.reshape(-1)[:16], dtype):
        return False
    return _is_near(first, second, dtype)


def _is_near(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], dtype: DType) -> bool:
    with np.errstate(all="ignore"):
        largest = np.maximum(np.abs(first), np.abs(second))
        # The ulp of subnormal numbers is large relative to the numbers.
        is_normal = largest >= np.finfo(dtype.numpy).tiny
        unit = np.where(is_normal, np.spacing(largest.astype(dtype.numpy)).astype(np.float64), 0.0)
        same_sign = (np.signbit(first) == np.signbit(second)) | (first == second)
        return bool(np.all(((np.abs(first - second) <= ULPS * unit) & same_sign) | (first == second)))


@dataclass(slots=True)
class RealNumbered:
    """RealNumbered holds terms over the real numbers for each model, and the rewrites from each exact term to its real term."""

    table: RealTerms
    terms: list[dict[int, Value]] = field(default_factory=list)
    before_cuts: list[dict[int, Value]] = field(default_factory=list)
    translation: dict[int, Value] = field(default_factory=dict)
    """The real term of each exact term, by id."""
    rewrites: dict[int, frozenset[str]] = field(default_factory=dict)
    is_complete: bool = True


def real_terms(
    numbered: Numbered,
    *,
    allowed: Collection[str] | None = None,
    deadline: float | None = None,
    steps: ProofSteps | None = None,
) -> RealNumbered:
    """Translate exact terms into a table of real terms. ``allowed`` names the rewrites that may be used; None allows all."""
    table = RealTerms(real_rules(allowed), deadline=deadline, steps=steps)
    result = RealNumbered(table)
    env = _Translation(table, result, numbered.table.folds if allowed is None or FOLDED in allowed else {})
    for value in numbered.table.graph.inputs:
        env.terms[id(value)] = table.input_of(value.name, value.type)
    for node in numbered.table.graph.nodes:
        env.translate(node)
    result.terms = [{key: env.terms[id(term)] for key, term in terms.items()} for terms in numbered.terms]
    result.translation = env.terms
    result.before_cuts = [{key: env.terms[id(term)] for key, term in terms.items()} for terms in numbered.before_cuts]
    return result


class _Translation:
    """_Translation maps each exact term to its real term, and symbols of sizes that only exact terms define to real sizes."""

    def __init__(self, table: RealTerms, result: RealNumbered, folds: Mapping[int, Fold]) -> None:
        self.terms: dict[int, Value] = {}
        self._table = table
        self._result = result
        self._folds = folds
        self._sizes: dict[str, Size] = {}

    def translate(self, node: Node) -> None:
        table = self._table
        table.applied = set()
        xs = [None if x is None else self.terms[id(x)] for x in node.inputs]
        try:
            results = self._terms_of(node, xs)
        except OutOfTime:
            self._result.is_complete = False
            table.deadline = None
            table.rules = lambda kind: ()
            results = self._terms_of(node, xs)
        except (Unknown, symbolic.Inexact, RecursionError, DovetailError, *UNFORESEEN):
            results = table.opaque(("refused", type(node.op), id(node)), xs, [y.type for y in node.outputs])
        for y, term in zip(node.outputs, results, strict=True):
            self.terms[id(y)] = term
            self._match_sizes(y, term)
            if table.applied:
                self._result.rewrites[id(y)] = frozenset(table.applied)

    def _terms_of(self, node: Node, xs: list[Value | None]) -> list[Value]:
        op, table = node.op, self._table
        if isinstance(op, Constant):
            return [self._fold_again(node.outputs[0]) or table.constant(op.data, op.dtype)]
        if isinstance(op, KnownIntegers):
            return [table.integers(tuple(map(self._size, op.elements)), op.dtype, op.extents)]
        if isinstance(op, BoundParameter):
            return [table.parameter(op.depth, op.position, op.type)]
        if isinstance(op, Opaque):
            return table.opaque(op.key, xs, [map_sizes(y.type, self._size) for y in node.outputs])
        return table.term(op, xs)

    def _fold_again(self, stored: Value) -> Value | None:
        """Return the constant of an operator that is folded over the real numbers; None for a constant of another source."""
        fold = self._folds.get(id(stored))
        if fold is None or any(x is not None and id(x) not in self.terms for x in fold.operands):
            return None
        operands = [None if x is None else self.terms[id(x)] for x in fold.operands]
        found = self._table.fold_again(fold, operands, stored)
        if found is not None:
            self._table.applied.add(FOLDED)
            if self._table.steps is not None and fold.op is not None:
                self._table.steps.begin()
                self._table.steps.end(fold.op, operands, [found])
        return found

    def _size(self, size: Size) -> Size:
        return symbolic.substitute(size, self._sizes) if self._sizes and not isinstance(size, int) else size

    def _match_sizes(self, exact: Value, real: Value) -> None:
        """Record the sizes of a real term that replace symbols which only its exact term defines."""
        if not isinstance(exact.type, Tensor) or not isinstance(real.type, Tensor) or exact.shape is None or real.shape is None:
            return
        for size, new in zip(exact.shape, real.shape, strict=True):
            name = symbolic.name_of(size)
            if name is not None and name.startswith("?") and size != new:
                self._sizes.setdefault(name, new)
