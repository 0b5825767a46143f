"""Command ``dovetail compare`` compares the values of a model in several engines."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, write_file
from dovetail.errors import EngineError

if TYPE_CHECKING:
    from dovetail.compare.values.layer_comparison import LayerComparison, ValueRow


MAX_ROWS = 40
"""The maximum number of rows of the table on stdout without ``--all``."""


@click.command()
@options.model
@click.option("--engines", metavar="ENGINE,...", help="interpreter, native, onnxruntime, openvino [all that are installed].")
@click.option("--reference", metavar="ENGINE", help="The engine that the others are compared with [interpreter].")
@click.option(
    "--with",
    "other",
    type=click.Path(),
    metavar="FILE|RELEASE,...",
    help="A second model: the engines run FILE, the reference runs MODEL. Or releases that run MODEL: onnxruntime==1.20.1.",
)
@options.inputs
@click.option("--bisect", "is_bisect", is_flag=True, help="Find the first operator whose result is wrong for correct inputs.")
@click.option("--part", type=click.Path(), metavar="FILE", help="The file for the operator or model that is found [part.onnx].")
@click.option("--timeout", type=click.FloatRange(min=0.01), help="Seconds after which a run of a release counts as hanging [60].")
@click.option("--memory", type=options.Bytes(), help="Run slices of the graph to keep the process below this size, as 500MB.")
@options.tolerance
@click.option("--value", "values", multiple=True, metavar="NAME", help="Compare only this value [all values].")
@click.option("--all", "is_all", is_flag=True, help="Print every value, not only the first and the differing ones.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write a page with the plot of the error over depth.")
@click.option("--colors", type=click.Path(), metavar="FILE", help="Write errors by node, for draw --color error --colors FILE.")
@options.shapes
@options.dims
@options.threads
@options.precision
@options.seed
@loading
def compare(
    model: str,
    engines: str | None,
    reference: str | None,
    other: str | None,
    inputs: tuple[str, ...],
    is_bisect: bool,
    part: str | None,
    timeout: float | None,
    memory: int | None,
    tolerance: float | None,
    values: tuple[str, ...],
    is_all: bool,
    html: str | None,
    colors: str | None,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    precision: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Compare every value of MODEL in several engines, by depth, to show where a difference begins.

    With --with, the reference runs MODEL, and the other engines run a second model, of either format. The values of the two
    models are matched by name, else by their computation.
    With releases, such as onnxruntime==1.20.1,openvino==2026.3.1, each runs MODEL in an environment of its own, which pip or uv
    makes once. The first wrong one is located, and the smallest model, its inputs and the text of an issue are written.
    --bisect runs slices of the model in each engine on the reference's values, at most 2 log2(n) slices for n operators. It
    writes the faulty operator and its inputs to files, and prints the command that reproduces the difference. Exit code 1: a
    value differs beyond the tolerance, or an engine is the runtime of a file's format and cannot load the file.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of
    from dovetail.cli.referee import releases_in
    from dovetail.compare.values.engines import installed_engines
    from dovetail.compare.values.layers import compare_layers
    from dovetail.runtime.random_inputs import Inputs
    from dovetail.runtime.releases.workers import RUN_SECONDS

    if is_bisect and (html or colors or values or is_all):
        raise click.UsageError("--bisect excludes --html, --colors, --value and --all")
    releases = releases_in(other)
    if part is not None and not is_bisect and not releases:
        raise click.UsageError("--part needs --bisect, or releases in --with")
    if releases and (is_bisect or html or colors or values or is_all or engines or memory is not None or precision):
        raise click.UsageError(
            "--with and releases exclude --bisect, --engines, --html, --colors, --value, --all, --memory and --precision"
        )
    if timeout is not None and not releases:
        raise click.UsageError("--timeout needs releases in --with")
    loaded = load(model)
    second = None if other is None or releases else load(other)
    with progress(f"running {model}"):
        arrays, random = read_inputs(loaded, inputs, seed, dims, shapes_of(shapes), run=True, distinct=True)
        if releases:
            from dovetail.cli.referee import judge

            if random:
                narrate(f"random inputs (seed {seed}): {', '.join(random)}")
            settings = {"reference": reference, "tolerance": tolerance, "threads": threads, "seconds": timeout or RUN_SECONDS}
            return judge(loaded, releases, arrays, part, settings, as_json=as_json)
        chosen = installed_engines() if engines is None else [name.strip() for name in engines.split(",") if name.strip()]
        if is_bisect:
            from dovetail.cli.bisect import bisect_engines

            request = {"other": second, "memory": memory, "tolerance": tolerance, "threads": threads, "precision": precision}
            return bisect_engines(loaded, chosen, reference, arrays, request, model=model, part=part, as_json=as_json)
        base = reference or ("interpreter" if "interpreter" in chosen or not chosen else chosen[0])
        found = compare_layers(
            loaded,
            engines=[base, *chosen],
            other=second,
            inputs=Inputs(arrays, seed=seed, varied=random),
            memory=memory,
            tolerance=tolerance,
            values=values or None,
            threads=threads,
            precision=precision,
        )
        engines_run = {found.reference, *(column.engine for column in found.columns)}
        refused = [] if memory is not None else _refusals([model, *([other] if other else [])], engines_run)
    for reason in refused:
        narrate(reason)
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    for note in found.notes:
        narrate(note)
    if html is not None:
        write_file(html, found.html())
    if colors is not None:
        write_file(colors, json.dumps(found.errors_by_node()))
    if as_json:
        say_json("compare", file=model, other=other, seed=seed, **found.as_dict())
    else:
        _say(found, is_all)
    return 1 if found.differs or refused else 0


def _refusals(paths: Sequence[str], engines: Collection[str]) -> list[str]:
    """Return the reasons why the runtime of a file's format, if it is among ``engines``, cannot load the file."""
    from dovetail.compare.verification.conversion import own_runtime, runner_for

    found = []
    for path in paths:
        if path == STREAM or own_runtime(path) not in engines:
            continue
        try:
            runner_for(path)
        except EngineError as error:
            found.append(error.message)
    return found


def _say(found: LayerComparison, is_all: bool) -> None:
    rows = found.rows if is_all else _selection(found)
    columns = ["depth", "value", "operator", "type"]
    for column in found.columns:
        columns += [f"{column.name}: abs", "rel", "ulp", ""]
    table(columns, [_row(row) for row in rows], f"compared with {found.reference}")
    if len(rows) < len(found.rows):
        click.echo(f"{len(rows)} of {len(found.rows)} values; --all prints every one")
    click.echo()
    table(("error over depth", "from 1e-8 (.) to 1 (#)", "first value beyond the tolerance", "not compared"), _summary(found))


def _summary(found: LayerComparison) -> list[list[Any]]:
    rows = []
    for column in found.columns:
        first = found.first_difference(column.name)
        text = "none" if first is None else f"{first.value} ({first.operator} {first.node}, depth {first.depth})"
        absent = found.missing(column.name)
        index = [each.name for each in found.columns].index(column.name)
        why = f"{len(absent)}: {absent[0].cells[index].why[:80]}" if absent else "0"
        rows.append([column.name, f"[{found.sparkline(column.name)}]", text, why])
    return rows


def _selection(found: LayerComparison) -> list[Any]:
    """Return the rows of the first differing values and of the first outputs, in table order, at most MAX_ROWS rows."""
    differing = [row for row in found.rows if not row.agrees or any(cell.is_missing for cell in row.cells)]
    chosen = {id(row) for row in [*differing[: MAX_ROWS // 2], *[row for row in found.rows if row.is_output][: MAX_ROWS // 2]]}
    return [row for row in found.rows if id(row) in chosen]


def _row(row: ValueRow) -> list[Any]:
    shape = "" if row.shape is None else f"[{', '.join(map(str, row.shape))}]"
    cells: list[Any] = [row.depth, row.value, row.operator, f"{row.dtype}{shape}"]
    for cell in row.cells:
        if cell.is_missing:
            cells += ["-", "-", "-", "not compared"]
        else:
            ulp = "-" if cell.ulp is None else f"{cell.ulp:.3g}"
            cells += [f"{cell.absolute:.3g}", f"{cell.relative:.3g}", ulp, "agrees" if cell.agrees else cell.why or "differs"]
    return cells
