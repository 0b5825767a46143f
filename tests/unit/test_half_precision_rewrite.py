"""Casts of half precision to f32 and back: the steps of small graphs, and the interpreter's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
CHANCE = np.random.default_rng(8)
KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
Write = Callable[[Builder, Any, Any], Any]


def numbers(kind: Any, *shape: int) -> Any:
    return CHANCE.standard_normal(shape).astype(kind)


def steps(write: Write, name: str) -> list[str]:
    """Each step but copies, with its operators. All run natively, and give what the interpreter gives but for the last digit."""
    kind = KINDS[name]
    with Builder() as b:
        made = write(b, b.input("x", name, (9, 9)), kind)
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    feed = {value.name: numbers(value.dtype.numpy, *value.shape) for value in b.model.inputs}
    engine = Engine(b.model, threads=1)
    bound, _ = engine.bind(feed)
    assert [reason for _, reason in bound.python_steps] == []
    found, digit = engine(feed), float(ml_dtypes.finfo(kind).eps)
    for output, expected in interpret(b.model, feed).items():
        assert found[output].dtype == expected.dtype
        ours, theirs = (np.asarray(each).astype(np.float32) for each in (found[output], expected))
        np.testing.assert_allclose(ours, theirs, rtol=4 * digit, atol=4 * digit, err_msg=output)
    calls = [step.call for step in bound.plan.steps if step.call is not None]
    return [f"{call.kernel}: {' '.join(type(node.op).__name__ for node in call.nodes)}" for call in calls]


def product(b: Builder, x: Any, kind: Any) -> Any:
    return b.MatMul(x, np.eye(9, dtype=kind) * kind(0.5))


AROUND = ["elementwise: Cast", "matmul: MatMul", "elementwise: Cast"]
RULES: dict[str, tuple[Write, list[str]]] = {
    "a product": (product, AROUND),
    "what rounds the same": (
        lambda b, x, kind: b.Relu(product(b, x, kind)), ["elementwise: Cast", "matmul: MatMul Relu", "elementwise: Cast"]
    ),
    "several that round the same": (
        lambda b, x, kind: b.Abs(b.Negative(b.Clip(product(b, x, kind), kind(-0.3)))),
        ["elementwise: Cast", "matmul: MatMul Clip", "elementwise: Negative Abs Cast"],
    ),
    "what rounds otherwise": (
        lambda b, x, kind: b.Exp(product(b, x, kind)), ["elementwise: Cast", "matmul: MatMul", "elementwise: Cast Cast Exp Cast"]
    ),
    "what rounds the same, and a result": (
        lambda b, x, kind: (lambda y: [b.Relu(y), y])(product(b, x, kind)),
        ["elementwise: Cast", "matmul: MatMul", "elementwise: Cast Cast Relu Cast"],
    ),
    "what rounds the same, and another": (
        lambda b, x, kind: (lambda y: [b.Relu(y), b.Exp(y)])(product(b, x, kind)),
        ["elementwise: Cast", "matmul: MatMul", "elementwise: Cast Cast Relu Cast Cast Exp Cast"],
    ),
    "what comes in": (lambda b, x, kind: b.Relu(x), ["elementwise: Cast Relu Cast"]),
    "what is moved": (
        lambda b, x, kind: b.Relu(b.Transpose(product(b, x, kind), [1, 0])), [*AROUND, "elementwise: Cast Relu Cast"]
    ),
    "what the model rounds": (
        lambda b, x, kind: b.Abs(b.Cast(b.input("z", "f32", (9, 9)), to=kind)), ["elementwise: Abs Cast"]
    ),
    "kernels that share a cast": (
        lambda b, x, kind: [product(b, x, kind), b.Softmax(x, axis=1), b.MatMul(x, x)],
        [
            "elementwise: Cast",
            "matmul: MatMul",
            "elementwise: Cast",
            "softmax: Softmax",
            "elementwise: Cast",
            "matmul: MatMul",
            "elementwise: Cast",
        ],
    ),
    "operators of chains that do not": (
        lambda b, x, kind: [b.Exp(x), b.MatMul(b.Tanh(x), x)],
        [
            "elementwise: Cast Exp Cast",
            "elementwise: Cast Tanh Cast Cast",
            "elementwise: Cast",
            "matmul: MatMul",
            "elementwise: Cast",
        ],
    ),
    "truths": (lambda b, x, kind: b.Greater(x, b.input("z", x.dtype, (9, 9))), ["elementwise: Cast Cast Greater"]),
    "beside what is no float of 16 bits": (
        lambda b, x, kind: b.Where(b.input("z", "bool", (9, 9)), x, b.Exp(x)), ["elementwise: Cast Exp Cast Cast Cast Where Cast"]
    ),
    "places": (lambda b, x, kind: b.Gather(x, np.array([2, 1]), axis=0), ["gather: Gather"]),
    "axes": (
        lambda b, x, kind: b.ReduceMean(x, np.array([1]), keepdims=True),
        ["elementwise: Cast", "reduce: ReduceMean", "elementwise: Cast"],
    ),
    "several results": (
        lambda b, x, kind: list(b.TopK(x, np.array(2), axis=1)), ["elementwise: Cast", "top_k: TopK", "elementwise: Cast"]
    ),
    "whole numbers beside": (
        lambda b, x, kind: [b.Clip(b.input("z", "i32", (9, 9)), np.int32(1)), b.Exp(x)],
        ["elementwise: Clip", "elementwise: Cast Exp Cast"],
    ),
    "f32 beside": (
        lambda b, x, kind: [b.Exp(b.input("z", "f32", (9, 9))), b.Exp(x)], ["elementwise: Exp", "elementwise: Cast Exp Cast"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_computed_in_f32(kind: str) -> None:
    found = {name: steps(write, kind) for name, (write, _) in RULES.items()}
    assert found == {name: expected for name, (_, expected) in RULES.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_overflow_to_infinity_in_16_bits(kind: str) -> None:
    """A value that becomes an infinity in 16 bits is clipped to the last finite value, and rectified to infinity."""
    most = np.float32(ml_dtypes.finfo(KINDS[kind]).max)
    xs = np.array([np.inf, -np.inf, np.nan, 1.001, -1.001, most, -most, most * np.float32(1.0001)], np.float32)
    xs = np.concatenate([xs, np.float32([3.4e38, -3.4e38, 1e-30])])
    with Builder() as b:
        x = b.input("x", "f32", (11,))
        b.output("of whole numbers", b.Abs(b.Cast(b.Cast(x, to="i32"), to=kind)))
        for name, op in {"relu": b.Relu, "abs": b.Abs, "clip": b.Clip, "negative": b.Negative}.items():
            b.output(name, op(b.Cast(x, to=kind)))
        b.output("bounded", b.Clip(b.Cast(x, to=kind), KINDS[kind](-1), KINDS[kind](np.inf)))
    with np.errstate(over="ignore"):
        found, expected = Engine(b.model)({"x": xs}), interpret(b.model, {"x": xs})
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name].astype(np.float32), array.astype(np.float32), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_has_kernels(kind: str) -> None:
    def write(b: Builder, x: Any, kind: Any) -> Any:
        rows = b.Reshape(x, [1, 9, 9])
        return b.ScaledDotProductAttention(rows, rows, rows)

    found = [step.partition(":")[0] for step in steps(write, kind)]
    assert [step for step in found if step != "elementwise"] == ["matmul", "softmax", "matmul"]


@pytest.mark.parametrize("kind", [*KINDS, "f32"])
def test_sequences(kind: str) -> None:
    with Builder() as b:
        x = b.input("x", kind, (9, 9))
        b.output("y", b.Abs(b.SequenceAt(b.SequenceConstruct(x, b.Negative(x)), b.constant(1, "i64"))))
    feed = {"x": numbers(KINDS.get(kind, np.float32), 9, 9)}
    np.testing.assert_array_equal(Engine(b.model)(feed)["y"], interpret(b.model, feed)["y"])
