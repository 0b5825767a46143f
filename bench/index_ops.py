"""Operators that choose, order, count and transform: models of one operator each, beside onnxruntime and the operator's own rule.

    python bench/index_ops.py [--threads N] [--rounds N] [TEXT ...]

Medians of interleaved calls in microseconds, the results made anew by each; `step` is the compiled step alone.
TEXT takes the cases whose name holds one of the texts. Before a case is measured, the three have to agree.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail.engine.engine import Engine
from dovetail.engine.profile import step_times
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ops.signal.dft import DFT

TOLERANCE = 1e-3
"""Of the greatest result; onnxruntime's transforms of f32 are not nearer."""
CHANCE = np.random.default_rng(0)


class Case(NamedTuple):
    """A measured model: one of the inputs by name, written through a Builder; the results of `write` are its outputs."""

    name: str
    inputs: dict[str, Any]
    write: Callable[..., Any]


def real(*shape: int) -> Any:
    return CHANCE.standard_normal(shape).astype(np.float32)


def places(size: int, *shape: int) -> Any:
    return CHANCE.integers(0, size, shape)


def boxes(count: int) -> Any:
    middle, sides = CHANCE.random((1, count, 2)) * 640, CHANCE.random((1, count, 2)) * 120 + 8
    return np.concatenate([middle - sides / 2, middle + sides / 2], -1).astype(np.float32)


def top(count: int, axis: int = -1) -> Callable[..., Any]:
    return lambda b, x: b.TopK(x, [count], axis=axis)


def kept(most: int, overlap: float, least: float) -> Callable[..., Any]:
    return lambda b, x, scores: b.NonMaxSuppression(x, scores, np.int64(most), np.float32(overlap), np.float32(least))


def spectrum(onesided: bool) -> Callable[..., Any]:
    return lambda b, x: b.add(DFT(onesided=onesided), x, b.constant([1]))[0]


def product(b: Builder, x: Any, y: Any) -> Any:
    return b.MatMul(x, y)


def cases() -> list[Case]:
    image, positions, words = real(1, 21, 520, 520), places(2, 1, 512), places(30522, 1, 128)
    scores = (CHANCE.random((1, 80, 8400)) ** 6).astype(np.float32)
    return [
        Case("TopK, 300 of 8400", {"x": real(1, 8400)}, top(300)),
        Case("TopK, 5 of 1000", {"x": real(1, 1000)}, top(5)),
        Case("TopK, 50 of 50257", {"x": real(1, 50257)}, top(50)),
        Case("TopK, all of 50257", {"x": real(1, 50257)}, top(50257)),
        Case("TopK, 1 of 80, 8400 times", {"x": real(1, 8400, 80)}, top(1)),
        Case("TopK, 10 of 1000 along axis 1", {"x": real(8, 1000, 256)}, top(10, 1)),
        Case("ArgMax of 50257", {"x": real(1, 50257)}, lambda b, x: b.ArgMax(x, axis=1)),
        Case("ArgMax of 21 channels", {"x": image}, lambda b, x: b.ArgMax(x, axis=1)),
        Case("CumSum of 512 integers", {"x": positions}, lambda b, x: b.CumSum(x, np.int64(1))),
        Case("Gather, 128 rows of 768", {"x": real(30522, 768), "i": words}, lambda b, x, i: b.Gather(x, i, axis=0)),
        Case(
            "GatherElements, 12 x 512 x 512", {"x": real(12, 512, 512), "i": places(512, 12, 512, 512)},
            lambda b, x, i: b.GatherElements(x, i, axis=2),
        ),
        Case("GatherND, 1000 rows of 85", {"x": real(8400, 85), "i": places(8400, 1000, 1)}, lambda b, x, i: b.GatherND(x, i)),
        Case("NonMaxSuppression, 8400 boxes, 80 classes", {"x": boxes(8400), "scores": scores}, kept(100, 0.5, 0.25)),
        Case("NonMaxSuppression, 8400 boxes", {"x": boxes(8400), "scores": scores[:, :1]}, kept(300, 0.5, 0.1)),
        Case(
            "ScatterElements, 50000 x 64 added",
            {"x": real(5000, 64), "i": places(5000, 50000, 64), "u": real(50000, 64)},
            lambda b, x, i, u: b.ScatterElements(x, i, u, axis=0, reduction="add"),
        ),
        Case(
            "ScatterND, 512 rows of 768 of 8192", {"x": real(8192, 768), "i": places(8192, 512, 1), "u": real(512, 768)},
            lambda b, x, i, u: b.ScatterND(x, i, u),
        ),
        Case("Trilu, 16 x 512 x 512", {"x": real(16, 512, 512)}, lambda b, x: b.Trilu(x, upper=False)),
        Case("ReduceSum of i64, 512 x 4096", {"x": places(99, 512, 4096)}, lambda b, x: b.ReduceSum(x, [1])),
        Case("ReduceMax of i64, 4096 x 512, axis 0", {"x": places(99, 4096, 512)}, lambda b, x: b.ReduceMax(x, [0])),
        Case("MatMul of f64, 256 x 256 x 256", {"x": real(256, 256).astype("f8"), "y": real(256, 256).astype("f8")}, product),
        Case("DFT, 256 real signals of 1024", {"x": real(256, 1024, 1)}, spectrum(True)),
        Case("DFT, 64 signals of 1000", {"x": real(64, 1000, 2)}, spectrum(False)),
        Case("DFT, 16 signals of 1009", {"x": real(16, 1009, 2)}, spectrum(False)),
        Case("GridSample, 32 x 64 x 64", {"x": real(1, 32, 64, 64), "g": real(1, 64, 64, 2)}, lambda b, x, g: b.GridSample(x, g)),
    ]  # fmt: skip


def model_of(case: Case) -> Model:
    with Builder() as b:
        values = [b.input(name, str(dovetail.ir.dtypes.dtype(array.dtype)), array.shape) for name, array in case.inputs.items()]
        found = case.write(b, *values)
        for place, value in enumerate(found if isinstance(found, tuple | list) else [found]):
            b.output(f"y{place}", value)
    return b.model


def onnxruntime_call(model: Model, case: Case, threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        dovetail.save(model, path)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, case.inputs)


def compiled_microseconds(engine: Engine, case: Case, rounds: int) -> float:
    bound, arrays = engine.bind(case.inputs)
    in_python = {id(step) for step, _ in bound.python_steps}
    native = [place for place, step in enumerate(bound.plan.steps) if id(step) not in in_python]
    names = [value.name for value in engine.model.outputs]
    return statistics.median(
        sum(times[place] for place in native) / 1e3 for times in (step_times(bound, arrays, names) for _ in range(rounds))
    )


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median microseconds of a call; what takes long is called less often."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name, call in calls.items():
            if number > 2 and sum(times[name]) > 2e6:
                continue
            begin = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begin) * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=51)
    options = parser.parse_args()
    print(f"{'':44}{'step':>9}{'native':>10}{'onnxruntime':>13}{'own rule':>12}")
    for case in cases():
        if options.texts and not any(text in case.name for text in options.texts):
            continue
        model = model_of(case)
        engine = Engine(model, options.threads)
        calls = {
            "native": lambda engine=engine, case=case: list(engine(case.inputs).values()),
            "onnxruntime": onnxruntime_call(model, case, options.threads),
            "own rule": lambda model=model, case=case: list(dovetail.interpret(model, case.inputs).values()),
        }
        first, *others = [call() for call in calls.values()]
        for other in others:
            for ours, theirs in zip(first, other, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * float(np.abs(theirs).max(initial=1)))
        found = measured(calls, options.rounds)
        step = compiled_microseconds(engine, case, options.rounds)
        print(
            f"{case.name:44}{step:9.1f}{found['native']:10.1f}{found['onnxruntime']:13.1f}{found['own rule']:12.1f}", flush=True
        )


if __name__ == "__main__":
    main()
