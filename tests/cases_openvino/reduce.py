"""Reductions, running sums, sorting."""

from __future__ import annotations

import numpy as np

from cases_openvino import Row, fixed, numbers

_X = numbers(2, 3, 4, low=0.1, high=3)
_N = numbers(2, 3, 4, dtype=np.int32, low=-9, high=9)
_ARITHMETIC = "ReduceSum-1 ReduceMean-1 ReduceMax-1 ReduceMin-1 ReduceProd-1 ReduceL1-4 ReduceL2-4".split()
_FEW = np.float32([[3, 1, 2, 1], [0, 0, 5, -1]])
_MODES = [(mode, order) for mode in ("max", "min") for order in ("value", "index")]

ROWS: list[Row] = [
    *(
        Row(kind, (_X, fixed(axes)), {"keep_dims": keep})
        for kind in _ARITHMETIC
        for axes in ([1], [0, -1], -2)
        for keep in (True, False)
    ),
    *(Row(kind, (_X, fixed([])), {"keep_dims": True}) for kind in _ARITHMETIC),
    *(
        Row(
            kind,
            (_X, fixed([])),
            {"keep_dims": False},
            answers=lambda x, _: x,
            why="OpenVINO's CPU plugin wants an axis less, also where none is reduced",
        )
        for kind in _ARITHMETIC
    ),
    *(Row(kind, (_N, fixed([1], np.int32)), {"keep_dims": False}) for kind in _ARITHMETIC),
    *(
        Row(kind, (numbers(2, 3, 4, dtype=bool), fixed(axes)), {"keep_dims": keep})
        for kind in ("ReduceLogicalAnd-1", "ReduceLogicalOr-1")
        for axes in ([1], [0, 2], -1)
        for keep in (True, False)
    ),
    *(
        Row("CumSum-3", (x, fixed(np.int32(axis))), {"exclusive": exclusive, "reverse": reverse})
        for x in (_X, _N)
        for axis in (1, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    *(
        Row(f"TopK-{version}", (x, fixed(np.int64(2))), {"axis": axis, "mode": mode, "sort": order, **more})
        for version, more in ((1, {}), (3, {"index_element_type": "i64"}), (11, {"index_element_type": "i32", "stable": False}))
        for mode, order in _MODES
        for x, axis in ((numbers(3, 5), 1), (numbers(3, 5, seed=3), -2))
    ),
    *(
        Row(
            "TopK-11",
            (_FEW, fixed(np.int64(3))),
            {"axis": -1, "mode": mode, "sort": order, "index_element_type": "i64", "stable": True},
        )
        for mode, order in _MODES
        if order == "value"
    ),
    Row("TopK-11", (numbers(3, 5), fixed(np.int32(1))), {"axis": 1, "mode": "max", "sort": "none", "index_element_type": "i32"}),
    Row("TopK-3", (numbers(3, 5), fixed(np.int32(5))), {"axis": 1, "mode": "max", "sort": "value", "index_element_type": "i32"}),
    Row("TopK-11", (_N, fixed(np.int32(2))), {"axis": 2, "mode": "max", "sort": "value", "index_element_type": "i32"}),
    Row(
        "TopK-11",
        (numbers(3, 5), np.array(2, np.int32)),
        {"axis": 1, "mode": "max", "sort": "value", "index_element_type": "i32"},
    ),
]
