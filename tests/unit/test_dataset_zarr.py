"""Zarr as source and sink, with zarr itself as the oracle."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.sinks import open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import DovetailError, EngineError, FormatError

zarr = pytest.importorskip("zarr")

REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)


@pytest.mark.parametrize("version", [2, 3])
@REUSED
@given(rows=st.integers(0, 30), chunk=st.integers(1, 12), data=st.data())
def test_a_range_holds_the_rows_that_zarr_reads(
    tmp_path_factory: pytest.TempPathFactory, version: int, rows: int, chunk: int, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("zarr")
    group = zarr.open_group(folder, mode="w", zarr_format=version)
    x = group.create_array("x", shape=(rows, 2, 3), chunks=(chunk, 1, 3), dtype="<f4", fill_value=7)
    y = group.create_array("y", shape=(rows,), chunks=(chunk + 1,), dtype=">i8")
    x[: rows // 2] = np.arange(rows // 2 * 6).reshape(-1, 2, 3)
    y[:] = np.arange(rows)
    source = pickle.loads(pickle.dumps(open_source(folder, ["x"], keep=["y"])))
    assert (source.kind, source.rows, set(source.columns)) == ("zarr", rows, {"x", "y"})
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    block = source.read(start, stop)
    assert not block.faults and block.rows.tolist() == list(range(start, stop))
    assert np.array_equal(block.columns["x"], x[start:stop]) and block.columns["x"].dtype == np.float32
    assert block.kept["y"].tolist() == list(range(start, stop))


def test_one_array_sharded_and_nested_groups_are_read(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "one.zarr", shape=(20, 2), shards=(10, 2), chunks=(5, 2), dtype="u2")
    array[:] = np.arange(40).reshape(20, 2)
    source = open_source(tmp_path / "one.zarr")
    assert source.columns == ("array",) and source.chunk_rows == 10
    assert source.read(3, 17).columns["array"].tolist() == np.arange(6, 34).reshape(14, 2).tolist()
    group = zarr.open_group(tmp_path / "group", mode="w")
    text = group.create_group("inner").create_array("text", shape=(2,), chunks=(1,), dtype=str)
    text[:] = np.array(["a", "ä"], object)
    assert open_source(tmp_path / "group").read(0, 2).columns["inner/text"].tolist() == ["a", "ä"]


def test_damaged_chunks_are_faults_of_their_rows(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "x", shape=(30,), chunks=(10,), dtype="f8", compressors=[zarr.codecs.GzipCodec()])
    array[:] = np.arange(30)
    (tmp_path / "x" / "c" / "1").write_bytes(b"nothing")
    block = open_source(tmp_path / "x").read(5, 28)
    assert block.rows.tolist() == [*range(5, 10), *range(20, 28)]
    assert block.columns["array"].tolist() == [*range(5, 10), *range(20, 28)]
    assert [(fault.row, fault.code) for fault in block.faults] == [(row, "dataset.unreadable") for row in range(10, 20)]


def test_a_chunk_that_is_gone_stops_the_job(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x", data=np.arange(30), chunks=(10,))
    source = open_source(tmp_path / "x")
    (tmp_path / "x" / "c" / "1").unlink()
    with pytest.raises(EngineError) as caught:
        source.read(0, 30)
    assert caught.value.code == "file.changed" and caught.value.file == "c/1"


def test_codecs_that_execute_code_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x", data=np.arange(3), zarr_format=2)
    metadata = tmp_path / "x" / ".zarray"
    text = json.loads(metadata.read_text())
    text.update(dtype="|O", filters=[{"id": "pickle", "protocol": 5}], fill_value=None)
    metadata.write_text(json.dumps(text))

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    (tmp_path / "x" / "0").write_bytes(pickle.dumps(np.array([Evil()], object)))
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path / "x").read(0, 3)
    assert caught.value.code in ("dataset.type", "dataset.unreadable") and not (tmp_path / "executed").exists()


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"shape": [1 << 62]}, "file.size"),
    "chunk": ({"chunks": [1 << 40]}, "file.size"),
    "negative": ({"shape": [-3]}, "dataset."),
    "no chunk": ({"chunks": [0]}, "file.size"),
    "scalar": ({"shape": [], "chunks": []}, "dataset.unreadable"),
    "type": ({"dtype": "<M8[s]", "fill_value": 0}, "dataset.type"),
    "compressor": ({"compressor": {"id": "nothing"}}, "dataset.unreadable"),
    "text": ({"zarr_format": "x"}, "dataset.unreadable"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_are_refused(tmp_path: Path, name: str) -> None:
    change, code = HOSTILE[name]
    zarr.create_array(tmp_path / "x", data=np.arange(3), zarr_format=2)
    metadata = tmp_path / "x" / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **change}))
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path / "x")
    assert caught.value.code.startswith(code)


def compressors() -> dict[str, Any]:
    import numcodecs

    return {
        "blosc": numcodecs.Blosc(),
        "bz2": numcodecs.BZ2(),
        "gzip": numcodecs.GZip(),
        "lz4": numcodecs.LZ4(),
        "lzma": numcodecs.LZMA(),
        "zlib": numcodecs.Zlib(),
        "zstd": numcodecs.Zstd(),
    }


@pytest.mark.parametrize("name", compressors())
def test_a_bomb_is_not_decoded(tmp_path: Path, name: str) -> None:
    codec = compressors()[name]
    array = zarr.create_array(tmp_path / "x", shape=(20,), chunks=(10,), dtype="f8", zarr_format=2, compressors=codec)
    array[:] = np.arange(20)
    assert open_source(tmp_path / "x").read(3, 17).columns["array"].tolist() == list(range(3, 17))
    # Decodes to 1 GiB; lz4 and blosc make too long a file of zeros, so that their header alone declares it.
    size = 1 << 30
    zeros = bytes(1 << 20)
    if name == "lz4":
        bomb = size.to_bytes(4, "little") + bytes(100)
    elif name == "blosc":
        bomb = (tmp_path / "x" / "1").read_bytes()
        bomb = bomb[:4] + size.to_bytes(4, "little") + bomb[8:]
    elif name in ("gzip", "zlib", "bz2", "lzma"):
        import bz2
        import lzma
        import zlib

        start: dict[str, Callable[[], Any]] = {"gzip": lambda: zlib.compressobj(9, wbits=31), "zlib": lambda: zlib.compressobj(9)}
        start |= {"bz2": bz2.BZ2Compressor, "lzma": lambda: lzma.LZMACompressor(preset=0)}
        compressor = start[name]()
        bomb = b"".join(compressor.compress(zeros) for _ in range(72)) + compressor.flush()
    else:
        # A frame without a declared size: 1000 blocks of one byte, repeated 128 Ki times.
        block = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
        bomb = b"\x28\xb5\x2f\xfd\x00\x88" + block * 1000
    (tmp_path / "x" / "1").write_bytes(bomb)
    rows = open_source(tmp_path / "x").read(0, 20)
    assert rows.rows.tolist() == list(range(10)) and {fault.code for fault in rows.faults} == {"file.size"}


def test_a_bomb_in_a_shard_is_not_decoded(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "x", shape=(40,), shards=(20,), chunks=(10,), dtype="f8", compressors=[zarr.codecs.ZstdCodec()]
    )
    array[:] = np.arange(40)
    path = tmp_path / "x" / "c" / "1"
    data = bytearray(path.read_bytes())
    frames = [offset for offset in range(len(data)) if data[offset : offset + 4] == b"\x28\xb5\x2f\xfd"]
    assert len(frames) == 2 and data[frames[0] + 4] >> 5 == 1
    # The declared size of a frame with a size of 8 bytes, in place of the first bytes of the content.
    data[frames[1] + 4] |= 3 << 6
    path.write_bytes(data)
    block = open_source(tmp_path / "x").read(0, 40)
    assert block.rows.tolist() == list(range(20)) and {fault.code for fault in block.faults} == {"file.size"}
    assert open_source(tmp_path / "x").read(32, 33).faults[0].code == "file.size"
    assert open_source(tmp_path / "x").read(21, 22).columns["array"].tolist() == [21]


CHAINS = {
    "pickle": [{"id": "pickle", "protocol": 5}],
    "json": [{"id": "json2"}],
    "two compressors": [{"id": "zlib", "level": 1}],
}


@pytest.mark.parametrize("name", CHAINS)
def test_other_codecs_are_refused(tmp_path: Path, name: str) -> None:
    zarr.create_array(tmp_path / "x", data=np.arange(3), zarr_format=2)
    metadata = tmp_path / "x" / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "filters": CHAINS[name]}))
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path / "x")
    assert caught.value.code in ("dataset.type", "dataset.unreadable")


@pytest.mark.parametrize(
    "change",
    [
        lambda codecs: codecs.append({"name": "crc32c"}),
        lambda codecs: codecs.insert(0, {"name": "bytes", "configuration": {"endian": "little"}}),
        lambda codecs: codecs[0]["configuration"].update(index_location="start"),
        lambda codecs: codecs[0]["configuration"]["index_codecs"].pop(),
        lambda codecs: codecs[0]["configuration"]["codecs"].append({"name": "pickle"}),
    ],
)
def test_shards_of_other_forms_are_refused(tmp_path: Path, change: Callable[[list[Any]], None]) -> None:
    zarr.create_array(tmp_path / "x", data=np.arange(40), shards=(20,), chunks=(10,))
    metadata = json.loads((tmp_path / "x" / "zarr.json").read_text())
    assert [codec["name"] for codec in metadata["codecs"]] == ["sharding_indexed"]
    change(metadata["codecs"])
    (tmp_path / "x" / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path / "x")
    assert caught.value.code in ("dataset.type", "dataset.unreadable")


def test_files_outside_and_too_long_are_not_read(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x", data=np.arange(30), chunks=(10,))
    chunk = tmp_path / "x" / "c" / "1"
    chunk.write_bytes(bytes(3 << 20))
    block = open_source(tmp_path / "x").read(0, 30)
    assert {fault.code for fault in block.faults} == {"file.size"} and len(block.rows) == 20
    chunk.unlink()
    (tmp_path / "secret").write_bytes(b"1")
    chunk.symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path / "x")
    assert caught.value.code == "dataset.link"


def test_arrays_of_other_lengths_must_be_named(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w")
    group.create_array("x", data=np.arange(3))
    group.create_array("y", data=np.arange(4))
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path)
    assert caught.value.code == "dataset.schema"
    assert open_source(tmp_path, ["y"]).rows == 4
    with pytest.raises(EngineError) as error:
        open_source(tmp_path, ["z"])
    assert error.value.code == "dataset.column"


def test_results_are_read_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = pickle.loads(pickle.dumps(open_sink(out, "zarr", rows=10, part_rows=4)))
    sink.prepare()
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    names = np.array([f"{row}.png" for row in range(10)], object)
    for part, rows in {2: [8, 9], 0: [0, 1, 2, 3], 1: [4, 7]}.items():
        faults = [RowFault(row, "a.b", "text") for row in (5, 6) if part == 1]
        sink.write(part, np.array(rows), {"y/z:0": values[rows], "file": names[rows]}, faults)
        assert part in sink.parts()
    sink.finish()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open(out)
        assert sorted(group.keys()) == ["file", "row", "y%2Fz:0".replace(":", "%3A")]
    y = group["y%2Fz%3A0"]
    good = [0, 1, 2, 3, 4, 7, 8, 9]
    assert y.chunks == (4, 2) and np.array_equal(y[:][good], values[good]) and np.isnan(y[5:7]).all()
    assert group["row"][:].tolist() == [0, 1, 2, 3, 4, -1, -1, 7, 8, 9] and group["file"][7] == "7.png"
    source = open_source(out, ["y/z:0"], keep=["row"])
    assert np.array_equal(source.read(0, 10).columns["y/z:0"][good], values[good])
    # A driver that resumes the job after its end changes nothing.
    sink.prepare()
    sink.write(2, np.array([8, 9]), {"y/z:0": values[8:], "file": names[8:]}, [])
    sink.finish()
    assert sink.parts() == {0, 1, 2}
    with pytest.raises(EngineError) as caught:
        sink.write(2, np.array([8, 9]), {"y/z:0": values[8:, :1], "file": names[8:]}, [])
    assert caught.value.code == "dataset.output"
    sink.remove()
    assert os.listdir(out) == []


def test_results_open_in_dask(tmp_path: Path) -> None:
    array = pytest.importorskip("dask.array")
    sink = open_sink(tmp_path, "zarr", rows=6, part_rows=3)
    for part in range(2):
        sink.write(part, np.arange(3) + 3 * part, {"y": np.full((3, 2), part, np.int8)}, [])
    sink.finish()
    assert array.from_zarr(str(tmp_path / "y")).sum().compute() == 6


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "zarr", rows=2, part_rows=2)
    with pytest.raises(EngineError) as caught:
        sink.write(0, np.arange(2), {"y": [np.zeros(2), np.zeros(3)]}, [])
    assert caught.value.code == "dataset.output" and sink.parts() == set()
