"""What the log says at its end: for how many cases each law was asked, and how many of onnx's node tests passed of all."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

NODES = "tests/models/test_backend_nodes.py::test_backend_node["
LAWS = "tests/laws/"
NOT_BUILT = "not built: "
OUTCOMES = ("passed", "failed", "xfailed", "skipped")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    laws: dict[str, Counter[str]] = defaultdict(Counter)
    nodes: Counter[str] = Counter()
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            if report.nodeid.startswith(NODES):
                nodes[outcome] += 1
            elif report.nodeid.startswith(LAWS) and "[" in report.nodeid:
                laws[report.nodeid.partition("::")[2].partition("[")[0]][outcome] += 1
    for law, counts in sorted(laws.items()):
        sentence = law.removeprefix("test_").replace("_", " ")
        terminalreporter.write_line(f"{sentence}: {counts['passed']} of {sum(counts.values())}{_rest(counts, 'outside of it')}")
    if nodes:
        known = sum(nodes.values())
        terminalreporter.write_line(
            f"onnx backend node tests: passed {nodes['passed']} / known {known}{_rest(nodes, 'of other operators')}"
        )


def _rest(counts: Counter[str], skipped: str) -> str:
    words = {"failed": "failed", "xfailed": "in gaps.toml", "skipped": skipped}
    parts = [f"{counts[outcome]} {words[outcome]}" for outcome in words if counts[outcome]]
    return f" ({', '.join(parts)})" if parts else ""
