"""GatherTree: reconstruct the sequences of a beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_unrolling
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree_shapes
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import indices_of_axis

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class GatherTree(
    Op,
    sig="step_ids: R, parent_idx: R, max_seq_len: R, end_token: R -> final_idx: R",
    openvino="GatherTree-1(step_ids, parent_idx, max_seq_len, end_token)",
):
    """Reconstruct beam-search sequences, [times, batch, beams], from the last token of each beam backwards.

    ``step_ids`` holds the token of each beam at each time, ``parent_idx`` the beam that the token continues. A sequence is read
    backwards from time ``max_seq_len`` [batch] - 1. After that time, and after the first ``end_token`` of a sequence, all tokens
    are ``end_token``.
    Source: OpenVINO GatherTree-1.
    """

    def shape(self, step_ids: View, parent_idx: View, max_seq_len: View, end_token: View) -> Any:
        shape = agree_shapes(step_ids.shape, parent_idx.shape, "step_ids", "parent_idx")
        if shape is not None and len(shape) != 3:
            raise RuleError("shape.rank", f"step_ids must have the rank 3 (times, batch, beams), got {len(shape)}")
        if max_seq_len.shape is not None:
            if len(max_seq_len.shape) != 1:
                raise RuleError("shape.rank", f"max_seq_len must be a vector, got rank {len(max_seq_len.shape)}")
            if shape is not None:
                agree_shapes((shape[1],), max_seq_len.shape, ("step_ids", 1), "max_seq_len")
        if end_token.shape:
            raise RuleError("shape.rank", f"end_token must be a scalar, got the shape {list(end_token.shape)}")
        return shape

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("beams")

    def decompose(self, b: Builder, step_ids: Value, parent_idx: Value, max_seq_len: Value, end_token: Value) -> Any:
        """Emit the operators of each time step, from the last time step to the first."""
        times = step_ids.dims[0]
        if not isinstance(times, int):
            raise UnsupportedError("type.unknown", f"the number of times must be constant, got {times}")
        if not times:
            return b.Identity(step_ids)
        refuse_unrolling(times, 12, "the times of a GatherTree")
        until = b.Unsqueeze(as_type(b, max_seq_len, dtypes.i64), [1])
        beam = b.Expand(indices_of_axis(b, step_ids, 2), shape_value(b, step_ids, [1, 2]))
        tokens = []
        for time in reversed(range(times)):
            token, parent = (b.Gather(x, np.array(time), axis=0) for x in (step_ids, parent_idx))
            is_read = b.Greater(until, b.constant(time))
            tokens.append(b.Unsqueeze(b.Where(is_read, b.GatherElements(token, beam, axis=1), end_token), [0]))
            beam = b.Where(is_read, b.GatherElements(as_type(b, parent, dtypes.i64), beam, axis=1), beam)
        y = b.Concat(*reversed(tokens), axis=0) if times > 1 else tokens[0]
        ends = b.CumSum(b.Cast(b.Equal(y, end_token), to=dtypes.i64), b.constant(0))
        return b.Where(b.Greater(ends, b.constant(0)), end_token, y)
