"""Conversion of models of different formats or opsets into one, so that only what the conversion cannot explain differs."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.errors import DovetailError
from dovetail.formats import reload
from dovetail.ir.graph import Model

TITLES = {"onnx": "ONNX", "openvino": "IR"}
ROUNDS = 2
"""Exports and imports of one model: names and constants are stable after the second in most models."""


def convert_pairs(first: Model, second: Model) -> Iterator[tuple[Model, Model, str]]:
    """Yield both models in one format and opset, and a note about the conversion; nothing where they have the same already.

    Between formats the comparison is in IR, then in ONNX; between opsets in that of either model.
    """
    if first.format != second.format:
        yield from _in_format(first, second, "openvino")
        yield from _in_format(first, second, "onnx")
    elif first.format == "onnx" and first.versions.get("") != second.versions.get(""):
        yield from _in_opsets(first, second)


def _in_format(first: Model, second: Model, format: str) -> Iterator[tuple[Model, Model, str]]:
    """Yield both models in a format: first with the one that has it as it is, then with both written anew."""
    opset = next((model.versions.get("") for model in (first, second) if model.format == "onnx"), None)
    both = [_convert(model, format, opset) for model in (first, second)]
    as_they_are = [model if model.format == format else new for model, new in zip((first, second), both, strict=True)]
    for one, other in (as_they_are, both):
        if one is not None and other is not None:
            yield one, other, f"compared as {TITLES[format]}, to which the other model was converted in memory"


def _in_opsets(first: Model, second: Model) -> Iterator[tuple[Model, Model, str]]:
    opsets = [opset for model in (first, second) if (opset := model.versions.get("")) is not None]
    if len(opsets) < 2:
        return
    for opset in (max(opsets), min(opsets)):
        one, other = (_convert(model, "onnx", opset) for model in (first, second))
        if one is not None and other is not None:
            yield one, other, f"compared at opset {opset}, to which the other model was converted in memory"


def _convert(model: Model, format: str, opset: int | None = None) -> Model | None:
    """Return the model as loading it from a file of ``format`` would give it; None where it cannot be written so."""
    try:
        for _ in range(ROUNDS):
            model = reload(model, format, opset)
    except DovetailError:
        return None
    return model
