"""Output of the subcommands: tables for people, JSON for programs, errors, progress on a terminal."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from dovetail.cli import options
from dovetail.errors import Diagnostic, DovetailError, printable
from dovetail.ir.graph import Model
from dovetail.ir.limits import DEFAULT, Limits, defaulting_to

JSON_VERSION = 1
PROGRESS_SECONDS = 1.0
"""The minimum seconds of work for which progress is shown."""


def say_json(kind: str, **data: object) -> None:
    """Print one JSON object, with its kind as ``dovetail`` and the version of its format as ``version``.

    JSON has no NaN and no infinity: these are printed as the texts "nan", "inf" and "-inf", which ``float`` reads.
    """
    click.echo(json.dumps(_plain({"dovetail": kind, "version": JSON_VERSION, **data}), allow_nan=False))


def _plain(item: object) -> Any:
    if isinstance(item, dict):
        return {str(name): _plain(each) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return [_plain(each) for each in item]
    if isinstance(item, float):
        return float(item) if math.isfinite(item) else str(float(item))
    return item if item is None or isinstance(item, bool | int | str) else str(item)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table on stdout: with drawn rules on a terminal, as aligned columns in a pipe."""
    heads = [printable(column) for column in columns]
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Text objects keep brackets in names, which rich would otherwise read as markup.
        heading = None if title is None else Text(printable(title))
        drawn = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left")
        for head in heads:
            drawn.add_column(Text(head))
        for row in texts:
            drawn.add_row(*(Text(cell) for cell in row))
        Console().print(drawn)
        return
    if title:
        click.echo(printable(title))
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    for row in (heads, *texts):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_STRICT = "dovetail.strict"
_LIMITS = "dovetail.limits"
_STDIN = "dovetail.stdin"
_FROZEN = "dovetail.frozen"


def _note_strict(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    context.meta[_STRICT] = wanted


def _note_frozen(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    context.meta[_FROZEN] = wanted


def _note_limits(context: click.Context, option: click.Parameter, settings: tuple[str, ...]) -> None:
    try:
        limits = context.meta[_LIMITS] = DEFAULT.with_settings(settings)
        context.with_resource(defaulting_to(limits))
    except DovetailError as error:
        raise click.BadParameter(error.message) from None


_STRICT_OPTION = click.option(
    "--strict",
    is_flag=True,
    expose_value=False,
    callback=_note_strict,
    help="Refuse every departure from the format, even one that all runtimes read in the same way.",
)
_FREEZE_OPTION = click.option(
    "--freeze-defaults",
    is_flag=True,
    expose_value=False,
    callback=_note_frozen,
    help="Make the defaults of optional inputs constants.",
)
LIMIT = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    expose_value=False,
    callback=_note_limits,
    help=f"Limit a resource: {', '.join(Limits.__slots__)}.",
)


def loading(command: Callable[..., Any]) -> Any:
    """Add the options of every subcommand that loads a model: ``--strict``, ``--freeze-defaults``, ``--limit``, and ``--json``.

    :func:`load` applies the first three.
    """
    return _STRICT_OPTION(_FREEZE_OPTION(LIMIT(options.as_json(command))))


def limits_of_options() -> Limits:
    """Return the default limits, with those that ``--limit`` sets replaced."""
    context = click.get_current_context(silent=True)
    found: Limits = DEFAULT if context is None else context.meta.get(_LIMITS, DEFAULT)
    return found


def is_strict() -> bool:
    """Return whether the command has the flag ``--strict``."""
    return _is_noted(_STRICT)


def _is_noted(flag: str) -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(flag))


def is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    options = None if context is None else context.find_root().obj
    return bool(options and options.get("quiet"))


def narrate(text: str) -> None:
    """Print a message to stderr, unless ``--quiet``."""
    if not is_quiet():
        click.echo(printable(text), err=True)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show ``text`` on stderr, only on a terminal, while work takes longer than PROGRESS_SECONDS."""
    if is_quiet() or not sys.stderr.isatty():
        yield
        return
    shown: list[Any] = []

    def show() -> None:
        from rich.console import Console
        from rich.text import Text

        status = Console(stderr=True).status(Text(printable(text)), spinner="line")
        shown.append(status)
        status.start()

    timer = threading.Timer(PROGRESS_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for status in shown:
            status.stop()


STREAM = "-"
"""The name of a file that stands for stdin or stdout."""


def read_stdin() -> bytes:
    """Read stdin to its end. Raises UsageError if the command has read stdin before."""
    context = click.get_current_context()
    if context.meta.get(_STDIN):
        raise click.UsageError("stdin (-) can be read once: name a file for the model or for the inputs")
    context.meta[_STDIN] = True
    return sys.stdin.buffer.read()


def source_of(path: str) -> str | bytes:
    """Return the source that ``path`` names for :func:`dovetail.load`: the path, or the bytes of stdin for ``-``."""
    return read_stdin() if path == STREAM else path


def target_of(path: str, as_json: bool) -> Any:
    """Return the target that ``path`` names for :func:`dovetail.save`: the path, or stdout for ``-``, which takes ONNX."""
    if path != STREAM:
        return path
    if as_json:
        raise click.UsageError("--json and a target of - both write to stdout")
    return sys.stdout.buffer


def write_file(path: str, text: str) -> None:
    """Write a file atomically, and report the written file on stderr."""
    from dovetail.storage.atomic_write import replace_file

    with replace_file(path) as stream:
        stream.write(text.encode("utf-8"))
    narrate(f"wrote {path}")


def load(path: str) -> Model:
    """Load the model at ``path`` (``-``: stdin), strictly with ``--strict``; warnings go to stderr, one line for each code."""
    from dovetail.formats import load as load_model
    from dovetail.storage.deviations import summarize

    with progress(f"loading {path}"):
        frozen = _is_noted(_FROZEN)
        model = load_model(source_of(path), strict=is_strict(), limits=limits_of_options(), freeze_defaults=frozen)
    for line in summarize(model.warnings):
        narrate(f"warning {line}")
    if model.warnings:
        narrate("`dovetail check` lists each place")
    return model


def say_error(error: Exception, *, as_json: bool, internal: int) -> int:
    """Print an error on stderr, and with ``as_json`` as a JSON object on stdout; return the exit code."""
    code = error.exit_code if isinstance(error, DovetailError) else 3 if isinstance(error, OSError) else internal
    code = 6 if isinstance(error, MemoryError) else code
    with suppress(OSError):
        # If the message cannot be written, the exit code alone reports the error.
        _write_error(error, code, as_json)
    return code


def _write_error(error: Exception, code: int, as_json: bool) -> None:
    text = error_text(error)
    try:
        click.echo(text, err=True)
    finally:
        if as_json:
            items = error.diagnostics if isinstance(error, DovetailError) else [Diagnostic(_code(error), _message(error))]
            say_json("error", error=type(error).__name__, exit_code=code, faults=[fault(item) for item in items])


def say_usage(error: click.ClickException) -> None:
    """Print a usage error as a JSON object on stdout."""
    item = Diagnostic("argument.value", error.format_message())
    say_json("error", error=type(error).__name__, exit_code=error.exit_code, faults=[fault(item)])


def error_text(error: Exception) -> str:
    """Return an error as text: class, code, message and location; a list of all faults where there are several."""
    if not isinstance(error, DovetailError):
        return f"{type(error).__name__} [{_code(error)}]: {printable(_message(error))}"
    items = error.diagnostics
    if len(items) == 1:
        return f"{type(error).__name__} [{items[0].code}]: {printable(items[0].message)}{items[0].location}"
    return "\n".join([f"{type(error).__name__}: {printable(error.message)}", *map(str, items)])


def _code(error: Exception) -> str:
    return "file.system" if isinstance(error, OSError) else "run.memory" if isinstance(error, MemoryError) else "internal"


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{error}; this is a fault of dovetail, please report it with what --debug shows"


def fault(item: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as JSON data."""
    return {name: getattr(item, name) for name in ("code", "message", "node", "op", "file", "severity")}


def differences(rows: Sequence[Any]) -> list[list[str]]:
    """Return the rows of the table of a comparison."""
    from dovetail.compare.verification.conversion import NOT_COMPARED

    return [
        [
            row.output,
            f"{row.dtype}[{', '.join(map(str, row.shape))}]",
            "-" if row.why == NOT_COMPARED else f"{row.absolute:.3g}",
            "-" if row.why == NOT_COMPARED else f"{row.relative:.3g}",
            f"{row.tolerance:g}",
            "agrees" if row.agrees else row.why or "differs",
        ]
        for row in rows
    ]
