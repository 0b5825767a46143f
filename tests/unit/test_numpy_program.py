"""Programs of an installation without the native core: results of torch, for any number of threads.

tests/laws/test_native.py has them for every case of every operator, tests/laws/test_random_networks.py for random networks.
"""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir.host import blas, native_core
from dovetail.runtime.compilation import compile
from dovetail.runtime.interpreter.elementwise_group import BLOCK_ELEMENTS, blocks_of
from dovetail.runtime.interpreter.worker_threads import WorkerThreads
from dovetail.runtime.numpy_program import NumpyProgram

needs_openblas = pytest.mark.skipif(blas.thread_control() is None, reason="numpy's BLAS is not OpenBLAS")
CHANNELS = 24


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def network() -> dovetail.Model:
    """Convolutions of every kind, residuals that are read twice, views of what is overwritten, and products."""
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3, "h", 33))
        y = b.Relu(b.Conv(x, random(CHANNELS, 3, 3, 3), random(CHANNELS), strides=[2, 1], pads=[1, 1, 1, 1]))
        deep = b.Conv(y, random(CHANNELS, 1, 3, 3), pads=[1, 1, 1, 1], group=CHANNELS)
        grouped = b.Conv(b.Relu(deep), random(CHANNELS, CHANNELS // 4, 1, 1), group=4)
        y = b.Relu(b.Add(b.Multiply(grouped, random(1, CHANNELS, 1, 1)), y))
        view = b.Transpose(y, [0, 2, 3, 1])
        wide = b.Conv(y, random(CHANNELS, CHANNELS, 3, 3) / 16, dilations=[2, 2], pads=[2, 2, 2, 2])
        y = b.Add(b.Sigmoid(wide), b.Tanh(y))
        rows = b.MatMul(view, random(CHANNELS, 40))
        b.output("y", y)
        b.output("rows", b.Add(b.Erf(rows), random(40)))
    return b.model


def by_torch(x: Any) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    at = torch.from_numpy
    y = functional.conv2d(at(x), at(random(CHANNELS, 3, 3, 3)), at(random(CHANNELS)), stride=(2, 1), padding=1).relu()
    deep = functional.conv2d(y, at(random(CHANNELS, 1, 3, 3)), padding=1, groups=CHANNELS).relu()
    grouped = functional.conv2d(deep, at(random(CHANNELS, CHANNELS // 4, 1, 1)), groups=4)
    y = (grouped * at(random(1, CHANNELS, 1, 1)) + y).relu()
    wide = functional.conv2d(y, at(random(CHANNELS, CHANNELS, 3, 3) / 16), dilation=2, padding=2)
    rows = torch.erf(y.permute(0, 2, 3, 1) @ at(random(CHANNELS, 40))) + at(random(40))
    return (wide.sigmoid() + y.tanh()).numpy(), rows.numpy()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("batch", "height"), [(1, 64), (3, 8), (1, 1)])
def test_results_agree_with_torch(threads: int, batch: int, height: int) -> None:
    program, x = NumpyProgram(network(), threads), random(batch, 3, height, 33)
    before = x.copy()
    for _ in range(2):
        found = program(x)
        for result, want in zip(found.values(), by_torch(x), strict=True):
            np.testing.assert_allclose(result, want, rtol=2e-5, atol=2e-5 * float(np.abs(want).max()))
    assert x.tobytes() == before.tobytes()


def test_compile_without_a_core_gives_a_numpy_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "is_compiled", False)
    with compile(network(), threads=2) as program:
        assert isinstance(program, NumpyProgram)
        assert (program.engine, program.options) == ("interpreter", {"threads": 2})
        copy = pickle.loads(pickle.dumps(program))
        x = random(1, 3, 16, 33)
        assert all(np.array_equal(y, z) for y, z in zip(copy(x).values(), program(x).values(), strict=True))
    with pytest.raises(DovetailError, match=r"program\.closed"):
        program(x)
    with pytest.raises(DovetailError, match=r"argument\.value"):
        compile(network(), threads=0)


def test_a_group_that_fails_has_the_error_of_the_interpreter() -> None:
    with dovetail.Builder() as b:
        x, z = b.input("x", "f32", ("a", 4096)), b.input("z", "f32", ("b", 4096))
        b.output("y", b.Relu(b.Add(b.Negative(x), z)))
    given = {"x": random(8, 4096), "z": random(7, 4096)}
    codes = []
    for engine in (NumpyProgram(b.model, 2), compile(b.model, "interpreter")):
        with pytest.raises(DovetailError) as error:
            engine(given)
        codes.append((error.value.code, error.value.node))
    assert codes[0] == codes[1]


@needs_openblas
def test_blas_has_its_threads_again_after_calls_from_several_threads() -> None:
    control = blas.thread_control()
    assert control is not None
    before, program = control.current(), NumpyProgram(network(), 2)
    x = random(1, 3, 64, 33)
    want = program(x)["y"].tobytes()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: program(x)["y"].tobytes(), range(12))) == {want}
    assert control.current() == before
    with blas.single_threaded_blas():
        assert control.current() == 1
    assert control.current() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = WorkerThreads(2)
    threads.run([lambda: None] * 4)
    child = os.fork()
    if not child:
        done: list[int] = []
        threads.run([lambda: done.append(1)] * 4)
        os._exit(0 if len(done) == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_error_of_a_task_is_raised_by_the_caller() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        WorkerThreads(2).run([lambda: None, fail, lambda: None])


@pytest.mark.parametrize("shape", [(1,), (BLOCK_ELEMENTS + 1,), (3, 5, 7), (2, BLOCK_ELEMENTS * 2, 2), (4, 1, BLOCK_ELEMENTS)])
def test_blocks_cover_every_element_once(shape: tuple[int, ...]) -> None:
    counts = np.zeros(shape, np.int8)
    for block in blocks_of(shape):
        counts[block] += 1
        assert counts[block].size <= BLOCK_ELEMENTS
    assert (counts == 1).all()
