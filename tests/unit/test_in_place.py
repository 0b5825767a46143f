"""In-place computation: a step may overwrite only what its kernel declares, and the plan checker refuses every other overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.memory import in_place
from dovetail.errors import EngineError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model

RNG = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def conv(b: Builder, x: Any) -> Any:
    return b.Conv(x, weights(8, 8, 3, 3), pads=(1, 1, 1, 1))


def conv_transpose(b: Builder, x: Any) -> Any:
    return b.ConvTranspose(x, weights(8, 8, 3, 3), pads=(1, 1, 1, 1))


def matmul(b: Builder, x: Any) -> Any:
    return b.MatMul(x, weights(6, 6))


def quantized_residual(b: Builder, x: Any) -> Any:
    """Return a quantised convolution whose residual is its own input, and quantised too."""

    def rounded(y: Any) -> Any:
        scale, zero = b.constant(np.float32(0.0519)), b.constant(np.uint8(128))
        return b.DequantizeLinear(b.QuantizeLinear(y, scale, zero), scale, zero)

    w = b.constant(RNG.integers(-9, 9, (8, 8, 3, 3)).astype(np.int8))
    w = b.DequantizeLinear(w, b.constant(np.float32(0.02173)), b.constant(np.int8(0)))
    x = rounded(x)
    return rounded(rounded(b.Conv(x, w, pads=(1, 1, 1, 1))) + x)


def residual(layer: Callable[[Builder, Any], Any]) -> Callable[[Builder, Any], Any]:
    return lambda b, x: b.Add(layer(b, x), x)


GRAPHS: dict[str, Callable[[Builder, Any], Any]] = {
    "conv": residual(conv),
    "conv, then an activation": lambda b, x: b.Relu(b.Add(conv(b, x), x)),
    "conv, after an activation": lambda b, x: b.Add(x, b.Sigmoid(conv(b, x))),
    "conv after a normalisation": lambda b, x: b.Add(conv(b, b.Relu(x * weights(8, 1, 1))), x),
    "conv_transpose": residual(conv_transpose),
    "matmul": residual(matmul),
    "matmul of itself": lambda b, x: b.Add(b.MatMul(x, x), x),
    "quantized_conv": quantized_residual,
    "a row added to all": lambda b, x: b.Add(x, b.Slice(x, [0], [1], [2])),
    "a tensor and its reverse": lambda b, x: b.Add(x, b.Slice(x, [-1], [-100], [2], [-1])),
    "a square": lambda b, x: b.Multiply(x, x),
    "the residual is a view": lambda b, x: b.Add(matmul(b, x), b.Transpose(x, [0, 1, 3, 2])),
    "the data is a view": lambda b, x: b.Add(matmul(b, b.Transpose(x, [0, 1, 3, 2])), x),
}


def net(build: Callable[[Builder, Any], Any]) -> Model:
    with Builder("inplace") as b:
        x = b.input("x", "f32", ("n", 8, 6, 6))
        # What the graph under test reads and writes lies in the arena, and nothing else needs it.
        b.output("y", b.Softmax(build(b, b.Tanh(x)), axis=-1))
    return b.model


@pytest.mark.parametrize("elide", ["auto", "all", "none"])
@pytest.mark.parametrize("name", GRAPHS)
def test_live_buffers_are_not_overwritten(name: str, elide: str) -> None:
    model = net(GRAPHS[name])
    x = RNG.standard_normal((2, 8, 6, 6)).astype(np.float32)
    before = x.copy()
    want = dovetail.run(model, {"x": x}, "interpreter")["y"]
    for threads in (1, 2):
        found = dovetail.compile(model, "native", threads=threads, elide=elide)(x)["y"]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert np.array_equal(x, before)


@pytest.mark.parametrize(
    "name", ["conv", "matmul", "quantized_conv", "a row added to all", "a tensor and its reverse", "the data is a view"]
)
def test_the_checker_refuses_a_plan_that_overwrites_live_buffers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner assumes that every kernel may overwrite anything."""
    monkeypatch.setattr(
        in_place,
        "overwritable_reads",
        lambda kernel, attributes, reads, writes: frozenset(range(reads if kernel != "copy" else 0)),
    )
    monkeypatch.setattr(in_place, "has_same_offsets", lambda tensor, target, layouts: tensor.itemsize == target.itemsize)
    with pytest.raises(EngineError) as caught:
        dovetail.run(net(GRAPHS[name]), {"x": np.ones((2, 8, 6, 6), np.float32)}, "native")
    assert caught.value.code == "plan.fault"


@pytest.mark.parametrize("name", GRAPHS)
def test_a_caller_s_array_is_not_overwritten(name: str) -> None:
    """The graph input itself is the residual, and the sum is the graph's result."""
    with Builder("inplace") as b:
        x = b.input("x", "f32", ("n", 8, 6, 6))
        b.output("y", GRAPHS[name](b, x))
    given = RNG.standard_normal((1, 8, 6, 6)).astype(np.float32)
    before = given.copy()
    want = dovetail.run(b.model, {"x": given}, "interpreter")["y"]
    np.testing.assert_allclose(dovetail.run(b.model, {"x": given}, "native")["y"], want, rtol=1e-4, atol=1e-5)
    assert np.array_equal(given, before)
