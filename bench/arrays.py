"""dovetail.concat, split and copy beside numpy, torch, onnxruntime and OpenVINO: medians of interleaved runs on two threads.

Every peer writes into arrays that are there already. Before each time that counts comes a rest, in which the threads that another
peer left waiting go to sleep, and calls that do not count. `of limit` compares bytes read and written per second with the
machine's limit, a plain copy of 64 MB, past all caches; `of a copy` with a plain copy of as many bytes as the cell moves,
which may lie in a cache. Both are the best of three ways, timed among the same runs.

    python bench/arrays.py [--only concat] [--json] [--seconds 1]
"""

from __future__ import annotations

import os

os.environ.setdefault("DOVETAIL_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

import dovetail

THREADS = int(os.environ["DOVETAIL_THREADS"])
LARGE, PAST_CACHES = 8 << 20, 64 << 20
# After a rest a processor takes some milliseconds until its memory runs at full speed again.
WAKING = 0.008
TYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64}
JOINS: list[tuple[list[tuple[int, ...]], int]] = [
    ([(1, 8, 50, 50), (1, 16, 50, 50), (1, 32, 50, 50)], 1),
    ([(2, 3)] * 2, 0),
    ([(1024, 1024, 4)] * 4, 0),
    ([(4096, 1024)] * 4, 1),
    ([(2**20, 4)] * 4, 1),
    ([(2**20, 1)] * 4, 1),
    ([(1, 32, 2048, 128), (1, 32, 1, 128)], 2),
    ([(1, 64)] * 256, 0),
]
ORDERS = [(0, 2, 1, 3, 4), (0, 1, 2, 4, 3), (4, 3, 2, 1, 0), (0, 3, 4, 1, 2), (1, 2, 3, 4, 0), (0, 4, 1, 2, 3)]

Call = Callable[[], Any]
Arrays = list[np.ndarray[Any, Any]]


class Cell(NamedTuple):
    """One job: its arrays, what a model of it would say, and how each peer does it."""

    name: str
    kind: str
    xs: Arrays
    ys: Arrays
    node: dict[str, Any]
    axis: int = 0
    order: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in (*self.xs, *self.ys))


def cells() -> Iterator[Cell]:
    for name, dtype in TYPES.items():
        for shapes, axis in JOINS:
            parts = [_filled(shape, dtype) for shape in shapes]
            whole = np.concatenate(parts, axis)
            words = f"{name} {_brief(shapes)} axis {axis}"
            yield Cell(f"concat {words}", "concat", parts, [np.empty_like(whole)], {"axis": axis}, axis)
            yield Cell(f"split {words}", "split", [whole], [np.empty_like(part) for part in parts], {"axis": axis}, axis)
        x = _filled((64 // np.dtype(dtype).itemsize, 32, 32, 32, 32), dtype)
        for order in ORDERS:
            y = np.empty([x.shape[i] for i in order], dtype)
            yield Cell(f"copy {name} {_brief([x.shape])} transposed {order}", "copy", [x], [y], {"perm": order}, order=order)


def _brief(shapes: list[tuple[int, ...]]) -> str:
    same = len(set(shapes)) == 1 and len(shapes) > 1
    text = ",".join("x".join(map(str, shape)) for shape in (shapes[:1] if same else shapes))
    return f"{text} *{len(shapes)}" if same else text


def _filled(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    values = np.arange(math.prod(shape)) % 119
    return values.astype(dtype).reshape(shape)


def _lengths(cell: Cell) -> list[int]:
    return [y.shape[cell.axis] for y in cell.ys]


def by_dovetail(cell: Cell) -> Call:
    if cell.kind == "concat":
        return lambda: dovetail.concat(cell.xs, cell.axis, cell.ys[0])
    if cell.kind == "split":
        lengths = _lengths(cell)
        return lambda: dovetail.split(cell.xs[0], lengths, cell.axis, cell.ys)
    view = cell.xs[0].transpose(cell.order)
    return lambda: dovetail.copy(view, cell.ys[0])


def by_numpy(cell: Cell) -> Call:
    if cell.kind == "concat":
        return lambda: np.concatenate(cell.xs, cell.axis, out=cell.ys[0])
    if cell.kind == "split":
        ends = list(accumulate(_lengths(cell)))[:-1]

        def split() -> None:
            for y, view in zip(cell.ys, np.split(cell.xs[0], ends, cell.axis), strict=True):
                np.copyto(y, view)

        return split
    view = cell.xs[0].transpose(cell.order)
    return lambda: np.copyto(cell.ys[0], view)


def by_torch(cell: Cell) -> Call:
    import torch

    torch.set_num_threads(THREADS)
    xs, ys = [torch.from_numpy(x) for x in cell.xs], [torch.from_numpy(y) for y in cell.ys]
    if cell.kind == "concat":
        return lambda: torch.cat(xs, cell.axis, out=ys[0])
    if cell.kind == "split":
        lengths = _lengths(cell)
        return lambda: torch.split_with_sizes_copy(xs[0], lengths, cell.axis, out=ys)
    view = xs[0].permute(cell.order)
    return lambda: ys[0].copy_(view)


def model_of(cell: Cell) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(cell.xs[0].dtype)
    names = [f"x{i}" for i in range(len(cell.xs))]
    outs = [f"y{i}" for i in range(len(cell.ys))]
    word = {"concat": "Concat", "split": "Split", "copy": "Transpose"}[cell.kind]
    held = [numpy_helper.from_array(np.array(_lengths(cell), np.int64), "lengths")] if cell.kind == "split" else []
    node = helper.make_node(word, [*names, *(each.name for each in held)], outs, **cell.node)
    ins, results = (
        [helper.make_tensor_value_info(name, kind, array.shape) for name, array in zip(ns, arrays, strict=True)]
        for ns, arrays in ((names, cell.xs), (outs, cell.ys))
    )
    assert kind != TensorProto.UNDEFINED
    graph = helper.make_graph([node], "one", ins, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def by_onnxruntime(cell: Cell) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model_of(cell).SerializeToString(), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    for arrays, bind, names in (
        (cell.xs, binding.bind_input, session.get_inputs()),
        (cell.ys, binding.bind_output, session.get_outputs()),
    ):
        for array, name in zip(arrays, names, strict=True):
            bind(name.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def by_openvino(cell: Cell) -> Call:
    import openvino

    core = openvino.Core()
    model = core.read_model(model_of(cell).SerializeToString())
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    for i, x in enumerate(cell.xs):
        request.set_input_tensor(i, openvino.Tensor(x, shared_memory=True))
    for i, y in enumerate(cell.ys):
        request.set_output_tensor(i, openvino.Tensor(y, shared_memory=True))
    return request.infer


PEERS = {"dovetail": by_dovetail, "numpy": by_numpy, "torch": by_torch, "onnxruntime": by_onnxruntime, "openvino": by_openvino}


def copies(count: int, threads: ThreadPoolExecutor) -> dict[str, Call]:
    """Three ways to copy that many bytes in one piece."""
    import torch

    x, y = _filled((count,), np.uint8), np.empty(count, np.uint8)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    cuts = [slice(i * count // THREADS, (i + 1) * count // THREADS) for i in range(THREADS)]
    return {
        f"{count} by torch": lambda: ty.copy_(tx),
        f"{count} by dovetail": lambda: dovetail.copy(x, y),
        f"{count} by numpy": lambda: list(threads.map(lambda part: np.copyto(y[part], x[part]), cuts)),
    }


def is_right(cell: Cell) -> bool:
    if cell.kind == "copy":
        return bool((cell.ys[0] == cell.xs[0].transpose(cell.order)).all())
    whole, parts = (cell.ys[0], cell.xs) if cell.kind == "concat" else (cell.xs[0], cell.ys)
    return bool((np.concatenate(parts, cell.axis) == whole).all())


def prepared(cell: Cell) -> dict[str, Call]:
    """Each peer that is installed and does this job right."""
    calls = {}
    for name, make in PEERS.items():
        for y in cell.ys:
            y[...] = 0
        try:
            call = make(cell)
            call()
        except (ImportError, RuntimeError, NotImplementedError, TypeError) as error:
            if name == "dovetail":
                raise
            print(f"  {name} does not: {str(error).splitlines()[0][:100]}")
            continue
        if is_right(cell):
            calls[name] = call
        elif name == "dovetail":
            raise AssertionError(cell.name)
        else:
            print(f"  {name}: another result")
    return calls


def timed(groups: list[dict[str, Call]], seconds: float) -> list[dict[str, float]]:
    """Medians of interleaved runs, each after a rest and calls that do not count. Who takes four times its group's best stops."""
    repeats = [{name: _repeats(call) for name, call in calls.items()} for calls in groups]
    # Deferred: bench/builds.py reads the cells in checkouts whose modules have other names.
    from dovetail.measure.benchmark import REST

    samples: list[dict[str, list[float]]] = [{name: [] for name in calls} for calls in groups]
    start, rounds = time.perf_counter(), 0
    while rounds < 5 or time.perf_counter() - start < seconds:
        for calls, often, taken in zip(groups, repeats, samples, strict=True):
            best = min((statistics.median(each) for each in taken.values() if each), default=math.inf)
            for name, call in calls.items():
                if rounds >= 3 and statistics.median(taken[name]) > 4 * best:
                    continue
                time.sleep(REST)
                _wake(call)
                taken[name].append(_once(call, often[name]))
        rounds += 1
    return [{name: statistics.median(each) for name, each in taken.items()} for taken in samples]


def _wake(call: Call) -> None:
    start = time.perf_counter()
    while time.perf_counter() - start < WAKING:
        call()


def _once(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _repeats(call: Call) -> int:
    once = min(_once(call, 1) for _ in range(3))
    return max(1, min(2000, int(5e-4 / once)))


def row(cell: Cell, seconds: float, limit: dict[str, Call], threads: ThreadPoolExecutor) -> dict[str, Any]:
    count = cell.bytes // 2
    plain = [limit, copies(count, threads)] if count >= LARGE else []
    times, *plainly = timed([prepared(cell), *plain], seconds)
    mine = times["dovetail"]
    peers = {name: time for name, time in times.items() if name != "dovetail"}
    best = min(peers, key=lambda name: peers[name])
    past_caches, as_many = (min(each.values()) for each in plainly) if plainly else (math.nan, math.nan)
    return {
        "cell": cell.name,
        "us": {name: time * 1e6 for name, time in times.items()},
        "best": best,
        "ratio": peers[best] / mine,
        "numpy": peers["numpy"] / mine,
        "GB/s": cell.bytes / mine / 1e9,
        "of limit": past_caches / PAST_CACHES * count / mine,
        "of a copy": as_many / mine,
    }


def mean(numbers: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, numbers)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="cells whose name holds this")
    options.add_argument("--seconds", type=float, default=2.0, help="for each cell")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    rows = []
    with ThreadPoolExecutor(THREADS) as threads:
        limit = copies(PAST_CACHES, threads)
        for cell in cells():
            if chosen.only not in cell.name:
                continue
            rows.append(found := row(cell, chosen.seconds, limit, threads))
            if not chosen.json:
                shares = (f"{found[word]:5.0%} {word}" for word in ("of limit", "of a copy") if not math.isnan(found[word]))
                print(
                    f"{found['cell']:62} {found['us']['dovetail']:10.1f} us  {found['ratio']:5.2f} of {found['best']:11} "
                    f"{found['numpy']:6.2f} of numpy  {found['GB/s']:6.1f} GB/s {' '.join(shares)}",
                    flush=True,
                )
    summary = {
        "cells": len(rows),
        "geometric mean, best peer": mean([each["ratio"] for each in rows]),
        "geometric mean, numpy": mean([each["numpy"] for each in rows]),
        "least ratio": min(each["ratio"] for each in rows),
        "least share of limit": min((each["of limit"] for each in rows if not math.isnan(each["of limit"])), default=None),
        "threads": THREADS,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({"rows": rows, "summary": summary}, indent=1) if chosen.json else summary)


if __name__ == "__main__":
    main()
