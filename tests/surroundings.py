"""Tests of files, processes and the command line in surroundings that users have; exits with 1 if one is wrong.

    python tests/surroundings.py [NAME ...] [-- PYTEST ARGUMENTS]

Without a name: all. ``background``: SIGINT is ignored, as for a job of a shell or under nohup. ``no_terminal``: a session of its
own, without a terminal. ``closed_stdin``: file descriptor 0 is closed. ``c_locale``, ``turkish``: the locales C, without UTF-8,
and tr_TR.UTF-8. ``no_home``: HOME cannot be created. ``tmpfs``, ``spaces``: TMPDIR is in memory, or has spaces and an é.
``other_user``: a user who is not root, from a root that runs this script. ``one_core``: one processor. ``load``: 15 busy
processes beside. The last arguments are pytest's, by default the tests that surroundings can change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "bad_input", "cli", "dataset_numpy", "dataset_parquet", "files", "forks", "interrupts", "map_rows", "mapped_weights",
    "mapper", "mapper_processes", "onnx_codec", "part_files", "reshard", "streams", "transformation_commands", "weights_files",
)  # fmt: skip
NOBODY = 65534
"""The user and the group ``nobody`` of Linux distributions."""


class Surrounding(NamedTuple):
    """The command before Python's, and the changes of the environment; a value None removes the variable."""

    command: list[str]
    variables: dict[str, str | None]


def _shell(text: str) -> list[str]:
    return ["sh", "-c", text + ' exec "$@"', "sh"]


def background(folder: Path, stack: ExitStack) -> Surrounding:
    return Surrounding(_shell("trap '' INT;"), {})


def no_terminal(folder: Path, stack: ExitStack) -> Surrounding:
    return Surrounding(["setsid", "--wait", *_shell("exec </dev/null;")], {"TERM": None, "COLUMNS": None})


def closed_stdin(folder: Path, stack: ExitStack) -> Surrounding:
    return Surrounding(_shell("exec <&-;"), {})


def c_locale(folder: Path, stack: ExitStack) -> Surrounding:
    return Surrounding([], {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


def turkish(folder: Path, stack: ExitStack) -> Surrounding:
    """Compile the locale from the sources of the package ``locales``."""
    subprocess.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", str(folder / "tr_TR.UTF-8")], check=True)
    return Surrounding([], {"LOCPATH": str(folder), "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"})


def no_home(folder: Path, stack: ExitStack) -> Surrounding:
    # A file has no subfolders, for root either.
    (folder / "file").touch()
    return Surrounding([], {"HOME": str(folder / "file" / "home"), "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None})


def tmpfs(folder: Path, stack: ExitStack) -> Surrounding:
    memory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
    return Surrounding([], {"TMPDIR": memory})


def spaces(folder: Path, stack: ExitStack) -> Surrounding:
    (folder / "an é and spaces").mkdir()
    return Surrounding([], {"TMPDIR": str(folder / "an é and spaces")})


def other_user(folder: Path, stack: ExitStack) -> Surrounding:
    folder.chmod(0o755)
    own = folder / "own"
    own.mkdir()
    shutil.chown(own, NOBODY, NOBODY)
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    target = os.path.realpath(sys.executable)
    if subprocess.run([*user, "test", "-x", target], check=False).returncode:
        raise SystemExit(f"the user {NOBODY} cannot execute {target}; each folder of its path needs the permission x for others")
    return Surrounding(user, {"HOME": str(own), "TMPDIR": str(own), "USER": "nobody", "XDG_CACHE_HOME": None})


def one_core(folder: Path, stack: ExitStack) -> Surrounding:
    return Surrounding(["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))], {})


def load(folder: Path, stack: ExitStack) -> Surrounding:
    for _ in range(15):
        busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        stack.callback(busy.kill)
    return Surrounding([], {})


SURROUNDINGS: dict[str, Callable[[Path, ExitStack], Surrounding]] = {
    each.__name__: each
    for each in (
        background, no_terminal, closed_stdin, c_locale, turkish, no_home, tmpfs, spaces, other_user, one_core, load
    )
}  # fmt: skip


def run(name: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pytest in a surrounding. ``arguments``: pytest's."""
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder, ExitStack() as stack:
        command, variables = SURROUNDINGS[name](Path(folder), stack)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        for variable, value in variables.items():
            environment.pop(variable, None)
            if value is not None:
                environment[variable] = value
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(
            [*command, *pytest], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace",
        )  # fmt: skip


def main(arguments: list[str]) -> int:
    mark = arguments.index("--") if "--" in arguments else len(arguments)
    tests = ["-m", "not slow and not whole_model", *(f"tests/unit/test_{name}.py" for name in TESTS)]
    wrong = 0
    for name in arguments[:mark] or SURROUNDINGS:
        done = run(name, arguments[mark + 1 :] or tests)
        lines = done.stdout.splitlines()
        print(f"{name:14s}{'WRONG' if done.returncode else 'right'}  {lines[-1] if lines else ''}", flush=True)
        if done.returncode:
            print(done.stdout[-6000:], file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
