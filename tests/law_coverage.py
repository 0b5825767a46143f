"""Print how many pairs of a law and an operator the laws over cases cover: ``python tests/law_coverage.py``.

A pair counts where the law has a case of the operator. ``law_minimums.toml`` holds the least number of pairs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from case_laws import Law  # noqa: E402

FILES = ("laws", "unit/test_kernels_elementwise.py")


def files() -> Iterator[Path]:
    """Return the files of laws over cases."""
    paths = [path for name in FILES for path in (sorted((TESTS / name).glob("test_*.py")) or [TESTS / name])]
    return (path for path in paths if "case_laws" in path.read_text("utf-8"))


def laws() -> Iterator[Law]:
    """Yield every law over cases of the suite."""
    for path in files():
        module = importlib.import_module(".".join(path.relative_to(TESTS).with_suffix("").parts))
        yield from module.test_case.laws


def pairs() -> dict[str, set[str]]:
    """Return the operators of each law's cases."""
    return {law.name: {type(case.op).__name__ for _, case in law.cases} for law in laws()}


if __name__ == "__main__":
    covered = pairs()
    for name, operators in sorted(covered.items()):
        print(f"{name}: {len(operators)} operators")
    print(f"{sum(map(len, covered.values()))} pairs of a law and an operator")
