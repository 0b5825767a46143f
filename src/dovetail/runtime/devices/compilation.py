"""The choice of the program class for ``compile(model, "jax")`` and ``compile(model, "torch")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import EngineError
from dovetail.ir.graph import Model
from dovetail.runtime.devices.compiled_torch import CompiledTorchProgram
from dovetail.runtime.devices.device_program import DeviceProgram
from dovetail.runtime.devices.jax_program import JaxProgram
from dovetail.runtime.devices.sharded_program import ShardedProgram
from dovetail.runtime.devices.torch_program import TorchProgram

if TYPE_CHECKING:
    from dovetail.runtime.compilation import DeviceOptions

PROGRAMS: dict[str, type[DeviceProgram]] = {"jax": JaxProgram, "torch": TorchProgram}


def compile_on_device(model: Model, engine: str, options: DeviceOptions) -> DeviceProgram:
    """Compile a model for JAX or torch."""
    device, results, mesh, shardings = options.device, options.results, options.mesh, options.shardings
    if options.torch_compile:
        if engine != "torch" or mesh is not None or shardings is not None:
            raise EngineError("argument.conflict", 'torch_compile needs engine="torch" without mesh and shardings')
        return CompiledTorchProgram(model, device=device, results=results)
    if mesh is None and shardings is None:
        return PROGRAMS[engine](model, device=device, results=results)
    if engine != "jax" or mesh is None:
        raise EngineError("argument.conflict", 'mesh and shardings need engine="jax", and shardings need a mesh')
    return ShardedProgram(model, mesh=mesh, shardings=shardings, device=device, results=results)
