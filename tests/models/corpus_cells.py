"""Questions about one model of the corpus: ``python -m models.corpus_cells CORPUS_FOLDER ID [CELL ...]`` in the folder tests.

The corpus is a folder of model files with inputs and other engines' outputs beside them, and an index of records (its README
says more). A record may have an ONNX file, an IR file or both. Each cell is one question of the record.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import dovetail
from dovetail.compare.verification.conversion import compare, runner_for
from dovetail.formats import load
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.types import Tensor
from dovetail.report.model_summary import all_nodes
from models.worker import Answer, Unfilled, answer, ask, parse_arguments, short

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Record:
    """One record of the index: its files, its inputs and what others made of them."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder, self.facts, self.id = folder, facts, facts["id"]

    def path(self, suffix: str) -> Path | None:
        path = self.folder / f"{self.id}{suffix}"
        return path if path.exists() else None

    def arrays(self, suffix: str) -> dict[str, np.ndarray[Any, Any]] | None:
        path = self.path(suffix)
        if path is None:
            return None
        with np.load(path) as stored:
            return {name: stored[name] for name in stored.files}

    @property
    def models(self) -> list[Path]:
        return [path for path in map(self.path, (".onnx", ".xml")) if path is not None]

    @functools.cache  # noqa: B019 (a record lives as long as its process)
    def reference(self, source: Path, size: str = "") -> Arrays | None:
        """Return the outputs of the file's engine, or of the other one where that cannot run the model.

        OpenVINO's results at second sizes are not stored: its IR may hold weights of less precision than the ONNX file, so that
        it is asked itself.
        """
        if size and source.suffix == ".xml":
            return runner_for(source, "openvino").run(feed(load(source), self.arrays(f".in{size}.npz") or {}))
        first, second = self.arrays(f".ref{size}.npz"), self.arrays(f".ovref{size}.npz")
        own, other = (first, second) if source.suffix == ".onnx" else (second, first)
        return other if own is None else own

    @functools.cached_property
    def tolerance(self) -> float:
        """As a share of the largest magnitude. Where low precision makes engines differ by more than rounding, three times as
        far as the two references are from each other."""
        first, second = self.arrays(".ref.npz"), self.arrays(".ovref.npz")
        allowed = float(self.facts["tolerance"])
        if not self.facts["lowp"] or first is None or second is None:
            return allowed
        rows = compare(first, dict(zip(first, second.values(), strict=True)))
        return max(allowed, 3 * max(row.relative for row in rows))

    def judge(self, source: Path, found: Arrays, size: str = "") -> None:
        """Raises Unfilled where ``found``, whose names may differ, is not what the references hold."""
        reference = self.reference(source, size)
        if reference is None:
            raise Unfilled("no engine has a reference for it")
        if len(reference) != len(found):
            raise Unfilled(f"{len(found)} outputs, not {len(reference)}")
        named = dict(zip(reference.keys(), map(np.asarray, found.values()), strict=True))
        reference = _stored(reference, named)
        if self.facts.get("unstable_reference"):
            # The model draws random numbers: values say nothing.
            reference = {name: np.zeros_like(array) for name, array in reference.items()}
            named = {name: np.zeros_like(array) for name, array in named.items()}
        for row in compare(reference, named, self.tolerance):
            if not row.agrees:
                raise Unfilled(f"{row.output}: {row.why or f'{row.relative:.2g} away, {row.tolerance:.2g} allowed'}")


def records(folder: Path) -> list[Record]:
    """All records of a corpus."""
    return [Record(folder, facts) for facts in json.loads((folder / "index.json").read_text(encoding="utf-8"))]


def feed(model: Model, arrays: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Return the stored inputs by the model's names; a file that names them otherwise has them in the stored order."""
    names = [(value.name, *value.names) for value in model.inputs]
    known = [next((name for name in each if name in arrays), None) for each in names]
    if None in known:
        known = list(arrays)
    return {value.name: arrays[str(name)] for value, name in zip(model.inputs, known, strict=True)}


def _stored(reference: Arrays, found: Arrays) -> Arrays:
    """Return the references as the results have them: OpenVINO's bf16 is stored as f16 of the same bits."""
    return {
        name: array.view(ml_dtypes.bfloat16)
        if np.asarray(made).dtype == ml_dtypes.bfloat16 and array.dtype == np.float16
        else array
        for (name, array), made in zip(reference.items(), found.values(), strict=True)
    }


# The cells


def loads(record: Record) -> None:
    """Both files load, and no operator in them is unknown."""
    for path in record.models:
        foreign = sorted({str(node.op) for node in all_nodes(load(path).graph) if type(node.op).__name__ == "Foreign"})
        if foreign:
            raise Unfilled(f"no rule for {', '.join(foreign)}")


def infers(record: Record) -> None:
    """Element type and rank of every value are known without running, and the outputs' sizes are those of the references."""
    for path in record.models:
        model = load(path)
        for node in all_nodes(model.graph):
            for y in node.outputs:
                if isinstance(y.type, Tensor) and (y.type.dtype is None or y.type.shape is None):
                    raise Unfilled(f"{path.suffix}: {y.name} of {type(node.op).__name__} is {y.type}")
        reference = record.reference(path)
        for value, array in zip(model.outputs, (reference or {}).values(), strict=False):
            check_sizes(value, array.shape, sizes_of(model, feed(model, record.arrays(".in.npz") or {})))


def sizes_of(model: Model, given: Arrays) -> dict[str, int]:
    """Return the symbols of the inputs as these have them."""
    pairs = [
        pair for x in model.inputs if isinstance(x.type, Tensor)
        for pair in zip(x.type.shape or (), given[x.name].shape, strict=True)
    ]  # fmt: skip
    return {str(symbolic.name_of(size)): number for size, number in pairs if not isinstance(size, int) and symbolic.name_of(size)}


def check_sizes(value: Value, shape: tuple[int, ...], known: Mapping[str, int]) -> None:
    sizes = value.dims
    for size, number in zip(sizes, shape, strict=True):
        if {str(symbolic.name_of(symbol)) for symbol in symbolic.symbols(size)} <= set(known) and symbolic.evaluate(
            size, known
        ) != number:
            raise Unfilled(f"{value.name} is inferred as {value.type}, and is {list(shape)}")


def runs(record: Record, engine: str, size: str = "") -> None:
    """Both files, run by us, give what the references hold."""
    arrays = record.arrays(f".in{size}.npz") or {}
    for path in record.models:
        model = load(path)
        record.judge(path, dovetail.run(model, feed(model, arrays), engine=engine), size)


def runs_at_other_sizes(record: Record) -> bool | None:
    """Return the same at sizes that the exporter did not see, by the interpreter and natively."""
    if record.path(".in2.npz") is None:
        return False
    for engine in ("interpreter", "native"):
        runs(record, engine, "2")
    return None


def converts(record: Record, suffix: str, runtime: str) -> bool | None:
    """``dovetail convert --verify`` agrees on random inputs; then the other engine, given what we wrote and the stored inputs,
    makes what the references hold, at each size that is stored."""
    source = record.path(".onnx" if suffix == ".xml" else ".xml")
    if source is None:
        return False
    with tempfile.TemporaryDirectory(prefix="dovetail-corpus-") as folder:
        target = Path(folder) / f"converted{suffix}"
        # Random numbers cannot be compared, which --verify says by its exit code.
        verify = () if record.facts.get("unstable_reference") else ("--verify", "--tolerance", str(record.tolerance))
        _command("convert", str(source), str(target), *verify)
        model = load(source)
        runner = runner_for(target, runtime)
        for size in ("", "2"):
            arrays = record.arrays(f".in{size}.npz")
            if arrays is not None:
                record.judge(source, runner.run(feed(model, arrays)), size)
    return None


def _command(*arguments: str) -> None:
    """Run a command as a user gives it; its output is the reason where it does not end well."""
    from dovetail.cli import main

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(list(arguments))
    except SystemExit as end:
        if end.code:
            raise Unfilled(f"dovetail {arguments[0]}: exit code {end.code}: {short(said.getvalue())}") from None


CELLS = {
    "load": loads,
    "infer": infers,
    "interpreter": functools.partial(runs, engine="interpreter"),
    "native": functools.partial(runs, engine="native"),
    "second sizes": runs_at_other_sizes,
    "to IR": functools.partial(converts, suffix=".xml", runtime="openvino"),
    "to ONNX": functools.partial(converts, suffix=".onnx", runtime="onnxruntime"),
}


def fill(record: Record, cell: str) -> Answer:
    found = answer(CELLS[cell], record)
    if found.reason and not any(record.path(suffix) for suffix in (".ref.npz", ".ovref.npz")):
        return Answer(f"{found.reason}; neither onnxruntime nor OpenVINO has a reference for it")
    return found


def main() -> None:
    folder, name, seconds, cells = parse_arguments(sys.argv[1:], CELLS)
    record = next(each for each in records(Path(folder)) if each.id == name)
    ask(cells, lambda cell: fill(record, cell), seconds)


if __name__ == "__main__":
    main()
