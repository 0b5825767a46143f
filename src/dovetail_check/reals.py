"""Reals: elements over the real numbers, as polynomials, and the constants by which two of them may differ."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dovetail_check.elements import (
    Elements,
    Expression,
    Index,
    Term,
    _prefer_number,
    elements_at,
    kept_places,
    offset_of,
)
from dovetail_check.pointwise import number_of
from dovetail_check.polynomials import Coefficient, Polynomial, atom, bounds_in, close, is_number, number, power, size_of
from dovetail_check.sizes import ONE, ZERO, Size, Symbols, Unproved, product
from dovetail_check.text import FLOATS, NUMPY, Operator, Word
from dovetail_check.types import LAYOUTS, RECURRENT, recurrent_sizes

PLAIN = ("f32", "f64")
TOLERANCE = {"f32": 2.5 * 2.0**-23, "f64": 2.5 * 2.0**-52}
"""The relative difference up to which constants are equal: two units in the last place."""


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
        found = number_of(expression)
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
        if dtype in PLAIN and name in ("Maximum", "Minimum") and all(is_number(self.real(x, dtype)) for x in operands):
            numbers = [self.real(x, dtype).terms.get((), {}).get((), Fraction(0)) for x in operands]
            return ("real", number(max(numbers) if name == "Maximum" else min(numbers)))
        if dtype in PLAIN and name in _ARITHMETIC:
            found = _ARITHMETIC[name](op.attributes, *(None if x is None else self.real(x, dtype) for x in operands))
            if found is not None:
                return ("real", found)
        if name == "Where" and dtypes[1] in PLAIN:
            operands = (operands[0], *(("real", self.real(x, dtypes[1])) for x in operands[1:]))
        elif dtype in PLAIN:
            if name == "Clip":
                return self._clip_of(operands, str(dtype))
            operands = tuple(None if x is None else ("real", self.real(x, dtype)) for x in operands)
        return super().apply(op, tuple(map(close, operands)), dtypes)

    def _clip_of(self, operands: tuple[Any, ...], dtype: str) -> Expression:
        """Return an element that is clipped; the lowest and the highest finite value of the type are no bounds."""
        result, info = operands[0], np.finfo(NUMPY[dtype])
        for name, bound, extreme in zip(("Maximum", "Minimum"), operands[1:], (info.min, info.max), strict=False):
            if bound is not None and self.real(bound, dtype) != number(Fraction(float(extreme))):
                result = self.f(name, result, bound, dtype=dtype)
        return result

    def constant(self, term: Term, offset: Size) -> Expression:
        if term.uniform is not None:
            return ("constant", term.dtype, term.uniform)
        line = None if term.integers is None else self._progression(term.integers, offset)
        if line is not None:
            return ("number", line[2], term.dtype)
        # By its whole content: the offset shows the indices of sums.
        found = self.whole_constant(term, self.symbols.join(offset))
        if found[0] == "constant at":
            self.symbols.memo[found[2]] = term.data
        return found

    # Sums

    def sum_of(self, body: Polynomial, bound: Sequence[Size], extents: Sequence[Size]) -> Polynomial:
        self._depth -= sum(extent != 1 for extent in extents)
        result = Polynomial({})
        for key, value in body.terms.items():
            used = bounds_in((key, tuple(value)), {})
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
        return self.sum_of(function(body) if function else body, ranges, extents)

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
        return ("real", self.sum_of(result, ranges, [inner]))

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
            return self._convtranspose(op, xs, output, shape, index)
        weights = self.shape_of(xs[1])
        attributes = {key: value for key, value in op.attributes.items() if key != "kernel_shape"}
        ranges = self.bind(weights[1:])
        group = int(attributes.get("group", 1))
        chosen = (index[0], index[1] if group != 1 else ZERO, *index[2:])
        image, factor = self._image_of(xs[0])
        sizes = weights[0 if group != 1 else 1 :]
        window = ("window", image, self.shape_of(xs[0]), repr(sorted(attributes.items())), sizes, chosen, tuple(ranges))
        body = atom(window) * self.real(self.at(xs[1], (index[1], *ranges)), None) * factor
        result = self.sum_of(body, ranges, weights[1:])
        if len(xs) > 2 and xs[2] is not None:
            result = result + self.real(self.at(xs[2], (index[1],)), None)
        return ("real", result)

    def _image_of(self, x: int) -> tuple[int, Polynomial]:
        """Return a term and a constant whose product, reshaped, is the term ``x``; ``x`` and 1 if none are known."""
        depth, own = self._depth, self.shape_of(x)
        try:
            index = tuple(self.bind(own))
            body = self.real(self.at(x, index), None)
            place = self.symbols.join(offset_of(index, own))
        except Unproved:
            return x, number(1)
        finally:
            self._depth = depth
        if len(body.terms) == 1:
            ((key, value),) = body.terms.items()
            atom_, exponent = key[0] if len(key) == 1 else ((None,), 0)
            if exponent == 1 and atom_[0] == "at" and atom_[2] == place and not bounds_in(tuple(value), {}):
                return atom_[1], Polynomial({(): value})
        return x, number(1)

    def _along(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        return close(super()._along(op, xs, output, shape, index))  # type: ignore[no-any-return]

    def _argmax(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return the reduced indices of the elements that equal the extremum; those of NaN come before or behind all others."""
        own, (axis,), dtype = self.shape_of(xs[0]), self.reduced_axes(op, xs), self.terms[xs[0]].dtype
        count = own[axis].number
        if not count:
            return self._reduction(op, xs, output, shape, index)
        places = kept_places(op, [each for each in range(len(own)) if each != axis], index)
        is_last, is_float = op.attributes.get("select_last_index", False), dtype in (*FLOATS, "bf16")
        reduction = "ReduceMax" if is_last else "ReduceMin"
        size_ = ("constant", "i64", np.int64(count).tobytes())
        absent = ("constant", "i64", np.int64(-1).tobytes()) if is_last else size_

        def candidate(inner: Index) -> Expression:
            x = self.at(xs[0], inner)
            extremum = close(
                self.reduce(op.name.replace("Arg", "Reduce"), own, [axis], places, lambda each: self.at(xs[0], each))
            )
            found = self.choose(self.f("Equal", x, extremum, dtype=dtype), ("number", inner[axis], "i64"), absent, "i64")
            moved = ("number", inner[axis] + count if is_last else inner[axis] - count, "i64")
            return self.choose(self.f("IsNaN", x, dtype=dtype), moved, found, "i64") if is_float else found

        result = close(self.reduce(reduction, own, [axis], places, candidate))
        return self.f("Mod", result, size_, dtype="i64") if is_float else result

    _argmin = _argmax

    def _lstm(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression | None:
        """Return an output of a recurrent layer by the elements of its operands, whatever their layout and order of gates."""
        x, w, r, bias, lengths, *rest = (*xs, *(None,) * 8)[:8]
        attributes = {"weights_format": RECURRENT[op.name], "layout": "sequence_first", "summed_bias": False, **op.attributes}
        gates, (inner, outer, state) = str(attributes.pop("weights_format")), LAYOUTS[attributes.pop("layout")]
        is_summed = attributes.pop("summed_bias")
        if self.terms[x].dtype not in PLAIN:
            return None
        # Its candidate gate adds the bias of r before the reset gate is applied: the two biases are not summed.
        apart = "h" if op.name == "GRU" and attributes.get("linear_before_reset") else None
        sizes, depth = recurrent_sizes(self, op, xs), self._depth
        names = dict(zip("sdbihk", self.bind([sizes[axis] for axis in "sdbihh"]), strict=True))
        (peephole,) = self.bind([sizes["h"] * 3])

        def element(term: int | None, *place: Size) -> Polynomial:
            return number(0) if term is None else self.real(self.at(term, place), None)

        parts: list[Any] = [element(x, *(names[axis] for axis in inner))]
        for gate in sorted(gates):
            row = sizes["h"] * gates.index(gate) + names["h"]
            parts += [element(w, names["d"], row, names["i"]), element(r, names["d"], row, names["k"])]
            second = sizes["h"] * len(gates) + (names["h"] if is_summed else row)
            biases = [element(bias, names["d"], row)]
            biases += [element(bias, names["d"], second)] if gate == apart or not is_summed else []
            parts.append(tuple(biases) if gate == apart else sum(biases[1:], biases[0]))
        count = ("number", sizes["s"]) if lengths is None else self.at(lengths, (names["b"],))
        if count[:2] == ("apply", "Cast") and count[3:] == ("i32", "[('to', i64)]"):
            count = count[2][0]
        known = number_of(count)
        parts.append(count[1] if count[0] == "number" else count if known is None else Size({(): int(known)}))
        parts += [element(term, *(names[axis] for axis in state)) for term in rest[:2]]
        parts.append(None if rest[2] is None else element(rest[2], names["d"], peephole))
        self._depth = depth
        kept = tuple(sorted((key, repr(value)) for key, value in attributes.items() if key not in ("hidden_size", "outputs")))
        place = dict(zip(state if output else outer, index, strict=True))
        axes = (tuple(sizes[axis] for axis in "sdbih"), tuple(place.get(axis) for axis in "sdbh"))
        return close(("recurrent", op.name, output, kept, *axes, tuple(parts)))  # type: ignore[no-any-return]

    _gru = _rnn = _lstm

    # Normalizations

    def _meanvariancenormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if len(xs) < 2 or self.terms[xs[0]].dtype not in PLAIN or op.attributes.get("eps_mode", "inside_sqrt") != "inside_sqrt":
            raise Unproved("a normalization")
        axes = [int(each.number) % len(shape) for each in self.integers_of(xs[1]) if each.number is not None]
        scaled = bool(op.attributes.get("normalize_variance", True))
        return ("real", self._normalize(xs[0], axes, index, float(op.attributes.get("eps", 1e-9)), scaled))

    def _layernormalization(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return an element of a LayerNormalization, an RMSNormalization or an InstanceNormalization."""
        if output or self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a normalization")
        epsilon = float(op.attributes.get("epsilon", np.float32(1e-5)))
        axis = 2 if op.name == "InstanceNormalization" else int(op.attributes.get("axis", -1)) % len(shape)
        if op.name == "RMSNormalization":
            places = {place: each for place, each in enumerate(index) if place < axis}
            mean = self.mean_over(xs[0], self.shape_of(xs[0]), list(range(axis, len(shape))), places, lambda body: body * body)
            result = self.real(self.at(xs[0], index), None) * power(mean + number(Fraction(epsilon)), Fraction(-1, 2))
        else:
            result = self._normalize(xs[0], range(axis, len(shape)), index, epsilon)
        # Those of an InstanceNormalization have an element for each channel.
        place = (index[1:2], shape[1:2]) if op.name == "InstanceNormalization" else (index, shape)
        scale, bias = (None if x is None else self.real(self._broadcast(x, *place), None) for x in (*xs[1:], None, None)[:2])
        result = result if scale is None else result * scale
        return ("real", result if bias is None else result + bias)

    _rmsnormalization = _instancenormalization = _layernormalization

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

    def f(self, name: str, *xs: Any, dtype: str | None = "f32", **attributes: Any) -> Any:
        """Return an operator of elements."""
        return self.apply(Operator(name, attributes), xs, [dtype] * len(xs))

    def _convtranspose(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        product_ = self._find(op, xs[:2]) if len(xs) == 3 else None
        if product_ is None:
            raise Unproved("a convolution without its bias")
        return self.f("Add", self.at(product_, index), self.at(xs[2], (index[1],)), dtype=self.terms[xs[0]].dtype)  # type: ignore[no-any-return]

    def _swish(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        dtype, alpha = self.terms[xs[0]].dtype, float(op.attributes.get("alpha", 1.0))
        if dtype not in (*PLAIN, "f16", "bf16"):
            raise Unproved("another type than a float")
        # In 16 bits, elements are computed in f32, and rounded once, unless the parts are of 16 bits.
        is_cast = dtype not in PLAIN and (alpha != 1 or self._find(Operator("Sigmoid", {}), xs[:1]) is None)
        x, kind = self.at(xs[0], index), "f32" if is_cast else dtype
        x = self.f("Cast", x, dtype=dtype, to=Word("f32")) if is_cast else x
        scaled = x if alpha == 1 else self.f("Multiply", x, ("real", number(Fraction(alpha))))
        result = self.f("Multiply", x, self.f("Sigmoid", scaled, dtype=kind), dtype=kind)
        return self.f("Cast", result, to=Word(str(dtype))) if is_cast else result  # type: ignore[no-any-return]

    def _globalaveragepool(
        self, op: Operator, xs: tuple[int, ...], output: int, shape: Sequence[Size], index: Index
    ) -> Expression:
        own = self.shape_of(xs[0])
        if self.terms[xs[0]].dtype not in PLAIN:
            raise Unproved("a mean of other numbers than floats")
        return ("real", self.mean_over(xs[0], own, range(2, len(own)), {0: index[0], 1: index[1]}))

    def _scaler(self, op: Operator, xs: tuple[int, ...], output: int, shape: Sequence[Size], index: Index) -> Expression:
        dtype, x = self.terms[xs[0]].dtype, self.at(xs[0], index)
        result = self.real(x if dtype == "f32" else self.f("Cast", x, dtype=dtype, to=Word("f32")), "f32")
        offset, scale = (op.attributes.get(name) or None for name in ("offset", "scale"))
        if offset is not None:
            result = result + self._number_of(offset, index[-1:], shape[-1:]) * number(-1)
        return ("real", result if scale is None else result * self._number_of(scale, index[-1:], shape[-1:]))

    def _number_of(self, values: tuple[float, ...], place: Index, shape: Sequence[Size]) -> Polynomial:
        """Return the number of an attribute of f32 at a place of the last axis, or its only number."""
        with np.errstate(over="ignore"):
            data = np.array(values, np.float32)
        if not np.isfinite(data).all() or (len(values) != 1 and tuple(shape) != (len(values),)):
            raise Unproved("an attribute that is not a finite number for each column")
        if len(values) == 1:
            return number(Fraction(float(data[0])))
        # Constants of attributes have numbers below those of all terms.
        known = [key for key, each in self.wide.items() if key < 0 and each.tobytes() == data.tobytes()]
        key = known[0] if known else min((0, *self.wide)) - 1
        self.wide[key] = data
        return Polynomial({(): {((("at", key, place[0]), 1),): Fraction(1)}})

    def _hardsigmoid(self, op: Operator, xs: tuple[int, ...], output: int, shape: Sequence[Size], index: Index) -> Expression:
        if self.terms[xs[0]].dtype not in PLAIN:
            return self._pointwise(op, xs, output, shape, index)
        return self._clamped_line(xs[0], index, op.attributes.get("alpha", 0.2), op.attributes.get("beta", 0.5))

    def _hardswish(self, op: Operator, xs: tuple[int, ...], output: int, shape: Sequence[Size], index: Index) -> Expression:
        dtype = self.terms[xs[0]].dtype
        if dtype not in PLAIN:
            return self._pointwise(op, xs, output, shape, index)
        return self.f("Multiply", self.at(xs[0], index), self._clamped_line(xs[0], index, 1 / 6, 0.5), dtype=dtype)  # type: ignore[no-any-return]

    def _clamped_line(self, x: int, index: Index, alpha: float, beta: float) -> Any:
        """Return max(0, min(1, alpha * x + beta)) of an element."""
        dtype = self.terms[x].dtype
        scaled = self.f("Multiply", self.at(x, index), ("real", number(Fraction(float(alpha)))), dtype=dtype)
        line = self.f("Add", scaled, ("real", number(Fraction(float(beta)))), dtype=dtype)
        return self.f("Maximum", self.f("Minimum", line, ("real", number(1)), dtype=dtype), ("real", number(0)), dtype=dtype)

    def choose(self, condition: Any, x: Any, y: Any, dtype: str = "f32") -> Expression:
        return self.apply(Operator("Where", {}), (condition, x, y), ["boolean", dtype, dtype])

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
        scores = self.sum_of(
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
        return ("real", self.sum_of(atom(soft) * element(xs[2], outer, index[-1]), ranges, [keys]))

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
    if isinstance(first, tuple) and isinstance(second, tuple) and first[:1] == second[:1] == ("constant at",):
        names = sorted(first[3].atoms() | second[3].atoms())
        found = [elements_at(elements.symbols, elements.symbols.memo[x[2]], x[3], names) for x in (first, second)]
        is_same = first[1] == second[1] and not any(each is None for each in found) and found[0].tobytes() == found[1].tobytes()
        return 0.0 if is_same else None
    if not (isinstance(first, tuple) and isinstance(second, tuple)) or len(first) != len(second):
        return None
    largest = [difference(x, y, elements) for x, y in zip(first, second, strict=True)]
    return None if None in largest else max(largest)  # type: ignore[type-var]


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
            inner = _evaluate_factor(factor_, names, elements)
            if inner is None:
                return None
            with np.errstate(all="ignore"):
                part = part * inner**exponent
        total = total + part
    return total


def _evaluate_factor(factor: Any, names: Sequence[str], elements: RealElements) -> Any:
    if factor[0] == "at":
        _, term, place = factor
        data = elements.wide[term] if term in elements.wide else elements.terms[term].data
        data = elements_at(elements.symbols, data, place, names)
        return None if data is None else data.astype(np.float64)
    inner = _evaluate_factor(factor[1], names, elements) if factor[0] == "over" else _evaluate(dict(factor[1]), names, elements)
    with np.errstate(all="ignore"):
        return None if inner is None else inner ** float(-1 if factor[0] == "over" else factor[2])
