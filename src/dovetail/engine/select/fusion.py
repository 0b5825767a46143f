"""Works that become one: element by element what is computed element by element, and what goes with a convolution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import KernelCall, RunTensor, TensorMap
from dovetail.ir.graph import Graph
from dovetail.ops.elementwise.activation import Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Swish
from dovetail.ops.elementwise.binary import Add, Divide, Multiply
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Tanh

LIMIT = 24
"""The most operators in one chain: its registers have to stay in the first cache."""
_F32 = np.finfo(np.float32)


def fuse(calls: list[KernelCall], graph: Graph, tensor_map: TensorMap) -> list[KernelCall]:
    """The same works, fewer. Order is kept: a work that takes in others stands where the last of them stood."""
    kept = {tensor_map.of(value) for value in graph.outputs}
    return _before_convolutions(_chains(_after_products(calls, kept), kept), kept)


class _Uses:
    """Who reads what, and when."""

    def __init__(self, calls: Iterable[KernelCall]) -> None:
        self.readers: dict[RunTensor, list[int]] = {}
        self.maker: dict[RunTensor, int] = {}
        for place, call in enumerate(calls):
            for tensor in call.present_reads:
                self.readers.setdefault(tensor, []).append(place)
            for tensor in call.writes:
                self.maker[tensor] = place


# What follows a convolution or a product of matrices


def _after_products(calls: list[KernelCall], kept: set[RunTensor]) -> list[KernelCall]:
    readers = _Uses(calls).readers
    result = dict(enumerate(calls))
    # The last first: of two that are added, the earlier one is there when the later one ends.
    for place in reversed(range(len(calls))):
        call = result[place]
        while call.kernel in ("conv", "matmul"):
            (made,) = call.writes
            places = readers.get(made, [])
            if made in kept or len(places) != 1:
                break
            (after,) = places
            merged = _merged(call, result[after]) if after in result else None
            if merged is None:
                break
            del result[place]
            result[after] = call = merged
            place = after
    return list(result.values())


def _merged(call: KernelCall, follower: KernelCall) -> KernelCall | None:
    """A convolution or product with the operator after it, where that is a factor, a bias, a sum or an activation."""
    if follower.kernel != "chain":
        return None
    (made,), (result,) = call.writes, follower.writes
    if result.sizes != made.sizes:
        return None
    ((op, _),) = follower.attributes["body"]
    others = [tensor for tensor in follower.present_reads if tensor is not made]
    if isinstance(op, Add):
        (other,) = others
        found = _sum(call, made, other)
    elif isinstance(op, Multiply):
        (other,) = others
        found = _factor(call, other)
    elif isinstance(op, Divide):
        dividend, divisor = follower.present_reads
        found = _factor(call, divisor, -1) if dividend is made else None
    else:
        found = None if "activation" in call.attributes else _activation(op, others, call.kernel)
    if found is None:
        return None
    changes, extra = found
    channels_last: tuple[RunTensor, ...] = ()
    if call.channels_last:
        x, _, *more = call.channels_last
        channels_last = (x, result, *more, *extra)
    nodes = (*call.nodes, *follower.nodes)
    return KernelCall(call.kernel, nodes, [*call.reads, *extra], [result], {**call.attributes, **changes}, channels_last)


Change = tuple[dict[str, Any], list[RunTensor]]


def _sum(call: KernelCall, made: RunTensor, other: RunTensor) -> Change | None:
    """A bias, or a tensor of the same shape."""
    attributes = call.attributes
    if attributes["has_residual"]:
        return None
    has_activation = "activation" in attributes
    if other.sizes == made.sizes and other.data is None:
        return {"has_residual": 1, "residual_after_activation": int(has_activation)}, [other]
    if call.kernel == "matmul" and not attributes["has_bias"] and not has_activation and _is_row(other, made):
        return {"has_bias": 1}, [other]
    return None


def _factor(call: KernelCall, other: RunTensor, power: int = 1) -> Change | None:
    """A number by which a product of matrices is multiplied, or divided (``power`` is -1)."""
    attributes = call.attributes
    if call.kernel != "matmul" or attributes["has_bias"] or attributes["has_residual"] or "activation" in attributes:
        return None
    if other.data is None or other.count != 1 or not other.data.all():
        return None
    alpha = attributes.get("alpha", 1.0) * float(other.data.reshape(())) ** power
    return ({"alpha": alpha}, []) if _holds_f32(alpha) else None


def _holds_f32(numbers: Any) -> bool:
    """Whether f32 has these numbers with all its digits: they are 0, or neither too great nor too small for it."""
    sizes = np.abs(numbers)
    return bool(np.all((sizes == 0) | (sizes >= _F32.tiny) & (sizes <= _F32.max)))


def _is_row(tensor: RunTensor, product: RunTensor) -> bool:
    """Whether a constant is one number per column."""
    return tensor.data is not None and tensor.count == product.sizes[-1] and tensor.sizes[-1:] == product.sizes[-1:]


def _activation(op: Any, others: list[RunTensor], kernel: str) -> Change | None:
    """An activation as the kernels call it; None for what they do not know."""
    alpha = "activation_alpha" if kernel == "matmul" else "alpha"
    match op, others:
        case Relu(), []:
            return {"activation": "relu"}, []
        case Clip(), [RunTensor(data=low), RunTensor(data=high)] if low is not None and high is not None and low <= high:
            return {"activation": "clip", "low": float(low.reshape(())), "high": float(high.reshape(()))}, []
        case LeakyRelu(), []:
            return {"activation": "leaky_relu", alpha: float(op.alpha)}, []
        case Elu(), []:
            return {"activation": "elu", alpha: float(op.alpha)}, []
        case Gelu(), []:
            return {"activation": "gelu_tanh" if op.approximate == "tanh" else "gelu_erf"}, []
        case Swish(), [] if op.alpha == 1:
            return {"activation": "silu"}, []
        case ((Sigmoid() | Tanh() | HardSwish()), []):
            return {"activation": type(op).__name__.lower()}, []
    return None


# Chains


def _chains(calls: list[KernelCall], kept: set[RunTensor]) -> list[KernelCall]:
    """Join each elementwise work to those before it that it reads, wherever nothing else needs their results in between."""
    result = dict(enumerate(calls))
    uses = _Uses(calls)
    for place, call in enumerate(calls):
        if call.kernel != "chain":
            continue
        for tensor in dict.fromkeys(call.present_reads):
            before = uses.maker.get(tensor, place)
            first = result[before]
            if before == place or first.kernel != "chain":
                continue
            readers = {each: uses.readers.get(each, []) for each in first.writes}
            if any(before < reader < place for places in readers.values() for reader in places):
                continue
            if not _fit(first, result[place]):
                continue
            needed = [each for each, places in readers.items() if each in kept or any(reader > place for reader in places)]
            result[place] = _joined(first, result[place], needed)
            del result[before]
            uses.maker.update(dict.fromkeys(first.writes, place))
    return list(result.values())


def _fit(first: KernelCall, second: KernelCall) -> bool:
    """Whether two chains go over the same elements, and are one of allowed length together."""
    (one, *_), (other, *_) = first.writes, second.writes
    return one.sizes == other.sizes and len(first.attributes["body"]) + len(second.attributes["body"]) <= LIMIT


def _joined(first: KernelCall, second: KernelCall, needed: list[RunTensor]) -> KernelCall:
    """Both as one. In a body a number is an input, and ``~number`` the result of an entry."""
    reads = list(first.reads)
    body = list(first.attributes["body"])
    shift = len(body)
    made = {tensor: ~index for tensor, index in zip(first.writes, first.attributes["results"], strict=True)}
    refs = []
    for tensor in second.reads:
        if tensor in made:
            refs.append(made[tensor])
            continue
        if tensor not in reads:
            reads.append(tensor)
        refs.append(reads.index(tensor))
    for op, inputs in second.attributes["body"]:
        body.append((op, tuple(refs[ref] if ref >= 0 else ~(~ref + shift) for ref in inputs)))
    results = [~made[tensor] for tensor in needed] + [index + shift for index in second.attributes["results"]]
    nodes = (*first.nodes, *second.nodes)
    return KernelCall("chain", nodes, reads, [*needed, *second.writes], {"body": body, "results": results})


# What comes before a convolution


def _before_convolutions(calls: list[KernelCall], kept: set[RunTensor]) -> list[KernelCall]:
    """Let a convolution scale, shift and rectify what it reads, where only it needs the result."""
    uses = _Uses(calls)
    result = dict(enumerate(calls))
    for place, call in enumerate(calls):
        if call.kernel != "conv":
            continue
        x, *weights = call.present_reads
        if x in kept or x not in uses.maker or uses.readers[x] != [place]:
            continue
        before = uses.maker[x]
        found = _prologue(calls[before])
        if found is None:
            continue
        source, attributes = found
        _, *channels_last = call.channels_last
        nodes = (*calls[before].nodes, *call.nodes)
        result[place] = KernelCall(
            "conv", nodes, [source, *weights], call.writes, {**call.attributes, **attributes}, (source, *channels_last)
        )
        del result[before]
    return list(result.values())


def _prologue(call: KernelCall) -> tuple[RunTensor, dict[str, Any]] | None:
    """A chain as ``x * scale + shift``, rectified at the end or not: the tensor it is of, and the numbers per channel."""
    sources = [tensor for tensor in call.present_reads if tensor.data is None]
    if call.kernel != "chain" or len(sources) != 1 or len(call.writes) != 1:
        return None
    (source,), (made,) = sources, call.writes
    if source.sizes != made.sizes:
        return None
    channels = source.sizes[1]
    scale, shift, relu = np.ones(channels), np.zeros(channels), False
    current = call.reads.index(source)
    for index, (op, refs) in enumerate(call.attributes["body"]):
        others = [_per_channel(call.reads[ref] if ref >= 0 else None, source) for ref in refs if ref != current]
        match op, others:
            case Relu(), []:
                relu = True
            case Multiply(), [np.ndarray() as factor] if not relu:
                scale, shift = scale * factor, shift * factor
            case Add(), [np.ndarray() as summand] if not relu:
                shift = shift + summand
            case _:
                return None
        current = ~index
    if not _holds_f32(scale) or not np.all(np.abs(shift) <= _F32.max):
        return None
    return source, {"prologue_scale": scale.tolist(), "prologue_shift": shift.tolist(), "prologue_relu": int(relu)}


def _per_channel(tensor: RunTensor | None, source: RunTensor) -> np.ndarray[Any, Any] | None:
    """A constant that has one number per channel, or one for all."""
    if tensor is None or tensor.data is None:
        return None
    sizes = (1,) * (len(source.sizes) - len(tensor.sizes)) + tensor.sizes
    if any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        return None
    return np.broadcast_to(tensor.data.ravel().astype(np.float64), (source.sizes[1],))
