"""Quantized: elements of operators on quantized numbers, over the real numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dovetail_check.elements import Expression, Index
from dovetail_check.polynomials import close, number, size_of
from dovetail_check.reals import PLAIN, RealElements
from dovetail_check.sizes import ZERO, Unproved, product
from dovetail_check.text import FLOATS, NUMPY, Operator, Word

BYTES = ("u8", "i8")


class QuantizedElements(RealElements):
    """QuantizedElements builds elements over the real numbers, also of operators on quantized numbers."""

    def _parameter(self, x: int, axis: int, index: Index) -> Any:
        """Return the element of a scalar, or of a vector along an axis."""
        shape = self.shape_of(x)
        if len(shape) > 1:
            raise Unproved("parameters of blocks")
        return self.at(x, (index[axis] if shape[0] != 1 else ZERO,) if shape else ())

    def code_of(self, y: Expression, shift: Expression | None, kind: str) -> Expression:
        """Return a float rounded and shifted as an integer type, whose extremes stand for the floats beyond them."""
        y, info = self.f("Round", y), np.iinfo(NUMPY[kind])
        if shift is not None:
            y = self.f("Add", y, self.f("Cast", shift, dtype=kind, to=Word("f32")))
        return self.f("Cast", self.f("Clip", y, ("real", number(int(info.min))), ("real", number(int(info.max)))), to=Word(kind))

    def _steps(self, code: Expression, zero: Expression | None, kind: str) -> Expression:
        """Return the difference of an integer to a zero point, as a float."""
        steps = self.f("Cast", code, dtype=kind, to=Word("f32"))
        return steps if zero is None else self.f("Subtract", steps, self.f("Cast", zero, dtype=kind, to=Word("f32")))

    def _scales(self, xs: Any, index: Index, axis: int) -> list[Any]:
        """Return scales of f32. Raises Unproved for others."""
        if {self.terms[x].dtype for x in xs} != {"f32"}:
            raise Unproved("scales of another type than f32")
        return [self._parameter(x, axis, index) for x in xs]

    def _quantizelinear(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        kind = str(op.attributes.get("output_dtype", "u8") if len(xs) < 3 or xs[2] is None else self.terms[xs[2]].dtype)
        if self.terms[xs[0]].dtype != "f32" or op.attributes.get("block_size") or kind not in NUMPY or kind in FLOATS:
            raise Unproved("a quantization")
        axis = 1 if op.attributes.get("axis") is None else int(op.attributes["axis"]) % len(shape)
        (scale,) = self._scales(xs[1:2], index, axis)
        shift = self._parameter(xs[2], axis, index) if len(xs) > 2 and xs[2] is not None else None
        return self.code_of(self.f("Divide", self.at(xs[0], index), scale), shift, kind)

    def _dequantizelinear(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        kind = str(self.terms[xs[0]].dtype)
        if op.attributes.get("block_size") or op.attributes.get("output_dtype") not in (None, "f32"):
            raise Unproved("a quantization")
        if kind not in ("u8", "i8", "u16", "i16"):
            raise Unproved("a quantization")
        axis = 1 if op.attributes.get("axis") is None else int(op.attributes["axis"]) % len(shape)
        (scale,) = self._scales(xs[1:2], index, axis)
        zero = self._parameter(xs[2], axis, index) if len(xs) > 2 and xs[2] is not None else None
        return self.f("Multiply", self._steps(self.at(xs[0], index), zero, kind), scale)

    def _dynamicquantizelinear(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return codes, the scale or the zero point of u8 for the range of all elements, which has 0."""
        own, zero, last = self.shape_of(xs[0]), ("real", number(0)), ("real", number(255))
        low, high = (
            self.f(
                f"{name}imum",
                close(self.reduce(f"Reduce{name[:3]}", own, list(range(len(own))), {}, lambda inner: self.at(xs[0], inner))),
                zero,
            )
            for name in ("Min", "Max")
        )
        span = self.f("Subtract", high, low)
        scale = self.choose(self.f("Equal", span, zero), ("real", number(1)), self.f("Divide", span, last))
        point = self.f("Round", self.f("Clip", self.f("Subtract", zero, self.f("Divide", low, scale)), zero, last))
        point = self.f("Cast", point, to=Word("u8"))
        if output:
            return scale if output == 1 else point  # type: ignore[no-any-return]
        return self.code_of(self.f("Divide", self.at(xs[0], index), scale), point, "u8")

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

    # Products and sums of integers

    def _convinteger(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression | None:
        """Return a sum of products of integers by that of the differences to the zero points, in which no sum leaves i32."""
        name, extents = op.name.removesuffix("Integer"), self.shape_of(xs[1])
        count = product(extents[1:] if name == "Conv" else [extents[-2]]).number
        if count is None or count * 255**2 >= 1 << 31:
            raise Unproved("a sum of integers that may leave i32")
        for kind in ("f32", "f64", "i32"):
            parts = [self._difference(x, zero, kind) for x, zero in zip(xs, (*xs, None, None)[2:4], strict=False)]
            whole = None if None in parts else self._find(Operator(name, op.attributes), tuple(parts))
            if whole is not None:
                if whole in self._forms and self._forms[whole][0].name == op.name:
                    return None
                total = self.at(whole, index)
                return total if kind == "i32" else self.f("Cast", total, dtype=kind, to=Word("i32"))  # type: ignore[no-any-return]
        raise Unproved("a product of integers without its parts")

    _matmulinteger = _convinteger

    def _difference(self, x: int, zero: int | None, kind: str) -> int | None:
        """Return the term of the difference of integers to a zero point in a type; None if there is none."""
        cast = Operator("Cast", {"to": Word(kind)})
        found, data = self._find(cast, (x,)), None if zero is None else self.terms[zero].data
        if zero is None or found is None or (isinstance(data, np.ndarray) and not np.any(data)):
            return found
        if any(extent != 1 for extent in self.shape_of(zero)):
            raise Unproved("several zero points")
        return self._find(Operator("Subtract", {}), (found, self._find(cast, (zero,))))

    def _requantize(
        self, total: Expression, xs: Any, zero: int | None, index: Index, axis: int, alpha: float = 1.0
    ) -> Expression:
        """Return a sum of i32 times both scales ``xs`` over the third one as a code; a float without a zero point."""
        first, second, *rest = self._scales([x for x in xs if x is not None], index, axis)
        factor = self.f("Multiply", self.f("Multiply", ("real", number(Fraction(float(np.float32(alpha))))), first), second)
        y = self.f(
            "Multiply", self.f("Cast", total, dtype="i32", to=Word("f32")), self.f("Divide", factor, *rest) if rest else factor
        )
        kind = "f32" if zero is None else str(self.terms[zero].dtype)
        if kind not in (*BYTES, "f32"):
            raise Unproved("a quantization")
        return y if zero is None else self.code_of(y, self._parameter(zero, axis, index), kind)  # type: ignore[no-any-return]

    def _qlinearconv(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*xs, None)[:9]
        total = self._term_of(Operator("ConvInteger", op.attributes), (x, w, x_zero, w_zero), index)
        if bias is not None:
            total = self.f("Add", total, self.at(bias, (index[1],)), dtype="i32")
        return self._requantize(total, (x_scale, w_scale, y_scale), y_zero, index, 1)

    def _qgemm(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        x, x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero = (*xs, None, None, None)[:9]
        order = next((term.number for term in self.terms if term.integers == (1, 0)), None)
        x, w = (
            self._find(Operator("Transpose", {}), (each, order)) if op.attributes.get(f"trans_{name}") else each
            for each, name in ((x, "a"), (w, "b"))
        )
        total = self._term_of(Operator("MatMulInteger", {}), (x, w, x_zero, w_zero), index)
        if bias is not None:
            total = self.f("Add", total, self._broadcast(bias, index, shape), dtype="i32")
        return self._requantize(total, (x_scale, w_scale, y_scale), y_zero, index, -1, op.attributes.get("alpha", 1.0))

    def _term_of(self, op: Operator, xs: Any, index: Index) -> Expression:
        """Return the element of an application that was proved to equal a term."""
        found = self._find(op, xs)
        if found is None:
            raise Unproved(f"{op.name} is not among the parts")
        return self.at(found, index)

    def _dynamicquantizematmul(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        x, w, w_scale, w_zero, bias = (*xs, None, None)[:5]
        codes, scale, point = (self._find(Operator("DynamicQuantizeLinear", {}), (x,), place) for place in range(3))
        total = self._term_of(Operator("MatMulInteger", {}), (codes, w, point, w_zero), index)
        y = self._requantize(total, (scale, w_scale), None, index, -1)
        return y if bias is None else self.f("Add", y, self._broadcast(bias, index, shape))  # type: ignore[no-any-return]

    def _qlinearconcat(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return the element of an operand with its scale and zero point as a code of those of the result."""
        kind = str(self.terms[xs[1]].dtype)
        if kind not in BYTES:
            raise Unproved("a quantization")

        def code(place: int, inner: Index) -> Expression:
            x, scale, zero = xs[3 * place + 2 : 3 * place + 5]
            steps = self._steps(self.at(x, inner), self._parameter(zero, 0, ()), str(self.terms[x].dtype))
            factor, divisor = self._scales((scale, xs[0]), (), 0)
            return self.code_of(self.f("Divide", self.f("Multiply", steps, factor), divisor), self._parameter(xs[1], 0, ()), kind)

        return self.concat(op, xs[2::3], index, code)

    def _qlinearadd(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return a sum or a product of quantized numbers as a code; the zero point is added before rounding."""
        kind = str(self.terms[xs[0]].dtype)
        scales = [self.real(each, None) for each in self._scales((xs[1], xs[4], xs[6]), (), 0)]
        parts = []
        for x, zero in (xs[:3:2], xs[3:6:2]):
            point = None if zero is None else self._parameter(zero, 0, ())
            parts.append(self.real(self._steps(self._broadcast(x, index, shape), point, kind), None))
        if op.name == "QLinearAdd":
            y = parts[0] * scales[0] + parts[1] * scales[1]
        else:
            y = parts[0] * parts[1] * scales[0] * scales[1]
        y = y * scales[2].inverse()
        if len(xs) > 7 and xs[7] is not None:
            y = y + self.real(self.f("Cast", self._parameter(xs[7], 0, ()), dtype=kind, to=Word("f32")), None)
        return self.code_of(("real", y), None, kind)

    _qlinearmul = _qlinearadd

    def _qlinearglobalaveragepool(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        """Return the mean over the spatial axes as a code."""
        own, kind, to = self.shape_of(xs[0]), str(self.terms[xs[0]].dtype), Word("i32")
        axes = list(range(2, len(own)))
        if op.attributes.get("channels_last"):
            raise Unproved("channels of the last axis")
        (scale, divisor), zero = (
            self._scales((xs[1], xs[3]), (), 0),
            self.f("Cast", self._parameter(xs[2], 0, ()), dtype=kind, to=to),
        )

        def steps(inner: Index) -> Expression:
            return self.f("Subtract", self.f("Cast", self.at(xs[0], inner), dtype=kind, to=to), zero, dtype="i32")  # type: ignore[no-any-return]

        total = close(self.reduce("ReduceSum", own, axes, {axis: index[axis] for axis in range(2)}, steps))
        factor = self.f("Divide", scale, self.f("Multiply", divisor, ("real", size_of(product(own[axis] for axis in axes)))))
        y = self.f("Multiply", self.f("Cast", total, dtype="i32", to=Word("f32")), factor)
        return self.code_of(y, self._parameter(xs[4], 0, ()), kind)
