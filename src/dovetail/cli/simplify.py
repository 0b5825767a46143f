"""Command ``dovetail simplify`` writes a model with fewer nodes."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, target_of
from dovetail.cli.proofs import prove_conversion, verdict_text
from dovetail.cli.transformation import FileOptions, saving, split_names


@click.command()
@options.model
@options.target
@click.option("--keep", multiple=True, metavar="PASS", help="Apply only this pass, and others named by --keep.")
@click.option("--skip", multiple=True, metavar="PASS", help="Leave this pass out.")
@click.option("--fuse", multiple=True, metavar="OPERATOR", help="Fuse into Gelu, LayerNormalization, or all: changes rounding.")
@click.option(
    "--prove",
    "--verify",
    "prove",
    is_flag=True,
    help="Prove the result equal for all inputs; run before and after each pass, and undo a pass that changes a result.",
)
@options.certificate
@options.tolerance_option(help=f"Allowed difference for --prove {options.SHARE}")
@options.seed
@click.option("--types", is_flag=True, help="Write all types and default attributes into an ONNX file.")
@saving
@loading
def simplify(
    model: str,
    target: str,
    keep: tuple[str, ...],
    skip: tuple[str, ...],
    fuse: tuple[str, ...],
    prove: bool,
    certificate: str | None,
    tolerance: float | None,
    seed: int,
    types: bool,
    file_options: FileOptions,
    as_json: bool,
) -> int:
    """Write MODEL with fewer nodes, and print a table of the changes of each pass. - is stdin, or ONNX on stdout.

    Inputs and outputs keep their names, types and order, and the file keeps its opset. With --prove a pass that changes a result
    of the model is undone and reported; the exit code stays 0.
    """
    from dovetail.formats import save
    from dovetail.formats.model_source import format_of
    from dovetail.passes.simplify import simplify as simplify_model

    format = "onnx" if target == STREAM else format_of(target)
    is_onnx = format == "onnx"
    if not is_onnx and types:
        raise click.UsageError("--types needs an ONNX target")
    options = {**file_options.of(target), **({"types": types} if is_onnx else {})}
    if not prove and tolerance is not None:
        raise click.UsageError("--tolerance needs --prove")
    if certificate and (not prove or STREAM in (model, target)):
        raise click.UsageError("--certificate needs --prove, and names for both files, not -")
    to = target_of(target, as_json)
    source = load(model)
    with progress(f"simplifying {model}"):
        new = simplify_model(
            source,
            keep=keep or None,
            skip=skip,
            fuse=split_names(fuse),
            prove=prove,
            seed=seed,
            tolerance=tolerance,
            target="" if format == "text" else format,
        )
    with progress(f"writing {target}"):
        save(new, to, **options)
    if certificate:
        with progress(f"proving {model} and {target} equal"):
            prove_conversion(source, load(target), is_alone=True, certificate=certificate)
    report = new.report
    for note in report.notes:
        narrate(f"warning {note}")
    for each in report.refutations:
        narrate(f"warning pass {each.name} taken back: {each.reverted}")
    if report.verdict:
        narrate(verdict_text(report.verdict, report.rewrites, report.sizes))
    narrate(f"{report.nodes_before} nodes before, {report.nodes_after} after; wrote {target}")
    if as_json:
        passes = [
            {
                "name": each.name,
                "changed": len(each.changes),
                "reverted": each.reverted or None,
                "nodes": [{"node": change.node, "op": change.op} for change in each.changes],
            }
            for each in report.passes
        ]
        say_json(
            "simplify",
            source=model,
            target=target,
            nodes_before=report.nodes_before,
            nodes_after=report.nodes_after,
            rounds=report.rounds,
            runs=report.sizes if prove else None,
            equality={"verdict": report.verdict, "rewrites": report.rewrites} if prove else None,
            notes=report.notes,
            passes=passes,
        )
    elif target != STREAM:
        rows = [(each.name, len(each.changes), each.reverted) for each in report.passes if each.changes or each.reverted]
        table(("pass", "changed nodes", "taken back"), rows)
    return 0
