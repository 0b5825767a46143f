"""Step models of whole networks beside torch: a classifier of a wheel, a decoder with low-rank adapters, and their files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import light_models
import numpy as np
import pytest

import dovetail
from dovetail.engine import engine as engine_run, planner
from dovetail.ir.host import native_core
from dovetail.ir.types import Tensor

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

WHEELS = Path(__file__).resolve().parents[2] / "build" / "zoo" / "wheels"
STEPS = 100
TOLERANCE = 1e-4
VOCABULARY, LENGTH = 40, 12


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: pools of two engines compete for the processors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


Batches = Iterator[tuple[Any, Any]]


class Classifier(NamedTuple):
    """Classifier is an ONNX file, its logits, the shape of a batch, and the options and rate of an optimizer."""

    path: Path
    logits: str
    shape: tuple[int, ...]
    optimizer: str
    options: dict[str, Any]
    rate: float
    steps: int = STEPS


ROTATED = WHEELS / "rapidocr" / "models" / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
"""A trained MobileNetV3 of the wheel rapidocr: is a line of text upside down?"""
# Activations with kinks amplify differences by rounding: at ten times these rates, torch's f32 losses differ from its f64 losses.
CLASSIFIERS = {
    "rapidocr sgd": Classifier(ROTATED, "linear_1.tmp_1", (8, 3, 48, 64), "sgd", {"momentum": 0.9}, 5e-6),
    "rapidocr adamw": Classifier(ROTATED, "linear_1.tmp_1", (8, 3, 48, 64), "adamw", {}, 1e-5),
    "shufflenet": Classifier(light_models.path_of("shufflenet"), "r201", (1, 3, 224, 224), "adamw", {}, 1e-5, 10),
}


def file_of(case: Classifier, folder: Path) -> Path:
    """Return the file; the light models get weights."""
    if not case.path.exists():
        pytest.skip("no build/zoo; `make zoo` makes it")
    if case.path.parent != light_models.FOLDER:
        return case.path
    import onnx

    path = folder / case.path.name
    onnx.save(light_models.with_random_weights(case.path.stem.removeprefix("light_")), path)
    return path


def images(shape: tuple[int, ...], count: int) -> Batches:
    """Yield pictures whose upper half is faint, some upside down, and whether they are."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        target = rng.integers(0, 2, shape[0])
        x = rng.uniform(-1, 1, shape).astype(np.float32)
        x[:, :, : shape[2] // 2] *= 0.3
        x[target == 1] = x[target == 1][:, :, ::-1, ::-1]
        yield x, target


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if "sgd" in name else ()) for name in CLASSIFIERS])
def test_a_classifier_of_a_wheel_is_trained_as_by_torch(name: str, tmp_path: Path) -> None:
    from torch_networks import Network

    case = CLASSIFIERS[name]
    path = file_of(case, tmp_path)
    model = dovetail.extract(dovetail.load(path), outputs=[case.logits])
    step = dovetail.training_step(model, optimizer=case.optimizer, **case.options)
    assert len(step.report.weights) >= 50
    network = Network(path, step.report.weights, case.logits)
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case.optimizer]
    optimizer = optimizer(network.parameters(), lr=case.rate, **case.options)
    session = dovetail.compile(step, threads=1).session(step.report.states)
    session.states = step.report.initial
    found, expected, name = [], [], model.inputs[0].name
    for x, target in images(case.shape, case.steps):
        found.append(session({name: x, "target": target, "learning_rate": case.rate})["loss"].item())
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(torch.tensor(x)), torch.tensor(target))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert np.abs(np.subtract(found, expected)).max() < TOLERANCE
    assert case.steps < STEPS or np.mean(found[-10:]) < np.mean(found[:10]) * 0.75


class Decoder(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A causal decoder of two layers: RMS normalization, rotary positions, two queries to a key, and gated products."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, 32)
        sizes = {"q_proj": (32, 32), "k_proj": (32, 16), "v_proj": (32, 16), "o_proj": (32, 32)}
        sizes |= {"gate_proj": (32, 48), "up_proj": (32, 48), "down_proj": (48, 32)}
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(*pair, bias=False) for name, pair in sizes.items()}) for _ in range(2)
        )
        self.head = torch.nn.Linear(32, VOCABULARY, bias=False)
        self.register_buffer("wavelengths", torch.tensor([1.0, 10.0, 100.0, 1000.0]))

    def forward(self, tokens: Any) -> Any:
        batch, length = tokens.shape
        x = self.table(tokens)
        places = torch.arange(length, dtype=torch.float32)[:, None] / self.wavelengths
        cos, sin = torch.cos(places), torch.sin(places)

        def heads(y: Any, count: int) -> Any:
            return y.reshape(batch, length, count, 8).transpose(1, 2)

        def rotated(y: Any) -> Any:
            left, right = y[..., :4], y[..., 4:]
            return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

        for layer in self.layers:
            y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
            q, k = rotated(heads(layer["q_proj"](y), 4)), rotated(heads(layer["k_proj"](y), 2))
            k, v = (torch.repeat_interleave(z, 2, 1) for z in (k, heads(layer["v_proj"](y), 2)))
            mask = torch.full((length, length), -1e9).triu(1)
            mixed = torch.softmax(q @ k.transpose(2, 3) / 8**0.5 + mask, -1) @ v
            x = x + layer["o_proj"](mixed.transpose(1, 2).reshape(batch, length, 32))
            y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
            x = x + layer["down_proj"](torch.nn.functional.silu(layer["gate_proj"](y)) * layer["up_proj"](y))
        return self.head(x)


def exported_decoder(folder: Path) -> tuple[Any, dovetail.Model]:
    torch.manual_seed(0)
    module = Decoder().eval()
    path, tokens = folder / "decoder.onnx", torch.zeros(2, LENGTH, dtype=torch.int64)
    torch.onnx.export(
        module, (tokens,), path, input_names=["tokens"], output_names=["logits"], dynamo=False, do_constant_folding=False,
        dynamic_axes={"tokens": {0: "batch", 1: "length"}, "logits": {0: "batch", 1: "length"}},
    )  # fmt: skip
    return module, dovetail.load(path)


def next_token_loss() -> dovetail.Model:
    """Return the mean cross-entropy of logits [batch, length, vocabulary] and the input ``target`` [batch, length]."""
    with dovetail.Builder("next_token") as b:
        logits, target = b.input("logits", "f32", ("batch", "length", VOCABULARY)), b.input("target", "i64", ("batch", "length"))
        b.output("loss", b.SoftmaxCrossEntropyLoss(b.Transpose(logits, [0, 2, 1]), target))
    return b.model


def progressions(count: int) -> Batches:
    """Yield sequences in which each token is the one before plus a number of the sequence, and the tokens that follow."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        steps, firsts = rng.integers(1, 4, (8, 1)), rng.integers(0, VOCABULARY, (8, 1))
        tokens = (firsts + steps * np.arange(LENGTH + 1)) % VOCABULARY
        yield tokens[:, :-1], tokens[:, 1:]


def trained_adapter(adapted: dovetail.Model, *, reverse: bool = False) -> tuple[dict[str, Any], list[float]]:
    """Return the factors after 100 steps of AdamW, and the losses."""
    step = dovetail.training_step(adapted, next_token_loss(), weights="*.lora_?")
    session = dovetail.compile(step, threads=1).session(step.report.states)
    session.states, losses = step.report.initial, []
    for tokens, target in progressions(STEPS):
        feed = {"tokens": tokens[:, ::-1] if reverse else tokens, "target": target[:, ::-1] if reverse else target}
        losses.append(session(feed | {"learning_rate": 1e-2})["loss"].item())
    return {name: session.states[name] for name in step.report.weights}, losses


class Step(NamedTuple):
    """Step is a step model and its batches: the inputs that are no states."""

    model: dovetail.Model
    feeds: list[dict[str, Any]]


def classifier_step(folder: Path) -> Step:
    case = CLASSIFIERS["rapidocr adamw"]
    model = dovetail.extract(dovetail.load(file_of(case, folder)), outputs=[case.logits])
    # OpenVINO has no convolution by weights whose sizes are open, such as the gradient of a weight.
    fixed = dovetail.rebatch(model, shapes={"x": case.shape}, verify=False)
    feeds = [{"x": x, "target": target, "learning_rate": np.array(case.rate, np.float32)} for x, target in images(case.shape, 4)]
    return Step(dovetail.training_step(fixed, optimizer="adamw"), feeds)


def decoder_step(folder: Path) -> Step:
    adapted = dovetail.attach_lora(exported_decoder(folder)[1], ["*q_proj*", "*v_proj*"], rank=4, alpha=8)
    feeds = [
        {"tokens": tokens, "target": target, "learning_rate": np.array(1e-2, np.float32)} for tokens, target in progressions(4)
    ]
    return Step(dovetail.training_step(adapted, next_token_loss(), weights="*.lora_?"), feeds)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("made", [classifier_step, decoder_step])
def test_saved_step_models_train_in_other_runtimes(made: Callable[[Path], Step], runtime: str, tmp_path: Path) -> None:
    peer = pytest.importorskip(runtime)
    step, feeds = made(tmp_path)
    session = dovetail.compile(step, threads=1).session(step.report.states)
    session.states = step.report.initial
    expected = [session(feed)["loss"].item() for feed in feeds]
    names = ["loss", *step.report.states.values()]
    if runtime == "onnxruntime":
        path = tmp_path / "step.onnx"
        dovetail.save(step, path)
        options = peer.SessionOptions()
        options.intra_op_num_threads = 1
        program = peer.InferenceSession(path, options)

        def run(feed: dict[str, Any]) -> dict[str, Any]:
            return dict(zip(names, program.run(names, feed), strict=True))

    else:
        path = tmp_path / "step.xml"
        dovetail.save(step, path)
        compiled = peer.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})

        def run(feed: dict[str, Any]) -> dict[str, Any]:
            results = compiled(feed)
            return {name: results[name].copy() for name in names}

    states, losses = step.report.initial, []
    for feed in feeds:
        results = run({**feed, **states})
        losses.append(results["loss"].item())
        states = {name: results[after] for name, after in step.report.states.items()}
    np.testing.assert_allclose(losses, expected, atol=TOLERANCE)


def interpreted_steps(model: dovetail.Model, feed: dict[str, Any]) -> list[str]:
    """Return the kernel, label and reason of each step that runs in Python."""
    steps = dovetail.plan(model, feed, rounds=0, threads=1).steps
    return [f"{step.kernel} {step.label}: {step.reason}" for step in steps if not step.is_native]


@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
@pytest.mark.parametrize("made", [classifier_step, decoder_step])
def test_no_step_is_interpreted(made: Callable[[Path], Step], tmp_path: Path) -> None:
    step, feeds = made(tmp_path)
    assert interpreted_steps(step, {**feeds[0], **step.report.initial}) == []


@pytest.mark.slow
@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
def test_no_step_of_a_light_model_is_interpreted(tmp_path: Path) -> None:
    import onnx

    for name in light_models.names():
        path = tmp_path / f"{name}.onnx"
        onnx.save(light_models.with_random_weights(name), path)
        model = dovetail.load(path)
        feed = light_models.image(onnx.load(path))
        step = dovetail.training_step(model, "mse", optimizer="sgd")
        target = np.zeros(model.outputs[0].dims, np.float32)
        feed |= {"target": target, "learning_rate": np.float32(0.1), **step.report.initial}
        assert interpreted_steps(step, feed) == [], name


RUN_TIME_SIZES = ("torch.steps.", "estimators.tfidf")
"""A loop whose rounds a run decides, and a model of strings: sizes that are known only at run time are interpreted."""


@pytest.mark.slow
@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
@pytest.mark.skipif(not (WHEELS.parent / "index.json").exists(), reason="no build/zoo; `make zoo` makes it")
def test_no_step_of_the_zoo_is_interpreted() -> None:
    counts, interpreted = dict.fromkeys(("trained", "refused"), 0), {}
    for record in json.loads((WHEELS.parent / "index.json").read_text()):
        path = WHEELS.parent / record["file"]
        if path.stat().st_size > 30e6 or record["id"].startswith(RUN_TIME_SIZES):
            continue
        model = dovetail.load(path)
        output = next((y.name for y in model.outputs if isinstance(y.type, Tensor) and y.dtype.name == "f32"), None)
        if output is None:
            continue
        model = dovetail.extract(model, outputs=[output])
        arrays = np.load(WHEELS.parent / record["inputs"].format(""))
        feed = {value.name: arrays[value.name] for value in model.inputs}
        try:
            step = dovetail.training_step(model, "mse", optimizer="sgd")
        except dovetail.UnsupportedError:
            counts["refused"] += 1
            continue
        counts["trained"] += 1
        target, rate = (value.name for value in step.inputs if value.name not in {*feed, *step.report.states})
        feed |= {target: np.zeros_like(dovetail.run(model, feed)[output]), rate: np.float32(0.1), **step.report.initial}
        if labels := interpreted_steps(step, feed):
            interpreted[record["id"]] = labels
    assert interpreted == {}
    assert counts["trained"] > counts["refused"]


def test_adapters_of_a_decoder_are_trained_as_by_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, model = exported_decoder(tmp_path)
    adapted = dovetail.attach_lora(model, ["*q_proj*", "*v_proj*"], rank=4, alpha=8)
    assert len(adapted.report) == 4
    values = {
        name: torch.nn.Parameter(torch.tensor(adapted.values[name].constant)) for name in adapted.values if ".lora_" in name
    }
    for number, layer in enumerate(module.layers):
        for name in ("q_proj", "v_proj"):
            a, b = (values[f"layers.{number}.{name}.weight.lora_{letter}"] for letter in "AB")
            layer[name].register_forward_hook(lambda _, inputs, y, a=a, b=b: y + inputs[0] @ a @ b * 2)
    optimizer, expected = torch.optim.AdamW(values.values(), lr=1e-2), []
    for tokens, target in progressions(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(tokens)).transpose(1, 2), torch.tensor(target))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    factors, losses = trained_adapter(adapted)
    assert np.abs(np.subtract(losses, expected)).max() < TOLERANCE
    assert losses[-1] < losses[0] * 0.8
    tokens = next(progressions(1))[0]
    trained = adapted.with_constants(factors)
    after = dovetail.run(trained, tokens)["logits"]
    np.testing.assert_allclose(after, module(torch.tensor(tokens)).detach().numpy(), atol=1e-3)
    np.testing.assert_allclose(dovetail.run(dovetail.merge_lora(trained), tokens)["logits"], after, atol=1e-4)
    assert dovetail.diff(model, dovetail.detach_lora(trained)).is_same

    # Factors that are inputs change without another plan.
    other, _ = trained_adapter(adapted, reverse=True)
    plans: list[int] = []
    original = planner.make_plan
    monkeypatch.setattr(engine_run, "make_plan", lambda *args: plans.append(1) or original(*args))
    with dovetail.compile(dovetail.extract(adapted, inputs=["tokens", *factors])) as program:
        first = program({"tokens": tokens, **factors})["logits"].copy()
        count = len(plans)
        second = program({"tokens": tokens, **other})["logits"].copy()
        again = program({"tokens": tokens, **factors})["logits"]
    assert len(plans) == count
    np.testing.assert_allclose(first, after, atol=1e-5)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(second, dovetail.run(adapted.with_constants(other), tokens)["logits"], atol=1e-5)
    assert np.abs(first - second).max() > 0.1


@pytest.fixture
def peft(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the package peft. It imports the package transformers, whose name a module of examples/ has."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("examples")])
    own = sys.modules.pop("transformers", None)
    yield pytest.importorskip("peft")
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        del sys.modules[name]
    if own is not None:
        sys.modules["transformers"] = own


def test_an_adapter_that_peft_trained(peft: Any, tmp_path: Path) -> None:
    module, model = exported_decoder(tmp_path)
    adapted = peft.get_peft_model(module, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.AdamW((x for x in adapted.parameters() if x.requires_grad), lr=1e-2)
    for tokens, target in progressions(10):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(adapted(torch.tensor(tokens)).transpose(1, 2), torch.tensor(target)).backward()
        optimizer.step()
    adapted.save_pretrained(tmp_path / "adapter")
    tuned = dovetail.attach_lora(model, adapter=tmp_path / "adapter")
    tokens = next(progressions(1))[0]
    expected = adapted(torch.tensor(tokens)).detach().numpy()
    assert np.abs(dovetail.run(tuned, tokens)["logits"] - expected).max() < 1e-4
    assert np.abs(dovetail.run(model, tokens)["logits"] - expected).max() > 0.01
