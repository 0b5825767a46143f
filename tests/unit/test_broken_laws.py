"""Laws that are broken on purpose: with each of them a false proof is found, whose certificate dovetail_check refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_check
from dovetail.laws import table
from dovetail.laws.law import Law
from dovetail.ops.elementwise import binary, logical
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Negative, Sqrt
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.resize import Resize
from dovetail.ops.reduction.argminmax import ArgMax
from dovetail.ops.reduction.reduce import ReduceMean, ReduceSum
from dovetail.ops.reduction.softmax import Softmax
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.transpose_expand_tile import Tile, Transpose

Rule = Callable[..., Any]
Expression = Callable[..., Any]
SQUARE = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype(np.float32)


def reversed_operands(b: Any, op: Any, xs: Any, types: Any) -> Any:
    return None if b.number_of(xs[0]) < b.number_of(xs[1]) else b.add(op, xs[1], xs[0])


def taken_input(b: Any, op: Any, xs: Any, types: Any) -> Any:
    return xs[0] if xs[0].type == types[0] else None


def with_attributes(**attributes: Any) -> Rule:
    def rule(b: Any, op: Any, xs: Any, types: Any) -> Any:
        new = op.with_(**attributes)
        return None if new == op else b.add(new, *xs)

    return rule


def with_operands(*places: int) -> Rule:
    def rule(b: Any, op: Any, xs: Any, types: Any) -> Any:
        ys = [xs[place] for place in places]
        return (
            None
            if all(x is y for x, y in zip(xs, ys, strict=True)) or b.number_of(ys[0]) < b.number_of(xs[0])
            else b.add(op, *ys)
        )

    return rule


def resize(b: Any, x: Any, mode: str) -> Any:
    scales = np.array([1, 1.3], np.float32)
    return b.Resize(x, None, scales, None, mode="linear", coordinate_transformation_mode=mode)


BROKEN: dict[str, tuple[Any, Rule, Expression, Expression]] = {
    "x - y = y - x": (binary.Subtract, reversed_operands, lambda b, x, y: x - y, lambda b, x, y: y - x),
    "x / y = y / x": (binary.Divide, reversed_operands, lambda b, x, y: x / y, lambda b, x, y: y / x),
    "x ** y = y ** x": (binary.Power, reversed_operands, lambda b, x, y: b.Power(x, y), lambda b, x, y: b.Power(y, x)),
    "x < y = y < x": (logical.Less, reversed_operands, lambda b, x, y: b.Less(x, y), lambda b, x, y: b.Less(y, x)),
    "x @ y = y @ x": (MatMul, reversed_operands, lambda b, x, y: b.MatMul(x, y), lambda b, x, y: b.MatMul(y, x)),
    "-x = x": (Negative, taken_input, lambda b, x, y: -x, lambda b, x, y: b.Identity(x)),
    "relu x = x": (Relu, taken_input, lambda b, x, y: b.Relu(x), lambda b, x, y: b.Identity(x)),
    "sqrt x = x": (Sqrt, taken_input, lambda b, x, y: b.Sqrt(x), lambda b, x, y: b.Identity(x)),
    "softmax x = x": (Softmax, taken_input, lambda b, x, y: b.Softmax(x), lambda b, x, y: b.Identity(x)),
    "transpose x = x": (Transpose, taken_input, lambda b, x, y: b.Transpose(x, [1, 0]), lambda b, x, y: b.Identity(x)),
    "clip x = x": (Clip, taken_input, lambda b, x, y: b.Clip(x, np.float32(0), np.float32(1)), lambda b, x, y: b.Identity(x)),
    "sum of an axis = of the other": (
        ReduceSum,
        lambda b, op, xs, types: None if xs[1].constant.tolist() == [0] else b.add(op, xs[0], np.array([0], np.int64)),
        lambda b, x, y: b.ReduceSum(b.MatMul(x, y), [1], keepdims=False),
        lambda b, x, y: b.ReduceSum(b.MatMul(x, y), [0], keepdims=False),
    ),
    "mean = sum": (
        ReduceMean,
        lambda b, op, xs, types: b.add(ReduceSum(keepdims=op.keepdims), *xs),
        lambda b, x, y: b.ReduceMean(x, [0]),
        lambda b, x, y: b.ReduceSum(x, [0]),
    ),
    "softmax of an axis = of the other": (
        Softmax, with_attributes(axis=0), lambda b, x, y: b.Softmax(x, axis=1), lambda b, x, y: b.Softmax(x, axis=0),
    ),
    "argmax of the first = of the last": (
        ArgMax,
        with_attributes(select_last_index=True),
        lambda b, x, y: b.ArgMax(x, axis=1),
        lambda b, x, y: b.ArgMax(x, axis=1, select_last_index=True),
    ),
    "argmax of an axis = of the other": (
        ArgMax,
        with_attributes(axis=0),
        lambda b, x, y: b.ArgMax(x, axis=1, keepdims=False),
        lambda b, x, y: b.ArgMax(x, axis=0, keepdims=False),
    ),
    "corners of a scaled length = of a whole length": (
        Resize,
        with_attributes(coordinate_transformation_mode="align_corners"),
        lambda b, x, y: resize(b, x, "align_corners_scaled"),
        lambda b, x, y: resize(b, x, "align_corners"),
    ),
    "a slice backwards changes nothing": (
        Slice, taken_input, lambda b, x, y: b.Slice(x, [-1], [-9], [0], [-1]), lambda b, x, y: b.Identity(x),
    ),
    "concat x y = concat y x": (
        Concat, reversed_operands, lambda b, x, y: b.Concat(x, y, axis=0), lambda b, x, y: b.Concat(y, x, axis=0),
    ),
    "a slice begins at 0": (
        Slice,
        lambda b, op, xs, types: b.add(op, xs[0], np.array([0]), np.array([2]), xs[3]) if xs[1].constant.any() else None,
        lambda b, x, y: b.Slice(x, [1], [3], [0]),
        lambda b, x, y: b.Slice(x, [0], [2], [0]),
    ),
    "parts of a split in another order": (
        Split,
        lambda b, op, xs, types: None if op.axis else [*reversed(b.add(op.with_(axis=-2), *xs))],
        lambda b, x, y: b.Concat(*b.Split(x, axis=0, outputs=2), axis=1),
        lambda b, x, y: b.Concat(*reversed(b.Split(x, axis=-2, outputs=2)), axis=1),
    ),
    "where c x y = where c y x": (
        logical.Where,
        with_operands(0, 2, 1),
        lambda b, x, y: b.Where(b.Less(x, y), x, y * 2.0),
        lambda b, x, y: b.Where(b.Less(x, y), y * 2.0, x),
    ),
    "gather of an index = of the next": (
        Gather,
        lambda b, op, xs, types: None if xs[1].constant.tolist() == [1] else b.add(op, xs[0], np.array([1], np.int64)),
        lambda b, x, y: b.Gather(x, np.array([0], np.int64), axis=0),
        lambda b, x, y: b.Gather(x, np.array([1], np.int64), axis=0),
    ),
    "a reshape is a transpose": (
        Reshape,
        lambda b, op, xs, types: b.add(Transpose(), xs[0], np.array([1, 0], np.int64)) if types[0].shape == (4, 4) else None,
        lambda b, x, y: b.Reshape(b.Relu(x), [4, 4]),
        lambda b, x, y: b.Transpose(b.Relu(x), [1, 0]),
    ),
    "padding at the other end": (
        Pad,
        lambda b, op, xs, types: None if not xs[1].constant[0] else b.add(op, xs[0], np.roll(xs[1].constant, 2)),
        lambda b, x, y: b.Pad(x, [1, 0, 0, 0]),
        lambda b, x, y: b.Pad(x, [0, 0, 1, 0]),
    ),
    "a tile is an expand": (
        Tile,
        lambda b, op, xs, types: b.Reshape(b.Expand(b.Unsqueeze(xs[0], [1]), [4, 2, 4]), [8, 4]),
        lambda b, x, y: b.Tile(x, [2, 1]),
        lambda b, x, y: b.Reshape(b.Expand(b.Unsqueeze(x, [1]), [4, 2, 4]), [8, 4]),
    ),
    "a cast to an integer changes nothing": (
        Cast,
        lambda b, op, xs, types: xs[0].node.input(0) if xs[0].node is not None and isinstance(xs[0].node.op, Cast) else None,
        lambda b, x, y: b.Cast(b.Cast(x, to="i32"), to="f32"),
        lambda b, x, y: b.Identity(x),
    ),
    "weights of a convolution are symmetric": (
        Conv,
        lambda b, op, xs, types: None if (xs[1].constant == SQUARE).all() else b.add(op, xs[0], SQUARE),
        lambda b, x, y: b.Conv(b.Unsqueeze(x, [0, 1]), SQUARE[:, :, ::-1].copy()),
        lambda b, x, y: b.Conv(b.Unsqueeze(x, [0, 1]), SQUARE),
    ),
}  # fmt: skip


EXACT = frozenset(
    (
        "x - y = y - x", "sum of an axis = of the other", "a slice begins at 0", "parts of a split in another order",
        "gather of an index = of the next", "a reshape is a transpose", "argmax of an axis = of the other",
        "a slice backwards changes nothing",
    )
)  # fmt: skip
"""Laws of operators of which no term over the real numbers is left."""


@pytest.mark.parametrize(
    ("name", "is_real"), [(name, is_real) for name in BROKEN for is_real in (False, True)[: 2 - (name in EXACT)]]
)
def test_a_certificate_of_a_broken_law_is_refused(
    name: str, is_real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, rule, *expressions = BROKEN[name]
    for file, expression in zip("ab", expressions, strict=True):
        with dovetail.Builder() as b:
            x, y = (b.input(each, "f32", (4, 4)) for each in "xy")
            result = expression(b, x, y)
            b.output("z", b.Add(b.Identity(result), y) if result.dtype == "f32" and result.shape == (4, 4) else result)
        dovetail.save(b.model, tmp_path / f"{file}.dt")
    check_refused(Law(rule, (kind,), over_reals="a broken law" if is_real else ""), tmp_path, monkeypatch)


def check_refused(broken: Law, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a.dt and b.dt are proved equal with the broken law, and that the checker refuses the certificate."""
    monkeypatch.setattr(table, "LAWS", (broken, *table.LAWS))
    monkeypatch.setattr(table, "_BY_KIND", {})
    proof = dovetail.prove(folder / "a.dt", folder / "b.dt", real=bool(broken.over_reals))
    assert proof.is_proved, proof
    with pytest.raises(dovetail_check.Refused):
        dovetail_check.check(folder / "a.dt", folder / "b.dt", proof.certificate())


def test_an_index_that_counts_from_another_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """where(i < 0, i + k, i) counts from the end for the size of the axis alone, and that size is open."""
    for file in "ab":
        with dovetail.Builder() as b:
            x, i, k = b.input("x", "f32", ("n", 3)), b.input("i", "i64", ("m",)), b.input("k", "i64", ())
            counted = b.Gather(x, b.Where(b.Less(i, 0), b.Add(i, k), i), axis=0, bounds="natural")
            b.output("z", counted if file == "a" else b.Gather(x, i, axis=0))
        dovetail.save(b.model, tmp_path / f"{file}.dt")

    def rule(b: Any, op: Any, xs: Any, types: Any) -> Any:
        node = xs[1].node
        is_counted = op.bounds == "natural" and node is not None and isinstance(node.op, logical.Where)
        return b.add(op.with_(bounds="error"), xs[0], node.input(2)) if is_counted else None

    check_refused(Law(rule, (Gather,)), tmp_path, monkeypatch)
