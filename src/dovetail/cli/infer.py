"""Command ``dovetail infer`` prints or writes inferred types and shapes."""

from __future__ import annotations

from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, is_strict, load, loading, narrate, progress, say_json, table, target_of
from dovetail.cli.transformation import FileOptions, rows_as_json, saving, say_differences, verifying


@click.command()
@options.model
@click.option("-o", "--output", metavar="FILE", help="Write the model with its inferred types, in the format of the suffix.")
@saving
@verifying
@loading
def infer(model: str, output: str | None, file_options: FileOptions, verify: bool, seed: int, as_json: bool) -> int:
    """Infer the type, shape and shape value of every value of MODEL, as expressions over the dimensions of its inputs.

    With --output the results are written into the model: value_info in ONNX, ports and their rt_info in IR. Dimensions that
    operators require to be equal become one symbol, which is reported. With --strict a dimension that stays unknown is an error
    that names the operator, unless the operator's output size depends on data, as with NonZero. With --verify MODEL and the
    inferred model run on random inputs, and every inferred shape is compared with the shape in the run. Exit code 1: a shape
    differs.
    """
    from dovetail.formats import save
    from dovetail.passes.inference_report import annotate, infer_report

    target = None if output is None else target_of(output, as_json)
    options = {} if output is None else file_options.of(output)
    loaded = load(model)
    with progress(f"inferring {model}"):
        report = infer_report(loaded)
    if is_strict():
        report.raise_losses()
    rows = None
    if verify:
        from dovetail.passes.result_verification import verify_types

        with progress(f"running {model}"):
            rows = verify_types(loaded, report.model, seed)
    if target is not None:
        with progress(f"writing {output}"):
            save(annotate(report.model), target, **options)
        narrate(f"wrote {output}")
    if as_json:
        _say_report(model, output, report, rows)
        return 0 if rows is None else say_differences(rows, as_json=True, to_stdout=False)
    table(("input symbol", "at least", "at most"), [(name, *map(_bound_text, bounds)) for name, bounds in report.bounds.items()])
    for equation in report.equations:
        narrate(f"equal: {equation}")
    lines = [
        (item.value, "rank" if item.axis is None else item.axis, item.symbol, item.op, item.node, _reason(item))
        for item in report.unknown
    ]
    if lines:
        table(("value", "axis", "size", "operator", "node", "why"), lines, "dimensions that follow from no input dimension")
    count = sum(1 for _ in report.model.graph.values())
    click.echo(f"{count} values, {len(report.equations)} equations, {len(lines)} dimensions of unknown size")
    return 0 if rows is None else say_differences(rows, as_json=False, to_stdout=output == STREAM)


def _bound_text(number: int | None) -> str:
    return "" if number is None else str(number)


def _reason(item: Any) -> str:
    return "depends on data" if item.depends_on_data else "lost by inference"


def _say_report(model: str, output: str | None, report: Any, rows: list[Any] | None) -> None:
    from dovetail.report.model_summary import describe_value

    say_json(
        "infer",
        file=model,
        output=output,
        symbols={name: {"low": low, "high": high} for name, (low, high) in report.bounds.items()},
        equations=[
            {"first": str(item.first), "second": str(item.second), "node": item.node, "op": item.op} for item in report.equations
        ],
        replacements=report.replacements,
        unknown=[
            {name: getattr(item, name) for name in ("value", "axis", "symbol", "node", "op", "depends_on_data")}
            for item in report.unknown
        ],
        comparisons=rows_as_json(rows),
        values=[describe_value(value) for value in report.model.graph.values()],
    )
