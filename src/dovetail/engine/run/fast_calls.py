"""Fast calls: programs whose steps are all native, so that the core computes results from arrays without Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from dovetail.engine.parametric_plan import ParametricPlan
from dovetail.engine.plan_log import log_eviction
from dovetail.engine.rewrite.output_conversions import Conversions
from dovetail.engine.rewrite.string_inputs import EncodedStrings, is_string
from dovetail.engine.run.executable import Executable, SharedPorts
from dovetail.ir.arrays import Array
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.results import Results
from dovetail.ir.types import Tensor


class FastCalls:
    """FastCalls holds the executables of a model that the core calls without Python, by the shapes of their inputs.

    ``call(inputs, by_name, out)`` takes the arguments of a Program's call. The result is None for a call that the core does not
    serve: unknown shapes, arrays that are not dense numpy arrays of the model's types, errors.
    """

    def __init__(
        self,
        core: ModuleType,
        model: Model,
        outputs: Sequence[Value],
        conversions: Conversions,
        encoded: EncodedStrings | None,
        output_pool: object,
        shared: Sequence[SharedPorts] = (),
    ) -> None:
        self._core: Any = None
        inputs = model.inputs if encoded is None else encoded.model.inputs
        if model.limits.seconds is None and all(map(_is_plain, (*inputs, *outputs))):
            codes = [encoded.codes if encoded is not None and is_string(value) else None for value in model.inputs]
            rules = {index: partial(_convert, node) for index, node in conversions.items()}
            self._core = core.FastCalls(
                tuple(
                    (x.name, _numpy_type(x), None, table, encoded is not None and encoded.takes_unknown)
                    for x, table in zip(inputs, codes, strict=True)
                ),
                tuple(
                    (value.name, _numpy_type(y), rules.get(index), None, False)
                    for index, (value, y) in enumerate(zip(model.outputs, outputs, strict=True))
                ),
                Results,
                model.limits.trips,
                output_pool,
                core.MAX_SIZE_BYTES,
                partial(log_eviction, model.file),
                shared,
            )
        self.call: Any = self._core

    def add(self, executable: Executable | None) -> None:
        """Add an executable, if all of its steps are native and its inputs dense."""
        if self._core is None or executable is None or not executable.is_native or not executable.has_dense_inputs:
            return
        plan = executable.plan
        if any(tensor.is_dynamic for tensor in (*plan.inputs, *plan.outputs)):
            return
        inputs, outputs = ([tensor.sizes for tensor in tensors] for tensors in (plan.inputs, plan.outputs))
        self._core.add(executable.program, inputs, outputs, executable.constants)

    def add_range(self, plan: ParametricPlan, pool: object, weight_cache: object, arena_pool: object, max_bytes: int) -> None:
        """Add a parametric plan if each symbol is an axis of an input; the core then creates programs for sizes of the plan.

        ``max_bytes``: runs with a larger arena and outputs are left to the engine, which reports the limit on memory.
        """
        if self._core is not None and plan.places is not None:
            inputs, outputs = plan.shapes()
            self._core.add_range(
                plan.steps, pool, weight_cache, arena_pool, plan.symbols, inputs, outputs, max_bytes, plan.constants
            )

    def discard_range(self, plan: ParametricPlan | None) -> None:
        """Remove a parametric plan. Programs that calls created from the plan stay."""
        if self._core is not None and plan is not None:
            self._core.discard_range(plan.steps)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Three counts for programs that calls created from parametric plans: evicted programs, cached programs, cached bytes."""
        return self._core.counts() if self._core is not None else (0, 0, 0)

    def discard(self, executable: Executable | None) -> None:
        """Remove an executable, so that the core no longer serves calls with the shapes of its inputs."""
        if self._core is not None and executable is not None:
            self._core.discard(executable.program)

    def pop_use(self, executable: Executable | None) -> bool:
        """Return whether a fast call ran the executable since the previous pop_use() for this executable."""
        return self._core is not None and executable is not None and bool(self._core.pop_use(executable.program))

    def clear(self) -> None:
        """Remove all executables and parametric plans, so that the core serves no calls."""
        if self._core is not None:
            self._core.clear()


def _convert(node: Node, array: Array) -> Any:
    return node.op.evaluate(np, array)


def _numpy_type(value: Value) -> Any:
    assert isinstance(value.type, Tensor) and value.type.dtype is not None
    return value.type.dtype.numpy


def _is_plain(value: Value) -> bool:
    """Return whether a value is a tensor of elements that the core supports."""
    return isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype.name != "string"
