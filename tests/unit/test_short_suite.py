"""The short suite of ``make test`` has each law over each of its operators, and slow laws over a part of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import law_coverage
from case_laws import SLOW_SHARE, sample
from case_runner import CASES

ROOT = Path(__file__).parents[2]
LIST = """
import sys, pytest
from onnx.backend.test import loader
# No law is over these tests, whose expected results onnx computes in 10 seconds.
loader.load_model_tests = lambda kind: []
class List:
    def pytest_collection_finish(self, session):
        for item in session.items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            for law in parameters.get("laws", []):
                print("law", law.name, type(parameters["case"].op).__name__)
sys.exit(pytest.main(sys.argv[1:], plugins=[List()]))
"""
"""Prints the pairs of a law and an operator that the collected items have. Its process alone has --short."""


def test_each_law_and_each_operator_is_in_the_short_suite() -> None:
    command = [
        sys.executable,
        "-c",
        LIST,
        "--collect-only",
        "--short",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        *law_coverage.files(),
    ]
    listed = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT).stdout
    pairs = [tuple(line.split()[1:]) for line in listed.splitlines() if line.startswith("law ")]
    covered = {law: {operator for other, operator in pairs if other == law} for law, _ in pairs}
    whole, slow = law_coverage.pairs(), {law.name for law in law_coverage.laws() if law.is_slow}
    assert slow and len(pairs) == len(set(pairs))
    for law, operators in whole.items():
        if law in slow:
            assert covered[law] < operators and len(covered[law]) >= len(operators) / SLOW_SHARE
        else:
            assert covered[law] == operators, law
    assert set.union(*covered.values()) == {type(case.op).__name__ for _, case in CASES}
    assert f"--seed {commit_seed()}\n" in listed


def commit_seed() -> int:
    process = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, check=False, text=True)
    return 0 if process.returncode else int(process.stdout[:7], 16)


def test_a_seed_chooses_one_case_of_each_operator() -> None:
    chosen = sample(CASES, 1)
    assert len({type(case.op) for _, case in chosen}) == len(chosen)
    assert sample(CASES, 1) == chosen
    assert sample(CASES, 2) != chosen
    # A law over a part of the cases has the case that the other laws have, where it is in the part.
    assert sample(chosen, 1) == chosen
