"""Programs of torch: the interpreter over torch tensors, one operator at a time or compiled by torch.compile."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dovetail.errors import EngineError
from dovetail.ir import arrays
from dovetail.ir.graph import Model
from dovetail.ir.host.extras import import_extra
from dovetail.ir.limits import active, counting
from dovetail.runtime.devices.device_program import DeviceProgram, copy_to_numpy


class TorchProgram(DeviceProgram):
    """TorchProgram is a Program of torch that runs one operator at a time, so that shapes may depend on elements."""

    library = "torch"

    def __init__(self, model: Model, device: object = None, results: str = "numpy", **options: object) -> None:
        self._torch = import_extra("torch", "torch", 'engine="torch"')
        super().__init__(model, device, results, **options)
        self.device = _device_of(self._torch, device)
        self._xp = arrays.standard(self._torch)
        self._check_types(self._xp)
        self._constants = {
            id(value): arrays.from_numpy(self._xp, data).to(self.device) for value, data in self.execution.constants
        }

    def close(self) -> None:
        super().close()
        self._constants = {}

    def _call(self, by_name: dict[str, Any]) -> dict[str, Any]:
        torch = self._torch
        inputs = self._bind(by_name, torch.Tensor)
        # cuDNN rounds the operands of convolutions to TF32 by default.
        with torch.no_grad(), self.device, torch.backends.cudnn.flags(allow_tf32=False):
            outputs = self._execute([self._to_device(item) for item in inputs])
            if self.results == "numpy":
                outputs = [copy_to_numpy(item) for item in outputs]
        return dict(zip([value.name for value in self.model.outputs], outputs, strict=True))

    def _execute(self, inputs: list[Any]) -> list[Any]:
        with counting(self.model.limits if active() is None else None):
            return self.execution.run(inputs, self._constants, self._xp)

    def _to_device(self, item: object) -> Any:
        if item is None or isinstance(item, list):
            return item and [self._to_device(each) for each in item]
        return item.to(self.device) if isinstance(item, self._torch.Tensor) else arrays.from_numpy(self._xp, item)


def _device_of(torch: ModuleType, device: object) -> Any:
    """Return the torch.device named "cpu", "cuda:1", ..., for None the default device. Raises EngineError [device.unknown]."""
    if device is None:
        return torch.get_default_device()
    try:
        found = torch.device(device)
        # torch.device accepts known device types without a backend; an allocation then fails.
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        raise EngineError("device.unknown", f"torch has no device {device!r} on this machine") from None
    return found
