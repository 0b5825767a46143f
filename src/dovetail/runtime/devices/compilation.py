"""The choice of the library for ``compile(model, backend=...)``."""

from __future__ import annotations

from typing import Any

from dovetail.errors import EngineError
from dovetail.ir.graph import Model
from dovetail.runtime.devices.compiled_torch import CompiledTorchProgram
from dovetail.runtime.devices.device_program import DeviceProgram
from dovetail.runtime.devices.jax_program import JaxProgram
from dovetail.runtime.devices.sharded_program import ShardedProgram
from dovetail.runtime.devices.torch_program import TorchProgram

PROGRAMS: dict[str, type[DeviceProgram]] = {"jax": JaxProgram, "torch": TorchProgram}


def compile_on_device(model: Model, backend: str, **options: Any) -> DeviceProgram:
    """Compile a model for JAX or torch."""
    mesh = options.pop("mesh")
    shardings = options.pop("shardings")
    if options.pop("torch_compile"):
        if backend != "torch" or mesh is not None or shardings is not None:
            raise EngineError("argument.conflict", 'torch_compile belongs to backend="torch" without a mesh')
        return CompiledTorchProgram(model, **options)
    if mesh is None and shardings is None:
        return PROGRAMS[backend](model, **options)
    if backend != "jax" or mesh is None:
        raise EngineError("argument.conflict", 'mesh and shardings belong to backend="jax", and shardings to a mesh')
    return ShardedProgram(model, mesh=mesh, shardings=shardings, **options)
