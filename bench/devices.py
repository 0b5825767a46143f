"""The models of bench/models.py and movement of tensors on a device: JAX, torch and torch.compile beside the native engine.

    python bench/devices.py [--models NAME ...] [--device cpu|cuda:0] [--backends jax torch torch.compile] [--rounds N] [--json]
    python bench/devices.py --movement [--device ...]
    python bench/devices.py --literals [--models NAME ...]

Medians of interleaved calls from numpy to numpy, as ratios to the native engine (on the processor, all cores); "first" is the
first call in seconds, which compiles. On a GPU onnxruntime's CUDA provider is measured too, where it is installed. With
--movement: Concat, Split and Transpose of 64 MiB whose arrays stay on the device, as a share of the rate of the library's copy.
With --literals: the first call of JAX with all weights as literals of the compiled program, beside weights as arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import median_times

sys.path[:0] = [str(Path(__file__).resolve().parent)]
from models import MODELS, difference  # noqa: E402

BACKENDS = ("jax", "torch", "torch.compile")
SIDE = 4096


def compiled(model: dovetail.Model, backend: str, device: str, **options: Any) -> Any:
    library, _, is_compiled = backend.partition(".")
    name = device.replace("gpu", "cuda") if library == "torch" else device.replace("cuda", "gpu")
    return dovetail.compile(model, library, device=dovetail.DeviceOptions(name, torch_compile=bool(is_compiled), **options))


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    proto, feed = MODELS[name]()
    model = dovetail.load(proto)
    native = dovetail.compile(model)
    expected = native(feed)
    calls: dict[str, Callable[[], Any]] = {"native": lambda: native(feed)}
    row: dict[str, Any] = {"model": name, "device": options.device, "first": {}, "difference": {}}
    for backend in options.backends:
        program = compiled(model, backend, options.device)
        begin = time.perf_counter()
        found = program(feed)
        row["first"][backend] = time.perf_counter() - begin
        row["difference"][backend] = difference(found, expected)
        calls[backend] = lambda program=program: program(feed)
    if options.device != "cpu":
        calls |= _cuda_provider(proto.SerializeToString(), feed)
    times = median_times(calls, options.rounds)
    row["ms"] = {each: seconds * 1e3 for each, seconds in times.items()}
    row["ratio"] = {each: seconds / times["native"] for each, seconds in times.items()}
    return row


def _cuda_provider(data: bytes, feed: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the call of onnxruntime's CUDA provider; none where it is not installed."""
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return {}
    session = onnxruntime.InferenceSession(data, providers=["CUDAExecutionProvider"])
    return {"onnxruntime CUDA": lambda: session.run(None, dict(feed))}


def text(row: Mapping[str, Any]) -> str:
    cells = [f"native {row['ms']['native']:.1f} ms"]
    for backend, ratio in row["ratio"].items():
        if backend != "native":
            first = (
                f", first {row['first'][backend]:.1f} s, difference {row['difference'][backend]:.0e}"
                if backend in row["first"]
                else ""
            )
            cells.append(f"{backend} {ratio:.2f}{first}")
    return f"{row['model']:26} {'; '.join(cells)}"


def movement(backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the share of the copy rate of each operator: bytes read and written in a second."""
    programs = {}
    for operator in ("Concat", "Split", "Transpose"):
        with dovetail.Builder() as b:
            x = b.input("x", "f32", (SIDE, SIDE))
            if operator == "Concat":
                b.output("y", b.Concat(x, b.input("x2", "f32", (SIDE, SIDE)), axis=1))
            elif operator == "Split":
                for index, y in enumerate(b.Split(x, [SIDE // 4, 3 * SIDE // 4], axis=1, outputs=2)):
                    b.output(f"y{index}", y)
            else:
                b.output("y", b.Transpose(x, [1, 0]))
        programs[operator] = compiled(b.model, backend, options.device, results="device")
    array = np.random.default_rng(0).standard_normal((SIDE, SIDE), np.float32)
    library = programs["Concat"]
    if backend == "jax":
        import jax

        placed: Any = jax.device_put(array, library.device)
        wait: Callable[[Any], Any] = jax.block_until_ready
        copy: Callable[[Any], Any] = jax.jit(lambda item: item.copy())
    else:
        import torch

        placed = torch.from_numpy(array).to(library.device)

        def wait(item: Any) -> Any:
            if placed.device.type == "cuda":
                torch.cuda.synchronize()

        copy = torch.clone
        # Views are no movement: what is measured is a result of its own in row-major order.
    own = (lambda item: item) if backend == "jax" else (lambda item: item.contiguous())
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: wait(copy(x))}
    for operator, program in programs.items():
        feed = [x, x] if operator == "Concat" else [x]
        calls[operator] = lambda program=program, feed=feed: wait([own(y) for y in program(feed).values()])
    times = median_times(calls, options.rounds)
    rate = {each: (2 if each == "Concat" else 1) * array.nbytes * 2 / seconds for each, seconds in times.items()}
    return {"backend": backend, "copy GB/s": rate["copy"] / 1e9, **{each: rate[each] / rate["copy"] for each in programs}}


def literals(name: str) -> dict[str, Any]:
    """Return the first call of JAX with weights as arguments, and with weights as literals."""
    from dovetail.runtime.devices import jax_program

    proto, feed = MODELS[name]()
    model = dovetail.load(proto)
    row: dict[str, Any] = {"model": name}
    for kind, elements in (("arguments", jax_program.LITERAL_ELEMENTS), ("literals", 1 << 62)):
        jax_program.LITERAL_ELEMENTS = elements
        program = dovetail.compile(model, "jax", device=dovetail.DeviceOptions("cpu"))
        begin = time.perf_counter()
        program(feed)
        row[kind] = time.perf_counter() - begin
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="the beginnings of their names")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--movement", action="store_true")
    parser.add_argument("--literals", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.movement:
        rows = [movement(backend, options) for backend in options.backends]
        print(json.dumps(rows, indent=1))
        return
    for name in MODELS:
        if name.startswith(tuple(options.models)):
            row = literals(name) if options.literals else measured(name, options)
            print(json.dumps(row) if options.json or options.literals else text(row), flush=True)


if __name__ == "__main__":
    main()
