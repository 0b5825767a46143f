"""Operators between two quantized tensors, and products with weights of a few bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from cases.quantize_linear import codes, scales
from dovetail.ir import dtypes
from dovetail.ops.quantization.gather_block_quantized import GatherBlockQuantized
from dovetail.ops.quantization.matmul_nbits import MatMulNBits
from dovetail.ops.quantization.qlinear import (
    QLinearAdd,
    QLinearAveragePool,
    QLinearConcat,
    QLinearGlobalAveragePool,
    QLinearLeakyRelu,
    QLinearMul,
    QLinearSigmoid,
    QLinearSoftmax,
)

F32 = np.float32
BYTES = (np.uint8, np.int8)
_GIVEN = {"onnxruntime": "its inference of types wants every zero point"}


def pairs() -> Iterator[Case]:
    for op in (QLinearAdd(), QLinearMul()):
        name, out = type(op).__name__, F32(0.0583) if isinstance(op, QLinearAdd) else F32(0.0911)
        for kind in BYTES:
            word = np.dtype(kind).name.replace("uint", "u").replace("int", "i")
            x, y = codes(word, 3, 4, 5), codes(word, 3, 4, 5, seed=9)
            first, second, last = (F32(0.0317), kind(7)), (F32(0.0111), kind(9)), (out, kind(11))
            yield Case(op, (x, *first, y, *second, *last), f"{name} of {word}")
            yield Case(op, (x, *first, codes(word, 4, 1), *second, *last), f"{name} of {word} that broadcast")
            yield Case(op, (x, first[0], None, y, second[0], None, last[0]), f"{name} of {word} without zero points", skip=_GIVEN)
        ties = codes("u8", 50), F32(0.25), np.uint8(7), codes("u8", 50, seed=9), F32(0.5), np.uint8(8), F32(4), np.uint8(9)
        yield Case(op, ties, f"{name} of ties")


def functions() -> Iterator[Case]:
    every = np.arange(256).astype(np.uint8)
    grids = F32(0.0513), np.uint8(120), F32(0.00417), np.uint8(3)
    yield Case(QLinearSigmoid(), (every, *grids), "QLinearSigmoid")
    yield Case(
        QLinearSigmoid(),
        (every.view(np.int8), F32(0.0513), None, F32(0.00817)),
        "QLinearSigmoid without zero points",
        skip=_GIVEN,
    )
    yield Case(QLinearLeakyRelu(), (every, F32(0.0513), np.uint8(120), F32(0.0217), np.uint8(30)), "QLinearLeakyRelu")
    yield Case(
        QLinearLeakyRelu(0.25), (every.view(np.int8), F32(0.0513), np.int8(20), F32(0.0217), np.int8(3)), "QLinearLeakyRelu of i8"
    )
    for op, name in ((QLinearSoftmax(), "QLinearSoftmax"), (QLinearSoftmax(1, True), "QLinearSoftmax over all after")):
        yield Case(op, (codes("u8", 3, 4, 5), F32(0.0513), np.uint8(120), F32(1 / 256), np.uint8(3)), name)
    image = codes("u8", 2, 3, 5, 4)
    grids = F32(0.0317), np.uint8(7), F32(0.0211), np.uint8(9)
    yield Case(QLinearGlobalAveragePool(), (image, *grids), "QLinearGlobalAveragePool")
    yield Case(QLinearGlobalAveragePool(True), (image, *grids), "QLinearGlobalAveragePool with channels last")
    pools = (
        QLinearAveragePool(kernel_shape=(2, 2)),
        QLinearAveragePool(kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
        QLinearAveragePool(kernel_shape=(3, 2), pads=(1, 0, 1, 1), divisor="padded"),
    )
    for op in pools:
        yield Case(op, (image, *grids), f"{op}")
    parts = codes("u8", 2, 3, 4), F32(0.0317), np.uint8(7), codes("u8", 2, 1, 4), F32(0.0113), np.uint8(0)
    yield Case(QLinearConcat(1), (F32(0.0583), np.uint8(9), *parts), "QLinearConcat")
    yield Case(QLinearConcat(-1), (F32(0.0583), np.uint8(9), *parts[:3]), "QLinearConcat of one")


def packed() -> Iterator[Case]:
    inner, columns, block = 70, 5, 32
    for bits in (2, 4, 8):
        weights = codes("u8", columns, 3, block * bits // 8)
        size = scales(columns, 3)
        near: Any = {"tolerance": 2e-5}
        op = MatMulNBits(inner, columns, bits, block)
        yield Case(op, (floats(4, inner), weights, size), f"MatMulNBits of {bits} bits", **near)
        points = codes("u8", columns, -(-3 * bits // 8), seed=8)
        yield Case(op, (floats(4, inner), weights, size, points), f"MatMulNBits of {bits} bits with zero points", **near)
        yield Case(
            op, (floats(4, inner), weights, size, points), f"MatMulNBits of {bits} constant bits", constants=(1, 2, 3), **near
        )
        exact = {"onnxruntime": "it takes zero points of 8 bits as codes only"} if bits == 8 else {}
        yield Case(
            op,
            (floats(2, 4, inner), weights.reshape(columns, 3, -1), size, scales(columns, 3, seed=1) * 9, None, floats(columns)),
            f"MatMulNBits of {bits} bits with floats for zero points and a bias",
            skip=exact,
            **near,
        )
        wrong = "onnxruntime 1.32 answers differently with and without a natural g_idx"
        for name, blocks in (
            ("natural", np.arange(inner) // block),
            ("unsorted", np.arange(inner) * 7 % 3),
            ("padded", np.arange(3 * block) * 5 % 3),
        ):
            for given in (None, points):
                for constants in ((), (1, 2, 3, 4) if given is not None else (1, 2, 4)):
                    skip = {}
                    if bits == 8:
                        skip["onnxruntime"] = "it takes g_idx with 2 and 4 bits only"
                    elif bits == 2 or given is not None:
                        skip["onnxruntime"] = wrong
                    label = f"{bits} {'constant ' * bool(constants)}bits{' with zero points' * (given is not None)}"
                    inputs = floats(4, inner), weights, size, given, blocks.astype(np.int32)
                    case = f"MatMulNBits of {label} with {name} g_idx"
                    yield Case(op, inputs, case, constants=constants, skip=skip, **near)
    whole = MatMulNBits(64, 3, 4, 16)
    yield Case(whole, (floats(2, 64), codes("u8", 3, 4, 8), scales(12)), "MatMulNBits of whole blocks", tolerance=2e-5)


def tables() -> Iterator[Case]:
    indices = np.array([[0, 3], [-1, -6], [7, -8]])
    for bits in (2, 4, 8):
        count, width = 8 // bits, 20
        blocks = -(-width * count // 16)
        op = GatherBlockQuantized(block_size=16, bits=bits)
        inputs = codes("u8", 6, width), indices, scales(6, blocks)
        points = codes("u8", 6, -(-blocks // count), seed=8)
        yield Case(op, inputs, f"GatherBlockQuantized of {bits} bits in bytes")
        yield Case(op, (*inputs, points), f"GatherBlockQuantized of {bits} bits in bytes with zero points")
        yield Case(op, (*inputs, points), f"GatherBlockQuantized of {bits} constant bits in bytes", constants=(0, 2, 3))
    # OpenVINO 2026.4 reads outside of compressed tables of 3 axes.
    cube = codes("u8", 6, 3, 20), (indices % 6).astype(np.int32), scales(6, 3, 3), codes("u8", 6, 3, 2, seed=8)
    yield Case(GatherBlockQuantized(0, -1, 16, 4), cube, "GatherBlockQuantized of a cube of bytes", constants=(0, 2, 3))
    for kind in ("u4", "i4"):
        for gather_axis, quantize_axis in ((0, 1), (1, 0), (0, 0), (-1, -1)):
            op = GatherBlockQuantized(gather_axis, quantize_axis, 16)
            shape = [18, 34]
            table = codes(kind, *shape)
            shape[quantize_axis] = -(-shape[quantize_axis] // 16)
            inputs = table, indices, scales(*shape)
            name = f"GatherBlockQuantized of {kind} along {gather_axis}, in blocks along {quantize_axis}"
            yield Case(op, inputs, name, constants=(0, 2))
            yield Case(op, (*inputs, codes(kind, *shape, seed=8)), f"{name}, with zero points", constants=(0, 2, 3))
    half = codes("u4", 6, 40), indices, scales(6, 3).astype(np.float16)
    yield Case(GatherBlockQuantized(block_size=16), half, "GatherBlockQuantized with scales of f16", constants=(0, 2))
    for kind in ("f8e4m3", "f8e5m2", "f4e2m1"):
        table = floats(6, 40).astype(dtypes.dtype(kind).numpy)
        for block, size in ((16, (6, 3)), (0, (6, 1)), (0, (1, 1))):
            op = GatherBlockQuantized(block_size=block)
            name = f"GatherBlockQuantized of {kind} with scales {list(size)}"
            yield Case(op, (table, indices, scales(*size)), name, constants=(0, 2))


CASES: list[Case] = [
    replace(case, inputs=tuple(None if x is None else np.asarray(x) for x in case.inputs))
    for case in (*pairs(), *functions(), *packed(), *tables())
]
