"""A release of a runtime, named by the requirement ``onnxruntime==1.20.1``."""

from __future__ import annotations

import re
from typing import NamedTuple

from dovetail.errors import EngineError

PACKAGES = ("onnx", "onnxruntime", "openvino")
"""The only packages that an installer is called for, besides numpy; onnx runs a model by its reference evaluator."""
_NAME = re.compile(r"\w+", re.ASCII)
_REQUIREMENT = re.compile(r"(\w{1,32})==(\d{1,6}\.\d{1,6}\.\d{1,6})", re.ASCII)


class Release(NamedTuple):
    """Release is an exact version of a runtime's package."""

    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


def release_of(engine: str) -> Release | None:
    """Return the release that an engine's name requires; None for a plain word, the name of an engine without a version.

    Raises EngineError [argument.value] for another package than PACKAGES, and for another specifier than ``==X.Y.Z``.
    """
    if _NAME.fullmatch(engine):
        return None
    match = _REQUIREMENT.fullmatch(engine)
    if match is None or match[1] not in PACKAGES:
        forms = ", ".join(f"{package}==X.Y.Z" for package in PACKAGES)
        raise EngineError("argument.value", f"a release must have the form {forms}, got {engine[:80]!r}")
    return Release(match[1], match[2])
