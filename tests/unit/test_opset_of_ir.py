"""The opset that an IR remembers of the ONNX file it came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.errors import UnsupportedError


def test_an_ir_is_written_for_a_newer_opset_where_its_own_cannot_express_it(tmp_path: Path) -> None:
    """IR says with one operator what opset 9 has none for; who names an opset gets that one."""
    with dovetail.Builder("gathered") as b:
        x, places = b.input("x", "f32", ("n", 4)), b.input("places", "i64", ("n", 2))
        b.output("y", b.GatherElements(x, places, axis=1))
    dovetail.save(b.model, tmp_path / "m.xml")
    model = dovetail.load(tmp_path / "m.xml")
    model.versions[""] = 9
    dovetail.save(model, tmp_path / "m.onnx")
    given = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "places": np.array([[3, 0], [1, 1]])}
    (theirs,) = oracles.run_onnxruntime((tmp_path / "m.onnx").read_bytes(), given)
    np.testing.assert_array_equal(theirs, [[3, 0], [5, 5]])
    assert dovetail.load(tmp_path / "m.onnx").versions[""] == 11
    with pytest.raises(UnsupportedError, match="opset 11 can"):
        dovetail.save(model, tmp_path / "m.onnx", opset=9)


def test_an_ir_keeps_its_opset_where_that_can_express_it(tmp_path: Path) -> None:
    with dovetail.Builder("sum") as b:
        x = b.input("x", "f32", ("n", 4))
        b.output("y", x + x)
    dovetail.save(b.model, tmp_path / "m.xml")
    model = dovetail.load(tmp_path / "m.xml")
    model.versions[""] = 9
    dovetail.save(model, tmp_path / "m.onnx")
    assert dovetail.load(tmp_path / "m.onnx").versions[""] == 9
