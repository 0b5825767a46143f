"""OpenVINO operators that are several of ours, or ours that are several of theirs; a family a module, registered by importing."""

from dovetail.formats.openvino.compose import (
    control,
    conv,
    detection,
    elementwise,
    fourier,
    indexing,
    linear,
    loop,
    movement,
    norm,
    pool,
    random,
    recurrent,
    resize,
    sampling,
    sorting,
)
from dovetail.formats.openvino.dialect import OPENVINO

__all__ = [
    "OPENVINO",
    "control",
    "conv",
    "detection",
    "elementwise",
    "fourier",
    "indexing",
    "linear",
    "loop",
    "movement",
    "norm",
    "pool",
    "random",
    "recurrent",
    "resize",
    "sampling",
    "sorting",
]
