"""Bring one file to every entry point, under bounds on memory and processor time."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

import dovetail
from dovetail.compare.diff.model_diff import diff
from dovetail.errors import DovetailError
from dovetail.ir.edit import copy_model
from dovetail.ops.constant import preserved_faults
from dovetail.report.draw import draw_model
from dovetail.report.model_summary import summarize
from dovetail.runtime.random_inputs import random_inputs
from seeds import File

STAGES = (
    "load", "check", "infer", "show", "draw", "diff", "save-onnx", "save-ir", "save-text", "plan", "report", "run", "interpret"
)  # fmt: skip
SECONDS = 10
"""Processor time of one file, all stages together."""
MEMORY = 1 << 30
"""Bytes of address space that one file may add, beside MEMORY_PER_BYTE for each of its bytes."""
MEMORY_PER_BYTE = 20
LIMITS = dovetail.Limits(memory=1 << 26, trips=2000, seconds=3.0)
"""A run does what its model says: these keep sound models short, and are limits that a user may set."""
INPUT_BYTES = 1 << 24
"""Models whose declared inputs are larger are not run."""
_SOURCE = os.sep + "dovetail" + os.sep


class Finding(Exception):
    """An outcome that is neither a result nor a DovetailError: its stage, and a key that is one fault's."""

    def __init__(self, stage: str, key: str, detail: str) -> None:
        super().__init__(stage, key, detail)
        self.stage, self.key, self.detail = stage, key, detail


def arm(stream: BinaryIO) -> None:
    """Write the Python stack to ``stream`` at a crash and at the end of the processor time; called once in each process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(stream, all_threads=False)
    faulthandler.register(signal.SIGXCPU, stream, all_threads=False, chain=True)


def run_file(file: File, folder: Path, random: Random, note: Callable[[int, bool], None]) -> None:
    """Bring ``file`` to every stage; ``note`` gets each stage's place and whether it gave a result. Raises Finding."""
    path = file.write(folder)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS + 1, resource.RLIM_INFINITY))
    most = _address_space() + MEMORY + MEMORY_PER_BYTE * file.size
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    actions = _Actions(path, folder, random)
    try:
        for place, stage in enumerate(STAGES):
            if place > 1 and actions.model is None:
                return
            note(place, False)
            try:
                getattr(actions, stage.replace("-", "_"))()
            except DovetailError as error:
                # What an error says is shown to users too.
                str(error)
                _refuse_unforeseen(stage, error)
            except BaseException as error:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                raise Finding(stage, _key(error), "".join(traceback.format_exception(error, limit=-12))) from None
            else:
                note(place, True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _refuse_unforeseen(stage: str, error: DovetailError) -> None:
    """Raises Finding where an operator's rule raised what no rule should."""
    if any(item.code == "op.failed" for item in error.diagnostics):
        detail = "".join(traceback.format_exception(error, limit=-12))
        raise Finding(stage, _key(error.__cause__ or error), detail) from None


class _Actions:
    """The entry points, one method a stage; all but ``check`` begin with what ``load`` gave."""

    def __init__(self, path: Path, folder: Path, random: Random) -> None:
        self.path, self.folder = path, folder
        self.model: Any = None
        self.inputs: dict[str, Any] | None = None
        self.opset = random.choice((None, None, None, 8, 13, 17, 21))
        self.external = random.random() < 0.2
        self.is_reported = random.random() < 0.1

    def load(self) -> None:
        self.model = dovetail.load(self.path, limits=LIMITS)
        for fault in preserved_faults(self.model.graph):
            _refuse_unforeseen("load", fault)

    def check(self) -> None:
        str(dovetail.check(self.path, limits=LIMITS))

    def infer(self) -> None:
        dovetail.infer(self.model)

    def show(self) -> None:
        str(self.model)
        repr(self.model)
        summarize(self.model)
        self.model._repr_html_()

    def draw(self) -> None:
        drawing = draw_model(self.model)
        for text in (drawing.svg(), drawing.html()):
            ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))

    def diff(self) -> None:
        found = diff(self.model, copy_model(self.model))
        if not found.is_same:
            raise AssertionError(f"a copy is different: {found}")
        ElementTree.fromstring(found.html().removeprefix("<!DOCTYPE html>"))

    def save_onnx(self) -> None:
        self._save("saved.onnx", opset=self.opset, external=self.external)

    def save_ir(self) -> None:
        self._save("saved.xml")

    def save_text(self) -> None:
        self._save("saved.dt")

    def _save(self, name: str, **options: Any) -> None:
        """Save, and load what was written, which must be a model."""
        target = self.folder / name
        dovetail.save(self.model, target, **options)
        try:
            dovetail.load(target, limits=LIMITS)
        except DovetailError as error:
            raise AssertionError(f"what was saved is refused: {error.code}") from error

    def plan(self) -> None:
        if self._is_small():
            report = dovetail.plan(self.model, rounds=0, limits=LIMITS)
            str(report)
            report.html()

    def report(self) -> None:
        """Report a part of the files: the exports to every opset take longer than the other stages together."""
        if self.is_reported and self._is_small():
            text = dovetail.model_report(self.model, runs=1, threads=1, limits=LIMITS).html()
            ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))

    def run(self) -> None:
        self._run("native")

    def interpret(self) -> None:
        self._run("interpreter")

    def _run(self, engine: str) -> None:
        if not self._is_small():
            return
        if self.inputs is None:
            self.inputs = random_inputs(self.model)
        with np.errstate(all="ignore"):
            dovetail.compile(self.model, engine, limits=LIMITS)(self.inputs)

    def _is_small(self) -> bool:
        total = 0
        for value in self.model.inputs:
            shape = getattr(value.type, "shape", None) or ()
            count = 1
            for size in shape:
                count *= max(1, size if isinstance(size, int) else 4)
            total += count * 8
        return total <= INPUT_BYTES


def _address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _key(error: BaseException) -> str:
    """Return what tells this fault from others: the exception's type and the last function of the package that it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCE in frame.filename]
    if isinstance(error, AssertionError) and "refused" in str(error):
        return f"{error}".replace(": ", "-").replace(" ", "-")
    place = f"{Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else "outside"
    return f"{type(error).__name__}-{place}"
