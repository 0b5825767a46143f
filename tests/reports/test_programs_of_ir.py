"""Programs of IR as services use them: pickled, with arrays of the caller, in threads, closed in a run, of ever new sizes."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino.opset13 as ops
import pytest

import dovetail
from dovetail.errors import DovetailError

F32 = {"INFERENCE_PRECISION_HINT": "f32"}
SHAPES = [(1, 3, 32, 32), (2, 3, 20, 44), (1, 3, 64, 16), (4, 3, 8, 8)]


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two convolutions of pictures of any size, and a softmax over the pixels."""
    x = ops.parameter(openvino.PartialShape([-1, 3, -1, -1]), np.float32, "x")
    x.output(0).set_names({"x"})
    inner = ops.relu(ops.convolution(x, array(16, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1]))
    inner = ops.convolution(inner, array(8, 16, 3, 3, seed=1), [2, 2], [0, 0], [0, 0], [1, 1])
    y = ops.softmax(ops.reshape(inner, np.array([0, 0, -1]), True), -1)
    y.output(0).set_names({"y"})
    model = openvino.Model([y], [x], "m")
    model.set_rt_info("value", ["model_info", "labels", "62d7a6a6", "id"])
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    return tmp_path / "m.xml"


@pytest.fixture
def rows(path: Path) -> list[tuple[Any, Any]]:
    """Inputs of several sizes, with the results of OpenVINO."""
    compiled = openvino.Core().compile_model(path, "CPU", F32)
    inputs = [array(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]
    return [(x, np.array(compiled([x])[0])) for x in inputs]


def assert_right(y: Any, want: Any) -> None:
    np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-5)


def test_a_pickled_program_of_a_file_computes_the_same(path: Path, rows: list[tuple[Any, Any]]) -> None:
    program = pickle.loads(pickle.dumps(dovetail.compile(path)))
    path.unlink()
    for x, want in rows:
        assert_right(program([x])[0], want)


def test_outputs_are_written_into_parts_of_one_buffer(path: Path, rows: list[tuple[Any, Any]]) -> None:
    program, buffer = dovetail.compile(path), np.full(9999, 7, np.float32)
    for x, want in rows:
        out = buffer[: want.size].reshape(want.shape)
        assert program([x], out=[out])[0] is out
        assert_right(buffer[: want.size].reshape(want.shape), want)
    with pytest.raises(DovetailError) as caught:
        program([rows[0][0]], out=[np.zeros((1, 8, 3), np.float32)])
    assert caught.value.code == "output.array"


@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_a_model_is_saved_over_the_file_that_it_was_read_from(policy: Any, path: Path, rows: list[tuple[Any, Any]]) -> None:
    """Keys of its rt_info may begin with a digit."""
    for _ in range(2):
        dovetail.save(dovetail.load(path, map=policy), path)
    core = openvino.Core()
    compiled = core.compile_model(path, "CPU", F32)
    for x, want in rows:
        assert_right(compiled([x])[0], want)
    assert core.read_model(path).get_rt_info(["model_info", "labels", "62d7a6a6", "id"]).astype(str) == "value"


def run_threads(work: Callable[[int], None], meanwhile: Callable[[], Any] = lambda: None) -> list[str]:
    faults: list[str] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            faults.append(f"{type(error).__name__}: {error}"[:300])

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()
    return faults


def test_threads_share_a_program_and_compile_programs(path: Path, rows: list[tuple[Any, Any]]) -> None:
    shared = dovetail.compile(path, threads=2)

    def work(number: int) -> None:
        for step in range(40):
            x, want = rows[(7 * step + number) % len(rows)]
            assert_right(shared([x])[0], want)
        x, want = rows[number % len(rows)]
        for _ in range(2):
            with dovetail.compile(path) as program:
                assert_right(program([x])[0], want)

    assert run_threads(work) == []


def test_a_program_is_closed_while_threads_run_it(path: Path, rows: list[tuple[Any, Any]]) -> None:
    """Each run gives its result or says that the program is closed."""
    program, started = dovetail.compile(path, threads=2), threading.Barrier(9)
    codes = []

    def work(number: int) -> None:
        x, want = rows[number % len(rows)]
        assert_right(program([x])[0], want)
        started.wait()
        try:
            while True:
                assert_right(program([x])[0], want)
        except DovetailError as error:
            codes.append(error.code)

    def close() -> None:
        started.wait()
        threading.Event().wait(0.05)
        program.close()

    assert run_threads(work, close) == []
    assert codes == ["program.closed"] * 8


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
def test_sizes_that_never_repeat_keep_no_memory(path: Path) -> None:
    program = dovetail.compile(path, threads=1)
    sizes = np.array([(height, width) for height in range(8, 48) for width in range(8, 33)])
    for step, (height, width) in enumerate([(96, 96), *np.random.default_rng(0).permutation(sizes)]):
        program([np.zeros((1, 3, height, width), np.float32)])
        if step == 150:
            gc.collect()
            before = resident()
    gc.collect()
    # Kept plans of all sizes take 19 MB.
    assert resident() - before < 8e6
