"""The core reads and writes nothing beyond the memory of a step's operands, whatever the step is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.run.step_encoding import extent_of
from dovetail.ir.host import native_core
from kernel_runner import row

TESTS = Path(__file__).resolve().parents[1]
needs_core = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


@pytest.mark.parametrize("shapes", [((4000, 4), (2, 5)), ((1000, 4, 4), (2, 4, 5)), ((3, 4), ())], ids=str)
@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_cast_like_reads_the_type_of_its_second_input_alone(shapes: Any, engine: str) -> None:
    with dovetail.Builder() as b:
        x, like = (b.input(name, "f32", shape) for name, shape in zip("xl", shapes, strict=True))
        b.output("y", b.CastLike(b.Relu(x), like))
    given = {name: np.random.default_rng(0).standard_normal(shape).astype("f") for name, shape in zip("xl", shapes, strict=True)}
    found = dovetail.run(b.model, given, engine)["y"]
    np.testing.assert_array_equal(found, np.maximum(given["x"], 0))


def program(reaches: list[tuple[int, int]], arena: int = 0) -> Any:
    core = native_core.core()
    return core.Program(core.ThreadPool(1), core.WeightCache(), core.ArenaPool(), arena, reaches)


def operand(buffer: int, offset: int, sizes: list[int], strides: list[int]) -> tuple[Any, ...]:
    return buffer, offset, "f32", 4, sizes, strides, 0, 0, 0


BEYOND = {
    "one row too many": (0, [5, 4], [16, 4]),
    "an offset": (4, [4, 4], [16, 4]),
    "before the first": (-4, [1], [4]),
    "a negative stride": (0, [2], [-4]),
    "a product beyond i64": (0, [2**62], [2**62]),
    "strides whose sum is beyond i64": (0, [2, 2, 2], [2**62, 2**62, 2**62]),
    "an offset near the end of i64": (2**63 - 1, [1], [4]),
    "a negative size": (0, [-1], [4]),
    "sizes without strides": (0, [4, 4], [4]),
    "a size beyond i32": (0, [2**33], [4]),
}


@needs_core
@pytest.mark.parametrize("buffer", [0, 1, 2])
@pytest.mark.parametrize("fault", BEYOND)
def test_an_operand_beyond_its_buffer_is_refused(fault: str, buffer: int) -> None:
    good, bad = operand(1, 0, [16], [4]), operand(buffer, *BEYOND[fault])
    for rows in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match="beyond its buffer"):
            program([(0, 64), (0, 64)], arena=64).add("copy", [rows[0]], [rows[1]], {})
    program([(0, 64), (0, 64)], arena=64).add("copy", [good], [operand(buffer, 0, [16], [4])], {})


@needs_core
def test_a_constant_is_read_within_its_array() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (array, array[::-1], array[:, ::2]):
        assert extent_of(view)[1] - extent_of(view)[0] <= array.nbytes
        whole = row(view, 1, is_constant=True)
        beyond = (*whole[:4], [view.shape[0] + 1, view.shape[1]], *whole[5:])
        target = operand(1, 0, list(view.shape), [64, 4])
        program([(0, 256)]).add("copy", [whole], [target], {})
        with pytest.raises(ValueError, match="beyond its buffer"):
            program([(0, 256)]).add("copy", [beyond], [operand(1, 0, beyond[4], [64, 4])], {})


@needs_core
@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_faulty_steps_stay_within_their_operands(tmp_path: Path) -> None:
    """Each operand lies beside a page that cannot be read; one byte beyond it ends the process."""
    command = [sys.executable, str(TESTS / "faulty_steps.py"), "--every", "16", "--networks", "24", "--count", "2000"]
    progress = tmp_path / "progress"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    found = subprocess.run(
        [*command, "--progress", str(progress)], capture_output=True, text=True, check=False, timeout=900, env=environment
    )
    assert found.returncode == 0, (found.returncode, progress.read_text(), found.stderr[-2000:])
    assert "ran" in found.stdout
