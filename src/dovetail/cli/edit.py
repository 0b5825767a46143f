"""Command ``dovetail edit`` changes constants, types, names, outputs and metadata of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, target_of
from dovetail.cli.transformation import FileOptions, saving, split_names, split_pairs, verifying, write_result
from dovetail.errors import DovetailError, raise_all
from dovetail.ir.graph import Model


@click.command()
@options.source
@options.target_option("-o", "target")
@click.option("--constant", "constants", multiple=True, metavar="NAME=FILE|NUMBER", help="Other elements of a constant: .npy.")
@click.option("--input-type", "types", multiple=True, metavar="NAME=TYPE", help="Another element type of an input, with a Cast.")
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Make a value an output, after the existing outputs.")
@click.option(
    "--drop-output", "drops", multiple=True, metavar="NAME", help="Remove an output, and the nodes that only this output needs."
)
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Rename a value.")
@click.option("--metadata", multiple=True, metavar="KEY=TEXT", help="Set metadata: metadata_props of ONNX, rt_info of IR.")
@saving
@verifying
@loading
def edit(
    source: str,
    target: str,
    constants: tuple[str, ...],
    types: tuple[str, ...],
    outputs: tuple[str, ...],
    drops: tuple[str, ...],
    renames: tuple[str, ...],
    metadata: tuple[str, ...],
    file_options: FileOptions,
    verify: bool,
    seed: int,
    as_json: bool,
) -> int:
    """Write SOURCE with edits; each option may be repeated. - is stdin, or ONNX on stdout.

    All options name values as SOURCE names them. A number replaces every element of a constant. All faults are reported in one
    pass, and nothing is then written. With --verify outputs are compared with the same values of SOURCE; exit code 1: an output
    differs.
    """

    options = file_options.of(target)
    to = target_of(target, as_json)
    texts = split_pairs(metadata, "--metadata", at_first=True)
    data = split_pairs(constants, "--constant")
    dtypes = split_pairs(types, "--input-type")
    names = split_pairs(renames, "--rename")
    if verify and data:
        raise click.UsageError("--verify excludes --constant, since SOURCE has other constants to compare with")
    if not (texts or data or dtypes or names or outputs or drops):
        raise click.UsageError("edit needs at least one edit")
    model = original = load(source)
    count = len(model.warnings)
    steps: list[Callable[[Model], Model]] = [
        lambda model: model.with_constants(_elements(model, data)) if data else model,
        lambda model: model.convert_inputs(dtypes) if dtypes else model,
        lambda model: model.add_outputs(split_names(outputs)) if outputs else model,
        lambda model: model.drop_outputs(split_names(drops)) if drops else model,
        lambda model: model.set_metadata(texts) if texts else model,
        lambda model: model.rename_values(names) if names else model,
    ]
    errors: list[DovetailError] = []
    with progress(f"editing {source}"):
        for step in steps:
            try:
                model = step(model)
            except DovetailError as error:
                errors.append(error)
        raise_all(errors, "faults of the edits")
    rows = None
    if verify:
        from dovetail.passes.result_verification import verify_edit

        with progress(f"running {source} and the edited model"):
            rows = verify_edit(original, model, names, seed)
    model.warnings = model.warnings[count:]
    return write_result("edit", {"source": source}, model, target, to, options, rows, as_json=as_json)


def _elements(model: Model, texts: dict[str, str]) -> dict[str, Any]:
    """Return the new elements of each constant: the array of a .npy file, or a number. Raises UsageError for other texts."""
    from dovetail.cli.arrays import as_input, read_array

    values = model.values
    elements: dict[str, Any] = {}
    for name, text in texts.items():
        if text.endswith(".npy"):
            array = read_array(text)
            elements[name] = as_input(values[name].type, array) if name in values else array
        else:
            elements[name] = _number(text)
    return elements


def _number(text: str) -> int | float:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise click.UsageError(f"--constant takes a .npy file or a number, not {text!r}")
