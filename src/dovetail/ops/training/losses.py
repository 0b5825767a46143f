"""Classification losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree, agree_shapes
from dovetail.ops.casts import as_type, wide_type

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Loss(Op):
    """_Loss is the base of both losses, with their attributes and their decomposition.

    Log-probabilities ``x`` are [batch, classes, *positions], class indices ``target`` are [batch, *positions], and ``weight`` is
    [classes]. At a position with ``target`` equal to ``ignore_index`` the loss and the weight are 0. The ``reduction`` ``none``
    keeps the loss of each position, ``sum`` adds the losses, and ``mean`` divides the sum by the sum of the weights, which are
    1 if omitted.
    """

    reduction: str = "mean"
    ignore_index: int | None = None

    def validate(self) -> None:
        if self.reduction not in ("none", "sum", "mean"):
            raise RuleError("attribute.value", f"reduction must be none, sum or mean, got {self.reduction!r}")

    def shape_of_loss(self, x: View, target: View, weight: View | None) -> Any:
        if x.shape is not None and len(x.shape) < 2:
            raise RuleError("shape.rank", f"the scores must have at least 2 axes, batch and classes, got {x.type}")
        classes = None if x.shape is None else x.shape[1]
        if weight is not None and weight.shape is not None:
            if len(weight.shape) != 1:
                raise RuleError("shape.rank", f"weight must have rank 1, got {weight.type}")
            if classes is not None:
                agree(weight.shape[0], classes, ("weight", 0), "the number of classes")
        positions = None if x.shape is None else (x.shape[0], *x.shape[2:])
        if target.shape is not None:
            if positions is not None and len(target.shape) != len(positions):
                raise RuleError("shape.disagree", f"target must have a class for each position of {x.type}, got {target.type}")
            positions = agree_shapes(target.shape, positions, "target", "the scores without classes")
        return positions if self.reduction == "none" else ()

    def write_loss(self, b: Builder, x: Value, target: Value, weight: Value | None) -> Any:
        """Emit the loss of log-probabilities; at an ignored position the class is replaced by 0, and the loss by 0."""
        dtype, wide = x.dtype, wide_type(x.dtype)
        is_ignored = None if self.ignore_index is None else b.Equal(target, b.constant(self.ignore_index, target.dtype))
        if is_ignored is not None:
            target = b.Where(is_ignored, b.constant(0, target.dtype), target)
        axes_of_target = [axis for axis in range(len(x.dims)) if axis != 1]
        picked = as_type(b, b.Squeeze(b.GatherElements(x, b.Unsqueeze(target, [1]), axis=1), [1]), wide)
        weights = None if weight is None else as_type(b, b.Gather(weight, target, axis=0), wide)
        loss = b.Negative(picked) if weights is None else b.Negative(b.Multiply(picked, weights))
        if is_ignored is not None:
            loss = b.Where(is_ignored, b.constant(0, wide), loss)
            if self.reduction == "mean":
                weights = b.Where(is_ignored, b.constant(0, wide), b.constant(1, wide) if weights is None else weights)
        if self.reduction != "none":
            axes = list(range(len(axes_of_target)))
            if self.reduction == "mean" and weights is None:
                loss = b.ReduceMean(loss, axes, keepdims=False)
            else:
                loss = b.ReduceSum(loss, axes, keepdims=False)
            if self.reduction == "mean" and weights is not None:
                loss = b.Divide(loss, b.ReduceSum(weights, axes, keepdims=False))
        return as_type(b, loss, dtype)


class NegativeLogLikelihoodLoss(
    _Loss,
    sig="input: F, target: I, weight?: F -> loss: F",
    onnx="NegativeLogLikelihoodLoss-12,13,22(input, target, weight?; reduction=mean, ignore_index?)",
):
    """NegativeLogLikelihoodLoss computes ``-input[i, target[i, j], j] * weight[target[i, j]]``.

    ``input`` are log-probabilities [batch, classes, *positions], ``target`` is [batch, *positions]. The loss is 0 at positions
    with ``target`` equal to ``ignore_index``. ``reduction``: ``none`` keeps the loss of each position, ``sum`` adds the losses,
    ``mean`` divides the sum by the sum of the weights (1 each if omitted; 0 at an ignored position).
    Source: ONNX NegativeLogLikelihoodLoss 12, 13, 22.
    """

    def shape(self, input: View, target: View, weight: View | None = None) -> Any:
        return self.shape_of_loss(input, target, weight)

    def decompose(self, b: Builder, input: Value, target: Value, weight: Value | None = None) -> Any:
        return self.write_loss(b, input, target, weight)


class SoftmaxCrossEntropyLoss(
    _Loss,
    sig="scores: F, labels: I, weights?: F -> output: F, log_prob: F",
    onnx="SoftmaxCrossEntropyLoss-12,13(scores, labels, weights?; reduction=mean, ignore_index?)",
):
    """SoftmaxCrossEntropyLoss computes the NegativeLogLikelihoodLoss of ``log(softmax(scores))`` over axis 1.

    The second output, if requested, is ``log(softmax(scores))``. NegativeLogLikelihoodLoss defines the attributes.
    Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
    """

    outputs: int = 1

    def validate(self) -> None:
        super().validate()
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"SoftmaxCrossEntropyLoss has 1 or 2 outputs, got {self.outputs}")

    def shape(self, scores: View, labels: View, weights: View | None = None) -> Any:
        return [self.shape_of_loss(scores, labels, weights), scores.shape][: self.outputs]

    def decompose(self, b: Builder, scores: Value, labels: Value, weights: Value | None = None) -> Any:
        log_prob = b.LogSoftmax(scores, axis=1)
        return [self.write_loss(b, log_prob, labels, weights), log_prob][: self.outputs]
