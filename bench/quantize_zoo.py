"""Quantize models of the zoo by dovetail, onnxruntime and NNCF, and compare errors and bytes.

    python bench/quantize_zoo.py [--models TEXT[,TEXT...]] [--to static,int4,budget] [--rows N] [--seed N]
                                 [--nncf PYTHON] [--budget SHARE]

Needs build/zoo, which `make zoo` fills, and Pillow. Each quantizer gets the same file, simplified, of opset 17, without a final
Softmax or Sigmoid, and the same N rows. `static` is 8 bits for weights and activations: dovetail.quantize with activations,
quantize_static of onnxruntime with one scale per channel, nncf.quantize. `int4` is MatMul in blocks of 32 with zero points:
dovetail.quantize, MatMulNBitsQuantizer of onnxruntime, nncf.compress_weights with scale estimation. NNCF runs in an environment
of its own, whose Python --nncf names. `budget` is dovetail.quantize to 4 bits within --budget.

All files run in onnxruntime on N other rows. An error is the norm of the difference, relative to the output, over all rows, the
largest of all float outputs.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime
from quantize import ours_on_products, text_of
from questions import ROOT
from zoo_rows import SOURCES, ZOO, Array

import dovetail
from dovetail.passes.quantization.weights import PRODUCT, find_weights

COLUMNS = (
    "model", "kind", "dovetail", "onnxruntime", "NNCF", "bytes before", "bytes", "bytes of onnxruntime", "bytes of NNCF",
    "seconds",
)  # fmt: skip
BUDGET_COLUMNS = ("model", "budget", "weights", "rounded", "bytes before", "bytes", "held-out rows", "other rows")
OPSET = 17
LEAST_SHARE = 0.05
"""Share of a model's bytes that the weights of products must have to be compared with 4 bits."""
Call = dict[str, Array]


def calls_of(model: dovetail.Model, rows: Call) -> list[Call]:
    """Return one call for each row."""
    count = max(len(array) for array in rows.values() if array.ndim)
    names = {value.name: value.dims for value in model.inputs}
    calls = []
    for index in range(count):
        call = {}
        for name, array in rows.items():
            axis = next((axis for axis, size in enumerate(array.shape) if size == count), None)
            part = (slice(None),) * (axis or 0) + (slice(index, index + 1),)
            call[name] = array if axis is None or name not in names else array[part]
        calls.append(call)
    return calls


def outputs_of(path: Path, calls: list[Call]) -> list[dict[str, Array]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(None, call), strict=True)) for call in calls]


def error_of(found: list[dict[str, Array]], expected: list[dict[str, Array]]) -> float:
    """Return the relative error over all calls, the largest of all float outputs; outputs are matched by name."""
    errors = [0.0]
    for name in (name for name, y in expected[0].items() if y.dtype.kind == "f"):
        pairs = [(a[name].astype(np.float64), b[name].astype(np.float64)) for a, b in zip(found, expected, strict=True)]
        errors.append(sum(float(np.sum((x - y) ** 2)) for x, y in pairs) / sum(float(np.sum(y**2)) for _, y in pairs))
    return float(np.sqrt(max(errors)))


def ours(source: Path, target: Path, rows: Call, _: list[Call], to: str) -> None:
    if to == "static":
        options = dovetail.QuantizeOptions(activations="mse", encoding="qdq")
        new = dovetail.quantize(dovetail.load(source), "int8", inputs=rows, options=options)
    else:
        new = ours_on_products(dovetail.load(source), 4, 32, rows)
    dovetail.save(new, target)


def onnxruntimes(source: Path, target: Path, _: Call, calls: list[Call], to: str) -> None:
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Reader passes the calls once."""

        def __init__(self) -> None:
            self.items: Iterator[Call] = iter(calls)

        def get_next(self) -> Call | None:
            return next(self.items, None)

    if to == "static":
        quantization.quantize_static(source, target, Reader(), per_channel=True)
        return
    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=4, block_size=32, is_symmetric=False, accuracy_level=1)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), False)


def nncf_by(python: str) -> Callable[[Path, Path, Call, list[Call], str], None]:
    def quantize(source: Path, target: Path, _: Call, calls: list[Call], to: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            arrays = {f"{index}/{name}": array for index, call in enumerate(calls) for name, array in call.items()}
            np.savez(rows := Path(folder) / "rows.npz", **arrays)
            command = [python, str(ROOT / "bench" / "nncf_quantize.py"), str(source), str(rows), str(target), to]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])

    return quantize


def rows_of(name: str, count: int, seed: int) -> tuple[Call, Call]:
    """Return the rows that calibrate a model, and others."""
    return tuple(SOURCES[name].draw(np.random.default_rng(2 * seed + part), count) for part in (0, 1))  # type: ignore[return-value]


def convert(path: Path, target: Path) -> dovetail.Model:
    # NNCF 3.4 fails at a Cast of a constant, which a simplified model has not.
    model = dovetail.simplify(dovetail.load(path))
    outputs = [y.node.input(0) if y.node is not None and y.node.title in ("Softmax", "Sigmoid") else y for y in model.outputs]
    model = dovetail.extract(model, outputs=[y.name for y in outputs])
    dovetail.save(model, target, opset=OPSET)
    return model


def compare(name: str, path: Path, to: str, count: int, seed: int, nncf: str | None) -> dict[str, Any]:
    """Return the row of a model; a quantizer that fails has the reason in place of its error."""
    row: dict[str, Any] = {"model": name, "kind": SOURCES[name].kind}
    rows, others = rows_of(name, count, seed)
    quantizers = {"dovetail": ours, "onnxruntime": onnxruntimes} | ({"NNCF": nncf_by(nncf)} if nncf else {})
    with tempfile.TemporaryDirectory() as folder:
        model = convert(path, source := Path(folder) / "source.onnx")
        rows, others = ({value.name: part[value.name] for value in model.inputs} for part in (rows, others))
        calls, other_calls = calls_of(model, rows), calls_of(model, others)
        expected = outputs_of(source, other_calls)
        row["bytes before"] = source.stat().st_size
        for who, quantize in quantizers.items():
            target = Path(folder) / f"{who}.onnx"
            start = perf_counter()
            try:
                quantize(source, target, rows, calls, to)
                row["seconds" if who == "dovetail" else f"seconds of {who}"] = round(perf_counter() - start, 1)
                row[who] = error_of(outputs_of(target, other_calls), expected)
                row["bytes" if who == "dovetail" else f"bytes of {who}"] = target.stat().st_size
            except Exception as error:
                row[who] = f"fails: {type(error).__name__}: {str(error)[:200]}"
    return row


def keep_budget(name: str, path: Path, budget: float, count: int, seed: int) -> dict[str, Any]:
    """Return the row of a model whose weights have 4 and 8 bits within ``budget``, with the error on rows it has not seen."""
    rows, others = rows_of(name, count, seed)
    with tempfile.TemporaryDirectory() as folder:
        model = convert(path, source := Path(folder) / "source.onnx")
        rows, others = ({value.name: part[value.name] for value in model.inputs} for part in (rows, others))
        new = dovetail.quantize(model, "int4", inputs=rows, budget=budget)
        dovetail.save(new, target := Path(folder) / "new.onnx")
        calls = calls_of(model, others)
        error = error_of(outputs_of(target, calls), outputs_of(source, calls))
    report = new.report
    return {
        "model": name, "budget": budget, "weights": len(report.nodes), "rounded": sum(not node.kept for node in report.nodes),
        "bytes before": report.bytes_before, "bytes": report.bytes, "held-out rows": report.measured, "other rows": error,
    }  # fmt: skip


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| " + " | ".join(text_of(row.get(column)) for column in columns) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|", *lines]


def summary(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for who in ("onnxruntime", "NNCF"):
        ratios = {
            row["model"]: row["dovetail"] / row[who]
            for row in rows
            if isinstance(row.get(who), float) and isinstance(row["dovetail"], float) and row[who]
        }
        if ratios:
            larger = [f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if ratio > 1]
            text = f"dovetail / {who}: geometric mean {geometric_mean(ratios.values()):.3f} of {len(ratios)} models; larger: "
            lines += ["", text + (", ".join(larger) or "none") + "."]
    return lines


def has_products(path: Path) -> bool:
    model = dovetail.load(path)
    weights = find_weights(model.graph)
    share = sum(weight.bytes for weight in weights if weight.kind == PRODUCT)
    return share > LEAST_SHARE * path.stat().st_size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="only models whose names contain one of these texts")
    parser.add_argument("--to", default="static,int4")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0, help="the seed of both sets of rows")
    parser.add_argument("--nncf", metavar="PYTHON", help="the Python of an environment with NNCF")
    parser.add_argument("--budget", type=float, default=0.02)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    index = {facts["id"]: ZOO / facts["file"] for facts in json.loads((ZOO / "index.json").read_text(encoding="utf-8"))}
    names = [name for name in SOURCES if name in index and any(text in name for text in arguments.models.split(","))]
    for to in arguments.to.split(","):
        rows = []
        print(f"\n{to}\n\n" + "\n".join(table(COLUMNS, [])))
        for name in names:
            if to == "budget":
                row = keep_budget(name, index[name], arguments.budget, arguments.rows, arguments.seed)
                print(table(BUDGET_COLUMNS, [row])[2], flush=True)
            elif to == "static" or has_products(index[name]):
                row = compare(name, index[name], to, arguments.rows, arguments.seed, arguments.nncf)
                rows.append(row)
                print(table(COLUMNS, [row])[2], flush=True)
        print("\n".join(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
