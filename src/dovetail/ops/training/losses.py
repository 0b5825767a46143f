"""Losses of classification: what log-probabilities lose at the classes that were meant."""

from __future__ import annotations

from typing import Any

from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.casts import as_type, wide_type


class _Loss(Op):
    """The loss of ``x`` [batch, classes, *places] at the classes ``target`` [batch, *places], times their ``weight`` [classes].

    Where ``target`` is ``ignored``, the loss and its weight are 0. ``reduction``: ``none`` gives the loss of each place, ``sum``
    their sum, ``mean`` that sum over the sum of the weights, which are 1 where none are given.
    """

    reduction: str = "mean"
    ignored: int | None = None

    def validate(self) -> None:
        if self.reduction not in ("none", "sum", "mean"):
            raise RuleError("loss.reduction", f"{self.reduction!r} is none of none, sum, mean")

    def loss_shape(self, x: Any, target: Any, weight: Any) -> Any:
        if x.shape is not None and len(x.shape) < 2:
            raise RuleError("loss.rank", f"a batch and classes are needed, not {x.type}")
        classes = None if x.shape is None else x.shape[1]
        if weight is not None and weight.shape is not None:
            if len(weight.shape) != 1:
                raise RuleError("loss.weight", f"a weight for each class is needed, not {weight.type}")
            if classes is not None:
                agree(weight.shape[0], classes)
        places = None if x.shape is None else (x.shape[0], *x.shape[2:])
        if target.shape is not None:
            if places is not None and len(target.shape) != len(places):
                raise RuleError("loss.rank", f"a class for each place of {x.type} is needed, not {target.type}")
            places = target.shape if places is None else tuple(map(agree, target.shape, places))
        return places if self.reduction == "none" else ()

    def loss(self, b: Any, x: Any, target: Any, weight: Any) -> Any:
        """The loss of log-probabilities; 0 stands for an ignored class, whose loss is left out afterwards."""
        kind, wide = x.dtype, wide_type(x.dtype)
        is_ignored = None if self.ignored is None else b.Equal(target, b.constant(self.ignored, target.dtype))
        if is_ignored is not None:
            target = b.Where(is_ignored, b.constant(0, target.dtype), target)
        places = [axis for axis in range(len(x.dims)) if axis != 1]
        picked = as_type(b, b.Squeeze(b.GatherElements(x, b.Unsqueeze(target, [1]), axis=1), [1]), wide)
        weights = None if weight is None else as_type(b, b.Gather(weight, target, axis=0), wide)
        found = b.Negative(picked) if weights is None else b.Negative(b.Multiply(picked, weights))
        if is_ignored is not None:
            found = b.Where(is_ignored, b.constant(0, wide), found)
            if self.reduction == "mean":
                weights = b.Where(is_ignored, b.constant(0, wide), b.constant(1, wide) if weights is None else weights)
        if self.reduction != "none":
            axes = list(range(len(places)))
            if self.reduction == "mean" and weights is None:
                found = b.ReduceMean(found, axes, keepdims=False)
            else:
                found = b.ReduceSum(found, axes, keepdims=False)
            if self.reduction == "mean" and weights is not None:
                found = b.Divide(found, b.ReduceSum(weights, axes, keepdims=False))
        return as_type(b, found, kind)


class NegativeLogLikelihoodLoss(
    _Loss,
    sig="x: F, target: I, weight?: F -> loss: F",
    onnx="NegativeLogLikelihoodLoss-12,13,22(x, target, weight?; reduction=mean, ignore_index:ignored?)",
):
    """What the log-probabilities ``x`` [batch, classes, *places] lose at the classes ``target`` [batch, *places].

    That is ``-x[i, target[i, j], j] * weight[target[i, j]]``, and 0 where ``target`` is ``ignored``. ``reduction``: ``none``
    gives it for each place, ``sum`` the sum, ``mean`` the sum over that of the weights (1 each where none are given; 0 where a
    class is ignored). Source: ONNX NegativeLogLikelihoodLoss 12, 13, 22.
    """

    def shape(self, x: Any, target: Any, weight: Any = None) -> Any:
        return self.loss_shape(x, target, weight)

    def decompose(self, b: Any, x: Any, target: Any, weight: Any = None) -> Any:
        return self.loss(b, x, target, weight)


class SoftmaxCrossEntropyLoss(
    _Loss,
    sig="x: F, target: I, weight?: F -> loss: F, log_probabilities: F",
    onnx="SoftmaxCrossEntropyLoss-12,13(x, target, weight?; reduction=mean, ignore_index:ignored?)",
):
    """The negative log-likelihood loss of ``log(softmax(x))`` over the classes (axis 1), and that logarithm if asked for.

    The attributes are those of NegativeLogLikelihoodLoss. Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
    """

    outputs: int = 1

    def validate(self) -> None:
        super().validate()
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"{self.outputs} outputs; there are 1 or 2")

    def shape(self, x: Any, target: Any, weight: Any = None) -> Any:
        return [self.loss_shape(x, target, weight), x.shape][: self.outputs]

    def decompose(self, b: Any, x: Any, target: Any, weight: Any = None) -> Any:
        logarithm = b.LogSoftmax(x, axis=1)
        return [self.loss(b, logarithm, target, weight), logarithm][: self.outputs]
