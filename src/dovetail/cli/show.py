"""Command ``dovetail show`` prints the graph of a model."""

from __future__ import annotations

import os
import stat
import sys

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, narrate, progress, say_json


@click.command()
@options.model
@click.option("--full", is_flag=True, help="Print the whole model in the text form, which dovetail loads again.")
@click.option("--weights", type=click.Path(), help="The file for the weights of --full: <stem>.safetensors beside the output.")
@loading
def show(model: str, full: bool, weights: str | None, as_json: bool) -> int:
    """Print the graph of MODEL as text, with inferred types and shapes.

    With --full the text has the complete MODEL, one node per line, and loads as .dt: ``dovetail show m.onnx --full > m.dt``.
    Tensors of more than 16 elements go into m.safetensors in the same folder, unless that file belongs to another model or tool.
    ``dovetail convert m.onnx m.dt`` writes both files.
    """
    from dovetail.report.model_summary import describe
    from dovetail.report.printer import show as show_model

    if full and as_json:
        raise click.UsageError("--full and --json exclude each other")
    if weights is not None and not full:
        raise click.UsageError("--weights needs --full")
    loaded = load(model)
    if full:
        from dovetail.formats.text import codec
        from dovetail.storage.safetensors_file import SUFFIX

        target = None if weights else _file_of_stdout()
        side = weights or (target and os.path.splitext(target)[0] + SUFFIX)
        with progress(f"writing {model} as text"):
            written = codec.write(loaded, sys.stdout.buffer, side, beside=target)
        if written:
            narrate(f"wrote {side}")
    elif as_json:
        say_json("show", file=model, graph=describe(loaded.graph))
    else:
        click.echo(show_model(loaded), nl=False)
    return 0


def _file_of_stdout() -> str | None:
    """Return the path of the file to which stdout is redirected; None for anything but a file of known path."""
    try:
        descriptor = sys.stdout.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode) and os.path.samefile(path, f"/proc/self/fd/{descriptor}")
    except (OSError, ValueError):
        return None
    return path if is_file else None
