"""Export then import is the identity, in each format and in each version that expresses an operator differently."""

from __future__ import annotations

import os
import tempfile
from typing import NamedTuple

import numpy as np
import pytest

import oracles
from assertions import assert_close, differences
from case_laws import hold, law
from case_runner import answer, feeds, model_of, opsets, skip_where_outside, sound
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.formats import import_foreign, op_mapping
from dovetail.formats.dialect import Dialect
from dovetail.formats.export_errors import ExportErrors
from dovetail.formats.legalize import Legalizer
from dovetail.formats.onnx import codec as onnx_codec, write as onnx_write
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.onnx.dialect import since_version
from dovetail.formats.openvino import codec as openvino_codec, write as openvino_write
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.interpreter.interpret import interpret
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Model
from dovetail.ir.op import REGISTRY, Field, Op
from dovetail.validate import validate


class Onnx(NamedTuple):
    """Through an ONNX file of this opset."""

    opset: int

    def __call__(self, model: Model) -> Model:
        data = onnx_write.save(model, None, opset=self.opset)
        assert data is not None
        return sound(import_foreign(onnx_codec.read(data)))

    def legalizer(self) -> Legalizer:
        return Legalizer(ONNX, lambda domain, kind: since_version(domain, kind, self.opset), ExportErrors(None))


class OpenVino(NamedTuple):
    """Through an IR file."""

    def __call__(self, model: Model) -> Model:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.xml")
            openvino_write.save(model, path)
            return sound(import_foreign(openvino_codec.read(path)))

    def legalizer(self) -> Legalizer:
        return Legalizer(OPENVINO, openvino_write.version_of, ExportErrors(None))


def check_trip(case: Case, trip: Onnx | OpenVino) -> str | None:
    """Hold the law for one way out and back. Returns the reason of a refusal."""
    model = model_of(case)
    try:
        once = trip(model)
    except UnsupportedError as error:
        named = {item.node for item in error.diagnostics}
        assert None not in named, f"{trip}: a refusal should name the node: {error}"
        return error.diagnostics[0].message
    prepared = copy_graph(model.graph)
    legalizer = trip.legalizer()
    legalizer.legalize(prepared)
    assert validate(prepared) == []
    if not differences(model.graph, prepared) and kinds(model) == kinds(once):
        assert differences(model.graph, once.graph, lambda op, other: is_exported_as(op, other, legalizer.dialect)) == [], str(
            trip
        )
    else:
        # Said through other operators: then the answer stays.
        ours = interpret(once, feeds(case))
        assert list(ours) == [value.name for value in model.outputs]
        for mine, theirs in zip(ours.values(), answer(case), strict=True):
            assert_close(np.asarray(mine), theirs, case.tolerance, f"{trip}: after one trip")
    twice = trip(once)
    assert differences(once.graph, twice.graph) == [], f"{trip}: the second trip changes the graph"
    return None


def kinds(model: Model) -> list[str]:
    return [type(node.op).__name__ for node in model.graph.nodes if type(node.op).__name__ != "Constant"]


def is_exported_as(op: Op, other: Op, dialect: Dialect) -> bool:
    """Tell whether a mapping that imports ``other`` also exports ``op``, which differs only in the errors that it raises."""
    changed = {field.name for field in op.fields if op.__dict__[field.name] != other.__dict__[field.name]}
    for mapping in dialect.export_mappings(type(op)):
        lenient = {name: [op_mapping.fixed_value(field_of(op, name), text) for text in texts] for name, texts in mapping.fixed}
        if all(
            name in lenient and op.__dict__[name] in lenient[name][1:] and other.__dict__[name] == lenient[name][0]
            for name in changed
        ):
            return True
    return False


def field_of(op: Op, name: str) -> Field:
    found = op_mapping.field_of(type(op), name)
    assert found is not None
    return found


@law()
def check_onnx_round_trip(case: Case) -> None:
    skip_where_outside(case, "onnx")
    refusals = {opset: check_trip(case, Onnx(opset)) for opset in opsets(type(case.op))}
    if all(refusals.values()):
        pytest.skip(f"refused in every opset: {refusals[max(refusals)]}")


@law()
def check_ir_round_trip(case: Case) -> None:
    skip_where_outside(case, "ir")
    if refusal := check_trip(case, OpenVino()):
        pytest.skip(f"refused: {refusal}")


test_case = hold(check_onnx_round_trip, check_ir_round_trip)


def test_each_spelling_belongs_to_an_operator_that_onnx_has() -> None:
    import onnx

    real = {(item.domain, item.name, item.since_version) for item in onnx.defs.get_all_schemas_with_history()}
    contrib = set(oracles.contrib_schemas())
    said = {
        (mapping.domain, mapping.kind, version)
        for op in REGISTRY.values()
        for mapping in (op_mapping.parse(op, line) for line in op.onnx)
        for version in mapping.versions
    } | {(domain, kind, version) for domain, kind, version in ONNX.importers}
    # onnxruntime has this one in the default domain, with a schema of its own.
    said = {mapping for mapping in said if mapping[:2] != ("", "SimplifiedLayerNormalization")}
    assert {version for version in said if not version[0]} <= real
    assert not contrib or {version for version in said if version[0]} <= real | contrib
