"""The kernels give the same in every instruction set that they are compiled for, not only in the best that this processor has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail import native

TESTS = Path(__file__).resolve().parents[1]
KERNELS = (
    "chain",
    "conv",
    "conv_transpose",
    "gather",
    "matmul",
    "norm",
    "pool",
    "quantized",
    "recurrent",
    "reduce",
    "resize",
    "tree_ensemble",
)
"""Those whose own tests run in one instruction set only."""
FILES = ["laws/test_native.py", *(f"unit/test_kernels_{name}.py" for name in KERNELS)]


@pytest.mark.skipif(not native.is_compiled, reason="no native core")
@pytest.mark.parametrize("isa", ["base", "avx2"])
@pytest.mark.parametrize("file", FILES)
def test_the_kernels_of_an_instruction_set(file: str, isa: str) -> None:
    if native.core().isa() == isa:
        pytest.skip("these are the kernels in use, and their tests run with them")
    run_with(file, isa)


@pytest.mark.skipif(not native.is_compiled, reason="no native core")
def test_bytes_without_a_unit_of_their_own() -> None:
    run_with("unit/test_kernels_quantized.py", "avx512")


def run_with(file: str, isa: str) -> None:
    """The tests of a file with the kernels of another instruction set, or of this one without what stands beside it."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / file)]
    environment = {**os.environ, "DOVETAIL_ISA": isa, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent, env=environment)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
