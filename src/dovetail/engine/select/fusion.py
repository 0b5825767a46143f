"""Works that become one: element by element what is computed element by element, and what goes with a convolution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import Scene, Tile, Work
from dovetail.ir.graph import Graph
from dovetail.ops.elementwise.activation import Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Swish
from dovetail.ops.elementwise.binary import Add, Divide, Multiply
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Tanh

LIMIT = 24
"""The most operators in one chain: its registers have to stay in the first cache."""
_F32 = np.finfo(np.float32)


def fuse(works: list[Work], graph: Graph, scene: Scene) -> list[Work]:
    """The same works, fewer. Order is kept: a work that takes in others stands where the last of them stood."""
    kept = {scene.tile(value) for value in graph.outputs}
    return _before_convolutions(_chains(_after_products(works, kept), kept), kept)


class _Uses:
    """Who reads what, and when."""

    def __init__(self, works: Iterable[Work]) -> None:
        self.readers: dict[Tile, list[int]] = {}
        self.maker: dict[Tile, int] = {}
        for place, work in enumerate(works):
            for tile in work.given:
                self.readers.setdefault(tile, []).append(place)
            for tile in work.writes:
                self.maker[tile] = place


# What follows a convolution or a product of matrices


def _after_products(works: list[Work], kept: set[Tile]) -> list[Work]:
    readers = _Uses(works).readers
    result = dict(enumerate(works))
    # The last first: of two that are added, the earlier one is there when the later one ends.
    for place in reversed(range(len(works))):
        work = result[place]
        while work.kernel in ("conv", "matmul"):
            (made,) = work.writes
            places = readers.get(made, [])
            if made in kept or len(places) != 1:
                break
            (after,) = places
            merged = _merged(work, result[after]) if after in result else None
            if merged is None:
                break
            del result[place]
            result[after] = work = merged
            place = after
    return list(result.values())


def _merged(work: Work, follower: Work) -> Work | None:
    """A convolution or product with the operator after it, where that is a factor, a bias, a sum or an activation."""
    if follower.kernel != "chain":
        return None
    (made,), (result,) = work.writes, follower.writes
    if result.sizes != made.sizes:
        return None
    ((op, _),) = follower.attributes["body"]
    others = [tile for tile in follower.given if tile is not made]
    if isinstance(op, Add):
        (other,) = others
        found = _sum(work, made, other)
    elif isinstance(op, Multiply):
        (other,) = others
        found = _factor(work, other)
    elif isinstance(op, Divide):
        dividend, divisor = follower.given
        found = _factor(work, divisor, -1) if dividend is made else None
    else:
        found = None if "activation" in work.attributes else _activation(op, others, work.kernel)
    if found is None:
        return None
    changes, extra = found
    images: tuple[Tile, ...] = ()
    if work.images:
        x, _, *more = work.images
        images = (x, result, *more, *extra)
    nodes = (*work.nodes, *follower.nodes)
    return Work(work.kernel, nodes, [*work.reads, *extra], [result], {**work.attributes, **changes}, images)


Change = tuple[dict[str, Any], list[Tile]]


def _sum(work: Work, made: Tile, other: Tile) -> Change | None:
    """A bias, or a tensor of the same shape."""
    attributes = work.attributes
    if attributes["has_residual"]:
        return None
    has_activation = "activation" in attributes
    if other.sizes == made.sizes and other.data is None:
        return {"has_residual": 1, "residual_after_activation": int(has_activation)}, [other]
    if work.kernel == "matmul" and not attributes["has_bias"] and not has_activation and _is_row(other, made):
        return {"has_bias": 1}, [other]
    return None


def _factor(work: Work, other: Tile, power: int = 1) -> Change | None:
    """A number by which a product of matrices is multiplied, or divided (``power`` is -1)."""
    attributes = work.attributes
    if work.kernel != "matmul" or attributes["has_bias"] or attributes["has_residual"] or "activation" in attributes:
        return None
    if other.data is None or other.count != 1 or not other.data.all():
        return None
    alpha = attributes.get("alpha", 1.0) * float(other.data.reshape(())) ** power
    return ({"alpha": alpha}, []) if _holds_f32(alpha) else None


def _holds_f32(numbers: Any) -> bool:
    """Whether f32 has these numbers with all its digits: they are 0, or neither too great nor too small for it."""
    sizes = np.abs(numbers)
    return bool(np.all((sizes == 0) | (sizes >= _F32.tiny) & (sizes <= _F32.max)))


def _is_row(tile: Tile, product: Tile) -> bool:
    """Whether a constant is one number per column."""
    return tile.data is not None and tile.count == product.sizes[-1] and tile.sizes[-1:] == product.sizes[-1:]


def _activation(op: Any, others: list[Tile], kernel: str) -> Change | None:
    """An activation as the kernels call it; None for what they do not know."""
    alpha = "activation_alpha" if kernel == "matmul" else "alpha"
    match op, others:
        case Relu(), []:
            return {"activation": "relu"}, []
        case Clip(), [Tile(data=low), Tile(data=high)] if low is not None and high is not None and low <= high:
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


def _chains(works: list[Work], kept: set[Tile]) -> list[Work]:
    """Join each elementwise work to those before it that it reads, wherever nothing else needs their results in between."""
    result = dict(enumerate(works))
    uses = _Uses(works)
    for place, work in enumerate(works):
        if work.kernel != "chain":
            continue
        for tile in dict.fromkeys(work.given):
            before = uses.maker.get(tile, place)
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


def _fit(first: Work, second: Work) -> bool:
    """Whether two chains go over the same elements, and are one of allowed length together."""
    (one, *_), (other, *_) = first.writes, second.writes
    return one.sizes == other.sizes and len(first.attributes["body"]) + len(second.attributes["body"]) <= LIMIT


def _joined(first: Work, second: Work, needed: list[Tile]) -> Work:
    """Both as one. In a body a number is an input, and ``~number`` the result of an entry."""
    reads = list(first.reads)
    body = list(first.attributes["body"])
    shift = len(body)
    made = {tile: ~index for tile, index in zip(first.writes, first.attributes["results"], strict=True)}
    refs = []
    for tile in second.reads:
        if tile in made:
            refs.append(made[tile])
            continue
        if tile not in reads:
            reads.append(tile)
        refs.append(reads.index(tile))
    for op, inputs in second.attributes["body"]:
        body.append((op, tuple(refs[ref] if ref >= 0 else ~(~ref + shift) for ref in inputs)))
    results = [~made[tile] for tile in needed] + [index + shift for index in second.attributes["results"]]
    nodes = (*first.nodes, *second.nodes)
    return Work("chain", nodes, reads, [*needed, *second.writes], {"body": body, "results": results})


# What comes before a convolution


def _before_convolutions(works: list[Work], kept: set[Tile]) -> list[Work]:
    """Let a convolution scale, shift and rectify what it reads, where only it needs the result."""
    uses = _Uses(works)
    result = dict(enumerate(works))
    for place, work in enumerate(works):
        if work.kernel != "conv":
            continue
        x, *weights = work.given
        if x in kept or x not in uses.maker or uses.readers[x] != [place]:
            continue
        before = uses.maker[x]
        found = _prologue(works[before])
        if found is None:
            continue
        source, attributes = found
        _, *images = work.images
        nodes = (*works[before].nodes, *work.nodes)
        result[place] = Work("conv", nodes, [source, *weights], work.writes, {**work.attributes, **attributes}, (source, *images))
        del result[before]
    return list(result.values())


def _prologue(work: Work) -> tuple[Tile, dict[str, Any]] | None:
    """A chain as ``x * scale + shift``, rectified at the end or not: the tensor it is of, and the numbers per channel."""
    sources = [tile for tile in work.given if tile.data is None]
    if work.kernel != "chain" or len(sources) != 1 or len(work.writes) != 1:
        return None
    (source,), (made,) = sources, work.writes
    if source.sizes != made.sizes:
        return None
    channels = source.sizes[1]
    scale, shift, relu = np.ones(channels), np.zeros(channels), False
    current = work.reads.index(source)
    for index, (op, refs) in enumerate(work.attributes["body"]):
        others = [_per_channel(work.reads[ref] if ref >= 0 else None, source) for ref in refs if ref != current]
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


def _per_channel(tile: Tile | None, source: Tile) -> np.ndarray[Any, Any] | None:
    """A constant that has one number per channel, or one for all."""
    if tile is None or tile.data is None:
        return None
    sizes = (1,) * (len(source.sizes) - len(tile.sizes)) + tile.sizes
    if any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        return None
    return np.broadcast_to(tile.data.ravel().astype(np.float64), (source.sizes[1],))
