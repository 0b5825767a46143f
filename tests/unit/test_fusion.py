"""Fusions: the steps of small graphs, each with the operators that it computes, and the interpreter's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.engine.plan import Plan
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
CHANCE = np.random.default_rng(5)
Write = Callable[[Builder], Any]


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def numbers(*shape: int) -> Any:
    return CHANCE.standard_normal(shape).astype(np.float32)


def real(number: float) -> Any:
    return np.float32(number)


def model_of(write: Write) -> Model:
    with Builder() as b:
        made = write(b)
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    return b.model


def planned(model: Model) -> Plan:
    """Return the plan of a model, all of whose steps have to run natively and give what the interpreter gives."""
    feed = {value.name: numbers(*value.shape) for value in model.inputs}
    engine = Engine(model, threads=1)
    bound, _ = engine.bind(feed)
    assert [reason for _, reason in bound.python_steps] == []
    with np.errstate(all="ignore"):
        found, expected = engine(feed), interpret(model, feed)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-4, err_msg=name)
    return bound.plan


def steps(model: Model) -> list[str]:
    """Each step but copies: its kernel, and the operators that it computes."""
    calls = [step.call for step in planned(model).steps if step.call is not None]
    return [f"{call.kernel}: {' '.join(type(node.op).__name__ for node in call.nodes)}" for call in calls]


def conv(b: Builder, x: Any, channels: int = 8, **attributes: Any) -> Any:
    return b.Conv(x, numbers(channels, x.shape[1], 3, 3) / 8, pads=(1, 1, 1, 1), **attributes)


def image(b: Builder, name: str = "x", channels: int = 8) -> Any:
    return b.input(name, "f32", (1, channels, 6, 6))


def product(b: Builder, columns: int = 5) -> Any:
    return b.MatMul(b.input("x", "f32", (4, 6)), numbers(6, columns))


ROW, COLUMN, WHOLE = numbers(1, 5), numbers(4, 1), numbers(4, 5)
ACTIVATIONS: dict[str, Callable[[Builder, Any], Any]] = {
    "Relu": lambda b, y: b.Relu(y),
    "Clip": lambda b, y: b.Clip(y, real(-0.3), real(0.7)),
    "Clip to one number": lambda b, y: b.Clip(y, real(0.25), real(0.25)),
    "LeakyRelu": lambda b, y: b.LeakyRelu(y, alpha=0.3),
    "Elu": lambda b, y: b.Elu(y, alpha=0.7),
    "Gelu": lambda b, y: b.Gelu(y),
    "Gelu by tanh": lambda b, y: b.Gelu(y, approximate="tanh"),
    "Swish": lambda b, y: b.Swish(y),
    "Sigmoid": lambda b, y: b.Sigmoid(y),
    "Tanh": lambda b, y: b.Tanh(y),
    "HardSwish": lambda b, y: b.HardSwish(y),
}
APART: dict[str, Callable[[Builder, Any], Any]] = {
    "Clip between bounds that cross": lambda b, y: b.Clip(y, real(0.5), real(-0.5)),
    "Clip of what the run says": lambda b, y: b.Clip(y, b.input("low", "f32", ()), real(3)),
    "Clip to what the run says": lambda b, y: b.Clip(y, real(-3), b.input("high", "f32", ())),
    "Swish with a factor": lambda b, y: b.Swish(y, alpha=1.5),
    "Exp": lambda b, y: b.Exp(y),
}
PRODUCTS: dict[str, Callable[[Builder], Any]] = {"conv": lambda b: conv(b, image(b)), "matmul": product}


@pytest.mark.parametrize("kernel", PRODUCTS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_fused_into_its_producer(name: str, kernel: str) -> None:
    (step,) = steps(model_of(lambda b: ACTIVATIONS[name](b, PRODUCTS[kernel](b))))
    assert step.startswith(f"{kernel}: ") and step.endswith(f" {name.split()[0]}")


@pytest.mark.parametrize("kernel", PRODUCTS)
@pytest.mark.parametrize("name", APART)
def test_an_activation_that_a_kernel_lacks_is_a_separate_step(name: str, kernel: str) -> None:
    found = steps(model_of(lambda b: APART[name](b, PRODUCTS[kernel](b))))
    assert [step.partition(":")[0] for step in found] == [kernel, "elementwise"]


AFTER_PRODUCTS: dict[str, tuple[Write, list[str]]] = {
    "a bias": (lambda b: b.Add(product(b), ROW), ["matmul: MatMul Add"]),
    "a bias first": (lambda b: b.Add(ROW, product(b)), ["matmul: MatMul Add"]),
    "a bias of one axis": (lambda b: b.Add(product(b), ROW[0]), ["matmul: MatMul Add"]),
    "a second bias": (lambda b: b.Add(b.Add(product(b), ROW), ROW * 2), ["matmul: MatMul Add", "elementwise: Add"]),
    "a bias after an activation": (lambda b: b.Add(b.Relu(product(b)), ROW), ["matmul: MatMul Relu", "elementwise: Add"]),
    "a bias after a tensor": (
        lambda b: b.Add(b.Add(product(b), b.input("z", "f32", (4, 5))), ROW), ["matmul: MatMul Add", "elementwise: Add"]
    ),
    "a column": (lambda b: b.Add(product(b), COLUMN), ["matmul: MatMul", "elementwise: Add"]),
    "a column of a square": (lambda b: b.Add(product(b, 4), COLUMN), ["matmul: MatMul", "elementwise: Add"]),
    "a constant of the same shape": (lambda b: b.Add(product(b), WHOLE), ["matmul: MatMul", "elementwise: Add"]),
    "a bias of a product with one row": (
        lambda b: b.Add(b.MatMul(b.input("x", "f32", (1, 6)), numbers(6, 5)), ROW), ["matmul: MatMul Add"]
    ),
    "a row that the run says": (
        lambda b: b.Add(product(b), b.input("z", "f32", (5,))), ["matmul: MatMul", "elementwise: Add"]
    ),
    "a bias of many products": (
        lambda b: b.Add(b.MatMul(b.input("x", "f32", (2, 4, 6)), numbers(6, 5)), ROW), ["matmul: MatMul Add"]
    ),
    "a number that is added": (lambda b: b.Add(product(b), real(3)), ["matmul: MatMul", "elementwise: Add"]),
    "a number that is added to one column": (
        lambda b: b.Add(product(b, 1), real(3)), ["matmul: MatMul", "elementwise: Add"]
    ),
    "a bias with more axes": (
        lambda b: b.Add(product(b), ROW[None]), ["matmul: MatMul", "elementwise: Add"]
    ),
    "itself": (lambda b: (lambda y: b.Add(y, y))(product(b)), ["matmul: MatMul", "elementwise: Add"]),
    "two results": (
        lambda b: [b.Exp(y) for y in b.Split(product(b, 4), axis=1, outputs=2)],
        ["matmul: MatMul", "elementwise: Exp", "elementwise: Exp"],
    ),
    "a tensor": (lambda b: b.Add(product(b), b.input("z", "f32", (4, 5))), ["matmul: MatMul Add"]),
    "a second tensor": (
        lambda b: b.Add(b.Add(product(b), b.input("z", "f32", (4, 5))), b.input("v", "f32", (4, 5))),
        ["matmul: MatMul Add", "elementwise: Add"],
    ),
    "a bias, a tensor and an activation": (
        lambda b: b.Relu(b.Add(b.input("z", "f32", (4, 5)), b.Add(product(b), ROW))), ["matmul: MatMul Add Add Relu"]
    ),
    "a tensor after an activation": (
        lambda b: b.Add(b.Relu(product(b)), b.input("z", "f32", (4, 5))), ["matmul: MatMul Relu Add"]
    ),
    "an activation after an activation": (
        lambda b: b.Tanh(b.Relu(product(b))), ["matmul: MatMul Relu", "elementwise: Tanh"]
    ),
    "two products that are added": (
        lambda b: b.Relu(b.Add(product(b), b.MatMul(b.input("z", "f32", (4, 3)), numbers(3, 5)))),
        ["matmul: MatMul", "matmul: MatMul Add Relu"],
    ),
    "what is read again": (
        lambda b: (lambda y: [b.Relu(y), b.Exp(y)])(product(b)), ["matmul: MatMul", "elementwise: Relu", "elementwise: Exp"]
    ),
    "what is a result too": (lambda b: (lambda y: [y, b.Relu(y)])(product(b)), ["matmul: MatMul", "elementwise: Relu"]),
    "a factor": (lambda b: b.Multiply(product(b), real(0.3)), ["matmul: MatMul Multiply"]),
    "a factor first": (lambda b: b.Multiply(real(0.3), product(b)), ["matmul: MatMul Multiply"]),
    "a factor of two axes": (lambda b: b.Multiply(product(b), numbers(1, 1)), ["matmul: MatMul Multiply"]),
    "a factor of three axes": (lambda b: b.Multiply(product(b), numbers(1, 1, 1)), ["matmul: MatMul", "elementwise: Multiply"]),
    "a divisor": (lambda b: b.Divide(product(b), real(0.3)), ["matmul: MatMul Divide"]),
    "a dividend": (
        lambda b: b.Divide(real(0.3), b.Add(b.Relu(product(b)), real(1))), ["matmul: MatMul Relu", "elementwise: Add Divide"]
    ),
    "two factors": (
        lambda b: b.Divide(b.Multiply(product(b), real(0.3)), real(0.7)), ["matmul: MatMul Multiply Divide"]
    ),
    "a factor of Gemm": (
        lambda b: b.Multiply(b.Gemm(b.input("x", "f32", (4, 6)), numbers(6, 5), alpha=0.4), real(3)), ["matmul: Gemm Multiply"]
    ),
    "a factor and a bias": (
        lambda b: b.Add(b.Multiply(product(b), real(0.3)), ROW), ["matmul: MatMul Multiply Add"]
    ),
    "a factor after a bias": (
        lambda b: b.Multiply(b.Add(product(b), ROW), real(0.3)), ["matmul: MatMul Add", "elementwise: Multiply"]
    ),
    "a factor after a tensor": (
        lambda b: b.Multiply(b.Add(product(b), b.input("z", "f32", (4, 5))), real(0.3)),
        ["matmul: MatMul Add", "elementwise: Multiply"],
    ),
    "a factor after an activation": (
        lambda b: b.Multiply(b.Relu(product(b)), real(-0.3)), ["matmul: MatMul Relu", "elementwise: Multiply"]
    ),
    "a row of factors": (lambda b: b.Multiply(product(b), ROW), ["matmul: MatMul", "elementwise: Multiply"]),
    "a factor that the run says": (
        lambda b: b.Multiply(product(b), b.input("z", "f32", ())), ["matmul: MatMul", "elementwise: Multiply"]
    ),
    "the least factor": (lambda b: b.Multiply(product(b), np.finfo(np.float32).tiny), ["matmul: MatMul Multiply"]),
    "the greatest factor": (lambda b: b.Multiply(product(b), np.finfo(np.float32).max), ["matmul: MatMul Multiply"]),
    "no factor": (lambda b: b.Multiply(product(b), real(0)), ["matmul: MatMul", "elementwise: Multiply"]),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER_PRODUCTS)
def test_the_epilogue_of_a_matrix_product(name: str) -> None:
    write, expected = AFTER_PRODUCTS[name]
    assert steps(model_of(write)) == expected


AFTER_CONVOLUTIONS: dict[str, tuple[Write, list[str]]] = {
    "a tensor": (lambda b: b.Add(conv(b, image(b)), image(b, "z")), ["conv: Conv Add"]),
    "its input": (lambda b: (lambda x: b.Relu(b.Add(x, conv(b, x))))(image(b)), ["conv: Conv Add Relu"]),
    "a tensor after an activation": (lambda b: b.Add(b.Relu(conv(b, image(b))), image(b, "z")), ["conv: Conv Relu Add"]),
    "two tensors": (
        lambda b: b.Add(b.Add(conv(b, image(b)), image(b, "z")), image(b, "v")), ["conv: Conv Add", "elementwise: Add"]
    ),
    "an image of each channel": (
        lambda b: b.Add(conv(b, image(b)), b.input("z", "f32", (1, 8, 1, 1))), ["conv: Conv", "elementwise: Add"]
    ),
    "a row": (lambda b: b.Add(conv(b, image(b)), numbers(6)), ["conv: Conv", "elementwise: Add"]),
    "a factor": (lambda b: b.Divide(conv(b, image(b)), real(0.3)), ["conv: Conv", "elementwise: Divide"]),
    "numbers after an activation": (
        lambda b: b.Divide(b.Add(real(0.5), b.Multiply(b.Relu(conv(b, image(b))), real(-3))), numbers(1)),
        ["conv: Conv Relu Multiply Add Divide"],
    ),
    "numbers and a tensor after an activation": (
        lambda b: b.Add(b.Add(b.Multiply(b.Swish(conv(b, image(b))), real(2)), real(1)), image(b, "z")),
        ["conv: Conv Swish Multiply Add Add"],
    ),
    "a number after a tensor after an activation": (
        lambda b: b.Multiply(b.Add(b.Relu(conv(b, image(b))), image(b, "z")), real(2)),
        ["conv: Conv Relu Add", "elementwise: Multiply"],
    ),
    "a dividend after an activation": (
        lambda b: b.Divide(real(2), b.Add(b.Sigmoid(conv(b, image(b))), real(1))),
        ["conv: Conv Sigmoid Add", "elementwise: Divide"],
    ),
    "zero after an activation": (
        lambda b: b.Multiply(b.Relu(conv(b, image(b))), real(0)), ["conv: Conv Relu", "elementwise: Multiply"]
    ),
    "a subnormal number after an activation": (
        lambda b: b.Multiply(b.Relu(conv(b, image(b))), real(1e-40)), ["conv: Conv Relu", "elementwise: Multiply"]
    ),
    "a number per channel after an activation": (
        lambda b: b.Multiply(b.Relu(conv(b, image(b))), numbers(8, 1, 1)), ["conv: Conv Relu", "elementwise: Multiply"]
    ),
    "HardSwish of its parts": (
        lambda b: (lambda y: b.Divide(b.Multiply(y, b.Clip(b.Add(y, real(3)), real(0), real(6))), real(6)))(conv(b, image(b))),
        ["conv: Conv HardSwish Multiply Divide"],
    ),
    "HardSwish of its parts, in the other order": (
        lambda b: (lambda y: b.Multiply(b.Clip(b.Add(real(3), y), real(0), real(6)), y))(conv(b, image(b))),
        ["conv: Conv HardSwish Multiply"],
    ),
    "a gate with other bounds": (
        lambda b: (lambda y: b.Multiply(y, b.Clip(b.Add(y, real(3)), real(0), real(5))))(conv(b, image(b))),
        ["conv: Conv", "elementwise: Add Clip Multiply"],
    ),
    "two convolutions that are added": (
        lambda b: b.Add(conv(b, image(b)), conv(b, image(b, "z", 5))), ["conv: Conv", "conv: Conv Add"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER_CONVOLUTIONS)
def test_the_epilogue_of_a_convolution(name: str) -> None:
    write, expected = AFTER_CONVOLUTIONS[name]
    assert steps(model_of(write)) == expected


def scaled(write: Callable[[Builder, Any, Any], Any]) -> Write:
    """Return a product of two inputs, (2, 4, 6) and (2, 6, 5), that ``write`` scales."""
    return lambda b: write(b, b.input("x", "f32", (2, 4, 6)), b.input("z", "f32", (2, 6, 5)))


SCALED: dict[str, tuple[Write, list[str]]] = {
    "the first operand": (
        scaled(lambda b, x, z: b.MatMul(b.Multiply(x, real(0.3)), z)), ["matmul: Multiply MatMul"]
    ),
    "both operands and the product": (
        scaled(lambda b, x, z: b.Multiply(b.MatMul(b.Multiply(real(0.3), x), b.Divide(z, real(3))), real(7))),
        ["matmul: Divide Multiply MatMul Multiply"],
    ),
    "a dividend": (
        scaled(lambda b, x, z: b.MatMul(b.Divide(real(0.3), x), z)), ["elementwise: Divide", "matmul: MatMul"]
    ),
    "an operand that is read twice": (
        scaled(lambda b, x, z: (lambda t: [b.MatMul(t, z), t])(b.Multiply(x, real(0.3)))),
        ["elementwise: Multiply", "matmul: MatMul"],
    ),
    "a number for each row": (
        scaled(lambda b, x, z: b.MatMul(b.Multiply(x, numbers(4, 1)), z)), ["elementwise: Multiply", "matmul: MatMul"]
    ),
    "a great number": (
        scaled(lambda b, x, z: b.MatMul(b.Multiply(x, real(1e5)), z)), ["elementwise: Multiply", "matmul: MatMul"]
    ),
    "with a bias": (
        scaled(lambda b, x, z: b.Add(b.MatMul(b.Multiply(x, real(0.3)), z), numbers(5))), ["matmul: Multiply MatMul Add"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
def test_factors_of_the_operands_of_a_product(name: str) -> None:
    write, expected = SCALED[name]
    model = model_of(write)
    assert steps(model) == expected
    feed = {"x": numbers(2, 4, 6), "z": numbers(2, 6, 5)}
    np.testing.assert_allclose(Engine(model)(feed)["y0"], interpret(model, feed)["y0"], rtol=1e-4, atol=1e-5)


def raised(b: Builder, term: Any) -> Any:
    return b.Add(term, real(1))


def cubic(b: Builder, y: Any, cube: Any) -> Any:
    return b.Tanh(b.Multiply(b.Add(y, b.Multiply(cube, real(0.044715))), real(0.7978845608)))


ROOT = real(2**0.5)
GELUS: dict[str, Callable[[Builder, Any], Any]] = {
    "torch": lambda b, y: b.Multiply(b.Multiply(y, raised(b, b.Erf(b.Divide(y, ROOT)))), real(0.5)),
    "torch, the half first": lambda b, y: b.Multiply(b.Multiply(y, real(0.5)), raised(b, b.Erf(b.Divide(y, ROOT)))),
    "a product in the erf": lambda b, y: b.Multiply(
        b.Multiply(real(0.5), b.Add(real(1), b.Erf(b.Multiply(real(0.5**0.5), y)))), y
    ),
    "GPT-2": lambda b, y: b.Multiply(b.Multiply(real(0.5), y), raised(b, cubic(b, y, b.Power(y, real(3))))),
    "a cube of products": lambda b, y: b.Multiply(
        b.Multiply(y, raised(b, cubic(b, y, b.Multiply(b.Multiply(y, y), y)))), real(0.5)
    ),
}


@pytest.mark.parametrize("name", GELUS)
def test_gelu_of_its_parts(name: str) -> None:
    model = model_of(lambda b: GELUS[name](b, product(b)))
    assert steps(model) == ["matmul: MatMul Gelu"]
    x = numbers(4, 6) * real(3)
    np.testing.assert_allclose(Engine(model)({"x": x})["y0"], interpret(model, {"x": x})["y0"], rtol=1e-5, atol=1e-5)


NO_GELUS: dict[str, Callable[[Builder, Any], Any]] = {
    "another half": lambda b, y: b.Multiply(b.Multiply(y, raised(b, b.Erf(b.Divide(y, ROOT)))), real(0.4)),
    "another root": lambda b, y: b.Multiply(b.Multiply(y, raised(b, b.Erf(b.Divide(y, real(1.41))))), real(0.5)),
    "another value": lambda b, y: b.Multiply(b.Multiply(b.Abs(y), raised(b, b.Erf(b.Divide(y, ROOT)))), real(0.5)),
    "another summand": lambda b, y: b.Multiply(b.Multiply(y, b.Add(real(2), b.Erf(b.Divide(y, ROOT)))), real(0.5)),
    "another power": lambda b, y: b.Multiply(b.Multiply(real(0.5), y), raised(b, cubic(b, y, b.Power(y, real(2))))),
    "a number for each column": lambda b, y: b.Multiply(b.Multiply(y, raised(b, b.Erf(b.Divide(y, ROOT)))), numbers(1, 5)),
}


@pytest.mark.parametrize("name", NO_GELUS)
def test_products_that_are_no_gelu(name: str) -> None:
    model = model_of(lambda b: NO_GELUS[name](b, product(b)))
    assert not any("Gelu" in step for step in steps(model))
    x = numbers(4, 6)
    np.testing.assert_allclose(Engine(model)({"x": x})["y0"], interpret(model, {"x": x})["y0"], rtol=1e-5, atol=1e-5)


def test_factors_that_f32_does_not_hold_stay_factors() -> None:
    """One after the other they give numbers: their product would give infinities, or nothing."""
    for first, second, size in ((1e30, 1e30, 1e-30), (1e-30, 1e-30, 1e30)):
        model = model_of(lambda b, first=first, second=second: b.Multiply(b.Multiply(product(b), real(first)), real(second)))  # type: ignore[misc]
        assert steps(model)[-1] == "elementwise: Multiply"
        x = numbers(4, 6) * real(size)
        np.testing.assert_allclose(Engine(model)({"x": x})["y0"], interpret(model, {"x": x})["y0"], rtol=1e-4)
    for divisor in (1e-40, 3e38):
        model = model_of(lambda b, divisor=divisor: b.Divide(product(b), real(divisor)))  # type: ignore[misc]
        assert steps(model_of(lambda b, divisor=divisor: b.Divide(b.Multiply(product(b), real(0)), real(divisor)))) == [  # type: ignore[misc]
            "matmul: MatMul", "elementwise: Multiply Divide"
        ]  # fmt: skip
        x = np.zeros((4, 6), np.float32)
        np.testing.assert_array_equal(Engine(model)({"x": x})["y0"], interpret(model, {"x": x})["y0"])


# Chains


def longest(b: Builder, count: int) -> Any:
    y = b.input("x", "f32", (3, 4))
    for place in range(count):
        y = b.Negative(y) if place % 2 else b.Abs(y)
    return y


@pytest.mark.parametrize(("count", "lengths"), [(23, [23]), (24, [24]), (25, [24, 1]), (50, [24, 24, 2])])
def test_a_chain_has_at_most_24_operators(count: int, lengths: list[int]) -> None:
    assert [len(step.split()) - 1 for step in steps(model_of(lambda b: longest(b, count)))] == lengths


CHAINS: dict[str, tuple[Write, list[str]]] = {
    "one after the other": (lambda b: b.Exp(b.Abs(image(b))), ["elementwise: Abs Exp"]),
    "two that are joined": (
        lambda b: b.Add(b.Exp(image(b)), b.Sqrt(b.Abs(image(b, "z")))), ["elementwise: Abs Sqrt Exp Add"]
    ),
    "a result that is read twice": (
        lambda b: (lambda t: b.Add(b.Exp(t), t))(b.Abs(image(b))), ["elementwise: Abs Exp Add"]
    ),
    "a result that is read three times": (
        lambda b: (lambda t: b.Multiply(b.Add(b.Exp(t), t), t))(b.Abs(image(b))), ["elementwise: Abs Exp Add Multiply"]
    ),
    "what grows": (
        lambda b: b.Add(b.Exp(b.input("x", "f32", (4,))), b.Abs(b.input("z", "f32", (3, 4)))),
        ["elementwise: Exp", "elementwise: Abs Add"],
    ),
    "something between": (
        lambda b: (lambda t: b.Add(b.Softmax(t, axis=1), t))(b.Exp(image(b))),
        ["elementwise: Exp", "softmax: Softmax", "elementwise: Add"],
    ),
    "a result of its own": (lambda b: (lambda t: [t, b.Exp(t)])(b.Abs(image(b))), ["elementwise: Abs Exp"]),
    "a result of its own, read afterwards": (
        lambda b: (lambda t: [b.Exp(t), b.Softmax(t, axis=1)])(b.Abs(image(b))), ["elementwise: Abs Exp", "softmax: Softmax"]
    ),
    "constants that come twice": (
        lambda b: (lambda w: b.Multiply(b.Add(image(b), w), w))(b.constant(numbers(1, 8, 6, 6))), ["elementwise: Add Multiply"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    write, expected = CHAINS[name]
    assert steps(model_of(write)) == expected


def test_a_fused_kernel_writes_only_values_that_other_steps_read() -> None:
    """Nothing is kept of the first result, which three operators of the chain read; the second is a result of the model."""

    def write(b: Builder) -> Any:
        first = b.Abs(image(b))
        second = b.Add(b.Exp(first), first)
        return [second, b.Multiply(second, first)]

    (step,) = [step for step in planned(model_of(write)).steps if step.kernel == "elementwise"]
    assert len(step.writes) == 2 and len(step.reads) == 1


# What comes before a convolution

CHANNELS = (np.abs(numbers(1, 8, 1, 1)) + 1, numbers(1, 8, 1, 1))
BEFORE: dict[str, tuple[Callable[[Builder, Any], Any], list[str]]] = {
    "a factor": (lambda b, x: b.Multiply(x, CHANNELS[0]), ["conv: Multiply Conv"]),
    "a factor first": (lambda b, x: b.Multiply(CHANNELS[0], x), ["conv: Multiply Conv"]),
    "a factor of three axes": (lambda b, x: b.Multiply(x, CHANNELS[0][0]), ["conv: Multiply Conv"]),
    "a summand for all": (lambda b, x: b.Add(x, real(0.3)), ["conv: Add Conv"]),
    "all three": (
        lambda b, x: b.Relu(b.Add(b.Multiply(x, CHANNELS[0]), CHANNELS[1])), ["conv: Multiply Add Relu Conv"]
    ),
    "the sum first": (
        lambda b, x: b.Multiply(b.Add(CHANNELS[1], x), CHANNELS[0]), ["conv: Add Multiply Conv"]
    ),
    "an activation first": (lambda b, x: b.Multiply(b.Relu(x), -CHANNELS[0]), ["elementwise: Relu Multiply", "conv: Conv"]),
    "a sum after an activation": (lambda b, x: b.Add(b.Relu(x), -CHANNELS[0]), ["elementwise: Relu Add", "conv: Conv"]),
    "another activation": (lambda b, x: b.Tanh(b.Multiply(x, CHANNELS[0])), ["elementwise: Multiply Tanh", "conv: Conv"]),
    "a column": (lambda b, x: b.Multiply(x, numbers(6, 1)), ["elementwise: Multiply", "conv: Conv"]),
    "a row": (lambda b, x: b.Add(x, numbers(6)), ["elementwise: Add", "conv: Conv"]),
    "an image": (lambda b, x: b.Add(x, numbers(1, 8, 6, 6)), ["elementwise: Add", "conv: Conv"]),
    "its square": (lambda b, x: b.Multiply(x, x), ["elementwise: Multiply", "conv: Conv"]),
    "what it was": (
        lambda b, x: (lambda t: b.Multiply(b.Add(t, CHANNELS[1]), t))(b.Multiply(x, CHANNELS[0])),
        ["elementwise: Multiply Add Multiply", "conv: Conv"],
    ),
    "its input once more": (
        lambda b, x: b.Add(b.Multiply(x, CHANNELS[0]), x), ["elementwise: Multiply Add", "conv: Conv"]
    ),
    "two inputs": (lambda b, x: b.Multiply(x, image(b, "z")), ["elementwise: Multiply", "conv: Conv"]),
    "a factor that the run says": (
        lambda b, x: b.Multiply(x, b.input("z", "f32", (1, 8, 1, 1))), ["elementwise: Multiply", "conv: Conv"]
    ),
    "a factor beyond f32": (
        lambda b, x: b.Multiply(b.Multiply(x, real(1e30)), real(1e30)), ["elementwise: Multiply Multiply", "conv: Conv"]
    ),
    "a factor of nothing": (
        lambda b, x: b.Multiply(x, CHANNELS[0] * (np.arange(8).reshape(8, 1, 1) != 3)), ["conv: Multiply Conv"]
    ),
    "a sum beyond f32": (
        lambda b, x: b.Multiply(b.Add(x, real(1e30)), real(1e30)), ["elementwise: Add Multiply", "conv: Conv"]
    ),
    "something else": (lambda b, x: b.Softmax(x, axis=1), ["softmax: Softmax", "conv: Conv"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_the_prologue_of_a_convolution(name: str) -> None:
    write, expected = BEFORE[name]
    assert steps(model_of(lambda b: conv(b, write(b, image(b))))) == expected


def test_a_result_of_the_chain_before_a_convolution() -> None:
    def write(b: Builder) -> Any:
        made = b.Multiply(image(b), CHANNELS[0])
        return [made, conv(b, b.Add(made, CHANNELS[1]))]

    assert steps(model_of(write)) == ["elementwise: Multiply Add", "conv: Conv"]


def test_the_greatest_summand_before_a_convolution() -> None:
    def write(b: Builder) -> Any:
        return b.Conv(b.Add(image(b), np.finfo(np.float32).max), numbers(4, 8, 3, 3) * real(1e-30))

    assert steps(model_of(write)) == ["conv: Add Conv"]


def test_one_pixel_that_is_added_to_itself() -> None:
    def write(b: Builder) -> Any:
        x = b.input("x", "f32", (1, 8, 1, 1))
        return b.Conv(b.Add(b.Multiply(x, CHANNELS[0]), x), numbers(4, 8, 1, 1))

    assert steps(model_of(write)) == ["elementwise: Multiply Add", "conv: Conv"]


def test_one_channel_that_becomes_many() -> None:
    expected = ["elementwise: Multiply", "conv: Conv"]
    assert steps(model_of(lambda b: conv(b, b.Multiply(image(b, channels=1), CHANNELS[0])))) == expected


@pytest.mark.parametrize("other", [lambda b, t: t, lambda b, t: b.Softmax(t, axis=1), lambda b, t: conv(b, t, 3)])
def test_a_prologue_of_several_convolutions_is_a_separate_step(other: Any) -> None:
    def write(b: Builder) -> Any:
        made = b.Multiply(image(b), CHANNELS[0])
        return [conv(b, made), other(b, made)]

    assert steps(model_of(write))[0] == "elementwise: Multiply"


def test_a_convolution_with_prologue_and_epilogue() -> None:
    def write(b: Builder) -> Any:
        x = image(b)
        y = conv(b, b.Relu(b.Add(b.Multiply(x, CHANNELS[0]), CHANNELS[1])))
        return conv(b, b.Multiply(b.Relu(b.Add(y, x)), CHANNELS[0]))

    assert steps(model_of(write)) == ["conv: Multiply Add Relu Conv Add Relu", "conv: Multiply Conv"]
