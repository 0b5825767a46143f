"""Operators of com.microsoft mean what onnxruntime makes of them, and are written as operators of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
import oracles
from assertions import assert_close
from cases.matmul import floats
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats.onnx import write as onnx_write

_MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
_IDS = np.array([[1, 2, 3], [4, 5, 0]], np.int32)
_COS, _SIN = (function(np.random.default_rng(4).uniform(0, 6, (10, 4))).astype(np.float32) for function in (np.cos, np.sin))
_X = floats(2, 5, 8)
_QKV = (_X, floats(8, 24, seed=1), floats(24, seed=2))
_PAST = (floats(2, 2, 4, 4, seed=7), floats(2, 2, 4, 4, seed=8))
_IN_HEADS = (floats(2, 2, 5, 4, seed=1), floats(2, 2, 5, 4, seed=2))
_APART = (floats(2, 3, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2))


def masks(keys: int) -> list[Any]:
    """Every form of mask that onnxruntime's Attention takes: where rows end, and begin; packed; a number for each key."""
    vectors = ([3, keys], [1, keys - 1], [0, keys + 2], [3, keys, 1, 0], [2, keys, 2, 1], [3, 2, 0, 3, 4, 0, 3, 7])
    chance = np.random.default_rng(keys)
    return [np.array(each, np.int32) for each in vectors] + [
        chance.integers(-1, 3, shape).astype(np.int32) for shape in ((2, keys), (2, 5, keys))
    ]


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
    ("LayerNormalization", (_X, floats(8, seed=1), floats(8, seed=2)), {"epsilon": 0.125}, 1),
    ("LayerNormalization", (_X, floats(8, seed=1)), {"axis": 2}, 1),
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
    *(
        ("Attention", (*_QKV, mask, past), {"num_heads": 2, "unidirectional": causal}, 2 if past is not None else 1)
        for past in (None, floats(2, 2, 2, 3, 4, seed=5))
        for causal in (0, 1)
        for mask in masks(5 if past is None else 8)
    ),
    ("Attention", (*_QKV, _MASK), {"num_heads": 2, "mask_filter_value": -2.0}, 1),
    ("MultiHeadAttention", (*_APART, None, _MASK * 3 - 1), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, None, np.array([3, 8], np.int32), None, *_PAST), {"num_heads": 2}, 3),
    ("MultiHeadAttention", (*_APART, None, np.array([3, 5, 0, 3, 6, 0, 3, 8], np.int32)), {"num_heads": 2}, 1),
    ("MultiHeadAttention", _APART, {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, floats(24, seed=3)), {"num_heads": 2, "scale": 0.25}, 1),
    ("MultiHeadAttention", (*_APART, None, _MASK), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, None, None, floats(2, 2, 3, 5, seed=3)), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (*_APART, None, np.array([3, 5], np.int32)), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (_APART[1], *_APART[1:]), {"num_heads": 2, "unidirectional": 1}, 1),
    ("MultiHeadAttention", (*_APART, *[None] * 3, *_PAST), {"num_heads": 2}, 3),
    ("MultiHeadAttention", (_APART[1], *_APART[1:], *[None] * 3, *_PAST), {"num_heads": 2, "unidirectional": 1}, 3),
    ("MultiHeadAttention", (*_APART, None, _MASK), {"num_heads": 2, "scale": 0.25}, 4),
    ("MultiHeadAttention", (_APART[0], *_IN_HEADS), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (_APART[1], *_IN_HEADS), {"num_heads": 2, "unidirectional": 1}, 1),
    ("MultiHeadAttention", (_APART[0], *_IN_HEADS, floats(24, seed=3), _MASK), {"num_heads": 2}, 1),
]


def model_of(kind: str, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: int) -> bytes:
    domain = "" if kind in ("SimplifiedLayerNormalization", "LayerNormalization") else "com.microsoft"
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    # Those between are onnxruntime's statistics for training.
    results = ["y0"] if outputs == 1 else ["y0", *[""] * (outputs - 2), "y1"]
    if kind == "MultiHeadAttention":
        results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(kind, names, results, domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    second = 6 if kind == "EmbedLayerNormalization" else 1
    ys = [helper.make_tensor_value_info(name, second if name == "y1" else 1, None) for name in results if name]
    opsets = [helper.make_opsetid("", 14 if kind == "LayerNormalization" else 17), helper.make_opsetid("com.microsoft", 1)]
    found: bytes = helper.make_model(
        helper.make_graph([node], "g", infos, ys), opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place}: {row[0]}") for place, row in enumerate(NODES)])
def test_an_operator_of_onnxruntime_gives_the_results_of_onnxruntime(row: Any, tmp_path: Any) -> None:
    kind, inputs, attributes, outputs = row
    data = model_of(kind, inputs, attributes, outputs)
    given = fed(inputs)
    theirs = oracles.run_onnxruntime(data, given)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    model = dovetail.load(path)
    for engine in ("interpreter", "native"):
        ours = dovetail.compile(model, engine=engine)(given)
        for name, mine, other in zip(ours.keys(), ours.values(), theirs, strict=True):
            assert_close(np.asarray(mine), other, 2e-5, f"{engine}: {name}")
    again = onnx_write.save(model, None, opset=21)
    assert again is not None
    assert not any(node.domain for node in onnx.load_from_string(again).graph.node)
    for name, mine, other in zip(ours.keys(), oracles.run_onnxruntime(again, given), theirs, strict=True):
        assert_close(mine, other, 2e-5, f"written as ONNX: {name}")


def packed(*parts: Any) -> Any:
    """Tensors [batch, rows, heads * size] as one, [batch, rows, heads, parts, size]."""
    return np.stack([x.reshape(*x.shape[:2], 2, -1) for x in parts], axis=3)


@pytest.mark.parametrize(
    ("inputs", "apart"),
    [
        ((packed(*[_APART[1]] * 3),), (_APART[1],) * 3),
        ((packed(_APART[1], _APART[2], _APART[1]),), (_APART[1], _APART[2], _APART[1])),
        ((packed(*[_APART[1]] * 3), None, None, floats(24, seed=3)), (*(_APART[1],) * 3, floats(24, seed=3))),
        ((_APART[0], packed(*_APART[1:])), _APART),
        ((_APART[0], packed(*_APART[1:]), None, None, _MASK), (*_APART, None, _MASK)),
    ],
)
def test_packed_queries_keys_and_values_give_the_results_of_separate_ones(inputs: Any, apart: Any, tmp_path: Any) -> None:
    # onnxruntime's CPU has the packed forms in its documentation alone.
    theirs = oracles.run_onnxruntime(model_of("MultiHeadAttention", apart, {"num_heads": 2}, 1), fed(apart))
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of("MultiHeadAttention", inputs, {"num_heads": 2}, 1))
    for engine in ("interpreter", "native"):
        (ours,) = dovetail.compile(dovetail.load(path), engine=engine)(fed(inputs)).values()
        assert_close(np.asarray(ours), theirs[0], 2e-5, engine)


def fed(inputs: tuple[Any, ...]) -> dict[str, Any]:
    return {f"x{index}": x for index, x in enumerate(inputs) if x is not None}


@pytest.mark.parametrize("length", [2, 4, 8, 3, 7])
def test_the_mask_form_follows_from_its_length_at_run_time(length: int, tmp_path: Any) -> None:
    """Every size open: as many numbers as the batch, twice as many, three times and two; others are refused."""
    mask = np.array([3, 5, 1, 0, 3, 0, 3, 5], np.int32)[:length]
    inputs = (*_QKV, mask)
    data = onnx.load_from_string(model_of("Attention", inputs, {"num_heads": 2}, 1))
    for name, sizes in (("x0", ("b", "s", 8)), ("x3", ("m",))):
        info = next(info for info in data.graph.input if info.name == name)
        info.CopyFrom(helper.make_tensor_value_info(name, info.type.tensor_type.elem_type, sizes))
    path = tmp_path / "model.onnx"
    onnx.save(data, path)
    model = dovetail.load(path)
    again = onnx_write.save(model, None, opset=21)
    assert again is not None
    if length in (3, 7):
        for engine in ("interpreter", "native"):
            with pytest.raises(DovetailError) as caught:
                dovetail.compile(model, engine=engine)(fed(inputs))
            # The plan of the numpy steps infers it before the run.
            assert caught.value.code in ("index.range", "index.range")
        return
    (theirs,) = oracles.run_onnxruntime(path.read_bytes(), fed(inputs))
    for engine in ("interpreter", "native"):
        (ours,) = dovetail.compile(model, engine=engine)(fed(inputs)).values()
        assert_close(np.asarray(ours), theirs, 2e-5, engine)
    assert_close(oracles.run_onnxruntime(again, fed(inputs))[0], theirs, 2e-5, "written as ONNX")


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], int]] = [
    ("Attention", (*_QKV, np.arange(7, dtype=np.int32)), {"num_heads": 2}, 1),
    ("Attention", (*_QKV, np.ones((2, 1, 6, 6), np.int32)), {"num_heads": 2}, 1),
    ("Attention", _QKV, {"num_heads": 2, "do_rotary": 1}, 1),
    ("MultiHeadAttention", (floats(2, 3, 2, 3, 4), _X, _X), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (_X,), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (_APART[0], packed(*_APART[1:]), None, floats(24)), {"num_heads": 2}, 1),
    ("MultiHeadAttention", (_APART[0], *_IN_HEADS, *[None] * 3, *_PAST), {"num_heads": 2}, 1),
    ("MultiHeadAttention", _APART, {"num_heads": 2, "unidirectional": 1}, 1),
    ("MultiHeadAttention", (*_APART, None, np.arange(4, dtype=np.int32)), {"num_heads": 2}, 1),
    ("RotaryEmbedding", (floats(2, 3, 16), _IDS.astype(np.int64), _COS, _SIN), {"scale": 2.0}, 1),
    ("Gelu", (_X,), {"approximate": "none"}, 1),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place}: {row[0]}") for place, row in enumerate(REFUSED)])
def test_a_form_that_is_not_known_is_refused(row: Any, tmp_path: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(*row))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.load(path, strict=True)
    assert caught.value.code in ("attribute.value", "attribute.unknown")


def generator() -> bytes:
    """GroupQueryAttention as text generators have it: every size open, the lengths and their greatest among the inputs."""
    shapes = {"q": ("b", "s", 64), "k": ("b", "s", 32), "v": ("b", "s", 32)}
    shapes |= {"past_key": ("b", 2, "p", 16), "past_value": ("b", 2, "p", 16), "cos": (16, 8), "sin": (16, 8)}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    infos += [helper.make_tensor_value_info(name, 6, shape) for name, shape in (("lengths", ("b",)), ("total", ()))]
    inputs = ["q", "k", "v", "past_key", "past_value", "lengths", "total", "cos", "sin"]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 4}
    node = helper.make_node("GroupQueryAttention", inputs, ["y", "key", "value"], domain="com.microsoft", **attributes)
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("y", "key", "value")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", infos, outputs)
    found: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return found


def test_text_is_generated_row_by_row_as_in_onnxruntime(tmp_path: Any) -> None:
    data = generator()
    (tmp_path / "model.onnx").write_bytes(data)
    model = dovetail.load(tmp_path / "model.onnx")
    dovetail.save(model, tmp_path / "model.xml")
    apart = dovetail.load(tmp_path / "model.xml")
    dovetail.save(apart, tmp_path / "apart.onnx")
    plain = (tmp_path / "apart.onnx").read_bytes()
    assert not any(node.domain for node in onnx.load_from_string(plain).graph.node)
    models = (model, apart, dovetail.load(tmp_path / "apart.onnx"))
    programs = [dovetail.compile(each, engine=engine) for each in models for engine in ("interpreter", "native")]
    key = value = np.zeros((1, 2, 0, 16), np.float32)
    angles = np.random.default_rng(4).uniform(0, 6, (16, 8))
    tables = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    length = 0
    for step, rows in enumerate((5, 1, 1, 3, 1)):
        length += rows
        x = {name: floats(1, rows, count * 16, seed=step) for name, count in (("q", 4), ("k", 2), ("v", 2))}
        rest = {"past_key": key, "past_value": value, "lengths": np.array([length - 1], np.int32)}
        given = {**x, **rest, "total": np.array(length, np.int32), **tables}
        theirs = oracles.run_onnxruntime(data, given)
        found = [list(program(given).values()) for program in programs] + [oracles.run_onnxruntime(plain, given)]
        for ours in found:
            for name, mine, other in zip(("y", "key", "value"), ours, theirs, strict=True):
                assert_close(np.asarray(mine), other, 2e-5, f"step {step}: {name}")
        _, key, value = theirs
