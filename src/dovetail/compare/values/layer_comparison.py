"""The result of comparing every value of a model in several engines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite, log10
from typing import Any

from dovetail.compare.arrays import Deviation
from dovetail.errors import printable

MARKS = " .:-=+*#"
"""Marks of a text plot, by increasing error."""


@dataclass(frozen=True, slots=True)
class ValueRow:
    """ValueRow is one value of the reference with its deviation in each column.

    ``depth`` is the length of the longest path from an input.
    """

    depth: int
    node: str
    operator: str
    value: str
    dtype: str
    shape: tuple[int, ...] | None
    cells: tuple[Deviation, ...]
    is_output: bool = False

    @property
    def agrees(self) -> bool:
        """True if the value agrees in all columns that have the value."""
        return all(cell.agrees or cell.is_missing for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Column:
    """Column is one column of the table: an engine that runs the model, or the second model (``is_other``)."""

    name: str
    engine: str
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """LayerComparison compares every value of a model in several engines with its value in ``reference``, by depth.

    ``slices`` is the number of parts in which the model was run. If ``tolerance`` is None, the tolerance depends on the type.
    ``notes`` list limits of the comparison.
    """

    name: str
    reference: str
    columns: tuple[Column, ...]
    rows: list[ValueRow] = field(repr=False)
    tolerance: float | None = None
    slices: int = 1
    notes: tuple[str, ...] = ()
    seed: int | None = None

    @property
    def agrees(self) -> bool:
        """True if every value was compared in every column, and agrees."""
        return bool(self.rows) and all(cell.agrees for row in self.rows for cell in row.cells)

    @property
    def differs(self) -> bool:
        """True if a value that was compared differs beyond the tolerance."""
        return any(not row.agrees for row in self.rows)

    def first_difference(self, column: str | None = None) -> ValueRow | None:
        """Return the first value that differs beyond the tolerance, in one column or in any column; None if there is none."""
        for row in self.rows:
            for entry, cell in zip(self.columns, row.cells, strict=True):
                if column in (None, entry.name) and not cell.agrees and not cell.is_missing:
                    return row
        return None

    def missing(self, column: str) -> list[ValueRow]:
        """Return the values that a column does not have."""
        index = [entry.name for entry in self.columns].index(column)
        return [row for row in self.rows if row.cells[index].is_missing]

    def errors_by_node(self) -> dict[str, float]:
        """Return the largest relative difference of each node's values in any column, for ``dovetail draw --colors``."""
        found: dict[str, float] = {}
        for row in self.rows:
            numbers = [cell.relative for cell in row.cells if not cell.is_missing]
            worst = max((number if isfinite(number) else 1.0 for number in numbers), default=0.0)
            found[row.node] = max(found.get(row.node, 0.0), worst)
        return found

    def sparkline(self, column: str, width: int = 64) -> str:
        """Return the relative error over depth as a line of marks; errors are clamped to [1e-8, 1]."""
        index = [entry.name for entry in self.columns].index(column)
        by_depth = errors_by_depth(self, index)
        if not by_depth:
            return ""
        deepest = max(by_depth)
        buckets: list[float | None] = [None] * min(width, deepest + 1)
        for depth, error in by_depth.items():
            place = depth * len(buckets) // (deepest + 1)
            buckets[place] = max(buckets[place] or 0.0, error)
        return "".join(" " if error is None else _mark(error) for error in buckets)

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, for JSON."""
        names = [column.name for column in self.columns]
        first = {name: self.first_difference(name) for name in names}
        return {
            "name": self.name,
            "reference": self.reference,
            "columns": [asdict(column) for column in self.columns],
            "agrees": self.agrees,
            "differs": self.differs,
            "tolerance": self.tolerance,
            "slices": self.slices,
            "notes": list(self.notes),
            "first": {name: None if row is None else row.value for name, row in first.items()},
            "values": [
                {**_facts(row), "cells": {name: asdict(cell) for name, cell in zip(names, row.cells, strict=True)}}
                for row in self.rows
            ],
        }

    def html(self) -> str:
        """Return a self-contained HTML page."""
        from dovetail.report.comparison_page import page

        return page(self)

    def __repr__(self) -> str:
        lines = [f"<comparison of {self.name!r} with {self.reference}: {len(self.rows)} values"]
        for column in self.columns:
            first = self.first_difference(column.name)
            text = "agrees" if first is None else f"differs first in {first.value!r}, {first.operator} {first.node!r}"
            lines.append(f"  {column.name}: {text}")
        return "\n".join(map(printable, lines)) + ">"


def errors_by_depth(comparison: LayerComparison, column: int) -> dict[int, float]:
    """Return the largest relative error of the values of each depth in a column; infinite where values are not comparable."""
    found: dict[int, float] = {}
    for row in comparison.rows:
        cell = row.cells[column]
        if not cell.is_missing:
            error = cell.relative if isfinite(cell.relative) else float("inf")
            found[row.depth] = max(found.get(row.depth, 0.0), error)
    return found


def _mark(error: float) -> str:
    if error <= 0:
        return MARKS[1]
    level = 1 + (log10(min(error, 1.0)) + 8) / 8 * (len(MARKS) - 2)
    return MARKS[min(len(MARKS) - 1, max(1, round(level)))]


def _facts(row: ValueRow) -> dict[str, Any]:
    names = ("depth", "node", "operator", "value", "dtype", "shape", "is_output", "agrees")
    return {name: getattr(row, name) for name in names}
