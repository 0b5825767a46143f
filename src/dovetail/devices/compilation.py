"""The choice of the library for ``compile(model, backend=...)``."""

from __future__ import annotations

from typing import Any

from dovetail.devices.device_program import DeviceProgram
from dovetail.devices.jax_program import JaxProgram
from dovetail.devices.torch_program import TorchProgram
from dovetail.ir.graph import Model

PROGRAMS: dict[str, type[DeviceProgram]] = {"jax": JaxProgram, "torch": TorchProgram}


def compile_on_device(model: Model, backend: str, **options: Any) -> DeviceProgram:
    """Compile a model for JAX or torch."""
    return PROGRAMS[backend](model, **options)
