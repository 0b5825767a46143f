"""Every command that writes a transformed model: --json, --verify, progress, refusals, whole files and exit codes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import dovetail
from dovetail import cli
from dovetail.cli import output
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph
from dovetail.ops.elementwise.unary import Cos, Sin, Tanh
from dovetail.passes.simplification import passes
from dovetail.passes.simplification.rules import Target, apply_rules

HEAD = '<ir_version: 10, opset_import: ["" : 18, "far.away" : 1]>\n'
MODELS = {
    "m": "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { c = Tanh(x) i = Identity(c) y = Neg(i) z = Abs(c) }",
    "fixed": "g (float[2, 4] x) => (float[8] y) <int64[1] flat = {8}> { c = Tanh(x) y = Reshape(c, flat) }",
    "b": "g (float[k, 4] in) => (float[k, 4] out) { out = Relu(in) }",
    "strange": "g (float[n, 4] x) => (float[n, 4] y) { t = far.away.Mystery(x) u = far.away.Puzzle(x) y = Add(t, u) }",
    "mixing": "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) { y = Softmax<axis = 0>(x) z = LogSoftmax<axis = 0>(x) }",
}
ARGUMENTS: dict[str, list[str]] = {
    "infer": ["m.onnx", "-o", "out.onnx"],
    "rebatch": ["fixed.onnx", "-o", "out.onnx", "--dim", "0=N"],
    "simplify": ["m.onnx", "-o", "out.onnx"],
    "extract": ["m.onnx", "--from", "c", "--to", "y", "-o", "out.onnx"],
    "merge": ["m.onnx", "b.onnx", "--connect", "y:in", "-o", "out.onnx"],
    "edit": ["m.onnx", "--rename", "c=inner", "--rename", "y=answer", "-o", "out.onnx"],
    "convert": ["m.onnx", "out.onnx"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in MODELS.items():
        text = text.replace("{ c", "{\n c")
        onnx.save(onnx.parser.parse_model(HEAD + text), f"{name}.onnx")
    return tmp_path


class Ran:
    """One call of the command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        self.code = caught.value.code
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    return lambda *arguments: Ran(capsys, *arguments)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_json_is_one_object_and_narration_goes_to_stderr(command: str, ran: Any) -> None:
    found = ran(command, *ARGUMENTS[command], "--json")
    report = json.loads(found.out)
    assert found.code == 0 and (report["dovetail"], report["version"]) == (command, 1)
    assert "wrote out.onnx" in found.err and Path("out.onnx").is_file()
    assert onnx.checker.check_model("out.onnx", full_check=True) is None


def spoil(model: dovetail.Model) -> dovetail.Model:
    """Return a copy that computes the sine where the model computes the hyperbolic tangent."""
    new = copy_model(model)
    return _spoil_graph(new)


def _spoil_graph(model: dovetail.Model) -> dovetail.Model:
    changed = [node for node in model.graph.nodes if isinstance(node.op, Tanh)]
    for node in changed:
        node.op = Sin()
    if not changed:
        node = model.graph.nodes[0]
        node.op = Cos()
    return model


def _spoil_infer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("dovetail.passes.inference_report")
    real = module.infer_report

    def infer_report(model: dovetail.Model) -> Any:
        report = real(model)
        _spoil_graph(report.model)
        return report

    monkeypatch.setattr(module, "infer_report", infer_report)


def _spoil_result(module: str, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        owner = importlib.import_module(module)
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **options: spoil(real(*args, **options)))

    return apply


def _spoil_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = dovetail.Model.rename_values
    monkeypatch.setattr(dovetail.Model, "rename_values", lambda model, names: spoil(real(model, names)))


def _spoil_rebatch(monkeypatch: pytest.MonkeyPatch) -> None:
    search = importlib.import_module("dovetail.passes.rebatching.search")
    real = search.propagate

    def propagate(state: Any) -> Any:
        for node in state.graph.nodes:
            node.op = Sin() if isinstance(node.op, Tanh) else node.op
        return real(state)

    monkeypatch.setattr(search, "propagate", propagate)


def _spoil_simplify(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(graph: Graph, target: Target) -> int:
        return apply_rules(graph, {Tanh: lambda b, node: b.Sin(node.input(0))}, target)

    monkeypatch.setitem(passes.PASSES, "broken", passes.Pass("broken", apply, True))


def _spoil_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = importlib.import_module("dovetail.formats")
    real = formats.save
    monkeypatch.setattr(formats, "save", lambda model, target, **options: real(spoil(model), target, **options))


SPOILED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], int, str]] = {
    "infer": (_spoil_infer, 1, ""),
    "rebatch": (_spoil_rebatch, 4, "in c = "),
    "simplify": (_spoil_simplify, 0, "pass broken taken back"),
    "extract": (_spoil_result("dovetail.ir.extract", "extract"), 1, ""),
    "merge": (_spoil_result("dovetail.passes.merge", "merge"), 1, ""),
    "edit": (_spoil_edit, 1, ""),
    "convert": (_spoil_convert, 1, ""),
}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_verify_agrees_and_finds_a_wrong_result(command: str, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(command, *ARGUMENTS[command], "--verify")
    assert found.code == 0, found.err
    spoil_command, code, text = SPOILED[command]
    spoil_command(monkeypatch)
    wrong = ran(command, *ARGUMENTS[command], "--verify")
    assert wrong.code == code and text in wrong.err, wrong.err
    if code == 1:
        assert "differs" in wrong.out
        assert "agrees with the original" not in wrong.err


@pytest.mark.parametrize("command", ARGUMENTS)
def test_work_is_announced(command: str, ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, work of over a second; test_cli shows it there."""
    texts: list[str] = []
    real = output.progress
    for module in (f"dovetail.cli.{command}", "dovetail.cli.transformation"):
        monkeypatch.setattr(importlib.import_module(module), "progress", lambda text: texts.append(text) or real(text))
    assert ran(command, *ARGUMENTS[command]).code == 0
    assert "writing out.onnx" in texts and (len(texts) > 1 or command == "convert")


BLOCKED: dict[str, tuple[list[str], int, list[str]]] = {
    "infer": (["strange.onnx", "--strict"], 5, ["far.away.Mystery", "far.away.Puzzle"]),
    "rebatch": (["mixing.onnx", "-o", "out.onnx", "--dim", "0=N"], 4, ["in y = Softmax", "in z = LogSoftmax"]),
    "simplify": (["m.onnx", "-o", "out.onnx", "--keep", "first", "--skip", "second"], 5, ["first", "second"]),
    "extract": (["m.onnx", "--from", "q", "--to", "r", "-o", "out.onnx"], 5, ["'q'", "'r'"]),
    "merge": (["m.onnx", "b.onnx", "--connect", "q:in", "--connect", "y:r", "-o", "out.onnx"], 5, ["'q'", "'r'"]),
    "edit": (
        ["m.onnx", "--rename", "q=a", "--drop-output", "c", "--input-type", "y=f16", "-o", "out.onnx"],
        5,
        ["'q'", "'c'", "'y'"],
    ),
    "convert": (["strange.onnx", "out.xml"], 4, ["far.away.Mystery", "far.away.Puzzle"]),
}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_refusal_lists_all_blockers_and_writes_nothing(command: str, ran: Any) -> None:
    arguments, code, texts = BLOCKED[command]
    found = ran(command, *arguments, "--json")
    assert found.code == code, found.err
    assert all(text in found.err for text in texts), found.err
    faults = json.loads(found.out)["faults"]
    assert len(faults) >= (1 if command == "simplify" else len(texts)) and all(fault["code"] for fault in faults)
    assert not Path("out.onnx").exists() and not Path("out.xml").exists()


KILL = """
import os, signal, sys
from dovetail import cli
os.replace = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_killed_save_leaves_the_old_file(command: str, folder: Path) -> None:
    Path("out.onnx").write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILL, command, *ARGUMENTS[command]], capture_output=True, check=False)
    assert killed.returncode == -9 and Path("out.onnx").read_bytes() == b"old"
    assert any(path.name.startswith(".out") for path in folder.iterdir()), "the draft shows that the save had begun"
    done = subprocess.run([sys.executable, "-m", "dovetail", command, *ARGUMENTS[command]], capture_output=True, check=False)
    assert done.returncode == 0 and onnx.load("out.onnx").graph.node
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".out")], "the next save removes the draft"


@pytest.mark.parametrize("command", ARGUMENTS)
def test_an_exception_during_save_leaves_the_old_file(
    command: str, ran: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out.onnx").write_bytes(b"old")
    module = importlib.import_module("dovetail.storage.atomic_write")

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    found = ran(command, *ARGUMENTS[command])
    assert found.code == 3 and "path.unwritable" in found.err
    assert Path("out.onnx").read_bytes() == b"old" and not [path for path in folder.iterdir() if path.name.startswith(".out")]


@pytest.mark.parametrize("command", ARGUMENTS)
def test_exit_codes(command: str, ran: Any) -> None:
    arguments = ARGUMENTS[command]
    assert ran(command, "missing.onnx", *arguments[1:]).code == 3
    assert ran(command, *arguments, "--no-such-option").code == 2
    assert ran(command).code == 2
    Path("broken.onnx").write_bytes(b"\xff\xff")
    assert ran(command, "broken.onnx", *arguments[1:]).code == 3
    wrong = onnx.parser.parse_model(HEAD + "g (float[2, 4] x, float[3, 4] w) => (float[2, 4] y) { c = Add(x, w) y = Tanh(c) }")
    onnx.save(wrong, "wrong.onnx")
    assert ran(command, "wrong.onnx", *arguments[1:], "--strict").code == 5
    assert not Path("out.onnx").exists()


def test_a_part_of_a_subgraph_is_not_verified(ran: Any) -> None:
    text = """g (float[2] x, bool way) => (float[2] y)
    { y = If(way) <then_branch = t () => (float[2] a) { h = Tanh(x) a = Neg(h) },
        else_branch = e () => (float[2] o) { o = Abs(x) }> }"""
    onnx.save(onnx.parser.parse_model(HEAD + text), "if.onnx")
    arguments = ["extract", "if.onnx", "--to", "y/h", "-o", "out.onnx"]
    assert ran(*arguments).code == 0
    found = ran(*arguments, "--verify")
    assert found.code == 4 and "argument.conflict" in found.err


def test_other_constants_cannot_be_verified(ran: Any) -> None:
    assert ran("edit", "fixed.onnx", "--constant", "flat=8", "-o", "out.onnx", "--verify").code == 2


def test_the_bytes_are_the_same_under_all_hash_seeds(folder: Path) -> None:
    """bench/hash_seeds.py does the same over a corpus."""
    script = Path(__file__).resolve().parents[2] / "bench" / "hash_seeds.py"
    models = folder / "models"
    models.mkdir()
    for name in ("m", "fixed", "b", "strange"):
        Path(f"{name}.onnx").rename(models / f"{name}.onnx")
    dovetail.save(dovetail.load(models / "m.onnx"), models / "m2.xml")
    done = subprocess.run([sys.executable, str(script), str(models)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("40 results under the seeds 0, 1, random, ") and done.stdout.endswith("; 0 differ\n")
