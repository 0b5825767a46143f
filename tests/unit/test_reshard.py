"""dovetail.reshard: formats, names, element types, bad input, interrupted runs; the safetensors library is the oracle."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import dovetail
from dovetail import Builder, DovetailError, EngineError, Model, UnsupportedError
from dovetail.data.tensors import copy_worker, reshard as module
from dovetail.data.tensors.copy_tasks import Budget
from dovetail.data.tensors.output_files import parse_size
from hostile_models import NPY_FILES

RNG = np.random.default_rng(7)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def transposing(name: str = "w", dtype: str = "f32", shape: tuple[int, ...] = (4, 6)) -> Model:
    b = Builder("transpose")
    b.output("output:" + name, b.Transpose(b.input("input:" + name, dtype, shape)))
    return b.model


def write_ranks(folder: Path, count: int, width: int = 6) -> list[dict[str, Any]]:
    rows = [
        {
            "q": RNG.random((4, width), np.float32),
            "o": RNG.random((width, 4), np.float32),
            "norm": np.ones(width),
        }
        for _ in range(count)
    ]
    for rank, row in enumerate(rows):
        save_file(row, folder / f"consolidated.{rank:02}.safetensors", {"format": "pt"})
    return rows


def merging(count: int, parts: int, width: int = 6) -> Model:
    """Merge each ``count // parts`` ranks; ``q`` is split along axis 0 and ``o`` along axis 1."""
    b = Builder("merge")
    q = [b.input(f"input:q@{rank}", "f32", (4, width)) for rank in range(count)]
    o = [b.input(f"input:o@{rank}", "f32", (width, 4)) for rank in range(count)]
    step = count // parts
    for part in range(parts):
        b.output(f"output:q@{part}", b.Concat(*q[part * step : (part + 1) * step], axis=0))
        b.output(f"output:o@{part}", b.Concat(*o[part * step : (part + 1) * step], axis=1))
    return b.model


def code_of(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(DovetailError) as caught:
        call(*args, **options)
    return caught.value.code


@pytest.mark.parametrize("size", [16, 100, 1 << 20])
def test_ranks_are_merged(source: Path, size: int) -> None:
    rows = write_ranks(source, 8)
    with mock.patch.object(module, "_budget", lambda memory, threads: Budget(size, size)):
        report = dovetail.reshard(merging(8, 4), source, source.parent / "out")
    assert report.files == tuple(f"consolidated.{rank:02}.safetensors" for rank in range(4))
    assert report.unused == tuple(f"norm@{rank}" for rank in range(8)) and "norm@0" in report.to_text()
    for part, name in enumerate(report.files):
        loaded = load_file(source.parent / "out" / name)
        assert np.array_equal(loaded["q"], np.concatenate([row["q"] for row in rows[2 * part : 2 * part + 2]]))
        assert np.array_equal(loaded["o"], np.concatenate([row["o"] for row in rows[2 * part : 2 * part + 2]], axis=1))
        with safe_open(source.parent / "out" / name, "np") as file:
            assert file.metadata() == {"format": "pt"}
    assert sorted(os.listdir(source.parent / "out")) == list(report.files)
    assert report.to_json()["tensors"] == 8


TORCH_TYPES = {
    "bf16": "bfloat16", "f16": "float16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "boolean": "bool", "i8": "int8",
    "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "f64": "float64", "f32": "float32", "complex64": "complex64",
}  # fmt: skip


@pytest.mark.parametrize("element", TORCH_TYPES)
def test_every_element_type_moves_bit_for_bit(source: Path, element: str) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch, save_file as save_torch

    dtype = getattr(torch, TORCH_TYPES[element])
    data = torch.arange(24, dtype=torch.uint8).repeat(8)[: 24 * dtype.itemsize]
    data = (data % 2 if dtype is torch.bool else data).view(dtype).reshape(4, 6)
    save_torch({"w": data, "other": torch.zeros((), dtype=torch.float64)}, source / "m.safetensors")
    dovetail.reshard(transposing("w", element), source, source.parent / "out", keep="oth*")
    loaded = load_torch(source.parent / "out" / "model.safetensors")
    assert loaded["w"].dtype == dtype and loaded["other"].shape == ()
    assert torch.equal(loaded["w"].contiguous().view(torch.uint8), data.T.contiguous().view(torch.uint8))


def test_large_files_leave_the_page_cache(source: Path) -> None:
    rows = {name: RNG.random((1 << 10, 1 << 11), np.float32) for name in "ab"}
    save_file(rows, source / "m.safetensors")
    b = Builder("both")
    x, y = b.input("a", "f32", (1 << 10, 1 << 11)), b.input("b", "f32", (1 << 10, 1 << 11))
    for number in range(8):
        b.output(f"y{number}", b.Concat(x, b.Transpose(b.Reshape(y, [1 << 11, 1 << 10])), axis=number % 2))
    with mock.patch.object(module, "UNCACHED_SHARE", 1 << 60), mock.patch.object(copy_worker, "MIN_WRITEBACK", 1 << 10):
        dovetail.reshard(b.model, source, source.parent / "out")
    loaded = load_file(source.parent / "out" / "model.safetensors")
    for number in range(8):
        parts = [rows["a"], rows["b"].reshape(1 << 11, 1 << 10).T]
        assert np.array_equal(loaded[f"y{number}"], np.concatenate(parts, number % 2))


def test_casts_are_applied_to_tiles(source: Path) -> None:
    data = RNG.standard_normal((33, 65)).astype(np.float32) * 300
    save_file({"w": data}, source / "m.safetensors")
    b = Builder("cast")
    x = b.Cast(b.Transpose(b.input("w", "f32", data.shape)), to="bf16")
    b.output("y", b.Pad(b.Concat(x, x, axis=1), [1, 0, 0, 2], b.constant(np.array(1.5, ml_dtypes.bfloat16))))
    b.output("z", b.Cast(b.Cast(x, to="i8"), to="f64"))
    with mock.patch.object(module, "_budget", lambda memory, threads: Budget(999, 999)):
        dovetail.reshard(b.model, source, source.parent / "out")
    expected = dovetail.run(b.model, {"w": data})
    loaded = load_file(source.parent / "out" / "model.safetensors")
    assert all(loaded[name].tobytes() == expected[name].tobytes() for name in "yz")


def test_values_whose_windows_do_not_compose_are_written_to_scratch(source: Path) -> None:
    data = np.arange(60, dtype=np.int32).reshape(3, 20)
    save_file({"w": data}, source / "m.safetensors")
    b = Builder("odd")
    parts = b.Split(b.input("w", "i32", (3, 20)), [7, 13], axis=1, outputs=2)
    flat = b.Reshape(b.Concat(parts[1], parts[0], axis=1), [4, 15])
    b.output("y", b.Transpose(b.Reshape(b.Transpose(flat), [5, 12])))
    dovetail.reshard(b.model, source, source.parent / "out")
    assert np.array_equal(load_file(source.parent / "out" / "model.safetensors")["y"], dovetail.run(b.model, {"w": data})["y"])


def test_sets_of_hugging_face_are_read_and_written(source: Path) -> None:
    tensors = {f"layer.{n}.w": RNG.standard_normal((4, 6)).astype(np.float32) for n in range(5)}
    names = list(tensors)
    b = Builder("graph")
    for name in names[:2]:
        b.output("output:" + name, b.Transpose(b.input("input:" + name, "f32", (4, 6))))
    save_file({name: tensors[name] for name in names[:3]}, source / "model-00001-of-00002.safetensors")
    save_file({name: tensors[name] for name in names[3:]}, source / "model-00002-of-00002.safetensors")
    save_file({"stray": np.zeros(3)}, source / "stray.safetensors")
    weight_map = {name: f"model-0000{1 if name in names[:3] else 2}-of-00002.safetensors" for name in names}
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    out = source.parent / "out"
    report = dovetail.reshard(b.model, source, out, shards=3, keep="layer.*")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert report.files == tuple(f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    assert index["metadata"] == {"total_size": 5 * 96} and index["weight_map"].keys() == tensors.keys()
    for name, file in index["weight_map"].items():
        expected = tensors[name].T if name in names[:2] else tensors[name]
        assert np.array_equal(load_file(out / file)[name], expected)
    report = dovetail.reshard(b.model, source, source.parent / "sized", shards="0.2 KB", keep="layer.*")
    assert len(report.files) == 3
    dovetail.reshard(b.model, source, source.parent / "one.safetensors")
    assert load_file(source.parent / "one.safetensors").keys() == set(names[:2])


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read_and_written(source: Path, order: Any) -> None:
    data = RNG.standard_normal((4, 6)).astype(np.float32)
    np.save(source / "w.npy", np.asarray(data, order=order))
    np.save(source / "scalar.npy", np.float64(2))
    report = dovetail.reshard(transposing(), source, source.parent / "out", keep="scalar")
    assert report.files == ("w.npy", "scalar.npy")
    assert np.array_equal(np.load(source.parent / "out" / "w.npy"), data.T) and np.load(source.parent / "out" / "scalar.npy") == 2


def test_all_unsupported_nodes_are_listed(source: Path) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")
    b = Builder("bad")
    x = b.input("w", "f32", (4, 6))
    b.output("y", b.Relu(b.Transpose(x)))
    b.output("z", b.MatMul(x, b.Transpose(x)))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.reshard(b.model, source, source.parent / "out")
    assert caught.value.code == "reshard.operator" and len(caught.value.diagnostics) == 2
    assert not (source.parent / "out").exists()


def test_inputs_that_do_not_fit_are_refused(source: Path) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")
    out = source.parent / "out"
    assert code_of(dovetail.reshard, transposing("v"), source, out) == "reshard.tensor"
    assert code_of(dovetail.reshard, transposing(dtype="f16"), source, out) == "input.dtype"
    assert code_of(dovetail.reshard, transposing(shape=(4, 7)), source, out) == "input.shape"
    assert code_of(dovetail.reshard, transposing(), source, out, memory="lots") == "argument.value"
    assert code_of(dovetail.reshard, transposing(), source, out, shards=2) == "argument.conflict"
    assert code_of(dovetail.reshard, transposing(), source, out, shards="1 GX") == "argument.value"
    assert code_of(dovetail.reshard, transposing(), source, source.parent / "x.safetensors", shards=2) == "argument.conflict"
    assert code_of(dovetail.reshard, transposing(), source, source) == "folder.occupied"
    assert code_of(dovetail.reshard, transposing(), source, source / "m.safetensors") == "folder.occupied"
    single = source.parent / "single" / "model.safetensors"
    single.parent.mkdir()
    save_file({"w": np.zeros((4, 6), np.float32)}, single)
    for output in (single.parent, single):
        assert code_of(dovetail.reshard, transposing(), single, output, restart=True) == "folder.occupied"
        assert load_file(single)["w"].shape == (4, 6)
    assert code_of(dovetail.reshard, transposing(), source.parent, out) == "dataset.kind"
    assert code_of(dovetail.reshard, transposing(), source / "m.bin", out) == "dataset.kind"
    b = Builder("gap")
    b.output("y@1", b.Identity(b.input("w", "f32", (4, 6))))
    assert code_of(dovetail.reshard, b.model, source, out) == "reshard.tensor"
    b = Builder("wide")
    b.output("y", b.Cast(b.input("w", "f32", (4, 6)), to="complex128"))
    assert code_of(dovetail.reshard, b.model, source, out) == "dtype.unknown"
    assert not out.exists()


def test_open_sizes_are_those_of_the_tensors(source: Path) -> None:
    data = RNG.standard_normal((4, 6)).astype(np.float32)
    save_file({"w": data}, source / "m.safetensors")
    b = Builder("open")
    x = b.input("w", "f32", ("rows", "columns"))
    b.output("y", b.Reshape(b.Transpose(x), b.Concat(b.Gather(b.Shape(x), [1]), b.constant([-1]), axis=0)))
    dovetail.reshard(b.model, source, source.parent / "out")
    assert np.array_equal(load_file(source.parent / "out" / "model.safetensors")["y"], data.T)


HEADERS = {
    "overlap": ({"w": [0, 96], "v": [48, 144]}, 144),
    "beyond the file": ({"w": [0, 96], "v": [96, 192]}, 100),
    "gap": ({"w": [0, 96], "v": [112, 208]}, 208),
    "too many bytes": ({"w": [0, 96]}, 200),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_contradict_the_file_are_refused(source: Path, name: str) -> None:
    ranges, size = HEADERS[name]
    header = json.dumps({key: {"dtype": "F32", "shape": [4, 6], "data_offsets": ends} for key, ends in ranges.items()}).encode()
    (source / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "array.file"


@pytest.mark.parametrize("name", NPY_FILES)
def test_a_hostile_npy_header_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "w.npy").write_bytes(NPY_FILES[name][0])
    # A scalar is a tensor, of another shape than the input; the size of an absurd array is refused before its bytes are counted.
    expected = {"scalar": "input.shape", "negative": "file.size", "absurd": "file.size", "absurd, empty": "file.size"}
    assert code_of(dovetail.reshard, transposing(), tmp_path / "in", tmp_path / "out") == expected.get(name, "array.file")
    assert not (tmp_path / "out").exists()


def test_headers_of_any_length_are_refused_without_reading_them(source: Path) -> None:
    with open(source / "m.safetensors", "wb") as file:
        file.write((1 << 40).to_bytes(8, "little"))
        file.truncate(1 << 41)
    assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "array.file"


@pytest.mark.parametrize("target", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", "gone.safetensors", 3])
def test_an_index_names_files_of_its_folder_alone(source: Path, target: Any) -> None:
    for folder in (source, source.parent):
        save_file({"w": np.zeros((4, 6), np.float32)}, folder / "outside.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": target}}))
    code = code_of(dovetail.reshard, transposing(), source, source.parent / "out")
    assert code == ("path.missing" if target == "gone.safetensors" else "array.file")


def test_an_index_agrees_with_its_files(source: Path) -> None:
    save_file({"v": np.zeros((4, 6), np.float32)}, source / "a.safetensors")
    path = source / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))
    assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "array.file"
    path.write_text("[" * 5000)
    assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "array.file"


def test_links_lead_into_a_download_cache_alone(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "model" / "blobs", tmp_path / "model" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    save_file({"w": np.ones((4, 6), np.float32)}, blobs / "123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/123")
    dovetail.reshard(transposing(), snapshot, tmp_path / "out")
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "model.safetensors").symlink_to(blobs / "123")
    assert code_of(dovetail.reshard, transposing(), plain, tmp_path / "other") == "path.link"


def test_a_file_that_changes_during_the_run_is_an_error(source: Path) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")
    execute = copy_worker.CopyWorker.execute

    def change(self: Any, *args: Any) -> int:
        os.utime(source / "m.safetensors", (1, 1))
        return execute(self, *args)

    with mock.patch.object(copy_worker.CopyWorker, "execute", change):
        assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "file.changed"

    def truncate(self: Any, *args: Any) -> int:
        os.truncate(source / "m.safetensors", 100)
        return execute(self, *args)

    with mock.patch.object(copy_worker.CopyWorker, "execute", truncate):
        assert code_of(dovetail.reshard, transposing(), source, source.parent / "out", restart=True) == "file.changed"
    assert os.listdir(source.parent / "out") == [module.STATE]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_takes_no_more_is_an_error_and_leaves_no_file(source: Path, number: int) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with mock.patch.object(os, "pwrite", fail):
        assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "folder.unwritable"
    assert os.listdir(source.parent / "out") == [module.STATE]
    dovetail.reshard(transposing(), source, source.parent / "out")
    assert os.listdir(source.parent / "out") == ["model.safetensors"]


def test_more_bytes_than_the_disk_has_are_refused_before_the_run(source: Path) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")
    b = Builder("huge")
    b.output("y", b.Expand(b.input("w", "f32", (4, 6)), [1 << 40, 4, 6]))
    assert code_of(dovetail.reshard, b.model, source, source.parent / "out") == "folder.unwritable"


def test_an_interrupted_run_keeps_the_files_that_are_complete(source: Path) -> None:
    rows = write_ranks(source, 4)
    out = source.parent / "out"
    execute, calls = copy_worker.CopyWorker.execute, []

    def fail_third(self: Any, *args: Any) -> int:
        calls.append(args)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return execute(self, *args)

    with mock.patch.object(copy_worker.CopyWorker, "execute", fail_third), pytest.raises(KeyboardInterrupt):
        dovetail.reshard(merging(4, 2), source, out, threads=1)
    first = out / "consolidated.00.safetensors"
    inode = first.stat().st_ino
    assert sorted(os.listdir(out)) == [module.STATE, "consolidated.00.safetensors"]
    assert code_of(dovetail.reshard, merging(4, 1), source, out) == "folder.resume"
    report = dovetail.reshard(merging(4, 2), source, out)
    assert report.kept == ("consolidated.00.safetensors",) and first.stat().st_ino == inode and "complete" in report.to_text()
    assert np.array_equal(load_file(out / "consolidated.01.safetensors")["q"], np.concatenate([rows[2]["q"], rows[3]["q"]]))
    assert code_of(dovetail.reshard, merging(4, 2), source, out) == "folder.occupied"
    assert dovetail.reshard(merging(4, 2), source, out, restart=True).kept == ()


def test_a_killed_run_leaves_no_draft_behind_the_next(source: Path) -> None:
    rows = write_ranks(source, 4)
    out = source.parent / "out"
    dovetail.save(merging(4, 2), source.parent / "graph.onnx", opset=18)
    code = (
        "import os, dovetail\n"
        "from dovetail.data.tensors.copy_worker import CopyWorker\n"
        "execute, calls = CopyWorker.execute, []\n"
        "CopyWorker.execute = lambda self, *args: (calls.append(1), len(calls) > 3 and os._exit(9), execute(self, *args))[2]\n"
        f"dovetail.reshard({str(source.parent / 'graph.onnx')!r}, {str(source)!r}, {str(out)!r}, threads=1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(os.listdir(out)) == 3
    report = dovetail.reshard(source.parent / "graph.onnx", source, out)
    assert report.kept == ("consolidated.00.safetensors",) and sorted(os.listdir(out)) == list(report.files)
    assert np.array_equal(load_file(out / report.files[1])["q"], np.concatenate([rows[2]["q"], rows[3]["q"]]))


def test_two_runs_do_not_write_into_one_folder(source: Path) -> None:
    save_file({"w": np.zeros((4, 6), np.float32)}, source / "m.safetensors")
    (source.parent / "out").mkdir()
    with open(source.parent / "out" / module.STATE, "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert code_of(dovetail.reshard, transposing(), source, source.parent / "out") == "folder.locked"


def test_memory_is_bounded(tmp_path: Path) -> None:
    """400 MB are transposed and interleaved within 200 MB, the interpreter's own included."""
    (tmp_path / "in").mkdir()
    data = np.arange(50 << 20, dtype=np.uint32).reshape(-1, 5 << 10)
    save_file({"a": data[:5120], "b": data[5120:]}, tmp_path / "in" / "m.safetensors")
    code = (
        "import dovetail, sys\n"
        "b = dovetail.Builder('g')\n"
        "x, y = b.input('a', 'u32', (5120, 5120)), b.input('b', 'u32', (5120, 5120))\n"
        "b.output('joined', b.Concat(b.Transpose(x), y, axis=1))\n"
        f"dovetail.reshard(b.model, {str(tmp_path / 'in')!r}, {str(tmp_path / 'out')!r}, memory='180MB')\n"
        "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 180e6
    loaded = load_file(tmp_path / "out" / "model.safetensors")["joined"]
    assert np.array_equal(loaded[:, :5120], data[:5120].T) and np.array_equal(loaded[:, 5120:], data[5120:])


def test_sizes_are_numbers_of_bytes_with_a_unit() -> None:
    for power, letter in enumerate("KMGT", 1):
        assert parse_size(f"3 {letter}B", "memory") == parse_size(f"3{letter.lower()}b", "memory") == 3 * 1000**power
        assert parse_size(f"1.5 {letter}iB", "memory") == 3 * 1024**power // 2
    assert parse_size(7, "memory") == parse_size("7", "memory") == parse_size("7B", "memory") == 7
    for wrong in ("0", "-1", "1 K", "", "B", "1e3", "1.KB", "nan"):
        assert code_of(parse_size, wrong, "memory") == "argument.value"


def test_errors_name_the_file(source: Path) -> None:
    (source / "m.safetensors").write_bytes(b"no header")
    with pytest.raises(DovetailError) as caught:
        dovetail.reshard(transposing(), source, source.parent / "out")
    assert caught.value.file is not None and caught.value.file.endswith("m.safetensors")
    assert isinstance(caught.value, dovetail.FormatError) and not isinstance(caught.value, EngineError)
