"""Lower then lift is the identity, in each format and in each version that says an operator differently; and it holds still."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from cases import Case
from dovetail import slots
from dovetail.edit import copy_graph
from dovetail.errors import UnsupportedError
from dovetail.formats import lifted
from dovetail.formats.lower import Lowering
from dovetail.formats.onnx import codec as onnx_codec, write as onnx_write
from dovetail.formats.onnx.compose import ONNX
from dovetail.formats.onnx.dialect import since_version
from dovetail.formats.openvino import codec as openvino_codec, write as openvino_write
from dovetail.formats.openvino.compose import OPENVINO
from dovetail.graph import Model
from dovetail.interpret import interpret
from dovetail.op import REGISTRY, Op
from dovetail.validate import validate
from rig import CASES, answer, every_case, feeds, model_of, skip_where_outside, sound
from sameness import assert_close, differences

OLDEST = 7


@cache
def opsets(op: type[Op]) -> tuple[int, ...]:
    """Every opset in which a way to say ``op`` changes, and the newest."""
    import onnx

    kinds = {(spelling.domain, spelling.kind) for spelling in (slots.parse(op, line) for line in op.onnx)}
    lines = {schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if (schema.domain, schema.name) in kinds}
    return tuple(sorted({max(version, OLDEST) for version in lines} | {onnx.defs.onnx_opset_version()}))


def trips() -> Iterator[Any]:
    for family, case in CASES:
        for opset in opsets(type(case.op)):
            yield pytest.param(case, opset, id=f"{family}: {case}: opset {opset}")


class Onnx(NamedTuple):
    """Through an ONNX file of this opset."""

    opset: int

    def __call__(self, model: Model) -> Model:
        data = onnx_write.save(model, None, opset=self.opset)
        assert data is not None
        return sound(lifted(onnx_codec.read(data)))

    def lowering(self) -> Lowering:
        return Lowering(ONNX, lambda domain, kind: since_version(domain, kind, self.opset), file=None, sink=False)


class OpenVino(NamedTuple):
    """Through an IR file."""

    def __call__(self, model: Model) -> Model:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.xml")
            openvino_write.save(model, path)
            return sound(lifted(openvino_codec.read(path)))

    def lowering(self) -> Lowering:
        return Lowering(OPENVINO, openvino_write.version_of, file=None, sink=True)


def check_trip(case: Case, trip: Onnx | OpenVino) -> None:
    model = model_of(case)
    try:
        once = trip(model)
    except UnsupportedError as error:
        named = {item.node for item in error.diagnostics}
        assert None not in named, f"a refusal should name the node: {error}"
        pytest.skip(f"refused: {error.diagnostics[0].message}")
    if is_direct(model, trip.lowering()):
        assert differences(model.graph, once.graph) == []
    else:
        # Said through other operators: then the answer stays.
        ours = interpret(once, feeds(case))
        assert list(ours) == [value.name for value in model.outputs]
        for mine, theirs in zip(ours.values(), answer(case), strict=True):
            assert_close(np.asarray(mine), theirs, case.tolerance, "after one trip")
    twice = trip(once)
    assert differences(once.graph, twice.graph) == [], "the second trip changes the graph"


def is_direct(model: Model, lowering: Lowering) -> bool:
    """Whether nothing has to be rewritten before it is spelled."""
    graph = copy_graph(model.graph)
    lowering.prepare(graph)
    assert validate(graph) == []
    return differences(model.graph, graph) == []


@pytest.mark.parametrize(("case", "opset"), list(trips()))
def test_onnx_gives_back_the_graph(case: Case, opset: int) -> None:
    skip_where_outside(case, "onnx")
    check_trip(case, Onnx(opset))


@every_case
def test_ir_gives_back_the_graph(case: Case) -> None:
    skip_where_outside(case, "ir")
    check_trip(case, OpenVino())


def test_each_spelling_belongs_to_an_operator_that_onnx_has() -> None:
    import onnx

    real = {(item.domain, item.name, item.since_version) for item in onnx.defs.get_all_schemas_with_history()}
    said = {
        (spelling.domain, spelling.kind, version)
        for op in REGISTRY.values()
        for spelling in (slots.parse(op, line) for line in op.onnx)
        for version in spelling.versions
    } | {(domain, kind, version) for domain, kind, version in ONNX.lifts}
    assert said <= real
