"""InterpretedProgram: the reference implementation, which runs one operator at a time in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import EngineError
from dovetail.runtime.program import LoadedProgram, write_outputs

if TYPE_CHECKING:
    from dovetail.ir.graph import Model


class InterpretedProgram(LoadedProgram):
    """InterpretedProgram is a Program that the interpreter runs."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "interpreter", {})

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        from dovetail.ir.inputs_outputs import copy_shared_outputs
        from dovetail.runtime.interpreter.interpret import interpret

        results = interpret(self.model, inputs)
        try:
            outputs = copy_shared_outputs(results, inputs.values() if isinstance(inputs, Mapping) else inputs)
        except MemoryError as error:
            raise EngineError("run.memory", f"the outputs do not fit into memory: {error}", file=self.model.file) from None
        return write_outputs(outputs, out)
