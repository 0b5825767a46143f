"""Pass a model with gigabytes of weights through every command, and measure its anonymous memory and its speed.

    python bench/large_model.py [--gigabytes N] [--folder DIR] [--address-space GB] [--steps NAME[,NAME...]] [--json]

The model is made in the folder: blocks of two matrix products with a residual sum and a reshape that contains the batch,
as ONNX with external data. Each step is a process of its own; its anonymous memory (RssAnon) and file-backed memory
(RssFile) are read from /proc while it runs. ``--address-space`` sets RLIMIT_AS (``ulimit -v``) of each step. Every result
must contain the same weights as the model: SHA-256 of each tensor that the file names. Needs three times the space of the model.
The step "fold" simplifies a model of its own, whose matrices change: factors per channel become part of them, and the
products of one input become one. Before each step that writes, ``cp`` copies as many bytes on the same disk, and both times
include the flush to the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, save

HIDDEN = 2048
INNER = 8192
HEADS = 16
STEPS = 4
"""The length of the sequence."""
MATRIX = HIDDEN * INNER * 4
"""The bytes of one weight matrix; a block has two."""
POLL = 0.002
"""Seconds between two reads of /proc."""


@dataclass
class Measured:
    """One step: its peak memory in MB, its time beside that of ``cp``, and what differs."""

    step: str
    anonymous: float
    mapped: float
    seconds: float
    copy_seconds: float | None
    fault: str

    @property
    def speed(self) -> float | None:
        return None if self.copy_seconds is None else self.copy_seconds / self.seconds


def make(path: Path, gigabytes: float) -> None:
    """Write the model: every matrix has other content, so that none is shared."""
    blocks = max(1, round(gigabytes * 1e9 / (2 * MATRIX)))
    pattern = np.random.default_rng(0).standard_normal(HIDDEN * INNER, np.float32) / np.float32(HIDDEN)
    nodes, tensors, offset = [], [], 0
    four, three = np.array([1, STEPS, HEADS, HIDDEN // HEADS]), np.array([1, STEPS, HIDDEN])
    tensors += [helper.make_tensor(name, TensorProto.INT64, [len(v)], v) for name, v in (("four", four), ("three", three))]
    value = "x"
    with open(f"{path}.data", "wb") as stream:
        for block in range(blocks):
            for index, shape in enumerate(((HIDDEN, INNER), (INNER, HIDDEN))):
                pattern[:2] = block, index
                pattern.tofile(stream)
                tensor = TensorProto(name=f"w{block}.{index}", data_type=TensorProto.FLOAT, dims=shape)
                tensor.data_location = TensorProto.EXTERNAL
                for key, text in (("location", f"{path.name}.data"), ("offset", offset), ("length", MATRIX)):
                    entry = tensor.external_data.add()
                    entry.key, entry.value = key, str(text)
                tensors.append(tensor)
                offset += MATRIX
            names = [f"{kind}{block}" for kind in ("a", "relu", "b", "sum", "same", "heads", "turned", "back", "joined")]
            a, relu, b, total, same, heads, turned, back, joined = names
            nodes += [
                helper.make_node("MatMul", [value, f"w{block}.0"], [a]),
                helper.make_node("Relu", [a], [relu]),
                helper.make_node("MatMul", [relu, f"w{block}.1"], [b]),
                helper.make_node("Add", [value, b], [total]),
                helper.make_node("Identity", [total], [same]),
                helper.make_node("Reshape", [same, "four"], [heads]),
                helper.make_node("Transpose", [heads], [turned], perm=[0, 2, 1, 3]),
                helper.make_node("Transpose", [turned], [back], perm=[0, 2, 1, 3]),
                helper.make_node("Reshape", [back, "three"], [joined]),
            ]
            value = joined
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, STEPS, HIDDEN]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "large", ports[:1], ports[1:], initializer=tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def make_foldable(path: Path, gigabytes: float) -> Counter[str]:
    """Write a model of products with factors per channel, and of products of one input. Returns the digests of the matrices that
    folding gives."""
    blocks = max(1, round(gigabytes * 1e9 / (2 * MATRIX)))
    draw = np.random.default_rng(1)
    pattern = draw.standard_normal(HIDDEN * INNER, np.float32) / np.float32(HIDDEN)
    factor = draw.uniform(0.5, 2, INNER).astype(np.float32)
    nodes, tensors, offset, value = [], [helper.make_tensor("factor", TensorProto.FLOAT, [INNER], factor)], 0, "x"
    expected: Counter[str] = Counter()

    def add(stream: Any, name: str, data: np.ndarray[Any, Any]) -> None:
        nonlocal offset
        data.tofile(stream)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=data.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", f"{path.name}.data"), ("offset", offset), ("length", data.nbytes)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(text)
        tensors.append(tensor)
        offset += data.nbytes

    with open(f"{path}.data", "wb") as stream:
        for block in range(blocks):
            wide = pattern.reshape(HIDDEN, INNER)
            # No two matrices are equal.
            wide[0, ::HIDDEN] = block
            add(stream, f"w{block}", wide)
            parts = np.split(wide, 4, axis=1)
            for index, part in enumerate(parts):
                add(stream, f"p{block}.{index}", np.ascontiguousarray(part))
            scaled = (wide.astype(np.float64) * factor).astype(np.float32)
            expected[hashlib.sha256(np.concatenate([wide, scaled], axis=1)).hexdigest()] += 1
            nodes += [
                helper.make_node("MatMul", [value, f"w{block}"], [f"a{block}"]),
                helper.make_node("Mul", [f"a{block}", "factor"], [f"b{block}"]),
                helper.make_node("ReduceMax", [f"b{block}"], [f"c{block}"], axes=[-1]),
                *(helper.make_node("MatMul", [value, f"p{block}.{part}"], [f"p{block}.{part}.y"]) for part in range(4)),
                helper.make_node("Sum", [f"c{block}", *(f"p{block}.{part}.y" for part in range(4))], [f"y{block}"]),
            ]
            value = f"y{block}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, STEPS, HIDDEN]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "foldable", ports[:1], ports[1:], initializer=tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return expected


def fold(folder: Path, gigabytes: float, address_space: float | None) -> Measured:
    """Simplify a foldable model, and compare every matrix of the result with the one that numpy computes."""
    (folder / "foldable").mkdir()
    model, target = folder / "foldable" / "large.onnx", folder / "folded.onnx"
    expected = make_foldable(model, gigabytes)
    copied = copy_seconds(model, folder)
    command = [sys.executable, "-m", "dovetail", "simplify", str(model), "-o", str(target)]
    anonymous, mapped, seconds, fault = measure(command, address_space)
    if not fault and digests(target) != expected:
        fault = "the folded weights differ from numpy's"
    return Measured("fold", anonymous, mapped, seconds, copied, fault)


def stored_weights(path: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield file, offset and length of every matrix that a model file names."""
    if path.suffix == ".xml":
        from xml.etree import ElementTree

        for data in ElementTree.parse(path).getroot().iterfind("layers/layer/data[@offset]"):
            if int(data.get("size", 0)) == MATRIX:
                yield path.with_suffix(".bin"), int(data.get("offset", 0)), MATRIX
        return
    import onnx

    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            yield path.parent / place["location"], int(place.get("offset", 0)), int(place["length"])


def digests(path: Path) -> Counter[str]:
    """Return the digests of all matrices of a model file."""
    found: Counter[str] = Counter()
    if path.suffix == ".onnx":
        import onnx

        for tensor in onnx.load(path, load_external_data=False).graph.initializer:
            if len(tensor.raw_data) == MATRIX:
                found[hashlib.sha256(tensor.raw_data).hexdigest()] += 1
    for file, offset, length in stored_weights(path):
        with open(file, "rb") as stream:
            stream.seek(offset)
            found[hashlib.sha256(stream.read(length)).hexdigest()] += 1
    return found


def measure(command: list[str], address_space: float | None) -> tuple[float, float, float, str]:
    """Run a process; return its peaks of anonymous and mapped memory in MB, its seconds, and its error."""
    limit = None if address_space is None else int(address_space * 2**30)

    def bound() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=bound)
        anonymous = mapped = 0
        while process.poll() is None:
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            except OSError:
                break
            fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
            anonymous = max(anonymous, int(fields.get("RssAnon", 0)))
            mapped = max(mapped, int(fields.get("RssFile", 0)))
            time.sleep(POLL)
        code = process.wait()
        seconds = time.perf_counter() - start
        errors.seek(0)
        text = errors.read().strip()
    return anonymous / 1e3, mapped / 1e3, seconds, "" if code == 0 else f"exit {code}: {text[-300:]}"


def copy_seconds(model: Path, folder: Path) -> float:
    """Return the seconds that ``cp`` takes for the model's files, with the flush to the disk."""
    target = folder / "copy"
    target.mkdir()
    start = time.perf_counter()
    for file in (model, Path(f"{model}.data")):
        subprocess.run(["cp", "--reflink=never", file, target], check=True)
    subprocess.run(["sync", *target.iterdir()], check=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def steps(model: Path, folder: Path, blocks: int) -> dict[str, tuple[list[str], Path | None, Path | None]]:
    """Per step: the arguments after ``python``, the file that it writes, and the file whose weights that must contain."""
    cli = ["-m", "dovetail"]
    half = f"joined{blocks // 2}"
    ir, back = folder / "ir.xml", folder / "back.onnx"
    return {
        "load": (["-c", f"import dovetail; print(dovetail.load({str(model)!r}))"], None, None),
        "save": (["-c", f"import dovetail; dovetail.save(dovetail.load({str(model)!r}), {str(folder / 'saved.onnx')!r})"],
                 folder / "saved.onnx", model),
        "infer": ([*cli, "infer", str(model), "-o", str(folder / "inferred.onnx")], folder / "inferred.onnx", model),
        "simplify": ([*cli, "simplify", str(model), "-o", str(folder / "simple.onnx")], folder / "simple.onnx", model),
        "rebatch": ([*cli, "rebatch", str(model), "--dim", "0=batch", "-o", str(folder / "batch.onnx")],
                    folder / "batch.onnx", model),
        "extract": ([*cli, "extract", str(model), "--from", "joined0", "--to", half, "-o", str(folder / "part.onnx")],
                    folder / "part.onnx", None),
        "to IR": ([*cli, "convert", str(model), str(ir)], ir, model),
        "to ONNX": ([*cli, "convert", str(ir), str(back)], back, model),
    }  # fmt: skip


def run(
    model: Path, folder: Path, blocks: int, chosen: list[str], gigabytes: float, address_space: float | None
) -> Iterator[Measured]:
    whole = digests(model)
    for name, (arguments, target, origin) in steps(model, folder, blocks).items():
        if chosen and name not in chosen:
            continue
        copied = copy_seconds(model, folder) if origin is not None else None
        anonymous, mapped, seconds, fault = measure([sys.executable, *arguments], address_space)
        if not fault and target is not None:
            result = digests(target)
            if origin is not None and result != whole:
                fault = f"the weights differ: {sum((whole - result).values())} of {whole.total()} are missing"
            elif origin is None and (not result or result - whole):
                fault = f"the part has {result.total()} matrices, {sum((result - whole).values())} of them changed"
        left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        if left:
            fault += f" left behind: {', '.join(left)}"
        yield Measured(name, anonymous, mapped, seconds, copied, fault)
        if target is not None and name != "to IR":
            for file in folder.glob(f"{target.stem}.*"):
                file.unlink()
    if not chosen or "fold" in chosen:
        shutil.rmtree(model.parent)
        yield fold(folder, gigabytes, address_space)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--address-space", type=float, metavar="GB")
    parser.add_argument("--steps", default="")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = [name for name in arguments.steps.split(",") if name]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        (folder / "model").mkdir()
        model = folder / "model" / "large.onnx"
        make(model, arguments.gigabytes)
        blocks = os.path.getsize(f"{model}.data") // (2 * MATRIX)
        if not arguments.json:
            print(f"{os.path.getsize(f'{model}.data') / 1e9:.2f} GB of weights in {blocks} blocks")
            print(f"{'step':10} {'anonymous MB':>13} {'mapped MB':>10} {'seconds':>8} {'of cp':>6}")
        for row in run(model, folder, blocks, chosen, arguments.gigabytes, arguments.address_space):
            rows.append({**asdict(row), "speed": row.speed})
            if not arguments.json:
                speed = "" if row.speed is None else f"{row.speed:.2f}"
                figures = f"{row.anonymous:13.0f} {row.mapped:10.0f} {row.seconds:8.1f} {speed:>6}"
                print(f"{row.step:10} {figures} {row.fault}", flush=True)
    if arguments.json:
        print(json.dumps(rows))
    return int(any(row["fault"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
