"""Pointwise: operators that compute each element from elements of their operands alone, each with one form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_check.text import FLOATS, NUMPY, READ, Operator

Expression = tuple[Any, ...]

UNARY = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Cos Cosh Elu Erf ErfInv Exp Floor Gelu HardSigmoid HardSwish "
    "IsFinite IsInf IsNaN LeakyRelu Log Mish Negative Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus "
    "Softsign Sqrt Swish Tan Tanh ThresholdedRelu".split()
)
COMMUTATIVE = frozenset("Add And BitwiseAnd BitwiseOr BitwiseXor Equal Multiply NotEqual Or Xor".split())
BINARY = COMMUTATIVE | frozenset(
    "BitShift Divide Greater GreaterEqual Less LessEqual Mod Power SquaredDifference Subtract".split()
)
CHAINS = frozenset("Maximum Minimum".split())
POINTWISE = UNARY | BINARY | CHAINS | {"Where", "Clip", "Mean", "Sum"}
COMPARISONS = frozenset("And Equal Greater GreaterEqual IsFinite IsInf IsNaN Less LessEqual Not NotEqual Or Xor".split())
MIRRORED = {"Greater": "Less", "GreaterEqual": "LessEqual"}
IDEMPOTENT = frozenset(("Abs", "Relu"))
LOGICAL = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor", "BitwiseNot": "Not"}


def apply_pointwise(op: Operator, operands: tuple[Any, ...], dtypes: Sequence[str | None]) -> Expression:
    """Return an operator applied to elements, in one form."""
    name, attributes = op.name, {key: value for key, value in op.attributes.items() if key != "broadcast"}
    if name == "Cast":
        return _cast(operands[0], str(dtypes[0]), attributes)
    if name in ("Ceil", "Floor", "Round") and dtypes[0] in _WHOLE:
        return operands[0]  # type: ignore[no-any-return]
    if name in MIRRORED:
        name, operands = MIRRORED[name], operands[::-1]
    if name in LOGICAL and dtypes[0] == "boolean":
        name = LOGICAL[name]
    if name == "NotEqual":
        return ("apply", "Not", (apply_pointwise(Operator("Equal", {}), operands, dtypes),))
    if name == "Where":
        if operands[0][:2] == ("apply", "Not"):
            operands = operands[0][2][0], operands[2], operands[1]
        condition = number_of(operands[0])
        if condition is not None or operands[1] == operands[2]:
            return operands[1 if condition is None or condition else 2]  # type: ignore[no-any-return]
    is_plain = dtypes[0] in ("f32", "f64")
    if name == "Subtract" and (is_plain or dtypes[0] in _SIGNED):
        return apply_pointwise(Operator("Add", {}), (operands[0], _negate(operands[1])), dtypes)
    if name == "SquaredDifference" and is_plain:
        difference = apply_pointwise(Operator("Subtract", {}), operands, dtypes)
        return ("apply", "Multiply", (difference, difference))
    if name in CHAINS or (name == "Sum" and is_plain):
        name = "Add" if name == "Sum" else name
        result = operands[0]
        for other in operands[1:]:
            is_sorted = name == "Add" or (dtypes[0] or "f")[0] in "iu"
            result = ("apply", name, _sort((result, other)) if is_sorted else (result, other))
        return result  # type: ignore[no-any-return]
    if name == "Negative":
        return _negate(operands[0])
    if name == "Not" and operands[0][:2] == ("apply", "Not"):
        return operands[0][2][0]  # type: ignore[no-any-return]
    if name == "Not" and (known := number_of(operands[0])) is not None:
        return ("constant", "boolean", np.logical_not(known).tobytes())
    if name in IDEMPOTENT and operands[0][:2] == ("apply", name):
        return operands[0]  # type: ignore[no-any-return]
    if name == "Equal" and operands[0] == operands[1] and is_plain:
        return ("apply", "Not", (("apply", "IsNaN", (operands[0],)),))
    if name == "Clip":
        operands = _bounds_of(operands, dtypes[0])
    if name == "Divide" and is_plain:
        attributes.pop("m_pythondiv", None)
        inverse = _power_of_two(operands[1])
        if inverse is not None:
            return apply_pointwise(Operator("Multiply", {}), (operands[0], inverse), dtypes)
    if name in ("Add", "Multiply") and dtypes[0] in _WRAPPING:
        return _integer_chain(name, operands, str(dtypes[0]))
    if name == "Multiply" and dtypes[0] not in ("f32", "f64"):
        # In f32 and f64 the laws over the real numbers write negatives as products.
        for x, factor in (operands, operands[::-1]):
            if number_of(factor) == -1 and number_of(factor).dtype.kind in "fi":
                return _negate(x)
    if name in COMMUTATIVE:
        operands = _sort(operands)
        operand = _without_neutral(name, operands, dtypes[0])
        if operand is not None:
            return operand
    label = name if not attributes else f"{name}{sorted(attributes.items())!r}"
    return ("apply", label, operands)


def _integer_chain(name: str, operands: tuple[Any, ...], dtype: str) -> Expression:
    """Return a sum or product of integers, which wrap to the same bits in any order: sorted, with one constant."""
    total = NUMPY[dtype](0 if name == "Add" else 1)
    rest, pending = [], list(operands)
    while pending:
        x = pending.pop()
        number = number_of(x)
        if number is not None:
            with np.errstate(all="ignore"):
                total = total + number if name == "Add" else total * number
        elif x[:2] == ("apply", name):
            pending += x[2]
        else:
            rest.append(x)
    if name == "Multiply" and total == 0:
        rest = []
    is_negative = bool(rest) and name == "Multiply" and dtype in _SIGNED and total == -1
    if not rest or not (is_negative or total == (name != "Add")):
        rest.append(("constant", dtype, total.tobytes()))
    result, *others = _sort(rest)
    for other in others:
        result = ("apply", name, (result, other))
    return _negate(result) if is_negative else result  # type: ignore[no-any-return]


def _bounds_of(operands: tuple[Any, ...], dtype: str | None) -> tuple[Any, ...]:
    """Return the operands of Clip with the bounds that are omitted."""
    x, low, high = (*operands, None, None)[:3]
    if dtype in NUMPY and (low is None or high is None):
        info: Any = np.finfo(NUMPY[dtype]) if dtype in FLOATS else np.iinfo(NUMPY[dtype])
        low = ("constant", dtype, NUMPY[dtype](info.min).tobytes()) if low is None else low
        high = ("constant", dtype, NUMPY[dtype](info.max).tobytes()) if high is None else high
    return x, low, high


def _sort(operands: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(sorted(operands, key=repr))


def number_of(expression: Any) -> Any:
    """Return the number of a constant expression; None for another one."""
    if expression is None or expression[0] != "constant" or expression[1] not in (*NUMPY, "bf16"):
        return None
    return np.frombuffer(expression[2], READ[expression[1]])[0]


_WHOLE = {"boolean": 1, **{f"{sign}{bits}": bits - (sign == "i") for sign in "iu" for bits in (4, 8, 16, 32, 64)}}
_SIGNED = ("i8", "i16", "i32", "i64")
_WRAPPING = (*_SIGNED, "u8", "u16", "u32", "u64")
_EXACT = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""The number of bits up to which a type holds all integers."""


def _holds(source: str, target: str) -> bool:
    """Return whether a type holds all elements of another one."""
    if source not in _WHOLE:
        return (source, target) in {("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")}
    if target in _EXACT:
        return _WHOLE[source] <= _EXACT[target]
    return target in _WHOLE and _WHOLE[source] <= _WHOLE[target] and not (source[0] == "i" and target[0] == "u")


def _cast(x: Any, source: str, attributes: dict[str, Any]) -> Expression:
    target = str(attributes["to"])
    value = number_of(x)
    if value is not None and target in NUMPY and (value.dtype.kind in "iub" or bool(np.trunc(value) == value)):
        with np.errstate(all="ignore"):
            found = value.astype(NUMPY[target])
        if target == "boolean" or found.item() == value.item():
            return ("constant", target, found.tobytes())
    # A float between integers saturates where the integers wrap.
    is_float_between = x[:2] == ("apply", "Cast") and x[3] in _WHOLE and source in _EXACT and target in _WHOLE
    if (
        x[:2] == ("apply", "Cast")
        and _holds(x[3], source)
        and target != "string"
        and (not is_float_between or target == x[3] or _holds(x[3], target))
    ):
        x, source = x[2][0], x[3]
    if source == target:
        return x  # type: ignore[no-any-return]
    if _holds(source, target):
        attributes = {"to": attributes["to"]}
    return ("apply", "Cast", (x,), source, repr(sorted(attributes.items())))


def _negate(x: Any) -> Expression:
    if x[:2] == ("apply", "Negative"):
        return x[2][0]  # type: ignore[no-any-return]
    value = number_of(x)
    if value is not None and value.dtype.kind in "fi":
        with np.errstate(all="ignore"):
            return ("constant", x[1], np.negative(value).tobytes())
    return ("apply", "Negative", (x,))


def _power_of_two(expression: Any) -> Any:
    number = number_of(expression)
    if number is None or not np.isfinite(number) or number == 0:
        return None
    mantissa, exponent = np.frexp(number)
    if abs(mantissa) != 0.5 or abs(int(exponent)) >= 100:
        return None
    return ("constant", expression[1], (1 / number).astype(number.dtype).tobytes())


def _without_neutral(name: str, operands: tuple[Any, ...], dtype: str | None) -> Any:
    """Return the other operand of a neutral constant, or one that determines the result, where all bits are kept; else None."""
    for position, operand in enumerate(operands):
        number = number_of(operand)
        if number is None:
            continue
        other = operands[1 - position]
        if dtype == "boolean" and ((name == "And" and not number) or (name == "Or" and bool(number))):
            return operand
        is_neutral = (
            (name == "Multiply" and number == 1)
            or (name == "Add" and number == 0 and (np.signbit(number) or dtype not in ("f16", "f32", "f64", "bf16")))
            or (name == "And" and bool(number) and dtype == "boolean")
            or (name in ("Or", "Xor") and not number and dtype == "boolean")
        )
        if is_neutral:
            return other
    return None
