"""Questions about one model of the zoo: ``python -m models.zoo_cells ZOO_FOLDER ID [CELL ...]`` in the folder tests.

The zoo is a folder of ONNX files, of inputs for one or two sets of sizes, and an index that names them; ``make zoo`` fills it.
Nothing is stored of other engines: they are asked too. Where two engines differ, the interpreter with f64 in place of every
smaller float says who is nearer.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dovetail
from dovetail.compare.f64_run import run_wide, wide
from dovetail.compare.verification.conversion import compare, random_outputs
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import load, save
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.types import Tensor
from dovetail.laws.ranks import has_open_rank, specialize_ranks
from dovetail.measure.benchmark import measure
from dovetail.report.model_summary import all_nodes
from dovetail.runtime.peers import Names, runner
from models.corpus_cells import check_sizes, sizes_of
from models.worker import Answer, PeersFault, Unfilled, answer, ask, parse_arguments

Arrays = dict[str, Any]
SIZES = ("", "2")
OPSETS = (-2, -1, 1, 2)
NEWEST_OPSET = 25
"""The newest that all of the peers read."""
UNASKED = ("node.name",)
"""Rules of ONNX's own document that its checker does not test: names of nodes differ."""
PEERS = ("onnxruntime", "openvino")
QUANTISED = 3
"""How many times as far from an f64 run as another engine we may be where both round to a grid."""
STEP = 1 / 255
"""The difference that one rounding the other way makes on a grid of 8 bits."""
SLOPE = 1e-3
"""The difference allowed between two ways to a slope, as a share of it."""
STEPS = (1e-4, 1e-6, 1e-8)
"""Of central differences, as shares of the inputs: the smaller one meets fewer bends, the larger one loses fewer digits."""


class Record:
    """One model: its file, its inputs, and what each engine makes of them."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder, self.facts, self.id = folder, facts, facts["id"]
        self.path = folder / facts["file"]
        self._results: dict[tuple[str, str], Arrays | DovetailError] = {}

    @property
    def model(self) -> Model:
        return load(self.path)

    def has(self, size: str) -> bool:
        return self._stored(size).exists()

    def _stored(self, size: str) -> Path:
        return self.folder / self.facts["inputs"].format(size)

    @functools.cache  # noqa: B019 (a record lives as long as its process)
    def inputs(self, size: str = "") -> Arrays:
        with np.load(self._stored(size)) as stored:
            return {name: _plain(stored[name]) for name in stored.files}

    def results(self, engine: str, size: str = "") -> Arrays:
        """Return an engine's results on the file. Raises PeersFault where another's engine fails."""
        key = (engine, size)
        if key not in self._results:
            try:
                self._results[key] = flat(self._run(engine, self.inputs(size)))
            except DovetailError as error:
                self._results[key] = error
        found = self._results[key]
        if not isinstance(found, DovetailError):
            return found
        if engine in PEERS:
            raise PeersFault(found.message)
        raise found

    def _run(self, engine: str, inputs: Arrays) -> Arrays:
        if engine in ("native", "interpreter"):
            return dict(dovetail.run(self.model, inputs, engine=engine))
        if engine == "f64":
            return run_wide(self.model, inputs)
        return peer(engine, self.path, self.model)(inputs)

    def judge(self, found: Arrays, engine: str, size: str = "", of: str = "") -> str | None:
        """Judge ``found``: within the tolerance of the results of ``engine``, or no further than these from an f64 run.

        ``found`` are our results, or those of the engine ``of`` on the file that we wrote. Returns a note, None where no output
        needs one. Raises Unfilled.
        """
        reference = self.results(engine, size)
        if len(reference) != len(found):
            raise Unfilled(f"{len(found)} outputs, {engine} has {len(reference)}")
        named = dict(zip(reference, found.values(), strict=True))
        rows = [row for row in compare(reference, named, random=random_outputs(self.model)) if not row.agrees]
        notes = [self._nearer(row, reference[row.output], named[row.output], engine, size, of) for row in rows]
        return "; ".join(notes) or None

    def _nearer(self, row: Any, reference: Any, found: Any, engine: str, size: str, of: str) -> str:
        text = f"{row.output}: " + (row.why or f"{row.relative:.2g} from {engine}, {row.tolerance:.2g} allowed")
        if row.why.startswith(("shape", "type", "missing")):
            others = [other for other in PEERS if other != engine and self._agrees(found, row.output, other, size)]
            if others and not of:
                raise PeersFault(f"{text}, {engine} has {reference.dtype}{list(reference.shape)}; {others[0]} agrees with us")
            raise Unfilled(text)
        try:
            exact = dict(zip(self.results(engine, size), self.results("f64", size).values(), strict=True))[row.output]
        except (DovetailError, ValueError) as error:
            raise Unfilled(f"{text}; no f64 run says who is nearer: {error}") from None
        ours, theirs = distance(exact, found), distance(exact, reference)
        text += f"; from an f64 run: {of or 'ours'} {ours:.2g}, {engine} {theirs:.2g}"
        allowed = max(theirs * QUANTISED, STEP) if self.is_quantised else theirs
        if ours > max(allowed, row.tolerance):
            raise Unfilled(text)
        return text

    def _agrees(self, found: Any, output: str, engine: str, size: str) -> bool:
        """Return whether another engine makes the same of an output."""
        try:
            reference = self.results(engine, size)
        except PeersFault:
            return False
        return output in reference and all(row.agrees for row in compare({"": reference[output]}, {"": found}))

    @functools.cached_property
    def is_quantised(self) -> bool:
        """Return whether the model rounds to a grid as it runs: a rounding one way or the other is then a whole step."""
        return any("Quantize" in type(node.op).__name__ for node in all_nodes(self.model.graph))


def flat(arrays: Mapping[str, Any]) -> Arrays:
    """Outputs by name; what lies in lists and in dictionaries by their names and keys."""
    found: Arrays = {}
    for name, item in flatten_outputs(arrays).items():
        if isinstance(item, Mapping):
            found.update({f"{name}/{key}": np.asarray(each) for key, each in item.items()})
        else:
            found[name] = np.asarray(item)
    return found


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Text as the engines want it; numpy stores it with a length."""
    return array.astype(object) if array.dtype.kind in "US" else array


def distance(exact: Any, found: Any) -> float:
    """Return the largest difference as a share of the largest magnitude.

    Of what is no float, the share of elements that differ.
    """
    first, second = np.asarray(exact), np.asarray(found)
    if first.dtype.kind not in "fc":
        return float(np.mean(first != second)) if first.size else 0.0
    rows = compare({"": first}, {"": second.astype(first.dtype)}, np.inf)
    return float(np.nan_to_num(max(row.relative for row in rows), nan=np.inf))


def peer(engine: str, path: Path, model: Model) -> Any:
    """Return a function of inputs by name that runs a file in another engine. Raises EngineError where it refuses the model."""
    names = Names([x.name for x in model.inputs], [y.name for y in model.outputs]) if engine == "openvino" else None
    return runner(engine, str(path), names=names, exact=True).run


def records(folder: Path) -> list[Record]:
    """All models of a zoo."""
    return [Record(folder, facts) for facts in json.loads((folder / "index.json").read_text(encoding="utf-8"))]


def counted(items: Iterable[str]) -> str:
    return ", ".join(f"{count} {item}" for item, count in sorted(Counter(items).items()))


# The cells


def loads(record: Record) -> str:
    """Load the file, in which no operator is unknown."""
    nodes = list(all_nodes(record.model.graph))
    foreign = sorted({str(node.op) for node in nodes if type(node.op).__name__ == "Foreign"})
    if foreign:
        raise Unfilled(f"no rule for {', '.join(foreign)}")
    return f"{len(nodes)} nodes"


def checks(record: Record) -> str:
    """Confirm each fault by onnx's checker or by onnxruntime's results; warnings are counted by code."""
    faults = dovetail.check(record.path)
    errors = [fault for fault in faults if fault.severity == "error" and fault.code not in UNASKED]
    if {fault.code for fault in errors} == {"type.declared"} and (ranks := _contradicted_ranks(record)):
        return f"{counted(fault.code for fault in faults)}; onnxruntime: {ranks}"
    if errors:
        try:
            onnx.checker.check_model(str(record.path), full_check=True)
        except Exception as error:
            return f"{counted(fault.code for fault in faults)}; onnx: {error}"
        raise Unfilled("; ".join(f"[{fault.code}] {fault.message}" for fault in errors))
    return counted(fault.code for fault in (*faults, *record.model.warnings))


def _contradicted_ranks(record: Record) -> str:
    """Return the outputs whose results in onnxruntime have another rank than declared.

    "" where an output has the declared one.
    """
    outputs = {y.name: y.type.tensor_type for y in onnx.load(record.path, load_external_data=False).graph.output}
    results = record.results("onnxruntime")
    texts = [
        f"{name} has rank {results[name].ndim}, declared {len(declared.shape.dim)}"
        for name, declared in outputs.items()
        if declared.HasField("shape") and results[name].ndim != len(declared.shape.dim)
    ]
    return ", ".join(texts) if len(texts) == len(outputs) else ""


def infers(record: Record) -> str | None:
    """Element type and rank of every value are known without running, and the outputs have the sizes inferred.

    Where an If has branches that differ in rank, the rank of what follows is the branch's: it has to be known in each of them.
    """
    model, graph, note = record.model, record.model.graph, None
    unknown = unknown_ranks(graph)
    if unknown and has_open_rank(graph):
        note = f"{len(unknown)} values behind an If of two ranks have each of them in one branch"
        graph = specialize_ranks(graph)
        unknown = unknown_ranks(graph)
    if unknown:
        raise Unfilled(f"{unknown[0].name} is {unknown[0].type}")
    try:
        reference = record.results("onnxruntime")
    except PeersFault:
        reference = record.results("interpreter")
    for value in graph.outputs:
        if isinstance(value.type, Tensor) and value.name in reference:
            check_sizes(value, reference[value.name].shape, sizes_of(model, record.inputs()))
    return note


def unknown_ranks(graph: Graph) -> list[Value]:
    """Return the tensors of a graph, bodies included, whose element type or rank is not known."""
    made = (y for node in all_nodes(graph) for y in node.outputs)
    return [y for y in made if isinstance(y.type, Tensor) and (y.type.dtype is None or y.type.shape is None)]


def native_is_interpreter(record: Record, size: str = "") -> str | None:
    return record.judge(record.results("native", size), "interpreter", size)


def is_peers(record: Record, engine: str, size: str = "") -> str | None:
    return record.judge(record.results("native", size), engine, size)


def runs_at_other_sizes(record: Record) -> bool | str | None:
    """Compare the native results with the interpreter and onnxruntime, at sizes that the exporter did not see."""
    if not record.has("2"):
        return False
    notes = [native_is_interpreter(record, "2"), is_peers(record, "onnxruntime", "2")]
    return "; ".join(note for note in notes if note) or None


def becomes_ir(record: Record) -> bool | str | None:
    """Check that OpenVINO runs the IR that we write, with the results of onnxruntime on the file.

    Where it does not, and our interpreter makes of the IR what onnxruntime makes of the file, OpenVINO is the reason.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-zoo-") as folder:
        path = Path(folder) / "converted.xml"
        _save_ir(record, path)
        try:
            return _judged(record, "openvino", path)
        except Unfilled as reason:
            for size in filter(record.has, SIZES):
                read_back = flat(dovetail.interpret(load(path), record.inputs(size)))
                record.judge(read_back, "onnxruntime", size, of="our interpreter, of the IR,")
            raise PeersFault(f"{reason}; our interpreter, of the IR, agrees with onnxruntime") from None


def comes_back(record: Record) -> bool | str | None:
    """That IR, loaded and written as ONNX, gives in onnxruntime what the file does."""
    with tempfile.TemporaryDirectory(prefix="dovetail-zoo-") as folder:
        there, back = Path(folder) / "converted.xml", Path(folder) / "back.onnx"
        _save_ir(record, there)
        save(load(there), back)
        return _judged(record, "onnxruntime", back)


def _save_ir(record: Record, path: Path) -> None:
    """Raises PeersFault where OpenVINO does not take the ONNX file either, which has no IR then."""
    try:
        save(record.model, path)
    except UnsupportedError as error:
        try:
            record.results("openvino")
        except PeersFault as refusal:
            raise PeersFault(f"{error}; OpenVINO of the ONNX file: {refusal}") from None
        raise


def _judged(record: Record, engine: str, path: Path) -> str | None:
    """Compare an engine's results on a file that we wrote with onnxruntime's on the source, or with our interpreter's."""
    try:
        record.results("onnxruntime")
        reference = "onnxruntime"
    except PeersFault:
        reference = "interpreter"
    run = peer(engine, path, load(path))
    sizes = [size for size in SIZES if record.has(size)]
    notes = [record.judge(flat(run(record.inputs(size))), reference, size, of=engine) for size in sizes]
    return "; ".join(note for note in notes if note) or None


def changes_opset(record: Record, steps: tuple[int, ...]) -> bool | str | None:
    """Written for a newer or older opset it gives in onnxruntime what it did. What an opset cannot say is refused by name."""
    record.results("onnxruntime")
    own = record.model.versions.get("", 0)
    notes, asked = [], False
    for opset in (own + step for step in steps):
        if not 7 <= opset <= NEWEST_OPSET:
            continue
        with tempfile.TemporaryDirectory(prefix="dovetail-zoo-") as folder:
            path = Path(folder) / "other.onnx"
            try:
                save(record.model, path, opset=opset)
            except UnsupportedError as error:
                notes.append(f"{opset}: {error}")
                continue
            asked = True
            note = _judged(record, "onnxruntime", path)
            notes.extend([f"{opset}: {note}"] if note else [])
    return ("; ".join(notes) or None) if asked or notes else False


def plans(record: Record) -> str:
    """Plan the model natively; return the bytes copied and the number of steps in Python."""
    facts = dovetail.plan(
        record.path, dovetail.Inputs(shapes={name: np.shape(x) for name, x in record.inputs().items()}), rounds=0
    )
    python = counted(step.kernel for step in facts.interpreted)
    copied = f"{facts.copied_bytes} of {facts.moved_bytes} bytes copied"
    return f"{copied}, {len(facts.interpreted)} of {len(facts.steps)} steps in Python" + (f" ({python})" if python else "")


def has_slopes(record: Record) -> bool | str | None:
    """Compare the gradients of the first float output, natively, with an f64 run, and these with slopes of differences."""
    model = record.model
    names = [x.name for x in model.inputs if _is_float(x)]
    outputs = [y for y in model.outputs if _is_float(y)]
    if not names or not outputs:
        return False
    name, inputs = outputs[0].name, record.inputs()
    try:
        made = dovetail.grad(model, of=name, wrt=names)
    except UnsupportedError as error:
        if {fault.code for fault in error.diagnostics} == {"grad.op"}:
            return False
        raise
    generator = np.random.default_rng(0)
    exact = run_wide(model, inputs)[name]
    weights = generator.standard_normal(exact.shape)
    seeds = {x.name: weights.astype(x.dtype.numpy) for x in made.inputs if x.name not in {x.name for x in model.inputs}}
    given = {**{x: inputs[x] for x in inputs if x in {value.name for value in made.inputs}}, **seeds}
    slopes = list(run_wide(made, given).values())[1:]
    for source, slope, found in zip(names, slopes, list(dovetail.run(made, given).values())[1:], strict=True):
        if _apart(slope, found) > SLOPE * 10:
            rounded = _apart(slope, dovetail.interpret(made, given)[f"grad:{source}"])
            if not _apart(slope, found) <= 3 * rounded:
                away = f"{_apart(slope, found):.2g} from that of an f64 run, the interpreter's {rounded:.2g}"
                raise Unfilled(f"the native gradient of {name} by {source} is {away}")
    return _difference(model, inputs, name, names, slopes, weights if seeds else np.ones(()), generator)


def _apart(exact: Any, found: Any) -> float:
    """As a whole, relative: where two elements differ in their last bits alone, one or the other of them is the largest."""
    return float(np.linalg.norm(exact - found) / max(np.linalg.norm(exact), np.finfo(np.float32).tiny))


def _difference(
    model: Model, inputs: Arrays, of: str, names: list[str], slopes: list[Any], weights: Any, generator: np.random.Generator
) -> str | None:
    """Holds the slope along a direction, half the gradient's own and half random, against central differences in f64, of which
    the best counts."""

    def unit(x: Any) -> Any:
        return x / max(np.linalg.norm(x), np.finfo(np.float32).tiny)

    sizes = {name: np.linalg.norm(wide(inputs[name])) or 1.0 for name in names}
    directions = {
        name: sizes[name] * (unit(g) + unit(generator.standard_normal(g.shape))) for g, name in zip(slopes, names, strict=True)
    }
    slope = sum(float(np.sum(g * directions[name])) for g, name in zip(slopes, names, strict=True))

    def along(step: float) -> float:
        moved = {**inputs, **{name: wide(inputs[name]) + step * d for name, d in directions.items()}}
        return float(np.sum(run_wide(model, moved)[of] * weights))

    rough = [(along(step) - along(-step)) / (2 * step) for step in STEPS]
    if min(abs(each - slope) for each in rough) > 10 * SLOPE * abs(slope):
        raise Unfilled(f"along one direction the slope of {of} is {slope:.6g}, differences give {rough}")
    return None


def _is_float(value: Any) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype.is_float


def takes(record: Record) -> str:
    """Our time beside the quicker peer's, with one thread. Information, never a reason."""
    rows = measure(record.model, str(record.path), record.inputs(), PEERS, 1, 7, memory=False)
    ours, *theirs = rows
    ratios = [(row.ratio, row.engine) for row in theirs if row.ratio is not None]
    if not ratios:
        return f"{ours.seconds or 0:.2g} s, no peer runs it"
    ratio, engine = max(ratios)
    return f"{ratio:.2f} of {engine}"


CELLS = {
    "load": loads,
    "check": checks,
    "infer": infers,
    "native": native_is_interpreter,
    "onnxruntime": functools.partial(is_peers, engine="onnxruntime"),
    "OpenVINO": functools.partial(is_peers, engine="openvino"),
    "sizes": runs_at_other_sizes,
    "to IR": becomes_ir,
    "and back": comes_back,
    "newer opset": functools.partial(changes_opset, steps=(1, 2)),
    "older opset": functools.partial(changes_opset, steps=(-1, -2)),
    "plan": plans,
    "gradient": has_slopes,
    "time": takes,
}


def fill(record: Record, cell: str) -> Answer:
    return answer(CELLS[cell], record)


def main() -> None:
    folder, name, seconds, cells = parse_arguments(sys.argv[1:], CELLS)
    record = next(each for each in records(Path(folder)) if each.id == name)
    ask(cells, lambda cell: fill(record, cell), seconds)


if __name__ == "__main__":
    main()
