"""Resize: every way to compute a place and to round it, every weight, sizes and scales, up and down, regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats, whole
from dovetail.ops.nn.resize import Resize

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MEDIUM = floats(1, 2, 4, 5)


def sizes(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int64)


def scales(*items: float) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.float32)


_FLOATS = {"shape": "a view holds no values of floats, so that scales are known to graphs only"}
_SCALED = {"onnxruntime": "it aligns corners by whole lengths"}
_BOOLEANS = dict.fromkeys(("onnxruntime", "openvino"), "it does not resize booleans")
_CHANNELS = {"openvino": "the CPU plugin does not resize batch and channels"}
_NOTHING = {"onnxruntime": "it refuses sizes of 0"}
_NO_EXCLUSION = {
    "onnxruntime": "it leaves out what is outside in cubic mode only",
    "ir": "there it is left out anyway, which is not recorded",
}


_ROUNDED = {
    "onnxruntime": "it rounds integers toward zero, or after each axis",
    "openvino": "its sums may fall to the other side of a tie, and in Pillow's modes it rounds after each axis",
}


def by_sizes(op: Resize, name: str, *wanted: int, x: Any = _MEDIUM, **more: Any) -> Case:
    skip = _NO_EXCLUSION if op.mode == "linear" and op.exclude_outside and not op.antialias else {}
    return Case(op, (x, sizes(*wanted)), name, **{"tolerance": _near(op), "skip": skip, **more})


def by_scales(op: Resize, name: str, *wanted: float, x: Any = _MEDIUM, **more: Any) -> Case:
    skip = _FLOATS | (_SCALED if op.coordinate_transformation_mode == "align_corners_scaled" else {})
    return Case(op, (x, None, scales(*wanted)), name, constants=(2,), **{"tolerance": _near(op), "skip": skip, **more})


def _near(op: Resize) -> float | None:
    return None if op.mode == "nearest" else 1e-5


CASES: list[Case] = [
    *(
        by_sizes(
            Resize("nearest", coordinates, nearest),
            f"Resize nearest {coordinates} {nearest} to {rows} by {columns}",
            1,
            2,
            rows,
            columns,
        )
        for coordinates in _COORDINATES
        for nearest in _NEAREST
        for rows, columns in ((8, 10), (3, 7), (1, 2))
    ),
    *(
        by_sizes(
            Resize(mode, coordinates, exclude_outside=exclude),
            f"Resize {mode} {coordinates} to {rows} by {columns} {exclude}",
            1,
            2,
            rows,
            columns,
        )
        for mode in ("linear", "cubic")
        for coordinates in _COORDINATES
        for rows, columns, exclude in ((8, 10, False), (3, 7, False), (1, 2, False), (7, 3, True))
    ),
    *(
        by_scales(Resize(mode, coordinates), f"Resize {mode} {coordinates} by {up} and {down}", 1, 1, up, down)
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "align_corners_scaled", "half_pixel_symmetric")
        for up, down in ((2, 0.5), (1.75, 0.75))
    ),
    *(
        by_sizes(
            Resize(mode, antialias=True, exclude_outside=exclude), f"Resize {mode} antialias {exclude} to {rows}", 1, 2, rows, 3
        )
        for mode in ("linear", "cubic")
        for exclude in (False, True)
        for rows in (2, 4)
    ),
    *(
        by_sizes(
            Resize("linear", coordinates, antialias=True, narrow=True, exclude_outside=True),
            f"Resize linear {coordinates} antialias to {rows} by {columns}, narrowed",
            *(1, 2, rows, columns),
        )
        for coordinates in ("half_pixel", "asymmetric", "align_corners")
        for rows, columns in ((2, 9), (13, 3), (3, 3))
    ),
    by_sizes(Resize("cubic", antialias=True, narrow=True), "Resize cubic antialias, narrowed", 1, 2, 9, 3),
    by_scales(Resize("linear", antialias=True, narrow=True), "Resize linear antialias by scales, narrowed", 1, 1, 2.5, 0.5),
    *(
        Case(
            Resize(mode, "tf_crop_and_resize", extrapolation_value=10.0),
            (_MEDIUM, sizes(1, 2, 3, 6), None, np.array([0, 0, 0.25, -0.5, 1, 1, 0.75, 1.5], np.float32)),
            f"Resize {mode} of a region",
            constants=(3,),
            tolerance=1e-5,
        )
        for mode in ("nearest", "linear", "cubic")
    ),
    by_sizes(Resize("linear", axes=(2, 3)), "Resize some axes", 8, 7),
    by_sizes(Resize("linear", axes=(3, 2)), "Resize some axes in another order", 8, 7),
    by_sizes(Resize("linear", axes=(-1,)), "Resize the last axis", 8),
    by_scales(Resize("nearest", axes=(2, 3)), "Resize some axes by scales", 2, 3),
    *(
        by_sizes(Resize(mode, axes=(2, 3), keep_aspect_ratio_policy=policy), f"Resize {mode} {policy}", 7, 8)
        for mode in ("nearest", "linear")
        for policy in ("not_larger", "not_smaller")
    ),
    by_scales(Resize("nearest", "asymmetric", "simple"), "Resize as before version 11", 1, 1, 2, 3),
    by_scales(Resize("nearest", "asymmetric", "simple"), "Resize to less as before version 11", 1, 1, 0.5, 0.6),
    by_scales(Resize("linear", "asymmetric", "simple"), "Resize linear as before version 11", 1, 1, 2, 2),
    by_sizes(Resize("nearest", "tf_half_pixel_for_nn", "floor"), "Resize as tensorflow", 1, 2, 8, 3),
    by_sizes(Resize("cubic", cubic_coeff_a=-0.5), "Resize cubic with another coefficient", 1, 2, 7, 9),
    by_sizes(Resize("linear"), "Resize one axis", 1, 2, 9, x=floats(1, 2, 4)),
    by_sizes(Resize("linear"), "Resize three axes", 1, 2, 3, 4, 5, x=floats(1, 2, 2, 3, 3)),
    by_sizes(Resize("nearest"), "Resize the channels too", 2, 4, 3, 4, x=floats(1, 2, 2, 3), skip=_CHANNELS),
    by_sizes(Resize("linear"), "Resize to the same size", 1, 2, 4, 5),
    *(
        by_sizes(Resize("linear"), f"Resize of {name}", 1, 2, 7, 3, x=floats(1, 2, 4, 5, name=name), tolerance=near)
        for name, near in (("f64", 1e-5), ("f16", 2e-3), ("bf16", 1.6e-2))
    ),
    *(
        by_sizes(Resize("nearest"), f"Resize of {name}", 1, 2, 7, 3, x=whole(1, 2, 4, 5, name=name))
        for name in ("i8", "u8", "i32", "i64")
    ),
    *(
        by_sizes(
            op,
            f"Resize {op.mode} {op.antialias} of {name} {op.convention}",
            1,
            2,
            rows,
            3,
            x=whole(1, 2, 4, 5, name=name),
            skip=_ROUNDED,
        )
        for name in ("i8", "u8", "i32", "i64", "u4")
        for op in (
            Resize("linear"),
            Resize("cubic"),
            Resize("cubic", cubic_coeff_a=-0.5, antialias=True, exclude_outside=True),
            Resize("linear", convention="openvino"),
            Resize("cubic", "align_corners", convention="openvino"),
            Resize("linear", antialias=True, exclude_outside=True, convention="openvino"),
        )
        for rows in (7, 3)
    ),
    *(
        by_scales(Resize(mode, coordinates, convention="openvino"), f"Resize {mode} {coordinates} as OpenVINO scales", 1, 1, *by)
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "align_corners", "tf_half_pixel_for_nn")
        for by in ((1.2, 0.3), (1 / 3, 2))
    ),
    by_sizes(Resize("nearest"), "Resize of booleans", 1, 2, 7, 3, x=_MEDIUM > 0, skip=_BOOLEANS),
    by_sizes(Resize("linear"), "Resize to nothing", 1, 2, 0, 5, skip=_NOTHING),
]
