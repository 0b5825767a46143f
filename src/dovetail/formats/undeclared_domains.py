"""Check operators of domains that an ONNX model does not import.

onnxruntime reads such an operator in its newest version; OpenVINO reads an operator of the ONNX domain in version 1. If the two
versions differ for a node, the file is ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dovetail.errors import DovetailError, FormatError
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_node import Reading
from dovetail.ir import symbolic
from dovetail.ir.types import Unknown


def refuse_ambiguous(node: ForeignNode, first_version: int | None, read: Callable[[ForeignNode], Reading | None]) -> None:
    """Raise FormatError [opset.missing] if ``read`` maps the first and the newest version of ``node`` to different operators.

    ``read`` returns None for an unknown node, and for a node that becomes several core operators.
    """
    if node.domain or first_version in (None, node.version):
        return
    assert first_version is not None
    try:
        older, newest = read(replace(node, version=first_version)), read(node)
    except (DovetailError, Unknown, symbolic.Inexact):
        # If the newest version cannot be read, the import that follows raises the error.
        return
    if older is None or older != newest:
        versions = f"{node.kind}-{first_version} and {node.kind}-{node.version} differ"
        raise FormatError("opset.missing", f"the model must import an opset of domain {node.domain!r}, because {versions}")
