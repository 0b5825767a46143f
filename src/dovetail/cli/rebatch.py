"""Command ``dovetail rebatch`` changes the batch or other sizes of a model's inputs."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, target_of
from dovetail.cli.proofs import prove_conversion, verdict_text
from dovetail.cli.transformation import FileOptions, saving
from dovetail.compare.prove.conditions import Conditions

CHANGES = ("node", "operator", "old", "new", "reason")
COMPARISONS = ("output", "batch", "max abs", "max rel", "")


@click.command()
@options.source
@options.target
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="WHICH=SIZE",
    help="A symbol (batch=4, batch=N), an axis of all inputs (0=batch, 0=8) or of one input (x.0=batch).",
)
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=SIZE,...", help="The whole shape of an input: x=1,3,224,W.")
@saving
@click.option("--verify/--no-verify", default=True, help="Compare each sample with the original at several batches [on].")
@options.certificate_option(help="Write what proves the result equal to SOURCE at the old sizes (.json), for dovetail-check.")
@options.input_option(help="Inputs of SOURCE from which samples are made [random].")
@options.seed
@loading
def rebatch(
    source: str,
    target: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    file_options: FileOptions,
    verify: bool,
    certificate: str | None,
    inputs: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Change the batch of SOURCE, or other sizes of its inputs, and repair the constants that depend on them.

    Fixed sizes become symbols, and symbols become fixed or get another name. The result runs at batch 1, 3 and 8 (a fixed batch
    at its size), and each sample is compared with the original. Exit code 4: a node combines samples or cannot be repaired; all
    such nodes are listed.
    - is stdin, or ONNX on stdout.
    """
    from dovetail.formats import save
    from dovetail.passes.rebatch import rebatch as change_sizes

    if not dims and not shapes:
        raise click.UsageError("rebatch needs --dim or --shape")
    if inputs and not verify:
        raise click.UsageError("--input excludes --no-verify, since only the comparison uses the inputs")
    if certificate and STREAM in (source, target):
        raise click.UsageError("--certificate needs names for both files, not -")
    options = file_options.of(target)
    to = target_of(target, as_json)
    model = load(source)
    arrays = None
    if inputs:
        from dovetail.cli.arrays import read_inputs

        arrays, _ = read_inputs(model, inputs, seed, ())
    with progress(f"changing the sizes of {source}"):
        new = change_sizes(model, _dims_of(dims), _shapes_of(shapes), verify=verify, seed=seed, inputs=arrays)
    with progress(f"writing {target}"):
        save(new, to, **options)
    if certificate:
        with progress(f"proving {source} and {target} equal at the old sizes"):
            prove_conversion(model, load(target), is_alone=False, certificate=certificate, conditions=Conditions(fit_sizes=True))
    report = new.report
    for note in report.notes:
        narrate(note)
    if report.verdict:
        narrate(f"at the old sizes, the result is {verdict_text(report.verdict)}")
    narrate(f"{len(report.changes)} constants changed; wrote {target}")
    if as_json:
        say_json(
            "rebatch",
            source=source,
            target=target,
            verified=verify,
            inputs={value.name: str(value.type) for value in new.inputs},
            outputs={value.name: str(value.type) for value in new.outputs},
            changes=[change._asdict() for change in report.changes],
            comparisons=[row._asdict() for row in report.comparisons],
            notes=report.notes,
            proof=report.verdict or None,
        )
    elif target != STREAM:
        rows = [
            (row.output, row.batch or "", f"{row.absolute:.3g}", f"{row.relative:.3g}", "agrees") for row in report.comparisons
        ]
        for columns, lines in ((CHANGES, report.changes), (COMPARISONS, rows)):
            if lines:
                table(columns, lines)
    return 0


def _dims_of(pairs: tuple[str, ...]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for pair in pairs:
        key, mark, size = pair.rpartition("=")
        if not mark or not key or not size:
            raise click.UsageError(f"--dim takes WHICH=SIZE, not {pair!r}")
        found[key] = _size_of(size)
    return found


def _shapes_of(pairs: tuple[str, ...]) -> dict[str, list[int | str]]:
    found: dict[str, list[int | str]] = {}
    for pair in pairs:
        name, mark, text = pair.rpartition("=")
        sizes = [size.strip() for size in text.split(",")]
        if not mark or not all(sizes):
            raise click.UsageError(f"--shape takes INPUT=SIZE,SIZE,..., not {pair!r}")
        found[name] = [_size_of(size) for size in sizes]
    return found


def _size_of(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text
