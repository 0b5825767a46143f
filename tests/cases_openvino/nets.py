"""Layers of networks: products, convolutions, pooling, normalisation, attention, quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers
from openvino_answers import local_response

_IMAGE = numbers(2, 4, 7, 8)
_ZERO = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]}


def _conv(kind: str, x: Any, weights: Any, name: str, **more: Any) -> Row:
    rank = x.ndim - 2
    plain = {"strides": [1] * rank, "pads_begin": [0] * rank, "pads_end": [0] * rank, "dilations": [1] * rank}
    return Row(f"{kind}-1", (x, fixed(weights)), {**plain, **more}, f"{name} {list(x.shape)} by {list(weights.shape)}")


def _pool(operator: str, x: Any, **more: Any) -> Row:
    rank = x.ndim - 2
    plain: dict[str, Any] = {"strides": [1] * rank, "pads_begin": [0] * rank, "pads_end": [0] * rank, "kernel": [2] * rank}
    if operator.startswith("Avg"):
        plain["exclude-pad"] = True
        if operator.endswith("-16"):
            plain["dilations"] = [1] * rank
    elif not operator.endswith("-1"):
        plain |= {"dilations": [1] * rank, "index_element_type": "i64", "axis": 0}
    plain |= {"rounding_type": "floor", "auto_pad": "explicit"}
    return Row(operator, (x,), {**plain, **more}, f"{list(x.shape)} {', '.join(f'{key}={value}' for key, value in more.items())}")


_PAIRS = (
    (numbers(3, 4), numbers(4, 5)),
    (numbers(2, 3, 4), numbers(4, 5)),
    (numbers(2, 1, 3, 4), numbers(3, 4, 2)),
    (numbers(4), numbers(4, 5)),
    (numbers(3, 4), numbers(4)),
    (numbers(4), numbers(4)),
)
_FAKE_LIMITS = [fixed(np.float32(x)) for x in (-1, 1, -0.9, 1.1)]
_ATTENTION = (numbers(1, 2, 3, 4), numbers(1, 2, 5, 4, seed=1), numbers(1, 2, 5, 6, seed=2))

ROWS: list[Row] = [
    *(Row("MatMul-1", pair, {"transpose_a": False, "transpose_b": False}) for pair in _PAIRS),
    *(
        Row(
            "MatMul-1",
            (numbers(2, 3, 4) if not a else numbers(2, 4, 3), numbers(4, 5) if not b else numbers(5, 4)),
            {"transpose_a": a, "transpose_b": b},
        )
        for a, b in ((True, False), (False, True), (True, True))
    ),
    Row("MatMul-1", (numbers(4), numbers(4, 5)), {"transpose_a": True, "transpose_b": False}, "a vector transposed"),
    *(
        Row("Einsum-7", xs, {"equation": equation})
        for equation, xs in (
            ("ij,jk->ik", (numbers(2, 3), numbers(3, 4))),
            ("bij,bjk->bik", (numbers(2, 3, 4), numbers(2, 4, 5))),
            ("ij->ji", (numbers(2, 3),)),
            ("ij->", (numbers(2, 3),)),
            ("i,j->ij", (numbers(2), numbers(3))),
            ("...ij,...jk->...ik", (numbers(2, 3, 4), numbers(2, 4, 5))),
            ("abc,cd,bd->ab", (numbers(2, 3, 4), numbers(4, 5), numbers(3, 5))),
            ("ii->i", (numbers(3, 3),)),
            ("ij,kj", (numbers(2, 3), numbers(4, 3))),
        )
    ),
    _conv("Convolution", _IMAGE, numbers(3, 4, 3, 3), "plain"),
    _conv(
        "Convolution",
        _IMAGE,
        numbers(3, 4, 3, 2),
        "strided",
        strides=[2, 1],
        pads_begin=[1, 0],
        pads_end=[0, 1],
        dilations=[1, 2],
    ),
    *(
        _conv("Convolution", _IMAGE, numbers(3, 4, 3, 4), pad, auto_pad=pad, strides=[2, 3])
        for pad in ("same_upper", "same_lower", "valid")
    ),
    _conv("Convolution", numbers(1, 2, 9), numbers(3, 2, 3), "of one axis", strides=[2]),
    _conv("Convolution", numbers(1, 2, 4, 5, 4), numbers(3, 2, 2, 2, 2), "of three axes", pads_begin=[1, 0, 1]),
    _conv("GroupConvolution", _IMAGE, numbers(2, 3, 2, 3, 3), "two groups", pads_begin=[1, 1], pads_end=[1, 1]),
    _conv("GroupConvolution", _IMAGE, numbers(4, 1, 1, 3, 3), "by depth", dilations=[2, 2]),
    _conv("ConvolutionBackpropData", numbers(1, 4, 3, 4), numbers(4, 2, 3, 3), "plain"),
    _conv(
        "ConvolutionBackpropData",
        numbers(1, 4, 3, 4),
        numbers(4, 2, 3, 3),
        "strided",
        strides=[2, 2],
        pads_begin=[1, 0],
        pads_end=[0, 1],
        output_padding=[1, 1],
    ),
    _conv("ConvolutionBackpropData", numbers(1, 4, 3, 4), numbers(4, 2, 3, 3), "same", strides=[2, 2], auto_pad="same_upper"),
    Row(
        "ConvolutionBackpropData-1",
        (numbers(1, 4, 3, 4), fixed(numbers(4, 2, 3, 3)), fixed([6, 8])),
        {**_ZERO, "strides": [2, 2], "auto_pad": "same_lower"},
        "to a shape, same_lower",
    ),
    Row(
        "ConvolutionBackpropData-1",
        (numbers(1, 4, 3, 4), fixed(numbers(4, 2, 3, 3)), fixed([7, 9])),
        {**_ZERO, "strides": [2, 2]},
        "to a shape",
    ),
    _conv(
        "GroupConvolutionBackpropData",
        numbers(1, 4, 3, 4),
        numbers(2, 2, 3, 3, 3),
        "two groups",
        strides=[2, 1],
        dilations=[1, 2],
    ),
    *(
        _pool("MaxPool-1", _IMAGE, **more)
        for more in (
            {},
            {"strides": [2, 3], "pads_begin": [1, 0], "pads_end": [0, 1]},
            {"rounding_type": "ceil", "strides": [2, 3]},
            {"auto_pad": "same_upper"},
            {"auto_pad": "same_lower", "kernel": [3, 3], "strides": [2, 2]},
            {"auto_pad": "valid"},
        )
    ),
    *(
        _pool(f"MaxPool-{version}", _IMAGE, **more)
        for version in (8, 14)
        for more in (
            {"kernel": [3, 2], "dilations": [2, 3]},
            {"strides": [2, 3], "pads_begin": [1, 0], "pads_end": [0, 1], "index_element_type": "i32"},
            {"axis": 2, "auto_pad": "same_upper"},
            {"rounding_type": "ceil", "strides": [2, 3], "axis": -2},
        )
    ),
    _pool("MaxPool-14", _IMAGE, rounding_type="ceil_torch", strides=[3, 3], pads_begin=[1, 1], pads_end=[1, 1]),
    _pool("MaxPool-8", numbers(1, 2, 6, 5, 4), kernel=[2, 3, 2]),
    _pool("MaxPool-8", numbers(1, 2, 9), strides=[2]),
    *(
        _pool(f"AvgPool-{version}", _IMAGE, **more)
        for version in (1, 14, 16)
        for more in (
            {},
            {"pads_begin": [1, 1], "pads_end": [0, 1], "exclude-pad": False},
            {"pads_begin": [1, 1], "pads_end": [1, 0]},
            {"auto_pad": "same_upper", "kernel": [3, 3], "strides": [2, 2]},
            {"rounding_type": "ceil", "strides": [2, 3]},
        )
    ),
    *(
        _pool(f"AvgPool-{version}", _IMAGE, rounding_type="ceil_torch", strides=[3, 3], pads_begin=[1, 1], pads_end=[1, 1])
        for version in (14, 16)
    ),
    _pool("AvgPool-16", _IMAGE, dilations=[2, 1], kernel=[2, 3]),
    *(
        Row(f"BatchNormInference-{version}", (xs if version == 5 else xs[1:3] + xs[:1] + xs[3:]), {"epsilon": 1e-3})
        for version in (1, 5)
        for xs in ((numbers(2, 3, 4, 4), numbers(3), numbers(3, seed=1), numbers(3, seed=2), numbers(3, seed=3, low=0.1)),)
    ),
    *(
        Row("MVN-2", (_IMAGE,), {"across_channels": across, "normalize_variance": variance, "eps": 1e-4})
        for across in (True, False)
        for variance in (True, False)
    ),
    *(
        Row("MVN-6", (_IMAGE, fixed(axes)), {"normalize_variance": variance, "eps": 1e-2, "eps_mode": mode})
        for axes in ([1, 2, 3], [-1], [2, 3])
        for variance, mode in ((True, "inside_sqrt"), (True, "outside_sqrt"), (False, "inside_sqrt"))
    ),
    Row("GroupNormalization-12", (_IMAGE, numbers(4), numbers(4, seed=1)), {"num_groups": 2, "epsilon": 1e-3}),
    *(
        Row("NormalizeL2-1", (_IMAGE, fixed(axes, np.int64)), {"eps": 0.1, "eps_mode": mode})
        for axes in ([1], [1, 2, 3], [2])
        for mode in ("add", "max")
    ),
    Row(
        "NormalizeL2-1",
        (_IMAGE, fixed([])),
        {"eps": 0.1, "eps_mode": "add"},
        "along no axes",
        answers=lambda x, _: x / np.sqrt(x * x + np.float32(0.1)),
        why="OpenVINO makes 1 of every element, where its own formula keeps the sign",
    ),
    *(
        Row("LRN-1", (_IMAGE, fixed(axes)), {"alpha": 0.1, "beta": 0.75, "bias": 1.0, "size": size})
        for axes, size in (([1], 3), ([1], 5), ([2, 3], 3))
    ),
    Row(
        "LRN-1",
        (_IMAGE, fixed([1])),
        {"alpha": 0.1, "beta": 0.75, "bias": 1.5, "size": 3},
        answers=local_response(3, 0.1, 0.75, 1.5, [1]),
        why="OpenVINO's CPU plugin takes 1 for every bias",
    ),
    *(
        Row("GRN-1", (x,), {"bias": bias})
        for x, bias in ((_IMAGE, 1e-6), (_IMAGE, 0.5), (numbers(2, 3), 0.1), (numbers(2, 5, 3), 0.2))
    ),
    *(Row(f"SoftMax-{version}", (_IMAGE,), {"axis": axis}) for version in (1, 8) for axis in (1, 3)),
    Row("SoftMax-8", (_IMAGE,), {"axis": -2}),
    *(Row("LogSoftmax-5", (_IMAGE,), {"axis": axis}) for axis in (1, -1)),
    Row("ScaledDotProductAttention-13", _ATTENTION, {"causal": False}),
    Row("ScaledDotProductAttention-13", _ATTENTION, {"causal": True}),
    Row("ScaledDotProductAttention-13", (*_ATTENTION, numbers(3, 5)), {"causal": False}, "with a mask to add"),
    Row(
        "ScaledDotProductAttention-13",
        (*_ATTENTION, np.tril(np.ones((1, 1, 3, 5), bool))),
        {"causal": False},
        "with a mask of truths",
    ),
    Row(
        "ScaledDotProductAttention-13",
        (*_ATTENTION, numbers(1, 2, 3, 5), fixed(np.float32(0.3))),
        {"causal": False},
        "with a scale",
    ),
    *(Row("FakeQuantize-1", (numbers(2, 3, 4), *_FAKE_LIMITS), {"levels": levels}) for levels in (256, 2, 16)),
    Row(
        "FakeQuantize-1",
        (numbers(1, 3, 4), *(fixed(numbers(1, 3, 1, low=low, high=high)) for low, high in ((-2, -1), (1, 2), (-1, 0), (1, 3)))),
        {"levels": 255},
        "a limit a channel",
    ),
    *(
        Row(
            "FakeConvert-13",
            (numbers(3, 4, low=-9, high=9), fixed(np.float32(2)), *shift),
            {"destination_type": kind},
            f"{kind} {len(shift)}",
        )
        for kind in ("f8e4m3", "f8e5m2")
        for shift in ((), (fixed(np.float32(0.5)),))
    ),
    Row(
        "FakeConvert-13",
        (numbers(3, 4, low=-900, high=900), fixed(numbers(3, 1, low=1, high=3))),
        {"destination_type": "f8e4m3"},
        "a scale a row",
    ),
    Row(
        "ExtractImagePatches-3",
        (numbers(1, 2, 6, 7),),
        {"sizes": [3, 2], "strides": [2, 3], "rates": [1, 1], "auto_pad": "valid"},
    ),
    *(
        Row(
            "ExtractImagePatches-3",
            (numbers(2, 2, 6, 7),),
            {"sizes": [2, 2], "strides": [2, 2], "rates": [2, 1], "auto_pad": pad},
        )
        for pad in ("valid", "same_upper", "same_lower")
    ),
    Row("GroupedMatMul-17", (numbers(2, 3, 4), fixed(numbers(2, 5, 4)))),
    *(
        Row("GroupedMatMul-17", (numbers(6, 4), fixed(numbers(3, 5, 4)), ends))
        for ends in (np.int32([2, 3, 6]), np.int64([0, 6, 6]), fixed(np.int32([1, 1, 6])))
    ),
]
