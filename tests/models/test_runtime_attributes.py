"""An axis of IR that only run time knows: what OpenVINO makes of each axis we make of it too, in our IR and ONNX as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
onnxruntime = pytest.importorskip("onnxruntime")

import dovetail  # noqa: E402
import oracles  # noqa: E402
from assertions import assert_same_bits, differences  # noqa: E402
from dovetail.errors import RuleError  # noqa: E402
from dovetail.ops.runtime_attributes import RuntimeAttributes  # noqa: E402

_X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
_CUBE = np.random.default_rng(1).standard_normal((4, 4, 4)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Row:
    """``build(opsets, x, axis)`` makes an operator of ``kind``; ``axes``: each is given to it, as a tensor of ``shape``.
    ``answers``: whether OpenVINO runs it with an axis that is an input; it always does with a constant. ``onnx``: the code with
    which we refuse to write it."""

    kind: str
    build: Callable[[Any, Any, Any], Any]
    axes: tuple[int, ...] = (0, 1, 2, -1, -2, -3)
    x: Any = None
    dtype: Any = np.int64
    shape: tuple[int, ...] = ()
    answers: bool = True
    onnx: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {np.dtype(self.dtype)}{list(self.shape)}"

    @property
    def data(self) -> Any:
        return _X if self.x is None else self.x


def _whole(o: Any, *items: int) -> Any:
    return o.constant(np.array(items, np.int64))


def _scattered(version: str, **attributes: Any) -> Callable[[Any, Any, Any], Any]:
    def build(o: Any, x: Any, axis: Any) -> Any:
        updates = o.constant(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
        indices = o.constant(np.array([2, 0, 1, 1, 0, 2, 2, 1], np.int64).reshape(2, 2, 2))
        return getattr(openvino, version).scatter_elements_update(x, indices, updates, axis, **attributes)

    return build


ROWS = [
    *(
        Row("VariadicSplit-1", lambda o, x, axis: o.variadic_split(x, axis, _whole(o, 1, -1, 0)), dtype=dtype, shape=shape)
        for dtype, shape in ((np.int64, ()), (np.int32, (1,)), (np.int8, ()))
    ),
    Row("VariadicSplit-1", lambda o, x, axis: o.variadic_split(x, axis, _whole(o, 1, 3)), (1, -2)),
    Row("Split-1", lambda o, x, axis: o.split(x, axis, 2), x=_CUBE),
    Row("Split-1", lambda o, x, axis: o.split(x, axis, 2), (1, -2), dtype=np.int32),
    Row("Gather-8", lambda o, x, axis: o.gather(x, _whole(o, 0, -1, 9), axis), answers=False, onnx="index.range"),
    Row("Gather-8", lambda o, x, axis: o.gather(x, _whole(o, 0, -1), axis), answers=False),
    Row("Gather-8", lambda o, x, axis: o.gather(x, o.constant(np.array([[0, 1]] * 3)), axis, 1), (1, 2, -1), answers=False),
    Row("Gather-7", lambda o, x, axis: openvino.opset7.gather(x, _whole(o, 2, 0), axis), shape=(1,), answers=False),
    Row("ScatterElementsUpdate-3", _scattered("opset3")),
    Row("ScatterElementsUpdate-12", _scattered("opset12", reduction="sum"), dtype=np.int32, shape=(1,)),
    Row(
        "ScatterUpdate-3",
        lambda o, x, axis: o.scatter_update(x, _whole(o, 1), o.constant(np.ones((4, 1, 4), np.float32)), axis),
        (1, -2),
        x=_CUBE,
    ),
]  # fmt: skip
over = pytest.mark.parametrize("row", [pytest.param(row, id=f"{index}: {row}") for index, row in enumerate(ROWS)])


def built(row: Row, axis: int | None, path: Path) -> None:
    """Build the model as openvino writes it, with ``axis`` as a constant, or as the input ``axis``."""
    o = openvino.opset8
    x = o.parameter(list(row.data.shape), openvino.Type.f32, name="x")
    late = o.parameter(list(row.shape), openvino.Type(np.dtype(row.dtype)), name="axis")
    for parameter, name in ((x, "x"), (late, "axis")):
        parameter.output(0).get_tensor().set_names({name})
    made = row.build(o, x, late if axis is None else o.constant(given(row, axis)))
    results = []
    for index, output in enumerate(made.outputs()):
        output.get_tensor().set_names({f"y{index}"})
        results.append(o.result(output))
    openvino.serialize(openvino.Model(results, [x, late] if axis is None else [x], "row"), path)


def given(row: Row, axis: int) -> Any:
    return np.full(row.shape, axis, row.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("axes")


@cache
def written(row: Row, folder: Path) -> tuple[Path, Any]:
    """Return the file with the axis as an input, and what we read of it."""
    path = folder / f"{ROWS.index(row)}.xml"
    built(row, None, path)
    return path, dovetail.load(path)


def saved(row: Row, folder: Path) -> bytes | None:
    """Return the file as ONNX; None where that is refused, as the row says."""
    model = written(row, folder)[1]
    if row.onnx:
        with pytest.raises(dovetail.DovetailError) as caught:
            dovetail.save(model, folder / "refused.onnx")
        assert caught.value.code == row.onnx
        return None
    dovetail.save(model, folder / "saved.onnx")
    return (folder / "saved.onnx").read_bytes()


@over
def test_each_axis_gives_the_results_of_openvino(row: Row, folder: Path) -> None:
    source, model = written(row, folder)
    assert model.warnings == []
    names = [value.name for value in model.outputs]
    dovetail.save(model, folder / "back.xml")
    data = saved(row, folder)
    programs = [dovetail.compile(model, engine) for engine in ("interpreter", "native")]
    again = dovetail.load(folder / "back.xml")
    for axis in row.axes:
        built(row, axis, folder / "fixed.xml")
        wanted = oracles.run_openvino_file(str(folder / "fixed.xml"), {"x": row.data}, names)
        feeds = {"x": row.data, "axis": given(row, axis)}
        answers = {"interpreter": list(programs[0](feeds).values()), "native": list(programs[1](feeds).values())}
        answers["IR again"] = list(dovetail.run(again, feeds).values())
        if row.answers:
            answers["OpenVINO at run time"] = oracles.run_openvino_file(str(source), feeds, names)
            answers["OpenVINO of our IR"] = oracles.run_openvino_file(str(folder / "back.xml"), feeds, names)
        if data is not None:
            answers["onnxruntime"] = oracles.run_onnxruntime(data, feeds)
        for who, found in answers.items():
            assert len(found) == len(wanted)
            for y, other in zip(found, wanted, strict=True):
                assert_same_bits(y, other, f"{who}, axis {axis}")


@over
def test_a_saved_ir_has_the_nodes_of_the_loaded_ir(row: Row, folder: Path) -> None:
    """Gather-7 is written as Gather-8, which answers for what it refuses."""
    model = written(row, folder)[1]
    dovetail.save(model, folder / "same.xml")
    again = dovetail.load(folder / "same.xml")
    assert differences(model.graph, again.graph, lambda op, other: row.kind == "Gather-7") == []
    assert [type(node.op) for node in again.graph.nodes].count(RuntimeAttributes) == 1
    assert openvino.Core().read_model(folder / "same.xml").inputs[-1].get_any_name() == "axis"


@over
def test_an_axis_out_of_range_is_refused_by_everyone(row: Row, folder: Path) -> None:
    _, model = written(row, folder)
    data = saved(row, folder)
    session = data and onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for axis in (3, -4, 100):
        feeds = {"x": row.data, "axis": given(row, axis)}
        for engine in ("interpreter", "native"):
            with pytest.raises(RuleError) as caught:
                dovetail.compile(model, engine)(feeds)
            assert caught.value.code == "axis.range"
        if session:
            with pytest.raises(Exception, match="out of data bounds"):
                session.run(None, feeds)


def test_an_axis_whose_lengths_do_not_add_up_is_refused_by_everyone(folder: Path) -> None:
    """Lengths of 4 elements: right along axis 1, wrong along the others."""
    row = next(row for row in ROWS if row.kind == "VariadicSplit-1" and row.axes == (1, -2))
    _, model = written(row, folder)
    session = onnxruntime.InferenceSession(saved(row, folder), providers=["CPUExecutionProvider"])
    for axis in (0, 2, -1, -3):
        feeds = {"x": row.data, "axis": given(row, axis)}
        for engine in ("interpreter", "native"):
            with pytest.raises(RuleError) as caught:
                dovetail.compile(model, engine)(feeds)
            assert caught.value.code == "split.sizes"
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, feeds)


def test_open_sizes_and_open_ranks(folder: Path) -> None:
    """With unknown sizes all is as before. With an unknown rank the file runs and is written back; ONNX refuses it by name."""
    row = ROWS[0]
    path, fixed = written(row, folder)
    for name, shape in (("sizes", openvino.PartialShape([-1, -1, -1])), ("rank", openvino.PartialShape.dynamic())):
        model = openvino.Core().read_model(path)
        model.reshape({"x": shape})
        openvino.serialize(model, folder / f"{name}.xml")
        open_ = dovetail.load(folder / f"{name}.xml")
        dovetail.save(open_, folder / f"{name}_back.xml")
        for axis in row.axes:
            feeds = {"x": row.data, "axis": given(row, axis)}
            for engine in ("interpreter", "native"):
                found = dovetail.compile(dovetail.load(folder / f"{name}_back.xml"), engine)(feeds)
                for y, other in zip(found.values(), dovetail.run(fixed, feeds).values(), strict=True):
                    assert_same_bits(y, other, f"{name}, {engine}, axis {axis}")
        if name == "rank":
            with pytest.raises(dovetail.UnsupportedError) as caught:
                dovetail.save(open_, folder / "rank.onnx")
            assert (caught.value.code, caught.value.node) == ("constant.needed", open_.graph.nodes[-1].label)
        else:
            dovetail.save(open_, folder / "sizes.onnx")
            for axis in row.axes:
                feeds = {"x": row.data, "axis": given(row, axis)}
                found = oracles.run_onnxruntime((folder / "sizes.onnx").read_bytes(), feeds)
                for y, other in zip(found, dovetail.run(fixed, feeds).values(), strict=True):
                    assert_same_bits(y, other, f"axis {axis}")
