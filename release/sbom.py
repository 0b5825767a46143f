"""SBOM of a wheel in CycloneDX 1.6: what the wheel contains beside dovetail's own code. Source: PEP 770, ECMA-424."""

from __future__ import annotations

import json
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

LLVM = "22.1.8"
"""The version of the C++ run time that the compiler of requirements.txt links statically."""
ONNX = "1.23.2"
"""The version of the onnx package from which the tables of messages and schemas are generated."""


@cache
def _pinned() -> dict[str, str]:
    lines = Path(__file__).with_name("requirements.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line]
    return {name.partition("[")[0]: version for name, version in pairs}


def _component(name: str, version: str, license: str, purl: str, role: str) -> dict[str, Any]:
    licensed: dict[str, Any] = {"expression": license} if " " in license else {"license": {"id": license}}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": role,
        "licenses": [licensed],
        "purl": purl,
    }


def document(name: str, version: str, processor: str, epoch: int) -> bytes:
    """Return the SBOM of the wheel for a processor; "" is the wheel without the native core.

    ``epoch`` is the time of the document in seconds since 1970. The same arguments give the same bytes.
    """
    pinned = _pinned()
    project = name.replace("_", "-")
    components = [
        _component("onnx", ONNX, "Apache-2.0", f"pkg:pypi/onnx@{ONNX}", "source of the tables messages.binpb and schemas.json")
    ]
    if processor:
        roles = {
            "nanobind": ("BSD-3-Clause", "Python bindings, compiled into the native core, with the hash table robin-map (MIT)"),
            "numpy": ("BSD-3-Clause", "headers, compiled into the native core"),
        }
        components += [
            _component(each, pinned[each], license, f"pkg:pypi/{each}@{pinned[each]}", role)
            for each, (license, role) in roles.items()
        ]
        purl = f"pkg:github/llvm/llvm-project@llvmorg-{LLVM}"
        role = "libc++, libc++abi and compiler-rt, linked statically"
        components.append(_component("llvm-project", LLVM, "Apache-2.0 WITH LLVM-exception", purl, role))
    own = f"pkg:pypi/{project}@{version}"
    content: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": own,
            },
        },
        "components": components,
        "dependencies": [
            {"ref": own, "dependsOn": [each["bom-ref"] for each in components]},
            *({"ref": each["bom-ref"]} for each in components),
        ],
    }
    text = json.dumps(content, indent=1)
    content["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + processor + text)}"
    return (json.dumps(content, indent=1) + "\n").encode()
