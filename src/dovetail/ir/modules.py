"""Modules of a model's source: the path of the module that each node was exported from, by metadata or by names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.ir.graph import Graph, Node

SCOPES = "pkg.torch.onnx.name_scopes"
NAMESPACE = "namespace"
QUOTED = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'|\"([^\"\\]*(?:\\.[^\"\\]*)*)\"")
TRACED = "__module."
"""The beginning of names that OpenVINO gives to the nodes of a traced torch module."""
MAX_PARTS = 12
"""The most parts of a path; deeper modules are parts of the last one."""
MAX_TEXT = 10_000
"""The most characters of metadata or of a name that are searched for modules."""
MAX_SHAPE = 8
"""The most elements of a constant that is a shape."""
MIN_SHARE = 0.25
"""The least share of the nodes whose modules are known."""
MAX_NEIGHBOURS = 16
"""The most neighbours of a node whose modules are compared."""


def module_of(node: Node) -> str:
    """Return the path of the module of a node, its parts separated by "/"; "" for a node of none."""
    return "/".join(module_path(node))


def module_path(node: Node) -> tuple[str, ...]:
    """Return the names of the modules around a node, the outermost first; empty where neither metadata nor names have one.

    The metadata of torch's exporter has the scopes of modules. Names of nodes and of outputs that are paths
    ("/layers.0/attention/MatMul", "layers.0.attention.matmul") have the module before their last part. The name of a parameter
    ("layers.0.attention.weight") has it too.
    """
    return tuple(next((path for path in _candidates(node) if path), [])[:MAX_PARTS])


def module_paths(graph: Graph) -> dict[Node, tuple[str, ...]]:
    """Return the module path of each node of a graph.

    A node without one is in the innermost module that is around all of its neighbours; one with parameters is in none. Where
    less than MIN_SHARE of the nodes have a path, no node has: the modules would hold parts of what they are.
    """
    paths = {node: module_path(node) for node in graph.nodes}
    computing = [node for node in graph.nodes if node.outputs and node.outputs[0].constant is None]
    if sum(bool(paths[node]) for node in computing) < MIN_SHARE * len(computing):
        return dict.fromkeys(graph.nodes, ())
    unknown = {node for node in computing if not paths[node] and not _has_parameters(node)}
    for node in computing:
        if node in unknown:
            near = [x.node for x in node.inputs if x is not None and x.node is not None and x.constant is None]
            near += [reader for y in node.outputs for _, (reader, _) in zip(range(MAX_NEIGHBOURS), y.uses, strict=False)]
            paths[node] = _common_prefix([paths[each] for each in near[: 2 * MAX_NEIGHBOURS] if each not in unknown])
            unknown.discard(node)
    return paths


def _has_parameters(node: Node) -> bool:
    """Return whether a node has a constant that is more than an axis or a shape."""
    return any(x is not None and (data := x.constant) is not None and data.size > MAX_SHAPE for x in node.inputs)


def _candidates(node: Node) -> Iterable[list[str]]:
    yield _from_metadata(node.metadata.get("metadata_props"))
    yield _path_before_last(node.name)
    # An output such as "present.0.key" is named for the model's user: of outputs only paths with slashes count.
    yield from (_path_before_last(y.name) for y in node.outputs if "/" in y.name)
    for x in node.inputs:
        if x is not None and x.constant is not None:
            yield _path_before_last(x.name)


def _from_metadata(properties: object) -> list[str]:
    if not isinstance(properties, dict):
        return []
    scopes = properties.get(SCOPES)
    if isinstance(scopes, str) and 0 < len(scopes) < MAX_TEXT:
        # A list of cumulative paths, the last of which is the node itself: ['', 'layers.0', 'layers.0.linear', 'addmm'].
        return _relative_parts([first or second for first, second in QUOTED.findall(scopes)][:-1])
    namespace = properties.get(NAMESPACE)
    if isinstance(namespace, str) and len(namespace) < MAX_TEXT:
        # Parts "name: class", the last of which is the node itself.
        return _relative_parts([part.partition(":")[0].strip() for part in namespace.split("/")][:-1])
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
    name = name[:MAX_TEXT]
    parts = [part for part in name.split("/") if part]
    if name.startswith(TRACED):
        module = parts[0].removeprefix(TRACED).split(".")
        return module if len(parts) > 1 else module[:-1]
    if "/" in name:
        return parts[:-1]
    pieces = [piece for piece in name.split(".") if piece]
    # 1.5 and v1::op.default are no paths of modules.
    return pieces[:-1] if len(pieces) > 1 and "::" not in name and re.search(r"[^\W\d]", pieces[0]) else []


def _common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
