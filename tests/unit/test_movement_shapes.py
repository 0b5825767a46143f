"""Inference of the operators that move data, as precise as symbols allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from assertions import is_vague
from dovetail.engine import parametric_sizes
from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder

MOST, LEAST = 2**63 - 1, -(2**63)
Write = Callable[[Builder, Any, Any], Any]


def sizes(write: Write) -> str:
    """Return the sizes inferred from x: f32[n, 3] and z: f32[n, m], where n and m may be 0."""
    b = Builder()
    y = write(b, b.input("x", "f32", ("n", 3)), b.input("z", "f32", ("n", "m")))
    return "unknown" if y.shape is None else ", ".join(map(str, y.shape))


def first(b: Builder, z: Any) -> Any:
    return b.Gather(b.Shape(z), [0])


@pytest.mark.parametrize(
    ("write", "shape"),
    [
        (lambda b, x, z: b.Slice(x, [1], [MOST], [0]), "max(n - 1, 0), 3"),
        (lambda b, x, z: b.Slice(x, [0], [-1], [0]), "max(n - 1, 0), 3"),
        (lambda b, x, z: b.Slice(x, [-1], [MOST], [0]), "min(n, 1), 3"),
        (lambda b, x, z: b.Slice(x, [-1], [LEAST], [0], [-1]), "n, 3"),
        (lambda b, x, z: b.Slice(x, [0], [MOST], [0], [2]), "(n + 1)//2, 3"),
        (lambda b, x, z: b.Slice(x, [2], [5], [0]), "max(min(n, 5) - 2, 0), 3"),
        (lambda b, x, z: b.Slice(x, [0], first(b, z), [0]), "n, 3"),
        (lambda b, x, z: b.Slice(x, b.Divide(first(b, z), 2), [MOST], [0]), "n - n//2, 3"),
        (lambda b, x, z: b.Slice(x, np.array([1], np.int32), np.array([2**31 - 1], np.int32), [0]), "max(n - 1, 0), 3"),
        (lambda b, x, z: b.Pad(x, [1, 0, 2, 0]), "n + 3, 3"),
        (lambda b, x, z: b.Pad(x, [-1, 0, 0, 0]), "max(n - 1, 0), 3"),
        (lambda b, x, z: b.Pad(x, b.Concat([0, 0], first(b, z), [0], axis=0)), "2*n, 3"),
        (lambda b, x, z: b.Tile(x, b.Concat(first(b, z), [1], axis=0)), "n**2, 3"),
        (lambda b, x, z: b.Expand(b.Slice(x, [0], [1], [1]), b.Shape(z)), "n, m"),
        (lambda b, x, z: b.Expand(x, [5, 1, 1]), "5, n, 3"),
        (lambda b, x, z: b.Squeeze(x), "unknown"),
        (lambda b, x, z: b.Squeeze(z, [0]), "m"),
        (lambda b, x, z: b.Unsqueeze(x, [0, -1]), "1, n, 3, 1"),
        (lambda b, x, z: b.Flatten(b.Unsqueeze(z, [1]), axis=2), "n, m"),
        (lambda b, x, z: b.ConstantOfShape(b.Shape(z), np.float32(1)), "n, m"),
        (lambda b, x, z: b.Range(b.constant(0), b.Gather(b.Shape(z), np.array(0)), b.constant(2)), "(n + 1)//2"),
        (lambda b, x, z: b.Reshape(z, b.Concat(first(b, z), [-1], axis=0)), "n, m"),
        (lambda b, x, z: b.Expand(np.float32(0), b.ScatterND(b.Shape(z), [[0]], [7])), "7, m"),
        (lambda b, x, z: b.Expand(np.float32(0), b.ScatterElements(b.Shape(z), [-1], [9])), "n, 9"),
        (lambda b, x, z: b.Expand(np.float32(0), b.Reshape(b.Size(z), [1])), "m*n"),
        (lambda b, x, z: b.Expand(np.float32(0), b.Shape(z, start=1)), "m"),
    ],
)
def test_sizes_follow_the_symbols(write: Write, shape: str) -> None:
    assert sizes(write) == shape


@pytest.mark.parametrize(
    ("write", "shape"),
    [
        (lambda b, x, v: b.Transpose(x, v), "?, ?"),
        (lambda b, x, v: b.Expand(x, v), "unknown"),
        (lambda b, x, v: b.apply("Expand", x, v, bidirectional=False), "?, ?"),
        (lambda b, x, v: b.apply("Expand", x, [3, 4], bidirectional=False), "3, 4"),
        (lambda b, x, v: b.Tile(x, v), "?, ?"),
        (lambda b, x, v: b.apply("Tile", x, v, extend=True), "unknown"),
        (lambda b, x, v: b.Reshape(x, v), "?, ?"),
        (lambda b, x, v: b.ConstantOfShape(v, np.float32(0)), "?, ?"),
        (lambda b, x, v: b.Expand(b.input("z", "f32", (3, 1)), v), "3, ?"),
        (lambda b, x, v: b.Expand(b.input("z", "f32", (3, "n", 4)), v), "3, ?, 4"),
        (lambda b, x, v: b.Expand(b.input("z", "f32", (3,)), b.input("w", "i64", ("m",))), "unknown"),
        (
            lambda b, x, v: b.apply("Expand", b.input("z", "f32", (1,)), b.input("w", "i64", ("m",)), bidirectional=False),
            "unknown",
        ),
        (lambda b, x, v: b.Tile(b.input("z", "f32", (3, 1)), b.input("w", "i64", ("m",))), "?, ?"),
        (lambda b, x, v: b.apply("Tile", b.input("z", "f32", (3, 1)), b.input("w", "i64", ("m",)), extend=True), "unknown"),
        (lambda b, x, v: b.apply("Tile", b.input("z", "f32", (3, 1, 1)), v, extend=True), "3, ?, ?"),
        (lambda b, x, v: b.Slice(b.input("z", "f32", (3, 1)), v, v, v), "?, ?"),
        (lambda b, x, v: b.Slice(b.input("z", "f32", (3, 4)), [0], b.input("w", "i64", (1,)), [1]), "3, ?"),
        (lambda b, x, v: b.Pad(b.input("z", "f32", (3, 4)), b.input("w", "i64", (2,)), None, [1]), "3, ?"),
        (lambda b, x, v: b.Unsqueeze(b.input("z", "f32", (3, 4)), v), "?, ?, ?, ?"),
        (lambda b, x, v: b.Squeeze(b.input("z", "f32", (1, 3, 1)), v), "?"),
    ],
)
def test_the_rank_and_fixed_sizes_are_inferred_without_elements(write: Write, shape: str) -> None:
    b = Builder()
    y = write(b, b.input("x", "f32"), b.input("v", "i64", (2,)))
    found = "unknown" if y.shape is None else ", ".join("?" if is_vague(size) else str(size) for size in y.shape)
    assert found == shape


def test_a_size_that_is_at_least_1_needs_no_clamping() -> None:
    b = Builder()
    x = b.input("x", "f32", (symbolic.symbol("p", 1),))
    assert str(b.Slice(x, [1], [MOST], [0]).type) == "f32[p - 1]"
    assert str(b.Slice(x, [-1], [MOST], [0]).type) == "f32[1]"


@pytest.mark.parametrize(
    ("write", "code"),
    [
        (lambda b, x, z: b.Slice(x, [0], [1], [0], [0]), "attribute.range"),
        (lambda b, x, z: b.Slice(x, [0, 0], [1, 1], [0, -2]), "axis.repeated"),
        (lambda b, x, z: b.Slice(x, [0, 0], [1], [0, 1]), "attribute.length"),
        (lambda b, x, z: b.Slice(x, [0, 0, 0], [1, 1, 1]), "attribute.length"),
        (lambda b, x, z: b.Slice(x, [0], [1], [2]), "axis.range"),
        (lambda b, x, z: b.Squeeze(x, [1]), "shape.disagree"),
        (lambda b, x, z: b.Unsqueeze(x, [0, 0]), "axis.repeated"),
        (lambda b, x, z: b.Unsqueeze(x, [3]), "axis.range"),
        (lambda b, x, z: b.Transpose(x, [0, 0]), "axis.repeated"),
        (lambda b, x, z: b.Transpose(x, [0]), "axis.repeated"),
        (lambda b, x, z: b.Expand(x, [2, 2]), "shape.broadcast"),
        (lambda b, x, z: b.apply("Expand", x, [3, 1], bidirectional=False), "shape.broadcast"),
        (lambda b, x, z: b.Expand(x, [-1, 3]), "shape.range"),
        (lambda b, x, z: b.Tile(x, [1]), "attribute.length"),
        (lambda b, x, z: b.Tile(x, [1, -1]), "attribute.range"),
        (lambda b, x, z: b.Pad(x, [1, 1]), "attribute.length"),
        (lambda b, x, z: b.Pad(b.Slice(x, [0], [0], [1]), [0, 1, 0, 0], mode="edge"), "shape.empty"),
        (lambda b, x, z: b.Pad(x, [0, 0, 0, 0], mode="mirror"), "attribute.value"),
        (lambda b, x, z: b.Gather(x, [3], axis=1), "index.range"),
        (lambda b, x, z: b.Gather(x, [-4], axis=1), "index.range"),
        (lambda b, x, z: b.Gather(x, [-1], axis=1, bounds="natural"), "index.range"),
        (lambda b, x, z: b.Gather(x, [0], axis=2), "axis.range"),
        (lambda b, x, z: b.Gather(x, [0], axis=0, batch_dims=1), "attribute.range"),
        (lambda b, x, z: b.GatherND(x, [[0, 0, 0]]), "index.range"),
        (lambda b, x, z: b.GatherElements(x, [[0, 1, 2, 0]], axis=0), "shape.disagree"),
        (lambda b, x, z: b.Range(b.constant(0), b.constant(1), b.constant(0)), "attribute.range"),
        (lambda b, x, z: b.ConstantOfShape([-1], np.float32(0)), "shape.range"),
        (lambda b, x, z: b.DepthToSpace(b.Reshape(x, [1, 3, -1, 1]), blocksize=2), "shape.multiple"),
        (lambda b, x, z: b.ShuffleChannels(x, group=2), "shape.multiple"),
        (lambda b, x, z: b.Roll(x, [1, 2, 3], [0, 1]), "attribute.length"),
    ],
)
def test_invalid_operands_are_refused(write: Write, code: str) -> None:
    with pytest.raises(RuleError) as caught:
        sizes(write)
    assert caught.value.code == code


def test_a_truth_value_among_shape_values_does_not_move() -> None:
    assert parametric_sizes.is_polynomial(np.True_, {"n": parametric_sizes.SizeRange(2, 9, 1)}, {}, {})


def test_a_slice_from_minus_the_size_is_the_axis() -> None:
    with dovetail.Builder("tail") as b:
        x = b.input("x", "f32", (2, "n"))
        size = b.Slice(b.Shape(x), [1], [2], [0], [1])
        y = b.output("y", b.Slice(x, b.Negative(size), [2**63 - 1], [1], [1]))
    assert str(y.type) == "f32[2, n]"
    for n in (0, 1, 3):
        assert dovetail.interpret(b.model, {"x": np.ones((2, n), np.float32)})["y"].shape == (2, n)


@pytest.mark.parametrize(("less", "divisor", "size"), [(1, 4, "max(n - 1, 0)//4"), (0, 2, "n//2"), (4, 5, "max(n - 4, 0)//5")])
def test_a_quotient_toward_zero_is_a_size(less: int, divisor: int, size: str) -> None:
    with dovetail.Builder("quotient") as b:
        length = b.Gather(b.Shape(b.input("x", "f32", ("n",))), b.constant(0), axis=0)
        quotient = b.Divide(b.Subtract(length, b.constant(less)), b.constant(divisor))
        y = b.output("y", b.Expand(b.constant(np.float32(1)), b.Unsqueeze(quotient, [0])))
    assert str(y.type) == f"f32[{size}]"
    for n in range(12):
        found = dovetail.interpret(b.model, {"x": np.zeros(n, np.float32)})["y"]
        assert found.shape == (symbolic.evaluate(y.dims[0], {"n": n}),)
