"""dovetail.compare_layers: every value of a model in several engines."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from dovetail.compare.arrays import Deviation, deviation_of, missing, tolerance_for
from dovetail.compare.f64_run import magnitude_of, run_wide, wide
from dovetail.compare.values.array_store import ArrayStore
from dovetail.compare.values.correspondence import match_inputs, match_values
from dovetail.compare.values.engines import check_engines, installed_engines, release_memory, run_part, warm_up
from dovetail.compare.values.layer_comparison import Column, LayerComparison, ValueRow
from dovetail.compare.values.memory_budget import Slice, slices_within
from dovetail.compare.values.subject import Subject, cast_to
from dovetail.compare.verification.conversion import ROUNDING, is_followed, random_outputs
from dovetail.errors import DovetailError, EngineError, RuleError
from dovetail.formats import load
from dovetail.ir.evaluate import evaluate_node
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import unknown_input
from dovetail.ir.layer_names import Layers
from dovetail.ir.limits import counting, current, within_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor
from dovetail.runtime.compilation import compile, precision_of
from dovetail.runtime.interpreter.session import InitialStates
from dovetail.runtime.random_inputs import Inputs, random_inputs, sizes_in
from dovetail.runtime.releases.workers import release_workers
from dovetail.runtime.special_inputs import EXTREMES, NOT_FINITE, TIES, special_inputs

MAX_REFUSALS = 64
"""Maximum number of single nodes that an engine may refuse before the rest of its column is left out."""


@check_keywords
def compare_layers(
    model: Model | str | PathLike[str],
    *,
    engines: Sequence[str] | None = None,
    other: Model | str | PathLike[str] | None = None,
    inputs: Mapping[str, Any] | Inputs | None = None,
    memory: int | None = None,
    tolerance: float | None = None,
    values: Collection[str] | None = None,
    threads: int | None = None,
    precision: str | None = None,
) -> LayerComparison:
    """Compare every value of ``model`` in ``engines`` with its value in the first engine, the reference, by depth.

    ``engines`` are "interpreter", "native", "onnxruntime", "openvino" and releases such as "onnxruntime==1.20.1", the reference
    first; the default is all installed engines. With a second model ``other``, the reference runs ``model``, and the later
    engines run ``other``. A single engine runs both models, and without ``engines`` each installed engine runs ``other``. Values
    are matched by name, else by their computation.

    ``inputs`` are arrays by name, or :class:`dovetail.Inputs`; inputs without an array are random. ``values`` are the names of
    the values to compare; the default is all. With ``other`` the outputs of both models are also compared for random inputs with
    NaN, infinities, ties and extremes. Floats that differ by one rounding of the largest input of their node agree, with a note.
    ``precision`` is the option of :func:`compile` for the native engines that are compared, but not for the reference; "bf16" is
    a hint for OpenVINO too. With "bf16" or "int8" the default ``tolerance`` is 4 ulp of bf16.

    Each engine continues with the values that it has computed. Compared values are outputs of a part of the graph, across which
    an engine cannot fuse operators. ``memory`` limits the bytes of the process: the parts are then slices, and values that later
    slices read are files in a private folder. If an engine refuses a part, the part is halved down to the refused node, after
    which the engine continues with the reference's values.

    Raises EngineError [argument.value], UnsupportedError [runtime.missing], RuleError [input.unknown], [name.unknown], and the
    errors of :func:`load` and, for the reference, of :func:`run`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.compare_layers(b.model, engines=["interpreter", "native"], inputs={"x": np.ones((3, 2), np.float32)}).agrees
    True
    """
    names = installed_engines() if engines is None else list(engines)
    if not names:
        raise EngineError("argument.value", "a comparison needs two engines, got none")
    check_engines(names)
    precision = precision_of(precision)
    tolerance = tolerance_for(precision) if tolerance is None else tolerance
    base = names[0]
    chosen = dict.fromkeys(names if other is None or engines is None or len(names) == 1 else names[1:])
    first = model if isinstance(model, Model) else load(model)
    second = None if other is None else other if isinstance(other, Model) else load(other)
    columns = [
        Column(f"{engine} (other)" if second is not None else engine, engine, second is not None)
        for engine in chosen
        if second is not None or engine != base
    ]
    if not columns:
        raise EngineError("argument.value", f"a comparison needs an engine other than the reference {base}, got none")
    with counting(first.limits), within_memory("the comparison", first.file), release_workers():
        given = Inputs.of(inputs)
        arrays = complete_inputs(first, given)
        with tempfile.TemporaryDirectory(prefix="dovetail-compare-") as folder:
            run = _Run(first, second, arrays, base, columns, folder, memory, tolerance, values, threads, precision)
            rows = run.rows()
            if second is not None and values is None and not is_differing(rows) and tolerance_for(precision) is None:
                drawn = [x.name for x in first.inputs if x.name not in given.arrays] if given.varied is None else given.varied
                rows += special_rows(first, second, arrays, drawn, columns)
    return LayerComparison(
        first.title, base, tuple(columns), rows, tolerance, run.slices, tuple(run.notes), given.seed
    )  # fmt: skip


def complete_inputs(model: Model, inputs: Inputs) -> dict[str, Any]:
    """Return arrays for all inputs: passed arrays, random arrays of distinct sizes, and initial states."""
    aliases = {alias: value.name for value in model.inputs for alias in value.names}
    arrays = {aliases.get(name, name): array for name, array in inputs.arrays.items()}
    known = {value.name for value in model.inputs}
    unknown = [name for name in arrays if name not in known]
    if unknown:
        raise unknown_input(unknown, [value.name for value in model.inputs])
    states = {state.input for state in model.states}
    lacking = [value.name for value in model.inputs if value.name not in arrays and value.name not in states]
    if lacking:
        given = {name: array.shape for name, array in arrays.items() if isinstance(array, np.ndarray)}
        sizes = {**sizes_in(model, given), **(inputs.sizes or {})}
        arrays |= random_inputs(
            model, seed=inputs.seed, sizes=sizes, shapes=inputs.shapes, only=lacking, beside=arrays or None, distinct=True
        )  # fmt: skip
    return {**InitialStates(model)(arrays), **arrays} if model.states else arrays


def inputs_of_other(first: Model, second: Model, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of the second model: the input arrays of the first model, cast to the second model's types."""
    values = {value.name: value for value in second.inputs}
    found = {name: cast_to(values[name], arrays[source]) for name, source in match_inputs(first, second).items()}
    missing_states = {state.input for state in second.states} - found.keys()
    return {**InitialStates(second)(found), **found} if missing_states else found


def is_differing(rows: Sequence[ValueRow]) -> bool:
    return any(not row.agrees for row in rows)


def special_rows(
    first: Model, second: Model, arrays: Mapping[str, Any], varied: Collection[str], columns: Sequence[Column]
) -> list[ValueRow]:
    """Return a row for each output that differs between both models for special inputs, when dovetail runs both."""
    rows: list[ValueRow] = []
    if first.states or second.states or random_outputs(first):
        return rows
    for kind in (NOT_FINITE, TIES, EXTREMES):
        sample = special_inputs(first, arrays, kind, only=varied)
        if sample is None:
            continue
        try:
            reference, exact = dict(compile(first)(sample)), run_wide(first, sample)
            found = dict(compile(second)(inputs_of_other(first, second, sample)))
        except DovetailError:
            continue
        for y in first.outputs:
            other, x = found.get(y.name), reference[y.name]
            if (
                isinstance(x, np.ndarray)
                and isinstance(other, np.ndarray)
                and not is_followed(x, other, exact[y.name], None, is_strict=True)
            ):
                cell = Deviation(np.inf, np.inf, None, False, f"{kind}: not what the first model gives")
                kind_of_node = "" if y.node is None else type(y.node.op).__name__
                label = "" if y.node is None else y.node.label
                dtype = str(y.type.dtype) if isinstance(y.type, Tensor) else str(y.type)
                rows.append(ValueRow(0, label, kind_of_node, y.name, dtype, x.shape, tuple(cell for _ in columns), True))
    return rows


class _Run:
    """_Run is one comparison: it runs the reference, and a column for each engine, slice by slice."""

    def __init__(
        self,
        first: Model,
        second: Model | None,
        arrays: Mapping[str, Any],
        base: str,
        columns: Sequence[Column],
        folder: str,
        memory: int | None,
        tolerance: float | None,
        values: Collection[str] | None,
        threads: int | None,
        precision: str | None,
    ) -> None:
        self.subject = Subject(first, arrays)
        self.other = None if second is None else Subject(second, inputs_of_other(first, second, arrays))
        self.match = None if self.other is None else match_values(self.subject, self.other)
        by_last_reader = sorted((self.match or {}).items(), key=lambda pair: self.subject.last_reader(pair[0]))
        self._references = {id(own): key for key, own in by_last_reader}
        self._random = {id(self.subject.nodes[position]) for position in self.subject.draws}
        self.base, self.columns, self.folder = base, columns, folder
        self.tolerance, self.threads, self.is_sliced = tolerance, threads, memory is not None
        self.precision = precision
        self.wanted = self._select_values(values)
        spill = folder if memory is not None else None
        self.reference = ArrayStore(spill)
        self.stores = [ArrayStore(spill) for _ in columns]
        self.refusals = [0] * len(columns)
        if self.is_sliced:
            warm_up([base, *(column.engine for column in columns)], folder)
        self.row_slices, notes = slices_within(self.subject, memory)
        self.slices = len(self.row_slices)
        self.notes = [*notes, *self._first_notes()]

    def _first_notes(self) -> list[str]:
        found = []
        if any(column.engine != "interpreter" for column in self.columns):
            found.append("every compared value is an output of its part, so that engines do not fuse operators across it")
        if self.subject.draws:
            found.append("random operators run only in the reference; the other engines use its numbers")
        if self.match is not None and self.other is not None:
            taken = {id(value) for value in self.match.values()}
            extra = [y for y in self.other.values_of(0, len(self.other.nodes)) if id(y) not in taken]
            if extra:
                found.append(f"{len(extra)} values of the second model have no counterpart in the first, such as {extra[0].name}")
        return found

    def _select_values(self, values: Collection[str] | None) -> set[int] | None:
        if values is None:
            return None
        every = self.subject.values_of(0, len(self.subject.nodes))
        known = {name: value for value in every for name in (*value.names, value.name)}
        computed, layers = {id(value) for value in every}, Layers(self.subject.model.graph)
        for name in values:
            value = None if name in known else layers.value_of(name)
            if value is not None and id(value) in computed:
                known[name] = value
        unknown = [name for name in values if name not in known]
        if unknown:
            raise RuleError("name.unknown", f"the model computes no value {', '.join(map(repr, unknown))}")
        return {id(known[name]) for name in values}

    def rows(self) -> list[ValueRow]:
        rows: list[ValueRow] = []
        for part in self.row_slices:
            rows += self._slice_rows(part)
            self.reference.keep_only(self.subject.needed_after(self.reference.identities(), part.stop))
            for index, store in enumerate(self.stores):
                counterparts = {key: self._counterpart(index, key) for key in store.identities()}
                kept = self.subject.needed_after(counterparts.values(), part.stop)
                store.keep_only({key for key, counterpart in counterparts.items() if counterpart in kept})
        rows.sort(key=lambda row: row.depth)
        return rows

    def _counterpart(self, index: int, key: int) -> int:
        """Return the id of the reference's value for the id of a column's value."""
        return self._references[key] if self.columns[index].is_other else key

    def _own(self, index: int, value: Value) -> Value | None:
        """Return the column's value that corresponds to a value of the reference; None if there is none."""
        return value if self.match is None or not self.columns[index].is_other else self.match.get(id(value))

    def _slice_rows(self, part: Slice) -> list[ValueRow]:
        values = [
            value
            for value in self.subject.values_of(part.start, part.stop)
            if self.wanted is None
            or id(value) in self.wanted
            or id(value.node) in self._random
            or self.subject.is_read_after(value, part.stop)
        ]
        found = run_part(self.base, self.subject.part(values, self.reference), self.folder, self.threads) if values else []
        arrays = {id(value): array for value, array in zip(values, found, strict=True)}
        for value in values:
            if self.subject.is_read_after(value, part.stop):
                self.reference.store(id(value), arrays[id(value)])
        del found
        cells: dict[int, list[Deviation]] = {id(value): [] for value in values}
        for index in range(len(self.columns)):
            current().check_time()
            if self.is_sliced:
                release_memory()
            for value, cell in zip(values, self._column(index, part, values, arrays), strict=True):
                cells[id(value)].append(cell)
        outputs = {id(value) for value in self.subject.model.outputs}
        return [
            self._row(value, arrays[id(value)], tuple(cells[id(value)]), id(value) in outputs)
            for value in values
            if self.wanted is None or id(value) in self.wanted
        ]

    def _row(self, value: Value, array: Any, cells: tuple[Deviation, ...], is_output: bool) -> ValueRow:
        node = value.node
        assert node is not None
        shape = tuple(map(int, array.shape)) if isinstance(array, np.ndarray) else None
        dtype = str(value.type.dtype) if isinstance(value.type, Tensor) else str(value.type)
        return ValueRow(
            self.subject.depths[id(value)], node.label, type(node.op).__name__, value.name, dtype, shape, cells, is_output
        )  # fmt: skip

    def _column(self, index: int, part: Slice, values: Sequence[Value], arrays: Mapping[int, Any]) -> list[Deviation]:
        """Run a slice in a column, and compare its values with the reference's ``arrays``."""
        for value in self._drawn_in(part):
            own = self._own(index, value)
            if own is not None and id(value) in arrays:
                self.stores[index].store(id(own), cast_to(own, arrays[id(value)]))
        found: dict[int, Deviation] = {id(value): missing("random: not compared") for value in self._drawn_in(part)}
        self._run_column(index, part, part.stop, values, arrays, found)
        return [found[id(value)] for value in values]

    def _drawn_in(self, part: Slice) -> list[Value]:
        """Return the values of the random operators of a slice."""
        return [y for node in self.subject.nodes[part.start : part.stop] if id(node) in self._random for y in node.outputs]

    def _run_column(
        self,
        index: int,
        part: Slice,
        stop: int,
        values: Sequence[Value],
        arrays: Mapping[int, Any],
        found: dict[int, Deviation],
    ) -> None:
        """Run a slice in a column; a slice that the engine refuses is halved, down to the nodes that the engine refuses."""
        inside = {id(y) for node in self.subject.nodes[part.start : part.stop] for y in node.outputs}
        pairs = [(value, self._own(index, value)) for value in values if id(value) in inside]
        for value, own in pairs:
            if own is None:
                found[id(value)] = missing("no such value in the second model")
        present = [(value, own) for value, own in pairs if own is not None and id(own) not in self.stores[index]]
        if not present:
            return
        if self.refusals[index] > MAX_REFUSALS:
            self._refuse(index, present, arrays, found, f"left out after {MAX_REFUSALS} refused operators")
            return
        subject = self.other if self.columns[index].is_other and self.other is not None else self.subject
        try:
            piece = subject.part([own for _, own in present], self.stores[index])
            results = run_part(self.columns[index].engine, piece, self.folder, self.threads, self.precision)
        except DovetailError as error:
            if error.code == "run.time":
                raise
            if part.stop - part.start > 1:
                middle = (part.start + part.stop) // 2
                self._run_column(index, Slice(part.start, middle), part.stop, values, arrays, found)
                self._run_column(index, Slice(middle, part.stop), part.stop, values, arrays, found)
                return
            self.refusals[index] += 1
            self._refuse(index, present, arrays, found, f"[{error.code}] {error.message}")
            return
        for (value, own), array in zip(present, results, strict=True):
            found[id(value)] = deviation_of(
                arrays[id(value)],
                array,
                self.tolerance,
                types_may_differ=self.columns[index].is_other,
                minimum=max(self.subject.tolerances.get(id(value), 0.0), subject.tolerances.get(id(own), 0.0)),
            )
            if self.tolerance is None:
                found[id(value)] = self._judge(index, value, found[id(value)], arrays)
            if self.subject.is_read_after(value, part.stop):
                self.stores[index].store(id(own), array)

    def _judge(self, index: int, value: Value, cell: Deviation, arrays: Mapping[int, Any]) -> Deviation:
        """Accept floats that differ by one rounding of the largest input of their node; a note gives their distances."""
        node = value.node
        if cell.agrees or cell.why or cell.is_missing or cell.ulp is None or node is None:
            return cell
        xs: list[Any] = []
        for x in node.inputs:
            known = x is None or x.constant is not None or id(x) in arrays or id(x) in self.subject.inputs
            if not known:
                return cell
            xs.append(None if x is None else x.constant if x.constant is not None else self._array(x, arrays))
        largest = max((magnitude_of(x) for x in (*xs, arrays[id(value)]) if x is not None), default=0.0)
        if not cell.absolute <= ROUNDING * largest:
            return cell
        try:
            exact = evaluate_node(node, np, [None if x is None else wide(np.asarray(x)) for x in xs])[value.index]
        except DovetailError:
            return cell
        theirs = deviation_of(exact, arrays[id(value)]).absolute
        self.notes.append(
            f"{value.name}: {self.columns[index].name} is {cell.absolute:.2g} away from {self.base}, which is {theirs:.2g} away "
            f"from f64; inputs reach {largest:.2g}"
        )
        return replace(cell, agrees=True)

    def _array(self, x: Value, arrays: Mapping[int, Any]) -> Any:
        return arrays[id(x)] if id(x) in arrays else self.subject.inputs[id(x)]

    def _refuse(
        self,
        index: int,
        present: Sequence[tuple[Value, Value]],
        arrays: Mapping[int, Any],
        found: dict[int, Deviation],
        why: str,
    ) -> None:
        for value, own in present:
            found[id(value)] = missing(why)
            self.stores[index].store(id(own), cast_to(own, arrays[id(value)]))
