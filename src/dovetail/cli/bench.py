"""dovetail bench."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table


@click.command()
@click.argument("model", type=click.Path())
@click.option("--against", metavar="ENGINE,...", help="onnxruntime, openvino (default: those that are installed).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of every engine (default: DOVETAIL_THREADS, else all).")
@click.option("--rounds", default=21, show_default=True, type=click.IntRange(min=1), help="Runs of each engine that count.")
@click.option("--throughput", is_flag=True, help="Items per second on all cores, of items that do not depend on each other.")
@click.option("--streams", type=click.IntRange(min=1), help="With --throughput: items of dovetail at a time (default: auto).")
@click.option("--no-memory", is_flag=True, help="Start no process of its own for each engine's memory.")
@click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="Inputs; random ones for the rest.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE,...", help="The shape of an input.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs.")
@loading
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    model: str,
    against: str | None,
    threads: int | None,
    rounds: int,
    throughput: bool,
    streams: int | None,
    no_memory: bool,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Time MODEL in dovetail and in other engines: medians of interleaved runs, ratios, peak memory, and whether they agree.

    Memory and the time to load and compile are those of a process that holds one engine alone. Exit code 1 where results differ.
    With --throughput: Program.map, onnxruntime called by several threads, and OpenVINO's AsyncInferQueue for throughput.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of
    from dovetail.compare.benchmark import machine, measure, peers_for
    from dovetail.compare.random_inputs import flatten_outputs
    from dovetail.threads import thread_count

    if model == STREAM:
        raise click.UsageError("other engines read the model from its file: name it, - is not for bench")
    peers = peers_for(against.split(",") if against is not None else None)
    count = thread_count(threads)
    given = shapes_of(shapes)
    loaded = load(model)
    arrays, random = read_inputs(loaded, inputs, seed, dims, given)
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    if streams is not None and not throughput:
        raise click.UsageError("--streams needs --throughput")
    if throughput:
        return _throughput(model, loaded, arrays, peers, count, rounds, streams or "auto", as_json)
    with progress(f"running {model}"):
        rows = measure(loaded, model, arrays, peers, count, rounds, memory=not no_memory)
    for row in rows:
        for note in row.notes:
            narrate(f"{row.engine}: {note}")
    narrate(f"medians of {rounds} interleaved runs, {count} thread{'s' if count > 1 else ''}; {machine()}")
    narrate("ratio: dovetail's time over that engine's, below 1 where dovetail is faster")
    agrees = all(row.agrees is not False for row in rows)
    if as_json:
        found = [dataclasses.asdict(row) for row in rows]
        sizes = {name: list(array.shape) for name, array in flatten_outputs(arrays).items()}
        say_json("bench", file=model, threads=count, rounds=rounds, seed=seed, shapes=sizes, agrees=agrees, engines=found)
    else:
        table(("engine", "time", "ratio", "peak memory", "load and compile", "results"), [_row(row) for row in rows])
    return 0 if agrees else 1


def _throughput(
    file: str,
    model: Any,
    arrays: Mapping[str, Any],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    streams: int | str,
    as_json: bool,
) -> int:
    """Measure and print throughput."""
    from dovetail.compare.benchmark import machine
    from dovetail.compare.throughput import measure_throughput

    with progress(f"running {file}"):
        rows = measure_throughput(model, file, arrays, peers, threads, rounds, streams)
    for row in rows:
        for note in row.notes:
            narrate(f"{row.engine}: {note}")
    narrate(f"medians of {rounds} interleaved rounds, {threads} thread{'s' if threads > 1 else ''} in all; {machine()}")
    narrate("ratio: dovetail's time for an item over that engine's, below 1 where dovetail is faster")
    if as_json:
        say_json("throughput", file=file, threads=threads, rounds=rounds, engines=[dataclasses.asdict(row) for row in rows])
        return 0
    cells = [
        [
            row.engine,
            "" if row.items_per_second is None else f"{row.items_per_second:,.1f}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.way,
        ]
        for row in rows
    ]
    table(("engine", "items/s", "ratio", "way"), cells)
    return 0


def _row(row: Any) -> list[str]:
    from dovetail.report.text import duration, size

    if row.seconds is None:
        return [row.name, "does not run", "", "", "", ""]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    memory = "" if row.peak_bytes is None else size(row.peak_bytes)
    results = "" if row.agrees is None else f"{'agree' if row.agrees else 'differ'}, {row.difference:.2g}"
    return [row.name, duration(row.seconds), ratio, memory, duration(row.compile_seconds), results]
