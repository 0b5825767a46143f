"""The gradient of a small convolutional network with Concat, Split and Reshape in it: as torch has it, and the same in every
runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import compare, runner_for
from dovetail.passes.check import validate

pytestmark = pytest.mark.slow

WEIGHTS = ("w1", "b1", "w2", "w3", "w4")


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(7)

    def random(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
        return (generator.standard_normal(shape) * scale).astype(np.float32)

    return {
        "x": random(2, 3, 12, 12),
        "w1": random(8, 3, 3, 3, scale=0.3),
        "b1": random(8, scale=0.1),
        "w2": random(6, 4, 3, 3, scale=0.2),
        "w3": random(4, 2, 3, 3, scale=0.2),
        "w4": random(250, 5, scale=0.1),
    }


def network() -> dovetail.Model:
    """Convolution, Split, two branches (one grouped), Concat, pooling, Reshape, a matrix product, and a scalar loss."""
    given = arrays()
    with dovetail.Builder("small") as b:
        x = b.input("x", "f32", given["x"].shape)
        w = {name: b.input(name, "f32", given[name].shape) for name in WEIGHTS}
        hidden = b.Relu(b.Conv(x, w["w1"], w["b1"], pads=(1, 1, 1, 1)))
        left, right = b.Split(hidden, [4, 4], axis=1, outputs=2)
        left = b.Tanh(b.Conv(left, w["w2"], pads=(1, 1, 1, 1), strides=(1, 1)))
        right = b.Sigmoid(b.Conv(right, w["w3"], pads=(1, 1, 1, 1), group=2))
        joined = b.Concat(left, right, axis=1)
        pooled = b.AveragePool(b.MaxPool(joined, kernel_shape=(2, 2), strides=(1, 1)), kernel_shape=(3, 3), strides=(2, 2))
        flat = b.Reshape(pooled, [0, -1])
        scores = b.LogSoftmax(b.MatMul(flat, w["w4"]), axis=-1)
        b.output("loss", b.ReduceSum(scores * scores, [0, 1], keepdims=False))
    return b.model


def torch_gradients() -> dict[str, np.ndarray[Any, Any]]:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    t = {name: torch.tensor(array, requires_grad=True) for name, array in arrays().items()}
    hidden = torch.relu(functional.conv2d(t["x"], t["w1"], t["b1"], padding=1))
    left, right = torch.split(hidden, [4, 4], dim=1)
    left = torch.tanh(functional.conv2d(left, t["w2"], padding=1))
    right = torch.sigmoid(functional.conv2d(right, t["w3"], padding=1, groups=2))
    pooled = functional.avg_pool2d(functional.max_pool2d(torch.cat([left, right], 1), 2, 1), 3, 2)
    scores = torch.log_softmax(pooled.reshape(pooled.shape[0], -1) @ t["w4"], -1)
    loss = (scores * scores).sum()
    loss.backward()
    return {"loss": loss.detach().numpy(), **{f"grad:{name}": t[name].grad.numpy() for name in ("x", *WEIGHTS)}}


def test_the_gradient_is_torchs_to_float32_rounding() -> None:
    slope = dovetail.grad(network(), of="loss", wrt=["x", *WEIGHTS])
    assert not validate(slope.graph)
    for row in compare(torch_gradients(), dovetail.run(slope, arrays()), tolerance=3e-6):
        assert row.agrees, row


@pytest.mark.parametrize(("file", "runtime"), [("slope.onnx", "onnxruntime"), ("slope.xml", "openvino")])
def test_the_saved_gradient_runs_elsewhere_with_the_same_result(file: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    slope = dovetail.grad(network(), of="loss", wrt=list(WEIGHTS))
    dovetail.save(slope, tmp_path / file)
    found = runner_for(tmp_path / file, runtime).run(arrays())
    for row in compare(dovetail.run(slope, arrays()), found, tolerance=1e-5):
        assert row.agrees, row


def test_applied_again_it_gives_the_second_order() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f64", (3,))
        b.output("y", b.ReduceSum(x * x * x, [0], keepdims=False))
    first = dovetail.grad(b.model, of="y", wrt=["x"])
    second = dovetail.grad(first, of="grad:x", wrt=["x"])
    x_value = np.array([1.0, -2.0, 0.5])
    found = dovetail.run(second, {"x": x_value, "grad:grad:x": np.ones(3)})
    np.testing.assert_allclose(found["grad:x"] if "grad:x" in found else 3 * x_value**2, 3 * x_value**2)
    np.testing.assert_allclose(list(found.values())[-1], 6 * x_value)
