"""A save that is killed, refused or raced: a load gives the old model or the new one, and nothing is left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest

import dovetail
import interruptions
from dovetail import DovetailError, FormatError
from dovetail.storage import atomic_write, file_pair, weights_file
from interruptions import KINDS, Kind, check_whole, forked, killed_at, left_behind, version, version_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PAIRS = ["external", "safetensors", "openvino"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def pair(function: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("kind", [KINDS[name] for name in PAIRS], ids=PAIRS)(function)


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def side_file(kind: Kind, folder: Path) -> Path:
    return folder / kind.options.get("external", "m.bin")


def test_a_save_killed_at_each_of_its_system_calls_leaves_the_old_model_or_the_new_one(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    clean = listing(tmp_path)
    number, found = 0, []
    while killed_at(number, lambda: kind.save(version(2), tmp_path)):
        found.append(version_of(tmp_path / kind.file))
        # The first save of another file leaves these drafts alone: they may be half of a pair.
        dovetail.save(version(1), tmp_path / "other.onnx")
        assert version_of(tmp_path / kind.file) == found[-1]
        (tmp_path / "other.onnx").unlink()
        kind.save(version(1), tmp_path)
        assert listing(tmp_path) == clean
        number += 1
    assert number > 8
    assert found == sorted(found) and set(found) == {1, 2}


def test_a_first_save_that_is_killed_leaves_no_model_or_a_complete_one(kind: Kind, tmp_path: Path) -> None:
    for number in range(5, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not killed_at(number, partial(kind.save, version(1), folder)):
            break
        if (folder / kind.file).exists():
            assert version_of(folder / kind.file) == 1
        kind.save(version(1), folder)
        assert left_behind(folder) == []


def test_saves_killed_at_random_times(kind: Kind) -> None:
    found = interruptions.kill_saves(kind, 5, 0.1, random.Random(5), interruptions.SIDE)
    assert set(found) <= {"whole", "drafts after the kill"} and found["whole"] == 5, found


def test_reads_concurrent_with_saves(kind: Kind) -> None:
    assert interruptions.read_beside_saves(kind, 30, interruptions.SIDE) == {"whole": 30}


def test_a_read_between_the_renames_of_a_save_gives_the_new_model(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.save(version(1), tmp_path)
    replace, found = os.replace, []

    def reading(*args: object, **options: object) -> None:
        replace(*args, **options)  # type: ignore[arg-type]
        found.append(version_of(tmp_path / kind.file))
        # Nothing is wrong with a save that goes on.
        assert dovetail.check(tmp_path / kind.file) == []

    monkeypatch.setattr(os, "replace", reading)
    kind.save(version(2), tmp_path)
    assert found == [2] * (2 if kind.file.endswith("xml") or kind.options else 1)


def interrupt(kind: Kind, folder: Path) -> None:
    """Leave version 1 of the model file beside version 2 of its side file, and the draft of a save that was killed."""
    kind.save(version(1), folder)

    def work() -> None:
        replace, left = os.replace, [1]

        def once(*args: object, **options: object) -> None:
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left.pop()
            replace(*args, **options)  # type: ignore[arg-type]

        os.replace = once  # type: ignore[assignment]
        kind.save(version(2), folder)

    assert os.WIFSIGNALED(os.waitpid(forked(work), 0)[1])
    assert len(left_behind(folder)) == 1


@pair
def test_a_save_killed_between_its_renames_is_reported_until_the_next_one(kind: Kind, tmp_path: Path) -> None:
    interrupt(kind, tmp_path)
    path = tmp_path / kind.file
    assert version_of(path) == 2
    assert [item.code for item in dovetail.load(path).warnings] == ["file.pair"]
    assert [item.code for item in dovetail.check(path)] == ["file.pair"]
    with pytest.raises(FormatError) as caught:
        dovetail.load(path, strict=True)
    assert caught.value.code == "file.pair"
    dovetail.save(dovetail.load(path), path, **kind.options)
    assert version_of(path) == 2 and dovetail.load(path, strict=True)
    assert left_behind(tmp_path) == []


@pair
def test_files_of_two_saves_are_refused(kind: Kind, tmp_path: Path) -> None:
    interrupt(kind, tmp_path)
    path = tmp_path / kind.file
    for name in left_behind(tmp_path):
        draft = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
    with pytest.raises(FormatError, match="saved with another model file") as caught:
        dovetail.load(path)
    assert caught.value.code == "file.pair" and caught.value.file == str(path)
    path.write_bytes(draft)
    assert version_of(path) == 2


@pair
def test_a_truncated_draft_is_ignored(kind: Kind, tmp_path: Path) -> None:
    interrupt(kind, tmp_path)
    (draft,) = [tmp_path / name for name in left_behind(tmp_path)]
    draft.write_bytes(draft.read_bytes()[:-1])
    with pytest.raises(FormatError) as caught:
        dovetail.load(tmp_path / kind.file)
    assert caught.value.code == "file.pair"


@pair
def test_a_side_file_of_ours_with_a_foreign_model_file_is_refused(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    path = tmp_path / kind.file
    if path.suffix == ".xml":
        text = path.read_text()
        path.write_text(text[: text.index("\t<rt_info>")] + "</net>\n")
    else:
        proto = onnx.load(path, load_external_data=False)
        del proto.metadata_props[:]
        onnx.save(proto, path)
    with pytest.raises(FormatError, match="has no digest") as caught:
        dovetail.load(path)
    assert caught.value.code == "file.pair"


@pair
def test_a_side_file_without_a_signature_loads_as_it_is(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    side = side_file(kind, tmp_path)
    content = side.read_bytes()
    signature = weights_file.signature_in_trailer(np.frombuffer(content, np.uint8))
    if signature is None:
        # A safetensors file has the signature in its header, under a name that other tools do not know.
        content = content.replace(b'{"dovetail":"', b'{"others__":"')
    else:
        content = content[: -weights_file.TRAILER]
    side.write_bytes(content)
    assert version_of(tmp_path / kind.file) == 1


@pair
def test_equal_models_give_equal_pairs_and_the_digest_does_not_travel(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    before = listing(tmp_path)
    kind.save(version(1), tmp_path)
    assert listing(tmp_path) == before
    model = dovetail.load(tmp_path / kind.file)
    assert file_pair.PROPERTY not in str(model.metadata.get("metadata_props"))
    dovetail.save(model, tmp_path / kind.file, **kind.options)
    assert listing(tmp_path) == before
    dovetail.save(model, tmp_path / "single.onnx")
    assert file_pair.PROPERTY not in {entry.key for entry in onnx.load(tmp_path / "single.onnx").metadata_props}


def test_onnxruntime_and_onnx_read_the_pairs_that_we_write(tmp_path: Path) -> None:
    kind = KINDS["external"]
    kind.save(version(3), tmp_path)
    x = np.ones((interruptions.SIDE,) * 2, np.float32)
    (found,) = onnxruntime.InferenceSession(tmp_path / kind.file).run(None, {"x": x})
    np.testing.assert_array_equal(found, dovetail.run(tmp_path / kind.file, {"x": x})["y"])
    onnx.checker.check_model(tmp_path / kind.file, full_check=True)


def test_openvino_reads_our_pairs_and_we_read_its_pairs(tmp_path: Path) -> None:
    KINDS["openvino"].save(version(3), tmp_path)
    x = np.ones((interruptions.SIDE,) * 2, np.float32)
    core = openvino.Core()
    model = core.read_model(tmp_path / "m.xml")
    found = core.compile_model(model, "CPU")({"x": x})[0]
    np.testing.assert_array_equal(found, dovetail.run(tmp_path / "m.xml", {"x": x})["y"])
    # It carries rt_info along, our digest too, and writes a .bin of its own.
    openvino.save_model(model, tmp_path / "again.xml", compress_to_fp16=False)
    assert file_pair.RT_INFO[1] in (tmp_path / "again.xml").read_text()
    np.testing.assert_array_equal(dovetail.run(tmp_path / "again.xml", {"x": x})["y"], found)


def test_a_draft_of_a_living_writer_is_left_alone(kind: Kind, tmp_path: Path) -> None:
    with atomic_write.replace_file(tmp_path / kind.file) as stream:
        stream.write(b"not yet")
        (live,) = left_behind(tmp_path)
        dead = [f".{name}.dovetail.{'0' * 16}.tmp" for name in (kind.file, "another.onnx")]
        others = [".m.onnx.tmp", f".{kind.file}.{'0' * 16}.tmp", f".{kind.file}.dovetail.{'g' * 16}.tmp"]
        for name in (*dead, *others):
            (tmp_path / name).write_bytes(b"")
        kind.save(version(1), tmp_path)
        assert left_behind(tmp_path) == sorted([live, dead[1], *others])
    assert (tmp_path / kind.file).read_bytes() == b"not yet"


@pytest.mark.parametrize("name", ["a" * 240 + ".onnx", "ü" * 120 + ".onnx"])
def test_a_long_name_has_drafts_too(name: str, tmp_path: Path) -> None:
    dovetail.save(version(1), tmp_path / name)
    assert killed_at(5, lambda: dovetail.save(version(2), tmp_path / name))
    assert len(left_behind(tmp_path)) == 1
    dovetail.save(version(2), tmp_path / name)
    assert left_behind(tmp_path) == [] and version_of(tmp_path / name) == 2


def test_a_full_disk_is_our_error_and_the_old_files_stay(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    before = listing(tmp_path)

    def work() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))
        with pytest.raises(DovetailError) as caught:
            kind.save(version(2), tmp_path)
        assert caught.value.code == "path.unwritable" and caught.value.file == str(tmp_path / kind.file)

    assert os.waitpid(forked(work), 0)[1] == 0
    assert listing(tmp_path) == before


def test_a_folder_that_must_not_be_written_is_our_error(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    before = listing(tmp_path)
    # pytest's folders, some of which are private.
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and "pytest-" in str(folder):
            folder.chmod(0o755)
    tmp_path.chmod(0o555)

    def work() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(DovetailError) as caught:
            kind.save(version(2), tmp_path)
        assert caught.value.code == "path.unwritable"

    assert os.waitpid(forked(work), 0)[1] == 0
    tmp_path.chmod(0o755)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664, 0o640])
def test_the_modes_of_files_are_kept(kind: Kind, mode: int, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    for path in tmp_path.iterdir():
        path.chmod(mode)
    before = os.umask(0o027)
    try:
        kind.save(version(2), tmp_path)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}
    assert version_of(tmp_path / kind.file) == 2


def test_saves_at_one_time_do_not_mix_their_files(kind: Kind, tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(8):
                kind.save(version(number), tmp_path)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 1, 2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / kind.file).exists():
            assert check_whole(kind, tmp_path, {1, 2}) == "whole"
    assert faults == []
    assert dovetail.load(tmp_path / kind.file, strict=True)
    assert left_behind(tmp_path) == []


@pair
def test_a_copy_of_a_pair_under_other_names_is_a_pair(kind: Kind, tmp_path: Path) -> None:
    kind.save(version(1), tmp_path)
    (tmp_path / "sub").mkdir()
    for path in [tmp_path / kind.file, side_file(kind, tmp_path)]:
        shutil.copy(path, tmp_path / "sub" / path.name)
    assert version_of(tmp_path / "sub" / kind.file) == 1
