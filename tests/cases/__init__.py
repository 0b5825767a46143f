"""Tables of cases: an operator, its inputs, and what is special about it. The laws in tests/laws run over all of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dovetail.ir.op import Op


@dataclass(frozen=True)
class Case:
    """``op`` applied to ``inputs`` (numpy arrays; None for an optional input left out).

    ``constants``: positions of inputs that are given as constants instead of graph inputs (host inputs, marked ``!`` in the
    signature, always are). ``skip``: laws this case is outside of, each with the reason, e.g. {"openvino": "OpenVINO has no f8
    Concat"}. ``tolerance``: relative to the output's largest magnitude, against oracles; None is bit for bit.
    """

    op: Op
    inputs: tuple[Any, ...]
    name: str = ""
    constants: tuple[int, ...] = ()
    skip: dict[str, str] = field(default_factory=dict)
    tolerance: float | None = None

    def __str__(self) -> str:
        return self.name or f"{self.op}({', '.join('-' if x is None else f'{x.dtype}{list(x.shape)}' for x in self.inputs)})"


def all_cases() -> Iterator[tuple[str, Case]]:
    """Every case of every family module of this package: (family, case)."""
    for module in sorted(item.name for item in pkgutil.iter_modules(__path__)):
        for case in importlib.import_module(f"{__name__}.{module}").CASES:
            yield module, case
