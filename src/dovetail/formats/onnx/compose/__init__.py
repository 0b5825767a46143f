"""ONNX operators that are several of ours, or ours that are several of theirs; a family a module, registered by importing."""

from dovetail.formats.onnx.compose import (
    attention,
    control,
    conv,
    detection,
    elementwise,
    fourier,
    joining,
    linear,
    loop,
    movement,
    norm,
    pool,
    quantize,
    random,
    recurrent,
    resize,
    sorting,
)
from dovetail.formats.onnx.dialect import ONNX

__all__ = [
    "ONNX",
    "attention",
    "control",
    "conv",
    "detection",
    "elementwise",
    "fourier",
    "joining",
    "linear",
    "loop",
    "movement",
    "norm",
    "pool",
    "quantize",
    "random",
    "recurrent",
    "resize",
    "sorting",
]
