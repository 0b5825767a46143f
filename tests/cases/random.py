"""Cases of random operators: shape and type, and equal results of equal seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import i64
from dovetail.ir import dtypes
from dovetail.ops.random import Bernoulli, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike

_OWN = dict.fromkeys(
    ("onnxruntime", "old onnxruntime", "openvino", "gradient in onnxruntime", "fold"), "each draws numbers of its own"
)
_ONE_SEED = {"onnx": "ONNX has one seed, so that others are drawn"}
_I64 = dtypes.dtype("i64")


def bounds(low: float, high: float, kind: str = "float32") -> tuple[Any, ...]:
    return np.array(low, kind), np.array(high, kind)


def drawn(op: Any, inputs: tuple[Any, ...], name: str, skip: dict[str, str] | None = None, **more: Any) -> Case:
    return Case(op, inputs, f"{type(op).__name__} {name}", skip=_OWN | (skip or {}), tolerance=1e-6, **more)


_X = np.float32([[0.1, 0.5, 0.9], [0, 1, 0.25]])
CASES: list[Case] = [
    *(
        drawn(RandomUniform(3.0), (i64(2, 3), *bounds(-1, 2, kind)), f"of {kind}", constants=(1, 2))
        for kind in ("float32", "float64", "float16")
    ),
    drawn(RandomUniform(3.0), (i64(2, 3), *bounds(-1, 2)), "of computed bounds"),
    drawn(RandomUniform(3.0), (i64(2, 3), *bounds(-5, 20, "int64")), "of i64"),
    drawn(RandomUniform(3.0), (i64(2, 3), *bounds(-5, 20, "int32")), "of i32", constants=(1, 2)),
    drawn(RandomUniform(150.0, 10), (i64(2, 3), *bounds(0, 1)), "of two seeds", _ONE_SEED, constants=(1, 2)),
    drawn(RandomUniform(3.0), (i64(0, 3), *bounds(0, 1)), "of nothing", constants=(1, 2)),
    drawn(RandomNormal(2.0), (i64(2, 3), *bounds(0.5, 2)), "of constants", constants=(1, 2)),
    drawn(RandomNormal(2.0), (i64(2, 3), *bounds(0.5, 2)), "of computed values"),
    drawn(RandomUniformLike(3.0), (_X, *bounds(-1, 2)), "of f32", constants=(1, 2)),
    drawn(RandomUniformLike(3.0), (_X, *bounds(-1, 2)), "of computed bounds"),
    drawn(RandomUniformLike(3.0), (np.arange(3), *bounds(-1, 2)), "of integers", constants=(1, 2)),
    drawn(RandomNormalLike(3.0), (_X, *bounds(-1, 2)), "of f32", constants=(1, 2)),
    drawn(Bernoulli(5.0), (_X,), "of f32"),
    drawn(Bernoulli(5.0, dtype=_I64), (_X.astype(np.float64),), "as i64"),
    drawn(Multinomial(5.0), (_X,), "of one"),
    drawn(Multinomial(5.0, sample_size=4, dtype=_I64), (_X,), "of four"),
]
