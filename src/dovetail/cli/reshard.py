"""Command ``dovetail reshard`` applies movement operators to tensors in files."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, say_json


@click.command()
@click.argument("graph", type=click.Path())
@click.argument("source", metavar="INPUT", type=click.Path())
@options.folder
@click.option("--shards", type=click.IntRange(min=1), help="The number of files.")
@click.option("--max-shard-size", metavar="SIZE", help="End a file before a further tensor exceeds this size, such as 5GB.")
@click.option("--memory", metavar="SIZE", default="500MB", show_default=True, help="The maximum memory of the process.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Tensors that are copied to the results, by a shell pattern.")
@options.restart
@click.option("--threads", type=click.IntRange(min=1), help="Threads that copy [one for each core, at most 4].")
@loading
def reshard(
    graph: str,
    source: str,
    output: str,
    shards: int | None,
    max_shard_size: str | None,
    memory: str,
    keep: tuple[str, ...],
    restart: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Write the outputs of a graph of movement operators over the tensors of INPUT, a .safetensors file or a folder of them.

    GRAPH is a model, or a recipe (.toml). Tensors are copied from file to file in bounded memory. The same command resumes a
    job that was interrupted.
    """
    # Deferred for start-up time.
    from dovetail.data.tensors import reshard as tensors

    if shards and max_shard_size:
        raise click.UsageError("--shards and --max-shard-size exclude each other")
    model = graph if graph.endswith(".toml") else load(graph)
    with progress(f"{graph} on {source}"):
        report = tensors.reshard(
            model, source, output, shards=shards or max_shard_size, memory=memory, keep=keep, threads=threads, restart=restart
        )
    if as_json:
        say_json("reshard", graph=graph, input=source, **report.to_json())
    else:
        click.echo(report.to_text())
    return 0
