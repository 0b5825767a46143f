"""Resizing, sampling, Fourier's transform, chance."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers
from openvino_answers import signal, spectrum, widened

_X = numbers(1, 2, 4, 5)
_MODES = ("nearest", "linear", "linear_onnx", "cubic")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


_PLAIN = {
    "mode": "nearest",
    "shape_calculation_mode": "sizes",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "antialias": False,
    "pads_begin": [0],
    "pads_end": [0],
    "cube_coeff": -0.75,
}


def _interpolate4(x: Any, sizes: list[int], scales: list[float], axes: list[int] | None, **more: Any) -> Row:
    others = () if axes is None else (fixed(axes),)
    name = f"{list(x.shape)} to {sizes} by {scales} along {axes} {', '.join(map(str, more.values()))}"
    return Row("Interpolate-4", (x, fixed(sizes), fixed(np.float32(scales)), *others), {**_PLAIN, **more}, name)


def _interpolate11(x: Any, target: Any, axes: list[int], **more: Any) -> Row:
    return Row(
        "Interpolate-11",
        (x, fixed(target), fixed(axes)),
        {**_PLAIN, **more},
        f"{list(x.shape)} to {target} along {axes} {', '.join(map(str, more.values()))}",
    )


def _as_pillow(mode: str, target: Any, how: str, coefficient: float, **more: Any) -> Row:
    return _interpolate11(_X, target, [2, 3], mode=mode, shape_calculation_mode=how, cube_coeff=coefficient, **more)


_GRID = numbers(2, 3, 4, 2, low=-1.3, high=1.3)
_SPECTRUM = numbers(2, 4, 6, 2)

ROWS: list[Row] = [
    *(
        Row(
            "Interpolate-1",
            (_X, fixed([6, 7])),
            {"axes": [2, 3], "mode": mode, "align_corners": corners, "antialias": False, "pads_begin": [0], "pads_end": [0]},
        )
        for mode in ("nearest", "linear")
        for corners in (False, True)
    ),
    Row(
        "Interpolate-1",
        (_X, fixed([2, 3])),
        {"axes": [2, 3], "mode": "nearest", "align_corners": False, "antialias": False, "pads_begin": [0], "pads_end": [0]},
    ),
    *(
        _interpolate4(_X, [6, 9], [1.5, 1.8], [2, 3], mode=mode, coordinate_transformation_mode=where)
        for mode, where in itertools.product(_MODES, _COORDINATES)
    ),
    *(
        _interpolate4(_X, [3, 9], [0.75, 1.8], [2, 3], nearest_mode=how, coordinate_transformation_mode=where)
        for how in _NEAREST
        for where in ("half_pixel", "asymmetric")
    ),
    *(_interpolate4(_X, [3, 9], [0.8, 1.7], [2, 3], mode=mode, shape_calculation_mode="scales") for mode in _MODES),
    *(_interpolate4(_X, [2, 3], [0.5, 0.6], [2, 3], mode=mode, antialias=True) for mode in ("cubic",)),
    *(
        replace(
            _interpolate4(_X, sizes, [1, 1], [2, 3], mode="linear", antialias=True, coordinate_transformation_mode=where),
            answers=widened(where),
            why="OpenVINO's CPU plugin does not look at antialias, which its specification widens the weights by",
        )
        for sizes in ([2, 3], [1, 4], [9, 3], [3, 5])
        for where in ("half_pixel", "asymmetric", "align_corners")
    ),
    _interpolate4(_X, [6, 9], [1, 1], [2, 3], mode="linear", antialias=True),
    _interpolate4(_X, [2, 3], [1, 1], [2, 3], mode="linear_onnx", antialias=True),
    _interpolate4(_X, [6, 9], [1, 1], [2, 3], mode="cubic", cube_coeff=-0.5),
    _interpolate4(_X, [9], [1.8], [3]),
    _interpolate4(_X, [1, 2, 8, 10], [1, 1, 2, 2], None, shape_calculation_mode="scales", mode="linear_onnx"),
    _interpolate4(_X, [6, 9], [1.0, 1.0], [2, 3], pads_begin=[0, 0, 1, 0], pads_end=[0, 0, 0, 1]),
    *(
        _interpolate11(_X, [6, 9], [2, 3], mode=mode, coordinate_transformation_mode=where)
        for mode in _MODES
        for where in ("half_pixel", "align_corners")
    ),
    *(_interpolate11(_X, [0.8, 1.7], [2, 3], mode=mode, shape_calculation_mode="scales") for mode in _MODES),
    *(
        _as_pillow(mode, target, how, coefficient, **more)
        for mode in ("bilinear_pillow", "bicubic_pillow")
        for how, target in (
            ("sizes", [6, 9]),
            ("sizes", [2, 3]),
            ("sizes", [2, 9]),
            ("scales", [0.8, 1.7]),
            ("scales", [2.0, 0.5]),
        )
        for coefficient, more in ((-0.5, {}), (-0.75, {}), (-0.3, {"coordinate_transformation_mode": "asymmetric"}))
    ),
    _as_pillow("bilinear_pillow", [3, 4], "sizes", -0.75, pads_begin=[0, 0, 1, 0], pads_end=[0, 0, 0, 1]),
    *(
        Row("GridSample-9", (_X.repeat(2, 0), _GRID), {"align_corners": corners, "mode": mode, "padding_mode": padding})
        for corners in (False, True)
        for mode in ("bilinear", "bicubic", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    *(
        Row(f"{kind}-7", (_SPECTRUM, fixed(axes), *size), name=f"{axes} {len(size)}")
        for kind in ("DFT", "IDFT")
        for axes, size in (([1], ()), ([0, 2], ()), ([1, 2], (fixed([6, 3]),)), ([-1], (fixed([-1]),)))
    ),
    *(
        Row("RDFT-9", (_SPECTRUM[..., 0], fixed(axes), *size), name=f"{axes} {len(size)}")
        for axes, size in (([2], ()), ([1, 2], ()))
    ),
    Row(
        "RDFT-9",
        (_SPECTRUM[..., 0], fixed([1, 2]), fixed([6, 3])),
        name="of other sizes",
        answers=spectrum,
        why="OpenVINO's CPU plugin reads memory that is not its own",
        is_unsafe=True,
    ),
    *(Row("IRDFT-9", (_SPECTRUM, fixed(axes), *size), name=f"{axes} []") for axes, size in (([2], ()), ([1, 2], ()))),
    Row(
        "IRDFT-9",
        (_SPECTRUM, fixed([1, 2]), fixed([6, 7])),
        name="of other sizes",
        answers=signal,
        why="OpenVINO's CPU plugin reads memory that is not its own",
        is_unsafe=True,
    ),
    *(
        Row(
            "RandomUniform-8",
            (fixed([3, 4]), fixed(kind(-2)), fixed(kind(5))),
            {"output_type": to, "global_seed": 5, "op_seed": seed},
            is_random=True,
        )
        for kind, to in ((np.float32, "f32"), (np.int32, "i32"), (np.int64, "i64"))
        for seed in (0, 7)
    ),
    *(
        Row(
            "Multinomial-13",
            (x, fixed(np.int32(count))),
            {"convert_type": to, "with_replacement": again, "log_probs": logs, "global_seed": 3, "op_seed": 4},
            is_random=True,
        )
        for x, logs in ((numbers(2, 5, low=0.1), False), (numbers(2, 5, low=-4, high=-0.1), True))
        for count, again in ((4, True), (3, False))
        for to in ("i64", "i32")
    ),
]
