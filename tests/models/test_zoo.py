"""The questions that bench/zoo.py asks, put to one small model; and to a few of the zoo's, where `make zoo` has made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail.compare.f64_run import run_wide
from models.worker import PeersFault, Unfilled, answer
from models.zoo_cells import CELLS, Record, distance, fill, records

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "build" / "zoo"
SMALL = ("silero-vad.openvino-16k", "text2tashkeel.rawi", "torch.sliced.dynd", "torch.cached.tsd", "estimators.pca")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """One convolution and what follows, with inputs at two sizes, in the files of a zoo."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    generator = np.random.default_rng(0)
    with dovetail.Builder("tiny") as b:
        x = b.input("x", "f32", ("batch", 2, "height", 6))
        weights = b.constant(generator.standard_normal((4, 2, 3, 3)).astype(np.float32))
        left, right = b.Split(b.Conv(x, weights), axis=1, outputs=2)
        b.output("y", b.Concat(b.Sigmoid(left), right * 2, axis=1))
    dovetail.save(b.model, tmp_path / "tiny.onnx", opset=17)
    for suffix, shape in (("", (1, 2, 5, 6)), ("2", (3, 2, 8, 6))):
        np.savez(tmp_path / f"tiny.in{suffix}.npz", x=generator.standard_normal(shape).astype(np.float32))
    facts = [{"id": "tiny", "file": "tiny.onnx", "inputs": "tiny.in{}.npz", "from": "here"}]
    (tmp_path / "index.json").write_text(json.dumps(facts), encoding="utf-8")
    return records(tmp_path)[0]


def test_every_cell_of_a_small_model_is_filled(record: Record) -> None:
    found = {cell: fill(record, cell) for cell in CELLS}
    assert {cell: each.reason for cell, each in found.items()} == dict.fromkeys(CELLS, "")
    assert "bytes copied" in found["plan"].note
    assert "of onnxruntime" in found["time"].note or "of openvino" in found["time"].note


def test_a_model_is_measured_in_a_separate_process(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process reports a model, and one that takes too long reports that."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import questions

    columns = ("load", "native", "to IR")
    found = questions.asked("models.zoo_cells", record.folder, "tiny", columns, questions.Limits())
    assert [found[column].mark for column in columns] == ["yes"] * 3
    assert questions.shares({"tiny": found}, columns)["native"] == (1, 1)
    late = questions.asked("models.zoo_cells", record.folder, "tiny", ("load",), questions.Limits(seconds=0.001))
    assert late["load"].mark == "no"
    assert "over 0.001 s" in late["load"].reason


def test_a_wrong_result_does_not_fill_a_cell(record: Record) -> None:
    theirs = record.results("onnxruntime")
    assert record.judge(theirs, "onnxruntime") is None
    with pytest.raises(Unfilled, match=r"from an f64 run: ours 0\.001"):
        record.judge({name: array * np.float32(1.001) for name, array in theirs.items()}, "onnxruntime")
    with pytest.raises(Unfilled, match="shape"):
        record.judge({name: array[:, :1] for name, array in theirs.items()}, "onnxruntime")


def test_a_cell_is_filled_where_the_other_engine_is_further_from_f64(record: Record) -> None:
    theirs = record.results("onnxruntime")
    record._results["onnxruntime", ""] = {name: array * np.float32(1.001) for name, array in theirs.items()}
    note = record.judge(theirs, "onnxruntime")
    assert note is not None
    assert "onnxruntime 0.001" in note


def test_the_f64_run_computes_in_f64(record: Record) -> None:
    exact = run_wide(record.model, record.inputs())["y"]
    ours = record.results("interpreter")["y"]
    assert exact.dtype == np.float64
    assert 0 < distance(exact, ours) < 1e-6


@pytest.mark.parametrize(("last", "is_known"), [("ReduceSum <keepdims = 0>", True), ("Identity", False)])
def test_ranks_after_an_if_of_two_ranks_are_known_for_each_branch(last: str, is_known: bool, tmp_path: Path) -> None:
    """A result that leaves the graph with two ranks has no known rank."""
    pytest.importorskip("onnxruntime")
    text = f"""<ir_version: 10, opset_import: ["" : 17]> main (bool c, float[a, b] x) => (float[] y) {{
        s = If (c) <then_branch = t () => (float[] p) {{ p = Flatten <axis = 1> (x) }},
                    else_branch = e () => (float[] q) {{ q = ReduceSum <keepdims = 0> (x) }}>
        r = Neg (s)
        y = {last} (r) }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "two.onnx")
    np.savez(tmp_path / "two.in.npz", c=np.array(True), x=np.ones((2, 3), np.float32))
    found = fill(Record(tmp_path, {"id": "two", "file": "two.onnx", "inputs": "two.in{}.npz"}), "infer")
    assert (found.reason == "", "one branch" in found.note) == (is_known, is_known)
    assert is_known or "op.unsayable" in str(found.reason)


def test_an_answer_names_the_implementation_at_fault() -> None:
    def ends(error: Exception) -> Any:
        def question(_: Any) -> None:
            raise error

        return answer(question, None)

    assert answer(lambda _: False, None).reason is None
    assert answer(lambda _: "two", None).note == "two"
    assert ends(PeersFault("theirs")).is_peers
    assert not ends(Unfilled("ours")).is_peers
    assert ends(KeyError("a/b/model.onnx")).reason == "KeyError: 'model.onnx'"


@pytest.mark.skipif(not (ZOO / "index.json").exists(), reason="no build/zoo; `make zoo` makes it")
@pytest.mark.parametrize("name", SMALL)
def test_a_model_of_the_zoo_runs(name: str) -> None:
    found = {each.id: each for each in records(ZOO)}
    if name not in found:
        pytest.skip(f"{name} is not in this zoo")
    for cell in ("load", "infer", "native", "onnxruntime"):
        assert not fill(found[name], cell).reason
