"""Runs of a rebatched model at sizes that the original does not have; the outputs must have the inferred shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.compare.verification.engine import run_for_verification
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import sizes_of_arrays
from dovetail.ir.types import Tensor, Type
from dovetail.passes.rebatching.axes import FreedSize
from dovetail.runtime.random_inputs import random_inputs


class SizeRun(NamedTuple):
    """SizeRun is one run: the size of each symbol, and the reason and node of a failure, empty if the run succeeds."""

    sizes: dict[str, int]
    why: str
    node: str = ""

    @property
    def text(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


def run_at_other_sizes(model: Model, freed: Sequence[FreedSize], seed: int) -> list[SizeRun]:
    """Run the new model with all sizes other than the batch at twice, and then at half, their old values."""
    own = {str(size.new): size.old for size in freed if not size.is_batch and isinstance(size.new, symbolic.Dim)}
    if not own:
        return []
    twice = {name: 2 * old for name, old in own.items()}
    half = {name: max(old // 2, 1) for name, old in own.items()}
    return [_run(model, sizes, seed) for sizes in (twice, half)]


def _run(model: Model, sizes: dict[str, int], seed: int) -> SizeRun:
    try:
        arrays = random_inputs(model, seed=seed, sizes=sizes)
        results = run_for_verification(model, arrays)
    except DovetailError as error:
        return SizeRun(sizes, error.diagnostics[0].message, error.diagnostics[0].node or "")
    every = {**sizes, **sizes_of_arrays(model.inputs, arrays)}
    for value in model.outputs:
        wanted = _shape_at(value.type, every)
        if wanted is not None and wanted != np.shape(results[value.name]):
            why = f"output {value.name} has the shape {list(np.shape(results[value.name]))} instead of {list(wanted)}"
            return SizeRun(sizes, why, value.node.label if value.node is not None else "")
    return SizeRun(sizes, "")


def _shape_at(type: Type, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type at ``sizes`` of its symbols; None if the shape contains other symbols or depends on data."""
    if not isinstance(type, Tensor) or type.shape is None:
        return None
    shape = [symbolic.substitute(size, sizes) if isinstance(size, symbolic.Dim) else size for size in type.shape]
    return tuple(size for size in shape if isinstance(size, int)) if all(isinstance(size, int) for size in shape) else None
