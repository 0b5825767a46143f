"""Conversion of models of different formats or opsets into one, so that only what the conversion cannot explain differs."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.errors import DovetailError
from dovetail.formats import reload
from dovetail.ir.graph import Model

ROUNDS = 2
"""Exports and imports of one model: names and constants are stable after the second in most models."""


def convert_pairs(first: Model, second: Model) -> Iterator[tuple[Model, Model, str]]:
    """Yield both models in one format and opset, and a note about the conversion; nothing where they have the same already.

    Between formats the comparison is in IR; between opsets in that of either model.
    """
    if first.format != second.format:
        yield from _in_ir(first, second)
    elif first.format == "onnx" and first.versions.get("") != second.versions.get(""):
        yield from _in_opsets(first, second)


def _in_ir(first: Model, second: Model) -> Iterator[tuple[Model, Model, str]]:
    both = [_convert(model, "openvino") for model in (first, second)]
    only_other = [_convert(model, "openvino") if model.format != "openvino" else model for model in (first, second)]
    for one, other in (only_other, both):
        if one is not None and other is not None:
            yield one, other, "compared as IR, to which the other model was converted in memory"


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
