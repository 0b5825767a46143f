"""Releases of runtimes: their names, their environments, their processes, and the judgement of a model in several of them."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Model
from dovetail.cli import main
from dovetail.compare.referee.issue_text import issue_text
from dovetail.compare.referee.judgement import judge_releases
from dovetail.errors import EngineError, UnsupportedError
from dovetail.runtime.releases import environment
from dovetail.runtime.releases.release import Release, release_of

pytest.importorskip("onnx")

# A runtime that evaluates models with the reference evaluator of onnx, and fails by operator in one of its versions.
RUNTIME = """
import os, signal, time
import onnx, onnx.reference


class Port:
    def __init__(self, info):
        self.name, self.type = info.name, ""


class SessionOptions:
    pass


class InferenceSession:
    def __init__(self, path, options, providers):
        self.model = onnx.load(path)
        self.kinds = {node.op_type for node in self.model.graph.node}

    def get_inputs(self):
        return [Port(info) for info in self.model.graph.input]

    def get_outputs(self):
        return [Port(info) for info in self.model.graph.output]

    def run(self, names, inputs):
        if FAULTY and "Tanh" in self.kinds:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULTY and "Sin" in self.kinds:
            time.sleep(60)
        if FAULTY and "Cos" in self.kinds:
            raise RuntimeError("no kernel for Cos")
        print("a runtime may print")
        found = onnx.reference.ReferenceEvaluator(self.model).run(None, inputs)
        return [array * 2 for array in found] if FAULTY and {"Relu", "Sigmoid"} <= self.kinds else found
"""
GOOD, BAD, SLOW = "onnxruntime==1.1.0", "onnxruntime==1.2.0", "onnxruntime==1.3.0"
"""Releases of a runtime: right, wrong, and right with an import of more than 4 seconds."""


def install(release: Release, python: str, draft: Path) -> None:
    """Make an environment without a network: it has the packages of this interpreter, and RUNTIME as onnxruntime."""
    subprocess.run([python, "-I", "-m", "venv", "--without-pip", str(draft)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(draft)}))
    folders = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (packages / "oracles.pth").write_text("\n".join(dict.fromkeys(folders)))
    if release.package == "onnxruntime":
        (packages / "onnxruntime.py").write_text(
            f"FAULTY = {release.version == '1.2.0'}\nimport time\ntime.sleep({4 * (release == release_of(SLOW))})\n{RUNTIME}"
        )


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name a cache folder in which :func:`install` makes environments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(environment, "_install", install)
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name an empty cache folder."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    return tmp_path / "releases"


def chain(*kinds: str) -> Model:
    b = Builder("chain")
    x = b.input("x", "f32", (2, 3))
    for kind in kinds:
        x = getattr(b, kind)(x)
    b.output("y", x)
    return b.model


def inputs() -> dict[str, Any]:
    return {"x": np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)}


@pytest.mark.parametrize(
    "name",
    [
        "numpy==1.26.4",
        "onnxruntime-gpu==1.20.1",
        "onnxruntime>=1.20.1",
        "onnxruntime==1.20",
        "onnxruntime==1.20.*",
        "onnxruntime==1.20.1 --index-url http://localhost",
        "onnxruntime==1.20.1\n",
        "onnxruntime @ file:///tmp/wheel",
        "../onnxruntime==1.20.1",
        "--pre==1.20.1",
        "onnxruntime==1.20.1;os_name",
        "onnxruntime==\u0661.2.3",
    ],
)
def test_other_packages_and_inexact_versions_are_refused(name: str) -> None:
    with pytest.raises(EngineError) as caught:
        dovetail.compare_layers(chain("Relu"), engines=["interpreter", name])
    assert caught.value.code == "argument.value"


def test_a_release_has_a_package_and_a_version() -> None:
    assert release_of("openvino==2026.3.1") == ("openvino", "2026.3.1")
    assert release_of("openvino") is None


@pytest.mark.parametrize("has_uv", [False, True])
def test_an_installer_gets_wheels_alone_and_no_shell(has_uv: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        assert not options.get("shell") and isinstance(command, list)
        commands.append(command)
        if "venv" in command:
            Path(command[-1], "bin").mkdir(parents=True)
            Path(command[-1], "bin", "python").symlink_to(sys.executable)
        is_first_probe = "--probe" in command and sum("--probe" in each for each in commands) == 1
        return subprocess.CompletedProcess(command, 1 if is_first_probe else 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: "/opt/uv" if name == "uv" and has_uv else None)
    environment.python_of(Release("onnxruntime", "1.16.3"))
    installs = [command for command in commands if "install" in command]
    assert [command[-1] for command in installs] == ["onnxruntime==1.16.3", "numpy<2"]
    for command in installs:
        assert "--only-binary=:all:" in command or command[command.index("--only-binary") + 1] == ":all:"
        assert {each for each in command if "==" in each} == {"onnxruntime==1.16.3"}
    assert all("--no-python-downloads" in command for command in commands if command[:2] == ["/opt/uv", "venv"])


def test_a_half_made_environment_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(release: Release, python: str, draft: Path) -> None:
        install(release, python, draft)
        raise KeyboardInterrupt

    release = Release("onnxruntime", "1.1.0")
    monkeypatch.setattr(environment, "_install", interrupt)
    with pytest.raises(KeyboardInterrupt):
        environment.python_of(release)
    assert list(folder.iterdir()) == []
    # A killed process leaves its draft.
    killed = folder / f".{'0' * 16}.draft"
    killed.mkdir()
    os.utime(killed, (0, time.time() - environment.MAX_DRAFT_SECONDS - 1))
    monkeypatch.setattr(environment, "_install", install)
    python = environment.python_of(release)
    assert [Path(python).parents[1]] == list(folder.iterdir())
    monkeypatch.setattr(environment, "_install", interrupt)
    assert environment.python_of(release) == python


def test_an_environment_whose_interpreter_was_removed_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_install", install)
    release = Release("onnxruntime", "1.1.0")
    python = Path(environment.python_of(release))
    python.unlink()
    python.symlink_to("/no/such/python")
    assert Path(environment.python_of(release)).exists()


def test_a_release_without_a_wheel_names_the_versions_of_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"ERROR: No matching distribution found for onnxruntime==1.0.0\n"
    interpreters = [("3.11", sys.executable), ("3.12", "/usr/bin/python3.12")]
    monkeypatch.setattr(environment, "_interpreters", lambda: iter(interpreters))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, b"", text))
    with pytest.raises(UnsupportedError, match=r"Python 3\.11, 3\.12.*No matching distribution") as caught:
        environment.python_of(Release("onnxruntime", "1.0.0"))
    assert caught.value.code == "runtime.missing"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("environments")
def test_releases_are_engines_of_every_comparison() -> None:
    model = chain("Exp", "Abs", "Sqrt", "Relu", "Sigmoid", "Negative", "Exp", "Abs")
    found = dovetail.compare_layers(model, engines=["interpreter", GOOD, BAD], inputs=inputs())
    assert [found.first_difference(name) is None for name in (GOOD, BAD)] == [True, False]
    assert dovetail.bisect(model, engine=BAD, reference=GOOD, inputs=inputs()).status == "together"


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("Tanh", "crashes", "runtime.crash"), ("Sin", "hangs", "runtime.timeout"), ("Cos", "refuses", "runtime.run")],
)
def test_a_failure_of_a_release_is_a_row(kind: str, status: str, code: str) -> None:
    start = time.monotonic()
    found = judge_releases(chain("Exp", kind, "Negative"), [GOOD, BAD], inputs(), seconds=5 if kind == "Sin" else 30)
    assert [row.status for row in found.rows] == ["agrees", status]
    assert code in found.rows[1].why and found.faulty == BAD and found.witness == GOOD
    assert found.smallest is not None and [type(node.op).__name__ for node in found.smallest.graph.nodes] == [kind]
    assert time.monotonic() - start < 120


@pytest.mark.usefixtures("environments")
def test_the_time_of_an_import_is_not_that_of_a_run() -> None:
    assert [row.status for row in judge_releases(chain("Exp"), [SLOW], inputs(), seconds=3).rows] == ["agrees"]


HANG = """
import sys
import numpy as np
from dovetail.runtime.releases.release import release_of
from dovetail.runtime.releases.workers import ReleaseWorker
worker = ReleaseWorker(release_of(sys.argv[1]), 600)
worker._start()
print(worker._process.pid, flush=True)
worker.run("m.onnx", {"x": np.ones((2, 3), np.float32)})
"""


@pytest.mark.usefixtures("environments")
@pytest.mark.skipif(sys.platform == "win32", reason="a parent of no process is known there")
def test_a_run_that_hangs_ends_with_a_killed_parent(tmp_path: Path) -> None:
    dovetail.save(chain("Sin"), tmp_path / "m.onnx")
    environment.python_of(Release("onnxruntime", "1.2.0"))
    command = [sys.executable, "-c", HANG, BAD]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(1)
        os.kill(worker, 0)
        parent.kill()
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the process of the release still runs")


@pytest.mark.usefixtures("environments")
def test_a_crash_names_its_signal() -> None:
    found = judge_releases(chain("Tanh"), [BAD], inputs())
    assert "SIGKILL" in found.rows[0].why


@pytest.mark.usefixtures("environments")
def test_a_difference_is_located_reduced_and_written_as_an_issue() -> None:
    found = judge_releases(chain("Exp", "Negative", "Relu", "Sigmoid", "Abs", "Negative"), [GOOD, BAD, "onnx==1.0.0"], inputs())
    assert [row.status for row in found.rows] == ["agrees", "differs", "agrees"]
    assert found.smallest is not None and found.nodes == 2
    assert [type(node.op).__name__ for node in found.smallest.graph.nodes] == ["Relu", "Sigmoid"]
    text = issue_text(found, "small.onnx", "small.npz")
    assert text.startswith(f"# {BAD} gives wrong outputs for Relu and Sigmoid, {GOOD} does not")
    for line in (f"pip install {BAD}", "'small.onnx'", "'small.npz'", "= Relu(", "| interpreter | float32[1, 1] [0.5"):
        assert line in text


@pytest.mark.usefixtures("environments")
def test_the_issue_of_a_model_with_hostile_names_stays_one_block() -> None:
    b = Builder("a```b")
    x = b.input("x|\x1b[31m", "f32", (2,))
    b.output("y```", b.Cos(x))
    found = judge_releases(b.model, [GOOD, BAD], {"x|\x1b[31m": np.ones(2, np.float32)})
    text = issue_text(found, "small.onnx", "small.npz")
    assert "\x1b" not in text and text.count("```") == 6


@pytest.mark.usefixtures("environments")
def test_the_command_writes_the_model_its_inputs_and_the_issue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.save(chain("Negative", "Cos"), tmp_path / "m.onnx")
    part = tmp_path / "small.onnx"
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path / "m.onnx"), "--with", f"{GOOD},{BAD}", "--part", str(part), "--json"])
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert found["faulty"] == BAD and found["nodes"] == 1
    assert found["files"] == [str(part.with_suffix(suffix)) for suffix in (".onnx", ".npz", ".md")]
    assert all(Path(path).exists() for path in found["files"])
    assert list(np.load(part.with_suffix(".npz"))) == [x.name for x in dovetail.load(part).inputs]


@pytest.mark.usefixtures("environments")
def test_releases_exclude_options_of_a_second_model(tmp_path: Path) -> None:
    dovetail.save(chain("Negative"), tmp_path / "m.onnx")
    for options in (["--bisect"], ["--engines", "native"], ["--all"]):
        with pytest.raises(SystemExit) as ended:
            main(["compare", str(tmp_path / "m.onnx"), "--with", GOOD, *options])
        assert ended.value.code == 2


@pytest.mark.usefixtures("environments")
def test_types_that_numpy_lacks_reach_a_release_as_they_are() -> None:
    b = Builder("types")
    b.output("y", b.Negative(b.input("x", "bf16", (3,))))
    x = dovetail.ir.dtypes.dtype("bf16").numpy
    found = judge_releases(b.model, ["onnx==1.0.0"], {"x": np.ones(3, x)})
    assert found.rows[0].status == "refuses" and "bfloat16" in found.rows[0].why
