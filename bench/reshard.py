"""Reshard a tensor-parallel checkpoint of 8 files into 4, beside ``cp`` of the same bytes on the same disk.

    python bench/reshard.py [--gigabytes N] [--folder DIR] [--rounds N] [--memory SIZE] [--keep] [--verify] [--json]

The checkpoint is that of a decoder: queries, keys and values of each layer are fused, the second matrix of each feed-forward
block is transposed, the other tensors are joined along their axis of the split. Each run is a process of its own whose peak
resident memory (VmHWM) is read at its end. Before each run the page cache is dropped where the system allows that; both times
include the flush to the disk. ``cp`` and dovetail alternate; the ratio is that of the medians. ``--keep`` leaves the checkpoint
in the folder and uses it again. ``--verify`` compares every tensor with numpy's result. Needs twice the space of the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

import dovetail

RANKS, PARTS = 8, 4
HIDDEN, INNER, VOCABULARY = 8192, 28672, 128256
AXES = {"embed": 0, "q": 0, "k": 0, "v": 0, "o": 1, "gate": 0, "up": 0, "down": 1}
"""The axis along which the ranks split each tensor."""
BLOCK = 64 << 20


def shapes(layers: int, scale: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each tensor of one rank."""
    hidden, inner, vocabulary = HIDDEN // scale, INNER // scale, VOCABULARY // scale // RANKS * RANKS
    sizes = {"q": (hidden // RANKS, hidden), "k": (hidden // RANKS, hidden), "v": (hidden // RANKS, hidden)}
    sizes |= {"o": (hidden, hidden // RANKS), "gate": (inner // RANKS, hidden), "up": (inner // RANKS, hidden)}
    sizes |= {"down": (hidden, inner // RANKS)}
    rows = {"embed": (vocabulary // RANKS, hidden)}
    return rows | {f"{layer}.{name}": shape for layer in range(layers) for name, shape in sizes.items()}


def write_checkpoint(folder: Path, layers: int, scale: int) -> None:
    """Write random bits as bf16, a file per rank."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, BLOCK + (1 << 20), np.uint8)
    for rank in range(RANKS):
        header: dict[str, Any] = {}
        end = 0
        for name, shape in shapes(layers, scale).items():
            start, end = end, end + 2 * shape[0] * shape[1]
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / f"rank-{rank:02}.safetensors", "wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for number, size in enumerate([*[BLOCK] * (end // BLOCK), end % BLOCK]):
                shift = (number * RANKS + rank) * 4099 % (1 << 20)
                stream.write(noise[shift : shift + size].data)


def graph(layers: int, scale: int) -> dovetail.Model:
    b = dovetail.Builder("merge")
    values = {
        name: [b.input(f"input:{name}@{rank}", "bf16", shape) for rank in range(RANKS)]
        for name, shape in shapes(layers, scale).items()
    }
    step = RANKS // PARTS
    for part in range(PARTS):
        merged = {
            name: b.Concat(*rows[part * step : part * step + step], axis=AXES[name.rpartition(".")[2]])
            for name, rows in values.items()
        }
        for layer in range(layers):
            fused = b.Concat(*(merged.pop(f"{layer}.{name}") for name in "qkv"), axis=0)
            b.output(f"output:{layer}.qkv@{part}", fused)
            b.output(f"output:{layer}.down@{part}", b.Transpose(merged.pop(f"{layer}.down"), [1, 0]))
        for name, value in merged.items():
            b.output(f"output:{name}@{part}", value)
    return b.model


def drop_caches() -> bool:
    os.sync()
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    return False


def copy_files(source: Path, target: Path) -> float:
    begin = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    flush_files(target)
    return time.perf_counter() - begin


def flush_files(folder: Path) -> None:
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def reshard_in_process(source: Path, target: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds of a run, start of the interpreter included, and its peak resident memory in MB."""
    command = [sys.executable, __file__, "--worker", str(source), str(target), "--memory", options.memory]
    command += ["--layers", str(options.layers), "--scale", str(options.scale)]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - begin, float(done.stdout.split()[-1])


def work(options: argparse.Namespace) -> None:
    source, target = options.worker
    report = dovetail.reshard(graph(options.layers, options.scale), source, target, memory=options.memory)
    print(report.to_text())
    # Unlike ru_maxrss, VmHWM does not include the process that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) / 1000)


def differences(source: Path, target: Path) -> Iterator[str]:
    """Yield the names of tensors that differ from numpy's result, one tensor in memory at a time."""
    inputs = [safe_open(path, "pt") for path in sorted(source.iterdir())]
    step = RANKS // PARTS
    for part, path in enumerate(sorted(target.glob("*.safetensors"))):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                layer, _, kind = name.rpartition(".")
                names = [f"{layer}.{each}" for each in "qkv"] if kind == "qkv" else [name]
                rows = [
                    np.concatenate(
                        [_bits(inputs[rank], each) for rank in range(part * step, part * step + step)],
                        AXES[each.rpartition(".")[2]],
                    )
                    for each in names
                ]
                expected = np.concatenate(rows) if kind == "qkv" else rows[0].T if kind == "down" else rows[0]
                if not np.array_equal(_bits(file, name), expected):
                    yield f"{path.name}: {name}"


def _bits(file: Any, name: str) -> Any:
    import torch

    return file.get_tensor(name).view(torch.int16).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="500MB")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--layers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    # Below 4 GB matrices are smaller, so that there is more than one layer.
    options.scale = 1 if options.gigabytes >= 4 else 8
    rows = shapes(1, options.scale)
    embed = 2 * RANKS * rows["embed"][0] * rows["embed"][1]
    layer = 2 * RANKS * sum(first * second for first, second in rows.values()) - embed
    options.layers = max(round((options.gigabytes * 1e9 - embed) / layer), 1)
    folder = Path(options.folder or tempfile.mkdtemp())
    try:
        measure(folder, options)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, options: argparse.Namespace) -> None:
    source, target = folder / "checkpoint", folder / "result"
    if not source.exists():
        write_checkpoint(source, options.layers, options.scale)
    nbytes = sum(path.stat().st_size for path in source.iterdir())
    times: dict[str, list[float]] = {"cp": [], "dovetail": []}
    peaks = []
    has_dropped = True
    for number in range(options.rounds):
        for name in ("cp", "dovetail") if number % 2 == 0 else ("dovetail", "cp"):
            shutil.rmtree(target, ignore_errors=True)
            has_dropped = drop_caches() and has_dropped
            if name == "cp":
                times[name].append(copy_files(source, target))
            else:
                seconds, peak = reshard_in_process(source, target, options)
                times[name].append(seconds)
                peaks.append(peak)
                if options.verify and number == 0:
                    wrong = list(differences(source, target))
                    print(f"tensors that differ: {', '.join(wrong) or 'none'}", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratio = medians["cp"] / medians["dovetail"]
    if options.json:
        print(json.dumps({"bytes": nbytes, "times": times, "peak_mb": peaks, "speed": ratio, "dropped": has_dropped}))
        return
    for name, rounds in times.items():
        each = ", ".join(f"{second:.1f}" for second in rounds)
        print(f"{name}: {medians[name]:.1f} s, {nbytes / medians[name] / 1e9:.2f} GB/s ({each})")
    print(f"{nbytes / 1e9:.1f} GB, {ratio:.2f} of cp's speed, peak {max(peaks):.0f} MB; page cache dropped: {has_dropped}")


if __name__ == "__main__":
    main()
