"""The models of bench/models.py at small sizes: the native engine, the interpreter and onnxruntime give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import language_models
import numpy as np
import pytest
import vision_models

import dovetail
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec
from dovetail.runtime.peers import is_installed, runner

pytestmark = pytest.mark.slow

SMALL: dict[str, Callable[[], Any]] = {
    "bert": lambda: language_models.bert(2, 32, 4, 64, 50, 9),
    "gpt2": lambda: language_models.gpt2(2, 32, 4, 50, 7),
    "llama": lambda: language_models.llama(2, 48, 6, 2, 80, 50, 7),
    "lstm_tagger": lambda: language_models.lstm_tagger(2, 12, 20, 50, 5, 11),
    "vit": lambda: vision_models.vit(2, 32, 4, 32, 8, 10),
    "detector": lambda: vision_models.detector(64, 5),
    "unet": lambda: vision_models.unet(32, 8),
    "resnet50": lambda: vision_models.resnet50(32),
}
QUANTISED = {"resnet50": 0.05}
"""How far two computations of a quantised model may be apart: sums in another order, and steps of quantisation here and there."""


@pytest.mark.parametrize("name", SMALL)
def test_engines_agree(name: str) -> None:
    model, feed = SMALL[name]()
    data = model.SerializeToString()
    loaded = import_foreign(codec.read(data))
    found = {engine: dovetail.compile(loaded, engine=engine)(feed) for engine in ("interpreter", "native")}
    if is_installed("onnxruntime"):
        found["onnxruntime"] = runner("onnxruntime", data, 1).run(feed)
    for engine, results in found.items():
        for output, expected in found["interpreter"].items():
            scale = max(float(np.abs(expected).max()), 1e-30)
            difference = float(np.abs(np.asarray(results[output], np.float64) - expected).max()) / scale
            assert difference <= QUANTISED.get(name, 1e-4), f"{engine}: {output} differs by {difference:.1e}"
