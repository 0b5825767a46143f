"""CacheProgram: a native program that extends growing caches in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ir.inputs_outputs import check_inputs, named_inputs, to_array
from dovetail.ir.limits import active, refuse_memory, within_memory
from dovetail.runtime.caches import find_caches, with_leading_growth
from dovetail.runtime.native_program import NativeProgram
from dovetail.runtime.program import LoadedProgram, Statistics, write_outputs

SPARE = 2
"""The memory allocated for a growing cache is at least SPARE times the size that the cache then has."""


class CacheProgram(LoadedProgram):
    """CacheProgram is a Program of the native engine that extends a cache in place if a call gets the result of another call.

    The memory of a returned growing cache is larger than the array. A later call appends the new elements behind the array and
    returns a longer array that begins with the earlier array. No call changes the elements of an array that was returned before.
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
        self._caches = find_caches(self.model)
        self._growing = [cache for cache in self._caches if cache.order]
        self._updated = [cache for cache in self._caches if not cache.order]
        inputs = [value.name for value in self.model.inputs]
        outputs = [value.name for value in self.model.outputs]
        shared = [(inputs.index(cache.input), outputs.index(cache.output), cache.order) for cache in self._caches]
        grown = with_leading_growth(self.model, self._caches)
        self._program = NativeProgram(grown, threads, elide, shared, precision, reproducible)
        self._core, self._output_pool = native_core.core(), self._program.output_pool
        if self._initial_states is None:
            self._call_fast = self._program.call_growing
        self._grown = [cache.output for cache in self._growing]
        self._copied_bytes = 0

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Create plans for some sets of sizes before the first call. Raises EngineError [argument.value]."""
        self._program.prepare(sizes)

    @property
    def statistics(self) -> Statistics:
        found = self._program.statistics
        return found._replace(copied_cache_bytes=found.copied_cache_bytes + self._copied_bytes)

    @property
    def _threads(self) -> int:
        return self._program._threads

    @property
    def _overwritten(self) -> frozenset[str]:
        """The input names of the states that the next call of a session overwrites."""
        return frozenset(cache.input for cache in self._updated)

    def _call_in_session(
        self, inputs: Mapping[str, Any], kept: dict[str, Any], out: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        arrays = {**kept, **inputs}
        given = {cache.input for cache in self._updated if cache.input in kept and cache.input not in inputs}
        fast = self._program.call_growing
        if fast is not None and not given and active() is None and not self._is_closed:
            results = fast((arrays,), {}, out)
            if results is not None:
                return results  # type: ignore[no-any-return]
        if self._is_closed:
            return self(arrays, out=out)

        def run(by_name: Any, targets: Mapping[str, Any] | None) -> dict[str, Any]:
            return self._extend(by_name, targets, given, kept)

        return self._run_with(run, (arrays,), {}, out)

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._extend(inputs, out, set(), {})

    def _extend(self, inputs: Any, out: Mapping[str, Any] | None, given: set[str], kept: dict[str, Any]) -> dict[str, Any]:
        """Run the model so that the next value of each cache is written into the memory of the cache.

        ``given``: the inputs of caches whose arrays no caller holds, so that the call may overwrite them. These entries are
        removed from ``kept`` before the run.
        """
        by_name = named_inputs(self.model, inputs)
        arrays = {value.name: to_array(by_name[value.name], value) for value in self.model.inputs}
        sizes = check_inputs(self.model, list(arrays.values()))
        targets = dict(out or {})
        for cache in self._updated:
            if cache.input in given:
                targets[cache.output] = arrays[cache.input]
        for cache in self._growing:
            assert cache.length is not None
            before, length = arrays[cache.input].transpose(cache.order), symbolic.evaluate(cache.length, sizes)
            after = None if self._core is None else self._core.grow(before, length)
            if after is None:
                after = self._allocate(before, length)
                after[: len(before)] = before
                self._copied_bytes += before.nbytes
            arrays[cache.input], targets[cache.output] = after[: len(before)], after
        for name in given:
            kept.pop(name, None)
        results = dict(self._program(arrays, out=targets))
        for cache in self._growing:
            results[cache.output] = results[cache.output].transpose(cache.inverse)
        return results if out is None else write_outputs(results, {name: out[name] for name in self._grown if name in out})

    def _allocate(self, before: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
        """Allocate an array of ``length`` rows, which have the shape and type of the rows of ``before``, with space to grow."""
        shape = (length, *before.shape[1:])
        if self._output_pool is None:
            return np.empty(shape, before.dtype)
        nbytes = prod(shape) * before.itemsize
        refuse_memory(self.model.limits, nbytes, "a cache")
        with within_memory("a cache", self.model.file):
            array: np.ndarray[Any, Any] = self._output_pool.allocate_growing(shape, before.dtype, SPARE * nbytes)
        return array

    def close(self) -> None:
        super().close()
        self._program.close()
