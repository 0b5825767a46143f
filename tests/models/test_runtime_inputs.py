"""Axes, strides, blocks and marks of IR that only run time knows: OpenVINO is asked what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

import dovetail  # noqa: E402
import oracles  # noqa: E402
from cases_openvino import Row, fixed, numbers  # noqa: E402
from openvino_runner import STEPS, outcome  # noqa: E402

_X = numbers(2, 3, 4)
_IMAGE = numbers(1, 2, 3, 4)
_INTERPOLATE = {
    "mode": "nearest",
    "shape_calculation_mode": "sizes",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
}
_EMPTY: dict[str, list[int]] = {f"{name}_mask": [] for name in ("new_axis", "shrink_axis", "ellipsis")}


def _interpolate(axes: list[int], sizes: list[int], **more: Any) -> Row:
    return Row("Interpolate-11", (_IMAGE, fixed(sizes), np.int64(axes)), {**_INTERPOLATE, **more}, f"{axes} {sizes} {more}")


def _strided(strides: list[int], begin: list[int], end: list[int], **masks: Any) -> Row:
    attributes = {"begin_mask": [0] * 3, "end_mask": [0] * 3, **_EMPTY, **masks}
    return Row(
        "StridedSlice-1", (_X, fixed(begin), fixed(end), np.int64(strides)), attributes, f"{strides} {begin} {end} {masks}"
    )


ROWS = [
    _interpolate([2, 3], [6, 2]),
    _interpolate([3, 2], [6, 2]),
    _interpolate([3], [8], pads_begin=[0, 0, 0, 1], pads_end=[0, 0, 0, 1]),
    *(Row("Broadcast-3", (numbers(3, 4), fixed([3, 2, 4]), np.int64(to)), {"mode": "explicit"}) for to in ([0, 2],)),
    Row("Broadcast-3", (numbers(3), fixed([2, 3, 3]), np.int64([1])), {"mode": "explicit"}),
    Row("Broadcast-3", (numbers(3), fixed([2, 3, 3]), np.int64([2])), {"mode": "explicit"}),
    _strided([1, 2, 1], [0, 0, 1], [2, 3, 4]),
    _strided([1, 1, 3], [0, 1, 0], [2, 3, 4], begin_mask=[1, 0, 1], end_mask=[1, 1, 0]),
    _strided([1, -1, -2], [0, 2, 3], [2, 0, 0], begin_mask=[1, 0, 1], end_mask=[1, 0, 0]),
    _strided([1, 1, 2], [1, 0, 1], [2, 3, 4], shrink_axis_mask=[1, 0, 0]),
    *(
        Row("SpaceToBatch-2", (x, np.int64(block), np.int64(begin), np.int64(end)))
        for x, block, begin, end in (
            (_X, [1, 3, 2], [0, 0, 0], [0, 0, 0]),
            (_IMAGE, [1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 0, 2]),
        )
    ),
    *(
        Row("BatchToSpace-2", (x, np.int64(block), np.int64(begin), np.int64(end)))
        for x, block, begin, end in (
            (numbers(6, 2, 3), [1, 3, 2], [0, 0, 0], [0, 0, 0]),
            (numbers(4, 1, 3, 2), [1, 1, 2, 2], [0, 0, 1, 0], [0, 0, 0, 2]),
        )
    ),
    Row("Reverse-1", (_X, np.int64([2, 0])), {"mode": "index"}),
    Row("Reverse-1", (_X, np.int64([-2])), {"mode": "index"}),
    Row("Reverse-1", (_X, np.array([True, False, True])), {"mode": "mask"}),
    Row("Multinomial-13", (np.abs(numbers(2, 5)), np.int64([4])), _M := {
        "convert_type": "i64", "with_replacement": True, "log_probs": False, "global_seed": 1, "op_seed": 2,
    }, is_random=True, ir="constant.needed", onnx="constant.needed"),
    Row("Multinomial-13", (np.abs(numbers(2, 5)), np.int64([4])), {**_M, "with_replacement": False}, is_random=True),
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{index}: {row}") for index, row in enumerate(ROWS)])
def test_an_input_that_run_time_gives(row: Row, step: str) -> None:
    wanted = {"ir": row.ir, "onnx": row.onnx}.get(step, "")
    how, what = outcome(row, step)
    if wanted:
        assert how == "refused" and what.startswith(wanted), (how, what)
    else:
        assert how == "agrees", (how, what)


def test_an_axes_mapping_that_does_not_rise_is_refused(tmp_path: Path) -> None:
    from openvino_runner import built

    row = Row("Broadcast-3", (numbers(3, 3), fixed([3, 2, 3]), np.int64([0, 2])), {"mode": "explicit"})
    openvino.serialize(built(row), tmp_path / "model.xml")
    model = dovetail.load(tmp_path / "model.xml")
    dovetail.save(model, tmp_path / "model.onnx")
    feeds = {"x0": row.inputs[0], "x2": np.int64([2, 0])}
    for engine in ("interpreter", "native"):
        with pytest.raises(dovetail.DovetailError):
            dovetail.compile(model, engine)(feeds)
    with pytest.raises(Exception, match="out of"):
        oracles.run_onnxruntime((tmp_path / "model.onnx").read_bytes(), feeds)
