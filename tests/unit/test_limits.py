"""Time and memory are bounded by the file: each limit refuses, names itself, and can be raised.

The files of ``HOSTILE`` cost too much without a limit; the harness of ``tests/resource_limits.py`` runs each through every stage.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail import Limits
from dovetail.errors import DovetailError, EngineError
from dovetail.formats.onnx import messages
from dovetail.ir.host import native_core
from dovetail.ir.limits import counting
from dovetail.ops.text import re2
from hostile_models import (
    BOOL,
    INT64,
    concat_many,
    declared,
    function_bomb,
    if_nest,
    integers_scalar,
    loop,
    loop_nest,
    many_inputs,
    model_of,
    node,
    regex,
    relus,
    split_many,
    square,
    string_doubling,
    swell,
)
from resource_limits import ENDED, faults, measure

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
ENGINES = ("native", "interpreter")


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def sparse(size: int) -> onnx.ModelProto:
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    tensor = onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.zeros(1, np.int64)), [size])
    return model_of([node("Add", ["x", "w"], ["y"])], [declared("x", [size])], [declared("y")], sparse=[tensor])


LOADED: list[tuple[str, int, str, onnx.ModelProto]] = [
    ("nodes", 40, "limits.exceeded", relus(40)),
    ("nodes", 86, "limits.exceeded", concat_many(100)),
    ("function_nodes", 27, "limits.exceeded", function_bomb(3, 3)),
    ("name_bytes", 4000, "limits.exceeded", function_bomb(2, 3, "A" * 50)),
    ("depth", 4, "limits.exceeded", if_nest(4)),
    ("depth", 4, "limits.exceeded", function_bomb(4, 1)),
    ("dense_bytes", 4000, "limits.exceeded", sparse(1000)),
]


@pytest.mark.parametrize(
    ("name", "enough", "code", "model"), LOADED, ids=[f"{name} {most}, {code}" for name, most, code, _ in LOADED]
)
def test_a_limit_refuses_a_file_and_is_raised_in_one_line(
    name: str, enough: int, code: str, model: onnx.ModelProto, tmp_path: Path
) -> None:
    path = saved(model, tmp_path)
    enough_limits = dataclasses.replace(Limits(), **{name: enough})
    few = dataclasses.replace(Limits(), **{name: enough // 4})
    assert dovetail.load(path, limits=enough_limits).limits == enough_limits
    with pytest.raises(DovetailError) as caught:
        dovetail.load(path, limits=few)
    assert caught.value.code == code and few.describe(name) in str(caught.value)
    assert {item.code for item in dovetail.check(path, limits=few)} == {code}


def test_layers_and_bodies_of_ir_count_too(tmp_path: Path) -> None:
    model = dovetail.load(saved(relus(40), tmp_path))
    dovetail.save(model, tmp_path / "model.xml")
    dovetail.load(tmp_path / "model.xml", limits=Limits(nodes=42))
    with pytest.raises(DovetailError, match=r"limits.exceeded.*the limit nodes is 41"):
        dovetail.load(tmp_path / "model.xml", limits=Limits(nodes=41))
    model = dovetail.load(saved(if_nest(3), tmp_path))
    model.limits = Limits(depth=2)
    with pytest.raises(DovetailError, match=r"limits.exceeded.*the limit depth is 2"):
        dovetail.save(model, tmp_path / "nest.xml")


def test_names_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dovetail.formats.onnx import functions

    monkeypatch.setattr(functions._Inliner, "run", lambda self: pytest.fail("functions are written out"))
    with pytest.raises(DovetailError) as caught:
        dovetail.load(saved(function_bomb(3, 30, "A" * 2000), tmp_path))
    assert caught.value.code == "limits.exceeded" and "the limit name_bytes" in caught.value.message


def test_the_names_of_functions_are_as_many_bytes_as_counted(tmp_path: Path) -> None:
    path = saved(function_bomb(3, 3, "A" * 20), tmp_path)
    made = dovetail.load(path).graph.nodes
    total = sum(len(each.name) + len(each.outputs[0].name) for each in made)
    dovetail.load(path, limits=Limits(name_bytes=2 * total))
    with pytest.raises(DovetailError, match=r"limits.exceeded.*the limit name_bytes"):
        dovetail.load(path, limits=Limits(name_bytes=total // 2))


@pytest.mark.parametrize("depth", [4, 8, 16])
def test_a_loop_in_loops_is_inferred_as_often_as_there_are_loops(depth: int, tmp_path: Path) -> None:
    model = dovetail.load(saved(loop_nest(depth), tmp_path))
    with counting(Limits()) as usage:
        dovetail.infer(model)
    with counting(Limits()) as usage:
        dovetail.ir.infer.infer_graph(model.graph)
    assert len(usage.inferences) == depth and max(usage.inferences.values()) <= 6 * depth


def test_inference_of_bodies_is_bounded(tmp_path: Path) -> None:
    path = saved(loop_nest(12), tmp_path)
    dovetail.load(path)
    with pytest.raises(DovetailError) as caught:
        dovetail.load(path, limits=Limits(inference_steps=20))
    assert caught.value.code == "inference.steps" and "the limit inference_steps is 20" in caught.value.message


def run(model: onnx.ModelProto, folder: Path, engine: str, limits: Limits, **inputs: Any) -> dict[str, Any]:
    return dovetail.compile(saved(model, folder), engine, limits=limits)(inputs)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("limits", "model", "inputs", "code"),
    [
        (Limits(trips=9), loop(10), {}, "loop.trips"),
        (Limits(), loop(2**62), {}, "loop.trips"),
        (Limits(), loop(2**21, True), {}, "loop.trips"),
        (Limits(trips=100), loop(2**62, goes_on=False), {"k": np.True_}, "loop.trips"),
        (Limits(memory=1000), loop(500, True), {}, "run.memory"),
        (Limits(seconds=0.0), loop(10), {}, "run.time"),
        (Limits(seconds=0.0), relus(3), {"x": np.ones(1, np.float32)}, "run.time"),
        (Limits(text_bytes=1000), string_doubling(10, False), {"s": np.array(["abcd"], object)}, "run.text"),
    ],
    ids=["few trips", "2**62 trips", "2**21 trips collected", "trips of a while", "memory", "time of trips", "time", "text"],
)
def test_a_run_ends_at_its_limit(
    engine: str, limits: Limits, model: onnx.ModelProto, inputs: dict[str, Any], code: str, tmp_path: Path
) -> None:
    given = {"x": np.ones(2, np.float32)} if any(item.name == "x" for item in model.graph.input) else {}
    with pytest.raises(EngineError) as caught:
        run(model, tmp_path, engine, limits, **{**given, **inputs})
    assert caught.value.code == code and "the limit" in caught.value.message


@pytest.mark.parametrize("engine", ENGINES)
def test_limits_are_counted_for_each_run(engine: str, tmp_path: Path) -> None:
    program = dovetail.compile(saved(loop(10, True), tmp_path), engine, limits=Limits(trips=10, memory=10_000, seconds=60))
    for _ in range(3):
        assert program({"x": np.ones(2, np.float32)})["z"].shape == (10, 2)
    again = pickle.loads(pickle.dumps(program))
    assert again.model.limits == program.model.limits


@pytest.mark.skipif(not native_core.is_compiled, reason="steps in Python have memory of their own")
def test_outputs_count_as_memory(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Add(b.input("x", "f32", (1000,)), 1.0))
    dovetail.compile(b.model, "native", limits=dovetail.Limits(memory=4000))(np.ones(1000, np.float32))
    with pytest.raises(EngineError) as caught:
        dovetail.compile(b.model, "native", limits=dovetail.Limits(memory=3999))(np.ones(1000, np.float32))
    assert caught.value.code == "run.memory" and "the limit memory is 3999" in caught.value.message


@pytest.mark.parametrize("engine", ENGINES)
def test_a_view_that_repeats_an_element_counts_as_memory(engine: str) -> None:
    """It takes none itself; what reads it would take days."""
    with dovetail.Builder("m") as b:
        b.output("y", b.ReduceSum(b.Expand(b.input("x", "f32", (1,)), b.input("s", "i64", (1,)))))
    with pytest.raises(dovetail.EngineError) as caught:
        dovetail.run(b.model, {"x": np.ones(1, np.float32), "s": np.array([1 << 40])}, engine)
    assert caught.value.code == "run.memory"


def _build_expand(size: int) -> onnx.ModelProto:
    """Build a sum of 4 * ``size`` bytes that a constant of one element is expanded to."""
    return model_of(
        [node("Expand", ["x", "s"], ["large"]), node("ReduceSum", ["large"], ["y"])],
        [declared("x", [1])], [declared("y")], [onnx.numpy_helper.from_array(np.array([size]), "s")],
    )  # fmt: skip


def _loops_in_loops(depth: int, trips: int) -> onnx.ModelProto:
    """Build nested loops of ``trips`` trips each."""
    nodes = [node("Identity", ["x"], ["y"])]
    for level in range(depth):
        inputs = [declared(f"i{level}", [], INT64), declared(f"c{level}", [], BOOL)]
        inner = [node("Identity", [f"c{level}"], [f"d{level}"]), *nodes]
        outputs = [declared(f"d{level}", [], BOOL), declared(f"y{level - 1}") if level else declared("y", [2])]
        body = onnx.helper.make_graph(inner, f"b{level}", inputs, outputs)
        nodes = [node("Loop", ["t", ""], [f"y{level}"], body=body)]
    return model_of(nodes, [declared("x", [2])], [declared(f"y{depth - 1}")], [integers_scalar("t", trips)])


@pytest.mark.parametrize(
    ("model", "limits", "code", "words"),
    [
        (
            _build_expand(1 << 40),
            Limits(),
            "run.memory",
            "'large' (f32[1099511627776]) needs 4398046511104 bytes; the machine",
        ),
        (_build_expand(1000), Limits(memory=3999), "run.memory", "needs 4000 bytes; the limit memory is 3999"),
        (_build_expand(1000), Limits(memory=4000), "", ""),
        (loop(10**15), Limits(), "loop.trips", "up to 1000000000000000 iterations; the limit trips is 1000000"),
        (loop(10), Limits(trips=9), "loop.trips", "up to 10 iterations; the limit trips is 9"),
        (loop(10), Limits(trips=10), "", ""),
        (_loops_in_loops(4, 100), Limits(), "loop.trips", "up to 101010100 iterations; the limit trips is 1000000"),
        (_loops_in_loops(4, 100), Limits(trips=101010100), "", ""),
        (loop(2**62, goes_on=False), Limits(), "", ""),
        (relus(3), Limits(trips=0, memory=100), "", ""),
    ],
    ids=["terabytes", "bytes", "few bytes", "10**15 trips", "trips", "few trips", "nested", "few nested", "a while", "none"],
)
def test_check_warns_of_a_run_beyond_its_limits(
    model: onnx.ModelProto, limits: Limits, code: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs. A warning has the code of the error that the run would raise, and leaves the model sound."""
    path = saved(model, tmp_path)
    for found in (dovetail.check(path, limits=limits), dovetail.check(dovetail.load(path), limits=limits)):
        assert [(item.code, item.severity) for item in found] == ([(code, "warning")] if code else [])
        assert all(words in item.message for item in found)
    from dovetail.cli import main

    settings = [f"--limit={name}={value}" for name in ("trips", "memory") if (value := getattr(limits, name)) is not None]
    with pytest.raises(SystemExit) as ended:
        main(["check", str(path), *settings])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert output.endswith(": sound\n") and (f"warning: [{code}]" in output) == bool(code) and words in output


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["ReduceSum", "ArgMax", "Concat"])
def test_a_view_of_known_size_counts_as_memory(kind: str, engine: str) -> None:
    """Its reader would take the time of its full size, which no limit of seconds ends: the reader is one step."""
    with dovetail.Builder("m") as b:
        view = b.Expand(b.input("x", "f32", (1,)), [1 << 13, 1 << 13])
        b.output("y", {"ReduceSum": b.ReduceSum, "ArgMax": b.ArgMax, "Concat": lambda x: b.Concat(x, x, axis=0)}[kind](view))
    nbytes = 1 << 28
    with pytest.raises(EngineError) as caught:
        dovetail.compile(b.model, engine, limits=Limits(memory=nbytes - 1))(np.ones(1, np.float32))
    assert caught.value.code == "run.memory" and f"the limit memory is {nbytes - 1}" in caught.value.message
    if kind != "Concat":
        dovetail.compile(b.model, engine, limits=Limits(memory=nbytes + (1 << 24)))(np.ones(1, np.float32))


def test_folding_counts_bytes(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Add(b.Expand(b.constant(np.ones(1, np.float64)), b.constant(np.array([1 << 19]))), 1.0))
    program: Any = dovetail.compile(b.model, "native")
    assert [type(each.op).__name__ for each in program._engine.graph.nodes] == ["Constant"]
    program = dovetail.compile(b.model, "native", limits=Limits(folded_bytes=1 << 20))
    assert "Expand" in [type(each.op).__name__ for each in program._engine.graph.nodes]
    assert program()["y"].shape == (1 << 19,)


def test_texts_that_double_are_not_folded(tmp_path: Path) -> None:
    program: Any = dovetail.compile(saved(string_doubling(40), tmp_path), "native")
    texts = [each.constant for each in program._engine.graph.values() if each.constant is not None]
    assert max(len(text) for array in texts for text in array.reshape(-1)) <= 2 << 16


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("nodes=many", "nodes must be a number"),
        ("nodes=-1", "nodes must be"),
        ("noses=1", "one of nodes"),
        ("seconds=nan", "seconds must be a number"),
    ],
)
def test_invalid_limits_are_refused(setting: str, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        Limits().with_settings([setting])
    assert caught.value.code == "argument.value" and words in caught.value.message


def test_the_command_line_raises_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dovetail.cli import main

    path = str(saved(relus(40), tmp_path))
    for arguments, code in (
        (["info", path, "--limit", "nodes=39"], 4),
        (["info", path, "--limit", "nodes=40"], 0),
        (["check", path, "--limit", "nodes=39"], 1),
        (["run", path, "--limit", "nodes=40", "--limit", "seconds=0"], 6),
        (["run", path, "--limit", "noses=1"], 2),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code, arguments
    assert "the limit nodes is 39" in capsys.readouterr().err


def test_without_re2_a_pattern_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(re2, "_import_re2", lambda: None)
    re2.compile_pattern.cache_clear()
    path = saved(regex("a|b", "a"), tmp_path)
    dovetail.load(path)
    with pytest.raises(DovetailError) as caught:
        dovetail.run(path, {}, engine="interpreter")
    assert caught.value.code == "extra.missing" and "dovetail-graph[text]" in caught.value.message


def test_the_document_has_every_limit_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", DOCUMENT.read_text(), re.M))
    assert list(rows) == [field.name for field in dataclasses.fields(Limits)]
    for name, text in rows.items():
        default = getattr(Limits(), name)
        number, unit = re.match(r"([\d,]*)(.*)", text).groups()  # type: ignore[union-attr]
        assert default is None or default == int(number.replace(",", "")) * (1 << 20 if unit == " MiB" else 1)


HOSTILE: dict[str, onnx.ModelProto] = {
    "Loops in Loops": loop_nest(20),
    "Ifs in Ifs": if_nest(31),
    "functions": function_bomb(10, 10),
    "names of functions": function_bomb(3, 30, "A" * 2000),
    "a loop without end": loop(2**62),
    "a loop that collects": loop(2**20, True),
    "texts": string_doubling(40),
    "backtracking": regex("((a*)*)*b", "a" * 40),
    "nested groups": regex("(" * 20000 + "a" + ")" * 20000, "a"),
    "a huge pattern": regex("a{1000}" * 5000, "a"),
    "inputs of a Concat": concat_many(10_000),
    "outputs of a Split": split_many(10_000),
    "inputs of the graph": many_inputs(10_000),
    "products of sums": swell(30),
    "squares": square(20),
    "integers beyond 64 bits": square(40, True),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_stage_of_a_hostile_file_is_bounded(name: str, tmp_path: Path) -> None:
    outcomes = measure(saved(HOSTILE[name], tmp_path))
    assert outcomes and faults(outcomes) == []


def test_the_harness_detects_too_much_time_or_memory(tmp_path: Path) -> None:
    path = saved(relus(2000), tmp_path)
    assert all(each.kind == ENDED for each in measure(path, ["load", "check"]))
    assert [each.kind for each in measure(path, ["load"], seconds=0)] == ["slow"]
    wide = saved(split_many(20_000), tmp_path, "wide.onnx")
    assert faults(measure(wide, ["load"], memory=1 << 20))


class FullMessage:
    """A message whose parser finds no memory, as protobuf reports it."""

    def ParseFromString(self, data: bytes) -> None:  # noqa: N802 - protobuf's name
        from google.protobuf.message import DecodeError

        raise DecodeError("Error parsing message with type 'onnx.ModelProto': Arena alloc failed")


def test_a_parser_without_memory_is_not_a_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(relus(3), tmp_path)
    monkeypatch.setattr(messages.message_classes(), "ModelProto", FullMessage)
    with pytest.raises(EngineError) as caught:
        dovetail.load(path)
    assert caught.value.code == "run.memory" and isinstance(caught.value.__cause__, MemoryError)
