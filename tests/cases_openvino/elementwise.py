"""One element in, one element out; and two, broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers
from openvino_answers import error_inverted

_X = numbers(2, 3, 4)
_INTEGERS = numbers(2, 5, dtype=np.int32, low=-9, high=9)
_SPECIAL = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e-30, 80.0])
_FLOATS = _SPECIAL[5:11]


def _unary(kinds: str, *inputs: Any) -> list[Row]:
    return [Row(kind, (x,)) for kind in kinds.split() for x in inputs]


_MANY = (numbers(3, 4), numbers(1, 4, seed=1))
_WHOLE = (numbers(3, 4, dtype=np.int32, low=1, high=9), numbers(4, seed=1, dtype=np.int32, low=1, high=9))
_SIGNED = (numbers(3, 4, dtype=np.int32, low=-9, high=9), np.array([[3], [-3], [5]], np.int32))


def _binary(kinds: str, *pairs: Any) -> list[Row]:
    rows = []
    for kind in kinds.split():
        for first, second in pairs:
            rows.append(Row(kind, (first, second)))
        rows.append(Row(kind, (pairs[0][0], pairs[0][0]), {"auto_broadcast": "none"}))
    return rows


ROWS: list[Row] = [
    *_unary("Abs-1 Negative-1 Sign-1", _X, _INTEGERS, numbers(5, dtype=np.int64, low=-4)),
    *_unary("Abs-1 Sign-1 Floor-1 Ceiling-1 Sqrt-1 Erf-1 Sigmoid-1 Tanh-1", _SPECIAL),
    Row(
        "ReLU-1",
        (_SPECIAL,),
        name="of what is no number",
        answers=lambda x: np.maximum(x, np.float32(0)),
        why="OpenVINO's CPU plugin makes 0 of NaN",
    ),
    *_unary("Ceiling-1 Floor-1 Erf-1 Sin-1 Cos-1 Tan-1 Atan-1 Sinh-1 Cosh-1 Tanh-1 Sigmoid-1 ReLU-1 Exp-1", _X),
    *_unary("Floor-1 Ceiling-1 ReLU-1", _INTEGERS),
    *_unary("Sqrt-1 Log-1", numbers(3, 4, low=0.1, high=9), np.float32(4)),
    *_unary("Asin-1 Acos-1 Atanh-4", numbers(3, 4, low=-0.99, high=0.99)),
    *_unary("Asinh-4 SoftPlus-4 HSwish-4 Mish-4 HSigmoid-5 SoftSign-9 Gelu-2", numbers(3, 4, low=-6, high=6)),
    *_unary("Acosh-4", numbers(3, 4, low=1, high=6)),
    *(Row("ErfInv-17", (numbers(3, 4, dtype=dtype, low=-0.99, high=0.99),)) for dtype in (np.float32, np.float16)),
    Row(
        "ErfInv-17",
        (np.array([-1, 1, 0, 0.9999999, -0.5, 1e-20], np.float32),),
        name="at its ends",
        answers=error_inverted,
        why="OpenVINO's CPU plugin loses the digits of what is near to -1 and 1",
    ),
    *(Row("Gelu-7", (numbers(9, low=-4, high=4),), {"approximation_mode": mode}) for mode in ("erf", "tanh", "ERF", "TANH")),
    *(Row("Round-5", (_SPECIAL,), {"mode": mode}) for mode in ("half_to_even", "half_away_from_zero")),
    Row("Round-5", (_INTEGERS,), {"mode": "half_to_even"}),
    *(Row("Swish-4", xs) for xs in ((_X,), (_X, fixed(np.float32(0.5))), (_X, np.float32(1.5)))),
    *(Row("Elu-1", (_X,), {"alpha": alpha}) for alpha in (1.0, 0.3)),
    Row("Selu-1", (_X, fixed(np.float32(1.67)), fixed(np.float32(1.05)))),
    Row("Selu-1", (_X, fixed(np.float32([1.5])), fixed(np.float32([1.1])))),
    *(Row("HardSigmoid-1", (_X, fixed(np.float32(alpha)), fixed(np.float32(0.4)))) for alpha in (0.2, 1.5)),
    *(Row("PReLU-1", (_X, slope)) for slope in (numbers(1), numbers(3), numbers(1, 3, 1), numbers(2, 3, 4), fixed(numbers(3)))),
    Row("PReLU-1", (numbers(2, 3), numbers(3)), name="of a matrix, a slope a channel"),
    Row("PReLU-1", (numbers(2, 3, 3, 3), numbers(3)), name="of images whose width is the count of channels"),
    *(Row("Clamp-1", (x,), {"min": low, "max": high}) for x in (_X, _INTEGERS) for low, high in ((-1.0, 1.0), (-0.5, 0.7))),
    Row("Clamp-1", (_X,), {"min": -float("inf"), "max": 1.0}),
    *_binary("Add-1 Subtract-1 Multiply-1 Maximum-1 Minimum-1 SquaredDifference-1", _MANY, _WHOLE, _SIGNED),
    *_binary("Divide-1", _WHOLE, _MANY),
    *_binary("Mod-1 FloorMod-1", _WHOLE, _MANY, _SIGNED),
    Row(
        "Divide-1",
        _SIGNED,
        name="toward minus infinity",
        answers=np.floor_divide,
        why="OpenVINO's CPU plugin cuts toward zero, whatever m_pythondiv says",
    ),
    Row("Divide-1", _SIGNED, {"m_pythondiv": False}, "toward zero"),
    Row("Divide-1", (numbers(4), np.float32(0)), name="by zero"),
    *_binary("Power-1", (numbers(3, 4, low=0.1), numbers(4, seed=2)), (numbers(3, 4), np.float32(2)), (_WHOLE[0], np.int32([2]))),
    *_binary("Equal-1 NotEqual-1 Less-1 LessEqual-1 Greater-1 GreaterEqual-1", _WHOLE, _MANY),
    *(Row(kind, (_SPECIAL, _SPECIAL[::-1])) for kind in ("Equal-1", "NotEqual-1", "Less-1", "LessEqual-1")),
    *(
        Row(
            kind,
            (_SPECIAL, _SPECIAL[::-1]),
            answers=answers,
            why="OpenVINO's CPU plugin finds that NaN is greater than every number",
        )
        for kind, answers in (("Greater-1", np.greater), ("GreaterEqual-1", np.greater_equal))
    ),
    *_binary("LogicalAnd-1 LogicalOr-1 LogicalXor-1 Xor-1", (numbers(3, 4, dtype=bool), numbers(1, 4, seed=1, dtype=bool))),
    Row("LogicalNot-1", (numbers(3, 4, dtype=bool),)),
    *(
        Row(kind, (first, second))
        for kind in ("BitwiseAnd-13", "BitwiseOr-13", "BitwiseXor-13")
        for first, second in (
            _WHOLE,
            (numbers(3, 4, dtype=bool), numbers(1, 4, seed=1, dtype=bool)),
            (np.uint8([200]), np.uint8([77])),
        )
    ),
    *(Row("BitwiseNot-13", (x,)) for x in (_INTEGERS, np.uint8([0, 1, 255]), numbers(4, dtype=bool))),
    *(
        Row(kind, (x, np.array([1, 3], x.dtype)))
        for kind in ("BitwiseLeftShift-15", "BitwiseRightShift-15")
        for x in (np.int32([5, 100]), np.uint8([5, 100]), np.int8([-5, -100]))
    ),
    *(Row(kind, (_SPECIAL,)) for kind in ("IsNaN-10", "IsFinite-10", "IsInf-10")),
    *(
        Row("IsInf-10", (_SPECIAL,), {"detect_negative": low, "detect_positive": high})
        for low, high in ((False, True), (True, False), (False, False))
    ),
    Row("Select-1", (numbers(3, 1, dtype=bool), numbers(3, 4), numbers(4, seed=1))),
    Row("Select-1", (numbers(3, 4, dtype=bool), _WHOLE[0], _WHOLE[0] * 2), {"auto_broadcast": "none"}),
    *(Row(f"{kind}-1", (numbers(2, 3, 4), numbers(2, 3, seed=1)), {"auto_broadcast": "pdpd"}) for kind in ("Add", "Multiply")),
    Row(
        "Subtract-1",
        (numbers(2, 3, 4), numbers(2, 3, seed=1)),
        {"auto_broadcast": "pdpd"},
        answers=lambda x, y: x - y[..., None],
        why="OpenVINO rewrites it as a sum without the rule for broadcasting, and fails",
    ),
    *(
        # Floats below the range of u8 are left open by the specification: OpenVINO wraps them, we saturate.
        Row("Convert-1", (abs(x) if to == "u8" and x is _FLOATS else x,), {"destination_type": to})
        for x in (_FLOATS, _INTEGERS, numbers(4, dtype=bool), np.uint8([0, 7, 200]))
        for to in ("f32", "i32", "i64", "boolean", "f16", "u8", "i8", "f64", "bf16")
        if not (x is _INTEGERS and to == "u8")
    ),
    Row("ConvertLike-1", (_SPECIAL[5:11], numbers(2, dtype=np.int32))),
    Row("ConvertLike-1", (_INTEGERS, numbers(2, dtype=bool))),
    *(
        Row(
            "ConvertPromoteTypes-14",
            xs,
            {"promote_unsafe": unsafe, "pytorch_scalar_promotion": scalars, "u64_integer_promotion_target": "f32"},
        )
        for xs in (
            (numbers(3), numbers(3, dtype=np.int32)),
            (numbers(3, dtype=np.int8), numbers(3, dtype=np.int32)),
            (numbers(3, dtype=np.int32), np.float32(2)),
            (numbers(3, dtype=np.uint8, low=0, high=9), numbers(2, dtype=bool)),
            (numbers(3, dtype=np.float16), numbers(3)),
        )
        for unsafe, scalars in ((True, False), (True, True))
    ),
]
