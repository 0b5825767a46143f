"""Command ``dovetail report`` writes a page about a model."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, write_file
from dovetail.cli.quantize import COLUMNS, rows_of


@click.command()
@options.model
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write the page (.html).")
@options.engines
@options.runs
@options.threads
@options.precision
@options.inputs
@options.shapes
@options.dims
@options.seed
@loading
def report(
    model: str,
    output: str | None,
    engines: str,
    runs: int | None,
    threads: int | None,
    precision: str | None,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Write one self-contained page about MODEL: operators, shapes, memory, profile, faults, what prevents each export.

    A section that fails, such as the profile of a model that does not run, gives its reason. A run ends after 20 seconds;
    --limit seconds=NUMBER changes that.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of, sizes_of
    from dovetail.measure.overview import model_report
    from dovetail.runtime.random_inputs import Inputs

    if output is None and not as_json:
        raise click.UsageError("report needs --output FILE.html or --json")
    if output == STREAM:
        raise click.UsageError("--output needs the name of a file, got -")
    loaded = load(model)
    with progress(f"reporting on {model}"):
        arrays = read_inputs(loaded, inputs, seed, dims, shapes_of(shapes))[0] if inputs else {}
        given = Inputs(arrays, sizes_of(dims), shapes_of(shapes), seed)
        found = model_report(
            loaded, given, engines=engines.split(","), threads=threads, runs=runs, precision=precision
        )  # fmt: skip
    for section, reason in found.failures.items():
        narrate(f"{section}: {reason}")
    if output is not None:
        write_file(output, found.html())
    if as_json:
        say_json("report", output=output, seed=seed, **{**found.as_dict(), "file": model})
    else:
        blocked = [target.name for target in found.targets or [] if target.faults]
        rows = [
            ("nodes", found.summary["nodes"]),
            ("faults", len(found.faults)),
            ("warnings", len(found.warnings)),
            ("cannot be written as", ", ".join(blocked) or "-"),
            ("sections without content", ", ".join(found.failures) or "-"),
        ]
        table(("", found.name), rows)
        if found.quantization is not None:
            facts = found.quantization
            errors = ", ".join(
                f"{name} {facts[name]:.3g}" for name in ("predicted", "measured", "upper") if facts[name] is not None
            )
            title = f"weights as {facts['to']}: {facts['bytes_before']:,} bytes before, {facts['bytes']:,} after"
            click.echo()
            table(COLUMNS, rows_of(facts["nodes"]), f"{title}; error {errors or 'not measured'}")
    return 0
