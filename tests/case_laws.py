"""Laws over cases, and the items that hold them: one item per case and file runs every law of that file on the case.

A law is a function of a case. It fails by an exception, skips where the case is outside of it, and may return the name of the
oracle that it compared with. Every outcome is recorded as a property of the item (``Outcome``): ``coverage_summary`` counts them,
``law_minimums.toml`` holds how many comparisons each law and oracle makes at least.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import ceil
from typing import Any, NamedTuple

import pytest

from case_runner import CASES
from cases import Case

PROPERTY = "law"
seed: int | None = None
"""Chooses the case of each operator that a law runs over in the short suite; None: every law runs over every case."""
SLOW_SHARE = 8
"""The number of operators of which a slow law runs over one in the short suite."""
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
    """Return a parametrised test with one item per case, which runs each of ``laws`` that has this case."""
    members = [(law, {id(case) for _, case in _chosen(law)}) for law in laws]
    rows = [(row, [law for law, ids in members if id(row[1]) in ids]) for row in CASES]

    # The laws are a parameter, so that a collected item names them.
    @pytest.mark.parametrize(
        ("case", "laws"), [pytest.param(case, laws, id=f"{family}: {case}") for (family, case), laws in rows if laws]
    )
    def test(case: Case, laws: list[Law], request: pytest.FixtureRequest) -> None:
        word = request.config.getoption("--law")
        _run(case, [law for law in laws if word in law.name], request)

    # law_coverage.py reads the laws of a file from its test; a function has no declared attribute of that name.
    test.laws = laws  # type: ignore[attr-defined]
    return test


def _chosen(law: Law) -> Sequence[tuple[str, Case]]:
    if law.name in excluded:
        return []
    if seed is None:
        return law.cases
    chosen = sample(law.cases, seed)
    return chosen[: ceil(len(chosen) / SLOW_SHARE)] if law.is_slow else chosen


def sample(cases: Iterable[tuple[str, Case]], seed: int) -> list[tuple[str, Case]]:
    """Choose one case of each operator; laws over different cases of an operator choose the same one where all have it."""
    ranks = _ranks(seed)
    first: dict[type, tuple[str, Case]] = {}
    for row in sorted(cases, key=lambda row: ranks[id(row[1])]):
        first.setdefault(type(row[1].op), row)
    return list(first.values())


@cache
def _ranks(seed: int) -> dict[int, bytes]:
    return {id(case): rank(seed, f"{family}: {case}") for family, case in CASES}


def rank(seed: int, name: str) -> bytes:
    """Return the position of ``name`` in the random order of ``seed``."""
    return blake2b(f"{seed} {name}".encode(), digest_size=8).digest()


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
    """Return the outcomes of laws that a test report carries."""
    return [Outcome(*row) for name, row in getattr(report, "user_properties", []) if name == PROPERTY]
