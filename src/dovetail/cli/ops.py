"""Command ``dovetail ops`` lists operators."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import say_json, table


@click.command()
@click.option("--format", "format", type=click.Choice(["onnx", "openvino"]), help="List the operators of a format instead.")
@options.as_json
def ops(format: str | None, as_json: bool) -> int:
    """List the operators: element types, gradient, native kernel, versions in ONNX and OpenVINO.

    With --format the list has the operators of ONNX or OpenVINO: versions that dovetail reads, versions that it does not read,
    and the operators to which they are imported. Tests demonstrate the listed types, gradients and kernels.
    """
    from dovetail.report import catalog

    if format is None:
        known = catalog.catalog()
        if as_json:
            say_json("ops", operators=catalog.as_json(known))
            return 0
        rows = [
            (each.name, " ".join(each.types), each.gradient, " ".join(each.native), *map("; ".join, (each.onnx, each.openvino)))
            for each in known
        ]
        table(("operator", "types", "gradient", "native", "ONNX", "OpenVINO"), [[cell or "-" for cell in row] for row in rows])
        return 0
    theirs = catalog.foreign_catalog(format)
    if as_json:
        say_json("ops", format=format, operators=catalog.as_json(theirs))
        return 0
    listed = [
        (each.name, ", ".join(map(str, each.versions)), ", ".join(map(str, each.unread)), " ".join(each.ours)) for each in theirs
    ]
    table(("operator", "read", "not read", "as"), [[cell or "-" for cell in row] for row in listed])
    return 0
