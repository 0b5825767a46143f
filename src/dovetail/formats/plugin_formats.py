"""Formats of plug-ins: objects with the functions ``load`` and ``save``, by the suffix of a model file."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError, UnsupportedError
from dovetail.ir.graph import Model
from dovetail.ir.host import plugins


def load_by_plugin(path: str, format: str) -> Model:
    """Load a file by the ``load(path)`` of a plug-in.

    Raises EngineError [run.failed], FormatError [argument.type], UnsupportedError [format.unknown].
    """
    model = plugins.call("formats", format, _function(format, "load"), path)
    if not isinstance(model, Model):
        raise FormatError("argument.type", f"load of the format {format!r} must return a Model, got {type(model).__name__}")
    model.file = model.file or path
    return model


def save_by_plugin(model: Model, path: str, format: str) -> None:
    """Save a model by the ``save(model, path)`` of a plug-in.

    Raises EngineError [run.failed], UnsupportedError [format.unknown].
    """
    plugins.call("formats", format, _function(format, "save"), model, path)


def _function(format: str, name: str) -> Any:
    function = getattr(plugins.load("formats")[format], name, None)
    if function is None:
        raise UnsupportedError("format.unknown", f"the plug-in of the format {format!r} has no function {name!r}")
    return function
