"""The command line prints data to stdout and messages to stderr.

Exit codes: 0 sound, 1 negative answer, 2 usage, 3 and up by the class of the error.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "bench": "Time a model beside other engines: medians, ratios, peak memory.",
    "check": "Report every independent fault of a model in one pass.",
    "compare": "Compare every value in several engines, and find the first operator that is wrong.",
    "convert": "Convert between ONNX and OpenVINO IR, with proof if asked.",
    "cost": "Predict memory, bytes, operations and time of a run, and the largest batch that fits.",
    "diff": "Compare two models: nodes, attributes, weights, types, interfaces; names do not matter.",
    "draw": "Draw the graph as a picture: modules, shapes, repeated blocks; SVG, PNG or an HTML page.",
    "edit": "Rename values, set outputs, constants, input types and metadata.",
    "extract": "Write the part of a model between values.",
    "grad": "Write the gradient graph as an ordinary model.",
    "infer": "Infer every shape as an expression over the input dimensions, and write it.",
    "info": "Inputs, outputs, operators by count, parameters, bytes.",
    "inspect": "Judge a file that one does not trust: costs, loops, private operators, triggers, digests.",
    "map": "Run a model on every row of a dataset, by several processes or a cluster.",
    "merge": "Write one model in which values of a first are inputs of a second.",
    "ops": "List the operators: types, gradient, kernels, versions in both formats.",
    "plan": "Report what a program copies and why, its memory over time, its time by kernel.",
    "profile": "Time by operator, kernel and module beside the machine's limits; a trace for Perfetto.",
    "quantize": "Store weights in 4, 8 or 16 bits, within a budget of output error that is measured.",
    "rebatch": "Change the batch or other input sizes, repair baked constants, compare each sample.",
    "reduce": "Write the smallest model on which a command still fails.",
    "report": "Write one page about a model: operators, shapes, memory, profile, faults, formats.",
    "reshard": "Split, merge, transpose and fuse tensors of safetensors files, in bounded memory.",
    "run": "Run a model on given or random inputs.",
    "shard": "Propose how JAX splits a model over devices, and list the collectives.",
    "simplify": "Remove nodes that compute nothing of their own, with proof if asked.",
    "show": "Print the graph as text, with inferred types and shapes.",
}

SECTIONS = {
    "Look at a model": ("check", "draw", "info", "infer", "inspect", "ops", "report", "show"),
    "Run and measure": ("bench", "cost", "plan", "profile", "run", "shard"),
    "Work on data": ("map", "reshard"),
    "Compare models": ("compare", "diff", "reduce"),
    "Write a new model": ("convert", "edit", "extract", "grad", "merge", "quantize", "rebatch", "simplify"),
}
"""The sections of the help; commands in none of these sections are listed in a last section."""


class Commands(click.Group):
    """Commands loads the module of a subcommand when that command runs, so that `dovetail --help` imports no such module."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"dovetail.cli.{name}"), name)
        return found

    def resolve_command(self, context: click.Context, arguments: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in COMMANDS and not name.startswith("-") and not context.resilient_parsing:
            from dovetail.ir.suggestions import closest  # deferred for start-up time

            context.fail(f"No such command {name!r}{closest(name, COMMANDS) or '.'}")
        return super().resolve_command(context, arguments)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with ``incomplete``, without importing the modules of commands."""
        from click.shell_completion import CompletionItem  # deferred for start-up time

        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(command) for command in COMMANDS)
        others = sorted({*COMMANDS}.difference(*SECTIONS.values()))
        for title, names in {**SECTIONS, "Other commands": others}.items():
            if rows := [(name.ljust(width), COMMANDS[name]) for name in names if name in COMMANDS]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def version_text() -> str:
    from dovetail import __version__
    from dovetail.ir.host import native_core, plugins

    core = f"{native_core.build()}, {native_core.instruction_set()}" if native_core.is_compiled else "pure Python, no native core"
    lines = [
        f"dovetail {__version__}, {core}, Python {sys.version.split()[0]}",
        *(f"plug-in {each}" for each in plugins.find_plugins()),
    ]
    return "\n".join(lines)


def _print_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(version_text())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Print only data and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Print what the logger dovetail reports: engines, plans, caches.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print version, core, instruction set, compiler, Python and plug-ins.",
)
@click.pass_context
def dovetail(context: click.Context, debug: bool, quiet: bool, verbose: bool) -> None:
    """One graph for ONNX and OpenVINO IR: load, check, run, convert and differentiate models.

    Exit codes: 0 sound, 1 negative answer (a fault, a difference), 2 usage, 3 bad file, 4 not supported, 5 the model breaks
    a rule, 6 found while running, 7 a fault of dovetail itself.
    """
    context.obj = {"debug": debug, "quiet": quiet}
    if not quiet:
        # Loggers: dovetail.core warns of runs without the native core, dovetail.plugins of plug-ins that were left out,
        # dovetail.write of content that a file cannot express.
        for name in ("dovetail.core", "dovetail.plugins", "dovetail.write"):
            logging.getLogger(name).addHandler(NARRATOR)
    if verbose and not quiet:
        context.with_resource(_logging_to(NARRATOR))


class Narrator(logging.Handler):
    """Narrator shows records of a logger on stderr, each once."""

    def emit(self, record: logging.LogRecord) -> None:
        from dovetail.cli.output import narrate  # deferred for start-up time

        if not getattr(record, "is_narrated", False):
            record.is_narrated = True
            narrate(f"{record.levelname.lower()} {record.getMessage()}")


NARRATOR = Narrator()


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    """Show the records of the logger "dovetail" and of the loggers below it, from the level INFO on, in the ``with`` block."""
    logger = logging.getLogger("dovetail")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


INTERNAL = 7
"""The exit code of an unexpected exception."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error becomes a message and an exit code; only ``--debug`` shows the traceback."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background job of a shell, or a job under nohup, starts with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_closed_streams()
    given = _move_flags_first(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given[:1]
    try:
        sys.exit(_run(given))
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _show_usage(error)
        if "--json" in given:
            from dovetail.cli.output import say_usage

            say_usage(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader has closed the pipe, as ``head`` does.
        _discard_output()
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        from dovetail.cli.output import say_error

        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        sys.exit(say_error(error, as_json="--json" in given, internal=INTERNAL))


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the process ends)


def _discard_output() -> None:
    """Discard the buffered output: Python flushes stdout at exit, where an error would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_usage(error: click.ClickException) -> None:
    """Print click's message of a usage error, with names escaped."""
    from dovetail.errors import printable

    buffer = io.StringIO()
    error.show(buffer)
    # A list comprehension, because once the command has run, the name `map` is the module dovetail.cli.map.
    click.echo("\n".join([printable(line) for line in buffer.getvalue().split("\n")]), nl=False, err=True)


def _run(given: list[str]) -> int:
    result: Any = dovetail.main(given, prog_name="dovetail", standalone_mode=False)
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


FLAGS = {"--debug": "--debug", "-q": "--quiet", "--quiet": "--quiet", "-v": "--verbose", "--verbose": "--verbose"}
"""The flags of the whole command."""


def _move_flags_first(arguments: list[str]) -> list[str]:
    """Move the FLAGS first: they may stand anywhere before ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = dict.fromkeys(FLAGS[text] for text in arguments[:end] if text in FLAGS)
    return [*sorted(flags), *(text for text in arguments[:end] if text not in FLAGS), *arguments[end:]]
