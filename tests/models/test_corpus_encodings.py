"""Quantized files of the corpus in each encoding: the same outputs bit for bit, or refused by name.

docs/howto/quantize.md has the table of these files and encodings.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail import Model, UnsupportedError
from dovetail.compare.verification.conversion import runner_for
from dovetail.passes.encodings import ENCODINGS
from models.corpus_cells import Record, feed, records

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
OPERATORS = (b"QuantizeLinear", b"MatMulNBits", b"FakeQuantize", b'element_type="i8"', b'element_type="u8"', b'element_type="u4"')
"""The names by which a file is found: quantized operators, and the element types of compressed constants."""
REASONS = {
    "elements": "elements would differ",
    "steps": "steps are at other numbers",
    "channels": "an activation must be f32 with constant limits of one element",
    "biases": "codes must have at most 8 bits, got i32",
    "scalars": "codes must have at least 1 axis, got a scalar",
    "f16": "rounded to f16",
    "readers": "other operators than products read the weight",
    "operands": "its first operand must not be transposed",
    "integers": "its codes are computed by",
}
"""The reasons of refusals in the table, by the word that stands for each there."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "index.json").exists(), reason="no ../shared/corpus beside the repository"),
]


def quantized_files() -> list[Path]:
    found = (path for path in FOLDER.glob("*.*") if path.suffix in (".onnx", ".xml"))
    return sorted(path for path in found if any(word in path.read_bytes() for word in OPERATORS))


def record_of(path: Path) -> Record:
    return next(each for each in records(FOLDER) if each.id == path.stem)


def change(model: Model, encoding: str) -> tuple[Model, Counter[str]]:
    """Return the model in ``encoding`` with the number of refused nodes for each reason; these keep their encoding."""
    try:
        return dovetail.change_encoding(model, encoding), Counter()
    except UnsupportedError as error:
        refusals = re.findall(r"\[op\.unsayable\] (\w+ has no \w+ encoding: .*)", str(error))
    found = Counter(next((word for word, reason in REASONS.items() if reason in text), text) for text in refusals)
    assert refusals and set(found) <= set(REASONS), found
    return dovetail.change_encoding(model, encoding, keeps_others=True), found


def table() -> list[tuple[str, ...]]:
    """Return a row for each file: "equal", or the refused nodes by reason, for each encoding."""
    rows = []
    for path in quantized_files():
        cells = [change(dovetail.load(path), encoding)[1] for encoding in ENCODINGS]
        texts = (", ".join(f"{count} {word}" for word, count in sorted(cell.items())) or "equal" for cell in cells)
        rows.append((path.name, *texts))
    return rows


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("path", quantized_files(), ids=lambda path: path.name)
def test_a_file_has_the_same_outputs_in_each_encoding(path: Path, encoding: str, tmp_path: Path) -> None:
    record, model = record_of(path), dovetail.load(path)
    inputs = feed(model, record.arrays(".in.npz") or {})
    new, _ = change(model, encoding)
    want: Any = dovetail.run(model, inputs, engine="interpreter")
    found: Any = dovetail.run(new, inputs, engine="interpreter")
    for name in want.keys():
        np.testing.assert_array_equal(found[name], want[name])
    record.judge(path, dovetail.run(new, inputs))
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    dovetail.save(new, tmp_path / "model.xml")
    record.judge(path, runner_for(tmp_path / "model.xml", "openvino").run(inputs))
    dovetail.save(new, tmp_path / "model.onnx")
    with contextlib.suppress(oracles.Silent):
        theirs = oracles.run_onnxruntime((tmp_path / "model.onnx").read_bytes(), inputs)
        record.judge(path, dict(zip(want.keys(), theirs, strict=True)))


def test_the_documents_have_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "quantize.md").read_text(encoding="utf-8")
    missing = [row for row in table() if f"| {' | '.join(row)} |" not in text]
    assert not missing
