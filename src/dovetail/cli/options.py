"""Arguments and options of several subcommands, each declared once."""

from __future__ import annotations

import click

model = click.argument("model", type=click.Path())
source = click.argument("source", type=click.Path())
target = click.option("-o", "target", required=True, type=click.Path(), help="The file to write; its suffix names the format.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
inputs = click.option("-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="Inputs; random ones for the rest.")
shapes = click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE,...", help="The shape of a random input.")
dims = click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension of random inputs.")
seed = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs.")
threads = click.option("--threads", type=click.IntRange(min=1), help="Threads (default: DOVETAIL_THREADS, else all).")
engines = click.option(
    "--engines", default="native", show_default=True, metavar="ENGINE,...", help="native, onnxruntime, openvino."
)
runs = click.option("--runs", type=click.IntRange(min=1), help="Timed runs of each engine (default: two seconds, 1 to 20).")
