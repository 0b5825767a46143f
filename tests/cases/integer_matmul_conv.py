"""Products and convolutions of bytes: zero points for all, by rows, columns and channels; sums brought onto another grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from cases.quantize_linear import codes, scales
from dovetail.ops.quantization.integer_matmul_conv import (
    ConvInteger,
    DynamicQuantizeMatMul,
    MatMulInteger,
    MatMulIntegerToFloat,
    QGemm,
    QLinearConv,
    QLinearMatMul,
)

_ONE_ROW = {"onnxruntime": "it takes one zero point for all of x"}
_F32 = {"openvino": "the CPU plugin sums integers in f32"}
F32 = np.float32


def bytes_of(name: str, *shape: int, seed: int = 3) -> Any:
    return codes(name, *shape, seed=seed)


def products() -> Iterator[Case]:
    u, i = (bytes_of("u8", 5, 7), bytes_of("i8", 5, 7)), (bytes_of("i8", 7, 4), bytes_of("u8", 7, 4))
    for x in u:
        for y in i:
            points = np.array(3, x.dtype), np.array(5, y.dtype)
            yield Case(MatMulInteger(), (x, y, *points), f"MatMulInteger of {x.dtype} and {y.dtype}")
    yield Case(MatMulInteger(), (u[0], i[0]), "MatMulInteger without zero points")
    yield Case(MatMulInteger(), (u[0], i[0], None, codes("i8", 4)), "MatMulInteger with points by columns")
    yield Case(MatMulInteger(), (u[0], i[0], codes("u8", 5)), "MatMulInteger with points by rows", skip=_ONE_ROW)
    matrices = bytes_of("u8", 2, 5, 7), bytes_of("i8", 2, 7, 4)
    yield Case(MatMulInteger(), (*matrices, codes("u8", 1), codes("i8", 2, 1, 4)), "MatMulInteger of many matrices")
    yield Case(
        MatMulInteger(),
        (*matrices, codes("u8", 2, 5, 1), codes("i8", 1)),
        "MatMulInteger of many matrices by rows",
        skip=_ONE_ROW,
    )
    yield Case(MatMulInteger(), (matrices[0], i[0], np.uint8(9)), "MatMulInteger of many matrices and one")
    yield Case(MatMulInteger(), (bytes_of("u8", 7), i[0], np.uint8(9)), "MatMulInteger of a row")
    full = np.full((2, 300), 255, np.uint8), np.full((300, 3), 127, np.int8)
    yield Case(MatMulInteger(), full, "MatMulInteger of the greatest", skip=_F32)
    factors = u[0], F32(0.031), np.uint8(7), i[0], F32(0.017), np.int8(2), F32(0.53), np.uint8(9)
    yield Case(QLinearMatMul(), factors, "QLinearMatMul")
    by_column = *factors[:4], scales(4) / 10, codes("i8", 4), *factors[6:]
    yield Case(QLinearMatMul(), by_column, "QLinearMatMul by columns")
    by_row = u[0], scales(5) / 10, codes("u8", 5), *factors[3:]
    yield Case(QLinearMatMul(), by_row, "QLinearMatMul by rows", skip=_ONE_ROW)
    half = u[0], np.float16(0.03125), np.uint8(7), i[0], np.float16(0.0175), np.int8(2), np.float16(0.53), np.uint8(9)
    yield Case(QLinearMatMul(), half, "QLinearMatMul with scales of f16")
    tied = u[0], F32(0.25), np.uint8(7), i[0], F32(0.25), np.int8(2), F32(32), np.int8(9)
    yield Case(QLinearMatMul(), tied, "QLinearMatMul of ties")


def convolutions() -> Iterator[Case]:
    x, w = bytes_of("u8", 2, 4, 7, 6), bytes_of("i8", 6, 4, 3, 3)
    for op, name in (
        (ConvInteger(), "ConvInteger"),
        (ConvInteger((2, 1), (1, 0, 2, 1), (1, 2)), "ConvInteger with strides, pads and dilations"),
        (ConvInteger(auto_pad="same_upper"), "ConvInteger with automatic pads"),
    ):
        yield Case(op, (x, w, np.uint8(120), np.int8(0)), name)
    grouped = bytes_of("u8", 6, 2, 3, 3)
    yield Case(ConvInteger(group=2), (x, grouped, np.uint8(120), np.uint8(128)), "ConvInteger of groups")
    yield Case(ConvInteger(), (x, w), "ConvInteger without zero points")
    unlike = {"onnxruntime": "it takes one zero point for all weights"}
    yield Case(ConvInteger(), (x, w, np.uint8(120), codes("i8", 6)), "ConvInteger with points by channels", skip=unlike)
    bias = np.arange(6, dtype=np.int32) * 900 - 2000
    rest = F32(0.021), np.uint8(120), w
    for op, name in ((QLinearConv(), "QLinearConv"), (QLinearConv((2, 2), (1, 1, 1, 1)), "QLinearConv with strides and pads")):
        last = F32(0.37), np.uint8(131)
        yield Case(op, (x, *rest, F32(0.0113), np.int8(0), *last, bias), f"{name} and bias")
        yield Case(op, (x, *rest, scales(6) / 30, np.zeros(6, np.int8), *last, bias), f"{name} by channels")
        yield Case(op, (x, *rest, scales(6) / 30, np.zeros(6, np.int8), *last), f"{name} without bias")
    deep = bytes_of("u8", 1, 4, 9), bytes_of("i8", 4, 1, 3)
    yield Case(
        QLinearConv(group=4),
        (deep[0], F32(0.021), np.uint8(12), deep[1], scales(4) / 30, np.zeros(4, np.int8), F32(0.037), np.uint8(100)),
        "QLinearConv channel by channel over one axis",
        skip={"onnx.reference": "it makes an axis of the one before it, too"},
    )


def gemms() -> Iterator[Case]:
    x, y = bytes_of("u8", 5, 7), bytes_of("i8", 7, 4)
    bias = np.array([4000, -3000, 55, 0], np.int32)
    first = F32(0.031), np.uint8(7)
    last = F32(0.53), np.uint8(9)
    yield Case(QGemm(), (x, *first, y, F32(0.017), np.int8(2), bias, *last), "QGemm")
    yield Case(QGemm(0.7), (x, *first, y, scales(4) / 9, codes("i8", 4), bias, *last), "QGemm by columns")
    yield Case(QGemm(0.7), (x, *first, y, scales(4) / 9, codes("i8", 4), bias), "QGemm to f32", tolerance=1e-6)
    yield Case(QGemm(), (x, *first, y, F32(0.017), np.int8(2), None, *last), "QGemm without bias")
    for left, right in ((True, False), (False, True), (True, True)):
        sides = x.T.copy() if left else x, y.T.copy() if right else y
        yield Case(
            QGemm(1.0, left, right),
            (sides[0], *first, sides[1], F32(0.017), np.int8(2), bias, *last),
            f"QGemm swapped {left} {right}",
        )
    near = {"tolerance": 1e-6}
    yield Case(MatMulIntegerToFloat(), (x, y, F32(0.03), F32(0.017)), "MatMulIntegerToFloat", **near)
    yield Case(
        MatMulIntegerToFloat(),
        (x, y, F32(0.03), scales(4), np.uint8(7), codes("i8", 4), floats(4)),
        "MatMulIntegerToFloat by columns",
        **near,
    )
    # One step of the grid apart where the range is divided otherwise.
    rough = {"openvino": "the CPU plugin multiplies by an inverse of the scale"}
    wide = floats(5, 7)
    yield Case(DynamicQuantizeMatMul(), (wide, y, F32(0.017)), "DynamicQuantizeMatMul", skip=rough, **near)
    yield Case(
        DynamicQuantizeMatMul(),
        (wide, y, scales(4), codes("i8", 4), floats(4)),
        "DynamicQuantizeMatMul by columns",
        skip=rough,
        **near,
    )


CASES: list[Case] = [
    replace(case, inputs=tuple(None if x is None else np.asarray(x) for x in case.inputs))
    for case in (*products(), *convolutions(), *gemms())
]
