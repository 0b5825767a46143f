"""dovetail run."""

from __future__ import annotations

import time

import click

from dovetail.cli.output import narrate, progress, read_inputs, say_json, table, write_arrays


@click.command()
@click.argument("model", type=click.Path())
@click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="An input from .npy, or several from .npz.")
@click.option("-o", "--output", type=click.Path(), help="Write the outputs to .npz (or one to .npy).")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--engine", default="auto", show_default=True, help="auto or interpreter.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    model: str, inputs: tuple[str, ...], output: str | None, dims: tuple[str, ...], seed: int, engine: str, as_json: bool
) -> int:
    """Run MODEL on given inputs, or on random seeded ones: a table of outputs, and the time."""
    from dovetail.formats import load
    from dovetail.program import compile

    with progress(f"loading {model}"):
        program = compile(load(model), engine=engine)
    arrays, random = read_inputs(program.model, inputs, seed, dims)
    if random and not as_json:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    start = time.perf_counter()
    with progress(f"running {model}"):
        outputs = program(arrays)
    seconds = time.perf_counter() - start
    if output:
        write_arrays(output, outputs)
    rows = [_row(name, array) for name, array in outputs.items()]
    if as_json:
        keys = ("name", "type", "min", "mean", "max")
        say_json("run", engine=program.engine, seconds=seconds, outputs=[dict(zip(keys, row, strict=True)) for row in rows])
    else:
        table(("output", "type", "min", "mean", "max"), rows)
        narrate(f"{seconds * 1000:.1f} ms, {program.engine}")
    return 0


def _row(name: str, array: object) -> list[str]:
    import numpy as np

    from dovetail.dtypes import dtype

    if isinstance(array, list):
        return [name, f"sequence of {len(array)}", "", "", ""]
    data = np.asarray(array)
    kind = dtype(data.dtype)
    text = f"{kind}[{', '.join(map(str, data.shape))}]"
    if not data.size or kind.kind in ("string", "complex"):
        return [name, text, "", "", ""]
    wide = data.astype(np.float64)
    return [name, text, *(f"{number:.6g}" for number in (wide.min(), wide.mean(), wide.max()))]
