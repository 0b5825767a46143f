"""Mappers in worker processes: one process of a host compiles, and the others map its plan and its packed weights."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import dovetail
import oracles
from dovetail.data.rows import worker_threads
from dovetail.data.rows.shared_program import default_cache_dir
from dovetail.ir.host import native_core
from row_models import F32, U8, assert_close, classifier, expected, mapper_of, rows_of, write

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="plans are of the native core")

WORKER = """
import pickle, sys
with open(sys.argv[1], "rb") as stream:
    mapper, columns = pickle.load(stream)
outputs = mapper.run_rows(columns, len(next(iter(columns.values())))).outputs
modules = [name for name in sys.modules if name.startswith(("dovetail.formats", "dovetail.ops", "dovetail.engine"))]
sizes = {line.split()[0]: int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private")}
with open(sys.argv[2], "wb") as stream:
    pickle.dump((outputs, type(mapper.program._program).__name__, modules, sum(sizes.values()) / 1024), stream)
print("done", flush=True)
sys.stdin.read()
"""


class Worker:
    """A process that maps rows and then waits, with its pages mapped."""

    def __init__(self, mapper: dovetail.Mapper, columns: dict[str, Any], folder: Path, number: int) -> None:
        self._result = folder / f"result-{number}"
        task = folder / f"task-{number}"
        task.write_bytes(pickle.dumps((mapper, columns)))
        command = [sys.executable, "-c", WORKER, str(task), str(self._result)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def result(self) -> Any:
        assert self._process.stdout is not None and self._process.stdout.readline() == "done\n"
        return pickle.loads(self._result.read_bytes())

    def end(self) -> None:
        self._process.communicate()


def deep(folder: Path) -> str:
    """Return a network of 32 MB of weights."""
    generator = np.random.default_rng(0)
    nodes, constants, name = [], {}, "x"
    for layer in range(8):
        constants[f"w{layer}"] = (generator.standard_normal((1024, 1024)) / 32).astype("f4")
        nodes += [
            helper.make_node("MatMul", [name, f"w{layer}"], [f"h{layer}"]),
            helper.make_node("Relu", [f"h{layer}"], [f"y{layer}"]),
        ]
        name = f"y{layer}"
    return write(folder / "deep.onnx", nodes, [("x", F32, ["n", 1024])], [(name, F32, ["n", 1024])], constants)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory of Linux")
def test_workers_after_the_first_load_no_model_and_share_its_weights(tmp_path: Path) -> None:
    path, x = deep(tmp_path), np.random.default_rng(1).standard_normal((10, 1024)).astype("f4")
    mapper = dovetail.Mapper(path, batch=4, threads=1, cache_dir=tmp_path / "plans")
    workers = []
    try:
        for number in range(2):
            workers.append(Worker(mapper, {"x": x}, tmp_path, number))
            outputs, kind, modules, private = workers[-1].result()
            assert_close(outputs, expected(path, {"x": x}))
            assert kind == "CachedProgram"
            if number:
                assert modules == []
                assert private < 40, f"{private:.0f} MB are this worker's alone"
    finally:
        for worker in workers:
            worker.end()


def test_only_one_of_the_workers_that_start_together_compiles(tmp_path: Path) -> None:
    path, x = deep(tmp_path), np.ones((4, 1024), "f4")
    mapper = dovetail.Mapper(path, batch=4, threads=1, cache_dir=tmp_path / "plans")
    workers = [Worker(mapper, {"x": x}, tmp_path, number) for number in range(3)]
    results = [worker.result() for worker in workers]
    for worker in workers:
        worker.end()
    assert sum(bool(modules) for _, _, modules, _ in results) == 1
    assert len({outputs["y7"].tobytes() for outputs, *_ in results}) == 1
    assert len(list((tmp_path / "plans").glob("*.plan"))) == 2


def conv(folder: Path) -> str:
    """Convolutions that are packed for direct summation and by Winograd's algorithm."""
    generator = np.random.default_rng(0)
    constants = {
        "w": generator.standard_normal((32, 3, 5, 5)).astype("f4"),
        "v": (generator.standard_normal((64, 32, 3, 3)) / 16).astype("f4"),
        "s": np.array(2, "f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], strides=[2, 2], pads=[2, 2, 2, 2]),
        helper.make_node("Conv", ["h", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return write(folder / "conv.onnx", nodes, [("x", F32, ["n", 3, 48, 48])], [("y", F32, ["n", 64, 24, 24])], constants)


def quantized(folder: Path) -> str:
    """Return an integer product, whose weights are packed in bytes."""
    weights = np.random.default_rng(0).integers(-128, 128, (96, 80)).astype("i1")
    constants = {"w": weights, "zx": np.array(3, "u1"), "zw": np.array(-5, "i1"), "s": np.array(0.01, "f4")}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["h"]),
        helper.make_node("Cast", ["h"], ["f"], to=F32),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    return write(folder / "quantized.onnx", nodes, [("x", U8, ["n", 96])], [("y", F32, ["n", 80])], constants)


@pytest.mark.parametrize("build", [classifier, conv, quantized])
def test_imported_weights_give_the_bits_of_packed_ones(tmp_path: Path, build: Any) -> None:
    path = build(tmp_path)
    (port,) = (mapper := mapper_of(path, batch=3)).signature.inputs
    generator = np.random.default_rng(2)
    x = generator.integers(0, 256, (7, *port.shape)).astype(port.dtype.numpy) if build is quantized else None
    x = generator.standard_normal((7, *port.shape)).astype("f4") if x is None else x
    packed = mapper({"x": x})
    for _ in range(2):
        # The second one imports what the first one wrote.
        forget_programs()
        imported = dovetail.Mapper(path, batch=3, threads=1, cache_dir=tmp_path / "plans")({"x": x})
        assert all(packed[name].tobytes() == imported[name].tobytes() for name in packed)
    assert count_packed(tmp_path / "plans") >= 1
    if build is quantized:
        oracles.skip_where_bytes_saturate()
    theirs = expected(path, {"x": x})
    for name, array in theirs.items():
        np.testing.assert_allclose(imported[name], array, rtol=1e-3, atol=1e-4)


def count_packed(folder: Path) -> int:
    """Return the number of packed weights in the entries of a folder."""
    from dovetail.storage.cache_folder import CacheFolder

    entries = [CacheFolder(folder).read(path.stem, b"") for path in folder.glob("*.plan")]
    return sum(len(entry.header.get("keys", ())) for entry in entries if entry is not None)


def forget_programs() -> None:
    from dovetail.data.rows import shared_program

    shared_program._programs.clear()


@pytest.mark.parametrize("harm", ["flip", "cut", "other keys", "remove"])
def test_packed_weights_that_are_damaged_are_not_used(tmp_path: Path, harm: str) -> None:
    from dovetail.storage.cache_folder import CacheFolder

    path, x = classifier(tmp_path), rows_of(5)
    folder = tmp_path / "plans"
    right = dovetail.Mapper(path, batch=4, threads=1, cache_dir=folder)({"x": x})
    cache = CacheFolder(folder)
    (packed,) = [file for file in folder.glob("*.plan") if "keys" in cache.read(file.stem, b"").header]
    data = bytearray(packed.read_bytes())
    if harm == "flip":
        data[-1] ^= 255
    if harm == "cut":
        del data[-64:]
    packed.unlink()
    if harm == "other keys":
        cache.write(packed.stem, {"keys": ["00", "zz"]}, [np.zeros(4, "u1")] * 2)
    elif harm != "remove":
        packed.write_bytes(data)
        packed.chmod(0o600)
    forget_programs()
    found = dovetail.Mapper(path, batch=4, threads=1, cache_dir=folder)({"x": x})
    assert all(found[name].tobytes() == right[name].tobytes() for name in right.keys())


def test_a_plan_that_cannot_be_written_delays_no_other_process(tmp_path: Path) -> None:
    """Strings run in Python: no plan is written, and the lock file notes it."""
    node = helper.make_node("Identity", ["x"], ["y"])
    path = write(tmp_path / "s.onnx", [node], [("x", 8, ["n"])], [("y", 8, ["n"])])
    folder = tmp_path / "plans"
    for _ in range(2):
        forget_programs()
        assert dovetail.Mapper(path, cache_dir=folder)({"x": ["a", "b"]})["y"].tolist() == ["a", "b"]
    assert [file.suffix for file in folder.iterdir()] == [".lock"] and next(folder.iterdir()).stat().st_size > 0


def test_compile_writes_the_plan_and_finds_a_changed_file(tmp_path: Path) -> None:
    mapper = dovetail.Mapper(classifier(tmp_path), threads=1, cache_dir=tmp_path / "plans")
    forget_programs()
    mapper.compile()
    assert len(list((tmp_path / "plans").glob("*.plan"))) == 2
    other = pickle.loads(pickle.dumps(mapper))
    forget_programs()
    Path(mapper.path).write_bytes(Path(mapper.path).read_bytes() + b"\x82\x01\x00")
    with pytest.raises(dovetail.FormatError, match=r"file\.changed"):
        other.compile()


def _double(mapper: dovetail.Mapper, x: Any) -> Any:
    return os.getpid(), mapper({"x": x})["scores"]


@pytest.mark.parametrize("method", [method for method in ("fork", "spawn") if method in multiprocessing.get_all_start_methods()])
def test_a_pool_of_processes_maps_rows(tmp_path: Path, method: str) -> None:
    path, x = classifier(tmp_path), rows_of(60)
    mapper = dovetail.Mapper(path, batch=10, cache_dir=tmp_path / "plans")
    mapper({"x": x})
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        parts = [pool.submit(mapper, {"x": x[start : start + 10]}) for start in range(0, 60, 10)]
        found = np.concatenate([part.result()["scores"] for part in parts])
        assert pool.submit(worker_threads.worker_thread_count, None).result() == 1
    np.testing.assert_allclose(found, expected(path, {"x": x})["scores"], rtol=1e-5, atol=1e-6)


def test_an_ordinary_process_uses_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.ir.host.threads import thread_count

    monkeypatch.delenv("DOVETAIL_THREADS", raising=False)
    code = "from dovetail.data.rows.worker_threads import worker_thread_count as count; print(count(None), count(3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(thread_count(None)), "3"]
    monkeypatch.setenv("DOVETAIL_THREADS", "5")
    assert worker_threads.worker_thread_count(None) == 5


def test_external_weights_are_part_of_the_content(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(classifier(tmp_path))
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    mapper, x = dovetail.Mapper(path, threads=1, cache_dir=tmp_path / "plans"), rows_of(3)
    assert set(mapper.files) == {"external.onnx", "weights.bin"}
    assert_close(mapper({"x": x}), expected(str(path), {"x": x}))
    weights = (
        numpy_helper.to_array(model.graph.initializer[0]) if model.graph.initializer[0].raw_data else np.zeros((12, 5), "f4")
    )
    (tmp_path / "weights.bin").write_bytes((np.asarray(weights) + 1).astype("f4").tobytes())
    other = dovetail.Mapper(path, threads=1, cache_dir=tmp_path / "plans")
    assert other.digest != mapper.digest
    forget_programs()
    with pytest.raises(dovetail.FormatError, match=r"file\.changed"):
        pickle.loads(pickle.dumps(mapper))({"x": x})


@pytest.mark.parametrize("harm", ["a file", "of others", "read-only"])
def test_a_folder_for_plans_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    """The default folder is left out; one that was named is an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path, x = classifier(tmp_path), rows_of(3)
    folder = Path(default_cache_dir())
    if harm == "a file":
        folder.touch()
    else:
        folder.mkdir(mode=0o777 if harm == "of others" else 0o700)
        folder.chmod(0o777 if harm == "of others" else 0o500)
    forget_programs()
    assert_close(dovetail.Mapper(path, threads=1)({"x": x}), expected(path, {"x": x}))
    if harm != "read-only":
        with pytest.raises(dovetail.EngineError, match=r"cache\.folder"):
            dovetail.Mapper(path, threads=1, cache_dir=tmp_path / "classifier-n.onnx")({"x": x})
