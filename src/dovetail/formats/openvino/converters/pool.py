"""Pooling in OpenVINO's words: MaxPool always gives indices, and an average that counts padding counts the whole window."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node
from dovetail.ops.nn.pool import AveragePool


@OPENVINO.lower("MaxPool")
def max_pool(b: Any, node: Node) -> Any:
    op: Any = node.op
    x = node.inputs[0]
    if op.storage_order:
        return op.decompose(b, x)
    if op.outputs == 1:
        return [b.add(op.with_(outputs=2), x)[0]]
    return None


@OPENVINO.lower("AveragePool")
def average_pool(b: Any, node: Node) -> Any:
    op: Any = node.op
    x = node.inputs[0]
    if op.divisor != "padded":
        return None
    if op.auto_pad != "explicit" or not any(op.pads or ()):
        # Automatic padding is never exceeded, and without any both mean the elements inside.
        return b.add(op.with_(divisor="window" if op.auto_pad.startswith("same") else "inside"), x)
    if op.rounding_type == "floor" or op.canonical(x).rounding_type == "floor":
        return b.add(op.with_(divisor="window", rounding_type="floor"), x)
    return _padded_first(b, op, x)


def _padded_first(b: Any, op: AveragePool, x: Any) -> Any:
    """The padding made part of the input, so that a window which reaches past it counts what is there."""
    simple: Any = op.with_floor_rounding(x)
    if simple is None:
        raise UnsupportedError("pool.rounding", f"{op} over sizes that only run time knows")
    count = len(op.kernel_shape)
    begins, ends = op.explicit_pads(count)
    found = op.geometry(x.dims[2:], op.kernel_shape)
    # How far the windows reach, which is less than the padding where the last one was left out.
    reach = op.covering_pads(found, x.dims[2:])
    kept = [min(end, far) for end, far in zip(ends, reach, strict=True)]
    padded = b.Pad(x, [0, 0, *begins, 0, 0, *kept])
    rest = [max(far - end, 0) for end, far in zip(kept, reach, strict=True)]
    pool = AveragePool(simple.strides, (*(0,) * count, *rest), simple.dilations, "explicit", op.kernel_shape, "floor", "inside")
    return b.add(pool, padded)[0]


@OPENVINO.lower("AdaptiveMaxPool")
def adaptive_max_pool(b: Any, node: Node) -> Any:
    """OpenVINO's CPU plugin counts in i32 alone."""
    op: Any = node.op
    if op.dtype == "i32":
        return None
    values, indices = b.add(op.with_(dtype=dtypes.i32), *node.inputs)
    return [values, b.Cast(indices, to=op.dtype)]
