"""Attention on images: parts of grouped channels are read without copies, with the results of the interpreter and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.engine.rewrite.pipeline import rewrite_for_engine
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ops.nn.conv import Conv

RNG = np.random.default_rng(5)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def attention(heads: int, depth: int, batch: int, side: int, has_bias: bool, is_read_elsewhere: bool = False) -> Model:
    keys, channels = depth // 2, heads * depth
    outputs = channels + 2 * keys * heads
    with Builder("attention") as b:
        x = b.Relu(b.Conv(b.input("x", "f32", (batch, 6, side, side)), weights(8, 6, 1, 1)))
        qkv = b.Conv(x, weights(outputs, 8, 1, 1), *([weights(outputs)] if has_bias else []))
        parts = b.Reshape(qkv, [batch, heads, 2 * keys + depth, side * side])
        q, k, v = b.Split(parts, [keys, keys, depth], axis=2, outputs=3)
        shares = b.Softmax(b.MatMul(b.Transpose(q, [0, 1, 3, 2]), k), axis=-1)
        mixed = b.MatMul(v, b.Transpose(shares, [0, 1, 3, 2]))
        shape = [batch, channels, side, side]
        position = b.Conv(b.Reshape(v, shape), weights(channels, 1, 3, 3), pads=(1, 1, 1, 1), group=channels)
        b.output("y", b.Conv(b.Add(b.Reshape(mixed, shape), position), weights(4, channels, 1, 1)))
        if is_read_elsewhere:
            b.output("z", b.GlobalAveragePool(qkv))
    return b.model


@pytest.mark.parametrize(
    "arguments",
    [(2, 8, 1, 3, True), (3, 4, 2, 5, False), (1, 8, 2, 4, True), (4, 16, 1, 1, True), (2, 6, 3, 2, True, True)],
)
@pytest.mark.parametrize("elide", ["auto", "all", "none"])
def test_attention_on_images(arguments: tuple[Any, ...], elide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    model = attention(*arguments)
    x = RNG.standard_normal(model.inputs[0].shape).astype(np.float32)
    found = dovetail.compile(model, "native", elide=elide, threads=2)({"x": x})
    data = onnx_write.save(model, None)
    assert data is not None
    for (name, ours), theirs in zip(found.items(), oracles.run_onnxruntime(data, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4, err_msg=name)


def test_only_the_layouts_of_inputs_and_outputs_are_converted() -> None:
    copies = dovetail.plan(attention(2, 16, 1, 8, True), elide="all", rounds=0).copies
    assert {copy.source for copy in copies} <= {"x", "y"}


@pytest.mark.parametrize(("is_read_elsewhere", "is_ordered"), [(False, True), (True, False)])
def test_weights_keep_their_rows(is_read_elsewhere: bool, is_ordered: bool) -> None:
    """Each channel keeps its weights; a result that something else reads keeps its channels."""
    model = attention(2, 4, 1, 3, True, is_read_elsewhere)

    def rows_of(graph: Any) -> Any:
        convs = [node for node in graph.nodes if isinstance(node.op, Conv) and node.inputs[1].shape == (16, 8, 1, 1)]
        return convs[0].inputs[1].constant.reshape(16, 8)

    before, after = rows_of(model.graph), rows_of(rewrite_for_engine(model.graph))
    # Heads of 2 queries, 2 keys and 4 values.
    order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15] if is_ordered else list(range(16))
    np.testing.assert_array_equal(after, before[order])
