"""Every law has a proof of its own: dovetail_check, to which no law is known, accepts a certificate whose proof applies the law.

Sizes of axes are open where the law allows it, so that the two sides are equal for all sizes. Together with the laws that are
broken on purpose (test_broken_laws.py) this says that the checker tells right laws from wrong ones.
"""

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

Expression = Callable[..., Any]
ROW = np.float32([1, 2, 3])
MATRIX = np.float32(np.arange(1, 10).reshape(3, 3))
KERNEL = np.float32(np.arange(1, 17).reshape(2, 2, 2, 2))


def name_of(law: Law) -> str:
    """Return the name of the function of a law; operators follow where several laws have functions of that name."""
    name = law.rewrite.__qualname__.partition(".")[0]
    same = {other.rewrite for other in table.LAWS if other.rewrite.__qualname__.partition(".")[0] == name}
    return name if len(same) == 1 or callable(law.kinds) else f"{name} {' '.join(kind.__name__ for kind in law.kinds)}"


LAWS = {name_of(law): law for law in table.LAWS if law.is_of_terms}


def image(b: Any, x: Any) -> Any:
    """Return x, of 3 columns, as a batch of images of 2 channels with 3 rows and 3 columns."""
    return b.Expand(b.Unsqueeze(x, [1, 2]), [1, 2, 3, 1])


def outer(b: Any, x: Any, y: Any) -> Any:
    """Return the product of each element of a row of x and each element of that row of y."""
    return b.Unsqueeze(x, [2]) * b.Unsqueeze(y, [1])


PAIRS: dict[str, tuple[Expression, Expression]] = {
    "add_bias_after": (
        lambda b, x, y: b.Conv(image(b, x), KERNEL, ROW[:2]),
        lambda b, x, y: b.Conv(image(b, x), KERNEL) + ROW[:2].reshape(2, 1, 1),
    ),
    "decompose": (
        lambda b, x, y: b.LayerNormalization(x, ROW, ROW, axis=-1),
        lambda b, x, y: b.MeanVarianceNormalization(x, [-1], eps=9.999999747378752e-06) * ROW + ROW,
    ),
    "scale_weights_before": (
        lambda b, x, y: b.MatMul(x * 3, MATRIX), lambda b, x, y: b.MatMul(x, MATRIX * np.float32(3)),
    ),
    "write_clip_as_extrema": (
        lambda b, x, y: b.Clip(x, np.float32(-1), np.float32(1)) + y,
        lambda b, x, y: b.Minimum(b.Maximum(x, np.float32(-1)), np.float32(1)) + y,
    ),
    "write_quotient": (lambda b, x, y: x / y, lambda b, x, y: x * (1 / y)),
    "write_negative": (lambda b, x, y: b.Negative(x) * y, lambda b, x, y: x * y * -1),
    "move_transpose": (
        lambda b, x, y: b.Transpose(b.ReduceSum(b.Transpose(x, [1, 0]), [0]), [1, 0]) * y,
        lambda b, x, y: b.ReduceSum(x, [1]) * y,
    ),
    "slice_product": (lambda b, x, y: b.MatMul(x, MATRIX)[1:], lambda b, x, y: b.MatMul(x[1:], MATRIX)),
    "slice_reduction": (lambda b, x, y: b.ReduceSum(x, [1])[1:], lambda b, x, y: b.ReduceSum(x[1:], [1])),
    "write_power": (lambda b, x, y: b.Power(x, 2.0) + y, lambda b, x, y: x * x + y),
    "write_reciprocal": (lambda b, x, y: b.Reciprocal(x * y), lambda b, x, y: b.Reciprocal(y) * b.Reciprocal(x)),
    "write_difference": (
        lambda b, x, y: b.MeanVarianceNormalization(x, [-1], normalize_variance=False) + y,
        lambda b, x, y: x + y - b.ReduceMean(x, [-1]),
    ),
    "take_input": (lambda b, x, y: b.Identity(x) + y, lambda b, x, y: b.Add(x, y)),
    "drop_dropout": (lambda b, x, y: b.Dropout(x, np.float32(0.5)) + y, lambda b, x, y: x + y),
    "take_only_operand": (lambda b, x, y: b.Maximum(b.Concat(x, axis=0)) + y, lambda b, x, y: x + y),
    "take_only_part": (lambda b, x, y: b.Split(x, axis=1, outputs=1)[0] + y, lambda b, x, y: x + y),
    "drop_same_shape": (lambda b, x, y: b.Reshape(x, [-1, 3]) + y, lambda b, x, y: x + y),
    "drop_whole_slice": (lambda b, x, y: b.Slice(x, [0], [3], [1]) + y, lambda b, x, y: x + y),
    "drop_tile_of_ones": (lambda b, x, y: b.Tile(x, [1, 1]) + y, lambda b, x, y: x + y),
    "drop_empty_pad": (lambda b, x, y: b.Pad(x, [0, 0, 0, 0]) + y, lambda b, x, y: x + y),
    "drop_sorted_transpose": (lambda b, x, y: b.Transpose(x, [0, 1]) + y, lambda b, x, y: x + y),
    "drop_cast": (lambda b, x, y: b.Cast(b.Cast(x, to="f64"), to="f32") + y, lambda b, x, y: x + y),
    "write_cast": (
        lambda b, x, y: b.CastLike(x, b.Cast(y, to="f64")), lambda b, x, y: b.Cast(x, to="f64"),
    ),
    "merge_transposes": (lambda b, x, y: b.Transpose(b.Transpose(x, [1, 0]), [1, 0]) + y, lambda b, x, y: x + y),
    "merge_concats": (
        lambda b, x, y: b.Concat(b.Concat(x, y, axis=1), x, axis=1), lambda b, x, y: b.Concat(x, y, x, axis=-1),
    ),
    "merge_adjacent_slices": (
        lambda b, x, y: b.Concat(b.Exp(y), *b.Split(y, [1, 2], axis=1, outputs=2), b.Relu(y[:, 1:]), axis=1),
        lambda b, x, y: b.Concat(b.Exp(y), y, b.Relu(y[:, 1:]), axis=1),
    ),
    "expand_constant": (lambda b, x, y: b.ConstantOfShape(b.Shape(x), np.float32(2)) * y, lambda b, x, y: y * 2),
    "write_expand": (lambda b, x, y: b.Expand(x[:, :1], [1, 3]) * y, lambda b, x, y: x[:, :1] * y),
    "write_pad": (lambda b, x, y: b.Pad(x, [1, 2], np.float32(0), [1]), lambda b, x, y: b.Pad(x, [0, 1, 0, 2])),
    "write_reshape": (
        lambda b, x, y: b.Reshape(b.Reshape(x, [-1]), [-1, 1, 3]), lambda b, x, y: b.Unsqueeze(x, [1]),
    ),
    "write_tile_as_expand": (lambda b, x, y: b.Tile(x[:, :1], [1, 3]), lambda b, x, y: b.Expand(x[:, :1], [1, 3])),
    "write_transpose": (
        lambda b, x, y: b.Transpose(b.Unsqueeze(x, [0]), [1, 0, 2]), lambda b, x, y: b.Unsqueeze(x, [1]),
    ),
    "move_slice": (lambda b, x, y: b.Concat(x, y, axis=1)[:, 3:], lambda b, x, y: b.Identity(y)),
    "write_gather_as_slice": (lambda b, x, y: b.Gather(x, 1, axis=1), lambda b, x, y: b.Squeeze(x[:, 1:2], [1])),
    "write_slice_by_lengths": (lambda b, x, y: x[:, -2:], lambda b, x, y: x[:, 1:]),
    "write_split_as_slices": (lambda b, x, y: b.Split(x, [1, 2], axis=1, outputs=2)[1], lambda b, x, y: x[:, 1:]),
    "move_behind_unary": (lambda b, x, y: b.Relu(b.Transpose(x, [1, 0])), lambda b, x, y: b.Transpose(b.Relu(x), [1, 0])),
    "drop_axes_of_one": (
        lambda b, x, y: b.Add(b.Unsqueeze(x, [0]), b.Unsqueeze(y, [0])), lambda b, x, y: b.Unsqueeze(x + y, [0]),
    ),
    "move_behind_operands": (
        lambda b, x, y: b.Transpose(x, [1, 0]) + b.Transpose(y, [1, 0]), lambda b, x, y: b.Transpose(x + y, [1, 0]),
    ),
    "move_behind_trailing": (
        lambda b, x, y: b.Reshape(outer(b, x, y), [-1, 3]) + ROW, lambda b, x, y: b.Reshape(outer(b, x, y) + ROW, [-1, 3]),
    ),
    "group_rows": (
        lambda b, x, y: b.Reshape(b.MatMul(b.Reshape(outer(b, x, y), [-1, 3]), MATRIX), [-1, 3, 3]),
        lambda b, x, y: b.MatMul(outer(b, x, y), MATRIX),
    ),
    "move_factor": (
        lambda b, x, y: b.MatMul(x, b.Transpose(y, [1, 0])) * 3, lambda b, x, y: b.MatMul(x * 3, b.Transpose(y, [1, 0])),
    ),
    "move_magnitude": (
        lambda b, x, y: b.MatMul(x, b.Transpose(y * 3, [1, 0])), lambda b, x, y: b.MatMul(x * 3, b.Transpose(y, [1, 0])),
    ),
    "move_magnitudes": (
        lambda b, x, y: (b.MatMul(x, MATRIX) + ROW) * (b.Erf(y) * 0.5 + 0.5),
        lambda b, x, y: (b.MatMul(x, MATRIX * np.float32(0.5)) + ROW * np.float32(0.5)) * (b.Erf(y) + 1),
    ),
    "drop_axes_beside_axis": (
        lambda b, x, y: b.Softmax(b.Unsqueeze(x, [0]), axis=-1), lambda b, x, y: b.Unsqueeze(b.Softmax(x, axis=-1), [0]),
    ),
    "drop_counting": (
        lambda b, x, y: b.Gather(x, negative(b, y), axis=1, bounds="natural"),
        lambda b, x, y: b.Gather(x, b.Cast(y, to="i64"), axis=1),
    ),
    "drop_axes_of_gather": (
        lambda b, x, y: b.Gather(b.Unsqueeze(x, [2]), b.Unsqueeze(b.Cast(y, to="i64"), [0]), axis=1),
        lambda b, x, y: b.Unsqueeze(b.Gather(x, b.Cast(y, to="i64"), axis=1), [1, 4]),
    ),
    "drop_wider_indices": (
        lambda b, x, y: b.Gather(x, b.Cast(b.Cast(y, to="i32"), to="i64"), axis=1),
        lambda b, x, y: b.Gather(x, b.Cast(y, to="i32"), axis=1),
    ),
    "write_any_bounds": (
        lambda b, x, y: b.Gather(x, b.Cast(y, to="i64"), axis=1),
        lambda b, x, y: b.Gather(x, b.Cast(y, to="i64"), axis=1, bounds="zero"),
    ),
    "drop_batch_axes": (
        lambda b, x, y: b.MatMul(b.Unsqueeze(x, [0]), b.Unsqueeze(b.Transpose(y, [1, 0]), [0])),
        lambda b, x, y: b.Unsqueeze(b.MatMul(x, b.Transpose(y, [1, 0])), [0]),
    ),
    "drop_neutral": (lambda b, x, y: x * 1 + y, lambda b, x, y: x + y),
    "cancel_inverse": (lambda b, x, y: b.Negative(b.Negative(x)) + y, lambda b, x, y: x + y),
    "drop_repetition": (lambda b, x, y: b.Relu(b.Relu(x)), lambda b, x, y: b.Relu(x)),
    "take_chosen_operand": (lambda b, x, y: b.Where(np.array(True), x, y), lambda b, x, y: b.Identity(x)),
    "write_absorbing": (
        lambda b, x, y: b.And(b.Less(x, y), np.array(False)),
        lambda b, x, y: b.Expand(np.array([[False]]), b.Shape(x)),
    ),
    "choose_by_negation": (
        lambda b, x, y: b.Where(b.Expand(b.Not(b.Less(x, y)), [2, 1, 3]), x, y),
        lambda b, x, y: b.Where(b.Expand(b.Less(x, y), [2, 1, 3]), y, x),
    ),
    **{
        f"write_logical Bitwise{name}": (
            lambda b, x, y, name=name: getattr(b, f"Bitwise{name}")(b.Less(x, y), b.Equal(x, y)),
            lambda b, x, y, name=name: getattr(b, name)(b.Less(x, y), b.Equal(x, y)),
        )
        for name in ("And", "Or", "Xor")
    },
    "write_logical BitwiseNot": (lambda b, x, y: b.BitwiseNot(b.Less(x, y)), lambda b, x, y: b.Not(b.Less(x, y))),
    "write_both_bounds": (
        lambda b, x, y: b.Clip(x, np.float32(0)), lambda b, x, y: b.Clip(x, np.float32(0), np.finfo(np.float32).max),
    ),
    "divide_by_power_of_two": (lambda b, x, y: x / 4, lambda b, x, y: x * 0.25),
    "compare_with_itself": (lambda b, x, y: b.Equal(x, x), lambda b, x, y: b.Not(b.IsNaN(x))),
    "decompose_gemm": (lambda b, x, y: b.Gemm(x, MATRIX, ROW), lambda b, x, y: b.MatMul(x, MATRIX) + ROW),
    "mirror_comparison Greater": (lambda b, x, y: b.Greater(x, y), lambda b, x, y: b.Less(y, x)),
    "mirror_comparison GreaterEqual": (lambda b, x, y: b.GreaterEqual(x, y), lambda b, x, y: b.LessEqual(y, x)),
    "write_chain": (
        lambda b, x, y: b.Maximum(x, y, b.Relu(x)), lambda b, x, y: b.Maximum(b.Maximum(x, y), b.Relu(x)),
    ),
    "write_not_equal": (lambda b, x, y: b.NotEqual(x, y), lambda b, x, y: b.Not(b.Equal(y, x))),
    "write_squared_difference": (lambda b, x, y: b.SquaredDifference(x, y), lambda b, x, y: (x - y) * (x - y)),
    "subtract_as_add": (lambda b, x, y: x - y, lambda b, x, y: x + b.Negative(y)),
    "negate": (
        lambda b, x, y: b.Cast(x, to="i32") * np.int32(-1), lambda b, x, y: b.Negative(b.Cast(x, to="i32")),
    ),
    "write_sum": (lambda b, x, y: b.Sum(x, y), lambda b, x, y: y + x),
    "broadcast_operands": (lambda b, x, y: x + np.float32([[2, 2, 2]]), lambda b, x, y: x + np.float32(2)),
    "order_chain Add": (lambda b, x, y: (x + y) + 1, lambda b, x, y: x + (y + 1)),
    "scale_weights": (lambda b, x, y: b.MatMul(x, MATRIX) * ROW, lambda b, x, y: b.MatMul(x, MATRIX * ROW)),
    "distribute": (lambda b, x, y: (x + y) * 3, lambda b, x, y: x * 3 + y * 3),
    "order_integers Add": (
        lambda b, x, y: (b.Cast(x, to="i32") + 2) + (b.Cast(y, to="i32") - 3),
        lambda b, x, y: (b.Cast(x, to="i32") - 1) + b.Cast(y, to="i32"),
    ),
    "order_integers Multiply": (
        lambda b, x, y: (b.Cast(x, to="i32") * 2) * (b.Cast(y, to="i32") * 3),
        lambda b, x, y: b.Cast(x, to="i32") * (b.Cast(y, to="i32") * 6),
    ),
    "order_chain Multiply": (lambda b, x, y: (x * y) * b.Relu(x), lambda b, x, y: x * (y * b.Relu(x))),
    "order_operands": (lambda b, x, y: x + y, lambda b, x, y: y + x),
    "split_max_pool": (
        lambda b, x, y: b.MaxPool(image(b, x), kernel_shape=(2, 2)),
        lambda b, x, y: b.MaxPool(image(b, x), kernel_shape=(2, 2), storage_order=1, outputs=2)[0],
    ),
    "write_top_k": (
        lambda b, x, y: b.TopK(x, 2, axis=1)[0], lambda b, x, y: b.TopK(x, 2, axis=1, index_element_type="i32")[0],
    ),
    "drop_limits": (
        lambda b, x, y: boxes(b, x), lambda b, x, y: boxes(b, x, np.float32(0), np.float32(-np.inf)),
    ),
    "write_exclusive": (
        lambda b, x, y: boxes(b, x, np.float32(0.5)),
        lambda b, x, y: boxes(b, x, np.nextafter(np.float32(0.5), np.float32(1)), inclusive=True, outputs=3)[0],
    ),
    "write_all_outputs": (
        lambda b, x, y: layer(b, b.Unsqueeze(x, [1]), 1)[0] + np.float32(1),
        lambda b, x, y: layer(b, b.Unsqueeze(x, [1]), 3)[0] + np.float32(1),
    ),
    "write_one_form": (
        lambda b, x, y: layer(b, b.Unsqueeze(x, [1]), 1)[0],
        lambda b, x, y: layer(b, b.Unsqueeze(x, [1]), 1, weights_format="fico")[0],
    ),
    "write_reduction": (
        lambda b, x, y: b.ReduceMax(x, [1], keepdims=False), lambda b, x, y: b.Squeeze(b.ReduceMax(x, [-1]), [1]),
    ),
    "keep_axes": (
        lambda b, x, y: b.ArgMax(x, axis=1, keepdims=False), lambda b, x, y: b.Squeeze(b.ArgMax(x, axis=1), [1]),
    ),
}  # fmt: skip


def boxes(b: Any, x: Any, *limits: Any, **attributes: Any) -> Any:
    corners = b.Unsqueeze(b.Concat(x, x[:, :1] + 2, axis=1), [0])
    return b.NonMaxSuppression(corners, b.Unsqueeze(b.Transpose(x[:, :1], [1, 0]), [0]), np.int64(5), *limits, **attributes)


def layer(b: Any, x: Any, outputs: int, weights_format: str = "iofc") -> Any:
    gates = ["iofc".index(gate) for gate in weights_format]
    weights = (np.arange(8 * size, dtype=np.float32).reshape(4, 2, size)[gates].reshape(1, 8, size) / 50 for size in (3, 2))
    found = b.LSTM(x, *weights, hidden_size=2, outputs=outputs, weights_format=weights_format)
    return found if isinstance(found, list | tuple) else [found]


def negative(b: Any, y: Any) -> Any:
    indices = b.Cast(y, to="i64")
    return b.Where(b.Less(indices, 0), indices + 3, indices)


GAPS = {
    "drop_nan_test": "the checker does not assume that a Softmax is a number",
    "drop_same_resize": "the checker does not define Resize",
    "inline_known_branch": "certificates of models with If have no steps",
    "write_extremum": "the checker does not define the elements of TopK",
    "write_flat_index": "the checker does not define GatherND",
}
"""Laws without a proof of their own, and why."""


def test_every_law_has_a_proof_or_is_named() -> None:
    assert PAIRS.keys() | GAPS.keys() == LAWS.keys()
    assert not PAIRS.keys() & GAPS.keys()


@pytest.mark.parametrize("name", PAIRS)
def test_the_checker_accepts_a_proof_by_the_law(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law, applied = LAWS[name], []

    def rewrite(*arguments: Any) -> Any:
        result = law.rewrite(*arguments)
        applied.append(result is not None)
        return result

    laws = [each._replace(rewrite=rewrite) if each.rewrite is law.rewrite else each for each in table.LAWS]
    monkeypatch.setattr(table, "LAWS", tuple(laws))
    monkeypatch.setattr(table, "_BY_KIND", {})
    for file, expression in zip("ab", PAIRS[name], strict=True):
        with dovetail.Builder() as b:
            b.output("z", expression(b, *(b.input(each, "f32", ("n", 3)) for each in "xy")))
        dovetail.save(b.model, tmp_path / f"{file}.dt")
    proof = dovetail.prove(tmp_path / "a.dt", tmp_path / "b.dt", real=bool(law.over_reals))
    assert proof.verdict == ("real" if law.over_reals else "bits"), proof
    assert any(applied)
    verdict = dovetail_check.check(tmp_path / "a.dt", tmp_path / "b.dt", proof.certificate())
    assert verdict.kind == proof.verdict
