"""Attributes: the attributes of an operator that affect an output, in one form."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dovetail_check.sizes import size
from dovetail_check.text import Operator

_AXES = {"ArgMax": 0, "ArgMin": 0, "CumSum": 0, "GatherElements": 0, "LpNormalization": -1, "TopK": -1}
"""Operators with an axis, and their default axis."""
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
"""The positions of the weights, which determine the kernel shape."""


def _has_whole_sizes(attributes: dict[str, Any], xs: list[Any]) -> bool:
    """Return whether each size of an input of Resize times its scale is a whole number, and so the size of the output."""
    scales = xs[2].data if len(xs) > 2 and xs[2] is not None else None
    if scales is None or xs[1] is not None or "axes" in attributes or "keep_aspect_ratio_policy" in attributes:
        return False
    # The size of an open axis is any integer.
    shape = [1 if each.number is None else each.number for each in xs[0].shape or ()]
    factors = [Fraction(float(scale)) for scale in scales.reshape(-1)]
    return len(shape) == len(factors) and all((n * scale).denominator == 1 for n, scale in zip(shape, factors, strict=True))


def _masks_all_keys(xs: list[Any]) -> bool:
    """Return whether the mask of Attention without past keys has a column for each key."""
    keys, mask = xs[1], xs[3]
    has_past = any(x is not None for x in xs[4:])
    return not has_past and bool(keys.shape and mask.shape) and len(keys.shape) == 4 and keys.shape[2] == mask.shape[-1]


def plain_attributes(op: Operator, xs: list[Any], output: int) -> dict[str, Any]:
    """Return the attributes of an operator without those that do not affect the output."""
    attributes, first = dict(op.attributes), xs[0] if xs else None
    rank = len(first.shape) if first is not None and first.shape is not None else 0
    if op.name in _AXES and rank:
        attributes["axis"] = attributes.get("axis", _AXES[op.name]) % rank
    if op.name == "Range" and first is not None and attributes.get("output_type") == first.dtype:
        del attributes["output_type"]
    if op.name in ("QuantizeLinear", "DequantizeLinear") and len(xs) > 1 and xs[1] is not None:
        if xs[1].shape is not None and all(each == 1 for each in xs[1].shape):
            attributes.pop("axis", None)
        kind = attributes.get("output_dtype")
        has_kind = op.name == "QuantizeLinear" and len(xs) > 2 and xs[2] is not None
        if has_kind or kind == ("u8" if op.name == "QuantizeLinear" else xs[1].dtype):
            attributes.pop("output_dtype", None)
    if op.name == "GroupNormalization" and first is not None and attributes.get("stash_type") == first.dtype:
        del attributes["stash_type"]
    if op.name == "MaxPool" and output == 0:
        for name in ("outputs", "storage_order", "index_element_type", "axis"):
            attributes.pop(name, None)
    if op.name == "Einsum" and "." not in attributes["equation"]:
        labels: dict[str, Any] = {}
        terms = attributes["equation"].replace(" ", "").partition("->")[0].split(",")
        axes = [pair for labels_, x in zip(terms, xs, strict=True) for pair in zip(labels_, x.shape, strict=True)]
        if all(labels.setdefault(label, extent) == extent for label, extent in axes):
            attributes.pop("broadcast", None)
    if op.name == "Resize":
        if attributes.get("mode", "nearest") != "nearest":
            attributes.pop("nearest_mode", None)
        scales = xs[2].data if len(xs) > 2 and xs[2] is not None and xs[1] is None else None
        if attributes.get("nearest_mode") == "simple" and scales is not None and bool(np.all(np.asarray(scales) >= 1)):
            # It is the ceiling of positions where an image becomes smaller.
            attributes["nearest_mode"] = "floor"
        if attributes.get("mode", "nearest") != "cubic":
            attributes.pop("cubic_coeff_a", None)
        if attributes.get("axes") == tuple(range(rank)):
            del attributes["axes"]
        if attributes.get("coordinate_transformation_mode") == "align_corners_scaled" and _has_whole_sizes(attributes, xs):
            attributes["coordinate_transformation_mode"] = "align_corners"
    if op.name == "Attention" and (len(xs) < 4 or xs[3] is None or _masks_all_keys(xs)):
        attributes.pop("short_mask", None)
    if op.name == "Conv" and attributes.get("auto_pad") == "valid":
        del attributes["auto_pad"]
    if op.name in ("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"):
        attributes.pop("outputs", None)
    if op.name == "RotaryEmbedding" and rank == 4:
        # The axis of heads gives their number.
        attributes.pop("num_heads", None)
    if op.name == "TopK":
        # Equal elements have no order there, so that the order of a stable sort is one of those allowed.
        attributes.pop("stable", None)
        if len(xs) > 1 and xs[1] is not None and xs[1].integers == (1,):
            attributes.pop("sort", None)
        if output == 0:
            attributes.pop("index_element_type", None)
    for name, neutral in (("strides", 1), ("dilations", 1), ("pads", 0), ("output_padding", 0)):
        if all(each == neutral for each in attributes.get(name) or (neutral,)):
            attributes.pop(name, None)
    weights = xs[_WEIGHTS[op.name]].shape if op.name in _WEIGHTS and xs[_WEIGHTS[op.name]] is not None else None
    if weights is not None and tuple(map(size, attributes.get("kernel_shape") or ())) == weights[2:]:
        del attributes["kernel_shape"]
    return attributes
