"""Entry points of installed distributions: loaded at their first use, named where they fail, never from the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

OPS = """
from dovetail import Op

class Cube(Op, sig="x: F -> y: F", onnx="com.acme:Cube-1(x; scale)", openvino="acme:Cube-1(x; scale)"):
    scale: float = 1.0

    def shape(self, x):
        return x.dims

    def evaluate(self, xp, x):
        return self.scale * x * x * x
"""
REST = """
import json
import numpy as np
import dovetail
from dovetail import Builder

def count_nothing(graph, target):
    return 0

class Numbers:
    @staticmethod
    def load(path):
        numbers = json.loads(open(path).read())
        with Builder("numbers") as b:
            b.output("y", b.Add(b.input("x", "f32", ("n",)), np.float32(numbers["add"])))
        return b.model

    @staticmethod
    def save(model, path):
        open(path, "w").write(json.dumps({"nodes": len(model.graph.nodes)}))

def reference(model):
    return lambda arrays: {name: array + 0 for name, array in dovetail.interpret(model, arrays).items()}

def by_position(model):
    return lambda arrays: list(dovetail.interpret(model, arrays).values())
"""
ENTRY_POINTS = """
[dovetail.ops]
cube = acme_ops

[dovetail.passes]
count_nothing = acme_rest:count_nothing

[dovetail.formats]
numbers = acme_rest:Numbers

[dovetail.engines]
reference = acme_rest:reference
by_position = acme_rest:by_position
"""
BROKEN = """
[dovetail.ops]
absent = no_such_module_of_a_plugin
raising = acme_raising

[dovetail.passes]
dead_code = acme_raising
number = acme_number:NUMBER

[dovetail.engines]
native = acme_rest:reference

[dovetail.oops]
cube = acme_ops
"""


def install(folder: Path, name: str, entry_points: str, **modules: str) -> None:
    """Write a distribution into a folder, as pip does."""
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    install(folder, "acme-operators", ENTRY_POINTS, acme_ops=OPS, acme_rest=REST)
    return folder


def run(code: str, site: Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), **variables}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


MODEL = """
    import sys
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    import dovetail

    def proto():
        node = helper.make_node("Cube", ["x"], ["y"], domain="com.acme", scale=2.0)
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.acme", 1)]
        return helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets, ir_version=9)

    X = np.array([1, -2], "f4")
"""


def test_plugins_of_every_group_are_used(site: Path, tmp_path: Path) -> None:
    code = """
    model = dovetail.load(proto())
    assert [type(node.op).__name__ for node in model.graph.nodes] == ["Cube"] and "acme_rest" not in sys.modules
    for engine in ("auto", "interpreter", "reference", "by_position"):
        program = dovetail.compile(model, engine)
        np.testing.assert_array_equal(program(X)["y"], 2 * X**3)
    assert program.engine == "by_position"
    dovetail.save(model, "cube.xml")
    assert dovetail.load("cube.xml").graph.nodes[0].op == model.graph.nodes[0].op
    dovetail.save(model, "cube.dt")
    report = dovetail.simplify(model).report
    names = [each.name for each in report.passes]
    assert names[-2:] == ["count_nothing", "dead_code"]
    assert "count_nothing" not in [each.name for each in dovetail.simplify(model, skip=["count_nothing"]).report.passes]
    open("seven.numbers", "w").write('{"add": 7}')
    seven = dovetail.load("seven.numbers")
    np.testing.assert_array_equal(dovetail.run(seven, X)["y"], X + 7)
    dovetail.save(seven, "out.numbers")
    assert "nodes" in open("out.numbers").read()
    for arguments in ({"engine": "reference", "threads": 2}, {"engine": "refrence"}):
        try:
            dovetail.compile(model, **arguments)
        except dovetail.EngineError as error:
            print(error.code, "by_position" in error.message)
    """
    done = run(MODEL + code, site, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["argument.conflict False", "argument.value True"]


def test_the_text_form_and_builders_find_operators_of_plugins(site: Path, tmp_path: Path) -> None:
    first = "dovetail.save(dovetail.load(proto()), 'cube.dt')"
    for code in (first, "assert 'Cube' in str(dovetail.load('cube.dt'))", "assert 'Cube' in dir(dovetail.Builder())"):
        done = run(MODEL + "    " + code, site, tmp_path)
        assert done.returncode == 0, done.stderr


def test_nothing_is_searched_before_it_is_needed(site: Path, tmp_path: Path) -> None:
    code = """
    import sys
    import dovetail
    with dovetail.Builder("plain") as b:
        b.output("y", b.Relu(b.Concat(b.input("x", "f32", ("n",)), b.input("z", "f32", ("n",)), axis=0)))
    for suffix in ("onnx", "xml", "dt"):
        dovetail.save(b.model, f"plain.{suffix}")
        dovetail.compile(dovetail.load(f"plain.{suffix}"))
    assert "importlib.metadata" not in sys.modules and not [name for name in sys.modules if name.startswith("acme")]
    """
    done = run(code, site, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_broken_plugin_is_named_and_the_others_work(site: Path, tmp_path: Path) -> None:
    install(site, "broken-plugins", BROKEN, acme_raising="raise RuntimeError('out of order')", acme_number="NUMBER = 7")
    code = """
    import logging
    logging.basicConfig(format="%(name)s %(message)s", level=logging.WARNING)
    model = dovetail.load(proto())
    np.testing.assert_array_equal(dovetail.run(model, X)["y"], 2 * X**3)
    assert "dead_code" in [each.name for each in dovetail.simplify(model).report.passes]
    assert dovetail.compile(model, "reference").engine == "reference"
    """
    done = run(MODEL + code, site, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("dovetail.plugins")]
    named = "dovetail.plugins the plug-in dovetail."
    for start, fault in (
        ("ops: absent = no_such_module_of_a_plugin (broken-plugins 1.2)", "ModuleNotFoundError"),
        ("ops: raising = acme_raising (broken-plugins 1.2)", "RuntimeError: out of order"),
        ("passes: dead_code = acme_raising (broken-plugins 1.2)", "the name 'dead_code' is taken"),
        ("passes: number = acme_number:NUMBER (broken-plugins 1.2)", "must be callable, got an object of the class int"),
        ("engines: native = acme_rest:reference (broken-plugins 1.2)", "the name 'native' is taken"),
        ("oops: cube = acme_ops (broken-plugins 1.2)", "the group must be one of dovetail.ops"),
    ):
        assert [line for line in lines if line.startswith(named + start) and fault in line], (start, done.stderr)
    assert len(lines) == 6


RAISING = """
def load(path):
    return [][len(path)]

def save(model, path):
    raise ZeroDivisionError(path)

def change(graph, target):
    raise ValueError("no graph")

def unmade(model):
    raise RuntimeError("no engine")

def unrun(model):
    return lambda arrays: arrays["absent"]
"""
RAISING_POINTS = """
[dovetail.passes]
change = raising_rest:change

[dovetail.formats]
raising = raising_rest

[dovetail.engines]
unmade = raising_rest:unmade
unrun = raising_rest:unrun
"""


def test_exceptions_of_plugins_name_the_plugin(site: Path, tmp_path: Path) -> None:
    install(site, "raising-plugins", RAISING_POINTS, raising_rest=RAISING)
    code = """
    model = dovetail.load(proto())
    open("a.raising", "w").close()
    for action in (
        lambda: dovetail.load("a.raising"),
        lambda: dovetail.save(model, "b.raising"),
        lambda: dovetail.simplify(model),
        lambda: dovetail.compile(model, "unmade"),
        lambda: dovetail.compile(model, "unrun")(X),
    ):
        try:
            action()
        except dovetail.EngineError as error:
            print(error.code, error.message)
    """
    done = run(MODEL + code, site, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "run.failed the plug-in 'raising' of dovetail.formats failed: IndexError: list index out of range",
        "run.failed the plug-in 'raising' of dovetail.formats failed: ZeroDivisionError: b.raising",
        "run.failed the plug-in 'change' of dovetail.passes failed: ValueError: no graph",
        "run.failed the plug-in 'unmade' of dovetail.engines failed: RuntimeError: no engine",
        "run.failed the plug-in 'unrun' of dovetail.engines failed: KeyError: 'absent'",
    ]


def test_engines_of_plugins_return_sequences(site: Path, tmp_path: Path) -> None:
    code = """
    with dovetail.Builder("parts") as b:
        x = b.input("x", "f32", (2,))
        b.output("y", b.SequenceConstruct(x, b.Concat(x, x, axis=0)))
    found = dovetail.compile(b.model, "by_position")(X)["y"]
    assert [each.tolist() for each in found] == [[1, -2], [1, -2, 1, -2]]
    """
    done = run(MODEL + code, site, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entry_points.txt", b"[dovetail.ops]\nno value\n"),
        ("entry_points.txt", b"\xff"),
        ("METADATA", b"Name: \xff\n"),
        ("METADATA", b""),
    ],
)
def test_a_damaged_distribution_does_not_stop_the_others(name: str, content: bytes, site: Path, tmp_path: Path) -> None:
    install(site, "damaged", "[dovetail.ops]\nabsent = no_such_module_of_a_plugin\n")
    (site / "damaged-1.2.dist-info" / name).write_bytes(content)
    done = run(MODEL + "    assert dovetail.run(dovetail.load(proto()), X)['y'].tolist() == [2, -16]", site, tmp_path)
    assert done.returncode == 0, done.stderr


def test_plugins_are_found_where_the_current_folder_was_removed(site: Path, tmp_path: Path) -> None:
    code = """
    import os
    os.mkdir("removed")
    os.chdir("removed")
    os.rmdir("../removed")
    assert dovetail.run(dovetail.load(proto()), X)["y"].tolist() == [2, -16]
    """
    done = run(MODEL + code, site, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_command_line_shows_plugins_and_broken_ones(site: Path, tmp_path: Path) -> None:
    install(site, "broken-plugins", "[dovetail.ops]\nabsent = no_such_module_of_a_plugin\n")
    done = run(MODEL + "    open('cube.onnx', 'wb').write(proto().SerializeToString())", site, tmp_path)
    assert done.returncode == 0, done.stderr
    main = "from dovetail.cli import main; main({})"
    version = run(main.format("['--version']"), site, tmp_path)
    assert "plug-in dovetail.ops: cube = acme_ops (acme-operators 1.2)" in version.stdout.splitlines()
    shown = run(main.format("['show', 'cube.onnx']"), site, tmp_path)
    assert shown.returncode == 0 and "Cube(x; scale=2.0)" in shown.stdout
    assert "absent = no_such_module_of_a_plugin (broken-plugins 1.2)" in shown.stderr


@pytest.mark.parametrize("where", ["opt-out", "current folder", "script folder"])
def test_plugins_that_are_not_wanted_are_not_loaded(where: str, site: Path, tmp_path: Path) -> None:
    code = textwrap.dedent(
        MODEL
        + """
    model = dovetail.load(proto())
    assert [type(node.op).__name__ for node in model.graph.nodes] == ["Foreign"]
    assert not [name for name in sys.modules if name.startswith("acme")]
    """
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command, cwd = [sys.executable, "-c", code], site
    if where == "opt-out":
        environment.update(PYTHONPATH=str(site), DOVETAIL_PLUGINS="0")
        cwd = tmp_path
    elif where == "script folder":
        (site / "script.py").write_text(code)
        command, cwd = [sys.executable, str(site / "script.py")], tmp_path
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
