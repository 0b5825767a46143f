"""Verification of transformations: the outputs of the result and the original are compared on the same random inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.compare.verification.conversion import Difference, compare, random_outputs
from dovetail.compare.verification.engine import run_for_verification
from dovetail.errors import UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import sizes_of_arrays
from dovetail.ir.selection import select_scope
from dovetail.ir.types import Tensor
from dovetail.passes.edit import add_outputs, set_outputs
from dovetail.passes.merge import select_connections
from dovetail.runtime.interpreter.interpret import interpret
from dovetail.runtime.random_inputs import random_inputs


def verify_part(
    model: Model, part: Model, inputs: Sequence[str] | None, outputs: Sequence[str] | None, seed: int = 0
) -> list[Difference]:
    """Run the whole model, run the part on intermediate values of that run, and compare the outputs of the part.

    ``inputs`` and ``outputs`` are the arguments of :func:`dovetail.extract`. Raises UnsupportedError [argument.conflict] for a
    part of a subgraph, which a run of the whole model may evaluate any number of times.
    """
    scope, _ = select_scope(model, [*(inputs or ()), *(outputs or ())])
    if scope.node is not None:
        raise UnsupportedError(
            "argument.conflict", f"a part of {scope.description} cannot be compared: a model may run it any number of times"
        )
    own = {value.name for value in model.inputs}
    cut = [value.name for value in part.inputs if value.name not in own]
    whole = set_outputs(model, [*cut, *(value.name for value in part.outputs)])
    arrays = random_inputs(whole, seed=seed, distinct=True)
    values = run_for_verification(whole, arrays)
    found = run_for_verification(part, {value.name: {**arrays, **values}[value.name] for value in part.inputs})
    return compare({value.name: values[value.name] for value in part.outputs}, found, random=random_outputs(part))


def verify_merge(
    first: Model, second: Model, merged: Model, connect: Mapping[str, str] | Iterable[tuple[str, str]] | None, seed: int = 0
) -> list[Difference]:
    """Compare the merged model with a run of ``first`` and then ``second``; ``connect`` is the argument of :func:`merge`."""
    connections = select_connections(first, second, connect)
    connected = {id(x) for _, x in connections}
    free = [value for value in second.inputs if id(value) not in connected]
    if connections:
        arrays = random_inputs(merged, seed=seed, distinct=True)
        in_order = [arrays[value.name] for value in merged.inputs]
    else:
        # Sizes at which a model runs are easier to find for each model separately.
        in_order = [*random_inputs(first, seed=seed).values(), *random_inputs(second, seed=seed + 1).values()]
        arrays = dict(zip([value.name for value in merged.inputs], in_order, strict=True))
    of_first = dict(zip([value.name for value in first.inputs], in_order, strict=False))
    whole = add_outputs(first, [value.name for value, _ in connections])
    values = run_for_verification(whole, of_first)
    of_second = dict(zip([value.name for value in free], in_order[len(first.inputs) :], strict=True))
    of_second.update({x.name: {**of_first, **values}[value.name] for value, x in connections})
    results = run_for_verification(second, of_second)
    kept = len(merged.outputs) - len(second.outputs)
    drawn = random_outputs(whole)
    consumed = {id(value) for value, _ in connections}
    # A connected output remains an output of the merged model if it belongs to a state.
    left = [value for value in first.outputs if id(value) not in consumed]
    names = [value.name for value in (left if len(left) == kept else first.outputs)]
    reference = dict(
        zip(
            [value.name for value in merged.outputs],
            [*(values[name] for name in names[:kept]), *(results[value.name] for value in second.outputs)],
            strict=True,
        )
    )
    random = random_outputs(merged) | {value.name for value, name in zip(merged.outputs, names, strict=False) if name in drawn}
    return compare(reference, run_for_verification(merged, arrays), random=random)


def verify_edit(model: Model, edited: Model, renamed: Mapping[str, str], seed: int = 0) -> list[Difference]:
    """Compare the outputs of an edited model with the same values of the original; both must have the same constants.

    ``renamed`` maps old names to new names. Inputs whose element type was edited are cast to the original's element type, as the
    edited model does.
    """
    old_names = {new: old for old, new in renamed.items()}
    wanted = [old_names.get(value.name, value.name) for value in edited.outputs]
    original = set_outputs(model, wanted)
    arrays = random_inputs(edited, seed=seed, distinct=True)
    inputs = {value.name: _cast(arrays[renamed.get(value.name, value.name)], value) for value in original.inputs}
    results = run_for_verification(original, inputs)
    reference = {y.name: results[old.name] for y, old in zip(edited.outputs, original.outputs, strict=True)}
    return compare(reference, run_for_verification(edited, arrays), random=random_outputs(edited))


def _cast(array: Any, value: Value) -> Any:
    if not isinstance(array, np.ndarray) or not isinstance(value.type, Tensor) or value.type.dtype is None:
        return array
    return array.astype(value.type.dtype.numpy)


def verify_types(model: Model, inferred: Model, seed: int = 0) -> list[Difference]:
    """Compare the outputs of an inferred model with the original's, and all inferred types with the arrays of a run."""
    arrays = random_inputs(inferred, seed=seed, distinct=True)
    rows = compare(run_for_verification(model, arrays), run_for_verification(inferred, arrays), random=random_outputs(inferred))
    whole = copy_model(inferred)
    whole.graph.outputs = [y for node in whole.graph.nodes for y in node.outputs if isinstance(y.type, Tensor)]
    sizes = sizes_of_arrays(inferred.inputs, arrays)
    for value, array in zip(whole.outputs, interpret(whole, arrays).values(), strict=True):
        why = _contradiction(value, array, sizes)
        if why:
            shape = tuple(np.shape(array))
            rows.append(Difference(value.name, str(value.dtype), shape, np.inf, np.inf, False, why))
    return rows


def _contradiction(value: Value, array: np.ndarray[Any, Any], sizes: Mapping[str, int]) -> str:
    """Return how the result of a run contradicts the inferred type of ``value``; empty if it does not."""
    assert isinstance(value.type, Tensor)
    shape = value.type.shape
    if shape is None:
        return ""
    if len(shape) != np.ndim(array):
        return f"inferred as {value.type}, a run gives {list(np.shape(array))}"
    for size, actual in zip(shape, np.shape(array), strict=True):
        known = size if isinstance(size, int) else symbolic.substitute(size, sizes)
        if isinstance(known, int) and known != actual:
            return f"inferred as {value.type}, a run gives {list(np.shape(array))}"
    return ""
