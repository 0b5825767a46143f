"""The kernels give the same in every instruction set that they are compiled for, not only in the best that this processor has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.ir.host import native_core

pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parents[1]
KERNELS = (
    "bf16",
    "weights",
    "dft",
    "elementwise",
    "conv",
    "winograd",
    "conv_transpose",
    "integer_conv",
    "matmul",
    "matmul_types",
    "ml",
    "norm",
    "pool",
    "quantized",
    "recurrent",
    "reduce",
    "resize",
)
"""Those that are compiled for several instruction sets, and whose own tests run in one of them only."""
LAW = "laws/test_native.py"
SAMPLES = {"base": "1/4", "avx2": "3/4"}
"""The part of the law over all cases; random networks and the kernels' own tests run in every instruction set too."""
FILES = [LAW, *(f"unit/test_kernels_{name}.py" for name in KERNELS)]


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("isa", ["base", "avx2"])
@pytest.mark.parametrize("file", FILES)
def test_the_kernels_of_an_instruction_set(file: str, isa: str) -> None:
    if native_core.core().isa() == isa:
        pytest.skip("these are the kernels in use, and their tests run with them")
    run_with(file, isa, *(["--sample", SAMPLES[isa]] if file == LAW else []))


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("name", ["quantized", "integer_conv", "bf16", "weights"])
def test_bytes_and_bf16_without_a_unit_of_their_own(name: str) -> None:
    run_with(f"unit/test_kernels_{name}.py", "avx512")


def run_with(file: str, isa: str, *options: str) -> None:
    """Run the tests of a file with the kernels of another instruction set, or of this one without its integer units."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:xdist", *options, str(TESTS / file)]
    environment = {**os.environ, "DOVETAIL_ISA": isa, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent, env=environment)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
