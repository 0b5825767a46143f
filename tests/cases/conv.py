"""Conv and ConvTranspose: every padding, strides that do not divide, groups, dilations, one to three axes, output shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import NEAR, floats
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose


def i64(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int64)


def conv(
    op: Any, x: tuple[int, ...], w: tuple[int, ...], name: str, *, bias: int | None = None, target: Any = None, **more: Any
) -> Case:
    inputs: tuple[Any, ...] = (floats(*x), floats(*w, seed=1))
    if bias is not None or target is not None:
        inputs += (None if bias is None else floats(bias, seed=2),)
    if target is not None:
        inputs += (target,)
    return Case(op, inputs, name, tolerance=1e-5, **more)


_AS_CONV = {"ir": "it is read back as Conv or ConvTranspose with its weights in another shape"}
_DILATED_SAME = {"onnxruntime": "it refuses dilations with automatic padding"}
_UNSET = {"gradient in onnxruntime": "it leaves a convolution over no channels unset"}
_WIDE_STRIDE = {"onnxruntime": "it takes SAME with a stride above the kernel for VALID"}

CASES: list[Case] = [
    conv(Conv(), (2, 3, 5, 6), (4, 3, 3, 2), "Conv"),
    conv(Conv(), (2, 3, 5, 6), (4, 3, 3, 2), "Conv with bias", bias=4),
    conv(Conv(), (2, 3, 7), (4, 3, 3), "Conv over one axis", bias=4),
    conv(Conv(), (1, 2, 4, 5, 3), (3, 2, 2, 2, 2), "Conv over three axes", bias=3),
    conv(Conv((2, 3), (1, 0, 2, 1), (2, 1)), (1, 2, 9, 8), (3, 2, 3, 2), "Conv with everything", bias=3),
    conv(Conv((3,), None), (1, 1, 8), (1, 1, 3), "Conv with a stride that leaves two elements"),
    conv(Conv((3, 2)), (1, 2, 8, 7), (2, 2, 2, 2), "Conv with strides that leave elements"),
    conv(Conv((3,)), (1, 2, 8), (2, 2, 1), "Conv with a stride above the kernel"),
    *(
        conv(Conv((stride,), None, None, auto_pad), (1, 2, size), (2, 2, kernel), f"Conv {auto_pad} {size} {kernel} {stride}")
        for auto_pad in ("same_upper", "same_lower", "valid")
        for size, kernel, stride in ((7, 3, 1), (7, 3, 2), (6, 2, 1), (6, 4, 2), (5, 3, 3), (7, 4, 3))
    ),
    conv(Conv((4,), None, None, "same_upper"), (1, 1, 7), (1, 1, 2), "Conv same_upper with a wide stride", skip=_WIDE_STRIDE),
    conv(Conv(None, None, (2, 3), "same_upper"), (1, 2, 7, 9), (2, 2, 3, 2), "Conv same_upper dilated", skip=_DILATED_SAME),
    conv(Conv(group=2), (2, 4, 5, 5), (6, 2, 3, 3), "Conv of two groups", bias=6),
    conv(Conv((2, 2), (1, 1, 1, 1), group=3), (2, 3, 6, 5), (3, 1, 3, 3), "Conv depthwise", bias=3),
    conv(Conv(group=3), (2, 3, 6), (6, 1, 3), "Conv depthwise, two each"),
    conv(Conv(group=2), (1, 4, 5), (2, 2, 3), "Conv of two groups with constant weights", constants=(1,)),
    conv(Conv(kernel_shape=(3, 2)), (2, 3, 5, 6), (4, 3, 3, 2), "Conv that names its kernel"),
    conv(
        Conv(pads=(-1, 2)),
        (1, 2, 6),
        (2, 2, 3),
        "Conv with a negative pad",
        skip={"openvino": "the CPU plugin does not run negative padding"},
    ),
    *(
        Case(
            Conv(pads=(1, 1)),
            (floats(1, 2, 6, name=name), floats(3, 2, 3, seed=1, name=name), floats(3, seed=2, name=name)),
            f"Conv of {name}",
            tolerance=NEAR[name],
        )
        for name in NEAR
    ),
    conv(Conv(), (0, 3, 5, 6), (4, 3, 3, 2), "Conv of no images", bias=4, skip=_UNSET),
    conv(ConvTranspose(), (2, 3, 4, 5), (3, 2, 3, 2), "ConvTranspose"),
    conv(ConvTranspose(), (2, 3, 4, 5), (3, 2, 3, 2), "ConvTranspose with bias", bias=2),
    conv(ConvTranspose((2,), (1, 0), output_padding=(1,)), (1, 3, 4), (3, 2, 3), "ConvTranspose over one axis", bias=2),
    conv(ConvTranspose((1, 2, 2)), (1, 2, 3, 2, 3), (2, 2, 2, 2, 3), "ConvTranspose over three axes"),
    conv(
        ConvTranspose((2, 3), (1, 0, 2, 1), (2, 1), output_padding=(1, 2)),
        (1, 2, 4, 3),
        (2, 3, 3, 2),
        "ConvTranspose with everything",
        bias=3,
    ),
    conv(ConvTranspose((3,)), (1, 2, 4), (2, 2, 2), "ConvTranspose with a stride above the kernel", bias=2),
    conv(ConvTranspose((2,), group=2), (1, 4, 4), (4, 3, 3), "ConvTranspose of two groups", bias=6),
    conv(ConvTranspose((2,), group=4), (1, 4, 4), (4, 1, 3), "ConvTranspose depthwise", constants=(1,)),
    *(
        conv(ConvTranspose((2,), None, None, auto_pad), (1, 2, 4), (2, 2, kernel), f"ConvTranspose {auto_pad} of kernel {kernel}")
        for auto_pad in ("same_upper", "same_lower", "valid")
        for kernel in (2, 3, 4, 5)
    ),
    *(
        conv(
            ConvTranspose((2,), None, None, auto_pad, output_padding=extra),
            (1, 2, 4),
            (2, 2, 3),
            f"ConvTranspose {auto_pad} to {size} with {extra}",
            target=i64(size),
        )
        for auto_pad in ("same_upper", "same_lower")
        for size, extra in ((6, None), (7, None), (8, None), (9, None), (10, None), (8, (1,)), (7, (1,)))
    ),
    *(
        conv(
            ConvTranspose((2,), pads, None, auto_pad),
            (1, 2, 4),
            (2, 2, 3),
            f"ConvTranspose {auto_pad} {pads} to {size}",
            target=i64(size),
        )
        for auto_pad, pads in (("explicit", (1, 0)), ("explicit", (0, 0)), ("valid", None))
        for size in (6, 7, 8, 9, 10)
    ),
    *(
        Case(
            ConvTranspose((2,)),
            (floats(1, 2, 3, name=name), floats(2, 3, 3, seed=1, name=name), floats(3, seed=2, name=name)),
            f"ConvTranspose of {name}",
            tolerance=NEAR[name],
        )
        for name in NEAR
    ),
    conv(GroupConv((2,), (1, 1)), (1, 4, 6), (2, 3, 2, 3), "GroupConv", skip=_AS_CONV),
    conv(GroupConv(None, None, None, "same_lower"), (1, 4, 6), (2, 3, 2, 2), "GroupConv same_lower", skip=_AS_CONV),
    conv(GroupConvTranspose((2,), (1, 0)), (1, 4, 4), (2, 2, 3, 3), "GroupConvTranspose", skip=_AS_CONV),
]
