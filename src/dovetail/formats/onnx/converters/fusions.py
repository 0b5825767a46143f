"""FusedConv and FusedGemm of the domain com.microsoft, which onnxruntime's optimizer writes: an operator and its activation."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Value

_DOMAIN = "com.microsoft"
_PARAMETERS = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (),
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "Celu": ("alpha",), "ThresholdedRelu": ("alpha",),
    "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma"),
}  # fmt: skip
"""The attributes of each activation, in the order of ``activation_params``."""
_VERSIONS = {"Softplus": 1, "Softsign": 1, "ThresholdedRelu": 10, "Celu": 12}
"""The versions of activations that opset 6 lacks."""
_CONV_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM_ATTRIBUTES = ("alpha", "beta", "transA", "transB")


@ONNX.importer("FusedConv", 1, domain=_DOMAIN)
def import_fused_conv(ctx: ImportContext) -> Value:
    """Import FusedConv: the activation of a convolution plus ``Z``."""
    inputs = [ctx.input(0), ctx.input(1), ctx.optional_input(2)]
    return convolve(ctx, inputs, ctx.optional_input(3))


def convolve(ctx: ImportContext, inputs: list[Value | None], addend: Value | None) -> Value:
    """Add the Conv of the node's attributes, the addend and the activation."""
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
    """Import FusedGemm: the activation of a Gemm; its parameters have the prefix ``activation_``."""
    inputs = [ctx.input(0), ctx.input(1), ctx.optional_input(2)]
    y = ctx.add_operator("Gemm", 11, inputs, ctx.select_attributes(*_GEMM_ATTRIBUTES))
    kind = ctx.attribute("activation", "str", "")
    values = {name: ctx.attribute(f"activation_{name}", "float", None) for name in ("alpha", "beta", "gamma")}
    names = _names_of(ctx, kind)
    return _activate(ctx, kind, y, {name: value for name, value in values.items() if value is not None and name in names})


def _names_of(ctx: ImportContext, kind: str) -> tuple[str, ...]:
    """Return the names of the activation's parameters. Raises UnsupportedError [attribute.value] for an unknown activation."""
    if kind and kind not in _PARAMETERS:
        raise UnsupportedError("attribute.value", f"{ctx.node.kind}: there is no activation {kind!r} that dovetail knows")
    return _PARAMETERS[kind] if kind else ()


def _activate(ctx: ImportContext, kind: str, x: Value, attributes: dict[str, Any]) -> Value:
    return ctx.add_operator(kind, _VERSIONS.get(kind, 6), [x], attributes) if kind else x
