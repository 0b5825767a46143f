"""Import FusedConv and FusedGemm of com.microsoft, with which onnxruntime's optimizer fuses an operator and an activation."""

from __future__ import annotations

from itertools import count
from typing import Any

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX, since_version
from dovetail.ir.graph import Value
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise.broadcast import Elementwise

_DOMAIN = "com.microsoft"
_CONV_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM_ATTRIBUTES = ("alpha", "beta", "transA", "transB")


@ONNX.importer("FusedConv", 1, domain=_DOMAIN)
def import_fused_conv(ctx: ImportContext) -> Value:
    """Import FusedConv: activation(Conv(x, w, b) + z)."""
    inputs = [ctx.input(0), ctx.input(1), ctx.optional_input(2)]
    return convolve(ctx, inputs, ctx.optional_input(3))


def convolve(ctx: ImportContext, inputs: list[Value | None], addend: Value | None) -> Value:
    """Add a Conv with the attributes of the node, an Add of ``addend``, and the node's activation; return the result."""
    y = ctx.add_operator("Conv", 11, inputs, ctx.select_attributes(*_CONV_ATTRIBUTES))
    y = y if addend is None else ctx.b.Add(y, addend)
    params = ctx.attribute("activation_params", "tuple[float, ...]", ())
    kind = ctx.attribute("activation", "str", "")
    names = _names_of(ctx, kind)
    if len(params) != len(names):
        rule = f"activation_params of {kind or 'no activation'} must be {len(names)} numbers"
        raise FormatError("attribute.value", f"{ctx.node.kind}: {rule}, got {len(params)}")
    return _activate(ctx, kind, y, dict(zip(names, params, strict=True)))


@ONNX.importer("FusedGemm", 1, domain=_DOMAIN)
def import_fused_gemm(ctx: ImportContext) -> Value:
    """Import FusedGemm: activation(Gemm(a, b, c)); parameters of the activation have the prefix ``activation_``."""
    inputs = [ctx.input(0), ctx.input(1), ctx.optional_input(2)]
    y = ctx.add_operator("Gemm", 11, inputs, ctx.select_attributes(*_GEMM_ATTRIBUTES))
    kind = ctx.attribute("activation", "str", "")
    values = {name: ctx.attribute(f"activation_{name}", "float", None) for name in ("alpha", "beta", "gamma")}
    names = _names_of(ctx, kind)
    return _activate(ctx, kind, y, {name: value for name, value in values.items() if value is not None and name in names})


def _names_of(ctx: ImportContext, kind: str) -> tuple[str, ...]:
    """Return the parameter names of activation ``kind``. Raises UnsupportedError [attribute.value] for an unknown activation."""
    op: type[Op] | None = REGISTRY.get(kind)
    if kind and not (op is not None and issubclass(op, Elementwise) and op.is_activation):
        raise UnsupportedError("attribute.value", f"{ctx.node.kind}: activation must be known to dovetail, got {kind!r}")
    return () if op is None else (*op.fields_by_name, *(port.name for port in op.signature.inputs if port.optional))


def _activate(ctx: ImportContext, kind: str, x: Value, attributes: dict[str, Any]) -> Value:
    if not kind:
        return x
    # The first opset from 6 on that has the activation: only opset 6 has Clip with attributes, and it lacks some activations.
    versions = (since_version("", kind, opset) for opset in count(6))
    return ctx.add_operator(kind, next(filter(None, versions)), [x], attributes)
