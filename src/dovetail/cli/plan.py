"""Command ``dovetail plan`` reports the plan of a model."""

from __future__ import annotations

from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, say_json, table, write_file


@click.command()
@options.model
@click.option("--html", type=click.Path(), metavar="FILE", help="Write a page with a picture of the arena over time.")
@click.option(
    "--elide",
    type=click.Choice(("auto", "all", "none")),
    default="auto",
    show_default=True,
    help="Avoid copies by data movement where this is faster (auto), wherever possible (all), or never (none).",
)
@options.inputs
@options.shapes
@options.dims
@options.threads
@options.precision
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=0), help="Number of timed runs; 0: do not time.")
@options.seed
@loading
def plan(
    model: str,
    html: str | None,
    elide: str,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    precision: str | None,
    rounds: int,
    seed: int,
    as_json: bool,
) -> int:
    """Report the copies that the program of MODEL makes and their reasons, its memory, and its time by kernel.

    Movement operators (Concat, Split, Reshape, Transpose, ...) cost nothing where their tensors can share memory; the remaining
    copies are listed with their bytes and the reason. Times are measured on random inputs, or on the inputs of --input.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of, sizes_of
    from dovetail.runtime.compilation import plan as make_plan
    from dovetail.runtime.random_inputs import Inputs

    given, sizes = shapes_of(shapes), sizes_of(dims)
    loaded = load(model)
    with progress(f"planning and timing {model}"):
        arrays = read_inputs(loaded, inputs, seed, dims, given)[0] if inputs else {}
        chosen = Inputs(arrays, sizes, given, seed)
        facts = make_plan(loaded, chosen, elide=elide, threads=threads, rounds=rounds, precision=precision)
    if html:
        write_file(html, facts.html())
    if as_json:
        say_json("plan", file=model, html=html, seed=seed, **facts.as_dict())
    else:
        _say(facts)
    return 0


def _say(facts: Any) -> None:
    from dovetail.report.text import duration, percent, size, summary

    table(("", facts.name), summary(facts))
    if facts.copies:
        click.echo()
        rows = [
            [item.step, item.source, item.target, size(item.nbytes), item.reason, duration(item.seconds)] for item in facts.copies
        ]
        table(("step", "copied", "to", "bytes", "why", "time"), rows)
    if facts.interpreted:
        click.echo()
        rows = [[step.number, step.label, step.kernel, step.reason, duration(step.seconds)] for step in facts.interpreted]
        table(("step", "in the interpreter", "operator", "why", "time"), rows)
    _say_subgraphs(facts.steps)
    click.echo()
    rows = [
        [
            item.kernel if item.is_native else f"{item.kernel} (interpreter)",
            item.count,
            duration(item.seconds),
            percent(item.share),
        ]
        for item in facts.kernels
    ]
    table(("kernel", "steps", "time", "share"), rows)


def _say_subgraphs(steps: Any) -> None:
    """Print the steps of If and Loop, with the steps of their subgraphs indented."""
    from dovetail.report.text import duration, subgraph_rows

    rows = []
    for depth, label, runs, seconds, step in subgraph_rows(steps):
        kernel = "" if step is None else step.kernel if step.is_native else f"{step.kernel} (interpreter)"
        rows.append(["" if step is None else step.number, "  " * depth + label, kernel, runs, duration(seconds)])
    if rows:
        click.echo()
        table(("step", "in subgraphs", "kernel", "runs", "time"), rows)
