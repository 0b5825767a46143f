"""Comparisons with their NaN, truth values, and choosing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases import Case
from cases.elementwise import FLOATS, INFINITIES, INTEGERS, numbers
from dovetail.ir import dtypes
from dovetail.ir.op import Op
from dovetail.ops.elementwise.logical import (
    And,
    Equal,
    Greater,
    GreaterEqual,
    IsFinite,
    IsInf,
    IsNaN,
    Less,
    LessEqual,
    Not,
    NotEqual,
    Or,
    Where,
    Xor,
)

_NAN = {"openvino": "OpenVINO's CPU plugin leaves comparisons with NaN open"}
_STRINGS = {"openvino": "OpenVINO's CPU plugin aborts on strings"}


def comparisons() -> Iterator[Case]:
    ops: tuple[Op, ...] = (Equal(), NotEqual(), Less(), LessEqual(), Greater(), GreaterEqual())
    for op in ops:
        for name in (*FLOATS, *INTEGERS):
            yield Case(op, (numbers(name, 2, 3, low=-1, high=1).round(), numbers(name, 3, low=-1, high=1, seed=1).round()))
        for shapes in (((), ()), ((2, 1), (1, 3)), ((0, 3), (3,))):
            yield Case(op, tuple(numbers("i32", *shape, low=0, high=1, seed=index) for index, shape in enumerate(shapes)))
        yield Case(op, (INFINITIES[:, None], INFINITIES), name=f"{op} of NaN and infinities", skip=_NAN)
        yield Case(type(op)(broadcast=False), (numbers("f32", 3), numbers("f32", 3, seed=1)))
    for op in (Equal(), NotEqual()):
        yield Case(op, (numbers("boolean", 2, 3), numbers("boolean", 3, seed=1)))
        texts = (np.array(["a", "b", ""], dtype=object), np.array(["a", "c", ""], dtype=object))
        yield Case(op, texts, skip=_STRINGS)


def connectives() -> Iterator[Case]:
    for op in (And(), Or(), Xor()):
        for shapes in (((2, 3), (2, 3)), ((2, 1), (3,)), ((), ()), ((0,), (1,))):
            yield Case(op, tuple(numbers("boolean", *shape, seed=index) for index, shape in enumerate(shapes)))
    for shape in ((2, 3), (), (0,)):
        yield Case(Not(), (numbers("boolean", *shape),))


def predicates() -> Iterator[Case]:
    for name in ("f32", "f64", "f16", "bf16"):
        x = INFINITIES.astype(dtypes.dtype(name).numpy)
        for op in (IsNaN(), IsFinite(), IsInf(), IsInf(detect_negative=False), IsInf(detect_positive=False), IsInf(False, False)):
            yield Case(
                op, (x,), skip={"openvino": "OpenVINO's CPU plugin makes f64 f32, and infinity finite"} if name == "f64" else {}
            )
    for name in ("f8e4m3", "f8e5m2", "f8e4m3fnuz"):
        x = INFINITIES.astype(dtypes.dtype(name).numpy)
        skip = {"openvino": "OpenVINO's CPU plugin does not compute in f8"}
        yield Case(IsNaN(), (x,), skip=skip)
        yield Case(IsInf(), (x,), skip=skip)


def choices() -> Iterator[Case]:
    for name in (*FLOATS, *INTEGERS, "boolean"):
        yield Case(Where(), (numbers("boolean", 2, 3), numbers(name, 2, 3), numbers(name, 2, 3, seed=1)))
    for shapes in (((2, 1), (3,), ()), ((), (2, 3), (1, 3)), ((2, 1, 1), (3, 1), (4,)), ((0, 1), (1, 3), (3,)), ((), (), ())):
        condition, x, y = shapes
        yield Case(Where(), (numbers("boolean", *condition), numbers("f32", *x), numbers("f32", *y, seed=1)))
    yield Case(Where(broadcast=False), (numbers("boolean", 3), numbers("f32", 3), numbers("f32", 3, seed=1)))
    texts = (numbers("boolean", 3), np.array(["a", "b", "c"], dtype=object), np.array(["x"], dtype=object))
    yield Case(Where(), texts, skip=_STRINGS)


CASES: list[Case] = [*comparisons(), *connectives(), *predicates(), *choices()]
