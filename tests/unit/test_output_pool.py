"""Memory of results: never given out twice at a time, however a result is held, and not kept for long."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import dovetail
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

core = native_core.core()
OutputPool = core.OutputPool if core else None
MIN_POOLED_BYTES = core.MIN_POOLED_BYTES if core else 1 << 17
SIZES = [MIN_POOLED_BYTES - 1, MIN_POOLED_BYTES, MIN_POOLED_BYTES + 1, 3 * MIN_POOLED_BYTES, 5 * MIN_POOLED_BYTES // 2]
COUNT = MIN_POOLED_BYTES


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128, *(each.numpy for each in (dovetail.ir.dtypes.bf16,))])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (7, MIN_POOLED_BYTES), (MIN_POOLED_BYTES // 3, 2, 5)])
def test_arrays_have_the_properties_of_numpy_empty(dtype: Any, shape: tuple[int, ...]) -> None:
    found, want = OutputPool().allocate(shape, np.dtype(dtype)), np.empty(shape, dtype)
    assert (found.shape, found.dtype, found.strides) == (want.shape, want.dtype, want.strides)
    assert found.flags.writeable and found.flags.aligned and found.flags.c_contiguous
    found[...] = 1
    assert (found == np.ones(shape, dtype)).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 6), st.booleans()), max_size=30))
def test_referenced_arrays_do_not_overlap(asked: list[tuple[int, int, bool]]) -> None:
    output_pool = OutputPool()
    held: list[tuple[np.ndarray[Any, Any], int]] = []
    for number, (size, drop, calls) in enumerate(asked):
        if calls:
            output_pool.begin_call()
        array = output_pool.allocate((size,), np.dtype(np.uint8))
        array[...] = number
        held.append((array, number))
        if drop < len(held):
            del held[drop], array
    for array, number in held:
        assert (array == number).all()


def test_released_memory_is_reused() -> None:
    output_pool = OutputPool()
    first = output_pool.allocate((COUNT + 1,), np.dtype(np.uint8))
    place = address(first)
    del first
    # A little more still has room there.
    assert address(output_pool.allocate((COUNT + 100,), np.dtype(np.uint8))) == place


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a view": lambda array: array[3:],
    "a view of a view": lambda array: array[3:].reshape(-1, 1)[::2],
    "a memoryview": lambda array: memoryview(array),
    "a view through the interface": lambda array: np.asarray(array).view(np.int8),
    "DLPack": lambda array: np.from_dlpack(array),
    "an iterator": lambda array: array.flat,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_referenced_memory_is_not_reused(holder: str) -> None:
    output_pool = OutputPool()
    array = output_pool.allocate((COUNT,), np.dtype(np.uint8))
    place = address(array)
    held = HOLDERS[holder](array)
    del array
    gc.collect()
    assert address(output_pool.allocate((COUNT,), np.dtype(np.uint8))) != place
    del held
    gc.collect()
    output_pool.begin_call()


def test_memory_of_a_torch_tensor_is_not_reused() -> None:
    torch = pytest.importorskip("torch")
    output_pool = OutputPool()
    held = torch.from_numpy(output_pool.allocate((COUNT,), np.dtype(np.uint8)))
    held[...] = 7
    output_pool.allocate((COUNT,), np.dtype(np.uint8))[...] = 1
    assert (held == 7).all()


def test_blocks_that_calls_do_not_need_are_freed() -> None:
    output_pool = OutputPool()
    for _ in range(8):
        output_pool.begin_call()
        arrays = [output_pool.allocate((COUNT,), np.dtype(np.uint8)) for _ in range(4)]
        del arrays
    output_pool.begin_call()
    assert output_pool.free_blocks == 4
    for _ in range(3):
        output_pool.begin_call()
    assert output_pool.free_blocks == 0


def test_a_result_may_outlive_its_program_and_be_pickled() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", ("n",))))
    program = dovetail.compile(b.model)
    x = np.linspace(-1, 1, COUNT, dtype=np.float32)
    found = program(x)["y"]
    want = np.maximum(x, 0)
    for _ in range(3):
        program(-x)
    del program
    gc.collect()
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)), want)


def test_calls_from_several_threads_do_not_share_results() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", ("n",))))
    program = dovetail.compile(b.model, threads=1)
    wrong: list[float] = []

    def work(number: float) -> None:
        x = np.full(COUNT, number, np.float32)
        for _ in range(50):
            y = program(x)["y"]
            if not (y == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(float(number),)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


LACKING = """
import resource, sys
import numpy as np
import dovetail
with dovetail.Builder() as b:
    b.output("y", b.Concat(b.input("x", "f32", ("n",)), b.input("z", "f32", ("n",)), axis=0))
program = dovetail.compile(b.model, threads=1)
for n in (5, 6, 7, 8):
    program(np.ones(n, "f4"), np.ones(n, "f4"))
x = np.ones(1 << 26, "f4")
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 27)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for _ in range(2):
    try:
        program(x, x)
    except dovetail.EngineError as error:
        assert error.code == "run.memory", error
    else:
        sys.exit("there was memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_memory_that_a_result_lacks_is_an_error_with_a_code() -> None:
    """The core serves the call of new sizes, and leaves it to the engine."""
    subprocess.run([sys.executable, "-c", LACKING], check=True, stdin=subprocess.DEVNULL, timeout=120)
