"""Arithmetic, functions of one number and activations: broadcasting, the ends of ranges, every way to round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise.activation import (
    ONE_SIXTH,
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    PRelu,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Softplus,
    Softsign,
    SwiGLU,
    Swish,
    ThresholdedRelu,
)
from dovetail.ops.elementwise.binary import (
    Add,
    Divide,
    Maximum,
    Mean,
    Minimum,
    Mod,
    Multiply,
    Power,
    SquaredDifference,
    Subtract,
    Sum,
)
from dovetail.ops.elementwise.bitwise import BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Abs, Ceil, Erf, ErfInv, Floor, Negative, Reciprocal, Round, Sign

TOLERANCES = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}
FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
INFINITIES = np.array([-np.inf, -1.5, -0.0, 0.0, 2.5, np.inf, np.nan], np.float32)


def numbers(name: str, *shape: int, low: float = -3, high: float = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random elements of a type between two bounds."""
    kind = dtypes.dtype(name)
    chance = np.random.default_rng(seed)
    if name == "boolean":
        return chance.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        least, most = kind.range()
        found: np.ndarray[Any, Any] = np.asarray(
            chance.integers(max(int(low), least), min(int(high), most), shape, endpoint=True)
        )
        return found.astype(kind.numpy)
    return np.asarray(chance.uniform(low, high, shape)).astype(kind.numpy)


def tolerance(name: str) -> float | None:
    return TOLERANCES.get(name)


def arithmetic() -> Iterator[Case]:
    for op in (Add(), Subtract(), Multiply()):
        for name in (*FLOATS, *INTEGERS):
            yield Case(op, (numbers(name, 2, 3, low=5, high=9), numbers(name, 2, 3, high=5, seed=1)), tolerance=tolerance(name))
        for shapes in (((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((), ()), ((0, 3), (1, 3)), ((1,), (0,))):
            yield Case(op, tuple(numbers("f32", *shape, seed=index) for index, shape in enumerate(shapes)))
        yield Case(type(op)(broadcast=False), (numbers("f32", 2, 3), numbers("f32", 2, 3, seed=1)))
        pair = (np.array([127, -128, -1], np.int8), np.array([2, -3, -128], np.int8))
        yield Case(op, pair, name=f"{op} wraps", skip={"openvino": "OpenVINO's CPU plugin saturates short integers"})


def divisions() -> Iterator[Case]:
    signs = [[7, -7, 7, -7, 6, -6, 0], [2, 2, -2, -2, 3, 3, -5]]
    floors = {"openvino": "OpenVINO's CPU plugin divides integers toward zero whatever m_pythondiv says"}
    for name in FLOATS:
        inputs = (numbers(name, 2, 3), numbers(name, 3, low=0.5, seed=1))
        yield Case(Divide(), inputs, tolerance=tolerance(name))
        for truncate in (False, True):
            yield Case(
                Mod(fmod=truncate),
                (numbers(name, 2, 3, low=-9, high=9), numbers(name, 3, low=0.5, seed=1)),
                tolerance=tolerance(name),
            )
    for name in ("i8", "i32", "i64"):
        pair = tuple(np.array(row).astype(dtypes.dtype(name).numpy) for row in signs)
        yield Case(Divide(), pair)
        yield Case(Divide(m_pythondiv=True), pair, skip=floors)
        yield Case(Mod(), pair)
        yield Case(Mod(fmod=True), pair)
    for name in ("u8", "u32", "u64"):
        pair = (numbers(name, 2, 3, low=0, high=200), numbers(name, 3, low=1, high=9, seed=1))
        yield Case(Divide(), pair)
        yield Case(Divide(m_pythondiv=True), pair)
        yield Case(Mod(), pair)
        yield Case(Mod(fmod=True), pair)
    ends = (np.array([-128, 127], np.int8), np.array([-1, -128], np.int8))
    yield Case(Divide(), ends, skip={"onnxruntime": "undefined in C++", "openvino": "undefined in C++"})
    special = (
        np.array([5, -5, 5, -5, 0, -0.0, np.inf], np.float32),
        np.array([np.inf, np.inf, -np.inf, -np.inf, 3, -3, 2], np.float32),
    )
    told = {
        "onnxruntime": "its fmod=0 of floats came with opset 28",
        "openvino": "OpenVINO's CPU plugin divides to find a remainder",
        "onnx": "written by operators whose results with infinities differ",
    }
    yield Case(Mod(), special, name="Mod of infinities", skip=told)
    yield Case(Mod(fmod=True), special, name="fmod of infinities", skip={"openvino": told["openvino"]})
    yield Case(Divide(), (numbers("f32", 2, 1, 3), numbers("f32", 4, 1, low=1, seed=1)), tolerance=1e-6)


def powers() -> Iterator[Case]:
    for name in FLOATS:
        yield Case(Power(), (numbers(name, 2, 3, low=0.5), numbers(name, 3, seed=1)), tolerance=tolerance(name))
    yield Case(Power(), (numbers("f32", 2, 3, low=0.5), numbers("i64", 3, seed=1)), tolerance=2e-6)
    yield Case(Power(), (numbers("f32", 2, 3, low=0.5), np.array(2, np.int32)), constants=(1,), tolerance=2e-6)
    yield Case(Power(), (numbers("f32", 2, 3), np.array(2.0, np.float32)), tolerance=2e-6)
    yield Case(Power(), (numbers("f32", 2, 3, low=1), numbers("f64", 3, seed=1)), tolerance=2e-6)
    yield Case(Power(), (numbers("i32", 2, 3), numbers("i32", 3, low=0, seed=1)))
    yield Case(Power(), (numbers("i64", 2, 3, low=0), np.array([0.5, 2, 3], np.float32)))
    zero = (np.array([0, 0, 2], np.float32), np.array([0, 2, 0], np.float32))
    yield Case(Power(), zero, name="Power of and to 0", skip={"second gradient": "not smooth at 0"}, tolerance=1e-6)
    for exponent in (0.5, 2, -1):
        infinite = (np.array([-np.inf, -0.0, 4, np.inf], np.float32), np.array(exponent, np.float32))
        yield Case(Power(), infinite, name=f"Power of infinities by {exponent}", tolerance=2e-6)


def of_many() -> Iterator[Case]:
    for op in (Maximum(), Minimum(), Sum(), Mean()):
        for shapes in (((2, 3),), ((2, 3), (2, 3)), ((2, 1, 3), (4, 1), (3,)), ((3,), (), (2, 1), (1, 3))):
            arrays = tuple(numbers("f32", *shape, seed=index) for index, shape in enumerate(shapes))
            skip = {"openvino": "OpenVINO drops the name of an input that is an output"} if len(shapes) == 1 else {}
            yield Case(op, arrays, tolerance=1e-6, skip=skip)
        for name in ("f64", "f16", "bf16"):
            skip = {"openvino": "OpenVINO sums in f32"} if name != "f64" and type(op) in (Sum, Mean) else {}
            yield Case(
                op, (numbers(name, 3), numbers(name, 3, seed=1), numbers(name, 3, seed=2)), tolerance=tolerance(name), skip=skip
            )
        yield Case(type(op)(broadcast=False), (numbers("f32", 2, 3), numbers("f32", 2, 3, seed=1)), tolerance=1e-6)
    for op in (Maximum(), Minimum()):
        for name in ("i8", "u16", "i32", "u64", "i64"):
            yield Case(op, (numbers(name, 2, 3, high=9), numbers(name, 3, high=9, seed=1), numbers(name, 1, high=9, seed=2)))
        nan = (np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 3], np.float32))
        yield Case(op, nan, name=f"{op} of NaN", skip={"openvino": "OpenVINO leaves NaN open"})


def differences() -> Iterator[Case]:
    for name in ("f32", "f64", "f16", "i32"):
        yield Case(SquaredDifference(), (numbers(name, 2, 3), numbers(name, 3, seed=1)), tolerance=tolerance(name))
    yield Case(SquaredDifference(broadcast=False), (numbers("f32", 3), numbers("f32", 3, seed=1)), tolerance=1e-6)


def bits() -> Iterator[Case]:
    for op in (BitwiseAnd(), BitwiseOr(), BitwiseXor()):
        for name in (*INTEGERS, "boolean"):
            yield Case(op, (numbers(name, 2, 3, low=-90, high=90), numbers(name, 3, low=-90, high=90, seed=1)))
    for name in (*INTEGERS, "boolean"):
        skip = {"openvino": f"OpenVINO's CPU plugin computes {name} in i32"} if name in ("u32", "u64") else {}
        yield Case(BitwiseNot(), (numbers(name, 2, 3, low=-90, high=90),), skip=skip)
    for direction in ("left", "right"):
        for name in ("u8", "u16", "u32", "u64", "i8", "i32"):
            x = numbers(name, 2, 3, low=0 if direction == "left" else -90, high=20)
            yield Case(BitShift(direction=direction), (x, numbers(name, 3, low=0, high=2, seed=1)), constants=(1,))
        for name in ("u8", "i8", "i32"):
            bits = dtypes.dtype(name).bits
            amounts = np.array([0, 1, bits - 1, bits, bits + 9, 3]).astype(dtypes.dtype(name).numpy)
            skip = {
                "onnxruntime": "before opset 28 nothing defines shifts by all bits",
                "openvino": "guarded shifts of small types leave OpenVINO's i32",
            }
            yield Case(BitShift(direction=direction), (numbers(name, 6, low=-90, high=90), amounts), skip=skip)
    told = {"onnx": "opset 28 says more than open, and is read so"}
    yield Case(
        BitShift(direction="left", beyond="open"), (numbers("u8", 2, 1, low=0, high=9), np.array([0, 1], np.uint8)), skip=told
    )


DOMAINS: dict[str, tuple[float, float]] = {
    "Sqrt": (0.1, 9), "Log": (0.1, 9), "Asin": (-0.95, 0.95), "Acos": (-0.95, 0.95), "Atanh": (-0.95, 0.95), "Acosh": (1.1, 9),
    "Reciprocal": (0.5, 4), "Tan": (-1.2, 1.2), "ErfInv": (-0.99, 0.99),
}  # fmt: skip
FUNCTIONS = (
    "Abs Negative Sign Ceil Floor Round Sqrt Exp Log Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf "
    "ErfInv Relu HardSwish Sigmoid Softplus Softsign Gelu Mish"
).split()
STEPS = ("Abs", "Negative", "Sign", "Ceil", "Floor", "Round", "Relu")


def functions() -> Iterator[Case]:
    for kind in FUNCTIONS:
        op: Op = REGISTRY[kind]()
        low, high = DOMAINS.get(kind, (-4, 4))
        for name in FLOATS:
            exact = kind in STEPS
            skip = (
                {"onnxruntime": "computed in f32, or not at all"}
                if name == "f64" and kind in ("Erf", "Gelu", "HardSwish")
                else {}
            )
            if kind == "ErfInv" and name in ("f32", "f64"):
                skip = {"openvino": "OpenVINO's CPU plugin gives four digits"}
            yield Case(
                op,
                (numbers(name, 2, 5, low=low, high=high),),
                tolerance=None if exact else max(TOLERANCES[name], 1e-5 if name == "f32" else 0),
                skip=skip,
            )
        yield Case(op, (numbers("f32", low=low, high=high),), tolerance=1e-5)
        yield Case(op, (numbers("f32", 0, 3, low=low, high=high),), tolerance=1e-5)
    for kind in (Abs(), Negative(), Sign(), Relu(), Ceil(), Floor(), Round()):
        for name in ("i8", "i32", "i64"):
            yield Case(kind, (numbers(name, 2, 3, low=-90, high=90),))
    for kind in (Abs(), Sign()):
        yield Case(kind, (numbers("u8", 2, 3, low=0, high=200),))
    halves = np.array([-2.5, -1.5, -0.5, -0.3, 0.49999997, 0.5, 1.5, 2.5, 3.7, -3.2], np.float32)
    for mode in ("half_to_even", "half_away_from_zero"):
        yield Case(Round(mode), (halves,), skip={"openvino": "OpenVINO's CPU plugin adds 0.5 to 0.49999997"})
        yield Case(Round(mode), (halves.astype(np.float16),))
    yield Case(Round("half_away_from_zero"), (INFINITIES,), tolerance=0.0, skip={"openvino": "OpenVINO leaves NaN open"})
    for op in (Abs(), Negative(), Floor(), Ceil(), Relu(), Sigmoid(), Softplus(), Erf(), Reciprocal()):
        yield Case(
            op, (INFINITIES,), name=f"{op} at the ends", tolerance=1e-6, skip={"openvino": "OpenVINO leaves NaN and -0 open"}
        )
    ends = np.array([-1, 1, -0.0, 1 - 2**-24, -0.85, 0.85000002, 2**-100], np.float32)
    lossy = {"openvino": "OpenVINO's CPU plugin loses its digits near -1 and 1"}
    yield Case(ErfInv(), (ends,), name="ErfInv at its ends", tolerance=1e-6, skip=lossy)
    yield Case(ErfInv(), (np.array([-1.5, 2, np.nan], np.float32),), name="ErfInv beyond its ends", tolerance=1e-6)


def activations() -> Iterator[Case]:
    ops: tuple[Op, ...] = (
        *(LeakyRelu(), LeakyRelu(0.25), Elu(), Elu(0.5), Selu(), Selu(1.5, 2.0), Celu(), Celu(0.5)),
        *(ThresholdedRelu(), ThresholdedRelu(0.5), HardSigmoid(), HardSigmoid(0.5, 0.25), HardSigmoid(ONE_SIXTH, 0.5)),
        *(Gelu("tanh"), Swish(), Swish(1.5), Shrink(), Shrink(0.25, 1.0)),
    )
    for op in ops:
        for name in FLOATS:
            skip = {}
            if op in (LeakyRelu(), Selu(), HardSigmoid(), HardSigmoid(ONE_SIXTH, 0.5)) and name != "f64":
                skip["ir"] = "an attribute that IR holds in the type of the tensor"
            if op == HardSigmoid(ONE_SIXTH, 0.5):
                skip["onnx"] = "an attribute that ONNX holds in f32"
            if name == "f64" and isinstance(op, Gelu | Shrink | HardSigmoid):
                skip["onnxruntime"] = "computed in f32, or not at all"
            yield Case(
                op,
                (numbers(name, 2, 5, low=-4, high=4),),
                tolerance=max(TOLERANCES[name], 1e-5 if name == "f32" else 0),
                skip=skip,
            )
    yield Case(Shrink(1.0, 2.0), (numbers("i32", 2, 5, low=-9, high=9),))
    yield Case(Shrink(1.0, 2.0), (numbers("u8", 2, 5, low=0, high=9),))
    for name in ("f32", "f16"):
        pair = (numbers(name, 2, 3), numbers(name, 2, 3, seed=1))
        yield Case(SwiGLU(1.5), pair, tolerance=max(TOLERANCES[name], 1e-5))
    for op in (HardSwish(), Mish(), Softsign()):
        yield Case(op, (numbers("f32", 2, 5, low=-30, high=30),), name=f"{op} far out", tolerance=1e-5)


def slopes() -> Iterator[Case]:
    x = numbers("f32", 2, 3, 3)
    for slope in ((), (1,), (3,), (3, 1), (2, 1, 1), (2, 3, 3)):
        yield Case(PRelu(), (x, numbers("f32", *slope, seed=1)))
    for slope in ((1,), (3,), (3, 1), (1, 3, 1)):
        yield Case(PRelu(channels=True), (x, numbers("f32", *slope, seed=1)))
    yield Case(PRelu(channels=True), (numbers("f32", 2, 4, 3), numbers("f32", 3, seed=1)))
    yield Case(PRelu(), (numbers("f32", 2, 4, 3), numbers("f32", 3, seed=1)))
    yield Case(PRelu(), (numbers("f32", 5), numbers("f32", 1, seed=1)))
    for name in ("f64", "f16", "bf16", "i32"):
        yield Case(PRelu(), (numbers(name, 2, 3), numbers(name, 3, seed=1)), tolerance=tolerance(name))


def limits() -> Iterator[Case]:
    def scalar(value: float, name: str = "f32") -> np.ndarray[Any, Any]:
        return np.array(value).astype(dtypes.dtype(name).numpy)

    x = numbers("f32", 2, 5)
    for bounds in ((scalar(-1), scalar(2)), (scalar(-1),), (None, scalar(1)), (), (scalar(2), scalar(-1))):
        yield Case(Clip(), (x, *bounds))
        yield Case(
            Clip(),
            (x, *bounds),
            constants=(1, 2),
            name=f"Clip with constant bounds {[b if b is None else float(b) for b in bounds]}",
            skip={"old onnxruntime": "its Clip-6 refuses min > max"} if bounds[:1] == (2,) else {},
        )
    for name in ("f64", "f16", "bf16", "i8", "i32", "i64", "u8"):
        low, high = (1, 5) if name == "u8" else (-2, 2)
        given = (numbers(name, 2, 5, low=-9, high=9), scalar(low, name), scalar(high, name))
        expands = {"old onnxruntime": "it expands Clip-13 to a Where that has no bf16 yet"}
        yield Case(Clip(), given, constants=(1, 2), skip=expands if name == "bf16" else {})
        if name != "bf16":
            yield Case(Clip(), given)
    yield Case(Clip(), (numbers("i64", 5), scalar(0, "i64")), constants=(1,))
    yield Case(Clip(), (INFINITIES,), name="Clip to what is finite", skip={"openvino": "OpenVINO leaves NaN open"})


TABLES = (arithmetic, divisions, powers, of_many, differences, bits, functions, activations, slopes, limits)
CASES: list[Case] = [case for table in TABLES for case in table()]
