"""What OpenVINO's older forms of operators for detectors mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from cases.detection import several

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
