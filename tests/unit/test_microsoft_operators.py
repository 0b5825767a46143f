"""Operators of com.microsoft mean what onnxruntime makes of them, and are written as operators of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
import oracles
from cases.linear import floats
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx import write as onnx_write
from sameness import assert_close

_MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
_IDS = np.array([[1, 2, 3], [4, 5, 0]], np.int32)
_COS, _SIN = (function(np.random.default_rng(4).uniform(0, 6, (10, 4))).astype(np.float32) for function in (np.cos, np.sin))
_X = floats(2, 5, 8)
_QKV = (_X, floats(8, 24, seed=1), floats(24, seed=2))
_APART = (floats(2, 3, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2))

NODES: list[tuple[str, tuple[Any, ...], dict[str, Any], int]] = [
    ("FusedMatMul", (floats(2, 4, 3), floats(2, 5, 4, seed=1)), {"transA": 1, "transB": 1, "alpha": 0.5}, 1),
    ("Gelu", (_X,), {}, 1),
    ("BiasGelu", (_X, floats(8, seed=1)), {}, 1),
    ("FastGelu", (_X,), {}, 1),
    ("FastGelu", (_X, floats(8, seed=1)), {}, 1),
    ("QuickGelu", (_X,), {}, 1),
    ("QuickGelu", (_X,), {"alpha": 0.5}, 1),
    ("SkipLayerNormalization", (_X, _X[::-1].copy(), floats(8, seed=1)), {}, 1),
    ("SkipLayerNormalization", (_X, _X[::-1].copy(), *(floats(8, seed=seed) for seed in (1, 2, 3))), {"epsilon": 0.125}, 4),
    ("SkipSimplifiedLayerNormalization", (_X, _X[::-1].copy(), floats(8, seed=1)), {"epsilon": 0.125}, 1),
    ("SkipSimplifiedLayerNormalization", (_X, _X[::-1].copy(), floats(8, seed=1), floats(8, seed=3)), {}, 4),
    ("SimplifiedLayerNormalization", (_X, floats(8, seed=1)), {"epsilon": 0.125}, 1),
    (
        "EmbedLayerNormalization",
        (_IDS, _IDS % 2, floats(6, 8), floats(4, 8, seed=1), floats(2, 8, seed=2), floats(8, seed=3), floats(8, seed=4)),
        {},
        2,
    ),
    (
        "EmbedLayerNormalization",
        (_IDS, None, floats(6, 8), floats(4, 8, seed=1), None, floats(8, seed=3), floats(8, seed=4), _IDS % 2),
        {},
        2,
    ),
    ("RotaryEmbedding", (floats(2, 3, 16), _IDS.astype(np.int64), _COS, _SIN), {}, 1),
    ("RotaryEmbedding", (floats(2, 3, 16), np.array([4], np.int64), _COS, _SIN), {"interleaved": 1}, 1),
    ("RotaryEmbedding", (floats(2, 2, 3, 8), _IDS.astype(np.int64), _COS, _SIN), {}, 1),
    *(("Attention", _QKV, {"num_heads": 2, **more}, 1) for more in ({}, {"unidirectional": 1}, {"scale": 0.25})),
    ("Attention", (*_QKV, _MASK), {"num_heads": 2}, 1),
    ("Attention", (*_QKV, _MASK), {"num_heads": 2, "unidirectional": 1}, 1),
    ("Attention", (*_QKV, None, floats(2, 2, 2, 3, 4, seed=5)), {"num_heads": 2, "unidirectional": 1}, 2),
    ("Attention", (*_QKV, None, None, floats(2, 2, 5, 5, seed=5)), {"num_heads": 2}, 1),
    ("MultiHeadAttention", _APART, {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, floats(24, seed=3)), {"num_heads": 2, "scale": 0.25}, 1),
    ("MultiHeadAttention", (*_APART, None, _MASK), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, None, None, floats(2, 2, 3, 5, seed=3)), {"num_heads": 2}, 1),
]


def model_of(kind: str, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: int) -> bytes:
    domain = "" if kind == "SimplifiedLayerNormalization" else "com.microsoft"
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    # Those between are onnxruntime's statistics for training.
    results = ["y0"] if outputs == 1 else ["y0", *[""] * (outputs - 2), "y1"]
    node = helper.make_node(kind, names, results, domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    kinds = [1, 6 if kind == "EmbedLayerNormalization" else 1]
    ys = [helper.make_tensor_value_info(f"y{index}", kinds[index], None) for index in range(min(outputs, 2))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    found: bytes = helper.make_model(
        helper.make_graph([node], "g", infos, ys), opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place}: {row[0]}") for place, row in enumerate(NODES)])
def test_an_operator_of_onnxruntime_is_what_onnxruntime_makes_of_it(row: Any, tmp_path: Any) -> None:
    kind, inputs, attributes, outputs = row
    data = model_of(kind, inputs, attributes, outputs)
    given = {f"x{index}": x for index, x in enumerate(inputs) if x is not None}
    theirs = oracles.run_onnxruntime(data, given)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    model = dovetail.load(path)
    for engine in ("interpreter", "native"):
        ours = dovetail.compile(model, engine=engine)(given)
        for name, mine, other in zip(ours, ours.values(), theirs, strict=True):
            assert_close(np.asarray(mine), other, 2e-5, f"{engine}: {name}")
    again = onnx_write.save(model, None, opset=21)
    assert again is not None
    assert not any(node.domain for node in onnx.load_from_string(again).graph.node)
    for name, mine, other in zip(ours, oracles.run_onnxruntime(again, given), theirs, strict=True):
        assert_close(mine, other, 2e-5, f"written as ONNX: {name}")


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], int]] = [
    ("FusedMatMul", (_X, _X), {"transBatchA": 1}, 1),
    ("Attention", (*_QKV, np.array([3, 4], np.int32)), {"num_heads": 2}, 1),
    ("Attention", _QKV, {"num_heads": 2, "do_rotary": 1}, 1),
    ("MultiHeadAttention", (floats(2, 3, 2, 3, 4), _X, _X), {"num_heads": 2}, 1),
    ("RotaryEmbedding", (floats(2, 3, 16), _IDS.astype(np.int64), _COS, _SIN), {"scale": 2.0}, 1),
    ("Gelu", (_X,), {"approximate": "none"}, 1),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place}: {row[0]}") for place, row in enumerate(REFUSED)])
def test_a_form_that_is_not_known_is_refused(row: Any, tmp_path: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(*row))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.load(path)
    assert caught.value.code in ("attribute.value", "attribute.unknown")
