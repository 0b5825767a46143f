"""Operator fusion: elementwise chains, epilogues of convolutions and matrix products, and prologues of convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import KernelCall, RunTensor, TensorMap
from dovetail.ir.graph import Graph
from dovetail.ir.op import Op
from dovetail.ops.elementwise.activation import Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Swish
from dovetail.ops.elementwise.binary import Add, Divide, Multiply
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Tanh

MAX_FUSED_OPERATORS = 24
"""The maximum number of operators in one fused elementwise kernel, whose registers have to stay in L1."""
_F32 = np.finfo(np.float32)


def fuse(calls: list[KernelCall], graph: Graph, tensor_map: TensorMap) -> list[KernelCall]:
    """Fuse kernel calls and keep their order: a fused call is placed at the position of the last call that it contains."""
    outputs = {tensor_map.of(value) for value in graph.outputs}
    return _fuse_prologues(_fuse_elementwise(_fuse_epilogues(calls, outputs), outputs), outputs)


class _Uses:
    """_Uses maps each tensor to the positions of the calls that read it, and to the position of the call that writes it."""

    def __init__(self, calls: Iterable[KernelCall]) -> None:
        self.readers: dict[RunTensor, list[int]] = {}
        self.writer: dict[RunTensor, int] = {}
        for position, call in enumerate(calls):
            for tensor in call.present_reads:
                self.readers.setdefault(tensor, []).append(position)
            for tensor in call.writes:
                self.writer[tensor] = position


# Epilogues of convolutions and matrix products


def _fuse_epilogues(calls: list[KernelCall], outputs: set[RunTensor]) -> list[KernelCall]:
    readers = _Uses(calls).readers
    fused = dict(enumerate(calls))
    # From last to first: of two added products the later is fused with the Add, since the earlier product is computed by then.
    for position in reversed(range(len(calls))):
        call = fused[position]
        while call.kernel in ("conv", "matmul"):
            (result,) = call.writes
            positions = readers.get(result, [])
            if result in outputs or len(positions) != 1:
                break
            (follower,) = positions
            merged = _merge_follower(call, fused[follower]) if follower in fused else None
            if merged is None:
                break
            del fused[position]
            fused[follower] = call = merged
            position = follower
    return list(fused.values())


def _merge_follower(call: KernelCall, follower: KernelCall) -> KernelCall | None:
    """Return a convolution or matrix product fused with the factor, bias, residual or activation that follows, or None."""
    if follower.kernel != "elementwise":
        return None
    (product,), (result,) = call.writes, follower.writes
    if result.sizes != product.sizes:
        return None
    ((op, _),) = follower.attributes["body"]
    others = [tensor for tensor in follower.present_reads if tensor is not product]
    if isinstance(op, Add):
        (other,) = others
        epilogue = _epilogue_of_sum(call, product, other)
    elif isinstance(op, Multiply):
        (other,) = others
        epilogue = _epilogue_of_factor(call, other)
    elif isinstance(op, Divide):
        dividend, divisor = follower.present_reads
        epilogue = _epilogue_of_factor(call, divisor, -1) if dividend is product else None
    else:
        epilogue = None if "activation" in call.attributes else _epilogue_of_activation(op, others, call.kernel)
    if epilogue is None:
        return None
    changes, extra = epilogue
    channels_last: tuple[RunTensor, ...] = ()
    if call.channels_last:
        x, _, *more = call.channels_last
        channels_last = (x, result, *more, *extra)
    nodes = (*call.nodes, *follower.nodes)
    return KernelCall(call.kernel, nodes, [*call.reads, *extra], [result], {**call.attributes, **changes}, channels_last)


Epilogue = tuple[dict[str, Any], list[RunTensor]]
"""Changes of a kernel's attributes, and tensors that the kernel reads in addition."""


def _epilogue_of_sum(call: KernelCall, product: RunTensor, other: RunTensor) -> Epilogue | None:
    """Return the epilogue of a sum: a number added after the activation, a bias, or a residual of the same shape."""
    attributes = call.attributes
    number = _rescaling_number(call, other)
    if number is not None:
        return {"output_shift": attributes.get("output_shift", 0.0) + number}, []
    if attributes["has_residual"]:
        return None
    has_activation = "activation" in attributes
    if other.sizes == product.sizes and other.data is None:
        return {"has_residual": 1, "residual_after_activation": int(has_activation)}, [other]
    if call.kernel == "matmul" and not attributes["has_bias"] and not has_activation and _is_column_bias(other, product):
        return {"has_bias": 1}, [other]
    return None


def _epilogue_of_factor(call: KernelCall, other: RunTensor, power: int = 1) -> Epilogue | None:
    """Return the epilogue that multiplies (``power`` 1) or divides (``power`` -1) by the constant ``other``, or None."""
    attributes = call.attributes
    number = _rescaling_number(call, other)
    if number is not None and number != 0:
        factor = float(number) ** power
        changes = {name: attributes.get(name, default) * factor for name, default in _RESCALING.items()}
        return (changes, []) if _is_normal_f32(np.array([*changes.values()])) else None
    if call.kernel != "matmul" or attributes["has_bias"] or attributes["has_residual"] or "activation" in attributes:
        return None
    if other.data is None or other.count != 1 or not other.data.all():
        return None
    alpha = attributes.get("alpha", 1.0) * float(other.data.reshape(())) ** power
    return ({"alpha": alpha}, []) if _is_normal_f32(np.asarray(alpha)) else None


_RESCALING = {"output_scale": 1.0, "output_shift": 0.0}
"""Default values of the attributes of a convolution's rescaling: the result of the activation * scale + shift."""


def _rescaling_number(call: KernelCall, other: RunTensor) -> float | None:
    """Return the constant number that a convolution can apply after its activation, as factor or summand; else None."""
    attributes = call.attributes
    if call.kernel != "conv" or "activation" not in attributes or attributes.get("residual_after_activation"):
        return None
    if other.data is None or other.count != 1 or not _is_normal_f32(other.data):
        return None
    return float(other.data.reshape(()))


def _is_normal_f32(numbers: np.ndarray[Any, Any]) -> bool:
    """Return whether all numbers are 0 or in the range of normal f32 numbers, which have the full precision of f32."""
    magnitudes = np.abs(numbers)
    return bool(np.all((magnitudes == 0) | (magnitudes >= _F32.tiny) & (magnitudes <= _F32.max)))


def _is_column_bias(tensor: RunTensor, product: RunTensor) -> bool:
    """Return whether a tensor is a constant with one number per column of a matrix product."""
    return tensor.data is not None and tensor.count == product.sizes[-1] and tensor.sizes[-1:] == product.sizes[-1:]


def _epilogue_of_activation(op: Op, others: list[RunTensor], kernel: str) -> Epilogue | None:
    """Return an activation as attributes of the kernel; None for an activation that the kernel lacks."""
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


# Elementwise chains


def _fuse_elementwise(calls: list[KernelCall], outputs: set[RunTensor]) -> list[KernelCall]:
    """Fuse each elementwise call with the elementwise calls whose results it reads, if no call in between reads these results."""
    fused = dict(enumerate(calls))
    uses = _Uses(calls)
    for position, call in enumerate(calls):
        if call.kernel != "elementwise":
            continue
        for tensor in dict.fromkeys(call.present_reads):
            producer = uses.writer.get(tensor, position)
            first = fused[producer]
            if producer == position or first.kernel != "elementwise":
                continue
            readers = {result: uses.readers.get(result, []) for result in first.writes}
            if any(producer < reader < position for positions in readers.values() for reader in positions):
                continue
            if not _can_fuse(first, fused[position]):
                continue
            needed = [
                result
                for result, positions in readers.items()
                if result in outputs or any(reader > position for reader in positions)
            ]
            fused[position] = _join(first, fused[position], needed)
            del fused[producer]
            uses.writer.update(dict.fromkeys(first.writes, position))
    return list(fused.values())


def _can_fuse(first: KernelCall, second: KernelCall) -> bool:
    """Return whether two elementwise calls have outputs of one shape, and together no more than MAX_FUSED_OPERATORS."""
    (one, *_), (other, *_) = first.writes, second.writes
    count = len(first.attributes["body"]) + len(second.attributes["body"])
    return one.sizes == other.sizes and count <= MAX_FUSED_OPERATORS


def _join(first: KernelCall, second: KernelCall, needed: list[RunTensor]) -> KernelCall:
    """Join two calls into one. In a body the source ``i`` is input i, and ``~i`` is the result of entry i."""
    reads = list(first.reads)
    body = list(first.attributes["body"])
    shift = len(body)
    results_of_first = {tensor: ~index for tensor, index in zip(first.writes, first.attributes["results"], strict=True)}
    sources = []
    for tensor in second.reads:
        if tensor in results_of_first:
            sources.append(results_of_first[tensor])
            continue
        if tensor not in reads:
            reads.append(tensor)
        sources.append(reads.index(tensor))
    for op, inputs in second.attributes["body"]:
        body.append((op, tuple(sources[source] if source >= 0 else ~(~source + shift) for source in inputs)))
    results = [~results_of_first[tensor] for tensor in needed] + [index + shift for index in second.attributes["results"]]
    nodes = (*first.nodes, *second.nodes)
    return KernelCall("elementwise", nodes, reads, [*needed, *second.writes], {"body": body, "results": results})


# Prologues of convolutions and matrix products


def _fuse_prologues(calls: list[KernelCall], outputs: set[RunTensor]) -> list[KernelCall]:
    """Fuse scale, shift and Relu into the convolution, and a factor into the matrix product, that alone reads their result."""
    uses = _Uses(calls)
    fused = dict(enumerate(calls))

    def producer_of(x: RunTensor, reader: int) -> int | None:
        """Return the position of the call that writes ``x``, if the call at ``reader`` is its only reader, once; else None."""
        return uses.writer.get(x) if x not in outputs and uses.readers[x] == [reader] else None

    for position, call in enumerate(calls):
        if call.kernel == "conv":
            x, *weights = call.present_reads
            producer = producer_of(x, position)
            prologue = None if producer is None else _prologue_of(calls[producer])
            if producer is None or prologue is None:
                continue
            source, attributes = prologue
            _, *channels_last = call.channels_last
            nodes = (*calls[producer].nodes, *call.nodes)
            merged = {**call.attributes, **attributes}
            fused[position] = KernelCall("conv", nodes, [source, *weights], call.writes, merged, (source, *channels_last))
            del fused[producer]
        elif call.kernel == "matmul" and "format" not in call.attributes:
            for index in (0, 1):
                x = fused[position].present_reads[index]
                producer = producer_of(x, position)
                found = None if producer is None else _factor_of(calls[producer])
                if producer is None or found is None:
                    continue
                source, factor = found
                alpha = fused[position].attributes.get("alpha", 1.0) * factor
                if _is_normal_f32(np.asarray(alpha)):
                    fused[position] = _with_operand(fused[position], index, fused.pop(producer), source, alpha)
    return list(fused.values())


MAX_FACTOR = 4096.0
"""The largest factor of an operand, and the inverse of the smallest one, that a matrix product applies to its results."""


def _factor_of(call: KernelCall) -> tuple[RunTensor, float] | None:
    """Return x and the number of an elementwise call that computes x times a number, or x divided by one; else None."""
    if call.kernel != "elementwise" or len(call.attributes["body"]) != 1 or len(call.present_reads) != 2:
        return None
    ((op, _),), (first, second), (result,) = call.attributes["body"], call.present_reads, call.writes
    for source, number in ((first, second), (second, first)):
        if source.data is not None or number.data is None or number.count != 1 or source.sizes != result.sizes:
            continue
        factor = float(number.data.reshape(()))
        if isinstance(op, Divide) and source is first and factor != 0:
            factor = 1 / factor
        elif not isinstance(op, Multiply):
            return None
        return (source, factor) if 1 / MAX_FACTOR <= abs(factor) <= MAX_FACTOR else None
    return None


def _with_operand(call: KernelCall, index: int, producer: KernelCall, source: RunTensor, alpha: float) -> KernelCall:
    """Return a matrix product that reads ``source`` as operand ``index``, with the factor ``alpha``."""
    reads = [*call.reads[:index], source, *call.reads[index + 1 :]]
    return KernelCall("matmul", (*producer.nodes, *call.nodes), reads, call.writes, {**call.attributes, "alpha": alpha})


def _prologue_of(call: KernelCall) -> tuple[RunTensor, dict[str, Any]] | None:
    """Return x and the attributes of an elementwise call that computes ``x * scale + shift`` per channel, or None.

    A Relu may follow the shift.
    """
    sources = [tensor for tensor in call.present_reads if tensor.data is None]
    if call.kernel != "elementwise" or len(sources) != 1 or len(call.writes) != 1:
        return None
    (source,), (result,) = sources, call.writes
    if source.sizes != result.sizes:
        return None
    channels = source.sizes[1]
    scale, shift, has_relu = np.ones(channels), np.zeros(channels), False
    current = call.reads.index(source)
    for index, (op, operands) in enumerate(call.attributes["body"]):
        others = [
            _constant_per_channel(call.reads[operand] if operand >= 0 else None, source)
            for operand in operands
            if operand != current
        ]
        match op, others:
            case Relu(), []:
                has_relu = True
            case Multiply(), [np.ndarray() as factor] if not has_relu:
                scale, shift = scale * factor, shift * factor
            case Add(), [np.ndarray() as summand] if not has_relu:
                shift = shift + summand
            case _:
                return None
        current = ~index
    if not _is_normal_f32(scale) or not np.all(np.abs(shift) <= _F32.max):
        return None
    return source, {"prologue_scale": scale.tolist(), "prologue_shift": shift.tolist(), "prologue_relu": int(has_relu)}


def _constant_per_channel(tensor: RunTensor | None, source: RunTensor) -> np.ndarray[Any, Any] | None:
    """Return a tensor as one number per channel of ``source``; None if it is no constant or varies along other axes."""
    if tensor is None or tensor.data is None:
        return None
    sizes = (1,) * (len(source.sizes) - len(tensor.sizes)) + tensor.sizes
    if any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        return None
    return np.broadcast_to(tensor.data.ravel().astype(np.float64), (source.sizes[1],))
