"""Work that grows with the size of a model or of a set of tensors: counted, four times as much for four times the size."""

from __future__ import annotations

import cProfile
import json
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.compare.values.layers import complete_inputs, inputs_of_other
from dovetail.laws import gradients as autodiff
from dovetail.runtime.random_inputs import Inputs
from work_counts import count_lines

SIZE = 300
GROWTH = 4.4
"""The most by which calls and lines may grow for four times the size."""


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


def kernels(length: int) -> dovetail.Model:
    """Return a chain that no fusion shortens."""
    with dovetail.Builder("kernels") as b:
        y = b.input("x", "f32", ("n", 4))
        for index in range(length):
            y = b.Softmax(y, axis=index % 2)
        b.output("y", y)
    return b.model


def wide(count: int) -> dovetail.Model:
    """One input with many readers and many constants, whose results are outputs in pairs."""
    with dovetail.Builder("wide") as b:
        x = b.input("x", "f32", ("n", 4))
        rows = [b.Multiply(x, b.constant(np.full(4, index, np.float32), name=f"c{index}")) for index in range(count // 2)]
        for index, row in enumerate(rows):
            b.output(f"y{index}", b.Add(row, rows[index - 1]))
    return b.model


VERBS: dict[str, Callable[[dovetail.Model, Path], Any]] = {
    "check": lambda model, folder: dovetail.check(model),
    "infer": lambda model, folder: dovetail.infer(model),
    "show": lambda model, folder: str(model),
    "save onnx": lambda model, folder: dovetail.save(model, folder / "m.onnx"),
    "save older onnx": lambda model, folder: dovetail.save(model, folder / "m.onnx", opset=9),
    "save ir": lambda model, folder: dovetail.save(model, folder / "m.xml"),
    "save text": lambda model, folder: dovetail.save(model, folder / "m.dt"),
    "simplify": lambda model, folder: dovetail.simplify(model),
    "extract": lambda model, folder: dovetail.extract(model, outputs=[model.outputs[-1].name]),
    "rename": lambda model, folder: model.rename_values({model.outputs[0].name: "renamed"}),
    "grad": lambda model, folder: dovetail.grad(model, of=model.outputs[0].name),
    "diff": lambda model, folder: dovetail.diff(model, model),
    "prove": lambda model, folder: dovetail.prove(model, model),
    "interpret": lambda model, folder: dovetail.interpret(model, arrays(model)),
    "compile": lambda model, folder: dovetail.compile(model, engine="native")(arrays(model)),
    "compare": lambda model, folder: dovetail.compare_layers(model, other=model, engines=["native"], inputs=arrays(model)),
    "plan": lambda model, folder: dovetail.plan(model, rounds=0),
}


def arrays(model: dovetail.Model) -> dict[str, Any]:
    return {x.name: np.ones([size if isinstance(size, int) else 2 for size in x.shape], np.float32) for x in model.inputs}


def loaded(model: dovetail.Model, path: Path) -> Callable[[], Any]:
    dovetail.save(model, path)
    return lambda: dovetail.load(path)


def saved(suffix: str) -> Callable[[dovetail.Model, Path], Callable[[], Any]]:
    def prepare(model: dovetail.Model, folder: Path) -> Callable[[], Any]:
        path = folder / f"model.{suffix}"
        dovetail.save(model, path)
        return lambda: dovetail.load(path)

    return prepare


PREPARED = {name: lambda model, folder, verb=verb: lambda: verb(model, folder) for name, verb in VERBS.items()}
PREPARED |= {f"load {suffix}": saved(suffix) for suffix in ("onnx", "xml", "dt")}
LENGTH = 120


@pytest.mark.parametrize("make", [chain, kernels, inputs, wide], ids=lambda make: make.__name__)
@pytest.mark.parametrize("verb", PREPARED)
def test_a_verb_executes_lines_in_proportion_to_the_model(
    verb: str, make: Callable[[int], dovetail.Model], tmp_path: Path
) -> None:
    """Each pass of a loop counts, in functions and in comprehensions."""
    # The first run imports modules.
    _, few, many = (count_lines(PREPARED[verb](make(count), tmp_path)) for count in (8, LENGTH, 4 * LENGTH))
    assert many < GROWTH * few


def named_alike(count: int) -> bytes:
    """Return a chain of nodes that all have one name."""
    info = onnx.helper.make_tensor_value_info
    names = ["x", *(f"v{index}" for index in range(count))]
    nodes = [onnx.helper.make_node("Exp", [x], [y], name="exp") for x, y in pairwise(names)]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [2])], [info(names[-1], 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def branches_named_alike(count: int) -> dovetail.Model:
    """Branches whose values all have the name of an outer value."""
    with dovetail.Builder("branches") as b:
        y, flag = b.input("x", "f32", (2,)), b.input("c", "boolean", ())
        for _ in range(count):
            graphs = []
            for kind in ("Exp", "Abs"):
                inner = dovetail.Builder()
                inner.output("x", getattr(inner, kind)(inner.input("c", "f32", (2,))))
                graphs.append(inner.graph)
            y = b.If(flag, y, then_branch=graphs[0], else_branch=graphs[1], outputs=1)[0]
        b.output("y", y)
    return b.model


def test_nodes_of_one_name_are_renamed_in_linear_time() -> None:
    files = [named_alike(count) for count in (8, LENGTH, 4 * LENGTH)]
    _, few, many = (count_lines(lambda data=data: dovetail.load(data)) for data in files)
    assert many < GROWTH * few


def test_values_of_branches_that_have_one_name_are_written_in_linear_time(tmp_path: Path) -> None:
    def lines(count: int) -> int:
        model = branches_named_alike(count)
        return count_lines(lambda: dovetail.save(model, tmp_path / "model.onnx"))

    _, few, many = map(lines, (8, LENGTH, 4 * LENGTH))
    assert many < GROWTH * few


def test_inputs_of_a_comparison_are_matched_in_linear_time() -> None:
    def lines(count: int) -> int:
        model = inputs(count)
        given = arrays(model)
        return count_lines(lambda: inputs_of_other(model, model, complete_inputs(model, Inputs(given))))

    _, few, many = map(lines, (8, LENGTH, 4 * LENGTH))
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
