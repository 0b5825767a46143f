"""Commands, recipes, certificates and files that are malformed end in errors of dovetail, and never wait or read without end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import DovetailError

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the devices of POSIX")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))


def save(path: Path, node: onnx.NodeProto) -> Path:
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets), path)
    return path


def command(*arguments: object, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "dovetail", *map(str, arguments)]
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def code_of(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(DovetailError) as caught:
        call(*arguments, **options)
    return caught.value.code


def test_unknown_operators_with_tensors_are_compared_by_content(tmp_path: Path) -> None:
    def foreign(name: str, number: float) -> dovetail.Model:
        tensor = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, number])
        return dovetail.load(save(tmp_path / name, helper.make_node("Foo", ["x"], ["y"], domain="custom", t=tensor)))

    first, same, other = foreign("a.onnx", 2.0), foreign("b.onnx", 2.0), foreign("c.onnx", 3.0)
    assert dovetail.prove(first, same).is_proved
    assert not dovetail.prove(first, other).is_proved


@pytest.mark.parametrize(
    "settings",
    ["trips=99999999999999999999", "seconds=1e400", "seconds=nan", "memory=-1", "nodes=x", "memory=1e3", "nonsense=1", "trips"],
)
def test_a_limit_is_a_number_that_the_engine_has(settings: str) -> None:
    assert code_of(dovetail.Limits().with_settings, [settings]) == "argument.value"


@pytest.mark.parametrize("threads", [0, -1, 3_000_000_000, True, 1.5, 10**30])
def test_a_number_of_threads_is_one_that_can_start(model: Path, threads: Any) -> None:
    if threads is not True:
        assert code_of(dovetail.compile, model, threads=threads) == "argument.value"


def test_largest_limits_run(model: Path) -> None:
    largest = (1 << 63) - 1
    limits = dovetail.Limits(memory=largest, trips=largest, text_bytes=largest, seconds=1e9)
    assert dovetail.compile(model, limits=limits)({"x": np.ones(2, np.float32)})["y"].tolist() == [1.0, 1.0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["info", "--json"], ["show"], ["check", "--json"]], ids=" ".join)
def test_a_full_stdout_is_an_error_of_the_system(model: Path, words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = command(words[0], model, *words[1:], stdout=full)
    assert ended.returncode == 3 and "[file.system]" in ended.stderr and "Traceback" not in ended.stderr


def test_a_certificate_is_a_regular_file_of_bounded_size(model: Path, tmp_path: Path) -> None:
    from dovetail.compare.prove import certificate

    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path, tmp_path / "missing"):
        assert code_of(certificate.read_certificate, path) == "certificate.files"
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", certificate.MAX_BYTES + 1)
    (tmp_path / "deep").write_text("[" * 100_000)
    for name in ("large", "deep"):
        assert code_of(certificate.read_certificate, tmp_path / name) == "certificate.format"
    assert command("diff", model, model, "--check-certificate", tmp_path / "fifo").returncode == 3


RECIPES: dict[str, Any] = {
    "fuse twice": {"fuse": [{"into": "c", "tensors": ["a", "a"], "axis": 0}]},
    "fuse stars": {"fuse": [{"into": "c*", "tensors": ["a*", "*a"], "axis": 0}]},
    "fuse again": {"fuse": [{"into": "c", "tensors": ["a", "b"], "axis": 0}, {"into": "d", "tensors": ["a", "b"], "axis": 0}]},
    "axis": {"fuse": [{"into": "c", "tensors": ["a", "b"], "axis": 10**30}]},
    "axis of bool": {"fuse": [{"into": "c", "tensors": ["a", "b"], "axis": True}]},
    "split": {"ranks": 2, "split": {"a": 10**30}},
    "cast": {"cast": {"a": "nothing"}},
    "cast to text": {"cast": {"a": "string"}},
    "unfuse": {"unfuse": [{"tensor": "a", "into": ["b", "b"], "axis": 0, "sizes": [1, 1]}]},
    "rows": {"fuse": 3},
    "key": {3: 4},
    "rename": {"rename": {"a": "b"}},
    "transpose": {"transpose": {"a": [0, 10**30]}},
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_wrong_recipe_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    for tensor in ("a", "b", "aa", "ba"):
        np.save(tmp_path / "in" / f"{tensor}.npy", np.ones((2, 2), np.float32))
    code_of(dovetail.reshard, RECIPES[name], tmp_path / "in", tmp_path / "out")


def test_a_deep_recipe_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2, np.float32))
    (tmp_path / "deep.toml").write_text("split = " + "[" * 100_000)
    assert code_of(dovetail.reshard, tmp_path / "deep.toml", tmp_path / "a.npy", tmp_path / "o.npy") == "reshard.recipe"


def headers() -> list[str]:
    texts = ["{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "{'descr': 3, 'fortran_order': False, 'shape': (2,)}"]
    texts += ["{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"]
    texts += ["{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", "{1: 2, 'a': 3}", "[1]", "\0", "(" * 5000]
    texts += [
        "{'descr': ('<f4', 3), 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [], 'fortran_order': False, 'shape': ()}",
    ]
    return texts


@pytest.mark.parametrize("index", range(len(headers())))
def test_a_damaged_array_is_an_error_of_its_file(tmp_path: Path, index: int) -> None:
    text = headers()[index].encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)
    (tmp_path / "a.npy").write_bytes(data)
    code_of(dovetail.reshard, {"ranks": 1}, tmp_path / "a.npy", tmp_path / "out")


DAEMON = """
import sys, threading, time
import numpy as np
import dovetail
weights = np.full((700, 700), 1e-3, np.float32)
with dovetail.Builder("products") as b:
    y = x = b.input("x", "f32", (700, 700))
    for _ in range(10):
        y = b.MatMul(y, b.constant(weights))
    b.output("y", y)
program = dovetail.compile(b.model, threads=int(sys.argv[1]))
session = dovetail.compile(b.model, threads=1)

def loop(run):
    while True:
        run()

big = np.ones((64 << 20,), np.uint8)
calls = [lambda: program({"x": weights}), lambda: dovetail.concat([big, big], axis=0), lambda: session({"x": weights})]
for call in calls:
    threading.Thread(target=loop, args=(call,), daemon=True).start()
time.sleep(0.4)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_ends_while_daemon_threads_are_in_runs(threads: int) -> None:
    for _ in range(2):
        words = [sys.executable, "-c", DAEMON, str(threads)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0 and not ended.stderr
