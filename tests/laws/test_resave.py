"""``save(load(save(x)))`` gives the bytes that ``save(x)`` gave, those of the side file too."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx.parser
import pytest

import backend_data
import dovetail
from case_laws import hold, law
from case_runner import CASES, model_of
from cases import Case
from dovetail import Builder, DovetailError
from dovetail.ir.graph import Model
from interruptions import KINDS, Kind

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
SMALL = 200_000
"""Bytes of the largest file of the corpus that is saved here."""


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def check_saved_again(model: Model, folder: Path) -> list[str]:
    """Hold the law for each kind of file that can say the model. Returns these kinds."""
    found = []
    for name, kind in KINDS.items():
        first, second = folder / f"{name}1", folder / f"{name}2"
        first.mkdir()
        second.mkdir()
        try:
            kind.save(model, first)
        except DovetailError:
            continue
        try:
            again = dovetail.load(first / kind.file)
        except DovetailError:
            # What is written need not be what we run.
            continue
        kind.save(again, second)
        assert files_of(second) == files_of(first), name
        found.append(name)
    return found


@law(CASES[::7])
def check_resave(case: Case, tmp_path: Path) -> None:
    check_saved_again(model_of(case), tmp_path)


test_case = hold(check_resave)


SAMPLES = [sample for sample in backend_data.samples("node") if not os.environ.get("DOVETAIL_FAST")][::40]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_node_test_of_onnx_is_saved_again_as_it_was(sample: backend_data.Sample, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(sample.read_model(), path)
    try:
        model = dovetail.load(path)
    except DovetailError:
        pytest.skip("load refuses this model; test_backend_nodes counts those")
    check_saved_again(model, tmp_path)


def corpus() -> list[Path]:
    found = [path for path in CORPUS.glob("*.*") if path.suffix in (".onnx", ".xml") and path.stat().st_size <= SMALL]
    return sorted(found)[::6]


@pytest.mark.whole_model
@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.name)
def test_a_file_of_an_exporter_is_saved_again_as_it_was(path: Path, tmp_path: Path) -> None:
    assert check_saved_again(dovetail.load(path), tmp_path) == list(KINDS)


NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[2, 3] x_2, bool flag) => (float[2, 3] y) <float x_2_2 = {3}> {
    y = If (flag) <
        then_branch = outer () => (float[2, 3] a) {
            a = If (flag) <
                then_branch = inner () => (float[2, 3] c) { m = Mul(x_2, x_2_2) c = Add(m, x_2) },
                else_branch = other () => (float[2, 3] d) { d = Mul(x_2, x_2_2) }
            >
        },
        else_branch = last () => (float[2, 3] e) { e = Relu(x_2) }
    >
}
"""
"""Bodies in bodies that read the same names from outside, and names as exporters make them."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_names_of_captures_are_stable_over_many_saves(kind: Kind, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NESTED), tmp_path / "nested.onnx")
    model = dovetail.load(tmp_path / "nested.onnx")
    (tmp_path / "nested.onnx").unlink()
    kind.save(model, tmp_path)
    before = files_of(tmp_path)
    for _ in range(3):
        kind.save(dovetail.load(tmp_path / kind.file), tmp_path)
        assert files_of(tmp_path) == before


def test_a_file_that_came_through_the_other_format_is_saved_again_as_it_was(tmp_path: Path) -> None:
    """The bytes are equal from the second trip on, where both formats have an operator of their own for each."""
    with Builder("plain") as b:
        x = b.input("x", "f32", ("n", 4, 6))
        left, right = b.Split(x, [1, 3], axis=1, outputs=2)
        b.output("y", b.Relu(b.Concat(right, b.Multiply(left, 2.0), axis=1)))
    model, found = b.model, []
    for trip in range(6):
        path = tmp_path / ("m.onnx" if trip % 2 else "m.xml")
        dovetail.save(model, path)
        model = dovetail.load(path)
        found.append(path.read_bytes())
    assert found[2] == found[4] and found[3] == found[5]


def test_metadata_of_an_onnx_file_is_preserved_in_ir(tmp_path: Path) -> None:
    proto = backend_data.samples("node")[0].read_model()
    proto.producer_name, proto.doc_string, proto.graph.doc_string = "maker", "a model", "a graph"
    onnx.save(proto, tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    for _ in range(2):
        dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "back.onnx")
    back = onnx.load(tmp_path / "back.onnx")
    assert (back.producer_name, back.doc_string, back.graph.doc_string) == ("maker", "a model", "a graph")
