"""Attributes that are inputs: what is known of the result, how a Builder writes them, and where they become attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.engine import Engine
from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.graph import Value
from dovetail.ops.runtime_attributes import RuntimeAttributes
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.gather import Gather
from dovetail.report.model_summary import summarize


def split(shape: tuple[Any, ...] | None, lengths: list[int] | None = None, count: int = 2, axis: Any = None) -> list[Value]:
    b = dovetail.Builder()
    x, axis = b.input("x", "f32", shape), b.input("axis", "i64", ()) if axis is None else axis(b)
    given: list[Value] = b.Split(x, *([] if lengths is None else [lengths]), axis=axis, outputs=count, wildcard=True)
    return given


def bounds(value: Value) -> list[tuple[int | None, int | None]]:
    return [symbolic.bounds(size) for size in value.dims]


def test_a_size_that_every_axis_leaves_alone_is_known() -> None:
    whole, nothing = split((3, 4, 5), [-1, 0])
    assert whole.shape == (3, 4, 5)
    assert bounds(nothing) == [(0, 3), (0, 4), (0, 5)]


def test_a_size_is_bounded_by_its_values_for_each_axis() -> None:
    first, rest = split((3, 4, 5), [1, -1])
    assert bounds(first) == [(1, 3), (1, 4), (1, 5)]
    assert bounds(rest) == [(2, 3), (3, 4), (4, 5)]


def test_an_axis_along_which_the_lengths_do_not_add_up_is_none() -> None:
    """Only axis 1 has 4 elements: the sizes are those of a split along it."""
    assert [y.shape for y in split((3, 4, 5), [1, 3])] == [(3, 1, 5), (3, 3, 5)]
    assert [y.shape for y in split((3, 4, 5))] == [(3, 2, 5), (3, 2, 5)]
    with pytest.raises(RuleError, match="lengths"):
        split((3, 4, 5), [1, 7])


def test_an_axis_within_bounds_is_one_of_those() -> None:
    def last_two(b: dovetail.Builder) -> Value:
        value = b.input("axis", "i64", ())
        value.value = np.array(symbolic.symbol("axis", 1, 2), dtype=object)
        return value

    first = split((3, 4, 5), [1, -1], axis=last_two)[0]
    assert bounds(first) == [(3, 3), (1, 4), (1, 5)]


def test_of_an_unknown_rank_nothing_is_claimed() -> None:
    assert [y.shape for y in split(None, [1, -1])] == [None, None]


def test_symbols_stay_where_all_axes_agree() -> None:
    b = dovetail.Builder()
    x, axis = b.input("x", "f32", ("n", "m")), b.input("axis", "i64", (1,))
    y = b.ScatterElements(x, b.constant(np.zeros((1, 1), np.int64)), b.constant(np.zeros((1, 1), np.float32)), axis=axis)
    assert y.shape == x.shape


@pytest.mark.parametrize(("shape", "message"), [((2,), "must have one element"), ((1, 1), "the rank 0 or 1")])
def test_an_axis_is_one_number(shape: tuple[int, ...], message: str) -> None:
    b = dovetail.Builder()
    with pytest.raises(RuleError, match=message):
        b.Split(b.input("x", "f32", (3, 4)), axis=b.input("axis", "i64", shape), outputs=1)


def test_an_axis_is_a_whole_number() -> None:
    b = dovetail.Builder()
    with pytest.raises(RuleError) as caught:
        b.Split(b.input("x", "f32", (3, 4)), axis=b.input("axis", "f32", ()), outputs=1)
    assert caught.value.code == "type.class"


def test_only_whole_numbers_are_read_at_run_time() -> None:
    b = dovetail.Builder()
    x = b.input("x", "f32", (3, 4))
    for attributes in ({"alpha": x}, {"nothing": x}):
        with pytest.raises(RuleError) as caught:
            b.Elu(x, **attributes)
        assert caught.value.code == "attribute.unknown"


def test_an_axis_that_is_known_when_it_is_written_is_an_attribute() -> None:
    b = dovetail.Builder()
    y = b.Gather(b.input("x", "f32", (3, 4)), [0], axis=b.constant(np.array(-1)))
    assert y.node.op == Gather(-1)


def by_rank() -> dovetail.Model:
    """Return a split along the axis that the first size of ``x`` says."""
    b = dovetail.Builder()
    x = b.input("x", "f32", ("n", 4, 4))
    axis = b.Subtract(b.Gather(b.Shape(x), 0, axis=0), 1)
    for index, y in enumerate(b.Split(x, axis=axis, outputs=2)):
        b.output(f"y{index}", y)
    return b.model


def test_an_axis_that_follows_from_the_sizes_is_an_attribute_of_the_plan() -> None:
    model = by_rank()
    assert any(isinstance(node.op, RuntimeAttributes) for node in model.graph.nodes)
    engine = Engine(model)
    for size in (2, 3):
        plan, _ = engine.plan({"x": (size, 4, 4)})
        assert {step.kernel for step in plan.steps} == {"copy"}
        x = np.arange(size * 16, dtype=np.float32).reshape(size, 4, 4)
        for y, part in zip(dovetail.run(model, {"x": x}).values(), np.split(x, 2, size - 1), strict=True):
            np.testing.assert_array_equal(y, part)
    # Neither does a size that changes from call to call go on with the last one's axis.
    program = dovetail.compile(model)
    for size in (2, 3, 2, 3, 3):
        x = np.arange(size * 16, dtype=np.float32).reshape(size, 4, 4)
        for y, part in zip(program({"x": x}).values(), np.split(x, 2, size - 1), strict=True):
            np.testing.assert_array_equal(y, part)


def test_an_operator_with_a_runtime_attribute_is_shown_and_counted_by_its_kind() -> None:
    model = by_rank()
    assert "= Split(x; axis=subtract, outputs=2)" in str(model)
    assert summarize(model)["operators"]["Split"] == 1
    assert repr(RuntimeAttributes(Split(0, 2), ("axis",), 2)) == "Split(axis=<input>, outputs=2)"


def test_no_gradient_is_made_of_an_axis_of_an_unknown_rank() -> None:
    b = dovetail.Builder()
    x, axis = b.input("x", "f32"), b.input("axis", "i64", ())
    b.output("y", b.Gather(x, [0], axis=axis))
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.grad(b.model, wrt=["x"])
    assert caught.value.code == "constant.needed" and caught.value.node == "y"


def test_symbols_of_a_value_are_not_those_of_another_that_had_its_name_before() -> None:
    """Both NonZero are called so when they are written, and are renamed."""
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (3, 4))
        ys = [b.output(name, b.NonZero(each)) for name, each in (("a", x), ("b", x * 0))]
        b.output("same", b.Equal(*(b.Gather(b.Shape(y), 1, axis=0) for y in ys)))
    assert ys[0].dims[1] != ys[1].dims[1]
    for engine in ("interpreter", "native"):
        assert not dovetail.compile(b.model, engine)({"x": np.ones((3, 4), np.float32)})["same"]
