"""Operators of a domain that the model does not import.

onnxruntime reads them in the newest version, OpenVINO those of ONNX in version 1: where the two do not say the same of a
node, the file has no one meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, FormatError
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.ir.op import Op

if TYPE_CHECKING:
    from dovetail.formats.importer import Lifter, Reading
    from dovetail.ir.graph import Value


def refuse_ambiguous(lifter: Lifter, node: ForeignNode, xs: list[Value | None]) -> None:
    """Raise FormatError [opset.missing] where the first version of the node's operator reads it otherwise than the newest."""
    first = lifter.dialect.first_version(node.domain, node.kind)
    if node.domain or first in (None, node.version):
        return
    assert first is not None
    try:
        older = _reading(lifter, replace(node, version=first), xs)
    except DovetailError:
        return
    if older is None or older != _reading(lifter, node, xs):
        what = f"{node.kind}-{first} and {node.kind}-{node.version} differ"
        raise FormatError("opset.missing", f"the model does not import the domain {node.domain!r}, and {what}")


def _reading(lifter: Lifter, node: ForeignNode, xs: list[Value | None]) -> Reading | None:
    """The operator and inputs that the node is read as; None where it is several operators, or unknown."""
    compose = lifter.dialect.lifts.get((node.domain, node.kind, node.version))
    made = None if compose is None else compose(Lifting(lifter.b, node, xs, lifter))
    if isinstance(made, Op):
        return made, xs
    if made is not None:
        return made if isinstance(made, tuple) else None
    spellings = lifter.dialect.readers(node)
    return lifter.first_fitting(spellings, node, xs) if spellings else None
