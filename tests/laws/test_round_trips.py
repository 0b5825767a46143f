"""Writing and reading is the identity, in each format and each opset that writes an operator differently; a second trip too."""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import oracles
from assertions import assert_close, differences
from case_laws import hold, law
from case_runner import (
    answer,
    assert_same_answer,
    at_most,
    case_of,
    feeds,
    is_constant,
    model_of,
    opsets,
    skip_where_outside,
    sound,
)
from cases import Case
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import import_foreign
from dovetail.formats.dialect import Dialect
from dovetail.formats.export_errors import ExportErrors
from dovetail.formats.legalize import Legalizer
from dovetail.formats.mapping_selection import MappingSelector
from dovetail.formats.onnx import codec as onnx_codec, write as onnx_write
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.onnx.dialect import since_version
from dovetail.formats.openvino import codec as openvino_codec, write as openvino_write
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.attribute_types import Field
from dovetail.ir.edit import copy_graph
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Model
from dovetail.ir.op import REGISTRY, Op
from dovetail.passes.check import validate
from dovetail.runtime.interpreter.interpret import interpret

OLDER = (9, 10, 12)
"""Opsets of ``check_older_opsets``."""
EVERY_OPSET = range(10, 27)
"""Opsets of ``check_decompositions_load``."""
REORDERED = 1e-5
"""Relative difference that another order of a float sum may cause."""


class Onnx(NamedTuple):
    """ONNX files of one opset."""

    opset: int

    def write(self, model: Model) -> bytes:
        data = onnx_write.save(model, None, opset=self.opset)
        assert data is not None
        return data

    def read(self, file: bytes) -> Model:
        return sound(import_foreign(onnx_codec.read(file)))

    def legalizer(self) -> Legalizer:
        return Legalizer(
            ONNX, MappingSelector(ONNX, lambda domain, kind: since_version(domain, kind, self.opset)), ExportErrors(None)
        )


class OpenVino(NamedTuple):
    """IR files: the XML document and the weights."""

    def write(self, model: Model) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            openvino_write.save(model, os.path.join(folder, "model.xml"))
            return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def read(self, file: dict[str, bytes]) -> Model:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in file.items():
                Path(folder, name).write_bytes(data)
            return sound(import_foreign(openvino_codec.read(os.path.join(folder, "model.xml"))))

    def legalizer(self) -> Legalizer:
        return Legalizer(OPENVINO, MappingSelector(OPENVINO, openvino_write.version_of), ExportErrors(None))


@lru_cache(maxsize=64)
def _file_or_refusal(key: int, target: Onnx | OpenVino) -> Any:
    try:
        return target.write(model_of(case_of(key)))
    except UnsupportedError as error:
        return error


def file_of(case: Case, target: Onnx | OpenVino) -> Any:
    """Return the file of a case's model, written once for all laws of an item. Raises UnsupportedError."""
    file = _file_or_refusal(id(case), target)
    if isinstance(file, UnsupportedError):
        raise file
    return file


def check_trip(case: Case, target: Onnx | OpenVino) -> str | None:
    """Write and read a case's model twice. Returns the reason of a refusal."""
    model = model_of(case)
    try:
        file = file_of(case, target)
    except UnsupportedError as error:
        named = {item.node for item in error.diagnostics}
        assert None not in named, f"{target}: a refusal should name the node: {error}"
        return error.diagnostics[0].message
    once = target.read(file)
    prepared = copy_graph(model.graph)
    legalizer = target.legalizer()
    legalizer.legalize(prepared)
    assert validate(prepared) == []
    if not differences(model.graph, prepared) and kinds(model) == kinds(once):
        assert differences(model.graph, once.graph, lambda op, other: is_exported_as(op, other, legalizer.dialect)) == [], str(
            target
        )
    else:
        # Other operators stand for the case's: the results must agree.
        ours = interpret(once, feeds(case))
        assert list(ours.keys()) == [value.name for value in model.outputs]
        for mine, theirs in zip(ours.values(), answer(case), strict=True):
            assert_close(np.asarray(mine), theirs, case.tolerance, f"{target}: after one trip")
    again = target.write(once)
    # Equal files are read as equal graphs.
    if again != file:
        assert differences(once.graph, target.read(again).graph) == [], f"{target}: the second trip changes the graph"
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


@law()
def check_oldest_opset_in_onnxruntime(case: Case) -> str:
    skip_where_outside(case, "onnxruntime")
    skip_where_outside(case, "old onnxruntime")
    for opset in opsets(type(case.op)):
        if opset > oracles.RUNTIME_OPSET:
            break
        with suppress(UnsupportedError, oracles.Silent):
            assert_same_answer(
                case, oracles.run_onnxruntime(file_of(case, Onnx(opset)), feeds(case)), f"onnxruntime, opset {opset}"
            )
            return "onnxruntime"
    pytest.skip("no form that onnxruntime knows")


@law()
def check_written_files_load(case: Case) -> str:
    """Each ONNX file that is written passes onnx.checker with all of its inference, and loads in onnxruntime."""
    skip_where_outside(case, "onnx")
    model, oracle = model_of(case), ""
    for opset in opsets(type(case.op)):
        with suppress(UnsupportedError, oracles.Silent):
            file = file_of(case, Onnx(opset))
            oracles.check_onnx(file)
            oracle = oracle or "onnx.checker"
            if opset <= oracles.RUNTIME_OPSET:
                with suppress(oracles.Silent):
                    ports = oracles.onnxruntime_ports(file)
                    assert ports == [[value.name for value in side] for side in (model.inputs, model.outputs)], opset
                    oracle = "onnxruntime"
    if not oracle:
        pytest.skip("refused in every opset")
    return oracle


@law(at_most(3))
def check_decompositions_load(case: Case) -> str:
    """The decomposition of an operator passes the checker in every opset, not only in those in which the operator changes."""
    skip_where_outside(case, "onnx")
    oracle = ""
    for opset in sorted(set(EVERY_OPSET) - set(opsets(type(case.op)))):
        with suppress(UnsupportedError, oracles.Silent):
            file = file_of(case, Onnx(opset))
            oracles.check_onnx(file)
            oracle = oracle or "onnx.checker"
            if opset <= oracles.RUNTIME_OPSET and "onnxruntime" not in case.skip:
                with suppress(oracles.Silent):
                    oracles.onnxruntime_ports(file)
                    oracle = "onnxruntime"
    if not oracle:
        pytest.skip("refused in every opset")
    return oracle


@law(at_most(5))
def check_older_opsets(case: Case) -> None:
    """An operator written for an opset that may precede it means the same, or is refused by the name of its node."""
    skip_where_outside(case, "onnx")
    refusals = []
    for opset in OLDER:
        try:
            file = file_of(case, Onnx(opset))
        except UnsupportedError as error:
            assert all(item.node for item in error.diagnostics), str(error)
            refusals.append(error.diagnostics[0].message)
            continue
        outputs = interpret(import_foreign(onnx_codec.read(file)), feeds(case))
        for mine, theirs in zip(outputs.values(), answer(case), strict=False):
            assert_close(np.asarray(mine), theirs, max(case.tolerance or 0, REORDERED), f"opset {opset}")
    if len(refusals) == len(OLDER):
        pytest.skip(f"refused: {refusals[-1]}")


EDGES = {
    "NaN": (np.nan, 1, 1, -np.inf, -1, 0.0, -0.0, np.inf, 0.5, np.nan, 3),
    "infinities": (-np.inf, 2, np.inf, -0.0, 1, 1, 0.0, -np.inf, -1.5),
    "ties": (1, 1, -0.0, 0.0, -1, -1, 0.5, 2.5, -0.5),
    "negative infinity": (-np.inf,),
}
"""Elements of the rows of ``check_edge_values``, repeated."""
OPEN_EDGES: dict[str, tuple[tuple[str, ...], str]] = {
    "Det": (("NaN", "infinities", "negative infinity"), "LU factors and cofactors cancel infinities differently"),
    "Resize": (("NaN", "infinities", "negative infinity"), "opsets without it sum all elements of an axis, with weights of 0"),
    "TopK": (("NaN",), "ONNX leaves open where NaN is, and opsets below 11 have the greatest elements only"),
}
"""Rows of ``check_edge_values`` for which another form may differ, by operator, with the reason."""


@lru_cache(maxsize=64)
def _read_file(key: int, target: Onnx | OpenVino) -> Model:
    return target.read(file_of(case_of(key), target))


def _edge_inputs(case: Case, elements: tuple[float, ...]) -> list[Any]:
    """Return the case's inputs; each one of floats that is no constant has ``elements`` instead, shifted from input to input."""
    return [
        np.resize(np.roll(np.array(elements), index), x.shape).astype(x.dtype)
        if x is not None and not constant and dtypes.dtype(x.dtype).is_float
        else x
        for index, (x, constant) in enumerate(zip(case.inputs, is_constant(case), strict=True))
    ]


@law()
def check_edge_values(case: Case) -> None:
    """Each written form computes the same as the operator for NaN, infinities, ties and -0."""
    skip_where_outside(case, "edges")
    model, forms = model_of(case), {}
    for target in [*map(Onnx, opsets(type(case.op))), OpenVino()]:
        if ("ir" if isinstance(target, OpenVino) else "onnx") not in case.skip:
            with suppress(UnsupportedError):
                once = _read_file(id(case), target)
                if kinds(once) != kinds(model):
                    forms[target] = once
    compared = 0
    for name, elements in EDGES.items() if forms else ():
        inputs = _edge_inputs(case, elements)
        if all(x is y for x, y in zip(inputs, case.inputs, strict=True)):
            break
        if name in OPEN_EDGES.get(type(case.op).__name__, ((), ""))[0]:
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                expected = apply(case.op, np, inputs)
        except DovetailError:
            continue
        for target, form in forms.items():
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                outputs = interpret(form, feeds(case, inputs))
            for mine, theirs in zip(outputs.values(), expected, strict=True):
                assert_close(np.asarray(mine), theirs, case.tolerance, f"{target}: {name}")
            compared += 1
    if not compared:
        pytest.skip("no form of other operators that takes floats")


test_case = hold(
    check_onnx_round_trip,
    check_oldest_opset_in_onnxruntime,
    check_written_files_load,
    check_older_opsets,
    check_ir_round_trip,
    check_edge_values,
    check_decompositions_load,
)


def test_each_op_mapping_belongs_to_an_operator_of_onnx() -> None:
    import onnx

    real = {(item.domain, item.name, item.since_version) for item in onnx.defs.get_all_schemas_with_history()}
    contrib = set(oracles.contrib_schemas())
    said = {
        (mapping.domain, mapping.kind, version)
        for op in REGISTRY.values()
        for mapping in (op_mapping.parse(op, line) for line in op.onnx)
        for version in mapping.versions
    } | {(domain, kind, version) for domain, kind, version in ONNX.importers}
    # onnxruntime has these in the default domain, with schemas of its own.
    own = {("", "SimplifiedLayerNormalization", version) for version in range(1, 29)}
    own |= {("", "LayerNormalization", version) for version in range(1, 17)}
    said -= own
    assert {version for version in said if not version[0]} <= real
    assert not contrib or {version for version in said if version[0]} <= real | contrib
