"""Rewrites over the real numbers: composed operators are decomposed by the rule ``decompose`` of their class."""

from __future__ import annotations

from typing import Any

from dovetail.ir import dtypes
from dovetail.ir.graph import Value
from dovetail.ir.op import Op, has
from dovetail.ir.types import Type
from dovetail.laws.law import Result
from dovetail.laws.terms.terms import Terms
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.recurrent.layers import RecurrentLayer
from dovetail.ops.recurrent.layouts import convert_form, fill_inputs, pad_inputs

_PACKAGES = (
    "attention",
    "linalg.matmul",
    "ml",
    "nn.group_conv",
    "nn.lrn",
    "nn.normalization",
    "nn.resize",
    "quantization",
    "recurrent.cells",
    "recurrent.dynamic_quantize_lstm",
)
"""Packages and modules whose operators are decomposed."""


def decompose(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    return op.decompose(b, *xs)  # type: ignore[no-any-return]


def add_bias_after(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a convolution with bias as a convolution and an Add."""
    assert isinstance(op, Conv | ConvTranspose)
    x, w, bias, *rest = (*xs, None)[:4] if len(xs) < 3 else xs
    if x is None or w is None or bias is None:
        return None
    return op.decompose_bias(b, x, w, bias, *rest)  # type: ignore[no-any-return]


def write_one_form(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a recurrent layer in one form: with all operands, a sequence-first layout, summed biases and one gate order."""
    assert isinstance(op, RecurrentLayer)
    operands = pad_inputs(op, xs)
    lengths = operands[4]
    if lengths is not None and lengths.dtype.name != "i64":
        return b.add(op, *operands[:4], b.Cast(lengths, to=dtypes.i64), *operands[5:])
    plain: Any = op.canonical(*xs)
    size = op.sizes_of(*operands)["h"]
    if not isinstance(plain, RecurrentLayer) or not isinstance(size, int):
        return None
    attributes: dict[str, Any] = {"layout": "sequence_first", "summed_bias": True, "hidden_size": size}
    if "weights_format" in op.fields_by_name:
        attributes["weights_format"] = "fico"
    if all(op.__dict__[name] == value for name, value in attributes.items()) and None not in operands[: 5 + op.state_count]:
        return None
    if operands[3] is None:
        # An omitted bias is 0 in both forms.
        plain = plain.with_(summed_bias=True)
    filled = fill_inputs(b, plain, operands)
    if operands[3] is None and plain.__dict__.get("weights_format", "fico") != "fico":
        # Zeros have no order: they are filled in once the gates have theirs.
        filled[3] = None
    return convert_form(b, plain, filled, **attributes)


def is_composed(kind: type[Op]) -> bool:
    """Return whether an operator class, other than Conv and ConvTranspose, is decomposed because of its package."""
    module = kind.__module__.removeprefix("dovetail.ops.")
    if issubclass(kind, Conv | ConvTranspose) or not has(kind, "decompose"):
        return False
    return any(module == package or module.startswith(f"{package}.") for package in _PACKAGES)
