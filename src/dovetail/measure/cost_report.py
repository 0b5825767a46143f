"""Report of predicted costs: numbers, expressions, and both as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dovetail.errors import printable
from dovetail.report.profile_text import operations, with_prefix
from dovetail.report.text import count, duration, size

USES = {
    "weights": "weights",
    "mapped": "weights mapped from the file",
    "packed": "packed weights",
    "tables": "tables",
    "arena": "arena",
    "inputs": "inputs",
    "outputs": "outputs",
    "objects": "objects of graph and plan",
}
"""Maps a use of memory to its words."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """KernelCost holds sums over the steps of one kernel: bytes moved, operations performed, and predicted seconds."""

    kernel: str
    count: int
    moved_bytes: int
    operations: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class FittingSize:
    """FittingSize is the largest size of ``symbol`` whose memory is at most ``limit`` bytes.

    ``size``: None if no size fits. ``memory``: the bytes at that size. ``is_proved``: whether no larger size fits, because the
    expression of the memory does not fall; otherwise larger sizes were not tried. ``reason``: what ends the search.
    """

    symbol: str
    limit: int
    size: int | None
    memory: int | None
    is_proved: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CostReport:
    """CostReport holds the costs of one run of a model in the native engine, in bytes, operations and seconds."""

    name: str
    file: str | None
    sizes: dict[str, int]
    """The size of each open dimension for which the numbers hold."""
    threads: int
    memory: dict[str, int]
    """Bytes by their use: ``weights``, ``mapped``, ``packed``, ``tables``, ``arena``, ``inputs``, ``outputs``, ``objects``."""
    moved_bytes: int
    """Bytes that the steps read and write, each element of a step counted once."""
    operations: int
    """Arithmetic operations by the definitions of the operators: two per multiply-add."""
    performed_operations: int
    """Arithmetic operations that the kernels perform: Winograd's algorithm performs fewer."""
    seconds: float | None
    """The predicted time of a run; None if a part of it is unknown."""
    expressions: dict[str, str | None]
    """The costs as expressions in the open sizes; None for a cost that has none."""
    compared: list[dict[str, Any]] = field(repr=False)
    """Plans that the expressions were compared with: ``sizes``, and ``differences``, the names of expressions that differ."""
    kernels: list[KernelCost] = field(repr=False)
    """Costs by kernel, the slowest kernel first."""
    notes: list[str] = field(repr=False)
    """Costs that are not counted, with the reasons."""
    fits: FittingSize | None = None

    @property
    def memory_bytes(self) -> int:
        """The peak memory of a run: the sum of :attr:`memory`."""
        return sum(self.memory.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {**asdict(self), "memory_bytes": self.memory_bytes}

    def __repr__(self) -> str:
        lines = (f"<cost of {self.name!r}", *(f"  {label}: {text}" for label, text in summary(self)))
        return "\n".join(map(printable, lines)) + ">"


def summary(report: CostReport) -> list[tuple[str, str]]:
    """Return the costs as (name, text) rows."""
    rows = [("sizes", ", ".join(f"{name}={number}" for name, number in report.sizes.items()) or "no open sizes")]
    parts = ", ".join(f"{USES[use]} {size(nbytes)}" for use, nbytes in report.memory.items() if nbytes)
    rows.append(("memory", f"{size(report.memory_bytes)}" + (f": {parts}" if parts else "")))
    rows.append(("bytes moved", size(report.moved_bytes)))
    performed = report.performed_operations
    fewer = "" if performed == report.operations else f", of which kernels perform {with_prefix(performed, 'FLOP')}"
    rows.append(("operations", operations(report.operations) + fewer))
    time = "unknown" if report.seconds is None else duration(report.seconds)
    rows.append(("time", f"{time}, {count(report.threads, 'thread')}"))
    if report.sizes:
        rows += [(name, "no expression" if text is None else text) for name, text in report.expressions.items()]
        rows.append(("compared", comparison_text(report)))
    rows += [("not counted", note) for note in report.notes]
    if report.fits is not None:
        rows.append(("fits", fit_text(report.fits)))
    return rows


def comparison_text(report: CostReport) -> str:
    """Return the sizes at which the expressions give the costs of the plan, and those at which they do not."""
    equal = [_sizes(row["sizes"]) for row in report.compared if not row["differences"]]
    other = [f"{_sizes(row['sizes'])} ({', '.join(row['differences'])})" for row in report.compared if row["differences"]]
    parts = [f"equal to the plans for {'; '.join(equal)}"] if equal else []
    parts += [f"another plan for {'; '.join(other)}"] if other else []
    return ", ".join(parts) or "with no plan"


def fit_text(fits: FittingSize) -> str:
    """Return the largest size that fits as text."""
    if fits.size is None or fits.memory is None:
        return f"no size of {fits.symbol} fits into {size(fits.limit)}: {fits.reason}"
    proof = "" if fits.is_proved else "; larger sizes are not ruled out, as the memory is not known to grow with the size"
    return f"{fits.symbol}={fits.size} takes {size(fits.memory)} of {size(fits.limit)}; {fits.reason}{proof}"


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in sizes.items()) or "the inputs"
