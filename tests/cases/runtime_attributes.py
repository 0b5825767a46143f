"""Attributes that are inputs: an axis from either end, of every integer type, as a scalar or a vector of one; several axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import elements, f32, i64
from dovetail.ir.op import Op, output_count
from dovetail.ops.nn.lrn import LRN
from dovetail.ops.runtime_attributes import RuntimeAttributes
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.scatter import ScatterElements, ScatterUpdate
from dovetail.ops.tensor.unique_searchsorted import Unique


def scalar(axis: int, dtype: Any = np.int64) -> np.ndarray[Any, Any]:
    return np.array(axis, dtype)


def late(op: Op, *names: str) -> RuntimeAttributes:
    return RuntimeAttributes(op, names or ("axis",), output_count(op))


_LRN_FROM_THE_END = {"openvino": "OpenVINO's CPU plugin takes no negative axes of LRN"}
_RUNS = {"shape": "how many elements differ is known when it runs"}
_LENGTHS = late(Split(0, 2, wildcard=True))
_LRN = late(LRN(3, 0.5), "axes")

CASES: list[Case] = [
    *(
        Case(_LENGTHS, (f32(3, 4, 5), i64(1, -1), scalar(axis)), f"VariadicSplit along {axis} at run time")
        for axis in (0, 1, 2, -1, -3)
    ),
    *(
        Case(_LENGTHS, (f32(2, 4), i64(2, 0), elements(name, (1,)) * 0), f"VariadicSplit along {name}[1] at run time")
        for name in ("i8", "u8", "i32", "u64")
    ),
    Case(late(Split(0, 2)), (f32(4, 2, 6), None, scalar(-1)), "Split in halves at run time"),
    Case(late(Split(0, 2)), (f32(4, 3), None, scalar(0)), "Split in halves of the only axis that divides"),
    Case(late(Split(0, 1)), (f32(5), None, scalar(0)), "Split of a vector at run time"),
    Case(late(Split(0, 2)), (f32(0, 4), None, scalar(1)), "Split of nothing at run time"),
    *(
        Case(late(Gather()), (f32(3, 4, 5), np.array([[0, -1]]), scalar(axis)), f"Gather along {axis} at run time")
        for axis in (0, 1, -1)
    ),
    Case(
        late(Gather(bounds="zero")),
        (f32(3, 4), i64(0, 9), scalar(1)),
        "Gather of zeros at run time",
        skip=dict.fromkeys(("onnxruntime", "onnx"), "ONNX refuses an index outside of the axis"),
    ),
    Case(late(Gather(batch_dims=1)), (f32(2, 3, 4), np.array([[0, 2], [1, 1]]), scalar(-1)), "Gather of batches at run time"),
    *(
        Case(
            late(ScatterElements(0, reduction)),
            (f32(3, 4), np.array([[1, 0]]), f32(1, 2, start=1), scalar(axis)),
            f"ScatterElements {reduction} along {axis} at run time",
        )
        for reduction, axis in (("replace", 0), ("add", -1), ("max", 1))
    ),
    *(
        Case(
            late(ScatterUpdate()),
            (f32(3, 3), i64(2), f32(*shape, start=1), scalar(axis)),
            f"ScatterUpdate along {axis} at run time",
        )
        for shape, axis in (((1, 3), 0), ((3, 1), -1))
    ),
    *(
        Case(
            late(Unique(None, outputs=4)),
            (np.array([[1.0, 0, 1], [1, 0, 1]], np.float32), scalar(axis)),
            f"Unique along {axis} at run time",
            skip=_RUNS,
        )
        for axis in (0, -1)
    ),
    Case(_LRN, (f32(1, 3, 4, 2), i64(1)), "LRN along the channels at run time", tolerance=1e-6),
    Case(_LRN, (f32(1, 3, 4, 2), i64(-3)), "LRN from the end at run time", tolerance=1e-6, skip=_LRN_FROM_THE_END),
    Case(_LRN, (f32(2, 3, 4, 2), i64(3, 2)), "LRN along two axes at run time", tolerance=1e-6),
]
