"""Bad files, end to end: a DovetailError with code, file and node, in bounded time and memory, and nothing written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail import cli
from dovetail.errors import DovetailError

FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Bad:
    """A file that is no model: how it is written, the code that it must give, and the node it must name."""

    name: str
    file: str
    write: Callable[[Path], Any]
    code: str
    node: str | None = None


# ONNX


def value(name: str, shape: Any = None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(*nodes: NodeProto, inputs: Any = None, outputs: Any = None, constants: Any = (), opset: int = 18) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [value("x", [2, 4])] if inputs is None else inputs,
        [value("y")] if outputs is None else outputs,
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def concat(inputs: tuple[str, ...] = ("x", "x"), output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node("Concat", list(inputs), [output], name="here", **attributes)


def with_attribute(node: NodeProto, **fields: Any) -> NodeProto:
    node.attribute.append(AttributeProto(**fields))
    return node


def tensor(dims: list[int], data: bytes = b"", kind: int = FLOAT, name: str = "c") -> TensorProto:
    return TensorProto(name=name, dims=dims, data_type=kind, raw_data=data)


def external(location: str, offset: str | None = None, length: str | None = None) -> TensorProto:
    found = TensorProto(name="c", dims=[2, 4], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        if text is not None:
            found.external_data.add(key=key, value=text)
    return found


def ints(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def saved(proto: ModelProto) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(proto.SerializeToString())


def raw(data: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(data)


def beside(*constants: TensorProto) -> Callable[[Path], Any]:
    """Return a model that joins a constant to its input."""
    return saved(model_of(concat(("x", "c"), axis=0), constants=constants))


def fed(node: NodeProto, *inputs: Any) -> Callable[[Path], Any]:
    return saved(model_of(node, inputs=list(inputs)))


def linked(link: Callable[[Path, Path], None]) -> Callable[[Path], Any]:
    """Return a side file that is another name of one outside the model's folder."""

    def write(path: Path) -> None:
        outside = path.parent.parent / f"secret_{path.parent.name}"
        outside.write_bytes(bytes(32))
        link(outside, path.parent / "w.data")
        beside(external("w.data"))(path)

    return write


def reshape(*target: int, shape: Any = (2, 4), opset: int = 18, **attributes: Any) -> ModelProto:
    node = helper.make_node("Reshape", ["x", "t"], ["y"], name="here", **attributes)
    return model_of(node, inputs=[value("x", shape)], constants=[ints("t", *target)], opset=opset)


def split(*sizes: int, opset: int = 18, count: int = 2) -> ModelProto:
    outputs = [f"y{index}" for index in range(count)]
    node = helper.make_node("Split", ["x", "s"], outputs, name="here", axis=1)
    return model_of(node, outputs=[value(name) for name in outputs], constants=[ints("s", *sizes)], opset=opset)


SOUND = model_of(concat(axis=1)).SerializeToString()
PAIR = concat(("x", "z"), axis=0)
CYCLE = (concat(("x", "b"), "a", axis=0), concat(("a", "x"), "b", axis=0), concat(("b", "b"), "y", axis=0))

ONNX: list[tuple[str, Callable[[Path], Any], str, str | None]] = [
    ("an empty file", raw(b""), "proto.parse", None),
    ("half a file", raw(SOUND[: len(SOUND) // 2]), "proto.parse", None),
    ("random bytes", raw(np.random.default_rng(0).bytes(5000)), "proto.parse", None),
    ("a name that nothing makes", saved(model_of(concat(("x", "lost"), axis=0))), "graph.dangling", "here"),
    ("an output that nothing makes", saved(model_of(concat(axis=0), outputs=[value("z")])), "graph.dangling", None),
    ("one name made twice", saved(model_of(concat(axis=0), concat(axis=1))), "graph.repeated", "here"),
    ("a cycle", saved(model_of(*CYCLE)), "graph.cycle", "here"),
    ("an axis out of range", saved(model_of(concat(axis=2))), "axis.range", "here"),
    ("an axis of 2^32", saved(model_of(concat(axis=2**32))), "axis.range", "here"),
    ("an axis of 1.5", saved(model_of(concat(axis=1.5))), "attribute.value", "here"),
    ("an axis in words", saved(model_of(concat(axis="1abc"))), "attribute.value", "here"),
    ("an axis that is a list", saved(model_of(concat(axis=[1]))), "attribute.value", "here"),
    ("an axis that is a tensor", saved(model_of(concat(axis=ints("", 1)))), "attribute.value", "here"),
    (
        "an axis whose type and value differ",
        saved(model_of(with_attribute(concat(), name="axis", type=AttributeProto.INT, f=1.0))),
        "attribute.type",
        "here",
    ),
    ("no axis", saved(model_of(concat())), "attribute.missing", "here"),
    ("a negative axis before opset 11", saved(model_of(concat(axis=-1), opset=9)), "attribute.value", "here"),
    ("an unknown attribute", saved(model_of(concat(axis=1, colour=1))), "attribute.unknown", "here"),
    ("a constant with too few bytes", beside(tensor([2, 4], bytes(20))), "data.size", "initializer 'c'"),
    ("a constant of 2^40 elements", beside(tensor([2**40, 4], bytes(20))), "data.size", "initializer 'c'"),
    ("a constant whose size overflows", beside(tensor([2**62, 4], b"")), "data.size", "initializer 'c'"),
    ("a constant of negative size", beside(tensor([-2, 4], b"")), "data.size", "initializer 'c'"),
    ("an input whose size overflows", fed(concat(axis=0), value("x", [2**62, 2**62])), "type.dims", "input 0"),
    ("an input of negative size", fed(concat(axis=0), value("x", [-2, 2])), "type.dims", "input 0"),
    (
        "a sum past 2^63 - 1",
        saved(model_of(concat(axis=0), inputs=[value("x", [2**62])])),
        "shape.range",
        "here",
    ),
    ("dimensions that disagree", fed(PAIR, value("x", [2, 4]), value("z", [2, 5])), "shape.disagree", "here"),
    ("element types that disagree", fed(PAIR, value("x", [2]), value("z", [2], TensorProto.INT64)), "type.disagree", "here"),
    ("an element type that is too new", fed(concat(axis=0), value("x", [2], TensorProto.FLOAT8E5M2)), "type.version", "here"),
    ("a target that does not fit", saved(reshape(3, 3)), "reshape.volume", "here"),
    ("two wildcards", saved(reshape(-1, -1)), "reshape.target", "here"),
    ("a target below -1", saved(reshape(-2, 4)), "reshape.target", "here"),
    ("a target whose product overflows", saved(reshape(2**62, 4)), "shape.range", "here"),
    ("lengths with another sum", saved(split(1, 2)), "split.sizes", "here"),
    ("a negative length", saved(split(-1, 5)), "split.sizes", "here"),
    ("lengths for another number of outputs", saved(split(1, 3, count=3)), "split.sizes", "here"),
    ("absolute external data", beside(external("/etc/passwd")), "path.escape", "initializer 'c'"),
    ("external data above the folder", beside(external("../w.data")), "path.escape", "initializer 'c'"),
    ("external data around two corners", beside(external("a/../../w.data")), "path.escape", "initializer 'c'"),
    ("external data with a NUL", beside(external("w\0.data")), "path.escape", "initializer 'c'"),
    ("external data that is missing", beside(external("w.data")), "path.missing", "initializer 'c'"),
    ("external data behind a link", linked(lambda secret, path: path.symlink_to(secret)), "path.link", "initializer 'c'"),
    ("external data behind a hard link", linked(lambda secret, path: os.link(secret, path)), "path.link", "initializer 'c'"),
]  # fmt: skip


# OpenVINO IR


def port(number: int, *dims: int, kind: str = "FP32") -> str:
    return f'<port id="{number}" precision="{kind}">' + "".join(f"<dim>{size}</dim>" for size in dims) + "</port>"


def layer(number: int, kind: str, data: str = "", inputs: str = "", outputs: str = "", name: str | None = None) -> str:
    parts = (data and f"<data {data}/>", inputs and f"<input>{inputs}</input>", outputs and f"<output>{outputs}</output>")
    return f'<layer id="{number}" name="{name or f"n{number}"}" type="{kind}" version="opset1">{"".join(parts)}</layer>'


def parameter(number: int, *dims: int) -> str:
    shape = ",".join(map(str, dims))
    return layer(number, "Parameter", f'shape="{shape}" element_type="f32"', outputs=port(0, *dims))


def constant(number: int, kind: str, shape: str, offset: int, size: int, *dims: int) -> str:
    precision = {"f32": "FP32", "i64": "I64"}[kind]
    data = f'element_type="{kind}" shape="{shape}" offset="{offset}" size="{size}"'
    return layer(number, "Const", data, outputs=port(0, *dims, kind=precision))


def edges(*ends: tuple[int, int, int, int]) -> str:
    text = '<edge from-layer="{}" from-port="{}" to-layer="{}" to-port="{}"/>'
    return "<edges>" + "".join(text.format(*end) for end in ends) + "</edges>"


def net(layers: str, links: str) -> str:
    return f'<?xml version="1.0"?><net name="m" version="11"><layers>{layers}</layers>{links}</net>'


def joined(data: str = 'axis="1"') -> str:
    middle = layer(1, "Concat", data, port(0, 2, 4) + port(1, 2, 4), port(2, 2, 8), name="here")
    result = layer(2, "Result", inputs=port(0, 2, 8))
    return net(parameter(0, 2, 4) + middle + result, edges((0, 0, 1, 0), (0, 0, 1, 1), (1, 2, 2, 0)))


TARGET = constant(3, "i64", "2", 0, 16, 2)


def target(**changes: str) -> str:
    """Return a Reshape to a constant whose attributes are changed."""
    text = TARGET
    for name, changed in changes.items():
        text = re.sub(f'{name}="[^"]*"', f'{name}="{changed}"', text)
    return reshaped(text)


def reshaped(target: str = TARGET, data: str = 'special_zero="true"') -> str:
    middle = layer(1, "Reshape", data, port(0, 2, 4) + port(1, 2, kind="I64"), port(2, 8, 1), name="here")
    result = layer(2, "Result", inputs=port(0, 8, 1))
    return net(parameter(0, 2, 4) + target + middle + result, edges((0, 0, 1, 0), (3, 0, 1, 1), (1, 2, 2, 0)))


def cut(data: str = 'num_splits="2"', axis: str = "", dims: tuple[int, ...] = ()) -> str:
    scalar = constant(3, "i64", axis, 0, 8, *dims)
    middle = layer(1, "Split", data, port(0, 2, 4) + port(1, *dims, kind="I64"), port(2, 2, 2) + port(3, 2, 2), name="here")
    results = layer(2, "Result", inputs=port(0, 2, 2)) + layer(4, "Result", inputs=port(0, 2, 2))
    links = edges((0, 0, 1, 0), (3, 0, 1, 1), (1, 2, 2, 0), (1, 3, 4, 0))
    return net(parameter(0, 2, 4) + scalar + middle + results, links)


def written(text: str | bytes, *numbers: int) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.with_suffix(".bin").write_bytes(np.array(numbers, np.int64).tobytes())

    return write


def with_linked_weights(link: Callable[[Path, Path], None]) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        written(reshaped(), 8, 1)(path)
        outside = path.parent.parent / f"secret_{path.parent.name}"
        path.with_suffix(".bin").rename(outside)
        link(outside, path.with_suffix(".bin"))

    return write


def missing_weights(path: Path) -> None:
    path.write_text(reshaped())


RESULT = layer(2, "Result", inputs=port(0, 2, 8))
BOMB = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><net name="&b;" version="11"/>'
FETCH = '<!DOCTYPE net [<!ENTITY a SYSTEM "file:///etc/passwd">]><net name="m" version="11">&a;</net>'

IR: list[tuple[str, Callable[[Path], Any], str, str | None]] = [
    ("an empty file", written(b""), "ir.xml", None),
    ("half a file", written(joined()[:200]), "ir.xml", None),
    ("random bytes", written(np.random.default_rng(0).bytes(5000)), "ir.xml", None),
    ("an entity bomb", written(BOMB), "ir.dtd", None),
    ("a file that is fetched", written(FETCH), "ir.dtd", None),
    ("two layers with one id", written(joined().replace('id="2" name', 'id="0" name')), "ir.repeated", "n2"),
    ("two ports with one id", written(joined().replace(port(1, 2, 4), port(0, 2, 4))), "ir.repeated", "here"),
    ("an edge from nowhere", written(joined().replace('from-layer="0"', 'from-layer="9"')), "ir.edge", "here"),
    ("an input that nothing leads to", written(joined().replace(edges((0, 0, 1, 1))[7:-8], "")), "ir.edge", "here"),
    ("a cycle", written(joined().replace(edges((0, 0, 1, 1))[7:-8], edges((1, 2, 1, 1))[7:-8])), "graph.cycle", "here"),
    ("no Result", written(joined().replace(RESULT, "").replace(edges((1, 2, 2, 0))[7:-8], "")), "graph.outputs", None),
    ("an axis out of range", written(joined('axis="2"')), "axis.range", "here"),
    ("an axis of 2^32", written(joined('axis="4294967296"')), "axis.range", "here"),
    ("an axis of 2^64", written(joined('axis="18446744073709551616"')), "attribute.value", "here"),
    ("an axis of 1.5", written(joined('axis="1.5"')), "attribute.value", "here"),
    ("an axis of 1abc", written(joined('axis="1abc"')), "attribute.value", "here"),
    ("an axis of nothing", written(joined('axis=""')), "attribute.value", "here"),
    ("an axis in other digits", written(joined('axis="\u0661"')), "attribute.value", "here"),
    ("no axis", written(joined("")), "attribute.missing", "here"),
    ("an unknown attribute", written(joined('axis="1" colour="1"')), "attribute.unknown", "here"),
    ("a missing special_zero", written(reshaped(data=""), 8, 1), "attribute.missing", "here"),
    ("a flag that is none", written(reshaped(data='special_zero="maybe"'), 8, 1), "attribute.value", "here"),
    ("a target that does not fit", written(reshaped(), 3, 3), "reshape.volume", "here"),
    ("two wildcards", written(reshaped(), -1, -1), "reshape.target", "here"),
    ("a target of floats", written(reshaped(constant(3, "f32", "2", 0, 8, 2)), 8), "type.class", "here"),
    ("a constant with too few bytes", written(target(size="8"), 8, 1), "ir.constant", "n3"),
    ("a constant beyond the file", written(reshaped(), 8), "ir.constant", "n3"),
    ("a constant of 2^40 elements", written(target(shape=f"{2**40}"), 8, 1), "ir.constant", "n3"),
    ("a constant whose size overflows", written(target(shape=f"{2**62},4"), 8, 1), "ir.number", "n3"),
    ("an offset that wraps", written(target(offset=f"{2**63 - 8}"), 8, 1), "ir.constant", "n3"),
    ("a Parameter whose size overflows", written(joined().replace('shape="2,4"', f'shape="{2**62},4"')), "ir.number", "n0"),
    ("a split that does not divide", written(cut('num_splits="3"'), 1), "node.outputs", "here"),
    ("a split without a count", written(cut(""), 1), "attribute.missing", "here"),
    ("a split into nothing", written(cut('num_splits="0"'), 1), "split.sizes", "here"),
    ("a split's axis that is no scalar", written(cut(axis="1", dims=(1,)), 1), "constant.value", "here"),
    ("a split's axis out of range", written(cut(), 2), "axis.range", "here"),
    ("missing weights", missing_weights, "path.missing", "n3"),
    ("weights behind a symbolic link", with_linked_weights(lambda secret, path: path.symlink_to(secret)), "path.link", "n3"),
    ("weights behind a hard link", with_linked_weights(lambda secret, path: os.link(secret, path)), "path.link", "n3"),
]  # fmt: skip


def _case(name: str, file: str, write: Callable[[Path], Any], code: str, node: str | None) -> Any:
    return pytest.param(Bad(name, file, write, code, node), id=f"{file}: {name}")


CASES = [_case(name, "m.onnx", *rest) for name, *rest in ONNX] + [_case(name, "m.xml", *rest) for name, *rest in IR]
every_bad_file = pytest.mark.parametrize("bad", CASES)


def folder(tmp_path: Path, bad: Bad) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    bad.write(inside / bad.file)
    return inside


def convert(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["convert", *arguments])
    return int(caught.value.code or 0)


def test_the_files_that_bad_ones_are_made_from_are_sound(tmp_path: Path) -> None:
    sound = [("a.onnx", raw(SOUND)), ("b.onnx", saved(reshape(8, 1))), ("c.onnx", saved(split(1, 3)))]
    sound += [("d.xml", written(joined())), ("e.xml", written(reshaped(), 8, 1)), ("f.xml", written(cut(), 1))]
    for name, write in sound:
        write(tmp_path / name)
        assert dovetail.check(tmp_path / name) == [], name
        assert dovetail.load(tmp_path / name).outputs


DEVIATIONS = ("a negative axis before opset 11",)
"""Bad files that all who accept them read alike: load accepts them with a warning, unless it is strict."""


@every_bad_file
def test_a_bad_file_is_refused_with_code_file_and_node(bad: Bad, tmp_path: Path) -> None:
    path = folder(tmp_path, bad) / bad.file
    start = time.process_time()
    with pytest.raises(DovetailError) as caught:
        dovetail.load(path, strict=True)
    assert time.process_time() - start < 5
    found = caught.value.diagnostics
    right = [item for item in found if item.code == bad.code]
    assert right, f"{[item.code for item in found]}: {caught.value}"
    assert all(item.file and str(path.parent) in item.file for item in found), found
    if bad.node is not None:
        assert bad.node in {item.node for item in right}, found
    assert dovetail.check(path) == list(found)
    if bad.name in DEVIATIONS:
        assert bad.code in {item.code for item in dovetail.load(path).warnings}
        return
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(path)
    assert bad.code in {item.code for item in caught.value.diagnostics}


@every_bad_file
def test_a_bad_file_is_not_converted_and_nothing_is_written(bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = folder(tmp_path, bad)
    before = sorted(os.listdir(inside))
    target = inside / ("out.xml" if bad.file.endswith("onnx") else "out.onnx")
    code = convert(str(inside / bad.file), str(target), *(["--strict"] if bad.name in DEVIATIONS else []))
    told = capsys.readouterr()
    assert 3 <= code <= 6
    assert f"[{bad.code}]" in told.err and not told.out
    assert "Traceback" not in told.err
    assert sorted(os.listdir(inside)) == before


# What would take too long or too much


def test_files_that_claim_to_be_huge_take_no_memory(tmp_path: Path) -> None:
    """In a child that may have little more memory than its imports take."""
    huge = [bad.values[0] for bad in CASES if any(word in bad.id for word in ("2^40", "overflow", "bomb", "wraps"))]
    assert len(huge) >= 8
    paths = []
    for index, bad in enumerate(huge):
        inside = tmp_path / str(index)
        inside.mkdir()
        bad.write(inside / bad.file)
        paths.append(str(inside / bad.file))
    paths += [str(path) for path in folding_bombs(tmp_path)]
    script = """
        import resource, sys
        import numpy, onnx, dovetail
        import dovetail.formats.onnx.converters, dovetail.formats.openvino.converters, xml.etree.ElementTree
        with open("/proc/self/statm") as stream:
            used = int(stream.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
        for path in sys.argv[1:]:
            try:
                dovetail.check(path)
            except MemoryError:
                sys.exit(f"out of memory: {path}")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *paths], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr


def folding_bombs(tmp_path: Path) -> list[Path]:
    """Models whose constants are small, and whose folding would not be."""
    size = 2**40
    bombs = {
        "Expand": model_of(
            helper.make_node("Expand", ["c", "s"], ["y"]), inputs=[], constants=[tensor([1], bytes(4)), ints("s", size)]
        ),
        "ConstantOfShape": model_of(helper.make_node("ConstantOfShape", ["s"], ["y"]), inputs=[], constants=[ints("s", size)]),
        "Tile": model_of(
            helper.make_node("Tile", ["c", "s"], ["y"]), inputs=[], constants=[tensor([1], bytes(4)), ints("s", size)]
        ),
        "Range": model_of(
            helper.make_node("Range", ["a", "b", "d"], ["y"]),
            inputs=[],
            constants=[numpy_helper.from_array(np.array(number), name) for name, number in (("a", 0), ("b", size), ("d", 1))],
        ),
        "Pad": model_of(
            helper.make_node("Pad", ["c", "s"], ["y"]), inputs=[], constants=[tensor([1], bytes(4)), ints("s", 0, size)]
        ),
        "MatMul": model_of(
            helper.make_node("MatMul", ["c", "d"], ["y"]),
            inputs=[],
            constants=[tensor([2**18, 1], bytes(2**20)), tensor([1, 2**18], bytes(2**20), name="d")],
        ),
        "OneHot": model_of(
            helper.make_node("OneHot", ["i", "n", "c"], ["y"]),
            inputs=[],
            constants=[ints("i", 0), ints("n", size), tensor([2], bytes(8))],
        ),
        "Concat": model_of(
            *(helper.make_node("Concat", [f"c{level}"] * 16, [f"c{level + 1}"], axis=0) for level in range(9)),
            inputs=[],
            outputs=[value("c9")],
            constants=[tensor([16], bytes(64), name="c0")],
        ),
    }
    paths = []
    for kind, proto in bombs.items():
        paths.append(tmp_path / f"{kind}.onnx")
        paths[-1].write_bytes(proto.SerializeToString())
    return paths


def test_running_a_bomb_is_refused_as_an_error_of_the_run(tmp_path: Path) -> None:
    for path in folding_bombs(tmp_path):
        if path.stem in ("Expand", "ConstantOfShape", "Tile", "Range", "Pad"):
            with pytest.raises(DovetailError):
                dovetail.run(path, {})


def chain(length: int, kind: str = "Identity") -> ModelProto:
    attributes = {} if kind == "Identity" else {"axis": 0}
    nodes = [helper.make_node(kind, [f"v{index}"], [f"v{index + 1}"], **attributes) for index in range(length)]
    return model_of(*nodes, inputs=[value("v0", ["n", 4])], outputs=[value(f"v{length}")])


@pytest.mark.slow
def test_a_chain_of_100_000_nodes_takes_linear_time_and_no_recursion(tmp_path: Path) -> None:
    def seconds(length: int) -> float:
        start = time.process_time()
        path = tmp_path / f"{length}.onnx"
        path.write_bytes(chain(length).SerializeToString())
        model = dovetail.load(path)
        x = np.ones((2, 4), np.float32)
        assert np.array_equal(dovetail.run(model, [x])[f"v{length}"], x)
        assert dovetail.check(model) == []
        dovetail.save(model, path)
        dovetail.save(model, path.with_suffix(".xml"))
        return time.process_time() - start

    short = seconds(10_000)
    assert seconds(100_000) < 30 * short + 1


@pytest.mark.slow
def test_a_value_that_20_000_nodes_read_takes_linear_time(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        nodes = [helper.make_node("Concat", ["x", "x"], [f"v{index}"], axis=0) for index in range(count)]
        nodes.append(helper.make_node("Concat", [f"v{index}" for index in range(count)], ["y"], axis=0))
        path = tmp_path / f"{count}.onnx"
        path.write_bytes(model_of(*nodes).SerializeToString())
        start = time.process_time()
        model = dovetail.load(path)
        assert dovetail.check(model) == []
        dovetail.save(model, path.with_suffix(".xml"))
        dovetail.save(model, path)
        return time.process_time() - start

    short = seconds(2_000)
    assert seconds(20_000) < 30 * short + 1


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_name_of_a_million_characters_is_a_name(suffix: str, tmp_path: Path) -> None:
    name = "a" * 10**6
    path = tmp_path / f"m{suffix}"
    start = time.process_time()
    if suffix == ".onnx":
        saved(model_of(concat(output=name, axis=0), outputs=[value(name)]))(path)
    else:
        written(joined().replace("n2", name))(path)
    assert dovetail.check(path) == []
    dovetail.save(dovetail.load(path), path.with_name(f"out{suffix}"))
    assert time.process_time() - start < 5


def test_graphs_nested_too_deep_are_refused(tmp_path: Path) -> None:
    graph: GraphProto = helper.make_graph([], "g", [], [value("x")])
    for level in range(31):
        inner, graph = graph, GraphProto()
        node = helper.make_node("If", ["x"], [f"y{level}"])
        node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g.CopyFrom(inner)
        graph.CopyFrom(helper.make_graph([node], "g", [], [value(f"y{level}")]))
    proto = model_of(helper.make_node("If", ["x"], ["y"], then_branch=graph))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    found = dovetail.check(path)
    assert found and all(item.code in ("limits.exceeded", "proto.parse", "graph.dangling", "attribute.missing") for item in found)


def test_xml_nested_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    path.write_text(joined().replace("</net>", "<rt_info>" + "<a>" * 100_000 + "</a>" * 100_000 + "</rt_info></net>"))
    assert [item.code for item in dovetail.check(path)] == ["limits.exceeded"]


# What is written is whole or not there


def written_file(path: Path, write: Callable[[Path], Any]) -> Path:
    write(path)
    return path


def test_a_refused_conversion_does_not_change_the_old_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, target = tmp_path / "good.onnx", tmp_path / "bad.onnx", tmp_path / "out.xml"
    raw(SOUND)(good)
    strange = model_of(concat(output="t", axis=0), helper.make_node("Mystery", ["t"], ["y"], domain="far.away"))
    strange.opset_import.add(domain="far.away", version=1)
    saved(strange)(bad)
    assert convert(str(good), str(target)) == 0
    before = target.read_bytes()
    assert convert(str(bad), str(target)) == 4
    assert target.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["bad.onnx", "good.onnx", "out.bin", "out.xml"]
    assert "op.unknown" in capsys.readouterr().err
