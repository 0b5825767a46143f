"""Work that grows with the size of a model or of a set of tensors: counted calls, four times as many for four times the size."""

from __future__ import annotations

import cProfile
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import autodiff

SIZE = 300
GROWTH = 4.8
"""The most by which calls may grow for four times the size."""


def calls_of(run: Callable[[], Any]) -> int:
    profile = cProfile.Profile()
    profile.runcall(run)
    return sum(entry.callcount for entry in profile.getstats())  # type: ignore[attr-defined]


def chain(length: int) -> dovetail.Model:
    with dovetail.Builder("chain") as b:
        y = b.input("x", "f32", (4,))
        for _ in range(length):
            y = b.Sin(y)
        b.output("y", b.ReduceSum(y, keepdims=False))
    return b.model


def inputs(count: int) -> dovetail.Model:
    with dovetail.Builder("inputs") as b:
        values = [b.input(f"x{index}", "f32", (2,)) for index in range(count)]
        b.output("y", b.ReduceSum(b.Concat(*values, axis=0), keepdims=False))
    return b.model


@pytest.mark.parametrize("make", [chain, inputs])
def test_grad_is_linear_in_nodes_and_inputs(make: Callable[[int], dovetail.Model]) -> None:
    dovetail.grad(make(3))
    few, many = (calls_of(lambda count=count: dovetail.grad(make(count))) for count in (SIZE, 4 * SIZE))
    assert many < GROWTH * few


def test_grad_joins_the_values_that_depend_on_sources_once(monkeypatch: pytest.MonkeyPatch) -> None:
    unions = []

    class Counted(set[int]):
        def __or__(self, other: Any) -> Any:
            unions.append(len(self))
            return set(self) | other

    dependent = autodiff._dependent_values
    monkeypatch.setattr(autodiff, "_dependent_values", lambda *arguments: tuple(map(Counted, dependent(*arguments))))
    dovetail.grad(chain(20))
    assert len(unions) <= 1


def test_reshard_is_linear_in_tensors(tmp_path: Path) -> None:
    def write(count: int) -> Path:
        header = {f"t{index}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for index in range(count)}
        data = json.dumps(header).encode()
        path = tmp_path / f"{count}.safetensors"
        path.write_bytes(struct.pack("<Q", len(data)) + data)
        return path

    def run(count: int) -> int:
        path = write(count)
        return calls_of(lambda: dovetail.reshard({"ranks": 1}, path, tmp_path / f"out{count}", threads=1))

    run(3)
    few, many = run(SIZE), run(4 * SIZE)
    assert many < GROWTH * few


def test_an_output_is_found_again_after_the_graph_was_changed() -> None:
    b = dovetail.Builder("borders")
    x = b.input("x", "f32", (2,))
    first, second = b.Relu(x), b.Exp(x)
    b.output("a", first)
    b.output("b", second)
    b.graph.outputs[:] = [second, first]
    b.graph.outputs.pop()
    b.output("c", first)
    b.output("d", second)
    b.output("e", x)
    values = [value.node for value in b.graph.outputs]
    assert len({id(value) for value in b.graph.outputs}) == 4 and values[3] is not None
    ones = np.ones(2, np.float32)
    assert np.allclose(dovetail.run(b.model, {"x": ones})["d"], np.exp(ones))
