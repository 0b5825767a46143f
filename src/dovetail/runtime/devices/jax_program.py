"""Programs of JAX: the interpreter over jax.numpy, traced once for each set of input shapes and compiled by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.graph import Model, Value
from dovetail.ir.host.extras import import_extra
from dovetail.ir.limits import active, counting
from dovetail.runtime.devices.device_program import DeviceProgram, copy_to_numpy

LITERAL_ELEMENTS = 1024
"""Constants of at most this many elements become literals, which XLA folds; larger constants become arguments."""


class JaxProgram(DeviceProgram):
    """JaxProgram is a Program of JAX. It computes products in full precision, and 64-bit types without ``jax_enable_x64``."""

    library = "jax"

    def __init__(self, model: Model, device: object = None, results: str = "numpy", **options: object) -> None:
        self._jax = import_extra("jax", "jax", 'engine="jax"')
        super().__init__(model, device, results, **options)
        self.device = device_of(self._jax, device)
        self._check_types(self._jax.numpy)
        weights = [(value, data) for value, data in self.execution.constants if data.size > LITERAL_ELEMENTS]
        self._weight_values = [value for value, _ in weights]
        self._errors: dict[Any, list[EngineError]] = {}
        self._jitted = self._jax.jit(self._trace)
        with self._scope():
            self._weights = self._place_weights([data for _, data in weights])

    def _place_weights(self, weights: Sequence[Any]) -> list[Any]:
        return [self._jax.device_put(data, self.device) for data in weights]

    def _place_inputs(self, inputs: list[Any]) -> list[Any]:
        """Return the inputs with JAX arrays moved to the program's device; the call itself transfers numpy arrays."""
        return [self._jax.device_put(item, self.device) if isinstance(item, self._jax.Array) else item for item in inputs]

    def _constrain(self, value: Value, array: Any) -> Any:
        return array

    def close(self) -> None:
        super().close()
        self._weights, self._jitted = [], None

    def _scope(self) -> ExitStack:
        """Return a context with the JAX settings for tracing, compiling and running."""
        scope = ExitStack()
        scope.enter_context(self._jax.enable_x64(True))
        scope.enter_context(self._jax.default_matmul_precision("highest"))
        scope.enter_context(self._jax.default_device(self.device))
        return scope

    def _call(self, by_name: dict[str, Any]) -> dict[str, Any]:
        inputs = self._bind(by_name, self._jax.Array)
        with self._scope():
            outputs, failed = self._jitted(self._weights, self._place_inputs(inputs))
            if failed is not None:
                self._check_elements(inputs, np.asarray(failed))
            if self.results == "numpy":
                outputs = [copy_to_numpy(item) for item in outputs]
        return dict(zip([value.name for value in self.model.outputs], outputs, strict=True))

    def _trace(self, weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[list[Any], Any]:
        """Compute the outputs, and a boolean vector that marks the failed element checks (None without checks)."""
        jax = self._jax
        constants = dict(zip(map(id, self._weight_values), weights, strict=True))

        def is_tracing_error(error: BaseException) -> bool:
            return isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError)

        with counting(self.model.limits if active() is None else None):
            outputs, checks = self.execution.trace(
                inputs,
                constants,
                jax.numpy,
                "JAX",
                is_tracing_error,
                lambda index: jax.named_scope(f"node{index}"),
                self._constrain,
            )
        self._errors[_signature(inputs)] = [check.error for check in checks]
        return outputs, jax.numpy.stack([check.failed for check in checks]) if checks else None

    def _check_elements(self, inputs: Sequence[Any], failed: np.ndarray[Any, Any]) -> None:
        if failed.any():
            error = self._errors[_signature(inputs)][int(failed.argmax())]
            raise EngineError(error.code, error.message, node=error.node, op=error.op, file=self.model.file)


def _signature(items: Sequence[Any]) -> Any:
    """Return the key of a trace: the structure, shapes and types of the inputs."""
    return tuple(
        None if item is None else _signature(item) if isinstance(item, list) else (tuple(item.shape), str(item.dtype))
        for item in items
    )


def device_of(jax: ModuleType, device: object) -> Any:
    """Return the device named "cpu", "gpu", "cpu:1", ..., or for None JAX's first device. Raises EngineError [device.unknown]."""
    if device is None or isinstance(device, jax.Device):
        return device or jax.devices()[0]
    platform, _, index = str(device).partition(":")
    try:
        return jax.devices(platform)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError):
        known = ", ".join(f"{each.platform}:{each.id}" for each in jax.devices())
        raise EngineError("device.unknown", f"JAX has no device {device!r}; it has {known}") from None
