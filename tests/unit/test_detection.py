"""The meaning of OpenVINO's older forms of operators for detectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from cases.nms import several
from dovetail.errors import UnsupportedError
from dovetail.ir.evaluate import run
from dovetail.ops.detection.nms_rotated import intersection_areas_of

OLD = ("opset1", "opset3", "opset4")


def suppressed(opset: str, path: Path, *limits: Any) -> Any:
    """NonMaxSuppression of that opset, saved by OpenVINO and run here."""
    openvino = pytest.importorskip("openvino")
    module = getattr(openvino, opset)
    boxes, scores = several()
    inputs = [module.parameter(list(x.shape), np.float32) for x in (boxes, scores)]
    node = module.non_max_suppression(*inputs, *limits)
    openvino.save_model(openvino.Model(list(node.outputs()), inputs), str(path), compress_to_fp16=False)
    model = dovetail.load(str(path))
    found = dovetail.compile(model)(dict(zip((x.name for x in model.inputs), (boxes, scores), strict=True)))
    return next(iter(found.values()))


def in_openvino(path: Path) -> Any:
    import openvino

    return openvino.compile_model(str(path), "CPU")(list(several()))[0]


def inferred_shape(path: Path) -> tuple[int, ...]:
    import openvino

    return tuple(openvino.Core().read_model(path).output(0).get_partial_shape().to_shape())


@pytest.mark.parametrize("opset", OLD)
def test_rows_past_the_kept_ones_are_minus_one(opset: str, tmp_path: Path) -> None:
    # OpenVINO's CPU plugin leaves them out, where its text and the shape that it infers have them.
    path = tmp_path / "model.xml"
    rows = suppressed(opset, path, np.int64(4), np.float32(0.3), np.float32(0.5))
    kept = in_openvino(path)
    assert rows.shape == inferred_shape(path)
    np.testing.assert_array_equal(rows[: len(kept)], kept[: len(rows)])
    assert (rows[len(kept) :] == -1).all()


def cross(first: Any, second: Any) -> float:
    """Return the third component of the cross product of two vectors of a plane."""
    return float(first[0] * second[1] - first[1] * second[0])


def clipped(polygon: Any, first: Any, second: Any) -> Any:
    """Return the part of a polygon to the left of the line from ``first`` to ``second``."""
    side = [cross(second - first, point - first) for point in polygon]
    made = []
    for place, point in enumerate(polygon):
        before = place - 1
        if side[before] * side[place] < 0:
            part = side[before] / (side[before] - side[place])
            made.append(polygon[before] + part * (point - polygon[before]))
        if side[place] >= 0:
            made.append(point)
    return np.array(made).reshape(-1, 2)


def corners(box: Any) -> Any:
    x, y, width, height, angle = box
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.array([x, y]) + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [width / 2, height / 2] @ turn


def common(box: Any, other: Any) -> float:
    polygon, border = corners(box), corners(other)
    for place in range(4):
        polygon = clipped(polygon, border[place - 1], border[place])
    return abs(sum(cross(polygon[place - 1], polygon[place]) for place in range(len(polygon)))) / 2


def test_the_intersection_of_rotated_boxes_is_the_area_of_their_common_polygon() -> None:
    chance = np.random.default_rng(0)
    boxes = chance.uniform([50, 50, 0.1, 0.1, -7], [54, 54, 4, 3, 7], (1, 40, 5)).astype(np.float32)
    boxes[0, 20:] = np.maximum(np.round(boxes[0, 20:]), 1)
    boxes[0, 30:, 4] = 0
    with dovetail.Builder() as b:
        x = b.input("x", "f32", boxes.shape)
        parts = [b.Slice(x, [first], [last], [2]) for first, last in ((0, 2), (2, 4), (4, 5))]
        b.output("y", intersection_areas_of(b, parts[0], parts[1], b.Squeeze(parts[2], [2])))
    (found,) = run(b.graph, [boxes], np)
    wanted = [[common(box, other) for other in boxes[0].astype(float)] for box in boxes[0].astype(float)]
    np.testing.assert_allclose(found[0], wanted, atol=2e-5)
    assert (found[0][np.array(wanted) == 0] == 0).all()


def test_proposals_whose_overlap_falls_from_box_to_box_are_refused(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    from cases_openvino.detectron import ROWS
    from openvino_runner import built

    row = next(row for row in ROWS if row.kind == "GenerateProposals")
    openvino.serialize(built(row), tmp_path / "model.xml")
    said = (tmp_path / "model.xml").read_text()
    assert 'nms_eta="1"' in said
    (tmp_path / "model.xml").write_text(said.replace('nms_eta="1"', 'nms_eta="0.5"'))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.load(str(tmp_path / "model.xml"), strict=True)
    assert caught.value.code == "op.unsupported"
