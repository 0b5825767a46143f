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


def refuse_ambiguous(node: ForeignNode, first_version: int | None, read: Callable[[ForeignNode], Reading | None]) -> None:
    """Raise FormatError [opset.missing] where ``read`` maps the first and the newest version of the node to unequal operators.

    ``read`` returns None for a node that is several core operators, or unknown.
    """
    if node.domain or first_version in (None, node.version):
        return
    assert first_version is not None
    try:
        older = read(replace(node, version=first_version))
    except DovetailError:
        return
    if older is None or older != read(node):
        versions = f"{node.kind}-{first_version} and {node.kind}-{node.version} differ"
        raise FormatError("opset.missing", f"the model does not import the domain {node.domain!r}, and {versions}")
