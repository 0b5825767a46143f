"""What the log says at its end: how many of onnx's backend node tests passed, of all that the onnx package knows."""

from __future__ import annotations

from typing import Any

NODES = "tests/models/test_backend_nodes.py"
NOT_BUILT = "not built: "


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts = {"passed": 0, "failed": 0, "xfailed": 0, "skipped": 0}
    for outcome in counts:
        for report in terminalreporter.stats.get(outcome, []):
            counts[outcome] += f"{NODES}::test_backend_node[" in report.nodeid
    known = sum(counts.values())
    if known:
        terminalreporter.write_line(
            f"onnx backend node tests: passed {counts['passed']} / known {known}"
            f" ({counts['failed']} failed, {counts['xfailed']} in gaps.toml, {counts['skipped']} need other operators)"
        )
