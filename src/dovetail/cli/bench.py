"""Command ``dovetail bench`` times a model in several engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table
from dovetail.ir.graph import Model
from dovetail.ir.symbolic import symbols
from dovetail.ir.types import sizes_in


@click.command()
@options.model
@click.option("--against", metavar="ENGINE,...", help="onnxruntime, openvino (default: those that are installed).")
@options.threads
@options.precision
@click.option("--rounds", default=21, show_default=True, type=click.IntRange(min=1), help="Runs of each engine that count.")
@click.option("--throughput", is_flag=True, help="Measure items per second on all cores, for independent items.")
@click.option(
    "--streams", type=click.IntRange(min=1), help="With --throughput: items that dovetail runs concurrently (default: auto)."
)
@click.option("--no-memory", is_flag=True, help="Skip the separate process that measures each engine's memory.")
@options.inputs
@options.shapes
@options.dims
@click.option("--sizes", "ranges", multiple=True, metavar="NAME=LOW..HIGH", help="Sizes that change from call to call.")
@click.option(
    "--grow", "growing", multiple=True, metavar="NAME", help="A size that grows by 1 at each call, from its --dim or 1."
)
@click.option("--steps", type=click.IntRange(min=1), help="With --sizes and --grow: calls (default: 64).")
@options.seed
@loading
def bench(
    model: str,
    against: str | None,
    threads: int | None,
    precision: str | None,
    rounds: int,
    throughput: bool,
    streams: int | None,
    no_memory: bool,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    ranges: tuple[str, ...],
    growing: tuple[str, ...],
    steps: int | None,
    seed: int,
    as_json: bool,
) -> int:
    """Time MODEL in dovetail and in other engines: medians of interleaved runs, ratios, peak memory, agreement of results.

    Memory and the time to load and compile are measured in a separate process for each engine. Exit code 1: results differ.
    --throughput measures Program.map, onnxruntime called by several threads, and OpenVINO's AsyncInferQueue for throughput.
    --sizes and --grow time calls whose sizes change, separately for sizes that are new to an engine and for sizes seen before.
    --precision is a hint for OpenVINO too. With bf16 or int8, results are compared with dovetail's in f32; those of each engine
    agree within 4 ulp of bf16; larger differences are "rounded" if shapes, types and NaN agree, and are not exit code 1.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of, sizes_of
    from dovetail.ir.host.threads import thread_count
    from dovetail.ir.inputs_outputs import flatten_outputs
    from dovetail.measure.benchmark import machine, measure, peers_for

    if model == STREAM:
        raise click.UsageError("bench needs the name of a model file, since other engines read the file, got -")
    peers = peers_for(against.split(",") if against is not None else None)
    count = thread_count(threads)
    given = shapes_of(shapes)
    loaded = load(model)
    arrays, random = read_inputs(loaded, inputs, seed, dims, given)
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    if steps is not None and not (ranges or growing):
        raise click.UsageError("--steps needs --sizes or --grow")
    if ranges or growing:
        if throughput or inputs:
            raise click.UsageError("--sizes and --grow exclude --input and --throughput")
        return _sizes(model, loaded, peers, count, (ranges, growing), sizes_of(dims), steps or 64, seed, as_json, precision)
    if open_sizes := _open_sizes(loaded):
        narrate(f"one size of {', '.join(open_sizes)}: --sizes and --grow time calls whose sizes change")
    if streams is not None and not throughput:
        raise click.UsageError("--streams needs --throughput")
    if throughput:
        return _throughput(model, loaded, arrays, peers, count, rounds, streams or "auto", as_json, precision)
    with progress(f"running {model}"):
        rows = measure(loaded, model, arrays, peers, count, rounds, memory=not no_memory, precision=precision)
    for row in rows:
        for note in row.notes:
            narrate(f"{row.engine}: {note}")
    narrate(f"medians of {rounds} interleaved runs, {count} thread{'s' if count > 1 else ''}; {machine()}")
    narrate("ratio: dovetail's time over that engine's, below 1 where dovetail is faster")
    if rows[0].difference is not None:
        narrate("results: largest difference from dovetail's in f32, relative to the largest magnitude")
    agrees = all(row.agrees is not False for row in rows)
    if as_json:
        found = [dataclasses.asdict(row) for row in rows]
        sizes = {name: list(array.shape) for name, array in flatten_outputs(arrays).items()}
        say_json(
            "bench",
            file=model,
            precision=precision,
            threads=count,
            rounds=rounds,
            seed=seed,
            shapes=sizes,
            agrees=agrees,
            engines=found,
        )
    else:
        table(("engine", "time", "ratio", "peak memory", "load and compile", "results"), [_row(row) for row in rows])
    return 0 if agrees else 1


def _open_sizes(model: Model) -> list[str]:
    """Return the names of the open dimensions of the inputs."""
    found = (str(symbol) for value in model.inputs for size in sizes_in(value.type) for symbol in symbols(size))
    return list(dict.fromkeys(found))


def _sizes(
    file: str,
    model: Model,
    peers: Sequence[str],
    threads: int,
    changing: tuple[Sequence[str], Sequence[str]],
    fixed: Mapping[str, int],
    steps: int,
    seed: int,
    as_json: bool,
    precision: str | None,
) -> int:
    """Measure and print the times of calls whose sizes change."""
    from dovetail.cli.arrays import ranges_of, size_of
    from dovetail.measure.benchmark import machine
    from dovetail.measure.size_benchmark import draw_sizes, measure_sizes
    from dovetail.runtime.random_inputs import random_inputs

    ranges, growing = ranges_of(changing[0], "--sizes", size_of), {name: fixed.get(name, 1) for name in changing[1]}
    known = _open_sizes(model)
    if unknown := [name for name in (*ranges, *growing) if name not in known]:
        raise click.UsageError(f"the names must be open dimensions ({', '.join(known) or 'none'}), got {', '.join(unknown)}")
    drawn = draw_sizes(ranges, growing, steps, seed)
    feeds = [random_inputs(model, seed=seed + call, sizes={**fixed, **sizes}) for call, sizes in enumerate(drawn)]
    with progress(f"running {file}"):
        rows = measure_sizes(model, file, feeds, peers, threads, precision=precision)
    for row in rows:
        for note in row.notes:
            narrate(f"{row.engine}: {note}")
    narrate(
        f"medians (99th percentiles) of {steps} calls, seed {seed}, {threads} thread{'s' if threads > 1 else ''}; {machine()}"
    )
    from dovetail.report.text import duration

    narrate(f"dovetail made {rows[0].plans} plans, in calls that took {duration(rows[0].planning)} and are not in the table")
    narrate("ratio: the median of dovetail's time over that engine's, call by call; below 1 where dovetail is faster")
    agrees = all(row.agrees is not False for row in rows)
    if as_json:
        found = [dataclasses.asdict(row) for row in rows]
        say_json("sizes", file=file, threads=threads, steps=steps, seed=seed, sizes=drawn, agrees=agrees, engines=found)
    else:
        table(("engine", "new sizes", "ratio", "seen sizes", "ratio", "results"), [_sizes_row(row) for row in rows])
    return 0 if agrees else 1


def _sizes_row(row: Any) -> list[str]:
    from dovetail.report.text import duration

    def cell(median: float | None, p99: float | None) -> str:
        return "" if median is None or p99 is None else f"{duration(median)} ({duration(p99)})"

    ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in (row.new_ratio, row.seen_ratio)]
    results = "" if row.agrees is None else "agree" if row.agrees else "differ"
    return [row.name, cell(row.new, row.new_p99), ratios[0], cell(row.seen, row.seen_p99), ratios[1], results]


def _throughput(
    file: str,
    model: Model,
    arrays: Mapping[str, Any],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    streams: int | str,
    as_json: bool,
    precision: str | None,
) -> int:
    """Measure and print throughput."""
    from dovetail.measure.benchmark import machine
    from dovetail.measure.throughput import measure_throughput

    with progress(f"running {file}"):
        rows = measure_throughput(model, file, arrays, peers, threads, rounds, streams, precision)
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
    verdict = {True: "agree", False: "differ", None: "rounded"}[row.agrees]
    results = "" if row.difference is None else f"{verdict}, {row.difference:.2g}"
    return [row.name, duration(row.seconds), ratio, memory, duration(row.compile_seconds), results]
