"""Stacks of matrix products with weights of few bits (MatMulNBits, blocks of 32) beside onnxruntime, OpenVINO and our own f32.

Each cell is the time of one run of the stack; all are interleaved in one process, and printed are medians and their ratios to
ours (above 1: ours is faster). ``read``: a plain read of as many bytes. ``in cache``: our time if weights came from L2, from a
stack of one small product that is run again and again; it bounds the speed of the unpacking. The share is that of the longer of
both times in our time.

    python bench/few_bits.py --bits 4 --rows 1 --threads 1

``--memory``: the resident memory of a process that loads the stack from a file, compiles and runs it, in multiples of the file,
with the mapped pages of the file; for MatMulNBits and DequantizeLinear in ONNX, and OpenVINO's compressed constants in IR.

    python bench/few_bits.py --memory --size 2048 --layers 40
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import dovetail
from dovetail import Builder, Model

BLOCK = 32


def stack(layers: int, size: int, rows: int, bits: int, level: int = 0, seed: int = 0) -> Model:
    """Return ``layers`` products of ``rows`` rows with [size, size] weights; ``bits`` 32: of f32."""
    rng = np.random.default_rng(seed)
    with Builder() as b:
        x = b.input("x", "f32", (rows, size))
        for _ in range(layers):
            if bits == 32:
                x = b.MatMul(x, b.constant(rng.standard_normal((size, size)).astype(np.float32) / np.float32(size**0.5)))
                continue
            codes = rng.integers(0, 256, (size, size // BLOCK, BLOCK * bits // 8)).astype(np.uint8)
            spread = 2.0**bits / 12**0.5 * size**0.5
            scales = (rng.uniform(0.5, 1.5, (size, size // BLOCK)) / spread).astype(np.float32)
            x = b.MatMulNBits(
                x, b.constant(codes), b.constant(scales), k=size, n=size, bits=bits, block_size=BLOCK, accuracy_level=level
            )
        b.output("y", x)
    return b.model


def bytes_of(model: Model) -> int:
    return sum(value.constant.nbytes for value in model.graph.values() if value.constant is not None)


def ours(model: Model, x: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    program = dovetail.compile(model, threads=threads)
    return lambda: program({"x": x})["y"]


def onnxruntimes(model: Model, x: np.ndarray, threads: int, folder: Path) -> Callable[[], np.ndarray]:
    import onnxruntime as ort

    path = folder / f"m{len(list(folder.iterdir()))}.onnx"
    dovetail.save(model, path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def openvinos(model: Model, x: np.ndarray, threads: int, folder: Path, precision: str) -> Callable[[], np.ndarray]:
    import openvino as ov

    path = folder / f"m{len(list(folder.iterdir()))}.xml"
    dovetail.save(model, path)
    properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision:
        properties["INFERENCE_PRECISION_HINT"] = precision
    compiled = ov.Core().compile_model(path, "CPU", properties)
    return lambda: compiled([x])[0]


def reader(count: int) -> Callable[[], np.ndarray]:
    memory = np.ones(count // 8, np.int64)
    return lambda: memory.sum()


def measure_memory(path: Path, rows: int, size: int) -> tuple[float, float]:
    """Return the peak of the resident bytes of a process that compiles and runs ``path``, and the bytes after it."""
    # A first model imports all modules that a compilation needs.
    with Builder() as b:
        b.output("y", b.MatMulNBits(b.input("x", "f32", (1, BLOCK)), b.constant(np.zeros((1, 1, BLOCK // 2), np.uint8)),
                                    b.constant(np.ones((1, 1), np.float32)), k=BLOCK, n=1))  # fmt: skip
    first = path.with_name(f"first{path.suffix}")
    dovetail.save(b.model, first)
    dovetail.compile(first)(np.zeros((1, BLOCK), np.float32))
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    program = dovetail.compile(dovetail.load(path, map="always"))
    program(np.zeros((rows, size), np.float32))
    return _status("VmHWM") - before, _status("VmRSS") - before


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def print_memory(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        model = stack(args.layers, args.size, args.rows, args.bits)
        for encoding, suffix in (("matmulnbits", "onnx"), ("qdq", "onnx"), ("compressed", "xml")):
            path = Path(name) / f"{encoding}.{suffix}"
            dovetail.save(dovetail.change_encoding(model, encoding), path)
            size = sum(file.stat().st_size for file in Path(name).glob(f"{encoding}.*"))
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                peak, after = pool.submit(measure_memory, path, args.rows, args.size).result()
            print(f"{encoding:12} {size / 1e6:8.1f} MB  peak {peak / size:5.2f}  after the run {after / size:5.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=4, choices=[2, 4, 8, 32])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--level", type=int, default=0, help="accuracy_level of our model")
    parser.add_argument("--without", default="", help="peers to leave out: onnxruntime, openvino, f32")
    parser.add_argument("--memory", action="store_true", help="measure the memory of a process instead")
    args = parser.parse_args()
    if args.memory:
        print_memory(args)
        return
    left_out = args.without.split(",")
    model = stack(args.layers, args.size, args.rows, args.bits, args.level)
    x = np.random.default_rng(1).standard_normal((args.rows, args.size)).astype(np.float32)
    small_size = 1024
    small = stack(1, small_size, args.rows, args.bits, args.level)
    small_x = np.ascontiguousarray(x[:, :small_size])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls: dict[str, Callable[[], np.ndarray]] = {"ours": ours(model, x, args.threads)}
        if "onnxruntime" not in left_out:
            for level in (0, 4):
                leveled = stack(args.layers, args.size, args.rows, args.bits, level)
                calls[f"onnxruntime level {level}"] = onnxruntimes(leveled, x, args.threads, folder)
        if "openvino" not in left_out:
            calls["openvino f32"] = openvinos(model, x, args.threads, folder, "f32")
            calls["openvino default"] = openvinos(model, x, args.threads, folder, "")
        if "f32" not in left_out:
            calls["ours f32"] = ours(stack(args.layers, args.size, args.rows, 32), x, args.threads)
        calls["read"] = reader(bytes_of(model))
        calls["in cache"] = ours(small, small_x, args.threads)
        answers = {name: call() for name, call in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(args.rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                for _ in range(8 if name == "in cache" else 1):
                    call()
                times[name].append((time.perf_counter() - start) / (8 if name == "in cache" else 1))
    medians = {name: statistics.median(values) for name, values in times.items()}
    medians["in cache"] *= args.layers * (args.size / small_size) ** 2
    print(f"{args.layers} x [{args.size}, {args.size}], {args.bits} bits, {args.rows} rows, {args.threads} threads")
    print(f"{bytes_of(model) / 1e6:.0f} MB of weights")
    for name, median in medians.items():
        difference = ""
        if not name.startswith(("read", "in cache", "ours")):
            error = np.abs(answers[name] - answers["ours"]).max() / np.abs(answers["ours"]).max()
            difference = f"  largest difference {error:.1e}"
        print(f"  {name:22} {median * 1e3:9.2f} ms  {median / medians['ours']:6.2f}{difference}")
    bound = max(medians["read"] / (1 if args.threads == 1 else args.threads), medians["in cache"])
    print(f"  share of the bound: {bound / medians['ours']:.2f}")


if __name__ == "__main__":
    main()
