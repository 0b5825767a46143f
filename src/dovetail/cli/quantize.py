"""Command ``dovetail quantize`` stores the weights of a model in fewer bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, target_of
from dovetail.cli.proofs import prove_conversion
from dovetail.cli.transformation import FileOptions, saving
from dovetail.compare.prove.conditions import Conditions, find_roundings

COLUMNS = ("node", "operator", "bits", "after", "inputs", "block", "rounding", "bytes saved", "predicted", "measured", "kept for")


TARGETS = ("int8", "int4", "f8", "f8e5m2", "f16", "bf16")


class Share(click.ParamType):  # type: ignore[type-arg]
    """Share is a parameter type: a number, or a number of percent such as 0.5%."""

    name = "share"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = value.strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share < float("inf"):
            self.fail(f"must be a share such as 0.5% or 0.005, got {value!r}", param, ctx)
        return share


@click.command()
@options.model
@options.target
@click.option("--to", default="int8", show_default=True, type=click.Choice(TARGETS), help="The type of weights.")
@options.input_option("--data", help="Rows of an input, in .npy or .npz files [random inputs].")
@click.option("--budget", type=Share(), metavar="SHARE", help="Keep nodes until the error of the outputs is below it, as 0.5%.")
@click.option("--block-size", type=int, help="Weights of a product that share a scale; 0: a channel [int4: 32, int8: 0].")
@click.option("--symmetric/--zero-points", default=None, help="Without or with zero points [int8: without, int4: with].")
@click.option("--rounding", type=click.Choice(("nearest", "gptq")), help="How weights are rounded [with rows: gptq].")
@click.option(
    "--activations",
    type=click.Choice(("minmax", "percentile", "mse")),
    help="With int8: quantize the inputs of products and convolutions too, in ranges chosen from rows.",
)
@click.option("--qdq", is_flag=True, help="Write DequantizeLinear for weights in blocks, not MatMulNBits.")
@click.option("--keep", multiple=True, metavar="NAME", help="A node or a constant whose weights keep their type [repeatable].")
@click.option(
    "--engine", metavar="ENGINE", help="interpreter, native, onnxruntime, openvino: it runs the result to measure its error."
)
@click.option("--verify/--no-verify", default=True, help="Run the model and the result on rows, and measure errors [on].")
@options.certificate_option(
    help="Write what proves the result equal to MODEL with rounded weights, and their bounds (.json), for dovetail-check."
)
@options.shapes
@options.dims
@options.seed
@saving
@loading
def quantize(
    model: str,
    target: str,
    to: str,
    inputs: tuple[str, ...],
    budget: float | None,
    block_size: int | None,
    symmetric: bool | None,
    rounding: str | None,
    activations: str | None,
    qdq: bool,
    keep: tuple[str, ...],
    engine: str | None,
    verify: bool,
    certificate: str | None,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    file_options: FileOptions,
    as_json: bool,
) -> int:
    """Write MODEL with weights of fewer bits, and print bits, bytes and errors of each node. - is stdin, or ONNX on stdout.

    Rows are calibrated on, and a quarter of them is held out. The errors are those of the outputs on held-out rows, relative to
    the outputs, where only this node is rounded. With --budget, nodes keep their weights in order of predicted error for each
    saved byte, until the error of the result, with a confidence bound for other rows, is within the budget.
    """
    from dovetail.cli.arrays import read_files, shapes_of, sizes_of
    from dovetail.formats import save
    from dovetail.formats.model_source import format_of
    from dovetail.passes.quantization.report import QuantizeOptions
    from dovetail.passes.quantize import quantize as quantize_model
    from dovetail.runtime.random_inputs import Inputs

    if certificate and STREAM in (model, target):
        raise click.UsageError("--certificate needs names for both files, not -")
    is_ir = target != STREAM and format_of(target) == "openvino"
    if qdq and is_ir:
        raise click.UsageError("--qdq needs an ONNX target")
    has_codes = to not in ("f16", "bf16")
    encoding = ("ir" if is_ir else "qdq" if qdq else "matmulnbits") if has_codes else "qdq" if qdq else None
    file_settings = file_options.of(target)
    to_file = target_of(target, as_json)
    source = load(model)
    rows = Inputs(read_files(source, inputs), sizes_of(dims) or None, shapes_of(shapes) or None, seed)
    settings = QuantizeOptions(block_size, symmetric, encoding, rounding, activations, verify, keep, engine)
    with progress(f"quantizing {model}"):
        new = quantize_model(source, to, inputs=rows, budget=budget, options=settings)
    with progress(f"writing {target}"):
        save(new, to_file, **file_settings)
    if certificate:
        with progress(f"proving {target} equal to {model} with rounded weights"):
            written = load(target)
            conditions = Conditions(rounded=find_roundings((source, written)))
            prove_conversion(source, written, is_alone=False, certificate=certificate, conditions=conditions)
    report = new.report
    if report.drawn:
        narrate(f"random inputs (seed {seed}): {', '.join(report.drawn)}")
    for note in report.notes:
        narrate(f"warning {note}")
    if report.measured is not None:
        predicted = "" if report.predicted is None else f", predicted {report.predicted:.3g}"
        upper = "" if report.upper is None else f", at most {report.upper:.3g} expected on other rows"
        narrate(f"error of the outputs on held-out rows {report.measured:.3g}{predicted}{upper}")
    narrate(f"weights {report.bytes_before:,} bytes before, {report.bytes:,} after; wrote {target}")
    if as_json:
        facts = {
            name: getattr(report, name) for name in ("budget", "predicted", "measured", "upper", "engine", "calls", "held_out")
        }
        say_json(
            "quantize", source=model, target=target, to=to, seed=seed, random=report.drawn, **facts,
            bytes_before=report.bytes_before, bytes=report.bytes, notes=report.notes,
            nodes=[{**dataclasses.asdict(node), "kept": node.kept or None} for node in report.nodes],
        )  # fmt: skip
    elif target != STREAM:
        table(COLUMNS, rows_of([dataclasses.asdict(node) for node in report.nodes]))
    return 0


def _number(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"


def rows_of(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of a table with COLUMNS, from the fields of each QuantizedNode."""
    return [
        (
            node["node"], node["op"], node["bits_before"], node["bits"], node["activation_bits"], node["block"] or "",
            node["rounding"], f"{node['bytes_before'] - node['bytes']:,}", _number(node["predicted"]),
            _number(node["measured"]), node["kept"],
        )
        for node in nodes
    ]  # fmt: skip
