"""The exceptions of onnxruntime, and the exception for each error of dovetail.

Each class derives from DovetailError and so, as in onnxruntime, from neither ValueError nor RuntimeError. The text of an error
begins as onnxruntime's does, with the number and the name of its status; ``code`` is the code of dovetail's error.
"""

from __future__ import annotations

from typing import ClassVar

from dovetail.errors import DovetailError, MissingFileError, RuleError, UnsupportedError


class OrtError(DovetailError):
    """OrtError is the base class of the exceptions that onnxruntime's C++ core raises."""

    status: ClassVar[int]
    status_name: ClassVar[str]

    def __str__(self) -> str:
        return f"[ONNXRuntimeError] : {self.status} : {self.status_name} : {super().__str__()}"


class Fail(OrtError):
    """Fail reports a model that breaks an operator's rule, or a run that fails."""

    status, status_name = 1, "FAIL"


class InvalidArgument(OrtError):
    """InvalidArgument reports an input or output name, or an array, that does not fit the model."""

    status, status_name = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """NoSuchFile reports a missing model file."""

    status, status_name = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """NoModel is never raised; it exists so that programs can catch it."""

    status, status_name = 4, "NO_MODEL"


class EngineError(OrtError):
    """EngineError is never raised; it exists so that programs can catch it."""

    status, status_name = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """RuntimeException is never raised; it exists so that programs can catch it."""

    status, status_name = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """InvalidProtobuf reports a file that is no ONNX model."""

    status, status_name = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """ModelLoaded is never raised; it exists so that programs can catch it."""

    status, status_name = 8, "MODEL_LOADED"


class NotImplemented(OrtError):
    """NotImplemented reports a valid model that dovetail cannot run."""

    status, status_name = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OrtError):
    """InvalidGraph reports a graph that violates ONNX, or an unknown operator."""

    status, status_name = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    """EPFail is never raised; it exists so that programs can catch it."""

    status, status_name = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    """ModelLoadCanceled is never raised; it exists so that programs can catch it."""

    status, status_name = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """ModelRequiresCompilation is never raised; it exists so that programs can catch it."""

    status, status_name = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """NotFound is never raised; it exists so that programs can catch it."""

    status, status_name = 14, "NOT_FOUND"


class DeviceReset(OrtError):
    """DeviceReset is never raised; it exists so that programs can catch it."""

    status, status_name = 15, "DEVICE_RESET"


EXCEPTIONS = OrtError.__subclasses__()


def load_error(error: DovetailError) -> OrtError:
    """Return the exception of a session whose model cannot be loaded."""
    area = error.code.partition(".")[0]
    if isinstance(error, MissingFileError):
        return error.as_kind(NoSuchFile)
    if area == "proto" or error.code == "path.kind":
        return error.as_kind(InvalidProtobuf)
    if error.code in ("graph.dangling", "argument.value"):
        return error.as_kind(InvalidArgument)
    if isinstance(error, RuleError):
        return error.as_kind(Fail)
    if area in ("op", "opset"):
        return error.as_kind(InvalidGraph)
    return error.as_kind(NotImplemented if isinstance(error, UnsupportedError) else InvalidGraph)


def run_error(error: DovetailError) -> OrtError:
    """Return the exception of a run that fails: InvalidArgument if the arguments do not fit the model, otherwise Fail."""
    return error.as_kind(InvalidArgument if error.code.partition(".")[0] in ("input", "output") else Fail)
