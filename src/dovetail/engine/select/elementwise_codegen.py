"""Elementwise operators in the words of the core's chains: which instructions say the same as an operator's ``evaluate``.

A rule gets a writer and the operator's inputs, writes instructions, and gives the result. It writes one instruction for each
operation of ``evaluate``, in the same order, so that what numpy rounds is rounded here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np

from dovetail import dtypes, native_core
from dovetail.dtypes import DType
from dovetail.ops.elementwise.activation import SIXTH
from dovetail.ops.elementwise.clip import finite_range


class Input(NamedTuple):
    """What is known of an input of a chain: its element type, and its elements where they are constant."""

    dtype: DType | None
    data: Any = None


class Chain(NamedTuple):
    """What the kernel ``chain`` takes as its attributes."""

    code: list[int]
    constants: list[float]
    results: list[int]


class NoInstruction(Exception):
    """There are no instructions for an operator; why."""


class Ref(NamedTuple):
    """A register: the element type by name, the kind (input, constant or made) and its place among its kind."""

    type: str
    kind: str
    place: int


class Assembler:
    """Instructions as they come; registers are numbered at the end, when the constants are counted."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.inputs = inputs
        self.constants: dict[tuple[str, str], Ref] = {}
        self.values: list[float] = []
        self.written: dict[tuple[int, tuple[Ref, ...]], Ref] = {}

    def input(self, place: int) -> Ref:
        dtype = self.inputs[place].dtype
        if dtype is None:
            raise NoInstruction("an element type that only run time knows")
        return Ref(dtype.name, "input", place)

    def data(self, x: Ref) -> Any:
        """The elements of a register that is a constant input; None for any other."""
        return self.inputs[x.place].data if x.kind == "input" else None

    def number(self, value: float, like: Ref) -> Ref:
        """A constant of the element type of ``like``."""
        key = (like.type, repr(float(value)))
        if key not in self.constants:
            self.constants[key] = Ref(like.type, "constant", len(self.values))
            self.values.append(float(value))
        return self.constants[key]

    def __call__(self, name: str, *operands: Ref, of: str = "") -> Ref:
        """The result of an instruction, by its name without the type, which is ``of`` or that of the first operand."""
        full = f"{name}.{of or operands[0].type}"
        found = opcodes().get(full)
        if found is None:
            raise NoInstruction(f"there is no instruction {full}")
        number, types, result = found
        if tuple(types) != tuple(operand.type for operand in operands):
            raise NoInstruction(f"{full} takes {', '.join(types)}, not {', '.join(operand.type for operand in operands)}")
        key = (number, operands)
        if key not in self.written:
            self.written[key] = Ref(result, "made", len(self.written))
        return self.written[key]

    def finish(self, results: Sequence[Ref]) -> Chain:
        first = {"input": 0, "constant": len(self.inputs), "made": len(self.inputs) + len(self.values)}
        code: list[int] = []
        for (number, operands), made in self.written.items():
            places = [first[operand.kind] + operand.place for operand in operands]
            code += [number, first["made"] + made.place, *places, *[0] * (3 - len(places))]
        return Chain(code, self.values, [first[ref.kind] + ref.place for ref in results])


@cache
def opcodes() -> dict[str, tuple[int, list[str], str]]:
    """The core's instructions by name: number, operand types, result type. None where there is no core."""
    core = native_core.core()
    return core.chain_opcodes() if core else {}


def assemble(body: Sequence[tuple[Any, Sequence[int]]], results: Sequence[int], inputs: Sequence[Input]) -> Chain:
    """The chain of several operators.

    Each entry of ``body`` is an operator and where its inputs come from: ``i`` is input i, ``~i`` what entry i makes.
    ``results``: entries whose results are kept. Raises Unsaid for what no instructions say.
    """
    writer = Assembler(inputs)
    made: list[Ref] = []
    for op, sources in body:
        made.append(written(writer, op, [writer.input(i) if i >= 0 else made[~i] for i in sources]))
    return writer.finish([made[i] for i in results])


def written(writer: Assembler, op: Any, xs: Sequence[Ref]) -> Ref:
    rule = RULES.get(type(op).__name__)
    if rule is None:
        raise NoInstruction(f"{type(op).__name__} is not elementwise")
    return rule(writer, op, *xs)


def refusal(op: Any, dtypes: Sequence[DType | None], out: DType | None, data: Sequence[Any] = ()) -> str:
    """Why a chain cannot do an operator with inputs of these types; empty where it can."""
    known = [*data, *[None] * (len(dtypes) - len(data))]
    writer = Assembler([Input(dtype, values) for dtype, values in zip(dtypes, known, strict=True)])
    try:
        result = written(writer, op, [writer.input(place) for place in range(len(dtypes))])
    except NoInstruction as why:
        return str(why)
    return "" if out is not None and result.type == out.name else f"a result of type {out}"


# Rules

Rule = Callable[..., Ref]
RULES: dict[str, Rule] = {}
"""By the name of the operator's class."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    def keep(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return keep


def _same(names: str) -> None:
    """Operators that are one instruction: ``Operator:instruction``."""
    for pair in names.split():
        operator, instruction = pair.split(":")
        RULES[operator] = lambda w, op, *xs, instruction=instruction: w(instruction, *xs)


def _folded(names: str) -> None:
    for pair in names.split():
        operator, instruction = pair.split(":")
        RULES[operator] = lambda w, op, *xs, instruction=instruction: reduce(lambda x, y: w(instruction, x, y), xs)


_same("Add:add Subtract:subtract Multiply:multiply Negative:negative Sign:sign Sqrt:sqrt Exp:exp Log:log")
_same("Reciprocal:reciprocal Sin:sin Cos:cos Tan:tan Asin:asin Acos:acos Atan:atan Sinh:sinh Cosh:cosh Tanh:tanh")
_same("Asinh:asinh Acosh:acosh Atanh:atanh Erf:erf Relu:relu Sigmoid:sigmoid Softplus:softplus Mish:mish")
_same("Equal:equal NotEqual:not_equal Less:less LessEqual:less_equal Greater:greater GreaterEqual:greater_equal")
_same("And:and Or:or Xor:xor Not:not IsNaN:is_nan IsFinite:is_finite")
_folded("Maximum:maximum Minimum:minimum Sum:add")


def is_float(x: Ref) -> bool:
    return dtypes.dtype(x.type).is_float


@rule("Divide", "Mod")
def _division(w: Assembler, op: Any, x: Ref, y: Ref) -> Ref:
    kind = "divide" if type(op).__name__ == "Divide" else "mod"
    floor = op.m_pythondiv if kind == "divide" else not op.fmod
    if is_float(x):
        return w("divide", x, y) if kind == "divide" else w("floor_mod" if floor else "truncate_mod", x, y)
    # Division by zero is an error, which a kernel cannot raise.
    divisors = w.data(y)
    if divisors is None or not np.all(divisors):
        raise NoInstruction("integers divided by what only run time knows not to be 0")
    return w(f"{'floor' if floor else 'truncate'}_{kind}", x, y)


@rule("Power")
def _power(w: Assembler, op: Any, x: Ref, y: Ref) -> Ref:
    exponent = w.data(y)
    if is_float(x) and x.type == y.type and exponent is not None and np.size(exponent) == 1:
        whole = float(np.reshape(exponent, ()))
        if whole in (1.0, 2.0, 3.0):
            return reduce(lambda product, factor: w("multiply", product, factor), [x] * int(whole))
    if not is_float(x) or x.type != y.type:
        raise NoInstruction(f"{x.type} to the {y.type}")
    return w("power", x, y)


@rule("SquaredDifference")
def _squared_difference(w: Assembler, op: Any, x: Ref, y: Ref) -> Ref:
    difference = w("subtract", x, y)
    return w("multiply", difference, difference)


@rule("Mean")
def _mean(w: Assembler, op: Any, *xs: Ref) -> Ref:
    total = reduce(lambda x, y: w("add", x, y), xs)
    return w("divide", total, w.number(len(xs), total))


@rule("Abs")
def _abs(w: Assembler, op: Any, x: Ref) -> Ref:
    return x if x.type.startswith("u") else w("abs", x)


@rule("Ceil", "Floor", "Round")
def _whole(w: Assembler, op: Any, x: Ref) -> Ref:
    if not is_float(x):
        return x
    name = type(op).__name__.lower()
    return w({"half_to_even": "round_even", "half_away_from_zero": "round_away"}[op.mode] if name == "round" else name, x)


@rule("LeakyRelu")
def _leaky_relu(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("prelu", x, w.number(op.alpha, x))


@rule("PRelu")
def _prelu(w: Assembler, op: Any, x: Ref, slope: Ref) -> Ref:
    if op.channels:
        raise NoInstruction("a slope whose place depends on the shapes")
    return w("prelu", x, slope)


def _below(w: Assembler, x: Ref, alpha: float) -> Ref:
    """alpha * (exp(x) - 1) where x < 0."""
    return w("multiply", w("expm1", w("minimum", x, w.number(0, x))), w.number(alpha, x))


@rule("Elu")
def _elu(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("where", w("less", x, w.number(0, x)), _below(w, x, op.alpha), x, of=x.type)


@rule("Selu")
def _selu(w: Assembler, op: Any, x: Ref) -> Ref:
    bent = w("where", w("greater", x, w.number(0, x)), x, _below(w, x, op.alpha), of=x.type)
    return w("multiply", bent, w.number(op.gamma, x))


@rule("Celu")
def _celu(w: Assembler, op: Any, x: Ref) -> Ref:
    alpha, zero = w.number(op.alpha, x), w.number(0, x)
    below = w("multiply", w("expm1", w("divide", x, alpha)), alpha)
    return w("add", w("maximum", x, zero), w("minimum", below, zero))


@rule("ThresholdedRelu")
def _thresholded_relu(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("where", w("greater", x, w.number(op.alpha, x)), x, w.number(0, x), of=x.type)


def _hard_sigmoid(w: Assembler, x: Ref, alpha: float, beta: float) -> Ref:
    line = w("add", w("multiply", x, w.number(alpha, x)), w.number(beta, x))
    return w("maximum", w("minimum", line, w.number(1, x)), w.number(0, x))


@rule("HardSigmoid")
def _hard_sigmoid_rule(w: Assembler, op: Any, x: Ref) -> Ref:
    return _hard_sigmoid(w, x, op.alpha, op.beta)


@rule("HardSwish")
def _hard_swish(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("multiply", x, _hard_sigmoid(w, x, SIXTH, 0.5))


@rule("Softsign")
def _softsign(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("divide", x, w("add", w.number(1, x), w("abs", x)))


@rule("Gelu")
def _gelu(w: Assembler, op: Any, x: Ref) -> Ref:
    return w("gelu_tanh" if op.approximate == "tanh" else "gelu_erf", x)


def _swish(w: Assembler, x: Ref, alpha: float) -> Ref:
    if alpha == 1:
        return w("silu", x)
    one = w.number(1, x)
    return w("divide", x, w("add", one, w("exp", w("multiply", x, w.number(-alpha, x)))))


@rule("Swish")
def _swish_rule(w: Assembler, op: Any, x: Ref) -> Ref:
    return _swish(w, x, op.alpha)


@rule("SwiGLU")
def _swiglu(w: Assembler, op: Any, x: Ref, y: Ref) -> Ref:
    return w("multiply", _swish(w, x, op.alpha), y)


@rule("Shrink")
def _shrink(w: Assembler, op: Any, x: Ref) -> Ref:
    if not is_float(x):
        raise NoInstruction("integers computed in f64")
    bias = w.number(op.bias, x)
    above = w("where", w("greater", x, w.number(op.lambd, x)), w("subtract", x, bias), w.number(0, x), of=x.type)
    return w("where", w("less", x, w.number(-op.lambd, x)), w("add", x, bias), above, of=x.type)


@rule("IsInf")
def _is_inf(w: Assembler, op: Any, x: Ref) -> Ref:
    if op.detect_negative and op.detect_positive:
        return w("is_infinite", x)
    if op.detect_negative or op.detect_positive:
        return w("is_minus_infinite" if op.detect_negative else "is_plus_infinite", x)
    return w("less", x, x)


@rule("Where")
def _where(w: Assembler, op: Any, condition: Ref, x: Ref, y: Ref) -> Ref:
    return w("where", condition, x, y, of=x.type)


@rule("Clip")
def _clip(w: Assembler, op: Any, x: Ref, *bounds: Ref) -> Ref:
    """A bound left out is the last finite value, which changes nothing but infinities."""
    for place, (bound, name) in enumerate(zip([*bounds, None, None][:2], ("maximum", "minimum"), strict=True)):
        if bound is not None:
            x = w(name, x, bound)
        elif is_float(x):
            x = w(name, x, w.number(float(finite_range(dtypes.dtype(x.type))[place]), x))
    return x


@rule("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def _bitwise(w: Assembler, op: Any, *xs: Ref) -> Ref:
    name = type(op).__name__.removeprefix("Bitwise").lower()
    return w(name if xs[0].type == "boolean" else f"bitwise_{name}", *xs)


@rule("BitShift")
def _bit_shift(w: Assembler, op: Any, x: Ref, amount: Ref) -> Ref:
    return w(f"shift_{op.direction}", x, amount)


HALVES = ("f16", "bf16")
"""Floats of 16 bits: the core computes in f32 in their place."""
_WITHIN_F32 = (*HALVES, "f32", "u8", "i8", "u16", "i16", "boolean")


def _as(w: Assembler, x: Ref, to: str) -> Ref:
    """A cast; by way of f32, which holds every float of 16 bits, from one of these or to one."""
    if x.type == to:
        return x
    if x.type in HALVES and to != "f32":
        return _as(w, w(f"cast.{x.type}", x, of="f32"), to)
    if to in HALVES and x.type != "f32":
        if x.type not in _WITHIN_F32:
            raise NoInstruction(f"{x.type} rounded to {to} at once")
        return _as(w, w(f"cast.{x.type}", x, of="f32"), to)
    return w(f"cast.{x.type}", x, of=to)


@rule("Cast")
def _cast(w: Assembler, op: Any, x: Ref) -> Ref:
    if op.source is not None:
        raise NoInstruction("codes cast by a table")
    return _as(w, x, op.to.name)


@rule("CastLike")
def _cast_like(w: Assembler, op: Any, x: Ref, like: Ref) -> Ref:
    return _as(w, x, like.type)


def _one(w: Assembler, x: Ref) -> float:
    """The number that a constant scale or zero point is, which has to be one for all."""
    data = w.data(x)
    if data is None or np.size(data) != 1:
        raise NoInstruction("a scale or zero point for each place, or one that only run time knows")
    return float(np.reshape(data, ()))


@rule("DequantizeLinear")
def _dequantize(w: Assembler, op: Any, x: Ref, scale: Ref, zero_point: Ref | None = None) -> Ref:
    if (
        op.block_size
        or x.type not in ("u8", "i8", "u16", "i16")
        or scale.type != "f32"
        or op.output_dtype not in (None, dtypes.f32)
    ):
        raise NoInstruction("blocks, or types whose differences f32 does not hold")
    number = _one(w, scale)
    value = w(f"cast.{x.type}", x, of="f32")
    if zero_point is not None and _one(w, zero_point):
        value = w("subtract", value, w.number(_one(w, zero_point), value))
    return w("multiply", value, w.number(number, value))


@rule("QuantizeLinear")
def _quantize(w: Assembler, op: Any, x: Ref, scale: Ref, zero_point: Ref | None = None) -> Ref:
    kind = op.output_dtype or dtypes.u8 if zero_point is None else dtypes.dtype(zero_point.type)
    if op.block_size or op.precision is not None or x.type != "f32" or scale.type != "f32":
        raise NoInstruction("blocks, or quotients of other types than f32")
    if kind.name not in ("u8", "i8", "u16", "i16"):
        raise NoInstruction(f"a grid of {kind}")
    value = w("round_even", w("divide", x, w.number(_one(w, scale), x)))
    if zero_point is not None and _one(w, zero_point):
        value = w("add", value, w.number(_one(w, zero_point), value))
    low, high = kind.range()
    value = w("minimum", w("maximum", value, w.number(low, value)), w.number(high, value))
    return w("cast.f32", value, of=kind.name)
