"""SessionOptions, RunOptions and onnxruntime's enumerations.

Options that only influence speed, memory or messages are stored and not used. Options that would change results are refused.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

from dovetail.compat.onnxruntime.values import OrtValue
from dovetail.errors import ArgumentTypeError, EngineError, MissingAttributeError, UnsupportedError


class _Enumeration(enum.IntEnum):
    """_Enumeration is an enumeration whose texts are those of onnxruntime, such as ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = enum.Enum.__str__


class GraphOptimizationLevel(_Enumeration):
    """GraphOptimizationLevel is a level of onnxruntime's rewrites; dovetail's results are the same at all levels."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Enumeration):
    """ExecutionMode chooses whether independent operators run concurrently; dovetail always runs them in order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Enumeration):
    """ExecutionOrder is an order of the operators; dovetail plans its own order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """_Options is a set of attributes with default values; an attribute takes only values of the type of its default."""

    _defaults: ClassVar[dict[str, Any]]
    _entries: dict[str, str]

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)
        self.__dict__["_entries"] = {}

    def __copy__(self) -> Self:
        """Return options that change independently."""
        new = type(self)()
        new.__dict__.update({name: copy(item) if isinstance(item, dict) else item for name, item in self.__dict__.items()})
        return new

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._defaults:
            raise MissingAttributeError("argument.value", f"{type(self).__name__} has no option {name!r}")
        kind = type(self._defaults[name])
        if kind is bool and (value is None or hasattr(value, "__bool__")):
            value = bool(value)
        elif kind is int and hasattr(value, "__index__"):
            value = int(value)
        if not isinstance(value, kind):
            raise ArgumentTypeError("argument.type", f"{name} must be of type {kind.__name__}, got {value!r}")
        self.__dict__[name] = value

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError("argument.type", f"a configuration entry must be two strings, got {key!r} and {value!r}")
        self._entries[key] = value

    def _get_entry(self, key: str) -> str:
        if key not in self._entries:
            raise EngineError("argument.value", f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


_REFUSED_ENTRIES = {
    "session.load_model_format": ("ORT", "only ONNX models are read"),
    "session.set_denormal_as_zero": ("1", "subnormal numbers are kept"),
    "session.enable_gelu_approximation": ("1", "Gelu is not approximated"),
    "ep.context_enable": ("1", "models with EPContext nodes are not written"),
}
"""The configuration entries that would change results or files: the refused value and the reason."""


class SessionOptions(_Options):
    """SessionOptions holds the options of a session, with onnxruntime's names and defaults. It can be pickled.

    ``intra_op_num_threads`` is the number of threads of a run, the calling thread included; 0 stands for DOVETAIL_THREADS or else
    the number of processors that the process may use. ``inter_op_num_threads`` adds no threads. ``optimized_model_filepath`` is
    the path at which the session writes the simplified model. Other attributes are hints for onnxruntime and are only stored.

    Raises MissingAttributeError [argument.value] for an unknown option, ArgumentTypeError [argument.type] for a wrong type, and
    UnsupportedError [argument.value] for an option that would change results.
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _initializers: dict[str, OrtValue]
    _sizes_by_name: dict[str, int]
    _sizes_by_denotation: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_initializers={}, _sizes_by_name={}, _sizes_by_denotation={})

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give the dimensions that the file calls ``name`` a fixed size. Raises ArgumentTypeError [argument.type]."""
        self._sizes_by_name[name] = _integer(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give the dimensions with this denotation a fixed size. Raises ArgumentTypeError [argument.type]."""
        self._sizes_by_denotation[denotation] = _integer(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry. Raises UnsupportedError [argument.value] if the entry would change results or files."""
        self._add_entry(key, value)
        refused, reason = _REFUSED_ENTRIES.get(key, (None, ""))
        if value == refused:
            del self._entries[key]
            raise UnsupportedError("argument.value", f"the configuration entry {key}={value} is not supported: {reason}")

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry. Raises EngineError [argument.value], a RuntimeError, if there is none."""
        return self._get_entry(key)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace the initializer ``name`` of the model; a name that the model lacks has no effect."""
        if not isinstance(value, OrtValue):
            raise EngineError("argument.type", f"an initializer must be an OrtValue, got {type(value).__name__}")
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replace initializers of the model by position in two lists."""
        if len(names) != len(values):
            raise EngineError("argument.value", f"names and values must have equal lengths, got {len(names)} and {len(values)}")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def has_providers(self) -> bool:
        """Return False: execution providers are arguments of InferenceSession."""
        return False

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Accept the provider CPUExecutionProvider. Raises UnsupportedError [argument.value] for any other provider."""
        if name != "CPUExecutionProvider":
            raise UnsupportedError("argument.value", f"the execution provider must be CPUExecutionProvider, got {name!r}")

    def __getattr__(self, name: str) -> Any:
        raise refused_attribute("SessionOptions", name, REFUSED_METHODS)


def _integer(size: object) -> int:
    if not hasattr(size, "__index__"):
        raise ArgumentTypeError("argument.type", f"a size must be an integer, got {size!r}")
    return int(size)


REFUSED_METHODS = {
    "add_external_initializers_from_files_in_memory": "pass the model's folder, or add_external_initializers",
    "add_provider_for_devices": "there is no other device than the CPU",
    "clear_ep_context_data_read_func": "models with EPContext nodes do not run",
    "register_custom_ops_library": "libraries of onnxruntime's custom operators cannot be called",
    "set_ep_context_data_read_func": "models with EPContext nodes do not run",
    "set_load_cancellation_flag": "loading cannot be cancelled",
    "set_provider_selection_policy": "there is no other device than the CPU",
    "set_provider_selection_policy_delegate": "there is no other device than the CPU",
    "add_active_adapter": "LoRA adapters are not read",
}
"""The refused methods of SessionOptions and RunOptions with the reason."""


def refused_attribute(owner: str, name: str, reasons: dict[str, str]) -> MissingAttributeError:
    """Return the error for an attribute that onnxruntime has and this module refuses, or that neither has."""
    if name in reasons:
        return MissingAttributeError("argument.value", f"{owner}.{name} is not supported: {reasons[name]}")
    return MissingAttributeError("argument.value", f"{owner} has no attribute {name!r}")


class RunOptions(_Options):
    """RunOptions holds the options of a run. With ``terminate`` the run raises Fail; the other options are only stored."""

    _defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry. Raises EngineError [argument.value], a RuntimeError, if there is none."""
        return self._get_entry(key)

    def __getattr__(self, name: str) -> Any:
        raise refused_attribute("RunOptions", name, REFUSED_METHODS)
