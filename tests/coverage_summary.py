"""Count, at the end of a run, the comparisons of each law over cases, the backend tests of onnx that pass, and the opset trips.

``law_minimums.toml`` has the least number of comparisons of each law, by oracle. A run that holds a law over all its cases and
makes fewer comparisons fails: an oracle that refuses every model would otherwise turn the law into skips.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import case_laws

MINIMUMS = Path(__file__).with_name("law_minimums.toml")
BACKEND = {
    "onnx backend node tests": "tests/models/test_backend_nodes.py::test_backend_node[",
    "onnx backend models": "tests/models/test_backend_models.py::test_backend_model[",
}
TRIP = "opset trip"
NOT_BUILT = "not built: "
OUTCOMES = ("passed", "failed", "xfailed", "skipped")


class LawCounts:
    """The outcomes of laws over cases in a run."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.oracles: dict[str, Counter[str]] = defaultdict(Counter)
        self.cases: dict[str, int] = {}
        self.pairs: set[tuple[str, str]] = set()

    def add(self, outcome: case_laws.Outcome) -> None:
        self.outcomes[outcome.law][outcome.outcome] += 1
        self.cases[outcome.law] = outcome.cases
        if outcome.outcome == "passed":
            self.oracles[outcome.law][outcome.oracle or "comparisons"] += 1
            self.pairs.add((outcome.law, outcome.operator))

    def below(self, minimums: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        """Yield an error for each minimum that a law does not reach, among the laws that ran over all their cases."""
        for law, counts in self.outcomes.items():
            if counts.total() < self.cases[law]:
                continue
            for oracle, minimum in minimums.get(law, {}).items():
                count = self.oracles[law][oracle]
                if oracle != "comparisons" and not find_spec(oracle.partition(".")[0]):
                    continue
                if count < minimum:
                    yield f"{law}: {oracle} must number at least {minimum}, got {count}"


counts = LawCounts()


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(MINIMUMS.read_text("utf-8"))


def minimums() -> dict[str, dict[str, int]]:
    """Return the least number of comparisons, by law and oracle."""
    laws: dict[str, dict[str, int]] = _table()["laws"]
    return laws


def minimum_of_pairs() -> int:
    """Return the least number of pairs of a law and an operator of whose cases the law has one."""
    return int(_table()["pairs"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        for outcome in case_laws.outcomes(report):
            counts.add(outcome)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # Under xdist a worker has a part of the reports; the controller has all.
    if not hasattr(session.config, "workerinput") and any(counts.below(minimums())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    backend: dict[str, Counter[str]] = defaultdict(Counter)
    trips: Counter[tuple[str, str]] = Counter()
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            # A file that is skipped as a whole has a report without properties.
            properties = getattr(report, "user_properties", [])
            trips.update(tuple(words) for name, words in properties if name == TRIP)
            for name, start in BACKEND.items():
                if report.nodeid.startswith(start):
                    backend[name][outcome] += 1
    for law, outcomes in sorted(counts.outcomes.items()):
        sentence = law.removeprefix("check_").replace("_", " ")
        oracles = ", ".join(f"{count} by {oracle}" for oracle, count in counts.oracles[law].items() if oracle != "comparisons")
        terminalreporter.write_line(
            f"{sentence}: {outcomes['passed']} of {outcomes.total()}{_rest(outcomes, 'skipped')}{oracles and f': {oracles}'}"
        )
    if counts.pairs:
        terminalreporter.write_line(f"pairs of a law and an operator: {len(counts.pairs)}")
    for error in counts.below(minimums()):
        terminalreporter.write_line(f"ERROR {error}", red=True)
    if trips:
        sides = [", ".join(f"{trips[side, how]} {how}" for how in ("same", "refused", "wrong")) for side in ("older", "newer")]
        terminalreporter.write_line(f"trips to older opsets: {sides[0]}; to newer ones: {sides[1]}")
    for name, outcomes in backend.items():
        known = sum(outcomes.values())
        terminalreporter.write_line(f"{name}: passed {outcomes['passed']} / known {known}{_rest(outcomes, 'of other operators')}")


def _rest(counts: Counter[str], skipped: str) -> str:
    words = {"failed": "failed", "xfailed": "in gaps.toml", "skipped": skipped}
    parts = [f"{counts[outcome]} {words[outcome]}" for outcome in words if counts[outcome]]
    return f" ({', '.join(parts)})" if parts else ""
