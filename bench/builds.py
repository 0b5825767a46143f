"""Two checkouts of dovetail, each with its own virtual environment and native core: medians of interleaved calls, as ratios.

    python bench/builds.py OTHER [--cells arrays|networks|light|zoo] [--only TEXT] [--rounds N] [--threads N ...] [--without-core]

OTHER is the folder of another checkout. Each checkout runs the cells of this one's bench/arrays.py or bench/networks.py, or the
models of this one's build/zoo, which bench/zoo.py fills, in a process of its own, and the processes take turns call by call. A
ratio below 1 means that this checkout is faster. DOVETAIL_ISA chooses the instruction set of both. The cells ``light`` are the
nine light models, BERT-base and GPT-2 at batch 1. With --without-core this checkout runs as it is installed without a compiler;
OTHER may then be this checkout.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPEATED = 2e-3
"""Seconds of calls that are timed at a time."""
HERE = Path(__file__).resolve().parents[1]


class Checkout:
    """A process that runs cells in the virtual environment of a checkout."""

    def __init__(self, folder: Path, cells: str, threads: int, without_core: bool) -> None:
        environment = {**os.environ, "DOVETAIL_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        command = [str(folder / ".venv/bin/python"), "-P", __file__, str(folder), "--cells", cells, "--work"]
        command += ["--without-core"] if without_core else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __call__(self, request: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(request, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a process ended with code {self._process.wait()}")
        return answer.strip()

    def close(self) -> None:
        self("end")
        self._process.wait()


def array_calls() -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    import arrays

    for cell in arrays.cells():
        yield cell.name, lambda cell=cell: arrays.by_dovetail(cell)


def network_calls() -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    import light_models

    import dovetail
    import networks

    for name in networks.MODELS:
        for batch in (1, 8):

            def prepare(name: str = name, batch: int = batch) -> Callable[[], Any]:
                model = networks.at_batch(light_models.with_random_weights(name), batch)
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "model.onnx"
                    path.write_bytes(model.SerializeToString())
                    program, feed = dovetail.compile(path, engine="native"), light_models.image(model)
                return lambda: program(feed)

            yield f"{name} batch {batch}", prepare


def light_calls() -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    import language_models
    import light_models

    import dovetail

    def prepare(model: Any, feed: dict[str, Any]) -> Callable[[], Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            program = dovetail.compile(path)
        return lambda: program(feed)

    def prepare_light(name: str) -> Callable[[], Any]:
        model = light_models.with_random_weights(name)
        return prepare(model, light_models.image(model))

    for name in light_models.names():
        yield name, functools.partial(prepare_light, name)
    yield "BERT-base, 1 x 128", lambda: prepare(*language_models.bert())
    yield "GPT-2 small, 1 after 511", lambda: prepare(*language_models.gpt2())


def _plain(array: Any) -> Any:
    """Return strings as objects; numpy stores them with a length."""
    return array.astype(object) if array.dtype.kind in "US" else array


def zoo_calls() -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    import numpy as np

    import dovetail

    zoo = HERE / "build" / "zoo"
    for facts in json.loads((zoo / "index.json").read_text(encoding="utf-8")):

        def prepare(facts: dict[str, str] = facts) -> Callable[[], Any]:
            with np.load(zoo / facts["inputs"].format("")) as stored:
                feed = {name: _plain(stored[name]) for name in stored.files}
            program = dovetail.compile(zoo / facts["file"])
            return lambda: program(feed)

        yield facts["id"], prepare


CALLS = {"arrays": array_calls, "networks": network_calls, "light": light_calls, "zoo": zoo_calls}


def work(cells: str) -> None:
    """Answer requests: the name of the next cell, a preparation of it, and seconds of a call."""
    sys.path[:0] = [str(HERE / "bench"), str(HERE / "examples")]
    answers, sys.stdout = sys.stdout, sys.stderr
    remaining = CALLS[cells]()
    call, count, prepare = (lambda: None), 1, (lambda: lambda: None)
    for request in sys.stdin:
        word = request.strip()
        if word == "next":
            name, prepare = next(remaining, ("", prepare))
            print(name, file=answers, flush=True)
        elif word == "prepare":
            try:
                call = prepare()
                call()
            except Exception as error:
                # Each checkout has its own DovetailError.
                print(f"failed: {error}".splitlines()[0], file=answers, flush=True)
                continue
            count = max(1, int(REPEATED / seconds_of(call, 1)))
            print(file=answers, flush=True)
        elif word == "time":
            # The processor wakes, and so do the threads.
            seconds_of(call, max(1, count // 2))
            print(seconds_of(call, count), file=answers, flush=True)
        else:
            print(file=answers, flush=True)
            return


def seconds_of(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--cells", choices=CALLS, default="networks")
    parser.add_argument("--only", default="", help="cells whose name has this text")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--without-core", action="store_true", help="run this checkout without its native core")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        if options.without_core:
            # The import of the core then raises ModuleNotFoundError, as it does where none was compiled.
            sys.modules["dovetail._native"] = None  # type: ignore[assignment]
        work(options.cells)
        return
    ratios = []
    for threads in options.threads:
        checkouts = [
            Checkout(folder.resolve(), options.cells, threads, options.without_core and folder is HERE)
            for folder in (HERE, options.other)
        ]
        while names := {checkout("next") for checkout in checkouts} - {""}:
            (name,) = names
            if options.only not in name:
                continue
            if failed := [answer for checkout in checkouts if (answer := checkout("prepare"))]:
                print(f"{name:62} {'; '.join(failed)}", flush=True)
                continue
            times: list[list[float]] = [[], []]
            for number in range(options.rounds):
                # Either is the first one in every second round.
                for index in (number % 2, 1 - number % 2):
                    times[index].append(float(checkouts[index]("time")))
            this, other = (statistics.median(each) * 1e6 for each in times)
            ratios.append(this / other)
            print(f"{name:62} threads {threads}  this {this:11.2f} us  other {other:11.2f} us  {this / other:.2f}", flush=True)
        for checkout in checkouts:
            checkout.close()
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"geometric mean {mean:.3f} of {len(ratios)} cells, highest {max(ratios):.2f}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
