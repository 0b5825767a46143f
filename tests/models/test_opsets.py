"""Up and down the opsets: each backend model, written at the opsets beside its own, means the same or is refused by node.

``DOVETAIL_OPSETS=all`` takes them to every opset from 9 on, and not only to the neighbours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import pytest

import oracles
from backend_data import KINDS, Sample, assert_similar, samples
from coverage_summary import NOT_BUILT, TRIP
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec, write
from dovetail.formats.onnx.dialect import since_version
from dovetail.ir.graph import Model
from dovetail.runtime.interpreter.interpret import interpret
from models.test_backend_nodes import kinds, refuse_foreign

pytestmark = pytest.mark.slow

OLDEST, NEWEST = 9, onnx.defs.onnx_opset_version()
IS_WHOLE = os.environ.get("DOVETAIL_OPSETS", "") == "all"
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Dropout"}
"""The expected values of these are one draw of many."""


class BackendTest:
    """A backend test with its model in memory."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.name = sample.name
        self.proto: onnx.ModelProto = sample.read_model()
        self.opset = next((item.version for item in self.proto.opset_import if item.domain in ("", "ai.onnx")), NEWEST)

    @cached_property
    def inputs(self) -> list[dict[str, Any]]:
        names = [value.name for value in self.proto.graph.input]
        return [dict(zip(names, given, strict=False)) for given, _ in self.sample.read_pairs()]

    def versions(self, opset: int) -> list[int | None]:
        return [since_version("", kind, opset) for kind in kinds(self.proto.graph)]

    def neighbours(self) -> list[int]:
        """Return the opsets just below and above, and the nearest at which an operator of the model has another version."""
        own = self.opset
        if IS_WHOLE:
            return [opset for opset in range(OLDEST, NEWEST + 1) if opset != own]
        found = {min(max(own - 1, OLDEST), NEWEST), min(max(own + 1, OLDEST), NEWEST)}
        for way in (range(own - 1, OLDEST - 1, -1), range(max(own + 1, OLDEST), NEWEST + 1)):
            found.update(next(([opset] for opset in way if self.versions(opset) != self.versions(own)), []))
        return sorted(found - {own})

    def assert_alike(self, expected: list[Any], found: list[Any]) -> None:
        """Within what the test allows, and where floats are many, within what sums in another order differ."""
        floats = [y for y in expected if isinstance(y, np.ndarray) and y.dtype in (np.float32, np.float64)]
        size = max((float(np.abs(y[np.isfinite(y)]).max(initial=0)) for y in floats), default=0.0)
        assert_similar(expected, found, self.sample.rtol, max(self.sample.atol, 1e-6 * size))


TESTS = [BackendTest(sample) for kind in KINDS for sample in samples(kind)]


@pytest.mark.parametrize(
    "test", [pytest.param(test, id=f"{test.sample.kind}: {test.name.removeprefix('test_')}") for test in TESTS]
)
def test_a_model_is_equivalent_in_the_next_older_and_newer_opset(test: BackendTest, record_property: Any) -> None:
    try:
        model = import_foreign(codec.read(test.proto))
        refuse_foreign(model.graph)
        answers = [list(interpret(model, inputs).values()) for inputs in test.inputs]
    except DovetailError as error:
        pytest.skip(f"{NOT_BUILT}{error.diagnostics[0].message}")
    trips = Trips(test, model, answers)
    faults = []
    for opset in test.neighbours():
        outcome = "wrong"
        try:
            outcome = trips.to(opset)
        except (AssertionError, DovetailError) as error:
            faults.append(f"opset {opset}: {error}")
        record_property(TRIP, ("older" if opset < test.opset else "newer", outcome))
    assert not faults, "\n".join(faults)


class Trips:
    """One model on its ways to other opsets."""

    def __init__(self, test: BackendTest, model: Model, answers: list[list[Any]]) -> None:
        self.test = test
        self.model = model
        self.answers = answers
        self.is_random = not RANDOM.isdisjoint(kinds(test.proto.graph))
        self.held: set[tuple[bytes, tuple[int | None, ...]]] = set()

    def to(self, opset: int) -> str:
        """Write the model there, and hold what is written. Returns ``same``, or ``refused``."""
        try:
            data = write.save(self.model, None, opset=opset)
        except UnsupportedError as error:
            self.hold_refusal(error, opset)
            return "refused"
        assert data is not None
        proto = onnx.load_from_string(data)
        said = tuple(since_version(node.domain, node.op_type, opset) for node in every_node(proto.graph))
        key = proto.graph.SerializeToString(deterministic=True), said
        if key not in self.held:
            self.held.add(key)
            self.hold(proto, data, opset)
        return "same"

    def hold_refusal(self, error: UnsupportedError, opset: int) -> None:
        """Check that a refusal names its nodes, and from which opset on they can be written: none after that of the source."""
        named = {node.name or node.output[0] for node in every_node(self.test.proto.graph) if node.output}
        for item in error.diagnostics:
            assert item.node, f"opset {opset}: {item}"
            assert any(item.node in (name, f"{name}:0") or item.node.startswith(name) for name in named), f"opset {opset}: {item}"
            first = re.search(r"; opset (\d+) can express it$", item.message)
            if opset < self.test.opset:
                assert first and opset < int(first[1]) <= self.test.opset, f"opset {opset}: {item}"

    def hold(self, proto: onnx.ModelProto, data: bytes, opset: int) -> None:
        what = f"opset {opset}: {[node.op_type for node in proto.graph.node]}"
        self.check(proto, what)
        again = import_foreign(codec.read(data))
        for inputs, answer in zip(self.test.inputs, self.answers, strict=True):
            self.test.assert_alike(answer, list(interpret(again, inputs).values()))
        if opset > oracles.RUNTIME_OPSET or self.is_random:
            return
        try:
            found = [oracles.run_onnxruntime(data, inputs) for inputs in self.test.inputs]
        except oracles.Silent:
            return
        except Exception as error:
            if self.of_the_source() is None:
                return
            raise AssertionError(f"{what}: onnxruntime: {error}") from error
        try:
            for answer, outputs in zip(self.answers, found, strict=True):
                self.test.assert_alike(answer, outputs)
        except AssertionError:
            # What matters is that the trip changes nothing.
            for answer, outputs in zip(self.of_the_source() or (), found, strict=True):
                self.test.assert_alike(answer, outputs)

    def of_the_source(self) -> list[list[Any]] | None:
        """Return onnxruntime's results of the original model; None where it does not run it."""
        try:
            return [oracles.run_onnxruntime(self.test.proto.SerializeToString(), inputs) for inputs in self.test.inputs]
        except Exception:
            return None

    def check(self, proto: onnx.ModelProto, what: str) -> None:
        try:
            onnx.checker.check_model(proto, full_check=True)
        except Exception as error:
            try:
                onnx.checker.check_model(self.test.proto, full_check=True)
            except Exception:
                onnx.checker.check_model(proto)
                return
            raise AssertionError(f"{what}: {error}") from error


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from every_node(body)
