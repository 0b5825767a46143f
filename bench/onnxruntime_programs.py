"""Programs written for onnxruntime, run with onnxruntime and with dovetail.compat.onnxruntime in its place.

    python bench/onnxruntime_programs.py [--samples FOLDER] [--only TEXT] [--page]

The programs are packages out of wheels that carry models (onnxruntime_wheels.txt, installed into build/onnxruntime_programs
without dependencies), run by their entry points in onnxruntime_packages.py; and the samples in FOLDER or the variable
DOVETAIL_SAMPLES: Python files, and .rst files whose blocks of Python are joined. Samples are onnxruntime's own, from
docs/python/inference of its repository and python/api of microsoft/onnxruntime-inference-examples.

Each program runs once with each module, in a process of its own, with the same seeds. Compared are the results of every run of
every session, in order, and the answer of an entry point. --page writes docs/measurements/onnxruntime_programs.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import pickle
import random
import re
import runpy
import subprocess
import sys
import tempfile
import textwrap
import time
import timeit
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "onnxruntime_programs"
PAGE = ROOT / "docs" / "measurements" / "onnxruntime_programs.md"
MODULES = {"onnxruntime": "onnxruntime", "dovetail": "dovetail.compat.onnxruntime"}
TOLERANCE, RUN_TOLERANCE = 1e-4, 1e-3
"""The largest differences of an answer and of one run of a session that count as equal; see ``difference``."""
RUNS = 500
"""The number of runs of a program whose results are kept."""
SECONDS = 600
NOTES = {
    "plot_common_errors.py": "runs to its end with both modules. Its model has a LinearClassifier with coefficients for 4\n"
    "  features, and an input of 2 features: onnxruntime runs it, dovetail loads it and refuses the runs.",
    "plot_convert_pipeline_vectorizer.py": "got other data, because scikit-learn no longer has the Boston data.",
}
"""Remarks of the page on programs."""


# The child: one program with one module


def install_module(module: str) -> Any:
    """Import the module under the name onnxruntime, and return it."""
    spec = importlib.util.find_spec("onnxruntime")
    ort = importlib.import_module(MODULES[module])
    if module == "dovetail":
        sys.modules["onnxruntime"] = ort
        if spec is not None and spec.origin is not None:
            # The models of onnxruntime's samples are files of its package.
            path = Path(spec.origin).parent / "datasets" / "__init__.py"
            datasets = importlib.util.spec_from_file_location("onnxruntime.datasets", path)
            assert datasets is not None and datasets.loader is not None
            sys.modules["onnxruntime.datasets"] = examples = importlib.util.module_from_spec(datasets)
            vars(ort)["datasets"] = examples
            datasets.loader.exec_module(examples)
    return ort


def record_runs(ort: Any) -> list[Any]:
    """Return a list to which each run of a session appends its results."""
    found: list[Any] = []
    session = ort.InferenceSession
    run, run_with_iobinding = session.run, session.run_with_iobinding

    def recorded_run(self: Any, *arguments: Any, **options: Any) -> Any:
        results = run(self, *arguments, **options)
        if len(found) < RUNS:
            found.append(results)
        return results

    def recorded_binding(self: Any, binding: Any, *arguments: Any) -> None:
        run_with_iobinding(self, binding, *arguments)
        if len(found) < RUNS:
            found.append(binding.copy_outputs_to_cpu())

    session.run, session.run_with_iobinding = recorded_run, recorded_binding
    return found


def adapt_sample(program: str) -> None:
    """Time each statement once, and give the diabetes data of scikit-learn for the Boston data, which it no longer has."""
    timeit.Timer.repeat = lambda self, *_, **__: [self.timeit(1)]  # type: ignore[method-assign]
    if os.path.exists(program) and "load_boston" in Path(program).read_text("utf-8"):
        datasets = importlib.import_module("sklearn.datasets")
        datasets.load_boston = datasets.load_diabetes  # type: ignore[attr-defined]


def run_child(module: str, program: str, target: str) -> None:
    """Run a program, and write its answer, the results of its sessions and its seconds to ``target``."""
    ort = install_module(module)
    runs = record_runs(ort)
    random.seed(0)
    np.random.seed(0)
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").manual_seed(0)
    adapt_sample(program)
    answer, fault = None, ""
    start = time.perf_counter()
    try:
        if os.path.exists(program):
            runpy.run_path(program, run_name="__main__")
        else:
            answer = importlib.import_module("onnxruntime_packages").PACKAGES[program]()
    except Exception:
        fault = traceback.format_exc()
    seconds = time.perf_counter() - start
    loaded = [name for name, item in sys.modules.items() if (getattr(item, "__file__", "") or "").endswith(".so")]
    is_foreign = any("onnxruntime" in name for name in loaded)
    assert is_foreign == (module == "onnxruntime"), loaded
    Path(target).write_bytes(pickle.dumps({"answer": answer, "runs": runs, "fault": fault, "seconds": seconds}))


# The parent


def fill() -> None:
    """Install the packages if they are not installed yet."""
    if (FOLDER / ".done").exists():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade"]
    requirements = ROOT / "bench" / "onnxruntime_wheels.txt"
    subprocess.run([*command, "--target", str(FOLDER / "packages"), "--requirement", str(requirements)], check=True)
    (FOLDER / ".done").touch()


def program_of(path: Path, folder: Path) -> Path:
    """Return the Python file of a sample; the blocks of a .rst file are joined and written to ``folder``."""
    if path.suffix == ".py":
        return path.resolve()
    blocks = re.findall(
        r"^\.\. (?:runpython|code-block:: python).*\n(?:    :.*\n)*\n((?:(?:    .*)?\n)+)", path.read_text("utf-8"), re.M
    )
    target = folder / f"{path.stem}.py"
    target.write_text("\n".join(textwrap.dedent(block) for block in blocks), "utf-8")
    return target


def run_program(program: str, module: str, folder: Path) -> dict[str, Any]:
    target = folder / f"{module}.pickle"
    packages = "" if os.path.exists(program) else str(FOLDER / "packages")
    paths = [packages, str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "MPLBACKEND": "agg"}
    command = [sys.executable, __file__, "--child", module, program, str(target)]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )  # fmt: skip
    if not target.exists():
        return {"fault": ended.stderr or f"exit code {ended.returncode}", "runs": [], "answer": None, "seconds": 0.0}
    found: dict[str, Any] = pickle.loads(target.read_bytes())
    return found


def difference(one: Any, other: Any) -> float:
    """Return the largest difference of two answers: absolute, or of arrays beyond 1 a share of their magnitude.

    It is infinite if types, shapes, texts or integers differ.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return difference(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if one and all(isinstance(item, float) for item in (*one, *other)):
            return difference(np.array(one), np.array(other))
        if len(one) != len(other):
            return np.inf
        return max((difference(item, expected) for item, expected in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, np.ndarray | float) and isinstance(other, np.ndarray | float):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype != second.dtype or first.shape != second.shape:
            return np.inf
        if first.dtype.kind != "f":
            return 0.0 if np.array_equal(first, second) else np.inf
        if not first.size or np.array_equal(first, second, equal_nan=True):
            return 0.0
        return float(np.abs(first - second).max() / max(np.abs(second).max(), 1.0))
    return 0.0 if type(one) is type(other) and one == other else np.inf


def compare(program: str) -> dict[str, Any]:
    """Run a program with both modules, and return a row of the table."""
    found = {}
    for module in MODULES:
        with tempfile.TemporaryDirectory() as folder:
            found[module] = run_program(program, module, Path(folder))
    theirs, ours = found["onnxruntime"], found["dovetail"]
    if theirs["fault"] or ours["fault"]:
        first = next(module for module in MODULES if found[module]["fault"])
        return {"verdict": f"fails with {first}", "fault": found[first]["fault"], "runs": 0, "runs_differ": 0.0, "answer": 0.0}
    runs, answer = difference(ours["runs"], theirs["runs"]), difference(ours["answer"], theirs["answer"])
    is_equal = runs <= RUN_TOLERANCE and answer <= TOLERANCE
    return {
        "verdict": "equal" if is_equal else "differs", "fault": "", "runs": len(ours["runs"]), "runs_differ": runs,
        "answer": answer,
        "seconds": [theirs["seconds"], ours["seconds"]],
    }  # fmt: skip


def page(rows: dict[str, dict[str, Any]]) -> str:
    """docs/measurements/onnxruntime_programs.md."""
    lines = [
        "# Programs of onnxruntime that run with dovetail",
        "",
        f"Written by `python bench/onnxruntime_programs.py --page`, with onnxruntime {metadata.version('onnxruntime')}.",
        "Each program ran once with onnxruntime and once with `dovetail.compat.onnxruntime` in its place.",
        "Differences are absolute, or for arrays beyond 1 shares of the largest magnitude. Up to",
        f"{RUN_TOLERANCE:g} of a run and {TOLERANCE:g} of an answer count as equal: tensors between two models of a program,",
        "such as states, differ more than its answer.",
        "",
        "| Program | Verdict | Runs | Largest difference of the runs | of the answer |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {name} | {row['verdict']} | {row['runs']} | {row['runs_differ']:.2g} | {row['answer']:.2g} |"
            for name, row in rows.items()
        ),
    ]
    notes = [f"- {name}: {note}" for name, note in NOTES.items() if name in rows]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", default=os.environ.get("DOVETAIL_SAMPLES", ""))
    parser.add_argument("--only", default="")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        run_child(*options.child)
        return
    fill()
    from onnxruntime_packages import PACKAGES

    programs: dict[str, str] = {name: name for name in PACKAGES}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(Path(options.samples).glob("*")) if options.samples else ():
            if path.suffix in (".py", ".rst"):
                programs[path.name] = str(program_of(path, Path(folder)))
        rows = {}
        for name, program in programs.items():
            if options.only in name:
                rows[name] = row = compare(program)
                print(json.dumps({"program": name, **row}), flush=True)
    if options.page:
        PAGE.write_text(page(rows), "utf-8")


if __name__ == "__main__":
    main()
