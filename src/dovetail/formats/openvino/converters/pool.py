"""Converters for pooling: OpenVINO's MaxPool always returns indices, and its padded average divides by the window size."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ops.nn.pool import AveragePool


@OPENVINO.legalize("MaxPool")
def legalize_max_pool(b: Builder, node: Node) -> Any:
    op: Any = node.op
    x = node.inputs[0]
    if op.storage_order:
        return op.decompose(b, x)
    if op.outputs == 1:
        return [b.add(op.with_(outputs=2), x)[0]]
    return None


@OPENVINO.legalize("AveragePool")
def legalize_average_pool(b: Builder, node: Node) -> Any:
    op: Any = node.op
    x = node.inputs[0]
    if op.divisor != "padded":
        return None
    if op.auto_pad != "explicit" or not any(op.pads or ()):
        # Windows never exceed automatic padding; without padding both modes average the same elements.
        return b.add(op.with_(divisor="window" if op.auto_pad.startswith("same") else "inside"), x)
    if op.rounding_type == "floor" or op.canonical(x).rounding_type == "floor":
        return b.add(op.with_(divisor="window", rounding_type="floor"), x)
    return _padded_first(b, op, x)


def _padded_first(b: Builder, op: AveragePool, x: Any) -> Any:
    """Pad the input explicitly, so that windows beyond the padding average the same elements as in the core."""
    simple: Any = op.with_floor_rounding(x)
    if simple is None:
        raise UnsupportedError("type.unknown", f"{op} needs static spatial sizes")
    count = len(op.kernel_shape)
    begins, ends = op.explicit_pads(count)
    geometry = op.geometry(x.dims[2:], op.kernel_shape)
    # Windows do not reach the end of the padded input if floor rounding drops the last window.
    reach = op.covering_pads(geometry, x.dims[2:])
    pads_end = [min(end, far) for end, far in zip(ends, reach, strict=True)]
    padded = b.Pad(x, [0, 0, *begins, 0, 0, *pads_end])
    extra = [max(far - end, 0) for end, far in zip(pads_end, reach, strict=True)]
    pool = AveragePool(simple.strides, (*(0,) * count, *extra), simple.dilations, "explicit", op.kernel_shape, "floor", "inside")
    return b.add(pool, padded)[0]


@OPENVINO.legalize("AdaptiveMaxPool")
def legalize_adaptive_max_pool(b: Builder, node: Node) -> Any:
    """Legalize AdaptiveMaxPool: OpenVINO's CPU plugin computes indices only in i32, and a Cast converts them."""
    op: Any = node.op
    if op.index_element_type == "i32":
        return None
    values, indices = b.add(op.with_(index_element_type=dtypes.i32), *node.inputs)
    return [values, b.Cast(indices, to=op.index_element_type)]
