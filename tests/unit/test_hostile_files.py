"""Whatever a file declares ends in a result or in an error of ours: sizes that no machine has, numbers that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.ir.limits import Limits, counting
from dovetail.runtime.random_inputs import random_inputs

MEMORY = 1 << 26
"""The limit of bytes for these files, which demand more than any machine has, or are refused at once."""


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    constants: dict[str, Any] | None = None,
    outputs: tuple[str, ...] = ("y",),
    kind: int = TensorProto.FLOAT,
) -> bytes:
    """Return a file of these nodes; nothing is declared of what they make."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


def one(kind: str, inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None, **attributes: Any) -> bytes:
    """Return a file of one node, which reads its constants after its inputs."""
    return model_of([helper.make_node(kind, [*inputs, *(constants or {})], ["y"], **attributes)], inputs, constants)


def ranged(*bounds: float) -> bytes:
    return one("Range", {}, dict(zip("abc", np.array(bounds, np.float32), strict=True)))


def resized(*scales: float, **attributes: Any) -> bytes:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", **attributes)
    return model_of([node], {"x": [1, 1, 2, 2]}, {"s": np.array(scales, np.float32)})


def swelling(count: int) -> bytes:
    """Return a product of sums of sizes, of more terms than are held."""
    names = [f"d{place}" for place in range(2 * count)]
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Split", ["s"], names, num_outputs=2 * count)]
    nodes += [helper.make_node("Add", names[2 * place : 2 * place + 2], [f"a{place}"]) for place in range(count)]
    nodes += [
        helper.make_node("Mul", [f"{'p' if place > 1 else 'a'}{place - 1}", f"a{place}"], [f"p{place}"])
        for place in range(1, count)
    ]
    nodes.append(helper.make_node("Expand", ["one", f"p{count - 1}"], ["y"]))
    return model_of(nodes, {"x": [f"n{place}" for place in range(2 * count)]}, {"one": np.ones(1, np.float32)})


KERNEL = {"w": np.ones((1, 1, 3, 3), np.float32)}
PICTURE: dict[str, list[Any]] = {"x": [1, 1, 4, 4]}
EMPTY = np.array([0, 2**62])

FILES: dict[str, Callable[[], bytes]] = {
    "sizes-of-nothing": lambda: one("ConstantOfShape", {}, {"s": EMPTY}),
    "sizes-of-nothing-expanded": lambda: one("Expand", {"x": [1]}, {"s": EMPTY}),
    "sizes-of-nothing-declared": lambda: one("Relu", {"x": [0, 2**62]}),
    "sizes-overflow": lambda: one("ConstantOfShape", {}, {"s": np.array([2**32, 2**32])}),
    "sizes-expanded": lambda: one("Expand", {"x": [1]}, {"s": np.array([2**62, 2])}),
    "sizes-of-no-machine": lambda: one("ConstantOfShape", {}, {"s": np.array([2**40])}),
    "inputs-of-no-machine": lambda: one("Relu", {"x": [2, 2**31]}),
    "range-to-nan": lambda: ranged(0, float("nan"), 1),
    "range-to-infinity": lambda: ranged(0, float("inf"), 1),
    "range-of-denormal-steps": lambda: ranged(0, 3e38, 1e-45),
    "resize-overflow": lambda: resized(1, 1, 3e38, 3e38),
    "resize-of-no-machine": lambda: resized(1, 1, 1e10, 1e10),
    "resize-of-tiny-scales": lambda: resized(1, 1, 1e-30, 1, antialias=1),
    "pad-wrap": lambda: one("Pad", {"x": [2, 3]}, {"p": np.array([2**40, 0, 0, 0])}, mode="wrap"),
    "pad-reflect": lambda: one("Pad", {"x": [2, 3]}, {"p": np.array([2**40, 0, 0, 0])}, mode="reflect"),
    "pad-in-many-pieces": lambda: one("Pad", {"x": [1, 3]}, {"p": np.array([0, 2**20, 0, 0])}, mode="wrap"),
    "pad-in-pieces-along-each-axis": lambda: one("Pad", {"x": [3, 3, 3, 3]}, {"p": np.array([20] * 8)}, mode="reflect"),
    "conv-pads": lambda: one("Conv", PICTURE, KERNEL, pads=[2**40] * 4),
    "conv-transpose-strides": lambda: one("ConvTranspose", PICTURE, KERNEL, strides=[2**40, 2**40]),
    "pool-kernel": lambda: one("MaxPool", PICTURE, kernel_shape=[2**40, 2**40], pads=[2**40] * 4),
    "terms-far-apart": lambda: one(
        "TfIdfVectorizer",
        {},
        {"x": np.arange(6)},
        mode="TF",
        min_gram_length=1,
        max_gram_length=2**62,
        max_skip_count=2**62,
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_int64s=[2, 3, 0, 5],
    ),
    "response-of-every-channel": lambda: one("LRN", {"x": [1, 3, 2, 2]}, size=2**63 - 1),
    "trilu-without-diagonal": lambda: one("Trilu", {"x": [3, 3]}, {"k": np.zeros(0, np.int64)}),
    "axes-beyond-arrays": lambda: one("Relu", {"x": [1] * 1000}),
    "names-of-axes-beyond-arrays": lambda: one("Relu", {"x": [f"n{place}" for place in range(1000)]}),
    "einsum-of-26-axes": lambda: model_of(
        [
            helper.make_node(
                "Einsum", ["x"] * 26, ["y"], equation=",".join("abcdefghijklmnopqrstuvwxyz") + "->abcdefghijklmnopqrstuvwxyz"
            )
        ],
        {"x": [10]},
    ),
    "sizes-that-swell": lambda: swelling(8),
}


def ended(action: Callable[[], Any]) -> str:
    """Return the code of the error of ours that ended an action; nothing where it has a result. Any other exception is raised."""
    try:
        action()
    except dovetail.DovetailError as error:
        return error.code
    return ""


@pytest.fixture(params=FILES)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[request.param]())
    return path


def test_every_stage_of_a_hostile_file_ends_in_a_result_or_an_error_of_ours(hostile: Path, tmp_path: Path) -> None:
    limits = Limits(memory=MEMORY)
    assert isinstance(dovetail.check(hostile, limits=limits), list)
    if ended(lambda: dovetail.load(hostile, limits=limits)):
        return
    model = dovetail.load(hostile, limits=limits)
    stages: list[Callable[[], Any]] = [
        lambda: dovetail.infer(model),
        lambda: str(model),
        lambda: dovetail.save(model, tmp_path / "saved.onnx"),
        lambda: dovetail.save(model, tmp_path / "saved.xml"),
        lambda: dovetail.plan(model, rounds=0),
        lambda: dovetail.compile(model, engine="native")(given(model)),
        lambda: dovetail.compile(model, engine="interpreter")(given(model)),
    ]
    for stage in stages:
        ended(stage)


def given(model: dovetail.Model) -> dict[str, Any]:
    with counting(model.limits):
        return random_inputs(model)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("range-to-nan", "attribute.range"),
        ("range-to-infinity", "attribute.range"),
        ("resize-overflow", "attribute.range"),
        ("trilu-without-diagonal", "shape.single"),
        ("axes-beyond-arrays", "type.dims"),
        ("names-of-axes-beyond-arrays", "type.dims"),
    ],
)
def test_an_invalid_model_is_refused_before_it_runs(name: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[name]())
    assert code in {item.code for item in dovetail.check(path)}
    assert ended(lambda: dovetail.load(path, strict=True)) == code
    assert ended(lambda: dovetail.compile(path)) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("sizes-of-nothing", "array.size"),
        ("sizes-of-nothing-declared", "array.size"),
        ("inputs-of-no-machine", "run.memory"),
        ("resize-of-no-machine", "run.memory"),
        ("pad-wrap", "run.memory"),
        ("sizes-of-no-machine", "run.memory"),
    ],
)
def test_too_large_arrays_are_refused_before_allocation(name: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[name]())
    model = dovetail.load(path, limits=Limits(memory=MEMORY))
    assert ended(lambda: dovetail.compile(model, engine="native")(given(model))) == code


@pytest.mark.parametrize("name", ["pad-in-many-pieces", "pad-in-pieces-along-each-axis"])
def test_a_padding_of_many_pieces_is_one_step(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[name]())
    model = dovetail.load(path)
    x = np.arange(np.prod([int(size) for size in model.inputs[0].dims]), dtype=np.float32).reshape(model.inputs[0].dims)
    pads = [(0, 0), (2**20, 0)] if x.ndim == 2 else [(20, 20)] * 4
    wanted = np.pad(x, pads, mode="wrap" if x.ndim == 2 else "reflect")
    assert len(dovetail.plan(model, rounds=0).steps) == 1
    np.testing.assert_array_equal(dovetail.run(model, {"x": x}, engine="native")["y"], wanted)


@pytest.mark.parametrize("size", [6, 7, 8, 9, 2**31, 2**40 + 1, 2**63 - 1])
def test_a_local_response_over_more_than_all_channels_is_that_over_all(size: int, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(one("LRN", {"x": [2, 3, 4, 4]}, size=size, alpha=10.0))
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    wanted = x / (1 + 10 / size * (x.astype(np.float64) ** 2).sum(axis=1, keepdims=True)) ** 0.75
    for engine in ("native", "interpreter"):
        np.testing.assert_allclose(dovetail.run(path, {"x": x}, engine=engine)["y"], wanted, rtol=1e-5)


CONSTANT = """<?xml version="1.0"?><net name="m" version="11"><layers>
<layer id="0" name="c" type="Const" version="opset1"><data element_type="f32" shape="{shape}" offset="0" size="0"/>
<output><port id="0" precision="FP32">{dims}</port></output></layer>
<layer id="1" name="r" type="Result" version="opset1"><input><port id="0" precision="FP32">{dims}</port></input></layer>
</layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>"""


@pytest.mark.parametrize("sizes", [(0, 2**62), (0, 2**62, 2**62), (0, *[1] * 100)], ids=str)
def test_a_constant_of_ir_that_no_array_holds_is_refused(sizes: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    texts = {"shape": ",".join(map(str, sizes)), "dims": "".join(f"<dim>{size}</dim>" for size in sizes)}
    path.write_text(CONSTANT.format(**texts))
    (tmp_path / "m.bin").write_bytes(b"")
    assert ended(lambda: dovetail.load(path)) == "ir.number"
    assert dovetail.check(path)
