"""Options and report of :func:`dovetail.quantize`."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import astuple, dataclass, field, fields
from math import isfinite
from typing import Any

import numpy as np

from dovetail.ir.graph import Model
from dovetail.ir.suggestions import check_keywords

PROPERTY = "dovetail.quantization"
"""The metadata property of ONNX with the report of a quantized model as JSON; in IR it is in the record of ONNX metadata."""
MAX_ROWS = 1000
"""The maximum number of rows of the report in a file."""
MAX_NAME = 160
"""The maximum number of characters of a text of the report in a file."""
MAX_TEXTS = 50
"""The maximum number of notes, and of names of random inputs, of the report in a file."""
MAX_CHARACTERS = 1 << 20
"""The maximum number of characters of the property; a longer one is ignored, and rows are left out until it is shorter."""


@check_keywords
@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """QuantizeOptions holds the options of :func:`quantize` about codes.

    - ``block_size``: the number of codes of a product's weights that share a scale, one of 16, 32, 64, 128, 256; 0 for one scale
      per output channel. The default is 32 for int4, and 0 for int8.
    - ``symmetric``: without zero points; by default int8 is symmetric, and int4 is not.
    - ``encoding``: "matmulnbits" (MatMulNBits of com.microsoft for weights in blocks), "qdq" (DequantizeLinear), or "ir"
      (DequantizeLinear in the layout in which OpenVINO keeps compressed weights); by default "ir" for a model of OpenVINO IR, and
      "matmulnbits" for others. Weights with one scale per channel are DequantizeLinear in each of them.
    - ``rounding``: "nearest", or "gptq": the errors of a product's weights compensate each other on the rows of ``inputs``, where
      that makes its error smaller on rows that were not used for it. The default is "gptq" where ``inputs`` has arrays.
    - ``activations``: with int8, also quantize the inputs of products and convolutions to u8, with one scale and zero point for
      each tensor. The range is that of all elements ("minmax"), of all but 0.01 % of them ("percentile"), or the one with the
      smallest squared error ("mse"). By default the activations stay in f32.
    - ``keep``: names of nodes or of constants whose weights keep their type.
    - ``verify``: run the model and the result on rows. Without it there is neither a prediction nor a measured error.
    - ``engine``: "interpreter", "native", "onnxruntime" or "openvino" runs the result for its measured error and the budget, with
      the engine's default settings, in f32; by default the engine that :func:`compile` chooses. The model, and single nodes, run
      in the latter.
    """

    block_size: int | None = None
    symmetric: bool | None = None
    encoding: str | None = None
    rounding: str | None = None
    activations: str | None = None
    verify: bool = True
    keep: Collection[str] = ()
    engine: str | None = None


@dataclass(slots=True)
class QuantizedNode:
    """QuantizedNode is the row of one weight in the report of :func:`quantize`.

    ``node`` and ``op`` are the first node that reads the weight ``value``. ``bits`` and ``bytes`` are those of the result, with
    scales and zero points. ``block`` is the number of codes with one scale, 0 for one scale per channel or none.
    ``rounding`` is "nearest" or "gptq"; "" for a weight that keeps its type.
    ``activation_bits`` are 8 where the node's input is quantized too. ``predicted``
    and ``measured`` are relative errors of the outputs where only this weight is rounded; None where nothing ran. ``kept`` is the
    reason why the weight keeps its type; "" where it is rounded.
    """

    node: str
    op: str
    value: str
    bits_before: int
    bits: int
    block: int
    rounding: str
    bytes_before: int
    bytes: int
    activation_bits: int = 32
    predicted: float | None = None
    measured: float | None = None
    kept: str = ""


@dataclass(slots=True)
class QuantizeReport:
    """QuantizeReport is the report of :func:`quantize`.

    ``predicted`` and ``measured`` are relative errors of the outputs of the result, the latter on the held-out rows; ``upper`` is
    a confidence bound of the error on as many other rows. They are None where nothing ran. ``drawn`` names the random inputs.
    ``engine`` ran the result, "" for the default engine. ``calls`` and ``held_out`` are numbers of calls of the model. ``notes``
    are for people.
    """

    to: str
    nodes: list[QuantizedNode]
    budget: float | None = None
    predicted: float | None = None
    measured: float | None = None
    upper: float | None = None
    engine: str = ""
    calls: int = 0
    held_out: int = 0
    drawn: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bytes_before(self) -> int:
        """The bytes of all weights of the table in the model."""
        return sum(node.bytes_before for node in self.nodes)

    @property
    def bytes(self) -> int:
        """The bytes of all weights of the table in the result."""
        return sum(node.bytes for node in self.nodes)


def attach_report(model: Model, report: QuantizeReport) -> None:
    """Set the report of a model, and store it in the metadata that both formats keep."""
    model.report = report
    section = "metadata_props"
    if model.format != "onnx":
        model.metadata["onnx"] = dict(model.metadata.get("onnx", {}))
    target = model.metadata if model.format == "onnx" else model.metadata["onnx"]
    target[section] = {**target.get(section, {}), PROPERTY: encode_report(report)}


def report_of(model: Model) -> QuantizeReport | None:
    """Return the report of the quantization of a model: its own, or that in the metadata of its file; None if it has none."""
    if isinstance(model.report, QuantizeReport):
        return model.report
    metadata = model.metadata if model.format == "onnx" else model.metadata.get("onnx", {})
    text = metadata.get("metadata_props", {}).get(PROPERTY)
    return decode_report(text) if isinstance(text, str) else None


def encode_report(report: QuantizeReport) -> str:
    """Encode a report as compact JSON; each row is a list of the fields of QuantizedNode.

    Texts are cut at MAX_NAME characters. Rows beyond MAX_ROWS, or such that the text would exceed MAX_CHARACTERS, are left out,
    and a note has their number.
    """
    count = min(len(report.nodes), MAX_ROWS)
    while True:
        left_out = len(report.nodes) - count
        notes = [*([f"{left_out} weights are left out"] if left_out else []), *report.notes]
        record: dict[str, Any] = {each.name: _plain(getattr(report, each.name)) for each in fields(QuantizeReport)}
        record["notes"] = [_plain(note) for note in notes[:MAX_TEXTS]]
        record["drawn"] = [_plain(name) for name in report.drawn[:MAX_TEXTS]]
        record["nodes"] = [[_plain(item) for item in astuple(node)] for node in report.nodes[:count]]
        text = json.dumps(record, separators=(",", ":"))
        if len(text) <= MAX_CHARACTERS or not count:
            return text
        count //= 2


def _plain(item: object) -> object:
    if isinstance(item, str):
        return item[:MAX_NAME]
    if isinstance(item, float | np.floating):
        return float(f"{item:.4g}") if isfinite(item) else None
    return item


def decode_report(text: str) -> QuantizeReport | None:
    """Decode a report from the text of a file, which is untrusted; None if it is not what :func:`encode_report` writes."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    kinds = {each.name: str(each.type) for each in fields(QuantizeReport)}
    rows = record.get("nodes")
    if set(record) != set(kinds) or not isinstance(rows, list) or len(rows) > MAX_ROWS:
        return None
    if not all(_is_of(item, kinds[name]) for name, item in record.items() if name != "nodes"):
        return None
    types = [str(each.type) for each in fields(QuantizedNode)]
    for row in rows:
        if not isinstance(row, list) or len(row) != len(types) or not all(map(_is_of, row, types)):
            return None
    return QuantizeReport(**{**record, "nodes": [QuantizedNode(*row) for row in rows]})


def _is_of(item: object, kind: str) -> bool:
    """Return whether an item of JSON has the type of a field, and is within the limits of the file."""
    if kind == "list[str]":
        return isinstance(item, list) and len(item) <= MAX_TEXTS and all(_is_of(text, "str") for text in item)
    if kind == "str":
        return isinstance(item, str) and len(item) <= MAX_NAME
    if kind == "int":
        return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63
    if item is None:
        return kind == "float | None"
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    return is_number and 0 <= item < 1e300  # type: ignore[operator]
