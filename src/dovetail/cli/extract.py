"""Command ``dovetail extract`` writes a part of a model."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, target_of
from dovetail.cli.transformation import FileOptions, saving, split_names, verifying, write_result


@click.command()
@options.source
@click.option(
    "--from", "sources", multiple=True, metavar="NAME[,NAME...]", help="The inputs of the part (default: graph inputs)."
)
@click.option(
    "--to", "targets", multiple=True, metavar="NAME[,NAME...]", help="The outputs of the part (default: graph outputs)."
)
@options.target
@saving
@verifying
@loading
def extract(
    source: str,
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    target: str,
    file_options: FileOptions,
    verify: bool,
    seed: int,
    as_json: bool,
) -> int:
    """Write the part of SOURCE that computes the values --to from the values --from, with its constants.

    Any value of the graph may be an end of the part; "node/value" names a value in a subgraph of If or Loop. A name with a comma
    needs a separate option, and a backslash before the comma. Graph inputs that the part also needs become inputs of the part,
    and are reported. - is stdin, or ONNX on stdout. With --verify the part runs on the intermediate values of the whole model.
    Exit code 1: an output differs from the value in the whole model.
    """
    from dovetail.ir.extract import extract as extract_part

    options = file_options.of(target)
    to = target_of(target, as_json)
    model = load(source)
    ends = split_names(sources) or None, split_names(targets) or None
    with progress(f"extracting from {source}"):
        part = extract_part(model, *ends)
    rows = None
    if verify:
        from dovetail.passes.result_verification import verify_part

        with progress(f"running {source} and the part"):
            rows = verify_part(model, part, *ends, seed)
    return write_result(
        "extract", {"source": source}, part, target, to, options, rows, as_json=as_json, nodes=len(part.graph.nodes)
    )
