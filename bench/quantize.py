"""Quantize every ONNX model of a folder, beside the quantizer of onnxruntime: bytes, errors, correlation of predicted errors.

    python bench/quantize.py FOLDER [--models TEXT[,TEXT...]] [--to int4|int8] [--block N] [--seconds S] [--json]

All round the same weights on the same grid: constant second operands of MatMul, in blocks with scales and zero points, so that
the bytes are equal. `ours` is `dovetail.quantize` with rows, `nearest` the same without rows, `theirs` the quantizer of
onnxruntime, which takes no rows. Rows are random (16 seeds), and so are the inputs of the measurement (8 other seeds). Errors are
norms of differences of float outputs, relative to the output, the largest of all outputs, the root of the mean square over all
inputs; the files run in onnxruntime without rounding activations. Then `dovetail.quantize` of the whole model without rows:
weights, bytes, the predicted and the measured error, and the correlation of the predicted errors of nodes with their measured
errors.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import random_outputs, runner_for
from dovetail.ir import symbolic
from dovetail.passes.quantization.weights import PRODUCT, find_weights
from dovetail.runtime.random_inputs import random_inputs

SEEDS = range(77, 85)
ROW_SEEDS = range(16)
COLUMNS = (
    "model", "ours", "nearest", "theirs", "weights", "bytes before", "bytes", "predicted", "measured", "correlation", "seconds",
)  # fmt: skip


def relative(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return the largest relative error of all float outputs."""
    errors = [0.0]
    for name, y in expected.items():
        if y.dtype.kind == "f" and np.all(np.isfinite(y)):
            norm = np.linalg.norm(y.astype(np.float64))
            errors.append(float(np.linalg.norm(found[name].astype(np.float64) - y) / (norm or 1.0)))
    return max(errors)


def rows_of(model: dovetail.Model) -> dict[str, Any]:
    """Draw rows for the model: one call with many rows if its batch is open, or else several calls in turn."""
    first = next(value for value in model.inputs if value.dims)
    symbol = symbolic.name_of(first.dims[0])
    if symbol is not None:
        sizes = {symbol: 8 * len(ROW_SEEDS)}
        return dict(random_inputs(model, seed=ROW_SEEDS[0], sizes=sizes, beside={}))
    calls = [random_inputs(model, seed=seed, beside={}) for seed in ROW_SEEDS]
    return {name: np.concatenate([call[name] for call in calls]) if array.ndim else array for name, array in calls[0].items()}


def ours_on_products(model: dovetail.Model, bits: int, block: int, rows: dict[str, Any] | None) -> dovetail.Model:
    """Return the model with the weights of MatMul rounded."""
    weights = find_weights(model.graph)
    keep = [
        weight.source.name
        for weight in weights
        if weight.kind != PRODUCT or weight.node.op.title != "MatMul" or weight.value.constant is None
    ]
    if len(keep) == len(weights):
        return model
    options = dovetail.QuantizeOptions(block, symmetric=False, keep=keep)
    return dovetail.quantize(model, f"int{bits}", inputs=rows, options=options)


def theirs_on_products(source: Path, target: Path, bits: int, block: int) -> None:
    """Write the file of onnxruntime's quantizer."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=block, is_symmetric=False, accuracy_level=1)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), False)


def measure(path: Path, to: str, block: int) -> dict[str, Any]:
    """Return the row of one model."""
    bits = int(to.removeprefix("int"))
    model = dovetail.load(path)
    start = perf_counter()
    report = dovetail.quantize(model, to, options=dovetail.QuantizeOptions(block, symmetric=False)).report
    seconds = perf_counter() - start
    row: dict[str, Any] = {
        "model": path.name, "weights": sum(not node.kept for node in report.nodes), "bytes before": report.bytes_before,
        "bytes": report.bytes, "predicted": report.predicted, "measured": report.measured, "seconds": round(seconds, 1),
    }  # fmt: skip
    pairs = [(node.predicted, node.measured) for node in report.nodes if node.predicted and node.measured]
    if len(pairs) > 2:
        row["correlation"] = float(np.corrcoef(np.array(pairs).T)[0, 1])
    with tempfile.TemporaryDirectory() as folder:
        dovetail.save(ours_on_products(model, bits, block, rows_of(model)), ours := Path(folder) / "ours.onnx")
        dovetail.save(ours_on_products(model, bits, block, None), nearest := Path(folder) / "nearest.onnx")
        theirs_on_products(path, theirs := Path(folder) / "theirs.onnx", bits, block)
        if not random_outputs(model):
            calls = [random_inputs(model, seed=seed, beside={}) for seed in SEEDS]
            expected = [dict(runner_for(path).run(call)) for call in calls]
            for name, file in (("ours", ours), ("nearest", nearest), ("theirs", theirs)):
                runner = runner_for(file)
                errors = [relative(runner.run(call), y) for call, y in zip(calls, expected, strict=True)]
                row[name] = float(np.sqrt(np.mean(np.square(errors))))
    return row


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def text_of(cell: object) -> str:
    return (
        "" if cell is None else f"{cell:.3g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="", help="only files whose names contain one of these texts")
    parser.add_argument("--to", choices=("int4", "int8"), default="int4")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=120, help="the limit for one model")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    texts = arguments.models.split(",")
    rows = []
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|") if not arguments.json else None
    for path in sorted(arguments.folder.glob("**/*.onnx")):
        if not any(text in path.name for text in texts):
            continue
        try:
            with time_limit(arguments.seconds):
                row = measure(path, arguments.to, arguments.block)
        except Exception as error:
            print(f"{path.name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        rows.append(row)
        if not arguments.json:
            print("| " + " | ".join(text_of(row.get(column)) for column in COLUMNS) + " |", flush=True)
    ratios = [row["ours"] / row["theirs"] for row in rows if row.get("theirs", 0) > 0 and row["ours"] > 0]
    correlations = [row["correlation"] for row in rows if "correlation" in row]
    if arguments.json:
        print(json.dumps(rows))
    elif ratios:
        worse = sum(ratio > 1 for ratio in ratios)
        print(f"\nours / theirs: geometric mean {geometric_mean(ratios):.3f}, above 1 for {worse} of {len(ratios)} models")
        print(f"correlation: smallest {min(correlations):.3f}, {sum(each < 0.9 for each in correlations)} below 0.9")
    return 0


if __name__ == "__main__":
    sys.exit(main())
