"""Installations in surroundings that the suite does not vary; prints one line for each, and exits with 1 if one is wrong.

    python tests/installations.py [NAME ...]      without a name: all

``planted_error``: a compile error ends the installation and is shown. ``no_compiler``, ``no_headers``: the package is installed
without the core, and the build says what is missing. ``requested``: the same for DOVETAIL_PURE_PYTHON=1. ``pip_23``,
``newest_pip``: both install the core. ``read_only``: so does a source tree that cannot be written. ``debian_13``,
``debian_13_bare``: README's commands in a Debian 13 in a folder, by debootstrap, with python3-dev and without. ``no_headers``,
``read_only`` and these two need root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "python3,python3-venv,g++,make,git,ca-certificates"
"""The prerequisites that docs/install.md names for Debian, without the headers."""


class Result(NamedTuple):
    code: int
    text: str


def run(command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> Result:
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return Result(done.returncode, done.stdout)


def copy_tree(folder: Path) -> Path:
    """Copy the tracked files into ``folder``."""
    tree = folder / "tree"
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split(
        "\0"
    ):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def make_environment(folder: Path, pip: str = "pip") -> Path:
    """Create a virtual environment with a version of pip; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", pip], check=True, stderr=subprocess.DEVNULL)
    return python


def install(folder: Path, tree: Path, variables: Mapping[str, str] | None = None, pip: str = "pip") -> tuple[Path, Result]:
    python = make_environment(folder, pip)
    return python, run([str(python), "-m", "pip", "install", "-v", str(tree)], folder, variables)


def version_of(python: Path, folder: Path) -> str:
    return run([str(python), "-m", "dovetail", "--version"], folder).text


def without_compilers(folder: Path) -> dict[str, str]:
    """Return a PATH of all programs but the C++ compilers."""
    programs = folder / "bin"
    programs.mkdir()
    for path in os.environ["PATH"].split(os.pathsep):
        for program in Path(path).iterdir() if Path(path).is_dir() else ():
            is_compiler = any(part in program.name for part in ("g++", "c++", "clang", "icpx")) or program.name == "CC"
            if not is_compiler and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    return {"PATH": str(programs)}


def planted_error(folder: Path) -> str:
    tree = copy_tree(folder)
    source = tree / "native" / "memory.cpp"
    source.write_text("#error planted\n" + source.read_text())
    _, result = install(folder, tree)
    return "" if result.code != 0 and "error planted" in result.text else f"exit code {result.code}: {result.text[-2000:]}"


def no_compiler(folder: Path) -> str:
    python, result = install(folder, copy_tree(folder), without_compilers(folder))
    is_right = result.code == 0 and "a C++ compiler" in result.text and "pure Python" in version_of(python, folder)
    return "" if is_right else result.text[-2000:]


def no_headers(folder: Path) -> str:
    """Hide the headers by an empty file system over their folder, in a mount namespace of the installation."""
    python = make_environment(folder)
    shown = f"mount -t tmpfs none {shlex.quote(sysconfig.get_path('include'))}"
    command = shlex.join([str(python), "-m", "pip", "install", "-v", str(copy_tree(folder))])
    result = run(["unshare", "--mount", "sh", "-c", f"{shown} && {command}"], folder)
    is_right = result.code == 0 and "python3-dev" in result.text and "pure Python" in version_of(python, folder)
    return "" if is_right else result.text[-2000:]


def requested(folder: Path) -> str:
    python, result = install(folder, copy_tree(folder), {"DOVETAIL_PURE_PYTHON": "1"})
    is_right = result.code == 0 and "DOVETAIL_PURE_PYTHON=1" in result.text and "pure Python" in version_of(python, folder)
    return "" if is_right else result.text[-2000:]


def _installs_core(folder: Path, tree: Path, pip: str = "pip") -> str:
    python, result = install(folder, tree, pip=pip)
    return "" if result.code == 0 and "native core (" in version_of(python, folder) else result.text[-2000:]


def pip_23(folder: Path) -> str:
    return _installs_core(folder, copy_tree(folder), "pip==23.0")


def newest_pip(folder: Path) -> str:
    return _installs_core(folder, copy_tree(folder))


def read_only(folder: Path) -> str:
    tree = copy_tree(folder)
    # A bind mount: root writes into folders without write permission.
    subprocess.run(["mount", "--bind", "-o", "ro", tree, tree], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", tree], check=True)
    try:
        return _installs_core(folder, tree)
    finally:
        subprocess.run(["umount", tree], check=True)


# The mounts end with their namespace.
CHROOT = 'for name in proc sys dev; do mount --rbind "/$name" "$0/$name" || exit; done; exec chroot "$0" "$@"'


def _debian(folder: Path, packages: str, targets: str) -> Result:
    system = folder / "debian"
    mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", "trixie", str(system), mirror]
    made = run(command, folder)
    if made.code != 0:
        return made
    shutil.copytree(copy_tree(folder), system / "tree")
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(name).exists():
            shutil.copy2(name, system / name[1:])
    names = [
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.upper().startswith(("PIP_", "HTTP")) or "PROXY" in name.upper()
    ]
    inside = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", *names]
    command = ["sh", "-c", f"cd /tree && git init -q . && for target in {targets}; do make $target || exit; done"]
    return run(["unshare", "--mount", "sh", "-c", CHROOT, str(system), *inside, *command], folder)


def debian_13(folder: Path) -> str:
    result = _debian(folder, f"{PACKAGES},python3-dev", "demo test")
    return "" if result.code == 0 and "native core (" in result.text else result.text[-2000:]


def debian_13_bare(folder: Path) -> str:
    result = _debian(folder, PACKAGES, "demo")
    return "" if result.code == 0 and "python3-dev" in result.text else result.text[-2000:]


INSTALLATIONS: dict[str, Callable[[Path], str]] = {
    each.__name__: each
    for each in (planted_error, no_compiler, no_headers, requested, pip_23, newest_pip, read_only, debian_13, debian_13_bare)
}


def main(names: list[str]) -> int:
    wrong = 0
    for name in names or INSTALLATIONS:
        with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
            fault = INSTALLATIONS[name](Path(folder))
        print(f"{name:16s}{'WRONG' if fault else 'right'}", flush=True)
        if fault:
            print(fault, file=sys.stderr)
        wrong += bool(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
