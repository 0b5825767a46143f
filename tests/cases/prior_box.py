"""Boxes to start from: of every kind, in even and uneven grids, clipped and transposed."""

from __future__ import annotations

from typing import Any

from cases import Case
from cases.concat_split import i64
from dovetail.ops.detection.prior_box import PriorBox, PriorBoxClustered


def boxes(op: Any, name: str, *, skip: dict[str, str] | None = None) -> Case:
    return Case(op, (i64(3, 2), i64(24, 30)), f"{type(op).__name__} {name}", tolerance=1e-6, skip=skip or {})


_VARIANCE = (0.1, 0.1, 0.2, 0.2)
CASES: list[Case] = [
    boxes(PriorBox((8.0,), variance=_VARIANCE), "of one size"),
    boxes(PriorBox((8.0, 12.0), (10.0, 16.0), (2.0, 3.0), flip=True, offset=0.5, step=8.0), "of sizes and ratios"),
    boxes(PriorBox((8.0,), (10.0,), (2.0,), clip=True, min_max_aspect_ratios_order=False), "ratios first, clipped"),
    boxes(PriorBox((0.2, 0.3), (), (2.0, 0.5), step=0.25, offset=0.5, scale_all_sizes=False), "in parts of the picture"),
    boxes(PriorBox((0.2,), (), (1.0, 2.0), step=-1.0, offset=0.5, scale_all_sizes=False), "of one step a cell"),
    boxes(PriorBox(density=(2.0,), fixed_size=(9.0,), step=8.0, offset=0.5), "of a density"),
    boxes(PriorBox(density=(2.0, 1.0), fixed_size=(9.0, 4.0), fixed_ratio=(2.0,), step=8.0, offset=0.5), "of fixed ratios"),
    boxes(PriorBox(density=(2.0,), fixed_size=(8.0,), aspect_ratio=(2.0,), flip=True, step=8.0), "of a density and ratios"),
    boxes(PriorBoxClustered((6.0, 9.0), (4.0, 12.0), offset=0.5, variance=_VARIANCE), "of an even grid"),
    boxes(PriorBoxClustered((6.0, 9.0), (4.0, 12.0), False, 8.0), "of one step"),
    boxes(PriorBoxClustered((6.0,), (4.0,), True, 8.0, 6.0, 5.0, 0.5), "of two steps"),
]
