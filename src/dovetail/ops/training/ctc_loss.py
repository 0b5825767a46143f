"""How unlikely a text is, given scores of its letters at each time: CTCLoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

_NEVER = -1e30
"""The logarithm of what stands for no chance at all, so that sums over it stay numbers."""


class CTCLoss(
    Op,
    sig="logits: F, lengths: I, labels: I1, counts: I2, blank?: I3 -> y: F",
    openvino=(
        "CTCLoss-4(logits, lengths, labels, counts, blank?; preprocess_collapse_repeated:collapse=false, "
        "ctc_merge_repeated:merge=true, unique=false)"
    ),
):
    """The negative logarithm of the chance that ``labels`` [batch, times] are read from ``logits`` [batch, times, classes]:
    [batch].

    At each of the first ``lengths`` [batch] times a class is drawn, with the chances softmax(logits); ``blank`` (left out: the
    last class) is dropped, after classes that come several times in a row are taken for one, unless ``merge`` is False. Of
    ``labels`` the first ``counts`` [batch] are meant, with ``unique`` each once, with ``collapse`` those that come several times
    in a row once. What cannot be read has an infinite loss. Source: OpenVINO CTCLoss-4.
    """

    collapse: bool = False
    merge: bool = True
    unique: bool = False

    def shape(self, logits: Any, lengths: Any, labels: Any, counts: Any, blank: Any = None) -> Any:
        found: list[Any] = []
        for x, rank, name in ((logits, 3, "logits"), (lengths, 1, "lengths"), (labels, 2, "labels"), (counts, 1, "counts")):
            if x.shape is not None:
                if len(x.shape) != rank:
                    raise RuleError("ctc.rank", f"{name} should have rank {rank}, not {len(x.shape)}")
                found.append(x.shape[0])
        if blank is not None and blank.shape is not None and symbolic.equal(symbolic.product(blank.shape), 1) is False:
            raise RuleError("ctc.rank", f"the blank should be one class, not of shape {list(blank.shape)}")
        if logits.shape is not None and labels.shape is not None:
            agree(logits.shape[1], labels.shape[1])
        if not found:
            return (None,)
        batch = found[0]
        for other in found[1:]:
            batch = agree(batch, other)
        return (batch,)

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("a loss")

    def decompose(self, b: Any, logits: Any, lengths: Any, labels: Any, counts: Any, blank: Any = None) -> Any:
        """The chances of all beginnings, time after time, of the labels with blanks between them."""
        times, classes = logits.dims[1:]
        if not isinstance(times, int) or not isinstance(classes, int) or not times:
            raise UnsupportedError("ctc.size", "CTCLoss over as many times or classes as only run time knows")
        empty = b.constant([[classes - 1]]) if blank is None else b.Reshape(as_type(b, blank, dtypes.i64), [1, 1])
        text, number = self._decoded(b, as_type(b, labels, dtypes.i64), as_type(b, counts, dtypes.i64), empty, times)
        batch = shape_value(b, logits, [0])
        blanks = b.Expand(empty, join_sizes(b, [batch, times]))
        between = b.Concat(b.Unsqueeze(blanks, [2]), b.Unsqueeze(text, [2]), axis=2)
        states = b.Concat(
            b.Reshape(between, join_sizes(b, [batch, 2 * times]), special_zero=False), b.Slice(blanks, [0], [1], [1]), axis=1
        )
        stays, leaps = self._steps(b, text, times)
        chances = b.LogSoftmax(as_type(b, logits, wide_type(logits.dtype)), axis=2)
        whole = join_sizes(b, [batch, times, 2 * times + 1])
        chances = b.GatherElements(chances, b.Expand(b.Unsqueeze(states, [1]), whole), axis=2)
        until = b.Unsqueeze(as_type(b, lengths, dtypes.i64), [1])
        first = np.arange(2 * times + 1).reshape(1, -1) < 2
        reached = b.Where(b.constant(first), b.Gather(chances, np.array(0), axis=1), _NEVER)
        for time in range(1, times):
            ways = [b.Where(stays, reached, _NEVER)]
            for back, allowed in ((1, None), (2, leaps)):
                moved = b.Slice(b.Pad(reached, [0, back, 0, 0], b.constant(_NEVER, reached.dtype)), [0], [-back], [1])
                ways.append(moved if allowed is None else b.Where(allowed, moved, _NEVER))
            now = b.Add(_sum(b, ways), b.Gather(chances, np.array(time), axis=1))
            reached = b.Where(b.Greater(until, b.constant(time)), b.Maximum(now, _NEVER), reached)
        last = b.Multiply(b.Unsqueeze(number, [1]), b.constant(2))
        before = b.Maximum(b.Subtract(last, b.constant(1)), b.constant(0))
        ends = [b.GatherElements(reached, place, axis=1) for place in (last, before)]
        # Of no labels there is one end alone.
        ends[1] = b.Where(b.Equal(last, b.constant(0)), _NEVER, ends[1])
        loss = b.Squeeze(b.Negative(_sum(b, ends)), [1])
        infinite = b.constant(np.array(np.inf, loss.dtype.numpy), loss.dtype)
        return as_type(b, b.Where(b.Greater(loss, -_NEVER / 2), infinite, loss), logits.dtype)

    def _decoded(self, b: Any, labels: Any, counts: Any, blank: Any, times: int) -> tuple[Any, Any]:
        """The labels that are meant, [batch, times] with blanks behind, and how many these are."""
        kept = b.Less(b.constant(np.arange(times).reshape(1, -1)), b.Unsqueeze(counts, [1]))
        if self.unique:
            same = b.Equal(b.Unsqueeze(labels, [2]), b.Unsqueeze(labels, [1]))
            earlier = b.And(same, b.constant(np.tri(times, k=-1, dtype=bool)))
            kept = b.And(kept, b.Equal(b.ReduceSum(b.Cast(earlier, to=dtypes.i64), [2], keepdims=False), b.constant(0)))
        elif self.collapse:
            before = b.Slice(b.Pad(labels, [0, 1, 0, 0], b.constant(-1)), [0], [-1], [1])
            kept = b.And(kept, b.Not(b.Equal(labels, before)))
        number = b.Cast(kept, to=dtypes.i64)
        # What is dropped goes behind the end.
        places = b.Where(kept, b.Subtract(b.CumSum(number, b.constant(1)), b.constant(1)), b.constant(times))
        empty = b.Expand(blank, join_sizes(b, [shape_value(b, labels, [0]), times + 1]))
        text = b.Slice(b.ScatterElements(empty, places, labels, axis=1), [0], [-1], [1])
        return text, b.ReduceSum(number, [1], keepdims=False)

    def _steps(self, b: Any, text: Any, times: int) -> tuple[Any, Any]:
        """At which of the labels and blanks one may stay, and to which one may leap over a blank: [batch or 1, 2 * times + 1]."""
        is_label = (np.arange(2 * times + 1) % 2 == 1).reshape(1, -1)
        if not self.merge:
            leaps = is_label & (np.arange(2 * times + 1) > 1)
            return b.constant(~is_label), b.constant(leaps)
        before = b.Slice(b.Pad(text, [0, 1, 0, 0], b.constant(-1)), [0], [-1], [1])
        differs = b.Cast(b.Not(b.Equal(text, before)), to=dtypes.i64)
        pairs = b.Pad(b.Unsqueeze(differs, [2]), [0, 0, 1, 0, 0, 0])
        rows = b.Reshape(pairs, join_sizes(b, [shape_value(b, text, [0]), 2 * times]), special_zero=False)
        leaps = b.Greater(b.Pad(rows, [0, 0, 0, 1]), b.constant(0))
        return b.constant(np.ones_like(is_label)), b.And(leaps, b.constant(np.arange(2 * times + 1) > 1))


def _sum(b: Any, ways: list[Any]) -> Any:
    """The logarithm of the sum of what these are logarithms of."""
    greatest = ways[0]
    for way in ways[1:]:
        greatest = b.Maximum(greatest, way)
    total = None
    for way in ways:
        part = b.Exp(b.Subtract(way, greatest))
        total = part if total is None else b.Add(total, part)
    return b.Add(b.Log(total), greatest)
