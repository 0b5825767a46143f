"""Elementwise steps: one operand and two, broadcasting, casts, comparisons, booleans, integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from networks.maker import REAL, Maker

ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}), ("Relu", {}), ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("HardSwish", {}), ("LeakyRelu", {"alpha": 0.25}),
    ("Elu", {"alpha": 0.75}), ("Gelu", {"approximate": "none"}), ("Gelu", {"approximate": "tanh"}), ("Swish", {}),
    ("Swish", {"alpha": 1.5}), ("HardSigmoid", {}), ("Clip", {}), ("Clip", {}), ("silu", {}), ("Mish", {}), ("Softplus", {}),
)  # fmt: skip
UNARY = (
    "Abs Negative Sign Sqrt Exp Log Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Selu Celu Softsign "
    "ThresholdedRelu Shrink Ceil Floor Round Identity"
).split()
BINARY = (
    "Add",
    "Add",
    "Multiply",
    "Multiply",
    "Subtract",
    "Divide",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "Mean",
    "Power",
    "PRelu",
    "SwiGLU",
    "Sum",
)
COMPARED = ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i8", "u8", "i32", "i64", "i16", "u16", "u32")


def activation(m: Maker, x: str) -> str | None:
    kind, attributes = m.among(ACTIVATIONS)
    if kind == "silu":
        gate = m.one("Sigmoid", x)
        return None if gate is None else m.one("Multiply", *((x, gate) if m.chance(0.5) else (gate, x)))
    if kind == "Clip":
        like = m.answer(x).actual.dtype
        low, high = (m.constant(np.asarray(end, like)) for end in m.among(((0.0, 6.0), (-0.5, 0.75), (-1.0, 1.0))))
        return m.one("Clip", x, *m.among(((low, high), (low, high), (low, None), (None, high))))
    return m.one(kind, x, **attributes)


def activated(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(FLOATS) if m.chance(0.2) else REAL)
    return None if x is None else activation(m, x)


def unary(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(FLOATS) if m.chance(0.2) else REAL)
    kind = m.among(UNARY)
    return (
        None
        if x is None
        else m.one(kind, x, **({"mode": m.among(("half_to_even", "half_away_from_zero"))} if kind == "Round" else {}))
    )


def broadcast(m: Maker, x: str) -> str | None:
    """Return an operand that goes with ``x``: alike, itself, one that broadcasts, a constant."""
    style = m.number(0, 9)
    if style == 0:
        return x
    if style < 5 and len(found := m.alike(x)) > 1:
        return str(m.among(found))
    if style < 7:
        others = [other for other in m.values if m.dtype(other) == m.dtype(x) and _broadcasts(m, other, x)]
        if others:
            return str(m.among(others))
    if style == 7 and (made := m.same_input(x)):
        return made
    sizes = [size if m.chance(0.6) and not m.is_open(x, axis) else 1 for axis, size in enumerate(m.shape(x))]
    while sizes and m.chance(0.4):
        sizes.pop(0)
    return m.constant(m.data(m.dtype(x), sizes))


def _broadcasts(m: Maker, other: str, x: str) -> bool:
    for answers in m.answers:
        try:
            if np.prod(np.broadcast_shapes(answers[other].actual.shape, answers[x].actual.shape), initial=1) > 20_000:
                return False
        except ValueError:
            return False
    return True


def binary(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(FLOATS) if m.chance(0.2) else REAL)
    y = None if x is None else broadcast(m, x)
    if x is None or y is None:
        return None
    kind = m.among(BINARY)
    if kind == "Power":
        return m.one("Power", x, m.constant(np.asarray(m.among((2.0, 3.0, 1.0, 0.5, -1.0)), m.answer(x).actual.dtype)))
    if kind in ("Mean", "Sum", "Maximum", "Minimum") and m.chance(0.3):
        z = broadcast(m, x)
        return m.one(kind, x, y, *([z] if z else []))
    return m.one(kind, *((x, y) if m.chance(0.7) else (y, x)))


def chained(m: Maker) -> str | None:
    """Return a row of elementwise steps, of which some values are read again."""
    x = m.pick()
    for _ in range(m.number(2, 9)):
        if x is None:
            return None
        kind = m.number(0, 5)
        if kind < 2:
            made = activation(m, x)
        elif kind < 3:
            made = m.one(m.among(("Negative", "Abs", "Erf", "Sin", "Atan", "Softsign", "Identity")), x)
        else:
            y = broadcast(m, x)
            made = (
                None
                if y is None
                else m.one(m.among(("Add", "Multiply", "Subtract", "Maximum", "Minimum")), *((x, y) if m.chance(0.6) else (y, x)))
            )
        x = made or x
    return x


def compared(m: Maker) -> str | None:
    """Return a comparison, and a choice by it."""
    x = m.pick(dtype=m.among(("f32", "f32", "i64", "i32", "u8", "i8", "f64", "f16")))
    y = None if x is None else broadcast(m, x)
    if x is None or y is None:
        return None
    c = m.one(m.among(COMPARED), x, y)
    if c is not None and m.chance(0.7):
        pair = (x, y) if m.chance(0.5) else (y, x)
        return m.one("Where", c, *pair)
    return c


def logical(m: Maker) -> str | None:
    x = m.pick(dtype="boolean")
    if x is None:
        return None
    y = broadcast(m, x)
    if m.chance(0.2) or y is None:
        return m.one("Not", x)
    return m.one(m.among(("And", "Or", "Xor", "Equal")), x, y)


def chosen(m: Maker) -> str | None:
    """Append a Where over existing booleans."""
    c = m.pick(dtype="boolean")
    x = None if c is None else m.pick(lambda x: _broadcasts(m, c, x))
    y = None if x is None else broadcast(m, x)
    return None if c is None or x is None or y is None else m.one("Where", c, x, y)


def cast(m: Maker) -> str | None:
    """Between element types; floats to integers are rounded, and far from the ends of the integer's range."""
    from dovetail.ir import dtypes

    x = m.pick(dtype=None)
    if x is None:
        return None
    kind = m.dtype(x)
    if kind in FLOATS and m.chance(0.4):
        to = m.among(("i32", "i64", "i8", "i16"))
        top = max(float(np.abs(answers[x].actual.astype(np.float64)).max(initial=0)) for answers in m.answers)
        return None if top > 100 else m.one("Cast", x, to=dtypes.dtype(to))
    to = m.among(
        (*FLOATS, "f32", "f32", "boolean") if kind in FLOATS else ("f32", "f32", "f32", "f64", "f16", "i64", "i32", "boolean")
    )
    return m.one("Cast", x, to=dtypes.dtype(to))


def through_half(m: Maker) -> str | None:
    """Return a few steps in half precision between casts."""
    from dovetail.ir import dtypes

    x = m.pick(lambda x: m.count(x) < 2000)
    y = None if x is None else m.one("Cast", x, to=dtypes.dtype(m.among(("f16", "bf16"))))
    for _ in range(m.number(1, 3)):
        if y is not None:
            other = broadcast(m, y)
            y = (
                activation(m, y) if m.chance(0.5) or other is None else m.one(m.among(("Add", "Multiply", "Subtract")), y, other)
            ) or y
    return y if y is None or m.chance(0.3) else m.one("Cast", y, to=dtypes.f32)


def integers(m: Maker) -> str | None:
    """Arithmetic, bits and shifts of integers."""
    x = m.pick(dtype=m.among(INTEGERS))
    if x is None:
        return None
    kind = m.number(0, 6)
    like = m.answer(x).actual.dtype
    if kind == 0:
        divisor = m.constant(np.asarray(m.number(1, 9), like))
        if m.chance(0.5):
            return m.one("Divide", x, divisor)
        return m.one("Mod", x, divisor, fmod=m.chance(0.5))
    if kind == 1:
        return m.one("BitShift", x, m.constant(np.asarray(m.number(0, 3), like)), direction=m.among(("left", "right")))
    if kind == 2:
        return m.one(m.among(("Abs", "Negative", "BitwiseNot", "Sign", "Relu")), x)
    if kind == 3:
        low, high = (m.constant(np.asarray(end, like)) for end in (3, 60))
        return m.one("Clip", x, low, high)
    y = broadcast(m, x)
    if y is None:
        return None
    if kind == 4:
        return m.one(m.among(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), x, y)
    if (
        m.dtype(x) in ("i64", "i32")
        and max(float(np.abs(a[name].actual.astype(np.float64)).max(initial=0)) for a in m.answers for name in (x, y)) > 3e4
    ):
        return m.one(m.among(("Maximum", "Minimum")), x, y)
    return m.one(m.among(("Add", "Multiply", "Subtract", "Maximum", "Minimum")), x, y)
