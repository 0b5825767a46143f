"""Opset conversion: export a model at an opset, and find the first opset that can express the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from dovetail.errors import Diagnostic, UnsupportedError
from dovetail.formats.exporter import export_model
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.onnx.dialect import since_version
from dovetail.formats.onnx.reader import plain_domain
from dovetail.formats.onnx.schemas import newest_opset
from dovetail.ir.graph import Model
from dovetail.ir.op import graphs_of
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleClassifier, TreeEnsembleRegressor
from dovetail.storage.deviations import WRITING, log

CONTRIB = "com.microsoft"
"""The domain of the operators that onnxruntime adds; all have version 1."""
LEARNING = "ai.onnx.ml"
LEARNING_VERSION = 5
COLUMNS_VERSION = 4
"""The newest version of ai.onnx.ml in which TreeEnsembleRegressor and TreeEnsembleClassifier are not deprecated.

Runtimes refuse deprecated operators.
"""
NEWEST = 2**31 - 1
OPSET = 21
"""The default opset for a model that does not come from ONNX; all current runtimes read this opset."""


def convert_opset(model: Model, opset: int | None = None) -> ForeignModel:
    """Export ``model`` to ONNX at ``opset``; by default at the opset of the model, or else at OPSET.

    An IR model that was converted from ONNX still has an opset. If the default opset cannot express the model, the lowest later
    opset that can is used and logged.

    Raises UnsupportedError [opset.version] for an unknown opset or an unknown version of another domain. Raises UnsupportedError
    with [op.unsayable], [type.version] or other codes for all nodes that cannot be exported; the messages name the first opset
    that can express the node.
    """
    target = OPSET if opset is None else opset
    if opset is None and model.versions.get(""):
        target = model.versions[""]
    newest = _check_version("", target)
    for domain, version in _other_domains(model).items():
        _check_version(domain, version)
    try:
        return export_at(model, target)
    except UnsupportedError as error:
        write = partial(export_at, model)
        lowest = None if opset is not None else _first_expressing(write, target, newest)
        if lowest is None:
            raise _with_first_opset(error, target, newest, write) from None
        reason = error.diagnostics[0].message
        message = f"the opset was raised from {target} to {lowest}, the lowest that can express the model: {reason}"
        log([Diagnostic("opset.raised", message, severity="warning")], model.file or "the model", WRITING)
        return write(lowest)


def export_at(model: Model, target: int) -> ForeignModel:
    """Export ``model`` to ONNX at an opset. Raises UnsupportedError with every node that cannot be exported."""
    versions = _other_domains(model)
    imports = {**_custom_versions(model), LEARNING: _learning_version(model), **versions, "": target}

    def version_of(domain: str, kind: str) -> int | None:
        if domain == CONTRIB:
            # A model that does not use com.microsoft must not get a com.microsoft operator in place of an ONNX operator.
            return 1 if domain in versions or since_version("", kind, NEWEST) is None else None
        if ONNX.first_version(domain, kind) is None:
            # No opset defines the operator: it is a custom operator, whose version is that of its domain.
            return imports.get(domain)
        return since_version(domain, kind, imports.get(domain, 1))

    foreign = export_model(model, ONNX, version_of)
    used = {node.domain for node in foreign.graph.nodes}
    foreign.versions = {
        "": target,
        **{domain: imports.get(domain, 1) for domain in sorted(used | set(versions)) if domain},
    }
    return foreign


def _learning_version(model: Model) -> int:
    """Return the version of ai.onnx.ml for a model that does not import the domain."""
    columns = any(isinstance(node.op, TreeEnsembleRegressor | TreeEnsembleClassifier) for node in model.graph.nodes)
    return COLUMNS_VERSION if columns else LEARNING_VERSION


def _other_domains(model: Model) -> dict[str, int]:
    """Return the versions of the imported domains except the default ONNX domain."""
    return {domain: version for domain, version in model.versions.items() if domain != "ir" and plain_domain(domain)}


def _custom_versions(model: Model) -> dict[str, int]:
    """Return a version of each domain to which mappings of custom operators in the model lead.

    It is the newest version that the mappings of all these operators list, or else the newest that any lists.
    """
    versions: dict[str, list[set[int]]] = {}
    classes = dict.fromkeys(type(node.op) for graph in graphs_of(model.graph) for node in graph.nodes if node.op.is_custom)
    for cls in classes:
        own: dict[str, set[int]] = {}
        for mapping in ONNX.export_mappings(cls):
            own.setdefault(mapping.domain, set()).update(mapping.versions)
        for domain, listed in own.items():
            versions.setdefault(domain, []).append(listed)
    return {domain: max(set.intersection(*lists) or set.union(*lists)) for domain, lists in versions.items()}


def _check_version(domain: str, version: int) -> int:
    """Return the newest version of a domain. Raises UnsupportedError [opset.version] if ``version`` is out of range."""
    last = newest_opset(domain, version) or NEWEST
    if not 1 <= version <= last:
        subject = f"version {version} of the domain {domain!r}" if domain else f"opset {version}"
        raise UnsupportedError("opset.version", f"{subject} must be in [1, {last}]")
    return last


def _with_first_opset(error: UnsupportedError, target: int, newest: int, write: Callable[[int], Any]) -> UnsupportedError:
    """Add to each fault of ``error`` the first opset after ``target`` at which ``write`` accepts the node of the fault.

    ``error`` was raised by an export at the opset ``target``.
    """

    @cache
    def nodes_refused_at(opset: int) -> frozenset[str | None]:
        try:
            write(opset)
        except UnsupportedError as other:
            return frozenset(item.node for item in other.diagnostics)
        return frozenset()

    firsts = [_first_accepting(item, target, newest, nodes_refused_at) for item in error.diagnostics]
    items = [_with_opset(item, first, target, newest) for item, first in zip(error.diagnostics, firsts, strict=True)]
    message = items[0].message
    if len(items) > 1:
        message = f"{len(items)} nodes that onnx cannot express at opset {target}"
        known = [first for first in firsts if first is not None]
        if len(known) == len(firsts) and not nodes_refused_at(max(known)):
            message += f"; opset {max(known)} can express all"
    first = items[0]
    return UnsupportedError(first.code, message, node=first.node, op=first.op, file=first.file, diagnostics=items)


def _first_expressing(write: Callable[[int], Any], target: int, newest: int) -> int | None:
    """Return the lowest opset after ``target`` at which ``write`` accepts the model; None if the newest opset fails."""

    def is_accepted(opset: int) -> bool:
        try:
            write(opset)
        except UnsupportedError:
            return False
        return True

    if target == newest or not is_accepted(newest):
        return None
    low, high = target, newest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_accepted(middle) else (middle, high)
    return high


def _first_accepting(
    item: Diagnostic, target: int, newest: int, nodes_refused_at: Callable[[int], frozenset[str | None]]
) -> int | None:
    """Return the first opset after ``target`` that accepts the node of ``item``; None if the newest opset refuses it."""
    if target == newest or item.node in nodes_refused_at(newest):
        return None
    low, high = target, newest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if item.node in nodes_refused_at(middle) else (low, middle)
    return high


def _with_opset(item: Diagnostic, first: int | None, target: int, newest: int) -> Diagnostic:
    if first is not None:
        return replace(item, message=f"{item.message}; opset {first} can express it")
    return item if target == newest else replace(item, message=f"{item.message}; opset {newest} cannot express it either")
