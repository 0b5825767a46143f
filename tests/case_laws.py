"""Laws over cases, and the items that hold them: one item per case and file runs every law of that file on the case.

A law is a function of a case. It fails by an exception, skips where the case is outside of it, and may return the name of the
oracle that it compared with. Every outcome is recorded as a property of the item (``Outcome``): ``coverage_summary`` counts them,
``law_minimums.toml`` holds how many comparisons each law and oracle makes at least.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from case_runner import CASES, at_most, over
from cases import Case

PROPERTY = "law"
is_quick = False
"""Whether each law runs over one case of each operator, and slow laws over none: ``--quick``."""
excluded: set[str] = set()
"""Names of laws that run over no case."""


class Outcome(NamedTuple):
    """The outcome of one law on one case; ``cases`` is the number of cases that the law has in all."""

    law: str
    operator: str
    outcome: str
    oracle: str
    cases: int


@dataclass(frozen=True, eq=False)
class Law:
    """A law: its function, whose first parameter is the case and whose other parameters are fixtures, and its cases."""

    function: Callable[..., str | None]
    cases: Sequence[tuple[str, Case]]
    is_slow: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def fixtures(self) -> list[str]:
        return list(inspect.signature(self.function).parameters)[1:]


def law(cases: Sequence[tuple[str, Case]] = CASES, is_slow: bool = False) -> Callable[[Callable[..., str | None]], Law]:
    """Declare a function to be a law over ``cases``."""
    return lambda function: Law(function, cases, is_slow)


def hold(*laws: Law) -> Any:
    """A parametrised test with one item per case, which runs each of ``laws`` that has this case."""
    members = [{id(case) for _, case in _chosen(law)} for law in laws]
    ordered = [row for row in CASES if any(id(row[1]) in ids for ids in members)]

    @over(ordered)
    def test(case: Case, request: pytest.FixtureRequest) -> None:
        word = request.config.getoption("--law")
        chosen = [law for law, ids in zip(laws, members, strict=True) if id(case) in ids and word in law.name]
        _run(case, chosen, request)

    # law_coverage.py reads the laws of a file from its test; a function has no declared attribute of that name.
    test.laws = laws  # type: ignore[attr-defined]
    return test


def _chosen(law: Law) -> Sequence[tuple[str, Case]]:
    if law.name in excluded:
        return []
    if not is_quick:
        return law.cases
    return [] if law.is_slow else at_most(1, law.cases)


def _run(case: Case, laws: Sequence[Law], request: pytest.FixtureRequest) -> None:
    """Run all laws, also after one has failed. Skips where every law skips."""
    reasons: list[str] = []
    failures: list[Exception] = []
    for law in laws:
        outcome, oracle = "passed", None
        try:
            oracle = law.function(case, *map(request.getfixturevalue, law.fixtures))
        except pytest.skip.Exception as skip:
            outcome = "skipped"
            reasons.append(f"{law.name}: {skip.msg}")
        except Exception as error:  # raised again below, after the other laws
            outcome = "failed"
            error.add_note(f"law: {law.name}")
            failures.append(error)
        row = Outcome(law.name, type(case.op).__name__, outcome, oracle or "", len(law.cases))
        request.node.user_properties.append((PROPERTY, tuple(row)))
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} laws fail", failures)
    if len(reasons) == len(laws):
        pytest.skip("; ".join(reasons))


def outcomes(report: Any) -> list[Outcome]:
    """The outcomes of laws that a test report carries."""
    return [Outcome(*row) for name, row in getattr(report, "user_properties", []) if name == PROPERTY]
