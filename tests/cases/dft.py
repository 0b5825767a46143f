"""Fourier transforms: of real and complex numbers, of both sides or one, cut and filled up, over one axis and several."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import i64
from cases.matmul import floats
from dovetail.ops.signal.dft import DFT, IRDFT, RDFT

_NARROW = {"openvino": "OpenVINO's CPU plugin computes in f32"}
_LENGTHS = {"openvino": "OpenVINO's CPU plugin fails where one length of several is -1"}


def moved(op: Any, x: Any, axes: Any, name: str, *lengths: int, **more: Any) -> Case:
    given = (i64(*lengths),) if lengths else ()
    return Case(op, (x, axes, *given), f"{type(op).__name__} {name}", **{"tolerance": 1e-5, **more})


_WAYS = ((DFT(), "forward"), (DFT(True), "back"))
CASES: list[Case] = [
    *(moved(op, floats(2, 5, 2), i64(1), f"{way}") for op, way in _WAYS),
    *(moved(op, floats(2, 5, 2), i64(-1, 0), f"{way} over two axes") for op, way in _WAYS),
    *(moved(op, floats(2, 5, 2), i64(0), f"{way} over the first axis") for op, way in _WAYS),
    *(moved(op, floats(2, 5, 2), i64(1), f"{way}, filled up", 7) for op, way in _WAYS),
    *(moved(op, floats(2, 5, 2), i64(1), f"{way}, cut", 3) for op, way in _WAYS),
    *(moved(op, floats(2, 5, 3, 2), i64(2, 1), f"{way}, filled up and as it is", 4, -1) for op, way in _WAYS),
    *(moved(op, floats(2, 5, 1), i64(1), f"{way} of real numbers") for op, way in _WAYS),
    Case(DFT(), (floats(2, 5, 2), i64(1), np.array(4, np.int32)), "DFT to a scalar length", tolerance=1e-5),
    moved(DFT(), floats(3, 6, 2, name="f64"), i64(1), "of f64", tolerance=1e-12, skip=_NARROW),
    moved(DFT(), floats(3, 6, 2, name="f16"), i64(1), "of f16", tolerance=2e-3),
    moved(DFT(False, True), floats(2, 6, 1), i64(1), "of one side"),
    moved(DFT(False, True), floats(2, 5, 1), i64(1), "of one side, odd"),
    moved(DFT(False, True), floats(4, 5, 1), i64(1, 0), "of one side over two axes"),
    moved(DFT(True, True), floats(2, 4, 2), i64(1), "from one side"),
    moved(DFT(True, True), floats(2, 4, 2), i64(1), "from one side, odd", 7),
    moved(DFT(False, True), floats(1, 1200, 1), i64(1), "of one side, most of the axis cut off", 16),
    moved(RDFT(), floats(4, 5, 6), i64(2), "over the last axis"),
    moved(RDFT(), floats(4, 5, 6), i64(1, -1), "over two axes"),
    moved(RDFT(), floats(4, 5, 6), i64(1), "filled up", 8),
    moved(RDFT(), floats(4, 6), i64(1), "cut", 3),
    moved(IRDFT(), floats(4, 5, 4, 2), i64(2), "over the last axis"),
    moved(IRDFT(), floats(4, 5, 4, 2), i64(1, 2), "over two axes"),
    moved(IRDFT(), floats(4, 5, 4, 2), i64(1, 2), "to other lengths", -1, 5, skip=_LENGTHS),
]
