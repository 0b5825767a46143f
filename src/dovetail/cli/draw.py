"""Command ``dovetail draw`` draws the graph of a model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, narrate, progress, say_json
from dovetail.errors import FormatError
from dovetail.ir.graph import Model
from dovetail.storage.atomic_write import replace_file

SUFFIXES = (".svg", ".png", ".html")
MEASURES = ("time", "copied", "error", "difference")


@click.command()
@options.model
@click.option("-o", "target", required=True, type=click.Path(), help="The file to write: .svg, .png or .html.")
@click.option("--color", type=click.Choice(MEASURES), help="Colour boxes by time or copied bytes, or name what --colors has.")
@click.option("--colors", type=click.Path(), metavar="FILE", help="A JSON object with a number for each node name.")
@click.option("--difference", type=click.Path(), metavar="OTHER", help="Colour what differs from this model.")
@click.option("--boxes", default=150, show_default=True, type=click.IntRange(min=1), help="Open modules up to this many boxes.")
@click.option("--depth", type=click.IntRange(min=0), help="Open modules and attention down to this depth instead.")
@click.option("--zoom", default=1.0, show_default=True, type=click.FloatRange(0.01, 16), help="Pixels of a PNG for each unit.")
@options.shapes
@options.dims
@options.threads
@options.precision
@options.seed
@loading
def draw(
    model: str,
    target: str,
    color: str | None,
    colors: str | None,
    difference: str | None,
    boxes: int,
    depth: int | None,
    zoom: float,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    precision: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Draw the graph of MODEL as a layered picture, without a browser or a server.

    Modules are boxes, repeated blocks are drawn once with their count, and edges have the shapes of their values. The page
    (.html) has search, and folds modules. A PNG needs the package of dovetail-graph[draw].
    """
    from dovetail.report.draw import draw_model

    suffix = Path(target).suffix.lower()
    if suffix not in SUFFIXES:
        raise click.UsageError(f"the target must end in {', '.join(SUFFIXES)}, got {target!r}")
    if difference is not None and (colors is not None or color not in (None, "difference")):
        raise click.UsageError("--difference excludes --colors, and values of --color other than difference")
    if color in ("error", "difference") and colors is None and difference is None:
        raise click.UsageError(f"--color {color} needs --colors FILE" + (" or --difference" if color == "difference" else ""))
    loaded = load(model)
    options = (
        _measure_options(loaded, color, colors, shapes, dims, threads, precision, seed)
        if difference is None
        else _difference_options(loaded, difference)
    )
    start = time.perf_counter()
    with progress(f"drawing {model}"):
        drawing = draw_model(loaded, boxes=boxes, depth=depth, **options)
        data = drawing.png(zoom) if suffix == ".png" else (drawing.svg() if suffix == ".svg" else drawing.html()).encode("utf-8")
        with replace_file(target) as stream:
            stream.write(data)
    for note in drawing.notes:
        narrate(f"coarser: {note}")
    narrate(f"wrote {target}")
    if as_json:
        seconds = time.perf_counter() - start
        say_json("draw", file=model, target=target, bytes=len(data), seconds=seconds, **drawing.as_dict())
    return 0


def _measure_options(
    model: Model,
    color: str | None,
    path: str | None,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    precision: str | None,
    seed: int,
) -> dict[str, Any]:
    """Return the options of ``draw_model`` for a measure."""
    if path is not None:
        return {"colors": _read_colors(path), "measure": color or "value", "is_sum": color not in ("error", "difference")}
    if color is None:
        return {}
    from dovetail.cli.arrays import shapes_of, sizes_of
    from dovetail.measure.node_measures import plan_measure

    with progress("planning and timing"):
        found = plan_measure(
            model, color, shapes=shapes_of(shapes), sizes=sizes_of(dims), threads=threads, seed=seed, precision=precision
        )
    return {"colors": found, "measure": color, "unit": "s" if color == "time" else "B"}


def _difference_options(model: Model, path: str) -> dict[str, Any]:
    """Return the options of ``draw_model`` for differences from another file's model; report nodes not drawn on stderr."""
    from dovetail.compare.diff.model_diff import diff

    other = load(path)
    with progress(f"comparing with {path}"):
        found = diff(other, model)
    for note in found.notes:
        narrate(note)
    if found.counts["removed"]:
        narrate(f"not drawn, because only {path} has them: {found.counts['removed']:,} nodes")
    return {"colors": found.node_numbers(), "measure": "difference", "is_sum": False}


def _read_colors(path: str) -> dict[str, float]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("the file must hold a JSON object")
        return {name: float(number) for name, number in found.items()}
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError("argument.type", f"colours must be a JSON object of numbers by node name: {error}", file=path) from None
