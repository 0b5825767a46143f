"""Terms of models mean what the models compute: exact terms bit by bit, real ones up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from case_laws import hold, law
from case_runner import at_most, feeds, model_of
from cases import Case
from cases.recurrent import CASES as LAYERS
from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import real_terms
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model, Value
from dovetail.ir.op import draws
from dovetail.laws.table import LAWS, PARTS
from dovetail.laws.terms.opaque import BoundParameter, Opaque
from dovetail.laws.terms.terms import Terms
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, STATE_AXES, RecurrentLayer
from dovetail.ops.recurrent.layouts import convert_form, fill_inputs, pad_inputs
from numbering import number_values, run_all


def run_terms(table: Terms, outputs: list[Value], inputs: dict[str, Any]) -> list[Any]:
    """Run the terms of outputs. Skips where an operator is compared as a whole, which no rule can run."""
    if any(isinstance(node.op, Opaque | BoundParameter) for node in table.graph.nodes):
        pytest.skip("an operator is compared as a whole")
    results = run_all(table.graph, inputs)
    return [results[id(y)] for y in outputs]


def terms_and_arrays(case: Case) -> tuple[Any, dict[str, Any], list[Any], Model]:
    model, arrays = model_of(case), feeds(case)
    if any(draws(node.op, node.inputs) for node in model.graph.nodes):
        pytest.skip("random numbers differ from run to run")
    expected = run_row_major(model, arrays)
    numbered = number_terms([model])
    inputs = {term.name: arrays[numbered.inputs[id(term)]] for term in numbered.table.graph.inputs}
    return numbered, inputs, [expected[y.name] for y in model.outputs], model


@law(at_most(4))
def check_exact_terms(case: Case) -> None:
    numbered, inputs, expected, model = terms_and_arrays(case)
    outputs = [numbered.terms[0][id(y)] for y in model.outputs]
    for ours, theirs in zip(run_terms(numbered.table, outputs, inputs), expected, strict=True):
        assert_same_bits(ours, theirs, "terms")


@law(at_most(4))
def check_real_terms(case: Case) -> None:
    numbered, inputs, expected, model = terms_and_arrays(case)
    over_reals = real_terms(numbered)
    outputs = [over_reals.terms[0][id(y)] for y in model.outputs]
    for ours, theirs in zip(run_terms(over_reals.table, outputs, inputs), expected, strict=True):
        if isinstance(theirs, np.ndarray) and theirs.dtype.kind == "f" and theirs.dtype.itemsize >= 4:
            assert_close(ours, theirs, 1e-3, "terms over the reals")


@law(at_most(2))
def check_parts_are_proved(case: Case) -> None:
    """An operator that is written in parts over the real numbers is proved equal to its decomposition."""
    if not any(rule.over_reals == PARTS and rule.is_about(type(case.op)) for rule in LAWS):
        pytest.skip("no law writes the operator in parts")
    model = model_of(case)
    parts = copy_model(model)
    node = parts.graph.nodes[-1]
    results = case.op.decompose(Builder(graph=parts.graph), *node.inputs)
    if results is None:
        pytest.skip("the operator stays whole for these inputs")
    if any(node.op.holds_graphs for node in parts.graph.nodes):
        pytest.skip("a subgraph that a decomposition builds is equal only to itself")
    by_output = dict(zip(node.outputs, results if isinstance(results, list | tuple) else [results], strict=True))
    first, second = number_values([model, parts], real=True)
    for y, other in zip(model.outputs, parts.outputs, strict=True):
        part = by_output.get(other, other)
        assert part is None or first[y] == second[part]


test_case = hold(check_exact_terms, check_real_terms, check_parts_are_proved)


@pytest.mark.parametrize("layout", sorted(STATE_AXES))
@pytest.mark.parametrize("case", [case for case in LAYERS if type(case.op) in (GRU, LSTM, RNN)][::3], ids=str)
def test_a_recurrent_layer_equals_its_other_forms(case: Case, layout: str) -> None:
    assert isinstance(case.op, RecurrentLayer)
    # Gates of weights that are not constant are sliced and joined again, which no law undoes.
    model = model_of(replace(case, constants=tuple(range(1, len(case.inputs)))))
    node = model.graph.nodes[-1]
    op: Any = case.op if pad_inputs(case.op, node.inputs)[3] is not None else case.op.with_(summed_bias=True)
    size = op.sizes_of(*node.inputs)["h"]
    models, outputs = [model], [node.outputs]
    one_form = {"summed_bias": True, "hidden_size": size}
    for is_complete, weights_format, changes in ((False, "fico", one_form), (True, "fico", one_form), (True, "iocf", {})):
        models.append(copy_model(model))
        b, xs = Builder(graph=models[-1].graph), models[-1].graph.nodes[-1].inputs
        order = {"weights_format": weights_format} if "weights_format" in op.fields_by_name else {}
        outputs.append(convert_form(b, op, fill_inputs(b, op, xs) if is_complete else xs, layout=layout, **order, **changes))
    numbers = number_values(models, real=True)
    first, *others = ([table[y] for y in ys] for table, ys in zip(numbers, outputs, strict=True))
    assert all(other == first for other in others)


ROW, MATRIX = np.float32([1, 2, 3]), np.float32(np.arange(1, 10).reshape(3, 3))
LARGEST = 2**31 - 1
LONG = np.float32(np.arange(3000))
"""A constant of more bytes than the table of terms always hashes."""


def reverse(b: Any, x: Value, width: int) -> Value:
    """Reverse the first axis with bounds of 32 or of 64 bits: the least integer is before the start of any axis."""
    kind = np.dtype(f"i{width // 8}").type
    return b.Slice(x, *(kind([number]) for number in (-1, -(2 ** (width - 1)), 0, -1)))


def count_from_end(b: Any, x: Value, y: Value, shift: int = 0, size: int = 3) -> Value:
    """Gather by indices of which the negative ones are replaced by a sum; with ``shift``, not by a sum of the indices."""
    number, indices = b.constant(np.int64(size)), integers(b, y)
    added = b.Add(indices, np.int64(shift)) if shift else indices
    return b.Gather(x, b.Where(b.Less(indices, np.int64(0)), b.Add(added, number), indices), axis=1, bounds="natural")


def integers(b: Any, x: Value) -> Value:
    return b.Negative(b.Cast(b.Greater(x, np.float32(1)), to="i64"))


def parts_of_given_lengths(b: Any, x: Value, y: Value) -> Value:
    count = b.Cast(y, to="i64")
    return b.Split(x, b.Concat(count, b.Subtract(np.int64(5), count), axis=0), axis=1, outputs=2)[1]


Pair = tuple[Any, Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]
KERNEL = np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3) - 17
OPEN, ROWS = ("n", 3), ("n", 5)


def transposed_in_heads(b: Builder, x: Any, order: list[int]) -> Any:
    """Return x, f32[n, 4, 5, 3], transposed with its heads in the batch, as PyTorch's exporter writes the keys of attention."""
    sizes = b.Shape(x)
    heads = b.Reshape(x, b.Concat(np.int64([-1]), sizes[2:4], axis=0))
    return b.Reshape(b.Transpose(heads, order), b.Concat(sizes[:2], np.int64([3]), sizes[2:3], axis=0))


def counted(b: Builder, size: Any) -> Any:
    return b.Range(np.int64(0), size, np.int64(1))


def coordinates(b: Builder, x: Any, step: int = 1, kind: str = "i64") -> Any:
    """Return the coordinates of every element of a row-major matrix x, f32[n, 3], as PyTorch writes x[rows, columns]."""
    size = b.Shape(x)[0]
    rows, columns = b.Cast(b.Cast(counted(b, size) * step, to=kind), to="i64"), counted(b, np.int64(3))
    whole = b.Shape(x)
    both = [b.Unsqueeze(b.Expand(b.Unsqueeze(rows, [1]), whole), [2]), b.Unsqueeze(b.Expand(columns, whole), [2])]
    return b.Concat(*both, axis=2)


def flat_index(b: Builder, x: Any, kind: str = "i64") -> Any:
    return b.Unsqueeze(b.Cast(b.Cast(counted(b, b.Shape(x)[0]), to=kind), to="i64") * 3, [1]) + counted(b, np.int64(3))


def softmax_without_nan(b: Builder, x: Any, y: Any, low: float) -> Any:
    """Return the Softmax of x where y is above 1, and of a constant elsewhere, with 0 for NaN."""
    z = b.Softmax(b.Where(b.Greater(y, np.float32(1)), x, np.float32(low)), axis=-1)
    return b.Where(b.IsNaN(z), np.float32(0), z)


def masked_softmax(b: Builder, x: Any, y: Any, low: float) -> Any:
    return b.Softmax(b.Where(b.Greater(y, np.float32(1)), x, np.float32(low)), axis=-1)


EXACT: dict[str, Pair] = {
    "Tile with fewer repeats than axes": (
        (OPEN, OPEN), lambda b, x, y: b.Tile(x[:, :1], [3], extend=True), lambda b, x, y: b.Expand(x[:, :1], [1, 3]),
    ),
    "operands that must have one shape": (
        (OPEN, OPEN),
        lambda b, x, y: b.Add(b.Unsqueeze(x, [0]), b.Unsqueeze(y, [0]), broadcast=False),
        lambda b, x, y: b.Unsqueeze(b.Add(x, y), [0]),
    ),
    "transposed operands that must have one shape": (
        (OPEN, OPEN),
        lambda b, x, y: b.Add(b.Transpose(x, [1, 0]), b.Transpose(y, [1, 0]), broadcast=False),
        lambda b, x, y: b.Transpose(b.Add(x, y), [1, 0]),
    ),
    "reshaped operands that must have one shape": (
        (OPEN, OPEN),
        lambda b, x, y: b.Add(b.Reshape(x, [-1]), b.Reshape(y, [-1]), broadcast=False),
        lambda b, x, y: b.Reshape(b.Add(x, y), [-1]),
    ),
    "one transposed operand and a scalar": (
        (OPEN, ()), lambda b, x, y: b.Add(b.Transpose(x, [1, 0]), y), lambda b, x, y: b.Transpose(b.Add(x, y), [1, 0]),
    ),
    "one transposed operand and a computed scalar": (
        ((2, "n", 3), OPEN),
        lambda b, x, y: b.Add(b.Transpose(x, [0, 2, 1]), b.ReduceMax(y, keepdims=False)),
        lambda b, x, y: b.Transpose(b.Add(x, b.ReduceMax(y, keepdims=False)), [0, 2, 1]),
    ),
    "one reshaped operand and a scalar": (
        (OPEN, ()), lambda b, x, y: b.Add(b.Reshape(x, [-1]), y), lambda b, x, y: b.Reshape(b.Add(x, y), [-1]),
    ),
    "a transposed operand and a constant of a lower rank": (
        ((2, "n", 3), ()),
        lambda b, x, y: b.Multiply(b.Transpose(x, [0, 2, 1]), ROW[:, None]),
        lambda b, x, y: b.Transpose(b.Multiply(x, ROW), [0, 2, 1]),
    ),
    "operands that are transposed differently": (
        ((2, "n", "n"), (2, "n", "n")),
        lambda b, x, y: b.Add(b.Transpose(x, [0, 2, 1]), y),
        lambda b, x, y: b.Add(y, b.Transpose(b.Identity(x), [0, 2, 1])),
    ),
    "indices counted from the end": (
        (OPEN, (2, 2)),
        lambda b, x, y: count_from_end(b, x, y),
        lambda b, x, y: b.Gather(x, integers(b, y), axis=1, bounds="error"),
    ),
    "a difference with zero": ((OPEN, OPEN), lambda b, x, y: y * (x - 0), lambda b, x, y: x * y),
    "Concat of axes of size 1": (
        (OPEN, OPEN),
        lambda b, x, y: b.Concat(b.Unsqueeze(x, [0]), b.Unsqueeze(y, [0]), axis=1),
        lambda b, x, y: b.Unsqueeze(b.Concat(x, y, axis=0), [0]),
    ),
    "Softmax over the axes from one on": (
        (OPEN, OPEN),
        lambda b, x, y: b.Softmax(b.Unsqueeze(x, [1]), axis=1, coerce_to_2d=True),
        lambda b, x, y: b.Softmax(b.Unsqueeze(b.Identity(x), [1]), axis=-2, coerce_to_2d=True),
    ),
    "a slice of a clipped tensor": (
        (OPEN, ()), lambda b, x, y: b.Clip(x, np.float32(-1), y)[:, 1:], lambda b, x, y: b.Clip(x[:, 1:], np.float32(-1), y),
    ),
    "a slice of a tensor with one bound": (
        (OPEN, ()), lambda b, x, y: b.Clip(x, None, y)[:, 1:], lambda b, x, y: b.Clip(x[:, 1:], None, y),
    ),
    "a slice along another axis": ((ROWS, ROWS), lambda b, x, y: x[:, ::2][:2], lambda b, x, y: x[:2][:, ::2]),
    "a slice of a slice with a step": (
        (ROWS, ROWS), lambda b, x, y: x[:, ::2][:, 1:], lambda b, x, y: b.Identity(x)[:, ::2][:, 1:],
    ),
    "a slice with a step of a slice": ((ROWS, ROWS), lambda b, x, y: x[:, 1:][:, ::2], lambda b, x, y: x[:, 1:5][:, ::2]),
    "two slices with steps": ((ROWS, ROWS), lambda b, x, y: x[:, ::2][:, ::-1], lambda b, x, y: b.Identity(x)[:, ::2][:, ::-1]),
    "the start of an axis": ((OPEN, OPEN), lambda b, x, y: reverse(b, x, 32), lambda b, x, y: reverse(b, x, 64)),
    "the end of an axis": (
        (OPEN, OPEN),
        lambda b, x, y: b.Slice(x, *(np.int32([number]) for number in (1, LARGEST, 0, 1))),
        lambda b, x, y: x[1:],
    ),
    "an end before the end of an axis": (
        (OPEN, OPEN),
        lambda b, x, y: b.Slice(x, *(np.int64([number]) for number in (1, LARGEST, 0, 1))),
        lambda b, x, y: b.Slice(b.Identity(x), *(np.int64([number]) for number in (1, LARGEST, 0, 1))),
    ),
    "parts of a computed size": (
        (OPEN, OPEN),
        lambda b, x, y: b.Split(b.Concat(x, y, axis=0), b.Concat(b.Shape(x)[:1], b.Shape(x)[:1], axis=0), axis=0, outputs=2)[1],
        lambda b, x, y: b.Identity(y),
    ),
    "parts of given lengths": (
        (ROWS, (1,)),
        lambda b, x, y: parts_of_given_lengths(b, x, y),
        lambda b, x, y: parts_of_given_lengths(b, b.Identity(x), y),
    ),
    "a part of products of a vector and matrices": (
        ((3,), ("n", 3, 4)), lambda b, x, y: b.MatMul(x, y)[1:], lambda b, x, y: b.MatMul(x, b.Identity(y))[1:],
    ),
    "a part of a product of matrices and a vector": (
        ((2, "n", 3), (3,)), lambda b, x, y: b.MatMul(x, y)[:, 1:], lambda b, x, y: b.MatMul(x, b.Identity(y))[:, 1:],
    ),
    "indices on both sides of the end": (
        (OPEN, OPEN), lambda b, x, y: b.Gather(x, [-1, 0], axis=1), lambda b, x, y: b.Gather(b.Identity(x), [-1, 0], axis=1),
    ),
    "one long constant": (
        (("n", 3000), OPEN), lambda b, x, y: b.Add(x, LONG), lambda b, x, y: b.Add(b.Identity(x), LONG.copy()),
    ),
    "a long constant that is stored twice": (
        (("n", 3000), OPEN),
        lambda b, x, y: b.Add(b.Multiply(x, LONG), LONG),
        lambda b, x, y: b.Add(b.Multiply(x, LONG.copy()), LONG),
    ),
    "keys with heads in the batch": (
        (("n", 4, 5, 3), ()),
        lambda b, x, y: transposed_in_heads(b, x, [0, 2, 1]),
        lambda b, x, y: b.Transpose(x, [0, 1, 3, 2]),
    ),
    "a difference of integers": (
        (OPEN, OPEN),
        lambda b, x, y: integers(b, x) - integers(b, y),
        lambda b, x, y: b.Negative(integers(b, y)) + integers(b, x),
    ),
    "integers in one order, with one constant": (
        (OPEN, OPEN),
        lambda b, x, y: (integers(b, x) + 3) + (integers(b, y) - 1),
        lambda b, x, y: integers(b, y) + (integers(b, x) + 2),
    ),
    "a choice by a negated and reshaped condition": (
        (OPEN, OPEN),
        lambda b, x, y: b.Where(b.Unsqueeze(b.Not(b.Less(x, y)), [1]), b.Unsqueeze(x, [1]), np.float32(0)),
        lambda b, x, y: b.Where(b.Unsqueeze(b.Less(x, y), [1]), np.float32(0), b.Unsqueeze(x, [1])),
    ),
    "padding by its name": (
        (("n", 2, 5, 5), ()),
        lambda b, x, y: b.Conv(x, KERNEL, auto_pad="valid"),
        lambda b, x, y: b.Conv(x, KERNEL, pads=[0, 0, 0, 0]),
    ),
    "a factor for each row of transposed heads": (
        (("n", 5, 4, 3), (5, 3)),
        lambda b, x, y: b.Transpose(x, [0, 2, 1, 3]) * y,
        lambda b, x, y: b.Transpose(x * b.Unsqueeze(y, [1]), [0, 2, 1, 3]),
    ),
    "a column of rows": (
        (OPEN, (2, 2)),
        lambda b, x, y: b.Gather(b.Unsqueeze(x, [2]), integers(b, y), axis=1),
        lambda b, x, y: b.Unsqueeze(b.Gather(x, integers(b, y), axis=1), [3]),
    ),
    "indices from the end": ((OPEN, OPEN), lambda b, x, y: b.Gather(x, [-3, -2], axis=1), lambda b, x, y: x[:, :2]),
}  # fmt: skip
OVER_REALS: dict[str, Pair] = {
    "coordinates as one index": (
        (OPEN, ()),
        lambda b, x, y: b.GatherND(x, coordinates(b, x)),
        lambda b, x, y: b.Gather(b.Reshape(x, [-1]), flat_index(b, x), axis=0),
    ),
    "a factor before a convolution": (
        (("n", 2, 5, 5), ()),
        lambda b, x, y: b.Conv(x * 0.5, KERNEL),
        lambda b, x, y: b.Conv(x, KERNEL * np.float32(0.5)),
    ),
    "a factor before a Reshape and a convolution": (
        (("n", 50), ()),
        lambda b, x, y: b.Conv(b.Reshape(x * 0.5, [-1, 2, 5, 5]), KERNEL),
        lambda b, x, y: b.Conv(b.Reshape(x, [-1, 2, 5, 5]), KERNEL * np.float32(0.5)),
    ),
    "a mean of a Transpose": (
        (("n", 4, 5), ()),
        lambda b, x, y: b.ReduceMean(b.Transpose(x, [2, 0, 1]), [-1], keepdims=False),
        lambda b, x, y: b.Transpose(b.ReduceMean(x, [1], keepdims=False), [1, 0]),
    ),
    "a factor before a product": (
        (OPEN, ()),
        lambda b, x, y: b.MatMul(x * 3, MATRIX),
        lambda b, x, y: b.MatMul(x, MATRIX * np.float32(3)),
    ),
    "one bound": ((OPEN, ()), lambda b, x, y: b.Clip(x, y), lambda b, x, y: b.Maximum(x, y)),
    "the greatest element": (
        (OPEN, ()),
        lambda b, x, y: b.Squeeze(b.TopK(x, np.int64([1]), axis=1)[1], [1]),
        lambda b, x, y: b.ArgMax(x, axis=1, keepdims=False),
    ),
    "the smallest element": (
        (OPEN, ()),
        lambda b, x, y: b.Squeeze(b.TopK(x, np.int64([1]), axis=0, largest=False)[0], [0]),
        lambda b, x, y: b.ReduceMin(x, [0], keepdims=False),
    ),
    "a Softmax that is not NaN": (
        (OPEN, OPEN),
        lambda b, x, y: softmax_without_nan(b, x, y, -3e38),
        lambda b, x, y: masked_softmax(b, x, y, -3e38),
    ),
    "a quantized tensor": (
        (OPEN, OPEN),
        lambda b, x, y: b.DequantizeLinear(b.Cast(x, to="i8"), np.float32(0.5), np.int8(3)),
        lambda b, x, y: (b.Cast(b.Cast(x, to="i8"), to="f32") - 3) * 0.5,
    ),
    "a power by a matrix of one element": ((OPEN, OPEN), lambda b, x, y: b.Power(x, np.float32([[2]])), lambda b, x, y: x * x),
    "a power by a vector of one element": ((OPEN, OPEN), lambda b, x, y: b.Power(x, np.float32([-1])), lambda b, x, y: 1 / x),
    "a sum with zero": ((OPEN, OPEN), lambda b, x, y: x + 0, lambda b, x, y: b.Identity(x)),
    "a sum with two constants": ((OPEN, OPEN), lambda b, x, y: (x + ROW) + 1, lambda b, x, y: x + (ROW + 1)),
    "a part of a product": (
        ((2, "n", 3), OPEN), lambda b, x, y: b.MatMul(x, MATRIX)[:, 1:], lambda b, x, y: b.MatMul(x[:, 1:], MATRIX),
    ),
    "a part of a product of a matrix and matrices": (
        (OPEN, (2, 3, 4)), lambda b, x, y: b.MatMul(x, y)[:, :, 1:3], lambda b, x, y: b.MatMul(x, y[:, :, 1:3]),
    ),
}  # fmt: skip
DIFFERENT: dict[str, Pair] = {
    "coordinates that may be negative": (
        (OPEN, ()),
        lambda b, x, y: b.GatherND(x, coordinates(b, x, -1)),
        lambda b, x, y: b.Gather(b.Reshape(x, [-1]), flat_index(b, x), axis=0),
    ),
    "bounds in the other order": (
        (OPEN, ()),
        lambda b, x, y: b.Clip(x, np.float32(2), np.float32(1)),
        lambda b, x, y: b.Maximum(b.Minimum(x, np.float32(1)), np.float32(2)),
    ),
    "the last of the greatest elements": (
        (OPEN, ()),
        lambda b, x, y: b.Squeeze(b.TopK(x - x, np.int64([1]), axis=1)[1], [1]),
        lambda b, x, y: b.ArgMax(x - x, axis=1, keepdims=False, select_last_index=True),
    ),
    "coordinates that may wrap": (
        (OPEN, ()),
        lambda b, x, y: b.GatherND(x, coordinates(b, x, kind="i8")),
        lambda b, x, y: b.Gather(b.Reshape(x, [-1]), flat_index(b, x, kind="i8"), axis=0),
    ),
    "a Softmax that may be NaN": (
        (OPEN, OPEN),
        lambda b, x, y: softmax_without_nan(b, x, y, -np.inf),
        lambda b, x, y: masked_softmax(b, x, y, -np.inf),
    ),
    "queries with heads in the batch": (
        ((3, 3, 3, 3), ()),
        lambda b, x, y: b.Reshape(b.Transpose(b.Reshape(x, [9, 3, 3]), [1, 0, 2]), [3, 3, 3, 3]),
        lambda b, x, y: b.Transpose(x, [0, 2, 1, 3]),
    ),
    "integers of two types": (
        (OPEN, ()),
        lambda b, x, y: b.Cast(b.Cast(x, to="i8") + np.int8(100), to="i32") + 100,
        lambda b, x, y: b.Cast(b.Cast(x, to="i8"), to="i32") + 200,
    ),
    "powers by several exponents": ((OPEN, OPEN), lambda b, x, y: b.Power(x, np.float32([2, 3, 2])), lambda b, x, y: x * x),
    "a power that broadcasts": (
        (OPEN, OPEN), lambda b, x, y: b.Power(x, np.float32([[[2]]])), lambda b, x, y: b.Unsqueeze(x, [0]),
    ),
    "other indices counted from the end": (
        (OPEN, (2, 2)),
        lambda b, x, y: count_from_end(b, x, y, -1),
        lambda b, x, y: b.Gather(x, integers(b, y), axis=1, bounds="error"),
    ),
    "another size counted from the end": (
        (OPEN, (2, 2)),
        lambda b, x, y: count_from_end(b, x, y, size=2),
        lambda b, x, y: b.Gather(x, integers(b, y), axis=1, bounds="error"),
    ),
    "long constants that differ between the sampled elements": (
        (("n", 3000), OPEN), lambda b, x, y: b.Add(x, LONG), lambda b, x, y: b.Add(x, np.where(LONG == 700, 701, LONG)),
    ),
    "a part of a running sum": (
        (OPEN, OPEN), lambda b, x, y: b.CumSum(x, np.int64(1))[:, 1:], lambda b, x, y: b.CumSum(x[:, 1:], np.int64(1)),
    ),
    "a factor for each row": (
        ((3, 3), OPEN), lambda b, x, y: b.MatMul(x, ROW) * ROW, lambda b, x, y: b.MatMul(x, ROW * ROW),
    ),
    "a product of a vector and one of several matrices": (
        ((3,), (3, 3, 4)), lambda b, x, y: b.MatMul(x, y)[1:3], lambda b, x, y: b.MatMul(x[1:3], y[:, 1:3]),
    ),
    "a product of one of several matrices and a vector": (
        ((2, 4, 3), (3,)), lambda b, x, y: b.MatMul(x, y)[:, 1:3], lambda b, x, y: b.MatMul(x[:, :, 1:3], y[1:3]),
    ),
}  # fmt: skip
PAIRS = {**EXACT, **OVER_REALS, **DIFFERENT}
"""Shapes of the inputs x and y, and two graphs: equal in all bits, equal over the real numbers, and different."""


@pytest.mark.parametrize("name", PAIRS)
def test_terms_of_pairs_of_graphs(name: str) -> None:
    shapes, *graphs = PAIRS[name]
    models = []
    for write in graphs:
        with Builder() as b:
            b.output("z", write(b, *(b.input(each, "f32", shape) for each, shape in zip("xy", shapes, strict=True))))
        models.append(b.model)
    numbered = number_terms(models)
    over_reals = real_terms(numbered)
    for real, table in ((False, numbered), (True, over_reals)):
        first, second = ([env[id(y)] for y in model.outputs] for model, env in zip(models, table.terms, strict=True))
        assert (first == second) == (name in EXACT or (real and name in OVER_REALS)), f"real {real}"
        for size in (1, 4):
            draw = np.random.default_rng(size)
            arrays = {
                each: draw.uniform(0.5, 2, [size if number == "n" else number for number in shape]).astype(np.float32)
                for each, shape in zip("xy", shapes, strict=True)
            }
            inputs = {term.name: arrays[numbered.inputs[id(term)]] for term in numbered.table.graph.inputs}
            for model, outputs in zip(models, (first, second), strict=True):
                (ours,), theirs = run_terms(table.table, outputs, inputs), run_row_major(model, arrays)["z"]
                assert_close(ours, theirs, 1e-5, name) if real else assert_same_bits(ours, theirs, name)
