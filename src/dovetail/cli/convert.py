"""dovetail convert."""

from __future__ import annotations

import dataclasses

import click

from dovetail.cli.output import differences, narrate, progress, read_inputs, say_json, table


@click.command()
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--opset", type=int, help="The ONNX opset to write (default: the source's own, or 21).")
@click.option("--external", is_flag=True, help="Put the tensors of an ONNX file into one file beside it.")
@click.option("--verify", is_flag=True, help="Run both and print the largest difference per output.")
@click.option("--tolerance", type=float, default=None, help="Allowed difference as a share of the largest magnitude [1e-4].")
@click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="Inputs for --verify; random ones for the rest.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension, for --verify.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def convert(
    source: str,
    target: str,
    opset: int | None,
    external: bool,
    verify: bool,
    tolerance: float | None,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Convert SOURCE to TARGET; the suffixes (.onnx, .xml) say the formats. An operator that the target cannot say exactly is refused, and
    all of them are listed."""
    from dovetail.formats import format_of, load, save

    if format_of(target) != "onnx" and (external or opset is not None):
        raise click.UsageError("--opset and --external are for ONNX targets")
    with progress(f"converting {source}"):
        model = load(source)
        save(model, target, **({"opset": opset, "external": external or None} if format_of(target) == "onnx" else {}))
    if not verify:
        if as_json:
            say_json("convert", source=source, target=target)
        else:
            narrate(f"wrote {target}")
        return 0
    from dovetail.verify import TOLERANCE, compare, runner_for

    allowed = TOLERANCE if tolerance is None else tolerance
    arrays, _ = read_inputs(model, inputs, seed, dims)
    first, second = runner_for(source), runner_for(target)
    with progress(f"running {source} and {target}"):
        rows = compare(first.run(arrays), second.run(arrays), allowed)
    agrees = all(row.agrees for row in rows)
    if as_json:
        found = [dataclasses.asdict(row) for row in rows]
        say_json(
            "convert", source=source, target=target, agrees=agrees, tolerance=allowed,
            runtimes=[first.name, second.name], outputs=found,
        )  # fmt: skip
    else:
        narrate(f"{source} in {first.name}, {target} in {second.name}; tolerance {allowed:g} of the largest magnitude")
        table(("output", "type", "max abs", "max rel", ""), differences(rows))
    return 0 if agrees else 1
