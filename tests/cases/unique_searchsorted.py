"""Distinct elements and positions in sorted ones: with and without repetitions, along axes, of several types, none at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ops.tensor.unique_searchsorted import SearchSorted, Unique

_X = np.float32([[2, 1, 1], [3, 4, 3], [2, 1, 1], [0, 4, 0]])
_COUNT = {"shape": "how many there are depends on the elements"}
_I32 = dtypes.i32
_PAST = {"openvino": "OpenVINO reads past an empty sequence"}
_EMPTY = {"onnxruntime": "onnxruntime leaves an axis that it should sum over where there is nothing"}


def unique(op: Unique, name: str, x: Any = _X, **skip: str) -> Case:
    return Case(op, (x,), f"Unique {name}", skip=_COUNT | skip)


_ROWS = np.float32([1, 3, 5, 5, 7])
_TABLE = np.float32([[1, 3, 5, 5, 7], [0, 0, 2, 4, 4]])
_VALUES = np.float32([[3, 6, 0], [5, 9, 1]])
CASES: list[Case] = [
    *(unique(Unique(axis, rising), f"{where}, {how}")
      for axis, where in ((None, "of all"), (0, "of rows"), (1, "of columns"), (-1, "of columns from the end"))
      for rising, how in ((True, "rising"), (False, "as they stand"))),
    *(unique(Unique(outputs=count), f"with {count} outputs") for count in (1, 2, 3)),
    unique(Unique(axis=0), "of three axes", np.arange(12).reshape(2, 3, 2)[[0, 1, 0]]),
    unique(Unique(), "of i64", np.array([5, 3, 5, 2**33])),
    unique(Unique(index_element_type=_I32, count_element_type=_I32), "with indices and counts of i32"),
    unique(Unique(), "of nothing", _X[:0], openvino="OpenVINO's CPU plugin writes past its own memory where there is nothing"),
    unique(Unique(), "of a scalar", np.array(3.0, np.float32), openvino="OpenVINO's CPU plugin gives no index for a scalar"),
    unique(Unique(axis=0), "of one row", _X[:1], openvino="OpenVINO's CPU plugin ends its process on a single row"),
    unique(Unique(), "of words", np.array(["b", "a", "b"], object), openvino="OpenVINO's CPU plugin has no words"),
    *(Case(SearchSorted(right, kind), (row, values), f"SearchSorted {where}{', after equal ones' if right else ''}, {kind}")
      for right in (False, True)
      for kind in (dtypes.i64, _I32)
      for row, values, where in ((_ROWS, _VALUES, "in one row"), (_TABLE, _VALUES, "in a row for each"))),
    Case(SearchSorted(), (_ROWS.astype(np.int64), _VALUES.astype(np.int64)), "SearchSorted of i64"),
    Case(SearchSorted(), (_ROWS[:0], _VALUES), "SearchSorted in nothing", skip=_EMPTY | _PAST),
    Case(SearchSorted(), (_ROWS, _VALUES[:0]), "SearchSorted of nothing", skip=_EMPTY),
]  # fmt: skip
