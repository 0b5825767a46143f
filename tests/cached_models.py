"""Models whose steps carry caches, from past inputs to present outputs, and the inputs of some steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import dovetail

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import language_models

Arrays = dict[str, Any]


def two_ports(past: str, present: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> dovetail.Model:
    """Return a model in which no operator shows that ``past`` [before] and ``present`` [after] are a cache."""
    with dovetail.Builder("ports") as b:
        x = b.input("x", "f32", (1,))
        cache = b.input(past, "f32", before)
        b.output("y", b.Negative(x))
        if before == after:
            b.output(present, b.Multiply(b.Add(cache, x), np.float32(0.5)))
        else:
            b.output(present, b.Relu(b.Concat(cache, b.Reshape(x, [1] * len(before)), axis=-1)))
    return b.model


def gpt2() -> onnx.ModelProto:
    return language_models.gpt2(2, 32, 4, 100, past=3)[0]


def llama() -> onnx.ModelProto:
    return language_models.llama(2, 32, 4, 2, 64, 100, past=3)[0]


def attention(kind: str, length: Any = "past") -> onnx.ModelProto:
    """Return one node of Attention-23, Attention-24 or GroupQueryAttention: 4 query heads, 2 key heads of size 8."""
    value = helper.make_tensor_value_info
    widths = {"q": 32, "k": 16, "v": 16}
    inputs = [value(name, TensorProto.FLOAT, ["batch", "t", width]) for name, width in widths.items()]
    pasts, presents = ([f"{name}.0.{which}" for which in ("key", "value")] for name in ("past_key_values", "present"))
    inputs += [value(name, TensorProto.FLOAT, ["batch", 2, length, 8]) for name in pasts]
    outputs = [value(name, TensorProto.FLOAT, None) for name in ("y", *presents)]
    versions = [helper.make_opsetid("", 23 if kind == "Attention-23" else 24)]
    if kind == "GroupQueryAttention":
        inputs += [value("seqlens_k", TensorProto.INT32, ["batch"]), value("total", TensorProto.INT32, [])]
        node = helper.make_node(
            kind, [*widths, *pasts, "seqlens_k", "total"], ["y", *presents], domain="com.microsoft", num_heads=4, kv_num_heads=2
        )
        versions.append(helper.make_opsetid("com.microsoft", 1))
    else:
        node = helper.make_node("Attention", [*widths, "", *pasts], ["y", *presents], q_num_heads=4, kv_num_heads=2, is_causal=1)
    return helper.make_model(helper.make_graph([node], "attention", inputs, outputs), opset_imports=versions, ir_version=10)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gpt2": gpt2,
    "llama": llama,
    "Attention-23": lambda: attention("Attention-23"),
    "Attention-24": lambda: attention("Attention-24"),
    "GroupQueryAttention": lambda: attention("GroupQueryAttention"),
    "shared buffer": lambda: attention("GroupQueryAttention", 16),
}


def feeds(model: onnx.ModelProto) -> list[Arrays]:
    """Return the inputs of five steps of 4, 1, 1, 2 and 1 tokens, without the caches."""
    chance, found, seen = np.random.default_rng(0), [], 0
    names = {item.name for item in model.graph.input}
    # onnxruntime takes several rows after the first step only with a past of one row in each sequence.
    for t in (4, 1, 1, 1, 1) if "seqlens_k" in names else (4, 1, 1, 2, 1):
        seen += t
        every = {
            "input_ids": chance.integers(0, 100, (1, t)),
            "position_ids": np.arange(seen - t, seen)[None],
            "attention_mask": np.ones((1, seen), np.int64),
            **{name: chance.standard_normal((1, t, width), np.float32) for name, width in (("q", 32), ("k", 16), ("v", 16))},
            "seqlens_k": np.array([seen - 1], np.int32),
            "total": np.array(seen, np.int32),
        }
        found.append({name: array for name, array in every.items() if name in names})
    return found


def requests(path: Path, steps: list[Arrays]) -> list[Any]:
    """Return the first result of each step of OpenVINO, which keeps the states."""
    import openvino

    request = (
        openvino.Core()
        .compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"})
        .create_infer_request()
    )
    return [np.array(request.infer(feed)[0]) for feed in steps]


def attention_of_openvino(path: Path, *, has_beams: bool) -> Path:
    """Build an IR as OpenVINO's stateful language models: states begin empty, and the caches of a step follow ``beam_idx``."""
    from openvino import Model, PartialShape, Type, opset13 as o, serialize
    from openvino.op.util import Variable, VariableInfo

    inputs = [o.parameter([-1, -1, 8], np.float32, name=name) for name in "qkv"]
    beams = o.parameter([-1], np.int32, name="beam_idx")
    for item in (*inputs, beams):
        item.output(0).get_tensor().set_names({item.get_friendly_name()})
    q, *new = (o.transpose(o.reshape(x, [0, 0, 2, 4], True), [0, 2, 1, 3]) for x in inputs)
    batch = o.gather(o.shape_of(inputs[0]), np.int64([0]), np.int64(0))
    rows, sinks = [], []
    for kind, x in zip(("key", "value"), new, strict=True):
        info = VariableInfo()
        info.data_shape, info.data_type = PartialShape([-1, 2, -1, 4]), Type.f32
        info.variable_id = f"past_key_values.0.{kind}present.0.{kind}"
        variable = Variable(info)
        empty = o.broadcast(o.constant(np.float32(0)), o.concat([batch, np.int64([2]), np.int64([0]), np.int64([4])], 0))
        past = o.read_value(empty, variable)
        past = o.gather(past, beams, np.int64(0)) if has_beams else past
        rows.append(o.concat([past, x], 2))
        sinks.append(o.assign(rows[-1], variable))
    y = o.scaled_dot_product_attention(q, *rows)
    y = o.reshape(o.transpose(y, [0, 2, 1, 3]), [0, 0, 8], True)
    y.output(0).get_tensor().set_names({"y"})
    parameters = [*inputs, beams] if has_beams else inputs
    serialize(Model([o.result(y)], sinks, parameters, "stateful"), path)
    return path
