"""Losses: every reduction, weights, ignored classes inside and outside of those that there are, places, log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.training.losses import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss

_NEAR = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
_MEAN = {"onnxruntime": "the mean of nothing is undefined", "openvino": "the mean of nothing is undefined"}
_NOTHING = {"onnxruntime": "its form of the function reshapes to sizes that nothing does not have"}


def classes(*shape: int, count: int = 4, ignored: int | None = None, kind: str = "i64") -> np.ndarray[Any, Any]:
    chance = np.random.default_rng([3, *shape])
    found = chance.integers(0, count, shape)
    if ignored is not None:
        found[chance.random(shape) < 0.3] = ignored
    return found.astype(kind.replace("i", "int"))


def case(op: Any, inputs: tuple[Any, ...], name: str, **more: Any) -> Case:
    return Case(op, inputs, name, **{"tolerance": _NEAR[dtypes.dtype(inputs[0].dtype).name], **more})


def outside(op: Any, shape: tuple[int, ...], reduction: str, ignored: int | None) -> dict[str, str]:
    if 0 not in shape:
        return {}
    undefined = _MEAN if reduction == "mean" and ignored is None else {}
    return {**undefined, **(_NOTHING if op is SoftmaxCrossEntropyLoss else {})}


_BF16 = {"old onnxruntime": "the function of version 13 is of operators without bf16"}
_WEIGHT = np.array([0.5, 2.0, 0.25, 1.5], np.float32)
_SHAPES: dict[str, tuple[int, ...]] = {"alone": (5, 4), "in a row": (3, 4, 2), "in a box": (2, 4, 3, 1, 2), "of none": (0, 4)}

CASES: list[Case] = [
    *(
        case(
            op(reduction, ignored),
            (
                floats(*shape),
                classes(shape[0], *shape[2:], ignored=ignored),
                *([] if weight is None else [weight]),
            ),
            f"{op.__name__} {place}, {reduction}, {ignored} ignored, {'no ' if weight is None else ''}weights",
            skip=outside(op, shape, reduction, ignored),
        )
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for place, shape in _SHAPES.items()
        for reduction in ("none", "sum", "mean")
        for ignored in (None, 1, -5)
        for weight in (None, _WEIGHT)
        if place in ("alone", "in a row") or (ignored != 1 and weight is None)
    ),
    *(
        case(
            SoftmaxCrossEntropyLoss(reduction, outputs=2),
            (floats(3, 4, 2), classes(3, 2), _WEIGHT),
            f"SoftmaxCrossEntropyLoss and what it is of, {reduction}",
        )
        for reduction in ("none", "mean")
    ),
    *(
        case(
            op(),
            (floats(5, 4, name=name), classes(5, kind=kind), _WEIGHT.astype(dtypes.dtype(name).numpy)),
            f"{op.__name__} of {name}, {kind}",
            skip=_BF16 if name == "bf16" else {},
        )
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for name, kind in (("f64", "i32"), ("f16", "i64"), ("bf16", "i32"))
    ),
    case(
        NegativeLogLikelihoodLoss("none", 2),
        (np.array([[np.nan, 1.0, -np.inf]], np.float32), np.array([2])),
        "NegativeLogLikelihoodLoss that ignores what is not finite",
        skip={"gradient": "it is not finite"},
    ),
    case(
        NegativeLogLikelihoodLoss("mean", 1),
        (floats(2, 3), np.array([1, 1])),
        "NegativeLogLikelihoodLoss that ignores everything",
    ),
]
