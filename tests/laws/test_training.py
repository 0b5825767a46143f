"""Training steps against torch from the same start: losses over 100 steps, and files that other runtimes run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.host import native_core
from report_routes import run_saved

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

STEPS = 100
BATCH = 8


def convolutional() -> Any:
    layers = torch.nn
    return layers.Sequential(
        layers.Conv2d(3, 8, 3, padding=1), layers.ReLU(), layers.Conv2d(8, 16, 3, stride=2, groups=2), layers.BatchNorm2d(16),
        layers.ReLU(), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(64, 10),
    )  # fmt: skip


class Encoder(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A transformer encoder whose class token attends to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.query, self.key, self.value, self.out = (torch.nn.Linear(16, 16) for _ in range(4))
        self.first, self.second = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.up, self.down, self.head = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16), torch.nn.Linear(16, 10)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        q, k, v = (layer(x).reshape(*x.shape[:2], 2, 8).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1) @ v
        x = self.first(x + self.out(mixed.transpose(1, 2).reshape(x.shape)))
        x = self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))
        return self.head(x[:, 0])


def exported(kind: Any, path: Path, *, is_open: bool = True) -> tuple[Any, dovetail.Model]:
    """Return a module in evaluation mode and its export. The exporter stores equal parameters once, so that all differ here."""
    torch.manual_seed(0)
    module = kind()
    for parameter in module.parameters():
        parameter.data += torch.randn_like(parameter) / 20
    example = torch.zeros(BATCH, 12, dtype=torch.int64) if kind is Encoder else torch.zeros(BATCH, 3, 9, 9)
    torch.onnx.export(
        module.eval(), (example,), path, input_names=["x"], output_names=["y"], dynamo=False, do_constant_folding=False,
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}} if is_open else None, training=torch.onnx.TrainingMode.PRESERVE,
    )  # fmt: skip
    return module, dovetail.load(path)


CASES = {
    "convolutional sgd": (convolutional, "sgd", {"momentum": 0.9, "weight_decay": 1e-3}, 2e-3),
    "convolutional adam": (convolutional, "adam", {"weight_decay": 1e-3}, 1e-3),
    "encoder adamw": (Encoder, "adamw", {}, 1e-3),
    "encoder sgd": (Encoder, "sgd", {}, 0.05),
}


def batches(kind: Any) -> Any:
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        x = rng.integers(0, 50, (BATCH, 12)) if kind is Encoder else rng.standard_normal((BATCH, 3, 9, 9), np.float32)
        yield x, rng.integers(0, 10, BATCH)


def losses_of_torch(module: Any, kind: Any, name: str, options: dict[str, Any], rate: float) -> list[float]:
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = optimizer(module.parameters(), lr=rate, **options)
    found = []
    for x, target in batches(kind):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(target))
        loss.backward()
        optimizer.step()
        found.append(float(loss))
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_torch(case: str, tmp_path: Path) -> None:
    kind, optimizer, options, rate = CASES[case]
    module, model = exported(kind, tmp_path / "model.onnx")
    step = dovetail.training_step(model, optimizer=optimizer, **options)
    expected = losses_of_torch(module, kind, optimizer, options, rate)
    session = dovetail.compile(step).session(step.report.states)
    session.states = step.report.initial
    found = [float(session(x=x, target=target, learning_rate=rate)["loss"]) for x, target in batches(kind)]
    assert np.abs(np.subtract(found, expected)).max() < 1e-4
    trained = model.with_constants({name: session.states[name] for name in step.report.weights})
    x, _ = next(batches(kind))
    assert np.abs(dovetail.run(trained, {"x": x})["y"] - module(torch.tensor(x)).detach().numpy()).max() < 1e-3


@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
@pytest.mark.parametrize("kind", [convolutional, Encoder])
def test_no_step_is_interpreted(kind: Any, tmp_path: Path) -> None:
    step = dovetail.training_step(exported(kind, tmp_path / "model.onnx")[1])
    x, target = next(batches(kind))
    plan = dovetail.plan(step, {"x": x, "target": target, "learning_rate": np.float32(0.1), **step.report.initial}, rounds=0)
    assert [row.label for row in plan.steps if not row.is_native] == []


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("kind", [convolutional, Encoder])
def test_other_runtimes_take_the_step(kind: Any, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    # OpenVINO has no convolution by weights whose sizes are open, such as the gradient of a weight.
    model = exported(kind, tmp_path / "model.onnx", is_open=runtime != "openvino")[1]
    step = dovetail.training_step(model, optimizer="sgd", momentum=0.9)
    x, target = next(batches(kind))
    feed = {"x": x, "target": target, "learning_rate": np.array(0.1, np.float32), **step.report.initial}
    expected = dovetail.run(step, feed)
    found = run_saved(runtime, step, feed, tmp_path)
    for name, array in expected.items():
        assert np.abs(found[name] - array).max() <= 1e-4 * max(1, np.abs(array).max()), name


def test_adapters_are_trained_merged_and_detached(tmp_path: Path) -> None:
    module, model = exported(Encoder, tmp_path / "model.onnx")
    tuned = dovetail.attach_lora(model, ["query.weight", "/value/MatMul"], rank=4, alpha=8)
    assert len(tuned.report) == 2
    x, _ = next(batches(Encoder))
    before = dovetail.run(model, {"x": x})["y"]
    np.testing.assert_array_equal(dovetail.run(tuned, {"x": x})["y"], before)
    step = dovetail.training_step(tuned, weights="*.lora_?")
    assert len(step.report.weights) == 4
    session = dovetail.compile(step).session(step.report.states)
    session.states = step.report.initial
    factors = {
        name: torch.nn.Parameter(torch.tensor(array)) for name, array in step.report.initial.items() if "lora" in name[-6:]
    }
    optimizer = torch.optim.AdamW(factors.values(), lr=1e-2)
    names = {each: next(name for name in step.report.weights if name.startswith(each)) for each in tuned.report}
    assert set(factors) == set(step.report.weights) and len(names) == 2
    for layer, weight in zip((module.query, module.value), tuned.report, strict=True):
        a, b = factors[f"{weight}.lora_A"], factors[f"{weight}.lora_B"]
        layer.register_forward_hook(lambda _, inputs, y, a=a, b=b: y + inputs[0] @ a @ b * 2)
    for x, target in batches(Encoder):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(target))
        loss.backward()
        optimizer.step()
        assert abs(float(session(x=x, target=target, learning_rate=1e-2)["loss"]) - float(loss)) < 1e-4
    trained = tuned.with_constants({name: session.states[name] for name in step.report.weights})
    merged, detached = dovetail.merge_lora(trained), dovetail.detach_lora(trained)
    after = dovetail.run(trained, {"x": x})["y"]
    assert np.abs(after - before).max() > 1e-2
    assert np.abs(dovetail.run(merged, {"x": x})["y"] - after).max() < 1e-5
    assert len(merged.graph.nodes) == len(detached.graph.nodes) == len(model.graph.nodes)
    assert dovetail.diff(model, detached).is_same


def test_an_adapter_of_peft(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    module, model = exported(Encoder, tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 16), np.float32), rng.standard_normal((16, 4), np.float32)
    pair = {"base_model.model.query.lora_A.weight": a, "base_model.model.query.lora_B.weight": b}
    safetensors.save_file(pair, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 2, "peft_type": "LORA"}')
    tuned = dovetail.attach_lora(model, adapter=tmp_path)
    x, _ = next(batches(Encoder))
    module.query.weight.data += torch.tensor(b @ a / 2)
    expected = module(torch.tensor(x)).detach().numpy()
    assert np.abs(dovetail.run(tuned, {"x": x})["y"] - expected).max() < 1e-5
    for text in ("{}", "[]", '{"r": "x", "lora_alpha": 1}', "{"):
        (tmp_path / "adapter_config.json").write_text(text)
        with pytest.raises(dovetail.FormatError, match=r"\[array.file\]"):
            dovetail.attach_lora(model, adapter=tmp_path)


def test_constants_that_only_decide_are_no_weights() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 2))
        y = b.MatMul(x, b.constant(np.eye(2, dtype=np.float32), name="w"))
        b.output("y", b.Where(b.Greater(y, b.constant(np.ones(2, np.float32), name="limits")), y, y * 2))
    assert dovetail.training_step(b.model, "mse").report.weights == ["w"]
    chosen = dovetail.training_step(b.model, "mse", weights=["w", "limits"])
    assert chosen.report.weights == ["w", "limits"]


def test_tables_are_no_weights() -> None:
    """A constant that is a weight of one node and a fixed input of another one is trained in the first alone."""
    with dovetail.Builder() as b:
        x, row = b.input("x", "f32", ("n", 2)), b.constant(np.array([1, 2], np.float32), name="row")
        default = b.constant(np.zeros(1, np.float32))
        table = b.LabelEncoder(x, row, b.constant(np.ones(2, np.float32), name="values"), default)
        b.output("y", b.Multiply(b.Add(table, x), row))
    step = dovetail.training_step(b.model, "mse", optimizer="sgd")
    assert step.report.weights == ["row"]
    feed = {"x": np.array([[1, 2]], np.float32), "target": np.zeros((1, 2), np.float32), "learning_rate": 0.0}
    assert dovetail.run(step, {**feed, "row": np.array([3, 3], np.float32)})["loss"] == (36 + 81) / 2


def test_a_model_without_differentiable_weights_is_refused() -> None:
    with dovetail.Builder() as b:
        x, limits = b.input("x", "f32", ("n", 2)), b.constant(np.ones(2, np.float32), name="limits")
        b.output("y", b.Where(b.Greater(x, limits), x, x * 2))
    with pytest.raises(dovetail.UnsupportedError, match=r"\[constant.needed\] .*'limits'"):
        dovetail.training_step(b.model, "mse")


def test_names_that_are_taken_get_numbers() -> None:
    with dovetail.Builder() as b:
        x, rate = b.input("target", "f32", ("n", 2)), b.input("learning_rate", "f32", ())
        loss = b.MatMul(x, b.constant(np.eye(2, dtype=np.float32), name="step")) * rate
        b.output("loss", loss)
    step = dovetail.training_step(b.model, "mse", optimizer="adam")
    assert [value.name for value in step.inputs][:5] == ["target", "learning_rate", "target_2", "learning_rate_2", "step_2"]
    assert step.outputs[0].name == "loss_2" and step.warnings == b.model.warnings


@pytest.mark.parametrize("module", ["layer.query", "query"])
def test_a_module_of_an_adapter_is_one_product(module: str, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        for name in ("layer.query.weight", "other.query.weight"):
            x = b.MatMul(x, b.constant(np.eye(4, dtype=np.float32) * (1 + len(name)), name=name))
        b.output("y", x)
    pair = {
        f"base_model.model.{module}.lora_{letter}.weight": np.ones(shape, np.float32)
        for letter, shape in (("A", (1, 4)), ("B", (4, 1)))
    }
    safetensors.save_file(pair, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"r": 1, "lora_alpha": 1}')
    if module == "query":
        with pytest.raises(dovetail.RuleError, match=r"\[name.unknown\].*2 products"):
            dovetail.attach_lora(b.model, adapter=tmp_path)
    else:
        assert dovetail.attach_lora(b.model, adapter=tmp_path).report == ["layer.query.weight"]


def test_a_sum_that_looks_like_an_adapter_is_none() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        first, second = (b.constant(np.eye(4, dtype=np.float32), name=f"w{suffix}") for suffix in (".lora_A", ".lora_B"))
        b.output("y", b.Relu(x) + b.MatMul(b.MatMul(x, first), second) * b.constant(np.ones(4, np.float32)))
    for undo in (dovetail.merge_lora, dovetail.detach_lora):
        with pytest.raises(dovetail.RuleError, match=r"\[argument.value\]"):
            undo(b.model)


def _square_loss(y: Any) -> dovetail.Model:
    with dovetail.Builder("distance") as b:
        found, weight = b.input(y.name, y.type.dtype, y.shape), b.input("weight", "f32", ("n", 1))
        b.output("distance", b.ReduceSum((found * found) * weight, [0, 1], keepdims=False))
    return b.model


@pytest.mark.parametrize("loss", ["mse", "binary_cross_entropy", "cross_entropy", "model"])
def test_each_loss_and_its_gradient_are_those_of_torch(loss: str) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((4, 3), np.float32) * 30, rng.standard_normal((5, 4), np.float32)
    with dovetail.Builder() as b:
        y = b.output("y", b.MatMul(b.input("x", "f32", ("n", 4)), b.constant(w, name="w")))
    functions = {"mse": "mse_loss", "binary_cross_entropy": "binary_cross_entropy_with_logits", "cross_entropy": "cross_entropy"}
    parameter = torch.nn.Parameter(torch.tensor(w))
    logits = torch.tensor(x) @ parameter
    if loss == "model":
        feed = {"weight": rng.random((5, 1), np.float32)}
        expected = (logits**2 * torch.tensor(feed["weight"])).sum()
    else:
        feed = {"target": rng.integers(0, 3, 5) if loss == "cross_entropy" else rng.random((5, 3), np.float32)}
        expected = getattr(torch.nn.functional, functions[loss])(logits, torch.tensor(feed["target"]))
    expected.backward()
    step = dovetail.training_step(b.model, _square_loss(y) if loss == "model" else loss, optimizer="sgd")
    found = dovetail.run(step, {"x": x, **feed, "learning_rate": 1.0, **step.report.initial})
    assert abs(float(next(iter(found.values()))) - float(expected)) <= 1e-5 * float(expected)
    gradient = w - found["next.w"]
    assert np.abs(gradient - parameter.grad.numpy()).max() <= 1e-5 * np.abs(w).max()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"loss": "cross"}, "argument.value"),
        ({"loss": 3}, "argument.type"),
        ({"optimizer": "lion"}, "argument.value"),
        ({"betas": (0.9, 1.0)}, "argument.value"),
        ({"betas": (0.9,)}, "argument.value"),
        ({"momentum": -1}, "argument.value"),
        ({"weight_decay": float("nan")}, "argument.value"),
        ({"weights": "v*"}, "name.unknown"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], code: str) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 2)), b.constant(np.eye(2, dtype=np.float32), name="w")))
    with pytest.raises(dovetail.DovetailError) as error:
        dovetail.training_step(b.model, **options)
    assert error.value.code == code
