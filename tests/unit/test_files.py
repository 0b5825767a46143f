"""The files that a model may name, and writing that is all or nothing."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import FormatError
from dovetail.storage import atomic_write, files


@contextmanager
def refused(fault: str) -> Iterator[None]:
    """Demand an error; ``fault`` is its code, and after a colon words of its message."""
    code, _, words = fault.partition(": ")
    with pytest.raises(FormatError) as caught:
        yield
    assert caught.value.code == code and words in caught.value.message
    assert caught.value.file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model in a folder of its own, a secret outside it."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "m.onnx").write_bytes(b"model")
    (folder / "w.bin").write_bytes(b"weights")
    (folder / "sub" / "w.bin").write_bytes(b"below")
    return folder / "m.onnx"


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With directory descriptors, and as on a system that has none."""
    if not request.param:
        monkeypatch.setattr(files, "_HAS_DIRECTORIES", False)


def read_beside(model: Path, location: str, **options: Path) -> bytes:
    descriptor = files.open_beside(model, location, **options)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read()


def link(folder: Path) -> str:
    (folder / "to").symlink_to(folder.parent / "secret")
    return "to"


def link_inside(folder: Path) -> str:
    (folder / "to").symlink_to("w.bin")
    return "to"


def link_on_the_way(folder: Path) -> str:
    (folder / "to").symlink_to(folder.parent)
    return "to/secret"


def hard_link(folder: Path) -> str:
    os.link(folder.parent / "secret", folder / "to")
    return "to"


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "to")
    return "to"


def unix_socket(folder: Path) -> str:
    here = os.getcwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("to")
    finally:
        os.chdir(here)
    return "to"


REFUSED: list[tuple[str, str | Callable[[Path], str]]] = [
    ("path.escape: must stay", "../secret"),  # CVE-2022-25882
    ("path.escape: must stay", "sub/../../secret"),  # CVE-2024-27318
    ("path.escape: must stay", "sub/../w.bin"),
    ("path.escape: must stay", "..\\secret"),
    ("path.escape: must stay", "sub\\..\\..\\secret"),
    ("path.escape: must stay", ".."),
    ("path.escape: must be a relative path", "/etc/passwd"),
    ("path.escape: must be a relative path", "//etc/passwd"),
    ("path.escape: must be a relative path", "C:\\secret"),
    ("path.escape: must be a relative path", "C:secret"),
    ("path.escape: must be a relative path", "\\\\server\\share\\secret"),
    ("path.escape: NUL", "w.bin\0.png"),
    ("path.escape: NUL", "\0"),
    ("path.escape: must name a file", ""),
    ("path.escape: must name a file", "."),
    ("path.escape: must name a file", "././"),
    ("path.missing", "absent.bin"),
    ("path.missing", "absent/w.bin"),
    ("path.kind", "w.bin/x"),
    ("path.kind", "sub"),
    ("path.kind", fifo),
    ("path.kind", unix_socket),
    ("path.link", link),  # CVE-2026-34447
    ("path.link", link_inside),
    ("path.link", link_on_the_way),  # CVE-2026-27489
    ("path.link", hard_link),  # CVE-2026-34446
    ("path.unreadable", "x" * 5000),
]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("fault", "location"), REFUSED)
def test_a_model_cannot_read_files_outside_its_folder(model: Path, fault: str, location: str | Callable[[Path], str]) -> None:
    name = location if isinstance(location, str) else location(model.parent)
    with refused(fault):
        files.open_beside(model, name)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("location", "found"), [("w.bin", b"weights"), ("./w.bin", b"weights"), ("sub//w.bin", b"below")])
def test_a_model_reads_files_of_its_own_folder(model: Path, location: str, found: bytes) -> None:
    assert read_beside(model, location) == found


def test_the_folder_is_that_of_the_path_as_given(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "m.onnx").symlink_to(model)
    with refused("path.missing"):
        files.open_beside(elsewhere / "m.onnx", "w.bin")
    (tmp_path / "alias").symlink_to(model.parent)
    assert read_beside(tmp_path / "alias" / "m.onnx", "w.bin") == b"weights"


def test_links_into_a_folder_named_by_the_user_are_followed_and_others_are_not(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "blobs"
    cache.mkdir()
    (cache / "abc").write_bytes(b"blob")
    (model.parent / "data").symlink_to("../blobs/abc")
    (model.parent / "bad").symlink_to("../secret")
    assert read_beside(model, "data", allow_symlinks_within=cache) == b"blob"
    with refused("path.escape"):
        files.open_beside(model, "bad", allow_symlinks_within=cache)
    os.link(tmp_path / "secret", cache / "hard")
    (model.parent / "hard").symlink_to("../blobs/hard")
    with refused("path.link"):
        files.open_beside(model, "hard", allow_symlinks_within=cache)


def test_descriptors_are_closed_after_refusals(model: Path) -> None:
    names = [item if isinstance(item, str) else "sub/w.bin/x" for _, item in REFUSED]
    before = len(os.listdir("/proc/self/fd"))
    for name in names:
        with pytest.raises(FormatError):
            files.open_beside(model, name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reading_whole_files_is_bounded(model: Path) -> None:
    assert files.read_bytes(model) == b"model"
    assert files.read_bytes(model, limit=5) == b"model"
    with refused("file.size"):
        files.read_bytes(model, limit=4)
    with refused("path.missing"):
        files.read_bytes(model.parent / "absent")
    with refused("path.kind"):
        files.read_bytes(model.parent)
    with refused("path.kind"):
        files.read_bytes(model.parent / fifo(model.parent))
    with refused("path.escape"):
        files.read_bytes("a\0b")


@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 4097, 9999, 10000])
def test_mapped_bytes_are_those_of_the_file_and_cannot_be_written(tmp_path: Path, offset: int) -> None:
    content = np.random.default_rng(1).integers(0, 256, 10000, dtype=np.uint8)
    (tmp_path / "w.bin").write_bytes(content.tobytes())
    for length in (None, 0, min(1, 10000 - offset), 10000 - offset):
        view = files.map_file(tmp_path / "w.bin", offset, length)
        np.testing.assert_array_equal(view, content[offset:] if length is None else content[offset : offset + length])
        assert not view.flags.writeable


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 8), (8, None), (7, 1), (-1, 2), (0, -1), (3, 2**63), (2**63, None), (2**64, 1)]
)
def test_ranges_beyond_the_file_are_refused(model: Path, offset: int, length: int | None) -> None:
    with pytest.raises(FormatError, match="7 bytes") as caught:
        files.map_file(model.parent / "w.bin", offset, length)
    assert caught.value.code == "data.range"


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.usefixtures("both_ways")
def test_all_files_take_their_places_together(model: Path) -> None:
    names = [model, model.parent / "w.bin", model.parent / "sub" / "new.bin"]
    with atomic_write.replace_files(names) as streams:
        for number, stream in enumerate(streams):
            stream.write(bytes([number]))
        assert model.read_bytes() == b"model"
    assert listing(model.parent) == {"m.onnx": b"\0", "sub/new.bin": b"\2", "sub/w.bin": b"below", "w.bin": b"\1"}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_everything_as_it_was(model: Path, error: type[BaseException]) -> None:
    before = listing(model.parent)
    with pytest.raises(error), atomic_write.replace_files([model, model.parent / "w.bin"]) as streams:
        streams[0].write(b"half")
        raise error
    assert listing(model.parent) == before


def test_relative_paths_are_relative_to_the_working_directory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    with atomic_write.replace_files(["m.onnx", "m.onnx.data"]) as streams:
        for stream in streams:
            stream.write(b"new")
    assert listing(model.parent)["m.onnx"] == listing(model.parent)["m.onnx.data"] == b"new"


def test_the_models_own_link_is_written_through(model: Path, tmp_path: Path) -> None:
    (tmp_path / "alias.onnx").symlink_to(model)
    with atomic_write.replace_file(tmp_path / "alias.onnx") as stream:
        stream.write(b"new")
    assert model.read_bytes() == b"new"
    assert (tmp_path / "alias.onnx").is_symlink()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("code", "location"),
    [
        ("path.link", link),  # CVE-2025-51480 and its kin: a place prepared by someone else
        ("path.link", link_on_the_way),
        ("path.escape: must stay", "../secret"),
        ("path.escape: must stay", "sub/../../secret"),
        ("path.kind", fifo),
        ("path.kind", "sub"),
        ("path.missing", "absent/w.bin"),
        ("path.escape", "a\0b"),
        ("argument.conflict", "m.onnx"),
        ("argument.conflict", "./m.onnx"),
    ],
)
def test_side_files_are_written_only_in_the_folder_of_the_model(
    model: Path, code: str, location: str | Callable[[Path], str]
) -> None:
    name = location if isinstance(location, str) else location(model.parent)
    before = {name: data for name, data in listing(model.parent.parent).items() if "to" not in name}
    with refused(code), atomic_write.replace_files([model, f"{model.parent}/{name}"]) as streams:
        streams[1].write(b"new")
    assert {name: data for name, data in listing(model.parent.parent).items() if "to" not in name} == before


def test_a_side_file_that_is_a_hard_link_is_replaced_and_its_other_name_is_not(model: Path, tmp_path: Path) -> None:
    name = hard_link(model.parent)
    with atomic_write.replace_files([model, model.parent / name]) as streams:
        streams[1].write(b"new")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert (model.parent / name).read_bytes() == b"new"


def test_a_link_put_in_place_while_writing_is_not_followed(model: Path, tmp_path: Path) -> None:
    with refused("path.link"), atomic_write.replace_files([model, model.parent / "late"]):  # GHSA-q56x-g2fj-4rj6
        (model.parent / "late").symlink_to(tmp_path / "secret")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert model.read_bytes() == b"model"


def test_the_folder_to_write_in_must_exist(tmp_path: Path) -> None:
    with refused("path.missing"), atomic_write.replace_file(tmp_path / "absent" / "m.onnx"):
        pass
    with refused("path.escape: NUL"), atomic_write.replace_file(f"{tmp_path}/m\0.onnx"):
        pass
    with refused("path.kind"), atomic_write.replace_file(tmp_path):
        pass


def test_a_memory_map_survives_a_replaced_file(model: Path) -> None:
    view = files.map_file(model.parent / "w.bin")
    with atomic_write.replace_file(model.parent / "w.bin") as stream:
        stream.write(view[::-1].tobytes())
    assert view.tobytes() == b"weights"
    assert (model.parent / "w.bin").read_bytes() == b"sthgiew"


def test_the_mode_of_a_private_file_is_kept(model: Path) -> None:
    model.chmod(0o600)
    with atomic_write.replace_file(model) as stream:
        stream.write(b"new")
        assert os.fstat(stream.fileno()).st_mode & 0o777 == 0o600
    assert model.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files to others")
def test_the_owner_of_a_file_is_kept(model: Path) -> None:
    os.chown(model, 12345, 54321)
    with atomic_write.replace_file(model) as stream:
        stream.write(b"new")
    assert (model.stat().st_uid, model.stat().st_gid, model.read_bytes()) == (12345, 54321, b"new")


def is_locked(path: Path) -> bool:
    """Return whether another descriptor holds the flock of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def drafts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.tmp"))


def test_files_are_renamed_under_the_lock_of_the_folder_after_their_data_are_on_the_disk(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save waits for another one; the lock ends with the renames, although a forked process shares the descriptor."""
    folder = model.parent
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    shared: list[int] = []
    events: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def wait(seconds: float) -> None:
        events.append(("wait", 0))
        fcntl.flock(other, fcntl.LOCK_UN)

    def flush(descriptor: int) -> None:
        events.append(("flush", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        assert is_locked(folder)
        events.append(("rename", os.stat(source, dir_fd=src_dir_fd).st_ino))
        shared.append(os.dup(src_dir_fd))
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    with atomic_write.replace_files([model, folder / "w.bin", folder / "sub" / "w.bin"]) as streams:
        for number, stream in enumerate(streams):
            stream.write(bytes([number]))
    inodes = [path.stat().st_ino for path in (folder / "sub" / "w.bin", folder / "w.bin", model)]
    steps = [("flush", inode) for inode in reversed(inodes)] + [("wait", 0)]
    for inode, path in zip(inodes, (folder / "sub", folder, folder), strict=True):
        steps += [("rename", inode), ("flush", path.stat().st_ino)]
    assert events == steps
    assert not is_locked(folder)
    for descriptor in (other, *shared):
        os.close(descriptor)


@pytest.mark.parametrize("removals", [1, 1000])
def test_a_draft_that_another_save_removes_before_its_lock_is_made_again(
    model: Path, removals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file, left = atomic_write.lock_file, [removals]

    def lock(descriptor: int) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            (draft,) = drafts_in(model.parent)
            draft.unlink()
        return lock_file(descriptor)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(atomic_write, "lock_file", lock)
    if removals == 1:
        with atomic_write.replace_file(model) as stream:
            stream.write(b"new")
        assert model.read_bytes() == b"new"
    else:
        with refused("path.unwritable: was removed"), atomic_write.replace_file(model):
            pass
    assert len(os.listdir("/proc/self/fd")) == before and drafts_in(model.parent) == []


def test_an_abandoned_draft_is_locked_while_it_is_removed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of a new draft, which is not locked yet, finds it locked or removed, and makes another one."""
    draft = model.parent / f".m.onnx.dovetail.{'0' * 16}.tmp"
    draft.write_bytes(b"")
    unlink, names = os.unlink, []

    def remove(name: str, *, dir_fd: int) -> None:
        names.append(name)
        assert is_locked(model.parent / name)
        unlink(name, dir_fd=dir_fd)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "unlink", remove)
    atomic_write.remove_abandoned_drafts(model.parent)
    assert names == [draft.name] and drafts_in(model.parent) == []
    draft.write_bytes(b"")
    with atomic_write.replace_file(model) as stream:
        stream.write(b"new")
    assert names == [draft.name] * 2 and drafts_in(model.parent) == []
    assert len(os.listdir("/proc/self/fd")) == before
