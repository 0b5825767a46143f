"""Import ROIPooling, export Proposal in OpenVINO's form."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node, Value
from dovetail.ops.detection.roi_pool import RoiPool

_METHODS = ("max", "bilinear")


@OPENVINO.lift("ROIPooling", 2)
def import_roi_pooling(node: Lifting) -> list[Value]:
    """Read the pooled size, which is one list under either of two names, two numbers, or both."""
    sizes = [node.attribute(name, "tuple[int, ...]", None) for name in ("output_size", "output_roi")]
    sides = [node.attribute(name, "int", None) for name in ("pooled_h", "pooled_w")]
    if None not in sides:
        sizes.append(tuple(sides))
    found = {size for size in sizes if size}
    method = node.attribute("method", "str", "max")
    if len(found) != 1 or method not in _METHODS:
        raise FormatError("attribute.value", f"ROIPooling: sizes {sorted(found)}, method {method!r}")
    return node.b.add(RoiPool(found.pop(), method, node.attribute("spatial_scale", "float")), node.input(0), node.input(1))


@OPENVINO.lower("Proposal")
def write_proposal(b: Any, node: Node) -> Any:
    """Write Proposal with both outputs."""
    op: Any = node.op
    return None if op.outputs == 2 else b.add(op.with_(outputs=2), *node.inputs)[0]
