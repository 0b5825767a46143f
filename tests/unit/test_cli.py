"""The command line: what goes to stdout, what to stderr, and how it ends."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail import Builder, cli
from dovetail.cli import output
from dovetail.compare.verification import conversion as verify
from dovetail.errors import DovetailError, EngineError, FormatError, RuleError, UnsupportedError
from dovetail.ir.host import native_core
from dovetail.runtime.peers import Runner

ENGINE = "native" if native_core.is_compiled else "interpreter"
"""What `run` takes by default."""


def value(name: str, shape: Any = None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def write_model(path: Path, *nodes: Any, domains: tuple[str, ...] = ()) -> Path:
    """x[n, 4] -> y (and z where a node makes one)."""
    made = {name for node in nodes for name in node.output}
    outputs = [value(name) for name in ("y", "z") if name in made]
    graph = helper.make_graph(
        list(nodes), "g", [value("x", ["n", 4])], outputs, [numpy_helper.from_array(np.array([2, 6]), "sizes")]
    )
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())
    return path


JOIN = helper.make_node("Concat", ["x", "x"], ["c"], axis=1, name="join")
CUT = helper.make_node("Split", ["c", "sizes"], ["y", "z"], axis=1, name="cut")
STRANGE = [
    helper.make_node("Mystery", ["x"], ["t"], domain="far.away", name="first"),
    helper.make_node("Puzzle", ["t"], ["y"], domain="far.away", name="second"),
]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_model(Path("model.onnx"), JOIN, CUT)
    return "model.onnx"


class Ran:
    """One call of the command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        self.code = caught.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda *arguments: Ran(capsys, *arguments)


# run


def test_run_prints_a_table_of_outputs_and_notes_on_stderr(model: str, ran: Any) -> None:
    found = ran("run", model)
    assert found.code == 0
    lines = found.out.splitlines()
    assert lines[0].split() == ["output", "type", "min", "mean", "max"]
    assert [line.split()[0] for line in lines[1:]] == ["y", "z"] and "f32[3, 2]" in lines[1]
    assert "random inputs (seed 0): x" in found.err and f" ms, {ENGINE}" in found.err


def test_run_reads_and_writes_arrays(model: str, ran: Any) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.save("x.npy", x)
    np.savez("all.npz", x=x)
    both = np.concatenate([x, x], axis=1)
    for given in ("x.npy", "x=x.npy", "all.npz"):
        found = ran("run", model, "-i", given, "-o", "out.npz")
        assert found.code == 0 and "random" not in found.err
        with np.load("out.npz") as outputs:
            assert outputs.files == ["y", "z"]
            np.testing.assert_array_equal(outputs["y"], both[:, :2])
            np.testing.assert_array_equal(outputs["z"], both[:, 2:])


def test_run_gives_the_same_random_inputs_for_the_same_seed(model: str, ran: Any) -> None:
    texts = [ran("run", model, "--seed", seed, "--dim", "n=5").out for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2] and "f32[5, 2]" in texts[0]


def test_plan_is_for_the_inputs_of_files(model: str, ran: Any) -> None:
    np.save("x.npy", np.zeros((7, 4), np.float32))
    found = ran("plan", model, "-i", "x.npy", "--rounds", "0", "--json")
    assert found.code == 0 and found.json["shapes"] == {"x": [7, 4]}
    np.save("x.npy", np.zeros((7, 5), np.float32))
    assert "[input.shape]" in ran("plan", model, "-i", "x.npy").err


def test_run_in_json_has_the_facts_of_the_table(model: str, ran: Any) -> None:
    found = ran("run", model, "--json").json
    assert (found["dovetail"], found["version"], found["engine"], found["random"]) == ("run", 1, ENGINE, ["x"])
    assert [(item["name"], item["type"]) for item in found["outputs"]] == [("y", "f32[3, 2]"), ("z", "f32[3, 6]")]
    assert all(item["min"] <= item["mean"] <= item["max"] for item in found["outputs"])


def test_json_stays_json_where_numbers_are_none(tmp_path: Path, ran: Any) -> None:
    path = write_model(tmp_path / "m.onnx", JOIN, CUT)
    np.save(tmp_path / "x.npy", np.array([[np.nan, np.inf, -np.inf, 0]], np.float32))
    outputs = ran("run", str(path), "-i", str(tmp_path / "x.npy"), "--json").json["outputs"]
    assert outputs[0]["max"] == "nan" and np.isnan(float(outputs[0]["max"]))


def test_element_types_that_numpys_files_lack_survive_a_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with Builder() as b:
        x = b.input("x", "bf16", (2,))
        b.output("y", b.Concat(x, x, axis=0))
    dovetail.save(b.model, "m.onnx")
    data = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.save("raw.npy", data)
    np.save("wide.npy", data.astype(np.float32))
    for name in ("raw.npy", "wide.npy"):
        assert ran("run", "m.onnx", "-i", name, "-o", "y.npy").code == 0
        assert np.load("y.npy").tolist() == [1.5, -2, 1.5, -2]
        assert ran("run", "m.onnx", "-i", "y.npy").code == 6
    np.save("other.npy", np.array([0.1, 0.2], np.float32))
    assert "[input.dtype]" in ran("run", "m.onnx", "-i", "other.npy").err


WEIRD = ["a=b", "file", "-x", "a b/c", "$(touch pwned)", "\x1b[31mred", "new\nline", "\u202eback", "ünïcode", "arr_0"]


@pytest.mark.parametrize("name", WEIRD)
def test_names_are_only_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with Builder() as b:
        x = b.input(name, "f32", (f"d{len(name)}",))
        b.output(f"{name}.out", b.Concat(x, x, axis=0))
    dovetail.save(b.model, "m.onnx")
    np.save("x=1.npy", np.ones(2, np.float32))
    for given in (f"{name}=x=1.npy", "x=1.npy"):
        found = ran("run", "m.onnx", "-i", given, "-o", "o=ut.npz")
        assert found.code == 0, found.err
        with np.load("o=ut.npz") as outputs:
            assert outputs.files == [f"{name}.out"] and outputs[f"{name}.out"].shape == (4,)
    for command in (["show"], ["info"], ["check"], ["run", "--seed", "1"], ["show", "--json"], ["info", "--json"]):
        found = ran(*command, "m.onnx")
        assert found.code == 0
        assert "\x1b" not in found.out + found.err and "\u202e" not in found.out + found.err
    found = ran("convert", "m.onnx", "m.xml")
    if "\x1b" in name:
        # XML has no way to say it.
        assert found.code == 4 and "[name.invalid]" in found.err
    else:
        assert [x.name for x in dovetail.load("m.xml").inputs] == [name]
    assert not Path("pwned").exists()


BAD_USES = [
    ("run", "model.onnx", "-o", "out.txt"),
    ("run", "model.onnx", "-o", "out.npy"),
    ("run", "model.onnx", "--dim", "n"),
    ("run", "model.onnx", "--dim", "n=²"),
    ("run", "model.onnx", "--dim", "n=-1"),
    ("run", "model.onnx", "--dim", "k=1"),
    ("run", "model.onnx", "--seed", "-1"),
    ("run",),
    ("run", "model.onnx", "--colour"),
    ("fly",),
    ("convert", "model.onnx"),
    ("convert", "model.onnx", "m.xml", "--opset", "13"),
    ("convert", "model.onnx", "m.xml", "--external"),
    ("convert", "model.onnx", "m.xml", "--tolerance", "1"),
    ("convert", "model.onnx", "m.xml", "--verify", "--tolerance", "-1"),
    ("grad", "model.onnx", "g.xml", "--opset", "13"),
    ("run", "model.onnx", "--engine", "fast"),
    ("run", "model.onnx", "--threads", "0"),
    ("run", "model.onnx", "-i", "missing.npy"),
    ("run", "model.onnx", "-o", "-", "--json"),
    ("convert", "model.onnx", "-", "--json"),
    ("convert", "model.onnx", "-", "--verify"),
    ("convert", "model.onnx", "-", "--external"),
    ("bench", "-"),
]


@pytest.mark.parametrize("arguments", BAD_USES, ids=" ".join)
def test_a_wrong_use_ends_in_2_and_writes_nothing(arguments: tuple[str, ...], model: str, ran: Any) -> None:
    found = ran(*arguments)
    assert found.code == 2 and "Usage:" in found.err
    assert found.json["error"] == "UsageError" if "--json" in arguments else found.out == ""
    assert os.listdir() == ["model.onnx"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "array.file"), (b"\x93NUMPY\x01\x00", "array.file"), (b"PK\x03\x04junk", "array.file")],
)
def test_files_that_hold_no_arrays_are_refused(content: bytes, code: str, model: str, ran: Any) -> None:
    Path("x.npy").write_bytes(content)
    found = ran("run", model, "-i", "x.npy")
    assert found.code == 6 and f"EngineError [{code}]" in found.err


def test_pickles_are_not_executed(model: str, ran: Any) -> None:
    np.save("x.npy", np.array([print], dtype=object), allow_pickle=True)
    assert "[array.file]" in ran("run", model, "-i", "x.npy").err


# convert


def test_convert_verifies_in_the_runtimes_of_both_formats(model: str, ran: Any) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    found = ran("convert", model, "model.xml", "--verify")
    assert found.code == 0
    assert found.out.splitlines()[0].split() == "output type max abs max rel allowed file run by".split()
    assert found.out.count("agrees") == 4
    assert [line.split("agrees")[1].split()[:2] for line in found.out.splitlines()[1:]] == [
        *[["model.xml", "openvino"]] * 2,
        *[["model.onnx", "dovetail"]] * 2,
    ]
    assert "model.onnx in onnxruntime" in found.err and "tolerance 0.0001" in found.err
    back = ran("convert", "model.xml", "back.onnx", "--verify", "--json").json
    assert back["agrees"] is True and back["tolerance"] == 1e-4
    assert back["runtimes"][0].startswith("openvino") and back["runtimes"][1].startswith("onnxruntime")
    assert back["runtimes"][2] == "dovetail"
    rows = [(item["output"], item["file"], item["absolute"], item["agrees"]) for item in back["outputs"]]
    assert rows == [(name, file, 0, True) for file in ("back.onnx", "model.xml") for name in ("y", "z")]


def test_a_difference_ends_in_1(model: str, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(path: str, prefer: str | None = None) -> Runner:
        runner = verify._ours(path)
        return Runner("a wrong one", lambda inputs: {name: array + 1 for name, array in runner.run(inputs).items()})

    monkeypatch.setattr(verify, "run_either", lambda path, inputs: (verify._ours(path), verify._ours(path).run(inputs)))
    monkeypatch.setattr(verify, "runner_for", wrong)
    found = ran("convert", model, "model.xml", "--verify")
    assert found.code == 1 and found.out.count("differs") == 2 and found.out.count("a wrong one") == 2
    assert ran("convert", model, "model.xml", "--verify", "--tolerance", "1e9").code == 0


def test_dovetail_is_verified_together_with_both_runtimes(model: str, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    ours = verify._ours

    def wrong(*arguments: Any) -> Runner:
        return Runner("dovetail", lambda inputs: {name: array + 1 for name, array in ours(*arguments).run(inputs).items()})

    monkeypatch.setattr(verify, "_ours", wrong)
    found = ran("convert", model, "model.xml", "--verify", "--json")
    assert found.code == 1 and found.json["agrees"] is False
    assert [row["agrees"] for row in found.json["outputs"]] == [True, True, False, False]


def test_outputs_that_cannot_be_compared_are_reported_in_cell_and_exit_code(
    tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    with Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", ("n", 4))))
        b.output("drawn", b.RandomUniform([2, 3], np.float32(0), np.float32(1)))
    dovetail.save(b.model, "m.onnx")
    found = ran("convert", "m.onnx", "m.xml", "--verify")
    assert found.code == 1 and found.out.count("agrees") == 2 and found.out.count("not compared: random") == 2
    found = ran("convert", "m.onnx", "m.xml", "--verify", "--json")
    rows = {(row["output"], row["runtime"] == "dovetail"): row for row in found.json["outputs"]}
    assert found.json["agrees"] is False and rows["drawn", True]["why"] == "not compared: random"
    assert rows["drawn", False]["absolute"] == "nan" and rows["y", False]["agrees"] and not rows["drawn", False]["agrees"]


def test_dropout_in_inference_is_compared(tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    for name, inputs in {
        "one": ("x",),
        "two": ("x", "ratio"),
        "three": ("x", "ratio", "no"),
        "four": ("x", "zero", "yes"),
    }.items():
        constants = [
            onnx.numpy_helper.from_array(array, name)
            for name, array in {
                "ratio": np.float32(0.5), "no": np.array(False), "zero": np.float32(0), "yes": np.array(True),
            }.items()
        ]  # fmt: skip
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Dropout", inputs, ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [2, 3])],
            [onnx.helper.make_tensor_value_info("y", 1, [2, 3])],
            constants,
        )
        opsets = [onnx.helper.make_opsetid("", 13)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), f"{name}.onnx")
        found = ran("convert", f"{name}.onnx", "again.onnx", "--verify", "--json")
        assert found.code == 0, (name, found.out, found.err)
        assert all(row["why"] == "" and row["relative"] == 0 for row in found.json["outputs"]) and found.json["outputs"]


def test_a_source_that_its_own_runtime_refuses_runs_in_ours(model: str, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: str) -> Runner:
        raise EngineError("runtime.load", "onnxruntime does not load it: no reason", file=path)

    monkeypatch.setattr(verify, "_onnxruntime", refusing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "onnxruntime")
    found = ran("convert", model, "model.xml", "--verify")
    assert found.code == 0 and "no reason" in found.err and "model.onnx in dovetail" in found.err


def test_a_refused_conversion_names_every_node(tmp_path: Path, ran: Any) -> None:
    path = write_model(tmp_path / "m.onnx", *STRANGE, domains=("far.away",))
    found = ran("convert", str(path), str(tmp_path / "m.xml"))
    assert found.code == 4 and found.out == ""
    assert found.err == (
        "UnsupportedError: 2 nodes that openvino cannot express\n"
        "[op.unknown] Mystery-1 of onnx has no known equivalent in openvino\n"
        "  in first = Foreign(far.away.Mystery-1)(f32[n, 4])\n"
        f"  at {path}\n"
        "[op.unknown] Puzzle-1 of onnx has no known equivalent in openvino\n"
        "  in second = Foreign(far.away.Puzzle-1)(?[...])\n"
        f"  at {path}\n"
    )
    assert sorted(os.listdir(tmp_path)) == ["m.onnx"]


def test_an_error_in_json_has_every_fault(tmp_path: Path, ran: Any) -> None:
    path = write_model(tmp_path / "m.onnx", *STRANGE, domains=("far.away",))
    found = ran("convert", str(path), str(tmp_path / "m.xml"), "--json")
    assert found.json["dovetail"] == "error" and found.json["exit_code"] == found.code == 4
    assert [item["node"] for item in found.json["faults"]] == ["first", "second"] and found.json["error"] == "UnsupportedError"


def test_opset_and_external_reach_the_file(model: str, ran: Any) -> None:
    assert ran("convert", model, "b.onnx", "--opset", "13").code == 0
    assert dovetail.load("b.onnx").versions[""] == 13
    assert ran("convert", model, "c.onnx", "--opset", "12345").code == 4


# check, show, info


def test_check_reports_every_fault_and_ends_in_1(tmp_path: Path, ran: Any) -> None:
    path = write_model(
        tmp_path / "m.onnx",
        helper.make_node("Concat", ["x", "x"], ["y"], axis=7, name="far"),
        helper.make_node("Split", ["x", "sizes"], ["z", "w"], axis=1, name="cut"),
    )
    found = ran("check", str(path))
    assert found.code == 1 and found.err.endswith(": 2 faults\n")
    fault = "[axis.range] axis must be in [-2, 1], got 7\n  in far = Concat(axis=7)(f32[n, 4], f32[n, 4])"
    assert f"{fault}\n  at {path}\n" in found.out
    items = ran("check", str(path), "--json").json
    assert items["sound"] is False and [item["node"] for item in items["faults"]] == ["far", "cut"]
    assert all(item["code"] and item["message"] and item["file"] == str(path) for item in items["faults"])


def test_check_of_a_sound_model_ends_in_0(model: str, ran: Any) -> None:
    assert (ran("check", model).code, ran("check", model).out) == (0, "model.onnx: sound\n")
    assert ran("check", model, "--json").json == {
        "dovetail": "check", "version": 1, "file": "model.onnx", "sound": True, "faults": [], "warnings": [],
    }  # fmt: skip


@pytest.mark.parametrize("command", ["run", "check", "show", "info"])
def test_an_unreadable_file_is_an_error(command: str, tmp_path: Path, ran: Any) -> None:
    missing = ran(command, str(tmp_path / "missing.onnx"))
    assert missing.code == 3 and missing.err.startswith("MissingFileError [file.missing]: the file")
    (tmp_path / "model.txt").touch()
    assert ran(command, str(tmp_path / "model.txt")).code == 4


def test_show_prints_the_graph(model: str, ran: Any) -> None:
    found = ran("show", model)
    assert found.code == 0 and found.err == ""
    assert found.out == (
        "# onnx · opset 18\n"
        "graph g(x: f32[n, 4]) -> (y: f32[n, 2], z: f32[n, 6]):\n"
        "  c: f32[n, 8] = Concat(x, x; axis=1)  # join\n"
        "  y: f32[n, 2], z: f32[n, 6] = Split(c, [2, 6]; axis=1, outputs=2)  # cut\n"
    )
    graph = ran("show", model, "--json").json["graph"]
    assert [node["op"] for node in graph["nodes"]] == ["Constant", "Concat", "Split"]
    assert graph["nodes"][2]["inputs"] == ["c", "sizes"] and graph["outputs"][0]["shape"] == ["n", 2]


def test_info_counts(model: str, ran: Any) -> None:
    assert ran("info", model).out.splitlines()[:2] == ["model.onnx: onnx, opset 18", "2 nodes, 2 parameters, 16 bytes"]
    found = ran("info", model, "--json").json
    assert found["operators"] == {"Concat": 1, "Split": 1} and found["parameters"] == 2 and found["format"] == "onnx"
    assert found["version"] == 1 and found["model_versions"][""] == 18


def test_warnings_are_printed_on_stderr(tmp_path: Path, ran: Any) -> None:
    path = write_model(tmp_path / "m.onnx", JOIN, CUT)
    proto = helper.make_model(helper.make_graph([JOIN], "g", [value("x", [2, 4])], [value("c", [9, 9])]), ir_version=9)
    path.write_bytes(proto.SerializeToString())
    found = ran("show", str(path))
    assert found.code == 0 and "warning [type.declared]" in found.err and "warning" not in found.out
    assert ran("check", str(path), "--json").json["faults"][0]["code"] == "type.declared"
    assert ran("-q", "show", str(path)).err == "" == ran("show", str(path), "-q").err


# grad


def test_grad_writes_a_model(tmp_path: Path, ran: Any) -> None:
    source, target = str(tmp_path / "m.onnx"), str(tmp_path / "g.onnx")
    write_model(Path(source), JOIN, CUT)
    found = ran("grad", source, target, "--of", "y", "--wrt", "x", "--json")
    assert found.code == 0, found.err
    assert found.json["inputs"] == ["x", "grad:y"] and found.json["outputs"] == ["y", "grad:x"]
    assert dovetail.check(target) == []
    assert ran("grad", source, target, "--of", "nowhere").code == 5


# Errors


GOLDEN: list[tuple[DovetailError, str]] = [
    (
        RuleError(
            "shape.disagree", "axis 1 of input 0 (2) must equal axis 1 of input 1 (3)",
            node="cat_3", op="Concat(axis=0)(f32[n, 2], f32[n, 3])", file="m.xml",
        ),
        "RuleError [shape.disagree]: axis 1 of input 0 (2) must equal axis 1 of input 1 (3)\n"
        "  in cat_3 = Concat(axis=0)(f32[n, 2], f32[n, 3])\n"
        "  at m.xml",
    ),
    (FormatError("ir.xml", "no element found", file="m.xml"), "FormatError [ir.xml]: no element found\n  at m.xml"),
    (EngineError("input.missing", "no value for the input 'x'"), "EngineError [input.missing]: no value for the input 'x'"),
    (
        UnsupportedError("op.unknown", "Mystery\x1b[2J\n  at /etc/passwd", node="a\nb"),
        "UnsupportedError [op.unknown]: Mystery\\x1b[2J\\x0a  at /etc/passwd\n  in a\\x0ab",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text"), GOLDEN)
def test_errors_are_printed_in_one_form(error: DovetailError, text: str) -> None:
    assert output.error_text(error) == text


EXIT_CODES = [(FormatError, 3), (UnsupportedError, 4), (RuleError, 5), (EngineError, 6)]


@pytest.mark.parametrize(("kind", "code"), EXIT_CODES)
def test_each_class_of_error_has_its_exit_code(
    kind: type[DovetailError], code: int, model: str, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise kind("some.code", "some fact")

    monkeypatch.setattr("dovetail.formats.load", failing)
    found = ran("show", model)
    assert (found.code, found.err) == (code, f"{kind.__name__} [some.code]: some fact\n")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (PermissionError(13, "Permission denied", "m.onnx"), 3, "PermissionError [file.system]: Permission denied: m.onnx"),
        (MemoryError(), 6, "MemoryError [run.memory]: out of memory"),
        (AttributeError("oops"), 7, "AttributeError [internal]: oops; this is a fault of dovetail"),
    ],
)
def test_other_exceptions_have_no_traceback_unless_asked(
    error: Exception, code: int, text: str, model: str, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("dovetail.formats.load", failing)
    found = ran("show", model)
    assert found.code == code and text in found.err and "Traceback" not in found.err and len(found.err.splitlines()) == 1
    for arguments in (["--debug", "show", model], ["show", model, "--debug"]):
        with pytest.raises(type(error)):
            cli.main(arguments)


# The process


def test_stdin_and_stdout_are_named_by_a_dash(model: str, tmp_path: Path) -> None:
    def call(arguments: str, stdin: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "dovetail", *arguments.split()]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    data = Path(model).read_bytes()
    shown = call(f"show {model}")
    assert call("show -", data) == shown
    assert call("check -", data).endswith(b"sound\n")
    written = call("convert - -", data)
    assert call("show -", written) == shown
    result = call("run - --dim n=2 -o -", data)
    with np.load(io.BytesIO(result)) as arrays:
        assert len(arrays.files) == len(dovetail.load(model).outputs)
    name = dovetail.load(model).inputs[0].name
    np.savez(
        "inputs.npz",
        **{x.name: np.ones([s if isinstance(s, int) else 2 for s in x.shape or ()], "f4") for x in dovetail.load(model).inputs},
    )
    assert call(f"run {model} -i - -o -", Path("inputs.npz").read_bytes()) == call(f"run {model} -i inputs.npz -o - --threads 1")
    both = subprocess.run(
        [sys.executable, "-m", "dovetail", "run", "-", "-i", f"{name}=-"], input=data, capture_output=True, check=False
    )
    assert both.returncode == 2 and b"stdin" in both.stderr


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_are_no_faults(closed: str, model: str, tmp_path: Path) -> None:
    for arguments in (["run", model], ["check", model], ["show", model], ["convert", model, "copy.xml"]):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "dovetail", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (arguments, done.stderr)
    assert (tmp_path / "copy.xml").exists()


def test_the_command_itself(model: str) -> None:
    def call(*arguments: str, **options: Any) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "dovetail", *arguments], capture_output=True, text=True, check=False, **options
        )

    helped = call("--help")
    assert helped.returncode == 0 and "Exit codes" in helped.stdout
    for name in ("check", "convert", "grad", "info", "run", "show"):
        assert f"\n  {name} " in helped.stdout
    version = call("--version")
    assert version.returncode == 0 and version.stdout.startswith(f"dovetail {dovetail.__version__}, ")
    assert (call("show", "missing.onnx").returncode, call("show").returncode) == (3, 2)
    piped = subprocess.run(
        f'{sys.executable} -m dovetail show {model} | head -c 1; echo "${{PIPESTATUS[0]}}"',
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert piped.stderr == "" and piped.stdout.endswith("0\n")


SLOW = """
import sys, time
from dovetail import cli, formats
from dovetail.cli import output
load = formats.load
formats.load = lambda *args, **options: (time.sleep(1), load(*args, **options))[1]
output.PROGRESS_SECONDS = float(sys.argv[1])
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize(("seconds", "is_shown"), [(60.0, False), (0.2, True)])
def test_a_terminal_gets_progress_of_long_work_and_a_drawn_table_and_no_color_is_honoured(
    model: str, seconds: float, is_shown: bool
) -> None:
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", SLOW, str(seconds), "run", model]
    child = subprocess.Popen(command, stdout=side, stderr=side, env=environment)
    os.close(side)
    told = b""
    try:
        while piece := os.read(main, 65536):
            told += piece
    except OSError:
        pass  # How Linux says that the other end is closed.
    assert child.wait() == 0
    os.close(main)
    text = told.decode()
    assert ("loading model.onnx" in text) == is_shown and "─" in text
    assert "\x1b[3" not in text and "\x1b[1;3" not in text


LISTS = """<ir_version: 10, opset_import: ["" : 18]>
lists (seq(float[m,3]) xs, optional(float[2]) maybe) => (seq(float[k,3]) ys, float[n,3] z, optional(float[2]) same) {
    ys = SequenceMap (xs) <body: graph = b (float[l,3] x) => (float[l,3] y) { y = Neg (x) }>
    z = ConcatFromSequence <axis = 0> (ys)
    same = Identity (maybe)
}"""


def test_sequences_are_read_from_files_by_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Any) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(LISTS), "lists.onnx")
    np.savez("in.npz", **{"xs/0": np.ones((1, 3), np.float32), "xs/1": np.zeros((4, 3), np.float32), "maybe": np.float32([1, 2])})
    found = ran("run", "lists.onnx", "-i", "in.npz", "-o", "out.npz")
    assert found.code == 0 and "sequence of 2" in found.out, found.err
    with np.load("out.npz") as outputs:
        assert sorted(outputs.files) == ["same", "ys/0", "ys/1", "z"]
        np.testing.assert_array_equal(outputs["z"], np.concatenate([np.full((1, 3), -1), np.zeros((4, 3))]))
    for command in ("run", "check", "show", "info", "plan"):
        found = ran(command, "lists.onnx")
        assert found.code == 0, (command, found.out, found.err)
    found = ran("convert", "lists.onnx", "again.onnx", "--verify")
    assert found.code == 0 and "ys/1" in found.out, (found.out, found.err)
    found = ran("convert", "lists.onnx", "lists.xml")
    assert found.code == 4 and "sequence(f32[?, 3])" in found.err
    assert ran("run", "lists.onnx", "-i", "in.npz", "-o", "out.npy").code == 2


CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
RENAMED = re.findall(r"^\| `(dovetail [^`]*)`( over tensors)? \| `(dovetail [^`]*)` \|$", CHANGELOG, re.M)


def test_the_changelog_lists_renamed_commands_and_options() -> None:
    assert ("dovetail compare --inputs", "", "dovetail compare --input") in RENAMED
    assert ("dovetail map", " over tensors", "dovetail reshard") in RENAMED


@pytest.mark.parametrize(("old", "tensors", "new"), RENAMED)
def test_an_old_command_or_option_names_the_new_one(old: str, tensors: str, new: str, ran: Any, model: str) -> None:
    given = [model, "model.safetensors", "-o", "out"] if tensors else []
    error = ran(*old.split()[1:], *given)
    assert error.code == 2 and re.search(rf"{new if tensors else new.split()[-1]}['?]", error.err), error.err


@pytest.mark.parametrize(("name", "end"), [("comprae", ": did you mean 'compare'?"), ("xyz", "."), ("--xyz", "")])
def test_an_unknown_command_names_the_closest_one(name: str, end: str, ran: Any) -> None:
    error = ran(name)
    assert error.code == 2 and f"No such {'option' if name.startswith('-') else 'command'} {name!r}{end}" in error.err


@pytest.mark.parametrize("command", [["run"], ["profile", "--runs", "1"], ["compare"], ["map"]])
def test_an_unknown_input_names_the_closest_one(command: list[str], ran: Any, tmp_path: Path, model: str) -> None:
    np.save("x.npy", np.ones((2, 4), np.float32))
    with Builder("g") as b:
        b.output("y", b.input("image", "f32", ("n", 4)) * b.input("scale", "f32", ("n", 1)))
    dovetail.save(b.model, "named.onnx")
    if command == ["map"]:
        error = ran("map", "named.onnx", "x.npy", "-o", "out", "--column", "imgae=x")
    else:
        error = ran(*command, "named.onnx", "-i", "imgae=x.npy")
    assert error.code != 0 and "imgae" in error.err and "did you mean 'image'?" in error.err, error.err


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_names_of_inputs_and_outputs_get_suggestions(engine: str) -> None:
    with Builder("g") as b:
        b.output("scores", b.Relu(b.input("image", "f32", (4,))))
    program, x = dovetail.compile(b.model, engine), np.ones(4, np.float32)
    for call, name in (
        (lambda: program(imgae=x), "image"),
        (lambda: program.session()(imgae=x), "image"),
        (lambda: program(image=x, Image=x), "image"),
        (lambda: dovetail.interpret(b.model, {"imgae": x}), "image"),
        (lambda: program(x, out={"score": x}), "scores"),
    ):
        with pytest.raises(EngineError, match=f"did you mean '{name}'[?]"):
            call()
    with pytest.raises(EngineError, match=r"has no input 'q'; it has 'image'$"):
        program(q=x)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["comprae", "--json"], "did you mean 'compare'?"),
        (["run", "model.onnx", "--nose", "--json"], "No such option"),
        (["run", "--json"], "Missing argument"),
        (["run", "model.onnx", "--dim", "n", "--json"], "--dim takes NAME=SIZE"),
        (["run", "model.onnx", "-o", "-", "--json"], "write to stdout"),
        (["bench", "model.onnx", "--rounds", "-1", "--json"], "-1 is not in the range"),
        (["run", "model.onnx", "--limit", "noses=1", "--json"], "the limit must be one of"),
    ],
)
def test_a_usage_error_is_json_like_other_errors(arguments: list[str], words: str, ran: Any, model: str) -> None:
    error, other = ran(*arguments), ran("run", "none.onnx", "--json")
    assert error.code == 2 and "Usage:" in error.err and words in error.err
    assert error.json.keys() == other.json.keys() and error.json["faults"][0].keys() == other.json["faults"][0].keys()
    assert (error.json["dovetail"], error.json["exit_code"], len(error.json["faults"])) == ("error", 2, 1)
    assert error.json["faults"][0]["code"] == "argument.value" and words in error.json["faults"][0]["message"]
    assert words == "write to stdout" or ran(*[text for text in arguments if text != "--json"]).out == ""


@pytest.mark.parametrize("place", [0, 1, 2], ids=["before the command", "after it", "last"])
@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_verbose_shows_the_records_of_the_logger(flag: str, place: int, ran: Any, model: str) -> None:
    """A record of each level from INFO on is one line; the next command is quiet again."""
    arguments = ["run", model]
    arguments.insert(place, flag)
    lines = ran(*arguments).err.splitlines()
    assert len([line for line in lines if re.match(rf"info model\.onnx: {ENGINE} engine", line)]) == 1
    assert not [line for line in ran("run", model).err.splitlines() if line.startswith("info ")]
    assert ran(*arguments, "-q").err == ""


def test_the_shell_completes_commands_options_and_nothing_else(tmp_path: Path) -> None:
    """The script of each shell of docs/howto/start.md is produced; a completion imports no module of a command."""
    command = [sys.executable, "-c", "import sys; from dovetail.cli import main; sys.argv[0] = 'dovetail'; main()"]

    def complete(**variables: str) -> str:
        environment = {**os.environ, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    for shell in ("bash", "zsh", "fish"):
        assert "dovetail" in complete(_DOVETAIL_COMPLETE=f"{shell}_source")
    words = complete(_DOVETAIL_COMPLETE="bash_complete", COMP_WORDS="dovetail co", COMP_CWORD="1").split()
    assert words == ["plain,compare", "plain,convert", "plain,cost"]
    words = complete(_DOVETAIL_COMPLETE="bash_complete", COMP_WORDS="dovetail --ver", COMP_CWORD="1").split()
    assert words == ["plain,--verbose", "plain,--version"]
    words = complete(_DOVETAIL_COMPLETE="bash_complete", COMP_WORDS="dovetail convert --ver", COMP_CWORD="2").split()
    assert words == ["plain,--verify"]
    command[2] = command[2].replace("main()", "sys.modules['dovetail.cli.compare'] = None; main()")
    assert "plain,compare" in complete(_DOVETAIL_COMPLETE="bash_complete", COMP_WORDS="dovetail c", COMP_CWORD="1")
