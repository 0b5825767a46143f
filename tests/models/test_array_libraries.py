"""One interpreter, any array library: squeezenet in numpy, torch and JAX, and Dask left uncomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import compare
from models.light_table import source_of

pytestmark = pytest.mark.slow


def _namespace(library: str) -> Any:
    if library == "torch":
        return pytest.importorskip("torch")
    if library == "jax":
        return pytest.importorskip("jax.numpy")
    return np


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_squeezenet_is_the_same_in_every_library(library: str, tmp_path: Path) -> None:
    source, image = source_of("squeezenet", "random", tmp_path)
    model = dovetail.load(source)
    expected = dovetail.interpret(model, image)
    found = dovetail.interpret(model, image, xp=_namespace(library))
    assert all(not isinstance(array, np.ndarray) for array in found.values())
    for row in compare(expected, {name: np.asarray(array) for name, array in found.items()}):
        assert row.agrees, row


def test_dask_arrays_are_joined_cut_and_reshaped_without_being_computed() -> None:
    dask_array = pytest.importorskip("dask.array")
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (4, 6, 10))
        left, right = b.Split(b.Concat(x, x, axis=1), [5, 7], axis=1, outputs=2)
        b.output("left", b.Reshape(left, [4, 50]))
        b.output("right", b.Reshape(right, [2, 2, 7, 10]))
    data = np.arange(240, dtype=np.float32).reshape(4, 6, 10)
    calls: list[int] = []

    def read(block: Any) -> Any:
        calls.append(1)
        return block

    # meta is given, so that Dask need not call the function to learn the type
    lazy = dask_array.from_array(data, chunks=(2, 6, 10)).map_blocks(read, meta=np.empty((0, 0, 0), np.float32))
    found = dovetail.interpret(b.model, {"x": lazy}, xp=dask_array)
    assert not calls
    for name, array in dovetail.interpret(b.model, {"x": data}).items():
        assert isinstance(found[name], dask_array.Array)
        np.testing.assert_array_equal(found[name].compute(), array)
    assert calls
