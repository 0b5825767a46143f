"""Random attention over caches: grouped heads, masks and lengths, in a session, as states and in onnxruntime.

Keys and values are repeated for the heads of queries in the forms of exporters, or belong to an operator of attention.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

Arrays = dict[str, Any]
REPEATS = ("expand", "reshape", "tile", "concat", "gather", "Attention", "GroupQueryAttention", "shared buffer")
GROUPED = REPEATS[-2:]
TABLE = 48
"""The rows of a constant table of a mask, and of a buffer that holds past and present."""


def repeat_heads(b: dovetail.Builder, x: Any, kind: str, groups: int, times: int, size: int) -> Any:
    """Return [batch, groups * times, length, size] with each head of ``x`` repeated ``times`` times."""
    if kind == "gather":
        return b.Gather(x, np.repeat(np.arange(groups), times), axis=1)
    shape = b.Shape(x)
    front, back = b.Gather(shape, [0, 1], axis=0), b.Gather(shape, [2, 3], axis=0)
    part = b.Reshape(x, b.Concat(front, [1], back, axis=0)) if kind == "reshape" else b.Unsqueeze(x, [2])
    if kind == "tile":
        parts = b.Tile(part, [1, 1, times, 1, 1])
    elif kind == "concat":
        parts = b.Concat(*[part] * times, axis=2)
    else:
        parts = b.Expand(part, b.Concat(front, [times], back, axis=0))
    return b.Reshape(parts, [0, groups * times, -1, size])


def random_attention(kind: str, chance: np.random.Generator) -> tuple[dovetail.Model, bool, int]:
    """Return a layer of attention over two caches, whether it has a mask over all tokens, and the bytes of a token's cache."""
    groups, times, size = int(chance.integers(1, 4)), int(chance.integers(1, 5)), 2 * int(chance.integers(1, 9))
    heads, mask = groups * times, str(chance.choice(("none", "causal", "table", "bias")))
    if kind in GROUPED:
        # onnxruntime takes heads of a multiple of 8 columns.
        mask, size = "none", 8 * int(chance.integers(1, 3))
    scaled = str(chance.choice(("scores", "keys", "both")))
    shape = ("batch", groups, TABLE if kind == "shared buffer" else "past", size)
    with dovetail.Builder(kind) as b:
        x = b.input("x", "f32", ("batch", "t", 8))
        past = [b.input(f"past_key_values.0.{part}", "f32", shape) for part in ("key", "value")]
        q, *new = (b.MatMul(x, (chance.standard_normal((8, n * size)) * 8**-0.5).astype("f4")) for n in (heads, groups, groups))
        bias = b.input("bias", "f32", ("batch", 1, "t", "total")) if mask == "bias" else None
        if kind in GROUPED:
            lengths = [b.input("seqlens_k", "i32", ("batch",)), b.input("total_sequence_length", "i32", ())]
            y, *present = b.GroupQueryAttention(q, *new, *past, *lengths, num_heads=heads, kv_num_heads=groups, outputs=3)
        else:
            q, *new = (b.Transpose(b.Reshape(z, [0, 0, -1, size]), [0, 2, 1, 3]) for z in (q, *new))
            if kind == "Attention":
                y, *present = b.Attention(q, new[0], new[1], bias, *past, is_causal=mask in ("causal", "table"), outputs=3)
            else:
                present = [b.Concat(old, z, axis=2) for old, z in zip(past, new, strict=True)]
                keys, values = (repeat_heads(b, z, kind, groups, times, size) for z in present)
                keys, scale = b.Transpose(keys, [0, 1, 3, 2]), np.float32(size**-0.5)
                if scaled == "both":
                    root = np.float32(size**-0.25)
                    scores = b.MatMul(b.Multiply(q, root), b.Multiply(keys, root))
                elif scaled == "keys":
                    scores = b.MatMul(q, b.Multiply(keys, scale))
                else:
                    scores = b.Multiply(b.MatMul(q, keys), scale)
                scores = masked(b, scores, mask, bias, past[0], x)
                y = b.MatMul(b.Softmax(scores, axis=-1), values)
            y = b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1])
        b.output("y", y)
        for part, value in zip(("key", "value"), present, strict=True):
            b.output(f"present.0.{part}", value)
    return b.model, mask == "bias", 4 * 2 * groups * size


def masked(b: dovetail.Builder, scores: Any, mask: str, bias: Any, past: Any, x: Any) -> Any:
    if mask == "none":
        return scores
    if mask == "bias":
        return b.Add(scores, bias)
    before, rows = (b.Gather(b.Shape(value), [axis], axis=0) for value, axis in ((past, 2), (x, 1)))
    total = b.Add(before, rows)
    if mask == "table":
        table = b.constant(np.tril(np.ones((1, 1, TABLE, TABLE), bool)))
        seen = b.Slice(b.Slice(table, before, total, [2], [1]), [0], total, [3], [1])
    else:
        ends = (b.Reshape(z, []) for z in (before, total))
        first, last = ends
        one = b.constant(1)
        seen = b.LessEqual(b.Range(b.constant(0), last, one), b.Unsqueeze(b.Range(first, last, one), [1]))
    return b.Where(seen, scores, np.float32(np.finfo(np.float32).min))


def copies_of_caches(model: dovetail.Model, feed: Arrays, caches: Arrays) -> int:
    """Return the bytes of the largest copy of a step, without the copies that a session with ``reuse_caches`` leaves out."""
    copies = dovetail.plan(model, {**feed, **caches}, rounds=0).copies
    return max((copy.nbytes for copy in copies if "aliases the input" not in copy.reason), default=0)


def address_of(session: Any) -> int:
    """Return the address of one cache that a session keeps; ``states`` copies those that a call overwrites."""
    return int(next(iter(session._kept.values())).__array_interface__["data"][0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", REPEATS)
def test_growing_lengths(kind: str, seed: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    chance = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    model, has_bias, row = random_attention(kind, chance)
    dovetail.save(model, tmp_path / "attention.onnx")
    oracle = onnxruntime.InferenceSession(str(tmp_path / "attention.onnx"), providers=["CPUExecutionProvider"])
    names = [item.name for item in oracle.get_outputs()]
    program = dovetail.compile(model, threads=1, reuse_caches=True)
    stateful = dovetail.compile(dovetail.make_stateful(model), threads=1, reuse_caches=True)
    sessions = [program.session(), stateful.session()]
    batch, total = int(chance.integers(1, 3)), 0
    pasts = [x for x in model.inputs if x.name.startswith("past")]
    length = TABLE if kind == "shared buffer" else 0
    caches = {x.name: np.zeros((batch, x.dims[1], length, x.dims[3]), np.float32) for x in pasts}
    if kind == "shared buffer":
        for session in sessions:
            session.states = caches
    lengths = [int(chance.integers(2, 7)), *[1] * 30]
    if kind not in GROUPED:
        lengths[12] = 3
    before, plans, addresses = caches, 0, set()
    for t in lengths:
        total += t
        feed: Arrays = {"x": chance.standard_normal((batch, t, 8), np.float32)}
        if has_bias:
            feed["bias"] = chance.standard_normal((batch, 1, t, total), np.float32)
        if kind in GROUPED:
            feed |= {"seqlens_k": np.full(batch, total - 1, np.int32), "total_sequence_length": np.array(total, np.int32)}
        before, plans = caches, program.statistics.plans
        wanted = dict(zip(names, oracle.run(names, {**feed, **caches}), strict=True))
        caches = {name: wanted[name.replace("past_key_values", "present")] for name in caches}
        first, *others = (session(feed)["y"] for session in sessions)
        np.testing.assert_allclose(first, wanted["y"], rtol=1e-4, atol=1e-5)
        for other in others:
            assert other.tobytes() == first.tobytes()
        if total > 24:
            addresses |= {address_of(session) for session in sessions}
    for name, array in sessions[0].states.items():
        np.testing.assert_allclose(array[:, :, :total], caches[name][:, :, :total], rtol=1e-5, atol=1e-5)
    assert program.statistics.plans == plans and program.statistics.copied_cache_bytes == 0
    assert len(addresses) == len(sessions)
    if kind != "shared buffer":
        assert copies_of_caches(model, feed, before) <= 4 * batch * row


@pytest.mark.parametrize("sizes", [(2, 3, 5), (0, 3, 5), (2, 0, 5), (1, 2, 0), (0, 0, 0)])
def test_repeated_heads_of_any_size(sizes: tuple[int, int, int]) -> None:
    """Products with heads of a cache that an exporter repeats have the interpreter's shapes and numbers, also without rows."""
    batch, rows, past = sizes
    with dovetail.Builder() as b:
        queries = b.input("queries", "f32", ("n", 4, "t", 8))
        cache = b.Concat(b.input("past", "f32", ("n", 2, "s", 8)), b.input("new", "f32", ("n", 2, "u", 8)), axis=2)
        shape = b.Shape(cache)
        twice = b.Concat(*[b.Unsqueeze(cache, [2])] * 2, axis=2)
        ends = [b.Gather(shape, np.array(axes), axis=0) for axes in ([0], [2, 3])]
        repeated = b.Reshape(twice, b.Concat(ends[0], np.array([4]), ends[1], axis=0))
        b.output("y", b.MatMul(queries, repeated, transpose_b=True))
    rng = np.random.default_rng(0)
    shapes = {"queries": (batch, 4, rows, 8), "past": (batch, 2, past, 8), "new": (batch, 2, 1, 8)}
    feed = {name: rng.standard_normal(each).astype(np.float32) for name, each in shapes.items()}
    found, want = dovetail.compile(b.model)(feed)["y"], dovetail.interpret(b.model, feed)["y"]
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
