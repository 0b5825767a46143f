"""Audits of a file that a release uploads: auditwheel, abi3audit and the validator of CycloneDX."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SBOM = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(fault and str(fault))
"""


def is_sound(file: Path, tools: Path) -> bool:
    """Run every audit that concerns a file, print its result, and return whether all found it sound.

    ``tools`` is the Python of an environment that has the packages of requirements.txt.
    """
    if file.suffix != ".whl":
        return True
    checks: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(file) as archive:
        (entry,) = (each for each in archive.namelist() if ".dist-info/sboms/" in each)
        checks["SBOM"] = [str(tools), "-c", SBOM, archive.extract(entry, folder)]
        if "manylinux" in file.name:
            checks["auditwheel"] = [str(tools), "-m", "auditwheel", "show", str(file)]
        if "abi3" in file.name:
            checks["abi3audit"] = [str(tools.with_name("abi3audit")), "--strict", str(file)]
        results = [_passes(file, name, command) for name, command in checks.items()]
        return all(results)


def _passes(file: Path, name: str, command: list[str]) -> bool:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    passes = not done.returncode
    if name == "auditwheel":
        # The name may claim the oldest platform that the wheel runs on, or a newer one.
        oldest = re.search(r'platform tag: "manylinux_(\d+)_(\d+)_', done.stdout.replace("\n", " "))
        claimed = re.search(r"manylinux_(\d+)_(\d+)_", file.name)
        assert claimed is not None
        passes = passes and oldest is not None and tuple(map(int, oldest.groups())) <= tuple(map(int, claimed.groups()))
    print(f"{file.name}: {name} {'passes' if passes else 'FAILS'}", flush=True)
    if not passes:
        print(done.stdout, file=sys.stderr)
    return passes
