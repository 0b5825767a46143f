"""A new user's first minute: install a wheel in an empty folder without a compiler, and use it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
COMMANDS = (
    ["convert", "example.onnx", "converted.xml", "--verify"],
    ["draw", "example.onnx", "-o", "example.html"],
    ["check", "example.onnx"],
)
MAX_MB = 40
SECONDS = 60


def first_example() -> str:
    """Return the first Python block of README."""
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def try_wheel(wheel: Path) -> bool:
    """Install ``wheel``, run README's first example and the commands, and print the times and installed sizes.

    Returns whether everything ran, in at most SECONDS seconds, and whether what the installation brings beside numpy has at most
    MAX_MB megabytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        # PATH has no compiler.
        environment = {"PATH": f"{folder}/venv/bin", "HOME": folder, "LC_ALL": "C.UTF-8"}
        environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
        steps = {
            "pip install": ["pip", "install", "--quiet", "--no-cache-dir", str(wheel)],
            "README's first example": ["python", "-c", first_example()],
            **{f"dovetail {command[0]}": ["dovetail", *command] for command in COMMANDS},
        }
        total, ok = 0.0, True
        for name, (program, *arguments) in steps.items():
            started = time.monotonic()
            done = subprocess.run(
                [f"{folder}/venv/bin/{program}", *arguments],
                cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            seconds = time.monotonic() - started
            total += seconds
            ok = ok and not done.returncode
            print(f"{name:24} {seconds:6.1f} s{'' if not done.returncode else '  FAILS: ' + done.stdout}", flush=True)
        sizes = installed_sizes(next(Path(folder, "venv", "lib").glob("python3*/site-packages")))
    beside = sum(size for name, size in sizes.items() if not name.startswith(("numpy", "pip", "setuptools"))) / 1e6
    print(f"in all {total:.1f} s of {SECONDS}; beside numpy {beside:.1f} MB of {MAX_MB} are installed:")
    print(", ".join(f"{name} {size / 1e6:.1f}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:14]))
    return ok and total <= SECONDS and beside <= MAX_MB


def installed_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each entry of a folder, without the bytecode that Python compiled."""
    return {
        entry.name: sum(file.stat().st_size for file in [entry, *entry.rglob("*")] if file.is_file() and file.suffix != ".pyc")
        for entry in folder.iterdir()
    }
