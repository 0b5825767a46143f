"""Of what is in each other's way the best, again and again: written with operators, for formats that have no word for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph
from dovetail.ir.types import Tensor
from dovetail.ops.casts import as_type
from dovetail.ops.control_flow.loop import Loop


def shares(b: Any, boxes: Any, is_center: bool) -> Any:
    """What each two of ``boxes`` [batches, n, 4] have in common, of what both cover: [batches, n, n]; 0 for those of no area."""
    first, second = b.Slice(boxes, [0], [2], [2]), b.Slice(boxes, [2], [4], [2])
    if is_center:
        half = b.Multiply(second, 0.5)
        first, second = b.Subtract(first, half), b.Add(first, half)
    low, high = b.Minimum(first, second), b.Maximum(first, second)
    areas = b.ReduceProd(b.Subtract(high, low), [2], keepdims=False)
    ours, theirs = ([b.Unsqueeze(x, [place]) for x in (low, high, areas)] for place in (2, 1))
    sides = b.Subtract(b.Minimum(ours[1], theirs[1]), b.Maximum(ours[0], theirs[0]))
    common = b.ReduceProd(b.Maximum(sides, 0.0), [3], keepdims=False)
    return share(b, common, ours[2], theirs[2])


def share(b: Any, common: Any, area: Any, other: Any) -> Any:
    """The part that two areas have in common of what both cover; 0 where one of them is none."""
    both = b.Subtract(b.Add(area, other), common)
    is_sound = b.And(b.And(b.Greater(area, 0.0), b.Greater(other, 0.0)), b.And(b.Greater(both, 0.0), b.Greater(common, 0.0)))
    return b.Where(is_sound, b.Divide(common, b.Where(is_sound, both, 1.0)), 0.0)


def told(b: Any, rows: Any, values: Any, descending: bool, dtype: DType) -> list[Any]:
    """Which boxes are kept, [batch, class, score] of each in f32, and how many they are, of rows by batch, class and falling
    score.
    """
    if descending:
        values, order = b.TopK(values, b.Shape(values), axis=0)
        rows = b.Gather(rows, order, axis=0)
    named = b.Concat(b.Cast(b.Slice(rows, [0], [2], [1]), to=dtypes.f32), b.Unsqueeze(values, [1]), axis=1)
    return [as_type(b, rows, dtype), named, as_type(b, b.Gather(b.Shape(rows), [0], axis=0), dtype)]


def greedily(b: Any, scores: Any, weights: Any, dropped: Any, most: Any, least: Any) -> tuple[Any, Any]:
    """The rows [batch, class, box] that are kept, by batch, class and falling score, and their scores.

    Of ``scores`` [batches, classes, n] above ``least`` (None: any) each time the greatest is taken, ``most`` times (None: never)
    in each class; the others of its class are multiplied by its row of ``weights`` [batches, n, n] (None: stay), and left out
    where its row of ``dropped`` says so or where they are no longer above ``least``.
    """
    least = b.constant(-np.inf, dtypes.f32) if least is None else b.Reshape(least, [])
    most = b.constant(0) if most is None else b.Reshape(most, [])
    trips = b.Minimum(most, b.Reshape(b.Gather(b.Shape(scores), [2], axis=0), []))
    left = b.Where(b.Greater(scores, least), scores, b.constant(-np.inf, dtypes.f32))
    xs = (left, dropped, least, *(() if weights is None else (weights,)))
    loop = Loop(body=_body(xs), carried=1, scan_outputs=((0, False),) * 2, outputs=3)
    _, values, places = b.add(loop, trips, None, *xs)
    values, places = (b.Transpose(x, [1, 2, 0]) for x in (values, places))
    rows = b.Transpose(b.NonZero(b.Greater(values, b.constant(-np.inf, dtypes.f32))), [1, 0])
    boxes = b.Unsqueeze(b.GatherND(places, rows), [1])
    return b.Concat(b.Slice(rows, [0], [2], [1]), boxes, axis=1), b.GatherND(values, rows)


def _body(xs: tuple[Any, ...]) -> Graph:
    """Take the greatest score of each class: -inf stands for what is taken or left out."""
    b = Builder("taken")
    b.input("trip", dtypes.i64, ())
    names = ("left", "dropped", "least", "weights")
    left, dropped, least, *weights = (b.input_of(name, Tensor(x.dtype, x.shape)) for name, x in zip(names, xs, strict=False))
    none = b.constant(-np.inf, dtypes.f32)
    greatest, place = b.TopK(left, [1], axis=2)
    is_left = b.And(b.Greater(left, none), b.Not(b.GatherND(dropped, place, batch_dims=1)))
    for weight in weights:
        left = b.Multiply(b.Where(is_left, left, 0.0), b.GatherND(weight, place, batch_dims=1))
        is_left = b.And(is_left, b.Greater(left, least))
    after = b.ScatterElements(b.Where(is_left, left, none), place, b.Expand(none, b.Shape(place)), axis=2)
    parts = (b.Unsqueeze(b.Squeeze(x, [2]), [0]) for x in (greatest, place))
    b.graph.outputs = [b.constant(True), after, *parts]
    return b.graph
