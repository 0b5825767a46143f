"""Measure loading, beside OpenVINO's reader, and whether the time per node stays the same in large graphs.

The first table reads densenet121 (1,746 nodes) as ONNX and as IR, interleaved, by ``dovetail.load``, which reads and infers, and
by OpenVINO's ``read_model``, in one process, so that a busy moment of the machine falls on both. The second does everything that
walks a graph on chains and wide graphs of two sizes. Exits with 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.laws.fold import fold

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from light_models import path_of

MOST_TIMES = {".onnx": 3.0, ".xml": 5.0}  # as long as OpenVINO's reader
MOST_GROWTH = 2.0  # of the time per node, from the small graph to the large one
WIDTH = 8  # of the tensors in the built graphs


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of ``work``, without those of freeing earlier objects and its result."""
    gc.collect()
    begin = clock()
    made = work()
    end = clock()
    del made
    return end - begin


def beside_openvino(path: Path, rounds: int) -> bool:
    core = openvino.Core()
    readers = {"openvino read_model": lambda: core.read_model(path), "dovetail.load": lambda: dovetail.load(path)}
    for read in readers.values():  # once unmeasured: tables built, the file in the page cache
        read()
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, read in readers.items():
            times[name].append(seconds(read))
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio, most = medians["dovetail.load"] / medians["openvino read_model"], MOST_TIMES[path.suffix]
    print(f"{path.name}, medians of {rounds}")
    for name, median in medians.items():
        print(f"  {name:<22} {median * 1e3:8.1f} ms")
    verdict = "ok" if ratio <= most else "TOO SLOW"
    print(f"  {'times':<22} {ratio:8.2f}    limit {most:.1f}  {verdict}")
    return ratio <= most


def chain(count: int) -> onnx.ModelProto:
    """``count`` nodes, each reading the one before."""
    nodes, value = [], "x"
    for index in range(0, count, 7):
        names = [f"v{index}.{step}" for step in range(8)]
        nodes += [
            helper.make_node("Relu", [value], [names[0]]),
            helper.make_node("Concat", ["half", "half"], [names[1]], axis=0),  # what folding takes away
            helper.make_node("Add", [names[0], names[1]], [names[2]]),
            helper.make_node("Concat", [names[2], names[2]], [names[3]], axis=0),
            helper.make_node("Split", [names[3], "halves"], [names[4], names[5]], axis=0),
            helper.make_node("Reshape", [names[5], "flat"], [names[6]]),
            helper.make_node("Identity", [names[6]], [names[7]]),
        ]
        value = names[7]
    return model(nodes, [value], {"half": np.ones(WIDTH // 2, np.float32), "halves": [WIDTH, WIDTH], "flat": [WIDTH]})


def wide(count: int) -> onnx.ModelProto:
    """Half of ``count`` nodes read one value, one Concat joins them, one Split parts them, half read its outputs."""
    half = count // 2
    nodes = [helper.make_node("Relu", ["x"], [f"a{index}"]) for index in range(half)]
    nodes.append(helper.make_node("Concat", [f"a{index}" for index in range(half)], ["all"], axis=0))
    nodes.append(helper.make_node("Split", ["all", "parts"], [f"b{index}" for index in range(half)], axis=0))
    nodes += [helper.make_node("Add", [f"b{index}", f"w{index}"], [f"y{index}"]) for index in range(half)]
    weights = {f"w{index}": np.full(WIDTH, index, np.float32) for index in range(half)}
    return model(nodes, [f"y{index}" for index in range(half)], {"parts": [WIDTH] * half, **weights})


def model(nodes: list[onnx.NodeProto], outputs: list[str], constants: dict[str, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "built",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH]) for name in outputs],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def walks(proto: onnx.ModelProto, folder: Path) -> dict[str, float]:
    """Processor seconds of everything that walks a graph: no runs are interleaved here, and a busy machine is not to count."""
    source, again, xml = folder / "source.onnx", folder / "again.onnx", folder / "model.xml"
    onnx.save(proto, source)
    found: dict[str, dovetail.Model] = {}

    def load() -> None:
        found["model"] = dovetail.load(source)

    steps: dict[str, Callable[[], Any]] = {
        "load ONNX": load,
        "check": lambda: dovetail.check(found["model"]),
        "infer": lambda: dovetail.infer(found["model"]),
        "fold": lambda: fold(found["model"].graph),
        "save ONNX": lambda: dovetail.save(found["model"], again),
        "convert to IR": lambda: dovetail.save(found["model"], xml),
        "load IR": lambda: dovetail.load(xml),
        "print": lambda: str(found["model"]),
    }
    times = {}
    for name, step in steps.items():
        times[name] = seconds(step, time.process_time)
    return times


def growth(small: int, large: int) -> bool:
    within = True
    for build in (chain, wide):
        times = []
        for count in (12, small, large):  # the first once unmeasured: tables are built
            with tempfile.TemporaryDirectory() as folder:
                times.append(walks(build(count), Path(folder)))
        print(
            f"\n{build.__name__:<16} {small:>9,} {large:>9,} nodes   seconds; growth of the time per node, at most {MOST_GROWTH}"
        )
        _, few, many = times
        for name in few:
            factor = many[name] / large / (few[name] / small)
            verdict = "ok" if factor <= MOST_GROWTH else "TOO SLOW"
            within = within and factor <= MOST_GROWTH
            print(f"  {name:<14} {few[name]:9.3f} {many[name]:9.3f} {factor:8.2f}  {verdict}")
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each reader")
    parser.add_argument("--sizes", type=int, nargs=2, default=(10_000, 100_000), metavar=("SMALL", "LARGE"))
    parser.add_argument("--only", choices=("openvino", "growth"), help="one of the two tables")
    options = parser.parse_args()
    within = True
    if options.only != "growth":
        within = beside_openvino(path_of("densenet121"), options.rounds)
        with tempfile.TemporaryDirectory() as folder:
            dovetail.save(dovetail.load(path_of("densenet121")), Path(folder) / "densenet121.xml")
            within = beside_openvino(Path(folder) / "densenet121.xml", options.rounds) and within
    if options.only != "openvino":
        within = growth(*options.sizes) and within
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
