"""simplify: answers as onnxruntime gives them before and after, the proof, and the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from click.testing import CliRunner
from onnx.helper import get_attribute_value

import dovetail
from backend_data import samples
from dovetail.cli.simplify import simplify as command
from dovetail.compare.prove.equality_proof import EqualityProof
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.laws import computed_weights
from dovetail.ops.elementwise.binary import Add
from dovetail.passes.simplification import passes
from dovetail.passes.simplification.rules import Target, apply_rules
from networks.generator import generate
from oracles import run_onnxruntime

SEVERAL = (
    "test_loop13_seq",
    "test_mod_float32_mixed_sign_fmod_0",
    "test_linear_attention_linear_expanded",
    "test_sequence_map_extract_shapes",
    "test_affine_grid_2d_expanded",
)
LOOPS = [sample for sample in samples("node") if sample.name in SEVERAL]
"""Models whose operators are written as several, which can be simplified again."""
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def saved(model: Model) -> bytes:
    stream = io.BytesIO()
    dovetail.save(model, stream, types=False)
    return stream.getvalue()


def kinds(data: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(data).graph.node)


GRAPHS: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = {
    "identities": (
        "g (float[n, 4] x) => (float[n, 4] y) { a = Identity(x) b = Cast<to = 1>(a) c = Dropout(b) y = Relu(c) }",
        {"x": (3, 4)}, {"Relu": 1},
    ),
    "reshapes around unary operators": (
        "g (float[n, 4] x) => (int64[n, 4] y) <int64[1] axis = {0}, int64[2] t = {-1, 4}> { a = Unsqueeze(x, axis) b = Exp(a) "
        "c = Cast<to = 7>(b) y = Reshape(c, t) }",
        {"x": (3, 4)}, {"Exp": 1, "Cast": 1},
    ),
    "reshapes around a unary operator that is read twice": (
        "g (float[n, 4] x) => (float[n, 4] y, float[1, n, 4] z) <int64[1] axis = {0}, int64[2] t = {-1, 4}> "
        "{ a = Unsqueeze(x, axis) b = Exp(a) z = Neg(b) y = Reshape(b, t) }",
        {"x": (3, 4)}, {"Unsqueeze": 1, "Exp": 1, "Neg": 1, "Reshape": 1},
    ),
    "inverse transposes": (
        "g (float[n, 4, 5] x) => (float[n, 4, 5] y) { a = Transpose<perm = [2, 0, 1]>(x) b = Transpose<perm = [1, 2, 0]>(a) "
        "y = Relu(b) }",
        {"x": (3, 4, 5)}, {"Relu": 1},
    ),
    "shape chain": (
        "g (float[n, s, 12] x) => (float[n, s, 3, 4] y) <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, "
        "int64[2] tail = {3, 4}> { d = Shape(x) n0 = Gather(d, zero) s0 = Gather(d, one) n1 = Unsqueeze(n0, axis) "
        "s1 = Unsqueeze(s0, axis) t = Concat<axis = 0>(n1, s1, tail) y = Reshape(x, t) }",
        {"x": (0, 5, 12)}, {"Reshape": 1},
    ),
    "expand before an operator that broadcasts": (
        "g (float[4] x, float[3, 4] z) => (float[3, 4] y) <int64[2] t = {3, 4}> { e = Expand(x, t) y = Add(e, z) }",
        {"x": (4,), "z": (3, 4)}, {"Add": 1},
    ),
    "concat of a split": (
        "g (float[4, 6] x) => (float[4, 6] y) <int64[2] t = {2, 4}> { a, b = Split<axis = 1>(x, t) "
        "c = Concat<axis = 1>(a, b) y = Relu(c) }",
        {"x": (4, 6)}, {"Relu": 1},
    ),
    "slice of a concat": (
        "g (float[4, 6] x, float[4, 2] z) => (float[4, 2] y) <int64[1] s = {6}, int64[1] e = {8}, int64[1] a = {1}> "
        "{ c = Concat<axis = 1>(x, z) d = Slice(c, s, e, a) y = Relu(d) }",
        {"x": (4, 6), "z": (4, 2)}, {"Relu": 1},
    ),
    "negative zero": (
        "g (float[4] x) => (float[4] y) <float[1] zero = {0.0}> { y = Add(x, zero) }",
        {"x": (4,)}, {"Add": 1},
    ),
    "random operators": (
        "g (float[4] x) => (float[4] y) { a = RandomUniformLike(x) b = RandomUniformLike(x) c = Sub(a, b) d = Mul(c, x) "
        "y = Sub(d, d) }",
        {"x": (4,)}, {"RandomUniformLike": 2, "Sub": 2, "Mul": 1},
    ),
    "a folded result that would grow the file": (
        "g (float[1000] x) => (float[1000] y) <int64[1] t = {1000}, float[1] c = {2.0}> { e = Expand(c, t) f = Neg(e) "
        "y = Concat<axis = 0>(x, f) }".replace("float[1000] y", "float[2000] y"),
        {"x": (1000,)}, {"Expand": 1, "Neg": 1, "Concat": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_onnxruntime_gives_the_same_bits_with_the_expected_nodes(name: str) -> None:
    text, shapes, expected = GRAPHS[name]
    source = onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString()
    model = dovetail.simplify(dovetail.load(source))
    data = saved(model)
    assert kinds(data) == Counter(expected)
    draw = np.random.default_rng(0)
    inputs = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if name == "negative zero":
        inputs["x"][:] = -0.0
    if "RandomUniformLike" not in expected:
        for before, after in zip(run_onnxruntime(source, inputs), run_onnxruntime(data, inputs), strict=True):
            assert before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()


def test_batch_normalization_folds_into_a_convolution() -> None:
    b = Builder("g")
    draw = np.random.default_rng(0)
    x = b.input("x", "f32", ("n", 3, 8, 8))
    y = b.Conv(x, draw.standard_normal((6, 3, 3, 3)).astype(np.float32))
    rows = [draw.uniform(0.5, 2, 6).astype(np.float32) for _ in range(4)]
    b.output("y", b.Relu(b.BatchNormalization(y, *rows)))
    model = dovetail.simplify(b.model, prove=True)
    report = model.report
    assert not report.refutations and len(report.sizes) == 2
    source, data = saved(b.model), saved(model)
    assert kinds(data) == Counter({"Conv": 1, "Relu": 1})
    inputs = {"x": draw.standard_normal((2, 3, 8, 8)).astype(np.float32)}
    np.testing.assert_allclose(run_onnxruntime(data, inputs)[0], run_onnxruntime(source, inputs)[0], rtol=1e-4, atol=1e-4)


def _subtract(b: Builder, node: Node) -> Value:
    return b.Subtract(node.input(0), node.input(1))


def _break(graph: Graph, target: Target) -> int:
    return apply_rules(graph, {Add: _subtract}, target)


def test_integers_that_a_cast_wraps_are_not_merged() -> None:
    """CLIP's exports compare token numbers after a Cast to i32 and back, which wraps those beyond 31 bits."""
    with Builder() as b:
        x = b.Reshape(b.input("x", "i64", (3, 1)), [3])
        b.output("kept", b.Greater(x, 0))
        b.output("wrapped", b.Greater(b.Cast(b.Cast(x, to="i32"), to="i64"), 0))
    inputs = {"x": np.array([[1], [2**32 - 1], [2**31]])}
    expected = run_onnxruntime(saved(b.model), inputs)
    found = run_onnxruntime(saved(dovetail.simplify(b.model)), inputs)
    assert [y.tolist() for y in found] == [y.tolist() for y in expected] == [[True] * 3, [True, False, False]]


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_broken_pass_is_reverted_and_named(is_exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passes.PASSES, "broken", passes.Pass("broken", _break, is_exact))
    b = Builder("g")
    x = b.input("x", "f32", ("n", 3))
    b.output("y", b.Identity(b.Add(x, b.Relu(x))))
    array = np.ones((2, 3), np.float32)
    wrong = dovetail.simplify(b.model)
    assert not np.array_equal(dovetail.run(wrong, array)["y"], 2 * array)
    model = dovetail.simplify(b.model, prove=True)
    report = model.report
    assert [each.name for each in report.refutations] == ["broken"] and "'y'" in report.refutations[0].reverted
    assert np.array_equal(dovetail.run(model, array)["y"], 2 * array)
    assert len(model.graph.nodes) == 2


@pytest.mark.parametrize("seed", range(0, 400, 4))
def test_exact_passes_keep_the_bits_of_random_networks(seed: int) -> None:
    network = generate(seed)
    model = network.model()
    exact = [name for name, each in passes.PASSES.items() if each.is_exact]
    new = dovetail.simplify(model, keep=exact)
    assert dovetail.simplify(new, keep=exact).report.changes == 0
    assert [(y.name, y.type) for y in new.outputs] == [(y.name, y.type) for y in model.outputs]
    assert [(x.name, x.type) for x in new.inputs] == [(x.name, x.type) for x in model.inputs]
    for shot in network.shots:
        inputs = {x.name: shot[x.name] for x in model.inputs}
        before, after = run_row_major(model, inputs), run_row_major(new, inputs)
        for name, first in before.items():
            second = after[name]
            same = np.asarray(first).tobytes() == np.asarray(second).tobytes()
            assert same or np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind in "fc"), name


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet", "light_inception_v1"])
def test_a_simplified_model_stays_as_it_is(name: str) -> None:
    model = dovetail.simplify(dovetail.load(LIGHT / f"{name}.onnx"))
    report = model.report
    data = saved(model)
    again = dovetail.simplify(dovetail.load(data))
    second = again.report
    assert report.changes > 0 and second.changes == 0 and saved(again) == data


def test_the_bytes_do_not_depend_on_the_seed_of_hashes() -> None:
    code = (
        "import dovetail, io, sys, hashlib\n"
        "stream = io.BytesIO()\n"
        "dovetail.save(dovetail.simplify(dovetail.load(sys.argv[1])), stream)\n"
        "print(hashlib.sha256(stream.getvalue()).hexdigest())"
    )
    digests: set[Any] = set()
    for seed in ("0", "1", "77"):
        arguments = [sys.executable, "-c", code, str(LIGHT / "light_shufflenet.onnx")]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed})
        digests.add(done.stdout)
    assert len(digests) == 1 and len(digests.pop().strip()) == hashlib.sha256().digest_size * 2


def test_a_name_of_no_pass_is_refused() -> None:
    with pytest.raises(RuleError, match=r"\[argument\.value\]|must be one of") as caught:
        dovetail.simplify(Builder("g").model, skip=["nothing"])
    assert caught.value.code == "argument.value"


@pytest.mark.parametrize(("name", "suggestion"), [("dead_cod", "dead_code"), ("duplicates", "common_subexpressions")])
def test_a_misspelt_or_earlier_name_of_a_pass_gets_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(RuleError, match=f"got '{name}': did you mean '{suggestion}'"):
        dovetail.simplify(Builder("g").model, keep=["dead_code", name])


def test_the_command_reports_each_changed_node(tmp_path: Path) -> None:
    text, _, expected = GRAPHS["identities"]
    onnx.save(onnx.parser.parse_model(f"{HEADER} {text}"), tmp_path / "m.onnx")
    result = CliRunner().invoke(command, [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.onnx"), "--prove", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["nodes_before"], report["nodes_after"]) == (4, 1)
    assert (report["equality"]["verdict"], report["runs"]) == ("bits", [])
    assert kinds((tmp_path / "s.onnx").read_bytes()) == Counter(expected)


@pytest.mark.parametrize("sizes", [("n", 3), (2, 3)], ids=["open", "fixed"])
@pytest.mark.parametrize("verdict", ["bits", "real", "open"])
def test_one_line_reports_the_proof_and_the_sizes_of_runs(
    verdict: Any, sizes: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is not proved equal for all inputs has runs before and after each pass; no line calls these a proof."""
    b = Builder("g")
    b.output("y", b.Negative(b.Negative(b.Relu(b.input("x", "f32", sizes)))))
    dovetail.save(b.model, tmp_path / "m.onnx")
    if verdict != "bits":
        found = EqualityProof(verdict, rewrites=["reassociation"] if verdict == "real" else [])
        monkeypatch.setattr("dovetail.compare.prove.proof.prove", lambda *models, **options: found)
    result = CliRunner().invoke(command, [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.onnx"), "--prove"])
    lines = [line for line in result.stderr.splitlines() if "prove" in line or "runs" in line]
    at = r"n=\d+; n=\d+" if sizes[0] == "n" else "the sizes of the model"
    expected = {
        "bits": "proved equal: the same bits for all inputs and sizes",
        "real": rf"proved equal over the real numbers for all inputs and sizes; .*rewrites: reassociation; runs .*, at {at}",
        "open": f"not proved equal for all inputs and sizes; only runs on seeded inputs agree, at {at}",
    }
    assert len(lines) == 1 and re.fullmatch(expected[verdict], lines[0]), lines


def test_a_factor_and_the_merged_products_need_no_more_weights() -> None:
    b = Builder("g")
    draw = np.random.default_rng(0)
    x = b.input("x", "f32", ("n", 8, 64))
    weights = [draw.standard_normal((64, 64)).astype(np.float32) for _ in range(3)]
    q, k, v = (b.Add(b.MatMul(x, w), draw.standard_normal(64).astype(np.float32)) for w in weights)
    b.output("y", b.MatMul(b.MatMul(b.Multiply(q, np.float32(0.5)), b.Transpose(k, [0, 2, 1])), v))
    model = dovetail.simplify(b.model, prove=True)
    report = model.report
    assert not report.refutations and kinds(saved(model))["MatMul"] == 3
    assert len(saved(model)) <= 1.01 * len(saved(b.model))


@pytest.mark.parametrize("sample", [*samples("node")[7::97], *LOOPS], ids=lambda sample: sample.name)
def test_simplifying_a_simplified_file_gives_the_same_bytes(sample: Any, tmp_path: Path) -> None:
    written = []
    source: Any = sample.read_model()
    for name in ("first.onnx", "second.onnx"):
        model = dovetail.simplify(dovetail.load(source), target="onnx")
        source = tmp_path / name
        dovetail.save(model, source, types=False)
        written.append(source.read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("sample", samples("node")[3::97], ids=lambda sample: sample.name)
def test_a_simplified_file_has_no_attribute_with_the_default_of_onnx(sample: Any) -> None:
    source = sample.read_model()
    model = dovetail.simplify(dovetail.load(source), target="onnx")
    versions = {entry.domain: entry.version for entry in source.opset_import}
    written = onnx.load_from_string(saved(model))
    onnx.checker.check_model(written)
    for node in written.graph.node:
        if onnx.defs.has(node.op_type, domain=node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
            for attribute in node.attribute:
                default = schema.attributes[attribute.name].default_value
                assert not default.type or get_attribute_value(default) != get_attribute_value(attribute), attribute.name


@pytest.mark.parametrize(
    "numbers", [[0], [-1], [127, 128], [2**63 - 1, -(2**63)], [2**56 - 1], [2**56, 2**56], [], *([7] * n for n in (1024, 1025))]
)
def test_integers_take_the_shorter_field(numbers: list[int]) -> None:
    """``raw_data`` has 8 bytes a number, ``int64_data`` a varint of 1 to 10."""
    array = np.array(numbers, np.int64)
    with Builder("g") as b:
        b.output("y", b.Concat(b.input("x", "i64", ("n",)), b.constant(array, name="c"), axis=0))
    (tensor,) = onnx.load_from_string(saved(b.model)).graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(tensor), array) and list(tensor.dims) == [len(numbers)]
    raw, packed = (onnx.TensorProto(**kept).ByteSize() for kept in ({"raw_data": array.tobytes()}, {"int64_data": numbers}))
    assert len(tensor.int64_data) == (len(numbers) if packed < raw and len(numbers) <= 1024 else 0)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
def test_weights_beyond_the_limit_of_memory_are_computed_by_blocks_in_a_file(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = {
        "Conv": "g (float[1, 4, 5, 5] x) => (float[1, 6, 3, 3] y) <float[6, 4, 3, 3] w, float[6, 1, 1] f> "
        "{ a = Conv(x, w) y = Mul(a, f) }",
        "ConvTranspose": "g (float[1, 4, 5, 5] x) => (float[1, 6, 7, 7] y) <float[4, 3, 3, 3] w, float[6, 1, 1] f> "
        "{ a = ConvTranspose<group = 2>(x, w) y = Mul(a, f) }",
        "Gemm": "g (float[3, 4] x) => (float[3, 6] y) <float[6, 4] w, float[6] f> { a = Gemm<transB = 1>(x, w) y = Mul(a, f) }",
        "MatMul": "g (float[3, 4] x) => (float[3, 6] y, float[3, 6] z, float[3, 6] u) <float[4, 6] w, float[6] f, float[4, 6] v, "
        "float[4, 6] s> { a = MatMul(x, w) b = Mul(a, f) c = MatMul(x, v) d = MatMul(x, s) y = Relu(b) z = Exp(c) u = Neg(d) }",
    }[kind]  # fmt: skip
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    draw = np.random.default_rng(0)
    for value in proto.graph.value_info:
        data = draw.uniform(0.5, 2, [size.dim_value for size in value.type.tensor_type.shape.dim]).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, value.name))
    del proto.graph.value_info[:]
    source = proto.SerializeToString()
    written = saved(dovetail.simplify(dovetail.load(source)))
    assert not {"Mul"} & set(kinds(written))
    monkeypatch.setattr(computed_weights, "IN_MEMORY", 0)
    monkeypatch.setattr(computed_weights, "BLOCK", 7)
    assert saved(dovetail.simplify(dovetail.load(source))) == written
    inputs = {
        "x": draw.standard_normal(tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)).astype(np.float32)
    }
    for first, second in zip(run_onnxruntime(source, inputs), run_onnxruntime(written, inputs), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
