"""Environments of releases: made once by uv or by venv and pip, in a cache folder, and renamed when they are complete."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dovetail.errors import UnsupportedError
from dovetail.runtime.releases.release import Release
from dovetail.storage.cache_folder import CacheFolder

WORKER = Path(__file__).with_name("worker_script.py")
INSTALL_SECONDS = 600.0
PROBE_SECONDS = 60.0
MAX_DRAFT_SECONDS = 2 * 3600
"""The age in seconds at which a draft counts as abandoned: the process that made it was killed."""
MINORS = range(14, 7, -1)
"""Minor versions of Python 3 that are looked for on PATH; the worker's script runs in all of them."""
OLD_NUMPY = "numpy<2"
"""Releases before numpy 2 do not exclude it in their metadata, and fail at their import with it."""
_NO_WHEEL = re.compile(r"No matching distribution|No solution found|no wheels", re.ASCII)


class _NoWheel(Exception):
    """_NoWheel is raised when the index has no wheel of a release for an interpreter."""


def python_of(release: Release) -> str:
    """Return the interpreter of the environment of a release, which is made if the cache folder has none.

    Raises UnsupportedError [runtime.missing] with the installer's reason, EngineError [cache.folder].
    """
    folder = Path(CacheFolder(cache_folder()).path)
    target = folder / f"{release.package}-{release.version}-{sys.platform}-{platform.machine()}"
    python = _interpreter_in(target)
    # Without the interpreter that it links to, an environment is made again.
    if python.exists():
        return str(python)
    remove_old_drafts(folder)
    draft = folder / f".{secrets.token_hex(8)}.draft"
    try:
        _make(release, draft)
        if target.exists() and not python.exists():
            target.rename(folder / f".{secrets.token_hex(8)}.draft")
        try:
            draft.rename(target)
        except OSError:
            # Another process was faster.
            if not python.exists():
                raise
    except OSError as error:
        raise UnsupportedError("runtime.missing", f"no environment for {release}: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return str(python)


def cache_folder() -> str:
    """Return the folder of environments: in DOVETAIL_CACHE_DIR, else in the platform's folder of caches."""
    base = os.environ.get("DOVETAIL_CACHE_DIR")
    if base:
        return os.path.join(base, "releases")
    if sys.platform == "win32":
        base = os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "dovetail", "Cache")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches/dovetail")
    else:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dovetail")
    return os.path.join(base, "releases")


def remove_old_drafts(folder: Path) -> None:
    """Remove the drafts of processes that were killed."""
    for draft in folder.glob(".*.draft"):
        try:
            is_old = time.time() - draft.stat().st_mtime > MAX_DRAFT_SECONDS
        except OSError:
            continue
        if is_old:
            shutil.rmtree(draft, ignore_errors=True)


def _interpreter_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _make(release: Release, draft: Path) -> None:
    """Make the environment of a release at ``draft``, with the first interpreter for which a wheel exists."""
    tried: list[str] = []
    reason = ""
    for version, python in _interpreters():
        shutil.rmtree(draft, ignore_errors=True)
        try:
            _install(release, python, draft)
            return
        except _NoWheel as error:
            tried.append(version)
            reason = reason or str(error)
    message = f"the index has no wheel of {release} for Python {', '.join(tried)}, the versions on this machine: {reason}"
    raise UnsupportedError("runtime.missing", message)


def _install(release: Release, python: str, draft: Path) -> None:
    """Install a release, and numpy before 2 if the release cannot be imported with the numpy that its metadata allows."""
    uv = shutil.which("uv")
    own = str(_interpreter_in(draft))
    if uv:
        _call(release, [uv, "venv", "--quiet", "--no-python-downloads", "--python", python, str(draft)])
        installer = [uv, "pip", "install", "--quiet", "--python", own, "--only-binary", ":all:"]
    else:
        _call(release, [python, "-I", "-m", "venv", str(draft)])
        installer = [own, "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]
        installer += ["--only-binary=:all:"]
    _call(release, [*installer, str(release)])
    probe = [own, "-I", str(WORKER), "--probe", release.package]
    if _run(release, probe, PROBE_SECONDS).returncode:
        _call(release, [*installer, str(release), OLD_NUMPY])
        _call(release, probe)


def _run(release: Release, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run a command of an installation. Raises UnsupportedError [runtime.missing] for one that takes longer."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        reason = f"a command of the installation took more than {seconds:g} s"
        raise UnsupportedError("runtime.missing", f"no environment for {release}: {reason}") from None


def _call(release: Release, command: Sequence[str]) -> None:
    """Run a command of an installation that must succeed. Raises _NoWheel, UnsupportedError [runtime.missing]."""
    ended = _run(release, command, INSTALL_SECONDS)
    if not ended.returncode:
        return
    text = (ended.stderr + ended.stdout).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [f"exit code {ended.returncode}"]
    if _NO_WHEEL.search(text):
        raise _NoWheel(next((line for line in lines if _NO_WHEEL.search(line)), lines[-1])[:300])
    errors = [line for line in lines if "ERROR" in line or "error:" in line.lower()] or lines
    raise UnsupportedError("runtime.missing", f"no environment for {release}: {errors[-1][:300]}")


def _interpreters() -> Iterator[tuple[str, str]]:
    """Yield interpreters with their versions, one for each minor version: this one, then the nearest minor versions."""
    own = sys.version_info.minor
    seen = {own}
    yield f"3.{own}", sys.executable
    for minor in sorted(MINORS, key=lambda minor: (abs(minor - own), -minor)):
        if minor in seen:
            continue
        for candidate in _candidates(minor):
            if _runs(candidate, minor):
                seen.add(minor)
                yield f"3.{minor}", candidate
                break


def _candidates(minor: int) -> Iterator[str]:
    """Yield paths of interpreters of a minor version: on PATH, then those that pyenv has installed."""
    on_path = shutil.which(f"python3.{minor}")
    if on_path:
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    yield from map(str, sorted(root.glob(f"versions/3.{minor}.*/bin/python")))


def _runs(python: str, minor: int) -> bool:
    """Return whether a path is an interpreter of a minor version; a shim of pyenv may be none."""
    command = [python, "-I", "-c", f"import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PROBE_SECONDS)
        return not ended.returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
