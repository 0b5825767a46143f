"""Module paths of nodes: from the metadata that exporters write, else from the prefixes of names."""

from __future__ import annotations

import ast
import re
from typing import Any

from dovetail.ir.graph import Graph, Node

MAX_DEPTH = 12
"""The most modules around a node; deeper ones are parts of the innermost."""
MAX_NAME = 200
"""The most characters of a name that is searched for modules."""
MAX_NEIGHBOURS = 16
"""The most neighbours of a node whose modules are compared."""

NAMESPACE = "namespace"
SCOPES = "pkg.torch.onnx.name_scopes"


def module_path(node: Node) -> tuple[str, ...]:
    """Return the names of the modules around a node, the outermost first; empty for a node of none.

    torch's exporter writes them as the metadata ``pkg.torch.onnx.name_scopes`` or ``namespace``. Other names are split at "/",
    and those that begin with ``__module.`` or have no "/" at ".".
    """
    path = _path_of_metadata(node.metadata.get("metadata_props")) or _path_of_name(node.name)
    return tuple(path[:MAX_DEPTH])


def _path_of_metadata(entries: Any) -> list[str]:
    if not isinstance(entries, dict):
        return []
    scopes: list[str] = []
    text = entries.get(SCOPES)
    if isinstance(text, str) and len(text) < 10_000:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            found = None
        scopes = [item for item in found if isinstance(item, str)] if isinstance(found, list) else []
    elif isinstance(text := entries.get(NAMESPACE), str) and len(text) < 10_000:
        scopes = [part.partition(": ")[0].strip() for part in text.split("/")]
    # The last scope is the operation itself. Each scope repeats the one around it: m, m.model, m.model.layers.
    path, around = [], ""
    for scope in scopes[:-1]:
        if scope:
            path.append(scope.removeprefix(around + ".") if around else scope)
            around = scope
    return path


def _path_of_name(name: str) -> list[str]:
    if len(name) > MAX_NAME:
        name = name[:MAX_NAME]
    parts = [part for part in name.split("/") if part]
    if name.startswith("__module."):
        module = parts[0].removeprefix("__module.").split(".")
        return module if len(parts) > 1 else module[:-1]
    if len(parts) > 1:
        return parts[:-1]
    # 1.5 or v1.2 is no path of modules.
    pieces = name.split(".")
    return pieces[:-1] if len(pieces) > 1 and all(re.search(r"[A-Za-z_]", pieces[0]) and piece for piece in pieces) else []


def module_paths(graph: Graph) -> dict[Node, tuple[str, ...]]:
    """Return the module path of each node of a graph.

    Where most nodes have one, a node without one is in the innermost module that is around all of its neighbours.
    """
    paths = {node: module_path(node) for node in graph.nodes}
    computing = [node for node in graph.nodes if node.outputs and node.outputs[0].constant is None]
    if 2 * sum(bool(paths[node]) for node in computing) < len(computing):
        return paths
    for node in computing:
        if not paths[node]:
            near = [x.node for x in node.inputs if x is not None and x.node is not None and x.constant is None]
            near += [reader for y in node.outputs for reader, _ in list(y.uses)[:MAX_NEIGHBOURS]]
            known = [paths[each] for each in near[: 2 * MAX_NEIGHBOURS] if paths[each]]
            paths[node] = _common_prefix(known)
    return paths


def _common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
