"""Reals: elements as polynomials over the real numbers, in which sums over an axis have bound indices.

A polynomial maps a monomial of variable elements to its coefficient, which is a function of constants:

- a monomial is a sorted tuple of (expression, exponent); its bound indices are summed over
- a coefficient maps sorted tuples of (constant, offset, exponent) to rational numbers
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product as pairs_of
from typing import Any

import numpy as np

from dovetail_check.elements import (
    Elements,
    Expression,
    Index,
    Term,
    _number_of,
    _prefer_number,
    elements_at,
    kept_places,
    offset_of,
)
from dovetail_check.sizes import ONE, ZERO, Size, Symbols, Unproved, product
from dovetail_check.text import FLOATS, NUMPY, Operator, Word

PLAIN = ("f32", "f64")
MAX_TERMS = 100
TOLERANCE = {"f32": 2.5 * 2.0**-23, "f64": 2.5 * 2.0**-52}
"""The relative difference up to which constants are equal: two units in the last place."""
Coefficient = dict[tuple[Any, ...], Fraction]


class Polynomial:
    """Polynomial is a real number that depends on elements; two of equal ``key`` are equal."""

    __slots__ = ("_key", "made", "terms")
    depth = 0
    """The number of sums around the polynomials that are computed."""
    symbols = Symbols()

    def __init__(self, terms: dict[tuple[Any, ...], Coefficient]) -> None:
        self.terms = {key: value for key, value in terms.items() if value}
        if len(self.terms) > MAX_TERMS:
            raise Unproved("a polynomial has too many terms")
        self._key: Any = None
        self.made = Polynomial.depth

    def check_scope(self) -> None:
        """Raise Unproved for a sum that was made outside of a sum in which it is used: their indices have the same names."""
        if self.made < Polynomial.depth and any(
            name[0] == "b" and int(name[1:].split(":", 1)[0]) >= self.made for name in _bounds_in(self, {})
        ):
            raise Unproved("a sum is used inside of another one")

    @property
    def key(self) -> Any:
        if self._key is None:
            rows = [(repr(key), key, tuple(sorted(value.items(), key=repr))) for key, value in self.terms.items()]
            self._key = tuple((key, value) for _, key, value in sorted(rows, key=lambda row: row[0]))
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.key)

    def __add__(self, other: Polynomial) -> Polynomial:
        self.check_scope()
        other.check_scope()
        terms = {key: dict(value) for key, value in self.terms.items()}
        for key, value in other.terms.items():
            own = terms.setdefault(key, {})
            for constants, number in value.items():
                own[constants] = own.get(constants, Fraction(0)) + number
                if not own[constants]:
                    del own[constants]
        return Polynomial(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        self.check_scope()
        other.check_scope()
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise Unproved("a product has too many terms")
        result = Polynomial({})
        for (key, value), (key2, value2) in pairs_of(self.terms.items(), other.terms.items()):
            own, others = _own_bounds((key, tuple(value))), _own_bounds((key2, tuple(value2)))
            if own and others:
                names = {
                    name: f"b{Polynomial.depth + len(own) + place}:{name.split(':', 1)[1]}" for place, name in enumerate(others)
                }
                key2, value2 = rename(key2, names), {rename(row, names): factor for row, factor in value2.items()}
            both: Coefficient = {}
            for (constants, number), (constants2, number2) in pairs_of(value.items(), value2.items()):
                merged = _merge(constants, constants2)
                both[merged] = both.get(merged, Fraction(0)) + number * number2
            result = result + _in_order(_merge(key, key2), both)
        return result

    def inverse(self) -> Polynomial:
        if len(self.terms) == 1:
            ((key, value),) = self.terms.items()
            if len(value) == 1 and not _own_bounds((key, tuple(value))):
                ((constants, number),) = value.items()
                negated = tuple((factor, -exponent) for factor, exponent in constants)
                return Polynomial({tuple((factor, -exponent) for factor, exponent in key): {negated: 1 / number}})
        return self.constant_power(Fraction(-1)) or atom(("inverse", close(self)))

    def constant_power(self, exponent: Fraction) -> Polynomial | None:
        """Return a power of a function of constants as a constant; None for other polynomials."""
        if self.terms.keys() != {()}:
            return None
        factor = ("power", tuple(sorted(self.terms[()].items(), key=repr)), exponent)
        return Polynomial({(): {((factor, 1),): Fraction(1)}})


def _merge(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    if not first or not second:
        return first or second
    exponents = dict(first)
    for factor, exponent in second:
        exponents[factor] = exponents.get(factor, 0) + exponent
    return tuple(sorted(((factor, exponent) for factor, exponent in exponents.items() if exponent), key=repr))


def _bounds_in(item: Any, found: dict[str, None]) -> dict[str, None]:
    """Collect the bound indices, in the order in which they occur."""
    if isinstance(item, Size):
        for name in sorted(item.atoms()):
            if re.match(r"[bc]\d", name):
                found[name] = None
            elif (operands := Polynomial.symbols.operands_of(name)) is not None:
                _bounds_in(tuple(operands), found)
            elif re.search(r"\b[bc]-?\d+:", name):
                raise Unproved("an index of a sum in the name of a symbol")
    elif isinstance(item, tuple):
        for each in item:
            _bounds_in(each, found)
    elif isinstance(item, Polynomial):
        _bounds_in(item.key, found)
    return found


def _own_bounds(item: Any) -> list[str]:
    """Return the indices that a monomial is summed over: those of sums around it have lower numbers."""
    return [name for name in _bounds_in(item, {}) if name[0] == "b" and int(name[1:].split(":", 1)[0]) >= Polynomial.depth]


def rename(item: Any, names: dict[str, str]) -> Any:
    """Rename bound indices."""
    if isinstance(item, Size):
        return item if names.keys().isdisjoint(_bounds_in(item, {})) else Polynomial.symbols.substitute(item, names)
    if isinstance(item, tuple):
        return tuple(rename(each, names) for each in item)
    if isinstance(item, Polynomial):
        return Polynomial(
            {
                tuple(sorted(rename(key, names), key=repr)): {
                    tuple(sorted(rename(row, names), key=repr)): factor for row, factor in value.items()
                }
                for key, value in item.terms.items()
            }
        )
    return item


def _in_order(key: Any, value: Coefficient) -> Polynomial:
    """Return a polynomial of one monomial whose bound indices are numbered by where they occur."""
    own = _own_bounds((key, tuple(value)))
    if own:
        whole = (key, tuple(sorted(value, key=repr)))
        places = {name: repr(rename(whole, {other: "b@" if other == name else "b_" for other in own})) for name in own}
        order = sorted(own, key=lambda name: (name.split(":", 1)[1], places[name]))
        names = {name: f"b{Polynomial.depth + place}:{name.split(':', 1)[1]}" for place, name in enumerate(order)}
        for old, new in names.items():
            Polynomial.symbols.symbol(new, 0, Polynomial.symbols.maximum.get(old))
        key = tuple(sorted(rename(key, names), key=repr))
        value = {tuple(sorted(rename(row, names), key=repr)): factor for row, factor in value.items()}
    return Polynomial({key: value})


def _level_of(name: str) -> int:
    return int(name[1:].split(":", 1)[0])


def close(item: Any) -> Any:
    """Rename the indices that an operand of a function is summed over, so that no sum around the function has them.

    The result names these indices, so that a function of a sum is not the sum of a function.
    """
    own = _own_bounds(item)
    if not own:
        return item
    first = 1 + max((int(name[1:].split(":", 1)[0]) for name in _bounds_in(item, {}) if name[0] == "c"), default=-1)
    names = {name: f"c{first + place}:{name.split(':', 1)[1]}" for place, name in enumerate(sorted(own, key=_level_of))}
    for old, new in names.items():
        Polynomial.symbols.symbol(new, 0, Polynomial.symbols.maximum.get(old))
    return ("close", tuple(names.values()), rename(item, names))


def number(value: Fraction | int) -> Polynomial:
    return Polynomial({(): {(): Fraction(value)}} if value else {})


def atom(expression: Any, exponent: int = 1) -> Polynomial:
    return Polynomial({((expression, exponent),): {(): Fraction(1)}})


class RealElements(Elements):
    """RealElements builds elements over the real numbers; ``wide`` holds constants that were computed in f64."""

    is_exact = False

    def __init__(
        self, terms: Any, symbols: Symbols, forms: Any, leaves: frozenset[int], views: Any, wide: dict[int, Any], find: Any
    ) -> None:
        Polynomial.symbols = symbols
        self.precision = "f32"
        """The element type whose precision constants that are equal must have."""
        super().__init__(terms, symbols, forms, leaves, views, find)
        self.wide = wide

    @property
    def _depth(self) -> int:
        return Polynomial.depth

    @_depth.setter
    def _depth(self, value: int) -> None:
        Polynomial.depth = value

    def real(self, expression: Expression | None, dtype: str | None) -> Polynomial:
        """Return an element of floats as a polynomial."""
        if expression is None:
            raise Unproved("an operand is missing")
        if expression[0] == "real":
            return expression[1]  # type: ignore[no-any-return]
        found = _number_of(expression)
        if found is not None and np.isfinite(found):
            return number(Fraction(float(found)))
        if expression[0] == "number":
            return size_of(expression[1])
        return atom(close(expression))

    def _new(self, number_: int, index: Index | None, offset: Size | None) -> Expression:
        term = self.terms[number_]
        if (
            number_ not in self._forms
            and number_ not in self._views
            and term.dtype in PLAIN
            and isinstance(term.data, np.ndarray)
            and term.op is None
        ):
            data = self.wide.get(number_, term.data)
            if term.uniform is not None or (data.size and bool(np.all(data == data.reshape(-1)[0]))):
                value = float(data.reshape(-1)[0])
                if np.isfinite(value):
                    return ("real", number(Fraction(value)))
                return super()._new(number_, index, offset)
            place = offset if offset is not None else self.symbols.join(offset_of(index or (), term.shape or ()))
            return ("real", Polynomial({(): {((("at", number_, place), 1),): Fraction(1)}}))
        return super()._new(number_, index, offset)

    def apply(self, op: Operator, operands: tuple[Any, ...], dtypes: Sequence[str | None]) -> Expression:
        name, dtype = op.name, dtypes[0]
        if dtype in PLAIN and name in ("Maximum", "Minimum") and all(_is_number(self.real(x, dtype)) for x in operands):
            numbers = [self.real(x, dtype).terms.get((), {}).get((), Fraction(0)) for x in operands]
            return ("real", number(max(numbers) if name == "Maximum" else min(numbers)))
        if dtype in PLAIN and name in _ARITHMETIC:
            found = _ARITHMETIC[name](op.attributes, *(None if x is None else self.real(x, dtype) for x in operands))
            if found is not None:
                return ("real", found)
        if name == "Where" and dtypes[1] in PLAIN:
            operands = (operands[0], *(("real", self.real(x, dtypes[1])) for x in operands[1:]))
        elif dtype in PLAIN:
            operands = tuple(None if x is None else ("real", self.real(x, dtype)) for x in operands)
            if name == "Clip":
                low, high = (None if x is None else x for x in (*operands[1:], None, None)[:2])
                operands = operands[0], low, high
                return ("apply", "Clip", tuple(map(close, operands)))
        return super().apply(op, tuple(map(close, operands)), dtypes)

    def constant(self, term: Term, offset: Size) -> Expression:
        if term.uniform is not None:
            return ("constant", term.dtype, term.uniform)
        # By its whole content: the offset shows the indices of sums.
        return self.whole_constant(term, self.symbols.join(offset))

    # Sums

    def _sum(self, body: Polynomial, bound: Sequence[Size], extents: Sequence[Size]) -> Polynomial:
        self._depth -= sum(extent != 1 for extent in extents)
        result = Polynomial({})
        for key, value in body.terms.items():
            used = _bounds_in((key, tuple(value)), {})
            factor = number(1)
            for each, extent in zip(bound, extents, strict=True):
                if extent != 1 and not each.atoms() & used.keys():
                    factor = factor * size_of(extent)
            result = result + Polynomial({key: value}) * factor
        return result

    def _reduction(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own = self.shape_of(xs[0])
        dtype = self.terms[xs[0]].dtype
        if dtype not in PLAIN or op.name not in _SUMS:
            return close(super()._reduction(op, xs, output, shape, index))  # type: ignore[no-any-return]
        axes = self.reduced_axes(op, xs)
        if not axes:
            raise Unproved("a reduction of no axes")
        places = kept_places(op, [axis for axis in range(len(own)) if axis not in axes], index)
        return ("real", _SUMS[op.name](self, xs[0], own, axes, places))

    def sum_over(
        self, x: int, own: Sequence[Size], axes: Sequence[int], places: dict[int, Size], function: Any = None
    ) -> Polynomial:
        """Return the sum of (a function of) the elements along axes."""
        extents = [own[axis] for axis in axes]
        ranges = self.bind(extents)
        inner = tuple(places[axis] if axis in places else ranges[axes.index(axis)] for axis in range(len(own)))
        body = self.real(self.at(x, inner), None)
        return self._sum(function(body) if function else body, ranges, extents)

    def mean_over(
        self, x: int, own: Sequence[Size], axes: Sequence[int], places: dict[int, Size], function: Any = None
    ) -> Polynomial:
        return self.sum_over(x, own, axes, places, function) * size_of(product(own[axis] for axis in axes)).inverse()

    def _matmul(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if self.terms[xs[0]].dtype not in PLAIN:
            return close(super()._matmul(op, xs, output, shape, index))  # type: ignore[no-any-return]
        inner, ranges, factors = self.factors_of(op, xs, shape, index)
        result = number(1)
        for factor in factors:
            result = result * self.real(self.at(*factor), None)
        return ("real", self._sum(result, ranges, [inner]))

    def _gemm(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a product of other numbers than floats")
        product_ = self.real(self._matmul(op, xs, output, shape, index), None) * number(
            Fraction(float(op.attributes.get("alpha", 1.0)))
        )
        if len(xs) > 2 and xs[2] is not None:
            bias = self.real(self._broadcast(xs[2], index, shape), None)
            product_ = product_ + bias * number(Fraction(float(op.attributes.get("beta", 1.0))))
        return ("real", product_)

    def _conv(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return a convolution as a sum of products of weights and of elements that the position and the window choose."""
        if self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a convolution of other numbers than floats")
        weights = self.shape_of(xs[1])
        attributes = {key: value for key, value in op.attributes.items() if key != "kernel_shape"}
        ranges = self.bind(weights[1:])
        group = int(attributes.get("group", 1))
        chosen = (index[0], index[1] if group != 1 else ZERO, *index[2:])
        window = ("window", xs[0], repr(sorted(attributes.items())), weights[0 if group != 1 else 1 :], chosen, tuple(ranges))
        body = atom(window) * self.real(self.at(xs[1], (index[1], *ranges)), None)
        result = self._sum(body, ranges, weights[1:])
        if len(xs) > 2 and xs[2] is not None:
            result = result + self.real(self.at(xs[2], (index[1],)), None)
        return ("real", result)

    def _along(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        return close(super()._along(op, xs, output, shape, index))  # type: ignore[no-any-return]

    # Normalizations

    def _meanvariancenormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if len(xs) < 2 or self.terms[xs[0]].dtype not in PLAIN or op.attributes.get("eps_mode", "inside_sqrt") != "inside_sqrt":
            raise Unproved("a normalization")
        axes = [int(each.number) % len(shape) for each in self.integers_of(xs[1]) if each.number is not None]
        scaled = bool(op.attributes.get("normalize_variance", True))
        return ("real", self._normalize(xs[0], axes, index, float(op.attributes.get("eps", 1e-9)), scaled))

    def _layernormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if output or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a normalization")
        axis = int(op.attributes.get("axis", -1)) % len(shape)
        result = self._normalize(xs[0], range(axis, len(shape)), index, float(op.attributes.get("epsilon", np.float32(1e-5))))
        result = result * self.real(self._broadcast(xs[1], index, shape), None)
        if len(xs) > 2 and xs[2] is not None:
            result = result + self.real(self._broadcast(xs[2], index, shape), None)
        return ("real", result)

    def _batchnormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if output or op.attributes.get("training_mode") or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a normalization")
        scale, bias, mean, variance = (self.real(self.at(x, (index[1],)), None) for x in xs[1:5])
        root = power(variance + number(Fraction(float(op.attributes.get("epsilon", np.float32(1e-5))))), Fraction(-1, 2))
        return ("real", (self.real(self.at(xs[0], index), None) + mean * number(-1)) * root * scale + bias)

    def _normalize(self, x: int, axes: Sequence[int], index: Index, epsilon: float, scaled: bool = True) -> Polynomial:
        own = self.shape_of(x)
        places = {axis: each for axis, each in enumerate(index) if axis not in axes}
        axes = list(axes)
        centred = self.real(self.at(x, index), None) + self.mean_over(x, own, axes, places) * number(-1)
        if not scaled:
            return centred

        def square(body: Polynomial) -> Polynomial:
            distance = body + self.mean_over(x, own, axes, places) * number(-1)
            return distance * distance

        return centred * power(self.mean_over(x, own, axes, places, square) + number(Fraction(epsilon)), Fraction(-1, 2))

    def f(self, name: str, *xs: Any, dtype: str = "f32", **attributes: Any) -> Any:
        """Return an operator of elements."""
        return self.apply(Operator(name, attributes), xs, [dtype] * len(xs))

    def _parameter(self, x: int, axis: int, index: Index, rank: int) -> Any:
        """Return the element of a scalar, or of a vector along an axis."""
        shape = self.shape_of(x)
        if len(shape) > 1:
            raise Unproved("parameters of blocks")
        return self.at(x, (index[axis % rank] if shape[0] != 1 else ZERO,) if shape else ())

    def _quantizelinear(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        kind = str(op.attributes.get("output_dtype", "u8") if len(xs) < 3 or xs[2] is None else self.terms[xs[2]].dtype)
        if (
            {self.terms[x].dtype for x in xs[:2]} != {"f32"}
            or op.attributes.get("block_size")
            or kind not in NUMPY
            or kind in FLOATS
        ):
            raise Unproved("a quantization")
        axis = op.attributes.get("axis")
        scale = self._parameter(xs[1], 1 if axis is None else int(axis), index, len(shape))
        y = self.f("Round", self.f("Divide", self.at(xs[0], index), scale))
        if len(xs) > 2 and xs[2] is not None:
            shift = self._parameter(xs[2], 1 if axis is None else int(axis), index, len(shape))
            y = self.f("Add", y, self.f("Cast", shift, dtype=kind, to=Word("f32")))
        info = np.iinfo(NUMPY[kind])
        return self.f("Cast", self.f("Clip", y, ("real", number(int(info.min))), ("real", number(int(info.max)))), to=Word(kind))

    def _dequantizelinear(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        kind = str(self.terms[xs[0]].dtype)
        if (
            self.terms[xs[1]].dtype != "f32"
            or op.attributes.get("block_size")
            or op.attributes.get("output_dtype") not in (None, "f32")
        ):
            raise Unproved("a quantization")
        if kind not in ("u8", "i8", "u16", "i16"):
            raise Unproved("a quantization")
        axis = op.attributes.get("axis")
        values = self.f("Cast", self.at(xs[0], index), dtype=kind, to=Word("f32"))
        if len(xs) > 2 and xs[2] is not None:
            shift = self._parameter(xs[2], 1 if axis is None else int(axis), index, len(shape))
            values = self.f("Subtract", values, self.f("Cast", shift, dtype=kind, to=Word("f32")))
        return self.f("Multiply", values, self._parameter(xs[1], 1 if axis is None else int(axis), index, len(shape)))

    def _convtranspose(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if len(xs) != 3 or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a transposed convolution")
        product_ = self._find(op, xs[:2])
        if product_ is None:
            raise Unproved("a transposed convolution without its bias")
        return ("real", self.real(self.at(product_, index), None) + self.real(self.at(xs[2], (index[1],)), None))

    def _rmsnormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if output or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a normalization")
        axis = int(op.attributes.get("axis", -1)) % len(shape)
        places = {place: each for place, each in enumerate(index) if place < axis}
        mean = self.mean_over(xs[0], self.shape_of(xs[0]), list(range(axis, len(shape))), places, lambda body: body * body)
        root = power(mean + number(Fraction(float(op.attributes.get("epsilon", np.float32(1e-5))))), Fraction(-1, 2))
        result = self.real(self.at(xs[0], index), None) * root
        if len(xs) > 1 and xs[1] is not None:
            result = result * self.real(self._broadcast(xs[1], index, shape), None)
        return ("real", result)

    def _instancenormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a normalization")
        result = self._normalize(xs[0], range(2, len(shape)), index, float(op.attributes.get("epsilon", np.float32(1e-5))))
        return ("real", result * self.real(self.at(xs[1], (index[1],)), None) + self.real(self.at(xs[2], (index[1],)), None))

    def _swish(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("another type than a float")
        x = ("real", self.real(self.at(xs[0], index), None))
        scaled = self.f("Multiply", x, ("real", number(Fraction(float(op.attributes.get("alpha", 1.0))))))
        return self.f("Multiply", x, self.f("Sigmoid", scaled))

    def _fakequantize(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        dtype = str(self.terms[xs[0]].dtype)
        if dtype not in PLAIN:
            raise Unproved("a quantization of other numbers than floats")
        x, low, high, out_low, out_high = (("real", self.real(self._broadcast(each, index, shape), dtype)) for each in xs)
        steps = ("real", number(int(op.attributes["levels"]) - 1))
        share = self.f("Divide", self.f("Subtract", x, low), self.f("Subtract", high, low))
        y = self.f("Divide", self.f("Round", self.f("Multiply", share, steps)), steps)
        y = self.f("Add", self.f("Multiply", y, self.f("Subtract", out_high, out_low)), out_low)
        y = self.choose(self.f("Greater", x, self.f("Maximum", low, high)), out_high, y)
        return self.choose(self.f("LessEqual", x, self.f("Minimum", low, high)), out_low, y)

    def choose(self, condition: Any, x: Any, y: Any) -> Expression:
        return self.apply(Operator("Where", {}), (condition, x, y), ["boolean", "f32", "f32"])

    def _scaleddotproductattention(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if op.name == "Attention":
            heads = {self.shape_of(x)[1] for x in xs[:3] if len(self.shape_of(x)) == 4}
            if output or len(xs) > 3 or len(heads) != 1 or op.attributes.keys() - {"scale", "short_mask"}:
                raise Unproved("an attention")
        query, key, value = (self.shape_of(x) for x in xs[:3])
        if op.attributes.get("causal") or len(xs) > 5 or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("an attention")
        keys, mask = key[-2], xs[3] if len(xs) > 3 else None

        def element(x: int, *place: Size) -> Polynomial:
            return self.real(self.at(x, self.matrix_index(x, shape, index, place)), None)

        (outer,) = ranges = self.bind([_prefer_number(keys, value[-2])])
        whole = keys if mask is None else self.symbols.operation("broadcast", keys, (ONE, *self.shape_of(mask))[-1])
        (bound,) = self.bind([whole])
        (depth,) = sums = self.bind([query[-1]])
        scores = self._sum(
            element(xs[0], index[-2], depth) * element(xs[1], self.broadcast_index_of(keys, bound, whole), depth),
            sums,
            [query[-1]],
        )
        if len(xs) > 4 and xs[4] is not None:
            scores = scores * self.real(self.at_offset(xs[4], ZERO), None)
        elif "scale" in op.attributes:
            scores = scores * number(Fraction(float(op.attributes["scale"])))
        elif query[-1].number is not None:
            scores = scores * number(Fraction(float(np.float32(1 / np.sqrt(query[-1].number)))))
        else:
            raise Unproved("an attention")
        if mask is not None:
            own = self.shape_of(mask)
            place = (*index[:-2], index[-2], bound)[len(shape) - len(own) :]
            target = (*shape[:-1], whole)[len(shape) - len(own) :]
            chosen = tuple(map(self.broadcast_index_of, own, place, target))
            bias = self.at(mask, chosen)
            if self.terms[mask].dtype == "boolean":
                infinite = ("constant", "f32", np.float32(-np.inf).tobytes())
                bias = self.choose(bias, ("real", number(0)), infinite)
            scores = scores + self.real(bias, None)
        self._depth -= sum(extent != 1 for extent in (whole,))
        soft = close(("along", "Softmax", whole, outer, ("real", scores)))
        return ("real", self._sum(atom(soft) * element(xs[2], outer, index[-1]), ranges, [keys]))

    _attention = _scaleddotproductattention

    def _gelu(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        dtype = self.terms[xs[0]].dtype
        if dtype not in PLAIN:
            raise Unproved("another type than a float")
        kind: Any = np.float32 if dtype == "f32" else np.float64
        x = self.real(self.at(xs[0], index), None)
        if op.attributes.get("approximate", "none") == "none":
            inner = self.f("Erf", ("real", x * number(Fraction(float(np.sqrt(kind(0.5)))))))
        else:
            factor = number(Fraction(float(kind(np.sqrt(2 / np.pi)))))
            inner = self.f("Tanh", ("real", factor * (x + number(Fraction(float(kind(0.044715)))) * x * x * x)))
        return ("real", x * number(Fraction(1, 2)) * (number(1) + self.real(inner, None)))


def _is_number(x: Polynomial) -> bool:
    return x.terms.keys() <= {()} and all(value.keys() <= {()} for value in x.terms.values())


def size_of(value: Size) -> Polynomial:
    result = Polynomial({})
    for key, coefficient in value.terms.items():
        factor = number(coefficient)
        for name in key:
            factor = factor * atom(("size", name))
        result = result + factor
    return result


def power(x: Polynomial, exponent: Fraction) -> Polynomial:
    """Return a power with an exponent that is a multiple of 1/2."""
    if exponent < 0:
        return power(x, -exponent).inverse()
    result = number(1)
    for _ in range(int(exponent)):
        result = result * x
    if exponent.denominator == 2:
        if len(x.terms) == 1 and () in x.terms and x.terms[()].keys() == {()}:
            root = Fraction(float(np.sqrt(float(x.terms[()][()]))))
            return result * number(root)
        result = result * (x.constant_power(Fraction(1, 2)) or atom(("root", close(x))))
    return result


def _power(attributes: Any, x: Polynomial, exponent: Polynomial) -> Polynomial | None:
    value = exponent.terms.get((), {}).get((), Fraction(0)) if exponent.terms.keys() <= {()} else None
    if value is None or (2 * value).denominator != 1 or abs(value) > 8 or (exponent.terms and exponent.terms[()].keys() != {()}):
        return None
    return power(x, value)


_ARITHMETIC: dict[str, Any] = {
    "Add": lambda _, x, y: x + y,
    "Sum": lambda _, *xs: sum(xs[1:], xs[0]),
    "Mean": lambda _, *xs: sum(xs[1:], xs[0]) * number(Fraction(1, len(xs))),
    "Subtract": lambda _, x, y: x + y * number(-1),
    "Negative": lambda _, x: x * number(-1),
    "Multiply": lambda _, x, y: x * y,
    "Divide": lambda _, x, y: x * y.inverse(),
    "Reciprocal": lambda _, x: x.inverse(),
    "Sqrt": lambda _, x: power(x, Fraction(1, 2)),
    "SquaredDifference": lambda _, x, y: (d := x + y * number(-1)) * d,
    "Power": _power,
}
_SUMS: dict[str, Any] = {
    "ReduceSum": lambda e, *a: e.sum_over(*a),
    "ReduceMean": lambda e, *a: e.mean_over(*a),
    "ReduceSumSquare": lambda e, *a: e.sum_over(*a, lambda body: body * body),
    "ReduceL2": lambda e, *a: power(e.sum_over(*a, lambda body: body * body), Fraction(1, 2)),
}


# Comparison


def difference(first: Any, second: Any, elements: RealElements) -> float | None:
    """Return the largest relative difference of the constants of two equal elements; None where the elements may differ."""
    if isinstance(first, tuple) and isinstance(second, tuple) and "real" in (first[:1] + second[:1]):
        first, second = (elements.real(each, None) if each and isinstance(each[0], str) else each for each in (first, second))
    if first == second:
        return 0.0
    if isinstance(first, Polynomial) and isinstance(second, Polynomial):
        return _difference_of_terms(first, second, elements)
    if not (isinstance(first, tuple) and isinstance(second, tuple)) or len(first) != len(second):
        return None
    found = [difference(x, y, elements) for x, y in zip(first, second, strict=True)]
    return None if None in found else max(found)  # type: ignore[type-var]


def _difference_of_terms(first: Polynomial, second: Polynomial, elements: RealElements) -> float | None:
    if len(first.terms) != len(second.terms):
        return None
    largest, rest = 0.0, dict(second.terms)
    for key, value in first.terms.items():
        for other_key in [key] if key in rest else list(rest):
            found = [difference(key, other_key, elements), _difference_of(value, rest[other_key], elements)]
            if None not in found:
                largest = max(largest, *found)  # type: ignore[type-var]
                del rest[other_key]
                break
        else:
            return None
    return largest


def _difference_of(value: Coefficient, other: Coefficient, elements: RealElements) -> float | None:
    if value == other:
        return 0.0
    names = sorted(set(_names_in(tuple(value))) | set(_names_in(tuple(other))))
    found, wanted = _evaluate(value, names, elements), _evaluate(other, names, elements)
    if found is None or wanted is None:
        return None
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(found), np.abs(wanted))
        relative = np.where(found == wanted, 0.0, np.abs(found - wanted) / np.where(scale == 0, 1.0, scale))
    largest = float(np.max(relative)) if np.size(relative) else 0.0
    return largest if largest <= TOLERANCE[elements.precision] else None


def _names_in(item: Any) -> list[str]:
    """Return the names of the indices of constants."""
    if isinstance(item, Size):
        return sorted(item.atoms())
    return [name for each in item for name in _names_in(each)] if isinstance(item, tuple) else []


def _evaluate(value: Coefficient, names: Sequence[str], elements: RealElements) -> Any:
    total: Any = np.float64(0)
    for row, factor in value.items():
        part: Any = np.float64(float(factor))
        for factor_, exponent in row:
            if factor_[0] == "power":
                inner = _evaluate(dict(factor_[1]), names, elements)
                if inner is None:
                    return None
                with np.errstate(all="ignore"):
                    part = part * inner ** (float(factor_[2]) * exponent)
                continue
            _, term, place = factor_
            data = elements_at(elements.symbols, elements.wide.get(term, elements.terms[term].data), place, names)
            if data is None:
                return None
            with np.errstate(all="ignore"):
                part = part * data.astype(np.float64) ** exponent
        total = total + part
    return total
