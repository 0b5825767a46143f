"""reduce: the smallest model for which a check still fails, by a function or a command, in both formats."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail import cli
from dovetail.compare.reduce.delta import minimize

PATTERN = """
import sys
import onnx
nodes = list(onnx.load(sys.argv[1]).graph.node)
makers = {name: node.op_type for node in nodes for name in node.output}
sys.exit(3 * any(node.op_type == "Softmax" and makers.get(node.input[0]) == "MatMul" for node in nodes))
"""


def network(size: int = 16) -> onnx.ModelProto:
    """Layers of a product and an activation, with one Softmax of a product in the middle, and a shape computed between."""
    generator = np.random.default_rng(0)
    nodes, tensors, last = [], [], "x"
    for number in range(8):
        tensors.append(numpy_helper.from_array(generator.standard_normal((size, size)).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Softmax" if number == 4 else "Relu", [f"m{number}"], [f"r{number}"], name=f"r {number}"))
        nodes.append(helper.make_node("Shape", [f"r{number}"], [f"s{number}"]))
        nodes.append(helper.make_node("Reshape", [f"r{number}", f"s{number}"], [f"y{number}"]))
        last = f"y{number}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def fails(path: str) -> bool:
    nodes = list(onnx.load(path).graph.node)
    makers = {name: node.op_type for node in nodes for name in node.output}
    return any(node.op_type == "Softmax" and makers.get(node.input[0]) == "MatMul" for node in nodes)


def operators(model: dovetail.Model) -> list[str]:
    return [type(node.op).__name__ for node in model.graph.nodes if type(node.op).__name__ != "Constant"]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_minimize_finds_every_needed_item(count: int) -> None:
    needed = {index * 5 % 41 for index in range(count % 7 + 1)} & set(range(count)) or {count - 1}
    asked = 0

    def holds(part: list[int]) -> bool:
        nonlocal asked
        asked += 1
        assert part == sorted(part) and part
        return needed <= set(part)

    assert set(minimize(range(count), holds)) == needed
    assert asked < 20 * (count + 1)


def test_nodes_sizes_and_weights_get_smaller() -> None:
    found = dovetail.reduce(dovetail.load(network()), fails)
    assert operators(found) == ["MatMul", "Softmax"] and found.report.nodes_before == 32
    (x,) = found.inputs
    (weight,) = [node.op.data for node in found.graph.nodes if hasattr(node.op, "data")]
    assert weight.shape == (1, 1) and not weight.any() and str(x.type).endswith(", 1]")
    dovetail.check(found)
    assert found.report.runs < 60 and not found.report.notes


def test_a_model_of_ir_is_reduced_in_ir(tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    dovetail.save(dovetail.load(network()), path)
    seen: list[str] = []

    def check(file: str) -> bool:
        seen.append(file)
        return 'type="Softmax"' in Path(file).read_text().replace("SoftMax", "Softmax")

    found = dovetail.reduce(path, check)
    assert operators(found) == ["Softmax"] and {os.path.splitext(file)[1] for file in seen} == {".xml"}


def test_a_fault_at_run_time_keeps_the_shapes_it_needs() -> None:
    """A reshape to a computed shape is cut with the elements of that shape, so that the part still runs."""
    import onnxruntime

    def check(file: str) -> bool:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        kinds = {node.op_type for node in onnx.load(file).graph.node}
        given = {x.name: np.ones([3 if isinstance(n, str) else n for n in x.shape], np.float32) for x in session.get_inputs()}
        try:
            session.run(None, given)
        except Exception:
            return False
        return {"Reshape", "Softmax"} <= kinds

    found = dovetail.reduce(dovetail.load(network(4)), check)
    assert sorted(operators(found)) == ["Reshape", "Softmax"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code decides, no shell reads the command, and the temporary folder is gone."""
    folder = tmp_path / "a ; echo $(b) 'c"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    source, script, target = folder / "m.onnx", tmp_path / "check.py", folder / "small.onnx"
    onnx.save(network(4), source)
    script.write_text(PATTERN)
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{}}"
    for options, code in ((["--exit-code", "3"], 0), (["--exit-code", "4"], 2), (["--runs", "3"], 0)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["reduce", str(source), "--check", command, "-o", str(target), *options])
        assert ended.value.code == code
        output = capsys.readouterr()
        assert ("[reduce.check]" in output.err) == (code == 2)
        assert ("stopped after 3 runs" in output.err) == ("--runs" in options)
        if options[-1] == "3" and code == 0 and "--runs" not in options:
            assert fails(str(target)) and operators(dovetail.load(target)) == ["MatMul", "Softmax"]
    assert sorted(os.listdir(folder)) == ["m.onnx", "small.onnx"]


@pytest.mark.parametrize("command", ["", "true", "no-such-command-anywhere {}", "'open quote {}"])
def test_a_command_that_cannot_be_used(command: str) -> None:
    with pytest.raises(dovetail.RuleError) as caught:
        dovetail.reduce(dovetail.load(network(2)), command)
    assert caught.value.code == "argument.value" and caught.value.exit_code == 2


def test_a_command_that_takes_too_long_passes() -> None:
    with pytest.raises(dovetail.RuleError) as caught:
        dovetail.reduce(dovetail.load(network(2)), "sh -c 'sleep 30; exit 1' sh {}", timeout=0.2)
    assert caught.value.code == "reduce.check" and "timeout" in caught.value.message


def test_names_of_the_model_reach_no_command(tmp_path: Path) -> None:
    model = network(2)
    for node in model.graph.node:
        node.name = "$(touch pwned); `touch pwned` {}"
    script = tmp_path / "check.sh"
    script.write_text('echo "$@" >> "$(dirname "$0")/seen"; grep -q Softmax "$1" && exit 1; exit 0\n')
    dovetail.reduce(dovetail.load(model), f"sh {shlex.quote(str(script))} {{}}", max_runs=20)
    assert "pwned" not in (tmp_path / "seen").read_text() and not Path("pwned").exists()
