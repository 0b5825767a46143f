"""Tensors of no elements: both engines give the same, or refuse with the same code. No rule lets a Python error through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from case_laws import hold, law
from case_runner import at_most, feeds, model_of
from cases import Case
from dovetail.errors import DovetailError
from dovetail.ir.host import native_core
from dovetail.ir.op import host_inputs

MOST = 6
"""The most cases of an operator; they differ in attributes and types rather than in what an empty axis does."""


def emptied(case: Case) -> Iterator[tuple[Any, ...]]:
    """Yield the inputs with all axes of one size empty, and with one axis of one input empty."""
    hosts = host_inputs(case.op, len(case.inputs))
    free = [
        place
        for place, x in enumerate(case.inputs)
        if isinstance(x, np.ndarray) and not hosts[place] and place not in case.constants
    ]
    seen = set()
    for place in free:
        shape = case.inputs[place].shape
        ways = [
            {(other, axis) for other in free for axis, each in enumerate(case.inputs[other].shape) if each == size}
            for size in shape
        ]
        for cut in (*ways, *({(place, axis)} for axis in range(len(shape)))):
            inputs = tuple(
                x[tuple(slice(0) if (other, axis) in cut else slice(None) for axis in range(x.ndim))] if other in free else x
                for other, x in enumerate(case.inputs)
            )
            key = tuple(getattr(x, "shape", None) for x in inputs)
            if key not in seen:
                seen.add(key)
                yield inputs


def outcome(model: dovetail.Model, given: dict[str, Any], engine: str) -> Any:
    try:
        return dovetail.run(model, given, engine)
    except DovetailError as error:
        return error.code


def assert_alike(first: Any, second: Any) -> None:
    if isinstance(first, list):
        assert isinstance(second, list) and len(first) == len(second)
        for pair in zip(first, second, strict=True):
            assert_alike(*pair)
    elif first is None:
        assert second is None
    else:
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        if first.dtype.kind in "OUS" or not first.size:
            assert first.tolist() == second.tolist()
        else:
            wide = np.complex128 if first.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(first.astype(wide), second.astype(wide), rtol=1e-4, atol=1e-5)


@law(at_most(MOST))
def check_empty_tensors(case: Case) -> None:
    for inputs in emptied(case):
        empty = replace(case, inputs=inputs)
        try:
            model = model_of(empty)
        except DovetailError as error:
            assert error.code != "op.failed", error
            continue
        given = feeds(empty)
        first = outcome(model, given, "interpreter")
        second = outcome(model, given, "native") if native_core.is_compiled else first
        assert not {"run.failed", "op.failed"} & {x for x in (first, second) if isinstance(x, str)}, "a Python error of a rule"
        if isinstance(first, str) or isinstance(second, str):
            assert first == second, [getattr(x, "shape", None) for x in inputs]
        else:
            assert list(first.keys()) == list(second.keys())
            for name, y in first.items():
                assert_alike(y, second[name])


test_case = hold(check_empty_tensors)


def test_pools_of_nothing() -> None:
    """As ReduceMax; an automatic padding keeps an axis of nothing, as onnx.reference does."""
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (2, 3, 0, 5))
        b.output("greatest", b.GlobalMaxPool(x))
        b.output("average", b.AveragePool(x, kernel_shape=(2, 2), auto_pad="same_lower"))
        b.output("convolved", b.ConvTranspose(x, np.ones((3, 4, 3, 3), np.float32), auto_pad="same_upper", strides=(2, 2)))
    for engine in ("interpreter", "native"):
        found = dovetail.run(b.model, {"x": np.zeros((2, 3, 0, 5), np.float32)}, engine)
        np.testing.assert_array_equal(found["greatest"], np.full((2, 3, 1, 1), -np.inf, np.float32))
        assert found["average"].shape == (2, 3, 0, 5) and found["convolved"].shape == (2, 4, 0, 10)


def test_a_scale_does_not_broadcast_the_normalized_input() -> None:
    for kind in ("LayerNormalization", "RMSNormalization"):
        with dovetail.Builder() as b:
            with pytest.raises(DovetailError, match=r"shape\.broadcast"):
                getattr(b, kind)(b.input("x", "f32", (1, 1, 1)), b.input("wide", "f32", (2, 3, 5)))
            b.output("y", getattr(b, kind)(b.input("open", "f32", ("n", "m")), b.input("scale", "f32", ("k",))))
        for engine in ("interpreter", "native"):
            with pytest.raises(DovetailError, match=r"shape\.broadcast"):
                dovetail.run(
                    b.model, {**_nothing(b), "open": np.ones((2, 1), np.float32), "scale": np.ones(3, np.float32)}, engine
                )


def _nothing(b: dovetail.Builder) -> dict[str, Any]:
    return {
        value.name: np.zeros(value.dims, np.float32)  # type: ignore[arg-type]
        for value in b.model.inputs
        if value.name in ("x", "wide")
    }


UNUSED = """<ir_version: 8, opset_import: ["": 18]> agraph (float[n] x, int64[k] shape) => (float[n] y) {
    unused = Reshape (x, shape)
    more = Relu (unused)
    y = Neg (x) }"""


def test_a_node_that_no_output_needs_is_not_run(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(UNUSED), tmp_path / "a.onnx")
    x = np.arange(3, dtype=np.float32)
    for engine in ("interpreter", "native"):
        y = dovetail.run(tmp_path / "a.onnx", {"x": x, "shape": np.array([2, 5])}, engine)["y"]
        np.testing.assert_array_equal(y, -x)


def test_a_static_fault_of_a_node_that_no_output_needs_is_reported(tmp_path: Path) -> None:
    wrong = UNUSED.replace("(float[n] x, int64[k] shape)", "(float[n] x)").replace(
        "unused =", "shape = Constant <value_ints = [-1, -1]> () unused ="
    )
    onnx.save(onnx.parser.parse_model(wrong), tmp_path / "a.onnx")
    assert [item.code for item in dovetail.check(tmp_path / "a.onnx")] == ["reshape.target"]
    with pytest.raises(DovetailError, match=r"reshape\.target"):
        dovetail.load(tmp_path / "a.onnx", strict=True)
