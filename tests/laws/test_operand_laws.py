"""Elementwise operators beside constants, and twice in a row: proofs, simplify and the engines agree in all bits of extremes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dovetail
from assertions import assert_same_bits
from dovetail import Builder
from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.op import Op
from dovetail.laws.rules.pointwise_classes import ONE_OPERAND, SEVERAL_OPERANDS
from dovetail.ops.elementwise.binary import Divide, Mod, Power
from dovetail.ops.elementwise.bitwise import BitShift
from dovetail.ops.elementwise.broadcast import BroadcastingOp, Elementwise
from dovetail.ops.elementwise.cast import Cast, is_exact_cast
from dovetail.ops.elementwise.logical import Where
from dovetail.passes.simplify import SimplifyReport

TYPES = [
    item
    for item in dtypes.ALL
    if item.is_integer or item.is_float or item.name == "boolean"
    if item.name not in ("nf4", "u1", "u3", "u6")
]
MIXED = [dtypes.dtype(name) for name in ("f64", "f32", "f8e5m2", "i64", "i8", "u64")]
"""Types that stand beside each type where an operator takes two."""
NUMBERS = (0, 1, -1, 2, 3, 0.5, 255, 2**24 + 1, 2**31 - 1, 2**53 + 1, 2**63 - 1, 2**64 - 1, 1e30, 1e300)
BINARY = sorted((kind for kind in SEVERAL_OPERANDS if kind is not Where), key=lambda kind: kind.__name__)
UNARY = sorted(
    (kind for kind in ONE_OPERAND if issubclass(kind, Op) and kind.sig and kind is not Cast), key=lambda kind: kind.__name__
)


def extremes(dtype: DType) -> np.ndarray[Any, Any]:
    """Return the ends of a type, its special values, and numbers that the next narrower types lack."""
    if dtype.name == "boolean":
        return np.array([False, True])
    if dtype.is_integer:
        low, high = dtype.range()
        numbers = {low, low + 1, high - 1, high, *(int(number) for number in NUMBERS), *(-int(number) for number in NUMBERS)}
        wide = np.uint64 if dtype.kind == "uint" else np.int64
        return np.array(sorted(number for number in numbers if low <= number <= high), wide).astype(dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, float(info.smallest_subnormal), 1.5, 3.0, 2.0**24 + 1]
    numbers = [*special, *NUMBERS, float(info.max), float(info.min), float(info.tiny), 1 + float(info.eps)]
    with np.errstate(all="ignore"):
        # The types without infinities have no number for what exceeds them.
        return np.unique(np.array(numbers, np.float64).astype(dtype.numpy).view(f"u{dtype.numpy.itemsize}")).view(dtype.numpy)


def constants(dtype: DType, *, is_mixed: bool) -> list[Any]:
    """Every number that is neutral or absorbing for an operator, and others beside equal types."""
    array = extremes(dtype)
    small = [item for item in array if float(item) in (-1, 0, 1)]
    return small if is_mixed else [*array[:2], *array[-2:], *small]


def beside_constants(op: Op, dtype: DType, other: DType) -> Iterator[tuple[Model, dict[str, Any]]]:
    """Models of an operator whose outputs are its results beside each constant, as either operand, of any shape.

    An Unsqueeze is behind each, since no pass makes an output of an input.
    """
    for index in (0, 1):
        x_type, c_type = (other, dtype) if index == 0 else (dtype, other)
        data = extremes(x_type)
        if x_type.is_integer and index == 0 and isinstance(op, Divide | Mod):
            data = data[data != 0]
        for shape in ((data.size,), (0,), (1,), ()):
            b = Builder()
            x = b.input("x", x_type, shape)
            for number, item in enumerate(constants(c_type, is_mixed=dtype is not other)):
                if c_type.is_integer and index == 1 and isinstance(op, Divide | Mod) and item == 0:
                    continue
                c = b.constant(np.full(((), (1,), (1, 1))[number % 3], item, c_type.numpy), c_type)
                operands = [c, x] if index == 0 else [x, c]
                b.output(f"y{number}", b.Unsqueeze(b.add(op, *operands)[0], [0]))
            yield b.model, {"x": np.resize(data, shape)}


def describe(y: Value) -> str:
    """Return the operator before the Unsqueeze of an output, with its operands."""
    assert y.node is not None
    node = y.node.input(0).node
    assert node is not None
    return f"{node.op} {[(x.dtype, x.constant) for x in node.inputs if x is not None]}"


def check(model: Model, inputs: dict[str, Any]) -> SimplifyReport:
    """Run the terms of a model, and the simplified model, beside the model; natively too where simplify changes it."""
    expected = run_row_major(model, inputs)
    numbered = number_terms([model])
    graph = Graph()
    terms = [numbered.terms[0][id(y)] for y in model.outputs]
    graph.inputs, graph.nodes, graph.outputs = numbered.table.graph.inputs, numbered.table.graph.nodes, list(dict.fromkeys(terms))
    results = run_row_major(Model(graph), {term.name: inputs[numbered.inputs[id(term)]] for term in graph.inputs})
    short = dovetail.simplify(model, keep=["nop_elimination", "algebraic_simplification", "dead_code"])
    report = short.report
    shortened = run_row_major(short, inputs)
    native = [dict(dovetail.compile(each, engine="native")(inputs)) for each in (model, short)] if report.changes else []
    for y, term in zip(model.outputs, terms, strict=True):
        what = describe(y)
        assert_same_bits(results[term.name], expected[y.name], f"terms: {what}")
        assert_same_bits(shortened[y.name], expected[y.name], f"simplified: {what}")
        for index, answer in enumerate(native):
            assert_same_bits(answer[y.name], native[0][y.name], f"{'simplified' if index else 'native'}: {what}")
    return report


def operators(kind: type[Op]) -> list[Op]:
    if kind is BitShift:
        return [kind(direction=direction) for direction in ("left", "right")]
    if kind is Mod:
        return [kind(fmod=fmod) for fmod in (False, True)]
    return [kind()]


@pytest.mark.parametrize("kind", BINARY, ids=lambda kind: kind.__name__)
def test_operators_next_to_constants(kind: type[Op]) -> None:
    count = 0
    has_laws = issubclass(kind, BroadcastingOp) and bool(kind.neutral)
    for op, dtype in itertools.product(operators(kind), TYPES if has_laws else TYPES[::3]):
        for other in {dtype, *MIXED} if kind is Power else (dtype,):
            try:
                for model, inputs in beside_constants(op, dtype, other):
                    count += check(model, inputs).changes
            except DovetailError as error:
                assert error.code in ("type.class", "mod.float"), error
    # A law that no pass applies would be true of nothing.
    assert bool(count) == has_laws


@pytest.mark.parametrize("kind", UNARY, ids=lambda kind: kind.__name__)
def test_operators_twice_in_a_row(kind: type[Op]) -> None:
    count = 0
    for dtype in TYPES:
        b = Builder()
        data = extremes(dtype)
        x = b.input("x", dtype, (data.size,))
        inputs = sum(not port.optional for port in kind.signature.inputs)
        try:
            y = b.add(kind(), *[x] * inputs)[0]
            b.output("y", b.Unsqueeze(b.add(kind(), *[y] * inputs)[0], [0]))
        except DovetailError:
            continue
        count += check(b.model, {"x": data}).changes
    assert bool(count) == bool(issubclass(kind, Elementwise) and (kind.idempotent or kind.involution))


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts_in_a_row(source: DType) -> None:
    data = extremes(source)
    for middle in TYPES:
        if not is_exact_cast(source, middle):
            continue
        b = Builder()
        x = b.input("x", source, (data.size,))
        wide = b.Cast(x, to=middle)
        for target in (*TYPES, dtypes.string):
            b.output(f"y_{target}", b.Unsqueeze(b.Cast(wide, to=target), [0]))
        check(b.model, {"x": data})
