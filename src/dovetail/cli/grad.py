"""Command ``dovetail grad`` writes a model of gradients."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, target_of


@click.command()
@options.source
@click.argument("target", type=click.Path())
@click.option("--of", help="The value to differentiate (default: the only output).")
@click.option("--wrt", multiple=True, help="With respect to this input, weight or value (default: all float inputs).")
@click.option("--opset", type=int, help="The ONNX opset to write.")
@loading
def grad(source: str, target: str, of: str | None, wrt: tuple[str, ...], opset: int | None, as_json: bool) -> int:
    """Write a model that computes a value of SOURCE and its gradients, in either format. - is stdin, or ONNX on stdout."""
    from dovetail.formats import save
    from dovetail.formats.model_source import format_of
    from dovetail.laws.gradients import grad as differentiate

    if opset is not None and target != STREAM and format_of(target) != "onnx":
        raise click.UsageError("--opset needs an ONNX target")
    to = target_of(target, as_json)
    loaded = load(source)
    with progress(f"differentiating {source}"):
        model = differentiate(loaded, of=of, wrt=list(wrt) or None)
        save(model, to, opset=opset)
    if as_json:
        say_json(
            "grad", source=source, target=target, inputs=[x.name for x in model.inputs], outputs=[y.name for y in model.outputs]
        )
    narrate(f"wrote {target}: {', '.join(value.name for value in model.outputs)}")
    return 0
