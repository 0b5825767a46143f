"""Regions of a picture in OpenVINO's words."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node, Value
from dovetail.ops.detection.roi_pool import RoiPool

_METHODS = {"max": "max", "bilinear": "linear"}


@OPENVINO.importer("ROIPooling", 2)
def pooled(ctx: ImportContext) -> list[Value]:
    """The size is one list, under either name, or two numbers, or both."""
    sizes = [ctx.attribute(name, "tuple[int, ...]", None) for name in ("output_size", "output_roi")]
    sides = [ctx.attribute(name, "int", None) for name in ("pooled_h", "pooled_w")]
    if None not in sides:
        sizes.append(tuple(sides))
    found = {size for size in sizes if size}
    method = ctx.attribute("method", "str", "max")
    if len(found) != 1 or method not in _METHODS:
        raise FormatError("attribute.value", f"ROIPooling: sizes {sorted(found)}, method {method!r}")
    return ctx.b.add(RoiPool(found.pop(), _METHODS[method], ctx.attribute("spatial_scale", "float")), ctx.input(0), ctx.input(1))


@OPENVINO.legalize("Proposal")
def proposed(b: Any, node: Node) -> Any:
    """Regions and their scores, both."""
    op: Any = node.op
    return None if op.outputs == 2 else b.add(op.with_(outputs=2), *node.inputs)[0]
