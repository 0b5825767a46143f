"""The Backend interface of onnx as ``onnxruntime.backend`` has it: ``prepare``, ``run`` and ``supports_device``."""

from __future__ import annotations

from os import PathLike
from typing import Any

from dovetail.compat.onnxruntime.options import RunOptions, SessionOptions
from dovetail.compat.onnxruntime.session import InferenceSession
from dovetail.errors import EngineError, UnsupportedError
from dovetail.formats.model_source import Serializable
from dovetail.ir.arrays import Array


class OnnxRuntimeBackendRep:
    """OnnxRuntimeBackendRep is a session that takes its inputs in order."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Array, **kwargs: object) -> list[Any]:
        """Run the model on a list of inputs in order, or on the only input; ``kwargs`` are attributes of RunOptions.

        Raises EngineError [input.count], a RuntimeError, and the errors of ``InferenceSession.run``.
        """
        items = inputs if isinstance(inputs, list) else [inputs]
        names = [item.name for item in self._session.get_inputs()]
        if len(items) != len(names):
            raise EngineError("input.count", f"the model takes {len(names)} inputs, got {len(items)}")
        return self._session.run(None, dict(zip(names, items, strict=True)), set_options(RunOptions(), kwargs))


def set_options(options: Any, entries: dict[str, object]) -> Any:
    """Set the entries that are attributes of the options, and return the options; other entries are ignored."""
    for name, value in entries.items():
        if hasattr(options, name):
            setattr(options, name, value)
    return options


Source = str | bytes | PathLike[str] | Serializable | InferenceSession | OnnxRuntimeBackendRep


def supports_device(device: str) -> bool:
    """Return whether ``device`` is ``CPU``."""
    return device == "CPU"


def is_compatible(model: Source, device: str | None = None, **kwargs: object) -> bool:
    """Return whether the device is supported."""
    return device is None or supports_device(device)


def prepare(model: Source, device: str | None = None, **kwargs: object) -> OnnxRuntimeBackendRep:
    """Load a path, bytes or an ``onnx.ModelProto``; ``kwargs`` are attributes of SessionOptions.

    Raises EngineError [device.unknown], a RuntimeError, and the errors of InferenceSession.
    """
    if not is_compatible(model, device):
        raise EngineError("device.unknown", f"the device must be CPU, got {device!r}")
    if isinstance(model, OnnxRuntimeBackendRep):
        return model
    if isinstance(model, InferenceSession):
        return OnnxRuntimeBackendRep(model)
    source = model if isinstance(model, str | bytes | PathLike) else model.SerializeToString()
    return OnnxRuntimeBackendRep(InferenceSession(source, set_options(SessionOptions(), kwargs)))


def run(model: Source, inputs: Array, device: str | None = None, **kwargs: object) -> list[Any]:
    """Load a model and run it once. Raises the errors of ``prepare`` and of ``OnnxRuntimeBackendRep.run``."""
    return prepare(model, device, **kwargs).run(inputs, **kwargs)


def run_node(*arguments: object, **kwargs: object) -> None:
    """Raise UnsupportedError [argument.value], as onnxruntime raises NotImplementedError."""
    raise UnsupportedError("argument.value", "run_node is not supported: run a model of one node")
