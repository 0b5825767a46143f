"""Compute the results of a network, and how far rounding may take an engine from them.

Every operator is evaluated by its own rule four times:

- ``actual``: in the element types that the network declares, as the interpreter does;
- ``truth``: floats of 16 and 32 bits in f64;
- ``noisy``, twice: as ``truth``, with each element of each computed float tensor, and of the first operand of each operator that
  computes, moved at random by up to ``NOISE`` of the tensor's largest magnitude; the nodes of sub-graphs likewise.

The tolerance of a tensor is the largest distance of a noisy one from the truth. So it follows the condition of the network: a
difference of nearly equal numbers, a quotient by a small one or a large factor widen it by themselves. NOISE is 128 times the
unit roundoff of f32 (16 times that of f16, 32 times that of bf16): more than a kernel's own rounding, less than a wrong element.

Where rounding decides (an index of a largest element, a quantised step, a comparison, a cast to an integer) ``actual`` and
``truth`` have to say the same, and so has the truth with its operands moved by an eighth of their tolerances (up, down, and at
random four times). Otherwise the operator is refused here (``Unstable``), so that engines have to agree exactly on integers and
booleans. Ties of elements that are copies of each other, or are cut off to the same bound, stay ties in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Graph
from dovetail.ir.op import Op, has, host_inputs
from networks.network import Network, Shot

WIDENED = ("f32", "f16", "bf16")
NOISE = {"f32": 2.0**-17, "f16": 2.0**-7, "bf16": 2.0**-4, "f64": 2.0**-46}
"""Relative to a tensor's largest magnitude."""
SMALLEST = {"f32": 2.0**-146, "f16": 2.0**-22, "bf16": 2.0**-130, "f64": 2.0**-1070}
"""What is added to it, for results so small that their last place is a fixed one: a few of the smallest numbers of the type."""
LARGEST = {"f32": 1e6, "f16": 1e3, "bf16": 1e4, "f64": 1e9}
"""Larger results are refused, so that nothing overflows by rounding."""
LEAST = {"f32": 1e-12, "f16": 0.0, "bf16": 1e-12, "f64": 0.0}
"""Tensors whose largest magnitude is below it (but not 0) are refused, so that no square of an element underflows."""
WORST = {"f32": 2e-2, "f16": 0.5, "bf16": 1.0, "f64": 1e-4}
"""The largest tolerance, relative to the tensor's magnitude, at which a comparison says anything."""


ROUNDED_WORST = {"f32": 0.0, "bf16": 0.2, "int8": 0.2}
"""The same for f32 in networks whose products may be rounded."""


class Unstable(Exception):
    """Rounding decides the result, or the result is not finite."""


@dataclass(frozen=True)
class Answer:
    """One tensor of a run. ``truth`` and the ``noisy`` ones are ``actual`` itself where the tensor is exact."""

    actual: Any
    truth: Any
    noisy: tuple[Any, ...]

    @property
    def dtype(self) -> str:
        return str(dtypes.dtype(self.actual.dtype).name)

    @property
    def is_exact(self) -> bool:
        """Return whether every engine has to give these bits."""
        return self.truth is self.actual

    def tolerance(self) -> float:
        if self.is_exact or not self.actual.size:
            return 0.0
        return float(np.max([np.abs(noisy - self.truth).max() for noisy in self.noisy]))


def exact(array: Any) -> Answer:
    """Return a graph input or a constant."""
    return Answer(array, array, (array, array))


def evaluate(op: Op, xs: Sequence[Answer | None], generator: Any, precision: str = "f32") -> list[Answer]:
    """Return the outputs of an operator. Raises Unstable, and what the rule raises for operands that it refuses.

    ``precision``: "bf16" and "int8" permit an engine to round the operands of products (see :func:`_rounded`).
    """
    with np.errstate(all="ignore"):
        actual = apply(op, np, [None if x is None else x.actual for x in xs])
        if all(x is None or x.is_exact for x in xs) and all(_is_exact(op, y) for y in actual):
            return [exact(_checked(np.asarray(y))) for y in actual]
        kinds = [dtypes.dtype(y.dtype).name for y in actual]
        truth = _in_f64(op, [None if x is None else x.truth for x in xs], xs, kinds)
        moves = has(op, "windows") or type(op).__name__ in CHOOSING
        jumps = type(op).__name__ in DISCONTINUOUS
        is_whole = moves or jumps or any(kind not in NOISE for kind in kinds)
        noisy = [
            _noisy(op, _operands(op, xs, place, is_whole, generator, precision), xs, kinds, generator, precision)
            for place in (0, 1)
        ]
        if jumps or any(kind not in NOISE for kind in kinds):
            _refuse_boundaries(op, xs, kinds, truth, generator, BOUNDARY if precision == "f32" else 1.0)
    found = []
    for index, (y, kind) in enumerate(zip(actual, kinds, strict=True)):
        variants = [truth[index], *(each[index] for each in noisy)]
        if kind not in NOISE:
            if not np.array_equal(truth[index], y):
                raise Unstable("a discrete result")
            found.append(exact(y))
            continue
        if any(each.shape != y.shape for each in variants):
            raise Unstable("a shape")
        if jumps:
            reach = CONTINUOUS * _reach(xs)
            if not np.allclose(
                y.astype(np.float64), truth[index], rtol=0, atol=reach + NOISE[kind] * np.abs(truth[index]).max(initial=0)
            ):
                raise Unstable("a discrete result")
            variants[1:] = [np.where(np.abs(each - truth[index]) <= reach, each, truth[index]) for each in variants[1:]]
        inner = _cancellation(op, xs, kind)
        moved = variants[1:] if moves else [_moved(each, kind, generator, inner) for each in variants[1:]]
        answer = Answer(_checked(y), variants[0], (moved[0], moved[1]))
        top = float(np.abs(variants[0]).max(initial=0))
        if (
            0 < top < LEAST[kind]
            or not top < LARGEST[kind]
            or not answer.tolerance() <= max(WORST[kind], ROUNDED_WORST[precision]) * top
        ):
            raise Unstable("an ill-conditioned, large or tiny result")
        found.append(answer)
    return found


CHOOSING = frozenset(
    (
        "Gather",
        "GatherElements",
        "GatherND",
        "TopK",
        "MaxPool",
        "GlobalMaxPool",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Trilu",
        "Where",
    )
)
"""Operators that give elements as they came."""


DISCONTINUOUS = frozenset(("Round", "Floor", "Ceil", "Sign", "Mod", "ThresholdedRelu", "Shrink", "FakeQuantize"))
"""Operators from floats to floats that jump."""


BOUNDARY = 1 / 8
"""The share of a tolerance by which operands are moved to find boundaries: 16 times the unit roundoff of f32."""
CONTINUOUS = 8.0
"""A result that moves by no more than this many times its operands' tolerance has not jumped."""


def _reach(xs: Sequence[Answer | None]) -> float:
    return max([0.0, *(x.tolerance() for x in xs if x is not None)])


def _refuse_boundaries(
    op: Op, xs: Sequence[Answer | None], kinds: Sequence[str], truth: Sequence[Any], generator: Any, share: float
) -> None:
    """Raise Unstable where operands moved by a share of their tolerances give another result."""
    spans = [0.0 if x is None else share * x.tolerance() for x in xs]
    first = xs[0]
    if type(op).__name__ == "FakeQuantize" and first is not None and first.is_exact:
        # It rounds on its way to the steps, so that exact operands may lie at a boundary too.
        spans[0] = BOUNDARY * NOISE[first.dtype] * float(np.abs(first.truth.astype(np.float64)).max(initial=0))
    for variant in range(6):
        moved = []
        for place, (x, span) in enumerate(zip(xs, spans, strict=True)):
            if x is None or not span:
                moved.append(None if x is None else x.truth)
            elif variant < 2:
                moved.append(x.truth + span * (1 if place % 2 == variant else -1))
            else:
                moved.append(x.truth + span * generator.choice((-1.0, 1.0), x.truth.shape))
        for y, want, kind in zip(_in_f64(op, moved, xs, kinds), truth, kinds, strict=True):
            same = (
                np.array_equal(y, want)
                if kind not in NOISE
                else np.allclose(y, want, rtol=0, atol=CONTINUOUS * max(spans) + 1e-12)
            )
            if not same:
                raise Unstable("operands near a boundary")


def _is_exact(op: Op, y: Any) -> bool:
    """Return whether a result of exact operands is exact: integers, and floats that were only moved."""
    return dtypes.dtype(y.dtype).name not in NOISE or has(op, "windows") or type(op).__name__ in CHOOSING


def _checked(y: Any) -> Any:
    if y.dtype.kind in "fV" and not np.isfinite(y.astype(np.float64)).all():
        raise Unstable("not finite")
    return y


def _in_f64(op: Op, arrays: Sequence[Any], xs: Sequence[Answer | None], kinds: Sequence[str]) -> list[Any]:
    """Return the outputs with floats of 16 and 32 bits as f64; by way of f32 where the rule takes no f64 there."""
    return _applied(op, arrays, [None if x is None else x.actual.dtype for x in xs], kinds)


def _applied(op: Op, arrays: Sequence[Any], declared: Sequence[Any], kinds: Sequence[str]) -> list[Any]:
    wide = _wide(arrays)
    try:
        found = apply(op, np, wide)
    except (DovetailError, TypeError, ValueError, AttributeError, KeyError):
        narrow = [
            x if x is None or x.dtype != np.float64 or dtype is None else x.astype(dtype)
            for x, dtype in zip(wide, declared, strict=True)
        ]
        found = apply(op, np, narrow)
    return [np.asarray(y).astype(np.float64) if kind in NOISE else np.asarray(y) for y, kind in zip(found, kinds, strict=True)]


def _wide(arrays: Sequence[Any]) -> list[Any]:
    return [x if x is None or dtypes.dtype(x.dtype).name not in WIDENED else x.astype(np.float64) for x in arrays]


def _noisy(
    op: Any, arrays: Sequence[Any], xs: Sequence[Answer | None], kinds: Sequence[str], generator: Any, precision: str
) -> list[Any]:
    """Return the outputs in f64 for noisy operands; what the nodes of sub-graphs compute is noisy too."""
    if not hasattr(op, "through"):
        return _in_f64(op, arrays, xs, kinds)
    found = op.evaluate_with(lambda body, inputs: _noisy_run(body, inputs, generator, precision), np, *_wide(arrays))
    return [np.asarray(y).astype(np.float64) if kind in NOISE else np.asarray(y) for y, kind in zip(found, kinds, strict=True)]


def _noisy_run(body: Graph, inputs: Sequence[Any], generator: Any, precision: str) -> list[Any]:
    """Return the outputs of a sub-graph whose computed floats are noisy."""
    known = dict(zip(map(id, body.inputs), inputs, strict=True))
    for node in body.nodes:
        op: Any = node.op
        kinds = [y.dtype.name for y in node.outputs]
        xs = [None if x is None else known[id(x)] for x in node.inputs]
        xs = _rounded(op, xs, precision, generator)
        computes = not (has(op, "windows") or type(op).__name__ in {*CHOOSING, *DISCONTINUOUS, "Constant", "Identity"})
        computes = computes and all(kind in NOISE for kind in kinds)
        first = node.inputs[0] if node.inputs else None
        if computes and first is not None and first.dtype.name in NOISE and not host_inputs(op, len(xs))[0]:
            xs[0] = _moved(_wide(xs[:1])[0], first.dtype.name, generator)
        if hasattr(op, "through"):
            made = list(op.evaluate_with(lambda inner, given: _noisy_run(inner, given, generator, precision), np, *_wide(xs)))
        else:
            made = _applied(op, xs, [None if x is None else x.dtype.numpy for x in node.inputs], kinds)
        known.update(
            (id(y), _moved(array, kind, generator) if computes else array)
            for y, array, kind in zip(node.outputs, made, kinds, strict=True)
        )
    return [known[id(y)] for y in body.outputs]


def _operands(op: Op, xs: Sequence[Answer | None], place: int, is_whole: bool, generator: Any, precision: str) -> list[Any]:
    """Return the operands of a noisy evaluation: each element of the first operand moved, for the tolerance of sums in which
    it cancels.

    The noise that it has already may be the same in several elements (Expand, Gather), and cancels then.
    """
    found = _rounded(op, [None if x is None else x.noisy[place] for x in xs], precision, generator)
    first = xs[0] if xs else None
    if first is not None and first.dtype in NOISE and not is_whole and not host_inputs(op, len(xs))[0]:
        found[0] = _moved(found[0].astype(np.float64), first.dtype, generator)
    return found


PRODUCTS = frozenset(("Conv", "ConvTranspose", "MatMul", "MatMulNBits", "Gemm", "Einsum", "LSTM", "GRU", "RNN"))
"""Operators whose operands an engine may round."""
ROUNDING = 2.0**-7
"""The noise of rounding to bf16, relative to an element: twice the greatest error, of which most are less than a half."""


def _rounded(op: Op, arrays: Sequence[Any], precision: str, generator: Any) -> list[Any]:
    """Return the operands of a product, moved as rounding may move them: each element of bf16; for int8 each row of the first.

    Equal elements are rounded alike, so that their noise is the same.
    """
    if precision == "f32" or type(op).__name__ not in PRODUCTS:
        return list(arrays)
    found = list(arrays)
    table = 2 * generator.random(4096) - 1
    for place, x in enumerate(arrays):
        if x is None or dtypes.dtype(x.dtype).name not in NOISE or not x.size or (precision == "int8" and place):
            continue
        wide = x.astype(np.float64)
        number = np.ascontiguousarray(wide.astype(np.float32)).view(np.uint32).reshape(wide.shape)
        noise = table[(number * np.uint32(2654435761)) >> np.uint32(20)]
        # A row is rounded to 8 bits in steps of its greatest magnitude / 127.
        reach = ROUNDING * np.abs(wide) if precision == "bf16" else np.abs(wide).max(-1, keepdims=True, initial=0) / 127
        found[place] = wide + reach * noise
    return found


def _moved(y: Any, kind: str, generator: Any, more: Any = 0.0) -> Any:
    top = float(np.abs(y).max(initial=0))
    return y + (NOISE[kind] * top + SMALLEST[kind] + more) * (2 * generator.random(y.shape) - 1)


def _cancellation(op: Op, xs: Sequence[Answer | None], kind: str) -> Any:
    """Return the reach of what an operator rounds on its way and then cancels, which noise of its operands does not show."""
    first = xs[0] if xs else None
    if first is None or first.dtype not in NOISE:
        return 0.0
    x = np.abs(np.asarray(first.truth, np.float64))
    if type(op).__name__ == "Gelu":
        # 1 + erf(x) of a negative x.
        return NOISE[kind] * x
    if type(op).__name__ == "MeanVarianceNormalization" and x.size:
        # The mean's own rounding moves all elements alike, against a deviation that may be small.
        axes = tuple(np.asarray(xs[1].actual).reshape(-1).tolist()) if len(xs) > 1 and xs[1] is not None else None
        spread = np.asarray(first.truth, np.float64).std(axis=axes, keepdims=True)
        return NOISE[kind] / 16 * x.max() / np.maximum(spread, 1e-9)
    if type(op).__name__ == "GRU":
        # 1 - z, where the update gate z rounds to 1.
        return NOISE[kind] / 8
    return 0.0


def answers(network: Network, shot: Shot, seed: int = 0, precision: str = "f32") -> dict[str, Answer]:
    """Every value of a network in one run."""
    generator = np.random.default_rng(seed)
    found = {name: exact(array) for name, array in (*network.constants.items(), *shot.items())}
    for step in network.steps:
        made = evaluate(step.op, [None if name is None else found[name] for name in step.reads], generator, precision)
        found.update(zip(step.writes, made, strict=True))
    return found
