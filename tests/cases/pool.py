"""Pooling: every padding and rounding, windows that reach past the end, ties, indices in every count."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats, whole
from dovetail.ir import dtypes
from dovetail.ops.nn.pool import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool

# size, kernel, stride, pads: windows that leave elements over, that reach past the end, that would start in the padding.
_ONE_AXIS: tuple[tuple[int, int, int, tuple[int, int]], ...] = (
    (7, 3, 2, (0, 0)),
    (6, 3, 2, (0, 0)),
    (6, 3, 2, (1, 1)),
    (4, 3, 2, (1, 2)),
    (6, 2, 3, (0, 1)),
    (6, 2, 3, (1, 1)),
    (8, 4, 4, (2, 3)),
)
_TIES = np.array([[[2, 2, 1, 2, 2, 0]]], np.float32)
_NARROW = ("f64", "f16", "bf16")
_LOWEST = dict.fromkeys(("onnxruntime", "openvino"), "its lowest number is the greatest negative one, not minus infinity")
_NO_IMAGES = {"openvino": "it refuses a batch of 0"}


def pool(op: Any, x: np.ndarray[Any, Any], name: str, **more: Any) -> Case:
    kind = dtypes.dtype(x.dtype)
    near = {"f16": 2e-3, "bf16": 1.6e-2}.get(kind.name, 1e-6) if isinstance(op, AveragePool | LpPool) else None
    return Case(op, (x,), name, **{"tolerance": near, **more})


CASES: list[Case] = [
    *(
        pool(
            kind((stride,), pads, kernel_shape=(kernel,), rounding_type=rounding, **more),
            floats(2, 2, size),
            f"{kind.__name__} {rounding} of {size} by {kernel} / {stride} with {list(pads)} {more or ''}",
        )
        for size, kernel, stride, pads in _ONE_AXIS
        for rounding in ("floor", "ceil_torch")
        for kind, more in (
            (MaxPool, {"outputs": 2}),
            (AveragePool, {}),
            (AveragePool, {"divisor": "padded"}),
            (AveragePool, {"divisor": "window"}),
        )
    ),
    *(
        pool(
            kind((2,), None, None, auto_pad, kernel_shape=(kernel,), **more),
            floats(1, 2, 7),
            f"{kind.__name__} {auto_pad} by {kernel} {more or ''}",
        )
        for auto_pad in ("same_upper", "same_lower", "valid")
        for kernel in (2, 3)
        for kind, more in ((MaxPool, {}), (AveragePool, {}), (AveragePool, {"divisor": "padded"}))
    ),
    pool(MaxPool(kernel_shape=(2, 3)), floats(2, 3, 4, 5), "MaxPool over two axes"),
    pool(MaxPool((2, 1), (1, 1, 0, 1), (1, 2), kernel_shape=(2, 2), outputs=2), floats(2, 3, 5, 6), "MaxPool with everything"),
    pool(MaxPool(kernel_shape=(2, 2, 2), outputs=2), floats(1, 2, 3, 4, 3), "MaxPool over three axes"),
    pool(
        MaxPool((1,), kernel_shape=(3,), outputs=2),
        _TIES,
        "MaxPool takes the first of equal elements",
        skip={"gradient": "a tie has no slope"},
    ),
    pool(MaxPool(kernel_shape=(2, 2), storage_order=1, outputs=2), floats(2, 2, 3, 4), "MaxPool column by column"),
    pool(
        MaxPool(kernel_shape=(2, 2, 2), storage_order=1, outputs=2),
        floats(1, 2, 3, 4, 3),
        "MaxPool column by column over three axes",
    ),
    *(
        pool(MaxPool(kernel_shape=(2, 2), axis=axis, outputs=2), floats(2, 2, 3, 4), f"MaxPool counting from axis {axis}")
        for axis in (1, 2, 3, -1)
    ),
    pool(MaxPool(kernel_shape=(2, 2), index_element_type=dtypes.i32, outputs=2), floats(1, 2, 3, 4), "MaxPool with i32 indices"),
    pool(MaxPool((2,), (0, 1), kernel_shape=(2,), rounding_type="ceil"), floats(1, 1, 5), "MaxPool ceil"),
    *(pool(MaxPool((2,), kernel_shape=(3,)), floats(1, 2, 7, name=name), f"MaxPool of {name}") for name in _NARROW),
    *(
        pool(MaxPool((2,), (1, 1), kernel_shape=(3,)), whole(1, 2, 7, name=name), f"MaxPool of {name}")
        for name in ("i8", "u8", "i32")
    ),
    pool(MaxPool(kernel_shape=(2,)), np.full((1, 1, 4), -np.inf, np.float32), "MaxPool of minus infinity", skip=_LOWEST),
    pool(MaxPool(kernel_shape=(2,)), floats(0, 2, 4), "MaxPool of no images", skip=_NO_IMAGES),
    pool(AveragePool(kernel_shape=(2, 3)), floats(2, 3, 4, 5), "AveragePool over two axes"),
    pool(
        AveragePool((2, 2), (1, 1, 0, 1), kernel_shape=(3, 2), divisor="padded"),
        floats(2, 3, 5, 6),
        "AveragePool with padding that counts",
    ),
    pool(AveragePool(None, (0, 1, 1, 1), (2, 2), kernel_shape=(2, 3)), floats(1, 2, 7, 8), "AveragePool dilated"),
    pool(AveragePool(kernel_shape=(2, 2, 2)), floats(1, 2, 3, 4, 3), "AveragePool over three axes"),
    *(pool(AveragePool((2,), kernel_shape=(3,)), floats(1, 2, 7, name=name), f"AveragePool of {name}") for name in _NARROW),
    pool(LpPool((2,), (1, 1), kernel_shape=(3,)), floats(1, 2, 7), "LpPool"),
    pool(LpPool(kernel_shape=(2, 2), p=3), floats(1, 2, 4, 4), "LpPool of the third power"),
    pool(LpPool((2,), kernel_shape=(3,), p=1), floats(1, 2, 7), "LpPool of absolute values"),
    *(
        Case(op, (floats(*shape),), f"{type(op).__name__} of {list(shape)}", tolerance=1e-6)
        for op in (GlobalAveragePool(), GlobalMaxPool(), GlobalLpPool(), GlobalLpPool(1))
        for shape in ((2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 2))
    ),
    *(
        Case(
            op,
            (floats(2, 3, 4, 5, name=name),),
            f"{type(op).__name__} of {name}",
            tolerance={"f64": 1e-13, "f16": 2e-3}.get(name, 1.6e-2),
        )
        for op in (GlobalAveragePool(), GlobalMaxPool(), GlobalLpPool())
        for name in _NARROW
    ),
]
