"""Deviations: departures of a file from its specification that all readers which accept the file interpret alike.

``load`` accepts deviations and reports each as a warning; ``check`` and ``load(strict=True)`` report each as a fault.
docs/formats.md
lists the kinds, with the behavior of onnxruntime and OpenVINO.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from dovetail.errors import Diagnostic, DovetailError, printable

MAX_RECORDED = 1000
"""The maximum number of recorded deviations per code; further deviations are only counted: a small file can have millions."""

_LOGGER = logging.getLogger("dovetail")
WRITING = logging.getLogger("dovetail.write")
"""The logger of messages about parts of a model that a written file cannot express; the command line prints its records."""


class Deviations:
    """Deviations collects the deviations of one file.

    ``counts`` has the number of deviations per code; ``faults`` are the errors of preserved nodes.
    """

    def __init__(self) -> None:
        self.errors: list[DovetailError] = []
        self.faults: list[DovetailError] = []
        self.counts: Counter[str] = Counter()

    def add(self, error: DovetailError) -> None:
        """Record a deviation in the form of the error that ``check`` reports."""
        self.counts[error.code] += 1
        if self.counts[error.code] <= MAX_RECORDED:
            self.errors.append(error)

    def extend(self, deviations: Deviations) -> None:
        """Add all deviations that ``deviations`` recorded and counted."""
        room = {code: MAX_RECORDED - count for code, count in self.counts.items()}
        for error in deviations.errors:
            room[error.code] = room.get(error.code, MAX_RECORDED) - 1
            if room[error.code] >= 0:
                self.errors.append(error)
        self.counts.update(deviations.counts)

    def warnings(self) -> list[Diagnostic]:
        """Return the deviations as warnings of the loaded model."""
        items = (item for error in self.errors for item in error.diagnostics)
        return [Diagnostic(item.code, item.message, item.node, item.file, item.op, "warning") for item in items]


def accept(deviations: Deviations | None, error: DovetailError) -> None:
    """Add ``error`` to ``deviations``; raise ``error`` if ``deviations`` is None."""
    if deviations is None:
        raise error
    deviations.add(error)


def summarize(warnings: Iterable[Diagnostic]) -> list[str]:
    """Return one line for each code among ``warnings``: the number of warnings with the code, and the first message."""
    first: dict[str, Diagnostic] = {}
    counts: Counter[str] = Counter()
    for item in warnings:
        first.setdefault(item.code, item)
        counts[item.code] += 1
    return [_line(item, counts[code]) for code, item in first.items()]


def _line(item: Diagnostic, count: int) -> str:
    node = f" in {item.node}" if item.node else ""
    times = f"{count}{' or more' if count >= MAX_RECORDED else ''} times, the first: " if count > 1 else ""
    return printable(f"[{item.code}] {times}{item.message}{node}")


def log(warnings: Iterable[Diagnostic], file: str, logger: logging.Logger = _LOGGER) -> None:
    """Log ``warnings`` of ``file`` to ``logger`` (by default "dovetail"), one record for each code."""
    for line in summarize(warnings):
        logger.warning("%s: %s", printable(file), line)
