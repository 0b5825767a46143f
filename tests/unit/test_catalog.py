"""A test shows each claim of ``dovetail ops`` and docs/operators.md about an operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

import write_support_table
from dovetail.cli import main
from dovetail.ir import op_mapping
from dovetail.ir.host import native_core
from dovetail.ir.op import REGISTRY
from dovetail.report import catalog


@pytest.mark.parametrize("name", sorted(catalog.tested_facts()))
def test_each_fact_of_the_catalog_has_a_case(name: str) -> None:
    claimed = dict(catalog.tested_facts()[name])
    if not native_core.is_compiled:
        claimed.pop("native", None)
    assert write_support_table.unshown(name, claimed) == []


def test_the_catalog_has_every_operator() -> None:
    assert set(catalog.tested_facts()) <= set(REGISTRY)
    assert {each.name for each in catalog.catalog()} | {"Foreign", "Constant", "DefaultInput", "RuntimeAttributes"} == set(
        REGISTRY
    )


@pytest.mark.parametrize("format", catalog.FORMATS)
def test_a_version_is_read_by_a_line_or_by_a_function(format: str) -> None:
    dialect = catalog.dialect(format)
    lines = [op_mapping.parse(op, line) for op in REGISTRY.values() for line in dialect.mapping_lines(op)]
    read = {(each.domain, each.kind, version) for each in lines if not each.is_export_only for version in each.versions}
    read |= set(dialect.importers)
    rows = {(f"{domain}:{kind}" if domain else kind, version) for domain, kind, version in read}
    assert rows == {(each.name, version) for each in catalog.foreign_catalog(format) for version in each.versions}


def run_ops(capsys: Any, *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["ops", *arguments])
    assert left.value.code == 0
    return str(capsys.readouterr().out)


def test_the_command_prints_the_table(capsys: Any) -> None:
    rows = run_ops(capsys).splitlines()
    assert rows[0].split() == ["operator", "types", "gradient", "native", "ONNX", "OpenVINO"]
    assert len(rows) == 1 + len(catalog.catalog())
    conv = next(row for row in rows if row.startswith("Conv "))
    assert "slope" in conv and "Conv 1, 11, 22" in conv and "Convolution 1" in conv


def test_the_command_prints_json(capsys: Any) -> None:
    ours = json.loads(run_ops(capsys, "--json"))
    relu = next(item for item in ours["operators"] if item["name"] == "Relu")
    assert relu["gradient"] == "slope" and "f32" in relu["native"] and relu["openvino"] == ["ReLU 1"]
    theirs = json.loads(run_ops(capsys, "--format", "onnx", "--json"))
    upsample = next(item for item in theirs["operators"] if item["name"] == "Upsample")
    assert theirs["format"] == "onnx" and upsample["versions"] == [1, 7, 9] and upsample["unread"] == []


def test_the_operators_of_a_format_are_listed(capsys: Any) -> None:
    rows = run_ops(capsys, "--format", "openvino").splitlines()
    assert rows[0].split() == ["operator", "read", "not", "read", "as"]
    assert any(row.startswith("SoftMax ") and row.endswith("Softmax") for row in rows)
