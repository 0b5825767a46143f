"""Texts, which are refused by name: neither numpy arrays of their bytes nor ONNX have an equal."""

from __future__ import annotations

import numpy as np

from cases_openvino import Row

_WHY = "op.unknown: texts"
ROWS: list[Row] = [
    Row("StringTensorPack-15", (np.int32([0, 2]), np.int32([2, 5]), np.uint8(list(b"abcde"))), refused=_WHY),
    Row("StringTensorUnpack-15", (np.array(["ab", "cde"], object),), refused=_WHY),
]
