"""The Python interface of OpenVINO: ``import dovetail.compat.openvino as ov`` in place of ``import openvino as ov``.

A package that imports ``openvino`` itself runs on dovetail after ``sys.modules["openvino"] = dovetail.compat.openvino``.
docs/howto/openvino.md lists the names that are covered; any other name of ``openvino`` is refused.

>>> Core().available_devices
['CPU']
"""

from __future__ import annotations

import importlib

from dovetail.compat.openvino import exceptions, helpers, layout_helpers, preprocess, properties, utils
from dovetail.compat.openvino.async_infer_queue import AsyncInferQueue
from dovetail.compat.openvino.compiled_model import CompiledModel
from dovetail.compat.openvino.core import Core, Version, compile_model, get_version
from dovetail.compat.openvino.element_type import Type
from dovetail.compat.openvino.infer_request import InferRequest
from dovetail.compat.openvino.layout import Layout
from dovetail.compat.openvino.model import Model, convert_model, get_batch, save_model, serialize, set_batch
from dovetail.compat.openvino.nodes import ConstOutput, Node, Output
from dovetail.compat.openvino.runtime_info import OVAny
from dovetail.compat.openvino.shapes import Dimension, PartialShape, Shape
from dovetail.compat.openvino.tensor import Tensor, tensor_from_file
from dovetail.errors import MissingAttributeError

__all__ = [
    "AsyncInferQueue",
    "CompiledModel",
    "ConstOutput",
    "Core",
    "Dimension",
    "InferRequest",
    "Layout",
    "Model",
    "Node",
    "OVAny",
    "Output",
    "PartialShape",
    "Shape",
    "Tensor",
    "Type",
    "Version",
    "compile_model",
    "convert_model",
    "exceptions",
    "get_batch",
    "get_version",
    "helpers",
    "layout_helpers",
    "preprocess",
    "properties",
    "save_model",
    "serialize",
    "set_batch",
    "shutdown",
    "tensor_from_file",
    "utils",
]

__version__ = get_version()


def shutdown() -> None:
    """Do nothing: there are no plugins to unload."""


def refuse(name: str) -> object:
    """Raise MissingAttributeError [argument.value] for a name of ``openvino`` that is not covered."""
    if name == "runtime":
        return importlib.import_module("dovetail.compat.openvino.runtime")
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise MissingAttributeError("argument.value", f"openvino.{name} is not supported (docs/howto/openvino.md)")


__getattr__ = refuse


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
