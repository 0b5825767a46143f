"""Attention of one format is attention in the other, and stays it from one to the other and back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from assertions import assert_close
from case_runner import feeds, model_of
from cases import Case
from cases.attention import _NONE, flat, heads, past, seen
from dovetail.compat import onnx_backend as backend
from dovetail.errors import DovetailError
from dovetail.ir.graph import Model
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.runtime.interpreter.interpret import interpret

_QUARTER = np.array(0.25, np.float32)
_SINK = np.ones((1, 4, 1, 1), np.float32)

FORMS: list[tuple[str, Any, tuple[Any, ...], tuple[int, ...]]] = [
    ("as it is", Attention(), heads(), ()),
    ("of the past", Attention(is_causal=True), heads(), ()),
    ("with a scale", Attention(scale=0.25), heads(), ()),
    ("of columns", Attention(q_num_heads=4, kv_num_heads=4), flat(), ()),
    ("with a past", Attention(outputs=3), (*heads(), None, *past()), ()),
    ("with a past that comes first", Attention(is_causal=True, outputs=3), (*heads(), None, *past()), ()),
    ("with a mask", Attention(), (*heads(), seen(4, 5)), (3,)),
    ("of OpenVINO", ScaledDotProductAttention(), heads(), ()),
    ("of OpenVINO with a scale", ScaledDotProductAttention(True), (*heads(), None, _QUARTER), (4,)),
]


def kinds(model: Model) -> Counter[str]:
    return Counter(type(node.op).__name__ for node in model.graph.nodes)


@pytest.mark.parametrize(("op", "inputs", "constants"), [pytest.param(*row[1:], id=row[0]) for row in FORMS])
def test_attention_keeps_its_nodes_over_round_trips(op: Any, inputs: Any, constants: Any, tmp_path: Any) -> None:
    case = Case(op, inputs, constants=constants)
    model = model_of(case)
    first = interpret(model, feeds(case))
    counts = []
    for turn in range(2):
        for suffix, kind in (("xml", "ScaledDotProductAttention"), ("onnx", "Attention")):
            path = tmp_path / f"{turn}.{suffix}"
            dovetail.save(model, path, **({"opset": 25} if suffix == "onnx" else {}))
            model = dovetail.load(path)
            assert kinds(model)[kind] == 1 and not kinds(model)["Softmax"]
            for name, y in interpret(model, feeds(case)).items():
                assert_close(np.asarray(y), np.asarray(first[name]), 1e-6, f"{suffix}, {name}")
        counts.append(kinds(model))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("op", "inputs", "constants"),
    [
        (Attention(), (*heads(), _NONE), (3,)),
        (Attention(), (*heads(), seen(4, 5)), ()),
        (Attention(softcap=2.0), heads(), ()),
        (Attention(left_window_size=1, is_causal=True), heads(), ()),
        (Attention(is_causal=True), (*heads(), seen(4, 5)), (3,)),
        (Attention(), heads(kv=2), ()),
        (Attention(qk_matmul_output_mode="weights", outputs=4), heads(), ()),
    ],
)
def test_attention_that_openvino_computes_differently_is_decomposed(op: Any, inputs: Any, constants: Any, tmp_path: Any) -> None:
    dovetail.save(model_of(Case(op, inputs, constants=constants)), tmp_path / "model.xml")
    assert not kinds(dovetail.load(tmp_path / "model.xml"))["ScaledDotProductAttention"]


@pytest.mark.parametrize("causal", [False, True])
def test_a_sink_is_written_to_ir_with_all_inputs_before_it(causal: bool, tmp_path: Any) -> None:
    case = Case(ScaledDotProductAttention(causal), (*heads(), None, None, _SINK))
    model = model_of(case)
    dovetail.save(model, tmp_path / "model.xml")
    again = dovetail.load(tmp_path / "model.xml")
    assert kinds(again)["ScaledDotProductAttention"] == 1
    for name, y in interpret(again, feeds(case)).items():
        assert_close(np.asarray(y), np.asarray(interpret(model, feeds(case))[name]), 1e-6, name)


FLEXIBLE = """<ir_version: 13, opset_import: ["" : 26, "ai.onnx.preview" : 1]>
g (float[2,4,4,8] q, float[2,2,5,8] k, float[2,2,5,6] v, float[4,5] bias) => (float[2,4,4,6] y) {{
    far = Identity (bias)
    y = ai.onnx.preview.FlexAttention <{} score_mod: graph = s ({}) => (float[B,H,L,S] z) {{ z = {} }}> (q, k, v)
}}"""


def test_a_graph_in_flexible_attention_reads_captures() -> None:
    q, k, v = heads(kv=2)
    bias = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    source = FLEXIBLE.format("scale: float = 0.5,", "float[B,H,L,S] x", "Add (x, far)")
    found = backend.run_model(onnx.parser.parse_model(source), [q, k, v, bias])
    theirs = answer_of(Attention(scale=0.5), q, k, v, bias)
    assert_close(found[0], theirs, 1e-6)


def answer_of(op: Any, *inputs: Any) -> Any:
    (found,) = interpret(model_of(Case(op, inputs)), feeds(Case(op, inputs))).values()
    return np.asarray(found)


@pytest.mark.parametrize(
    ("attribute", "inputs", "body"),
    [
        ("softmax_precision: int = 7,", "float[B,H,L,S] x", "Add (x, far)"),
        ("", "float[B,H,L,S] x, float[B] other", "Add (x, far)"),
        ("", "float[B,H,L,S] x", "Cast <to: int = 11> (x)"),
    ],
)
def test_flexible_attention_that_is_none_is_refused(attribute: str, inputs: str, body: str) -> None:
    with pytest.raises(DovetailError) as caught:
        backend.prepare(onnx.parser.parse_model(FLEXIBLE.format(attribute, inputs, body)))
    assert caught.value.code == "attribute.value"
