"""Random networks in both engines: ``python tests/random_networks.py --count 100000 --workers 16 --seconds 1500 --shrink``.

Every seed is one network (see ``networks/generator.py``), compared as ``networks/comparison.py`` says. The workers are
processes, so that a crash or a run that does not end is one more failure, with its seed. ``--isa base,avx2,avx512`` gives the
workers instruction sets in turn; without it they take DOVETAIL_ISA, or the best that the processor has. The last line has the
counts; the exit code is 1 where there was a failure. ``--precision f32,bf16,int8`` makes networks with layers of 16 bits and of
few bits, whose products the engine may round. With ``--sizes`` the networks with open sizes are called at several, as
``networks/size_comparison.py`` says.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parent))

PATIENCE = 120.0
"""Seconds after which a network counts as one that does not end."""


@dataclass(frozen=True)
class Task:
    """The work of a worker: seeds ``first``, ``first + step``, ... below ``end`` until ``deadline``."""

    first: int
    end: int
    step: int
    deadline: float
    others: int
    is_shrunk: bool
    changes_sizes: bool
    precisions: tuple[str, ...] = ()


def work(task: Task, seed: Any, found: Any) -> None:
    """Compare one network after another; ``seed`` is the shared number of the one under way."""
    from dovetail.ir.host import native_core
    from networks.coverage import Coverage

    coverage, done = Coverage(), Counter[str]()
    core = native_core.core()
    found.put(("isa", str(core.isa()) if core else "no native core"))
    for number in range(task.first, task.end, task.step):
        if time.time() > task.deadline:
            break
        seed.value = number
        failure = one(number, coverage, done, task)
        if failure:
            found.put(("failure", number, failure))
        if done["networks"] % 50 == 0:
            found.put(("counts", dict(done), dict(coverage.counts)))
            done.clear()
            coverage.counts.clear()
    found.put(("counts", dict(done), dict(coverage.counts)))
    seed.value = -1
    if task.others:
        import oracles

        oracles.close()
    found.put(("end",))


def one_at_sizes(number: int, done: Counter[str]) -> str:
    """Return the faults of network ``number`` at several sizes; empty without any, and where it has no open size."""
    from networks.generator import generate
    from networks.size_comparison import compare_sizes, open_sizes

    network = generate(number)
    model = network.model()
    if not open_sizes(model):
        return ""
    done["networks"] += 1
    done["operators"] += len(network.steps)
    text = compare_sizes(model, number)
    done["failures: sizes"] += bool(text)
    return text


def one(number: int, coverage: Any, done: Counter[str], task: Task) -> str:
    """Return the faults of network ``number``; empty without any."""
    if task.changes_sizes:
        return one_at_sizes(number, done)
    from networks.comparison import compare, options_of
    from networks.generator import generate
    from networks.reference import Unstable
    from networks.runtimes import compare_with_others

    done["networks"] += 1
    precision = task.precisions[number % len(task.precisions)] if task.precisions else None
    network = generate(number, precision)
    options = options_of(number, precision or "f32")
    done["operators"] += len(network.steps)
    done[f"precision {precision}"] += precision is not None
    try:
        difference = compare(network, options, coverage)
        if difference is None and task.others and number % task.others == 0:
            difference = compare_with_others(network, done)
    except Unstable:
        done["left out, rounding decides"] += 1
        return ""
    if difference is None:
        return ""
    done[f"failures: {difference.kind}"] += 1
    text = f"{difference}"
    if task.is_shrunk:
        text += "\n" + shrunk(options, network, difference)
    return text


def shrunk(options: Any, network: Any, difference: Any) -> str:
    """Return the network made small, as text, and how it fails then."""
    from networks.comparison import compare
    from networks.runtimes import compare_with_others
    from networks.shrink import shrink

    def again(candidate: Any) -> Any:
        if difference.kind == "others":
            return compare_with_others(candidate, Counter())
        return compare(candidate, options)

    def fails(candidate: Any) -> bool:
        failure = again(candidate)
        return failure is not None and failure.kind == difference.kind and failure.engine == difference.engine

    small = shrink(network, fails)
    return f"{small.text()}\n# {again(small)}"


class Worker:
    """A process, started again behind the seed at which it died."""

    def __init__(self, task: Task, isa: str, found: Any) -> None:
        self.task = task
        self.isa = isa
        self.found = found
        self.seed = CONTEXT.Value("q", -1)
        self.seen = (-1, time.time())
        self.start(task)

    def start(self, task: Task) -> None:
        if self.isa:
            os.environ["DOVETAIL_ISA"] = self.isa
        self.seed.value = -1
        self.process = CONTEXT.Process(target=work, args=(task, self.seed, self.found))
        self.process.start()

    def failure(self) -> tuple[int, str] | None:
        """Return the seed at which the process died or hangs, and how; it is started again behind that."""
        number = int(self.seed.value)
        if number != self.seen[0]:
            self.seen = (number, time.time())
        code = self.process.exitcode
        hangs = code is None and number >= 0 and time.time() - self.seen[1] > PATIENCE
        if not hangs and code in (None, 0):
            return None
        if hangs:
            self.process.kill()
        self.process.join()
        task = self.task
        self.start(replace(task, first=number + task.step))
        return number, "does not end" if hangs else f"the process ended with {code}"


CONTEXT = multiprocessing.get_context("spawn")


@click.command()
@click.option("--first", default=0, help="The first seed.")
@click.option("--count", default=1000, help="How many seeds.")
@click.option("--workers", default=1, help="How many processes.")
@click.option("--seconds", default=float("inf"), help="The most seconds that are spent.")
@click.option(
    "--others", default=10, help="Every which network onnxruntime and OpenVINO are asked about, where they are; 0 for none."
)
@click.option("--isa", default="", help="Instruction sets, separated by commas, which the workers take in turn.")
@click.option("--shrink", "is_shrunk", is_flag=True, help="Make failing networks small and print them.")
@click.option("--sizes", "changes_sizes", is_flag=True, help="Call those with open sizes at 12 sizes, beside new programs.")
@click.option(
    "--precision",
    default="",
    help="f32, bf16, int8, separated by commas, which the networks take in turn: networks with layers of few bits.",
)
def main(
    first: int,
    count: int,
    workers: int,
    seconds: float,
    others: int,
    isa: str,
    is_shrunk: bool,
    changes_sizes: bool,
    precision: str,
) -> None:
    """Compare random networks in both engines."""
    begin = time.time()
    isas = isa.split(",")
    precisions = tuple(precision.split(",")) if precision else ()
    found = CONTEXT.Queue()
    end, deadline = first + count, begin + seconds
    team = [
        Worker(
            Task(first + place, end, workers, deadline, others, is_shrunk, changes_sizes, precisions),
            isas[place % len(isas)],
            found,
        )
        for place in range(workers)
    ]
    try:
        failures = _follow(team, found, begin)
    finally:
        for worker in team:
            # A worker that has asked OpenVINO has a process of its own to end.
            worker.process.join(10)
            worker.process.kill()
    sys.exit(bool(failures))


def _follow(team: list[Worker], found: Any, begin: float) -> list[int]:
    """Print what the workers find, until all have ended; the seeds that failed."""
    done, plans, failures, instruction_sets = Counter[str](), Counter[str](), list[int](), Counter[str]()
    running, shown = len(team), begin
    while running:
        try:
            kind, *rest = found.get(timeout=1)
        except queue.Empty:
            for worker in team:
                if (failure := worker.failure()) is not None:
                    done["failures: crash"] += 1
                    failures.append(failure[0])
                    click.echo(f"seed {failure[0]}: {failure[1]}")
            continue
        if kind == "isa":
            instruction_sets[rest[0]] += 1
        elif kind == "end":
            running -= 1
        elif kind == "failure":
            failures.append(rest[0])
            click.echo(f"seed {rest[0]}: {rest[1]}")
        else:
            done.update(rest[0])
            plans.update(rest[1])
        if time.time() - shown > 30:
            shown = time.time()
            click.echo(f"{done['networks']} networks in {shown - begin:.0f} s, {len(failures)} failures")
    _report(done, plans, failures, instruction_sets, time.time() - begin)
    return failures


def _report(done: Counter[str], plans: Counter[str], failures: list[int], isas: Counter[str], seconds: float) -> None:
    click.echo("plans that contain:")
    for name, number in sorted(plans.items()):
        click.echo(f"{number:9d}  {name}")
    for name, number in sorted(done.items()):
        click.echo(f"{number:9d}  {name}")
    click.echo(f"workers by instruction set: {dict(isas)}")
    if failures:
        click.echo(f"failing seeds: {sorted(failures)}")
    click.echo(
        f"{done['networks']} networks, {done['operators']} operators, {plans['plans']} plans, "
        f"{len(failures)} failures, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
