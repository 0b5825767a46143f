"""Bounds of rounding: the native engine is within them on every case, and inputs in a range are within those of the range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from case_laws import hold, law
from case_runner import at_most, feeds, model_of
from cases import Case
from dovetail.compare.rounding.error_bounds import evaluate_with_bounds, unit_of_f64
from dovetail.compare.rounding.rounded_array import RoundedArray
from dovetail.compare.rounding.rounding_functions import RoundingFunctions
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.ir import dtypes

Array = np.ndarray[Any, Any]


def beyond(found: Any, bound: RoundedArray) -> Array:
    """Return which elements are further from the elements over the real numbers than their bound."""
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    y, value = found.astype(wide), bound.value.astype(wide)
    error = 0.0 if bound.error is None else bound.error
    with np.errstate(invalid="ignore"):
        is_within = (np.abs(y - value) <= error) | (y == value) | (np.isnan(y) & np.isnan(value)) | np.isinf(error)
    return ~np.asarray(is_within)


def float_inputs(case: Case) -> list[str]:
    """Return the names of the float inputs of a case."""
    given = feeds(case)
    return [name for name, x in given.items() if isinstance(x, np.ndarray) and dtypes.dtype(x.dtype).is_float]


@law(at_most(3))
def results_are_within_the_bound_of_rounding(case: Case) -> None:
    """Compare the elements of the native engine with those that are computed in f64."""
    if not float_inputs(case):
        pytest.skip("no float input")
    model, inputs = model_of(case), feeds(case)
    try:
        found = dovetail.compile(model)(inputs)
    except DovetailError:
        pytest.skip("the case does not run")
    try:
        with np.errstate(all="ignore"):
            bounds = evaluate_with_bounds(model, RoundingFunctions(unit_of_f64((model, model))), inputs)
    except UnsupportedError as error:
        pytest.skip(f"no bound: {error.message}")
    for value, bound in zip(model.outputs, bounds, strict=True):
        y = found[value.name]
        if isinstance(y, np.ndarray) and y.dtype.kind not in "OUT":
            assert (y.shape, y.dtype) == (bound.shape, bound.dtype)
            places = np.argwhere(beyond(y, bound))
            # An infinite bound would hold for a wrong result too.
            if bound.error is not None and np.isinf(bound.error).all() and bound.error.size:
                pytest.skip("no finite bound")
            assert not len(places), f"{value.name}{list(places[0])}: {y[tuple(places[0])]} for {bound.value[tuple(places[0])]}"


test_case = hold(results_are_within_the_bound_of_rounding)

POINTS = 7


def _functions_of_one(b: dovetail.Builder, x: Any) -> list[Any]:
    w = np.linspace(-1, 1, 24).reshape(4, 6).astype(np.float32)
    product = b.MatMul(x, w)
    return [
        product,
        b.Softmax(product),
        b.LayerNormalization(product, np.ones(6, np.float32), axis=1, epsilon=0.1),
        b.Sigmoid(x) * b.Tanh(x),
        b.Exp(x) / (b.Abs(x) + 0.5),
        b.Where(b.Greater(x, 0.0), x, x * 0.25),
        b.ReduceMax(x, [1]) - b.ReduceMin(x, [1]),
        b.Floor(x * 3.0),
        x**2,
        b.Sqrt(b.Abs(x) + 0.1),
        b.Cast(b.Greater(x, 0.0), to="f32"),
    ]


@pytest.mark.parametrize("number", range(11))
def test_inputs_in_a_range_are_within_the_bounds_of_the_range(number: int) -> None:
    with dovetail.Builder() as b:
        b.output("y", _functions_of_one(b, b.input("x", "f32", (3, 4)))[number])
    functions = RoundingFunctions(2.0**-24)
    low, high = -0.8, 1.3
    (bound,) = evaluate_with_bounds(b.model, functions, {"x": np.zeros((3, 4), np.float32)}, {"x": (low, high)})
    assert bound.radius is not None and np.isfinite(bound.radius).all()
    program = dovetail.compile(b.model)
    generator = np.random.default_rng(number)
    for point in range(POINTS):
        x = generator.uniform(low, high, (3, 4)).astype(np.float32)
        x = np.where(x > 0.2, np.float32(high), np.float32(low)) if point == 0 else x
        (y,) = program({"x": np.clip(x, np.float32(low), np.float32(high))}).values()
        spread = bound.radius + (0.0 if bound.error is None else bound.error) + 1e-6
        assert (np.abs(y - bound.value) <= spread).all()


def proved(width: int) -> tuple[dovetail.Model, dovetail.Model, Any]:
    """Return two networks that are equal over the real numbers, and the proof."""
    models = []
    scale = np.linspace(0.5, 1.5, width).astype(np.float32)
    for is_decomposed in (True, False):
        with dovetail.Builder() as b:
            x = b.input("x", "f32", ("n", width))
            if is_decomposed:
                centred = x - b.ReduceMean(x, [1])
                y = centred / b.Sqrt(b.ReduceMean(centred * centred, [1]) + 0.1) * scale
            else:
                y = b.LayerNormalization(x, scale, axis=1, epsilon=0.1)
            b.output("y", b.Relu(y))
        models.append(b.model)
    proof = dovetail.prove(models[0], models[1], real=True)
    assert proof.verdict == "real"
    return models[0], models[1], proof


def test_the_measured_difference_is_below_the_expected_one_and_the_bound() -> None:
    *_, proof = proved(64)
    found = proof.bound_rounding({"x": np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32)})
    (row,) = found.outputs
    assert row.expected is not None and row.bound is not None
    assert 0 < row.measured < row.expected < row.bound < 1e-3
    assert row.expected < 40 * row.measured
    assert "y: " in repr(found)


def test_a_range_bounds_every_input_in_it() -> None:
    generator = np.random.default_rng(1)
    first, second, proof = proved(8)
    (row,) = proof.bound_rounding(ranges={"x": (-2, 2)}).outputs
    assert row.bound is not None and np.isfinite(row.bound)
    a, b = dovetail.compile(first), dovetail.compile(second)
    for _ in range(POINTS):
        x = generator.uniform(-2, 2, (4, 8)).astype(np.float32)
        assert np.abs(a({"x": x})["y"] - b({"x": x})["y"]).max() <= row.bound


def test_a_result_that_rounding_decides_has_a_bound_of_its_step() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (2,))
        b.output("y", b.Floor(x * 3.0 * 5.0))
    with dovetail.Builder() as c:
        x = c.input("x", "f32", (2,))
        c.output("y", c.Floor(x * 15.0))
    found = dovetail.prove(b.model, c.model, real=True)
    (row,) = found.bound_rounding({"x": np.array([0.2, 0.5], np.float32)}).outputs
    assert row.bound >= 1.0 and row.measured <= row.bound


def test_bad_ranges_are_refused() -> None:
    *_, proof = proved(4)
    for name, ends in {"z": (0, 1), "x": (1, 0)}.items():
        with pytest.raises(dovetail.DovetailError) as caught:
            proof.bound_rounding(ranges={name: ends})
        assert caught.value.code == "argument.value"


def test_models_that_are_not_proved_equal_have_no_bound() -> None:
    (first, *_), (second, *_) = proved(2), proved(3)
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.prove(first, second, real=True).bound_rounding()
    assert caught.value.code == "argument.conflict"
