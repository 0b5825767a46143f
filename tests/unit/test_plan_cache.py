"""compile(cache_dir=...): the same results from a cached plan, and no trust in what others could have written."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter_program import InterpretedProgram
from dovetail.runtime.native_program import NativeProgram
from dovetail.runtime.plan_cache.cached_program import CachedProgram
from dovetail.storage import cache_folder as folder_module
from dovetail.storage.cache_folder import MAGIC, CacheFolder
from dovetail.storage.digest import COMPARED_BYTES, PIECE, BufferComparison, digest_of, digest_of_file

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


def network(seed: int = 0, size: int = 24) -> dovetail.Model:
    """Return a convolution, products, movement and a reduction over an open batch."""
    generator = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return b.constant((generator.standard_normal(shape) / 4).astype("f4"))

    with dovetail.Builder("network") as b:
        x = b.input("x", "f32", ("batch", 4, 12, 12))
        y = b.Relu(b.Conv(x, weights(size, 4, 3, 3), weights(size), pads=[1, 1, 1, 1]))
        y = b.Concat(y, b.Sigmoid(y), axis=1)
        y = b.ReduceMean(y, b.constant([2, 3]), keepdims=False)
        b.output("y", b.Softmax(b.MatMul(y, weights(2 * size, 10)), axis=1))
        b.output("top", b.ArgMax(y, axis=1))
    return b.model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    dovetail.save(network(), path)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def inputs(batch: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(batch).standard_normal((batch, 4, 12, 12)).astype("f4")


def start(path: Path, cache: Path, **options: Any) -> dovetail.Program:
    return dovetail.compile(path, cache_dir=cache, **options)


def assert_same(found: Any, expected: Any) -> None:
    assert list(found.keys()) == list(expected.keys())
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes()


def only_entry(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


def filled(file: Path, cache: Path, **options: Any) -> Path:
    start(file, cache, **options)(inputs())
    return only_entry(cache)


# The same program


@pytest.mark.parametrize("suffix", [".onnx", ".xml", ".dt"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_second_program_gives_the_same_bits_without_its_model(suffix: str, threads: int, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / f"model{suffix}"
    dovetail.save(network(), path)
    first = start(path, cache, threads=threads)
    expected = first(inputs())
    second = start(path, cache, threads=threads)
    assert type(first) is NativeProgram and type(second) is CachedProgram
    assert_same(second(inputs()), expected)
    assert_same(second({"x": inputs()}), expected)
    assert_same(second(x=inputs()), expected)
    assert not second.has_model


def test_a_shape_that_the_entry_lacks_compiles_the_model(file: Path, cache: Path) -> None:
    filled(file, cache)
    program, expected = start(file, cache), dovetail.compile(file)
    assert_same(program(inputs(5)), expected(inputs(5)))
    assert_same(program(inputs(2)), expected(inputs(2)))
    with pytest.raises(DovetailError) as error:
        program(np.zeros((1, 3, 12, 12), "f4"))
    with pytest.raises(DovetailError) as same:
        expected(np.zeros((1, 3, 12, 12), "f4"))
    assert str(error.value) == str(same.value)


@pytest.mark.parametrize("first_calls", [4, 1], ids=["of the first process", "of a later process"])
def test_an_entry_serves_all_sizes_of_a_range(first_calls: int, file: Path, cache: Path) -> None:
    batches = [2, 3, 4, 5]
    program = dovetail.compile(file, cache_dir=cache)
    for batch in batches[:first_calls]:
        program(inputs(batch))
    if first_calls < len(batches):
        later = dovetail.compile(file, cache_dir=cache)
        assert isinstance(later, CachedProgram)
        for batch in batches:
            later(inputs(batch))
    plain, cached = dovetail.compile(file), dovetail.compile(file, cache_dir=cache)
    for batch in (9, 2, 31, 9, 64):
        found, expected = cached(inputs(batch)), plain(inputs(batch))
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected.keys())
    assert isinstance(cached, CachedProgram) and not cached.has_model


def test_a_program_of_the_cache_has_all_that_a_program_has(file: Path, cache: Path) -> None:
    filled(file, cache)
    program, plain = start(file, cache), dovetail.compile(file)
    assert isinstance(program, dovetail.Program) and repr(program) == repr(plain)
    assert [value.name for value in program.inputs] == ["x"]
    assert [value.name for value in program.outputs] == ["y", "top"]
    out = {"y": np.empty((2, 10), "f4")}
    assert program(inputs(), out=out)["y"] is out["y"]
    assert_same(out, {"y": plain(inputs())["y"]})
    assert [list(results.keys()) for results in program.map([inputs(), inputs()])] == [["y", "top"]] * 2
    with pytest.raises(AttributeError):
        program.nothing  # type: ignore[attr-defined]  # noqa: B018
    program.close()
    with pytest.raises(EngineError) as error:
        program(inputs())
    assert error.value.code == "program.closed"


def test_a_process_that_starts_from_the_cache_imports_no_operator(file: Path, cache: Path) -> None:
    filled(file, cache)
    code = (
        "import sys, numpy, dovetail; p = dovetail.compile(sys.argv[1], cache_dir=sys.argv[2]);"
        "p(numpy.zeros((2, 4, 12, 12), 'f4')); print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code, file, cache], capture_output=True, text=True, check=True)
    loaded = {name for name in ended.stdout.split() if name.startswith("dovetail.")}
    services = ("dovetail.ir.host", "dovetail.ir.limits", "dovetail.ir.results", "dovetail.ir.dtypes", "dovetail.ir.suggestions")
    found = {name for name in loaded if name.startswith(("dovetail.ops", "dovetail.ir.", "dovetail.formats"))}
    assert {name for name in found if not name.startswith(services)} == set()


def test_the_variable_names_a_folder(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(cache))
    expected = dovetail.compile(file)(inputs())
    assert_same(dovetail.compile(file)(inputs()), expected)
    assert only_entry(cache)
    assert type(dovetail.compile(dovetail.load(file))) is NativeProgram
    assert type(dovetail.compile(file, engine="interpreter")) is InterpretedProgram


# Keys


@pytest.mark.parametrize(
    "change",
    [{"threads": 1}, {"elide": "none"}, {"limits": dovetail.Limits(nodes=10_000)}, {"limits": dovetail.Limits(memory=1 << 30)}],
    ids=str,
)
def test_other_options_are_other_entries(change: dict[str, Any], file: Path, cache: Path) -> None:
    filled(file, cache, threads=2)
    program = start(file, cache, **{"threads": 2, **change})
    assert type(program) is NativeProgram
    program(inputs())
    assert len(list(cache.iterdir())) == 2


def test_another_content_of_the_same_size_and_time_is_another_entry(file: Path, cache: Path) -> None:
    filled(file, cache)
    before = file.stat()
    dovetail.save(network(seed=1), file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert_same(start(file, cache)(inputs()), dovetail.compile(file)(inputs()))
    assert len(list(cache.iterdir())) == 2


def test_a_copy_of_the_file_shares_the_entry(file: Path, cache: Path, tmp_path: Path) -> None:
    filled(file, cache)
    other = tmp_path / "other.onnx"
    other.write_bytes(file.read_bytes())
    assert type(start(other, cache)) is CachedProgram


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_changed_external_weights_are_detected(suffix: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / f"model{suffix}"
    options = {"external": True} if suffix == ".onnx" else {}
    dovetail.save(network(), path, **options)
    filled(path, cache)
    assert type(start(path, cache)) is CachedProgram
    (side,) = [each for each in tmp_path.iterdir() if each.is_file() and each != path]
    content = bytearray(side.read_bytes())
    content[-4:] = np.float32(7).tobytes()
    side.write_bytes(content)
    assert type(start_or_error(path, cache)) is not CachedProgram


def start_or_error(path: Path, cache: Path) -> Any:
    try:
        return start(path, cache)
    except DovetailError as error:
        return error


def test_a_model_that_changed_under_a_program_is_not_mixed_with_it(file: Path, cache: Path) -> None:
    filled(file, cache)
    program = start(file, cache)
    expected = program(inputs())
    dovetail.save(network(seed=3), file)
    assert_same(program(inputs()), expected)
    with pytest.raises(DovetailError) as error:
        program(inputs(7))
    assert error.value.code == "file.changed"


def test_a_file_that_changes_before_its_plan_is_written_is_not_cached(file: Path, cache: Path) -> None:
    program = start(file, cache)
    dovetail.save(network(seed=4), file)
    program(inputs())
    assert not list(cache.iterdir())


def test_a_file_with_warnings_is_read_again(cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tmp_path / "model.onnx"
    dovetail.save(network(), model)
    proto = onnx.load(str(model))
    proto.graph.node[-1].output.append("")
    onnx.save(proto, str(model))
    assert dovetail.load(model).warnings
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "dovetail"):
            start(model, cache)(inputs())
        assert caplog.records
    assert not list(cache.iterdir())


def test_steps_in_python_are_not_cached(tmp_path: Path, cache: Path) -> None:
    with dovetail.Builder("open") as b:
        b.output("y", b.NonZero(b.input("x", "f32", ("n",))))
    dovetail.save(b.model, tmp_path / "model.onnx")
    x = np.array([0, 1, 2], "f4")
    for _ in range(2):
        np.testing.assert_array_equal(start(tmp_path / "model.onnx", cache)(x)["y"], [[1, 2]])
    assert not list(cache.iterdir())


def test_outputs_that_are_maps_are_not_cached(tmp_path: Path, cache: Path) -> None:
    with dovetail.Builder("classes") as b:
        scores = b.Softmax(b.input("x", "f32", (2, 3)), axis=1)
        b.output("y", b.ZipMap(scores, classlabels_int64s=(1, 2, 3)))
    dovetail.save(b.model, tmp_path / "model.onnx")
    x = np.ones((2, 3), "f4")
    assert [start(tmp_path / "model.onnx", cache)(x)["y"] for _ in range(2)] == [dovetail.run(b.model, x)["y"]] * 2
    assert not list(cache.iterdir())


# Trust


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "magic alone": lambda data: data[: len(MAGIC)],
    "longer": lambda data: data + b"\0",
    "first byte": lambda data: b"D" + data[1:],
    "digest": lambda data: data[: len(MAGIC)] + bytes(32) + data[len(MAGIC) + 32 :],
    "header": lambda data: data[:100] + b"\x7f" + data[101:],
    "weights": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "a pickle": lambda data: b"cposix\nsystem\n(S'touch hacked'\ntR.",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_is_ignored_and_written_again(kind: str, file: Path, cache: Path) -> None:
    entry = filled(file, cache)
    good = entry.read_bytes()
    entry.write_bytes(DAMAGE[kind](good))
    program = start(file, cache)
    assert type(program) is NativeProgram
    assert_same(program(inputs()), dovetail.compile(file)(inputs()))
    assert entry.read_bytes() == good
    assert type(start(file, cache)) is CachedProgram


def signed(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return an entry with another header and a right digest, as its owner could write it."""
    begin = len(MAGIC) + 48
    length = int.from_bytes(data[begin - 16 : begin - 8], "little")
    header = json.loads(data[begin : begin + length])
    offsets, end = [], begin + length
    for size in header["blobs"]:
        end += -end % 64
        offsets.append((end, size))
        end += size
    change(header)
    text = json.dumps(header).encode()
    body = bytearray(len(text).to_bytes(8, "little") + bytes(8) + text)
    for offset, size in offsets:
        body += bytes(-(len(MAGIC) + 32 + len(body)) % 64) + data[offset : offset + size]
    body[8:16] = (len(MAGIC) + 32 + len(body)).to_bytes(8, "little")
    return MAGIC + digest_of(body) + bytes(body)


def first_constant(header: dict[str, Any]) -> list[Any]:
    return next(row for step in header["steps"] for row in step[1] if row[6] >= 0)


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no steps": lambda header: header.pop("steps"),
    "steps of another kind": lambda header: header.update(steps=7),
    "an unknown kernel": lambda header: header["steps"][0].__setitem__(0, "system"),
    "an arena beyond memory": lambda header: header.update(arena=1 << 62),
    "a negative arena": lambda header: header.update(arena=-1),
    "a small arena": lambda header: header.update(arena=64),
    "an offset before a buffer": lambda header: header["steps"][0][1][0].__setitem__(1, -4096),
    "an offset behind a buffer": lambda header: header["steps"][0][1][0].__setitem__(1, 1 << 40),
    "a buffer that is none": lambda header: header["steps"][0][1][0].__setitem__(0, 99),
    "a stride beyond a buffer": lambda header: header["steps"][0][1][0].__setitem__(5, [1 << 40] * 4),
    "sizes beyond a buffer": lambda header: header["steps"][0][1][0].__setitem__(4, [1 << 20] * 4),
    "a blob that is none": lambda header: first_constant(header).__setitem__(6, 1000),
    "an offset beyond a blob": lambda header: first_constant(header).__setitem__(7, 1 << 40),
    "an offset before a blob": lambda header: first_constant(header).__setitem__(7, -64),
    "blobs beyond the file": lambda header: header.update(blobs=[1 << 40]),
    "a negative blob": lambda header: header.update(blobs=[-1]),
    "an input of objects": lambda header: header["inputs"][0].__setitem__(1, "|O"),
    "an input of no type": lambda header: header["inputs"][0].__setitem__(1, "what"),
    "an input of huge size": lambda header: header["inputs"][0].__setitem__(2, [1 << 40, 1 << 40]),
    "a negative size": lambda header: header["inputs"][0].__setitem__(2, [-1]),
    "a file outside": lambda header: header.update(files=[["../../etc/passwd", "00"]]),
    "an absolute file": lambda header: header.update(files=[["/etc/passwd", "00"]]),
    "files of another kind": lambda header: header.update(files=[3]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_entry_with_a_right_digest_is_ignored(kind: str, file: Path, cache: Path) -> None:
    entry = filled(file, cache)
    entry.write_bytes(signed(entry.read_bytes(), WRONG[kind]))
    program = start(file, cache)
    assert type(program) is NativeProgram
    assert_same(program(inputs()), dovetail.compile(file)(inputs()))
    assert type(start(file, cache)) is CachedProgram


def range_of(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = header["ranges"][0]
    return found


def first_write(header: dict[str, Any]) -> list[Any]:
    row: list[Any] = range_of(header)["steps"][0][2][0]
    return row


WRONG_RANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no symbols": lambda header: range_of(header).update(symbols=[]),
    "a symbol of no axis": lambda header: range_of(header).update(symbols=[[0, 9, 2, 4095, 1]]),
    "a step of 0": lambda header: range_of(header).update(symbols=[[0, 0, 2, 4095, 0]]),
    "sizes before the first": lambda header: range_of(header).update(symbols=[[0, 0, 100, 4095, 1]]),
    "orders of no symbol": lambda header: range_of(header).update(orders=[[1, 1]] * len(range_of(header)["orders"])),
    "an endless order": lambda header: range_of(header).update(orders=[[1 << 60]] * len(range_of(header)["orders"])),
    "a number that is none": lambda header: range_of(header)["varying"].append([1 << 40, [1]]),
    "numbers out of order": lambda header: range_of(header)["varying"].reverse(),
    "a number without differences": lambda header: range_of(header)["varying"][0].__setitem__(1, []),
    "a write into an input": lambda header: first_write(header).__setitem__(0, 1),
    "an offset behind a buffer": lambda header: first_write(header).__setitem__(1, 1 << 40),
    "an offset before a buffer": lambda header: first_write(header).__setitem__(1, -64),
    "negative parts": lambda header: range_of(header)["parts"][0][0].__setitem__(0, -(1 << 40)),
    "huge parts": lambda header: range_of(header)["parts"][0][0].__setitem__(0, 1 << 60),
    "huge results": lambda header: range_of(header)["outputs"][0][0].__setitem__(0, 1 << 40),
    "negative results": lambda header: range_of(header)["outputs"][0][0].__setitem__(0, -5),
    "an unknown kernel": lambda header: range_of(header)["steps"][0].__setitem__(0, "system"),
    "no steps": lambda header: range_of(header).pop("steps"),
    "a range of another kind": lambda header: header.update(ranges=[7]),
}


@pytest.mark.parametrize("kind", WRONG_RANGES)
def test_a_wrong_range_of_an_entry_is_not_used(kind: str, file: Path, cache: Path) -> None:
    program = dovetail.compile(file, cache_dir=cache)
    for batch in (2, 3, 4):
        program(inputs(batch))
    (entry,) = cache.iterdir()
    entry.write_bytes(signed(entry.read_bytes(), WRONG_RANGES[kind]))
    program = start(file, cache)
    for batch in (2, 7, 30):
        assert_same(program(inputs(batch)), dovetail.compile(file)(inputs(batch)))
    assert type(program) is NativeProgram or getattr(program, "has_model", False)


def test_an_entry_signed_without_a_change_is_used(file: Path, cache: Path) -> None:
    entry = filled(file, cache)
    entry.write_bytes(signed(entry.read_bytes(), lambda header: None))
    assert type(start(file, cache)) is CachedProgram


# Weights that are those of the model file


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is mapped, as larger ones are; three of its constants are compared with it."""
    monkeypatch.setattr("dovetail.storage.files.MIN_MAPPED_SIZE", 1)
    monkeypatch.setattr("dovetail.runtime.plan_cache.cached_program.MIN_COPY", 256)
    path = tmp_path / "wide.onnx"
    dovetail.save(network(size=4096), path)
    return path


def parts_of(data: bytes) -> tuple[dict[str, Any], int, int]:
    """Return the header of an entry, its length and the end of what the digest covers."""
    begin = len(MAGIC) + 48
    length, covered = (int.from_bytes(data[at : at + 8], "little") for at in (begin - 16, begin - 8))
    return json.loads(data[begin : begin + length]), length, covered


@pytest.mark.parametrize("threads", [1, 2])
def test_large_weights_are_compared_with_the_model_file(threads: int, wide: Path, cache: Path) -> None:
    entry = filled(wide, cache, threads=threads)
    data = entry.read_bytes()
    header, _, covered = parts_of(data)
    sources = [(size, source) for size, source in zip(header["blobs"], header["sources"], strict=True) if source >= 0]
    assert len(sources) == 3 and covered < len(data)
    content = wide.read_bytes()
    assert all(content[source : source + size] in data[covered:] for size, source in sources)
    program = start(wide, cache, threads=threads)
    assert type(program) is CachedProgram
    assert_same(program(inputs()), dovetail.compile(wide, threads=threads)(inputs()))


def test_every_byte_of_compared_weights_counts(wide: Path, cache: Path) -> None:
    entry = filled(wide, cache)
    good = entry.read_bytes()
    header, _, end = parts_of(good)
    places = []
    for size, source in zip(header["blobs"], header["sources"], strict=True):
        if source >= 0:
            end += -end % 64
            places += [end, end + 1, end + size // 2, end + size - 1]
            end += size
    assert end == len(good)
    for place in places:
        entry.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        program = start(wide, cache)
        assert type(program) is NativeProgram
        program(inputs())
        assert entry.read_bytes() == good
    for wrong in (good[:-1], good + b"\0"):
        entry.write_bytes(wrong)
        assert type(start(wide, cache)) is NativeProgram


SOURCES: dict[str, Callable[[list[int]], Any]] = {
    "beyond the file": lambda sources: [source if source < 0 else 1 << 40 for source in sources],
    "beyond any file": lambda sources: [source if source < 0 else 1 << 80 for source in sources],
    "elsewhere in the file": lambda sources: [source if source < 0 else 0 for source in sources],
    "negative": lambda sources: [min(source, -2) for source in sources],
    "of the digest": lambda sources: [-1] * len(sources),
    "too few": lambda sources: sources[:-1],
    "none": lambda sources: None,
    "booleans": lambda sources: [True] * len(sources),
    "fractions": lambda sources: [0.5] * len(sources),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_wrong_source_of_weights_is_ignored(kind: str, wide: Path, cache: Path) -> None:
    entry = filled(wide, cache)
    data = entry.read_bytes()
    header, length, covered = parts_of(data)
    begin = len(MAGIC) + 32
    for room in (0, 64 * len(header["sources"])):
        text = json.dumps({**header, "sources": SOURCES[kind](header["sources"])}, separators=(",", ":")).encode()
        text = text.ljust(length + room)
        body = len(text).to_bytes(8, "little") + (covered + room).to_bytes(8, "little") + text
        body += data[begin + 16 + length : covered]
        entry.write_bytes(MAGIC + digest_of(body) + body + data[covered:])
        program = start(wide, cache)
        assert type(program) is NativeProgram
    assert_same(program(inputs()), dovetail.compile(wide)(inputs()))


@pytest.mark.parametrize("change", [0, 1, 1 << 40])
def test_a_wrong_end_of_the_digest_is_ignored(change: int, wide: Path, cache: Path) -> None:
    entry = filled(wide, cache)
    data = bytearray(entry.read_bytes())
    begin = len(MAGIC) + 32
    end = parts_of(bytes(data))[2] + change if change else 0
    data[begin + 8 : begin + 16] = end.to_bytes(8, "little")
    data[len(MAGIC) : begin] = digest_of(data[begin:end])
    entry.write_bytes(data)
    assert type(start(wide, cache)) is NativeProgram


def test_a_comparison_sees_every_byte() -> None:
    data = np.frombuffer(np.random.default_rng(0).bytes(2 * PIECE + 13), np.uint8)
    copy = np.empty(data.size + 3, np.uint8)[3:]
    copy[:] = data
    assert (
        BufferComparison([(data, copy)]).is_equal()
        and BufferComparison([]).is_equal()
        and BufferComparison([(data[:0], copy[:0])]).is_equal()
    )
    assert not BufferComparison([(data, copy[:-1])]).is_equal() and not BufferComparison([(data[:-1], copy)]).is_equal()
    for index in (0, 7, 8, COMPARED_BYTES - 1, COMPARED_BYTES, PIECE - 1, PIECE, data.size - 9, data.size - 1):
        copy[index] ^= 1
        assert not BufferComparison([(data, copy)]).is_equal()
        assert not BufferComparison([(data[:3], data[:3]), (copy, data)]).is_equal()
        copy[index] ^= 1


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")


@posix
def test_the_folder_and_its_entries_are_for_their_user_alone(file: Path, cache: Path) -> None:
    entry = filled(file, cache)
    assert cache.stat().st_mode & 0o777 == 0o700 and entry.stat().st_mode & 0o777 == 0o600


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_refused(mode: int, file: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(EngineError) as error:
        start(file, cache)
    assert error.value.code == "cache.folder"


def test_a_path_that_is_no_folder_is_refused(file: Path) -> None:
    for path in (file, file / "below", "nul\0"):
        with pytest.raises(EngineError) as error:
            dovetail.compile(file, cache_dir=path)
        assert error.value.code == "cache.folder"


@posix
def test_an_entry_that_others_may_write_is_ignored(file: Path, cache: Path) -> None:
    filled(file, cache).chmod(0o622)
    assert type(start(file, cache)) is NativeProgram


@posix
def test_an_entry_of_another_user_is_ignored(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = filled(file, cache)
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        info = real(descriptor)
        return os.stat_result((*info[:4], info.st_uid + 1, *info[5:])) if info.st_ino == entry.stat().st_ino else info

    monkeypatch.setattr(os, "fstat", fstat)
    assert type(start(file, cache)) is NativeProgram


@posix
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_an_entry_that_is_no_file_is_ignored(kind: str, file: Path, cache: Path, tmp_path: Path) -> None:
    entry = filled(file, cache)
    moved = tmp_path / "moved"
    entry.rename(moved)
    {"link": lambda: entry.symlink_to(moved), "fifo": lambda: os.mkfifo(entry), "folder": entry.mkdir}[kind]()
    program = start(file, cache)
    assert type(program) is NativeProgram
    program(inputs())


def test_an_entry_that_cannot_be_written_changes_nothing(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert_same(start(file, cache)(inputs()), dovetail.compile(file)(inputs()))
    assert not list(cache.iterdir())


def test_the_folder_stays_below_its_size(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        path = tmp_path / f"{seed}.onnx"
        dovetail.save(network(seed), path)
        start(path, cache)(inputs())
        for age, entry in enumerate(sorted(cache.glob("*.plan"), key=lambda each: each.stat().st_mtime_ns)):
            os.utime(entry, (age, age))
        if seed == 1:
            size = max(entry.stat().st_size for entry in cache.iterdir())
            monkeypatch.setattr(folder_module, "MAX_FOLDER_BYTES", 3 * size)
            (cache / "other.txt").write_text("mine")
    assert len(list(cache.glob("*.plan"))) == 3
    assert (cache / "other.txt").read_text() == "mine"
    assert type(start(tmp_path / "4.onnx", cache)) is CachedProgram


def test_digests_depend_on_every_byte_and_on_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).bytes(2 * PIECE + 5)
    path = tmp_path / "data"
    path.write_bytes(data)
    found = digest_of(data)
    assert digest_of_file(str(path)) == found
    monkeypatch.setattr("dovetail.storage.digest._processors", lambda: 1)
    assert digest_of(data) == found
    for index in (0, PIECE - 1, PIECE, len(data) - 1):
        assert digest_of(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]) != found
    assert digest_of(data[:-1]) != found and digest_of(data + b"\0") != found and digest_of(b"") != found
    assert digest_of_file(str(tmp_path / "none")) is None and digest_of_file(str(tmp_path)) is None


def test_an_entry_contains_no_path_of_the_machine(file: Path, cache: Path) -> None:
    assert str(file.parent).encode() not in filled(file, cache).read_bytes()


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    assert CacheFolder(tmp_path / "a" / "b").read("0" * 64) is None
