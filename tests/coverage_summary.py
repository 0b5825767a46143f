"""What the log says at its end: how many cases each law was asked for, how many of the backend tests of onnx passed, and how many
of their models, written at other opsets, meant the same there."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

BACKEND = {
    "onnx backend node tests": "tests/models/test_backend_nodes.py::test_backend_node[",
    "onnx backend models": "tests/models/test_backend_models.py::test_backend_model[",
}
LAWS = "tests/laws/"
TRIP = "opset trip"
NOT_BUILT = "not built: "
OUTCOMES = ("passed", "failed", "xfailed", "skipped")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    laws: dict[str, Counter[str]] = defaultdict(Counter)
    backend: dict[str, Counter[str]] = defaultdict(Counter)
    trips: Counter[tuple[str, str]] = Counter()
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            trips.update(tuple(words) for name, words in _properties(report) if name == TRIP)
            for name, start in BACKEND.items():
                if report.nodeid.startswith(start):
                    backend[name][outcome] += 1
            if report.nodeid.startswith(LAWS) and "[" in report.nodeid:
                laws[report.nodeid.partition("::")[2].partition("[")[0]][outcome] += 1
    for law, counts in sorted(laws.items()):
        sentence = law.removeprefix("test_").replace("_", " ")
        terminalreporter.write_line(f"{sentence}: {counts['passed']} of {sum(counts.values())}{_rest(counts, 'outside of it')}")
    if trips:
        sides = [", ".join(f"{trips[side, how]} {how}" for how in ("same", "refused", "wrong")) for side in ("older", "newer")]
        terminalreporter.write_line(f"trips to older opsets: {sides[0]}; to newer ones: {sides[1]}")
    for name, counts in backend.items():
        known = sum(counts.values())
        terminalreporter.write_line(f"{name}: passed {counts['passed']} / known {known}{_rest(counts, 'of other operators')}")


def _rest(counts: Counter[str], skipped: str) -> str:
    words = {"failed": "failed", "xfailed": "in gaps.toml", "skipped": skipped}
    parts = [f"{counts[outcome]} {words[outcome]}" for outcome in words if counts[outcome]]
    return f" ({', '.join(parts)})" if parts else ""


def _properties(report: Any) -> list[tuple[str, Any]]:
    """What a test noted; a file that was left out whole has no test."""
    return getattr(report, "user_properties", [])
