"""Command ``dovetail shard`` proposes how to split a model over devices."""

from __future__ import annotations

import os
from math import prod

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, narrate, progress, say_json, table

TENSORS = ("tensor", "kind", "shape", "PartitionSpec", "reason")
COLLECTIVES = ("collective", "node", "count", "bytes")


@click.command()
@options.model
@click.option("--mesh", required=True, metavar="NAME=SIZE,...", help="The axes of the mesh: data=2,model=4.")
@click.option(
    "--spec",
    "specs",
    multiple=True,
    metavar="PATTERN=AXIS,...",
    help="Spec of the tensors that match: 'dense*=-,model' (- is None).",
)
@options.inputs
@options.dims
@click.option("--device", help="The platform of the devices: cpu, gpu, tpu [JAX's first].")
@loading
def shard(
    model: str,
    mesh: str,
    specs: tuple[str, ...],
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    device: str | None,
    as_json: bool,
) -> int:
    """Propose how JAX splits MODEL over a mesh of devices, and list the collectives of the compiled program.

    Inputs are split over the axis "data" by their batch, weights over "model". Without accelerators the processor simulates the
    devices of the mesh. The model is compiled for input files, or for random inputs.
    """
    sizes = _mesh_of(mesh)
    # JAX reads XLA_FLAGS only when it starts.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={prod(sizes.values())}".strip()

    from dovetail.cli.arrays import read_inputs
    from dovetail.runtime.devices.sharded_program import ShardedProgram, batch_sizes
    from dovetail.runtime.devices.sharding_plan import spec_text

    loaded = load(model)
    with progress(f"splitting {model}"):
        program = ShardedProgram(loaded, device, mesh=sizes, shardings=dict(map(_spec_of, specs)))
    fixed = {pair.rpartition("=")[0] for pair in dims}
    every = (*dims, *(f"{name}={size}" for name, size in batch_sizes(loaded, sizes).items() if name not in fixed))
    arrays, random = read_inputs(program.model, inputs, 0, every if not inputs else dims)
    if random:
        narrate(f"random inputs: {', '.join(random)}")
    with progress(f"compiling {model}"):
        collectives = program.collectives(arrays)
    if as_json:
        say_json(
            "shard",
            mesh=sizes,
            shardings=[
                {**row._asdict(), "shape": list(map(str, row.shape)), "spec": spec_text(row.spec)} for row in program.shardings
            ],
            collectives=[dict(zip(COLLECTIVES, row, strict=True)) for row in collectives.rows()],
        )
    else:
        table(TENSORS, program.shardings.cells())
        table(COLLECTIVES, [(*row[:3], f"{row[3]:,}") for row in collectives.rows()])
    return 0


def _mesh_of(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in text.split(","):
        name, mark, size = pair.partition("=")
        if not mark or not name or not (size.isascii() and size.isdigit()) or not int(size):
            raise click.UsageError(f"--mesh takes NAME=SIZE,..., not {text!r}")
        found[name] = int(size)
    return found


def _spec_of(text: str) -> tuple[str, tuple[str | None, ...]]:
    pattern, mark, axes = text.rpartition("=")
    if not mark or not pattern:
        raise click.UsageError(f"--spec takes PATTERN=AXIS,..., not {text!r}")
    return pattern, tuple(None if axis == "-" else axis for axis in axes.split(",") if axis)
