"""Losses and their gradients are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assertions import assert_close
from cases.matmul import floats
from dovetail.ir.builder import Builder
from dovetail.laws.gradients import adjoints
from dovetail.ops.training.losses import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from dovetail.runtime.interpreter.interpret import interpret

_X = floats(3, 4, 5, name="f64")
_TARGET = np.random.default_rng(5).integers(0, 4, (3, 5))
_WEIGHT = np.array([0.5, 2.0, 0.25, 1.5])


@pytest.mark.parametrize("ignored", [None, 2, -100])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("kind", [NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss])
def test_a_loss_and_its_gradient_are_torchs(kind: Any, reduction: str, is_weighted: bool, ignored: int | None) -> None:
    torch = pytest.importorskip("torch")
    target = np.where(np.arange(5) == 1, ignored, _TARGET) if ignored is not None else _TARGET
    b = Builder()
    x = b.input("x", "f64", ("n", "c", "d"))
    given = [b.input("target", "i64", ("n", "d")), *([b.input("weight", "f64", ("c",))] if is_weighted else [])]
    (y,) = b.add(kind(reduction, ignored), x, *given)
    (slope,) = adjoints(b, [y], [b.input_of("g", y.type)], [x])
    b.output("y", y)
    b.output("dx", slope)
    function = {NegativeLogLikelihoodLoss: "nll_loss", SoftmaxCrossEntropyLoss: "cross_entropy"}[kind]
    leaf = torch.tensor(_X, requires_grad=True)
    theirs = getattr(torch.nn.functional, function)(
        leaf,
        torch.tensor(target),
        weight=torch.tensor(_WEIGHT) if is_weighted else None,
        ignore_index=-100 if ignored is None else ignored,
        reduction=reduction,
    )
    g = np.random.default_rng(6).standard_normal(tuple(theirs.shape))
    theirs.backward(torch.tensor(g))
    weights = {"weight": _WEIGHT} if is_weighted else {}
    ours = interpret(b.model, {"x": _X, "target": target, **weights, "g": g})
    assert_close(np.asarray(ours["y"]), theirs.detach().numpy(), 1e-12, "the loss")
    assert_close(np.asarray(ours["dx"]), leaf.grad.numpy(), 1e-12, "its gradient")


def test_a_class_that_there_is_not_is_an_error() -> None:
    b = Builder()
    b.output("y", b.NegativeLogLikelihoodLoss(b.input("x", "f32", (2, 3)), b.input("target", "i64", (2,))))
    with pytest.raises(Exception, match="outside"):
        interpret(b.model, {"x": np.zeros((2, 3), np.float32), "target": np.array([0, 3])})
