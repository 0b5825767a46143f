"""Command ``dovetail merge`` connects two models."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, target_of
from dovetail.cli.transformation import FileOptions, saving, verifying, write_result
from dovetail.ir.graph import Model


@click.command()
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option("--connect", "connections", multiple=True, metavar="VALUE:INPUT", help="A value of FIRST and an input of SECOND.")
@click.option("--side-by-side", is_flag=True, help="Connect nothing.")
@click.option("--prefix-first", default="", metavar="TEXT", help="Put TEXT before all names of FIRST.")
@click.option("--prefix-second", default="", metavar="TEXT", help="Put TEXT before all names of SECOND.")
@options.target
@saving
@verifying
@loading
def merge(
    first: str,
    second: str,
    connections: tuple[str, ...],
    side_by_side: bool,
    prefix_first: str,
    prefix_second: str,
    target: str,
    file_options: FileOptions,
    verify: bool,
    seed: int,
    as_json: bool,
) -> int:
    """Write one model in which values of FIRST are inputs of SECOND; either may be in either format.

    Without --connect outputs of FIRST become the inputs of SECOND that have the same names. A name that both models have
    becomes name_2 in SECOND. An ONNX file gets the larger opset of both. - is stdin (once), or ONNX on stdout. With --verify
    the result is compared with FIRST and SECOND run one after the other; exit code 1: an output differs.
    """
    from dovetail.passes.merge import merge as merge_models

    if connections and side_by_side:
        raise click.UsageError("--side-by-side and --connect exclude each other")
    options = file_options.of(target)
    to = target_of(target, as_json)
    models = load(first), load(second)
    ends = [split_connection(text, *models) for text in connections]
    pairs = ends if ends or side_by_side else None
    with progress(f"merging {first} and {second}"):
        merged = merge_models(*models, pairs, prefix_first=prefix_first, prefix_second=prefix_second)
    rows = None
    if verify:
        from dovetail.passes.result_verification import verify_merge

        with progress(f"running {first}, {second} and the merged model"):
            rows = verify_merge(*models, merged, pairs, seed)
    return write_result("merge", {"sources": [first, second]}, merged, target, to, options, rows, as_json=as_json)


def split_connection(text: str, first: Model, second: Model) -> tuple[str, str]:
    """Split ``VALUE:INPUT``; names may contain colons. Raises UsageError for a text without a colon."""
    pairs = [(text[:place], text[place + 1 :]) for place, character in enumerate(text) if character == ":"]
    if not pairs:
        raise click.UsageError(f"--connect takes VALUE:INPUT, not {text!r}")
    names = {name for value in first.graph.values() for name in (value.name, *value.names)}
    inputs = _names_of(second)
    complete = [pair for pair in pairs if pair[0] in names and pair[1] in inputs]
    partial = [pair for pair in pairs if pair[0] in names or pair[1] in inputs]
    return (complete or partial or pairs)[0]


def _names_of(model: Model) -> Sequence[str]:
    return [name for value in model.inputs for name in (value.name, *value.names)]
