"""Chains of elementwise instructions against the operators' own rules: every operator that has instructions, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from case_laws import hold, law
from case_runner import CASES
from cases import Case
from dovetail.engine.select.elementwise_codegen import INSTRUCTIONS, Input, NoInstruction, assemble, opcodes
from dovetail.ir import arrays, dtypes
from dovetail.ir.host import native_core
from dovetail.ir.op import Op
from dovetail.ops.elementwise.activation import Gelu, LeakyRelu, Relu, Swish
from dovetail.ops.elementwise.binary import Add, Divide, Maximum, Minimum, Mod, Multiply, Subtract
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.logical import Greater, Where
from dovetail.ops.elementwise.unary import Abs, Exp, Negative, Sqrt, Tanh
from dovetail.ops.quantization.quantize_linear import QuantizeLinear
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

EXACT = set(
    "Add Subtract Multiply Divide Mod SquaredDifference Maximum Minimum Sum Mean Abs Negative Sign Ceil "
    "Floor Round Sqrt Reciprocal Relu LeakyRelu PRelu ThresholdedRelu HardSigmoid HardSwish Softsign "
    "Shrink Clip Where Equal NotEqual Less LessEqual Greater GreaterEqual And Or Xor Not IsNaN IsInf "
    "IsFinite BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift Cast CastLike".split()
)
"""Operators whose instructions round as numpy does."""


def chained(
    body: Sequence[tuple[Op, Sequence[int]]], results: Sequence[int], inputs: Sequence[Any], outputs: Sequence[Any]
) -> str:
    chain = assemble(body, results, [Input(arrays.element(x), x) for x in inputs])
    stretched = [np.broadcast_to(x, outputs[0].shape) for x in inputs]
    return run("elementwise", stretched, outputs, chain._asdict())


def same(op: Op, y: Any, expected: Any) -> None:
    assert y.dtype == expected.dtype
    if type(op).__name__ in EXACT or expected.dtype.kind != "f":
        np.testing.assert_array_equal(y, expected)
        return
    # Beside what is relative: where terms of size 1 cancel, and where an exponential underflows.
    digits = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(y, expected, rtol=4 * digits, atol=max(2 * digits, 1e-12))


ROWS = [(family, case) for family, case in CASES if type(case.op) in INSTRUCTIONS and all(x is not None for x in case.inputs)]


def has_instruction(case: Case) -> bool:
    try:
        assemble([(case.op, range(len(case.inputs)))], [0], [Input(arrays.element(x), x) for x in case.inputs])
    except NoInstruction:
        return False
    return True


@law([row for row in ROWS if native_core.is_compiled and has_instruction(row[1])])
def check_elementwise_kernel(case: Case) -> None:
    expected = np.asarray(case.op.evaluate(np, *case.inputs))
    y = np.zeros_like(expected)
    chained([(case.op, range(len(case.inputs)))], [0], case.inputs, [y])
    same(case.op, y, expected)


test_case = hold(check_elementwise_kernel)


def test_every_operator_with_a_rule_has_instructions_for_some_type() -> None:
    assert {type(case.op) for _, case in ROWS if has_instruction(case)} == set(INSTRUCTIONS)


OPS: dict[str, tuple[Op, tuple[str, ...]]] = {
    "add": (Add(), ("float32", "float32")),
    "subtract f64": (Subtract(), ("float64", "float64")),
    "multiply i64": (Multiply(), ("int64", "int64")),
    "multiply i8": (Multiply(), ("int8", "int8")),
    "divide": (Divide(), ("float32", "float32")),
    "divide i32": (Divide(), ("int32", "int32")),
    "floor i32": (Divide(m_pythondiv=True), ("int32", "int32")),
    "mod u8": (Mod(), ("uint8", "uint8")),
    "greater": (Greater(), ("float32", "float32")),
    "where": (Where(), ("bool", "float32", "float32")),
    "where i64": (Where(), ("bool", "int64", "int64")),
    "relu": (Relu(), ("float32",)),
    "maximum": (Maximum(), ("float32", "float32", "float32")),
    "to i32": (Cast(to=dtypes.i32), ("float32",)),
    "to f64": (Cast(to=dtypes.f64), ("uint8",)),
    "tanh": (Tanh(), ("float32",)),
    "gelu": (Gelu(), ("float32",)),
}
SHAPES = [(), (1,), (5,), (0, 3), (2, 3), (1, 7, 5, 3), (2, 40, 9, 11), (1, 3, 70, 31), (3, 2, 5, 4, 7), (2, 1, 130, 140)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPS)
def test_layouts_make_no_difference(name: str, layout: str, shape: tuple[int, ...]) -> None:
    op, kinds = OPS[name]
    if "channels" in layout and len(shape) < 3:
        pytest.skip("fewer than 3 axes have no channels-last layout")
    if layout != "row_major" and not shape:
        pytest.skip("nothing to lay out")
    xs = [random(shape, kind, seed) for seed, kind in enumerate(kinds)]
    if kinds[0] != "float32" and type(op) in (Divide, Mod):
        xs[1] = np.where(xs[1] == 0, np.ones_like(xs[1]), xs[1])
    expected = np.asarray(op.evaluate(np, *xs))
    y = LAYOUTS[layout](np.zeros_like(expected))
    chained([(op, range(len(xs)))], [0], [LAYOUTS[layout](x) for x in xs], [y])
    same(op, y, expected)


@pytest.mark.parametrize("other", [(), (1,), (11,), (9, 1), (40, 1, 1), (1, 40, 1, 11), (2, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_are_stretched(layout: str, other: tuple[int, ...]) -> None:
    x, w = random((2, 40, 9, 11)), random(other, seed=1)
    for op in (Multiply(), Subtract()):
        y = LAYOUTS[layout](np.zeros_like(x))
        chained([(op, (0, 1))], [0], [LAYOUTS[layout](x), w], [y])
        np.testing.assert_array_equal(y, op.evaluate(np, x, w))
        chained([(op, (1, 0))], [0], [LAYOUTS[layout](x), w], [y])
        np.testing.assert_array_equal(y, op.evaluate(np, w, x))


BODY: list[tuple[Op, tuple[int, ...]]] = [
    (Multiply(), (0, 1)),
    (Add(), (~0, 2)),
    (Relu(), (~1,)),
    (Negative(), (~2,)),
    (Exp(), (~3,)),
    (Greater(), (~4, 0)),
    (Where(), (~5, ~2, 0)),
    (Swish(alpha=0.5), (~6,)),
]


def by_hand(inputs: Sequence[Any]) -> list[Any]:
    made: list[Any] = []
    for op, sources in BODY:
        made.append(np.asarray(op.evaluate(np, *(inputs[i] if i >= 0 else made[~i] for i in sources))))
    return made


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 33, 13, 7), (1, 64, 56, 56)], ids=str)
def test_several_operators_several_results(shape: tuple[int, ...], layout: str, threads: int) -> None:
    inputs = [random(shape), random((shape[1], 1, 1), seed=1), random((shape[1], 1, 1), seed=2)]
    results = [1, 5, 7, 6]
    chain = assemble(BODY, results, [Input(arrays.element(x)) for x in inputs])
    made = by_hand(inputs)
    outputs = [LAYOUTS[layout](np.zeros_like(made[i])) for i in results]
    stretched = [LAYOUTS[layout](inputs[0]), *(np.broadcast_to(x, shape) for x in inputs[1:])]
    run("elementwise", stretched, outputs, chain._asdict(), threads)
    for place, y in zip(results, outputs, strict=True):
        np.testing.assert_allclose(y, made[place], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_may_be_written_over(layout: str) -> None:
    """Also where a later instruction reads it once more."""
    x, w = random((2, 24, 15, 16)), random((24, 1, 1), seed=1)
    body: list[tuple[Op, Sequence[int]]] = [(Add(), (0, 1)), (Multiply(), (~0, 0)), (Subtract(), (0, ~1))]
    first = x + w
    for results, expected in (([2], [x - first * x]), ([0, 2], [first, x - first * x])):
        place = LAYOUTS[layout](x.copy())
        extra = [np.zeros_like(x)] if len(results) > 1 else []
        outputs = [place, *extra]
        chain = assemble(body, results, [Input(arrays.element(x))] * 2)
        run("elementwise", [place, np.broadcast_to(w, x.shape)], outputs, chain._asdict())
        for y, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(y, wanted)


def test_an_input_may_be_a_result() -> None:
    x = random((3, 4))
    kept, y = np.zeros_like(x), np.zeros_like(x)
    chain = assemble([(Maximum(), (0,)), (Abs(), (0,))], [0, 1], [Input(arrays.element(x))])
    run("elementwise", [x], [kept, y], chain._asdict())
    np.testing.assert_array_equal(kept, x)
    np.testing.assert_array_equal(y, abs(x))


def test_nan_and_signed_zeros_are_those_of_numpy() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-45], np.float32)
    x, w = np.repeat(values, len(values)), np.tile(values, len(values))
    x, w = np.tile(x, 3), np.tile(w, 3)
    for op in (Maximum(), Minimum(), Add(), Multiply(), Divide(), Mod(), Mod(fmod=True), LeakyRelu()):
        operands = [x] if isinstance(op, LeakyRelu) else [x, w]
        y = np.zeros_like(x)
        chained([(op, range(len(operands)))], [0], operands, [y])
        expected = op.evaluate(np, *operands)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(np.signbit(y[y == y]), np.signbit(expected[y == y]))


def near_ties(scale: Any) -> Any:
    """Numbers whose quotients by a scale are near or at half-integers, others of all sizes, and those without a size."""
    generator = np.random.default_rng(3)
    halves = (np.arange(-400, 400, dtype=np.float32) + np.float32(0.5)) * scale
    wide = (np.arange(-70000, 70000, 7, dtype=np.float32) + np.float32(0.5)) * scale
    each = [
        f(ties) for ties in (halves, wide) for f in (np.array, lambda x: np.nextafter(x, x * 2), lambda x: np.nextafter(x, 0 * x))
    ]
    sizes = generator.standard_normal(5000).astype(np.float32) * 2.0 ** generator.integers(-149, 127, 5000)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)
    return np.concatenate(
        [*each, sizes.astype(np.float32), generator.standard_normal(5000).astype(np.float32) * scale * 90, special]
    )


SCALES = [0.1, 1 / 3, 0.0078125, 0.02352941, 1.0, 3.7e-5, 11.3, -0.3, 1e-38, 1e-30, 1e-42, 2e30, 3e38]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("uint8", 131), ("int8", 0), ("int8", -7), ("uint16", 9), ("int16", 0)])
def test_codes_are_rounded_from_quotients_that_are_rounded(kind: str, zero: int, scale: float) -> None:
    step = np.float32(scale)
    with np.errstate(all="ignore"):
        x = near_ties(step)
        codes = np.rint(x / step) + np.float32(zero)
    info = np.iinfo(kind)
    expected = np.where(np.isnan(codes), 0, np.clip(codes, info.min, info.max)).astype(kind)
    for inputs in (x, x[:37], x[5:6], x[:0]):
        y = np.zeros(inputs.shape, kind)
        chained([(QuantizeLinear(), (0, 1, 2))], [0], [inputs, step, np.array(zero, kind)], [y])
        np.testing.assert_array_equal(y, expected[5:6] if inputs.size == 1 else expected[: inputs.size])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 3, 70, 31), (2, 1, 130, 140)])
def test_quotients_by_rows_and_by_elements(shape: tuple[int, ...], layout: str) -> None:
    if "channels" in layout and len(shape) < 3:
        pytest.skip("fewer than 3 axes have no channels-last layout")
    opcode = opcodes()["round_quotient.f32"][0]
    x = random(shape)
    for other in (shape, (*shape[:-1], 1), (1,) * len(shape)):
        w = random(other, seed=1)
        y = LAYOUTS[layout](np.zeros(shape, np.float32))
        operands = [LAYOUTS[layout](x), np.broadcast_to(w, shape)]
        for first, second in ((0, 1), (1, 0)):
            run("elementwise", operands, [y], {"code": [opcode, 2, first, second, 0], "constants": [], "results": [2]})
            with np.errstate(all="ignore"):
                expected = np.rint(x / w) if first == 0 else np.rint(w / x)
            np.testing.assert_array_equal(y, expected)


def test_threads_make_no_difference() -> None:
    x = random((1, 64, 80, 81))
    results = []
    for threads in (1, 2, 3):
        y = np.zeros_like(x)
        run(
            "elementwise",
            [x],
            [y],
            assemble([(Gelu(), (0,)), (Sqrt(), (~0,))], [1], [Input(arrays.element(x))])._asdict(),
            threads,
        )
        results.append(y.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    "attributes",
    [
        {"code": [0, 1, 0], "constants": [], "results": [1]},
        {"code": [10**6, 1, 0, 0, 0], "constants": [], "results": [1]},
        {"code": [0, 1, 1, 0, 0], "constants": [], "results": [1]},
        {"code": [0, 5, 0, 0, 0], "constants": [], "results": [1]},
        {"code": [0, 1, 0, 0, 0], "constants": [], "results": [2]},
        {"code": [0, 1, 0, 0, 0], "constants": [], "results": []},
    ],
)
def test_invalid_bytecode_is_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="elementwise"):
        run("elementwise", [random((4,))], [np.zeros(4, np.float32)], attributes)


def test_types_have_to_agree() -> None:
    attributes = {"code": [opcodes()["add.f32"][0], 2, 0, 1, 0], "constants": [], "results": [2]}
    with pytest.raises(ValueError, match="two types"):
        run("elementwise", [random((4,), "int32")] * 2, [np.zeros(4, np.float32)], attributes)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "tanh": np.tanh,
    "erf": lambda x: arrays.erf(np, x),
    "sqrt": np.sqrt,
    "softplus": lambda x: np.logaddexp(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "reciprocal": np.reciprocal,
}


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_casts_between_half_precision_and_f32_are_those_of_numpy(kind: Any) -> None:
    """Every one of them; and of f32 every 9973rd, with what lies halfway between two of 16 bits."""
    short = np.arange(2**16, dtype=np.uint16).view(kind)
    wide = np.zeros(short.shape, np.float32)
    run("elementwise", [short], [wide], assemble([(Cast(dtypes.f32), [0])], [0], [Input(arrays.element(short))])._asdict())
    np.testing.assert_array_equal(wide, short.astype(np.float32))
    steps = np.array([0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001])
    halfway = (wide[np.isfinite(wide)].view(np.uint32)[:, None] + steps).ravel()
    bits = np.concatenate([np.arange(0, 2**32, 9973, dtype=np.uint64), halfway, np.arange(0x33000000, 0x38900000, 4099)])
    x = bits.astype(np.uint32).view(np.float32)
    y = np.zeros(x.shape, kind)
    to = dtypes.dtype(kind)
    run("elementwise", [x], [y], assemble([(Cast(to), [0])], [0], [Input(dtypes.f32)])._asdict())
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y.astype(np.float32), x.astype(kind).astype(np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_f32_are_right_to_units_in_the_last_place(name: str) -> None:
    """Over all f32, every 9973rd; the exact value from f64."""
    x = np.arange(0, 2**32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    y = np.zeros_like(x)
    code = [opcodes()[f"{name}.f32"][0], 1, 0, 0, 0]
    run("elementwise", [x], [y], {"code": code, "constants": [], "results": [1]})
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64))
        # exp(-x) overflows before its sum's reciprocal underflows; the interpreter's does too.
        exact = np.where((name == "sigmoid") & (x < -88), 0, exact)
        y = np.where((name == "sigmoid") & (x < -88), 0, y)
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
        error = np.abs(y - exact) / unit
    np.testing.assert_array_equal(np.isnan(y), np.isnan(rounded))
    np.testing.assert_array_equal(y[np.isinf(y)], rounded[np.isinf(y)])
    assert error[np.isfinite(rounded) & np.isfinite(y)].max() < {"tanh": 2.6, "sigmoid": 2.6, "softplus": 2.2}.get(name, 1.6)


# Non-temporal stores

STREAMED_BYTES = 64 << 20
"""Bytes of a result from which its stores are non-temporal."""


def large(dtype: str, columns: int, seed: int) -> Any:
    """Rows of small numbers, of just STREAMED_BYTES in all or a little more."""
    kind = np.dtype(dtype)
    rows = -(-STREAMED_BYTES // (columns * kind.itemsize))
    values = np.random.default_rng(seed).integers(0, 100, 1 << 16, np.int8).astype(kind)
    return np.resize(values, (rows, columns))


@pytest.mark.parametrize(
    ("dtype", "columns", "gap", "shift"),
    [
        ("f4", 1 << 24, 0, 0),  # one row
        ("f4", 1001, 0, 0),  # whole rows in a tile
        ("f4", 1001, 7, 3),  # rows apart, none aligned to a cache line
        ("f4", 257, 0, 1),
        ("f4", 250, 0, 0),  # short rows: ordinary stores
        ("f8", 8192 + 5, 3, 1),
        ("i4", 8192 + 129, 1, 1),
        ("i1", 70001, 1, 1),  # ordinary stores, as for i8
        ("i8", 999, 0, 0),
    ],
)
def test_results_larger_than_the_caches_are_complete(dtype: str, columns: int, gap: int, shift: int) -> None:
    x, row = large(dtype, columns, 0), large(dtype, columns, 1)[:1]
    rows = x.shape[0]
    memory = np.full(shift + rows * (columns + gap) + 64, 77, dtype)
    y = memory[shift : shift + rows * (columns + gap)].reshape(rows, columns + gap)[:, :columns]
    chained([(Subtract(), (0, 1)), (Relu(), (~0,))], [1], [x, row], [y])
    np.testing.assert_array_equal(y, np.maximum(x - row, 0))
    y[...] = 77
    assert (memory == 77).all(), "elements beside the rows stay"


def test_two_results_of_which_one_overlaps_an_input() -> None:
    x = large("f4", 2000, 2)
    other, before = np.zeros_like(x), x.copy()
    chain = assemble([(Negative(), (0,)), (Add(), (0, ~0))], [0, 1], [Input(arrays.element(x), x)])
    run("elementwise", [x], [other, x], chain._asdict())
    np.testing.assert_array_equal(other, -before)
    assert not x.any()


def test_costly_instructions_and_cheap_ones_give_the_same() -> None:
    x = large("f4", 4096, 3) / np.float32(100)
    cheap, costly = np.zeros_like(x), np.zeros_like(x)
    chained([(Abs(), (0,)), (Multiply(), (0, ~0))], [1], [x], [cheap])
    chained([(Tanh(), (0,))], [0], [x], [costly])
    np.testing.assert_array_equal(cheap, x * x)
    np.testing.assert_allclose(costly, np.tanh(x), rtol=1e-6, atol=1e-7)
