"""Drop-in for the package onnxruntime: models run in dovetail, by the interface of onnxruntime on the CPU.

A program changes its import to ``import dovetail.compat.onnxruntime as onnxruntime``. For a package that imports onnxruntime
itself, set ``sys.modules["onnxruntime"] = dovetail.compat.onnxruntime`` before the package is imported. ``__version__`` is the
version of onnxruntime whose interface this package has. docs/howto/onnxruntime.md lists what is covered. This package imports
neither onnxruntime nor onnx.
"""

from __future__ import annotations

from typing import Any

from dovetail.compat.onnxruntime import capi
from dovetail.compat.onnxruntime.binding import IOBinding
from dovetail.compat.onnxruntime.environment import (
    VERSION,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from dovetail.compat.onnxruntime.node_args import ModelMetadata, NodeArg
from dovetail.compat.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    refused_attribute,
)
from dovetail.compat.onnxruntime.session import InferenceSession
from dovetail.compat.onnxruntime.values import OrtDevice, OrtDeviceVendorId, OrtValue

__version__ = VERSION

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

_ADAPTERS = "LoRA adapters are not read"
_COMPILER = "models with EPContext nodes are not written"
_DEVICES = "there is no other device than the CPU"
_MEMORY = "dovetail plans its memory itself"
_PACKAGES = "model packages are not read"
_SPARSE = "sparse tensors are not supported"

REFUSED = {
    "AdapterFormat": _ADAPTERS,
    "LoraAdapter": _ADAPTERS,
    "ModelCompiler": _COMPILER,
    "ModelPackage": _PACKAGES,
    "ModelPackageComponentContext": _PACKAGES,
    "ModelPackageContext": _PACKAGES,
    "ModelPackageOptions": _PACKAGES,
    "ModelPackageWriteMode": _PACKAGES,
    "OrtAllocatorType": _MEMORY,
    "OrtArenaCfg": _MEMORY,
    "OrtCompileApiFlags": _COMPILER,
    "OrtDeviceMemoryType": _DEVICES,
    "OrtEpAssignedNode": _DEVICES,
    "OrtEpAssignedSubgraph": _DEVICES,
    "OrtEpContextData": _COMPILER,
    "OrtEpContextDataBuffer": _COMPILER,
    "OrtEpDevice": _DEVICES,
    "OrtExecutionProviderDevicePolicy": _DEVICES,
    "OrtExternalInitializerInfo": _COMPILER,
    "OrtHardwareDevice": _DEVICES,
    "OrtHardwareDeviceType": _DEVICES,
    "OrtMemType": _MEMORY,
    "OrtMemoryInfo": _MEMORY,
    "OrtMemoryInfoDeviceType": _MEMORY,
    "OrtSparseFormat": _SPARSE,
    "OrtSyncStream": _DEVICES,
    "SessionIOBinding": "use InferenceSession.io_binding",
    "SparseTensor": _SPARSE,
    "copy_tensors": _DEVICES,
    "create_and_register_allocator": _MEMORY,
    "create_and_register_allocator_v2": _MEMORY,
    "get_ep_devices": _DEVICES,
    "register_execution_provider_library": _DEVICES,
    "set_default_logger_callback": 'messages go to the logger "dovetail" of Python',
    "set_global_thread_pool_sizes": "set SessionOptions.intra_op_num_threads or DOVETAIL_THREADS",
    "unregister_execution_provider_library": _DEVICES,
}
"""The names of onnxruntime that this package refuses, with the reason."""


def __getattr__(name: str) -> Any:
    """Raise MissingAttributeError [argument.value], an AttributeError, with the reason if onnxruntime has the name."""
    raise refused_attribute("onnxruntime", name, REFUSED)
