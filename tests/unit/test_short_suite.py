"""The short suite of ``make test`` holds every law over every operator, and its seed chooses the same items again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import law_coverage
from case_laws import sample
from case_runner import CASES

ROOT = Path(__file__).parents[2]
LIST = """
import sys, pytest
class List:
    def pytest_collection_finish(self, session):
        for item in session.items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            for law in parameters.get("laws", []):
                print("law", law.name, type(parameters["case"].op).__name__)
sys.exit(pytest.main(sys.argv[1:], plugins=[List()]))
"""
"""Prints the pairs of a law and an operator that the collected items have. Its process alone has --short."""


def test_every_law_has_each_of_its_operators_in_the_short_suite() -> None:
    command = [sys.executable, "-c", LIST, "--collect-only", "--short", "-p", "no:cacheprovider", *law_coverage.files()]
    listed = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT).stdout
    pairs = [tuple(line.split()[1:]) for line in listed.splitlines() if line.startswith("law ")]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(law, operator) for law, operators in law_coverage.pairs().items() for operator in operators}
    assert {operator for _, operator in pairs} == {type(case.op).__name__ for _, case in CASES}
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
