"""Which layers between DequantizeLinear and QuantizeLinear are computed in whole numbers, and that all give the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
CHANCE = np.random.default_rng(11)
Write = Callable[[Builder, Any], Any]
IN, OUT, LAST = 0.05, 0.21, 0.25
STEPS = (CHANCE.random(12) * 0.01 + 0.002).astype(np.float32)
CODES = CHANCE.integers(-127, 128, (12, 8, 3, 3)).astype(np.int8)
BIAS_STEPS = STEPS * np.float32(IN)
ROWS = CHANCE.integers(-127, 128, (12, 70)).astype(np.int8)
COLUMNS = np.ascontiguousarray(ROWS.T)
BIAS = CHANCE.integers(-5000, 5000, 12).astype(np.int32)


def real(number: float) -> Any:
    return np.float32(number)


def codes(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return CHANCE.integers(info.min, info.max, shape, kind, endpoint=True)


def steps(write: Write, *shape: int) -> list[str]:
    """Return the kernels of a model, but for copies and chains; it gives the interpreter's bytes, but for a tie now and then."""
    with Builder() as b:
        made = write(b, b.input("x", "u8", shape or (1, 8, 10, 9)))
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    feed = {
        value.name: codes(value.dtype.numpy, *value.shape) if value.dtype.name in ("u8", "i8")
        else CHANCE.standard_normal(value.shape).astype(value.dtype.numpy)
        for value in b.model.inputs
    }  # fmt: skip
    engine = Engine(b.model, threads=1)
    bound, _ = engine.bind(feed)
    with np.errstate(all="ignore"):
        found, expected = engine(feed), interpret(b.model, feed)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        apart = np.abs(found[name].astype(np.float64) - array.astype(np.float64))
        assert np.max(apart, initial=0) <= 1 and np.count_nonzero(apart) <= 0.01 * apart.size, name
    return [step.kernel for step in bound.plan.steps if step.call is not None and step.kernel != "elementwise"]


def weights(b: Builder, data: Any = CODES, scale: Any = STEPS, zero: Any = None, axis: int = 0, **attributes: Any) -> Any:
    return b.DequantizeLinear(b.constant(data), scale, zero, axis=axis, **attributes)


def bias(b: Builder, scale: Any = BIAS_STEPS, data: Any = BIAS) -> Any:
    return b.DequantizeLinear(b.constant(data), scale, axis=0)


def dequantised(b: Builder, x: Any, scale: Any = IN, zero: Any = 120) -> Any:
    return b.DequantizeLinear(x, real(scale), None if zero is None else np.asarray(zero, x.dtype.numpy))


def quantised(b: Builder, y: Any, scale: Any = OUT, zero: Any = 100, kind: Any = np.uint8) -> Any:
    return b.QuantizeLinear(y, real(scale), np.asarray(zero, kind))


def conv(b: Builder, x: Any, w: Any = None, *more: Any, **attributes: Any) -> Any:
    return b.Conv(x, weights(b) if w is None else w, *more, **{"pads": (1, 1, 1, 1), **attributes})


def gemm(b: Builder, x: Any, w: Any = None, *more: Any, **attributes: Any) -> Any:
    w = weights(b, ROWS) if w is None else w
    return quantised(b, b.Gemm(dequantised(b, x), w, *more, **{"transpose_b": True, **attributes}), 0.5)


def layer(b: Builder, x: Any, scale: Any = OUT, **grid: Any) -> Any:
    """Return a convolution of bytes to bytes."""
    return quantised(b, conv(b, dequantised(b, x)), scale, **grid)


WHOLE: dict[str, Write] = {
    "plain": lambda b, x: layer(b, x),
    "a bias": lambda b, x: quantised(b, conv(b, dequantised(b, x), None, bias(b))),
    "a bias nearly of its steps": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), None, bias(b, STEPS * real(IN) * real(1 + 2.0**-23)))
    ),
    "relu": lambda b, x: quantised(b, b.Relu(conv(b, dequantised(b, x)))),
    "no zero points": lambda b, x: b.QuantizeLinear(conv(b, dequantised(b, x, zero=None)), real(OUT)),
    "i8 by its attribute": lambda b, x: b.QuantizeLinear(conv(b, dequantised(b, x)), real(OUT), output_dtype="i8"),
    "zero points of one axis": lambda b, x: quantised(
        b, conv(b, b.DequantizeLinear(x, np.full(1, IN, np.float32), np.full(1, 120, np.uint8))), zero=np.array([100])
    ),
    "i8": lambda b, x: layer(b, x, zero=-3, kind=np.int8),
    "zeros of weights": lambda b, x: quantised(b, conv(b, dequantised(b, x), weights(b, zero=np.zeros(12, np.int8)))),
    "one step for all weights": lambda b, x: quantised(b, conv(b, dequantised(b, x), weights(b, scale=real(0.006)))),
    "one step for two channels": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, CODES[:2], STEPS[:2]))
    ),
}  # fmt: skip
FLOATS: dict[str, Write] = {
    "a bias of other steps": lambda b, x: quantised(b, conv(b, dequantised(b, x), None, bias(b, STEPS * real(IN * 1.7)))),
    "a bias of nearly other steps": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), None, bias(b, STEPS * real(IN) * real(1 + 2.0**-20)))
    ),
    "a bias of f32": lambda b, x: quantised(b, conv(b, dequantised(b, x), None, b.constant(BIAS.astype(np.float32) / 500))),
    "steps along another axis of as many": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, CODES[:8], STEPS[:8], axis=1))
    ),
    "steps of f16": lambda b, x: quantised(
        b, conv(b, b.DequantizeLinear(x, np.float16(IN), np.uint8(120), output_dtype="f32"))
    ),
    "numbers of f16": lambda b, x: b.QuantizeLinear(
        conv(
            b, b.DequantizeLinear(x, real(IN), np.uint8(120), output_dtype="f16"), weights(b, scale=STEPS.astype(np.float16))
        ), np.float16(OUT), np.uint8(100),
    ),
    "weights of f16": lambda b, x: b.QuantizeLinear(
        conv(
            b, b.DequantizeLinear(x, real(IN), np.uint8(120), output_dtype="f16"), weights(b, output_dtype="f16")
        ), real(OUT), np.uint8(100),
    ),
    "steps of weights of f16": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, scale=STEPS.astype(np.float16), output_dtype="f32"))
    ),
    "a precision": lambda b, x: b.QuantizeLinear(
        conv(b, dequantised(b, x)), real(OUT), np.uint8(100), precision="f16"
    ),
    "a bias of i8": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), None, bias(b, data=(BIAS // 50).astype(np.int8)))
    ),
    "weights of u8": lambda b, x: quantised(b, conv(b, dequantised(b, x), weights(b, CODES.view(np.uint8)))),
    "weights of f32": lambda b, x: quantised(b, conv(b, dequantised(b, x), b.constant(CODES.astype(np.float32) / 100))),
    "weights around another zero": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, zero=np.arange(12, dtype=np.int8)))
    ),
    "weights that the run says": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), b.DequantizeLinear(b.input("w", "i8", CODES.shape), STEPS, axis=0))
    ),
    "steps of weights that the run says": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), b.DequantizeLinear(b.constant(CODES), b.input("s", "f32", (12,)), axis=0))
    ),
    "zeros of weights that the run says": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), b.DequantizeLinear(b.constant(CODES), STEPS, b.input("z", "i8", (12,)), axis=0))
    ),
    "steps along another axis": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, scale=STEPS[:8], axis=1))
    ),
    "steps of nothing": lambda b, x: quantised(b, conv(b, dequantised(b, x), weights(b, scale=STEPS * (np.arange(12) != 3)))),
    "steps of infinity": lambda b, x: quantised(
        b, conv(b, dequantised(b, x), weights(b, CODES * 0, np.where(np.arange(12) == 3, real(np.inf), STEPS)))
    ),
    "groups": lambda b, x: quantised(b, conv(b, dequantised(b, x), weights(b, CODES[:, :4]), group=2)),
    "an input of f32": lambda b, x: quantised(b, conv(b, b.Cast(x, to="f32"))),
    "an input on a grid for each channel": lambda b, x: quantised(
        b, conv(b, b.DequantizeLinear(x, STEPS[:8], np.zeros(8, np.uint8), axis=1))
    ),
    "an input around many zeros": lambda b, x: quantised(
        b, conv(b, b.DequantizeLinear(x, np.full(8, IN, np.float32), np.arange(8, dtype=np.uint8), axis=1))
    ),
    "an input whose step the run says": lambda b, x: quantised(b, conv(b, b.DequantizeLinear(x, b.input("s", "f32", ())))),
    "an input whose zero the run says": lambda b, x: quantised(
        b, conv(b, b.DequantizeLinear(x, real(IN), b.input("z", "u8", ())))
    ),
    "an input without steps": lambda b, x: quantised(b, conv(b, dequantised(b, x, 0))),
    "steps below 0": lambda b, x: quantised(b, conv(b, dequantised(b, x, -0.05))),
    "steps far below 0": lambda b, x: quantised(b, conv(b, dequantised(b, x, -3.0))),
    "a result around another zero in the run": lambda b, x: b.QuantizeLinear(
        conv(b, dequantised(b, x)), real(OUT), b.input("z", "u8", ())
    ),
    "a result without end": lambda b, x: quantised(b, conv(b, dequantised(b, x)), np.inf),
    "an input that is quantised": lambda b, x: quantised(b, b.input("z", "f32", (2, 3))),
    "an input that is rectified": lambda b, x: quantised(b, b.Relu(b.input("z", "f32", (2, 3)))),
    "something else": lambda b, x: quantised(b, b.Exp(b.input("z", "f32", (2, 3)))),
    "u16": lambda b, x: quantised(b, conv(b, dequantised(b, x)), kind=np.uint16),
    "an input of u16": lambda b, x: quantised(b, conv(b, dequantised(b, b.input("z", "u16", (1, 8, 4, 4))))),
    "f16": lambda b, x: b.QuantizeLinear(
        conv(
            b, b.DequantizeLinear(x, np.float16(IN), np.uint8(120)), weights(b, scale=STEPS.astype(np.float16))
        ), np.float16(OUT), np.uint8(100),
    ),
}  # fmt: skip


def test_convolutions_with_an_integer_kernel() -> None:
    assert {name: "quantized_conv" in steps(write) for name, write in WHOLE.items()} == dict.fromkeys(WHOLE, True)


def test_convolutions_in_floats() -> None:
    assert {name: "quantized_conv" in steps(write) for name, write in FLOATS.items()} == dict.fromkeys(FLOATS, False)


def test_a_convolution_of_one_axis() -> None:
    assert "quantized_conv" not in steps(
        lambda b, x: quantised(b, b.Conv(dequantised(b, x), weights(b, CODES[..., 0]), pads=(1, 1))), 1, 8, 10
    )


PRODUCTS: dict[str, tuple[Write, bool]] = {
    "transposed": (lambda b, x: gemm(b, x), True),
    "plain": (
        lambda b, x: gemm(b, x, weights(b, np.ascontiguousarray(ROWS.T), axis=1), transpose_b=False), True
    ),
    "a bias": (lambda b, x: gemm(b, x, None, bias(b)), True),
    "no bias, and a factor for it": (lambda b, x: gemm(b, x, beta=0.5), True),
    "a factor of the bias": (lambda b, x: gemm(b, x, None, bias(b), beta=0.5), False),
    "no bias at all": (lambda b, x: gemm(b, x, None, bias(b), beta=0.0), False),
    "a factor": (lambda b, x: gemm(b, x, alpha=0.5), False),
    "the other transposed": (
        lambda b, x: gemm(b, b.input("z", "u8", (70, 3)), transpose_a=True), False
    ),
    "a bias for each element": (
        lambda b, x: gemm(b, x, None, bias(b, (np.arange(3) + 1).astype(np.float32) * real(1e-4), np.tile(BIAS, (3, 1)))), False
    ),
    "one number as bias": (
        lambda b, x: gemm(b, x, None, bias(b, STEPS[0] * real(IN), BIAS[:1])), False
    ),
    "one number as bias of all": (
        lambda b, x: gemm(b, x, weights(b, ROWS, real(2**-7)), bias(b, real(2**-7) * real(IN), BIAS[:1])), False
    ),
    "blocks of steps": (
        lambda b, x: gemm(
            b, b.Slice(x, [0], [2], [1]), weights(b, ROWS[:, :2].copy(), STEPS.reshape(6, 2), block_size=2)
        ), False
    ),
    "a bias just of its steps": (
        lambda b, x: quantised(b, b.Gemm(
            dequantised(b, x, 2**-4), weights(b, ROWS, real(2**-7)), bias(b, real(2**-11 * (1 + 2**-22))), transpose_b=True
        )), True
    ),
    "a bias just not of its steps": (
        lambda b, x: quantised(b, b.Gemm(
            dequantised(b, x, 2**-4), weights(b, ROWS, real(2**-7)), bias(b, real(2**-11 * (1 + 1.5 * 2**-22))), transpose_b=True
        )), False
    ),
    "an input of f32": (
        lambda b, x: quantised(b, b.Gemm(b.input("z", "f32", (3, 70)), weights(b, ROWS), transpose_b=True)), False
    ),
    "weights of f32": (lambda b, x: gemm(b, x, b.constant(ROWS.astype(np.float32) / 100)), False),
}  # fmt: skip


def test_products() -> None:
    found = {name: "quantized_conv" in steps(write, 3, 70) for name, (write, _) in PRODUCTS.items()}
    assert found == {name: expected for name, (_, expected) in PRODUCTS.items()}


@pytest.mark.parametrize(("count", "summand", "is_whole"), [(66311, 1912, True), (66311, -1913, False), (66312, 0, False)])
def test_sums_that_fit_into_32_bits(count: int, summand: int, is_whole: bool) -> None:
    """255 * 127 * 66311 is 1913 below 2**31."""

    def write(b: Builder, x: Any) -> Any:
        rows, added = np.full((2, count), -127, np.int8), np.array([0, summand], np.int32)
        y = b.Gemm(dequantised(b, x), weights(b, rows, STEPS[:2]), bias(b, STEPS[:2] * real(IN), added), transpose_b=True)
        return quantised(b, y, 3000)

    assert ("quantized_conv" in steps(write, 1, count)) == is_whole


def summed(b: Builder, x: Any, y: Any, other: Any = None, **grid: Any) -> Any:
    other = dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13, 90) if other is None else other
    return quantised(b, b.Add(dequantised(b, y, OUT, 100), other), LAST, **grid)


SUMS: dict[str, tuple[Write, list[str]]] = {
    "a sum": (lambda b, x: summed(b, x, layer(b, x)), ["quantized_conv"]),
    "a sum the other way round": (
        lambda b, x: quantised(
            b, b.Add(dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13), dequantised(b, layer(b, x), OUT, 100)), LAST
        ),
        ["quantized_conv"],
    ),
    "a sum of i8": (lambda b, x: summed(b, x, layer(b, x), zero=-7, kind=np.int8), ["quantized_conv"]),
    "a sum that is rectified": (
        lambda b, x: quantised(b, b.Relu(b.Add(
            dequantised(b, layer(b, x), OUT, 100), dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13, 90)
        )), LAST),
        ["quantized_conv"],
    ),
    "two sums": (
        lambda b, x: quantised(b, b.Add(
            dequantised(b, summed(b, x, layer(b, x)), LAST, 100), dequantised(b, b.input("more", "u8", (1, 12, 10, 9)), 0.1)
        ), 0.3),
        ["quantized_conv"],
    ),
    "two convolutions": (
        lambda b, x: summed(b, x, layer(b, x), dequantised(b, layer(b, x), OUT, 100)), ["quantized_conv"] * 2
    ),
    "something that grows": (
        lambda b, x: summed(b, x, layer(b, x), dequantised(b, b.input("other", "u8", (1, 12, 1, 1)))), ["quantized_conv"]
    ),
    "something of f32": (lambda b, x: summed(b, x, layer(b, x), b.input("other", "f32", (1, 12, 10, 9))), ["quantized_conv"]),
    "no convolution": (
        lambda b, x: quantised(b, b.Add(dequantised(b, x), dequantised(b, b.input("other", "u8", (1, 8, 10, 9)), 0.13)), LAST), []
    ),
    "bytes that are moved": (
        lambda b, x: quantised(b, b.Add(
            dequantised(b, b.Transpose(x, [0, 1, 3, 2])), dequantised(b, b.input("other", "u8", (1, 8, 9, 10)), 0.13)
        ), LAST),
        [],
    ),
    "bytes that are read again": (
        lambda b, x: (lambda y: [summed(b, x, y), b.Transpose(y, [0, 2, 3, 1])])(layer(b, x)), ["quantized_conv"]
    ),
    "numbers that are read again": (
        lambda b, x: (lambda y: [
            quantised(b, b.Add(y, dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13, 90)), LAST),
            quantised(b, b.Exp(b.Negative(b.Abs(y))), 0.01),
        ])(dequantised(b, layer(b, x), OUT, 100)),
        ["quantized_conv"],
    ),
    "bytes that are a result": (lambda b, x: (lambda y: [y, summed(b, x, y)])(layer(b, x)), ["quantized_conv"]),
    "numbers that are a result": (
        lambda b, x: (lambda y: [
            b.Identity(y), quantised(b, b.Add(y, dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13, 90)), LAST)
        ])(dequantised(b, layer(b, x), 1.0, 100)),
        ["quantized_conv"],
    ),
    "another zero point": (
        lambda b, x: quantised(b, b.Add(
            dequantised(b, layer(b, x), OUT, 99), dequantised(b, b.input("other", "u8", (1, 12, 10, 9)), 0.13, 90)
        ), LAST),
        ["quantized_conv"],
    ),
}  # fmt: skip


def adds(write: Write) -> bool:
    """Return whether a sum of the model is computed by a convolution."""
    with Builder() as b:
        made = write(b, b.input("x", "u8", (1, 8, 10, 9)))
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    plan, _ = Engine(b.model, threads=1).plan()
    return any(step.attributes.get("has_residual") for step in plan.steps)


JOINED = ("a sum", "a sum the other way round", "a sum of i8", "a sum that is rectified", "two sums", "two convolutions")


def test_sums() -> None:
    assert {name: steps(write) for name, (write, _) in SUMS.items()} == {name: expected for name, (_, expected) in SUMS.items()}
    assert tuple(name for name, (write, _) in SUMS.items() if adds(write)) == JOINED


MOVED: dict[str, tuple[Write, bool]] = {
    "a pool": (lambda b, y: b.MaxPool(y, kernel_shape=(2, 2)), True),
    "a transpose": (lambda b, y: b.Transpose(y, [0, 2, 3, 1]), True),
    "a reshape": (lambda b, y: b.Reshape(y, [8, -1]), True),
    "a flattening": (lambda b, y: b.Flatten(y), True),
    "a pool that is rectified": (lambda b, y: b.Relu(b.MaxPool(y, kernel_shape=(2, 2))), False),
    "places beside the greatest": (lambda b, y: b.MaxPool(y, kernel_shape=(2, 2), outputs=2)[0], False),
}


@pytest.mark.parametrize(("scale", "zero"), [(IN, 120), (IN, 119), (0.06, 120)])
def test_movement_of_quantized_tensors_rounds_nothing(scale: float, zero: int) -> None:
    """On the same grid bytes are moved; nothing is rounded then."""
    for name, (write, is_moved) in MOVED.items():
        with Builder() as b:
            x = b.input("x", "u8", (1, 8, 10, 9))
            b.output("y", quantised(b, write(b, dequantised(b, x)), scale, zero))
        engine = Engine(b.model, threads=1)
        feed = {"x": codes(np.uint8, 1, 8, 10, 9)}
        np.testing.assert_array_equal(engine(feed)["y"], interpret(b.model, feed)["y"], err_msg=name)
        rounds = any(type(node.op).__name__ == "QuantizeLinear" for node in engine.graph.nodes)
        assert rounds != (is_moved and (scale, zero) == (IN, 120)), name


def test_weights_of_unknown_rank() -> None:
    with Builder() as b:
        w = b.DequantizeLinear(b.input("w", "i8", None), real(0.01))
        b.output("y", quantised(b, b.Conv(dequantised(b, b.input("x", "u8", (1, 8, 10, 9))), w)))
    assert {type(node.op).__name__ for node in Engine(b.model).graph.nodes} >= {"Conv"}


@pytest.mark.parametrize("open_shape", [("n", 70), ("n", "t", 70), ("n", 3, "t", 70)], ids=len)
def test_products_of_rows_known_at_run_time(open_shape: tuple[Any, ...]) -> None:
    with Builder() as b:
        product = b.MatMul(dequantised(b, b.input("x", "u8", open_shape)), weights(b, COLUMNS, axis=1))
        b.output("y", quantised(b, product, 0.5))
    engine = Engine(b.model, threads=1)
    assert {type(node.op).__name__ for node in engine.graph.nodes} >= {"QuantizedConv"}
    for size in (1, 5, 0):
        feed = {"x": codes(np.uint8, *(each if isinstance(each, int) else size for each in open_shape))}
        np.testing.assert_array_equal(engine(feed)["y"], interpret(b.model, feed)["y"])


def matmul(b: Builder, x: Any, w: Any = None, **attributes: Any) -> Any:
    w = weights(b, COLUMNS, axis=1) if w is None else w
    return quantised(b, b.apply("MatMul", dequantised(b, x), w, **attributes), 0.5)


MATMULS: dict[str, tuple[Write, tuple[int, ...], bool]] = {
    "rows": (lambda b, x: matmul(b, x), (3, 70), True),
    "batches": (lambda b, x: matmul(b, x), (2, 3, 70), True),
    "batches of heads": (lambda b, x: matmul(b, x), (2, 4, 3, 70), True),
    "transposed": (lambda b, x: matmul(b, x, weights(b, ROWS), transpose_b=True), (2, 3, 70), True),
    "relu": (
        lambda b, x: quantised(b, b.Relu(b.MatMul(dequantised(b, x), weights(b, COLUMNS, axis=1))), 0.5), (2, 3, 70), True
    ),
    "rank 5": (lambda b, x: matmul(b, x), (2, 1, 2, 3, 70), False),
    "a vector": (lambda b, x: matmul(b, x), (70,), False),
    "the other transposed": (lambda b, x: matmul(b, x, transpose_a=True), (2, 70, 3), False),
    "scales along the depth": (
        lambda b, x: matmul(b, x, weights(b, COLUMNS[:12].copy(), axis=0)), (3, 12), False
    ),
    "matrices of weights": (
        lambda b, x: matmul(b, x, weights(b, np.stack([COLUMNS, COLUMNS]), axis=2)), (2, 3, 70), False
    ),
}  # fmt: skip


def test_matrix_products() -> None:
    found = {name: "quantized_conv" in steps(write, *shape) for name, (write, shape, _) in MATMULS.items()}
    assert found == {name: expected for name, (*_, expected) in MATMULS.items()}


@pytest.mark.parametrize("scale", [np.float16(0.05), np.float32(1e-9)])
def test_bytes_are_not_moved_where_numbers_or_steps_are_of_f16(scale: Any) -> None:
    """Steps of 1e-9 are nothing in f16: all bytes become the zero point."""
    kind = "f32" if scale.dtype == np.float16 else "f16"
    with Builder() as b:
        x = b.DequantizeLinear(b.input("x", "u8", (8, 9)), scale, np.uint8(7), output_dtype=kind)
        b.output("y", b.QuantizeLinear(b.Transpose(x, [1, 0]), scale, np.uint8(7)))
    engine, feed = Engine(b.model, threads=1), {"x": codes(np.uint8, 8, 9)}
    np.testing.assert_array_equal(engine(feed)["y"], interpret(b.model, feed)["y"])
    assert {type(node.op).__name__ for node in engine.graph.nodes} & {"QuantizeLinear", "Round"}, "the rounding is gone"
