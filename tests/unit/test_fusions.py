"""simplify(fuse=...): what exporters write of Gelu and LayerNormalization, and what only resembles it, as onnxruntime runs it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import dovetail
from dovetail.cli import main
from dovetail.errors import RuleError
from oracles import run_onnxruntime

HEADER = (
    '<ir_version: 8, opset_import: ["" : {opset}]> g (float[2, 3, 8] x) => (float[2, 3, 8] y{more}) <{constants}> {{ {body} }}'
)
ONES = "float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {1, 1, 2, 2, 3, 3, 4, 4}"
GELU = {
    "erf": "r = Div(x, root) e = Erf(r) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "erf of a product": "r = Mul(x, inverse) e = Erf(r) a = Add(one, e) h = Mul(half, x) y = Mul(h, a)",
    "erf, half first": "r = Mul(x, inverse) e = Erf(r) a = Add(e, one) h = Mul(a, half) y = Mul(x, h)",
    "tanh": "c = Pow(x, three) k = Mul(c, cubic) s = Add(x, k) w = Mul(s, pi) t = Tanh(w) a = Add(t, one) "
    "h = Mul(x, half) y = Mul(h, a)",
    "tanh of products": "q = Mul(x, x) c = Mul(q, x) k = Mul(cubic, c) s = Add(x, k) w = Mul(pi, s) t = Tanh(w) a = Add(one, t) "
    "m = Mul(x, a) y = Mul(half, m)",
    "tanh of a product with a sum": "q = Mul(x, x) k = Mul(q, cubic) u = Add(k, one) s = Mul(x, u) w = Mul(s, pi) t = Tanh(w) "
    "a = Add(t, one) m = Mul(x, a) y = Mul(m, half)",
    "tanh of a sum with a product": "q = Pow(x, two) k = Mul(cubic, q) u = Add(one, k) p = Mul(u, pi) w = Mul(p, x) t = Tanh(w) "
    "a = Add(one, t) h = Mul(a, x) y = Mul(half, h)",
    "tanh, the cube first": "c = Pow(x, three) k = Mul(cubic, c) s = Add(k, x) w = Mul(pi, s) t = Tanh(w) a = Add(t, one) "
    "m = Mul(a, x) y = Mul(m, half)",
}
NUMBERS = (
    "float root = {1.4142135381698608}, float inverse = {0.7071067811865476}, float one = {1.0}, float half = {0.5}, "
    "float two = {2.0}, float three = {3.0}, float cubic = {0.044715}, float pi = {0.7978845608028654}"
)
AXES = "int64[1] axis = {-1}, float eps = {0.00001}, float two = {2.0}, "
NORM = {
    "quotient": "m = ReduceMean(x, axis) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, axis) a = Add(v, eps) r = Sqrt(a) "
    "n = Div(d, r) z = Mul(n, s) y = Add(z, b)",
    "product": "m = ReduceMean(x, axis) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axis) a = Add(eps, v) r = Sqrt(a) "
    "i = Reciprocal(r) n = Mul(d, i) z = Mul(s, n) y = Add(b, z)",
}
X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)


def proto(body: str, constants: str, opset: int = 20, more: str = "") -> Any:
    return onnx.parser.parse_model(HEADER.format(opset=opset, more=more, constants=constants, body=body))


def fused(model: Any, **options: Any) -> tuple[list[str], Any]:
    """Return the operators of the simplified model, and the report; its outputs must be those of the original."""
    new = dovetail.simplify(dovetail.load(model), fuse="all", target="onnx", **options)
    report = new.report
    stream = io.BytesIO()
    dovetail.save(new, stream)
    stored = onnx.ModelProto.FromString(stream.getvalue())
    for ours, theirs in zip(
        run_onnxruntime(stream.getvalue(), {"x": X}), run_onnxruntime(model.SerializeToString(), {"x": X}), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return [node.op_type for node in stored.graph.node], report


@pytest.mark.parametrize("form", GELU)
def test_gelu_is_fused(form: str) -> None:
    kinds, report = fused(proto(GELU[form], NUMBERS), prove=True)
    assert kinds == ["Gelu"] and not report.refutations


@pytest.mark.parametrize("form", NORM)
def test_layer_normalization_is_fused(form: str) -> None:
    kinds, report = fused(proto(NORM[form], AXES + ONES), prove=True)
    assert kinds == ["LayerNormalization"] and not report.refutations


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (GELU["erf"], NUMBERS.replace("0.5", "0.6")),
        (GELU["erf"], NUMBERS.replace("1.4142", "1.4152")),
        (GELU["erf"].replace("m = Mul(x, a)", "u = Neg(x) m = Mul(u, a)"), NUMBERS),
        (GELU["tanh"], NUMBERS.replace("0.044715", "0.0457")),
        # The argument of tanh is a product of two factors, neither of which is x.
        (
            "u = Exp(x) v = Sin(x) p = Mul(u, v) w = Mul(p, pi) t = Tanh(w) a = Add(t, one) m = Mul(x, a) y = Mul(m, half)",
            NUMBERS,
        ),
        (NORM["quotient"], AXES.replace("{-1}", "{1}") + ONES),
        (NORM["quotient"].replace("q = Pow(d, two)", "q = Pow(x, two)"), AXES + ONES),
        (NORM["quotient"], AXES.replace("float eps = {0.00001}", "float[3, 1] eps = {1, 2, 1}") + ONES),
        (NORM["quotient"].replace("ReduceMean(q", "ReduceSum(q"), AXES + ONES),
    ],
)
def test_similar_subgraphs_are_not_fused(body: str, constants: str) -> None:
    kinds, _ = fused(proto(body, constants))
    assert not {"Gelu", "LayerNormalization"} & set(kinds)


@pytest.mark.parametrize(
    ("body", "constants", "name"),
    [(GELU["erf"], NUMBERS, "e"), (GELU["tanh"], NUMBERS, "k"), *((NORM["quotient"], AXES + ONES, name) for name in "dnqz")],
)
def test_an_inner_value_that_is_an_output_stays(body: str, constants: str, name: str) -> None:
    kinds, _ = fused(proto(body, constants, more=f", float[2, 3, 8] {name}"))
    assert not {"Gelu", "LayerNormalization"} & set(kinds)


def test_fusions_are_off_by_default() -> None:
    new = dovetail.simplify(dovetail.load(proto(GELU["erf"], NUMBERS)))
    assert "Gelu" not in {type(node.op).__name__ for node in new.graph.nodes}


def test_an_older_opset_is_a_note() -> None:
    new = dovetail.simplify(dovetail.load(proto(GELU["erf"], NUMBERS, opset=18)), fuse=["Gelu"])
    report = new.report
    assert "Gelu" not in {type(node.op).__name__ for node in new.graph.nodes}
    assert report.notes == ["Gelu is not fused: it needs opset 20, the model has 18; dovetail convert --opset"]


def test_an_unknown_fusion_is_refused() -> None:
    with pytest.raises(RuleError, match="argument\\.value"):
        dovetail.simplify(dovetail.load(proto(GELU["erf"], NUMBERS)), fuse=["Geluu"])


def test_the_command_fuses(tmp_path: Any) -> None:
    onnx.save(proto(GELU["erf"], NUMBERS), tmp_path / "m.onnx")
    with pytest.raises(SystemExit) as ended:
        main(["simplify", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "n.onnx"), "--fuse", "Gelu"])
    assert ended.value.code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "n.onnx").graph.node] == ["Gelu"]
