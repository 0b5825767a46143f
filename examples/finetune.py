"""Fine-tune a classifier: batches in random order, checkpoints, evaluation, and the tuned model in both formats.

    python examples/finetune.py [--model model.onnx --data data.npz] [--weights "head.*"] [--lora RANK] [--steps 300]
        [--checkpoints FOLDER] [--resume] [--out FOLDER]

MODEL has one input and one output: scores [batch, classes]. The arrays ``x`` [count, ...] and ``y`` [count], class indices, of
DATA are its examples. Without them, a small convolutional network with random weights learns whether a picture is upside down.
A checkpoint is a safetensors file of the weights and of the states of the optimizer; a run that resumes from one takes the same
steps as a run without an interruption.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import safe_open
from safetensors.numpy import save_file

import dovetail

CHECKPOINT = "checkpoint.safetensors"
TEST_SHARE = 0.2


def build_network(size: int = 16) -> dovetail.Model:
    """Build a classifier of pictures [batch, 1, size, size] with two classes."""
    rng = np.random.default_rng(0)
    with dovetail.Builder("upside_down") as b:
        y = b.input("x", "f32", ("batch", 1, size, size))
        for number, (inputs, outputs) in enumerate(((1, 8), (8, 16))):
            scale = np.sqrt(2 / (9 * inputs))
            w = b.constant((rng.standard_normal((outputs, inputs, 3, 3)) * scale).astype(np.float32), name=f"conv{number}.weight")
            bias = b.constant(np.zeros(outputs, np.float32), name=f"conv{number}.bias")
            y = b.Relu(b.Conv(y, w, bias, strides=(2, 2), pads=(1, 1, 1, 1)))
        rows = 16 * (size // 4) ** 2
        head = b.constant((rng.standard_normal((rows, 2)) / np.sqrt(rows)).astype(np.float32), name="head.weight")
        b.output("scores", b.MatMul(b.Reshape(y, [0, -1]), head))
    return b.model


def draw_pictures(count: int, size: int = 16) -> tuple[Any, Any]:
    """Return pictures with a bright lower half, in noise, some upside down, and whether they are."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, 1, size, size)).astype(np.float32)
    x[:, :, size // 2 :] += 0.5
    y = rng.integers(0, 2, count)
    x[y == 1] = x[y == 1][:, :, ::-1]
    return x, y


def batches(count: int, size: int, first: int, last: int) -> Iterator[Any]:
    """Yield the indices of the examples of the steps ``first`` to ``last``; each epoch has a seeded order of its own."""
    size = min(size, count)
    per_epoch = count // size
    for step in range(first, last):
        epoch, number = divmod(step, per_epoch)
        order = np.random.default_rng(epoch).permutation(count)
        yield order[number * size : (number + 1) * size]


def save_checkpoint(path: Path, states: dict[str, Any], step: int) -> None:
    """Write the states; an interruption leaves the checkpoint before."""
    draft = path.with_suffix(".draft")
    save_file({name: np.array(array, order="C") for name, array in states.items()}, draft, {"step": str(step)})
    os.replace(draft, path)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], int]:
    """Return the states and the number of steps that led to them."""
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, int(file.metadata()["step"])


def accuracy(model: dovetail.Model, x: Any, y: Any, size: int = 64) -> float:
    """Return the share of the examples whose class has the highest score."""
    with dovetail.compile(model) as program:
        scores = [program([x[start : start + size]])[0].argmax(axis=1) for start in range(0, len(x), size)]
    return float((np.concatenate(scores) == y).mean())


def train(model: dovetail.Model, x: Any, y: Any, options: argparse.Namespace) -> dovetail.Model:
    """Return the model with the trained weights. The order of the steps and their results depend on the options alone."""
    step = dovetail.training_step(model, weights="*.lora_?" if options.lora else options.weights)
    session = dovetail.compile(step).session(step.report.states)
    session.states, first = step.report.initial, 0
    path = options.checkpoints / CHECKPOINT
    if options.resume and path.exists():
        session.states, first = load_checkpoint(path)
    columns = TextColumn("loss {task.fields[loss]:.4f}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("train", total=options.steps, completed=first, loss=float("nan"))
        for number, rows in enumerate(batches(len(x), options.batch, first, options.steps), first + 1):
            feed = {model.inputs[0].name: x[rows], "target": y[rows], "learning_rate": options.rate}
            loss = float(session(feed)["loss"])
            bar.update(task, advance=1, loss=loss)
            if number % options.every == 0 or number == options.steps:
                save_checkpoint(path, session.states, number)
    return model.with_constants({name: session.states[name] for name in step.report.weights})


def main(arguments: list[str] | None = None) -> float:
    """Fine-tune, print the accuracy before and after, and write ``tuned.onnx`` and ``tuned.xml``; return the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path, help="an .npz file with x and y")
    parser.add_argument("--weights", nargs="+", help="names or patterns of the trained weights; default: all")
    parser.add_argument("--lora", type=int, metavar="RANK", help="train adapters of the products, and merge them")
    for name, default in {"steps": 300, "batch": 32, "every": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args(arguments)
    if (options.model is None) != (options.data is None):
        parser.error("--model and --data belong together")
    if options.model is None:
        model, (x, y) = build_network(), draw_pictures(1000)
    else:
        model = dovetail.load(options.model)
        with np.load(options.data) as data:
            x, y = data["x"], data["y"]
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    order, count = np.random.default_rng(0).permutation(len(x)), int(len(x) * TEST_SHARE)
    test, rest = order[:count], order[count:]
    tuned = train(dovetail.attach_lora(model, rank=options.lora) if options.lora else model, x[rest], y[rest], options)
    if options.lora:
        tuned = dovetail.merge_lora(tuned)
    after = accuracy(tuned, x[test], y[test])
    print(f"accuracy on {count} examples: {accuracy(model, x[test], y[test]):.3f} before, {after:.3f} after")
    for suffix in ("onnx", "xml"):
        dovetail.save(tuned, options.out / f"tuned.{suffix}")
        print(f"wrote {options.out / f'tuned.{suffix}'}")
    return after


if __name__ == "__main__":
    main()
