"""Convolution with places of its own: near and far, in groups and parts, masked, of one axis to three."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.nn.deform_conv import DeformConv

_SOME = dict.fromkeys(("onnxruntime", "onnx.reference"), "they take two spatial axes")


def reach(*shape: int, far: float = 1.7) -> np.ndarray[Any, Any]:
    return np.random.default_rng([3, *shape]).uniform(-far, far, shape).astype(np.float32)


def moved(op: DeformConv, name: str, x: Any, w: Any, outs: tuple[int, ...], *rest: Any, **more: Any) -> Case:
    elements = int(np.prod(w.shape[2:]))
    offset = reach(len(x), op.offset_group * elements * len(outs), *outs)
    return Case(op, (x, w, offset, *rest), f"DeformConv {name}", **{"tolerance": 1e-5, **more})


_X, _W = floats(2, 4, 5, 6), floats(6, 4, 2, 3)
_GROUPED = floats(6, 2, 2, 3)
_BIAS = floats(6)
CASES: list[Case] = [
    moved(DeformConv(), "of two axes", _X, _W, (4, 4)),
    moved(DeformConv(), "with a bias", _X, _W, (4, 4), _BIAS),
    moved(DeformConv(), "with a mask", _X, _W, (4, 4), None, reach(2, 6, 4, 4)),
    moved(DeformConv(offset_group=2), "in parts, with bias and mask", _X, _W, (4, 4), _BIAS, reach(2, 12, 4, 4)),
    moved(DeformConv(group=2), "in groups", _X, _GROUPED, (4, 4)),
    moved(DeformConv(group=2, offset_group=4), "in groups and parts", _X, _GROUPED, (4, 4)),
    moved(DeformConv((2, 1), (1, 2, 0, 1), (1, 2)), "with strides, padding and dilations", _X, _W, (3, 5)),
    moved(DeformConv(auto_pad="same_upper"), "with padding by itself", _X, _W, (5, 6)),
    moved(DeformConv(bilinear_interpolation_pad=False), "without zeros around", _X, _W, (4, 4)),
    moved(
        DeformConv(bilinear_interpolation_pad=False, offset_group=2),
        "without zeros around, with a mask",
        _X,
        _W,
        (4, 4),
        None,
        reach(2, 12, 4, 4),
    ),
    Case(DeformConv(), (_X, _W, np.zeros((2, 12, 4, 4), np.float32)), "DeformConv that stays", tolerance=1e-5),
    Case(DeformConv(), (_X, _W, reach(2, 12, 4, 4, far=9)), "DeformConv that goes far", tolerance=1e-5),
    moved(DeformConv(), "of one axis", floats(2, 2, 7), floats(3, 2, 3), (5,), skip=_SOME),
    moved(DeformConv(), "of three axes", floats(1, 2, 3, 3, 4), floats(2, 2, 2, 1, 2), (2, 3, 3), skip=_SOME),
]
