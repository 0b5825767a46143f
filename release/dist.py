"""Build what a release uploads: the source distribution, and wheels with and without the native core.

    python release/dist.py [--out dist] [--only TEXT] [--twice] [--try] [--emulate]

Zig's C++ compiler, which PyPI has, compiles the core for glibc 2.28 on x86-64 and aarch64 and links libc++ statically, so that a
wheel needs libc alone. For each processor there is a wheel for CPython 3.11 and one with the stable ABI for 3.12 and later;
``py3-none-any`` has no core. Every wheel has an SBOM (PEP 770). ``--only`` builds the wheels whose name contains the text;
``--twice`` builds everything again in another folder and compares the bytes; ``--try`` installs the wheel of this machine in an
empty folder without a compiler, and runs README's first example and three commands; ``--emulate`` runs the driver of the core for
aarch64 under qemu-user.

All dates in archives are SOURCE_DATE_EPOCH, by default the date of the commit.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import audit
import emulate
import sbom
from try_wheel import try_wheel

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.28"


class Target(NamedTuple):
    """Target is one wheel: the Python that builds it, its tags of interpreter and ABI, and the processor ("" without a core)."""

    python: str
    interpreter: str
    abi: str
    processor: str

    @property
    def platform(self) -> str:
        """The platform tag."""
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.processor}" if self.processor else "any"

    @property
    def tag(self) -> str:
        """The tags in the file name of the wheel."""
        return f"{self.interpreter}-{self.abi}-{self.platform}"


TARGETS = (
    Target("3.11", "py3", "none", ""),
    Target("3.11", "cp311", "cp311", "x86_64"),
    Target("3.12", "cp312", "abi3", "x86_64"),
    Target("3.11", "cp311", "cp311", "aarch64"),
    Target("3.12", "cp312", "abi3", "aarch64"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the files (default: dist)")
    parser.add_argument("--only", default="", metavar="TEXT", help="build only the wheels whose tags contain TEXT")
    parser.add_argument("--twice", action="store_true", help="build again in another folder, and compare the bytes")
    parser.add_argument("--try", action="store_true", dest="tries", help="install the wheel of this machine and use it")
    parser.add_argument("--emulate", action="store_true", help="run the driver of the core for aarch64 under qemu-user")
    options = parser.parse_args()
    environment = build_environment()
    targets = [target for target in TARGETS if options.only in target.tag]
    work = ROOT / "build" / "dist"
    files = build(options.out, work, targets, environment)
    print_table(files)
    sound = [audit.is_sound(file, tools_of("3.11", work)) for file in files]
    ok = all(sound)
    if options.emulate:
        python = tools_of("3.11", work)
        ok = emulate.is_core_sound(ROOT, work, compiler_of(python, work, "aarch64", ROOT), python) and ok
    if options.twice:
        again = build(ROOT / "build" / "dist-again" / "dist", ROOT / "build" / "dist-again" / "work", targets, environment)
        for first, second in zip(files, again, strict=True):
            same = first.read_bytes() == second.read_bytes()
            ok = ok and same
            print(f"{first.name}: {'the same bytes' if same else 'OTHER BYTES'} when built again")
    if options.tries:
        ok = try_wheel(wheel_of_machine(files, sys.version_info[:2], os.uname().machine)) and ok
    sys.exit(not ok)


def build_environment() -> dict[str, str]:
    """Return the environment of the builds, whose dates are those of the commit unless SOURCE_DATE_EPOCH is set."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        git = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
        epoch = git.stdout.strip()
    kept = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC", "CMAKE_ARGS", "DOVETAIL_PURE_PYTHON")}
    return {**kept, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


def build(out: Path, work: Path, targets: Sequence[Target], environment: Mapping[str, str]) -> list[Path]:
    """Build the source distribution and from it the wheels; return the files. ``work`` keeps tools and objects."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    started = time.monotonic()
    python = tools_of("3.11", work)
    run([python, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, ROOT], environment)
    sdist = next(out.glob("*.tar.gz"))
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (folder,) = source.iterdir()
    files = [sdist]
    for target in targets:
        print(f"{target.tag}: building", flush=True)
        files.append(finish(build_wheel(folder, work, target, environment), out, target, environment))
        print(f"{files[-1].name}: {time.monotonic() - started:.0f} s since the start", flush=True)
    return files


def build_wheel(source: Path, work: Path, target: Target, environment: Mapping[str, str]) -> Path:
    """Build one wheel with scikit-build-core."""
    python = tools_of(target.python, work)
    folder = work / "wheels" / target.tag
    shutil.rmtree(folder, ignore_errors=True)
    settings: list[str] = []
    variables = {**environment}
    if target.processor:
        compiler = compiler_of(tools_of("3.11", work), work, target.processor, source)
        settings = [f"-Cbuild-dir={work / 'objects' / target.tag}", "-Cinstall.strip=false"]
        variables.update(CXX=str(compiler["c++"]), PATH=f"{python.parent}{os.pathsep}{environment['PATH']}")
        arguments = [f"-DCMAKE_{name.upper()}={path}" for name, path in compiler.items() if name != "c++"]
        if target.processor != os.uname().machine:
            arguments += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={target.processor}"]
        variables["CMAKE_ARGS"] = " ".join(arguments)
        if target.abi == "abi3":
            settings.append(f"-Cwheel.py-api={target.interpreter}")
    else:
        variables["DOVETAIL_PURE_PYTHON"] = "1"
    run([python, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, *settings, source], variables)
    return next(folder.glob("*.whl"))


def tools_of(version: str, work: Path) -> Path:
    """Return the Python of a virtual environment with the tools of requirements.txt, for a version of Python."""
    folder = work / f"python{version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        run([interpreter_of(version), "-m", "venv", "--clear", folder], os.environ)
        run([python, "-m", "pip", "install", "--quiet", "-r", Path(__file__).with_name("requirements.txt")], os.environ)
        (folder / "complete").touch()
    return python


def interpreter_of(version: str) -> str:
    """Return an interpreter of a version of Python: from PATH, or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))]
    for candidate in filter(None, candidates):
        found = subprocess.run(
            [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
        )
        if found.stdout.strip() == version:
            return candidate
    sys.exit(f"release/dist.py needs Python {version} with venv and headers, in PATH or in pyenv")


def compiler_of(python: Path, work: Path, processor: str, source: Path) -> dict[str, Path]:
    """Write scripts that call Zig's compiler, archiver and indexer for a processor; return them by CMake's names."""
    zig = subprocess.run(
        [python, "-c", "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # The same paths in every folder: assertions and exceptions contain names of files. nanobind 3.1 uses stderr without stdio.h.
    flags = f"-include stdio.h -target {processor}-linux-gnu.{GLIBC} -ffile-prefix-map={source}=. -ffile-prefix-map={work}=. -g0"
    commands = {"c++": f"c++ {flags}", "ar": "ar", "ranlib": "ranlib"}
    folder = work / "compilers" / processor
    folder.mkdir(parents=True, exist_ok=True)
    scripts = {}
    for name, command in commands.items():
        scripts[name] = folder / name
        text = f'#!/bin/sh\nexec "{zig}" {command} "$@"\n'
        if not scripts[name].exists() or scripts[name].read_text() != text:
            scripts[name].write_text(text)
            scripts[name].chmod(0o755)
    return scripts


def finish(wheel: Path, out: Path, target: Target, environment: Mapping[str, str]) -> Path:
    """Write a wheel with its final tags, an SBOM, sorted entries and the dates of SOURCE_DATE_EPOCH; return the new file."""
    name, version = wheel.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    date = time.gmtime(int(environment["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(wheel) as archive:
        # A cross compilation takes the suffix of extension modules from the Python that runs it.
        suffix = f"-{os.uname().machine}-linux-gnu.so", f"-{target.processor}-linux-gnu.so"
        entries = {each.replace(*suffix): archive.read(each) for each in archive.namelist() if not each.endswith("/")}
    head = [line for line in entries[f"{info}/WHEEL"].decode().splitlines() if line and not line.startswith("Tag:")]
    entries[f"{info}/WHEEL"] = "\n".join([*head, f"Tag: {target.tag}", ""]).encode()
    entries[f"{info}/sboms/{name}.cdx.json"] = sbom.document(
        name, version, target.processor, int(environment["SOURCE_DATE_EPOCH"])
    )
    record = f"{info}/RECORD"
    del entries[record]
    entries[record] = "".join(_record_lines(entries, record)).encode()
    path = out / f"{name}-{version}-{target.tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The folder of metadata comes last, as PEP 427 recommends.
        for each in sorted(entries, key=lambda each: (each.startswith(info), each)):
            header = zipfile.ZipInfo(each, date)
            header.compress_type = zipfile.ZIP_DEFLATED
            header.external_attr = (0o100755 if each.endswith(".so") else 0o100644) << 16
            archive.writestr(header, entries[each])
    return path


def _record_lines(entries: Mapping[str, bytes], record: str) -> Iterator[str]:
    for each in sorted(entries):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entries[each]).digest()).rstrip(b"=").decode()
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow([each, f"sha256={digest}", len(entries[each])])
        yield row.getvalue()
    yield f"{record},,\n"


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Run a command; where it fails, print its output and exit."""
    arguments = list(map(str, command))
    done = subprocess.run(arguments, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout[-20000:])
        sys.exit(f"failed: {' '.join(arguments)}")


def wheel_of_machine(files: Sequence[Path], version: tuple[int, int], processor: str) -> Path:
    """Return the wheel that pip selects for a version of CPython on a processor. Exits if ``files`` have none."""
    interpreter = "cp312-abi3-" if version >= (3, 12) else f"cp{version[0]}{version[1]}-"
    for part in (interpreter, "py3-none-any"):
        for file in files:
            if part in file.name and file.stem.endswith((f"_{processor}", "-any")):
                return file
    sys.exit(f"release/dist.py built no wheel for Python {version[0]}.{version[1]} on {processor}")


def print_table(files: Sequence[Path]) -> None:
    print(f"{'file':70}  {'MB':>6}  sha256")
    for file in files:
        print(f"{file.name:70}  {file.stat().st_size / 1e6:6.2f}  {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
