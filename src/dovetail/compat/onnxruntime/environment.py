"""Functions of onnxruntime that describe or configure the whole library."""

from __future__ import annotations

import logging
import os
import platform

from dovetail.compat.onnxruntime.session import PROVIDERS
from dovetail.errors import EngineError
from dovetail.ir.host import native_core

VERSION = "1.32.0"
"""The version of onnxruntime whose interface this package has. It is not the version of dovetail."""

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_version_string() -> str:
    """Return the version of onnxruntime whose interface this package has."""
    return VERSION


def get_build_info() -> str:
    """Return a line about the build: dovetail's core, as ``dovetail --version`` prints it."""
    return f"dovetail, {native_core.build() if native_core.is_compiled else 'without native core'}"


def get_device() -> str:
    """Return ``CPU``."""
    return "CPU"


def get_available_providers() -> list[str]:
    """Return ``["CPUExecutionProvider"]``."""
    return list(PROVIDERS)


def get_all_providers() -> list[str]:
    """Return ``["CPUExecutionProvider"]``."""
    return list(PROVIDERS)


def has_collective_ops() -> bool:
    """Return False: there are no operators that communicate between processes."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger "dovetail": 0 verbose, 1 information, 2 warnings, 3 errors, 4 fatal errors.

    Raises EngineError [argument.value], a RuntimeError, for other numbers.
    """
    if severity not in range(len(_LEVELS)):
        raise EngineError("argument.value", f"severity must be from 0 to {len(_LEVELS) - 1}, got {severity!r}")
    logging.getLogger("dovetail").setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: the logger has no levels below "verbose"."""


def set_seed(seed: int) -> None:
    """Do nothing: the seeds in the model determine the numbers of random operators, which are the same in each run."""


def enable_telemetry_events() -> None:
    """Do nothing: dovetail has no telemetry."""


def disable_telemetry_events() -> None:
    """Do nothing: dovetail has no telemetry."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Do nothing: there are no libraries of devices to load."""


def print_debug_info() -> None:
    """Print the versions and the platform."""
    print(f"dovetail.compat.onnxruntime, interface of onnxruntime {VERSION}")
    print(f"{get_build_info()}\nplatform: {platform.platform()}\nprocessors: {os.cpu_count()}")
