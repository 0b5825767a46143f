"""Exact rules of operators with several outputs: one form of attributes that do not affect every output."""

from __future__ import annotations

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Type
from dovetail.laws.law import Result
from dovetail.laws.rules.arithmetic import is_all
from dovetail.laws.terms.terms import Terms
from dovetail.ops.detection.nms import NonMaxSuppression
from dovetail.ops.nn.pool import MaxPool
from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
from dovetail.ops.tensor.topk import TopK


def split_max_pool(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite MaxPool as two terms, maximum and indices; attributes of the indices do not affect the maximum."""
    assert isinstance(op, MaxPool)
    plain = op.with_(outputs=1, storage_order=0, index_element_type=dtypes.i64, axis=0)
    if len(types) == 1:
        return None if plain == op else b.add(plain, *xs)
    return [b.add(plain, *xs)[0], b.intern(op, xs, types)[1]]


def write_all_outputs(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a recurrent layer as the layer with all outputs."""
    count = len(op.signature.outputs)
    return None if len(types) == count else b.add(op.with_(outputs=count), *xs)[: len(types)]


def write_top_k(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite TopK as stable, with indices of i64, and sorted by value where the order is not specified."""
    assert isinstance(op, TopK)
    plain = op.with_(stable=True, sort="value" if op.sort == "none" else op.sort, index_element_type=dtypes.i64)
    if plain == op:
        return None
    values, indices = b.add(plain, *xs)
    return [values, b.Cast(indices, to=op.index_element_type)]


def write_extremum(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite TopK of one element as the extremum and its index."""
    assert isinstance(op, TopK)
    x, k = xs
    if x is None or x.shape is None or not is_all(k, 1):
        return None
    axis = op.axis % len(x.shape)
    value = (b.ReduceMax if op.largest else b.ReduceMin)(x, [axis], keepdims=True)
    index = b.add((ArgMax if op.largest else ArgMin)(axis), x)[0]
    return [value, b.Cast(index, to=op.index_element_type)][: len(types)]


def write_exclusive(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite NonMaxSuppression with all outputs, and with a threshold that the IoU of dropped boxes exceeds, not reaches."""
    assert isinstance(op, NonMaxSuppression)
    plain, operands = op.with_(outputs=3), list(xs)
    threshold = xs[3].constant if len(xs) > 3 and xs[3] is not None else None
    if op.inclusive and threshold is not None and threshold.dtype == np.float32 and bool((threshold > 0).all()):
        plain = plain.with_(inclusive=False)
        operands[3] = b.constant(np.nextafter(threshold, np.float32(0)), dtypes.f32)
    return None if plain == op else b.add(plain, *operands)[: len(types)]


def drop_limits(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop limits of NonMaxSuppression that equal the defaults of omitted limits."""
    limits = [None if is_all(x, number) else x for x, number in zip(xs[2:], (0, 0, -np.inf, 0), strict=False)]
    return None if all(x is y for x, y in zip(limits, xs[2:], strict=True)) else b.add(op, *xs[:2], *limits)
