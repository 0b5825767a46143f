"""The recorded schemas are those of the ``onnx`` package, and opening a model does not import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import defs, helper, onnx_ml_pb2

import dovetail
from dovetail.formats.onnx import messages, schemas

DOMAINS = {domain: versions[1] for domain, versions in defs.C.schema_version_map().items()}


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_schema_is_that_of_the_package(domain: str) -> None:
    """In every opset, and beyond the newest, for every operator and one that there is not."""
    kinds = {each.name for each in defs.get_all_schemas_with_history() if each.domain == domain}
    for kind in sorted(kinds | {"Nonesuch"}):
        for opset in range(DOMAINS[domain] + 2):
            found = schemas.schema(domain, kind, opset)
            try:
                there = defs.get_schema(kind, opset, domain)
            except defs.SchemaError:
                assert found is None, (kind, opset)
                continue
            assert found is not None, (kind, opset)
            assert found.since_version == there.since_version, (kind, opset)
            assert found.inputs == tuple(frozenset(each.types) for each in there.inputs), (kind, opset)
            assert found.outputs == tuple(frozenset(each.types) for each in there.outputs), (kind, opset)
            variadic = [each.option == defs.OpSchema.FormalParameterOption.Variadic for each in there.inputs]
            assert found.is_repeated == any(variadic), (kind, opset)
            variables = tuple(each.type_str if each.is_homogeneous else None for each in there.inputs)
            assert found.variables == variables, (kind, opset)
            types: dict[str, Any] = {name: each.type for name, each in there.attributes.items()}
            lists = {name: each.value for name, each in types.items() if each.name.endswith("S")}
            assert found.lists == lists, (kind, opset)
            assert found.min_inputs == there.min_input, (kind, opset)


@pytest.mark.parametrize("domain", DOMAINS)
def test_ir_versions_and_newest_opsets_are_those_of_the_package(domain: str) -> None:
    last = DOMAINS[domain]
    for opset in range(1, last + 3):
        there = helper.find_min_ir_version_for([helper.make_opsetid(domain, opset)], ignore_unknown=True)
        assert schemas.ir_version_of(domain, opset) == there
        newest = schemas.newest_opset(domain, opset)
        assert newest is not None
        assert (opset <= newest) == (opset <= last)
    assert schemas.newest_opset("nobody's", 1) is None


def test_schemas_of_newer_opsets_are_those_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of an older package: the opsets beyond it are those of the installed one."""
    older = {"newest": {"": 12}, "ir_versions": {}, "types": [], "operators": {}}
    monkeypatch.setattr(schemas, "_table", lambda: older)
    assert schemas.schema("", "Concat", 12) is None
    found = schemas.schema("", "Concat", 13)
    assert found is not None
    assert found.since_version == 13
    assert "tensor(bfloat16)" in found.inputs[0]
    assert schemas.newest_opset("", 12) == 12
    assert schemas.newest_opset("", 13) == DOMAINS[""]
    assert schemas.ir_version_of("", 13) == 7


def test_without_the_package_the_table_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_package", lambda: None)
    newest = DOMAINS[""]
    assert schemas.newest_opset("", newest + 1) == newest
    assert schemas.newest_opset("nobody's", 1) is None
    assert schemas.schema("", "Concat", newest + 5) is None
    assert schemas.ir_version_of("", newest + 1) == 3


def test_operator_versions_are_those_of_the_package() -> None:
    versions: dict[tuple[str, str], list[int]] = {}
    for each in defs.get_all_schemas_with_history():
        if not each.deprecated:
            versions.setdefault((each.domain, each.name), []).append(each.since_version)
    found = schemas.operator_versions()
    assert {key: sorted(numbers) for key, numbers in found.items()} == {key: sorted(each) for key, each in versions.items()}


def test_the_messages_are_those_of_the_package() -> None:
    assert Path(messages.__file__).with_name("messages.binpb").read_bytes() == onnx_ml_pb2.DESCRIPTOR.serialized_pb
    assert messages.newest_ir_version() == onnx.IR_VERSION


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_models_do_not_need_the_package(tmp_path: Path, implementation: str) -> None:
    path = tmp_path / "model.onnx"
    with dovetail.Builder() as b:
        b.output("y", b.Concat(b.input("x", "f32", ("n", 2)), [[1.0, 2.0]], axis=0))
    dovetail.save(b.model, path)
    proto = onnx.load(path)
    proto.opset_import.extend(helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "nobody's"))
    onnx.save(proto, path)
    code = f"""
import os, sys
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = {implementation!r}
import dovetail
from dovetail.report.catalog import foreign_catalog
model = dovetail.load({str(path)!r})
dovetail.save(model, {str(tmp_path / "again.onnx")!r})
assert len(foreign_catalog("onnx")) > 200
assert "onnx" not in sys.modules
# The messages of the package may be imported later, and are read.
import onnx
message = onnx.load({str(tmp_path / "again.onnx")!r})
assert str(dovetail.load(message)) == str(model)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    onnx.checker.check_model(onnx.load(tmp_path / "again.onnx"))
