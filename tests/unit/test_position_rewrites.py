"""OneHot, Hardmax and Softmax over several axes as native steps, and operators that are defined by a decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile, plan
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.detection.roi_align import RoiAlign
from dovetail.ops.nn.col2im import Col2Im
from dovetail.ops.nn.deform_conv import DeformConv
from dovetail.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax
from dovetail.ops.tensor.onehot_trilu_eye import EyeLike, OneHot
from kernel_runner import random

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")


def check_native(op: Any, *inputs: Any, constants: tuple[int, ...] = (), tolerance: float = 0.0) -> Any:
    """Run one operator natively, without an interpreted step, and compare it with the interpreter."""
    b = Builder(graph=Graph())
    feeds = {f"x{i}": array for i, array in enumerate(inputs) if i not in constants}
    values = [
        b.constant(array) if i in constants else b.input(f"x{i}", dtypes.dtype(array.dtype), array.shape)
        for i, array in enumerate(inputs)
    ]
    b.output("y", *b.add(op, *values))
    model = Model(b.graph)
    assert not plan(model, rounds=0).interpreted
    found, expected = (compile(model, engine=engine)(feeds)["y"] for engine in ("native", "interpreter"))
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return found


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("kind", ["int64", "int32", "float32", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_one_hot(axis: int, kind: str, negative: bool) -> None:
    indices = np.array([[0, 4, 5], [2, 1, 0]], kind)
    if kind not in ("uint8",):
        indices[1] = [-1, -5, -6]
    for on, off in ((np.float32(2.5), np.float32(-1)), (np.int64(7), np.int64(0)), (np.bool_(True), np.bool_(False))):
        y = check_native(OneHot(axis, negative), indices, np.array(5), np.array(on), np.array(off), constants=(1, 2, 3))
        table = np.where(np.arange(5) == np.where((indices < 0) & negative, indices + 5.0, indices)[..., None], on, off)
        np.testing.assert_array_equal(y, np.moveaxis(table, -1, axis))
    check_native(OneHot(axis), np.zeros((0, 3), kind), np.array(5), np.array(1), np.array(0), constants=(1, 2, 3))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_hardmax(axis: int, kind: str) -> None:
    x = random((3, 4, 5), kind)
    x[0, 1] = x[0, 0] = 9
    y = check_native(Hardmax(axis), x)
    np.testing.assert_array_equal(y.argmax(axis), x.argmax(axis))
    np.testing.assert_array_equal(y.sum(axis), 1)
    check_native(Hardmax(axis, coerce_to_2d=True), x)
    check_native(Hardmax(axis), np.zeros((2, 0, 3), kind)) if axis != 1 else None


@pytest.mark.parametrize("kind", [Softmax, LogSoftmax])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
def test_softmax_over_several_axes(axis: int, kind: Any) -> None:
    check_native(kind(axis, coerce_to_2d=True), random((2, 3, 4, 5)), tolerance=1e-6)


def test_operators_defined_by_a_decomposition() -> None:
    check_native(EyeLike(k=1), random((4, 6)))
    columns = random((1, 3 * 6, 8))
    check_native(Col2Im(), columns, np.array([5, 4]), np.array([2, 3]), constants=(1, 2), tolerance=1e-5)
    regions = np.array([[0, 0, 5, 6], [1.5, 2, 7, 7.5]], np.float32)
    align = RoiAlign(output_height=3, output_width=2, sampling_ratio=2)
    check_native(align, random((2, 3, 8, 9)), regions, np.array([1, 0]), tolerance=1e-5)
    arrays = random((1, 2, 6, 5)), random((4, 2, 3, 3)), random((1, 18, 4, 3)) / 9
    check_native(DeformConv(), *arrays, tolerance=1e-5)
