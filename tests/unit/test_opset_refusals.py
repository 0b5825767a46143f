"""One message lists the nodes that an opset cannot express, and the opset from which on each can be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import dovetail
from dovetail.errors import UnsupportedError

MODEL = """<ir_version: 9, opset_import: ["" : {opset}]>
g (float[N, 4] x, int64[1] axes) => (float[N, 4] y, int32[N, 4] z, float[N] s) {{
    y = Relu (x)
    {nodes}
}}"""
NODES = "[bits] z = BitCast <to: int = 6> (y) [sum] s = ReduceSum <keepdims: int = 0> (x, axes)"


def written(tmp_path: Path, opset: int, nodes: str = NODES, source: int = 26) -> Any:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.format(opset=source, nodes=nodes)), path)
    dovetail.save(dovetail.load(path), tmp_path / "out.onnx", opset=opset)
    return onnx.load(tmp_path / "out.onnx")


def test_every_node_in_the_way_is_listed_with_the_opset_that_can(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        written(tmp_path, 12)
    found = {item.node: (item.code, item.message.rpartition("; ")[2]) for item in caught.value.diagnostics}
    assert found == {"bits": ("op.unsayable", "opset 26 can express it"), "sum": ("op.unsayable", "opset 13 can express it")}


def test_only_unsupported_nodes_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        written(tmp_path, 13)
    assert [item.node for item in caught.value.diagnostics] == ["bits"]


def test_a_model_that_the_opset_can_express_is_written(tmp_path: Path) -> None:
    proto = written(tmp_path, 28)
    onnx.checker.check_model(proto, full_check=True)
    assert [node.op_type for node in proto.graph.node] == ["Relu", "BitCast", "ReduceSum"]


def test_a_node_of_a_decomposition_is_refused_under_the_name_of_the_decomposed_node(tmp_path: Path) -> None:
    nodes = '[bits] z = Cast <to: int = 6> (y) [mixed] s = Einsum <equation = "ij,j->i"> (x, w)'
    text = MODEL.replace("float[N, 4] x, int64[1] axes", "bfloat16[N, 4] x, bfloat16[4] w")
    text = text.replace("float[N, 4] y", "bfloat16[N, 4] y").replace("float[N] s", "bfloat16[N] s").replace("N", "2")
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text.format(opset=28, nodes=nodes)), path)
    with pytest.raises(UnsupportedError) as caught:
        dovetail.save(dovetail.load(path), tmp_path / "out.onnx", opset=12)
    assert {"bits", "mixed"} <= {item.node for item in caught.value.diagnostics}
    assert {item.message.rpartition("; ")[2] for item in caught.value.diagnostics} == {"opset 13 can express it"}


def test_no_later_opset_is_promised_that_cannot_either(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Roll(b.input("x", "f32", None), [1], [0]))
    with pytest.raises(UnsupportedError, match=r"constant\.needed") as caught:
        dovetail.save(b.model, tmp_path / "out.onnx", opset=13)
    assert caught.value.diagnostics[0].message.endswith("; opset 28 cannot express it either")


@pytest.mark.parametrize("domain, version", [("ai.onnx.ml", 55), ("ai.onnx.ml", 0), ("far.away", -1), ("far.away", 10**20)])
def test_versions_of_other_domains_that_no_reader_takes_are_refused(domain: str, version: int, tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (2,))))
    dovetail.save(b.model, tmp_path / "model.dt")
    text = (tmp_path / "model.dt").read_text()
    (tmp_path / "model.dt").write_text(text.replace("graph ", f'    versions {{"": 21, "{domain}": {version}}}\ngraph ', 1))
    model = dovetail.load(tmp_path / "model.dt")
    with pytest.raises(UnsupportedError, match=rf"version {version} of the domain '{domain}'") as caught:
        dovetail.save(model, tmp_path / "out.onnx")
    assert caught.value.code == "opset.version" and not (tmp_path / "out.onnx").exists()
