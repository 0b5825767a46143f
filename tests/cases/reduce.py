"""Reductions over axes in every form, of nothing and of integers; places of extremes; running sums and products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases import Case
from cases.elementwise import numbers, tolerance
from dovetail.ir.op import REGISTRY
from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
from dovetail.ops.reduction.cumulative import CumProd, CumSum
from dovetail.ops.reduction.reduce import ReduceAll, ReduceAny, ReduceMax, ReduceMin

KINDS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
).split()
_EMPTY = {"openvino": "OpenVINO leaves the reduction of nothing open"}
_NAN = {"openvino": "OpenVINO leaves NaN open", "onnxruntime": "onnxruntime passes over NaN"}


def axes(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, np.int64)


def reductions() -> Iterator[Case]:
    for kind in KINDS:
        op = REGISTRY[kind]
        x = numbers("f32", 2, 3, 4, low=0.5, high=2)
        for given in ((), (axes(),), (axes(1),), (axes(-1, 0),), (axes(0, 1, 2),)):
            for keep in (True, False):
                yield Case(op(keepdims=keep), (x, *given), tolerance=1e-5)
        for given in ((), (axes(),), (axes(2),)):
            skip = {"onnxruntime": "onnxruntime returns the input itself"} if len(given) == 0 or not given[0].size else {}
            yield Case(op(noop_with_empty_axes=True), (x, *given), tolerance=1e-5, skip=skip)
        yield Case(op(), (x, np.array(1, np.int32)), tolerance=1e-5, name=f"{kind} over a scalar axis")
        yield Case(op(), (numbers("f32", low=0.5),), tolerance=1e-5)
        for name in ("f64", "f16", "bf16"):
            yield Case(op(), (numbers(name, 3, 4, low=0.5, high=1.5), axes(1)), tolerance=tolerance(name))
        for shape in ((0, 3), (2, 0)):
            skip = _EMPTY if shape[0] == 0 else {}
            if kind == "ReduceMean":
                skip = {**skip, "onnxruntime": "the mean of nothing is undefined"}
            yield Case(op(), (numbers("f32", *shape), axes(0)), tolerance=1e-5, skip=skip)
        integers = ("i32", "i64", "u32") if "Log" not in kind else ()
        for name in integers:
            skip = (
                {"openvino": "OpenVINO's CPU plugin rounds where integers are cut off"}
                if kind in ("ReduceL2", "ReduceMean")
                else {}
            )
            if name == "u32" and kind == "ReduceSumSquare":
                skip = {"onnxruntime": "onnx.reference makes u64"}
            yield Case(op(), (numbers(name, 3, 4, low=-5, high=5), axes(-1)), skip=skip)
    for op in (ReduceMax(), ReduceMin()):
        for name in ("i8", "u8"):
            yield Case(op, (numbers(name, 3, 4, low=-90, high=90), axes(0)))
        yield Case(op, (numbers("boolean", 3, 4), axes(0)))
        yield Case(op, (numbers("i32", 0, 4), axes(0)), skip=_EMPTY)
        yield Case(op, (numbers("boolean", 0, 4), axes(0)), skip={**_EMPTY, "onnxruntime": "onnxruntime refuses it"})
        nan = np.array([[1, np.nan, 2], [3, 1, 2]], np.float32)
        yield Case(op, (nan, axes(1)), name=f"{op} of NaN", skip=_NAN)
    for op in (ReduceAll, ReduceAny):
        for given in ((), (axes(0),), (axes(-1, 0),)):
            for keep in (True, False):
                yield Case(op(keepdims=keep), (numbers("boolean", 3, 4), *given))
        yield Case(op(noop_with_empty_axes=True), (numbers("boolean", 3), axes()))
    zeros = np.array([[1, 0, 2], [0, 3, 0], [1, 2, 3]], np.float32)
    yield Case(REGISTRY["ReduceProd"](), (zeros, axes(1)), name="ReduceProd with zeros")
    yield Case(
        REGISTRY["ReduceLogSumExp"](), (numbers("f32", 2, 3, low=200, high=300), axes(1)), tolerance=1e-6, name="far exponents"
    )


def places() -> Iterator[Case]:
    ties = np.array([[1, 3, 3], [2, 2, 1]], np.float32)
    for op in (ArgMax, ArgMin):
        for axis in (0, 1, -1):
            for keep in (True, False):
                yield Case(op(axis, keep), (ties,))
                yield Case(op(axis, keep, True), (ties,))
        for name in ("f64", "f16", "bf16", "i8", "i32", "u8"):
            yield Case(op(1), (numbers(name, 2, 3, 4, low=-90, high=90),))
        yield Case(op(), (numbers("f32", 1, 0),))


def running() -> Iterator[Case]:
    for op in (CumSum, CumProd):
        for exclusive in (False, True):
            for reverse in (False, True):
                for axis in (0, -1):
                    x = numbers("f32", 3, 4, low=0.5, high=2)
                    yield Case(op(exclusive, reverse), (x, np.array(axis, np.int64)), tolerance=1e-5)
        for name in ("f64", "f16", "bf16", "i32", "i64"):
            yield Case(op(), (numbers(name, 3, 4, low=1, high=3), np.array(1, np.int32)), tolerance=tolerance(name))
        yield Case(op(), (numbers("f32", 0, 4), np.array(0, np.int64)), tolerance=1e-5)
        yield Case(op(exclusive=True), (numbers("i64", 1, 4), np.array(0, np.int64)))


CASES: list[Case] = [*reductions(), *places(), *running()]
