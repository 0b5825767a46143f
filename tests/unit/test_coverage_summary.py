"""The counts at the end of the log, where a whole file is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_a_file_whose_oracle_is_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_left_out.py").write_text('import pytest\npytest.importorskip("no_such_oracle")\n')
    (tmp_path / "test_kept.py").write_text("def test_it():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "coverage_summary",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed, 1 skipped" in found.stdout
