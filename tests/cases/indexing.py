"""Elements read and written by index, shapes as values, and what is chosen by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import elements, f32, i64
from cases.movement import i32, of_every_type, ramp
from dovetail.ir import dtypes
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
from dovetail.ops.tensor.nonzero_compress import Compress, NonZero
from dovetail.ops.tensor.onehot_trilu_eye import EyeLike, OneHot, Trilu
from dovetail.ops.tensor.scatter import ScatterElements, ScatterND, ScatterUpdate, TensorScatter
from dovetail.ops.tensor.shape import ConstantOfShape, Range, Shape, Size
from dovetail.ops.tensor.slice import ReverseSequence

_EMPTY = np.array([], dtype=np.int64)


def scalar(value: Any, kind: str = "int64") -> np.ndarray[Any, Any]:
    return np.array(value, dtype=kind)


def rows(*items: Any) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int64)


_ABORTS = {"openvino": "OpenVINO's CPU plugin aborts on empty tensors"}
_NARROW = {"openvino": "OpenVINO's CPU plugin holds i64 in 32 bits"}
_DEPTH = {"rank": "it depends on the size of the last axis"}
_FLOATS = {"shape": "a float is no shape value"}
_COUNT = {"shape": "how many there are depends on the elements"}
READING: list[Case] = [
    *of_every_type(Gather(1), i64(2, 0, 2)),
    Case(Gather(), (ramp(4, 3), i64(1, -1)), "Gather from the end"),
    Case(Gather(-1), (ramp(4, 3), rows([0, 2], [1, 1])), "Gather by a matrix"),
    Case(Gather(), (ramp(4, 3), scalar(2)), "Gather by a scalar"),
    Case(Gather(1), (ramp(2, 3, 4), i32(2, 1)), "Gather by 32 bits"),
    Case(Gather(), (ramp(4, 3), _EMPTY), "Gather by nothing", skip=_ABORTS),
    Case(Gather(1), (ramp(0, 3), i64(1)), "Gather from nothing along another axis", skip=_ABORTS),
    Case(
        Gather(bounds="zero"),
        (ramp(3, 2), i64(0, 3, -3, -4)),
        "Gather with zeros outside",
        skip={"onnx": "onnx refuses at run time", "onnxruntime": "onnx refuses at run time"},
    ),
    Case(Gather(1, bounds="zero"), (ramp(2, 3), i64(0, -1)), "Gather with zeros outside, all inside"),
    Case(Gather(bounds="natural"), (ramp(3, 2), i64(2, 0)), "Gather by natural numbers"),
    Case(Gather(1, 1), (ramp(2, 5), rows([0, 0, 4], [4, 0, 0])), "Gather with a batch"),
    Case(Gather(2, 1), (ramp(2, 1, 5, 4), rows([1, 2, 4], [4, 3, 2])), "Gather with a batch, further behind"),
    Case(Gather(2, 2), (ramp(2, 2, 3), rows([[0, 2], [1, 1]], [[2, 0], [0, 1]])), "Gather with a batch of two axes"),
    Case(Gather(1, -1), (ramp(2, 5), rows([0, 0, 4], [4, 0, 0])), "Gather with a batch counted from the end"),
    Case(
        Gather(1, 1, "zero"),
        (ramp(2, 3), rows([0, 5], [-1, 1])),
        "Gather with a batch and zeros outside",
        skip=dict.fromkeys(("onnx", "onnxruntime", "apart"), "GatherND refuses at run time"),
    ),
    Case(Gather(), (ramp(4, 3), i64(1, 3)), "Gather by a constant", constants=(1,)),
    *of_every_type(GatherElements(1), rows([2, 0], [1, 1])),
    Case(GatherElements(), (ramp(3, 3), rows([1, 2, 0], [2, 0, 0])), "GatherElements along the first axis"),
    Case(GatherElements(1), (ramp(2, 2), rows([-1, 0, 1], [0, -2, 1])), "GatherElements with more indices than elements"),
    Case(GatherElements(), (ramp(3, 4), rows([0, 1], [2, 2])), "GatherElements with fewer columns"),
    Case(GatherElements(-1), (ramp(2, 3), i32(1).reshape(1, 1)), "GatherElements of one"),
    *of_every_type(GatherND(), rows([0, 1], [1, 2]), skip=_DEPTH),
    Case(GatherND(), (ramp(2, 3, 2), rows([1], [0])), "GatherND of slices", skip=_DEPTH),
    Case(GatherND(), (ramp(2, 2, 2), rows([[0, 1]], [[1, 0]])), "GatherND by three axes", skip=_DEPTH),
    Case(GatherND(1), (ramp(2, 3, 2), rows([1], [0])), "GatherND with a batch", skip=_DEPTH),
    Case(
        GatherND(2),
        (ramp(2, 3, 4), rows([[[1]], [[0]], [[2]]], [[[0]], [[2]], [[3]]])),
        "GatherND with a batch of two axes",
        skip=_DEPTH,
    ),
    Case(GatherND(), (ramp(2, 3), rows([-1, -3])), "GatherND from the end", skip=_DEPTH),
    Case(GatherND(), (ramp(2, 3), np.zeros((0, 2), np.int64)), "GatherND of nothing", skip=_DEPTH),
]

_UPDATES = f32(2, 2, start=9)
WRITING: list[Case] = [
    *(
        Case(
            ScatterElements(1),
            (elements(name, (2, 3)), rows([2, 0], [1, 2]), elements(name, (2, 2), 7)),
            f"ScatterElements of {name}",
        )
        for name in ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "boolean", "complex64")
    ),
    Case(ScatterElements(), (ramp(3, 3), rows([1, 0, 2], [0, 2, 1]), f32(2, 3, start=1)), "ScatterElements along the first axis"),
    Case(ScatterElements(-1), (ramp(1, 5), rows([1, -2]), f32(1, 2, start=1)), "ScatterElements from the end"),
    Case(ScatterElements(1), (ramp(1, 5), np.zeros((1, 0), np.int64), f32(1, 0)), "ScatterElements of nothing"),
    *(
        Case(
            ScatterElements(1, use_init_val=True, reduction=how),
            (ramp(1, 5), rows([1, 1, 4]), f32(1, 3, start=1)),
            f"ScatterElements by {how}",
        )
        for how in ("add", "mul", "min", "max")
    ),
    Case(
        ScatterElements(1, reduction="mean"),
        (ramp(1, 5), rows([1, 1, 4]), np.float32([[2, 6, 8]])),
        "ScatterElements by mean",
        tolerance=1e-6,
    ),
    *(
        Case(
            ScatterElements(1, use_init_val=False, reduction=how),
            (ramp(1, 5), rows([1, 1, 4]), np.float32([[2, 6, 8]])),
            f"ScatterElements by {how} alone",
        )
        for how in ("add", "mul", "min", "max", "mean")
    ),
    *(
        Case(ScatterND(), (elements(name, (4, 2)), rows([3], [1]), elements(name, (2, 2), 7)), f"ScatterND of {name}")
        for name in ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "boolean", "complex64")
    ),
    Case(ScatterND(), (ramp(2, 3), rows([0, -1], [-2, 0]), f32(2, start=1)), "ScatterND of elements"),
    *(
        Case(ScatterND(how), (ramp(4), rows([1], [1], [3]), f32(3, start=1)), f"ScatterND by {how}")
        for how in ("add", "mul", "min", "max")
    ),
    Case(ScatterND("add"), (ramp(2, 2, 2), rows([[0], [1]], [[0], [0]]), ramp(2, 2, 2, 2)), "ScatterND of slices in a matrix"),
    Case(ScatterUpdate(1), (ramp(3, 5), i64(0, 2), f32(3, 2, start=3)), "ScatterUpdate of columns"),
    Case(ScatterUpdate(0), (ramp(3, 5), scalar(1), f32(5, start=3)), "ScatterUpdate of a row"),
    Case(ScatterUpdate(-1), (ramp(2, 2, 4), rows([0, 3], [1, 2]), ramp(2, 2, 2, 2)), "ScatterUpdate by a matrix"),
]

_I32 = dtypes.dtype("i32")
_NO_VALUES = {"openvino": "nothing of it is computed"}
SHAPES: list[Case] = [
    *of_every_type(Shape()),
    Case(Shape(1), (ramp(2, 3, 4),), "Shape from an axis"),
    Case(Shape(0, -1), (ramp(2, 3, 4),), "Shape to an axis"),
    Case(Shape(-2, 2), (ramp(2, 3, 4),), "Shape between axes"),
    Case(Shape(-9, 9), (ramp(2, 3, 4),), "Shape with bounds outside"),
    Case(Shape(2, 1), (ramp(2, 3, 4),), "Shape of no axis"),
    Case(Shape(output_type=_I32), (ramp(2, 0),), "Shape of 32 bits"),
    Case(Shape(1, output_type=_I32), (ramp(2, 3),), "Shape of 32 bits from an axis"),
    Case(Shape(), (ramp(),), "Shape of a scalar"),
    *of_every_type(Size()),
    Case(Size(), (ramp(),), "Size of a scalar"),
    Case(Size(), (ramp(2, 0),), "Size of nothing"),
    *(
        Case(
            ConstantOfShape(),
            (i64(2, 3), elements(name, (1,), 3)),
            f"ConstantOfShape of {name}",
            constants=(1,),
            skip=_NARROW if name == "i64" else {},
        )
        for name in ("f32", "f16", "f64", "bf16", "i64", "i8", "u8", "boolean")
    ),
    Case(ConstantOfShape(), (_EMPTY, np.float32([2])), "ConstantOfShape of a scalar", constants=(1,)),
    Case(ConstantOfShape(), (i64(0, 2), np.float32([2])), "ConstantOfShape of nothing", constants=(1,)),
    Case(ConstantOfShape(), (i32(2, 2), np.array(2, np.float32)), "ConstantOfShape of a computed value"),
    *(
        Case(
            Range(),
            tuple(scalar(item, kind) for item in items),
            f"Range of {kind}: {items}",
            skip=_FLOATS if kind.startswith("float") else {},
            tolerance=1e-6,
        )
        for kind, items in (
            ("int64", (3, 9, 3)),
            ("int64", (10, 4, -2)),
            ("int32", (0, 5, 2)),
            ("int16", (-3, 3, 1)),
            ("float32", (1, 5.5, 1.5)),
            ("float64", (2, 0, -0.25)),
            ("float32", (0, 1, 0.1)),
            ("int64", (5, 5, 1)),
            ("int64", (5, 2, 1)),
        )
    ),
    Case(Range(output_type=_I32), (scalar(0), scalar(7), scalar(3)), "Range of another type"),
    Case(Range(dtypes.f32), (scalar(0), scalar(7), scalar(3)), "Range of floats between integers"),
    Case(Range(), (i64(0), i64(4), i64(1)), "Range between vectors of one element"),
]

_HOT = (scalar(5, "float32"), scalar(-1, "float32"))
CHOOSING: list[Case] = [
    Case(NonZero(), (np.array([[1, 0, 3], [0, 0, 2]], np.float32),), "NonZero of f32", skip=_COUNT),
    Case(NonZero(), (np.array([True, False, True]),), "NonZero of boolean", skip=_COUNT),
    Case(NonZero(_I32), (np.array([[[0, 1]], [[2, 0]]], np.int64),), "NonZero of 32 bits", skip=_COUNT),
    Case(NonZero(), (np.zeros((2, 2), np.float32),), "NonZero of zeros", skip=_COUNT),
    Case(NonZero(), (np.zeros((0, 3), np.float32),), "NonZero of nothing", skip=_COUNT),
    Case(Compress(0), (ramp(3, 2), np.array([False, True, True])), "Compress of rows", constants=(1,), skip=_COUNT),
    Case(Compress(-1), (ramp(3, 2), np.array([False, True])), "Compress of columns", constants=(1,), skip=_COUNT),
    Case(Compress(), (ramp(3, 2), np.array([False, True, False, True])), "Compress of elements", constants=(1,), skip=_COUNT),
    Case(Compress(0), (ramp(3, 2), np.array([True])), "Compress with a short condition", constants=(1,), skip=_COUNT),
    Case(
        Compress(0), (np.arange(6).reshape(3, 2), np.array([True, False, True])), "Compress by a computed condition", skip=_COUNT
    ),
    Case(OneHot(), (i64(1, -1, 3, -4, 2), scalar(3), *_HOT), "OneHot", constants=(2, 3)),
    Case(OneHot(0), (rows([0, 2], [1, 1]), scalar(3), *_HOT), "OneHot at the front", constants=(2, 3)),
    Case(OneHot(1, False), (i64(1, -1, 3), scalar(3), *_HOT), "OneHot of natural numbers", constants=(2, 3)),
    Case(OneHot(), (i32(0, 1), scalar(2), scalar(1), scalar(0)), "OneHot of i64", constants=(2, 3)),
    Case(
        OneHot(),
        (np.float32([1.5, 0]), i64(3), *_HOT),
        "OneHot of floats",
        constants=(2, 3),
        skip={"onnxruntime": "onnxruntime has not these types"},
    ),
    Case(OneHot(), (i64(1, 0), scalar(2), *_HOT), "OneHot of computed values"),
    *(
        Case(Trilu(upper), (elements(name, (2, 3, 4)), scalar(k)), f"Trilu of {name}, {'upper' if upper else 'lower'}, from {k}")
        for name in ("f32", "i64")
        for upper in (True, False)
        for k in (-1, 0, 2)
    ),
    Case(Trilu(), (ramp(3, 3),), "Trilu"),
    Case(EyeLike(), (ramp(3, 4),), "EyeLike"),
    Case(EyeLike(-1, _I32), (ramp(3, 3),), "EyeLike below the diagonal"),
    Case(EyeLike(5), (ramp(2, 3),), "EyeLike beside the matrix"),
    Case(ReverseSequence(), (ramp(4, 3), i64(4, 1, 2)), "ReverseSequence of columns"),
    Case(ReverseSequence(0, 1), (ramp(3, 4, 2), i64(1, 4, 3)), "ReverseSequence of rows"),
    Case(ReverseSequence(2, -3), (ramp(4, 2, 3), i64(1, 4, 3)), "ReverseSequence of other axes"),
]

CACHES: list[Case] = [
    Case(TensorScatter(mode=mode), (ramp(2, 3, 6, 4), -ramp(2, 3, 2, 4), i64(1, 4)), f"TensorScatter {mode}")
    for mode in ("linear", "circular")
] + [
    Case(TensorScatter(1, "circular"), (ramp(2, 4, 3), -ramp(2, 3, 3), i64(3, 9)), "TensorScatter around the end"),
    Case(TensorScatter(), (ramp(2, 4, 3), -ramp(2, 3, 3)), "TensorScatter from the beginning"),
]

CASES: list[Case] = [*CACHES, *READING, *WRITING, *SHAPES, *CHOOSING]
