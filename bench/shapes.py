"""Shape inference over a corpus: the share of values with a known rank and with every dimension known, beside other tools.

    python bench/shapes.py CORPUS_FOLDER [--models TEXT[,TEXT...]] [--page]

For each dynamic model: ours for ONNX and for IR, onnx.shape_inference (data_prop, strict_mode) and onnxruntime's
symbolic_shape_infer (auto_merge). A dimension is known where it is a number, or an expression over the symbols of the inputs. A
value is an output of a node of the file's main graph; one that ours has folded away counts as known. ``fresh`` counts dimensions
that ours names anew, at operators whose output size depends on data. ``checked`` counts expressions that were evaluated at the
sizes of the stored inputs and compared with the shapes of a run, at up to two sizes. Time is the median of three calls of each
tool interleaved, without reading the file. --page writes docs/shapes.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.types import Tensor

PAGE = Path(__file__).resolve().parent.parent / "docs" / "shapes.md"
TOOLS = ("ONNX", "IR", "onnx", "onnxruntime")
_FUNCTIONS = {"floor", "ceiling", "Max", "Min", "Mod"}


@dataclass
class Row:
    """Counts of one tool over one model."""

    values: int = 0
    ranked: int = 0
    known: int = 0
    fresh: int = 0
    checked: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""

    def add(self, other: Row) -> None:
        for name in ("values", "ranked", "known", "fresh", "checked", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong


def median_seconds(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, Any]]:
    """Return each call's median of three interleaved runs and its result, which is the exception of a call that fails."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    results: dict[str, Any] = {}
    for _ in range(3):
        for name, call in calls.items():
            start = time.perf_counter()
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    results[name] = call()
            except Exception as error:
                results[name] = error
            times[name].append(time.perf_counter() - start)
    return {name: (statistics.median(times[name]), results[name]) for name in calls}


def count_ours(model: Any, report: Any, names: list[str]) -> Row:
    """Count the values of one inferred model; ``names`` are those of the file's values."""
    row = Row(values=len(names))
    values = report.model.values
    for name in names:
        value = values.get(name)
        type_ = None if value is None else value.type
        if type_ is None or not isinstance(type_, Tensor):
            row.ranked += 1
            row.known += 1
            continue
        row.ranked += type_.shape is not None
        sizes = type_.shape or ()
        is_known = all(set(map(str, map(symbolic.name_of, symbolic.symbols(size)))) <= set(report.bounds) for size in sizes)
        row.known += type_.shape is not None and is_known
    row.fresh = len(report.unknown)
    return row


def check(row: Row, report: Any, folder: Path, record: dict[str, Any]) -> None:
    """Run the inferred model at the stored sizes, and compare the shape of every value with its expressions."""
    for name in (f"{record['id']}.in.npz", f"{record['id']}.in2.npz"):
        if not (folder / name).is_file():
            continue
        with np.load(folder / name) as stored:
            arrays = {key: stored[key] for key in stored.files}
        whole = copy_model(report.model)
        whole.graph.outputs = [value for node in whole.graph.nodes for value in node.outputs if isinstance(value.type, Tensor)]
        aliases = {alias: x.name for x in whole.inputs for alias in (x.name, *x.names)}
        try:
            results = dovetail.interpret(whole, {aliases[key]: array for key, array in arrays.items() if key in aliases})
        except DovetailError:
            continue
        sizes: dict[str, int] = {}
        for x in whole.inputs:
            array = next(array for key, array in arrays.items() if aliases.get(key) == x.name)
            for size, actual in zip(x.type.shape or (), array.shape, strict=True):
                if not isinstance(size, int) and symbolic.name_of(size) is not None:
                    sizes[str(symbolic.name_of(size))] = actual
        for value in whole.outputs:
            result = flatten_outputs({value.name: results[value.name]}).get(value.name)
            for size, actual in zip(value.type.shape or (), np.shape(result), strict=False):
                if isinstance(size, int) or not {str(symbolic.name_of(s)) for s in symbolic.symbols(size)} <= set(sizes):
                    continue
                row.checked += 1
                if symbolic.evaluate(size, sizes) != actual:
                    row.wrong.append(f"{record['id']} {value.name}: {size} is {actual}")


def count_protos(model: Any, original: Any) -> Row:
    """Count the values of an ONNX file that another tool has inferred."""
    symbols = {dim.dim_param for x in original.graph.input for dim in x.type.tensor_type.shape.dim if dim.dim_param}
    infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output, *model.graph.input)}
    names = [name for node in original.graph.node for name in node.output if name]
    row = Row(values=len(names))
    for name in names:
        info = infos.get(name)
        if info is None:
            continue
        if not info.type.HasField("tensor_type"):
            row.ranked += 1
            row.known += 1
            continue
        tensor = info.type.tensor_type
        if not tensor.HasField("shape"):
            continue
        row.ranked += 1
        row.known += all(dim.HasField("dim_value") or is_over(dim.dim_param, symbols) for dim in tensor.shape.dim)
    return row


def is_over(text: str, symbols: set[str]) -> bool:
    """Tell whether a dimension's text is a symbol of the inputs, or an expression over them."""
    if not text:
        return False
    return text in symbols or set(re.findall(r"[A-Za-z_]\w*", text)) - _FUNCTIONS <= symbols


def measure(folder: Path, record: dict[str, Any]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    path = folder / f"{record['id']}.onnx"
    calls: dict[str, Callable[[], Any]] = {}
    if path.is_file():
        import onnx
        from onnx import shape_inference
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

        proto = onnx.load(path)
        model = dovetail.load(path)
        names = [name for node in proto.graph.node for name in node.output if name]
        calls["ONNX"] = lambda: dovetail.infer_report(model)
        calls["onnx"] = lambda: shape_inference.infer_shapes(proto, data_prop=True, strict_mode=True)
        calls["onnxruntime"] = lambda: SymbolicShapeInference.infer_shapes(proto, auto_merge=True)
    ir_path = folder / f"{record['id']}.xml"
    if ir_path.is_file():
        ir_model = dovetail.load(ir_path)
        calls["IR"] = lambda: dovetail.infer_report(ir_model)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        # symbolic_shape_infer leaves files in the working directory.
        measured = median_seconds(calls)
    for name, (seconds, result) in measured.items():
        if isinstance(result, Exception):
            count = len(names) if name != "IR" else len(list(ir_model.graph.values()))
            rows[name] = Row(values=count, seconds=seconds, error=f"{type(result).__name__}: {str(result)[:200]}")
        elif name in ("ONNX", "IR"):
            all_names = names if name == "ONNX" else [y.name for node in ir_model.graph.nodes for y in node.outputs]
            rows[name] = count_ours(model if name == "ONNX" else ir_model, result, all_names)
            rows[name].seconds = seconds
            check(rows[name], result, folder, record)
        else:
            rows[name] = count_protos(result, proto)
            rows[name].seconds = seconds
    return rows


def table(rows: dict[str, dict[str, Row]]) -> list[str]:
    lines = ["| tool | models | failures | values | known rank | every dimension known | fresh | checked | wrong | s |"]
    lines.append("| --- |" + " --- |" * 9)
    for tool in TOOLS:
        total, count, failures = Row(), 0, 0
        for per_tool in rows.values():
            if tool in per_tool:
                total.add(per_tool[tool])
                count += 1
                failures += bool(per_tool[tool].error)
        shares = [f"{100 * part / max(total.values, 1):.2f} %" for part in (total.ranked, total.known)]
        ours = tool in ("ONNX", "IR")
        cells = [f"dovetail, {tool}" if ours else tool, count, failures, total.values, *shares]
        cells += [total.fresh, total.checked, len(total.wrong)] if ours else ["", "", ""]
        lines.append("| " + " | ".join(map(str, [*cells, f"{total.seconds:.2f}"])) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    logging.disable(logging.CRITICAL)
    texts = [text for text in options.models.split(",") if text]
    rows: dict[str, dict[str, Row]] = {}
    for record in json.loads((options.folder / "index.json").read_text(encoding="utf-8")):
        if not record.get("dynamic") or (texts and not any(text in record["id"] for text in texts)):
            continue
        rows[record["id"]] = per_tool = measure(options.folder, record)
        for tool, row in per_tool.items():
            if row.error or row.wrong or (tool in ("ONNX", "IR") and row.known < row.values):
                print(record["id"], tool, f"{row.known} of {row.values}", row.error, row.wrong[:3], flush=True)
    lines = table(rows)
    print("\n".join(lines))
    if options.page:
        PAGE.write_text("\n".join(["# Shape inference", "", *_introduction(rows), "", *lines, ""]), encoding="utf-8")


def _introduction(rows: dict[str, dict[str, Row]]) -> list[str]:
    return [
        f"{len(rows)} dynamic models of real architectures, exported by torch and by OpenVINO. Written by",
        "`python bench/shapes.py FOLDER --page`.",
        "",
        "- **every dimension known**: each is a number or an expression over the symbols of the inputs.",
        "- **fresh**: dimensions at operators whose output size depends on data, such as NonMaxSuppression.",
        "- **checked**: expressions compared with the shapes of a run, at the sizes of one or two stored inputs.",
        "- **s**: the sum over models of the median of three calls interleaved, without reading the file.",
    ]


if __name__ == "__main__":
    main()
