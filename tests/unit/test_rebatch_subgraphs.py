"""rebatch within the subgraphs of Loop, Scan and If: each file runs in onnxruntime and in OpenVINO, sample by sample."""

from __future__ import annotations

from pathlib import Path

import pytest

import dovetail
from dovetail import UnsupportedError, rebatch
from sample_comparison import judge, parsed

LOOPS = {
    "Reshape": """
    g (float[B, 4] x) => (float[B, 4] y)
    <int64 trips = {3}, bool going = {1}, float[B, 4] zeros = {ZEROS}>
    { y = Loop(trips, going, zeros) <body = b (int64 i, bool c, float[B, 4] h) => (bool d, float[B, 4] k)
      <int64[3] split = {B, 2, 2}, int64[2] flat = {B, 4}>
      { d = Identity(c) r = Reshape(x, split) t = Transpose<perm = [0, 2, 1]>(r) f = Reshape(t, flat)
        s = Add(h, f) k = Tanh(s) }> }""",
    "scan output": """
    g (float[B, 4] x) => (float[3, B, 4] z)
    <int64 trips = {3}, bool going = {1}, float[B, 2] zeros = {HALF}>
    { y, z = Loop(trips, going, zeros) <body = b (int64 i, bool c, float[B, 2] h) => (bool d, float[B, 2] k, float[B, 4] o)
      <int64[3] split = {B, 2, 2}, int64[1] one = {1}>
      { d = Identity(c) r = Reshape(x, split) m = ReduceSum<keepdims = 0>(r, one) k = Add(h, m)
        o = Concat<axis = 1>(k, m) }> }""",
    "Scan": """
    g (float[5, B, 4] x) => (float[5, B, 4] z)
    <float[B, 4] zeros = {ZEROS}>
    { y, z = Scan(zeros, x) <num_scan_inputs = 1, body = b (float[B, 4] h, float[B, 4] p) => (float[B, 4] k, float[B, 4] o)
      <int64[3] split = {B, 2, 2}, int64[2] flat = {B, 4}>
      { r = Reshape(p, split) t = Transpose<perm = [0, 2, 1]>(r) f = Reshape(t, flat)
        s = Add(h, f) k = Tanh(s) o = Mul(k, p) }> }""",
    "If": """
    g (float[B, 4] x, bool way) => (float[B, 2, 2] y)
    { y = If(way) <
      then_branch = t () => (float[B, 2, 2] a) <int64[3] split = {B, 2, 2}> { a = Reshape(x, split) },
      else_branch = e () => (float[B, 2, 2] o) <float[B, 2, 2] o = {ZEROS}> {}> }""",
    "nested": """
    g (float[B, 4] x, bool way) => (float[B, 4] y)
    <int64 trips = {2}, bool going = {1}>
    { y = Loop(trips, going, x) <body = b (int64 i, bool c, float[B, 4] h) => (bool d, float[B, 4] k)
      { d = Identity(c)
        k = If(way) <then_branch = t () => (float[B, 4] a)
          <int64[3] split = {B, 2, 2}, int64[2] flat = {B, 4}>
          { r = Reshape(h, split) u = Transpose<perm = [0, 2, 1]>(r) a = Reshape(u, flat) },
          else_branch = e () => (float[B, 4] o) { o = Add(h, x) }> }> }""",
    "size of an outer value": """
    g (float[B, 6, 4] x) => (float[B, 6, 4] y)
    <int64 trips = {2}, bool going = {1}, int64[3] rows = {K, 3, 4}, int64[3] back = {B, 6, 4}>
    { q = Reshape(x, rows)
      z = Loop(trips, going, q) <body = b (int64 i, bool c, float[K, 3, 4] h) => (bool d, float[K, 3, 4] k)
      <int64[4] split = {B, 2, 3, 4}, int64[3] merge = {K, 3, 4}>
      { d = Identity(c) r = Reshape(h, split) e = Softmax<axis = 1>(r) k = Reshape(e, merge) }>
      y = Reshape(z, back) }""",
}
AXES = {"Scan": 1, "scan output": 1}


def written(name: str, batch: int) -> str:
    ones = ", ".join(["0.5"] * 4 * batch)
    text = LOOPS[name].replace("ZEROS", ones).replace("HALF", ", ".join(["0.5"] * 2 * batch))
    return text.replace("K", str(2 * batch)).replace("B,", f"{batch},").replace("[B", f"[{batch}").replace("{B", f"{{{batch}")


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_constants_of_subgraphs_take_any_batch(name: str, batch: int, tmp_path: Path) -> None:
    original = parsed(written(name, batch))
    axis = 1 if name == "Scan" else 0
    new = rebatch(original, {f"x.{axis}": "N"})
    report = new.report
    assert all(row.agrees for row in report.comparisons) and report.changes
    for suffix in ("onnx", "xml"):
        out = {y.name: AXES.get(name, 0) for y in original.outputs}
        judge(original, new, tmp_path / f"new.{suffix}", {"x": axis}, out)


@pytest.mark.parametrize("name", LOOPS)
def test_subgraphs_of_openvino_ir_take_any_batch(name: str, tmp_path: Path) -> None:
    """Scan and Loop are TensorIterator and Loop in the file, whose constants lie inside their bodies."""
    dovetail.save(parsed(written(name, 2)), tmp_path / "source.xml")
    original = dovetail.load(tmp_path / "source.xml")
    axis = 1 if name == "Scan" else 0
    new = rebatch(original, {f"x.{axis}": "N"})
    report = new.report
    assert report.changes
    judge(original, new, tmp_path / "new.xml", {"x": axis}, {y.name: AXES.get(name, 0) for y in original.outputs})


def test_each_node_of_a_subgraph_that_combines_samples_is_named() -> None:
    original = parsed("""
    g (float[2, 4] x) => (float[2, 4] y)
    <int64 trips = {3}, bool going = {1}>
    { y = Loop(trips, going, x) <body = b (int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] k)
      <int64[1] zero = {0}, float[2, 4] rows = {1, 2, 3, 4, 5, 6, 7, 8}>
      { d = Identity(c) m = ReduceMax<keepdims = 0>(h, zero) s = Softmax<axis = 0>(h) u = Add(x, rows)
        v = Add(s, u) k = Add(v, m) }> }""")
    with pytest.raises(UnsupportedError) as caught:
        rebatch(original, {"0": "N"})
    assert {item.node for item in caught.value.diagnostics} >= {"y/m", "y/u"}
