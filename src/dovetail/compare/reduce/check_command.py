"""Checks of a model file: a command that fails by its exit code, or a function."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from typing import TypeAlias

from dovetail.errors import RuleError

PLACEHOLDER = "{}"
Check: TypeAlias = Callable[[str], bool]
"""Function that takes the path of a model file, and returns whether the fault is present."""


class CheckError(RuleError):
    """CheckError means that a check cannot be used; the command line reports it as wrong usage."""

    exit_code = 2


class CheckCommand:
    """CheckCommand runs a command on a model file. ``timed_out`` is true if the last run was ended after ``timeout`` seconds.

    The command is split into words as in a shell, but no shell runs the command. ``{}`` in a word is replaced by the path of the
    file, whatever characters the path has. The output of the command is dropped.
    """

    def __init__(self, command: str, *, exit_code: int | None = None, timeout: float = 60.0) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise CheckError("argument.value", f"the command cannot be split into words: {error}") from None
        if not any(PLACEHOLDER in word for word in self.words):
            raise CheckError("argument.value", f"the command must have {PLACEHOLDER} for the model's path, got {command!r}")
        self.exit_code = exit_code
        self.timeout = timeout
        self.timed_out = False

    def __call__(self, path: str) -> bool:
        """Run the command on a file. Returns whether its exit code is ``exit_code``, or not 0 if ``exit_code`` is None."""
        code = self._run([word.replace(PLACEHOLDER, path) for word in self.words])
        self.timed_out = code is None
        if code is None:
            return False
        return code != 0 if self.exit_code is None else code == self.exit_code

    def _run(self, words: list[str]) -> int | None:
        """Return the exit code, which is 128 plus the signal's number after a signal, as in a shell; None after the timeout."""
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise CheckError("argument.value", f"the command {words[0]!r} cannot be run: {error}") from None
        try:
            code = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)
        return code if code >= 0 else 128 - code


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command that still runs, with all processes that it has started."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (OSError, AttributeError):
            process.kill()
        process.wait()
