"""Questions and their answers: comparisons, truth values, and choosing by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays
from dovetail.ops.elementwise.broadcast import AUTO, BroadcastingOp, Elementwise, is_float, number, unbroadcast

_LEGACY = "x, y; broadcast:_, axis:_ | broadcast=false"


class _Comparison(BroadcastingOp, sig="x: R, y: R -> z: boolean"):
    """A question about two values of one type. Nothing is true of NaN but that it differs."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        self.hold(x, y)
        with np.errstate(all="ignore"):
            return self.question(xp, x, y)

    def vjp(self, b: Any, g: Any, z: Any, x: Any, y: Any) -> Any:
        return [None, None]


class Equal(
    _Comparison,
    sig="x: T, y: T -> z: boolean",
    onnx=(f"Equal-1({_LEGACY})", "Equal-7,11,13,19(x, y | broadcast=true/false)"),
    openvino=f"Equal-1(x, y; {AUTO})",
):
    """x == y, of any type. Sources: ONNX Equal 1 to 19 (strings from 19 on), OpenVINO Equal-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.equal(x, y)


class NotEqual(_Comparison, sig="x: T, y: T -> z: boolean", openvino=f"NotEqual-1(x, y; {AUTO})"):
    """x != y, of any type; NaN differs from all. Source: OpenVINO NotEqual-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.not_equal(x, y)

    def composed(self, b: Any, x: Any, y: Any) -> Any:
        return b.Not(b.Equal(x, y, broadcast=self.broadcast))


class Less(
    _Comparison, onnx=(f"Less-1({_LEGACY})", "Less-7,9,13(x, y | broadcast=true/false)"), openvino=f"Less-1(x, y; {AUTO})"
):
    """x < y. Sources: ONNX Less 1 to 13, OpenVINO Less-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.less(x, y)


class LessEqual(_Comparison, onnx="LessOrEqual-12,16(x, y | broadcast=true/false)", openvino=f"LessEqual-1(x, y; {AUTO})"):
    """x <= y. Sources: ONNX LessOrEqual 12 and 16, OpenVINO LessEqual-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.less_equal(x, y)

    def composed(self, b: Any, x: Any, y: Any) -> Any:
        return b.Or(b.Less(x, y, broadcast=self.broadcast), b.Equal(x, y))


class Greater(
    _Comparison,
    onnx=(f"Greater-1({_LEGACY})", "Greater-7,9,13(x, y | broadcast=true/false)"),
    openvino=f"Greater-1(x, y; {AUTO})",
):
    """x > y. Sources: ONNX Greater 1 to 13, OpenVINO Greater-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.greater(x, y)


class GreaterEqual(
    _Comparison, onnx="GreaterOrEqual-12,16(x, y | broadcast=true/false)", openvino=f"GreaterEqual-1(x, y; {AUTO})"
):
    """x >= y. Sources: ONNX GreaterOrEqual 12 and 16, OpenVINO GreaterEqual-1."""

    def question(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.greater_equal(x, y)

    def composed(self, b: Any, x: Any, y: Any) -> Any:
        return b.Or(b.Greater(x, y, broadcast=self.broadcast), b.Equal(x, y))


class _Connective(BroadcastingOp, sig="x: boolean, y: boolean -> z: boolean"):
    """One truth value of two."""


class And(_Connective, onnx=(f"And-1({_LEGACY})", "And-7(x, y | broadcast=true/false)"), openvino=f"LogicalAnd-1(x, y; {AUTO})"):
    """Whether both hold. Sources: ONNX And 1 and 7, OpenVINO LogicalAnd-1."""

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        self.hold(x, y)
        return xp.logical_and(x, y)


class Or(_Connective, onnx=(f"Or-1({_LEGACY})", "Or-7(x, y | broadcast=true/false)"), openvino=f"LogicalOr-1(x, y; {AUTO})"):
    """Whether one holds, or both. Sources: ONNX Or 1 and 7, OpenVINO LogicalOr-1."""

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        self.hold(x, y)
        return xp.logical_or(x, y)


class Xor(
    _Connective,
    onnx=(f"Xor-1({_LEGACY})", "Xor-7(x, y | broadcast=true/false)"),
    openvino=(f"Xor-1(x, y; {AUTO})", f"LogicalXor-1(x, y; {AUTO})"),
):
    """Whether exactly one holds. Sources: ONNX Xor 1 and 7, OpenVINO Xor-1 and LogicalXor-1."""

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        self.hold(x, y)
        return xp.logical_xor(x, y)


class _Predicate(Elementwise, sig="x: F -> y: boolean"):
    """A question about one value."""

    def shape(self, x: Any) -> Any:
        return x.shape

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [None]


class Not(_Predicate, sig="x: boolean -> y: boolean", onnx="Not-1(x)", openvino="LogicalNot-1(x)"):
    """Whether it does not hold. Sources: ONNX Not 1, OpenVINO LogicalNot-1."""

    def evaluate(self, xp: Any, x: Any) -> Any:
        return xp.logical_not(x)


class IsNaN(_Predicate, onnx="IsNaN-9,13,20(x)", openvino="IsNaN-10(x)"):
    """Whether it is not a number. Sources: ONNX IsNaN 9 to 20, OpenVINO IsNaN-10."""

    def evaluate(self, xp: Any, x: Any) -> Any:
        return xp.isnan(arrays.widened(xp, x))


class IsInf(
    _Predicate,
    onnx="IsInf-10,20(x; detect_negative=1, detect_positive=1)",
    openvino="IsInf-10(x; detect_negative=true, detect_positive=true)",
):
    """Whether it is infinite; one sign counts only with its flag. Sources: ONNX IsInf 10 and 20, OpenVINO IsInf-10."""

    detect_negative: bool = True
    detect_positive: bool = True

    def evaluate(self, xp: Any, x: Any) -> Any:
        wide = arrays.widened(xp, x)
        infinite = xp.isinf(wide)
        if self.detect_negative and self.detect_positive:
            return infinite
        if not self.detect_negative and not self.detect_positive:
            return xp.zeros_like(infinite)
        return infinite & ((wide < 0) if self.detect_negative else (wide > 0))


class IsFinite(_Predicate, openvino="IsFinite-10(x)"):
    """Whether it is neither infinite nor NaN. Source: OpenVINO IsFinite-10."""

    def evaluate(self, xp: Any, x: Any) -> Any:
        return xp.isfinite(arrays.widened(xp, x))

    def composed(self, b: Any, x: Any) -> Any:
        return b.Not(b.Or(b.IsNaN(x), b.IsInf(x)))


class Where(
    BroadcastingOp,
    sig="condition: boolean, x: T, y: T -> z: T",
    onnx="Where-9,16(condition, x, y | broadcast=true/false)",
    openvino=f"Select-1(condition, x, y; {AUTO})",
):
    """``x`` where ``condition`` holds, otherwise ``y``. Sources: ONNX Where 9 and 16, OpenVINO Select-1."""

    def types(self, condition: Any, x: Any, y: Any) -> Any:
        # Choosing is no arithmetic: any type may be chosen from.
        from dovetail.ir.op import default_types

        return default_types(self, (condition, x, y))

    def evaluate(self, xp: Any, condition: Any, x: Any, y: Any) -> Any:
        self.hold(condition, x, y)
        return xp.where(condition, x, y)

    def vjp(self, b: Any, g: Any, z: Any, condition: Any, x: Any, y: Any) -> Any:
        if not is_float(x):
            return [None, None, None]
        zero = number(b, 0, x)
        return [None, unbroadcast(b, b.Where(condition, g, zero), x), unbroadcast(b, b.Where(condition, zero, g), y)]
