"""The backend tests of the onnx package whose models lie in files: small graphs, and what old PyTorch wrote for its modules."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
import oracles
from backend_data import KINDS, Sample, assert_similar, samples
from dovetail.compat import onnx_backend as backend
from dovetail.errors import DovetailError

ENGINES = ("interpreter", "native")
SAMPLES = [sample for kind in KINDS if kind != "node" for sample in samples(kind)]


@pytest.mark.parametrize(
    "sample", [pytest.param(sample, id=f"{sample.kind}: {sample.name.removeprefix('test_')}") for sample in SAMPLES]
)
def test_backend_model(sample: Sample) -> None:
    model: Any = sample.read_model()
    prepared = [backend.prepare(model, "CPU", engine=engine) for engine in ENGINES]
    for (inputs, expected), each in product(sample.read_pairs(), prepared):
        assert_similar(expected, list(each.run(inputs)), sample.rtol, sample.atol)


def test_the_onnx_package_has_these_models() -> None:
    assert len(SAMPLES) >= 140, "fewer models than onnx 1.23 has"


GRADIENT = """<ir_version: 9, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>
g (float[2] x, float[2] w) => (float y, float[2] dx, float[2] dw) {{
    h = Mul (x, w)
    y = ReduceSum <keepdims: int = 0> (h)
    {}
}}"""


def test_a_gradient_within_a_model_is_taken() -> None:
    node = 'dx, dw = ai.onnx.preview.training.Gradient <xs: strings = ["x", "w"], y: string = "y"> (x, w)'
    x, w = (np.array(items, np.float32) for items in ([1, 2], [3, 5]))
    y, dx, dw = backend.run_model(onnx.parser.parse_model(GRADIENT.format(node)), [x, w])
    assert float(y) == 13 and dx.tolist() == [3, 5] and dw.tolist() == [1, 2]


@pytest.mark.parametrize(
    "node",
    [
        'dx, dw = ai.onnx.preview.training.Gradient <xs: strings = ["x", "w"], y: string = "y"> (x, x)',
        'dx, dw = ai.onnx.preview.training.Gradient <xs: strings = ["x", "w"], y: string = "h"> (x, w)',
        'dx, dw = ai.onnx.preview.training.Gradient <xs: strings = ["x", "other"], y: string = "y"> (x, w)',
    ],
)
def test_a_gradient_elsewhere_or_of_several_numbers_is_refused(node: str) -> None:
    with pytest.raises(DovetailError) as caught:
        backend.prepare(onnx.parser.parse_model(GRADIENT.format(node)))
    assert caught.value.code == "attribute.value"


OLD = '<ir_version: 9, opset_import: ["" : 9]> g (float[2,3,4] x) => (float[2,3,4] y) {{ y = {} <axis: int = {}> (x) }}'


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
def test_the_first_softmax_counts_its_axis_from_the_back_and_is_written_without(kind: str, tmp_path: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    for axis in (-1, -2):
        model = onnx.parser.parse_model(OLD.format(kind, axis))
        onnx.save(model, tmp_path / "old.onnx")
        (theirs,) = oracles.run_onnxruntime(model.SerializeToString(), {"x": x})
        loaded = dovetail.load(tmp_path / "old.onnx")
        np.testing.assert_allclose(dovetail.run(loaded, {"x": x})["y"], theirs, rtol=1e-5)
        dovetail.save(loaded, tmp_path / "new.onnx")
        (node,) = onnx.load(tmp_path / "new.onnx").graph.node
        assert node.attribute[0].i == 3 + axis
