"""Known vulnerabilities of other loaders, replayed: refused by code, and nothing outside the model's folder is read or written.

``docs/security.md`` lists them, with those whose tests are elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import DovetailError
from hostile_models import FLOAT, INT64, declared, model_of, node
from resource_limits import faults, measure

SECRET = np.full(4, 7.0, np.float32).tobytes()
_opened: list[str] | None = None
_is_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _opened.append(os.fsdecode(arguments[0]))


@contextmanager
def opened() -> Iterator[list[str]]:
    """Yield the paths of all files that are opened inside."""
    global _opened, _is_watching
    if not _is_watching:
        # A hook cannot be taken out again.
        sys.addaudithook(_watch)
        _is_watching = True
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for a model, beside a secret."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def listing(folder: Path) -> dict[str, bytes | str]:
    """All that is in a folder: the bytes of files, the targets of links."""
    return {
        str(each.relative_to(folder)): os.readlink(each) if each.is_symlink() else each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_symlink() or each.is_file()
    }


def refuse(path: Path, *codes: str) -> DovetailError:
    """Loading, checking and converting the file are refused by one of these codes, and leave everything as it was."""
    before = listing(path.parent.parent)
    with opened() as paths:
        with pytest.raises(DovetailError) as caught:
            dovetail.load(path)
        found = {item.code for item in caught.value.diagnostics}
        assert found & set(codes), caught.value
        assert found & {item.code for item in dovetail.check(path)}
    assert any(each.endswith(path.name) for each in paths), "the hook sees no file"
    assert not [each for each in paths if "secret" in each or "passwd" in each]
    assert listing(path.parent.parent) == before
    return caught.value


def external(folder: Path, location: str, **entries: str) -> Path:
    """Return a model that adds external data to its input."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return saved(folder, model_of([node("Add", ["x", "w"], ["y"])], [declared("x", [4])], [declared("y")], [tensor]))


def saved(folder: Path, model: onnx.ModelProto | bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def test_cve_2022_25882_external_data_above_the_folder(folder: Path) -> None:
    refuse(external(folder, "../secret"), "path.escape")
    refuse(external(folder, str(folder.parent / "secret")), "path.escape")


def test_cve_2024_27318_external_data_around_a_corner(folder: Path) -> None:
    (folder / "sub").mkdir()
    refuse(external(folder, "sub/../../secret"), "path.escape")


def test_cve_2024_27319_fewer_bytes_than_the_shape_needs(folder: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[1 << 20], raw_data=bytes(16))
    model = model_of([node("Add", ["x", "w"], ["y"])], [declared("x", [4])], [declared("y")], [tensor])
    refuse(saved(folder, model), "data.size")
    (folder / "w.bin").write_bytes(bytes(16))
    refuse(external(folder, "w.bin", offset="4", length="16"), "data.range")


def test_cve_2026_27489_a_link_among_the_folders(folder: Path) -> None:
    (folder / "up").symlink_to(folder.parent)
    refuse(external(folder, "up/secret"), "path.link")


def test_cve_2026_34446_a_hard_link(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "w.bin")
    refuse(external(folder, "w.bin"), "path.link")


def test_cve_2026_34447_a_link(folder: Path) -> None:
    (folder / "w.bin").symlink_to(folder.parent / "secret")
    refuse(external(folder, "w.bin"), "path.link")


@pytest.mark.parametrize("key", ["__class__", "__init__", "basepath", "info"])
def test_cve_2026_34445_a_key_that_is_an_attribute_of_an_object(folder: Path, key: str) -> None:
    (folder / "w.bin").write_bytes(bytes(16))
    refuse(external(folder, "w.bin", **{key: str(folder.parent)}), "data.external")


def test_cve_2026_34445_a_giant_length(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(16))
    path = external(folder, "w.bin", length=str(2**62))
    refuse(path, "data.range")
    assert faults(measure(path, ["load", "check"], memory=64 << 20)) == []


def large_model() -> dovetail.Model:
    """Return a model whose weights go into a side file."""
    with dovetail.Builder() as b:
        b.output("y", b.Add(b.input("x", "f32", (4096,)), b.constant(np.ones(4096, np.float32))))
    return b.model


@pytest.mark.parametrize(
    ("location", "code"),
    [("../secret", "path.escape"), ("link", "path.link"), ("up/secret", "path.link"), ("/", "path.escape")],
)
def test_cve_2025_51480_external_data_is_written_elsewhere(folder: Path, location: str, code: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "up").symlink_to(folder.parent)
    before = listing(folder.parent)
    with opened() as paths, pytest.raises(DovetailError) as caught:
        dovetail.save(large_model(), folder / "model.onnx", external=location)
    assert caught.value.code == code
    assert listing(folder.parent) == before and not [each for each in paths if "secret" in each]


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_ghsa_q56x_g2fj_4rj6_a_link_takes_the_place_of_the_side_file_while_saving(
    folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / f"model{suffix}"
    side = folder / "model.bin" if suffix == ".xml" else folder / "model.onnx.data"
    options = {} if suffix == ".xml" else {"external": True}
    fsync = os.fsync

    def swapped(descriptor: int) -> None:
        if not side.is_symlink():
            side.symlink_to(folder.parent / "secret")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", swapped)
    with pytest.raises(DovetailError) as caught:
        dovetail.save(large_model(), path, **options)
    assert caught.value.code == "path.link"
    assert (folder.parent / "secret").read_bytes() == SECRET and not path.exists()


def test_cve_2026_0994_messages_nested_without_end(folder: Path) -> None:
    data = b""
    for _ in range(20_000):
        # A type that is a sequence of a type: field 4, its element type field 1.
        data = b"\x22" + _varint(len(data) + 1 + len(_varint(len(data)))) + b"\x0a" + _varint(len(data)) + data
    value = b"\x0a\x01x\x12" + _varint(len(data)) + data
    graph = b"\x5a" + _varint(len(value)) + value
    refuse(saved(folder, b"\x08\x0a\x3a" + _varint(len(graph)) + graph + b"\x42\x02\x10\x15"), "proto.parse", "limits.exceeded")


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


@pytest.mark.parametrize("length", [2**31 - 1, 2**32 - 1, 2**62])
def test_rten_1218_a_length_prefix_beyond_the_file(folder: Path, length: int) -> None:
    path = saved(folder, b"\x3a" + _varint(length) + b"\x0a\x00")
    refuse(path, "proto.parse")
    assert faults(measure(path, ["load", "check"], memory=64 << 20)) == []


# OpenVINO IR

DIMS = "<dim>4</dim>"


def layer(number: int, kind: str, data: str = "", inputs: int = 0, outputs: int = 1, dims: str = DIMS) -> str:
    ports = [f'<port id="{place}" precision="FP32">{dims}</port>' for place in range(inputs + outputs)]
    parts = (
        data,
        inputs and f"<input>{''.join(ports[:inputs])}</input>",
        outputs and f"<output>{''.join(ports[inputs:])}</output>",
    )
    return (
        f'<layer id="{number}" name="n{number}" type="{kind}" version="opset1">{"".join(each for each in parts if each)}</layer>'
    )


def edge(source: int, port: int, target: int, place: int) -> str:
    return f'<edge from-layer="{source}" from-port="{port}" to-layer="{target}" to-port="{place}"/>'


def ir(folder: Path, change: Callable[[str], str] = str, shape: str = "4", offset: int = 0, size: int = 16) -> Path:
    """Return an IR that adds 16 bytes of its side file to its input."""
    constant = f'<data element_type="f32" shape="{shape}" offset="{offset}" size="{size}"/>'
    dims = "".join(f"<dim>{each}</dim>" for each in shape.split(","))
    layers = (
        layer(0, "Parameter", '<data shape="4" element_type="f32"/>'),
        layer(1, "Const", constant, dims=dims),
        layer(2, "Add", inputs=2),
        layer(3, "Result", inputs=1, outputs=0),
    )
    edges = edge(0, 0, 2, 0) + edge(1, 0, 2, 1) + edge(2, 2, 3, 0)
    text = f'<net name="m" version="11"><layers>{"".join(layers)}</layers><edges>{edges}</edges></net>'
    path = folder / "model.xml"
    path.write_text(change(text))
    path.with_suffix(".bin").write_bytes(bytes(16))
    return path


def test_the_ir_that_the_others_are_made_from_is_sound(folder: Path) -> None:
    assert dovetail.check(ir(folder)) == []


@pytest.mark.parametrize(
    ("offset", "size", "codes"),
    [
        (16, 16, {"ir.constant"}),
        (2**63 - 16, 16, {"ir.constant"}),
        (2**64 - 16, 16, {"ir.number", "ir.constant"}),
        (-16, 16, {"ir.number"}),
        (0, 2**63 - 1, {"ir.constant"}),
        (0, 8, {"ir.constant"}),
    ],
)
def test_openvino_37261_offset_and_size_beyond_the_weights(folder: Path, offset: int, size: int, codes: set[str]) -> None:
    refuse(ir(folder, offset=offset, size=size), *codes)


@pytest.mark.parametrize("cut", range(40, 900, 86))
def test_openvino_36510_malformed_xml(folder: Path, cut: int) -> None:
    refuse(ir(folder, lambda text: text[:cut]), "ir.xml")


def test_openvino_33838_preprocessing_is_refused(folder: Path) -> None:
    change = '<pre-process mean-precision="FP32"><channel id="0"><mean offset="0" size="99999999"/></channel></pre-process>'
    refuse(ir(folder, lambda text: text.replace("</net>", f"{change}</net>")), "ir.unknown")


@pytest.mark.parametrize("shape", [f"{10**12},{10**12}", f"{2**31},{2**31},4", f"{2**61}"])
def test_cve_2021_26251_sizes_that_nothing_backs(folder: Path, shape: str) -> None:
    path = ir(folder, shape=shape)
    refuse(path, "ir.number", "ir.constant")
    assert faults(measure(path, ["load", "check"], memory=64 << 20)) == []


def test_an_ir_without_layers_is_refused(folder: Path) -> None:
    refuse(ir(folder, lambda text: '<net name="m" version="11"><layers/><edges/></net>'), "graph.outputs", "proto.parse")


def test_two_layers_of_one_id_have_no_one_meaning(folder: Path) -> None:
    twin = layer(2, "Multiply", inputs=2)
    refuse(ir(folder, lambda text: text.replace("</layers>", f"{twin}</layers>")), "ir.repeated")


def test_an_entity_that_names_a_file_is_not_read(folder: Path) -> None:
    declared = f'<!DOCTYPE net [<!ENTITY x SYSTEM "file://{folder.parent}/secret">]>'
    refuse(ir(folder, lambda text: declared + text.replace('name="m"', 'name="&x;"')), "ir.dtd")


# Runs


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_tensorflow_61908_an_arena_of_the_size_in_the_model(folder: Path, engine: str) -> None:
    path = saved(
        folder, model_of([node("Expand", ["x", "s"], ["y"])], [declared("x", [1]), declared("s", [2], INT64)], [declared("y")])
    )
    huge = {"x": np.ones(1, np.float32), "s": np.array([1 << 20, 1 << 20])}
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(path, engine, limits=dovetail.Limits(memory=1 << 24))(huge)
    assert caught.value.code == "run.memory"


def support_vectors(folder: Path, kind: str, **changes: Any) -> Path:
    """Return a machine of two support vectors of two features."""
    attributes: dict[str, Any] = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 3.0], "rho": [0.5]}
    attributes |= {"coefficients": [1.0, -1.0], "support_vectors": [1.0] * 4}
    if kind == "SVMClassifier":
        attributes |= {"classlabels_ints": [0, 1], "vectors_per_class": [1, 1]}
    else:
        attributes |= {"n_supports": 2}
    outputs = ["label", "y"] if kind == "SVMClassifier" else ["y"]
    made = node(kind, ["x"], outputs, domain="ai.onnx.ml", **attributes | changes)
    model = model_of([made], [declared("x", [1, 2])], [declared("y")])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return saved(folder, model)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("SVMClassifier", {"support_vectors": [1.0] * 3}),
        ("SVMClassifier", {"coefficients": [1.0]}),
        ("SVMClassifier", {"vectors_per_class": [1 << 30, 1]}),
        ("SVMClassifier", {"vectors_per_class": [-1, 3]}),
        ("SVMRegressor", {"support_vectors": [1.0] * 3}),
        ("SVMRegressor", {"coefficients": [1.0]}),
        ("SVMRegressor", {"n_supports": 1 << 30}),
    ],
    ids=str,
)
def test_onnxruntime_27950_tables_of_a_support_vector_machine_that_contradict_each_other(
    folder: Path, kind: str, changes: dict[str, Any], engine: str
) -> None:
    rows = {"x": np.ones((1, 2), np.float32)}
    assert dovetail.compile(support_vectors(folder, kind), engine)(rows)["y"].size
    with pytest.raises(DovetailError):
        dovetail.compile(support_vectors(folder, kind, **changes), engine)(rows)
