"""Wheels of release/dist.py: tags, SBOM, records and bytes; the metadata of a build need no compiler."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import dist
import sbom

ROOT = Path(__file__).resolve().parent.parent.parent
INFO = "dovetail_graph-0.1.0.dist-info"
EPOCH = {"SOURCE_DATE_EPOCH": "1750000000"}


def raw_wheel(folder: Path, date: tuple[int, int, int, int, int, int]) -> Path:
    """Write a wheel as a build backend does, with entries of one date."""
    folder.mkdir()
    path = folder / "dovetail_graph-0.1.0-cp312-abi3-linux_x86_64.whl"
    entries = {
        "dovetail/__init__.py": b"answer = 42\n",
        "dovetail/_native.abi3.so": b"\x7fELF",
        f"dovetail/_other.cpython-311-{os.uname().machine}-linux-gnu.so": b"\x7fELF",
        f"{INFO}/METADATA": b"Metadata-Version: 2.4\nName: dovetail-graph\nVersion: 0.1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp312-abi3-linux_x86_64\n\n",
        f"{INFO}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(entries, reverse=bool(date[5])):
            archive.writestr(zipfile.ZipInfo(name, date), entries[name])
    return path


@pytest.mark.parametrize("target", dist.TARGETS, ids=lambda target: target.tag)
def test_finished_wheels_are_installable_and_have_the_same_bytes(target: dist.Target, tmp_path: Path) -> None:
    files = []
    for number in (0, 1):
        out = tmp_path / f"out{number}"
        out.mkdir()
        files.append(dist.finish(raw_wheel(tmp_path / f"raw{number}", (2020, 1, 1, 0, 0, number)), out, target, EPOCH))
    assert files[0].name == f"dovetail_graph-0.1.0-{target.tag}.whl"
    assert files[0].read_bytes() == files[1].read_bytes()
    with zipfile.ZipFile(files[0]) as archive:
        assert archive.testzip() is None
        assert {item.date_time for item in archive.infolist()} == {time.gmtime(1750000000)[:6]}
        rows = list(csv.reader(archive.read(f"{INFO}/RECORD").decode().splitlines()))
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows:
            if name != f"{INFO}/RECORD":
                content = archive.read(name)
                code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={code}", len(content))
        assert not target.processor or f"dovetail/_other.cpython-311-{target.processor}-linux-gnu.so" in archive.namelist()
        assert f"Tag: {target.tag}" in archive.read(f"{INFO}/WHEEL").decode().splitlines()
    installed = tmp_path / "installed"
    if not target.processor:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", installed, files[0]]
        subprocess.run(command, check=True, timeout=120)
        assert (installed / "dovetail" / "__init__.py").is_file()


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
@pytest.mark.parametrize("processor", ["x86_64", "aarch64", "riscv64"])
def test_the_wheel_of_a_machine_is_that_which_pip_selects(version: tuple[int, int], processor: str) -> None:
    tags = pytest.importorskip("packaging.tags")
    parse = pytest.importorskip("packaging.utils").parse_wheel_filename
    platforms = [f"manylinux_2_28_{processor}"]
    own = [
        *tags.cpython_tags(version, [f"cp{version[0]}{version[1]}"], platforms),
        *tags.compatible_tags(version, platforms=platforms),
    ]
    files = [Path(f"dovetail_graph-0.1.0-{target.tag}.whl") for target in dist.TARGETS]
    ranks = {file: min((own.index(tag) for tag in parse(file.name)[3] if tag in own), default=len(own)) for file in files}
    assert dist.wheel_of_machine(files, version, processor) == min(files, key=ranks.__getitem__)
    with pytest.raises(SystemExit):
        dist.wheel_of_machine([Path("dovetail_graph-0.1.0.tar.gz")], version, processor)


@pytest.mark.parametrize("processor", ["", "x86_64", "aarch64"])
def test_components_of_the_sbom_of_each_wheel(processor: str) -> None:
    first = sbom.document("dovetail_graph", "0.1.0", processor, 1750000000)
    assert first == sbom.document("dovetail_graph", "0.1.0", processor, 1750000000)
    content = json.loads(first)
    assert content["specVersion"] == "1.6"
    assert content["metadata"]["component"]["purl"] == "pkg:pypi/dovetail-graph@0.1.0"
    names = {each["name"] for each in content["components"]}
    assert names == {"onnx"} | ({"nanobind", "numpy", "llvm-project"} if processor else set())
    references = {each["bom-ref"] for each in [content["metadata"]["component"], *content["components"]]}
    assert {each["ref"] for each in content["dependencies"]} == references


def test_the_sbom_has_the_version_of_the_tables() -> None:
    onnx = pytest.importorskip("onnx")
    assert onnx.__version__ == sbom.ONNX


def test_metadata_are_prepared_without_a_compiler(tmp_path: Path) -> None:
    """Pip's metadata phase, in which a compilation would be silent, runs no compiler."""
    pytest.importorskip("scikit_build_core")
    code = f"import build_backend; print(build_backend.prepare_metadata_for_build_wheel({str(tmp_path)!r}))"
    environment = {**os.environ, "CXX": "/bin/false", "PYTHONPATH": str(ROOT / "native" / "python"), "DOVETAIL_PURE_PYTHON": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (info,) = tmp_path.iterdir()
    assert "Name: dovetail-graph" in (info / "METADATA").read_text()
