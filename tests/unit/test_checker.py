"""dovetail_check: certificates of equal models are accepted, and those of other models are refused."""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_check
from dovetail import Builder
from dovetail.cli import main

Write = Callable[[Any], None]
WEIGHTS = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)


def attention(b: Any) -> None:
    x = b.input("x", "f32", ("batch", "length", 32))
    q, k, v = (
        b.Transpose(b.Reshape(b.MatMul(x, WEIGHTS[start : start + 32]), [0, 0, 4, 8]), [0, 2, 1, 3]) for start in (0, 16, 32)
    )
    scores = b.Softmax(b.MatMul(q, k, transpose_b=True) / np.float32(2.828), axis=-1)
    b.output("y", b.Reshape(b.Transpose(b.MatMul(scores, v), [0, 2, 1, 3]), [0, 0, 32]))


def normalized(b: Any) -> None:
    x = b.input("x", "f32", ("n", 32))
    y = b.LayerNormalization(x, WEIGHTS[0], WEIGHTS[1], axis=1)
    b.output("y", b.Gelu(b.Gemm(y, WEIGHTS[:32], WEIGHTS[2])))


def convolved(b: Any) -> None:
    x = b.input("x", "f32", ("n", 4, 8, 8))
    y = b.Conv(x, WEIGHTS.reshape(8, 4, 8, 8)[:, :, :3, :3], WEIGHTS[0, :8], pads=(1, 1, 1, 1))
    y = b.BatchNormalization(y, *(WEIGHTS[row, :8] for row in (3, 4, 5)), np.abs(WEIGHTS[6, :8]) + np.float32(1))
    left, right = b.Split(b.Relu(y), [3, 5], axis=1, outputs=2)
    b.output("y", b.Concat(right, b.Pad(left * 2, [0, 0, 0, 0, 0, 1, 0, 0], None), axis=1))


def moved(b: Any) -> None:
    x = b.input("x", "i64", ("n", 6))
    y = b.Unsqueeze(b.Transpose(b.Reshape(x, [0, 2, 3]), [2, 0, 1]), [1])
    b.output("y", b.Slice(b.Squeeze(y, [1]), [1], [3], [0]) + b.Expand(b.constant([[[5]]], "i64"), [2, 1, 2]))


def folded(b: Any) -> None:
    """Constants of few bits, and constants whose bits numpy computes."""
    x = b.input("x", "f32", ("n", 4))
    four = b.constant([[1, 2, 3, 15], [7, 8, 9, 10], [0, 1, 2, 3], [4, 5, 6, 7]], "u4")
    scale = b.Cast(b.Transpose(four, [1, 0]), to="f32") * b.Cast(b.constant([0.5, 2, 3, 4], "bf16"), to="f32")
    norms = b.ReduceL2(b.constant(WEIGHTS[8:12, :4]), [0])
    b.output("y", b.MatMul(x, b.MatMul(scale, WEIGHTS[:4, :4])) + b.Exp(b.constant(WEIGHTS[0, :4])) + norms)


def selected(b: Any) -> None:
    """Indices of extrema, which an IR file computes in parts, and the last row of an axis that may have none."""
    x = b.input("x", "f32", ("n", 4, "m"))
    last = b.AveragePool(x, kernel_shape=(8,), strides=(8,))[:, :, -1:]
    b.output("y", b.ArgMax(x, axis=1) + b.ArgMin(b.Cast(x, to="i32"), axis=1, select_last_index=True))
    b.output("z", b.Where(b.BitwiseNot(b.constant([[[False]]], "boolean")), last, last * 2) + WEIGHTS[:4, :1])


def attended(b: Any) -> None:
    q, k, v = (b.input(name, "f32", ("n", 2, length, 8)) for name, length in zip("qkv", ("l", "m", "m"), strict=True))
    b.output("y", b.Attention(q, k, v, scale=0.25))


def masked(b: Any) -> None:
    """Write an attention of batches that are broadcast."""
    q, k, v = (b.input(name, "f32", (batch, 2, length, 8)) for name, batch, length in ("qal", "kbm", "vbm"))
    mask = b.input("mask", "boolean", ("c", 1, "l", "m"))
    b.output("y", b.ScaledDotProductAttention(q, k, v, mask) * 2)


def recurrent(b: Any) -> None:
    """Write layers whose gates, biases and layout are others in an IR file."""
    x = b.input("x", "f32", ("s", "n", 5))
    for name, linear in (("before", True), ("behind", False)):
        weights = (np.resize(WEIGHTS, (2, 3 * 24, size)) for size in (5, 24))
        bias, options = np.resize(WEIGHTS, (2, 6 * 24)), {"hidden_size": 24, "linear_before_reset": linear}
        b.output(name, b.GRU(x, *weights, bias, direction="bidirectional", outputs=1, **options))
    weights = (WEIGHTS[:, :size].reshape(2, 32, size) for size in (5, 8))
    b.output("y", b.LSTM(x, *weights, WEIGHTS[:4].reshape(2, 64), hidden_size=8, direction="bidirectional", outputs=1))


def halved(b: Any) -> None:
    """Products of bf16, and an activation that is computed in f32."""
    x = b.input("x", "bf16", ("n", 32))
    weights = b.constant(WEIGHTS, "bf16")
    y = b.MatMul(b.MatMul(x, weights, transpose_b=True), weights) * b.constant(-1.0, "bf16")
    b.output("y", b.Cast(b.Swish(y), to="f32") * WEIGHTS[0])


def quantized(b: Any) -> None:
    """Operators on integers with scales and zero points, which an IR file computes in parts."""
    x = b.input("x", "f32", ("n", 4, 8, 8))
    codes = np.arange(4 * 4 * 9).reshape(4, 4, 3, 3).astype(np.uint8)
    scale, other, zero, point = np.float32(0.25), np.float32(0.5), np.uint8(3), np.uint8(128)
    image = b.QuantizeLinear(x, scale, point)
    y = b.QLinearConv(image, scale, point, codes, other, zero, scale, zero, np.int32([1, 2, 3, 4]), pads=(1, 1, 1, 1))
    y = b.QLinearConcat(scale, point, image, scale, point, y, scale, zero, axis=1)
    y = b.QLinearAdd(y, scale, zero, b.QLinearMul(y, scale, zero, y, other, point, other, zero), scale, zero, scale, point)
    y = b.Reshape(b.QLinearGlobalAveragePool(y, scale, point, other, zero), [0, 8])
    columns = np.arange(40).reshape(5, 8).astype(np.uint8)
    b.output("y", b.QGemm(y, scale, zero, columns, other, point, np.int32(np.arange(5)), scale, zero, trans_b=True))
    rows, factor, shift = b.DynamicQuantizeLinear(b.Reshape(x, [-1, 8]))
    total = b.MatMulInteger(rows, columns.T.astype(np.int8), shift, np.int8(2))
    b.output("z", b.Cast(total, to="f32") * factor)


def interpolated(b: Any) -> None:
    """Constants at positions between their elements, as in embeddings of positions, and a bias in half precision."""
    x = b.input("x", "f32", ("n", 8, 12, 10))
    grid, sizes = WEIGHTS[:8].reshape(1, 8, 8, 4), np.array([1, 8, 12, 10])
    y = (
        x
        + b.Resize(grid, sizes, mode="cubic")
        + b.Resize(grid, sizes, mode="linear", coordinate_transformation_mode="align_corners")
    )
    half = b.Cast(y, to="f16")
    y = b.Conv(half, b.constant(WEIGHTS[:1, :8].reshape(1, 8, 1, 1), "f16"), b.constant([0.5], "f16"))
    b.output("y", b.Cast(b.TopK(b.Cast(y, to="f32"), [1], axis=1, sort="none", stable=False)[0], to="f32"))


def bounded(b: Any) -> None:
    x = b.input("x", "f32", ("n", 4, "height", 6))
    part = b.Slice(x, b.Negative(b.Shape(x, start=2, end=3)), [2**31 - 1], [2])
    b.output("y", b.Transpose(part - WEIGHTS[0, :4].reshape(1, 4, 1, 1), [0, 2, 3, 1]))
    b.output("last", b.Gather(x, -1, axis=1))
    b.output("z", b.GlobalAveragePool(x))


def selected_by_place(b: Any) -> None:
    """Parts of matrices, and numbers of attributes, which an IR file writes as constants."""
    x = b.input("x", "f32", ("n", 4, 6))
    b.output("y", b.Trilu(x, np.int64(1)) + b.Trilu(x, np.int64(-1), upper=False) * 2)
    b.output(
        "z", b.Scaler(x, offset=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), scale=(0.5,)) + b.Scaler(b.Cast(x, to="i64"), scale=(0.1,) * 6)
    )


MODELS: list[Write] = [
    attention, normalized, convolved, moved, folded, selected, attended, masked, recurrent, halved, quantized, interpolated,
    bounded, selected_by_place,
]  # fmt: skip


def written(write: Write, folder: Path) -> dovetail.Model:
    with Builder() as b:
        write(b)
    dovetail.save(b.model, folder / "first.onnx")
    return dovetail.load(folder / "first.onnx")


def to_the_other_format(model: dovetail.Model, folder: Path) -> Path:
    dovetail.save(model, folder / "second.xml")
    return folder / "second.xml"


def there_and_back(model: dovetail.Model, folder: Path) -> Path:
    dovetail.save(dovetail.load(to_the_other_format(model, folder)), folder / "third.onnx")
    return folder / "third.onnx"


def simplified(model: dovetail.Model, folder: Path) -> Path:
    dovetail.save(dovetail.simplify(model), folder / "second.onnx")
    return folder / "second.onnx"


@pytest.fixture(params=[to_the_other_format, there_and_back, simplified], ids=lambda change: change.__name__)
def change(request: pytest.FixtureRequest) -> Any:
    return request.param


def proved(write: Write, change: Any, folder: Path) -> dict[str, Any]:
    """Write both models as text to ``folder``, and return a certificate that they are equal."""
    first = written(write, folder)
    second = dovetail.load(change(first, folder))
    dovetail.save(first, folder / "first.dt")
    dovetail.save(second, folder / "second.dt")
    return dovetail.prove(first, second, real=True).certificate()


def check(folder: Path, certificate: dict[str, Any]) -> dovetail_check.Verdict:
    return dovetail_check.check(folder / "first.dt", folder / "second.dt", certificate)


@pytest.mark.parametrize("write", MODELS, ids=lambda write: write.__name__)
def test_a_certificate_is_accepted(write: Write, change: Any, tmp_path: Path) -> None:
    certificate = proved(write, change, tmp_path)
    verdict = check(tmp_path, certificate)
    assert verdict.kind == certificate["verdict"]
    assert verdict.steps > 0
    assert not verdict.types


def test_sizes_of_outputs_that_are_equal_over_the_reals_are_equal(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with Builder() as b:
            x, y = (b.input(each, "f32", (1, 6, 4)) for each in "xy")
            boxes = (x + y) * 3 if name == "first" else x * 3 + y * 3
            kept = b.NonMaxSuppression(boxes, b.Transpose(boxes, [0, 2, 1]), np.int64(5))
            b.output("z", b.Gather(b.Reshape(x, [6, 4]), b.Squeeze(kept[:3, 2:], [1]), axis=0))
        dovetail.save(b.model, tmp_path / f"{name}.dt")
    certificate = dovetail.prove(tmp_path / "first.dt", tmp_path / "second.dt", real=True).certificate()
    assert check(tmp_path, certificate).types.keys() == {"NonMaxSuppression"}


@pytest.mark.parametrize("attributes", ['mode="cubic"', 'mode="cubic", antialias=true'])
def test_constants_of_an_operator_are_evaluated_or_compared_as_a_whole(attributes: str, tmp_path: Path) -> None:
    elements = ", ".join(map(str, WEIGHTS[:2].reshape(-1).tolist()))
    for name, y in (("first", "Add(x, r)"), ("second", "Add(r, x)")):
        lines = [
            "input x: f32[n, 1, 16, 16]",
            f"k: f32[1, 1, 8, 8] = f32[1, 1, 8, 8]{{{elements}}}",
            "s: i64[4] = i64[4]{1, 1, 16, 16}",
            f"r: f32[1, 1, 16, 16] = Resize(k, s; {attributes})",
            f"y: f32[n, 1, 16, 16] = {y}",
            "output y",
        ]
        (tmp_path / "text.dt").write_text('dovetail 1\ngraph "g"\n' + "".join(f"  {line}\n" for line in lines))
        dovetail.save(dovetail.load(tmp_path / "text.dt"), tmp_path / f"{name}.dt")
    certificate = dovetail.prove(tmp_path / "first.dt", tmp_path / "second.dt").certificate()
    assert check(tmp_path, certificate).steps > 0


BRANCHES = """dovetail 1
graph "g"
  input x: f32[n, 2]
  input c: boolean[]
  s: i64[1] = i64[1]{2}
  low: f32[] = f32[]{0.0}
  high: f32[] = f32[]{1.0}
  r: f32[2] = RandomUniform(s, low, high)
  q: f32[2] = RandomUniform(s, low, high)
  t: f32[2] = Subtract(r, q)
  y: f32[n, 2] = If(c, x; then_branch=graph, else_branch=graph)
    graph then_branch graph
      input a: f32[n, 2]
      b: f32[n, 2] = Relu(a)
      output b
    graph else_branch graph
      input a: f32[n, 2]
      b: f32[n, 2] = Tanh(a)
      output b
  o: f32[n, 2] = Add(t, y)
  output o
"""


def test_draws_and_branches_have_steps(tmp_path: Path) -> None:
    twice = "z: f32[n, 2] = Relu(a)\n      b: f32[n, 2] = Relu(z)"
    second = BRANCHES.replace("Add(t, y)", "Add(y, t)").replace("b: f32[n, 2] = Relu(a)", twice)
    for name, text in (("first", BRANCHES), ("second", second)):
        (tmp_path / "text.dt").write_text(text)
        dovetail.save(dovetail.load(tmp_path / "text.dt"), tmp_path / f"{name}.dt")
    certificate = dovetail.prove(tmp_path / "first.dt", tmp_path / "second.dt").certificate()
    assert check(tmp_path, certificate).types == {"RandomUniform": 2, "If": 1}


LOOPS = """dovetail 1
graph "g"
  input x: f32[6, n, 2]
  input s: f32[n, 2]
  t: f32[n, 2], y: f32[6, n, 2] = Loop(-, -, s, x, s; body=graph, carried=1, scan_inputs=((0, 1, false)), SCANS, outputs=2)
    graph body b
      input trip: i64[]
      input state: f32[n, 2]
      input part: f32[1, n, 2]
      input first: f32[n, 2]
      a: f32[1, n, 2] = Add(state, part)
      k: i64[1] = i64[1]{0}
      q: f32[n, 2] = Squeeze(a, k)
      e: f32[n, 2] = Multiply(q, first)
      z: f32[n, 2] = Tanh(e)
      goes_on: boolean[] = boolean[]{1}
      output goes_on
      output z
      output a
  output t
  output y
""".replace("SCANS", "scan_outputs=((0, false))")


def with_digest(certificate: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a certificate with the digest of the second text."""
    text = (folder / "second.dt").read_text()
    certificate["derivation"]["texts"][1] = hashlib.sha256(text.partition("\n")[2].encode()).hexdigest()
    return certificate


def test_loops_have_steps(tmp_path: Path) -> None:
    """Each trip of both loops is equal for any state; a loop of another body, or that scans otherwise, is not equal."""
    second = LOOPS.replace("Add(state, part)", "Add(part, state)").replace("Multiply(q, first)", "Multiply(first, q)")
    for name, text in (("first", LOOPS), ("second", second)):
        (tmp_path / "text.dt").write_text(text)
        dovetail.save(dovetail.load(tmp_path / "text.dt"), tmp_path / f"{name}.dt")
    certificate = dovetail.prove(tmp_path / "first.dt", tmp_path / "second.dt").certificate()
    assert check(tmp_path, certificate).types == {"Loop": 2}
    text = (tmp_path / "second.dt").read_text()
    for old, new in (
        ("Tanh(e)", "Relu(e)"),
        ("(0, 1, false)", "(0, 1, true)"),
        ("(0, false)", "(1, false)"),
        ("Loop(-, -, s", "Loop(-, -, x"),
        ("output z", "output q"),
        ("first, q)", "q, q)"),
    ):
        assert old in text
        (tmp_path / "second.dt").write_text(text.replace(old, new))
        with pytest.raises(dovetail_check.Refused):
            check(tmp_path, with_digest(certificate, tmp_path))


def mutant(certificate: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return a certificate with another term in one place of a step or of a term."""
    changed = copy.deepcopy(certificate)
    derivation = changed["derivation"]
    rows = [part for section in derivation["steps"] for step in section for part in step]
    rows += [row[2:] for row in derivation["terms"] if row[0] == "operator"]
    lists = [numbers for row in rows for numbers in row if isinstance(numbers, list) and numbers]
    numbers = random.choice(lists)
    place = random.randrange(len(numbers))
    numbers[place] = random.choice([number for number in range(len(derivation["terms"])) if number != numbers[place]])
    return changed


@pytest.mark.parametrize("write", MODELS, ids=lambda write: write.__name__)
def test_a_mutant_proves_nothing_of_another_model(write: Write, change: Any, tmp_path: Path) -> None:
    """One constant of the second model differs: no mutant of the certificate of the right model may prove it."""
    certificate = proved(write, change, tmp_path)
    second = dovetail.load(tmp_path / "second.dt")
    name, data = next(
        (value.name, value.constant)
        for value in reversed(list(second.graph.values()))
        if value.constant is not None and (value.dtype == "f32" or bool(np.all(value.constant == 5)))
    )
    dovetail.save(second.with_constants({name: data + data.dtype.type(1)}), tmp_path / "second.dt")
    with_digest(certificate, tmp_path)
    for seed in range(40):
        with pytest.raises(dovetail_check.Refused):
            check(tmp_path, mutant(certificate, Random(seed)))


def test_sizes_that_depend_on_elements_are_not_taken_as_equal(tmp_path: Path) -> None:
    """The number of elements other than 0 of x is another than that of y, whatever a certificate calls them."""
    for file, sources in (("first", "xy"), ("second", "yx")):
        with Builder() as b:
            for source in sources:
                found = b.NonZero(b.input(source, "f32", ("n",)))
                b.output(f"{source}s", b.Identity(found) if file == "first" else found)
        dovetail.save(b.model, tmp_path / f"{file}.dt")
    certificate = dovetail.prove(tmp_path / "first.dt", tmp_path / "second.dt").certificate()
    assert check(tmp_path, certificate).types == {"NonZero": 2}
    terms = certificate["derivation"]["terms"]
    first, second = (row for row in terms if "?" in row[1])
    for forged in (first[1], first[1].replace(re.findall(r"\?[^],]+", first[1])[0], "n")):
        second[1] = forged
        with pytest.raises(dovetail_check.Refused):
            check(tmp_path, certificate)


def test_a_text_of_another_model_is_refused(change: Any, tmp_path: Path) -> None:
    certificate = proved(moved, change, tmp_path)
    with (tmp_path / "first.dt").open("a") as file:
        file.write("# \n")
    with pytest.raises(dovetail_check.Refused, match="a text must be the one of the certificate"):
        check(tmp_path, certificate)


@pytest.mark.parametrize(
    "content",
    ["{}", '{"derivation": 1}', '{"derivation": {"texts": []}, "verdict": "bits"}', '{"derivation": null, "verdict": "bits"}'],
)
def test_a_certificate_without_its_fields_is_refused(content: str, tmp_path: Path) -> None:
    proved(moved, simplified, tmp_path)
    with pytest.raises(dovetail_check.Refused):
        check(tmp_path, json.loads(content))


def test_threads_check_at_the_same_time(tmp_path: Path) -> None:
    cases = []
    for write in (normalized, convolved):
        (folder := tmp_path / write.__name__).mkdir()
        cases.append((folder, proved(write, to_the_other_format, folder)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            verdicts = list(pool.map(lambda case: check(*case).kind, cases * 20))
    finally:
        sys.setswitchinterval(interval)
    assert verdicts == [case[1]["verdict"] for case in cases * 20]


@pytest.mark.parametrize(
    "dim", ["9**64" + ")**64" * 6, "*".join(f"(n + {number})" for number in range(1, 300)), "n" * 50_000 + "//0", "(" * 100_000]
)
def test_an_expression_without_end_is_refused_soon(dim: str, tmp_path: Path) -> None:
    certificate = proved(moved, simplified, tmp_path)
    dim = "(" * dim.count(")**") + dim
    certificate["derivation"]["terms"][0][2] = f"i64[{dim}, 6]"
    with pytest.raises(dovetail_check.Refused):
        check(tmp_path, certificate)


@pytest.mark.parametrize("place", ["../outside.safetensors", "link.safetensors", "pipe", "/dev/zero"])
def test_weights_are_read_in_the_folder_alone(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    certificate = proved(attention, simplified, folder)
    (folder / "first.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    os.mkfifo(folder / "pipe")
    text = (folder / "first.dt").read_text()
    (folder / "first.dt").write_text(text.replace("first.safetensors", place, 1))
    with pytest.raises(dovetail_check.Refused, match="in the folder of its text"):
        check(folder, certificate)
    with pytest.raises(dovetail_check.Refused, match="must be a file"):
        dovetail_check.check(folder / "first.dt", folder / "second.dt", folder / "pipe")


def test_the_checker_needs_numpy_alone() -> None:
    folder = Path(dovetail_check.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.split(".")[0]
                assert root in ("numpy", "dovetail_check") or root in sys.stdlib_module_names, f"{path.name}: {name}"


def test_the_command_has_exit_codes(tmp_path: Path) -> None:
    certificate = proved(attention, simplified, tmp_path)
    (tmp_path / "proof.json").write_text(json.dumps(certificate))
    files = [str(tmp_path / name) for name in ("first.dt", "second.dt", "proof.json")]
    command = [sys.executable, "-m", "dovetail_check"]
    found = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("accepted: ")
    found = subprocess.run([*command, files[1], files[0], files[2]], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    found = subprocess.run([*command, "absent.dt", *files[1:]], capture_output=True, text=True, check=False)
    assert found.returncode == 3


@pytest.mark.parametrize(
    ("redirection", "code"), [(">&-", 0), ("<&-", 0), ("| true; exit ${PIPESTATUS[0]}", 0), (">/dev/full", 3)]
)
def test_closed_streams_keep_the_exit_code(redirection: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text(json.dumps(proved(moved, simplified, tmp_path)))
    line = f"{sys.executable} -m dovetail_check first.dt second.dt proof.json {redirection}"
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr


def exit_code(arguments: list[str]) -> Any:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


@pytest.mark.parametrize("command", ["convert first.onnx second.xml", "simplify first.onnx -o second.onnx"])
def test_a_command_writes_a_certificate_of_its_result(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(normalized, tmp_path)
    assert exit_code([*command.split(), "--prove", "--certificate", "proof.json"]) == 0
    for file in ("first.onnx", command.split()[-1]):
        assert exit_code(["convert", file, str(Path(file).with_suffix(".dt"))]) == 0
    assert dovetail_check.check("first.dt", "second.dt", "proof.json").kind in ("bits", "real")
    assert exit_code([*command.split(), "--certificate", "proof.json"]) == 2


FORGED = json.loads((Path(__file__).parents[1] / "forged_certificates.json").read_text())


@pytest.mark.parametrize("case", FORGED, ids=lambda case: case["name"])
def test_a_forged_certificate_is_refused(case: dict[str, Any], tmp_path: Path) -> None:
    """The models of a case are not equal, but for those of ``is_true``, whose certificates are written in the same way."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.dt").write_text(case[name])
    if case.get("is_true"):
        assert check(tmp_path, case["certificate"]).steps > 0
        return
    with pytest.raises(dovetail_check.Refused):
        check(tmp_path, case["certificate"])


def test_mutants_are_refused_or_equal() -> None:
    """bench/certificate_mutants.py does the same over a corpus."""
    script = Path(__file__).resolve().parents[2] / "bench" / "certificate_mutants.py"
    found = subprocess.run([sys.executable, script, "--count", "80"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("80 mutants of ")
