"""Conversions before and behind a model; see ``PrePostProcessor``."""

from dovetail.compat.openvino.pre_post_processor import (
    ColorFormat,
    InputInfo,
    ModelInfo as InputModelInfo,
    ModelInfo as OutputModelInfo,
    OutputInfo,
    PaddingMode,
    PostProcessSteps,
    PrePostProcessor,
    PreProcessSteps,
    ResizeAlgorithm,
    TensorInfo as InputTensorInfo,
    TensorInfo as OutputTensorInfo,
)

__all__ = [
    "ColorFormat",
    "InputInfo",
    "InputModelInfo",
    "InputTensorInfo",
    "OutputInfo",
    "OutputModelInfo",
    "OutputTensorInfo",
    "PaddingMode",
    "PostProcessSteps",
    "PrePostProcessor",
    "PreProcessSteps",
    "ResizeAlgorithm",
]
