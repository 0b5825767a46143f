"""PluginProgram: a Program that the engine of a plug-in runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence as Several
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.host import plugins
from dovetail.ir.inputs_outputs import check_inputs, copy_shared_outputs, named_inputs, to_array
from dovetail.ir.types import Map, Optional, Sequence
from dovetail.runtime.program import LoadedProgram, write_outputs

if TYPE_CHECKING:
    from dovetail.ir.graph import Model, Value


class PluginProgram(LoadedProgram):
    """PluginProgram is a Program of the plug-in ``name``.

    The plug-in is a function of a Model. It returns a function that takes the inputs as numpy arrays by name, and returns the
    outputs by name, or in the order of the model.
    """

    def __init__(self, model: Model, name: str) -> None:
        super().__init__(model, name, {"name": name})
        self._function = plugins.call("engines", name, plugins.load("engines")[name], self.model)

    def _compute(self, inputs: Several[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        by_name = named_inputs(self.model, inputs)
        arrays = {value.name: to_array(by_name[value.name], value) for value in self.model.inputs}
        check_inputs(self.model, list(arrays.values()))
        results = plugins.call("engines", self.engine, self._function, dict(arrays))
        names = [value.name for value in self.model.outputs]
        if not isinstance(results, Mapping):
            results = dict(zip(names, results, strict=False))
        missing = [name for name in names if name not in results]
        if missing:
            message = f"the engine {self.engine!r} must return the output {', '.join(map(repr, missing))}"
            raise EngineError("run.failed", message, file=self.model.file)
        outputs = {value.name: _as_array(results[value.name], value) for value in self.model.outputs}
        return write_outputs(copy_shared_outputs(outputs, arrays.values()), out)


def _as_array(item: Any, value: Value) -> Any:
    """Return an output as a numpy array; a sequence, a map or an optional value is not changed."""
    return item if isinstance(value.type, Sequence | Map | Optional) else np.asarray(item)
