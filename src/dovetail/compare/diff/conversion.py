"""Conversion of two models to one format and opset, so that differences of formats and opsets are not reported."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.errors import DovetailError
from dovetail.formats import reload
from dovetail.ir.graph import Model

TITLES = {"onnx": "ONNX", "openvino": "IR"}
ROUNDS = 2
"""Number of exports and imports of one model; in most models names and constants are stable after the second import."""


def convert_pairs(first: Model, second: Model) -> Iterator[tuple[Model, Model, str]]:
    """Yield both models converted to one format and opset, with a note; yield nothing if formats and opsets are equal already.

    Models of different formats are converted to IR, then to ONNX. Models of different opsets are converted to the higher opset,
    then to the lower opset.
    """
    if first.format != second.format:
        yield from _in_format(first, second, "openvino")
        yield from _in_format(first, second, "onnx")
    elif first.format == "onnx" and first.versions.get("") != second.versions.get(""):
        yield from _in_opsets(first, second)


def _in_format(first: Model, second: Model, format: str) -> Iterator[tuple[Model, Model, str]]:
    """Yield two pairs of models in ``format``.

    In the first pair, a model that has this format already is unchanged. In the second pair, both models are converted.
    """
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
    """Export a model to ``format`` and import it, ROUNDS times; return the imported model, or None if a conversion fails."""
    try:
        for _ in range(ROUNDS):
            model = reload(model, format, opset)
    except DovetailError:
        return None
    return model
