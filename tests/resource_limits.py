"""Run every stage of a model in a child process with limits on its processor time and its memory.

``python tests/resource_limits.py FILE ...`` prints one line per file: seconds and MB of its costliest stages, and faults.
Another check calls ``measure(path)``, which gives an Outcome for each stage. ``STAGES`` names the stages.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 5
"""The most processor time of a stage."""
MEMORY = 1 << 30
"""The most bytes of address space that a stage may add to the interpreter with everything imported."""
STAGES = ("load", "check", "infer", "save-onnx", "save-ir", "compile", "plan", "run", "interpret")
"""The stages; all but ``check``, which reads the file itself, begin with the loaded model."""
ENDED = "ended"
REFUSED = "refused"


class Outcome(NamedTuple):
    """The end of a stage: ``ended``, ``refused`` with a code of ours, ``raised`` something else, or ``killed``."""

    stage: str
    kind: str
    detail: str
    seconds: float
    megabytes: float

    @property
    def is_sound(self) -> bool:
        return self.kind in (ENDED, REFUSED)

    def __str__(self) -> str:
        return f"{self.stage}: {self.kind} {self.detail} {self.seconds:.2f} s {self.megabytes:.0f} MB"


def measure(
    path: str | Path, stages: Sequence[str] = STAGES, seconds: int = SECONDS, memory: int = MEMORY, limits: Sequence[str] = ()
) -> list[Outcome]:
    """Return the end of each of ``stages`` for the file at ``path``; a stage that is killed ends the list.

    ``limits``: changes of the default limits, as the command line has them (``nodes=1000``).
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(path), ",".join(stages), str(seconds), str(memory)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "DOVETAIL_THREADS": "1"}
    done = subprocess.run(
        [*command, *limits],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60 * (seconds + 1),
        errors="replace",
    )
    found = [Outcome(*json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode:
        place = len(found)
        stage = stages[place] if place < len(stages) else "end"
        found.append(Outcome(stage, "killed", f"status {done.returncode}: {done.stderr[-300:]}", float(seconds), 0.0))
    return found


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the faults of outcomes: a stage that took too much, or ended in an exception that is not ours."""
    return [str(outcome) for outcome in outcomes if not outcome.is_sound]


def _run_child(path: str, stages: list[str], seconds: int, memory: int, limits: list[str]) -> None:
    """Run the stages, one line of JSON each."""
    import numpy as np
    import onnx  # noqa: F401 - imported before memory is measured

    import dovetail
    import dovetail.engine.engine
    import dovetail.formats.onnx.write
    import dovetail.formats.openvino.write
    from dovetail.runtime.random_inputs import random_inputs

    options: dict[str, Any] = {}
    if limits:
        from dovetail.ir.limits import Limits

        options["limits"] = Limits().with_settings(limits)
    state: dict[str, Any] = {}
    folder = tempfile.mkdtemp(prefix="bounded-")

    def model() -> Any:
        return state["model"]

    def load() -> str:
        state["model"] = dovetail.load(path, **options)
        return ""

    def run(engine: str) -> str:
        inputs = state["inputs"] = state.get("inputs") or random_inputs(model())
        program = state.pop(engine, None) or dovetail.compile(model(), engine=engine, **options)
        found = program(inputs)
        return f"{sum(np.asarray(each).nbytes for each in found.values() if isinstance(each, np.ndarray))} bytes"

    def compile_native() -> str:
        state["native"] = dovetail.compile(model(), engine="native", **options)
        return ""

    actions: dict[str, Callable[[], Any]] = {
        "load": load,
        "check": lambda: f"{len(dovetail.check(path))} faults",
        "infer": lambda: dovetail.infer(model()),
        "save-onnx": lambda: dovetail.save(model(), f"{folder}/saved.onnx") or "",
        "save-ir": lambda: dovetail.save(model(), f"{folder}/saved.xml") or "",
        "compile": compile_native,
        "plan": lambda: str(dovetail.plan(model(), rounds=0, **options))[:0],
        "run": lambda: run("native"),
        "interpret": lambda: run("interpreter"),
    }
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + memory, resource.RLIM_INFINITY))
    for stage in stages:
        if stage not in ("load", "check") and "model" not in state:
            continue
        hard = int(_spent()) + seconds + 2
        resource.setrlimit(resource.RLIMIT_CPU, (hard, resource.RLIM_INFINITY))
        before, resident = _spent(), _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        try:
            kind, detail = ENDED, str(actions[stage]() or "")
        except dovetail.DovetailError as error:
            # A stage that ran out of memory did not know its needs before it began.
            kind = "raised" if isinstance(error.__cause__, MemoryError) else REFUSED
            detail = f"{error.code} {error.message}"[:200]
        except BaseException as error:
            kind, detail = "raised", f"{type(error).__name__}: {error}"[:200]
        took = _spent() - before
        if took > seconds:
            kind = "slow"
        print(json.dumps([stage, kind, detail, took, (_status("VmHWM") - resident) / 2**20]), flush=True)
    subprocess.run(["rm", "-rf", folder], check=False)
    os._exit(0)


def _spent() -> float:
    return time.process_time()


def _status(field: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _main(paths: list[str]) -> int:
    bad = 0
    for path in paths:
        outcomes = measure(path)
        wrong = faults(outcomes)
        bad += bool(wrong)
        slow = max(outcomes, key=lambda each: each.seconds)
        large = max(outcomes, key=lambda each: each.megabytes)
        name = Path(path).name
        costs = f"{slow.seconds:5.2f} s ({slow.stage}) {large.megabytes:5.0f} MB ({large.stage})"
        print(f"{'BAD ' if wrong else 'ok  '} {name:32} {costs}")
        for text in wrong:
            print(f"       {text}"[:400])
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _run_child(sys.argv[2], sys.argv[3].split(","), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:])
    else:
        sys.exit(_main(sys.argv[1:]))
