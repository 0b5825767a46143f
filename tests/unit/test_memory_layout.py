"""Layouts of tensors in memory: row-major, channels-last or as a view; the copies that they cost; and equal results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.engine.plan import COPY
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
CHANCE = np.random.default_rng(6)
IMAGE = "the kernel reads channels-last"
RESULT = "each output has a buffer of its own"
VIEW = "the view has no single stride per axis"


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


class Layouts(NamedTuple):
    orders: list[str]
    """Of each result of a kernel its axes, that of the largest stride first; those of size 1 left out; "" where it is empty."""
    copies: list[str]
    """Of each copy the reason."""


def layouts_of(write: Callable[[Builder], Any]) -> Layouts:
    """Return the layouts of a model's results. All steps have to run natively, with the interpreter's results."""
    with Builder() as b:
        made = write(b)
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    feed = {value.name: CHANCE.standard_normal(value.shape).astype(np.float32) for value in b.model.inputs}
    engine = Engine(b.model, threads=1)
    bound, _ = engine.bind(feed)
    assert [reason for _, reason in bound.python_steps] == []
    found = engine(feed)
    for name, array in interpret(b.model, feed).items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-4, err_msg=name)
    orders, copies = [], []
    for step in bound.plan.steps:
        for x in (*step.reads, *step.writes):
            assert x is None or 0 not in x.sizes or x.offset == 0
        if step.kernel == COPY:
            copies.append(step.reason)
        elif step.call is not None and step.kernel != "fill":
            orders += [order_of(y.sizes, y.strides) for y in step.writes]
    return Layouts(orders, copies)


def order_of(sizes: tuple[int, ...], strides: tuple[int, ...]) -> str:
    if 0 in sizes:
        return ""
    axes = sorted((-stride, axis) for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)) if size > 1)
    return "".join(str(axis) for _, axis in axes)


def image(b: Builder, *sizes: int) -> Any:
    return b.input("x", "f32", sizes or (2, 8, 6, 6))


def made(b: Builder, *sizes: int) -> Any:
    """Return an image that a kernel makes, which may lie as it is wanted."""
    return b.Tanh(image(b, *sizes))


def conv(b: Builder, x: Any, size: int = 3) -> Any:
    rank = len(x.shape) - 2
    weights = CHANCE.standard_normal((8, x.shape[1], *(size,) * rank)).astype(np.float32) / 8
    return b.Conv(x, weights, pads=(size // 2,) * (2 * rank))


def beside(b: Builder, x: Any, *others: Callable[[Any], Any]) -> list[Any]:
    """Return a convolution of an image, and what else is made of it."""
    return [conv(b, x), *(other(x) for other in others)]


def flat(b: Builder, x: Any, first: int, last: int) -> Any:
    return b.Slice(b.Reshape(x, [-1]), [first], [last])


def as_rows(b: Builder, x: Any, order: list[int], *shape: int) -> Any:
    """Return the axes in another order, read as fewer."""
    return b.Reshape(b.Transpose(x, order), list(shape))


CHANNELS_LAST: dict[str, tuple[Callable[[Builder], Any], Layouts]] = {
    "one after the other": (
        lambda b: conv(b, b.Relu(conv(b, image(b)))), Layouts(["0231", "0231"], [IMAGE, RESULT])
    ),
    "one axis": (
        lambda b: conv(b, b.Relu(conv(b, image(b, 2, 8, 9)))), Layouts(["021", "021"], [IMAGE, RESULT])
    ),
    "what is made": (lambda b: conv(b, made(b)), Layouts(["0231", "0231"], [RESULT])),
    "what is made for it by others": (
        lambda b: conv(b, b.Tanh(b.Softmax(made(b), axis=1))), Layouts(["0231"] * 4, [RESULT])
    ),
    "what others make of it": (
        lambda b: b.GlobalAveragePool(b.Tanh(b.Softmax(b.Tanh(conv(b, made(b))), axis=1))), Layouts(["0231"] * 4 + ["01"], [])
    ),
    "a sum": (
        lambda b: (lambda x: b.GlobalAveragePool(b.Relu(b.Add(conv(b, x), x))))(made(b)), Layouts(["0231", "0231", "01"], [])
    ),
    "a factor before": (
        lambda b: b.GlobalAveragePool(conv(b, b.Multiply(b.Softmax(made(b), axis=1), np.float32(0.3)))),
        Layouts(["0231", "0231", "0231", "01"], []),
    ),
    "a pool": (
        lambda b: b.MaxPool(made(b), kernel_shape=(2, 2)), Layouts(["0231", "0231"], [RESULT])
    ),
    "a pool of one channel": (lambda b: b.MaxPool(made(b, 2, 1, 6, 6), kernel_shape=(2, 2)), Layouts(["023", "023"], [])),
    "a pool of one column": (
        lambda b: b.MaxPool(made(b, 2, 8, 6, 1), kernel_shape=(2, 1)), Layouts(["021", "021"], [RESULT])
    ),
    "one pixel": (lambda b: conv(b, made(b, 2, 8, 1, 1), 1), Layouts(["01", "01"], [])),
    "one pixel of many": (
        lambda b: b.Conv(b.Slice(made(b), [2, 2], [3, 3], [2, 3]), np.ones((8, 8, 1, 1), np.float32)),
        Layouts(["0123", "01"], [IMAGE]),
    ),
    "channels that are the last axis": (
        lambda b: conv(b, b.Transpose(made(b, 2, 6, 6, 8), [0, 3, 1, 2])), Layouts(["0123", "0231"], [RESULT])
    ),
    "an input whose channels are the last axis": (
        lambda b: conv(b, b.Transpose(image(b, 2, 6, 6, 8), [0, 3, 1, 2])), Layouts(["0231"], [RESULT])
    ),
    "an image and a row of numbers": (
        lambda b: conv(b, b.Reshape(b.Tanh(b.input("x", "f32", (576,))), [2, 8, 6, 6])), Layouts(["0", "0231"], [IMAGE, RESULT])
    ),
    "an image and rows": (
        lambda b: conv(b, b.Reshape(b.Tanh(b.input("x", "f32", (2, 288))), [2, 8, 6, 6])),
        Layouts(["01", "0231"], [IMAGE, RESULT]),
    ),
    "pieces across all axes": (
        lambda b: (lambda x: beside(b, x, lambda x: b.Exp(flat(b, x, 3, 50))))(made(b)),
        Layouts(["0123", "0231", "0"], [IMAGE, RESULT]),
    ),
    "axes that are read together": (
        lambda b: (lambda x: beside(b, x, lambda x: b.Softmax(b.Reshape(x, [2, 4, 72]), axis=2)))(made(b)),
        Layouts(["0231", "0231", "012"], [VIEW, RESULT]),
    ),
    "one that wants it, and one that reads other channels": (
        lambda b: (lambda x: beside(b, x, lambda x: conv(b, b.Transpose(x, [0, 2, 1, 3]))))(made(b, 2, 8, 8, 6)),
        Layouts(["0231", "0231", "0231"], [IMAGE, RESULT, RESULT]),
    ),
    "one that wants it, and one that does not": (
        lambda b: (lambda x: beside(b, x, lambda x: conv(b, b.Transpose(x, [0, 3, 1, 2]))))(made(b, 2, 8, 6, 8)),
        Layouts(["0123", "0231", "0231"], [IMAGE, RESULT, RESULT]),
    ),
    "a pool between one that wants it and one that does not": (
        lambda b: (
            lambda x: [b.MaxPool(x, kernel_shape=(3, 3), pads=(1, 1, 1, 1)), conv(b, b.Transpose(x, [0, 3, 1, 2]))]
        )(made(b, 2, 8, 6, 8)),
        Layouts(["0123", "0231", "0231"], [IMAGE, RESULT, RESULT]),
    ),
    "one that does not, made beside one that wants it": (
        lambda b: (lambda x: [conv(b, b.Exp(x)), conv(b, b.Transpose(x, [0, 3, 1, 2]))])(made(b, 2, 8, 8, 8)),
        Layouts(["0123", "0231", "0231", "0231"], [RESULT, RESULT]),
    ),
    "one pixel beside one that wants it": (
        lambda b: (lambda x: [
            conv(b, b.Exp(x)), b.Conv(b.Slice(x, [2, 2], [3, 3], [2, 3]), np.ones((8, 8, 1, 1), np.float32))
        ])(made(b)),
        Layouts(["0231", "0231", "01", "0231"], [RESULT]),
    ),
    "a factor that is a row of numbers": (
        lambda b: b.GlobalAveragePool(
            b.Multiply(conv(b, made(b)), b.Reshape(b.Tanh(b.input("z", "f32", (576,))), [2, 8, 6, 6]))
        ),
        Layouts(["0231", "0231", "0", "0231", "01"], []),
    ),
    "an image across the axes of another": (
        lambda b: conv(b, b.Reshape(made(b), [2, 4, 12, 6])), Layouts(["0123", "0231"], [RESULT])
    ),
    "rows made of pixels": (
        lambda b: b.Softmax(b.Add(b.Transpose(conv(b, made(b, 2, 8, 9)), [0, 2, 1]), np.ones((9, 8), np.float32)), axis=2),
        Layouts(["021", "021", "012", "012"], []),
    ),
    "rows made of a part of the channels": (
        lambda b: b.Softmax(b.Exp(b.Transpose(b.Slice(conv(b, made(b)), [2], [7], [1]), [0, 2, 3, 1])), axis=3),
        Layouts(["0231", "0231", "0123", "0123"], []),
    ),
    "images without height": (lambda b: conv(b, made(b, 2, 8, 0, 6), 2), Layouts(["", "031"], [RESULT])),
    "no images": (lambda b: b.GlobalAveragePool(conv(b, made(b, 0, 8, 6, 6))), Layouts([""] * 3, [])),
    "nothing that is an image": (lambda b: b.Softmax(made(b), axis=1), Layouts(["0123", "0123"], [])),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_images_are_channels_last_where_most_readers_prefer_it(name: str) -> None:
    write, expected = CHANNELS_LAST[name]
    assert layouts_of(write) == expected


AS_VIEWED: dict[str, tuple[Callable[[Builder], Any], Layouts]] = {
    "transposed rows": (
        lambda b: b.Softmax(as_rows(b, made(b, 2, 3, 4), [0, 2, 1], 2, 12), axis=1), Layouts(["021", "01"], [])
    ),
    "axes in the opposite order": (
        lambda b: b.Softmax(as_rows(b, made(b, 2, 3, 4, 5), [3, 2, 1, 0], 5, 24), axis=1), Layouts(["3210", "01"], [])
    ),
    "axes round about": (
        lambda b: b.Softmax(as_rows(b, made(b, 2, 3, 4, 5), [2, 0, 3, 1], 8, 15), axis=1), Layouts(["2031", "01"], [])
    ),
    "an axis of one": (
        lambda b: b.Softmax(as_rows(b, made(b, 2, 3, 1, 4), [0, 3, 2, 1], 2, 12), axis=1), Layouts(["031", "01"], [])
    ),
    "an axis of one before": (
        lambda b: b.Softmax(as_rows(b, made(b, 1, 2, 3, 4), [0, 1, 3, 2], 2, 12), axis=1), Layouts(["132", "01"], [])
    ),
    "what comes in": (
        lambda b: b.Softmax(as_rows(b, image(b, 2, 3, 4), [0, 2, 1], 2, 12), axis=1), Layouts(["01"], [VIEW])
    ),
    "rows": (
        lambda b: b.Softmax(b.Reshape(b.Transpose(made(b, 4, 6), [1, 0]), [24]), axis=0), Layouts(["01", "0"], [VIEW])
    ),
    "a view that no kernel reads": (
        lambda b: b.Exp(b.Reshape(as_rows(b, made(b, 2, 3, 4), [0, 2, 1], 2, 12), [2, 4, 3])), Layouts(["012", "012"], [])
    ),
    "a piece": (
        lambda b: b.Softmax(as_rows(b, b.Slice(made(b, 2, 5, 4), [1], [4], [1]), [0, 2, 1], 2, 12), axis=1),
        Layouts(["012", "01"], [VIEW]),
    ),
    "a piece that repeats": (
        lambda b: b.Softmax(as_rows(b, b.Expand(b.Slice(made(b, 2, 3, 4), [0], [1], [0]), [2, 3, 4]), [2, 0, 1], 8, 3), axis=1),
        Layouts(["012", "01"], [VIEW]),
    ),
    "backwards": (
        lambda b: b.Softmax(as_rows(b, b.Slice(made(b, 2, 3, 4), [-1], [-9], [0], [-1]), [2, 0, 1], 4, 6), axis=1),
        Layouts(["012", "01"], [VIEW]),
    ),
    "one that goes the other way": (
        lambda b: (lambda x: [
            b.Softmax(as_rows(b, x, [0, 2, 1], 2, 12), axis=1), b.Exp(x)
        ])(made(b, 2, 3, 4)),
        Layouts(["021", "01", "012"], []),
    ),
    "two that cannot go together": (
        lambda b: (lambda x: [
            b.Softmax(as_rows(b, x, [0, 2, 1], 2, 12), axis=1), b.Softmax(b.Reshape(x, [2, 12]), axis=1)
        ])(made(b, 2, 3, 4)),
        Layouts(["012", "01", "01"], [VIEW]),
    ),
    "a piece that goes across": (
        lambda b: (lambda x: [b.Softmax(as_rows(b, x, [0, 2, 1], 2, 12), axis=1), flat(b, x, 3, 21)])(made(b, 2, 3, 4)),
        Layouts(["012", "01"], [VIEW, RESULT]),
    ),
    "an image": (
        lambda b: (lambda x: beside(b, x, lambda x: b.Softmax(as_rows(b, x, [0, 2, 1, 3], 2, 288), axis=1)))(made(b)),
        Layouts(["0231", "0231", "01"], [VIEW, RESULT]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_VIEWED)
def test_the_source_of_a_view_has_the_layout_of_the_view(name: str) -> None:
    write, expected = AS_VIEWED[name]
    assert layouts_of(write) == expected


def test_a_result_whose_shape_is_known_at_run_time() -> None:
    with Builder() as b:
        x = image(b)
        b.output("image", conv(b, x))
        b.output("places", b.NonZero(b.Relu(x)))
    feed = {"x": CHANCE.standard_normal((2, 8, 6, 6)).astype(np.float32)}
    np.testing.assert_array_equal(Engine(b.model, threads=1)(feed)["places"], interpret(b.model, feed)["places"])
