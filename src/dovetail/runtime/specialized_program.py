"""SpecializedProgram: a program of a model, and one of its specialization for the usual elements of some inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import named_inputs
from dovetail.runtime.cache_program import CacheProgram
from dovetail.runtime.program import LoadedProgram, Statistics
from dovetail.runtime.specializations import specialize_caches


class SpecializedProgram(LoadedProgram):
    """SpecializedProgram is a Program of the native engine that runs a specialization of the model where its conditions hold.

    The model must have one (:func:`~dovetail.runtime.specializations.specialize_caches`). The model itself is compiled at the
    first call for which a condition does not hold.
    """

    def __init__(
        self,
        model: Model,
        threads: int | None = None,
        elide: str = "auto",
        precision: str | None = None,
        reproducible: bool = False,
    ) -> None:
        options = {"threads": threads, "elide": elide, "precision": precision, "reproducible": reproducible}
        super().__init__(model, "native", options)
        special = specialize_caches(self.model)
        assert special is not None
        self._special = special
        self._usual = CacheProgram(special.model, **self.options)
        self._general: CacheProgram | None = None

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Create plans for some sets of sizes before the first call. Raises EngineError [argument.value]."""
        self._usual.prepare(sizes)

    @property
    def statistics(self) -> Statistics:
        programs = [self._usual, *([] if self._general is None else [self._general])]
        return Statistics(*map(sum, zip(*(program.statistics for program in programs), strict=True)))

    @property
    def _threads(self) -> int:
        return self._usual._threads

    @property
    def _overwritten(self) -> frozenset[str]:
        return self._usual._overwritten

    def _program_for(self, arrays: Mapping[str, Any]) -> CacheProgram:
        if self._special.holds(arrays):
            return self._usual
        if self._general is None:
            self._general = CacheProgram(self.model, **self.options)
        return self._general

    def _call_in_session(
        self, inputs: Mapping[str, Any], kept: dict[str, Any], out: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        arrays = {**kept, **inputs}
        if self._is_closed or any(value.name not in arrays for value in self.model.inputs):
            # Initial states are missing, or the call is refused.
            return self(arrays, out=out)
        return self._program_for(arrays)._call_in_session(inputs, kept, out)

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        arrays = named_inputs(self.model, inputs)
        return self._program_for(arrays)._compute(arrays, out)

    def close(self) -> None:
        super().close()
        self._usual.close()
        if self._general is not None:
            self._general.close()
