"""Forms of products that other tools write are proved equal, and onnxruntime computes the same; other products are not proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.laws.terms import terms

onnxruntime = pytest.importorskip("onnxruntime")

Expression = Callable[..., Any]
RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((6, 6)).astype(np.float32) for _ in range(2)]
BIAS = RNG.standard_normal(6).astype(np.float32)
KERNEL = RNG.standard_normal((6, 6, 3)).astype(np.float32)
SCALE = np.float32(0.37)


def rows(b: Any, x: Any, width: int = 6) -> Any:
    return b.Reshape(x, [-1, width])


def as_rows(b: Any, x: Any, weights: Any, bias: Any) -> Any:
    """Return x @ weights + bias by a Gemm of two axes between two Reshape with computed shapes."""
    shape = b.Concat(b.Shape(x)[:2], np.array([6], np.int64), axis=0)
    return b.Reshape(b.Gemm(rows(b, x), weights, bias), shape)


def windows(b: Any, x: Any) -> Any:
    """Return rows of which an expression is the number, which is -1 where m is 0: the convolution is not defined there."""
    return b.Transpose(b.Conv(b.Transpose(x, [0, 2, 1]), KERNEL, strides=[2]), [0, 2, 1])


def in_heads(b: Any, x: Any, y: Any) -> Any:
    return b.Reshape(y, b.Concat(b.Shape(x)[:2], np.array([-1, 3], np.int64), axis=0))


def scores(b: Any, x: Any, before: float = 1.0, left: float = 1.0, right: float = 1.0, after: float = 1.0) -> Any:
    """Return the products of two projections of x, with scalar factors in four places."""
    query = b.MatMul(x, WEIGHTS[0] * np.float32(before)) + BIAS * np.float32(before)
    key = b.MatMul(x, WEIGHTS[1]) + BIAS
    product = b.MatMul(query * np.float32(left), b.Transpose(key * np.float32(right), [0, 2, 1]))
    return product * np.float32(after)


def halved(b: Any, x: Any) -> Any:
    y = b.MatMul(x, WEIGHTS[0]) + BIAS
    return y * np.float32(0.5) * b.Tanh(y)


def gated(b: Any, x: Any, before: float = 1.0, after: float = 1.0) -> Any:
    """Return the product of a part of a projection of x and a function of x, with scalar factors in two places."""
    heads = b.Reshape(b.MatMul(x, WEIGHTS[0]) * np.float32(before), [0, -1, 2, 3], special_zero=True)
    part = b.Transpose(heads[:, :, :, :2], [0, 2, 1, 3])
    return part * b.Tanh(x[:, :1, None, :2]) * np.float32(after)


PLAIN: Expression = lambda b, x: b.MatMul(x, WEIGHTS[0]) + BIAS  # noqa: E731
EQUAL: dict[str, tuple[Expression, Expression]] = {
    "Gemm of rows": (PLAIN, lambda b, x: as_rows(b, x, WEIGHTS[0], BIAS)),
    "two Gemm of rows": (
        lambda b, x: b.MatMul(b.Tanh(PLAIN(b, x)), WEIGHTS[1]) + x,
        lambda b, x: as_rows(b, b.Tanh(as_rows(b, x, WEIGHTS[0], BIAS)), WEIGHTS[1], np.zeros(6, np.float32)) + x,
    ),
    "Gemm of rows of windows": (
        lambda b, x: PLAIN(b, windows(b, x)),
        lambda b, x: as_rows(b, windows(b, x), WEIGHTS[0], BIAS),
    ),
    "Gemm of rows of windows in heads": (
        lambda b, x: in_heads(b, windows(b, x), PLAIN(b, windows(b, x))),
        lambda b, x: in_heads(b, windows(b, x), b.Gemm(rows(b, windows(b, x)), WEIGHTS[0], BIAS)),
    ),
    "factor at the left and the right": (lambda b, x: scores(b, x, left=0.5, right=0.5), lambda b, x: scores(b, x, after=0.25)),
    "factor in weights": (lambda b, x: scores(b, x, after=SCALE), lambda b, x: scores(b, x, right=SCALE)),
    "factor of a part": (lambda b, x: gated(b, x, before=0.5), lambda b, x: gated(b, x, after=0.5)),
}  # fmt: skip
UNEQUAL: dict[str, tuple[Expression, Expression]] = {
    "other weights": (PLAIN, lambda b, x: as_rows(b, x, WEIGHTS[1], BIAS)),
    "transposed rows": (PLAIN, lambda b, x: as_rows(b, b.Transpose(x, [1, 0, 2]), WEIGHTS[0], BIAS)),
    "bias of rows": (PLAIN, lambda b, x: as_rows(b, x, WEIGHTS[0], BIAS[:1])),
    "factor once": (lambda b, x: scores(b, x, left=0.5, right=0.5), lambda b, x: scores(b, x, after=0.5)),
    "negative factor": (lambda b, x: scores(b, x, right=-0.5), lambda b, x: scores(b, x, after=0.5)),
    "factor without bias": (
        lambda b, x: scores(b, x, before=0.5),
        lambda b, x: b.MatMul(
            b.MatMul(x, WEIGHTS[0] * np.float32(0.5)) + BIAS, b.Transpose(b.MatMul(x, WEIGHTS[1]) + BIAS, [0, 2, 1])
        ),
    ),
    "factor of a part and of the whole": (lambda b, x: gated(b, x, before=0.5), lambda b, x: gated(b, x, before=0.5, after=0.5)),
    "factor inside a function": (
        lambda b, x: halved(b, x),
        lambda b, x: PLAIN(b, x) * b.Tanh(PLAIN(b, x) * np.float32(0.5)),
    ),
}  # fmt: skip


def save_both(pair: tuple[Expression, Expression], folder: Path) -> list[Path]:
    paths = [folder / "a.onnx", folder / "b.onnx"]
    for path, expression in zip(paths, pair, strict=True):
        with dovetail.Builder() as b:
            b.output("y", expression(b, b.input("x", "f32", ("n", "m", 6))))
        dovetail.save(b.model, path)
    return paths


def outputs_of(paths: list[Path]) -> list[np.ndarray[Any, Any]]:
    x = RNG.standard_normal((3, 3, 6)).astype(np.float32)
    return [onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for path in paths]


@pytest.mark.parametrize("name", EQUAL)
def test_equal_forms_are_proved(name: str, tmp_path: Path) -> None:
    paths = save_both(EQUAL[name], tmp_path)
    first, second = outputs_of(paths)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    assert dovetail.prove(*paths, real=True).verdict == "real"


@pytest.mark.parametrize("name", UNEQUAL)
def test_other_products_are_not_proved(name: str, tmp_path: Path) -> None:
    paths = save_both(UNEQUAL[name], tmp_path)
    first, second = outputs_of(paths)
    assert first.shape != second.shape or np.max(np.abs(first - second)) > 1e-3
    assert dovetail.prove(*paths, real=True).verdict == "different"


@pytest.mark.parametrize("name", EQUAL)
def test_rewrites_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No form is rewritten until the limit of nested rewrites: laws that undo each other would reach it."""
    depths: list[int] = []
    new_term = terms.Terms._new_term

    def record_depth(b: terms.Terms, op: Op, xs: list[Value | None]) -> list[Value]:
        depths.append(b._depth)
        return new_term(b, op, xs)

    monkeypatch.setattr(terms.Terms, "_new_term", record_depth)
    dovetail.prove(*save_both(EQUAL[name], tmp_path), real=True)
    assert 0 < max(depths) < terms.MAX_DEPTH // 2
