"""Operators of a domain that the model does not import.

onnxruntime reads them in the newest version, OpenVINO those of ONNX in version 1. Where the two versions do not mean the same for
a node, the file is ambiguous.
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
    """Raise FormatError [opset.missing] where ``read`` maps the first and the newest version of the node to unequal operators.

    ``read`` returns None for a node that is several core operators, or unknown.
    """
    if node.domain or first_version in (None, node.version):
        return
    assert first_version is not None
    try:
        older, newest = read(replace(node, version=first_version)), read(node)
    except (DovetailError, Unknown, symbolic.Inexact):
        # Where the newest version cannot be read either, the import that follows raises the error.
        return
    if older is None or older != newest:
        versions = f"{node.kind}-{first_version} and {node.kind}-{node.version} differ"
        raise FormatError("opset.missing", f"the model does not import the domain {node.domain!r}, and {versions}")
