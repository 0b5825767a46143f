"""A model of one operator for each row of ``cases_openvino``, built with openvino and saved as IR: what we read of it is what
OpenVINO means, and so is what we write of it, as IR and as ONNX.

All of them count. A row of an operator that is not built here is skipped, by name.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

import dovetail  # noqa: E402
import oracles  # noqa: E402
from cases_openvino import Row, all_rows  # noqa: E402
from coverage_summary import NOT_BUILT  # noqa: E402
from dovetail.compare.verification.conversion import compare  # noqa: E402
from dovetail.errors import UnsupportedError  # noqa: E402
from dovetail.formats.openvino.opsets import VERSIONS  # noqa: E402
from openvino_runner import STEPS, WITHOUT_ROWS, built, feeds, known, outcome, work  # noqa: E402

ROWS = all_rows()
TABLE = Path(__file__).parents[2] / "docs" / "openvino_operators.md"

# What a function of the opset modules makes, where its name is not the operator's.
FUNCTIONS = {
    "absolute": "Abs", "ceil": "Ceiling", "constant": "Const", "if_op": "If", "hswish": "HSwish", "hsigmoid": "HSigmoid",
    "parameter": "Parameter", "result": "Result", "i420_to_bgr": "I420toBGR", "softplus": "SoftPlus", "softsign": "SoftSign",
}  # fmt: skip


KNOWN = known()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{family}: {row}") for family, row in ROWS])
def test_openvino_node(row: Row, step: str) -> None:
    if not row.refused and (row.kind, row.version) not in KNOWN:
        pytest.skip(f"{NOT_BUILT}{row.operator}")
    assert (row.kind, row.version, "") in work(row).kinds(), "openvino writes another operator or version"
    wanted = (
        row.refused if step == "values" else (row.refused and step == "onnx") or {"ir": row.ir, "onnx": row.onnx}.get(step, "")
    )
    how, what = outcome(row, step)
    if row.refused and step == "ir":
        assert how in ("agrees", "refused"), what
    elif wanted:
        assert how == "refused" and what.startswith(str(row.refused or wanted).partition(":")[0]), (how, what)
    elif how == "silent":
        pytest.skip(what)
    else:
        assert how == "agrees", what


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{family}: {row}") for family, row in ROWS if feeds(row)])
def test_an_openvino_node_of_open_sizes_gives_the_same(row: Row, tmp_path: Path) -> None:
    """A model of unknown sizes runs as the one of known sizes, or is refused."""
    if row.refused or (row.kind, row.version) not in KNOWN or row.is_random:
        pytest.skip("nothing to compare")
    model = built(row)
    try:
        model.reshape({port: openvino.PartialShape([-1] * len(port.get_partial_shape())) for port in model.inputs})
    except RuntimeError:
        pytest.skip("OpenVINO itself wants sizes here")
    openvino.serialize(model, tmp_path / "open.xml")
    fixed = work(row)
    try:
        found = dovetail.run(tmp_path / "open.xml", dict(fixed.inputs))
    except UnsupportedError as error:
        pytest.skip(str(error.code))
    assert [
        str(row) for row in compare(dovetail.run(fixed.load(), dict(fixed.inputs)), found, row.tolerance) if not row.agrees
    ] == []


def test_a_spectrum_of_open_length_is_cut_to_the_signal_size_in_onnx(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 2)).astype(np.float32)
    with dovetail.Builder() as b:
        b.output("y", b.IRDFT(b.input("x", "f32", (2, None, 2)), [1], [7]))
    dovetail.save(b.model, tmp_path / "spectrum.onnx")
    (found,) = oracles.run_onnxruntime((tmp_path / "spectrum.onnx").read_bytes(), {"x": x})
    np.testing.assert_allclose(found, np.fft.irfft(x[..., 0] + 1j * x[..., 1], 7), atol=1e-6)


def test_every_version_of_every_operator_has_a_row_or_a_reason() -> None:
    rows = {row.operator for _, row in ROWS}
    every = {f"{kind}-{version}" for kind, versions in VERSIONS.items() for version in versions}
    assert sorted(every - rows - set(WITHOUT_ROWS)) == []
    assert sorted(rows - every) == []
    assert sorted(rows & set(WITHOUT_ROWS)) == []


def test_every_operator_that_the_openvino_package_can_build_is_among_them() -> None:
    kinds = {kind.lower() for kind in VERSIONS}
    unknown = set()
    for number in range(1, 64):
        try:
            module: Any = importlib.import_module(f"openvino.opset{number}")
        except ImportError:
            break
        for name in vars(module):
            if callable(getattr(module, name)) and not name.startswith("_"):
                plain = FUNCTIONS.get(name, name).replace("_", "").lower()
                if plain not in kinds:
                    unknown.add(name)
    assert sorted(unknown) == []


def test_a_row_without_results_of_openvino_has_a_reason() -> None:
    assert [str(row) for _, row in ROWS if bool(row.answers) != bool(row.why)] == []


def test_the_table_in_the_documents_counts_these_rows() -> None:
    from models.openvino_table import counted

    said = {
        cells[0]: int(cells[1]) for cells in map(_cells, TABLE.read_text().splitlines()) if len(cells) == 5 and cells[1].isdigit()
    }
    assert said == counted()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]
