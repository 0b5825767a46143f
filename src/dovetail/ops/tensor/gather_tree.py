"""Beam search read backwards: GatherTree."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import agree_shapes
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import indices_of_axis


class GatherTree(
    Op, sig="steps: R, parents: R, lengths: R, end: R -> y: R", openvino="GatherTree-1(steps, parents, lengths, end)"
):
    """The sequences that beams stand for, [times, batch, beams]: the last token of each beam, before it that of its parent, and
    so on. What ``steps`` says at each time is the token, ``parents`` the beam that it comes from.

    A sequence is read from time ``lengths`` [batch] - 1 on, and is ``end`` behind that, and behind the first ``end`` in it.
    Source: OpenVINO GatherTree-1.
    """

    def shape(self, steps: Any, parents: Any, lengths: Any, end: Any) -> Any:
        found = agree_shapes(steps.shape, parents.shape)
        if found is not None and len(found) != 3:
            raise RuleError("beams.rank", f"times, batch and beams are needed, not the rank {len(found)}")
        if lengths.shape is not None:
            if len(lengths.shape) != 1:
                raise RuleError("beams.rank", f"lengths should be a vector, not of rank {len(lengths.shape)}")
            if found is not None:
                agree_shapes((found[1],), lengths.shape)
        if end.shape:
            raise RuleError("beams.rank", f"the end should be one token, not of shape {list(end.shape)}")
        return found

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("beams")

    def decompose(self, b: Any, steps: Any, parents: Any, lengths: Any, end: Any) -> Any:
        """One time after the other, the last first."""
        times = steps.dims[0]
        if not isinstance(times, int):
            raise UnsupportedError("beams.times", "GatherTree over as many times as only run time knows")
        if not times:
            return b.Identity(steps)
        until = b.Unsqueeze(as_type(b, lengths, dtypes.i64), [1])
        beam = b.Expand(indices_of_axis(b, steps, 2), shape_value(b, steps, [1, 2]))
        made = []
        for time in reversed(range(times)):
            token, parent = (b.Gather(x, np.array(time), axis=0) for x in (steps, parents))
            is_read = b.Greater(until, b.constant(time))
            made.append(b.Unsqueeze(b.Where(is_read, b.GatherElements(token, beam, axis=1), end), [0]))
            beam = b.Where(is_read, b.GatherElements(as_type(b, parent, dtypes.i64), beam, axis=1), beam)
        y = b.Concat(*reversed(made), axis=0) if times > 1 else made[0]
        ends = b.CumSum(b.Cast(b.Equal(y, end), to=dtypes.i64), b.constant(0))
        return b.Where(b.Greater(ends, b.constant(0)), end, y)
