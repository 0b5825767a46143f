"""Saves that are killed, and reads beside saves: every load gives the old model or the new one, and nothing is left behind.

As a command: ``python tests/interruptions.py --kills 200 --reads 500`` kills 200 saves of each kind of file at random
times, and reads 500 times while another process saves. It prints what came of them, and exits with 1 where one was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail import Builder, DovetailError
from dovetail.ir.graph import Model

SIDE = 96
"""Length of a side of each of the weights, by default."""


class Kind(NamedTuple):
    """One kind of saved model: the name of its file, and the options of ``save``."""

    file: str
    options: dict[str, Any]

    def save(self, model: Model, folder: Path) -> None:
        dovetail.save(model, folder / self.file, **self.options)


KINDS = {
    "onnx": Kind("m.onnx", {}),
    "external": Kind("m.onnx", {"external": "w.data", "threshold": 0}),
    "safetensors": Kind("m.onnx", {"external": "w.safetensors", "threshold": 0}),
    "openvino": Kind("m.xml", {}),
}


@cache
def version(number: int, side: int = SIDE) -> Model:
    """Return a model whose graph and whose every weight say which version it is; all versions have the same layout."""
    with Builder(f"version{number}") as b:
        y = b.input("x", "f32", (side, side))
        for index in range(4):
            y = b.Add(y, b.constant(np.full((side, side), number * 10 + index, np.float32)))
        b.output("y", y)
    for index, node in enumerate(b.model.graph.nodes):
        node.name = f"version{number}_{index}"
    return b.model


def version_of(path: Path) -> int:
    """Return the version of a saved model.

    Raises AssertionError where its graph and its weights are of two, DovetailError as load.
    """
    graph = dovetail.load(path).graph
    names = {node.name.partition("_")[0] for node in graph.nodes if type(node.op).__name__ == "Add"}
    weights = [np.unique(value.constant) for value in graph.values() if value.constant is not None]
    numbers = {int(each[0]) // 10 for each in weights}
    assert all(each.size == 1 for each in weights) and len(weights) == 4, "weights of several saves"
    assert len(numbers) == 1 and names == {f"version{number}" for number in numbers}, (names, numbers)
    return numbers.pop()


def left_behind(folder: Path) -> list[str]:
    """Return the names of the files that no save should leave."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def forked(work: Callable[[], Any]) -> int:
    """Return the process id of a child that does ``work`` and ends with 0, or with 1 on an exception."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


# The system calls that change files, as attributes of modules.
CALLS = [(os, name) for name in ("open", "replace", "fsync", "unlink", "fchmod", "ftruncate", "pwrite")] + [(fcntl, "flock")]


def killed_at(number: int, work: Callable[[], Any]) -> bool:
    """Do ``work`` in a child that kills itself before its system call of that number; whether it came so far."""

    def run() -> None:
        left = [number]

        def counted(call: Callable[..., object]) -> Callable[..., object]:
            def counting(*args: object, **options: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **options)

            return counting

        for module, name in CALLS:
            setattr(module, name, counted(getattr(module, name)))
        work()

    child = forked(run)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def save_on(kind: Kind, folder: Path, numbers: tuple[int, ...], side: int = SIDE) -> None:
    """Save these versions in turn, for ever."""
    while True:
        for number in numbers:
            kind.save(version(number, side), folder)


@contextlib.contextmanager
def beside(work: Callable[[], Any]) -> Iterator[None]:
    """Do ``work`` in another process meanwhile, which is killed in the end."""
    child = forked(work)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def check_whole(kind: Kind, folder: Path, numbers: set[int]) -> str:
    """Return "whole", or the fault that a load reports."""
    try:
        found = version_of(folder / kind.file)
    except AssertionError as error:
        return f"mixed: {error}"
    except DovetailError as error:
        return f"refused: {error.code}"
    return "whole" if found in numbers else f"stray: version {found}"


def kill_saves(kind: Kind, count: int, seconds: float, rng: random.Random, side: int) -> Counter[str]:
    """Kill that many saves, each at a random moment within ``seconds``; what loading and saving say after each."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind.save(version(1, side), folder)
        for _ in range(count):
            with beside(partial(save_on, kind, folder, (2, 1), side)):
                time.sleep(rng.random() * seconds)
            found[check_whole(kind, folder, {1, 2})] += 1
            found["drafts after the kill"] += len(left_behind(folder))
            kind.save(version(1, side), folder)
            if left_behind(folder):
                found["left behind after the next save"] += 1
            found[check_whole(kind, folder, {1})] += 0
    return found


def read_beside_saves(kind: Kind, count: int, side: int) -> Counter[str]:
    """Load that many times while another process saves."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind.save(version(1, side), folder)
        with beside(partial(save_on, kind, folder, (2, 1), side)):
            for _ in range(count):
                found[check_whole(kind, folder, {1, 2})] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--reads", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.15, help="the longest time until a kill")
    parser.add_argument("--side", type=int, default=512, help="length of a side of the weights")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print("seed", seed)
    wrong = 0
    for name, kind in KINDS.items():
        killed = kill_saves(kind, options.kills, options.seconds, random.Random(seed), options.side)
        read = read_beside_saves(kind, options.reads, options.side)
        for what, found in (("killed", killed), ("read", read)):
            print(f"{name:10}{what:8}", ", ".join(f"{number} {text}" for text, number in found.items() if number), flush=True)
            wrong += sum(number for text, number in found.items() if text not in ("whole", "drafts after the kill"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
