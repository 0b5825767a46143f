"""extract: parts against onnxruntime's values of the whole, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail.errors import RuleError

ort = pytest.importorskip("onnxruntime")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[n, 4] bias) => (float[n, 4] y, float z)
<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
{
    a = Relu (x)
    s = Shape (a)
    h = MatMul (a, w)
    l, r = Split <axis = 1> (h)
    c = Concat <axis = 1> (r, l)
    f = Reshape (c, s)
    y = Add (f, bias)
    z = ReduceSum <keepdims = 0> (y)
}
"""
BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
g (bool p, float[4] x) => (float[4] y)
<float[4] w = {1, 2, 3, 4}>
{
    y = If (p) <
        then_branch = t () => (float[4] u) { m = Mul (x, w) u = Neg (m) },
        else_branch = e () => (float[4] v) { v = Abs (x) }
    >
}
"""


def load(text: str = TEXT) -> dovetail.Model:
    return dovetail.load(onnx.parser.parse_model(text))


def values_of_whole(model: dovetail.Model, path: Path) -> dict[str, np.ndarray]:
    """Every computed value, by onnxruntime."""
    names = [y.name for node in model.graph.nodes for y in node.outputs if y.constant is None]
    dovetail.save(model.add_outputs(names), path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {"x": X, "bias": X[::-1].copy()}
    return {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ("a", "y", ["a", "bias"]),
        ("h", "c", ["h"]),
        ("l", "c", ["l", "x"]),
        (["f", "bias"], ["z", "y"], ["f", "bias"]),
        (["s", "c"], "f", ["s", "c"]),
        (None, "h", ["x"]),
    ],
)
def test_a_part_gives_the_values_of_the_model(
    tmp_path: Path, suffix: str, inputs: list[str] | str | None, outputs: list[str] | str, expected: list[str]
) -> None:
    model = load()
    known = values_of_whole(model, tmp_path / "whole.onnx")
    part = dovetail.extract(model, inputs, outputs)
    assert [x.name for x in part.inputs] == expected
    dovetail.save(part, tmp_path / f"part{suffix}")
    for candidate in (part, dovetail.load(tmp_path / f"part{suffix}")):
        found = dovetail.run(candidate, {name: known[name] for name in expected})
        assert list(found.keys()) == ([outputs] if isinstance(outputs, str) else outputs)
        for name, array in found.items():
            np.testing.assert_allclose(array, known[name], rtol=1e-5)


def test_kept_inputs_are_reported_and_the_model_is_unchanged() -> None:
    model = load()
    before = str(model)
    part = dovetail.extract(model, "a", "y")
    assert [(item.code, "'bias'" in item.message) for item in part.warnings] == [("extract.input", True)]
    assert str(model) == before
    # Constants are carried without a copy.
    assert part.values["w"].constant is model.values["w"].constant


def test_a_part_obeys_its_own_inputs_where_shapes_were_cut() -> None:
    part = dovetail.extract(load(), ["s", "c"], "f")
    found = dovetail.run(part, {"s": np.array([2, 6]), "c": X})
    np.testing.assert_array_equal(found["f"], X.reshape(2, 6))


def test_values_of_a_subgraph() -> None:
    model = load(BRANCH)
    (node,) = [node for node in model.graph.nodes if type(node.op).__name__ == "If"]
    part = dovetail.extract(model, None, f"{node.label}/u")
    assert [x.name for x in part.inputs] == ["x"]
    x = np.array([1, -2, 3, 4], np.float32)
    np.testing.assert_array_equal(dovetail.run(part, x)["u"], -x * [1, 2, 3, 4])
    with pytest.raises(RuleError, match="use the name") as caught:
        dovetail.extract(model, None, "m")
    assert caught.value.code == "name.unknown"
    with pytest.raises(RuleError, match="one graph") as caught:
        dovetail.extract(model, "x", f"{node.label}/u")
    assert caught.value.code == "name.scope"


@pytest.mark.parametrize(
    ("inputs", "outputs", "codes"),
    [
        (["hh", "a"], ["zz"], ["name.unknown", "name.unknown"]),
        ("y", "h", ["extract.path"]),
        (["x", "a"], "h", ["extract.path"]),
        ("h", "h", ["extract.path"]),
        ("h", [], ["extract.path"]),
    ],
)
def test_faults(inputs: list[str] | str, outputs: list[str] | str, codes: list[str]) -> None:
    with pytest.raises(RuleError) as caught:
        dovetail.extract(load(), inputs, outputs)
    assert [item.code for item in caught.value.diagnostics] == codes


def test_an_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(RuleError, match="did you mean 'bias'"):
        dovetail.extract(load(), "biass", "y")


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
g (float[2] x) => (float[2] y, float[2] z) { a = local.f (x) y = Neg (a) z = local.k (a) }
<domain: "local", opset_import: ["" : 18, "local" : 1]> f (u) => (v) { w = Tanh (u) v = local.h (w) }
<domain: "local", opset_import: ["" : 18]> h (u) => (v) { v = Sin (u) }
<domain: "local", opset_import: ["" : 18]> k (u) => (v) { v = Cos (u) }"""


def test_a_part_has_the_functions_that_it_needs(tmp_path: Path) -> None:
    """Functions of the file are inlined by load: the part holds their nodes, and those of no other."""
    runtime = pytest.importorskip("onnxruntime")
    proto = onnx.parser.parse_model(FUNCTIONS)
    part = dovetail.extract(dovetail.load(proto.SerializeToString()), "a/w", "y")
    dovetail.save(part, tmp_path / "part.onnx")
    written = onnx.load(tmp_path / "part.onnx")
    assert [node.op_type for node in written.graph.node] == ["Sin", "Neg"] and not written.functions
    x = np.array([0.5, -2], np.float32)
    whole = runtime.InferenceSession(proto.SerializeToString()).run(["y"], {"x": x})[0]
    found = runtime.InferenceSession(tmp_path / "part.onnx").run(["y"], {"a/w": np.tanh(x)})[0]
    np.testing.assert_allclose(found, whole, rtol=1e-6)
