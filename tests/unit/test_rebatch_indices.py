"""rebatch of operators whose indices or lengths follow the batch: ScatterND, ScatterElements, GatherElements, Split, Concat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail import Builder, Model, UnsupportedError, rebatch
from sample_comparison import judge


def rows_of(batch: int) -> np.ndarray:
    """Return the number of each sample, [batch, 1, 1]."""
    return np.arange(batch).reshape(-1, 1, 1)


def scatter_nd(batch: int, flat: bool = False, order: int = 0) -> Model:
    """Return a model that writes ``u`` at columns 2 and 0 of each sample; ``order`` is the axis of the samples in ``x``."""
    columns = np.broadcast_to(np.array([2, 0]).reshape(1, 2, 1), (batch, 2, 1))
    samples = np.broadcast_to(rows_of(batch), (batch, 2, 1))
    indices = np.concatenate([samples, columns] if order == 0 else [columns, samples], -1)
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4, 3))
        u = b.input("u", "f32", (batch, 2, 3))
        data = x if order == 0 else b.Transpose(x, [1, 0, 2])
        if flat:
            y = b.ScatterND(data, indices.reshape(-1, 2), b.Reshape(u, [2 * batch, 3]))
        else:
            y = b.ScatterND(data, indices, u)
        b.output("y", y if order == 0 else b.Transpose(y, [1, 0, 2]))
    return b.model


def scatter_nd_of_constants(batch: int) -> Model:
    indices = np.concatenate([rows_of(batch), np.full((batch, 1, 1), 3)], -1)
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4, 3))
        b.output("y", b.ScatterND(x, indices, np.full((batch, 1, 3), 7, np.float32)))
    return b.model


def scatter_nd_at_inputs(batch: int) -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (batch, 2, 3))
        columns = b.input("at", "i64", (batch, 1, 1))
        b.output("y", b.ScatterND(x, b.Concat(rows_of(batch), columns, axis=-1), np.full((batch, 1, 3), 7, np.float32)))
    return b.model


def scatter_elements(batch: int, axis: int) -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4))
        u = b.input("u", "f32", (batch, 4))
        indices = np.arange(batch).reshape(-1, 1) if axis == 0 else np.array([[3, 1, 0, 2]])
        b.output("y", b.ScatterElements(x, np.ascontiguousarray(np.broadcast_to(indices, (batch, 4))), u, axis=axis))
    return b.model


def scatter_update(batch: int) -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4))
        u = b.input("u", "f32", (batch, 4))
        b.output("y", b.ScatterUpdate(b.Negative(x), np.arange(batch), u, axis=0))
    return b.model


def gather_elements(batch: int) -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4))
        b.output(
            "y", b.GatherElements(x, np.ascontiguousarray(np.broadcast_to(np.arange(batch).reshape(-1, 1), (batch, 4))), axis=0)
        )
    return b.model


def split(batch: int, lengths: bool) -> Model:
    """Return a model that runs two copies of the batch at once, as classifier-free guidance does."""
    with Builder() as b:
        x = b.input("x", "f32", (batch, 4))
        both = b.Tanh(b.Concat(x, b.Negative(x), axis=0))
        first, second = b.Split(both, [batch, batch] if lengths else None, axis=0, outputs=2)
        b.output("y", b.Add(first, b.Multiply(second, 2.0)))
    return b.model


MODELS = {
    "ScatterND": scatter_nd,
    "ScatterND of a list": lambda batch: scatter_nd(batch, flat=True),
    "ScatterND along the second axis": lambda batch: scatter_nd(batch, order=1),
    "ScatterND of constants": scatter_nd_of_constants,
    "ScatterND at inputs": scatter_nd_at_inputs,
    "ScatterElements along the batch": lambda batch: scatter_elements(batch, 0),
    "ScatterElements": lambda batch: scatter_elements(batch, 1),
    "ScatterUpdate": scatter_update,
    "GatherElements along the batch": gather_elements,
    "Split with lengths": lambda batch: split(batch, True),
    "Split into equal parts": lambda batch: split(batch, False),
}


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_indices_and_lengths_take_any_batch(name: str, batch: int, tmp_path: Path) -> None:
    original = MODELS[name](batch)
    new = rebatch(original, {"0": "N"})
    report = new.report
    assert all(row.agrees for row in report.comparisons)
    for suffix in ("onnx", "xml"):
        judge(original, new, tmp_path / f"new.{suffix}", {x.name: 0 for x in original.inputs}, {})


def test_samples_that_are_written_to_others_are_refused() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (2, 4))
        b.output("y", b.ScatterElements(x, np.array([[1, 0, 1, 0], [0, 1, 1, 1]]), b.Negative(x), axis=0))
    with pytest.raises(UnsupportedError) as caught:
        rebatch(b.model, {"0": "N"})
    assert caught.value.node == "y"


def test_a_split_into_samples_is_refused() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (2, 4))
        first, second = b.Split(x, [1, 1], axis=0, outputs=2)
        b.output("y", b.Concat(second, first, axis=0))
    with pytest.raises(UnsupportedError) as caught:
        rebatch(b.model, {"0": "N"})
    assert caught.value.node


@pytest.mark.parametrize("size", ["N", 1, 5])
def test_numbers_of_samples_that_are_data_are_refused(size: str | int) -> None:
    """Each sample's result would depend on its position in the batch."""
    with Builder() as b:
        x = b.input("x", "i64", (2, 4))
        b.output("y", b.Add(x, np.array([[0], [1]])))
    with pytest.raises(UnsupportedError) as caught:
        rebatch(b.model, {"0": size})
    assert caught.value.node == "y"
