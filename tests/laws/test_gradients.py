"""A gradient is the slope in a random direction, that of a gradient too, and a gradient model is a model like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import oracles
from assertions import assert_close
from case_laws import hold, law
from case_runner import CASES, at_most, feeds, is_constant, skip_where_outside, sound, write
from cases import Case
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Model, Value
from dovetail.ir.op import has, host_inputs
from dovetail.ir.types import Tensor
from dovetail.laws.gradients import adjoints
from dovetail.ops.nn.resize import Resize
from dovetail.ops.signal.dft import DFT, IRDFT, RDFT
from dovetail.runtime.interpreter.interpret import interpret

STEP = 2.0**-17
FLOATS = ("f64", "f32")


def is_smooth(x: Any) -> bool:
    return x is not None and dtypes.dtype(x.dtype).name in FLOATS


def chosen() -> list[tuple[str, Case]]:
    """Return the cases with a gradient, once for each operator and shapes."""
    found: dict[Any, tuple[str, Case]] = {}
    for family, case in CASES:
        if not (has(case.op, "vjp") or has(case.op, "decompose")):
            continue
        inputs = zip(case.inputs, is_constant(case), strict=True)
        if any(is_smooth(x) and not constant for x, constant in inputs) and "gradient" not in case.skip:
            # What a scalar is may decide which branch has the slope.
            given = tuple(
                None if x is None else (x.shape, x.tobytes() if x.ndim == 0 or not is_smooth(x) else None) for x in case.inputs
            )
            found.setdefault((repr(case.op), given), (family, case))
    return list(found.values())


DIFFERENTIABLE = chosen()
OPEN = list(
    {
        (repr(case.op), tuple(None if x is None else (x.dtype, x.ndim) for x in case.inputs)): (family, case)
        for family, case in reversed(DIFFERENTIABLE)
    }.values()
)
AT_ANY_SIZE = (Resize, DFT, RDFT, IRDFT)
"""Operators whose gradient is never refused for sizes that only run time knows."""
FIRST: list[tuple[str, Case]] = list({type(case.op): (family, case) for family, case in reversed(DIFFERENTIABLE)}.values())


def points(case: Case, kind: Any, seed: int = 0) -> list[Any]:
    """Return the case's inputs in ``kind``, moved a little off the places where slopes jump: ties and zeros."""
    chance = np.random.default_rng(seed)
    found = []
    for x, host in zip(case.inputs, host_inputs(case.op, len(case.inputs)), strict=True):
        # What shape rules read is no place to move from.
        if host or not is_smooth(x):
            found.append(x)
            continue
        wide = np.where(np.isfinite(x), x, chance.standard_normal(x.shape)).astype(np.float64)
        moved = wide * (1 - chance.uniform(0.01, 0.05, x.shape))
        found.append(np.asarray(np.where(wide == 0, chance.uniform(0.05, 0.1, x.shape), moved)).astype(kind))
    return found


def forward(case: Case, inputs: Sequence[Any]) -> Model:
    """Return the case's operator, with those outputs that are floats as wide as its inputs.

    Skips one that is not to be had so.
    """
    b = Builder("forward")
    given = zip(inputs, is_constant(case), strict=True)
    kind = next(dtypes.dtype(x.dtype) for x, constant in given if is_smooth(x) and not constant)
    try:
        ys = write(b, case, inputs)
    except RuleError as error:
        pytest.skip(f"not in {kind}: {error.message}")
    smooth = [y for y in ys if is_float(y) and y.dtype is kind]
    if not smooth:
        pytest.skip(f"no output is {kind}")
    for index, y in enumerate(smooth):
        b.output(f"y{index}", y)
    return sound(b.model)


def backward(case: Case, inputs: Sequence[Any]) -> Model:
    """Return the model of the gradients of the case's float outputs with regard to its float inputs. Skips one that has none."""
    model = forward(case, inputs)
    try:
        return pulled_back(Builder(graph=model.graph), list(model.graph.outputs))
    except UnsupportedError as error:
        if error.code.startswith("grad."):
            pytest.skip(f"refused: {error.message}")
        raise


def seeds(case: Case, inputs: Sequence[Any], seed: int) -> dict[str, Any]:
    """Incoming gradients for ``backward``: arrays like the outputs."""
    chance = np.random.default_rng(seed)
    outputs = interpret(forward(case, inputs), feeds(case, inputs)).values()
    return {f"g1_{index}": chance.standard_normal(y.shape).astype(y.dtype) for index, y in enumerate(outputs)}


def pulled_back(b: Builder, ys: Sequence[Value], order: int = 1) -> Model:
    """Differentiate the graph in ``b``: one more input for each of ``ys``, an output for each float input."""
    xs = [x for x in b.graph.inputs if is_float(x)]
    incoming = [b.input_of(f"g{order}_{index}", y.type) for index, y in enumerate(ys)]
    gradients = adjoints(b, ys, incoming, xs)
    b.graph.outputs = []
    for x, gradient in zip(xs, gradients, strict=True):
        b.output(f"d{order}_{x.name}", gradient)
    remove_dead(b.graph)
    return sound(b.model)


def is_float(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype.is_float


def check_slope(model: Model, gradients: Model, given: dict[str, Any], order: int = 1) -> None:
    """Along a random direction, the weighted outputs of ``model`` rise as ``gradients`` says."""
    chance = np.random.default_rng(order)
    smooth = [value.name for value in model.inputs if is_float(value)]
    direction = {name: chance.standard_normal(given[name].shape) for name in smooth}

    def at(step: float) -> dict[str, Any]:
        moved = {**given, **{name: given[name] + step * direction[name] for name in smooth}}
        return interpret(model, {value.name: moved[value.name] for value in model.inputs})

    here, ahead, behind = at(0), at(STEP), at(-STEP)
    far, near = at(2 * STEP), at(-2 * STEP)
    if not all(np.isfinite(y).all() for ys in (here, ahead, behind, far, near) for y in ys.values()):
        pytest.skip("the operator is not finite around here")
    incoming = [value.name for value in gradients.inputs if value.name not in {each.name for each in model.inputs}]
    weights = {name: chance.standard_normal(y.shape) for name, y in zip(incoming, here.values(), strict=True)}
    found = interpret(gradients, {value.name: {**given, **weights}[value.name] for value in gradients.inputs})
    claimed = sum(float(np.sum(found[f"d{order}_{name}"] * direction[name])) for name in smooth)
    slope = 0.0
    size = 1e-9
    for weight, name in zip(weights.values(), here.keys(), strict=True):
        # The five-point rule: its error falls with the fourth power of the step.
        rise = (8 * (ahead[name] - behind[name]) - (far[name] - near[name])) / (12 * STEP)
        slope += float(np.sum(weight * rise))
        size += float(np.sum(np.abs(weight * rise))) + 1e-3 * float(np.sum(np.abs(weight * here[name])))
    assert abs(claimed - slope) <= 1e-6 * size + 1e-8, f"the gradient says {claimed}, the slope is {slope}"
    for name in smooth:
        assert found[f"d{order}_{name}"].shape == given[name].shape and found[f"d{order}_{name}"].dtype == given[name].dtype, name


def in_f64(case: Case) -> tuple[list[Any], dict[str, Any]]:
    inputs = points(case, np.float64)
    return inputs, feeds(case, inputs)


@law(DIFFERENTIABLE)
def check_gradient(case: Case) -> None:
    inputs, given = in_f64(case)
    check_slope(forward(case, inputs), backward(case, inputs), given)


@law(FIRST)
def check_second_gradient(case: Case) -> None:
    skip_where_outside(case, "second gradient")
    inputs, given = in_f64(case)
    first, again = backward(case, inputs), backward(case, inputs)
    second = pulled_back(Builder(graph=again.graph), list(again.graph.outputs), order=2)
    check_slope(first, second, {**given, **seeds(case, inputs, 2)}, order=2)


@law(at_most(8, DIFFERENTIABLE))
def check_gradient_in_onnxruntime(case: Case) -> str:
    skip_where_outside(case, "onnxruntime")
    skip_where_outside(case, "gradient in onnxruntime")
    inputs = points(case, np.float32)
    gradients = backward(case, inputs)
    try:
        data = onnx_write.save(gradients, None, opset=oracles.RUNTIME_OPSET)
    except UnsupportedError as reason:
        pytest.skip(f"ONNX cannot say it: {reason.message}")
    assert data is not None
    known = {**feeds(case, inputs), **seeds(case, inputs, 4)}
    given = {value.name: known[value.name] for value in gradients.inputs}
    ours = interpret(gradients, given)
    try:
        theirs = oracles.run_onnxruntime(data, given)
    except oracles.Silent as reason:
        pytest.skip(str(reason))
    for (name, mine), other in zip(ours.items(), theirs, strict=True):
        if np.isfinite(mine).all():
            assert_close(np.asarray(mine), other, 1e-5, name)
    return "onnxruntime"


@law(OPEN)
def check_gradient_of_dynamic_graph(case: Case) -> None:
    """Every size a symbol; the elements of shape inputs at run time; both."""
    inputs, given = in_f64(case)
    known = {**given, **seeds(case, inputs, 1)}
    static = interpret(backward(case, inputs), known)
    hosts = host_inputs(case.op, len(inputs))
    for is_open, is_late in ((True, False), (False, True), (True, True)):
        if is_late and not any(is_constant(case)):
            continue
        b = Builder("open")
        xs: list[Value | None] = []
        for index, (x, host, constant) in enumerate(zip(inputs, hosts, is_constant(case), strict=True)):
            if x is None:
                xs.append(None)
            elif constant and not is_late:
                xs.append(b.constant(x))
            else:
                sizes = [f"n{index}_{axis}" for axis in range(x.ndim)] if is_open and not host else x.shape
                xs.append(b.input(f"x{index}", x.dtype, sizes))
        try:
            ys = b.add(case.op, *xs)
        except RuleError as error:
            assert "not known" in error.message
            continue
        try:
            model = pulled_back(b, [y for y in ys if is_float(y) and y.dtype == "f64"])
        except UnsupportedError as error:
            assert type(case.op) not in AT_ANY_SIZE or error.code == "constant.needed", f"open {is_open}, late {is_late}: {error}"
            continue
        everything = {**known, **{f"x{index}": x for index, x in enumerate(inputs) if x is not None}}
        found = interpret(model, {value.name: everything[value.name] for value in model.inputs})
        for name, theirs in static.items():
            assert_close(np.asarray(found[name]), np.asarray(theirs), 1e-12, f"{name}, open {is_open}, late {is_late}")


test_case = hold(check_gradient, check_second_gradient, check_gradient_in_onnxruntime, check_gradient_of_dynamic_graph)
