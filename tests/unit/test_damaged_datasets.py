"""Which rows of damaged files are at fault does not depend on the ranges that are read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.data.rows.sources import open_source
from dovetail.errors import DovetailError, FormatError

ROWS = 4000


def write_parquet(path: Path) -> Path:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    table = arrow.table({"x": np.random.default_rng(0).random(ROWS), "y": list(np.random.default_rng(1).random((ROWS, 20)))})
    parquet.write_table(table, path / "x.parquet", row_group_size=1500, data_page_size=2000, write_page_checksum=True)
    return path / "x.parquet"


def write_npz(path: Path) -> Path:
    np.savez_compressed(path / "x.npz", x=np.random.default_rng(0).random(ROWS), y=np.arange(ROWS * 3).reshape(ROWS, 3))
    return path / "x.npz"


def write_zarr(path: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(path / "x.zarr", mode="w")
    compressors = [zarr.codecs.ZstdCodec(checksum=True)]
    for name, chunk in {"x": 250, "y": 400}.items():
        array = group.create_array(name, shape=(ROWS,), chunks=(chunk,), dtype="f8", compressors=compressors)
        array[:] = np.random.default_rng(chunk).random(ROWS)
    return path / "x.zarr" / "x" / "c" / "7"


@pytest.mark.parametrize("write", [write_parquet, write_npz, write_zarr], ids=["parquet", "npz", "zarr"])
def test_faults_do_not_depend_on_the_ranges(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    folder = tmp_path / "x.zarr" if path.parent != tmp_path else path
    expected = open_source(folder).read(0, ROWS)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = 0
    for _ in range(8):
        changed = bytearray(data)
        changed[rng.integers(len(data) // 10, len(data) * 8 // 10)] ^= 255
        path.write_bytes(changed)
        try:
            whole = open_source(folder).read(0, ROWS)
        except FormatError:
            # A damaged header is an error before the job.
            continue
        damaged += bool(whole.faults)
        # No wrong number: checksums cover all data.
        assert all(np.array_equal(whole.columns[name], expected.columns[name][whole.rows]) for name in whole.columns)
        source = open_source(folder)
        bounds = [0, *sorted(rng.integers(0, ROWS, 7).tolist()), ROWS]
        ranges = list(itertools.pairwise(bounds))
        rng.shuffle(ranges)
        blocks = [source.read(int(start), int(stop)) for start, stop in ranges]
        assert sorted(row for block in blocks for row in block.rows.tolist()) == whole.rows.tolist()
        faults = sorted((fault.row, fault.code) for block in blocks for fault in block.faults)
        assert faults == [(fault.row, fault.code) for fault in whole.faults]
    assert damaged > 3


CUT_ROWS = 24
VALUES = np.arange(CUT_ROWS * 3, dtype=np.int32).reshape(CUT_ROWS, 3)


def small_npy(path: Path) -> Path:
    np.save(path / "x.npy", VALUES)
    return path / "x.npy"


def small_fortran(path: Path) -> Path:
    np.save(path / "x.npy", np.asfortranarray(VALUES))
    return path / "x.npy"


def small_npz(path: Path) -> Path:
    np.savez(path / "x.npz", array=VALUES)
    return path / "x.npz"


def small_deflated(path: Path) -> Path:
    np.savez_compressed(path / "x.npz", array=VALUES)
    return path / "x.npz"


def small_parquet(path: Path) -> Path:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"array": VALUES.tolist()}), path / "x.parquet", row_group_size=10)
    return path / "x.parquet"


def small_zarr(path: Path, **options: Any) -> Path:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(path / "x.zarr", data=VALUES, chunks=(10, 3), **options)
    return path / "x.zarr" / "c" / "1" / "0"


def small_plain_zarr(path: Path) -> Path:
    return small_zarr(path, compressors=None)


def small_shards(path: Path) -> Path:
    return small_zarr(path, shards=(20, 3)).parent.parent / "0" / "0"


def small_image(path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(VALUES.astype(np.uint8).reshape(8, 3, 3)).save(path / "x.png")
    return path / "x.png"


SMALL = [
    small_npy, small_fortran, small_npz, small_deflated, small_parquet, small_zarr, small_plain_zarr, small_shards, small_image,
]  # fmt: skip


@pytest.mark.parametrize("write", SMALL)
def test_a_file_that_is_cut_gives_no_wrong_row(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    dataset = next(tmp_path.iterdir())
    source = open_source(dataset)
    whole = source.read(0, source.rows)
    (name,) = source.selected
    assert not whole.faults
    if write is not small_image:
        assert np.array_equal(np.asarray(whole.columns[name]), VALUES)
    data = path.read_bytes()
    for size in range(0, len(data), max(len(data) // 60, 1)):
        path.write_bytes(data[:size])
        try:
            source = open_source(dataset)
            block = source.read(0, source.rows)
        except DovetailError as error:
            assert error.code.startswith(("dataset.", "array.", "file.size")), (size, error.code)
            continue
        # The end of an image may hold no pixel.
        assert block.faults or write is small_image, size
        assert source.rows == len(whole.rows)
        assert sorted([*block.rows.tolist(), *(fault.row for fault in block.faults)]) == whole.rows.tolist()
        if len(block.rows):
            assert np.array_equal(block.columns[name], whole.columns[name][block.rows]), size
