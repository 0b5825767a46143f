"""Graphs of moves over arrays of dask and zarr: numpy's results, chunk by chunk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import dovetail
from strategies import Moved, movements

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@settings(max_examples=max(25, settings().max_examples // 4))
@given(movements(), st.integers(1, 4))
def test_a_graph_of_moves_over_dask_arrays_gives_the_results_of_numpy(moved: Moved, size: int) -> None:
    # The array API standard has no f16.
    assume(all(array.dtype != np.float16 for array in moved.inputs.values()))
    inputs = {name: da.from_array(array, chunks=size) for name, array in moved.inputs.items()}
    results = dovetail.interpret(moved.model, inputs, xp=da)
    with dask.config.set(scheduler="synchronous"):
        for name, array in moved.outputs.items():
            assert isinstance(results[name], da.Array), name
            loaded = np.asarray(results[name].compute())
            assert loaded.dtype == array.dtype and np.array_equal(loaded, array), name


def test_a_reshape_across_axes_stays_chunked() -> None:
    b = dovetail.Builder("reshape")
    b.output("y", b.Reshape(b.input("x", "f32", (40, 60)), [48, 50]))
    x = np.arange(2400, dtype=np.float32).reshape(40, 60)
    y = dovetail.interpret(b.model, [da.from_array(x, chunks=10)], xp=da)["y"]
    assert len(y.chunks[0]) > 1 and np.array_equal(y.compute(), x.reshape(48, 50))


@pytest.mark.slow
def test_arrays_of_zarr_are_read_by_chunks(tmp_path: Path) -> None:
    """270 MB pass from zarr to zarr within 300 MB, the interpreter and dask included."""
    zarr = pytest.importorskip("zarr")
    shape = 8192, 8192
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=shape, chunks=(1024, 1024), dtype="f4", compressors=None)
    row = np.arange(8192, dtype=np.float32)
    for start in range(0, shape[0], 1024):
        stored[start : start + 1024] = np.arange(start, start + 1024, dtype=np.float32)[:, None] * 2 + row
    code = (
        "import dask, dask.array, dovetail, sys, zarr\n"
        "b = dovetail.Builder('g')\n"
        "x = b.input('x', 'f32', (8192, 8192))\n"
        "parts = b.Split(b.Transpose(x, [1, 0]), [3072, 5120], axis=0, outputs=2)\n"
        "b.output('y', b.Concat(parts[1], parts[0], axis=0))\n"
        f"stored = zarr.open_array({str(tmp_path / 'x.zarr')!r}, mode='r')\n"
        "y = dovetail.interpret(b.model, {'x': stored}, xp=dask.array)['y']\n"
        "with dask.config.set(scheduler='threads', num_workers=2):\n"
        f"    y.to_zarr({str(tmp_path / 'y.zarr')!r})\n"
        "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 300e6
    result = zarr.open_array(str(tmp_path / "y.zarr"), mode="r")
    order = np.r_[3072:8192, 0:3072]
    for start in range(0, shape[0], 2048):
        assert np.array_equal(result[start : start + 2048], order[start : start + 2048, None] + row * 2)


@pytest.mark.parametrize("shape", [(1, 2, 0), (1, 4, 6)])
@pytest.mark.parametrize("repeats", [(0, 1, 1), (1, 2, 3)])
def test_a_tile_of_any_size_is_that_of_numpy(shape: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Tile(b.input("x", "f32", shape), list(repeats)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (y,) = dovetail.interpret(b.model, [da.from_array(x, chunks=1)], xp=da)
    assert np.array_equal(y.compute(), np.tile(x, repeats))
