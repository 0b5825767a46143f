"""Converters for ROIPooling and Proposal."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.detection.roi_pool import RoiPool

_METHODS = ("max", "bilinear")


@OPENVINO.importer("ROIPooling", 2)
def import_roi_pooling(ctx: ImportContext) -> list[Value]:
    """Import ROIPooling, whose output size is ``output_size``, ``output_roi``, or the pair ``pooled_h`` and ``pooled_w``.

    If several of these attributes are present, they must be equal.
    """
    sizes = [ctx.attribute(name, "tuple[int, ...]", None) for name in ("output_size", "output_roi")]
    sides = [ctx.attribute(name, "int", None) for name in ("pooled_h", "pooled_w")]
    if None not in sides:
        sizes.append(tuple(sides))
    distinct_sizes = {size for size in sizes if size}
    method = ctx.attribute("method", "str", "max")
    if len(distinct_sizes) != 1 or method not in _METHODS:
        raise FormatError(
            "attribute.value",
            f"ROIPooling must have one output size and method max or bilinear, got {sorted(distinct_sizes)}, {method!r}",
        )
    return ctx.b.add(RoiPool(distinct_sizes.pop(), method, ctx.attribute("spatial_scale", "float")), ctx.input(0), ctx.input(1))


@OPENVINO.legalize("Proposal")
def legalize_proposal(b: Builder, node: Node) -> Any:
    """Legalize Proposal to two outputs, regions and scores."""
    op: Any = node.op
    return None if op.outputs == 2 else b.add(op.with_(outputs=2), *node.inputs)[0]
