"""Print what dovetail can do, a line each: ``python tests/capabilities.py``, for ``diff`` between two checkouts.

The lines name public functions and classes, commands with their options, operators with the versions, gradients and kernels
that `dovetail ops` lists, and the cases of each operator. ``law_coverage.py`` prints the laws.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

import dovetail
import dovetail.cli

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from case_runner import CASES

GROUP = next(value for value in vars(dovetail.cli).values() if isinstance(value, click.Group))


def public_names() -> Iterator[str]:
    yield from (f"name {name}" for name in dovetail.__all__)


def commands() -> Iterator[str]:
    context = click.Context(GROUP)
    for name in GROUP.list_commands(context):
        command = GROUP.get_command(context, name)
        assert command is not None
        yield f"command {name}"
        for parameter in command.params:
            yield f"option {name} {max([*parameter.opts, *parameter.secondary_opts], key=len)}"


def operators() -> Iterator[str]:
    listed = json.loads(CliRunner().invoke(GROUP, ["ops", "--json"]).stdout)
    yield from (f"operator {json.dumps(row, sort_keys=True)}" for row in listed["operators"])


def cases() -> Iterator[str]:
    for operator, count in sorted(Counter(type(case.op).__name__ for _, case in CASES).items()):
        yield f"cases {operator} {count}"


if __name__ == "__main__":
    for part in (public_names, commands, operators, cases):
        for line in sorted(part()):
            print(line)
