"""Blocks and pooled elements put back: overlapping and apart, over the edge, along one axis to three."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import i64
from cases.matmul import floats
from dovetail.ops.nn.col2im import Col2Im
from dovetail.ops.nn.pool import MaxUnpool


def put(op: Col2Im, name: str, image: Any, block: Any, columns: int, channels: int = 2, **more: Any) -> Case:
    shape = (3, channels * int(np.prod(block)), columns)
    return Case(op, (floats(*shape), i64(*image), i64(*block)), f"Col2Im {name}", **{"tolerance": 1e-6, **more})


_FIRST = np.array([[[[5, 7], [13, 15]]]])
_UNPOOL = MaxUnpool((2, 2), None, None, kernel_shape=(2, 2))


def unpooled(op: MaxUnpool, name: str, x: Any, indices: Any, *target: Any, **more: Any) -> Case:
    return Case(op, (x, indices, *target), f"MaxUnpool {name}", **more)


_LAYOUT = {"onnxruntime": "onnxruntime counts in the requested shape", "onnx.reference": "it is the first oracle"}
CASES: list[Case] = [
    put(Col2Im(), "of blocks that touch all", (4, 5), (2, 3), 9),
    put(Col2Im((2, 1)), "with strides", (5, 4), (2, 2), 6),
    put(Col2Im(None, (1, 0, 2, 1)), "with padding", (4, 3), (2, 2), 18),
    put(Col2Im(None, None, (2, 1)), "with dilations", (5, 3), (2, 2), 6),
    put(Col2Im((2, 3), (1, 1, 1, 1), (1, 2)), "with everything", (5, 6), (3, 2), 6),
    put(Col2Im((2, 2)), "of blocks that leave something", (5, 5), (2, 2), 4),
    put(Col2Im(), "of one element", (2, 2), (1, 1), 4),
    put(Col2Im(), "of three axes", (3, 3, 2), (2, 2, 1), 8),
    put(Col2Im((2,)), "of one axis", (7,), (3,), 3),
    Case(Col2Im(), (floats(8, 4), i64(3, 3), i64(2, 2)), "Col2Im without a batch", tolerance=1e-6),
    Case(Col2Im(), (np.arange(16).reshape(1, 4, 4), i64(3, 3), i64(2, 2)), "Col2Im of i64"),
    unpooled(_UNPOOL, "of two axes", floats(1, 1, 2, 2), _FIRST),
    unpooled(
        MaxUnpool((2,), (1, 0), kernel_shape=(3,)), "of one axis, padded", floats(1, 2, 3), np.array([[[0, 3, 5], [6, 9, 10]]])
    ),
    unpooled(MaxUnpool(kernel_shape=(2, 1, 2)), "of three axes", floats(1, 1, 1, 2, 2), np.array([[[[[0, 2], [3, 7]]]]])),
    unpooled(_UNPOOL, "to a larger shape", floats(1, 1, 2, 2), _FIRST, i64(1, 1, 5, 5), skip=_LAYOUT),
    unpooled(_UNPOOL, "to its own shape", floats(1, 1, 2, 2), _FIRST, i64(1, 1, 4, 4)),
    unpooled(_UNPOOL, "of f64", floats(1, 1, 2, 2, name="f64"), _FIRST),
]
