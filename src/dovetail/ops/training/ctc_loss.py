"""Connectionist temporal classification: CTCLoss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_unrolling
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_LOG_ZERO = -1e30
"""A finite stand-in for log(0), with which sums and differences stay finite."""


class CTCLoss(
    Op,
    sig="logits: F, logit_length: I, labels: I1, label_length: I2, blank_index?: I3 -> y: F",
    openvino=(
        "CTCLoss-4(logits, logit_length, labels, label_length, blank_index?; preprocess_collapse_repeated=false, "
        "ctc_merge_repeated=true, unique=false)"
    ),
):
    """CTCLoss computes the negative log-probability that ``logits`` decode to ``labels``; the result is [batch].

    ``logits`` are [batch, times, classes], ``labels`` [batch, times]. Decoding draws a class with probabilities softmax(logits)
    at each of the first ``logit_length`` [batch] times. Then repeated classes are merged if ``ctc_merge_repeated``, and
    ``blank_index`` (default: the last class) is dropped. The first ``label_length`` [batch] elements of ``labels`` are compared.
    ``unique`` keeps only the first label of each value, and ``preprocess_collapse_repeated`` only one of adjacent equal labels.
    Labels to which no drawn classes decode have an infinite loss.
    Source: OpenVINO CTCLoss-4.
    """

    preprocess_collapse_repeated: bool = False
    ctc_merge_repeated: bool = True
    unique: bool = False

    def shape(self, logits: View, logit_length: View, labels: View, label_length: View, blank_index: View | None = None) -> Any:
        batches: list[Any] = []
        for x, rank, name in (
            (logits, 3, "logits"),
            (logit_length, 1, "logit_length"),
            (labels, 2, "labels"),
            (label_length, 1, "label_length"),
        ):
            if x.shape is not None:
                if len(x.shape) != rank:
                    raise RuleError("shape.rank", f"{name} must have rank {rank}, got {len(x.shape)}")
                batches.append((x.shape[0], name))
        if (
            blank_index is not None
            and blank_index.shape is not None
            and symbolic.equal(symbolic.product(blank_index.shape), 1) is False
        ):
            raise RuleError("shape.rank", f"blank_index must be one number, got shape {list(blank_index.shape)}")
        if logits.shape is not None and labels.shape is not None:
            agree(logits.shape[1], labels.shape[1], ("logits", 1), ("labels", 1))
        if not batches:
            return (None,)
        batch, first = batches[0]
        for other, name in batches[1:]:
            batch = agree(batch, other, (first, 0), (name, 0))
        return (batch,)

    def value(self, *xs: View | None) -> Any:
        raise symbolic.Inexact("a loss")

    def decompose(
        self, b: Builder, logits: Value, logit_length: Value, labels: Value, label_length: Value, blank_index: Value | None = None
    ) -> Any:
        """Emit the forward algorithm: at each time step, the log-probability of each prefix of the blank-interleaved labels."""
        times, classes = logits.dims[1:]
        if not isinstance(times, int) or not isinstance(classes, int) or not times:
            raise UnsupportedError("type.unknown", "CTCLoss of times or classes known only at run time is not supported")
        refuse_unrolling(times, 24, "the times of a CTCLoss")
        blank = b.constant([[classes - 1]]) if blank_index is None else b.Reshape(as_type(b, blank_index, dtypes.i64), [1, 1])
        symbols, symbol_count = self._preprocess_labels(
            b, as_type(b, labels, dtypes.i64), as_type(b, label_length, dtypes.i64), blank, times
        )
        batch = shape_value(b, logits, [0])
        blanks = b.Expand(blank, join_sizes(b, [batch, times]))
        interleaved = b.Concat(b.Unsqueeze(blanks, [2]), b.Unsqueeze(symbols, [2]), axis=2)
        states = b.Concat(
            b.Reshape(interleaved, join_sizes(b, [batch, 2 * times]), special_zero=False), b.Slice(blanks, [0], [1], [1]), axis=1
        )
        may_stay, may_skip = self._allowed_transitions(b, symbols, times)
        log_probs = b.LogSoftmax(as_type(b, logits, wide_type(logits.dtype)), axis=2)
        table_shape = join_sizes(b, [batch, times, 2 * times + 1])
        log_probs = b.GatherElements(log_probs, b.Expand(b.Unsqueeze(states, [1]), table_shape), axis=2)
        logit_lengths = b.Unsqueeze(as_type(b, logit_length, dtypes.i64), [1])
        first = np.arange(2 * times + 1).reshape(1, -1) < 2
        alpha = b.Where(b.constant(first), b.Gather(log_probs, np.array(0), axis=1), _LOG_ZERO)
        for time in range(1, times):
            paths = [b.Where(may_stay, alpha, _LOG_ZERO)]
            for distance, is_allowed in ((1, None), (2, may_skip)):
                shifted = b.Slice(b.Pad(alpha, [0, distance, 0, 0], b.constant(_LOG_ZERO, alpha.dtype)), [0], [-distance], [1])
                paths.append(shifted if is_allowed is None else b.Where(is_allowed, shifted, _LOG_ZERO))
            next_alpha = b.Add(_logsumexp(b, paths), b.Gather(log_probs, np.array(time), axis=1))
            alpha = b.Where(b.Greater(logit_lengths, b.constant(time)), b.Maximum(next_alpha, _LOG_ZERO), alpha)
        last = b.Multiply(b.Unsqueeze(symbol_count, [1]), b.constant(2))
        last_label = b.Maximum(b.Subtract(last, b.constant(1)), b.constant(0))
        ends = [b.GatherElements(alpha, index, axis=1) for index in (last, last_label)]
        # Without labels there is one final state only.
        ends[1] = b.Where(b.Equal(last, b.constant(0)), _LOG_ZERO, ends[1])
        loss = b.Squeeze(b.Negative(_logsumexp(b, ends)), [1])
        infinite = b.constant(np.array(np.inf, loss.dtype.numpy), loss.dtype)
        return as_type(b, b.Where(b.Greater(loss, -_LOG_ZERO / 2), infinite, loss), logits.dtype)

    def _preprocess_labels(self, b: Builder, labels: Value, label_length: Value, blank: Value, times: int) -> tuple[Any, Any]:
        """Return the preprocessed labels, padded with blanks to [batch, times], and the number of labels in each row."""
        is_kept = b.Less(b.constant(np.arange(times).reshape(1, -1)), b.Unsqueeze(label_length, [1]))
        if self.unique:
            is_same = b.Equal(b.Unsqueeze(labels, [2]), b.Unsqueeze(labels, [1]))
            repeats_earlier = b.And(is_same, b.constant(np.tri(times, k=-1, dtype=bool)))
            is_kept = b.And(
                is_kept, b.Equal(b.ReduceSum(b.Cast(repeats_earlier, to=dtypes.i64), [2], keepdims=False), b.constant(0))
            )
        elif self.preprocess_collapse_repeated:
            previous = b.Slice(b.Pad(labels, [0, 1, 0, 0], b.constant(-1)), [0], [-1], [1])
            is_kept = b.And(is_kept, b.Not(b.Equal(labels, previous)))
        counted = b.Cast(is_kept, to=dtypes.i64)
        # Dropped labels are written to one position after the end, which is cut off.
        positions = b.Where(is_kept, b.Subtract(b.CumSum(counted, b.constant(1)), b.constant(1)), b.constant(times))
        blanks = b.Expand(blank, join_sizes(b, [shape_value(b, labels, [0]), times + 1]))
        symbols = b.Slice(b.ScatterElements(blanks, positions, labels, axis=1), [0], [-1], [1])
        return symbols, b.ReduceSum(counted, [1], keepdims=False)

    def _allowed_transitions(self, b: Builder, symbols: Value, times: int) -> tuple[Any, Any]:
        """Return masks of the states in which a path may stay, and of the states that a path may enter by skipping a blank.

        The masks are [batch or 1, 2 * times + 1].
        """
        is_label = (np.arange(2 * times + 1) % 2 == 1).reshape(1, -1)
        if not self.ctc_merge_repeated:
            may_skip = is_label & (np.arange(2 * times + 1) > 1)
            return b.constant(~is_label), b.constant(may_skip)
        previous = b.Slice(b.Pad(symbols, [0, 1, 0, 0], b.constant(-1)), [0], [-1], [1])
        differs = b.Cast(b.Not(b.Equal(symbols, previous)), to=dtypes.i64)
        pairs = b.Pad(b.Unsqueeze(differs, [2]), [0, 0, 1, 0, 0, 0])
        rows = b.Reshape(pairs, join_sizes(b, [shape_value(b, symbols, [0]), 2 * times]), special_zero=False)
        may_skip = b.Greater(b.Pad(rows, [0, 0, 0, 1]), b.constant(0))
        return b.constant(np.ones_like(is_label)), b.And(may_skip, b.constant(np.arange(2 * times + 1) > 1))


def _logsumexp(b: Builder, terms: list[Any]) -> Any:
    """Return ``log(sum(exp(terms)))``."""
    maximum = terms[0]
    for term in terms[1:]:
        maximum = b.Maximum(maximum, term)
    total = None
    for term in terms:
        part = b.Exp(b.Subtract(term, maximum))
        total = part if total is None else b.Add(total, part)
    assert total is not None
    return b.Add(b.Log(total), maximum)
