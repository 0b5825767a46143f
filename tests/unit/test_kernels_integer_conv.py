"""Products of 8-bit integers with zero points and scales, and dynamic quantization: kernels, fusion, onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oracles
from dovetail.engine.engine import Engine
from dovetail.engine.rewrite.integer_conv import IntegerConv
from dovetail.engine.select.kernels import window_attributes
from dovetail.errors import EngineError
from dovetail.formats import save
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.nn.conv import Conv
from dovetail.ops.quantization.quantize_linear import DynamicQuantizeLinear
from dovetail.runtime.interpreter.interpret import interpret
from kernel_runner import BYTE_CONVOLUTIONS, LAYOUTS, channels_last, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")


def convolve(op: IntegerConv, inputs: list[Any], y: Any, threads: int) -> str:
    """Run IntegerConv's kernel on its inputs, of which None are omitted."""
    x, w, x_zero, w_zero, x_scale, w_scale, bias = inputs
    present = {"has_x_zero": x_zero, "has_w_zero": w_zero, "has_bias": bias}
    attributes = window_attributes(op.conv.geometry(x.shape[2:], w.shape[2:])) | {
        "results": "sums" if x_scale is None else "floats",
        "has_residual": 0,
    }
    attributes |= {name: int(value is not None) for name, value in present.items()}
    given = [value for value in inputs if value is not None]
    constants = [index for index, value in enumerate(given) if any(value is other for other in (w, w_zero, w_scale, bias))]
    return run("quantized_conv", given, [y], attributes, threads, constants=constants)


@pytest.mark.parametrize("zeros", ["no zero points", "zero points", "zero points of the middle"])
@pytest.mark.parametrize("kinds", ["uint8 int8", "int8 int8", "uint8 uint8", "int8 uint8"])
@pytest.mark.parametrize("name", BYTE_CONVOLUTIONS)
def test_integer_convolutions_are_exact(name: str, kinds: str, zeros: str) -> None:
    shape, weights, attributes = BYTE_CONVOLUTIONS[name]
    source, kind = kinds.split()
    x, w = channels_last(random(shape, source)), random(weights, kind)
    x_zero = w_zero = None
    if zeros != "no zero points":
        x_zero = np.array(np.iinfo(source).max - 40, source)
        middle = 128 if kind == "uint8" else 0
        w_zero = random((weights[0],), kind).astype(np.int32) if zeros == "zero points" else np.full(weights[0], middle, np.int32)
    op = IntegerConv(Conv(**attributes))
    scales = [np.array(0.0173, np.float32), np.abs(random((weights[0],), seed=1)) + np.float32(0.01)]
    for rescaling in ([None, None, None], [*scales, None], [*scales, random((weights[0],), seed=2)]):
        inputs = [x, w, x_zero, w_zero, *rescaling]
        expected = op.evaluate(np, *inputs)
        for threads in (1, 2):
            y = channels_last(np.zeros(expected.shape, expected.dtype))
            convolve(op, inputs, y, threads)
            np.testing.assert_array_equal(y, expected)


NUMBERS: dict[str, Callable[[], Any]] = {
    "either sign": lambda: random((3, 5, 7, 9)),
    "many": lambda: random((2, 16, 40, 33)),
    "a long line": lambda: random((20000,)),
    "positive": lambda: np.abs(random((4, 33))) + np.float32(1),
    "negative": lambda: -np.abs(random((4, 33))) - np.float32(1),
    "zeros": lambda: np.zeros((3, 4), np.float32),
    "one": lambda: np.array(-0.7, np.float32),
    "ties": lambda: (np.arange(-255, 256) / 2).astype(np.float32),
    "tiny": lambda: random((40,)) * np.float32(1e-41),
    "huge": lambda: random((40,)) * np.float32(3e37),
    "infinite": lambda: np.array([1, np.inf, -2, 3], np.float32),
    "minus infinite": lambda: np.array([1, -np.inf, -2, 3], np.float32),
    "NaN": lambda: np.array([1, 2, np.nan, 3] + [1] * 100, np.float32),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_dynamic_quantization_is_exact(name: str) -> None:
    numbers = NUMBERS[name]()
    with np.errstate(all="ignore"):
        expected = DynamicQuantizeLinear().evaluate(np, numbers)
    for layout in LAYOUTS.values() if numbers.ndim == 4 else (np.ascontiguousarray,):
        for threads in (1, 3):
            x = layout(numbers) if numbers.ndim else numbers
            results = [np.full(array.shape, 7, array.dtype) for array in map(np.asarray, expected)]
            run("dynamic_quantize", [x], results, {}, threads)
            for result, array in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, array)


# Layers as quantisers write them


def weights_of(*shape: int, kind: str = "int8") -> Any:
    return random(shape, kind, seed=5)


def rescaled(b: Any, product: Any, scale: Any, w_scale: Any, bias: Any = None) -> Any:
    y = b.Multiply(b.Cast(product, to="f32"), b.Multiply(scale, w_scale))
    return y if bias is None else b.Add(bias, y)


def product(
    b: Any, x: Any, kind: str = "int8", zero: Any = None, columns: int = 40, bias: Any = None, w_scale: Any = None
) -> Any:
    codes, scale, point = b.DynamicQuantizeLinear(x)
    w_scale = np.float32(0.013) if w_scale is None else w_scale
    sums = b.MatMulInteger(codes, weights_of(70, columns, kind=kind), point, zero)
    return rescaled(b, sums, scale, w_scale, bias)


def convolution(b: Any, x: Any, kind: str, zero: Any, bias: Any = None, **attributes: Any) -> Any:
    codes, scale, point = b.DynamicQuantizeLinear(x)
    sums = b.ConvInteger(codes, weights_of(12, 6, 3, 3, kind=kind), point, zero, **attributes)
    return rescaled(b, sums, scale, np.float32(0.01), bias)


def shared(b: Any, x: Any) -> Any:
    codes, scale, point = b.DynamicQuantizeLinear(x)
    both = [b.MatMulInteger(codes, weights_of(70, 9), point), b.MatMulInteger(codes, weights_of(70, 9) // 2, point)]
    first, second = (rescaled(b, each, scale, np.float32(0.02)) for each in both)
    # One sum is read twice.
    return b.Add(b.Add(first, second), b.Cast(both[0], to="f32"))


COLUMNS = np.linspace(0.01, 0.02, 40, dtype=np.float32)
POINTS = random((40,), "int8")
DYNAMIC: dict[str, tuple[tuple[Any, ...], Callable[[Any, Any], Any]]] = {
    "product": (("n", 5, 70), product),
    "one row": ((1, 70), product),
    "many rows": ((200, 70), product),
    "product with bias": ((33, 70), lambda b, x: product(b, x, bias=random((40,)))),
    "product by columns": ((5, 70), lambda b, x: product(b, x, "int8", random((40,), "int8"), w_scale=COLUMNS)),
    "product of u8": ((5, 70), lambda b, x: product(b, x, "uint8", np.uint8(100), bias=random((1, 40)))),
    "one column": ((5, 70), lambda b, x: product(b, x, columns=1, bias=random((1,)))),
    "convolution": ((1, 6, 9, 8), lambda b, x: convolution(b, x, "uint8", np.uint8(131), pads=(1, 1, 1, 1))),
    "convolution with bias": (
        (2, 6, 9, 8), lambda b, x: convolution(b, x, "uint8", np.uint8(3), random((1, 12, 1, 1)), strides=(2, 2))
    ),
    "shared codes": ((4, 70), shared),
    "as one operator": ((4, 70), lambda b, x: b.DynamicQuantizeMatMul(x, weights_of(70, 40), COLUMNS, POINTS, COLUMNS)),
}  # fmt: skip


def made(shape: tuple[Any, ...], write: Callable[[Any, Any], Any]) -> Model:
    with Builder() as b:
        b.output("y", write(b, b.input("x", "f32", shape)))
    return b.model


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamically_quantised_layers(name: str, tmp_path: Any) -> None:
    shape, write = DYNAMIC[name]
    model = made(shape, write)
    x = random(tuple(3 if size == "n" else size for size in shape))
    for threads in (1, 2):
        engine = Engine(model, threads=threads)
        bound, _ = engine.bind({"x": x})
        kernels = [each.split()[0] for each in bound.names()]
        assert not bound.python_steps
        assert set(kernels) - {"copy"} <= {"dynamic_quantize", "quantized_conv"} | (
            {"elementwise"} if "shared" in name else set()
        )
        np.testing.assert_array_equal(engine({"x": x})["y"], interpret(model, {"x": x})["y"])
    onnxruntime = pytest.importorskip("onnxruntime")
    oracles.skip_where_bytes_saturate()
    path = tmp_path / "model.onnx"
    save(model, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(engine({"x": x})["y"], expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))


def test_extreme_sums_do_not_saturate() -> None:
    """Pairs of the greatest bytes exceed 16 bits, in which some processors add them."""
    x = np.full((3, 258), 255, np.uint8)
    w = np.where(np.arange(64) % 2, 127, -128).astype(np.int8) * np.ones((258, 1), np.int8)
    with Builder() as b:
        b.output("y", b.MatMulInteger(b.input("x", "u8", (3, 258)), w, np.uint8(0)))
    result = Engine(b.model)({"x": x})["y"]
    np.testing.assert_array_equal(result, x.astype(np.int32) @ w.astype(np.int32))


def test_an_empty_tensor_has_no_range() -> None:
    model = made(("n", 70), product)
    with pytest.raises(EngineError, match=r"shape\.empty"):
        Engine(model)({"x": np.zeros((0, 70), np.float32)})
