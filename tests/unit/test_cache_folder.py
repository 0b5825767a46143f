"""Entries of the plan cache come back as they were written, or not at all: any blobs, any damage, any neighbour in the folder."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dovetail.errors import EngineError
from dovetail.storage import cache_folder
from dovetail.storage.cache_folder import CacheFolder

NAME = "a" * 64
MODEL = np.random.default_rng(1).integers(0, 256, 300, np.uint8)


def blobs_of(sizes: list[tuple[int, int]]) -> tuple[list[Any], list[int]]:
    """Return blobs and their sources from pairs of a size and a source: a blob with a source is a part of the model."""
    generator = np.random.default_rng(len(sizes))
    blobs = [
        generator.integers(0, 256, size, np.uint8) if source < 0 else MODEL[source : source + size].copy()
        for size, source in sizes
    ]
    return blobs, [source for _, source in sizes]


@given(st.lists(st.tuples(st.integers(0, 150), st.just(-1) | st.integers(0, 150)), max_size=6), st.integers(0, 299))
def test_blobs_come_back_and_copies_are_compared_with_the_model(sizes: list[tuple[int, int]], changed: int) -> None:
    blobs, sources = blobs_of(sizes)
    with tempfile.TemporaryDirectory() as path:
        folder = CacheFolder(path)
        assert folder.write(NAME, {"key": "value"}, blobs, sources)
        entry = folder.read(NAME, MODEL.tobytes())
        assert entry is not None and entry.comparison.is_equal()
        assert entry.header == {"key": "value", "blobs": [len(blob) for blob in blobs], "sources": sources}
        for (offset, size), blob in zip(entry.blobs, blobs, strict=True):
            assert offset % cache_folder.ALIGNMENT == 0 and np.array_equal(entry.data[offset : offset + size], blob)
        other = MODEL.copy()
        other[changed] ^= 1
        entry = folder.read(NAME, other.tobytes())
        assert entry is not None
        assert entry.comparison.is_equal() is not any(source >= 0 and 0 <= changed - source < size for size, source in sizes)
        shorter = folder.read(NAME, MODEL[:changed].tobytes())
        assert shorter is not None
        assert shorter.comparison.is_equal() is all(source < 0 or source + size <= changed for size, source in sizes if size)
        assert os.listdir(path) == [f"{NAME}.plan"]


def test_an_entry_of_other_bytes_or_another_length_is_not_used(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path)
    blobs, sources = blobs_of([(70, -1), (30, 0), (0, -1), (90, 17)])
    assert folder.write(NAME, {}, blobs, sources)
    path = tmp_path / f"{NAME}.plan"
    data = path.read_bytes()

    def is_used() -> bool:
        entry = folder.read(NAME, MODEL.tobytes())
        if entry is None or not entry.comparison.is_equal():
            return False
        # A byte between two blobs belongs to neither.
        return all(
            np.array_equal(entry.data[offset : offset + size], blob)
            for (offset, size), blob in zip(entry.blobs, blobs, strict=True)
        )

    assert is_used()
    entry = folder.read(NAME, MODEL.tobytes())
    assert entry is not None
    ranges = [range(offset, offset + size) for (offset, size), source in zip(entry.blobs, sources, strict=True) if source >= 0]
    copied = {index for each in ranges for index in each}
    # The digest ends before the first copy.
    padding = range(min(copied), len(data))
    for index in range(len(data)):
        path.write_bytes(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        assert is_used() is (index in padding and index not in copied), index
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert not is_used(), size
    path.write_bytes(data + b"\0")
    assert not is_used()


def test_one_process_at_a_time_holds_the_lock_of_an_entry(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path)
    for is_storable in (True, False, False):
        with folder.lock(NAME) as lock, open(tmp_path / f"{NAME}.lock", "rb") as other:
            assert lock.is_storable is is_storable
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.refuse()
        with open(tmp_path / f"{NAME}.lock", "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / f"{NAME}.lock").unlink()
    (tmp_path / f"{NAME}.lock").mkdir()
    with folder.lock(NAME) as lock:
        assert lock.is_storable
        lock.refuse()


def test_a_fork_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is forked while the lock is held shares its descriptor."""
    folder = CacheFolder(tmp_path)
    opened, shared = os.open, []

    def open_shared(*arguments: Any, **options: Any) -> int:
        descriptor = opened(*arguments, **options)
        shared.append(os.dup(descriptor))
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_shared)
        with folder.lock(NAME):
            pass
    try:
        with open(tmp_path / f"{NAME}.lock", "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        for descriptor in shared:
            os.close(descriptor)


def test_old_drafts_are_removed_and_no_other_file(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path)
    drafts = [f".{digit * 16}.draft" for digit in "ab"]
    others = ["notes.txt", ".draft", f".{'g' * 16}.draft", f"x.{'a' * 16}.draft"]
    hours_ago = time.time() - 2 * cache_folder.MAX_DRAFT_SECONDS
    for name in (*drafts, *others):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (hours_ago, hours_ago))
    os.utime(tmp_path / drafts[1])
    assert folder.write(NAME, {}, [])
    assert sorted(os.listdir(tmp_path)) == sorted([drafts[1], *others, f"{NAME}.plan"])


def test_a_folder_that_goes_is_an_error_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache")
    before = len(os.listdir("/proc/self/fd"))
    folder.write(NAME, {}, [np.zeros(5, np.uint8)])
    for _ in range(3):
        assert folder.read(NAME) is not None and folder.read("b" * 64) is None
        with folder.lock(NAME):
            pass
    (tmp_path / "cache").rename(tmp_path / "gone")
    for access in (lambda: folder.read(NAME), lambda: folder.write(NAME, {}, []), lambda: folder.lock(NAME).__enter__()):
        with pytest.raises(EngineError) as caught:
            access()
        assert caught.value.code == "cache.folder"
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_least_recently_used_entries_go_first_and_only_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder(tmp_path)
    names = [digit * 64 for digit in "cbda"]
    for name in names:
        folder.write(name, {}, [])
    size = (tmp_path / f"{names[0]}.plan").stat().st_size
    for age, name in enumerate(names):
        os.utime(tmp_path / f"{name}.plan", ns=(age, age))
    for name in ("short.plan", "f" * 69):
        (tmp_path / name).write_bytes(bytes(3 * size))
    # A read is a use.
    assert folder.read(names[0]) is not None
    monkeypatch.setattr(cache_folder, "MAX_FOLDER_BYTES", 3 * size)
    assert folder.write("e" * 64, {}, [])
    kept = {f"{name}.plan" for name in (names[0], names[3], "e" * 64)}
    assert set(os.listdir(tmp_path)) == kept | {"short.plan", "f" * 69}
    monkeypatch.setattr(cache_folder, "MAX_FOLDER_BYTES", 0)
    assert folder.write("f" * 64, {}, [])
    assert set(os.listdir(tmp_path)) == {f"{'f' * 64}.plan", "short.plan", "f" * 69}


def test_an_entry_that_cannot_be_renamed_is_reported_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    folder = CacheFolder(tmp_path)
    monkeypatch.setattr(os, "replace", refuse)
    assert not folder.write(NAME, {}, [])
    assert os.listdir(tmp_path) == []
