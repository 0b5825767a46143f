"""Arguments and options of several subcommands, each declared once."""

from __future__ import annotations

import re
from functools import partial

import click

UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """Bytes is a parameter type: a number of bytes with a unit, such as 500MB or 2GiB."""

    name = "bytes"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*", value, re.ASCII)
        if found is None or found[2].upper() not in UNITS:
            self.fail(f"must be a number of bytes, such as 500MB or 2GiB, got {value!r}", param, ctx)
        return int(float(found[1]) * UNITS[found[2].upper()])


target_option = partial(click.option, required=True, type=click.Path(), help="The file to write; its suffix names the format.")
input_option = partial(click.option, "-i", "--input", "inputs", multiple=True, metavar="[NAME=]FILE")
tolerance_option = partial(click.option, "--tolerance", type=click.FloatRange(min=0))
SHARE = "as a share of the largest magnitude [1e-4; f16 and smaller: 4 ulp]."

model = click.argument("model", type=click.Path())
source = click.argument("source", type=click.Path())
target = target_option("-o", "--output", "target")
folder = click.option("-o", "--output", required=True, type=click.Path(), help="The folder of the results.")
restart = click.option("--restart", is_flag=True, help="Remove the results of an earlier job from the folder, and start anew.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
inputs = input_option(help="Inputs; random ones for the rest.")
shapes = click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE,...", help="The shape of a random input.")
dims = click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension of random inputs.")
tolerance = tolerance_option(help=f"Allowed difference {SHARE}")
seed = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs.")
certificate_option = partial(click.option, "--certificate", type=click.Path(), metavar="FILE")
certificate = certificate_option(help="With --prove: write what proves it (.json), for dovetail-check.")
precision = click.option(
    "--precision",
    type=click.Choice(("f32", "bf16", "int8", "auto")),
    help="Precision of products [f32, or less as the model permits].",
)
threads = click.option("--threads", type=click.IntRange(min=1), help="Threads (default: DOVETAIL_THREADS, else all).")
engines = click.option(
    "--engines", default="native", show_default=True, metavar="ENGINE,...", help="native, onnxruntime, openvino."
)
runs = click.option("--runs", type=click.IntRange(min=1), help="Timed runs of each engine (default: two seconds, 1 to 20).")
