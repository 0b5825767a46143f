"""dovetail.training_step: a model that computes a loss and the next values of the weights, as an ordinary graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import ArgumentTypeError, RuleError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead, set_input
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.laws.gradients import adjoints_or_none
from dovetail.ops.builders import zeros_like
from dovetail.ops.constant import Constant
from dovetail.passes.merge import merge

LOSSES = ("cross_entropy", "mse", "binary_cross_entropy")
OPTIMIZERS = ("sgd", "adam", "adamw")
LOSS, TARGET, LEARNING_RATE, STEP = "loss", "target", "learning_rate", "step"


@dataclass(slots=True)
class TrainingReport:
    """TrainingReport is the report of :func:`training_step`.

    ``weights`` are the names of the trained constants. ``states`` maps each input that a step updates to the output that is its
    next value: the weights, and what the optimizer keeps. ``initial`` holds the first values of these inputs.
    """

    weights: list[str]
    states: dict[str, str] = field(default_factory=dict)
    initial: dict[str, Any] = field(default_factory=dict)


class _UpdateRule(NamedTuple):
    name: str
    momentum: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float


@check_keywords
def training_step(
    model: Model,
    loss: str | Model = "cross_entropy",
    *,
    weights: str | Iterable[str] | None = None,
    optimizer: str = "adamw",
    momentum: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    weight_decay: float | None = None,
    straight_through: bool = False,
) -> Model:
    """Return a model of one training step of ``model``; its ``report`` is a TrainingReport.

    The inputs are those of ``model``, those of the loss, ``learning_rate`` (f32, a scalar), and the states: the weights and what
    the optimizer keeps. The outputs are ``loss`` (a scalar) and the next values of the states. A session keeps the states::

        step = dovetail.training_step(model, "cross_entropy")
        session = dovetail.compile(step).session(step.report.states)
        session.states = step.report.initial
        for x, target in batches:
            loss = session(x=x, target=target, learning_rate=1e-3)["loss"]
        trained = model.with_constants({name: session.states[name] for name in step.report.weights})

    ``loss`` is "cross_entropy" (the mean over positions of the cross-entropy of logits [batch, classes, *positions] and the input
    ``target``, class indices [batch, *positions] of i64), "mse" (the mean of the squared differences from ``target``),
    "binary_cross_entropy" (the mean over the elements of logits and of ``target``, in 0 to 1), or a model with one scalar output
    whose inputs include outputs of ``model`` by name. The named losses need a model with one output.

    ``weights`` are names of f32 constants, or patterns such as ``"head.*"``; by default all constants of at least two f32
    elements to which a gradient flows. Statistics of BatchNormalization stay constants, and by default also tables of
    LabelEncoder, scales and limits of quantization, and constants in subgraphs. The report lists the weights. A new name that
    ``model`` has already gets a number.

    ``optimizer`` is "sgd" (with ``momentum``), "adam" or "adamw" (with ``betas`` and ``epsilon``). ``weight_decay`` is added to
    the gradient as ``weight_decay * w``; for adamw the weights shrink by ``learning_rate * weight_decay`` in each step instead.
    Its default is 0.01 for adamw, and 0 otherwise.

    Rounding has the derivative 0, so that quantizations are refused. ``straight_through`` replaces the gradients of
    QuantizeLinear, DequantizeLinear and FakeQuantize by an estimate: that of the identity for data inside of the range of the
    codes, and 0 outside of it. The weights of quantized layers are then trained as floats that are quantized in each step.

    Raises ArgumentTypeError [argument.type] for a loss that is neither a name nor a model; RuleError [argument.value] for an
    unknown loss or optimizer and for numbers out of range, [name.unknown] for weights
    that the model lacks, [grad.dtype] for weights or a loss that are not f32, [merge.connection] for a loss that does not fit;
    UnsupportedError [grad.op] with all nodes without a gradient, [type.unknown] where a gradient depends on types that are not
    known, [constant.needed] for a model without weights.
    Sources: the update rules of torch.optim.SGD, Adam and AdamW; the rule of torch.fake_quantize_per_tensor_affine.

    >>> with dovetail.Builder() as b:
    ...     x = b.input("x", "f32", ("n", 2))
    ...     y = b.output("y", b.MatMul(x, b.constant(np.zeros((2, 1), np.float32), name="w")))
    >>> step = dovetail.training_step(b.model, "mse", optimizer="sgd")
    >>> x, target = np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32)
    >>> new = dovetail.run(step, {"x": x, "target": target, "learning_rate": 1.0, **step.report.initial})
    >>> (float(new["loss"]), new["next.w"].tolist())
    (1.0, [[1.0], [1.0]])
    """
    settings = _rule_of(optimizer, momentum, betas, epsilon, weight_decay)
    with counting(model.limits):
        new = merge(model, _loss_model(model, loss))
        scalar = new.outputs[-1]
        if scalar.shape != () or scalar.dtype.name != "f32":
            raise RuleError("grad.dtype", f"the loss must be a scalar of f32, got {scalar.type}", file=model.file)
        new.graph.outputs = [scalar]
        new.states = []
        remove_dead(new.graph)
        chosen = _find_weights(new, weights)
        return _add_step(new, scalar, chosen, settings, keeps_all=weights is not None, straight_through=straight_through)


def _rule_of(
    optimizer: str, momentum: float, betas: tuple[float, float], epsilon: float, weight_decay: float | None
) -> _UpdateRule:
    if optimizer not in OPTIMIZERS:
        text = f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {optimizer!r}{closest(str(optimizer), OPTIMIZERS)}"
        raise RuleError("argument.value", text)
    decay = (0.01 if optimizer == "adamw" else 0.0) if weight_decay is None else weight_decay
    numbers = {"momentum": momentum, "epsilon": epsilon, "weight_decay": decay}
    if len(betas) != 2:
        raise RuleError("argument.value", f"betas must be two numbers, got {betas!r}")
    numbers |= {"betas[0]": betas[0], "betas[1]": betas[1]}
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not 0 <= number < (1 if "betas" in name else np.inf):
            limit = " and below 1" if "betas" in name else ""
            raise RuleError("argument.value", f"{name} must be a number of at least 0{limit}, got {number!r}")
    return _UpdateRule(optimizer, momentum, betas, epsilon, decay)


def _loss_model(model: Model, loss: str | Model) -> Model:
    """Return a model whose inputs include outputs of ``model``, with one output."""
    if isinstance(loss, Model):
        if len(loss.outputs) != 1:
            raise RuleError("argument.value", f"the loss must have one output, got {len(loss.outputs)}", file=loss.file)
        return loss
    if not isinstance(loss, str):
        raise ArgumentTypeError("argument.type", f"loss must be a name or a model, got {type(loss).__name__}")
    if loss not in LOSSES:
        text = f"loss must be one of {', '.join(LOSSES)} or a model, got {loss!r}{closest(loss, LOSSES)}"
        raise RuleError("argument.value", text)
    if len(model.outputs) != 1:
        names = ", ".join(repr(value.name) for value in model.outputs)
        raise RuleError("argument.value", f"the loss {loss} needs a model with one output, got {names}", file=model.file)
    result = model.outputs[0]
    b = Builder(loss)
    y, target_name = b.input_of(result.name, result.type), model.graph.free_name(TARGET)
    if loss == "cross_entropy":
        from dovetail.ops.training.losses import SoftmaxCrossEntropyLoss

        shape = None if result.shape is None else (*result.shape[:1], *result.shape[2:])
        target = b.input(target_name, "i64", shape)
        scalar = b.add(SoftmaxCrossEntropyLoss(), y, target)[0]
    else:
        target = b.input_of(target_name, result.type)
        if loss == "mse":
            difference = b.Subtract(y, target)
            each = b.Multiply(difference, difference)
        else:
            # max(y, 0) - y * target + log(1 + exp(-|y|)) does not overflow.
            each = b.Subtract(b.Relu(y), b.Multiply(y, target))
            each = b.Add(each, b.Log(b.Add(b.Exp(b.Negative(b.Abs(y))), 1.0)))
        scalar = b.ReduceMean(each, None, keepdims=False)
    b.output(model.graph.free_name(LOSS), scalar)
    return b.model


def _find_weights(model: Model, names: str | Iterable[str] | None) -> list[Value]:
    """Return the constants to be trained, in the order of the graph."""
    floats = [value for value in model.graph.values() if _is_trainable(value, _is_statistic)]
    if names is None:
        found = [
            value for value in floats if value.dtype.name == "f32" and prod(value.dims) > 1 and _is_trainable(value, _is_fixed)
        ]
        if not found:
            raise UnsupportedError("constant.needed", "the model must have f32 constants to train, got none", file=model.file)
        return found
    patterns = [names] if isinstance(names, str) else list(names)
    chosen: dict[int, Value] = {}
    for pattern in patterns:
        matches = [value for value in floats if fnmatchcase(value.name, pattern)]
        if not matches:
            similar = closest(pattern, [value.name for value in floats])
            raise RuleError("name.unknown", f"weights: the model has no float constant {pattern!r}{similar}", file=model.file)
        chosen |= {id(value): value for value in matches}
    if wrong := [value for value in chosen.values() if value.dtype.name != "f32"]:
        text = f"the trained constant {wrong[0].name!r} must be f32, got {wrong[0].dtype}"
        raise RuleError("grad.dtype", text, file=model.file)
    return [value for value in floats if id(value) in chosen]


def _is_trainable(value: Value, is_fixed: Callable[[Node, int], bool]) -> bool:
    if not isinstance(value.node and value.node.op, Constant) or not value.dtype.is_float:
        return False
    return any(not is_fixed(node, port) for node, port in value.uses)


def _add_step(
    model: Model, loss: Value, weights: Sequence[Value], settings: _UpdateRule, *, keeps_all: bool, straight_through: bool
) -> Model:
    """Make the weights inputs, and add the gradients and the next values of all states.

    Weights without a gradient stay constants, or with ``keeps_all`` have a gradient of zeros.
    """
    graph = model.graph
    b = Builder(graph=graph)
    seed = b.constant(np.ones((), np.float32))
    gradients = adjoints_or_none(b, [loss], [seed], weights, straight_through=straight_through)
    if keeps_all:
        gradients = [zeros_like(b, x) if gradient is None else gradient for x, gradient in zip(weights, gradients, strict=True)]
    trained = [(value, gradient) for value, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    if not trained:
        text = f"the loss must depend differentiably on a constant, got {', '.join(repr(value.name) for value in weights[:3])}"
        raise UnsupportedError("constant.needed", text, file=model.file)
    writer = _StepWriter(b, settings)
    nodes = {id(value.node) for value, _ in trained}
    constants = Builder(graph=Graph())
    for value, gradient in trained:
        writer.report.weights.append(value.name)
        writer.report.initial[value.name] = np.array(value.constant)
        _copy_fixed_inputs(constants, value, _is_statistic if keeps_all else _is_fixed)
        value.node = value.value = None
        graph.inputs.append(value)
        writer.update(value, gradient)
    graph.nodes[:] = [*constants.graph.nodes, *(node for node in graph.nodes if id(node) not in nodes)]
    remove_dead(graph)
    infer_graph(graph, file=model.file)
    model.report = writer.report
    return model


def _copy_fixed_inputs(b: Builder, weight: Value, is_fixed: Callable[[Node, int], bool]) -> None:
    """Let each input that is no weight read a constant instead of ``weight``: exporters store equal arrays once."""
    readers = [(node, port) for node, port in weight.uses if is_fixed(node, port)]
    if readers:
        constant = b.constant(np.array(weight.constant), weight.dtype, name=f"{weight.name}.fixed")
        for node, port in readers:
            set_input(node, port, constant)


def _is_fixed(node: Node, port: int) -> bool:
    return port in node.op.fixed_ports


def _is_statistic(node: Node, port: int) -> bool:
    # Deferred for start-up time, as is the loss: public functions import few operators.
    from dovetail.ops.nn.normalization import BatchNormalization

    return isinstance(node.op, BatchNormalization) and _is_fixed(node, port)


class _StepWriter:
    """_StepWriter adds the update of each weight to a graph, with the states of the optimizer."""

    def __init__(self, b: Builder, settings: _UpdateRule) -> None:
        self.report = TrainingReport([])
        self._b, self._settings = b, settings
        self._rate = b.input(b.graph.free_name(LEARNING_RATE), "f32", ())
        if settings.name != "sgd":
            # Powers of betas near 1 need f64: 1 - beta ** step loses most digits of f32.
            before = self._state(STEP, np.zeros((), np.float32))
            after = self._keep(before, b.Add(before, 1.0))
            steps = b.Cast(after, to="f64")
            first, second = (b.Subtract(1.0, b.Power(b.constant(np.float64(beta)), steps)) for beta in settings.betas)
            self._first_rate = b.Divide(self._rate, b.Cast(first, to="f32"))
            self._scale = b.Cast(b.Divide(1.0, b.Sqrt(second)), to="f32")

    def _state(self, name: str, data: np.ndarray[Any, Any]) -> Value:
        value = self._b.input(self._b.graph.free_name(name), "f32", data.shape)
        self.report.initial[value.name] = data
        return value

    def _keep(self, before: Value, after: Value) -> Value:
        output = self._b.output(self._b.graph.free_name(f"next.{before.name}"), after)
        self.report.states[before.name] = output.name
        return output

    def update(self, weight: Value, gradient: Value) -> None:
        """Add the next values of a weight and of its states."""
        b, settings = self._b, self._settings
        zeros = np.zeros(weight.dims, np.float32)
        kept = weight
        if settings.name == "adamw":
            kept = b.Multiply(weight, b.Subtract(1.0, b.Multiply(self._rate, settings.weight_decay)))
        elif settings.weight_decay:
            gradient = b.Add(gradient, b.Multiply(weight, settings.weight_decay))
        if settings.name == "sgd":
            if settings.momentum:
                before = self._state(f"{weight.name}.momentum", zeros)
                gradient = self._keep(before, b.Add(b.Multiply(before, settings.momentum), gradient))
            self._keep(weight, b.Subtract(kept, b.Multiply(self._rate, gradient)))
            return
        (first, second), square = settings.betas, b.Multiply(gradient, gradient)
        before = self._state(f"{weight.name}.mean", zeros)
        mean = self._keep(before, b.Add(b.Multiply(before, first), b.Multiply(gradient, 1 - first)))
        before = self._state(f"{weight.name}.square", zeros)
        square = self._keep(before, b.Add(b.Multiply(before, second), b.Multiply(square, 1 - second)))
        root = b.Add(b.Multiply(b.Sqrt(square), self._scale), settings.epsilon)
        self._keep(weight, b.Subtract(kept, b.Multiply(self._first_rate, b.Divide(mean, root))))
