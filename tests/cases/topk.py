"""The greatest and least elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import elements
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.tensor.topk import TopK

_I32 = dtypes.dtype("i32")
_TIES = np.float32([[1, 3, 3, 2, 3, 0], [5, 5, 5, 5, 5, 5], [-1, 0, 7, 7, 2, 2]])
_OPEN = dict.fromkeys(("onnxruntime", "openvino"), "without sorting the order is its own")


def number(value: int, kind: str = "int64", shape: tuple[int, ...] = (1,)) -> np.ndarray[Any, Any]:
    return np.full(shape, value, dtype=kind)


TOP: list[Case] = [
    *(
        Case(TopK(-1, largest, sort), (_TIES, number(3)), f"TopK {'largest' if largest else 'least'} by {sort}", skip=skip)
        for largest in (True, False)
        for sort, skip in (("value", {}), ("index", {}), ("none", _OPEN))
    ),
    *(
        Case(TopK(0, largest), (elements(name, (5, 2)), number(2)), f"TopK of {name}, {'largest' if largest else 'least'}")
        for name in ("f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64")
        for largest in (True, False)
    ),
    Case(TopK(1), (floats(2, 4, 3), number(4)), "TopK of all"),
    Case(TopK(1), (floats(2, 4, 3), number(1)), "TopK of one"),
    Case(TopK(1), (floats(2, 4, 3), number(2, shape=())), "TopK with a scalar"),
    Case(TopK(-2), (floats(2, 4, 3), number(2, "int32", ())), "TopK with a scalar of 32 bits"),
    Case(TopK(1, index_element_type=_I32), (floats(2, 4, 3), number(2)), "TopK with places of 32 bits"),
    Case(TopK(1, stable=False, index_element_type=_I32), (_TIES, number(2, shape=())), "TopK without stability"),
    Case(
        TopK(1, sort="index", index_element_type=_I32, largest=False),
        (_TIES, number(4, shape=())),
        "TopK by index with places of 32 bits",
    ),
    Case(
        TopK(0),
        (floats(7), number(0)),
        "TopK of none",
        skip={
            "old onnxruntime": "TopK-1 wants one element at least",
            "openvino": "OpenVINO's CPU plugin wants one element at least",
        },
    ),
    Case(TopK(0), (np.array([3, 1, 2], np.int64), number(2)), "TopK of a shape"),
]

CASES: list[Case] = [*TOP]
