"""The page of `dovetail report`: every section, also of a model that cannot run; blockers of each format and opset."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder, Limits, cli
from dovetail.formats.export_blockers import OLDEST, export_blockers
from dovetail.measure.overview import ModelReport
from dovetail.report.model_page import SECTIONS


def network() -> dovetail.Model:
    with Builder("network") as b:
        x = b.input("x", "f32", ("batch", 4))
        b.output("y", b.Softmax(b.MatMul(x, np.ones((4, 3), np.float32)), axis=1))
    return b.model


def unknown_operator() -> dovetail.Model:
    """Return a model with an operator that no engine knows."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Own", ["r"], ["y"], domain="own")]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in "xy")
    graph = helper.make_graph(nodes, "unknown", inputs, outputs)
    return dovetail.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]))


def sections_of(report: ModelReport) -> dict[str, str]:
    """Return the text of each section of a page, by its anchor."""
    page = ElementTree.fromstring(report.html().split("\n", 1)[1])
    return {item.attrib["id"]: "".join(item.itertext()) for item in page.iter("section")}


def test_a_page_has_every_section() -> None:
    found = dovetail.model_report(network(), runs=1)
    texts = sections_of(found)
    assert list(texts) == [anchor for anchor, _ in SECTIONS] and not found.failures
    assert "MatMul" in texts["operators"] and "batch" in texts["interface"] and "Softmax" in texts["shapes"]
    assert "arena" in texts["plan"] and "a run" in texts["summary"] and "Time by operator" in texts["profile"]
    assert "can be written" in texts["formats"] and "breaks no rule" in texts["check"]
    assert "://" not in found.html().replace("http://www.w3.org/2000/svg", "")
    assert json.loads(json.dumps(found.as_dict(), default=str))["summary"]["nodes"] == 2


def test_a_page_of_a_quantized_model_has_the_table_of_its_weights() -> None:
    with Builder("network") as b:
        w = b.constant(np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32), name="w")
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), w))
    found = dovetail.model_report(dovetail.quantize(b.model), runs=1)
    text = sections_of(found)["quantization"]
    (node,) = found.as_dict()["quantization"]["nodes"]
    assert f"{node['measured']:.3g}" in text and "MatMul" in text and node["bits"] == 8
    assert dovetail.model_report(b.model, runs=1).quantization is None


def test_a_page_has_the_drawing() -> None:
    found = dovetail.model_report(network(), runs=1)
    assert "MatMul" in sections_of(found)["drawing"]
    assert found.html().count('class="dt-card"') == 4


def test_a_model_that_cannot_run_has_a_page_with_the_reason() -> None:
    found = dovetail.model_report(unknown_operator(), runs=1)
    texts = sections_of(found)
    assert list(texts) == [anchor for anchor, _ in SECTIONS]
    assert set(found.failures) == {"profile"} and "op.unknown" in found.failures["profile"]
    assert "could not be made" in texts["profile"] and "Own" in texts["operators"]
    (ir,) = [target for target in found.targets or [] if target.format == "openvino"]
    assert ir.faults and "blocker" in texts["formats"]


def test_a_model_without_random_inputs_has_a_page_with_the_reason() -> None:
    with Builder("open") as b:
        b.output("y", b.Relu(b.input("x", "f32", None)))
    found = dovetail.model_report(b.model, runs=1)
    assert "input.missing" in found.failures["profile"] and "input.missing" in sections_of(found)["plan"]
    given = dovetail.model_report(b.model, {"x": np.ones((2, 3), np.float32)}, runs=1)
    assert given.profile is not None and given.plan is not None


def test_a_run_beyond_its_limit_is_a_reason() -> None:
    found = dovetail.model_report(network(), runs=1, limits=Limits(memory=1))
    assert "run.memory" in found.failures["profile"] and sections_of(found)["summary"]


def test_blockers_are_those_of_a_save(tmp_path: Path) -> None:
    with Builder() as b:
        b.output("y", b.Gelu(b.GridSample(b.input("x", "f32", (1, 1, 4, 4)), b.input("g", "f32", (1, 2, 2, 2)))))
    targets = export_blockers(b.model)
    assert len(targets) == 1 + 28 - OLDEST + 1 and not any(target.skipped for target in targets)
    for target in targets:
        refused: tuple[dovetail.Diagnostic, ...] = ()
        try:
            if target.opset is None:
                dovetail.save(b.model, tmp_path / "m.xml")
            else:
                dovetail.save(b.model, tmp_path / "m.onnx", opset=target.opset)
        except dovetail.UnsupportedError as error:
            refused = error.diagnostics
        assert [(item.code, item.node) for item in target.faults] == [(item.code, item.node) for item in refused]
    assert any(target.faults for target in targets) and not all(target.faults for target in targets)


def test_opsets_without_time_are_skipped() -> None:
    targets = export_blockers(network(), seconds=0)
    assert [target.name for target in targets if not target.skipped] == ["OpenVINO IR"]


def test_the_command_writes_a_page_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = str(tmp_path / "m.onnx"), tmp_path / "r.html"
    dovetail.save(network(), path)

    def command(*arguments: str) -> int:
        with pytest.raises(SystemExit) as caught:
            cli.main(["report", path, *arguments])
        return int(caught.value.code or 0)

    assert command("-o", str(page), "--runs", "1", "--dim", "batch=5") == 0
    out, err = capsys.readouterr()
    assert "nodes" in out and "wrote" in err and "x[5, 4]" in page.read_text()
    assert command("--json", "--runs", "1") == 0
    assert json.loads(capsys.readouterr().out)["dovetail"] == "report"
    assert command() == 2


def test_the_page_of_a_wide_model_is_bounded(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(3000)]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("v0", "v3000"))
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs)), tmp_path / "m.onnx")
    found = dovetail.model_report(tmp_path / "m.onnx", runs=1)
    assert found.value_count == 3000 and len(found.html()) < 3_000_000
