"""Options and output of the subcommands that write a changed model."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, differences, narrate, progress, say_json, table
from dovetail.ir.graph import Model
from dovetail.storage.deviations import summarize

_OPSET = click.option("--opset", type=int, help="The ONNX opset to write (default: the model's own, or 21).")
_EXTERNAL = click.option("--external", is_flag=True, help="Put the tensors of an ONNX file into one file beside it.")
_WEIGHTS = click.option(
    "--weights", type=click.Choice(["safetensors"]), help="Put the weights into one safetensors file beside the model."
)
_VERIFY = click.option("--verify", is_flag=True, help="Run the result and the original on random inputs, and compare.")
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True)
class FileOptions:
    """FileOptions holds the options of a file to write: the opset, and the file for weights."""

    opset: int | None
    external: bool
    weights: str | None

    def of(self, target: str) -> dict[str, Any]:
        """Return the options of ``save`` for a target. Raises UsageError for an option that the target's format lacks."""
        from dovetail.formats.model_source import format_of

        is_onnx = target == STREAM or format_of(target) == "onnx"
        if not is_onnx and (self.external or self.opset is not None):
            raise click.UsageError("--opset and --external need an ONNX target")
        if self.external and self.weights:
            raise click.UsageError("--external and --weights exclude each other")
        if target == STREAM and (self.external or self.weights):
            option = "--external" if self.external else "--weights"
            raise click.UsageError(f"{option} writes a second file, so the target must be the name of a file, not -")
        container = {"weights": self.weights} if self.weights else {}
        return {"opset": self.opset, "external": self.external or None, **container} if is_onnx else container


def saving(command: Callable[..., Any]) -> Any:
    """Add the options ``--opset``, ``--external`` and ``--weights``, which the command gets as ``file_options``."""

    @functools.wraps(command)
    def run(*args: Any, opset: int | None, external: bool, weights: str | None, **rest: Any) -> Any:
        return command(*args, file_options=FileOptions(opset, external, weights), **rest)

    return _OPSET(_EXTERNAL(_WEIGHTS(run)))


def split_names(texts: Sequence[str]) -> list[str]:
    """Split lists of names at their commas; a comma in a name has a backslash before it."""
    return [name.replace("\\,", ",") for text in texts for name in _COMMA.split(text) if name]


def split_pairs(texts: Sequence[str], option: str, *, at_first: bool = False) -> dict[str, str]:
    """Parse ``NAME=TEXT`` to a mapping, at the last or at the first equals sign.

    Raises UsageError for a text without an equals sign, and for a repeated name.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=") if at_first else text.rpartition("=")
        if not mark or not name:
            raise click.UsageError(f"{option} takes NAME=TEXT, not {text!r}")
        if name in pairs:
            raise click.UsageError(f"{option} names {name!r} twice")
        pairs[name] = value
    return pairs


def verifying(command: Callable[..., Any]) -> Any:
    """Add the options ``--verify`` and ``--seed``."""
    return _VERIFY(options.seed(command))


def say_differences(rows: Sequence[Any], *, as_json: bool, to_stdout: bool) -> int:
    """Print a comparison as a table, or its differences on stderr if stdout has other data; return the exit code."""
    from dovetail.compare.verification.conversion import NOT_COMPARED

    agrees = all(row.agrees or row.why == NOT_COMPARED for row in rows)
    if to_stdout or as_json:
        for row in rows:
            if not row.agrees:
                narrate(f"{row.output}: {row.why or f'differs by {row.absolute:.3g}'}")
    else:
        table(("output", "type", "max abs", "max rel", "allowed", ""), differences(rows))
    if agrees:
        narrate("the result agrees with the original")
    return 0 if agrees else 1


def rows_as_json(rows: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Return the rows of a comparison as JSON data; None where nothing was compared."""
    return None if rows is None else [dataclasses.asdict(row) for row in rows]


def write_result(
    command: str,
    sources: Mapping[str, Any],
    model: Model,
    target: str,
    destination: str | BinaryIO,
    options: Mapping[str, Any],
    rows: Sequence[Any] | None,
    *,
    as_json: bool,
    **counts: int,
) -> int:
    """Write a transformed model, and print a summary of it and the comparison ``rows``. Returns the exit code.

    ``destination``: the value that :func:`target_of` returns.
    """
    from dovetail.formats import save

    with progress(f"writing {target}"):
        save(model, destination, **options)
    narrate_warnings(model)
    narrate(f"wrote {target}: {model!r}")
    if as_json:
        say_json(
            command,
            **sources,
            target=target,
            inputs=[x.name for x in model.inputs],
            outputs=[y.name for y in model.outputs],
            **counts,
            warnings=[{"code": item.code, "message": item.message} for item in model.warnings],
            comparisons=rows_as_json(rows),
        )
    return 0 if rows is None else say_differences(rows, as_json=as_json, to_stdout=target == STREAM)


def narrate_warnings(model: Model) -> None:
    """Print the warnings of a transformation on stderr, one line for each code."""
    for line in summarize(model.warnings):
        narrate(f"warning {line}")
