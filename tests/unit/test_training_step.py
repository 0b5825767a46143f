"""Training by hand: a merged loss, weights as inputs, their gradients, and gradient descent, as in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from assertions import assert_close
from dovetail.compare.verification.conversion import compare, runner_for

RATE = 0.1
LOSSES = ("cross entropy", "squares")
Arrays = dict[str, np.ndarray[Any, Any]]


def _arrays() -> Arrays:
    chance = np.random.default_rng(3)
    shapes = {"w1": (4, 3, 3, 3), "b1": (4,), "scale": (4,), "shift": (4,), "mean": (4,), "w2": (144, 5)}
    return {
        **{name: (chance.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()},
        "variance": chance.uniform(0.5, 2, 4).astype(np.float32),
    }


def _saved_model(folder: Path) -> Path:
    """Save a convolution with normalization and a linear layer, whose weights are constants of the file."""
    with dovetail.Builder("network") as b:
        w = {name: b.constant(array, name=name) for name, array in _arrays().items()}
        hidden = b.Conv(b.input("x", "f32", ("batch", 3, 8, 8)), w["w1"], w["b1"])
        hidden = b.Relu(b.BatchNormalization(hidden, w["scale"], w["shift"], w["mean"], w["variance"]))
        b.output("scores", b.MatMul(b.Reshape(hidden, [0, -1]), w["w2"]))
    dovetail.save(b.model, folder / "network.onnx")
    return folder / "network.onnx"


def _loss(kind: str) -> dovetail.Model:
    with dovetail.Builder("loss") as b:
        scores = b.input("scores", "f32", ("batch", 5))
        if kind == "cross entropy":
            b.output("loss", b.SoftmaxCrossEntropyLoss(scores, b.input("target", "i64", ("batch",))))
        else:
            b.output("loss", b.ReduceMean((scores - b.input("target", "f32", ("batch", 5))) ** 2.0, [0, 1], keepdims=False))
    return b.model


def _batches(kind: str) -> list[Arrays]:
    chance = np.random.default_rng(4)
    targets = [
        chance.integers(0, 5, 6) if kind == "cross entropy" else chance.standard_normal((6, 5)).astype(np.float32)
        for _ in range(5)
    ]
    return [{"x": chance.standard_normal((6, 3, 8, 8)).astype(np.float32), "target": target} for target in targets]


@pytest.mark.parametrize("kind", LOSSES)
def test_steps_of_gradient_descent_are_torchs(kind: str, tmp_path: Path) -> None:
    """The losses, the weights after five steps, and the results of the model that is saved with them."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    model = dovetail.load(_saved_model(tmp_path))
    trained = ["w1", "b1", "scale", "shift", "w2"]
    weights = {name: model.values[name].constant.copy() for name in trained}
    loss = dovetail.extract(dovetail.merge(model, _loss(kind)), inputs=["x", "target", *trained])
    assert dovetail.check(loss) == []
    step = dovetail.compile(dovetail.grad(loss, of="loss", wrt=trained))

    theirs = {name: torch.tensor(array, requires_grad=name in trained) for name, array in _arrays().items()}
    optimizer = torch.optim.SGD([theirs[name] for name in trained], RATE)

    def scores(x: Any) -> Any:
        hidden = functional.conv2d(x, theirs["w1"], theirs["b1"])
        hidden = functional.batch_norm(hidden, theirs["mean"], theirs["variance"], theirs["scale"], theirs["shift"])
        return torch.relu(hidden).reshape(len(x), -1) @ theirs["w2"]

    for batch in _batches(kind):
        results = step(**batch, **weights)
        for name, array in weights.items():
            array -= np.float32(RATE) * results[f"grad:{name}"]
        x, target = map(torch.tensor, batch.values())
        expected = (functional.cross_entropy if kind == "cross entropy" else functional.mse_loss)(scores(x), target)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert_close(np.asarray(results["loss"]), expected.detach().numpy(), 1e-5, "the loss")
    for name, array in weights.items():
        assert_close(array, theirs[name].detach().numpy(), 1e-5, name)

    dovetail.save(model.with_constants(weights), tmp_path / "tuned.onnx")
    x = _batches(kind)[0]["x"]
    tuned = dovetail.run(tmp_path / "tuned.onnx", x)["scores"]
    assert_close(tuned, scores(torch.tensor(x)).detach().numpy(), 1e-5, "the scores")


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("file", "runtime"), [("step.onnx", "onnxruntime"), ("step.xml", "openvino")])
def test_a_saved_training_step_runs_elsewhere(kind: str, file: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    model = dovetail.load(_saved_model(tmp_path))
    loss = dovetail.extract(dovetail.merge(model, _loss(kind)), inputs=["x", "target", "w1", "w2"])
    # OpenVINO convolves with weights of fixed shapes only; here the gradient of the output is such a weight.
    step = dovetail.rebatch(dovetail.grad(loss, of="loss", wrt=["w1", "w2"]), {"batch": 6})
    dovetail.save(step, tmp_path / file)
    inputs = {**_batches(kind)[0], **{name: _arrays()[name] for name in ("w1", "w2")}}
    results = runner_for(tmp_path / file, runtime).run(inputs)
    for row in compare(dovetail.run(step, inputs), results, tolerance=1e-5):
        assert row.agrees, row
