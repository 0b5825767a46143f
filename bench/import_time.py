"""Measure `import dovetail` and `dovetail --help` beside `import numpy`: medians of interleaved runs.

Each run is a fresh process; the commands take turns, so that a busy moment of the machine falls on all of them. Bytecode is
kept in a folder of its own, so that an installed package is measured and the source tree stays clean. Exits with 1 when a limit
is exceeded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

PYTHON = [sys.executable, "-c"]
HELP = "import sys; from dovetail.cli import main; sys.argv = ['dovetail', '--help']; main()"
COMMANDS = {
    "python -c pass": [*PYTHON, "pass"],
    "import numpy": [*PYTHON, "import numpy"],
    "import dovetail": [*PYTHON, "import dovetail"],
    "dovetail --help": [*PYTHON, HELP],
}
BASELINE = "import numpy"
LIMITS = {"import dovetail": 0.15, "dovetail --help": 0.30}  # seconds more than the baseline


def seconds(command: Sequence[str], bytecode: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def medians(rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as bytecode:
        for command in COMMANDS.values():  # once unmeasured: bytecode written, files in the page cache
            seconds(command, bytecode)
        for _ in range(rounds):
            for name, command in COMMANDS.items():
                times[name].append(seconds(command, bytecode))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command")
    rounds = parser.parse_args().rounds
    measured = medians(rounds)
    within = True
    print(f"{'median of ' + str(rounds):<18} {'seconds':>8} {'more':>8} {'limit':>8}")
    for name, median in measured.items():
        more, limit = median - measured[BASELINE], LIMITS.get(name)
        verdict = "" if limit is None else "ok" if more <= limit else "TOO SLOW"
        within = within and verdict != "TOO SLOW"
        print(f"{name:<18} {median:8.3f} {more:+8.3f} {'' if limit is None else f'{limit:.2f}':>8} {verdict}".rstrip())
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
