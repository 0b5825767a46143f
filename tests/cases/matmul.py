"""MatMul and Gemm: vectors, batches that broadcast, transposed operands, every scale and bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ops.linalg.matmul import Gemm, MatMul

# Sums in another order: relative to the largest magnitude.
NEAR = {"f64": 1e-13, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}
# Types that some oracle runs in another precision, or not at all.
ROUGH = {"bf16": {"openvino": "the CPU plugin multiplies bf16 in other precisions"}}


def floats(*shape: int, seed: int = 0, name: str = "f32") -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtypes.dtype(name).numpy)


def whole(*shape: int, seed: int = 0, name: str = "i32") -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).integers(0, 50, shape).astype(dtypes.dtype(name).numpy)


_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((1, 3, 4), (2, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 0, 4), (4, 3)),
]
_EMPTY = {
    "onnxruntime": "it leaves a product over nothing unwritten",
    "openvino": "the CPU plugin does not run a product over nothing",
}

CASES: list[Case] = [
    *(
        Case(
            MatMul(),
            (floats(*x), floats(*y, seed=1)),
            f"MatMul of {list(x)} and {list(y)}",
            tolerance=1e-5,
            skip=_EMPTY if 0 in x[-1:] else {},
        )
        for x, y in _SHAPES
    ),
    *(
        Case(
            MatMul(),
            (floats(3, 4, name=name), floats(4, 5, seed=1, name=name)),
            f"MatMul of {name}",
            tolerance=NEAR[name],
            skip=ROUGH.get(name, {}),
        )
        for name in NEAR
    ),
    *(
        Case(MatMul(), (whole(3, 4, name=name), whole(4, 5, seed=1, name=name)), f"MatMul of {name}")
        for name in ("i32", "i64", "u32", "u64")
    ),
    Case(
        MatMul(),
        (np.full((2, 3), 2**30, np.int32), np.full((3, 2), 7, np.int32)),
        "MatMul of integers that wrap",
        skip={"openvino": "the CPU plugin multiplies integers in f32"},
    ),
    Case(MatMul(True, False), (floats(4, 3), floats(4, 5, seed=1)), "MatMul with the left transposed", tolerance=1e-5),
    Case(MatMul(False, True), (floats(3, 4), floats(5, 4, seed=1)), "MatMul with the right transposed", tolerance=1e-5),
    Case(MatMul(True, True), (floats(2, 4, 3), floats(1, 5, 4, seed=1)), "MatMul with both transposed", tolerance=1e-5),
    Case(MatMul(True, True), (floats(4), floats(5, 4, seed=1)), "MatMul with a vector that is not transposed", tolerance=1e-5),
    Case(MatMul(True, False), (floats(4, 3), floats(4, seed=1)), "MatMul of a transposed matrix with a vector", tolerance=1e-5),
    Case(
        MatMul(False, True), (floats(3, 4), floats(5, 4, seed=1)), "MatMul with constant weights", constants=(1,), tolerance=1e-5
    ),
    Case(MatMul(False, True), (floats(3, 4), floats(4, seed=1)), "MatMul by a vector that is not transposed", tolerance=1e-5),
    Case(MatMul(), (floats(30, 40), floats(40, 33, seed=1)), "MatMul of a depth of 40", tolerance=1e-5),
    Case(Gemm(0.5, -2.0), (floats(30, 40), floats(40, 33, seed=1), floats(33, seed=2)), "Gemm of a depth of 40", tolerance=1e-5),
    Case(Gemm(2.0, 2.0), (floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)), "Gemm doubled", tolerance=1e-5),
    Case(Gemm(), (floats(3, 4), floats(4, 5, seed=1)), "Gemm without bias", tolerance=1e-5),
    Case(Gemm(), (floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)), "Gemm with a row", tolerance=1e-5),
    Case(Gemm(), (floats(3, 4), floats(4, 5, seed=1), floats(3, 1, seed=2)), "Gemm with a column", tolerance=1e-5),
    Case(Gemm(), (floats(3, 4), floats(4, 5, seed=1), floats(seed=2)), "Gemm with a scalar", tolerance=1e-5),
    Case(Gemm(), (floats(3, 4), floats(4, 5, seed=1), floats(3, 5, seed=2)), "Gemm with a whole bias", tolerance=1e-5),
    Case(
        Gemm(broadcast=False),
        (floats(3, 4), floats(4, 5, seed=1), floats(3, 5, seed=2)),
        "Gemm that does not broadcast",
        tolerance=1e-5,
    ),
    *(
        Case(
            Gemm(0.5, -2.0, left, right),
            (floats(*((4, 3) if left else (3, 4))), floats(*((5, 4) if right else (4, 5)), seed=1), floats(1, 5, seed=2)),
            f"Gemm with scales, transposed {left} {right}",
            tolerance=1e-5,
        )
        for left in (False, True)
        for right in (False, True)
    ),
    *(
        Case(
            Gemm(0.5, 1.5),
            (floats(3, 4, name=name), floats(4, 5, seed=1, name=name), floats(5, seed=2, name=name)),
            f"Gemm of {name}",
            tolerance=NEAR[name],
            skip=ROUGH.get(name, {}),
        )
        for name in NEAR
    ),
    Case(
        Gemm(2.0, 3.0),
        (whole(3, 4), whole(4, 5, seed=1), whole(5, seed=2)),
        "Gemm of integers",
        skip={"onnxruntime": "it has no Gemm of integers"},
    ),
    Case(Gemm(), (floats(0, 4), floats(4, 5, seed=1), floats(5, seed=2)), "Gemm of no rows", tolerance=1e-5),
]
