"""The tests that the onnx package brings for backends, of all four kinds: models, inputs, what should come out, and how near."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


class Sample(NamedTuple):
    """One test: its model, and pairs of inputs and outputs. Files of a folder are read at their first use."""

    name: str
    kind: str
    read_model: Callable[[], Any]
    read_pairs: Callable[[], list[tuple[list[Any], list[Any]]]]
    rtol: float
    atol: float


@cache
def samples(kind: str) -> tuple[Sample, ...]:
    """All tests of a kind, by name."""
    with warnings.catch_warnings():
        # onnx computes its expected values with overflows and divisions by zero, on purpose.
        warnings.simplefilter("ignore")
        return tuple(sorted((_sample(test) for test in load_model_tests(kind=kind)), key=lambda sample: sample.name))


def _sample(test: Any) -> Sample:
    if test.model is not None:
        pairs = [(list(map(as_array, inputs)), list(map(as_array, outputs))) for inputs, outputs in test.data_sets]
        return Sample(test.name, test.kind, lambda: test.model, lambda: pairs, test.rtol, test.atol)
    folder = Path(test.model_dir)
    return Sample(
        test.name, test.kind, lambda: onnx.load(folder / "model.onnx"), lambda: _read_pairs(folder), test.rtol, test.atol
    )


def _read_pairs(folder: Path) -> list[tuple[list[Any], list[Any]]]:
    graph = onnx.load(folder / "model.onnx").graph
    return [
        (_read(case, "input", graph.input), _read(case, "output", graph.output))
        for case in sorted(folder.glob("test_data_set_*"))
    ]


def _read(folder: Path, which: str, infos: Sequence[Any]) -> list[Any]:
    """Return the files of one side, each of the type that the model declares in its place."""
    found = []
    for place in range(len(list(folder.glob(f"{which}_*.pb")))):
        data = (folder / f"{which}_{place}.pb").read_bytes()
        kind = infos[place].type.WhichOneof("value")
        if kind == "sequence_type":
            found.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        elif kind == "optional_type":
            found.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
        else:
            found.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return found


def as_array(item: Any) -> Any:
    """Return the values of a test, with arrays for tensors."""
    if isinstance(item, list):
        return [as_array(each) for each in item]
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def assert_similar(expected: Any, outputs: Any, rtol: float, atol: float) -> None:
    """By onnx's own rule, and integers and truth values exactly."""
    pairs = list(_paired(expected, outputs))
    if not pairs:
        return
    # Element by element: the comparison of lists in the onnx package takes the length of what may be a scalar.
    theirs, ours = (list(side) for side in zip(*pairs, strict=True))
    Runner.assert_similar_outputs(theirs, ours, rtol, atol)
    for theirs, ours in pairs:
        if theirs.dtype.kind in "iub":
            np.testing.assert_array_equal(ours, theirs)


def _paired(expected: Any, found: Any) -> Iterator[tuple[Any, Any]]:
    """Arrays with their equals, those in lists too."""
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for pair in zip(expected, found, strict=True):
            yield from _paired(*pair)
    elif expected is None:
        assert found is None
    else:
        yield expected, found
