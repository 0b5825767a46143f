"""PEP 517 build backend: scikit-build-core, which builds a pure Python package where the core cannot be compiled.

The core needs a C++ compiler and Python's headers. Where one of them is absent, or where DOVETAIL_PURE_PYTHON=1 is set, the
package is built without the core and the build says so. Where both are there, a failure to compile or link is an error.

Run as a script, it prints a warning if the installed package lacks the core, with the reason and the remedy.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

PURE = "DOVETAIL_PURE_PYTHON"
"""scikit-build-core's override in pyproject.toml builds the pure package where this variable is true."""
COMPILERS = ("c++", "CC", "g++", "clang++", "icpx")
"""The compilers that CMake looks for."""
COMPILER_VARIABLES = ("CXX", "CMAKE_ARGS", "CMAKE_TOOLCHAIN_FILE", "SKBUILD_CMAKE_ARGS")
"""Where one of them names a compiler, or may, CMake decides whether it exists."""

Settings = dict[str, Any] | None


def is_true(text: str) -> bool:
    """Read a variable as scikit-build-core's overrides do."""
    return text.strip().lower() not in ("", "0", "false", "off", "no", "n", "f")


def missing_prerequisites() -> list[str]:
    """Return what the core needs and this machine lacks, each with the package that brings it."""
    missing = []
    names_compiler = any(os.environ.get(name) for name in COMPILER_VARIABLES)
    if not (names_compiler or sys.platform == "win32" or any(map(shutil.which, COMPILERS))):
        missing.append("a C++ compiler (Debian, Ubuntu: g++; Fedora: gcc-c++; macOS: xcode-select --install)")
    folders = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    if not any(Path(folder, "Python.h").is_file() for folder in folders):
        packages = "Debian, Ubuntu: python3-dev; Fedora: python3-devel"
        missing.append(f"Python's headers ({packages}): no Python.h in {' or '.join(sorted(folders))}")
    return missing


def reason_for_pure_python() -> str:
    """Return why the package is built without the core, or an empty text."""
    if is_true(os.environ.get(PURE, "")):
        return f"{PURE}={os.environ[PURE]} is set"
    missing = missing_prerequisites()
    return f"the build lacks {' and '.join(missing)}" if missing else ""


REASON = reason_for_pure_python()


def warning(reason: str) -> str:
    return f"""
WARNING: dovetail is installed without its native core: {reason}.
         Models run several times slower. To get the core, install what is missing, then dovetail again (make clean install).
"""


def _build(build: Callable[..., str], arguments: tuple[Any, ...]) -> str:
    if REASON:
        print(warning(REASON), flush=True)
    try:
        wheel = build(*arguments)
    except BaseException:
        if not REASON:
            print(f"dovetail's native core was not built; the compiler's message is above. {PURE}=1 installs without the core.")
        raise
    if REASON:
        print(warning(REASON), flush=True)
    return wheel


def print_core_warning() -> None:
    """Print the warning on stderr if the installed package lacks the core."""
    from dovetail.ir.host import native_core

    if not native_core.is_compiled:
        print(warning(REASON or "this machine has all that it needs, but lacked something at installation"), file=sys.stderr)


if __name__ == "__main__":
    print_core_warning()
else:
    # scikit-build-core is absent where the module runs as a script.
    if REASON:
        os.environ[PURE] = "1"
    from scikit_build_core import build as backend
    from scikit_build_core.build import (  # noqa: F401
        build_sdist,
        get_requires_for_build_editable,
        get_requires_for_build_sdist,
        get_requires_for_build_wheel,
        prepare_metadata_for_build_editable,
        prepare_metadata_for_build_wheel,
    )

    def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
        return _build(backend.build_wheel, (wheel_directory, config_settings, metadata_directory))

    def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
        return _build(backend.build_editable, (wheel_directory, config_settings, metadata_directory))
