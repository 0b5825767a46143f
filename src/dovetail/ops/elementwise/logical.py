"""Comparison and logical operators, floating-point predicates, and Where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.ir import arrays, symbolic
from dovetail.ir.op import default_types
from dovetail.ir.types import View
from dovetail.ops.elementwise.broadcast import AUTO_BROADCAST, BroadcastingOp, Elementwise, is_float, scalar_like, unbroadcast
from dovetail.ops.elementwise.operand_laws import BOOLEANS, both

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_LEGACY = "x, y; broadcast:_, axis:_ | broadcast=false"


class ComparisonOp(BroadcastingOp, sig="x: R, y: R -> z: boolean", is_registered=False):
    """Comparison operators compare two tensors of one element type. Comparisons with NaN are false, except NotEqual."""

    branch: ClassVar[str]
    """The mode of a decision tree node (ai.onnx.ml) that makes this comparison."""

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        with np.errstate(all="ignore"):
            return self.question(xp, x, y)

    def indicator(self, x: View, y: View) -> Any:
        """Return symbolic integers that are 1 where the comparison of two exact integer arrays holds and 0 elsewhere.

        A comparison that depends on sizes gives a symbolic element. The default clips :meth:`excess` to [0, 1]. Raises
        Unknown, and Inexact.
        """
        xp = symbolic.xp
        return xp.clip(xp.asarray(self.excess(xp.asarray(x.exact), xp.asarray(y.exact))), 0, 1)

    def excess(self, x: Array, y: Array) -> Any:
        """Return integers that are positive where the comparison holds and at most 0 elsewhere."""
        raise NotImplementedError

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        return [None, None]


class Equal(
    ComparisonOp,
    sig="x: T, y: T -> z: boolean",
    onnx=(f"Equal-1({_LEGACY})", "Equal-7,11,13,19(x, y | broadcast=true/false)"),
    openvino=f"Equal-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x == y for operands of any type. Sources: ONNX Equal 1 to 19 (strings from 19 on), OpenVINO Equal-1."""

    branch = "BRANCH_EQ"
    commutes = True

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.equal(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return 1 - symbolic.xp.abs(x - y)


class NotEqual(ComparisonOp, sig="x: T, y: T -> z: boolean", openvino=f"NotEqual-1(x, y; {AUTO_BROADCAST})"):
    """Compute x != y for operands of any type; NaN differs from every value. Source: OpenVINO NotEqual-1."""

    branch = "BRANCH_NEQ"
    commutes = True

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.not_equal(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return symbolic.xp.abs(x - y)

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        return b.Not(b.Equal(x, y, broadcast=self.broadcast))


class Less(
    ComparisonOp,
    onnx=(f"Less-1({_LEGACY})", "Less-7,9,13(x, y | broadcast=true/false)"),
    openvino=f"Less-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x < y. Sources: ONNX Less 1 to 13, OpenVINO Less-1."""

    branch = "BRANCH_LT"

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.less(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return y - x


class LessEqual(
    ComparisonOp, onnx="LessOrEqual-12,16(x, y | broadcast=true/false)", openvino=f"LessEqual-1(x, y; {AUTO_BROADCAST})"
):
    """Compute x <= y. Sources: ONNX LessOrEqual 12 and 16, OpenVINO LessEqual-1."""

    branch = "BRANCH_LEQ"

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.less_equal(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return y - x + 1

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        return b.Or(b.Less(x, y, broadcast=self.broadcast), b.Equal(x, y))


class Greater(
    ComparisonOp,
    onnx=(f"Greater-1({_LEGACY})", "Greater-7,9,13(x, y | broadcast=true/false)"),
    openvino=f"Greater-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x > y. Sources: ONNX Greater 1 to 13, OpenVINO Greater-1."""

    branch = "BRANCH_GT"

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.greater(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return x - y


class GreaterEqual(
    ComparisonOp, onnx="GreaterOrEqual-12,16(x, y | broadcast=true/false)", openvino=f"GreaterEqual-1(x, y; {AUTO_BROADCAST})"
):
    """Compute x >= y. Sources: ONNX GreaterOrEqual 12 and 16, OpenVINO GreaterEqual-1."""

    branch = "BRANCH_GTE"

    def question(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.greater_equal(x, y)

    def excess(self, x: Array, y: Array) -> Any:
        return x - y + 1

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        return b.Or(b.Greater(x, y, broadcast=self.broadcast), b.Equal(x, y))


class _Connective(BroadcastingOp, sig="x: boolean, y: boolean -> z: boolean"):
    """Logical operators combine two boolean tensors."""


class And(
    _Connective,
    onnx=(f"And-1({_LEGACY})", "And-7(x, y | broadcast=true/false)"),
    openvino=f"LogicalAnd-1(x, y; {AUTO_BROADCAST})",
):
    """Compute the logical AND. Sources: ONNX And 1 and 7, OpenVINO LogicalAnd-1."""

    neutral = both(1, BOOLEANS)
    absorbing = both(0, BOOLEANS)

    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return xp.logical_and(x, y)


class Or(
    _Connective, onnx=(f"Or-1({_LEGACY})", "Or-7(x, y | broadcast=true/false)"), openvino=f"LogicalOr-1(x, y; {AUTO_BROADCAST})"
):
    """Compute the logical OR. Sources: ONNX Or 1 and 7, OpenVINO LogicalOr-1."""

    neutral = both(0, BOOLEANS)
    absorbing = both(1, BOOLEANS)

    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return xp.logical_or(x, y)


class Xor(
    _Connective,
    onnx=(f"Xor-1({_LEGACY})", "Xor-7(x, y | broadcast=true/false)"),
    openvino=(f"Xor-1(x, y; {AUTO_BROADCAST})", f"LogicalXor-1(x, y; {AUTO_BROADCAST})"),
):
    """Compute the logical XOR. Sources: ONNX Xor 1 and 7, OpenVINO Xor-1 and LogicalXor-1."""

    neutral = both(0, BOOLEANS)
    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return xp.logical_xor(x, y)


class _Predicate(Elementwise, sig="x: F -> y: boolean"):
    """Predicates return a boolean for each element."""

    def shape(self, x: View) -> Any:
        return x.shape

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]


class Not(_Predicate, sig="x: boolean -> y: boolean", onnx="Not-1(x)", openvino="LogicalNot-1(x)"):
    """Compute the logical NOT. Sources: ONNX Not 1, OpenVINO LogicalNot-1."""

    involution = BOOLEANS

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return xp.logical_not(x)


class IsNaN(_Predicate, onnx="IsNaN-9,13,20(x)", openvino="IsNaN-10(x)"):
    """Test each element for NaN. Sources: ONNX IsNaN 9 to 20, OpenVINO IsNaN-10."""

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return xp.isnan(arrays.widen(xp, x))


class IsInf(
    _Predicate,
    onnx="IsInf-10,20(x; detect_negative=1, detect_positive=1)",
    openvino="IsInf-10(x; detect_negative=true, detect_positive=true)",
):
    """Test each element for infinity, of the signs that ``detect_negative`` and ``detect_positive`` select.

    Sources: ONNX IsInf 10 and 20, OpenVINO IsInf-10.
    """

    detect_negative: bool = True
    detect_positive: bool = True

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        wide = arrays.widen(xp, x)
        infinite = xp.isinf(wide)
        if self.detect_negative and self.detect_positive:
            return infinite
        if not self.detect_negative and not self.detect_positive:
            return xp.zeros_like(infinite)
        return infinite & ((wide < 0) if self.detect_negative else (wide > 0))


class IsFinite(_Predicate, openvino="IsFinite-10(x)"):
    """Test each element for being neither infinite nor NaN. Source: OpenVINO IsFinite-10."""

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return xp.isfinite(arrays.widen(xp, x))

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Not(b.Or(b.IsNaN(x), b.IsInf(x)))


class Where(
    BroadcastingOp,
    sig="condition: boolean, x: T, y: T -> z: T",
    onnx="Where-9,16(condition, x, y | broadcast=true/false)",
    openvino=f"Select-1(condition, x, y; {AUTO_BROADCAST})",
):
    """Select ``x`` where ``condition`` is true, otherwise ``y``. Sources: ONNX Where 9 and 16, OpenVINO Select-1."""

    def types(self, condition: View, x: View, y: View) -> Any:
        # Selection needs no arithmetic, so types stored as codes are allowed.
        return default_types(self, (condition, x, y))

    def evaluate(self, xp: Namespace, condition: Array, x: Array, y: Array) -> Any:
        self.check_equal_shapes(condition, x, y)
        return xp.where(condition, x, y)

    def vjp(self, b: Builder, g: Value, z: Value, condition: Value, x: Value, y: Value) -> Any:
        if not is_float(x):
            return [None, None, None]
        zero = scalar_like(b, 0, x)
        return [None, unbroadcast(b, b.Where(condition, g, zero), x), unbroadcast(b, b.Where(condition, zero, g), y)]
