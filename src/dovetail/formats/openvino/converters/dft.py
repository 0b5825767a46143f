"""Legalize Fourier transforms for OpenVINO, where a real tensor has no axis of real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node
from dovetail.ops.signal.dft import IRDFT, RDFT, padded_lengths


@OPENVINO.legalize("DFT")
def legalize_dft(b: Builder, node: Node) -> Any:
    op: Any = node.op
    x, axes, *rest = node.inputs
    assert x is not None
    if rest and rest[0] is not None and rest[0].shape == ():
        return b.add(op, x, axes, b.Reshape(rest[0], [1]))[0]
    rest = [axes, *rest]
    if op.onesided:
        if op.inverse:
            return b.Unsqueeze(b.add(IRDFT(), x, *rest)[0], [-1])
        return b.add(RDFT(), b.Squeeze(x, [-1]), *rest)[0]
    parts = x.dims[-1]
    if symbolic.equal(parts, 2) is True:
        return None
    if symbolic.equal(parts, 1) is not True:
        raise UnsupportedError("shape.disagree", f"the size of the last axis must be 1 (real) or 2 (complex), got {parts}")
    zero = b.constant(np.zeros((), x.dtype.numpy), x.dtype)
    return b.add(op, b.Concat(x, b.Expand(zero, shape_value(b, x)), axis=-1), *rest)[0]


@OPENVINO.legalize("RDFT")
def legalize_rdft(b: Builder, node: Node) -> Any:
    """Legalize RDFT: pad the signal with zeros to its length, because OpenVINO's CPU plugin does not."""
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    assert x is not None
    plan = op.plan(x.dims, axes, lengths, False)
    lacking = None if plan is None else padded_lengths(x.dims, plan)
    if lacking is None:
        return None
    return b.add(op, b.Pad(x, [*[0] * len(lacking), *lacking]), axes, lengths)[0]
