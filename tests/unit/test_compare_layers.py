"""dovetail.compare_layers: every value of a model in several engines, matched, measured and bounded."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail import Builder, DovetailError, cli, compare_layers
from dovetail.compare.arrays import deviation_of
from dovetail.ir.host import native_core
from dovetail.runtime.peers import is_installed

RNG = np.random.default_rng(5)
W = RNG.standard_normal((8, 8)).astype(np.float32)
X = RNG.standard_normal((4, 8)).astype(np.float32)


def chain_proto(epsilon: float = 1e-5, prefix: str = "") -> onnx.ModelProto:
    """x[n, 8] -> MatMul -> LayerNormalization -> Gelu-like Erf -> Reshape by Shape -> Softmax."""
    p = prefix
    nodes = [
        helper.make_node("MatMul", ["x", f"{p}w"], [f"{p}product"], name=f"{p}matmul"),
        helper.make_node("LayerNormalization", [f"{p}product", f"{p}g"], [f"{p}norm"], name=f"{p}ln", epsilon=epsilon),
        helper.make_node("Erf", [f"{p}norm"], [f"{p}erf"], name=f"{p}act"),
        helper.make_node("Shape", ["x"], [f"{p}sizes"], name=f"{p}shape"),
        helper.make_node("Reshape", [f"{p}erf", f"{p}sizes"], [f"{p}flat"], name=f"{p}reshape"),
        helper.make_node("Softmax", [f"{p}flat"], ["y"], name=f"{p}softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes, f"{p}chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(W, f"{p}w"), numpy_helper.from_array(np.ones(8, np.float32), f"{p}g")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    path.write_bytes(chain_proto().SerializeToString())
    return path


def names(found: Any) -> list[str]:
    return [row.value for row in found.rows]


def test_every_value_agrees_in_every_engine(chain: Path) -> None:
    found = dovetail.compare_layers(chain, inputs={"x": X})
    assert found.agrees and not found.differs and found.first_difference() is None
    assert sorted(names(found)) == ["erf", "flat", "norm", "product", "sizes", "y"]
    assert [row.depth for row in found.rows] == sorted(row.depth for row in found.rows)
    assert {column.name for column in found.columns} >= {"native"}
    assert all(cell.relative <= 1e-5 for row in found.rows for cell in row.cells)


@pytest.mark.skipif(not is_installed("onnxruntime"), reason="needs onnxruntime")
def test_figures_are_those_of_numpy_on_onnxruntimes_own_outputs(chain: Path) -> None:
    """The oracle adds the outputs to the file itself and never sees dovetail's writer."""
    import onnxruntime

    proto = onnx.load(chain)
    wanted = ["product", "norm", "erf", "flat"]
    proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = dict(zip(["y", *wanted], session.run(None, {"x": X}), strict=True))
    found = dovetail.compare_layers(chain, engines=["interpreter", "onnxruntime"], inputs={"x": X})
    reference = dovetail.interpret(dovetail.load(chain).add_outputs(wanted), {"x": X})
    for row in found.rows:
        if row.value in theirs:
            apart = np.abs(reference[row.value].astype(np.float64) - theirs[row.value]).max()
            # The engines may sum in another order in a part than in the whole.
            assert row.cells[0].absolute == pytest.approx(apart, abs=3e-7)


@pytest.mark.parametrize("memory", [None, 1])
def test_slices_give_the_same_figures(chain: Path, memory: int | None) -> None:
    whole = dovetail.compare_layers(chain, engines=["interpreter", "native"], inputs={"x": X})
    found = dovetail.compare_layers(chain, engines=["interpreter", "native"], inputs={"x": X}, memory=memory)
    assert names(found) == names(whole)
    assert [row.cells[0].absolute for row in found.rows] == pytest.approx([row.cells[0].absolute for row in whole.rows], abs=1e-6)


def test_a_budget_below_the_values_makes_slices(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sigmoid" if i % 2 else "Tanh", [f"v{i}"], [f"v{i + 1}"]) for i in range(40)]
    graph = helper.make_graph(
        nodes, "long",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [1 << 18])],
        [helper.make_tensor_value_info("v40", TensorProto.FLOAT, [1 << 18])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    loaded = dovetail.load(model)
    whole = dovetail.compare_layers(loaded, engines=["interpreter", "native"])
    sliced = dovetail.compare_layers(loaded, engines=["interpreter", "native"], memory=1 << 20)
    assert whole.slices == 1 and sliced.slices >= 8
    assert [(row.value, row.cells) for row in sliced.rows] == [(row.value, row.cells) for row in whole.rows]


def test_the_first_difference_is_the_changed_operator(chain: Path) -> None:
    found = dovetail.compare_layers(chain, other=dovetail.load(chain_proto(epsilon=0.3)), inputs={"x": X})
    assert found.differs and not found.agrees
    for column in found.columns:
        first = found.first_difference(column.name)
        assert first is not None and (first.value, first.node) == ("norm", "ln")
    by_value = {row.value: row for row in found.rows}
    assert by_value["product"].agrees and not by_value["erf"].agrees
    errors = found.errors_by_node()
    assert errors["matmul"] < 1e-5 < 1e-3 < errors["ln"] and set(errors) == {"matmul", "ln", "act", "shape", "reshape", "softmax"}


def test_the_other_model_may_be_of_the_other_format(chain: Path, tmp_path: Path) -> None:
    dovetail.save(dovetail.load(chain), tmp_path / "chain.xml")
    found = dovetail.compare_layers(chain, other=tmp_path / "chain.xml", inputs={"x": X})
    assert not found.differs
    compared = [row.value for row in found.rows if not any(cell.is_missing for cell in row.cells)]
    assert {"product", "y"} <= set(compared)


def test_types_that_differ_are_compared_by_value() -> None:
    x = RNG.standard_normal(100).astype(np.float32)
    row = deviation_of(x, x.astype(np.float16), types_may_differ=True)
    assert row.agrees and row.why == "type f16" and row.ulp == 0
    assert not deviation_of(x, x.astype(np.float16)).agrees
    row = deviation_of(x.reshape(1, 100), x.reshape(100, 1, 1), types_may_differ=True)
    assert row.agrees and row.why == "shape [100, 1, 1]"
    assert not deviation_of(x.reshape(4, 25), x.reshape(25, 4), types_may_differ=True).agrees
    assert not deviation_of(x, (x * 1.1).astype(np.float16), types_may_differ=True).agrees


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_ulp_counts_representable_numbers(dtype: Any) -> None:
    x = np.array([1.0, -2.5, 1e-3, 0.0, -0.0], dtype)
    y = x
    for _ in range(3):
        y = np.nextafter(y, np.array(100, dtype))
    assert deviation_of(x, y).ulp == 3
    assert deviation_of(x, -np.abs(x) * 0 + x).ulp == 0
    assert deviation_of(np.array([0.0], dtype), np.array([-0.0], dtype)).ulp == 0


def test_values_that_are_not_numbers_and_integers_are_exact() -> None:
    nan, inf = math.nan, math.inf
    assert deviation_of(np.array([nan, inf, 1.0]), np.array([nan, inf, 1.0])).agrees
    assert not deviation_of(np.array([nan, 1.0]), np.array([1.0, 1.0])).agrees
    assert not deviation_of(np.array([2**53 + 1]), np.array([2**53])).agrees
    assert deviation_of(np.array([2**53 + 1]), np.array([2**53])).absolute == 1
    assert not deviation_of(np.array([3], np.uint8), np.array([4], np.uint8)).agrees
    assert deviation_of(np.array([3, 200], np.uint8), np.array([4, 200], np.uint8), 0.01).agrees
    assert not deviation_of(np.array([3, 200]), np.array([4, 200]), 0.01).agrees
    assert not deviation_of(np.zeros((2, 3)), np.zeros((3, 2))).agrees
    assert deviation_of(np.zeros(0, np.float32), np.zeros(0, np.float32)).agrees
    assert deviation_of(np.array(["a", "b"], object), np.array(["a", "b"], object)).agrees
    assert deviation_of([np.ones(2), np.ones(3)], [np.ones(2), np.ones(3)]).agrees
    assert not deviation_of([np.ones(2)], [np.ones(2), np.ones(3)]).agrees
    assert not deviation_of(None, np.ones(2)).agrees and deviation_of(None, None).agrees


@pytest.mark.skipif(not is_installed("openvino"), reason="needs openvino")
def test_an_operator_that_an_engine_refuses_is_a_row_with_a_reason() -> None:
    """OpenVINO has no operator for StringNormalizer; values before and beside it are still compared."""
    nodes = [
        helper.make_node("StringNormalizer", ["s"], ["upper"], case_change_action="UPPER", name="normalize"),
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Exp", ["r"], ["e"], name="exp"),
    ]
    graph = helper.make_graph(
        nodes, "strings",
        [helper.make_tensor_value_info("s", TensorProto.STRING, [2]), helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("upper", TensorProto.STRING), ("e", TensorProto.FLOAT))],
    )  # fmt: skip
    model = dovetail.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    inputs = {"s": np.array(["a", "b"], object), "x": np.ones(3, np.float32)}
    found = dovetail.compare_layers(model, engines=["interpreter", "openvino"], inputs=inputs)
    cells = {row.value: row.cells[0] for row in found.rows}
    assert cells["upper"].is_missing and cells["upper"].why.startswith("[")
    assert cells["r"].agrees and cells["e"].agrees
    assert not found.agrees and not found.differs and [row.value for row in found.missing("openvino")] == ["upper"]


def test_random_operators_run_once_and_all_engines_use_their_numbers() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="draw"),
        helper.make_node("Add", ["x", "noise"], ["sum"], name="add"),
        helper.make_node("Tanh", ["sum"], ["y"], name="tanh"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "random", ends[:1], ends[1:])
    model = dovetail.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    found = dovetail.compare_layers(model)
    cells = {row.value: row.cells for row in found.rows}
    assert all(cell.is_missing and "random" in cell.why for cell in cells["noise"])
    assert all(cell.agrees for cell in (*cells["sum"], *cells["y"])) and not found.differs


HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u202e\"'&"


def test_hostile_names_are_escaped_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = dovetail.load(chain_proto(prefix=HOSTILE))
    found = dovetail.compare_layers(model, other=dovetail.load(chain_proto(0.3, HOSTILE)), inputs={"x": X}, engines=["native"])
    page = found.html()
    ElementTree.fromstring(page.replace("<!DOCTYPE html>", ""))
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page and "default-src 'none'" in page
    assert "\x1b" not in repr(found)
    path = tmp_path / "hostile.onnx"
    path.write_bytes(chain_proto(prefix=HOSTILE).SerializeToString())
    done = run_command(str(path), "--engines", "native,interpreter", "--all")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\u202e" not in done.stdout and HOSTILE[:8] in done.stdout


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_reports_the_first_difference(chain: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(chain_proto(0.3).SerializeToString())
    page, colors = tmp_path / "page.html", tmp_path / "errors.json"
    np.savez(tmp_path / "x.npz", x=X)
    options = ["--engines", "native", "--input", str(tmp_path / "x.npz"), "--html", str(page), "--colors", str(colors)]
    done = run_command(str(chain), "--with", str(other), *options, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and facts["first"] == {"native (other)": "norm"} and not facts["agrees"]
    assert json.loads(colors.read_text())["ln"] > 1e-3 and "Error over depth" in page.read_text()
    same = run_command(str(chain), "--engines", "interpreter,native", "--memory", "500MB", "--json")
    assert same.returncode == 0 and json.loads(same.stdout)["agrees"]
    assert run_command(str(chain), "--memory", "much").returncode == 2


@pytest.mark.skipif(not native_core.has_bf16(), reason="needs AVX512-BF16")
def test_only_the_compared_engine_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference computes in f32; the tolerance is that of the rounding, unless another one is given."""
    rng = np.random.default_rng(0)
    with Builder() as b:
        y = b.MatMul(b.input("x", "f32", (20, 300)), rng.standard_normal((300, 40)).astype(np.float32))
        b.output("y", b.Relu(y))
    engines = ["interpreter", "native"]
    exact = compare_layers(b.model, engines=engines)
    rounded = compare_layers(b.model, engines=engines, precision="bf16")
    assert exact.agrees and rounded.agrees
    assert exact.rows[0].cells[0].relative < 1e-5 < rounded.rows[0].cells[0].relative
    assert not compare_layers(b.model, engines=engines, precision="bf16", tolerance=1e-5).agrees
    assert dovetail.bisect(b.model, precision="bf16").status == "agrees"
    path = tmp_path / "m.onnx"
    dovetail.save(b.model, path)
    words = ["compare", str(path), "--engines", ",".join(engines), "--precision", "bf16"]
    with pytest.raises(SystemExit) as caught:
        cli.main([*words, "--bisect", "--tolerance", "1e-5", "--part", str(tmp_path / "part.onnx")])
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert caught.value.code == 1 and command[:2] == ["dovetail", "compare"] and command[-2:] == ["--precision", "bf16"]
    with pytest.raises(SystemExit) as caught:
        cli.main(command[1:])
    assert caught.value.code == 1


def test_wrong_requests_have_codes(chain: Path) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("argument.value", {"engines": ["tensorrt"]}),
        ("argument.value", {"engines": ["interpreter"]}),
        ("name.unknown", {"values": ["nothing"]}),
        ("input.unknown", {"inputs": {"z": X}}),
        ("run.time", {"limits": 0.0}),
    ]
    for code, options in cases:
        model = dovetail.load(chain, limits=dovetail.Limits(seconds=options.pop("limits")) if "limits" in options else None)
        with pytest.raises(DovetailError) as caught:
            dovetail.compare_layers(model, **options)
        assert caught.value.code == code


def test_values_of_other_names_are_matched_by_their_producers() -> None:
    """Nothing but the input and the output has its name, and one operator differs."""
    found = dovetail.compare_layers(
        dovetail.load(chain_proto()), other=dovetail.load(chain_proto(0.3, "renamed_")), inputs={"x": X}
    )
    cells = {row.value: row.cells for row in found.rows}
    assert not any(cell.is_missing for row in found.rows for cell in row.cells)
    assert all(cell.agrees for cell in cells["product"]) and not any(cell.agrees for cell in (*cells["norm"], *cells["erf"]))
    result = dovetail.bisect(dovetail.load(chain_proto()), other=dovetail.load(chain_proto(0.3, "renamed_")), inputs={"x": X})
    assert result.node == "ln" and result.runs <= result.bound


@pytest.mark.skipif(not is_installed("onnxruntime") or not is_installed("openvino"), reason="needs onnxruntime and openvino")
def test_a_conversion_that_differs_names_the_command_that_finds_where(chain: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "dovetail",
        "convert",
        "chain.onnx",
        "chain.xml",
        "--verify",
        "--tolerance",
        "1e-12",
        "--dim",
        "n=4",
    ]
    done = subprocess.run(words, cwd=chain.parent, capture_output=True, text=True, check=False)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("where it begins: dovetail compare ")]
    command = shlex.split(line.removeprefix("where it begins: dovetail compare "))
    words = [sys.executable, "-m", "dovetail", "compare", *command, "--json"]
    again = subprocess.run(words, cwd=chain.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and again.returncode == 1 and json.loads(again.stdout)["differs"], again.stderr


PEAK = """
import sys
import numpy as np
from onnx import TensorProto, helper
import dovetail
from dovetail.runtime.peers import peak_bytes

count, size = 80, 1 << 21
nodes = [helper.make_node("Sigmoid" if i % 2 else "Tanh", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("v0", f"v{count}")]
graph = helper.make_graph(nodes, "long", ends[:1], ends[1:])
model = dovetail.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
found = dovetail.compare_layers(model, engines=["interpreter", "native"], memory=250_000_000, threads=1)
assert found.agrees and len(found.rows) == count
print(peak_bytes(), found.slices)
"""


@pytest.mark.slow
def test_the_process_stays_below_the_memory() -> None:
    """The values have 671 MB together, in each of two engines."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    peak, slices = map(int, done.stdout.split())
    assert peak < 250_000_000 and slices > 10
