"""Options and output of the subcommands that write a changed model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from dovetail.cli.output import STREAM, narrate
from dovetail.formats.deviations import summarize
from dovetail.ir.graph import Model

_OPSET = click.option("--opset", type=int, help="The ONNX opset to write (default: the model's own, or 21).")
_EXTERNAL = click.option("--external", is_flag=True, help="Put the tensors of an ONNX file into one file beside it.")
_COMMA = re.compile(r"(?<!\\),")


def saving(command: Any) -> Any:
    """Add the options ``--opset`` and ``--external``."""
    return _OPSET(_EXTERNAL(command))


def save_options(target: str, opset: int | None, external: bool) -> dict[str, Any]:
    """Return the options of ``save`` for a target. Raises UsageError where its format has none of them."""
    from dovetail.formats.model_source import format_of

    if target != STREAM and format_of(target) != "onnx":
        if external or opset is not None:
            raise click.UsageError("--opset and --external are for ONNX targets")
        return {}
    if target == STREAM and external:
        raise click.UsageError("--external writes a second file and needs a name for the first, not -")
    return {"opset": opset, "external": external or None}


def split_names(texts: Sequence[str]) -> list[str]:
    """Split lists of names at their commas; a comma in a name has a backslash before it."""
    return [name.replace("\\,", ",") for text in texts for name in _COMMA.split(text) if name]


def split_pairs(texts: Sequence[str], option: str, *, at_first: bool = False) -> dict[str, str]:
    """Parse ``NAME=TEXT`` to a mapping, at the last or at the first equals sign.

    Raises UsageError for a text without one, and for a repeated name.
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


def narrate_warnings(model: Model) -> None:
    """Print the warnings of a transformation on stderr, one line for each code."""
    for line in summarize(model.warnings):
        narrate(f"warning {line}")
