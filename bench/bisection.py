"""Seeded faults that `dovetail.bisect` must find: how many of them, in how many runs, and in how much memory.

    python bench/bisection.py                     100 faults in copies of the models of the corpus, in four engines
    python bench/bisection.py --memory            peak memory under a cap of 300 MB, on values of 3 GB together, by engine
    python bench/bisection.py --faults 20 --seed 7 --corpus FOLDER

A fault replaces one operator by a subtly wrong one (another epsilon, axis, rounding, padding, approximation, a scaled weight),
so that an output differs beyond the tolerance. The bound is 2 log2(n) runs of the engine under test for n operators.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from math import floor, log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import compare
from dovetail.ir.edit import connect, copy_model, set_input
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.operator_methods import operator_class
from dovetail.ops.constant import Constant
from dovetail.runtime.peers import is_installed

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"
ENGINES = ("native", "interpreter", "onnxruntime", "openvino")
MAX_BYTES = 20 << 20
"""Larger models of the corpus are left out."""


class Fault(NamedTuple):
    """A change of one node: its kind, and the function that makes it."""

    kind: str
    change: Callable[[Model, Node], None]


def attribute(name: str, change: Callable[[Any], Any]) -> Callable[[Model, Node], None]:
    def apply(model: Model, node: Node) -> None:
        node.op = node.op.with_(**{name: change(getattr(node.op, name))})

    return apply


def operator(kind: str, **attributes: Any) -> Callable[[Model, Node], None]:
    def apply(model: Model, node: Node) -> None:
        node.op = operator_class(kind)(**attributes)

    return apply


def scaled_constant(index: int, factor: float) -> Callable[[Model, Node], None]:
    """Give the node a constant of its own that is scaled; other readers keep theirs."""

    def apply(model: Model, node: Node) -> None:
        old = node.input(index)
        data = old.constant
        assert data is not None
        scaled = (data.astype(np.float64) * factor).astype(data.dtype)
        new = Value(model.graph.claim(f"{old.name}_scaled"), old.type)
        model.graph.nodes.insert(0, connect(Node(Constant(data=scaled, dtype=old.dtype), [], [new])))
        set_input(node, index, new)

    return apply


REPLACED = {
    "Relu": ("LeakyRelu", {"alpha": 0.02}),
    "Sigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    "Round": ("Floor", {}),
    "Floor": ("Ceil", {}),
    "Erf": ("Tanh", {}),
    "Tanh": ("Erf", {}),
    "Maximum": ("Add", {}),
}


def faults_of(node: Node) -> Iterator[Fault]:
    """Yield the faults that a node may have; types and shapes stay."""
    op, kind = node.op, type(node.op).__name__
    if hasattr(op, "epsilon") and isinstance(op.epsilon, float):
        yield Fault("epsilon", attribute("epsilon", lambda value: value * 100 + 1e-3))
    if kind == "Gelu" and hasattr(op, "approximate"):
        yield Fault("Gelu", attribute("approximate", lambda value: "tanh" if value == "none" else "none"))
    if kind == "Softmax" and isinstance(getattr(op, "axis", None), int) and len(node.outputs[0].shape or ()) > 2:
        yield Fault("axis", attribute("axis", lambda value: 1 if value != 1 else -1))
    if getattr(op, "count_include_pad", None) is not None and kind == "AveragePool":
        yield Fault("padding", attribute("count_include_pad", lambda value: type(value)(not value)))
    if isinstance(getattr(op, "alpha", None), float):
        yield Fault("alpha", attribute("alpha", lambda value: value * 1.05 + 1e-3))
    if kind in REPLACED:
        name, attributes = REPLACED[kind]
        yield Fault(f"{kind} to {name}", operator(name, **attributes))
    for index, x in enumerate(node.inputs):
        if x is not None and x.constant is not None and x.dtype.name in ("f32", "f16", "f64") and x.constant.size:
            yield Fault("scaled constant", scaled_constant(index, 1.01))


def make_fault(model: Model, generator: random.Random) -> tuple[Model, Node, str] | None:
    """Return a copy of the model with one fault, the node that has it, and its kind."""
    copy = copy_model(model)
    candidates = [(node, fault) for node in copy.graph.nodes for fault in faults_of(node)]
    kinds = sorted({fault.kind for _, fault in candidates})
    if not kinds:
        return None
    kind = generator.choice(kinds)
    node, fault = generator.choice([pair for pair in candidates if pair[1].kind == kind])
    try:
        fault.change(copy, node)
        return dovetail.infer(copy), node, kind
    except dovetail.DovetailError:
        return None


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("*.onnx")):
        if path.stat().st_size <= MAX_BYTES and (folder / f"{path.stem}.in.npz").exists():
            yield path.stem, path


def differs(model: Model, mutant: Model, inputs: dict[str, Any], tolerance: float | None) -> bool:
    """Return whether an output of the mutant differs beyond the tolerance, and all are finite."""
    try:
        first, second = dovetail.run(model, inputs), dovetail.run(mutant, inputs)
    except dovetail.DovetailError:
        return False
    rows = compare(dict(first), dict(second), tolerance)
    return any(not row.agrees and np.isfinite(row.relative) for row in rows)


def is_right(model: Model, engine: str, inputs: dict[str, Any], tolerance: float | None) -> bool:
    """Return whether the engine agrees with the interpreter on the outputs of the model without a fault."""
    if engine == "interpreter":
        return True
    outputs = [value.name for value in model.outputs if value.node is not None and value.constant is None]
    found = dovetail.compare_layers(
        model, engines=["interpreter", engine], inputs=inputs, values=outputs, tolerance=tolerance
    )  # fmt: skip
    return found.agrees


def tolerances(folder: Path) -> dict[str, float]:
    """Return the tolerances of the corpus for models of low precision, in which engines differ by a step of rounding."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    rows = index if isinstance(index, list) else index["models"]
    return {row["id"]: float(row["tolerance"]) for row in rows if row.get("lowp")}


def search_faults(folder: Path, count: int, seed: int, engines: list[str]) -> int:
    generator = random.Random(seed)
    every = list(models(folder))
    if not every:
        print(f"there is no corpus in {folder}")
        return 0
    allowed = tolerances(folder)
    found = within = made = 0
    rows = []
    while made < count:
        name, path = generator.choice(every)
        try:
            model = dovetail.load(path)
        except dovetail.DovetailError:
            continue
        inputs = dict(np.load(folder / f"{name}.in.npz", allow_pickle=False))
        if any(draws(node.op, node.inputs) for node in model.graph.nodes):
            continue
        fault = make_fault(model, generator)
        tolerance, engine = allowed.get(name), engines[made % len(engines)]
        if fault is None or not differs(model, fault[0], inputs, tolerance):
            continue
        mutant, node, kind = fault
        if not is_right(model, engine, inputs, tolerance):
            print(f"    {name:44} {engine:12} left out: the engine differs without a fault", flush=True)
            continue
        made += 1
        start = time.perf_counter()
        try:
            result = dovetail.bisect(model, engine=engine, other=mutant, inputs=inputs, tolerance=tolerance)
        except dovetail.DovetailError as error:
            print(f"{made:3} {name:44} {engine:12} {kind:18} fails: {error.code} {error.message[:80]}", flush=True)
            continue
        bound = floor(2 * log2(max(2, result.count)))
        is_found = result.node == node.label
        found, within = found + is_found, within + (result.runs <= bound)
        rows.append((result.count, result.runs, bound))
        text = "found" if is_found else f"{result.describe()}, not {type(node.op).__name__} {node.label}"
        print(
            f"{made:3} {name:44} {engine:12} {kind:18} n {result.count:5} runs {result.runs:3} of {bound:3} "
            f"{time.perf_counter() - start:6.1f} s  {text}", flush=True,
        )  # fmt: skip
    mean = sum(runs / bound for _, runs, bound in rows) / max(1, len(rows))
    print(f"\nfaults {made}, found {found}, within the bound {within}, runs {mean:.2f} of the bound on average")
    return 0 if found == within == made else 1


# Memory


def large_model(path: Path, nodes: int = 400, faulty: int | None = None) -> None:
    """Write a chain over activations of 8 MiB: convolutions, normalizations and elementwise operators."""
    generator = np.random.default_rng(3)
    b = dovetail.Builder("large")
    x = b.input("x", "f32", [1, 8, 512, 512])
    for index in range(nodes):
        kind = index % 20
        if kind == 0:
            weights = generator.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8
            # The fault pads on the wrong side.
            x = b.Conv(x, weights, pads=[1, 0, 1, 2] if index == faulty else [1, 1, 1, 1])
        elif kind % 4 == 1:
            x = b.Add(x, generator.standard_normal((1, 8, 1, 1)).astype(np.float32))
        elif kind % 4 == 2:
            x = b.InstanceNormalization(x, np.ones(8, np.float32), np.zeros(8, np.float32), epsilon=1e-5)
        elif kind % 4 == 3:
            x = b.Sigmoid(x)
        else:
            x = b.Multiply(x, np.full((1, 8, 1, 1), 1.5, np.float32))
    b.output("y", x)
    dovetail.save(b.model, path)


def peak_of(command: list[str]) -> tuple[int, float, str]:
    """Run a command. Returns the peak resident bytes of its process, its seconds, and its output."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    return usage.ru_maxrss * 1024, time.perf_counter() - start, text


def measure_memory(engines: list[str], cap: str, nodes: int, with_compare: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        good, bad = Path(folder) / "good.onnx", Path(folder) / "bad.onnx"
        faulty = nodes * 7 // 10 // 20 * 20
        large_model(good, nodes)
        large_model(bad, nodes, faulty)
        label = dovetail.load(bad).graph.nodes
        wanted = [node for node in label if type(node.op).__name__ == "Conv"][faulty // 20].label
        print(f"values {nodes * 8 * 512 * 512 * 4 / 1e9:.2f} GB, cap {cap}, fault in {wanted}")
        idle, _, _ = peak_of([sys.executable, "-c", "import dovetail.compare.values.layers, onnxruntime, openvino"])
        print(f"imports alone: {idle / 1e6:.0f} MB")
        ok = True
        for engine in engines:
            base = [sys.executable, "-m", "dovetail", "compare", str(good), "--with", str(bad), "--engines", engine]
            base += ["--memory", cap, "--threads", "1"]
            peak, seconds, text = peak_of([*base, "--bisect", "--part", str(Path(folder) / "part.onnx")])
            line = next((line for line in text.splitlines() if "runs, at most" in line), text[-300:])
            ok = ok and f"'{wanted}' is wrong" in line
            print(f"{engine:12} bisect   peak {peak / 1e6:5.0f} MB {seconds:6.1f} s  {line}", flush=True)
            if with_compare:
                peak, seconds, text = peak_of(base)
                line = next((line for line in text.splitlines() if line.startswith(f"{engine} (other)")), text[-300:])
                print(f"{engine:12} compare  peak {peak / 1e6:5.0f} MB {seconds:6.1f} s  {line[-120:]}", flush=True)
    return 0 if ok else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--engines", default=",".join(engine for engine in ENGINES if engine in ENGINES[:2] or is_installed(engine))
    )
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead")
    parser.add_argument("--cap", default="300MB")
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--no-compare", action="store_true", help="with --memory: bisect only")
    arguments = parser.parse_args()
    engines = arguments.engines.split(",")
    if arguments.memory:
        return measure_memory(engines, arguments.cap, arguments.nodes, not arguments.no_compare)
    return search_faults(arguments.corpus, arguments.faults, arguments.seed, engines)


if __name__ == "__main__":
    sys.exit(main())
