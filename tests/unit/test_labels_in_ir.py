"""Label lookups as OpenVINO computes what IR says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import runner_for
from dovetail.ops.ml.label_encoder import LabelEncoder


@pytest.mark.parametrize("shape", [(5, 1), (3, 2), (7,)])
def test_openvino_finds_every_label(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Several rows of which each is another label, and one that is none."""
    pytest.importorskip("openvino")
    keys = np.arange(6, dtype=np.int64) * 3
    with dovetail.Builder("labels") as b:
        x = b.input("x", "i64", ("n", *shape[1:]))
        values, other = b.constant(np.arange(6, dtype=np.float32) + 10), b.constant(np.float32(-1))
        b.output("y", b.add(LabelEncoder(), x, b.constant(keys), values, other)[0])
    dovetail.save(b.model, tmp_path / "m.xml")
    given = np.resize([15, 9, 3, 7, 12, 0, 6], shape)
    wanted = np.array([{int(key): 10 + place for place, key in enumerate(keys)}.get(int(each), -1) for each in given.ravel()])
    found = runner_for(tmp_path / "m.xml", "openvino").run({"x": given})["y"]
    np.testing.assert_array_equal(found.ravel(), wanted)
