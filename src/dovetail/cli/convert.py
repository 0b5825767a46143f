"""dovetail convert."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from dovetail.cli.output import differences, load, narrate, progress, say_json, table


@click.command()
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--opset", type=int, help="The ONNX opset to write (default: the source's own, or 21).")
@click.option("--external", is_flag=True, help="Put the tensors of an ONNX file into one file beside it.")
@click.option("--verify", is_flag=True, help="Run both and print the largest difference per output.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Allowed difference as a share of the largest magnitude [1e-4; f16 and smaller: 4 ulp].",
)
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="Inputs for --verify; random ones for the rest."
)
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension, for --verify.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs.")
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
    """Convert SOURCE to TARGET; the suffixes (.onnx, .xml) say the formats.

    Operators that the target cannot say exactly are refused, and all of them are listed. With --verify each of the two runs in
    its own runtime (onnxruntime, openvino) where that is installed.
    """
    from dovetail.formats import format_of, save

    if format_of(target) != "onnx" and (external or opset is not None):
        raise click.UsageError("--opset and --external are for ONNX targets")
    if not verify and (inputs or dims or tolerance is not None):
        raise click.UsageError("--input, --dim and --tolerance are for --verify")
    model = load(source)
    with progress(f"writing {target}"):
        save(model, target, **({"opset": opset, "external": external or None} if format_of(target) == "onnx" else {}))
    narrate(f"wrote {target}")
    if not verify:
        if as_json:
            say_json("convert", source=source, target=target)
        return 0
    from dovetail.cli.arrays import read_inputs
    from dovetail.verify import TOLERANCE, compare, run_either, runner_for

    arrays, random = read_inputs(model, inputs, seed, dims)
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    with progress(f"running {source}"):
        first, reference = run_either(source, arrays)
    for reason in first.notes:
        narrate(reason)
    with progress(f"running {target}"):
        second = runner_for(target)
        rows = compare(reference, second.run(arrays), tolerance)
    agrees = all(row.agrees for row in rows)
    allowed = TOLERANCE if tolerance is None else tolerance
    narrate(f"{source} in {first.name}, {target} in {second.name}; tolerance {allowed:g} of the largest magnitude")
    if as_json:
        found: list[dict[str, Any]] = [dataclasses.asdict(row) for row in rows]
        runtimes = [first.name, second.name]
        say_json(
            "convert", source=source, target=target, agrees=agrees, tolerance=allowed, runtimes=runtimes, seed=seed, outputs=found
        )
    else:
        table(("output", "type", "max abs", "max rel", "allowed", ""), differences(rows))
    return 0 if agrees else 1
