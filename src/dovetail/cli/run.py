"""Command ``dovetail run`` runs a model."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table
from dovetail.ir.dtypes import dtype


@click.command()
@options.model
@options.inputs
@click.option("-o", "--output", type=click.Path(), help="Write the outputs to .npz (or one to .npy).")
@options.dims
@options.seed
@click.option("--engine", type=click.Choice(("auto", "native", "interpreter")), default="auto", show_default=True)
@options.threads
@options.precision
@click.option("--digest", is_flag=True, help="Run a reproducible program, and print the SHA-256 of each output.")
@loading
def run(
    model: str,
    inputs: tuple[str, ...],
    output: str | None,
    dims: tuple[str, ...],
    seed: int,
    engine: str,
    threads: int | None,
    precision: str | None,
    digest: bool,
    as_json: bool,
) -> int:
    """Run MODEL on input files or on seeded random inputs, and print a table of outputs and the time.

    - is stdin for MODEL or an input. As output, - is stdout, which then gets .npz data instead of the table. A digest is that of
    the element type, the shape and the elements, and is the same on every processor (docs/howto/reproduce.md).
    """
    from dovetail.cli.arrays import call_on_inputs, check_target, write_arrays
    from dovetail.runtime.compilation import compile

    if output == STREAM and as_json:
        raise click.UsageError("--json excludes the output -, since both write to stdout")
    program = compile(load(model), engine=engine, threads=threads, precision=precision, reproducible=digest)
    if output and output != STREAM:
        check_target(output, len(program.model.outputs))

    def time_run(arrays: dict[str, Any], _: list[str]) -> tuple[dict[str, Any], float]:
        start = time.perf_counter()
        outputs = program(arrays)
        return outputs, time.perf_counter() - start

    with progress(f"running {model}"):
        _, random, (outputs, seconds) = call_on_inputs(program.model, inputs, seed, dims, time_run)
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    if output:
        write_arrays(output, outputs)
        narrate(f"wrote {'stdout' if output == STREAM else output}")
    rows = [[*_row(name, array), *([digest_of(array)] if digest else [])] for name, array in outputs.items()]
    narrate(f"{seconds * 1000:.1f} ms, {program.engine}")
    if as_json:
        keys = ("name", "type", "min", "mean", "max", *(["digest"] if digest else []))
        say_json(
            "run", file=model, engine=program.engine, seconds=seconds, seed=seed, random=random, output=output,
            outputs=[dict(zip(keys, row, strict=True)) for row in rows],
        )  # fmt: skip
    elif output != STREAM:
        columns = ("output", "type", "min", "mean", "max", *(["digest"] if digest else []))
        table(columns, [["" if x is None else f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows])
    return 0


def digest_of(item: object) -> str:
    """Return the SHA-256 of an output: of the element type, the shape and the elements in row-major order; or of its items."""
    import numpy as np

    if isinstance(item, dict):
        item = list(map(list, item.items()))
    if isinstance(item, list):
        return sha256("".join(map(digest_of, item)).encode()).hexdigest()
    if item is None:
        return sha256(b"").hexdigest()
    data = np.asarray(item)
    if data.dtype.kind in "OTU":
        return sha256(repr((data.shape, list(map(str, data.flat)))).encode()).hexdigest()
    return sha256(f"{dtype(data.dtype)}{list(data.shape)}".encode() + data.tobytes()).hexdigest()


def _row(name: str, array: Any) -> list[Any]:
    import numpy as np

    if isinstance(array, list):
        return [name, f"sequence of {len(array)}", None, None, None]
    if isinstance(array, dict):
        return [name, f"map of {len(array)}", None, None, None]
    if array is None:
        return [name, "nothing", None, None, None]
    data = np.asarray(array)
    kind = dtype(data.dtype)
    text = f"{kind}[{', '.join(map(str, data.shape))}]"
    if not data.size or kind.kind in ("string", "complex"):
        return [name, text, None, None, None]
    wide = data.astype(np.float64)
    with np.errstate(all="ignore"):
        return [name, text, *(float(number) for number in (wide.min(), wide.mean(), wide.max()))]
