"""Works that become one: element by element what is computed element by element, and what goes with a convolution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.engine.work import Scene, Tile, Work
from dovetail.graph import Graph
from dovetail.ops.activation import Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Swish
from dovetail.ops.clip import Clip
from dovetail.ops.elementwise import Add, Divide, Multiply
from dovetail.ops.unary import Tanh

LIMIT = 24
"""The most operators in one chain: its registers have to stay in the first cache."""


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
            for tile in work.reads:
                if tile is not None:
                    self.readers.setdefault(tile, []).append(place)
            for tile in work.writes:
                self.maker[tile] = place


# What follows a convolution or a product of matrices


def _after_products(works: list[Work], kept: set[Tile]) -> list[Work]:
    uses = _Uses(works)
    gone: set[int] = set()
    result = list(works)
    # The last first: of two that are added, the earlier one is there when the later one ends.
    for place in range(len(works) - 1, -1, -1):
        work = result[place]
        if work.kernel not in ("conv", "matmul") or place in gone:
            continue
        while True:
            tile = work.writes[0]
            readers = uses.readers.get(tile, [])
            if tile in kept or len(readers) != 1 or readers[0] in gone:
                break
            follower = result[readers[0]]
            merged = _merged(work, follower) if follower.kernel == "chain" else None
            if merged is None:
                break
            gone.add(place)
            place = readers[0]
            result[place] = work = merged
            uses.maker[work.writes[0]] = place
    return [work for place, work in enumerate(result) if place not in gone]


def _merged(work: Work, follower: Work) -> Work | None:
    """A convolution or product with the operator after it, where that is a factor, a bias, a sum or an activation."""
    if len(follower.attributes["body"]) != 1 or follower.writes[0].sizes != work.writes[0].sizes:
        return None
    op, _ = follower.attributes["body"][0]
    others = [tile for tile in follower.reads if tile is not work.writes[0]]
    if isinstance(op, Add):
        found = _sum(work, others)
    elif isinstance(op, Multiply | Divide):
        found = _factor(work, op, follower, others)
    else:
        found = None if work.attributes.get("activation") else (_activation(op, follower, work.kernel), [])
    if found is None or not found[0]:
        return None
    changes, extra = found
    images = tuple(tile for tile in work.images if tile is not work.writes[0])
    if work.images:
        images += (*follower.writes, *extra)
    nodes = (*work.nodes, *follower.nodes)
    return Work(work.kernel, nodes, [*work.reads, *extra], follower.writes, {**work.attributes, **changes}, images)


Change = tuple[dict[str, Any], list[Tile]]


def _sum(work: Work, others: list[Tile | None]) -> Change | None:
    """A bias, or a tensor of the same shape."""
    y, attributes = work.writes[0], work.attributes
    if len(others) != 1 or others[0] is None or others[0].dtype is not y.dtype or attributes["has_residual"]:
        return None
    other = others[0]
    if other.sizes == y.sizes and other.data is None:
        return {"has_residual": 1, "residual_after_activation": int("activation" in attributes)}, [other]
    if work.kernel == "matmul" and not attributes["has_bias"] and "activation" not in attributes and _is_row(other, y):
        return {"has_bias": 1}, [other]
    return None


def _factor(work: Work, op: Any, follower: Work, others: list[Tile | None]) -> Change | None:
    """A number by which a product of matrices is multiplied or divided."""
    attributes = work.attributes
    if work.kernel != "matmul" or attributes["has_bias"] or attributes["has_residual"] or "activation" in attributes:
        return None
    if len(others) != 1 or others[0] is None or others[0].data is None or others[0].count != 1:
        return None
    number = float(others[0].data.reshape(()))
    if isinstance(op, Divide):
        if follower.reads[0] is not work.writes[0] or not number:
            return None
        number = 1 / number
    return {"alpha": attributes.get("alpha", 1.0) * number}, []


def _is_row(tile: Tile, product: Tile) -> bool:
    """Whether a constant is one number per column."""
    return tile.data is not None and tile.count == product.sizes[-1] and tile.sizes[-1:] == product.sizes[-1:]


def _activation(op: Any, follower: Work, kernel: str) -> dict[str, Any]:
    """An activation as the kernels call it; empty for what they do not know."""
    alpha = "activation_alpha" if kernel == "matmul" else "alpha"
    match op:
        case Relu():
            return {"activation": "relu"}
        case Clip():
            return _bounds(follower.reads[1:])
        case LeakyRelu() | Elu():
            return {"activation": "elu" if isinstance(op, Elu) else "leaky_relu", alpha: float(op.alpha)}
        case Gelu():
            return {"activation": f"gelu_{op.form}"}
        case Swish() if op.alpha == 1:
            return {"activation": "silu"}
        case Sigmoid() | Tanh() | HardSwish():
            return {"activation": type(op).__name__.lower()}
    return {}


def _bounds(bounds: list[Tile | None]) -> dict[str, Any]:
    if len(bounds) != 2 or any(tile is None or tile.data is None or tile.count != 1 for tile in bounds):
        return {}
    low, high = (float(tile.data.reshape(())) for tile in bounds if tile is not None and tile.data is not None)
    return {"activation": "clip", "low": low, "high": high} if low <= high else {}


# Chains


def _chains(works: list[Work], kept: set[Tile]) -> list[Work]:
    """Join each elementwise work to those before it that it reads, wherever nothing else needs their results in between."""
    result: list[Work | None] = list(works)
    uses = _Uses(works)
    readers = {tile: set(places) for tile, places in uses.readers.items()}
    maker = uses.maker
    for place, work in enumerate(works):
        if work.kernel != "chain":
            continue
        current = work
        for tile in dict.fromkeys(work.reads):
            before = maker.get(tile, place) if tile is not None else place
            first = result[before]
            if before == place or first is None or first.kernel != "chain" or tile not in first.writes:
                continue
            if not _can_join(first, current, before, place, readers):
                continue
            needed = [each for each in first.writes if each in kept or readers.get(each, set()) - {place}]
            current = _joined(first, current, needed)
            result[before] = None
            for each in first.reads:
                if each is not None:
                    readers[each] = readers[each] - {before} | {place}
            maker.update(dict.fromkeys(first.writes, place))
        result[place] = current
    return [work for work in result if work is not None]


def _can_join(first: Work, second: Work, before: int, place: int, readers: dict[Tile, set[int]]) -> bool:
    if first.writes[0].sizes != second.writes[0].sizes or len(first.attributes["body"]) + len(second.attributes["body"]) > LIMIT:
        return False
    return not any(before < reader < place for tile in first.writes for reader in readers.get(tile, ()))


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
    result: list[Work | None] = list(works)
    for place, work in enumerate(works):
        x = work.reads[0] if work.kernel == "conv" else None
        before = result[uses.maker[x]] if x is not None and x in uses.maker else None
        if x is None or x in kept or before is None or before.kernel != "chain" or uses.readers[x] != [place]:
            continue
        found = _prologue(before)
        if found is None:
            continue
        source, attributes = found
        images = (source, *(tile for tile in work.images if tile is not x))
        reads = [source, *work.reads[1:]]
        result[uses.maker[x]] = None
        result[place] = Work("conv", (*before.nodes, *work.nodes), reads, work.writes, {**work.attributes, **attributes}, images)
    return [work for work in result if work is not None]


def _prologue(work: Work) -> tuple[Tile, dict[str, Any]] | None:
    """A chain as ``x * scale + shift``, rectified at the end or not: the tensor it is of, and the numbers per channel."""
    sources = [tile for tile in work.reads if tile is not None and tile.data is None]
    if len(work.writes) != 1 or len(sources) != 1 or sources[0].sizes != work.writes[0].sizes or len(sources[0].sizes) < 3:
        return None
    source = sources[0]
    channels = source.sizes[1]
    scale, shift, relu = np.ones(channels), np.zeros(channels), 0
    current = work.reads.index(source)
    for index, (op, refs) in enumerate(work.attributes["body"]):
        others = [ref for ref in refs if ref != current]
        if relu or len(others) != len(refs) - 1 or any(ref < 0 for ref in others):
            return None
        if isinstance(op, Relu):
            relu = 1
        elif isinstance(op, Multiply | Add):
            values = _per_channel(work.reads[others[0]], source)
            if values is None:
                return None
            scale, shift = (scale * values, shift * values) if isinstance(op, Multiply) else (scale, shift + values)
        else:
            return None
        current = ~index
    return source, {"prologue_scale": scale.tolist(), "prologue_shift": shift.tolist(), "prologue_relu": relu}


def _per_channel(tile: Tile | None, source: Tile) -> np.ndarray[Any, Any] | None:
    """A constant that has one number per channel, or one for all."""
    if tile is None or tile.data is None:
        return None
    sizes = (1,) * (len(source.sizes) - len(tile.sizes)) + tile.sizes
    if any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        return None
    return np.broadcast_to(tile.data.reshape(-1).astype(np.float64), (source.sizes[1],))
