"""The worst difference of every way through the nine light models: ``python tests/models/light_table.py [--json] [names ...]``.

Ways: our run against onnxruntime's of the same file; our IR of it in OpenVINO; OpenVINO's own IR of it (with and without fp16
compression) through our ONNX in onnxruntime, against OpenVINO's run of that IR. Each with the stored constant weights and with
seeded random ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import light_models
import numpy as np
import onnx

import dovetail
from dovetail.compare.arrays import TOLERANCE
from dovetail.compare.verification.conversion import Difference, compare, runner_for

WEIGHTS = ("stored", "random")
MISSED = " (which OpenVINO misses by itself)"
"""Marks a model on which OpenVINO, given the ONNX file, does not agree with onnxruntime; there the file in OpenVINO is the
measure."""
FICKLE = " (run by us: rounding decides)"
"""Marks a model whose answer hangs on the last bit of its weights: constant ones make sums so large that it decides a Softmax,
and onnxruntime's kernels, which differ from processor to processor, round equal sums to unequal numbers."""


@dataclass(frozen=True)
class Way:
    """One comparison: what was compared with what, on which model, and how far apart they were."""

    model: str
    weights: str
    way: str
    difference: Difference


def source_of(name: str, weights: str, folder: Path) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    """Return the model's file, with its weights as stored or random, and an input."""
    proto = onnx.load(light_models.path_of(name)) if weights == "stored" else light_models.with_random_weights(name)
    path = folder / f"{name}.onnx"
    onnx.save(proto, path)
    return path, light_models.image(proto)


def ways(name: str, weights: str, folder: Path) -> Iterator[Way]:
    """Every comparison of one model."""
    source, image = source_of(name, weights, folder)
    reference = runner_for(source, "onnxruntime").run(image)

    def way(text: str, first: dict[str, Any], second: dict[str, Any]) -> Way:
        # One run's outputs by position: another format may call them by other names.
        named = dict(zip(first.keys(), second.values(), strict=True))
        return Way(name, weights, text, max(compare(first, named), key=lambda row: (not row.agrees, row.relative)))

    yield way("run = onnxruntime", reference, dovetail.run(source, image))
    ir = folder / "ours.xml"
    dovetail.save(dovetail.load(source), ir)
    # Where OpenVINO itself misses onnxruntime's output, the same file in OpenVINO is the measure.
    own = _openvino_on_onnx(source, image)
    ours = runner_for(ir, "openvino").run(image)
    yield way("our IR in OpenVINO = the ONNX file in OpenVINO", dict(zip(reference.keys(), own, strict=True)), ours)
    missed = not way("", dict(zip(reference.keys(), own, strict=True)), reference).difference.agrees
    yield way(f"our IR in OpenVINO = onnxruntime{MISSED if missed else ''}", reference, ours)
    theirs, back = folder / "theirs.xml", folder / "back.onnx"
    mark = ""
    for compressed in (False, True):
        _openvino_ir(source, theirs, compressed)
        dovetail.save(dovetail.load(theirs), back)
        found = runner_for(back, "onnxruntime").run(image)
        if not compressed and _is_fickle(back, image, found):
            mark = FICKLE
        if mark:
            found = dovetail.run(back, image)
        if not compressed:
            yield way(f"OpenVINO's f32 IR as our ONNX in onnxruntime = onnxruntime{mark}", reference, found)
        else:
            expected = runner_for(theirs, "openvino").run(image)
            marks = mark + (MISSED if missed else "")
            yield way(f"OpenVINO's fp16 IR as our ONNX in onnxruntime = OpenVINO{marks}", expected, found)


def _is_fickle(path: Path, image: dict[str, Any], reference: dict[str, Any]) -> bool:
    """Return whether onnxruntime's results change where each weight of a channel moves to a neighbour or stays."""
    proto, draw = onnx.load(path), np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        x = onnx.numpy_helper.to_array(tensor)
        if x.dtype == np.float32 and x.ndim:
            toward = draw.choice(np.float32([-np.inf, 0, np.inf]), (len(x), *[1] * (x.ndim - 1)))
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.where(toward == 0, x, np.nextafter(x, toward)), tensor.name))
    onnx.save(proto, path.with_name("rounded.onnx"))
    return not all(row.agrees for row in compare(reference, runner_for(path.with_name("rounded.onnx"), "onnxruntime").run(image)))


def _openvino_on_onnx(path: Path, image: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled([image[port.get_any_name()] for port in compiled.inputs])
    return [np.array(found[index]) for index in range(len(compiled.outputs))]


def _openvino_ir(source: Path, target: Path, compressed: bool) -> None:
    import openvino

    openvino.save_model(openvino.convert_model(source), target, compress_to_fp16=compressed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=light_models.names())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[Way] = []
    for name in options.names:
        for weights in WEIGHTS:
            with tempfile.TemporaryDirectory() as folder:
                for row in ways(name, weights, Path(folder)):
                    rows.append(row)
                    print(_line(row), flush=True, file=sys.stderr if options.json else sys.stdout)
            gc.collect()
    if options.json:
        print(json.dumps([{**row.__dict__, "difference": str(row.difference)} for row in rows]))
    wrong = [row for row in rows if not row.difference.agrees and MISSED not in row.way]
    print(f"{len(rows)} comparisons, {len(wrong)} beyond {TOLERANCE:g} of the largest magnitude")
    return 1 if wrong else 0


def _line(row: Way) -> str:
    found = row.difference
    mark = found.why or ("" if found.agrees else "beyond the tolerance")
    figures = f"{found.absolute:10.3g}{found.relative:10.3g}"
    return f"{row.model:14}{row.weights:8}{row.way:114}{figures}  {mark}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
