"""Samples through a model at its own batch and all of them through a rebatched one, in the runtimes of the files' formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import dovetail
from dovetail import Model
from dovetail.compare.verification.conversion import runner_for

RNG = np.random.default_rng(3)


def parsed(text: str) -> Model:
    """Load an ONNX model from onnx's own text form."""
    return dovetail.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}').SerializeToString())


def judge(
    original: Model, new: Model, path: Path, axes: dict[str, int], out: dict[str, int], sizes: Sequence[int] = (1, 3, 8)
) -> None:
    """Run each sample through the original file and all through the new one, in the file's own runtime."""
    old = {value.name: value.shape[axes[value.name]] for value in original.inputs if value.name in axes and value.shape}
    (batch,) = set(old.values())
    dovetail.save(original, before := str(path.with_stem("before")))
    dovetail.save(new, str(path))
    first, second = runner_for(before), runner_for(path)
    assert first.name.split()[0] in ("onnxruntime", "openvino")
    samples: list[dict[str, Any]] = []
    for _ in range(max(sizes)):
        arrays = {}
        for value in original.inputs:
            shape = list(value.shape or ())
            if value.name in axes:
                shape[axes[value.name]] = 1
            elif samples:
                arrays[value.name] = samples[0][value.name]
                continue
            drawn = RNG.normal(size=shape) if value.dtype.is_float else RNG.integers(0, 2, shape)
            arrays[value.name] = drawn.astype(value.dtype.numpy)
        samples.append(arrays)

    def joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            name: np.concatenate([row[name] for row in rows], axes[name]) if name in axes else rows[0][name] for name in rows[0]
        }

    for size in sizes:
        whole = list(second.run(joined(samples[:size])).values())
        for index in range(size):
            alone = list(first.run(joined([samples[index]] * int(str(batch)))).values())
            for y, mine, theirs in zip(original.outputs, whole, alone, strict=True):
                axis = out.get(y.name, 0)
                np.testing.assert_allclose(np.take(mine, [index], axis), np.take(theirs, [0], axis), rtol=1e-4, atol=1e-5)
