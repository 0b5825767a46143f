"""The fuzzer of the command line: it finds a planted fault, and nothing in a few dozen commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
PLANT = """
import sys
sys.path.insert(0, sys.argv[1])
import commands
from dovetail import cli

def planted(words):
    {fault}

cli.main = planted
sys.exit(commands.fuzz("s", 0, 3, 60.0))
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["sys.exit(7)", "raise KeyError", "import os; os.abort()", 'print("Traceback (most recent call)")']
)
def test_a_planted_fault_of_a_command_is_found(fault: str) -> None:
    words = [sys.executable, "-c", PLANT.format(fault=fault), str(FUZZ)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1 and "finding (--seed s --only 0)" in ended.stdout, ended.stderr


@pytest.mark.slow
def test_commands_end_in_results_or_errors_of_dovetail() -> None:
    words = [sys.executable, str(FUZZ / "commands.py"), "--seed", "test", "--count", "60"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
