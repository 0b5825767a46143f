"""Every reader's leniency, checked against the readers: what load accepts beyond its format means what they say it means."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dovetail
from deviations import CASES, OPENVINO, PRESERVED, UNKNOWN_FIELD, WEIGHTS, Deviation, chain, info, model
from dovetail import DovetailError
from dovetail.cli import dovetail as command

ort = pytest.importorskip("onnxruntime")
openvino = pytest.importorskip("openvino")

every_case = pytest.mark.parametrize("item", CASES, ids=[item.name for item in CASES])
FORMATS_PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


UNLIKE = {
    "flag of 2": "differs",
    "no import, and versions differ": "differs",
    "initializer of a branch with an outer name, unlike": "differs",
}
"""Files that both runtimes accept, and read differently."""
REFUSED_AS_SPECIFIED = {"signal of rank 2: STFT"}
"""Files whose form by the specification, which is what dovetail writes, OpenVINO refuses (STFT of rank 3 with a window)."""


def place(item: Deviation, folder: Path) -> Path:
    made = item.make()
    if isinstance(made, str):
        path = folder / "m.xml"
        path.write_text(made, "utf-8")
        path.with_suffix(".bin").write_bytes(WEIGHTS)
        return path
    path = folder / "m.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return path


def inputs(path: Path) -> dict[str, Any]:
    shape: Any = (2, 3)
    if path.suffix == ".onnx":
        (x,) = onnx.load_model_from_string(path.read_bytes()).graph.input[:1]
        shape = [abs(dim.dim_value) for dim in x.type.tensor_type.shape.dim]
    return {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 1}


def by_onnxruntime(path: Path) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs(path)))


def by_openvino(path: Path) -> list[Any]:
    compiled = openvino.Core().compile_model(path, "CPU")
    found = compiled(list(inputs(path).values()))
    return [found[output] for output in compiled.outputs]


RUNTIMES = {"onnxruntime": by_onnxruntime, "openvino": by_openvino}


def assert_same(found: Any, wanted: Any, what: str) -> None:
    assert len(found) == len(wanted), what
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=what)


def ours(path: Path) -> list[Any]:
    return list(dovetail.run(path, inputs(path)).values())


@every_case
def test_the_table_of_deviations_matches_the_runtimes(item: Deviation, tmp_path: Path) -> None:
    path = place(item, tmp_path)
    readers = ("openvino",) if path.suffix == ".xml" else tuple(RUNTIMES)
    found = {}
    for name in readers:
        try:
            found[name] = RUNTIMES[name](path)
        except Exception:  # each has its own
            continue
    if item.name in UNLIKE:
        first, second = (answer[0] for answer in found.values())
        assert first.shape != second.shape or not np.allclose(first, second)
        return
    assert tuple(found) == item.accepted
    for name, answer in found.items() if item.taken else ():
        assert_same(ours(path), answer, f"{item.name}: {name}")


@every_case
def test_check_and_strict_refuse_it_and_load_warns(item: Deviation, tmp_path: Path) -> None:
    path = place(item, tmp_path)
    assert item.code in {each.code for each in dovetail.check(path)}
    with pytest.raises(DovetailError) as caught:
        dovetail.load(path, strict=True)
    assert item.code in {each.code for each in caught.value.diagnostics}
    if item.name in PRESERVED:
        assert item.code in {each.code for each in dovetail.load(path).warnings}
    if not item.taken:
        with pytest.raises(DovetailError) as caught:
            (dovetail.compile if item.name in PRESERVED else dovetail.load)(path)
        assert item.code in {each.code for each in caught.value.diagnostics}
        return
    warnings = [each for each in dovetail.load(path).warnings if each.code == item.code]
    assert warnings and all(each.severity == "warning" and each.file == str(path) for each in warnings)


@pytest.mark.parametrize("item", [item for item in CASES if item.taken], ids=[item.name for item in CASES if item.taken])
def test_a_saved_model_has_no_deviation(item: Deviation, tmp_path: Path) -> None:
    path = place(item, tmp_path)
    loaded = dovetail.load(path)
    again = path.with_stem("again")
    dovetail.save(loaded, again)
    assert_same(ours(again), ours(path), item.name)
    if item.code == "proto.unknown":
        assert again.read_bytes().count(UNKNOWN_FIELD) == 1
    elif item.code == "training.info":
        assert len(onnx.load_model_from_string(again.read_bytes()).training_info) == 1
    else:
        assert dovetail.check(again) == []
        assert not [each for each in dovetail.load(again, strict=True).warnings if each.code == item.code]
    if again.suffix == ".onnx":
        onnx.checker.check_model(again)
    for name in OPENVINO if again.suffix == ".xml" else RUNTIMES:
        if name == "openvino" and (item.accepted == ("onnxruntime",) or item.name in REFUSED_AS_SPECIFIED):
            continue
        assert_same(RUNTIMES[name](again), ours(path), f"{item.name}: {name}")


def many(folder: Path, count: int = 966) -> Path:
    """Return a model with as many values declared twice as a network that onnxslim wrote."""
    kinds = ["Neg"] * (count + 1)
    declared = [info(f"t{index}") for index in range(1, count + 1)]
    path = folder / "m.onnx"
    path.write_bytes(model(chain(*kinds), value_info=[*declared, *declared]).SerializeToString())
    return path


def test_a_kind_is_logged_once_with_its_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = many(tmp_path)
    with caplog.at_level(logging.WARNING, "dovetail"):
        loaded = dovetail.load(path)
    assert len(loaded.warnings) == 966
    (record,) = caplog.records
    assert record.name == "dovetail" and "[value.repeated] 966 times" in record.getMessage()
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("dovetail").handlers)


def test_info_reports_a_kind_of_deviation_once_and_check_reports_each(tmp_path: Path) -> None:
    path = str(many(tmp_path))
    shown = CliRunner().invoke(command, ["info", path, "--json"], standalone_mode=False)
    assert json.loads(shown.stdout) and shown.stderr.count("value.repeated") == 1 and "966 times" in shown.stderr
    checked = CliRunner().invoke(command, ["check", path, "--json"], standalone_mode=False)
    assert checked.return_value == 1
    assert len(json.loads(checked.stdout)["faults"]) == 966


@pytest.mark.parametrize("name", ["run", "convert", "show", "info", "plan", "bench", "grad"])
def test_every_command_that_loads_can_be_strict(name: str, tmp_path: Path) -> None:
    arguments = [name, str(many(tmp_path, 1)), *([str(tmp_path / "out.xml")] if name in ("convert", "grad") else []), "--strict"]
    found = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(found.exception, DovetailError) and found.exception.code == "value.repeated"


def test_more_than_anybody_reads_are_counted_only(tmp_path: Path) -> None:
    assert len(dovetail.load(many(tmp_path, 1100)).warnings) == 1000


def test_unknown_fields_stay_with_their_node_when_nodes_are_sorted(tmp_path: Path) -> None:
    proto = model(chain("Neg", "Exp")[::-1])
    proto.graph.node[0].MergeFromString(UNKNOWN_FIELD)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    dovetail.save(dovetail.load(path), path)
    nodes = onnx.load_model_from_string(path.read_bytes()).graph.node
    assert [UNKNOWN_FIELD in node.SerializeToString() for node in nodes] == [False, True]


def test_the_page_has_the_table() -> None:
    rows = [line.strip("| ").split(" | ") for line in FORMATS_PAGE.read_text("utf-8").splitlines() if line.count("|") == 7]
    assert rows[2:] == [row(item) for item in CASES]


def row(item: Deviation) -> list[str]:
    """Return a line of the table in docs/formats.md."""
    readers = ["accepts" if name in item.accepted else "refuses" for name in RUNTIMES]
    if item.name.startswith("IR: "):
        readers[0] = "-"
    if item.name in UNLIKE:
        readers = [UNLIKE[item.name]] * 2
    return [
        item.name,
        *readers,
        "accepts" if item.taken else "preserves" if item.name in PRESERVED else "refuses",
        f"`{item.code}`",
        "refuses",
    ]
