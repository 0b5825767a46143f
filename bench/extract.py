"""Extract parts between random values of a corpus's models, and compare them with the same values of the whole models.

    python bench/extract.py CORPUS_FOLDER [--pairs N] [--seed N] [--models TEXT[,TEXT...]] [--seconds S] [--json]

A pair is a random source among the values that a random target depends on; some parts have two sources or two targets. Every
file (.onnx and .xml) has its share of the pairs extracted in a process of its own. The whole model with all sources and targets
as outputs (``Model.add_outputs``) runs in the format's own runtime, onnxruntime or OpenVINO. Each part is written in its own
format and read again; it gets the sources and must give the targets, in that runtime and in both engines of dovetail.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import dovetail  # noqa: E402
from assertions import assert_close  # noqa: E402
from dovetail.errors import DovetailError, EngineError  # noqa: E402
from dovetail.ir.graph import Model, Value  # noqa: E402
from dovetail.ir.state import own_inputs  # noqa: E402
from dovetail.ir.types import Tensor  # noqa: E402
from dovetail.runtime.peers import Names, runner  # noqa: E402

Arrays = dict[str, Any]
RUNTIMES = {".onnx": "onnxruntime", ".xml": "openvino"}
ENGINES = ("interpreter", "native")
TOLERANCE = 1e-4
"""The difference that rounding explains, as a share of the largest magnitude."""


def candidates(model: Model) -> list[Value]:
    """Return the values that a node computes at run time and that both runtimes can output: tensors."""
    return [
        y
        for node in model.graph.nodes
        for y in node.outputs
        if y.constant is None and isinstance(y.type, Tensor) and y.type.dtype is not None
    ]


def ancestors(target: Value) -> list[Value]:
    """Return the tensors that a value depends on, in a fixed order, without constants."""
    found: dict[int, Value] = {}
    pending = [target]
    while pending:
        node = pending.pop().node
        for x in () if node is None else node.inputs:
            if x is not None and id(x) not in found and x.constant is None:
                found[id(x)] = x
                pending.append(x)
    return [value for value in found.values() if isinstance(value.type, Tensor) and value.type.dtype is not None]


def random_part(model: Model, values: list[Value], choose: random.Random) -> Model:
    """Extract a part between random values."""
    while True:
        target = choose.choice(values)
        before = ancestors(target)
        if not before:
            continue
        sources = [choose.choice(before)]
        targets = [target]
        if choose.random() < 0.25:
            sources.append(choose.choice(before))
        if choose.random() < 0.25:
            targets.append(choose.choice(values))
        try:
            return dovetail.extract(model, [x.name for x in sources], [y.name for y in targets])
        except DovetailError as error:
            # A second source may be covered by the first, and a second target may be a source.
            if error.code != "extract.path" or len(sources) + len(targets) == 2:
                raise


def feed(model: Model, stored: Arrays) -> Arrays:
    """Return the stored inputs by the model's names; a file that names them otherwise has them in the stored order."""
    values = own_inputs(model)
    keys = [next((name for name in (value.name, *value.names) if name in stored), None) for value in values]
    if None in keys:
        keys = list(stored)
    return {value.name: stored[str(key)] for value, key in zip(values, keys, strict=True)}


def ask(path: Path, count: int, seed: int, record: dict[str, Any]) -> list[str]:
    """Return the fault of each of ``count`` parts of a file; empty for a part without one."""
    choose = random.Random(f"{seed} {path.name}")
    model = dovetail.load(path)
    values = candidates(model)
    parts = [random_part(model, values, choose) for _ in range(count)]
    with np.load(path.parent / f"{path.name.removesuffix(path.suffix)}.in.npz") as stored:
        own = feed(model, dict(stored))
    needed = {name: None for part in parts for name in [*_names(part.inputs), *_names(part.outputs)] if name not in own}
    whole = model.add_outputs(list(needed))
    with tempfile.TemporaryDirectory() as folder:
        foreign = None
        try:
            foreign = {**own, **run_whole(whole, Path(folder) / f"whole{path.suffix}", own)}
        except EngineError as error:
            # The runtime lacks a kernel that it does not need without these outputs.
            print(f"{path.name}: the reference is dovetail's interpreter: {error.message}", file=sys.stderr)
        known = foreign
        if foreign is None or record["lowp"]:
            known = {**own, **dovetail.run(whole, own, "interpreter")}
        tolerance = max(TOLERANCE, record["tolerance"]) if record["lowp"] else TOLERANCE
        return [check(part, Path(folder) / f"part{path.suffix}", foreign, known, tolerance) for part in parts]


def _names(values: list[Value]) -> list[str]:
    return [value.name for value in values]


def run_in_own_runtime(path: Path, names: Names, arrays: Arrays) -> Arrays:
    """Run a file in the runtime of its format. Raises EngineError."""
    if path.suffix == ".xml":
        return runner("openvino", str(path), 1, names, exact=True).run(arrays)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return dict(zip(names.outputs, session.run(list(names.outputs), arrays), strict=True))
    except Exception as error:
        raise EngineError("runtime.run", f"onnxruntime cannot run the model: {' '.join(str(error).split())[:300]}") from error


def run_whole(whole: Model, path: Path, own: Arrays) -> Arrays:
    dovetail.save(whole, path)
    saved = dovetail.load(path)
    states = {name for state in whole.states for name in state.outputs}
    names = Names(_names(own_inputs(saved)), [name for name in _names(whole.outputs) if name not in states])
    return run_in_own_runtime(path, names, own)


def check(part: Model, path: Path, foreign: Arrays | None, known: Arrays | None, tolerance: float) -> str:
    """Return the fault of a part that is saved, loaded and run in its format's runtime and in dovetail; empty without one.

    ``foreign`` and ``known`` are the values of the whole, in that runtime and for dovetail's engines. A ``tolerance`` above
    TOLERANCE is that of a model of low precision; the interpreter must be exact also there.
    """
    assert known is not None
    title = f"{', '.join(_names(part.inputs))} -> {', '.join(_names(part.outputs))}"
    names = Names(_names(part.inputs), _names(part.outputs))
    where = "save"
    try:
        dovetail.save(part, path)
        where = "load"
        loaded = dovetail.load(path)
        if Names(_names(loaded.inputs), _names(loaded.outputs)) != names:
            return f"{title}: other names after loading: {loaded!r}"
        if foreign is not None:
            where = RUNTIMES[path.suffix]
            compare(run_in_own_runtime(path, names, {name: foreign[name] for name in names.inputs}), foreign, tolerance)
        arrays = {name: known[name] for name in names.inputs}
        for engine in ENGINES:
            where = engine
            outputs = dict(dovetail.compile(loaded, engine, threads=1 if engine == "native" else None)(arrays))
            compare(outputs, known, TOLERANCE if engine == "interpreter" else tolerance)
        where = "native, in memory"
        compare(dict(dovetail.compile(part, threads=1)(arrays)), known, tolerance)
    except (Exception, AssertionError) as error:
        return f"{title}: {where}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return ""


def compare(outputs: Arrays, known: Arrays, tolerance: float) -> None:
    """Raise AssertionError where outputs differ; above TOLERANCE integers may differ by that share of the range of 8 bits."""
    for name, array in outputs.items():
        wanted = np.asarray(known[name])
        if tolerance > TOLERANCE and wanted.dtype.kind in "iu" and array.dtype == wanted.dtype and array.shape == wanted.shape:
            difference = np.abs(array.astype(np.int64) - wanted.astype(np.int64)).max(initial=0)
            assert difference <= tolerance * 256, f"{name}: integers differ by {difference}"
        else:
            assert_close(array, wanted, tolerance, name)


def shares(paths: list[Path], pairs: int, seed: int) -> dict[Path, int]:
    """Return the number of pairs of each file: ``pairs`` random draws among the files."""
    choose = random.Random(seed)
    counts = Counter(choose.choice(paths) for _ in range(pairs))
    return {path: counts[path] for path in paths if counts[path]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the corpus")
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default="", help="only files whose name holds one of these texts")
    parser.add_argument("--seconds", type=float, default=600, help="the most that one file may take")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    index = {record["id"]: record for record in json.loads((options.folder / "index.json").read_text(encoding="utf-8"))}
    if options.file:
        path = options.folder / options.file
        record = index[path.name.removesuffix(path.suffix)]
        print(json.dumps(ask(path, options.pairs, options.seed, record)))
        return
    texts = [text for text in options.models.split(",") if text]
    paths = [
        options.folder / f"{name}{suffix}"
        for name, record in sorted(index.items())
        for suffix in RUNTIMES
        if (options.folder / f"{name}{suffix}").exists()
        and any((options.folder / f"{name}.{reference}.npz").exists() for reference in ("ref", "ovref"))
        and not record.get("unstable_reference")
        and (not texts or any(text in name for text in texts))
    ]
    failures: dict[str, list[str]] = {}
    asked = 0
    for path, count in shares(paths, options.pairs, options.seed).items():
        asked += count
        answers = ask_in_process(options, path, count)
        wrong = [answer for answer in answers if answer]
        if wrong:
            failures[path.name] = wrong
        print(f"{path.name}: {count - len(wrong)} of {count}", *wrong, sep="\n    ", file=sys.stderr, flush=True)
    right = asked - sum(map(len, failures.values()))
    if options.json:
        print(json.dumps({"pairs": asked, "right": right, "seed": options.seed, "failures": failures}, indent=1))
    else:
        print(f"{right} of {asked} parts equal the values of the whole model (seed {options.seed})")
    sys.exit(bool(failures))


def ask_in_process(options: argparse.Namespace, path: Path, count: int) -> list[str]:
    command = [sys.executable, __file__, str(options.folder), f"--file={path.name}", f"--pairs={count}", f"--seed={options.seed}"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
    except subprocess.TimeoutExpired:
        return [f"over {options.seconds:g} s"] * count
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line[:1] not in ("", " ")] or [f"exit code {ended.returncode}"]
        return [lines[-1][:500]] * count
    print(ended.stderr, end="", file=sys.stderr)
    answers: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return answers


if __name__ == "__main__":
    main()
