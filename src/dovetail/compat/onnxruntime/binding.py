"""IOBinding: inputs and outputs of a run in memory that the caller has allocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.compat.onnxruntime.values import OrtDevice, OrtValue, array_at, check_cpu, element_type_of, to_onnxruntime
from dovetail.errors import EngineError, RuleError
from dovetail.ir.arrays import Array

if TYPE_CHECKING:
    from dovetail.compat.onnxruntime.session import InferenceSession


class IOBinding:
    """IOBinding holds the inputs and outputs of runs of one session.

    A run writes an output directly into the memory that is bound to it. An output without memory is a new array in each run.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray[Any, Any] | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray[Any, Any]) -> None:
        """Bind an input to an array. Raises EngineError [input.unknown], [input.type]."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise EngineError("input.type", f"input {name!r} must be an array, got {type(arr_on_cpu).__name__}")
        self._bind_input(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to the memory at an address. Raises EngineError [input.unknown], [device.unknown], [dtype.unknown]."""
        check_cpu(device_type)
        self._bind_input(name, array_at(buffer_ptr, element_type_of(element_type), tuple(shape)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to an OrtValue. Raises EngineError [input.unknown]."""
        self._bind_input(name, ortvalue._data)

    def _bind_input(self, name: str, data: Array) -> None:
        if name not in self._session._known_inputs:
            raise EngineError("input.unknown", f"the model has no input {name!r}")
        self._inputs[name] = data

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to the memory at an address, or to an array that the run allocates.

        Without ``buffer_ptr`` any device is accepted, and the result is in the memory of the CPU. Raises RuleError
        [argument.conflict], a ValueError, for an address without a type or a shape; EngineError [device.unknown],
        [dtype.unknown]. An unknown name is reported by the run.
        """
        if buffer_ptr is None:
            OrtDevice.make(device_type.lower(), device_id)
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise RuleError("argument.conflict", "element_type and shape must be given together with buffer_ptr")
        check_cpu(device_type)
        self._outputs[name] = array_at(buffer_ptr, element_type_of(element_type), tuple(shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a tensor, into which each run writes."""
        self._outputs[name] = ortvalue._tensor()

    def synchronize_inputs(self) -> None:
        """Do nothing: the memory of the CPU needs no synchronization."""

    def synchronize_outputs(self) -> None:
        """Do nothing: the memory of the CPU needs no synchronization."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return self._results

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return copies of the outputs of the last run."""
        results = [to_onnxruntime(value._data) for value in self._results]
        return [item.copy() if isinstance(item, np.ndarray) else item for item in results]

    def clear_binding_inputs(self) -> None:
        """Remove all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Remove all outputs."""
        self._outputs.clear()
        self._results = []
