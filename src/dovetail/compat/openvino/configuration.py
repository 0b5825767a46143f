"""Configuration: the values of properties, and the threads and streams that follow from them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from dovetail.compat.openvino.element_type import Type
from dovetail.compat.openvino.enumerations import (
    CacheMode,
    DeviceType,
    ExecutionMode,
    Level,
    Num,
    PerformanceMode,
    Priority,
    SchedulingCoreType,
)
from dovetail.compat.openvino.runtime_info import WORDS
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir.host import native_core
from dovetail.ir.host.threads import thread_count

DEVICE = "CPU"
DEVICES = ("CPU", "AUTO", "MULTI", "HETERO", "BATCH")
"""The names of devices that are accepted; all of them run on the CPU."""


def check_device(name: str) -> None:
    """Check the name of a device. Raises EngineError [device.unknown] unless it is the CPU, or a choice that contains it."""
    kind, _, choice = name.partition(":")
    devices = [item.split("(")[0] for item in choice.split(",")] if choice else [DEVICE]
    if kind not in DEVICES or (kind == DEVICE and choice) or DEVICE not in devices:
        raise EngineError("device.unknown", f'Device with "{name}" name is not registered: the only device is {DEVICE}')


# Parsers: from the value of a caller to the value that get_property returns. ValueError: the value is not allowed.


class _ChangesResults(ValueError):
    """_ChangesResults refuses a value that OpenVINO allows."""


def _boolean(value: object) -> bool:
    found = WORDS.get(str(value).upper())
    if found is None:
        raise ValueError("Expected only true/false")
    return found


def _count(value: object) -> int:
    number = int(str(value))
    if number < 0:
        raise ValueError("Expected only non negative integer numbers")
    return number


def _streams(value: object) -> int:
    if isinstance(value, Num):
        return value.to_integer()
    words = {"AUTO": Num.AUTO, "NUMA": Num.NUMA}
    number = words[value].to_integer() if isinstance(value, str) and value in words else int(str(value))
    if number < Num.NUMA.to_integer():
        raise ValueError("Expected a number of streams, AUTO or NUMA")
    return number


def _number(value: object) -> float:
    return float(str(value))


def _text(value: object) -> str:
    return str(value)


def _folder(value: object) -> str:
    return os.fspath(value) if isinstance(value, str | os.PathLike) else str(getattr(value, "name", value))


def _member(kind: type[PerformanceMode | ExecutionMode | Priority | SchedulingCoreType | CacheMode | Level]) -> Parser:
    def parse(value: object) -> object:
        name = str(value).rpartition(".")[2].removeprefix("LOG_")
        if name not in kind.__members__:
            raise ValueError(f"Expected only {'/'.join(kind.__members__)}")
        return kind[name]

    return parse


def _name_of_type(value: object) -> str:
    return value.to_string() if isinstance(value, Type) else str(value)


def _precision(value: object) -> Type:
    if _name_of_type(value) not in ("f32", "dynamic", "undefined"):
        raise _ChangesResults("Only f32 is supported: another precision would change the results")
    return Type.f32


def _inference_precision(value: object) -> Type:
    """Parse the precision of products, bf16 or f32. As in OpenVINO, bf16 is a hint: f32 on a processor that lacks it."""
    if _name_of_type(value) == "bf16":
        return Type.bf16 if native_core.has_bf16() else Type.f32
    if _name_of_type(value) not in ("f32", "dynamic", "undefined"):
        raise _ChangesResults("Only f32 and bf16 are supported")
    return Type.f32


def _only(allowed: object, parser: Parser) -> Parser:
    """Return a parser that allows one value, because any other one would change the results."""

    def parse(value: object) -> object:
        parsed = parser(value)
        if parsed != allowed:
            raise _ChangesResults(f"Only {allowed} is supported: another value would change the results")
        return parsed

    return parse


Parser = Callable[[object], object]

# The properties that may be set: name, parser, default.
_WRITABLE: dict[str, tuple[Parser, object]] = {
    "NUM_STREAMS": (_streams, 1),
    "INFERENCE_NUM_THREADS": (_count, 0),
    "PERFORMANCE_HINT": (_member(PerformanceMode), PerformanceMode.LATENCY),
    "PERFORMANCE_HINT_NUM_REQUESTS": (_count, 0),
    "CACHE_DIR": (_folder, ""),
    "ENABLE_MMAP": (_boolean, True),
    "INFERENCE_PRECISION_HINT": (_inference_precision, Type.f32),
    "KV_CACHE_PRECISION": (_precision, Type.f32),
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": (_only(0, _count), 0),
    "CPU_DENORMALS_OPTIMIZATION": (_only(False, _boolean), False),
    # No effect:
    "PERF_COUNT": (_boolean, False),
    "EXECUTION_MODE_HINT": (_member(ExecutionMode), ExecutionMode.ACCURACY),
    "ENABLE_CPU_PINNING": (_boolean, True),
    "ENABLE_CPU_RESERVATION": (_boolean, False),
    "ENABLE_HYPER_THREADING": (_boolean, True),
    "SCHEDULING_CORE_TYPE": (_member(SchedulingCoreType), SchedulingCoreType.ANY_CORE),
    "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": (_number, 1.0),
    "LOG_LEVEL": (_member(Level), Level.NO),
    "CACHE_MODE": (_member(CacheMode), CacheMode.OPTIMIZE_SPEED),
    "MODEL_PRIORITY": (_member(Priority), Priority.MEDIUM),
    "COMPILATION_NUM_THREADS": (_count, 0),
    "ALLOW_AUTO_BATCHING": (_boolean, True),
    "AUTO_BATCH_TIMEOUT": (_count, 1000),
    "FORCE_TBB_TERMINATE": (_boolean, False),
    "MULTI_DEVICE_PRIORITIES": (_text, ""),
    "DEVICE_ID": (_only("", _text), ""),
}
_OF_COMPILED = ("NETWORK_NAME", "OPTIMAL_NUMBER_OF_INFER_REQUESTS", "EXECUTION_DEVICES", "LOADED_FROM_CACHE")
_AS_TEXT = ("PERFORMANCE_HINT", "PERFORMANCE_HINT_NUM_REQUESTS", "PERF_COUNT")
"""The properties that a CompiledModel returns as text."""


def read_properties(properties: Mapping[str, object] | tuple[str, object] | None) -> dict[str, object]:
    """Return properties with parsed values.

    Raises EngineError [argument.value] for an unknown property or a wrong value, UnsupportedError [argument.value] for a value
    that would change results.
    """
    if properties is None:
        return {}
    items = [properties] if isinstance(properties, tuple) else list(properties.items())
    parsed: dict[str, object] = {}
    for name, value in items:
        name = str(name)
        if name not in _WRITABLE:
            raise EngineError("argument.value", f"NotFound: Unsupported property {name}")
        try:
            parsed[name] = _WRITABLE[name][0](value)
        except (ValueError, TypeError) as error:
            message = f"Wrong value {value} for property key {name}. {error}"
            kind = UnsupportedError if isinstance(error, _ChangesResults) else EngineError
            raise kind("argument.value", message) from None
    return parsed


class Configuration:
    """Configuration holds the properties of a device or of a compiled model; those that are not set have their defaults."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = dict(values)

    def value(self, name: str) -> object:
        return self.values.get(name, _WRITABLE[name][1])

    @property
    def threads(self) -> int:
        """The number of threads of all streams together."""
        available = thread_count(None)
        asked = self.value("INFERENCE_NUM_THREADS")
        assert isinstance(asked, int)
        return min(asked or available, available)

    @property
    def streams(self) -> int:
        """The number of requests that run concurrently, at most the number of threads."""
        asked = self.values.get("NUM_STREAMS")
        if asked is None:
            requests = self.value("PERFORMANCE_HINT_NUM_REQUESTS")
            assert isinstance(requests, int)
            is_latency = self.value("PERFORMANCE_HINT") is PerformanceMode.LATENCY
            return 1 if is_latency else min(self.threads, requests or self.threads)
        assert isinstance(asked, int)
        return self.threads if asked == Num.AUTO.to_integer() else max(1, min(asked, self.threads))

    @property
    def precision(self) -> str | None:
        """The precision of :func:`dovetail.compile`."""
        return "bf16" if self.value("INFERENCE_PRECISION_HINT") == Type.bf16 else None

    @property
    def cache_folder(self) -> Path | None:
        """The folder of the plan cache; None without one."""
        folder = self.value("CACHE_DIR")
        return Path(str(folder)) if folder else None

    def get_device_property(self, name: str) -> object:
        """Return a property of the device. Raises EngineError [argument.value] for an unknown one."""
        if name in _WRITABLE:
            return self.value(name)
        read_only = _device_facts()
        if name not in read_only:
            raise EngineError("argument.value", f"Cannot get unsupported property: {name}")
        return read_only[name]

    def get_model_property(self, name: str, model_name: str) -> object:
        """Return a property of a compiled model. Raises EngineError [argument.value] for an unknown one."""
        facts: dict[str, object] = {
            "NETWORK_NAME": model_name,
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": self.streams,
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.threads,
            "EXECUTION_DEVICES": [DEVICE],
            "LOADED_FROM_CACHE": False,
            "SUPPORTED_PROPERTIES": dict.fromkeys(("SUPPORTED_PROPERTIES", *_OF_COMPILED, *_WRITABLE), "RO"),
        }
        if name in facts:
            return facts[name]
        if name not in _WRITABLE or name == "CACHE_DIR":
            raise EngineError("argument.value", f"Unsupported property: {name}")
        value = self.value(name)
        if name not in _AS_TEXT:
            return value
        return ("YES" if value else "NO") if isinstance(value, bool) else str(value).rpartition(".")[2]


def _device_facts() -> dict[str, object]:
    machine = platform.machine()
    facts: dict[str, object] = {
        "AVAILABLE_DEVICES": [""],
        "RANGE_FOR_ASYNC_INFER_REQUESTS": (1, 1, 1),
        "RANGE_FOR_STREAMS": (1, thread_count(None)),
        "EXECUTION_DEVICES": [DEVICE],
        "FULL_DEVICE_NAME": platform.processor() or machine,
        "OPTIMIZATION_CAPABILITIES": ["FP32", "INT8"],
        "DEVICE_TYPE": DeviceType.INTEGRATED,
        "DEVICE_ARCHITECTURE": "intel64" if machine in ("x86_64", "AMD64") else machine,
    }
    facts["SUPPORTED_PROPERTIES"] = {
        **dict.fromkeys(("SUPPORTED_PROPERTIES", *facts), "RO"),
        **dict.fromkeys(_WRITABLE, "RW"),
    }
    return facts
