"""The plugin for gaps.toml, the list of what does not work: a listed test must fail, and fails the run once it passes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.ir.host import native_core

LIST = Path(__file__).with_name("gaps.toml")


class Gap(NamedTuple):
    """Tests that fail, and why: ``test`` is an id in which ``*`` is any text. ``native``: only with the native core."""

    test: str
    reason: str
    native: bool = False

    def fits(self, name: str) -> bool:
        return _pattern(self.test).fullmatch(name) is not None

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


@cache
def _pattern(test: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, test.split("*"))))


def read(text: str) -> list[Gap]:
    """Return the entries of a list. Raises ValueError for one without a test or a reason, or with anything else."""
    entries = tomllib.loads(text)
    if set(entries) - {"gap"}:
        raise ValueError(f"gaps.toml: only [[gap]] is known, not {', '.join(sorted(set(entries) - {'gap'}))}")
    found = []
    for entry in entries.get("gap", []):
        texts = [entry.get(name) for name in ("test", "reason")]
        is_known = set(entry) <= set(Gap._fields) and isinstance(entry.get("native", False), bool)
        if not is_known or not all(isinstance(item, str) and item.strip() for item in texts):
            raise ValueError(f"gaps.toml: a gap has a test and a reason, not {entry}")
        found.append(Gap(**entry))
    return found


def unfitting(gaps: Iterable[Gap], names: Iterable[str]) -> list[Gap]:
    """Return the entries that fit no test of a file of which tests were collected."""
    known = list(names)
    files = {name.partition("::")[0] for name in known}
    return [gap for gap in gaps if gap.file in files and not any(gap.fits(name) for name in known)]


class Gaps:
    """The plugin: expects listed tests to fail, and nothing but these."""

    def __init__(self, gaps: list[Gap]) -> None:
        self.gaps = gaps
        self.stale: list[Gap] = []
        self.known: dict[str, Gap] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            for gap in self.gaps:
                if gap.fits(item.nodeid) and (native_core.is_compiled or not gap.native):
                    self.known[item.nodeid] = gap
                    item.add_marker(pytest.mark.xfail(reason=gap.reason, strict=True))
        # Where the arguments name single tests, the rest of their file is not collected; the short suite is a sample.
        if not config.getoption("--short", False) and not any("::" in str(argument) for argument in config.args):
            self.stale = unfitting(self.gaps, [item.nodeid for item in items])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if item.nodeid in self.known and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"gaps.toml lists this test ({self.known[item.nodeid].reason}), and it was skipped: strike it out"
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.stale and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for gap in self.stale:
            terminalreporter.write_line(f"gaps.toml: no test fits {gap.test!r} ({gap.reason}): strike it out", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Gaps(read(LIST.read_text())), "dovetail-gaps")
