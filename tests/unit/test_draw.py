"""Pictures of graphs: every node once, boxes apart, edges between the right boxes, names as text, bounded time."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from functools import partial
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper

import dovetail
from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.measure.node_measures import plan_measure
from dovetail.ops.elementwise.logical import Where
from dovetail.report.draw import Drawing, details, draw_model
from dovetail.report.draw.arrangement import MAX_ITEMS
from dovetail.report.draw.layout import Placed, place_item, separate
from dovetail.report.draw.repeats import Repeat, tandem_repeats
from dovetail.report.draw.scene import Card, Frame, Gate, node_names
from dovetail.report.model_summary import summarize
from work_counts import count_lines

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
CORPUS = Path(os.environ.get("DOVETAIL_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
FILES = [
    *sorted(LIGHT.glob("*.onnx")),
    *(path for path in sorted(CORPUS.glob("*")) if path.suffix in (".onnx", ".xml") and path.stat().st_size < 20_000_000)
][::4]  # fmt: skip


HOSTILE = {
    "terminal": "\x1b[31mRED\x1b[0m\x07\r\n\u202eback\u2066\u2028\x7f\ud7ff\ue000",
    "page": "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${1}&lt;--><!--]]>",
}
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What no output for people has: every control but the line break."""


def model_named(text: str) -> onnx.ModelProto:
    """Return a model with ``text`` in the names of values, nodes, modules, a dimension, an operator and an attribute."""
    nodes = [
        helper.make_node("Relu", [f"x{text}"], [f"y{text}"], name=f"a{text}/b{text}/relu"),
        helper.make_node("Neg", [f"y{text}"], [f"v{text}"], name=f"a{text}/b{text}/neg"),
        helper.make_node(f"Op{text}", [f"v{text}"], [f"z{text}"], name=text, domain=f"d{text}", **{f"a{text}": text}),
    ]
    inputs = [helper.make_tensor_value_info(f"x{text}", onnx.TensorProto.FLOAT, [f"s{text}", 3])]
    outputs = [helper.make_tensor_value_info(f"z{text}", onnx.TensorProto.FLOAT, None)]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(f"d{text}", 1)]
    return helper.make_model(helper.make_graph(nodes, f"g{text}", inputs, outputs), opset_imports=imports, ir_version=8)


def load(path: Path) -> Model:
    try:
        return dovetail.load(path)
    except DovetailError as error:
        pytest.skip(f"{path.name} does not load: {error.code}")


def boxes(placed: Placed) -> Iterator[Placed]:
    yield placed
    for child in placed.children:
        yield from boxes(child)


def placed_of(drawing: Drawing) -> Placed:
    drawing.svg()
    assert drawing._placed is not None
    return drawing._placed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_picture_has_every_node_once_in_boxes_that_are_apart(path: Path) -> None:
    model = load(path)
    drawing = draw_model(model)
    root = ElementTree.fromstring(drawing.svg())
    assert root.tag.endswith("svg")
    names = Counter(node_names(drawing.scene.root))
    outer = [node for node in model.graph.nodes if not (len(node.outputs) == 1 and node.outputs[0].constant is not None)]
    wanted = Counter(node.label for node in outer)
    assert not wanted - names
    # What is beyond the nodes of the graph is in subgraphs, or a constant that is an output.
    assert names.total() == drawing.scene.root.total
    for box in boxes(placed_of(drawing)):
        for index, first in enumerate(box.children):
            assert first.x >= 0 and first.x + first.width <= box.width + 0.01
            assert first.y >= 0 and first.y + first.height <= box.height + 0.01
            for second in box.children[index + 1 :]:
                assert (
                    first.x + first.width <= second.x + 0.01
                    or second.x + second.width <= first.x + 0.01
                    or first.y + first.height <= second.y + 0.01
                    or second.y + second.height <= first.y + 0.01
                ), (first.item, second.item)


@pytest.mark.parametrize("path", FILES[::3], ids=lambda path: path.name)
def test_edges_connect_the_boxes_of_their_nodes(path: Path) -> None:
    drawing = draw_model(load(path))
    for box in boxes(placed_of(drawing)):
        by_item = {child.item: child for child in box.children}
        for line in box.paths:
            if line.wire is None:
                continue
            for slot, (x, y), is_top in ((line.wire.source, line.points[0], False), (line.wire.target, line.points[-1], True)):
                if isinstance(slot.end, Card | Frame):
                    child = by_item[slot.end]
                    assert child.x - 0.01 <= x <= child.x + child.width + 0.01
                    assert y == pytest.approx(child.y + (0 if is_top else child.height))
    for item in drawing.scene.items():
        for source, target in item.links if isinstance(item, Frame) else ():
            for end in (source, target):
                assert end.parent is item or isinstance(end, Gate)


def test_each_edge_of_a_small_graph_is_drawn() -> None:
    drawing = draw_model(branches())
    root = drawing.scene.root
    ends = {(end_name(source), end_name(target)) for source, target in root.links}
    assert ends == {("x", "a"), ("x", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("d", "y")}


def end_name(end: object) -> str:
    assert isinstance(end, Card)
    return end.name


def branches(first: str = "Relu") -> Model:
    with dovetail.Builder("branches") as b:
        x = b.input("x", "f32", ("n", 4))
        b.output("y", b.Reshape(b.Concat(getattr(b, first)(x), b.Sigmoid(x), axis=1), [-1]))
    for name, node in zip("abcd", (node for node in b.model.graph.nodes if node.outputs[0].constant is None), strict=True):
        node.name = name
    return b.model


def chain(count: int, name: str = "") -> Model:
    """Return a chain whose nodes repeat nothing: a Relu or an Add of earlier values by a fixed pseudo-random sequence."""
    state = 1
    with dovetail.Builder("chain") as b:
        values = [b.input("x", "f32", (1, 8))]
        for _ in range(count):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            near = values[-1 - state % min(len(values), 20)]
            values.append(b.Relu(values[-1]) if state >> 8 & 1 else b.Add(values[-1], near))
        b.output("y", values[-1])
    for number, node in enumerate(b.model.graph.nodes):
        node.name = f"{name}{node.name or number}"
    return b.model


def test_shapes_weights_and_movement_are_marked() -> None:
    text = branches().svg()
    assert 'data-kind="movement"' in text and ">n\u00d78<" in text and ">n\u00d74<" in text and "only moves data" in text
    with dovetail.Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", (2, 3)), b.constant([[1.0] * 4] * 3, "f32")))
    text = b.model.svg()
    assert 'data-kind="weighted"' in text and ">b: 3\u00d74<" in text


def test_a_long_expression_is_its_first_symbol_on_an_edge() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.MaxPool(b.input("x", "f32", ("n", 3, "height", 8)), kernel_shape=[3, 3], strides=[2, 2])))
    (shape,) = {value.type.shape for value in b.model.outputs}
    assert str(shape[2]) == "(height + 1)//2 - 1"
    assert ">n\u00d73\u00d7height\u2026\u00d73<" in b.model.svg()


def test_a_size_of_many_digits_is_shortened_on_an_edge() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (0, 2**62))))
    assert ">0\u00d74611686\u2026387904<" in b.model.svg()


def texts_of(drawing: Drawing) -> list[str]:
    """Return the texts of a picture."""
    root = ElementTree.fromstring(drawing.svg())
    return [item.text or "" for item in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_a_picture_has_the_names_of_the_file_and_of_its_format(suffix: str, tmp_path: Path) -> None:
    """The oracle is the file: onnx's op_type, the attribute ``type`` of IR's layers."""
    with dovetail.Builder("main_graph") as b:
        x = b.input("x", "f32", ("n", 3, 8, 8))
        y = b.Conv(x, np.ones((4, 3, 3, 3), np.float32))
        b.output("y", b.Clip(b.Multiply(b.Relu(y), y), 0.0, 6.0))
    path = tmp_path / f"net.{suffix}"
    dovetail.save(b.model, path)
    if suffix == "onnx":
        kinds = {node.op_type for node in onnx.load(path).graph.node}
        assert kinds == {"Conv", "Relu", "Mul", "Clip"}
        kinds |= {"input", "output"}
    else:
        kinds = {layer.attrib["type"] for layer in ElementTree.parse(path).iter("layer")} - {"Const"}
        assert kinds == {"Convolution", "ReLU", "Multiply", "Clamp", "Parameter", "Result"}
    model = dovetail.load(path)
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        texts = texts_of(draw_model(each))
        assert kinds <= set(texts) and texts[0] == path.name and "main_graph" not in texts
    assert f"<title>{path.name}</title>" in draw_model(model).html()
    assert dovetail.plan(model, {"x": np.ones((1, 3, 8, 8), np.float32)}).name == path.name
    assert set(summarize(model)["operators"]) == kinds - {"input", "output", "Parameter", "Result"}


def test_operands_have_the_names_of_the_signature() -> None:
    with dovetail.Builder() as b:
        limit = b.input("limit", "i64", ())
        b.output("y", b.Range(np.int64(3), limit, np.int64(2)))
        b.output("z", b.Slice(b.input("x", "f32", (9, 9)), [1], [5], [0], [2]))
    texts = texts_of(draw_model(b.model))
    assert {"start: 3", "delta: 2", "starts: [1]", "ends: [5]", "axes: [0]", "steps: [2]"} <= set(texts)


def attention(layers: int, *, named: bool) -> Model:
    """Return scaled, masked attention of ``layers`` layers, each with projections; ``named``: nodes have paths of modules."""
    weight = np.ones((8, 8), np.float32)
    with dovetail.Builder("attention") as b:
        x, mask = b.input("x", "f32", (2, 5, 8)), b.input("mask", "f32", (5, 5))
        for layer in range(layers):
            first = len(b.model.graph.nodes)
            q, k, v = b.MatMul(x, weight), b.MatMul(x, weight * 2), b.MatMul(x, weight * 3)
            scores = b.Add(b.Divide(b.MatMul(q, b.Transpose(k, [0, 2, 1])), np.float32(2)), mask)
            y = b.MatMul(b.Softmax(scores, axis=-1), v)
            for node in b.model.graph.nodes[first:]:
                node.name = f"/layer.{layer}/self_attn/{node.op.title}_{len(b.model.graph.nodes)}" if named else ""
            x = b.Add(x, y)
            x.node.name = f"/layer.{layer}/Add" if named else ""
        b.output("y", x)
    return b.model


@pytest.mark.parametrize(("named", "inside"), [(True, 9), (False, 5)])
def test_attention_is_one_box_unless_a_depth_is_chosen(named: bool, inside: int) -> None:
    """Unnamed: two products, the scale, the mask and the Softmax. Named: the module, which contains the projections too."""
    for layers in (1, 3):
        model = attention(layers, named=named)
        folded = draw_model(model)
        texts = texts_of(folded)
        boxes = [item for item in folded.scene.items() if isinstance(item, Frame) and item.is_attention and not item.is_open]
        outer = [item for item in boxes if item.parent is not None and item.parent.is_open]
        assert sum(item.total for item in outer) in (inside, inside * layers)
        assert "Softmax" not in texts and "Softmax" in texts_of(draw_model(model, depth=9))
        names = Counter(node_names(folded.scene.root))
        assert names == Counter(node.label for node in model.graph.nodes if node.outputs[0].constant is None)


def test_a_softmax_that_others_read_is_no_attention() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (4, 4))
        share = b.Softmax(b.MatMul(x, x), axis=-1)
        b.output("y", b.MatMul(share, x))
        b.output("share", share)
    assert "Softmax" in texts_of(draw_model(b.model))


def items_of(page: str) -> list[dict[str, Any]]:
    """Return the data of the boxes of a page."""
    return list(json.loads(page.split('id="scene">', 1)[1].split("</script>", 1)[0])["items"])


def test_a_page_has_attributes_and_statistics_of_weights() -> None:
    weight = np.arange(24, dtype=np.float32).reshape(4, 6) - 4
    with dovetail.Builder() as b:
        y = b.Softmax(b.MatMul(b.input("x", "f32", ("n", 4)), b.constant(weight, name="w")), axis=0)
        b.output("y", b.Where(b.Greater(y, np.float32(0)), y, np.float32(-1)))
    by_title = {item["t"][0]: item["x"] for item in items_of(draw_model(b.model).html()) if "x" in item}
    assert ["axis", "0"] in by_title["Softmax"][0]
    name, value, type, statistics, first = by_title["MatMul"][1][1]
    assert (name, value, type) == ("b", "w", "f32[4, 6]")
    assert statistics == f"min {weight.min():g}, max {weight.max():g}, mean {weight.mean():g}"
    assert first == "[-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, …]"
    assert [row[0] for row in by_title["Where"][1]] == [port.name for port in Where.signature.inputs]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i4", "u2", "boolean", "string", "f8e4m3", "nf4", "complex64"])
def test_weights_of_every_type_have_details(dtype: str) -> None:
    data = ["a", "\x1b[31m"] if dtype == "string" else [1, 0]
    with dovetail.Builder() as b:
        w = b.constant(data, dtype)
        b.output("y", b.Concat(b.input("x", dtype, (2,)), w, axis=0))
    (found,) = [item["x"] for item in items_of(draw_model(b.model).html()) if item["t"][0] == "Concat"]
    assert found[1][1][0] == "inputs[1]" and found[1][1][-1].startswith("[") and "\x1b" not in str(found)


def test_details_of_large_weights_and_graphs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(details, "MAX_ELEMENTS", 100)
    monkeypatch.setattr(details, "MAX_NODES", 2)
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (9, 9))
        for weight in (np.ones((9, 9), np.float32), np.eye(9, dtype=np.float32), np.zeros((9, 9), np.float32)):
            x = b.Tanh(b.MatMul(x, weight)) if weight[0, 0] else b.MatMul(b.Exp(x), weight)
        b.output("y", x)
    found = [item["x"] for item in items_of(draw_model(b.model).html()) if "x" in item]
    assert len(found) == 2
    assert "mean 1" in found[0][1][1][3]


def test_repeated_blocks_are_drawn_once_with_their_count() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (2, 4))
        for _ in range(12):
            x = b.Add(x, b.Sigmoid(b.MatMul(x, b.constant([[0.5] * 4] * 4, "f32"))))
        b.output("y", x)
    drawing = draw_model(b.model)
    counted = [item for item in drawing.scene.items() if item.count > 1]
    assert [(item.count, item.total) for item in counted] == [(12, 36)]
    assert sorted(node_names(drawing.scene.root)) == sorted(
        node.label for node in b.model.graph.nodes if node.outputs[0].constant is None
    )


def test_equal_nodes_with_other_edges_are_no_repeated_block() -> None:
    with dovetail.Builder() as b:
        values = [b.input("x", "f32", (2, 4))]
        for number in range(30):
            values.append(b.Add(values[-1], values[number * number % len(values)]))
        b.output("y", values[-1])
    assert all(item.count == 1 for item in draw_model(b.model).scene.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abababab", [Repeat(0, 2, 4)]), ("xaaaaaay", [Repeat(1, 1, 6)]), ("abcdefgh", []), ("abcabcxyzabcabc", [])],
)
def test_tandem_repeats(text: str, expected: list[Repeat]) -> None:
    assert tandem_repeats([ord(letter) for letter in text], [1] * len(text)) == expected


def test_coordinates_keep_their_distances() -> None:
    found = separate([5.0, 0.0, 9.0, 9.0], [1.0, 1.0, 2.0, 1.0], [0.0, 2.0, 4.0, 6.0])
    assert all(b - a >= 2 - 1e-9 for a, b in pairwise(found))
    assert separate([0.0, 10.0], [1.0, 1.0], [0.0, 2.0]) == [0.0, 10.0]


def test_each_call_of_a_module_is_a_frame() -> None:
    model = chain(40)
    for number, node in enumerate(model.graph.nodes):
        node.name = f"net/{'ab'[number // 8 % 2]}/part{number // 20}/n{number}"
    drawing = draw_model(model)
    frames = [(item.title, item.total) for item in drawing.scene.items() if isinstance(item, Frame)][1:]
    inner = [("part0", 4), ("part1", 4)]
    assert frames == [("a/part0", 8), ("b/part0", 8), ("a", 8), *inner, ("b/part1", 8), ("a/part1", 8)]
    assert sorted(node_names(drawing.scene.root)) == sorted(node.label for node in model.graph.nodes)
    assert draw_model(model, boxes=1).svg() != drawing.svg()


def test_the_edges_between_the_modules_of_a_frame_have_no_cycle() -> None:
    state = 1
    for names in ("ab", "abc", "abcdefgh"):
        model = chain(300)
        for number, node in enumerate(model.graph.nodes):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            node.name = f"net/{names[state >> 8 & len(names) - 1]}/{names[state >> 16 & 1]}/n{number}"
        for frame in draw_model(model).scene.items():
            if isinstance(frame, Frame):
                links: dict[object, list[object]] = {child: [] for child in frame.children}
                for source, target in frame.links:
                    if target in links and source in links:
                        links[target].append(source)
                assert list(TopologicalSorter(links).static_order())


def test_the_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = "import sys, dovetail; from dovetail.report.draw import draw_model as d; m = d(dovetail.load(sys.argv[1]));"
    code += "sys.stdout.buffer.write((m.svg() + m.html()).encode())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code, LIGHT / "light_inception_v1.onnx"],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_are_text(kind: str) -> None:
    model = dovetail.load(model_named(HOSTILE[kind]))
    label = model.graph.nodes[0].label
    drawing = draw_model(model, colors={label: 1.0}, measure=HOSTILE[kind])
    for text in (drawing.svg(), drawing.html()):
        ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        assert not OBEYED.search(text)
        assert "<img" not in text and "alert(1)</script>" not in text
        assert text.count("<script") in (0, 2)
    data = re.search('<script type="application/json" id="scene">(.*?)</script>', drawing.html(), re.S)
    assert data and json.loads(data[1])["items"]


def test_huge_names_take_little_room() -> None:
    model = chain(50)
    for node in model.graph.nodes:
        node.name = "N" * 100_000 + node.name
    model.graph.name = "G" * 1_000_000
    drawing = draw_model(model)
    assert len(drawing.svg()) < 200_000 and len(drawing.html()) < 400_000


def test_10_000_nodes_are_drawn_as_sections_that_have_each_node_once() -> None:
    model = chain(10_000)
    drawing = draw_model(model)
    text = drawing.svg()
    sections = [item for item in drawing.scene.root.children if isinstance(item, Frame) and item.kind == "section"]
    assert sum(section.total for section in sections) == 10_000
    assert sorted(node_names(drawing.scene.root)) == sorted(node.label for node in model.graph.nodes)
    (note,) = drawing.notes
    assert note.endswith(f"boxes are drawn as {len(sections)} sections") and note in text
    assert all(section.title in text for section in sections) and len(sections) <= MAX_ITEMS


def test_a_drawing_takes_work_in_proportion_to_the_nodes() -> None:
    small, large = chain(1_000), chain(4_000)
    assert count_lines(draw_model(large).svg) < 4 * count_lines(draw_model(small).svg)
    assert count_lines(lambda: draw_model(large)) < 4.4 * count_lines(lambda: draw_model(small))


def wide_node(count: int) -> Model:
    with dovetail.Builder("wide") as b:
        inputs = [b.input(f"x{number}", "f32", (1, 4)) for number in range(count)]
        b.output("y", b.Concat(*inputs, axis=1))
    return b.model


def dense(count: int) -> Model:
    with dovetail.Builder("dense") as b:
        values = [b.input("x", "f32", (1, 4))]
        for _ in range(count):
            values.append(b.Slice(b.Concat(*values, axis=1), [0], [4], [1]))
        b.output("y", values[-1])
    return b.model


def nested_modules() -> Model:
    model = chain(2000)
    for number, node in enumerate(model.graph.nodes):
        node.name = "/".join(f"m{level}" for level in range(number % 500)) + f"/n{number}"
    return model


@pytest.mark.parametrize("model", [lambda: wide_node(100_000), lambda: dense(300), nested_modules], ids=["wide", "dense", "deep"])
def test_a_graph_that_defeats_the_layout_is_drawn_in_bounded_time(model: object) -> None:
    built = model()  # type: ignore[operator]
    start = time.perf_counter()
    drawing = draw_model(built)
    text = drawing.svg()
    assert time.perf_counter() - start < 30 and len(text) < 3_000_000
    ElementTree.fromstring(text)


def test_a_part_of_very_many_nodes_and_edges_is_drawn_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.report.draw.scene_builder.MAX_NODES", 50)
    drawing = draw_model(chain(60))
    assert drawing.scene.root.total == 50 and drawing.notes == ["very many nodes: the first 50 of 60 are drawn"]
    assert drawing.notes[0] in drawing.svg() and drawing.notes[0] in drawing.html()
    monkeypatch.undo()
    monkeypatch.setattr("dovetail.report.draw.scene_builder.MAX_EDGES", 200)
    drawing = draw_model(dense(20))
    # Of 210 edges into Concat and 20 into Slice, 40 nodes have 5 each at most.
    assert any("first 5 of each node" in note for note in drawing.notes)
    assert all(
        len({source for source, end in drawing.scene.root.links if end is item}) <= 5 for item in drawing.scene.root.children
    )


def test_colors_combine_and_have_a_legend() -> None:
    model = branches()
    text = draw_model(model, colors={"a": 1.0, "b": 3e-3}, measure="time", unit="s").svg()
    assert "time up to 1e+03 ms" in text and "#7f0000" in text
    with pytest.raises(DovetailError, match=r"argument\.type"):
        draw_model(model, colors={"a": "much"})  # type: ignore[dict-item]
    with pytest.raises(DovetailError, match=r"argument\.value"):
        draw_model(model, boxes=0)
    with pytest.raises(DovetailError, match=r"argument\.value"):
        draw_model(model).png(zoom=1000)


def test_a_missing_library_is_an_error_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(DovetailError, match=r"extra\.missing"):
        draw_model(branches()).png()
    assert "<svg" in branches()._repr_html_()


def skip_without_font() -> None:
    """Skip a test of PNG on a machine without a font, such as a minimal Debian."""
    try:
        draw_model(branches()).png()
    except DovetailError as error:
        if error.code != "extra.missing":
            raise
        pytest.skip("the machine has no font")


def test_a_png_without_fonts_is_an_error_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg = pytest.importorskip("resvg_py", reason="dovetail-graph[draw] is not installed")
    skip_without_font()
    assert draw_model(branches()).png().startswith(b"\x89PNG")
    monkeypatch.setattr(resvg, "svg_to_bytes", partial(resvg.svg_to_bytes, skip_system_fonts=True))
    with pytest.raises(DovetailError, match=r"extra\.missing"):
        draw_model(branches()).png()


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
@pytest.mark.parametrize("options", [(), ("--color", "time"), ("--color", "copied")], ids=["plain", "time", "copied"])
def test_the_command_writes_a_file(
    suffix: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if suffix == "png":
        skip_without_font()
    dovetail.save(branches(), tmp_path / "m.onnx")
    target = tmp_path / f"m.{suffix}"
    with pytest.raises(SystemExit) as ended:
        main(["draw", str(tmp_path / "m.onnx"), "-o", str(target), "--json", *options])
    assert ended.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == target.stat().st_size and facts["nodes"] == 4


def test_the_command_takes_colors_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.save(branches(), tmp_path / "m.onnx")
    (tmp_path / "c.json").write_text('{"a": 0.5}')
    arguments = ["draw", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.svg"), "--color", "error"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--colors", str(tmp_path / "c.json")])
    assert ended.value.code == 0 and "error up to 0.5" in (tmp_path / "m.svg").read_text(encoding="utf-8")
    (tmp_path / "c.json").write_text("[1]")
    for last, code in ((["--colors", str(tmp_path / "c.json")], 3), ([], 2)):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *last])
        assert ended.value.code == code
    assert "argument.type" in capsys.readouterr().err


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return int(str(ended.value.code or 0))


def test_differences_from_another_model_are_coloured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.save(branches(), tmp_path / "a.onnx")
    dovetail.save(branches("Abs"), tmp_path / "b.onnx")
    target = tmp_path / "b.svg"
    assert command("draw", tmp_path / "b.onnx", "-o", target, "--difference", tmp_path / "a.onnx") == 0
    root = ElementTree.parse(target).getroot()
    marked = {
        card.get("data-node")
        for card in root.iter("{http://www.w3.org/2000/svg}g")
        if card.get("class") == "dt-card" and any(item.get("fill") == "#7f0000" for item in card)
    }
    assert marked == {"a"}
    assert command("draw", tmp_path / "b.onnx", "-o", target, "--difference", tmp_path / "a.onnx", "--color", "time") == 2
    assert command("draw", tmp_path / "b.onnx", "-o", target, "--color", "difference") == 2
    capsys.readouterr()


def test_the_time_of_a_fused_kernel_is_that_of_its_main_node() -> None:
    with dovetail.Builder() as b:
        kernel = b.constant([[[[1.0] * 3] * 3] * 8] * 8, "f32")
        b.output("y", b.Relu(b.Conv(b.input("x", "f32", (1, 8, 16, 16)), kernel)))
    conv, relu = b.model.graph.nodes[-2:]
    found = plan_measure(b.model, "time", threads=1, runs=1)
    assert native_core.core() is None or found[conv.label] == max(found.values()) > 2 * found.get(relu.label, 0.0)
    concat = branches()
    assert set(plan_measure(concat, "copied", sizes={"n": 3})) <= {node.label for node in concat.graph.nodes}


def test_errors_of_a_comparison_are_colours(tmp_path: Path) -> None:
    dovetail.save(branches(), tmp_path / "m.onnx")
    arguments = ["--engines", "interpreter,native", "--dim", "n=2", "--colors", tmp_path / "errors.json"]
    assert command("compare", tmp_path / "m.onnx", *arguments) == 0
    names = {node.label for node in branches().graph.nodes}
    assert set(json.loads((tmp_path / "errors.json").read_text())) <= names
    target = tmp_path / "m.svg"
    assert command("draw", tmp_path / "m.onnx", "-o", target, "--color", "error", "--colors", tmp_path / "errors.json") == 0
    assert "error up to" in target.read_text(encoding="utf-8")


def test_every_frame_of_a_page_can_be_opened() -> None:
    model = dovetail.load(LIGHT / "light_densenet121.onnx")
    data = re.search('<script type="application/json" id="scene">(.*?)</script>', draw_model(model).html(), re.S)
    assert data
    items = json.loads(data[1])["items"]
    for number, item in enumerate(items):
        for row in item.get("r", ()):
            assert all(items[code]["p"] == number for code in row if code >= 0)
        for row, first, second, *_ in item.get("e", ()):
            assert first < len(item["r"][row]) and second < len(item["r"][row + 1])


def test_an_open_frame_contains_its_items() -> None:
    scene = draw_model(chain(20)).scene
    scene.root.is_open = True
    assert len(place_item(scene.root).children) == len(scene.root.children)
