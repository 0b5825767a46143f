"""Import greedy CTC decoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import indices_of_axis, join_sizes


def _decode(b: Builder, best: Value, counts: Value, blank: Value, merge: bool) -> tuple[Any, Any]:
    """Return the decoded classes [batch, time], padded with -1, and the number of decoded classes of each sequence.

    ``counts`` is true for the time steps to decode; ``best`` is the class of the greatest score at each time step.
    """
    keep = b.And(b.Not(b.Equal(best, blank)), counts)
    if merge:
        pads = b.constant([0, 1, 0, 0])
        before = b.Slice(b.Pad(best, pads, b.constant(-1)), [0], [-1], [1])
        keep = b.And(keep, b.Not(b.Equal(best, before)))
    number = b.Cast(keep, to=dtypes.i64)
    batch, times = shape_value(b, best, [0]), shape_value(b, best, [1])
    # Dropped classes are scattered into an extra last column, which is cut off.
    columns = b.Where(keep, b.Subtract(b.CumSum(number, b.constant(1)), b.constant(1)), times)
    column_count = [times[0] + 1] if isinstance(times, list) else b.Add(times, [1])
    empty = b.Expand(b.constant(-1), join_sizes(b, [batch, column_count]))
    classes = b.Slice(b.ScatterElements(empty, columns, best, axis=1), [0], [-1], [1])
    return classes, b.ReduceSum(number, [1], keepdims=False)


@OPENVINO.importer("CTCGreedyDecoder", 1)
def import_ctc_greedy_decoder(ctx: ImportContext) -> Value:
    """Import CTCGreedyDecoder: the blank is the last class, and each sequence ends at the first 0 of its mask.

    The result [batch, time, 1, 1] has the element type of the scores.
    """
    b, scores, mask = ctx.b, ctx.input(0), ctx.input(1)
    merge = ctx.attribute("ctc_merge_repeated", "bool", True)
    best = b.Transpose(b.ArgMax(scores, axis=2, keepdims=False), [1, 0])
    size = scores.dims[2]
    blank = b.constant(size - 1) if isinstance(size, int) else b.Subtract(shape_value(b, scores, [2]), [1])
    zero = b.constant(np.zeros((), mask.dtype.numpy), mask.dtype)
    # A sequence ends at the first 0 of the mask.
    stopped = b.CumSum(b.Cast(b.Equal(b.Transpose(mask, [1, 0]), zero), to=dtypes.i64), b.constant(1))
    classes, _ = _decode(b, best, b.Equal(stopped, b.constant(0)), blank, merge)
    result: Value = b.Unsqueeze(b.Cast(classes, to=scores.dtype), [2, 3])
    return result


@OPENVINO.importer("CTCGreedyDecoderSeqLen", 6)
def import_ctc_greedy_decoder_seq_len(ctx: ImportContext) -> list[Value]:
    """Import CTCGreedyDecoderSeqLen: the blank is an optional input, by default the last class; lengths are an input."""
    b, scores, lengths, blank = ctx.b, ctx.input(0), ctx.input(1), ctx.optional_input(2)
    merge = ctx.attribute("merge_repeated", "bool", True)
    kinds = [ctx.attribute(name, "DType", dtypes.i32) for name in ("classes_index_type", "sequence_length_type")]
    best = b.ArgMax(scores, axis=2, keepdims=False)
    if blank is not None:
        of_blank: Any = b.Reshape(as_type(b, blank, dtypes.i64), [1])
    else:
        size = scores.dims[2]
        of_blank = b.constant(size - 1) if isinstance(size, int) else b.Subtract(shape_value(b, scores, [2]), [1])
    counts = b.Less(indices_of_axis(b, scores, 1), b.Unsqueeze(as_type(b, lengths, dtypes.i64), [1]))
    classes, number = _decode(b, best, counts, of_blank, merge)
    return [as_type(b, item, kind) for item, kind in zip((classes, number), kinds, strict=True)]
