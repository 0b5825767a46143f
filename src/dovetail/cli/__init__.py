"""The command line: data on stdout, narration on stderr, exit codes 0 sound, 1 negative answer, 2 usage, 3 and up by error class."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

COMMANDS = {
    "check": "Report every independent fault of a model in one pass.",
    "convert": "Convert between ONNX and OpenVINO IR, with proof if asked.",
    "grad": "Write the gradient graph as an ordinary model.",
    "info": "Inputs, outputs, operators by count, parameters, bytes.",
    "run": "Run a model on given or random inputs.",
    "show": "Print the graph as text, with inferred types and shapes.",
}


class Commands(click.Group):
    """Loads a subcommand's module when it is asked for: `dovetail --help` imports none."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"dovetail.cli.{name}"), name)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def version_text() -> str:
    from dovetail import __version__, native

    return f"dovetail {__version__}, {native.build()}"


def _print_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(version_text())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print version and build.")
@click.pass_context
def dovetail(context: click.Context, debug: bool) -> None:
    """One graph for ONNX and OpenVINO IR: load, check, run, convert and differentiate models."""
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """The entry point: an error of ours becomes its message and its exit code, without a traceback unless ``--debug``."""
    from dovetail.errors import DovetailError
    from dovetail.show import printable

    given = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = dovetail.main(given, prog_name="dovetail", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except (DovetailError, OSError) as error:
        if "--debug" in given:
            raise
        text = str(error) if isinstance(error, DovetailError) else f"{error.strerror or error}: {error.filename}"
        for line in text.splitlines():
            click.echo(printable(line), err=True)
        code = getattr(error, "exit_code", 3)
    except MemoryError:
        if "--debug" in given:
            raise
        click.echo("out of memory", err=True)
        code = 6
    sys.exit(code)
