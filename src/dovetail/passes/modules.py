"""Modules of a model's source: the path of the module that each node was exported from, by metadata or by names."""

from __future__ import annotations

import re

from dovetail.ir.graph import Node

SCOPES = "pkg.torch.onnx.name_scopes"
NAMESPACE = "namespace"
QUOTED = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'|\"([^\"\\]*(?:\\.[^\"\\]*)*)\"")
MAX_PARTS = 32
"""The most parts of a path; further ones are dropped."""


def module_of(node: Node) -> str:
    """Return the path of the module of a node, its parts separated by "/"; "" where neither metadata nor names have one.

    The metadata of torch's exporter has the scopes of modules. Names of nodes and of outputs that are paths
    ("/layers.0/attention/MatMul", "layers.0.attention.matmul") have the module before their last part. The name of a parameter
    ("layers.0.attention.weight") has it too.
    """
    found = _from_metadata(node)
    if not found:
        # An output such as "present.0.key" is named for the model's user: of outputs only paths with slashes count.
        names = [node.name, *(y.name for y in node.outputs if "/" in y.name)]
        names += [x.name for x in node.inputs if x is not None and x.constant is not None]
        found = next((path for name in names if (path := _path_before_last(name))), [])
    return "/".join(found[:MAX_PARTS])


def _from_metadata(node: Node) -> list[str]:
    properties = node.metadata.get("metadata_props", {})
    scopes = properties.get(SCOPES)
    if scopes:
        # A list of cumulative paths, the last of which is the node itself: ['', 'layers.0', 'layers.0.linear', 'addmm'].
        paths = [first or second for first, second in QUOTED.findall(scopes)][:-1]
        return _relative_parts(paths)
    namespace = properties.get(NAMESPACE)
    if namespace:
        # Parts "name: class", the last of which is the node itself.
        parts = [part.partition(":")[0].strip() for part in namespace.split("/")][:-1]
        return _relative_parts(parts)
    return []


def _relative_parts(paths: list[str]) -> list[str]:
    """Return each cumulative path without the path before it."""
    parts, before = [], ""
    for path in paths:
        if path and path != before:
            parts.append(path.removeprefix(f"{before}.") if before else path)
            before = path
    return parts


def _path_before_last(name: str) -> list[str]:
    """Return the parts of a name before the last: between slashes, or else between dots."""
    if "/" in name:
        return [part for part in name.split("/") if part][:-1]
    return [part for part in name.split(".") if part][:-1] if "." in name and "::" not in name else []


__all__ = ["module_of"]
