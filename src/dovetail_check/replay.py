"""Replay: each step of a derivation is checked, and the outputs of both models are the same terms."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from dovetail_check.attributes import plain_attributes
from dovetail_check.elements import REDUCTIONS, RESHAPES, Elements, Expression, Term
from dovetail_check.evaluate import MOVES, ROUNDED, RULES, evaluate
from dovetail_check.polynomials import Polynomial
from dovetail_check.quantized import QuantizedElements
from dovetail_check.reals import RealElements, difference
from dovetail_check.sizes import Parser, Size, Symbols, Unproved, product, size
from dovetail_check.text import NUMPY, READ, Graph, Line, Model, Node, Operator, Tensor, Type
from dovetail_check.types import types_of

Operands = tuple[int | None, ...]
Application = tuple[Operator, Operands, tuple[int, ...]]
MAX_INTEGERS = 1 << 12
_RANGES = {"i64": (-(1 << 63), (1 << 63) - 1), "i32": (-(1 << 31), (1 << 31) - 1), "boolean": (0, 1)}
"""The minimum and the maximum number of the types of known integers."""
MAX_UNIFORM = 1 << 22
MAX_COMPUTED = 1 << 26
"""Maximum number of elements of a constant that is computed."""
MAX_ALL_COMPUTED = 1 << 29
"""Maximum number of elements of all constants that are computed."""
ULPS = 2
MAX_DIFFERENCE = 2.0**-10
"""Maximum of the sum of the relative differences of constants."""


class Refused(Exception):
    """Refused says why a certificate does not prove that two models are equal."""


@dataclass(frozen=True)
class Conditions:
    """Conditions say under which conditions two models are equal."""

    sizes: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    """The open sizes of each model that have one number: the models are equal at these sizes."""
    states: tuple[dict[str, list[str]], dict[str, list[str]]] = field(default_factory=lambda: ({}, {}))
    """The variables of each model that are an input and an output of the other model: each step is equal, and begins with
    values that are empty or zeros."""
    rounded: dict[str, float] = field(default_factory=dict)
    """The constants of the first model that differ, with the largest absolute difference of an element."""


@dataclass
class Verdict:
    """Verdict is what a certificate proves: "bits" or "real", and what the checker did not derive itself."""

    kind: str
    steps: int = 0
    types: Counter[str] = field(default_factory=Counter)
    """The operators whose types are those of the certificate, with the number of their outputs."""
    computed: Counter[str] = field(default_factory=Counter)
    """The operators of floats whose constants have the bits that numpy computes here, with the number of these constants."""
    narrow: int = 0
    """The number of constants of i32 with products of sizes, which are taken to be in the range of i32."""
    largest: float = 0.0
    """The sum over the steps of the largest relative difference of constants that are equal but for their rounding."""

    conditions: Conditions = field(default_factory=lambda: Conditions())

    def differ(self, difference: float) -> None:
        """Add the difference of a step: steps in a row may each change a constant."""
        self.largest += difference
        if self.largest > MAX_DIFFERENCE:
            raise Unproved("constants differ by more than their rounding")


class Replay:
    """Replay checks a derivation. Raises Refused at the first step that does not hold."""

    def __init__(
        self, certificate: dict[str, Any], models: tuple[Model, Model], symbols: Symbols, conditions: Conditions
    ) -> None:
        self._data = certificate
        self._models = models
        self._symbols = symbols
        self.verdict = Verdict(certificate["verdict"], conditions=conditions)
        self._sizes: dict[str, Size] = {}
        self._terms: list[Term] = []
        self._operators = [self._line(text).operator()[0] for text in certificate["operators"]]
        self._keys = [repr(op) for op in self._operators]
        self._known: dict[Any, tuple[int, ...]] = {}
        self._inputs: dict[str, int] = {}
        self._input_terms: set[int] = set()
        self._parameters: dict[tuple[int, int], list[int]] = {}
        """The terms of the inputs of the subgraphs of loops, by their depth and position."""
        self._declared: set[int] = set()
        """The terms whose types are those of the certificate."""
        self._wide: dict[int, Any] = {}
        self._count = 0
        """The number of elements of the constants that were computed."""
        self._exact = self._known
        self._is_exact = True
        self._unread_roundings: set[str] = set()
        """The rounded constants of the model whose outputs are compared that no node was yet."""

    def _line(self, text: str) -> Line:
        return Line(text, 0, self._size, {})

    def _size(self, text: str) -> Size:
        if text not in self._sizes:
            self._sizes[text] = size(int(text)) if text.isdigit() else Parser(text, self._symbols, self._symbol_of).whole()
        return self._sizes[text]

    def _symbol_of(self, name: str) -> Size:
        if re.match(r"[bci]-?\d+:", name):
            raise Refused(f"a symbol must not have the name of an index: {name!r}")
        return self._symbols.symbol(name)

    # Terms

    def run(self) -> Verdict:
        constants = [
            {
                node.outputs[0][0]: node.op.attributes["data"]
                for node in (*_nodes_in(model.graph), *model.graph.nodes)
                if node.op.name == "Constant"
            }
            for model in self._models
        ]
        self._elements = self._new_elements({}, frozenset())
        defined: dict[Any, list[int]] = {}
        for row in self._data["terms"]:
            self._add_term(row, constants, defined)
        for (key, operands), numbers in defined.items():
            self._known.setdefault(self._key(key, operands), tuple(numbers))
        self._exact = self._known
        if len(self._data["steps"]) != (2 if self.verdict.kind == "real" else 1):
            raise Refused("a proof must have the steps over bits, and for the verdict 'real' those over the real numbers")
        for section, steps in enumerate(self._data["steps"]):
            self._is_exact = section == 0
            if section:
                self._exact, self._known = self._known, {}
                self._define_constants()
            for row in steps:
                self._check(row)
        self._compare_outputs()
        return self.verdict

    def _add_term(self, row: list[Any], constants: Any, defined: Any) -> None:
        kind, text = (row[0], row[2]) if row[0] == "input" else row[:2]
        declared: Type = self._line(text).type()
        shape = declared.shape
        number = len(self._terms)
        term = Term(number, declared.dtype, None if shape is None or None in shape else shape)  # type: ignore[arg-type]
        self._terms.append(term)
        if kind == "input":
            self._inputs.setdefault(row[1], number)
            self._input_terms.add(number)
        elif kind == "parameter":
            self._parameters.setdefault((int(row[2]), int(row[3])), []).append(number)
            self._input_terms.add(number)
            self._declared.add(number)
        elif kind == "constant":
            if len(row) == 4:
                self._set_data(term, constants[row[2]][row[3]])
            elif len(row) == 3:
                self._set_data(term, self._line(row[2]).value())
        elif kind == "integers":
            term.integers = tuple(map(self._size, row[2]))
            if term.shape is None or len(term.integers) != int(
                np.prod([each.number or 0 for each in term.shape], dtype=np.int64)
            ):
                raise Refused("known integers must have the number of their elements")
            low, high = _RANGES.get(str(term.dtype), (0, -1))
            if any(not low <= (each.number or 0) or sum(map(abs, each.terms.values())) > high - low for each in term.integers):
                raise Refused(f"known integers must be in the range of their type, got {declared}")
            if term.dtype == "i32" and any(len(key) > 1 for each in term.integers for key in each.terms):
                self.verdict.narrow += 1
        elif kind == "operator":
            op, operands = self._operators[row[2]], tuple(row[3])
            if any(x is not None and not 0 <= x < number for x in operands):
                raise Refused("a term must be made of earlier terms")
            term.op, term.operands, term.output = op, operands, row[4]
            numbers = defined.setdefault((self._keys[row[2]], _trim(operands)), [])
            if len(numbers) != row[4]:
                raise Refused("outputs of an operator must be terms in their order")
            numbers.append(number)
            self._derive_type(term, declared)
        else:
            raise Refused(f"a term must be an input, a parameter, a constant, integers or an operator, got {kind!r}")

    def _define_constants(self) -> None:
        """Give constants over the real numbers, which are nowhere else defined, the elements of their exact terms."""
        links = {row[0]: row[1] for row in self._data["links"]}
        for exact, real in links.items():
            first, second = self._terms[exact], self._terms[real]
            is_open = second.op is None and second.data is None and second.integers is None and real not in self._input_terms
            if is_open and (first.dtype, first.shape) != (second.dtype, second.shape):
                raise Refused("a constant must have the type of its exact term")
            if is_open and first.data is not None:
                second.data = first.data
                self._describe(second)
            elif is_open and first.op is not None and self._data["terms"][exact][0] == "constant":
                operands = tuple(None if x is None else links[x] for x in first.operands)
                self._define(real, first.op, operands, first.output, exact not in self._declared)

    def _set_data(self, term: Term, tensor: Any) -> None:
        if not isinstance(tensor, Tensor) or tensor.dtype != term.dtype or tuple(map(size, tensor.shape)) != term.shape:
            raise Refused("a constant must have the type of its term")
        term.data = tensor.data if tensor.data is not None else tensor.raw
        self._describe(term)

    def _describe(self, term: Term) -> None:
        data = term.data
        if not isinstance(data, np.ndarray):
            return
        if data.dtype.kind in "iu" and data.size <= MAX_INTEGERS:
            term.integers = tuple(size(int(each)) for each in data.reshape(-1).tolist())
        if 0 < data.size <= MAX_UNIFORM:
            flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(data.size, -1)
            if bool((flat == flat[0]).all()):
                term.uniform = flat[0].tobytes()

    def _derive_type(self, term: Term, declared: Type) -> None:
        assert term.op is not None
        try:
            types = types_of(self._elements, term.op, term.operands)
        except (Unproved, ValueError, IndexError, KeyError, TypeError, AttributeError):
            types = None
        if types is None or term.output >= len(types):
            target = term.operands[1] if term.op.name == "Reshape" else None
            if term.op.name == "ExactSlice" or (target is not None and self._terms[target].integers is not None):
                raise Refused("the type of a slice must be known, as that of a reshape to known sizes")
            self.verdict.types[term.op.name] += 1
            self._declared.add(term.number)
            return
        own = types[term.output]
        if (own.dtype is not None and own.dtype != term.dtype) or (term.shape is not None and own.shape != term.shape):
            raise Refused(f"the type of {term.op} must be {own}, got {declared}")

    # Steps

    def _new_elements(self, forms: Any, leaves: frozenset[int], views: Any = None) -> Elements:
        if self._is_exact:
            return Elements(self._terms, self._symbols, forms, leaves, views, self._find)
        return QuantizedElements(self._terms, self._symbols, forms, leaves, views, self._wide, self._find)

    def _find(self, op: Operator, operands: Operands, output: int = 0) -> int | None:
        """Return the term that an output of an application was proved to equal."""
        key = self._key(repr(op), _trim(operands))
        found = self._known.get(key) or self._exact.get(key)
        return found[output] if found and output < len(found) else None

    def _key(self, key: str, operands: Operands) -> Any:
        """Return the key of an application; operands of equal known integers are equal."""
        name = key.split("(", 1)[0]
        is_range = name == "Range" and "output_type" in key
        return key, tuple(
            x
            if x is None or self._terms[x].integers is None
            else (
                "integers",
                None if position and name == "TopK" else self._terms[x].shape,
                self._terms[x].integers,
                None if is_range or (position and name in _HOSTS) else self._terms[x].dtype,
            )
            for position, x in enumerate(operands)
        )

    def _application(self, row: list[Any]) -> tuple[str, Application]:
        operands, results = tuple(row[1]), tuple(row[2])
        if any(x is not None and not 0 <= x < len(self._terms) for x in (*operands, *results)):
            raise Refused("an application must be of terms")
        return self._keys[row[0]], (self._operators[row[0]], _trim(operands), results)

    def _is_known(self, key: str, operands: Operands, results: tuple[int, ...], first: int = 0) -> bool:
        """Return whether the outputs from ``first`` on are those that were proved, or are defined by the application."""
        own = self._key(key, operands)
        known = self._known.get(own) or ()
        return known[first : first + len(results)] == results or all(
            (term := self._terms[y]).op is not None
            and term.output == output
            and self._key(repr(term.op), _trim(term.operands)) == own
            for output, y in enumerate(results, first)
        )

    def _check(self, row: list[Any]) -> None:
        (key, application), *parts = (self._application(each) for each in row)
        op, operands, results = application
        if self._is_known(key, operands, results):
            return
        self.verdict.steps += 1
        forms: dict[int, Any] = {}
        views: dict[int | None, list[tuple[Operands, int]]] = {}
        last: dict[int, Any] = {}
        read: set[int | None] = set()
        for part_key, (part_op, xs, ys) in parts:
            if not self._is_known(part_key, xs, ys):
                raise Refused(f"a part of a step must have been proved before: {part_op}{list(xs)} = {list(ys)}")
            read.update(xs)
            if part_op.name == "ExactSlice":
                views.setdefault(xs[0], []).append((xs, ys[0]))
            for output, y in enumerate(ys):
                last[y] = part_op, xs, output
                # A part that gives one of its operands, or of those before it, or that reshapes it back, defines nothing.
                is_back = part_op.name in RESHAPES and xs[0] in forms and forms[xs[0]][1] == (y,)
                if y not in read and not is_back and not isinstance(self._terms[y].data, np.ndarray):
                    forms[y] = part_op, xs, output
                    term = self._terms[y]
                    source = term.operands[0] if term.op is not None and term.op.name in RESHAPES else None
                    if source is not None and source not in read and part_op.name not in RESHAPES:
                        # The term is defined as a reshape of a term, whose elements are then those of the part.
                        forms.setdefault(source, (Operator("Reshape", {}), (y,), 0))
        reason = self._reason_of(application, forms, views, last)
        if reason is not None:
            raise Refused(f"step {self.verdict.steps}: {op} of {list(operands)} is not {list(results)}: {reason}")
        self._known[self._key(key, operands)] = results

    def _reason_of(self, application: Application, forms: dict[int, Any], views: Any, last: Any) -> str | None:
        op, operands, results = application
        for output, y in enumerate(results):
            try:
                if self._is_constant_result(op, operands, output, y):
                    continue
                self._compare_elements(op, operands, output, y, forms, views, last)
            except Unproved as error:
                return str(error)[:500]
            except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError) as error:
                return f"{type(error).__name__} {error}"[:80]
        return None

    def _is_constant_result(self, op: Operator, operands: Operands, output: int, y: int) -> bool:
        """Return whether an evaluated application equals a constant or known integers; a constant without data gets it."""
        term = self._terms[y]
        if term.op is not None or term.number in self._input_terms:
            return False
        types = types_of(self._elements, op, operands)
        if types is not None and types[output] != Type(term.dtype, term.shape):
            raise Unproved(f"the type is {types[output]}, not {Type(term.dtype, term.shape)}")
        if op.name in ("Shape", "Size"):
            shape = self._elements.shape_of(operands[0])[op.attributes.get("start", 0) : op.attributes.get("end")]
            if term.integers != (shape if op.name == "Shape" else (product(shape),)):
                raise Unproved("a shape")
            return True
        is_float = not self._is_exact and term.dtype in ("f32", "f64")
        try:
            found = self._evaluate(op, operands, term, is_float, types)[output]
        except Unproved:
            if self._define(y, op, operands, output, types is not None):
                return True
            if op.name in RULES and all(x is None or self._is_constant(x) for x in operands):
                raise
            return False
        if tuple(map(size, found.shape)) != term.shape:
            raise Unproved("the shape of a constant")
        if found.dtype != object and not is_float and found.dtype != (READ if op.name in MOVES else NUMPY).get(str(term.dtype)):
            raise Unproved("the element type of a constant")
        if found.dtype == object and term.dtype == "boolean" and term.data is not None:
            found = np.array([bool(each.number) for each in found.reshape(-1).tolist()]).reshape(found.shape)
        if found.dtype == object or (term.data is None and term.integers is not None):
            numbers = tuple(size(each) if isinstance(each, Size) else size(int(each)) for each in found.reshape(-1).tolist())
            if term.integers != numbers:
                raise Unproved("known integers")
            return True
        if op.name in ROUNDED and not is_float and found.dtype.kind == "f":
            self.verdict.computed[op.name] += 1
        if term.data is None:
            term.data = found
            if is_float:
                self._wide[y] = found
                term.data = found.astype(NUMPY[str(term.dtype)])
            self._describe(term)
            return True
        if is_float:
            return self._is_near(found, y)
        if found.dtype != term.data.dtype or found.tobytes() != np.ascontiguousarray(term.data).tobytes():
            raise Unproved("the elements of a constant")
        return True

    def _evaluate(self, op: Operator, operands: Operands, term: Term, is_float: bool, types: Any) -> list[Any]:
        """Return the outputs of an operator on constants, of floats in f64. Raises Unproved."""
        count = prod(each.number or 0 for each in term.shape or ())
        self._count += count
        if types is None or count > MAX_COMPUTED or self._count > MAX_ALL_COMPUTED:
            raise Unproved(f"{op.name} of constants, of a type that is not known or too large")
        arrays = [None if x is None else self._array(x) for x in operands]
        wide = not self._is_exact and any(x in self._wide for x in operands)
        dtypes = [None if x is None else self._terms[x].dtype for x in operands]
        if is_float:
            arrays = [x.astype(np.float64) if x is not None and x.dtype.kind == "f" else x for x in arrays]
        return evaluate(op, arrays, self._symbols, dtypes=dtypes, wide=wide or is_float)

    def _define(self, y: int, op: Operator, operands: Operands, output: int, is_typed: bool) -> bool:
        """Define a constant of which nothing is known as an output of an application of earlier terms; return whether it is."""
        term = self._terms[y]
        is_open = term.op is None and term.data is None and term.integers is None and y not in self._input_terms
        if not is_open or term.shape is None or any(x is not None and x >= y for x in operands):
            return False
        term.op, term.operands, term.output = op, operands, output
        if not is_typed:
            self.verdict.types[op.name] += 1
            self._declared.add(y)
        return True

    def _is_near(self, found: Any, y: int) -> bool:
        other = self._wide.get(y, self._terms[y].data)
        other = np.asarray(other, np.float64)
        kind: Any = NUMPY[str(self._terms[y].dtype)]
        with np.errstate(all="ignore"):
            distance = np.where(found == other, 0.0, np.abs(found - other))
            unit = np.spacing(np.maximum(np.abs(found), np.abs(other)).astype(kind)).astype(np.float64)
            if not bool(np.all((distance <= ULPS * unit) | (found == other))):
                raise Unproved("the elements of a constant")
            self.verdict.differ(float(np.max(distance / np.maximum(np.abs(other), np.finfo(kind).tiny), initial=0.0)))
        return True

    def _is_constant(self, x: int) -> bool:
        term = self._terms[x]
        return x in self._wide or isinstance(term.data, np.ndarray) or term.integers is not None

    def _array(self, x: int) -> Any:
        term = self._terms[x]
        if x in self._wide and not self._is_exact:
            return self._wide[x]
        if isinstance(term.data, np.ndarray):
            return term.data
        if term.integers is None:
            raise Unproved("an operand is no constant")
        array = np.empty(len(term.integers), object)
        array[:] = term.integers
        return array.reshape([each.number for each in term.shape or ()])

    def _compare_elements(self, op: Operator, operands: Operands, output: int, y: int, forms: Any, views: Any, last: Any) -> None:
        term = self._terms[y]
        if operands == (y,) and (op.name == "Identity" or (op.name == "Cast" and str(op.attributes["to"]) == term.dtype)):
            return
        if term.op is not None and self._as_whole(op, operands, output) == self._as_whole(
            term.op, _trim(term.operands), term.output
        ):
            return
        if term.shape is None:
            raise Unproved("the rank is not known")
        inner = frozenset(x for _, xs, _ in forms.values() for x in xs if x is not None and x not in forms) | {y} - forms.keys()
        reasons: list[str] = []
        second = None
        results = frozenset(result for rows in views.values() for _, result in rows)
        moved = results - self._sources_of(results)
        own = {number: form for number, form in forms.items() if number not in results}
        left_forms = {number: form for number, form in forms.items() if number != y}
        attempts: list[Any] = [(inner, {}, {}, forms, False)]
        if views:
            attempts += [(inner | results, views, {}, own, False), (inner | results, views, {}, own, True)]
            attempts += [(inner | (results - moved), views, {}, own, False)]
        # The left side may read what the parts give, too.
        attempts += [(leaves, {}, {}, forms, False) for leaves in (self._sources_of(inner), None)]
        attempts += [(inner, {}, left_forms, forms, False), (frozenset[int](), {}, {}, forms, False)]
        for leaves, seen, given, parts, is_root in attempts:
            if is_root and y not in last:
                continue
            # Terms that only the left side reads are expanded.
            leaves = _terms_in(second) if leaves is None else leaves
            left, right = self._new_elements(given, leaves, seen), self._new_elements(parts, leaves, seen)
            types = types_of(left, op, operands)
            if types is not None and output < len(types) and types[output] != Type(term.dtype, term.shape):
                raise Unproved(f"the type is {types[output]}, not {Type(term.dtype, term.shape)}")
            index = tuple(
                size(0) if extent == 1 else self._symbols.symbol(f"i{axis}:{extent!r}", 0, extent - 1)
                for axis, extent in enumerate(term.shape)
            )
            try:
                first = left.of_application(op, operands, output, term.shape, index, None)
                if first is not None and types is None:
                    raise Unproved("the type of an application is not known")
                if first is None:
                    first = self._as_whole(op, operands, output)
                if is_root:
                    part_op, xs, position = last[y]
                    second = right.of_application(part_op, xs, position, term.shape, index, None)
                else:
                    second = right.at(y, index)
                if second is None:
                    continue
                if second[:2] == ("at", y) and (y in forms or (term.op is not None and first[0] == "whole")):
                    whole_op, xs, position = forms.get(y, (term.op, term.operands, term.output))
                    assert whole_op is not None
                    second = self._as_whole(whole_op, xs, position)
            except Unproved as error:
                reasons.append(str(error))
                continue
            if first == second:
                return
            read = [x for _, xs, _ in forms.values() for x in xs]
            if isinstance(left, RealElements):
                if "f64" in {self._terms[x].dtype for x in (*read, *operands, y) if x is not None}:
                    left.precision = "f64"
                found = difference(first, second, left)
                if found is not None:
                    self.verdict.differ(found)
                    return
            reasons.append(f"{_short(first)} is not {_short(second)}")
        # The first attempt expands least.
        raise Unproved(next(iter(reasons)))

    def _sources_of(self, terms: frozenset[int]) -> frozenset[int]:
        """Return the terms that are not defined as another order of the elements of a term."""
        return frozenset(x for x in terms if (op := self._terms[x].op) is None or op.name not in _MOVEMENT)

    def _as_whole(self, op: Operator, xs: Operands, output: int) -> Expression:
        operands: tuple[Any, ...] = xs
        if op.name == "NonMaxSuppression":
            op, operands = self._with_plain_limits(op, xs)
        attributes = plain_attributes(op, [None if x is None else self._terms[x] for x in xs], output)
        return ("whole", op.name, tuple(sorted((key, repr(value)) for key, value in attributes.items())), operands, output)

    def _with_plain_limits(self, op: Operator, xs: Operands) -> tuple[Operator, tuple[Any, ...]]:
        """Return NonMaxSuppression without limits that are those of omitted limits, and with an exclusive threshold."""
        kept: list[Any] = list(self._without_default_limits(xs))
        attributes = {key: value for key, value in op.attributes.items() if key != "outputs"}
        data = self._terms[kept[3]].data if len(kept) > 3 and kept[3] is not None else None
        if isinstance(data, np.ndarray) and data.dtype == np.float32 and data.size == 1 and data.reshape(()) > 0:
            number = data.reshape(())[()]
            # An IoU that reaches a number of f32 exceeds the number before it.
            is_inclusive = attributes.pop("inclusive", False)
            kept[3] = ("threshold", float(np.nextafter(number, np.float32(0)) if is_inclusive else number))
        return Operator(op.name, attributes), tuple(kept)

    def _without_default_limits(self, xs: Operands) -> Operands:
        """Return the operands of NonMaxSuppression without limits that are those of omitted limits."""
        kept = list(xs)
        for place, number in zip(range(2, len(xs)), (0, 0, -np.inf, 0), strict=False):
            x = xs[place]
            data = None if x is None else self._terms[x].data
            if isinstance(data, np.ndarray) and data.dtype.kind in "if" and bool(np.all(data == number)):
                kept[place] = None
        return _trim(tuple(kept))

    # Models

    def _compare_outputs(self) -> None:
        links = {row[0]: row[1] for row in self._data["links"]} if self.verdict.kind == "real" else {}
        self._check_links(links)
        for own, other in (self._models, self._models[::-1]):
            names = [name for name, _ in own.inputs()]
            if set(names) != {name for name, _ in other.inputs()} or len(names) != len(set(names)):
                raise Refused("the names of the inputs differ")
            if any(name not in self._inputs and pair not in other.inputs() for pair in own.inputs() for name in pair[:1]):
                raise Refused("the types of the inputs differ")
            if sorted(map(repr, own.facts.get("states", []))) != sorted(map(repr, other.facts.get("states", []))):
                raise Refused("the states differ")
        outputs = [self._outputs_of(model, index) for index, model in enumerate(self._models)]
        if sorted(outputs[0]) != sorted(outputs[1]):
            raise Refused("the names of the outputs differ")
        for name, number in outputs[0].items():
            other = outputs[1][name]
            if links.get(number, number) != links.get(other, other):
                raise Refused(f"output {name!r} is not proved equal")

    def _check_links(self, links: dict[int, int]) -> None:
        names = self._new_names()
        for exact, real in links.items():
            first, second = self._terms[exact], self._terms[real]
            if not names.are_equal(Type(first.dtype, first.shape), second, is_paired=exact in self._declared, of=real):
                raise Refused(f"a term over the real numbers must have the type of its exact term: {first.op}")
            if first.op is None:
                if second.op is not None or not self._are_one_source(exact, real, names):
                    raise Refused("a term over the real numbers must be the input or the constant of its exact term")
                continue
            operands = _trim(tuple(None if x is None else links[x] for x in first.operands))
            if not self._is_known(repr(first.op), operands, (real,), first.output):
                raise Refused(f"a term over the real numbers does not follow from its exact term: {first.op}")

    def _are_one_source(self, exact: int, real: int, names: _SymbolNames) -> bool:
        """Return whether two terms without operators are the same input, constant or integers; constants up to their rounding."""
        rows, first, second = self._data["terms"], self._terms[exact], self._terms[real]
        if {"input", "parameter"} & {rows[exact][0], rows[real][0]}:
            return bool(rows[exact] == rows[real] or (rows[exact][0] == "parameter" and rows[exact][2:] == rows[real][2:]))
        if (first.integers is None) != (second.integers is None):
            return False
        if not all(names.is_renamed(*pair) for pair in zip(first.integers or (), second.integers or (), strict=True)):
            return False
        if not isinstance(first.data, np.ndarray) or not isinstance(second.data, np.ndarray):
            return first.data is second.data and (first.data is not None or first.integers is not None)
        if first.dtype in ("f32", "f64"):
            return self._is_near(first.data.astype(np.float64), real)
        return first.data.tobytes() == second.data.tobytes()

    def _outputs_of(self, model: Model, index: int) -> dict[str, int]:
        """Return the terms of a model's outputs by their names in the certificate."""
        self._unread_roundings = set() if index else set(self.verdict.conditions.rounded)
        env: dict[str, int] = {}
        names = self._new_names()
        for (name, declared), (port, _) in zip(model.graph.inputs, model.inputs(), strict=True):
            if port not in self._inputs:
                # No node may read the input.
                continue
            term = self._terms[self._inputs[port]]
            if declared.dtype is None or Type(term.dtype, term.shape) != declared:
                raise Refused(f"input {name!r} must have the type of the certificate")
            env[name] = self._inputs[port]
        by_raw: dict[Any, int] = {}
        for term in self._terms:
            if term.op is None and term.data is not None:
                by_raw.setdefault((term.dtype, term.shape, _digest_of(term.data, term.data)), term.number)
        self._terms_of(model.graph, env, names, by_raw, Counter(), 0)
        if self._unread_roundings:
            raise Refused("a rounded constant must be a constant of the first model")
        if any(name not in model.graph.outputs or not self._is_blank(env[name]) for name in model.initial):
            raise Refused("the initial value of a state must be an output that is empty or zeros")
        kept = {name for name in model.graph.outputs if name not in model.initial}
        results = {model.ports.get(name, name): env[name] for name in kept}
        if len(results) != len(kept):
            raise Refused("the names of the outputs must differ")
        return results

    def _terms_of(
        self, graph: Graph, env: dict[str, int], names: _SymbolNames, by_raw: Any, draws: Any, depth: int
    ) -> dict[str, int]:
        """Return the terms of the outputs of a graph; ``env`` holds those of its inputs, ``draws`` counts random numbers.

        ``depth`` is the number of loops around the graph.
        """
        for node in graph.nodes:
            if any(name in env for name, _ in node.outputs):
                raise Refused(f"line {node.line}: the names of values must differ")
            if node.op.name == "Constant":
                tensor = node.op.attributes["data"]
                if graph is self._models[0].graph and node.outputs[0][0] in self._unread_roundings:
                    self._unread_roundings.remove(node.outputs[0][0])
                    env[node.outputs[0][0]] = self._rounded_constant(node.outputs[0][0], tensor)
                    continue
                found = by_raw.get((tensor.dtype, tuple(map(size, tensor.shape)), _digest_of(tensor.raw, tensor.data)))
                if found is None:
                    raise Refused(f"constant {node.outputs[0][0]!r} is not in the certificate")
                env[node.outputs[0][0]] = found
                continue
            unknown = [name for name in node.inputs if name is not None and name not in env]
            if unknown:
                raise Refused(f"line {node.line}: {unknown[0]!r} is not in the certificate")
            op, operands = node.op, _trim(tuple(None if name is None else env[name] for name in node.inputs))
            if op.name in ("RandomNormalLike", "RandomUniformLike"):
                # The draw of the shape of the first operand.
                op, operands = op._replace(name=op.name.removesuffix("Like")), (self._shape_term(operands[0]), *operands[1:])
            known = None
            if op.name == "If":
                # Its value is a function of the condition and of the values of both branches, or that of the branch taken.
                condition = self._terms[operands[0]].data  # type: ignore[index]
                is_known = isinstance(condition, np.ndarray) and condition.size == 1
                branches = ("else_branch", "then_branch")[bool(condition) :][:1] if is_known else ("then_branch", "else_branch")
                captures = [env[name] for name in node.inputs[1:] if name is not None]
                results = []
                for body in (node.graphs[branch] for branch in branches):
                    own = dict(zip([name for name, _ in body.inputs], captures, strict=True))
                    outputs = self._terms_of(body, own, names, by_raw, None, depth)
                    results.append(tuple(outputs[y] for y in body.outputs))
                op, operands = Operator("If", {"outputs": len(node.outputs)}), (operands[0], *results[0], *results[-1])
                known = results[0] if results[0] == results[-1] else None
            elif op.name == "Loop":
                full = [None if name is None else env[name] for name in node.inputs]
                op, operands = self._loop(node, full, names, by_raw, depth)
            elif op.name in _DRAWS and draws is not None:
                # The numbers of a draw are those of the draw of the same operands with the same number in the other model.
                draws[self._key(repr(op), operands)] += 1
                op = Operator(op.name, {**op.attributes, "draw": draws[self._key(repr(op), operands)]})
            elif (
                node.graphs
                or op.name in _REFUSED | _DRAWS
                or (op.name == "Dropout" and not self._elements.is_inference(operands))
            ):
                raise Refused(f"line {node.line}: {op.name} has subgraphs, draws random numbers or is foreign")
            known = known or self._exact.get(self._key(repr(op), operands))
            if known is None or len(known) < len(node.outputs):
                raise Refused(f"line {node.line}: {op} is not in the certificate")
            for (name, declared), number in zip(node.outputs, known, strict=False):
                # A term of unknown rank says nothing of its sizes; the model may.
                is_open = self._terms[number].shape is None and declared.dtype == self._terms[number].dtype
                if number in self._declared and not is_open and not names.are_equal(declared, self._terms[number]):
                    raise Refused(f"line {node.line}: the type of {name!r} must be {declared}")
                env[name] = number
        if not env.keys() >= {*graph.outputs}:
            raise Refused("an output is not in the certificate")
        return {name: env[name] for name in graph.outputs}

    def _shape_term(self, x: int | None) -> int:
        """Return the term of the sizes of a term. Raises Refused."""
        shape = self._elements.shape_of(x)
        for term in self._terms:
            if term.integers == shape and term.dtype == "i64" and term.shape == (len(shape),):
                return term.number
        raise Refused("the sizes of a draw are not in the certificate")

    def _loop(self, node: Node, xs: list[int | None], names: _SymbolNames, by_raw: Any, depth: int) -> tuple[Operator, Operands]:
        """Return a loop as a function of its operands and of the results of one trip, which has parameters as inputs."""
        defaults = {"carried": 0, "scan_inputs": (), "scan_outputs": ()}
        attributes = {name: node.op.attributes.get(name, default) for name, default in defaults.items()}
        body, count = node.graphs["body"], 1 + attributes["carried"] + len(attributes["scan_inputs"])
        inner = [self._parameter((depth, place), type_, names) for place, (_, type_) in enumerate(body.inputs[:count])]
        # No node may read an input that is not in the certificate.
        ports = zip([name for name, _ in body.inputs], [*inner, *xs[1 + count :]], strict=True)
        env = {name: x for name, x in ports if x is not None}
        found = self._terms_of(body, env, names, by_raw, None, depth + 1)
        results = [found[name] for name in body.outputs]
        for place, x in enumerate(inner[: 1 + attributes["carried"]]):
            # A state whose type is that of its first value and of its next value has this type in each trip.
            known = [
                (self._terms[each].dtype, self._terms[each].shape)
                for each in (x, xs[1 + place], results[place])
                if each is not None
            ]
            if place and x is not None and known != known[:1] * 3:
                self.verdict.types["states of Loop"] += 1
        return Operator("Loop", {**attributes, "depth": depth}), _trim((*xs[: 1 + count], *results))

    def _parameter(self, place: tuple[int, int], declared: Type, names: _SymbolNames) -> int | None:
        """Return the parameter of a loop at a depth and a position that has the type of an input of its subgraph, or None."""
        for number in self._parameters.get(place, ()):
            term = self._terms[number]
            own, other = ([each if each is None else each.number for each in x.shape or ()] for x in (declared, term))
            if declared.dtype == term.dtype and own == other and names.are_equal(declared, term):
                return number
        return None

    def _new_names(self) -> _SymbolNames:
        inputs = (declared for model in self._models for _, declared in model.graph.inputs)
        return _SymbolNames(self._symbols, [each for declared in inputs for each in declared.shape or ()])

    def _rounded_constant(self, name: str, tensor: Tensor) -> int:
        """Return the term of a rounded constant, whose elements differ from those of the model by at most the bound."""
        number = self._data["rounded"][name]
        term, bound = self._terms[number], self.verdict.conditions.rounded[name]
        own, other = tensor.data, term.data
        if not isinstance(own, np.ndarray) or not isinstance(other, np.ndarray) or tensor.dtype not in READ:
            raise Refused(f"the elements of the rounded constant {name!r} must be known")
        if own.dtype.kind != "f" or term.dtype != tensor.dtype or tuple(map(size, own.shape)) != term.shape:
            raise Refused(f"the rounded constant {name!r} must be of the type of the constant, and of floats")
        with np.errstate(all="ignore"):
            difference = np.abs(own.astype(np.float64) - other.astype(np.float64))
        if own.shape != other.shape or not bound < np.inf or not bool(np.all(difference <= bound)):
            raise Refused(f"the constant {name!r} must differ by at most {bound:g}")
        return int(number)

    def _is_blank(self, number: int) -> bool:
        """Return whether a term has no elements, or zeros alone: constants of zeros whose elements are moved."""
        while True:
            term = self._terms[number]
            if any(extent == 0 for extent in term.shape or ()):
                return True
            if isinstance(term.data, np.ndarray):
                return not bool(np.any(term.data))
            if term.op is None or term.op.name not in _MOVEMENT or term.operands[0] is None:
                return False
            number = term.operands[0]


def _nodes_in(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for body in node.graphs.values():
            yield from _nodes_in(body)


class _SymbolNames:
    """_SymbolNames pairs the symbols of sizes that depend on elements: of a model's text or of exact terms with those of terms.

    Symbols of inputs are their own pairs, so that no size is taken to be that of an input, or that of another operator. The
    names differ, as :meth:`Replay._symbol_of` refuses those of texts, so that an expression of such symbols is never equal.
    """

    def __init__(self, symbols: Symbols, sizes: list[Size | None]) -> None:
        own = {name: name for each in sizes if each is not None for name in each.atoms()}
        self._symbols, self._pairs = symbols, own
        self._inverse: dict[str, Any] = {name: (name, None) for name in own}

    def are_equal(self, declared: Type, term: Term, *, is_paired: bool = True, of: int | None = None) -> bool:
        """Return whether a type is that of a term, but for the names of symbols, which are paired.

        Several symbols may be one symbol of the term ``of``: outputs that are equal over the real numbers have one size.
        """
        if declared.dtype != term.dtype or declared.shape is None or term.shape is None or None in declared.shape:
            return declared == Type(term.dtype, term.shape)
        pairs = zip(declared.shape, term.shape, strict=False)
        return len(declared.shape) == len(term.shape) and all(
            self._pair(*pair, None if of is None else (of, axis)) if is_paired else self.is_renamed(*pair)
            for axis, pair in enumerate(pairs)
        )

    def _pair(self, declared: Size | None, own: Size, place: Any) -> bool:
        first, second = (None if each is None else _name_of(each) for each in (declared, own))
        if first is None or second is None:
            return self.is_renamed(declared, own)
        known = self._inverse.setdefault(second, (first, place))
        is_same = known[0] == first or (place is not None and known[1] == place)
        return is_same and self._pairs.setdefault(first, second) == second

    def is_renamed(self, value: Size | None, other: Size | None) -> bool:
        """Return whether a size is another one, but for the names of symbols that are paired."""
        if value is None or not all(name in self._pairs for name in re.findall(r"(?:text )?\?[\w.:%]+(?:\[\w+\])*", repr(value))):
            return False
        return self._symbols.substitute(value, self._pairs) == other


def _name_of(extent: Size) -> str | None:
    """Return the name of the symbol of a size that depends on elements; None for another size."""
    names = sorted(extent.atoms())
    return names[0] if len(names) == 1 and extent.terms == {(names[0],): 1} and names[0].startswith(("?", "text ?")) else None


_DRAWS = frozenset("Bernoulli Multinomial RandomNormal RandomUniform".split())
"""Operators that draw random numbers."""
_REFUSED = frozenset("DefaultInput Foreign Scan".split())
"""Operators that hold graphs, or are not known to give the same outputs for the same inputs."""
_HOSTS = frozenset("ExactSlice Expand Pad Reshape Resize Slice Squeeze Tile TopK Transpose Unsqueeze".split()) | REDUCTIONS
"""Operators for which the element type of known integers after the first operand does not matter."""
_MOVEMENT = RESHAPES | {"Expand", "Transpose"}


def _terms_in(expression: Any) -> frozenset[int]:
    """Return the terms whose elements an expression has."""
    found: set[int] = set()
    stack = [expression]
    while stack:
        item = stack.pop()
        if isinstance(item, Polynomial):
            item = item.key
        if isinstance(item, tuple):
            if item[:1] in (("at",), ("take",), ("window",)) and isinstance(item[1], int):
                found.add(item[1])
            stack.extend(item)
    return frozenset(found)


def _digest_of(raw: Any, data: Any) -> bytes:
    """Return the digest of the elements of a constant, or of its text or bytes."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else raw).digest()


def _trim(operands: Operands) -> Operands:
    while operands and operands[-1] is None:
        operands = operands[:-1]
    return operands


def _short(expression: Expression) -> str:
    text = repr(expression)
    return text if len(text) <= 220 else f"{text[:220]}..."
