"""Products of groups of rows: every group, empty ones, rows behind the last one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import NEAR, floats, whole
from dovetail.ops.linalg.grouped_matmul import GroupedMatMul

_SHORT = {"openvino": "OpenVINO's CPU plugin fails where the last group ends before the last row"}
_OTHER = {"openvino": "OpenVINO's CPU plugin has no kernel for it"}


def packed(name: str, *ends: int, dtype: Any = np.int32, **more: Any) -> Case:
    inputs = (floats(6, 4), floats(len(ends), 5, 4, seed=1), np.array(ends, dtype))
    return Case(GroupedMatMul(), inputs, f"GroupedMatMul {name}", (1,), **{"tolerance": 1e-5, **more})


CASES: list[Case] = [
    packed("of two groups", 2, 6),
    packed("of an empty group", 0, 4, 4, 6, dtype=np.int64),
    packed("of one group", 6),
    packed("of rows behind", 1, 4, skip=_SHORT),
    packed("of no rows", 0, 0, skip=_SHORT),
    Case(GroupedMatMul(), (floats(2, 3, 4), floats(2, 5, 4, seed=1)), "GroupedMatMul of even groups", (1,), tolerance=1e-5),
    *(
        Case(
            GroupedMatMul(),
            (floats(6, 4, name=name), floats(2, 3, 4, seed=1, name=name), np.int32([1, 6])),
            f"GroupedMatMul of {name}",
            (1,),
            skip=_OTHER,
            tolerance=NEAR[name],
        )
        for name in ("f64", "f16", "bf16")
    ),
    Case(GroupedMatMul(), (whole(6, 4), whole(2, 3, 4, seed=1), np.int32([1, 6])), "GroupedMatMul of integers", (1,), _OTHER),
]
