"""Converters for MaxPool and AveragePool."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value


@ONNX.legalize("MaxPool")
def legalize_max_pool(b: Builder, node: Node) -> Any:
    """Legalize MaxPool: drop unread indices; decompose indices that do not start at axis 0 or are not i64."""
    op: Any = node.op
    x = node.inputs[0]
    if op.outputs == 2 and not node.outputs[1].uses and not any(node.outputs[1] is value for value in b.graph.outputs):
        return [b.add(op.with_(outputs=1, axis=0, index_element_type=dtypes.i64, storage_order=0), x)[0], None]
    if op.outputs == 2 and (op.axis % max(len(x.dims), 1) or op.index_element_type != "i64"):  # type: ignore[union-attr]
        return op.decompose(b, x)
    return _legalize_rounding(b, op, x)


@ONNX.legalize("AveragePool")
def legalize_average_pool(b: Builder, node: Node) -> Any:
    """Legalize AveragePool with the window's size as divisor to an average over the explicitly padded input."""
    op: Any = node.op
    x = node.inputs[0]
    if op.divisor == "window":
        if op.rounding_type == "floor" or op.auto_pad.startswith("same"):
            return b.add(op.with_(divisor="padded"), x)
        if not any(op.pads or ()):
            return b.add(op.with_(divisor="inside"), x)
        simple = op.with_floor_rounding(x)
        if simple is None:
            raise UnsupportedError("type.unknown", f"{op} needs static spatial sizes")
        return b.add(simple.with_(divisor="padded"), x)
    return _legalize_rounding(b, op, x)


def _trim_padding(b: Builder, op: Any, x: Value) -> Any:
    """Reduce the end padding so that no last window begins in the padding; ONNX versions differ for such a window."""
    simple = op.with_floor_rounding(x)
    if simple is None or op.auto_pad != "explicit":
        return None
    sizes, count = x.dims[2:], len(op.kernel_shape)
    outs = {word: op.with_(rounding_type=word).geometry(sizes, op.kernel_shape).outs for word in ("floor", "ceil", "ceil_torch")}
    if outs["ceil"] == outs["ceil_torch"]:
        return None
    if outs["floor"] == outs["ceil_torch"]:
        return b.add(op.with_(rounding_type="floor"), x)
    # If the average counts padding, padding must not grow.
    ends = zip(simple.pads[count:], op.explicit_pads(count)[1], strict=True)
    counts = getattr(op, "divisor", "inside") != "inside"
    return b.add(simple, x) if not counts or all(new <= old for new, old in ends) else None


def _legalize_rounding(b: Builder, op: Any, x: Any) -> Any:
    """Replace ceil rounding by padding if needed: ``ceil`` may yield windows of padding only, ``valid`` always rounds down."""
    canonical = op.canonical(x)
    if op.rounding_type == "ceil_torch" and op.auto_pad != "valid":
        return _trim_padding(b, op, x)
    if op.rounding_type == "floor" or canonical.rounding_type == "floor":
        return None
    torch = op.with_(rounding_type="ceil_torch", auto_pad="explicit")
    simple = op.with_floor_rounding(x)
    if simple is None:
        raise UnsupportedError("type.unknown", f"{op} needs static spatial sizes")
    if getattr(op, "divisor", "inside") == "inside":
        same = torch.geometry(x.dims[2:], op.kernel_shape).outs == op.geometry(x.dims[2:], op.kernel_shape).outs
        return b.add(torch if same else simple, x)
    return None
