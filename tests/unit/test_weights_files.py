"""Files for weights: safetensors and external data, as the safetensors library, onnxruntime and OpenVINO read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import safetensors
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

import dovetail
from assertions import assert_close
from dovetail import FormatError
from dovetail.cli import main
from dovetail.formats.onnx.protobuf_scan import Tickets, bytes_of, join_elements, split_elements
from dovetail.ir import dtypes
from dovetail.storage import file_pair, safetensors_file
from dovetail.storage.weights_file import Label

X = np.linspace(-1, 1, 2 * 64).astype(np.float32).reshape(2, 64)


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """Tensors of several types; two are equal."""
    generator = np.random.default_rng(0)
    first = generator.standard_normal((64, 64), np.float32)
    return {"w": first, "again": first.copy(), "half": generator.standard_normal((64, 32)).astype(np.float16),
            "bytes": generator.integers(0, 255, 1025, np.uint8)}  # fmt: skip


def proto(tensors: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "again"], ["b"]),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["c", "half"], ["y"]),
        helper.make_node("Cast", ["bytes"], ["z"], to=TensorProto.INT32),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 64])],
        [helper.make_tensor_value_info("y", 10, [2, 32]), helper.make_tensor_value_info("z", 6, [1025])],
        [numpy_helper.from_array(data, name) for name, data in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def model() -> dovetail.Model:
    return dovetail.load(proto(weights()))


def answers(path: Path) -> list[np.ndarray[Any, Any]]:
    """Return the outputs by the file's own runtime."""
    if path.suffix == ".onnx":
        return list(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": X}))
    core = openvino.Core()
    read = core.read_model(path, path.with_suffix(".safetensors"))
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return list(compiled([X]).values())


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_safetensors_are_read_by_the_library_and_the_runtimes(suffix: str, model: dovetail.Model, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    dovetail.save(model, path, weights="safetensors")
    assert {item.name for item in tmp_path.iterdir()} == {f"m{suffix}", "m.safetensors"}
    stored = safetensors.numpy.load_file(path.with_suffix(".safetensors"))
    # Equal tensors are stored once, under the first name.
    assert [np.array_equal(data, weights()[name]) for name, data in stored.items() if name in weights()] == [True] * 3
    expected = dovetail.run(model, {"x": X})
    for reference, actual in zip(answers(path), expected.values(), strict=True):
        assert_close(actual, reference, 1e-2)
    for policy in ("never", "always"):
        again = dovetail.load(path, map=policy)
        for name, array in dovetail.run(again, {"x": X}).items():
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_safetensors_file_of_another_save_is_refused(suffix: str, model: dovetail.Model, tmp_path: Path) -> None:
    for name, scale in (("a", 1), ("b", 2)):
        changed = {key: data * np.array(scale, data.dtype) for key, data in weights().items()}
        dovetail.save(dovetail.load(proto(changed)), tmp_path / f"{name}{suffix}", weights="safetensors")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(FormatError, match="file\\.pair"):
        dovetail.load(tmp_path / f"a{suffix}")


def test_a_bin_file_that_openvino_would_read_instead_is_refused(model: dovetail.Model, tmp_path: Path) -> None:
    dovetail.save(model, tmp_path / "m.xml")
    with pytest.raises(FormatError, match="path\\.foreign"):
        dovetail.save(model, tmp_path / "m.xml", weights="safetensors")


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_bytes_do_not_depend_on_the_hash_seed(suffix: str, model: dovetail.Model, tmp_path: Path) -> None:
    onnx.save(proto(weights()), tmp_path / "source.onnx")
    found = set()
    for seed in ("0", "1", "random"):
        target = tmp_path / seed / f"m{suffix}"
        target.parent.mkdir()
        names = str(tmp_path / "source.onnx"), str(target)
        code = f"import dovetail; dovetail.save(dovetail.load({names[0]!r}), {names[1]!r}, weights='safetensors')"
        subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": seed, "PATH": ""})
        found.add((target.read_bytes(), target.with_suffix(".safetensors").read_bytes()))
    assert len(found) == 1


@pytest.mark.parametrize("command", ["convert", "infer", "rebatch", "extract", "edit", "simplify"])
def test_commands_write_safetensors(command: str, model: dovetail.Model, tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    dovetail.save(model, source)
    options = {"convert": [], "rebatch": ["--dim", "0=batch"], "extract": ["--to", "y"], "edit": ["--rename", "x=first"]}
    output = [str(target)] if command == "convert" else ["-o", str(target)]
    arguments = [command, str(source), *options.get(command, []), *output, "--weights", "safetensors"]
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 0
    assert "w" in safetensors.numpy.load_file(tmp_path / "out.safetensors")
    onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])


def test_names_are_unique_and_never_the_reserved_one() -> None:
    weights = safetensors_file.SafetensorsFile()
    for number, name in enumerate(["a", "a", "", "", "__metadata__", "a.1"]):
        weights.store(np.array([number], np.uint8), Label(name, dtypes.u8, (1,)))
    assert weights.names == ["a", "a.1", "tensor", "tensor.1", "__metadata__.1", "a.1.1"]


@pytest.mark.parametrize(
    "header",
    [
        b"{", b"[]", b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"X","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]}}', b'{"a":' * 5000,
    ],
)  # fmt: skip
def test_a_malformed_header_is_refused(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with open(path, "rb") as stream, pytest.raises(FormatError, match="array\\.file"):
        safetensors_file.read_tensors(stream.fileno(), str(path))


def test_tensors_are_read_as_the_library_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    expected = {**weights(), "empty": np.empty((0, 3), np.int64), "flag": np.array(True)}
    safetensors.numpy.save_file(expected, path)
    with open(path, "rb") as stream:
        found = safetensors_file.read_tensors(stream.fileno(), str(path))
    assert found.keys() == expected.keys()
    for name, (dtype, shape, data) in found.items():
        assert dtype.numpy == expected[name].dtype and shape == expected[name].shape
        assert data.tobytes() == expected[name].tobytes()


def test_header_of_a_written_file_is_json_of_the_format(model: dovetail.Model, tmp_path: Path) -> None:
    dovetail.save(model, tmp_path / "m.onnx", weights="safetensors")
    content = (tmp_path / "m.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert (8 + size) % 64 == 0
    assert all(start % 2 == 0 for name in ("w", "half") for start in header[name]["data_offsets"][:1])


@pytest.mark.parametrize("external", [True, "w.safetensors"])
def test_equal_tensors_are_stored_once(external: Any, model: dovetail.Model, tmp_path: Path) -> None:
    dovetail.save(model, tmp_path / "m.onnx", external=external, threshold=1)
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    }
    assert places["w"] == places["again"]
    assert len({place["offset"] for place in places.values()}) == 3


def test_joined_elements_give_the_message_that_protobuf_writes() -> None:
    whole = proto(weights())
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(weights()["w"]))],
        "then", [], [helper.make_tensor_value_info("k", 1, [64, 64])],
    )  # fmt: skip
    whole.graph.node.append(helper.make_node("If", ["flag"], ["k2"], then_branch=inner, else_branch=inner))
    tickets = Tickets(1)
    part = onnx.ModelProto.FromString(whole.SerializeToString())
    held = [*part.graph.initializer]
    held += [attribute.g.node[0].attribute[0].t for attribute in part.graph.node[-1].attribute]
    for tensor in held:
        tensor.raw_data = tickets.add(np.frombuffer(tensor.raw_data, np.uint8))
    message = part.SerializeToString(deterministic=True)
    assert bytes_of(join_elements(message, tickets.elements)) == whole.SerializeToString(deterministic=True)
    parts = split_elements(whole.SerializeToString(deterministic=True))
    assert bytes_of(join_elements(parts.message, parts.elements)) == whole.SerializeToString(deterministic=True)


@pytest.mark.parametrize("policy", ["never", "always"])
def test_a_mapped_model_file_means_the_same(policy: str, model: dovetail.Model, tmp_path: Path) -> None:
    onnx.save(proto(weights()), tmp_path / "m.onnx")
    again = dovetail.load(tmp_path / "m.onnx", map=policy)
    for engine in ("interpreter", "native"):
        for name, array in dovetail.run(again, {"x": X}, engine).items():
            np.testing.assert_array_equal(array, dovetail.run(model, {"x": X}, engine)[name])
    # The file is replaced while its old content is mapped.
    dovetail.save(again, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx").graph.node == proto(weights()).graph.node


IR = b'<net name="m" version="11"><layers/></net>'


@pytest.mark.parametrize(
    ("name", "content", "side", "is_replaced"),
    [
        ("m.onnx", b"refers to w.data", "w.data", True),
        ("m.onnx", b"w.data", "w.data", True),
        ("m.onnx", b"refers to v.data", "w.data", False),
        ("m.xml", b'<?xml version="1.0"?>\n' + IR, "m.bin", True),
        ("m.xml", IR, "m.bin", True),
        ("m.xml", IR + b"<!-- w.bin -->", "w.bin", False),
        # An IR names no safetensors file, and has its weights in a file of its own stem.
        ("m.xml", IR + b"<!-- m.safetensors -->", "m.safetensors", False),
        ("n.xml", IR, "m.bin", False),
        ("m.onnx", None, "w.data", False),
    ],
)
def test_a_file_of_another_tool_is_replaced_only_for_the_model_that_refers_to_it(
    name: str, content: bytes | None, side: str, is_replaced: bool, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / side).write_bytes(b"weights of another tool")
    if is_replaced:
        file_pair.refuse_foreign(str(tmp_path / side), str(tmp_path / name))
    else:
        with pytest.raises(FormatError, match="no save of dovetail") as caught:
            file_pair.refuse_foreign(str(tmp_path / side), str(tmp_path / name))
        assert caught.value.code == "path.foreign"


@pytest.mark.parametrize("other", ["other.onnx", "other.xml", "other.dt", "other.pb", "other.ort", "w.of.any.suffix"])
def test_a_weights_file_of_ours_is_replaced_unless_another_model_file_has_its_digest(
    other: str, model: dovetail.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dovetail.save(model, "first.onnx", external="w.data", threshold=1)
    for beside in ("", f"{tmp_path}/"):
        Path("first.onnx").rename(other)
        with pytest.raises(FormatError, match=f"belongs to a save of '{other}'"):
            file_pair.refuse_foreign(f"{beside}w.data", f"{beside}second.onnx")
        # The model file that is saved again never counts as another one.
        file_pair.refuse_foreign(f"{beside}w.data", f"{beside}{other}")
        Path(other).rename("first.onnx")
    Path("first.onnx").unlink()
    Path(".hidden.onnx").write_bytes(b"")
    file_pair.refuse_foreign("w.data", "second.onnx")
