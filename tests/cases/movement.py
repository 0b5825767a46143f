"""Shapes changed and data moved: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Tile, Slice, Roll, Pad, and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import TYPES, elements, f32, i64
from dovetail.ir.op import Op
from dovetail.ops.tensor.depth_to_space import DepthToSpace, ShuffleChannels, SpaceToDepth
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from dovetail.ops.tensor.slice import Roll, Slice
from dovetail.ops.tensor.transpose_expand_tile import Expand, Tile, Transpose

MOST, LEAST = 2**63 - 1, -(2**63)
_NO_STRINGS = {"openvino": "OpenVINO's CPU plugin aborts on it"}
_PADS = {"onnxruntime": "onnxruntime pads no texts", "onnx.reference": "onnx.reference pads with the text 0"}
_EMPTY = np.array([], dtype=np.int64)


def i32(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int32)


def of_every_type(op: Op, *rest: Any, shape: tuple[int, ...] = (2, 3), skip: dict[str, str] | None = None) -> list[Case]:
    """Return the operator over all element types."""
    outside = skip or {}
    return [
        Case(
            op,
            (elements(name, shape), *rest),
            f"{type(op).__name__} of {name}",
            skip={**outside, **_NO_STRINGS} if name == "string" else outside,
        )
        for name in TYPES
    ]


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


RESHAPING: list[Case] = [
    *of_every_type(Reshape(), i64(3, -1)),
    Case(Reshape(), (f32(2, 3, 4), i64(0, -1)), "Reshape that copies and computes"),
    Case(Reshape(), (f32(2, 3, 4), i64(-1)), "Reshape to a vector"),
    Case(Reshape(), (f32(1), _EMPTY), "Reshape to a scalar"),
    Case(Reshape(), (f32(), i64(1, 1, 1)), "Reshape of a scalar"),
    Case(Reshape(), (f32(0, 3), i64(-1, 5)), "Reshape of nothing"),
    Case(Reshape(special_zero=False), (f32(0, 3), i64(3, 0)), "Reshape with a literal 0"),
    Case(Reshape(special_zero=False), (f32(2, 0), i64(0, 7, 9)), "Reshape with a literal 0 and more axes"),
    Case(Reshape(empty="cancel"), (f32(0, 3), i64(0, -1)), "Reshape that cancels a 0"),
    Case(Reshape(empty="zero"), (f32(0, 3), i64(0, -1)), "Reshape that takes 0 for -1"),
    Case(Reshape(empty="cancel"), (f32(2, 3), i64(0, -1)), "Reshape with nothing to cancel"),
    *(
        Case(Reshape(), (f32(2, 3), np.array([3, 2], dtype=kind)), f"Reshape by a target of {kind}")
        for kind in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64")
    ),
    *of_every_type(Flatten()),
    *(Case(Flatten(axis), (f32(2, 3, 4),)) for axis in (-3, -1, 0, 2, 3)),
    Case(Flatten(0), (f32(),), "Flatten of a scalar"),
    Case(Flatten(2), (f32(2, 0, 3),), "Flatten of nothing"),
    *of_every_type(Squeeze(), i64(0), shape=(1, 3)),
    Case(Squeeze(), (f32(1, 2, 1, 3, 1),), "Squeeze of every 1", skip={"rank": "it depends on the sizes"}),
    Case(Squeeze(), (f32(1, 2, 1, 3, 1), i64(-1, 0)), "Squeeze with a negative axis"),
    Case(Squeeze(), (f32(1, 2), _EMPTY), "Squeeze of no axis"),
    Case(Squeeze(), (f32(1, 2), np.array(0)), "Squeeze of a scalar axis"),
    Case(Squeeze(), (f32(1, 0), i32(0)), "Squeeze of nothing"),
    Case(Squeeze(), (f32(2, 3),), "Squeeze without a 1", skip={"rank": "it depends on the sizes"}),
    Case(Squeeze(True), (f32(1, 2, 1), i64(1, 2)), "Squeeze that skips", skip={"rank": "it depends on the sizes"}),
    Case(Squeeze(True), (f32(2, 3), i64(0)), "Squeeze that skips all", skip={"rank": "it depends on the sizes"}),
    *of_every_type(Unsqueeze(), i64(0)),
    Case(Unsqueeze(), (f32(2, 3), i64(-1, 1)), "Unsqueeze at two places"),
    Case(Unsqueeze(), (f32(2, 3), i64(4, 0, 2)), "Unsqueeze out of order"),
    Case(Unsqueeze(), (f32(), i64(0, 1)), "Unsqueeze of a scalar"),
    Case(Unsqueeze(), (f32(2, 3), np.array(1)), "Unsqueeze at a scalar axis"),
    Case(Unsqueeze(), (f32(2), _EMPTY), "Unsqueeze at no axis", skip={"onnxruntime": "onnxruntime needs an axis"}),
    Case(Unsqueeze(), (f32(0, 2), i32(1)), "Unsqueeze of nothing"),
]

MOVING: list[Case] = [
    *of_every_type(Transpose()),
    *(Case(Transpose(), (f32(2, 3, 4), i64(*order))) for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2), (0, 2, 1))),
    Case(Transpose(), (f32(),), "Transpose of a scalar"),
    Case(Transpose(), (f32(3),), "Transpose of a vector"),
    Case(Transpose(), (f32(2, 0, 3), i64(1, 2, 0)), "Transpose of nothing"),
    Case(Transpose(), (f32(2, 3), _EMPTY), "Transpose by an empty order"),
    Case(Transpose(), (f32(1, 2, 1, 3, 2), i64(4, 2, 0, 3, 1)), "Transpose of five axes"),
    *of_every_type(Expand(), i64(2, 2, 3), shape=(2, 1)),
    Case(Expand(), (f32(3, 1), i64(1, 4)), "Expand both ways"),
    Case(Expand(), (f32(2, 3), i64(1)), "Expand that changes nothing"),
    Case(Expand(), (f32(2, 3), _EMPTY), "Expand to no shape"),
    Case(Expand(), (f32(), i64(2, 2)), "Expand of a scalar"),
    Case(Expand(), (f32(1, 2), i64(0, 2)), "Expand to nothing"),
    Case(Expand(False), (f32(2, 1), i64(3, 2, 4)), "Expand to exactly a shape"),
    Case(Expand(False), (f32(2, 1), i32(2, 1)), "Expand to its own shape"),
    *of_every_type(Tile(), i64(2, 1)),
    Case(Tile(), (f32(2, 3), i64(2, 3)), "Tile of two axes"),
    Case(Tile(), (f32(2, 3), i64(1, 0)), "Tile by 0"),
    Case(Tile(), (f32(), _EMPTY), "Tile of a scalar", skip={"onnxruntime": "onnxruntime needs an axis"}),
    Case(Tile(True), (f32(2, 3), i64(2)), "Tile with few repeats"),
    Case(Tile(True), (f32(2, 3), i64(2, 1, 3)), "Tile with many repeats"),
    Case(Tile(True), (f32(2, 3), i32(2, 2)), "Tile with as many repeats"),
]

SLICING: list[Case] = [
    *of_every_type(Slice(), i64(1), i64(3), i64(1)),
    Case(Slice(), (ramp(5, 4), i64(1, 0), i64(4, 3)), "Slice without axes"),
    Case(Slice(), (ramp(5, 4), i64(-3), i64(-1), i64(-2)), "Slice from the end"),
    Case(Slice(), (ramp(5, 4), i64(1), i64(MOST), i64(0)), "Slice to the end"),
    Case(Slice(), (ramp(5, 4), i32(1), i32(2**31 - 1), i32(0), i32(2)), "Slice by 32 bits"),
    Case(Slice(), (ramp(5, 4), i32(-1), i32(-(2**31)), i32(0), i32(-2)), "Slice by 32 bits backward"),
    Case(Slice(), (ramp(7), i64(-1), i64(LEAST), i64(0), i64(-1)), "Slice backward"),
    Case(Slice(), (ramp(7), i64(5), i64(1), i64(0), i64(-2)), "Slice backward by two"),
    Case(Slice(), (ramp(7), i64(100), i64(-100), i64(0), i64(-3)), "Slice backward with bounds outside"),
    Case(Slice(), (ramp(7), i64(-100), i64(100), i64(0), i64(3)), "Slice with bounds outside"),
    Case(
        Slice(),
        (ramp(7), i64(-100), i64(LEAST), i64(0), i64(-1)),
        "Slice backward from before the beginning",
    ),
    Case(Slice(), (ramp(7), i64(-3), i64(-6), i64(0), i64(-1)), "Slice backward between bounds from the end"),
    Case(Slice(), (ramp(7), i64(-1), i64(-6), i64(0), i64(-2)), "Slice backward by two from the last"),
    Case(Slice(), (ramp(7), i64(6), i64(0), i64(0), i64(-3)), "Slice backward that stops before the first"),
    Case(Slice(), (ramp(7), i64(4), i64(-8), i64(0), i64(-4)), "Slice backward to the first"),
    Case(Slice(), (ramp(0), i64(-5), i64(LEAST), i64(0), i64(-1)), "Slice backward from before the beginning of nothing"),
    Case(Slice(), (ramp(7), i64(5), i64(2), i64(0)), "Slice of nothing"),
    Case(Slice(), (ramp(7), i64(9), i64(12), i64(0)), "Slice beyond the end"),
    Case(Slice(), (ramp(0, 3), i64(0, 1), i64(MOST, 2), i64(0, 1)), "Slice from nothing"),
    Case(Slice(), (ramp(0), i64(-1), i64(LEAST), i64(0), i64(-1)), "Slice backward from nothing"),
    Case(Slice(), (ramp(3, 4, 5), i64(0, 1), i64(2, 5), i64(2, 1), i64(1, 2)), "Slice of some axes"),
    Case(Slice(), (ramp(6), i64(0), i64(6), i64(0), i64(MOST)), "Slice by the greatest step"),
    Case(Slice(), (ramp(2, 3), _EMPTY, _EMPTY, _EMPTY), "Slice of no axis", skip={"onnxruntime": "onnxruntime needs an axis"}),
    *of_every_type(Roll(), i64(1), i64(-1)),
    Case(Roll(), (ramp(4, 3), i64(-1, 2), i64(0, 1)), "Roll of two axes"),
    Case(Roll(), (ramp(4, 3), i64(1, 2, 1), i64(0, 1, 0)), "Roll of an axis twice"),
    Case(Roll(), (ramp(4, 3), i64(7), i64(0)), "Roll by more than the size"),
    Case(Roll(), (ramp(4, 3), i64(0), i64(0)), "Roll by 0"),
    Case(Roll(), (ramp(0, 3), i64(1), i64(0)), "Roll of nothing"),
    Case(Roll(), (ramp(4, 3), np.array(-1), np.array(1)), "Roll by a scalar along a scalar"),
    Case(
        Roll(),
        (ramp(4, 3), np.array(1), i64(0, 1)),
        "Roll of two axes by one shift",
        skip={"openvino": "OpenVINO's CPU plugin wants a shift for each axis"},
    ),
]

PADDING: list[Case] = [
    # f8e8m0 has no 0 to pad with.
    *(case for case in of_every_type(Pad(), i64(0, 1, 2, 0), skip=_PADS) if not case.name.endswith("f8e8m0")),
    *(Case(Pad(mode), (ramp(3, 4), i64(1, 2, 0, 3)), f"Pad by {mode}") for mode in ("constant", "edge", "reflect", "symmetric")),
    Case(Pad("wrap"), (ramp(3, 4), i64(1, 2, 0, 3)), "Pad by wrap"),
    Case(Pad("wrap"), (ramp(3), i64(7, 8)), "Pad by wrap several times"),
    Case(Pad("reflect"), (ramp(3), i64(5, 7)), "Pad by reflect several times", skip={"onnxruntime": "onnxruntime reflects once"}),
    Case(Pad("symmetric"), (ramp(3), i64(5, 7)), "Pad by symmetric several times"),
    Case(Pad(), (ramp(2, 3), i64(1, 0, 0, 1), np.array(7.5, np.float32)), "Pad with a value", constants=(2,)),
    Case(Pad(), (ramp(2, 3), i64(1, 0, 0, 1), np.array(7.5, np.float32)), "Pad with a value that is computed"),
    Case(
        Pad(),
        (ramp(2, 3), i64(1, 0, 0, 1), np.float32([-np.inf])),
        "Pad with a vector of one value",
        constants=(2,),
        skip={"onnx": "the attribute of Pad-2 is a scalar"},
    ),
    Case(Pad(), (ramp(2, 3), i64(-1, 1, 0, -2)), "Pad that crops"),
    Case(Pad(), (ramp(5), i64(-6, 3)), "Pad that crops everything", skip={"openvino": "OpenVINO aborts"}),
    Case(Pad(), (ramp(0, 3), i64(1, 0, 1, 0)), "Pad of nothing"),
    *(Case(Pad(mode), (ramp(5, 3), i64(-1, 0, 2, 1)), f"Pad by {mode} that crops") for mode in ("edge", "reflect", "symmetric")),
    Case(Pad("wrap"), (ramp(5), i64(-1, 2)), "Pad by wrap that crops"),
    Case(Pad(), (ramp(2, 3, 4), i64(1, 2, 0, 1), None, i64(2, 0)), "Pad of some axes"),
    Case(Pad("edge"), (ramp(2, 3, 4), i64(1, 2), None, i32(-2)), "Pad of one axis by its edge"),
    Case(Pad(), (ramp(2, 3), i64(1, 2), np.array(3, np.float32), i64(1)), "Pad of one axis with a value", constants=(2,)),
    Case(Pad(), (ramp(), _EMPTY), "Pad of a scalar", skip={"onnxruntime": "onnxruntime needs an axis"}),
    Case(Pad("edge"), (ramp(1, 1), i32(2, 0, 1, 3)), "Pad by 32 bits"),
]

BLOCKS: list[Case] = [
    *of_every_type(DepthToSpace(2), shape=(1, 4, 1, 2)),
    *(Case(DepthToSpace(2, mode), (ramp(2, 8, 2, 3),)) for mode in ("blocks_first", "depth_first")),
    *(
        Case(DepthToSpace(2, mode), (ramp(1, 16, 2, 1, 3),), f"DepthToSpace of three axes, {mode}")
        for mode in ("blocks_first", "depth_first")
    ),
    Case(DepthToSpace(3), (ramp(1, 3, 2),), "DepthToSpace of one axis"),
    Case(DepthToSpace(1), (ramp(1, 3, 2, 2),), "DepthToSpace of blocks of 1"),
    Case(DepthToSpace(2), (ramp(0, 4, 2, 2),), "DepthToSpace of nothing"),
    *of_every_type(SpaceToDepth(2), shape=(1, 1, 2, 2)),
    *(Case(SpaceToDepth(2, mode), (ramp(2, 3, 4, 6),)) for mode in ("blocks_first", "depth_first")),
    *(
        Case(SpaceToDepth(2, mode), (ramp(1, 2, 4, 2, 2),), f"SpaceToDepth of three axes, {mode}")
        for mode in ("blocks_first", "depth_first")
    ),
    Case(SpaceToDepth(3), (ramp(2, 2, 6),), "SpaceToDepth of one axis"),
    *of_every_type(ShuffleChannels(1, 2), shape=(1, 4, 2)),
    Case(ShuffleChannels(1, 3), (ramp(2, 12, 2, 2),), "ShuffleChannels in three groups"),
    Case(ShuffleChannels(-1, 2), (ramp(2, 3, 4),), "ShuffleChannels of the last axis"),
    Case(ShuffleChannels(0, 4), (ramp(4, 2),), "ShuffleChannels of the first axis"),
    Case(ShuffleChannels(), (ramp(2, 4),), "ShuffleChannels in one group"),
]

CASES: list[Case] = [*RESHAPING, *MOVING, *SLICING, *PADDING, *BLOCKS]
