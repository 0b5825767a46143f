"""Verification of a new batch: the original runs the samples at its batch size, the new model runs all samples at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.compare.verification.conversion import compare
from dovetail.compare.verification.engine import compile_for_verification
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.evaluate import RunArrays, evaluate_node
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.limits import current
from dovetail.ir.op import draws
from dovetail.ir.types import Shape, Tensor
from dovetail.passes.rebatching.axes import FreedSize, axes_of, take_samples
from dovetail.runtime.random_inputs import random_inputs
from dovetail.runtime.special_inputs import NOT_FINITE, TIES, special_inputs

SIZES = (1, 3, 8)
"""The batch sizes at which a model with a symbolic batch runs."""

SPECIAL = 1
"""Index of the sample with NaN and infinities; the sample with ties has the index SPECIAL + 2."""

Axes = list[tuple[int, int]]


class SampleComparison(NamedTuple):
    """SampleComparison is the largest difference of one output over all samples at one batch size.

    ``why`` explains the difference.
    """

    output: str
    batch: int
    dtype: str
    absolute: float
    relative: float
    tolerance: float
    agrees: bool
    why: str = ""


class Samples:
    """Samples holds the inputs of ``count`` samples; ``axes`` maps each input of the new model to its batch axes.

    ``ordinary`` are samples without special values, for an original that does not run on special values.
    """

    def __init__(self, arrays: Mapping[str, Any], axes: Mapping[str, Axes], count: int, ordinary: Samples | None = None) -> None:
        self.arrays, self.axes, self.count, self.ordinary = dict(arrays), dict(axes), count, ordinary

    def take(self, indices: Sequence[int]) -> dict[str, Any]:
        """Return the inputs of the samples ``indices``."""
        return {name: _take_chunk(array, self.axes.get(name, []), self.count, indices) for name, array in self.arrays.items()}


def draw_samples(
    model: Model,
    freed: Sequence[FreedSize],
    shapes: Mapping[int, Shape],
    count: int,
    seed: int,
    inputs: Mapping[str, Any] | None,
) -> Samples:
    """Draw ``count`` random samples, or build them from the arrays ``inputs`` and variations of these arrays.

    ``model`` is the original model. ``shapes`` maps the position of each changed input to its shape with the symbols of the
    analysis. Freed sizes that are no batch keep their old size.
    """
    wide = copy_model(model)
    batches = [size for size in freed if size.is_batch]
    old = batches[0].old
    at_count = {size.name: count if size.is_batch else size.old for size in freed}
    axes: dict[str, Axes] = {}
    for index, shape in shapes.items():
        value = wide.inputs[index]
        assert isinstance(value.type, Tensor)
        sizes = tuple(symbolic.substitute(size, at_count) if isinstance(size, symbolic.Dim) else size for size in shape)
        value.type = Tensor(value.type.dtype, sizes)
        axes[value.name] = [(place.axis, 1) for batch in batches for place in axes_of(shape, batch)]
    if inputs is None:
        ordinary = Samples(random_inputs(wide, seed=seed, distinct=True), axes, count)
        return Samples(_with_special_samples(wide, ordinary, seed), axes, count, ordinary)
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    generator = np.random.default_rng(seed)
    for name, pairs in axes.items():
        for axis, _ in pairs:
            parts = [np.take(arrays[name], [index], axis) for index in range(old)]
            parts += [_vary(parts[index % old], generator) for index in range(old, count)]
            arrays[name] = np.concatenate(parts, axis)
    return Samples(arrays, axes, count)


def _with_special_samples(model: Model, samples: Samples, seed: int) -> dict[str, Any]:
    """Return the arrays with NaN and infinities in one sample and ties in another; results of other samples may not change."""
    arrays = dict(samples.arrays)
    for index, kind in ((SPECIAL, NOT_FINITE), (SPECIAL + 2, TIES)):
        if index >= samples.count:
            continue
        special = special_inputs(model, samples.take([index]), kind, seed) or {}
        for name, pairs in samples.axes.items():
            if len(pairs) == 1 and name in special and isinstance(arrays[name], np.ndarray):
                array = np.moveaxis(arrays[name].copy(), pairs[0][0], 0)
                array[index : index + 1] = np.moveaxis(special[name], pairs[0][0], 0)
                arrays[name] = np.moveaxis(array, 0, pairs[0][0])
    return {name: np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x for name, x in arrays.items()}


def _vary(sample: np.ndarray[Any, Any], generator: np.random.Generator) -> Any:
    """Return a variation of ``sample``: its elements drawn with replacement, floats scaled by random factors around 1."""
    drawn = generator.choice(sample.reshape(-1), sample.shape) if sample.size else sample
    return drawn * generator.uniform(0.5, 1.5, sample.shape).astype(sample.dtype) if sample.dtype.kind == "f" else drawn


def chunks_of(count: int, batch: int) -> list[list[int]]:
    """Return the sample numbers of each run of the original; the last run is padded with the first samples."""
    return [[index % count for index in range(start, start + batch)] for start in range(0, count, batch)]


def verify_batches(
    original: Model, new: Model, batch: int, samples: Samples, outputs: Mapping[str, Axes], sizes: Sequence[int]
) -> list[SampleComparison]:
    """Run both models in the native engine; compare each output sample by sample. Stops at a run that fails."""
    reference, program = compile_for_verification(original), compile_for_verification(new)
    runs: dict[tuple[int, ...], dict[str, Any]] = {}
    rows: list[SampleComparison] = []
    for size in sizes:
        try:
            whole = dict(program(samples.take(range(size))))
        except DovetailError as error:
            if samples.ordinary is not None:
                return verify_batches(original, new, batch, samples.ordinary, outputs, sizes)
            why = f"{error.diagnostics[0].message}{error.diagnostics[0].location}"
            return [*rows, SampleComparison("", size, "", np.inf, np.inf, 0, False, why)]
        chunks = chunks_of(size, batch)
        for chunk in chunks:
            if tuple(chunk) not in runs:
                try:
                    runs[tuple(chunk)] = dict(reference(samples.take(chunk)))
                except DovetailError:
                    if samples.ordinary is None:
                        raise
                    return verify_batches(original, new, batch, samples.ordinary, outputs, sizes)
        for name, array in whole.items():
            references = [runs[tuple(chunk)][name] for chunk in chunks]
            rows.append(compare_samples(name, references, array, outputs.get(name, []), batch, size))
    return rows


def compare_samples(name: str, references: Sequence[Any], array: Any, axes: Axes, batch: int, size: int) -> SampleComparison:
    """Compare a value of the new model, sample by sample, with the original's value for each chunk of samples.

    A relative difference refers to the largest magnitude of all samples. A padded last chunk contains the first samples at other
    positions; their results must be equal there too.
    """
    starts = range(0, size, batch)
    first, second = [], []
    try:
        for reference, start in zip(references, starts, strict=True):
            for index in range(batch):
                sample = (start + index) % size
                first.append(take_samples(np.asarray(reference), axes, batch, index, index + 1) if axes else reference)
                second.append(take_samples(np.asarray(array), axes, size, sample, sample + 1) if axes else array)
    except (ValueError, IndexError):
        why = f"the original gives the shape {list(np.shape(references[0]))}, the new model {list(np.shape(array))}"
        return SampleComparison(name, size, "", np.inf, np.inf, 0, False, why)
    for index, (x, y) in enumerate(zip(first, second, strict=True)):
        if np.shape(x) != np.shape(y):
            why = f"sample {index} has the shape {list(np.shape(y))} instead of {list(np.shape(x))}"
            return SampleComparison(name, size, "", np.inf, np.inf, 0, False, why)
    row = compare({name: np.stack(first)}, {name: np.stack(second)})[0]
    return SampleComparison(name, size, row.dtype, row.absolute, row.relative, row.tolerance, row.agrees, row.why)


def worst_rows(rows: Sequence[SampleComparison]) -> list[SampleComparison]:
    """Return the comparison with the largest difference for each output and batch size."""
    found: dict[tuple[str, int], SampleComparison] = {}
    for row in rows:
        known = found.get((row.output, row.batch))
        if known is None or (known.agrees, -known.relative) > (row.agrees, -row.relative):
            found[row.output, row.batch] = row
    return list(found.values())


class Runs(NamedTuple):
    """Runs holds the values of both graphs by id.

    ``arrays`` holds values of the new graph for all samples. ``references`` holds values of the original graph for each of its
    runs. ``failed`` lists the failing nodes of the new graph with their errors.
    """

    arrays: dict[int, Any]
    failed: list[tuple[Node, DovetailError]]
    references: list[dict[int, Any]]
    size: int


def run_both(
    original: Graph,
    new: Graph,
    counterpart: Mapping[int, Value],
    layout: Mapping[int, Axes],
    samples: Samples,
    batch: int,
    size: int,
    references: list[dict[int, Any]] | None = None,
    until: Node | None = None,
) -> Runs:
    """Run both graphs in the interpreter; both draw the same random numbers for a sample.

    ``counterpart`` maps the id of each original value to the new value; ``layout`` maps the id of each new value to its batch
    axes. ``references`` are results of the original from an earlier run, if it draws no random numbers. In the new graph only the
    nodes before ``until`` run.
    """
    arrays, failed = _run_nodes(new, samples.take(range(size)), {}, until)
    if references is not None:
        return Runs(arrays, failed, references, size)
    random = [(y, counterpart[id(y)]) for node in original.nodes if draws(node.op, node.inputs) for y in node.outputs]
    references = []
    for chunk in chunks_of(size, batch):
        noise = {
            id(y): _take_chunk(arrays[id(other)], layout.get(id(other), []), size, chunk)
            for y, other in random
            if id(other) in arrays
        }
        references.append(_run_nodes(original, samples.take(chunk), noise)[0])
    return Runs(arrays, failed, references, size)


def find_differences(
    runs: Runs,
    original: Graph,
    counterpart: Mapping[int, Value],
    layout: Mapping[int, Axes],
    batch: int,
    skipped: Collection[int] = (),
) -> list[FoundDifference]:
    """Return the nodes that fail or whose results differ for a sample, except nodes that depend on such nodes.

    Values without an entry in ``layout`` are not compared. Nodes at the positions ``skipped``, and nodes that depend on these,
    are not compared either.
    """
    errors = {id(node): error for node, error in runs.failed}
    found: list[FoundDifference] = []
    tainted: set[int] = set()
    for position, node in enumerate(original.nodes):
        if position in skipped or any(id(x) in tainted for x in node.inputs if x is not None):
            tainted.update(id(y) for y in node.outputs)
            continue
        why = next(filter(None, (_difference(runs, y, counterpart[id(y)], errors, layout, batch) for y in node.outputs)), "")
        if why:
            found.append(FoundDifference(position, f"run with {runs.size} samples, {why}"))
            tainted.update(id(y) for y in node.outputs)
    return found


def _difference(
    runs: Runs, y: Value, other: Value, errors: Mapping[int, DovetailError], layout: Mapping[int, Axes], batch: int
) -> str:
    error = errors.get(id(other.node))
    if error is not None:
        return f"the node fails: {error.diagnostics[0].message}"
    array = runs.arrays.get(id(other))
    references = [values[id(y)] for values in runs.references if id(y) in values]
    if id(other) not in layout or not isinstance(array, np.ndarray) or len(references) != len(runs.references):
        return ""
    row = compare_samples("", references, array, layout[id(other)], batch, runs.size)
    if row.agrees:
        return ""
    return f"a sample differs by {row.absolute:.3g} from the original" if row.why in ("", "not equal") else row.why


class FoundDifference(NamedTuple):
    """FoundDifference is a node whose result differs: its position in the original graph, and a description of the difference."""

    position: int
    why: str


def _take_chunk(array: np.ndarray[Any, Any], axes: Axes, size: int, chunk: Sequence[int]) -> Any:
    for pair in axes:
        array = np.concatenate([take_samples(array, [pair], size, index, index + 1) for index in chunk], pair[0])
    return array


def _run_nodes(
    graph: Graph, inputs: Mapping[str, Any], noise: Mapping[int, Any], until: Node | None = None
) -> tuple[dict[int, Any], list[tuple[Node, DovetailError]]]:
    """Run the nodes before ``until`` in the interpreter. Returns all values by id, and the failing nodes with their errors.

    Values that depend on failing nodes are left out.
    """
    failed = []
    known = ((id(value), inputs[value.name]) for value in graph.inputs if value.name in inputs)
    with RunArrays(known) as arrays:
        for node in graph.nodes:
            if node is until:
                break
            if any(x is not None and id(x) not in arrays for x in node.inputs):
                continue
            current().check_time()
            try:
                ys = evaluate_node(node, np, [None if x is None else arrays[id(x)] for x in node.inputs])
                arrays.store(node, [noise.get(id(y), array) for y, array in zip(node.outputs, ys, strict=False)])
            except DovetailError as error:
                failed.append((node, error))
    return arrays, failed
