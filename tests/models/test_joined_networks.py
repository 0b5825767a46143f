"""Networks that split and join in every block: nothing is copied, the arena is as small as the largest live set, and the results
are those of the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.engine import Engine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import detector_models
import joined_classifiers
import vision_models

NETWORKS: dict[str, tuple[Callable[[], Any], float]] = {
    "yolov5": (lambda: detector_models.yolov5(64, 3), 0),
    "yolov7": (lambda: detector_models.yolov7(64, 3), 0),
    "yolov8": (lambda: vision_models.detector(64, 3), 0),
    "yolov10": (lambda: detector_models.yolov10(64, 3), 0),
    "yolo11": (lambda: detector_models.yolo11(64, 3), 0),
    "densenet": (lambda: joined_classifiers.densenet(32, 5, 8, (3, 4, 2)), 0),
    # The mask is delivered row-major, and the convolution writes channels-last.
    "unet": (lambda: vision_models.unet(32, 8, depth=2), 0.08),
    # Interleaved channels are an affine view of two joined halves, but not of what the halves were joined from.
    "shufflenet_v2": (lambda: joined_classifiers.shufflenet_v2(32, 5), 0.25),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_joined_networks_copy_next_to_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    build, share = NETWORKS[name]
    written, feed = build()
    model = dovetail.load(written.SerializeToString())
    engines = {elide: Engine(model, threads=2, elide=elide) for elide in ("auto", "all", "none")}
    found = {elide: engine(feed) for elide, engine in engines.items()}
    for output, expected in dovetail.interpret(model, feed).items():
        np.testing.assert_allclose(found["all"][output], expected, rtol=2e-3, atol=2e-3, err_msg=output)
        np.testing.assert_array_equal(found["auto"][output], found["all"][output], err_msg=output)
        np.testing.assert_allclose(found["none"][output], found["all"][output], rtol=1e-3, atol=1e-3, err_msg=output)
    for elide in ("auto", "all"):
        plan = engines[elide].plan()[0]
        assert plan.copied_bytes <= share * plan.moved_bytes, elide
        assert plan.arena_bytes <= 1.05 * plan.lower_bound, elide
    assert engines["none"].plan()[0].copied_bytes > 0
