"""Code generation for fused elementwise kernels: the bytecode instructions that compute an operator as its ``evaluate`` does.

A rule takes an assembler, the operator and the registers of its inputs, emits instructions, and returns the register of the
result. It emits one instruction for each operation of ``evaluate``, in the same order, so that both round alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import NamedTuple

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.dtypes import DType
from dovetail.ir.host import native_core
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise import activation, binary, bitwise, logical, unary
from dovetail.ops.elementwise.activation import (
    ONE_SIXTH,
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    PRelu,
    Selu,
    Shrink,
    Softsign,
    SwiGLU,
    Swish,
    ThresholdedRelu,
)
from dovetail.ops.elementwise.binary import (
    Divide,
    Maximum,
    Mean,
    Minimum,
    Mod,
    Power,
    SquaredDifference,
    Sum,
)
from dovetail.ops.elementwise.bitwise import BitShift
from dovetail.ops.elementwise.broadcast import Elementwise
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.elementwise.clip import Clip, finite_range
from dovetail.ops.elementwise.logical import (
    IsInf,
    Where,
)
from dovetail.ops.elementwise.unary import (
    Abs,
    Ceil,
    Floor,
    Round,
)
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear


class Input(NamedTuple):
    """Input is an input of a fused kernel: the element type, and the elements of a constant input."""

    dtype: DType | None
    data: Array = None


class ElementwiseProgram(NamedTuple):
    """ElementwiseProgram holds the attributes of the native elementwise kernel.

    ``code`` has five numbers per instruction: opcode, result register, three operand registers. Registers are the inputs, then
    the ``constants``, then the results of the instructions.
    """

    code: list[int]
    constants: list[float]
    results: list[int]


WIDER = {"i16": "i32", "u16": "i32", "u32": "i64"}
"""Maps an integer type without instructions to the wider type in which the kernel computes, which has all of its values."""
SIGN_INDEPENDENT = frozenset(
    "add subtract multiply equal not_equal where shift_left bitwise_and bitwise_not bitwise_or bitwise_xor".split()
)
"""Instructions of i64 that compute the same bits for u64."""


class NoInstruction(Exception):
    """NoInstruction reports that no instructions compute an operator; the message is the reason."""


class Register(NamedTuple):
    """Register holds the name of an element type, the kind (input, constant or result) and the index within the kind."""

    type: str
    kind: str
    number: int


class Assembler:
    """Assembler collects instructions; at the end, when it knows the number of constants, it assigns indices to registers."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.inputs = inputs
        self._constants: dict[tuple[str, str], Register] = {}
        self._values: list[float] = []
        self._emitted: dict[tuple[int, tuple[Register, ...]], Register] = {}

    def input(self, index: int) -> Register:
        dtype = self.inputs[index].dtype
        if dtype is None:
            raise NoInstruction("an element type that is known only at run time")
        return Register(dtype.name, "input", index)

    def data(self, x: Register) -> Array:
        """Return the elements of a register that is a constant input; None for any other."""
        return self.inputs[x.number].data if x.kind == "input" else None

    def number(self, value: float, like: Register) -> Register:
        """Return a constant of the element type of ``like``."""
        key = (like.type, repr(float(value)))
        if key not in self._constants:
            self._constants[key] = Register(like.type, "constant", len(self._values))
            self._values.append(float(value))
        return self._constants[key]

    def __call__(self, name: str, *operands: Register, of: str = "") -> Register:
        """Emit the instruction ``name`` for element type ``of`` (default: type of the first operand); return its result."""
        kind = of or operands[0].type
        full_name = f"{name}.{kind}"
        opcode = opcodes().get(full_name)
        if opcode is None:
            wide = "i64" if kind == "u64" and name in SIGN_INDEPENDENT else WIDER.get(kind, "")
            if f"{name}.{wide}" not in opcodes():
                raise NoInstruction(f"there is no instruction {full_name}")
            return self._compute_wide(name, operands, kind, wide)
        number, types, result = opcode
        if tuple(types) != tuple(operand.type for operand in operands):
            actual = ", ".join(operand.type for operand in operands)
            raise NoInstruction(f"{full_name} takes {', '.join(types)}, not {actual}")
        key = (number, operands)
        if key not in self._emitted:
            self._emitted[key] = Register(result, "result", len(self._emitted))
        return self._emitted[key]

    def _compute_wide(self, name: str, operands: Sequence[Register], kind: str, wide: str) -> Register:
        """Emit an integer instruction in a wider type; the cast of the result wraps around as the narrower type would."""
        y = self(name, *(self._widen(operand, wide) if operand.type == kind else operand for operand in operands), of=wide)
        return self(f"cast.{wide}", y, of=kind) if y.type == wide else y

    def _widen(self, x: Register, wide: str) -> Register:
        if x.kind == "constant":
            return self.number(self._values[x.number], Register(wide, "", 0))
        return self(f"cast.{x.type}", x, of=wide)

    def finish(self, results: Sequence[Register]) -> ElementwiseProgram:
        first = {"input": 0, "constant": len(self.inputs), "result": len(self.inputs) + len(self._values)}
        code: list[int] = []
        for (opcode, operands), result in self._emitted.items():
            registers = [first[operand.kind] + operand.number for operand in operands]
            code += [opcode, first["result"] + result.number, *registers, *[0] * (3 - len(registers))]
        return ElementwiseProgram(code, self._values, [first[register.kind] + register.number for register in results])


@cache
def opcodes() -> dict[str, tuple[int, list[str], str]]:
    """Return the core's instructions by name: opcode, operand types, result type. Empty without a core."""
    core = native_core.core()
    return core.elementwise_opcodes() if core else {}


def assemble(body: Sequence[tuple[Op, Sequence[int]]], results: Sequence[int], inputs: Sequence[Input]) -> ElementwiseProgram:
    """Return the attributes of the fused kernel that computes several operators.

    Each entry of ``body`` is an operator and the sources of its inputs: ``i`` is input i, ``~i`` the result of entry i.
    ``results``: the entries whose results are outputs. Raises NoInstruction.
    """
    asm = Assembler(inputs)
    registers: list[Register] = []
    for op, sources in body:
        registers.append(emit(asm, op, [asm.input(i) if i >= 0 else registers[~i] for i in sources]))
    return asm.finish([registers[i] for i in results])


def emit(asm: Assembler, op: Op, xs: Sequence[Register]) -> Register:
    """Emit the instructions of one operator. Raises NoInstruction."""
    rule = INSTRUCTIONS.get(type(op))
    if rule is None:
        raise NoInstruction(f"{type(op).__name__} is not elementwise")
    return rule(asm, op, *xs)


def explain_refusal(op: Op, dtypes: Sequence[DType | None], out: DType | None, data: Sequence[Array] = ()) -> str:
    """Return the reason why no instructions compute an operator for inputs of these types; empty if instructions compute it."""
    elements = [*data, *[None] * (len(dtypes) - len(data))]
    asm = Assembler([Input(dtype, values) for dtype, values in zip(dtypes, elements, strict=True)])
    try:
        result = emit(asm, op, [asm.input(index) for index in range(len(dtypes))])
    except NoInstruction as error:
        return str(error)
    return "" if out is not None and result.type == out.name else f"a result of type {out}"


# Rules

Rule = Callable[..., Register]
"""A function of an Assembler, the operator and a Register per input, which emits instructions and returns the result."""
INSTRUCTIONS: dict[type[Op], Rule] = {}


def _rule(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for operator classes."""

    def register(function: Rule) -> Rule:
        INSTRUCTIONS.update(dict.fromkeys(classes, function))
        return function

    return register


def _name_of(kind: type[Op]) -> str:
    """Return the name of an operator class in snake_case; the core's instruction for the operator has this name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", kind.__name__).lower()


@_rule(Maximum, Minimum)
def _emit_extreme(asm: Assembler, op: Maximum | Minimum, *xs: Register) -> Register:
    return reduce(lambda x, y: asm(_name_of(type(op)), x, y), xs)


@_rule(Sum)
def _emit_sum(asm: Assembler, op: Sum, *xs: Register) -> Register:
    return reduce(lambda x, y: asm("add", x, y), xs)


def is_float(x: Register) -> bool:
    return dtypes.dtype(x.type).is_float


def _require_nonzero(asm: Assembler, y: Register) -> None:
    """Refuse integer divisors that may be 0: division by zero is an error, which a kernel cannot raise."""
    divisors = asm.data(y)
    if divisors is None or not np.all(divisors):
        raise NoInstruction("integer divisors that may be 0")


@_rule(Divide)
def _emit_divide(asm: Assembler, op: Divide, x: Register, y: Register) -> Register:
    if is_float(x):
        return asm("divide", x, y)
    _require_nonzero(asm, y)
    return asm("floor_divide" if op.m_pythondiv else "truncate_divide", x, y)


@_rule(Mod)
def _emit_mod(asm: Assembler, op: Mod, x: Register, y: Register) -> Register:
    if not is_float(x):
        _require_nonzero(asm, y)
    return asm("truncate_mod" if op.fmod else "floor_mod", x, y)


@_rule(Power)
def _emit_power(asm: Assembler, op: Power, x: Register, y: Register) -> Register:
    exponent = asm.data(y)
    if is_float(x) and x.type == y.type and exponent is not None and np.size(exponent) == 1:
        number = float(np.reshape(exponent, ()))
        if number in (1.0, 2.0, 3.0):
            return reduce(lambda product, factor: asm("multiply", product, factor), [x] * int(number))
    if not is_float(x) or x.type != y.type:
        raise NoInstruction(f"{x.type} to the {y.type}")
    return asm("power", x, y)


@_rule(SquaredDifference)
def _emit_squared_difference(asm: Assembler, op: SquaredDifference, x: Register, y: Register) -> Register:
    difference = asm("subtract", x, y)
    return asm("multiply", difference, difference)


@_rule(Mean)
def _emit_mean(asm: Assembler, op: Mean, *xs: Register) -> Register:
    total = reduce(lambda x, y: asm("add", x, y), xs)
    return asm("divide", total, asm.number(len(xs), total))


@_rule(Abs)
def _emit_abs(asm: Assembler, op: Abs, x: Register) -> Register:
    return x if x.type.startswith("u") else asm("abs", x)


@_rule(Ceil)
def _emit_ceil(asm: Assembler, op: Ceil, x: Register) -> Register:
    return asm("ceil", x) if is_float(x) else x


@_rule(Floor)
def _emit_floor(asm: Assembler, op: Floor, x: Register) -> Register:
    return asm("floor", x) if is_float(x) else x


@_rule(Round)
def _emit_round(asm: Assembler, op: Round, x: Register) -> Register:
    if not is_float(x):
        return x
    return asm({"half_to_even": "round_even", "half_away_from_zero": "round_away"}[op.mode], x)


@_rule(LeakyRelu)
def _emit_leaky_relu(asm: Assembler, op: LeakyRelu, x: Register) -> Register:
    return asm("prelu", x, asm.number(op.alpha, x))


@_rule(PRelu)
def _emit_prelu(asm: Assembler, op: PRelu, x: Register, slope: Register) -> Register:
    if op.channels:
        raise NoInstruction("a slope whose axis depends on the shapes")
    return asm("prelu", x, slope)


def _emit_negative_part(asm: Assembler, x: Register, alpha: float) -> Register:
    """Emit alpha * (exp(min(x, 0)) - 1)."""
    return asm("multiply", asm("expm1", asm("minimum", x, asm.number(0, x))), asm.number(alpha, x))


@_rule(Elu)
def _emit_elu(asm: Assembler, op: Elu, x: Register) -> Register:
    return asm("where", asm("less", x, asm.number(0, x)), _emit_negative_part(asm, x, op.alpha), x, of=x.type)


@_rule(Selu)
def _emit_selu(asm: Assembler, op: Selu, x: Register) -> Register:
    elu = asm("where", asm("greater", x, asm.number(0, x)), x, _emit_negative_part(asm, x, op.alpha), of=x.type)
    return asm("multiply", elu, asm.number(op.gamma, x))


@_rule(Celu)
def _emit_celu(asm: Assembler, op: Celu, x: Register) -> Register:
    alpha, zero = asm.number(op.alpha, x), asm.number(0, x)
    negative = asm("multiply", asm("expm1", asm("divide", x, alpha)), alpha)
    return asm("add", asm("maximum", x, zero), asm("minimum", negative, zero))


@_rule(ThresholdedRelu)
def _emit_thresholded_relu(asm: Assembler, op: ThresholdedRelu, x: Register) -> Register:
    return asm("where", asm("greater", x, asm.number(op.alpha, x)), x, asm.number(0, x), of=x.type)


def _emit_hard_sigmoid_of(asm: Assembler, x: Register, alpha: float, beta: float) -> Register:
    line = asm("add", asm("multiply", x, asm.number(alpha, x)), asm.number(beta, x))
    return asm("maximum", asm("minimum", line, asm.number(1, x)), asm.number(0, x))


@_rule(HardSigmoid)
def _emit_hard_sigmoid(asm: Assembler, op: HardSigmoid, x: Register) -> Register:
    return _emit_hard_sigmoid_of(asm, x, op.alpha, op.beta)


@_rule(HardSwish)
def _emit_hard_swish(asm: Assembler, op: HardSwish, x: Register) -> Register:
    return asm("multiply", x, _emit_hard_sigmoid_of(asm, x, ONE_SIXTH, 0.5))


@_rule(Softsign)
def _emit_softsign(asm: Assembler, op: Softsign, x: Register) -> Register:
    return asm("divide", x, asm("add", asm.number(1, x), asm("abs", x)))


@_rule(Gelu)
def _emit_gelu(asm: Assembler, op: Gelu, x: Register) -> Register:
    return asm("gelu_tanh" if op.approximate == "tanh" else "gelu_erf", x)


def _emit_swish_of(asm: Assembler, x: Register, alpha: float) -> Register:
    if alpha == 1:
        return asm("silu", x)
    one = asm.number(1, x)
    return asm("divide", x, asm("add", one, asm("exp", asm("multiply", x, asm.number(-alpha, x)))))


@_rule(Swish)
def _emit_swish(asm: Assembler, op: Swish, x: Register) -> Register:
    return _emit_swish_of(asm, x, op.alpha)


@_rule(SwiGLU)
def _emit_swiglu(asm: Assembler, op: SwiGLU, x: Register, y: Register) -> Register:
    return asm("multiply", _emit_swish_of(asm, x, op.alpha), y)


@_rule(Shrink)
def _emit_shrink(asm: Assembler, op: Shrink, x: Register) -> Register:
    if not is_float(x):
        raise NoInstruction("integers computed in f64")
    bias = asm.number(op.bias, x)
    above = asm("where", asm("greater", x, asm.number(op.lambd, x)), asm("subtract", x, bias), asm.number(0, x), of=x.type)
    return asm("where", asm("less", x, asm.number(-op.lambd, x)), asm("add", x, bias), above, of=x.type)


@_rule(IsInf)
def _emit_is_inf(asm: Assembler, op: IsInf, x: Register) -> Register:
    if op.detect_negative and op.detect_positive:
        return asm("is_infinite", x)
    if op.detect_negative or op.detect_positive:
        return asm("is_minus_infinite" if op.detect_negative else "is_plus_infinite", x)
    return asm("less", x, x)


@_rule(Where)
def _emit_where(asm: Assembler, op: Where, condition: Register, x: Register, y: Register) -> Register:
    return asm("where", condition, x, y, of=x.type)


@_rule(Clip)
def _emit_clip(asm: Assembler, op: Clip, x: Register, *bounds: Register) -> Register:
    """Emit Clip; an omitted bound of floats is the last finite value, to which infinities are clipped."""
    for index, (bound, name) in enumerate(zip([*bounds, None, None][:2], ("maximum", "minimum"), strict=True)):
        if bound is not None:
            x = asm(name, x, bound)
        elif is_float(x):
            x = asm(name, x, asm.number(float(finite_range(dtypes.dtype(x.type))[index]), x))
    return x


@_rule(BitShift)
def _emit_bit_shift(asm: Assembler, op: BitShift, x: Register, amount: Register) -> Register:
    return asm(f"shift_{op.direction}", x, amount)


HALF_TYPES = ("f16", "bf16")
"""Half-precision types, which the core computes in f32."""
_EXACT_IN_F32 = (*HALF_TYPES, "f32", "u8", "i8", "u16", "i16", "boolean")


def _emit_cast_to(asm: Assembler, x: Register, to: str) -> Register:
    """Emit a cast; casts from or to half precision go through f32, which represents every half-precision value."""
    if x.type == to:
        return x
    if x.type in HALF_TYPES and to != "f32":
        return _emit_cast_to(asm, asm(f"cast.{x.type}", x, of="f32"), to)
    if to in HALF_TYPES and x.type != "f32":
        if x.type not in _EXACT_IN_F32:
            raise NoInstruction(f"{x.type} rounded to {to} at once")
        return _emit_cast_to(asm, asm(f"cast.{x.type}", x, of="f32"), to)
    return asm(f"cast.{x.type}", x, of=to)


@_rule(Cast)
def _emit_cast(asm: Assembler, op: Cast, x: Register) -> Register:
    if op.source is not None:
        raise NoInstruction("codes cast by a table")
    return _emit_cast_to(asm, x, op.to.name)


@_rule(CastLike)
def _emit_cast_like(asm: Assembler, op: CastLike, x: Register, like: Register) -> Register:
    return _emit_cast_to(asm, x, like.type)


def _single_number_of(asm: Assembler, x: Register) -> float:
    """Return the number of a constant per-tensor scale or zero point. Raises NoInstruction for any other operand."""
    data = asm.data(x)
    if data is None or np.size(data) != 1:
        raise NoInstruction("a scale or zero point that is not one constant for the tensor")
    return float(np.reshape(data, ()))


@_rule(DequantizeLinear)
def _emit_dequantize(
    asm: Assembler, op: DequantizeLinear, x: Register, scale: Register, zero_point: Register | None = None
) -> Register:
    if (
        op.block_size
        or x.type not in ("u8", "i8", "u16", "i16")
        or scale.type != "f32"
        or op.output_dtype not in (None, dtypes.f32)
    ):
        raise NoInstruction("blocks, or types whose differences f32 does not hold")
    number = _single_number_of(asm, scale)
    value = asm(f"cast.{x.type}", x, of="f32")
    if zero_point is not None and _single_number_of(asm, zero_point):
        value = asm("subtract", value, asm.number(_single_number_of(asm, zero_point), value))
    return asm("multiply", value, asm.number(number, value))


@_rule(QuantizeLinear)
def _emit_quantize(
    asm: Assembler, op: QuantizeLinear, x: Register, scale: Register, zero_point: Register | None = None
) -> Register:
    dtype = op.output_dtype or dtypes.u8 if zero_point is None else dtypes.dtype(zero_point.type)
    if op.block_size or op.precision is not None or x.type != "f32" or scale.type != "f32":
        raise NoInstruction("blocks, or quotients of other types than f32")
    if dtype.name not in ("u8", "i8", "u16", "i16"):
        raise NoInstruction(f"quantization to {dtype}")
    value = asm("round_quotient", x, asm.number(_single_number_of(asm, scale), x))
    if zero_point is not None and _single_number_of(asm, zero_point):
        value = asm("add", value, asm.number(_single_number_of(asm, zero_point), value))
    # The cast from f32 saturates, as the quantized result must.
    return asm("cast.f32", value, of=dtype.name)


def _emit_single_instruction(asm: Assembler, op: Op, *xs: Register) -> Register:
    return asm(_name_of(type(op)), *xs)


def _emit_bitwise(asm: Assembler, op: Op, *xs: Register) -> Register:
    """Emit a bitwise operator; for booleans, emit the logical instruction that corresponds to the operator."""
    name = _name_of(type(op))
    return asm(name.removeprefix("bitwise_") if xs[0].type == "boolean" else name, *xs)


_NONE = unary.ErfInv
"""The only elementwise operator without an instruction; its decomposition is computed instead."""
for _kind in (each for module in (activation, binary, bitwise, logical, unary) for each in vars(module).values()):
    # Every elementwise operator without a rule has an instruction of its name.
    if isinstance(_kind, type) and issubclass(_kind, Elementwise) and REGISTRY.is_loaded(_kind.__name__) and _kind is not _NONE:
        INSTRUCTIONS.setdefault(_kind, _emit_bitwise if _kind.__module__ == bitwise.__name__ else _emit_single_instruction)
