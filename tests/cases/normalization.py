"""Normalisation: training and inference, every axis, regions of even size, coerced axes, norms of zero, dropout with a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.nn.dropout import Dropout
from dovetail.ops.nn.lrn import LRN, LpNormalization, NormalizeL2
from dovetail.ops.nn.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from dovetail.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax

_NEAR = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


def i64(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int64)


def positive(*shape: int, seed: int = 0, name: str = "f32") -> np.ndarray[Any, Any]:
    return (np.abs(floats(*shape, seed=seed).astype(np.float64)) + 0.5).astype(dtypes.dtype(name).numpy)


def batch(
    op: BatchNormalization, x: np.ndarray[Any, Any], name: str, kind: str = "f32", statistics: str = "f32", **more: Any
) -> Case:
    channels = (x.shape[1] if x.ndim > 1 else 1,) if op.spatial else x.shape[1:]
    scale, bias = (floats(*channels, seed=seed, name=kind) for seed in (1, 2))
    mean, variance = floats(*channels, seed=3, name=statistics), positive(*channels, seed=4, name=statistics)
    near = max(_NEAR[dtypes.dtype(x.dtype).name], _NEAR[kind], _NEAR[statistics])
    return Case(op, (x, scale, bias, mean, variance), name, **{"tolerance": near, **more})


def channelled(op: Any, x: np.ndarray[Any, Any], count: int, name: str, **more: Any) -> Case:
    kind = dtypes.dtype(x.dtype).name
    parameters = (floats(count, seed=1, name=kind), floats(count, seed=2, name=kind))
    return Case(op, (x, *parameters), name, **{"tolerance": _NEAR[kind], **more})


_MEDIUM = floats(2, 4, 3, 5)
_RANDOM = {"onnxruntime": "it draws other numbers", "fold": "it is random"}
_INFERENCE = {"fold": "an operator that may draw numbers is not folded"}
_MASKED = {**_INFERENCE, "old onnxruntime": "without training its masks before 12 say that nothing is kept"}
_ODD = {"onnxruntime": "it takes regions of an odd size only"}
_FOUR = {"onnxruntime": "it takes four axes only"}
_ALL_OUTPUTS = {"onnxruntime": "it wants all outputs in training"}

CASES: list[Case] = [
    batch(BatchNormalization(), _MEDIUM, "BatchNormalization"),
    batch(BatchNormalization(0.0078125), floats(3, 4), "BatchNormalization of rows"),
    batch(BatchNormalization(), floats(3, 4, 5), "BatchNormalization over one axis"),
    batch(BatchNormalization(0.001953125, 0.5), _MEDIUM, "BatchNormalization with momentum"),
    batch(BatchNormalization(training_mode=True), _MEDIUM, "BatchNormalization in training", skip=_ALL_OUTPUTS),
    batch(BatchNormalization(0.0078125, 0.75, True, outputs=3), _MEDIUM, "BatchNormalization in training with all outputs"),
    batch(BatchNormalization(spatial=False), floats(2, 3, 4), "BatchNormalization place by place"),
    batch(BatchNormalization(), floats(2, 3, 4, name="f64"), "BatchNormalization of f64", "f64", "f64"),
    batch(BatchNormalization(), floats(2, 3, 4, name="f16"), "BatchNormalization of f16", "f16", "f16"),
    batch(BatchNormalization(), floats(2, 3, 4, name="f16"), "BatchNormalization of f16 with f32", "f32", "f32"),
    batch(BatchNormalization(), floats(2, 3, 4, name="bf16"), "BatchNormalization of bf16", "bf16", "bf16"),
    *(
        Case(
            MeanVarianceNormalization(normalize, 0.0078125, mode),
            (_MEDIUM, i64(*axes)),
            f"MeanVarianceNormalization {list(axes)} {normalize} {mode}",
            tolerance=1e-5,
        )
        for axes in ((0, 2, 3), (1, 2, 3), (-1,), (2, 3))
        for normalize, mode in ((True, "inside_sqrt"), (True, "outside_sqrt"), (False, "inside_sqrt"))
    ),
    Case(
        MeanVarianceNormalization(True, 1e-9, "outside_sqrt"),
        (_MEDIUM, i64(0, 2, 3)),
        "MeanVarianceNormalization as ONNX has it",
        tolerance=1e-5,
    ),
    *(
        Case(
            LayerNormalization(axis, 0.001953125, outputs=outputs),
            (_MEDIUM, floats(*shape, seed=1), *([floats(*shape, seed=2)] if bias else [])),
            f"LayerNormalization from {axis} with {list(shape)} {bias} {outputs}",
            tolerance=1e-5,
        )
        for axis, shape in ((-1, (5,)), (2, (3, 5)), (1, (4, 3, 5)), (-2, (3, 5)), (-1, (3, 5)))
        for bias, outputs in ((True, 1), (False, 1), (True, 3))
    ),
    *(
        Case(
            LayerNormalization(-1, 0.001953125, outputs=outputs),
            (floats(2, 3, 4, name=name), floats(4, seed=1, name=name), floats(4, seed=2, name=name)),
            f"LayerNormalization of {name} with {outputs}",
            tolerance=_NEAR[name],
        )
        for name in ("f64", "f16", "bf16")
        for outputs in (1, 3)
    ),
    Case(RMSNormalization(), (_MEDIUM, floats(5, seed=1)), "RMSNormalization", tolerance=1e-5),
    Case(RMSNormalization(1, 0.0078125), (_MEDIUM, floats(4, 3, 5, seed=1)), "RMSNormalization from 1", tolerance=1e-5),
    channelled(InstanceNormalization(), _MEDIUM, 4, "InstanceNormalization"),
    channelled(InstanceNormalization(0.0078125), floats(2, 3, 6), 3, "InstanceNormalization over one axis"),
    channelled(InstanceNormalization(0.0078125), floats(2, 3, 6, name="f16"), 3, "InstanceNormalization of f16"),
    channelled(GroupNormalization(2, 0.001953125), _MEDIUM, 4, "GroupNormalization"),
    channelled(GroupNormalization(1, 0.001953125), floats(2, 4, 6), 4, "GroupNormalization of one group"),
    channelled(GroupNormalization(4, 0.001953125), _MEDIUM, 4, "GroupNormalization of as many groups as channels"),
    channelled(GroupNormalization(2, 0.001953125, per_group=True), _MEDIUM, 2, "GroupNormalization group by group"),
    channelled(
        GroupNormalization(2, 0.001953125, stash_type=dtypes.f32), _MEDIUM, 4, "GroupNormalization that says its precision"
    ),
    channelled(GroupNormalization(2, 0.001953125), floats(2, 4, 6, name="f16"), 4, "GroupNormalization of f16"),
    *(
        Case(LRN(size, 0.25, 0.625, 2.0), (_MEDIUM,), f"LRN of {size} channels", tolerance=1e-5, skip={} if size % 2 else _ODD)
        for size in (1, 2, 3, 4, 5, 9)
    ),
    Case(LRN(3, 0.25, 0.625, 2.0), (floats(2, 5, 3),), "LRN over one axis", tolerance=1e-5, skip=_FOUR),
    Case(LRN(3, 0.25, 0.625, 2.0), (floats(2, 4, 3, 5, name="f16"),), "LRN of f16", tolerance=4e-3),
    Case(LRN(3, 0.25, 0.625, 2.0, (2, 3)), (_MEDIUM,), "LRN within channels", tolerance=1e-5),
    *(
        Case(kind(axis, coerce), (_MEDIUM,), f"{kind.__name__} over {axis}{' and after' if coerce else ''}", tolerance=1e-5)
        for kind in (Softmax, LogSoftmax, Hardmax)
        for axis in (0, 1, 2, 3, -1, -3)
        for coerce in (False, True)
    ),
    *(
        Case(kind(), (floats(2, 3, name=name),), f"{kind.__name__} of {name}", tolerance=_NEAR[name])
        for kind in (Softmax, LogSoftmax, Hardmax)
        for name in ("f64", "f16", "bf16")
    ),
    Case(Softmax(), (np.array([[1e4, -1e4, 1e4], [88.0, 89.0, -3e38]], np.float32),), "Softmax of great numbers", tolerance=1e-5),
    Case(Softmax(1), (floats(2, 3, 1, 1),), "Softmax before axes of one", tolerance=1e-5),
    Case(Softmax(0), (floats(5),), "Softmax of a vector", tolerance=1e-5),
    Case(Softmax(), (floats(0, 3),), "Softmax of no rows", tolerance=1e-5),
    Case(Softmax(1, True), (floats(0, 3, 2),), "Softmax of no rows, coerced", tolerance=1e-5),
    Case(Hardmax(), (np.array([[3.0, 1.0, 3.0], [-1.0, -1.0, -2.0]], np.float32),), "Hardmax takes the first of equal elements"),
    *(
        Case(NormalizeL2(0.0078125, mode), (_MEDIUM, i64(*axes)), f"NormalizeL2 {mode} {list(axes)}", tolerance=1e-5)
        for mode in ("add", "max")
        for axes in ((1,), (1, 2, 3), (-1,))
    ),
    *(
        Case(LpNormalization(axis, p), (_MEDIUM,), f"LpNormalization {p} over {axis}", tolerance=1e-5)
        for axis in (-1, 1)
        for p in (1, 2)
    ),
    Case(
        LpNormalization(-1, 2),
        (np.zeros((2, 3), np.float32),),
        "LpNormalization of zeros",
        tolerance=1e-5,
        skip={"gradient": "it has none at 0"},
    ),
    Case(Dropout(), (_MEDIUM,), "Dropout in inference", skip=_INFERENCE),
    Case(Dropout(outputs=2), (_MEDIUM,), "Dropout in inference with its mask", skip=_MASKED),
    Case(Dropout(mask_like=True, outputs=2), (_MEDIUM,), "Dropout in inference with a mask of its type", skip=_MASKED),
    Case(
        Dropout(outputs=2),
        (floats(2, 3, name="f16"), np.float32(0.25), np.array(False)),
        "Dropout in inference mode",
        constants=(1, 2),
        skip=_MASKED,
    ),
    Case(
        Dropout(3, outputs=2),
        (_MEDIUM, np.float32(0.25), np.array(True)),
        "Dropout in training",
        constants=(1, 2),
        tolerance=1e-6,
        skip=_RANDOM,
    ),
]
