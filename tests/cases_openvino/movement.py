"""Operators that only move elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers

_X = numbers(2, 3, 4)
_IMAGE = numbers(1, 8, 4, 4)
_I32 = np.int32


def _strided(begin: Any, end: Any, steps: Any, **masks: Any) -> Row:
    empty: dict[str, list[int]] = {f"{name}_mask": [] for name in ("new_axis", "shrink_axis", "ellipsis")}
    attributes = {"begin_mask": [0] * len(begin), "end_mask": [0] * len(begin), **empty, **masks}
    return Row("StridedSlice-1", (_X, fixed(begin), fixed(end), fixed(steps)), attributes, f"{begin} {end} {steps} {masks}")


ROWS: list[Row] = [
    *(Row("Concat-1", (_X, _X * 2, numbers(2, 3, 4, seed=4)), {"axis": axis}) for axis in (0, 1, -1)),
    Row("Concat-1", (numbers(2, dtype=np.int64), numbers(0, dtype=np.int64)), {"axis": 0}),
    *(
        Row("Reshape-1", (_X, fixed(target)), {"special_zero": zero})
        for target, zero in (([0, -1], True), ([4, 6], False), ([-1], False), ([2, 0, 2, 2], True), ([3, 8, 1], True))
    ),
    Row("Reshape-1", (_X, np.int64([4, -1])), {"special_zero": False}),
    *(
        Row("Squeeze-1", (numbers(1, 3, 1, 2), *axes), name=f"{len(axes)} {axes}")
        for axes in ((), (fixed([0]),), (fixed([-2, 0]),))
    ),
    *(
        Row("Squeeze-15", (numbers(1, 3, 1, 2), *axes), {"allow_axis_skip": skip}, f"{skip} {axes}")
        for axes, skip in (((), False), ((fixed([2]),), False), ((fixed([0, 1]),), True), ((fixed([0]),), True))
    ),
    *(Row("Unsqueeze-1", (_X, fixed(axes))) for axes in ([0], [1, -1], -1)),
    *(Row("Transpose-1", (_X, fixed(order))) for order in ([2, 0, 1], [0, 2, 1], [])),
    Row("Transpose-1", (_X, fixed([1, 0, 2], _I32))),
    *(Row("Broadcast-1", (x, fixed([2, 3, 4])), {"mode": "numpy"}) for x in (numbers(3, 1), numbers(4), numbers(1, 1, 1))),
    Row("Broadcast-1", (numbers(3), fixed([2, 3, 4]), fixed([1])), {"mode": "explicit"}),
    Row("Broadcast-1", (numbers(3, 4), fixed([2, 3, 4]), fixed([1, 2])), {"mode": "explicit"}),
    Row("Broadcast-3", (numbers(3), fixed([2, 3, 4]), fixed([1])), {"mode": "explicit"}),
    *(Row("Broadcast-3", (x, fixed([2, 3, 4])), {"mode": "numpy"}) for x in (numbers(3, 1), numbers(4, dtype=_I32))),
    *(
        Row("Broadcast-3", (x, fixed(to)), {"mode": "bidirectional"})
        for x, to in ((_X, [4]), (_X, [1, 1]), (numbers(3, 1), [2, 1, 4]))
    ),
    Row("Broadcast-3", (numbers(3, 1), np.int64([2, 3, 4])), {"mode": "numpy"}),
    *(Row("Tile-1", (_X, fixed(times))) for times in ([2, 1, 3], [2], [2, 1, 1, 2])),
    *(Row("Split-1", (_X, fixed(np.int64(axis))), {"num_splits": count}) for axis, count in ((2, 2), (-2, 3), (0, 1))),
    *(
        Row("VariadicSplit-1", (_X, fixed(np.int64(axis)), fixed(sizes)))
        for axis, sizes in ((2, [1, 3]), (-1, [2, -1]), (1, [0, 3, 0]))
    ),
    *(
        Row("Slice-8", (_X, fixed(begin), fixed(end), fixed(steps), *axes), name=f"{begin} {end} {steps} {axes}")
        for begin, end, steps, axes in (
            ([0, 1], [2, 3], [1, 1], ()),
            ([-1], [-4], [-1], (fixed([1]),)),
            ([3, 0], [-100, 100], [-2, 2], (fixed([-1, 1]),)),
            ([2], [1], [1], (fixed([1]),)),
            ([5], [9], [1], (fixed([2]),)),
        )
    ),
    Row("Slice-8", (_X, np.int64([1]), np.int64([3]), fixed([1]), fixed([2])), name="of bounds from run time"),
    _strided([0, 1, 0], [2, 3, 4], [1, 1, 2]),
    _strided([0, 1, 0], [2, 3, 4], [1, 1, 2], begin_mask=[1, 0, 1], end_mask=[0, 1, 1]),
    _strided([0, -1, 3], [2, -4, -5], [1, -1, -2]),
    _strided([1, 0], [2, 2], [1, 1], shrink_axis_mask=[1, 0]),
    _strided([0, 1], [1, 3], [1, 1], new_axis_mask=[1, 0]),
    _strided([0, 1], [0, 3], [1, 1], ellipsis_mask=[1, 0]),
    _strided([1, 0, 0], [2, 0, 3], [1, 1, 1], ellipsis_mask=[0, 1, 0], shrink_axis_mask=[1, 0, 0]),
    replace(
        _strided([0, 0, 2], [1, 1, 3], [1, 1, 1], new_axis_mask=[0, 1, 0], shrink_axis_mask=[1, 0, 1]),
        answers=lambda x, *_: x[0, None, 2],
        why="OpenVINO's CPU plugin reads memory that is not its own",
        is_unsafe=True,
    ),
    Row("StridedSlice-1", (_X, fixed([0, 1]), fixed([2, 3])), {"begin_mask": [0, 0], "end_mask": [0, 0]}, "without strides"),
    *(
        Row(
            "SliceScatter-15",
            (_X, numbers(*shape, seed=5), fixed(begin), fixed(end), fixed(steps), *axes),
            name=f"{begin} {end} {steps} {axes}",
        )
        for shape, begin, end, steps, axes in (
            ((2, 2, 4), [0, 1], [2, 3], [1, 1], ()),
            ((2, 2, 4), [-1], [-4], [-2], (fixed([1]),)),
            ((2, 3, 2), [0], [100], [2], (fixed([-1]),)),
            ((1, 3, 2), [1, 3], [2, 0], [1, -2], (fixed([0, 2]),)),
            ((2, 0, 4), [2], [1], [1], (fixed([1]),)),
        )
    ),
    *(
        Row(f"Pad-{version}", (_X, fixed([0, 1, 2]), fixed([1, 2, 0])), {"pad_mode": mode})
        for version in (1, 12)
        for mode in ("constant", "edge", "reflect", "symmetric")
        if mode != "reflect"
    ),
    *(
        Row(f"Pad-{version}", (_X, fixed([0, 1, 2]), fixed([1, 2, 0]), fixed(np.float32(7))), {"pad_mode": "constant"})
        for version in (1, 12)
    ),
    *(Row(f"Pad-{version}", (_X, fixed([0, 1, 2]), fixed([1, 2, 3])), {"pad_mode": "reflect"}) for version in (1, 12)),
    Row("Pad-12", (_X, fixed([0, -1, 2]), fixed([-1, 2, -3]), fixed(np.float32(7))), {"pad_mode": "constant"}),
    *(Row("Roll-7", (_X, fixed(shift), fixed(axes))) for shift, axes in (([1, -2], [0, 2]), ([1], [-1]), ([1, 2], [1, 1]))),
    Row(
        "Roll-7",
        (_X, fixed(3), fixed([0, 1])),
        answers=lambda x, shift, axes: np.roll(x, (3, 3), (0, 1)),
        why="OpenVINO's CPU plugin wants as many shifts as axes, and its specification allows one for all",
    ),
    *(
        Row(f"{kind}-1", (_IMAGE,), {"block_size": 2, "mode": mode})
        for kind, mode in (
            ("DepthToSpace", "blocks_first"),
            ("DepthToSpace", "depth_first"),
            ("SpaceToDepth", "blocks_first"),
            ("SpaceToDepth", "depth_first"),
        )
    ),
    Row("DepthToSpace-1", (numbers(1, 8, 2, 2, 2),), {"block_size": 2, "mode": "blocks_first"}),
    *(Row("ShuffleChannels-1", (_IMAGE,), {"axis": axis, "group": group}) for axis, group in ((1, 2), (-3, 4), (2, 2))),
    *(Row("Reverse-1", (_X, fixed(axes)), {"mode": "index"}) for axes in ([0], [1, 2])),
    Row("Reverse-1", (_X, fixed([False, True, True])), {"mode": "mask"}),
    *(
        Row("ReverseSequence-1", (numbers(3, 4, 2), lengths), {"batch_axis": batch, "seq_axis": axis})
        for lengths, batch, axis in ((_I32([1, 4, 2]), 0, 1), (_I32([3, 1, 2, 1]), 1, 0), (fixed([1, 4, 2], _I32), 0, -2))
    ),
    *(
        Row("BatchToSpace-2", (numbers(*shape), fixed(block), fixed(first), fixed(last)))
        for shape, block, first, last in (
            ((4, 1, 2, 3), [1, 1, 2, 2], [0, 0, 0, 0], [0, 0, 0, 0]),
            ((12, 2, 2, 3), [1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 0, 2]),
            ((6, 2, 4), [1, 3, 2], [0, 1, 1], [0, 0, 2]),
        )
    ),
    *(
        Row("SpaceToBatch-2", (numbers(*shape), fixed(block), fixed(first), fixed(last)))
        for shape, block, first, last in (
            ((1, 1, 4, 6), [1, 1, 2, 2], [0, 0, 0, 0], [0, 0, 0, 0]),
            ((2, 2, 3, 4), [1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 0, 2]),
            ((2, 2, 5), [1, 3, 2], [0, 1, 1], [0, 0, 2]),
        )
    ),
    *(
        Row(f"ShapeOf-{version}", (_X,), {"output_type": kind} if version == 3 else {})
        for version, kind in ((1, "i64"), (3, "i64"), (3, "i32"))
    ),
    Row("Identity-16", (_X,)),
    Row("Identity-16", (numbers(3, dtype=_I32),)),
    Row("NonZero-3", (np.float32([[0, 1, 0], [2, 0, 3]]),), {"output_type": "i64"}),
    Row("NonZero-3", (numbers(3, 4, dtype=bool),), {"output_type": "i32"}),
    *(
        Row("Range-1", tuple(fixed(kind(x)) for x in bounds))
        for kind, bounds in ((np.int64, (1, 10, 3)), (np.int64, (5, -3, -2)), (np.float32, (0, 2, 0.5)))
    ),
    *(
        Row("Range-4", tuple(fixed(kind(x)) for x in bounds), {"output_type": to})
        for kind, bounds, to in ((np.int64, (1, 10, 3), "i32"), (np.float32, (0, 2, 0.5), "f32"), (np.int64, (1, 10, 3), "f32"))
    ),
    Row(
        "Range-4",
        tuple(fixed(np.float32(x)) for x in (1.2, 5.5, 1)),
        {"output_type": "i64"},
        refused="type.class: where floats become whole numbers the specification leaves open",
    ),
    Row("Range-4", tuple(np.array(x, np.int64) for x in (1, 10, 3)), {"output_type": "i64"}, "of bounds from run time"),
    *(
        Row("Eye-9", (fixed(np.int32(rows)), fixed(np.int32(columns)), fixed(np.int32(shift)), *batch), {"output_type": kind})
        for rows, columns, shift, kind, batch in (
            (3, 4, 0, "f32", ()),
            (4, 3, -1, "i32", ()),
            (3, 3, 2, "f32", (fixed([2, 2]),)),
            (2, 5, 9, "i64", ()),
            (3, 3, 1, "f32", (fixed([], np.int64),)),
        )
    ),
    *(
        Row("OneHot-1", (indices, fixed(np.int64(4)), fixed(np.float32(on)), fixed(np.float32(off))), {"axis": axis})
        for indices, axis, on, off in (
            (np.int64([0, 3, 1]), -1, 1, 0),
            (np.int64([[0, 2], [9, -1]]), 0, 5, 2),
            (np.int32([[0, 2], [1, 1]]), 1, 1, -1),
        )
    ),
    *(
        Row(
            "OneHot-16",
            (np.int64([[0, 2], [9, -1]]), fixed(np.int64(4)), fixed(np.float32(5)), fixed(np.float32(2))),
            {"axis": 1, "negative_indices_mode": mode},
        )
        for mode in ("ignore_negative", "normalize")
    ),
]
