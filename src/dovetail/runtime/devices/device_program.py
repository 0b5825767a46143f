"""DeviceProgram: a Program whose operators another array library runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import arrays
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import check_inputs, fit_input, named_inputs, refuse_unusual, to_numpy_input
from dovetail.ir.types import Map, Tensor
from dovetail.runtime.devices.execution import GraphExecution
from dovetail.runtime.program import LoadedProgram, write_outputs

RESULTS = ("numpy", "device")


class DeviceProgram(LoadedProgram):
    """DeviceProgram is a Program that JAX or torch runs, with the weights on ``device``.

    ``results``: "numpy", or "device" for arrays of the library that stay on the device. Input arrays of the library are used
    directly, without a conversion to numpy.
    """

    library = ""
    device: Any = None

    def __init__(self, model: Model, device: object, results: str, **options: object) -> None:
        if results not in RESULTS:
            raise EngineError("argument.value", f"results must be one of {', '.join(RESULTS)}, got {results!r}")
        options = {"device": None if device is None else name_of(device), "results": results, **options}
        super().__init__(model, self.library, options)
        self.results = results
        self.execution = GraphExecution(self.model.graph)

    def _check_types(self, xp: ModuleType) -> None:
        """Raise UnsupportedError [array.dtype] for element types that only numpy supports, and for maps."""
        refuse_unusual(self.model.graph, xp)
        maps = [value.name for value in (*self.model.inputs, *self.model.outputs) if isinstance(value.type, Map)]
        if maps:
            raise UnsupportedError("array.dtype", f"{', '.join(map(repr, maps))}: maps can be interpreted in numpy only")

    def _bind(self, by_name: Mapping[str, Any], array_type: type) -> list[Any]:
        """Check the inputs and return them in order: arrays of the library unchanged, other data as numpy arrays."""

        def fit(item: object, type: Tensor, name: str) -> Any:
            if not isinstance(item, array_type):
                return to_numpy_input(item, type, name)
            actual = arrays.element(item)
            if type.dtype is not None and actual is not type.dtype:
                raise EngineError("input.dtype", f"input {name!r} must be {type.dtype}, got {actual}")
            return item

        bound = [fit_input(by_name[value.name], value.type, value.name, fit) for value in self.model.inputs]
        check_inputs(self.model, bound)
        return bound

    @property
    def _runtime(self) -> str:
        return f"{self.library} on {name_of(self.device)}"

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        by_name = named_inputs(self.model, inputs)
        if out and self.results == "device":
            raise EngineError("output.array", 'out needs a program with results="numpy", got results="device"')
        outputs = self._call(by_name)
        return outputs if self.results == "device" else write_outputs(outputs, out)

    def _call(self, by_name: dict[str, Any]) -> dict[str, Any]:
        """Run the model once. Returns the outputs by name, as numpy or device arrays according to ``results``."""
        raise NotImplementedError


def name_of(device: Any) -> str:
    """Return the name of a device of JAX or torch, which the option ``device`` accepts."""
    return f"{device.platform}:{device.id}" if hasattr(device, "platform") else str(device)


def copy_to_numpy(item: object) -> Any:
    """Return a result as numpy arrays that the caller may write to."""
    if isinstance(item, list):
        return [copy_to_numpy(each) for each in item]
    return item if item is None or isinstance(item, dict) else np.array(arrays.to_numpy(item), order="C")
