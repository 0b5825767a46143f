"""A few small models of the corpus, asked everything that bench/corpus.py asks of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.corpus_cells import CELLS, fill, records

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
SMALL = (
    "own_cond.dyn20d",  # If
    "own_scan_ssm.dyn21d",  # Scan
    "own_lstm_stream.ptir",  # every size open
    "own_unet_small.dyn18d.qdq_i8i8",  # quantised
    "hf_llama_kv.dyn18d.matmulnbits",  # a cache, 4-bit weights
    "hf_vit_mae.ts11d",  # random numbers
    "mode_llama_raw.ptir",  # an IR file alone
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "index.json").exists(), reason="no ../shared/corpus beside the repository"),
]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", SMALL)
def test_a_cell_of_a_model_is_filled(name: str, cell: str) -> None:
    needs = {"to IR": "openvino", "to ONNX": "onnxruntime", "second sizes": "openvino"}
    if cell in needs:
        pytest.importorskip(needs[cell])
    record = next(each for each in records(FOLDER) if each.id == name)
    assert not fill(record, cell).reason


def test_a_wrong_result_does_not_fill_a_cell() -> None:
    record = next(each for each in records(FOLDER) if each.id == "own_cond.dyn20d")
    source = record.models[0]
    reference = record.reference(source)
    assert reference is not None
    record.judge(source, reference)
    with pytest.raises(Exception, match="away"):
        record.judge(source, {name: array * 1.001 for name, array in reference.items()})
