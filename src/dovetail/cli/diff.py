"""Command ``dovetail diff`` compares two models, or proves them equal."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, write_file
from dovetail.cli.proofs import check_certificate_file, prove_files


@click.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option("--html", "page", type=click.Path(), metavar="FILE", help="Write a page with both models side by side (.html).")
@click.option("--colors", type=click.Path(), metavar="FILE", help="Write numbers by node of B, for `draw --color difference`.")
@click.option("--prove", is_flag=True, help="Prove both equal for all inputs and all sizes of open dimensions.")
@click.option("--real", is_flag=True, help="With --prove: accept models that are equal for real numbers but round differently.")
@options.certificate
@click.option("--bound", is_flag=True, help="With --prove: bound the difference that rounding makes, beside the measured one.")
@click.option("--range", "ranges", multiple=True, metavar="NAME=LOW..HIGH", help="With --bound: for all elements in a range.")
@options.input_option(help="With --bound: for these inputs; random ones for the rest.")
@click.option("--check-certificate", "checked", type=click.Path(), metavar="FILE", help="Check a proof again, without searching.")
@options.seed
@loading
def diff(
    a: str,
    b: str,
    page: str | None,
    colors: str | None,
    prove: bool,
    real: bool,
    certificate: str | None,
    bound: bool,
    ranges: tuple[str, ...],
    inputs: tuple[str, ...],
    checked: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Compare the models A and B, each of either format; names and the order of nodes do not matter.

    Nodes are matched by content. The report has changed, added, removed and replaced nodes, with attributes, weights, operands
    and types, and differences of inputs, outputs, opsets and metadata. Exit code 0: same, 1: different; with --prove 0: proved
    equal, 1: not proved. Parts that are not proved are reduced to the smallest regions, and these run on seeded inputs.
    """
    from dovetail.compare.diff.model_diff import diff as diff_models

    if (real or certificate) and not prove:
        raise click.UsageError("--real and --certificate need --prove")
    if (bound and not prove) or ((ranges or inputs) and not bound):
        raise click.UsageError("--bound needs --prove, and --range and --input need --bound")
    if (prove or checked) and (page or colors or (prove and checked)):
        raise click.UsageError("--prove and --check-certificate exclude each other, and exclude --html and --colors")
    if checked is not None:
        check_certificate_file(checked, load(a), load(b))
        return 0
    for target in (page, colors):
        if target == STREAM:
            raise click.UsageError("--html and --colors need the name of a file, got -")
    first, second = load(a), load(b)
    if prove:
        with progress(f"proving {a} and {b} equal"):
            return prove_files(
                first,
                second,
                real=real,
                seed=seed,
                certificate=certificate,
                as_json=as_json,
                names=(a, b),
                bounded=(inputs, ranges) if bound else None,
            )
    with progress(f"comparing {a} and {b}"):
        found = diff_models(first, second)
    for note in found.notes:
        narrate(note)
    if page is not None:
        write_file(page, found.html())
    if colors is not None:
        write_file(colors, json.dumps(found.node_numbers()))
    if as_json:
        say_json("diff", **{**found.as_dict(), "first": a, "second": b})
    else:
        _say(found, os.path.basename(a), os.path.basename(b))
    return 0 if found.is_same else 1


def _say(found: Any, first: str, second: str) -> None:
    from dovetail.report.diff_text import change_rows, port_rows, property_rows, summary

    table(("nodes", "same" if found.is_same else "different"), summary(found))
    rows = [*change_rows(found), *port_rows(found), *((name, old, new, "") for name, old, new in property_rows(found))]
    if rows:
        click.echo()
        table(("", first, second, ""), rows)
