"""Steps that move data, choose it by index, order it, or reduce it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from networks.maker import REAL, Maker

REDUCED = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
).split()
ORDERED = ("f32", "f32", "f32", "f64", "i32", "i64")


def any_value(m: Maker, least: int = 1) -> str | None:
    return m.pick(dtype=REAL if m.chance(0.75) else None, least=least)


def concat(m: Maker) -> str | None:
    """Values joined: also one twice, slices of one, constants."""
    x = any_value(m)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    fitting = [
        y
        for y in m.values
        if m.dtype(y) == m.dtype(x)
        and m.rank(y) == m.rank(x)
        and all(
            a[y].actual.shape[place] == a[x].actual.shape[place] for a in m.answers for place in range(m.rank(x)) if place != axis
        )
    ]
    parts = [x, *(str(m.among(fitting)) for _ in range(m.number(1, 3)))]
    if m.chance(0.2) and not any(m.is_open(x, place) for place in range(m.rank(x)) if place != axis):
        parts.append(m.constant(m.data(m.dtype(x), [2 if place == axis else size for place, size in enumerate(m.shape(x))])))
    m.random.shuffle(parts)
    return m.one("Concat", *parts, axis=axis if m.chance(0.5) else axis - m.rank(x))


def split(m: Maker) -> str | None:
    """Cut, some of the pieces computed upon, and some put together again."""
    x = any_value(m)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    if m.is_open(x, axis):
        return None
    size = m.shape(x)[axis]
    cuts = (
        sorted(m.number(0, size) for _ in range(m.number(1, 2)))
        if size == 0 or m.chance(0.2)
        else sorted({m.number(1, size) for _ in range(2)} - {size})
    )
    lengths = np.diff([0, *cuts, size]).tolist()
    parts = m.add("Split", x, m.ints(*lengths), axis=axis, outputs=len(lengths))
    if parts is None:
        return None
    made = []
    for part in parts:
        y = m.one(m.among(("Relu", "Tanh", "Negative", "Abs")), part) if m.dtype(x) == m.kind and m.chance(0.5) else None
        made.append(y or part)
    if m.chance(0.6):
        m.random.shuffle(made)
        return m.one("Concat", *made, *([x] if m.chance(0.2) else []), axis=axis)
    return made[-1]


def reshape(m: Maker) -> str | None:
    x = any_value(m)
    if x is None:
        return None
    shape = m.shape(x)
    if m.chance(0.25) and m.rank(x) > 1:
        return m.one("Flatten", x, axis=m.number(0, m.rank(x)))
    if m.is_open(x):
        axes = [axis for axis in range(m.rank(x)) if m.is_open(x, axis)]
        if len(axes) > 1:
            return None
        first, last = shape[: axes[0]], shape[axes[0] + 1 :]
        style = m.number(0, 2)
        if style == 0 and last:
            return m.one("Reshape", x, m.ints(*[0] * (axes[0] + 1), prod(last)))
        if style == 1:
            return m.one("Reshape", x, m.ints(*first, -1, *last[:-1], *(() if not last else (last[-1],))))
        return m.one("Reshape", x, m.ints(-1, *((prod(last),) if m.chance(0.5) and prod(last) else ())))
    sizes: list[int] = []
    rest = prod(shape)
    if not rest:
        return None
    while rest > 1 and len(sizes) < 3:
        size = m.among([factor for factor in range(1, min(rest, 64) + 1) if rest % factor == 0])
        sizes.append(size)
        rest //= size
    sizes.insert(m.number(0, len(sizes)), rest)
    if m.chance(0.4):
        sizes[m.number(0, len(sizes) - 1)] = -1
    return m.one("Reshape", x, m.ints(*sizes))


def transpose(m: Maker) -> str | None:
    x = any_value(m)
    if x is None:
        return None
    order = list(range(m.rank(x)))
    m.random.shuffle(order)
    if m.rank(x) >= 3 and m.chance(0.4):
        order = m.among(([0, *range(2, m.rank(x)), 1], [0, m.rank(x) - 1, *range(1, m.rank(x) - 1)]))
    return m.one("Transpose", x, m.ints(*order))


def slice_(m: Maker) -> str | None:
    x = any_value(m)
    if x is None:
        return None
    axes = m.random.sample(range(m.rank(x)), m.number(1, min(2, m.rank(x))))
    starts, stops, steps = [], [], []
    for axis in axes:
        size = min(a[x].actual.shape[axis] for a in m.answers)
        start, stop = m.number(-size, size), m.number(-size, size + 1)
        step = m.among((1, 1, 1, 2, -1, 3, -2))
        if m.chance(0.8) and size:
            low, high = sorted((m.number(0, size - 1), m.number(1, size)))
            start, stop = low, max(high, low + 1)
            if step < 0:
                start, stop = stop - 1, (low - 1 if low else -(2**40))
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    return m.one("Slice", x, m.ints(*starts), m.ints(*stops), m.ints(*axes), m.ints(*steps))


def pad(m: Maker) -> str | None:
    x = any_value(m)
    if x is None or m.count(x) > m.largest // 6:
        return None
    mode = m.among(("constant", "constant", "constant", "edge", "reflect", "wrap"))
    begins, ends = ([m.among((0, 0, 1, 2, -1 if mode == "constant" else 0)) for _ in m.shape(x)] for _ in range(2))
    value = [m.constant(np.asarray(m.number(0, 3), m.answer(x).actual.dtype))] if mode == "constant" and m.chance(0.5) else []
    return m.one("Pad", x, m.ints(*begins, *ends), *value, mode=mode)


def expand(m: Maker) -> str | None:
    x = any_value(m, 0)
    if x is None or m.count(x) > m.largest // 10:
        return None
    shape = [
        m.among((2, 3, 5)) if not m.is_open(x, axis) and size == 1 and m.chance(0.7) else 1
        for axis, size in enumerate(m.shape(x))
    ]
    if m.chance(0.4) and m.rank(x) < 5:
        shape.insert(0, m.number(1, 3))
    return m.one("Expand", x, m.ints(*shape))


def tile(m: Maker) -> str | None:
    x = any_value(m)
    if x is None or m.count(x) > m.largest // 20:
        return None
    return m.one("Tile", x, m.ints(*(m.among((1, 1, 2, 3)) for _ in m.shape(x))))


def squeezed(m: Maker) -> str | None:
    x = any_value(m, 0)
    if x is None:
        return None
    ones = [axis for axis, size in enumerate(m.shape(x)) if size == 1 and not m.is_open(x, axis)]
    if ones and m.chance(0.5):
        return m.one("Squeeze", x, m.ints(m.among(ones)))
    if m.rank(x) > 4:
        return None
    return m.one("Unsqueeze", x, m.ints(m.number(0, m.rank(x))))


# By index


def _indices(m: Maker, size: int, shape: tuple[int, ...]) -> str:
    """Indices as a constant or as a graph input, of either type, some counted from the end."""
    array = m.arrays.integers(-size, size, shape) if size else np.zeros(shape, np.int64)
    kind = m.among(("i64", "i64", "i32"))
    array = array.astype(np.int64 if kind == "i64" else np.int32)
    if m.chance(0.5) or m.depth:
        return m.constant(array)
    return m.input(kind, shape, lambda sizes: array)


def gather(m: Maker) -> str | None:
    x = any_value(m)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    size = min(a[x].actual.shape[axis] for a in m.answers)
    if not size:
        return None
    indices = _indices(m, size, m.among(((3,), (1,), (), (2, 2), (9,))))
    return m.one("Gather", x, indices, axis=axis if m.chance(0.5) else axis - m.rank(x))


def gather_elements(m: Maker) -> str | None:
    x = m.pick(lambda x: not m.is_open(x) and all(m.shape(x)), dtype=REAL if m.chance(0.75) else None, least=1)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    shape = tuple(m.number(1, 5) if place == axis else m.number(1, size) for place, size in enumerate(m.shape(x)))
    return m.one("GatherElements", x, _indices(m, m.shape(x)[axis], shape), axis=axis)


def gather_nd(m: Maker) -> str | None:
    x = m.pick(lambda x: not m.is_open(x) and all(m.shape(x)), dtype=REAL if m.chance(0.75) else None, least=1)
    if x is None:
        return None
    batch = 1 if m.rank(x) > 1 and m.chance(0.3) else 0
    depth = m.number(1, m.rank(x) - batch)
    rows = m.arrays.integers(0, 2**30, (*m.shape(x)[:batch], m.number(1, 4), depth)) % np.array(m.shape(x)[batch : batch + depth])
    indices = m.constant(rows) if m.chance(0.5) or m.depth else m.input("i64", rows.shape, lambda sizes: rows)
    return m.one("GatherND", x, indices, batch_dims=batch)


def scatter_elements(m: Maker) -> str | None:
    """Return a value with some of its elements replaced by those of a part of it, or combined with them."""
    x = m.pick(lambda x: not m.is_open(x) and all(m.shape(x)), dtype=REAL if m.chance(0.75) else None, least=1)
    if x is None or m.dtype(x) == "boolean":
        return None
    axis = m.number(0, m.rank(x) - 1)
    shape = tuple(m.number(1, size) for size in m.shape(x))
    updates = m.one("Slice", x, m.ints(*[0] * len(shape)), m.ints(*shape), m.ints(*range(len(shape))))
    indices = _indices(m, m.shape(x)[axis], shape)
    return m.one("ScatterElements", x, indices, updates, axis=axis, reduction=m.among(("replace", "replace", "add", "max")))


def scatter_nd(m: Maker) -> str | None:
    """Some rows of a value in the place of others, or added to them; the value itself may die there."""
    x = m.pick(lambda x: not m.is_open(x) and all(m.shape(x)), dtype=REAL if m.chance(0.75) else None, least=1)
    if x is None or m.dtype(x) == "boolean":
        return None
    count = m.number(1, m.shape(x)[0])
    updates = m.one("Slice", x, m.ints(0), m.ints(count), m.ints(0))
    indices = m.arrays.integers(-m.shape(x)[0], m.shape(x)[0], (count, 1))
    whole = m.one("Negative", x) if m.chance(0.5) and m.dtype(x) == "f32" else x
    reduction = m.among(("replace", "replace", "add", "min"))
    return None if whole is None else m.one("ScatterND", whole, m.constant(indices), updates, reduction=reduction)


def trilu(m: Maker) -> str | None:
    x = m.pick(dtype=REAL if m.chance(0.75) else None, least=2)
    if x is None:
        return None
    return m.one("Trilu", x, m.constant(np.int64(m.number(-3, 3))), upper=m.chance(0.5))


def top_k(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(ORDERED), least=1)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    size = min(a[x].actual.shape[axis] for a in m.answers)
    if not size:
        return None
    found = m.add("TopK", x, m.ints(m.number(1, size)), axis=axis, largest=m.chance(0.6))
    return None if found is None else found[0]


def arg_extreme(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(ORDERED), least=1)
    if x is None:
        return None
    attributes = {"axis": m.number(-m.rank(x), m.rank(x) - 1), "keepdims": m.chance(0.6), "select_last_index": m.chance(0.3)}
    return m.one(m.among(("ArgMax", "ArgMin")), x, **attributes)


def cum_sum(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(ORDERED), least=1)
    if x is None:
        return None
    return m.one(
        "CumSum", x, m.constant(np.int64(m.number(-m.rank(x), m.rank(x) - 1))), exclusive=m.chance(0.4), reverse=m.chance(0.4)
    )


def range_(m: Maker) -> str | None:
    """Places along an axis that only the run tells, added to something."""
    x = m.pick(lambda x: m.rank(x) >= 1)
    if x is None:
        return None
    axis = m.number(0, m.rank(x) - 1)
    for place in range(m.rank(x)):
        # A length that is known before the run makes a constant.
        axis = place if m.is_open(x, place) else axis
    whole = m.one("Shape", x)
    size = None if whole is None else m.one("Gather", whole, m.constant(np.int64(axis)))
    places = None if size is None else m.one("Range", m.constant(np.int64(0)), size, m.constant(np.int64(1)))
    if places is None or m.chance(0.3):
        return places
    from dovetail.ir import dtypes

    return m.one("Cast", places, to=dtypes.f32)


def suppressed(m: Maker) -> str | None:
    """NonMaxSuppression of boxes that come in; its rows are counted when it runs."""
    if m.depth:
        return None
    batch, classes, count = m.number(1, 2), m.number(1, 3), m.number(1, 30)
    corner = m.arrays.random((batch, count, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + m.arrays.random((batch, count, 2)).astype(np.float32) * 0.5], 2)
    scores = m.arrays.random((batch, classes, count)).astype(np.float32)
    reads = [m.input("f32", boxes.shape, lambda sizes: boxes), m.input("f32", scores.shape, lambda sizes: scores)]
    reads += [
        m.constant(np.array([m.number(1, 10)], np.int64)),
        m.constant(np.array([0.4], np.float32)),
        m.constant(np.array([0.2], np.float32)),
    ]
    found = m.one("NonMaxSuppression", *reads)
    return found


# Reductions


def reduce_(m: Maker) -> str | None:
    x = m.pick(least=1)
    if x is None or not m.count(x):
        return None
    kind = m.among(REDUCED)
    if kind == "ReduceLogSum":
        x = m.one("Sigmoid", x) or x
    attributes: dict[str, Any] = {"keepdims": m.chance(0.6)}
    if m.chance(0.1):
        return m.one(kind, x, **attributes)
    axes = m.random.sample(range(m.rank(x)), m.number(1, m.rank(x)))
    return m.one(kind, x, m.ints(*(axis - m.rank(x) if m.chance(0.3) else axis for axis in axes)), **attributes)
