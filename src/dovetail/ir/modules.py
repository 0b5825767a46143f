"""Source modules: the path of the module (torch) that a node was exported from, read from metadata or names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.ir.graph import Graph, Node

SCOPES = "pkg.torch.onnx.name_scopes"
NAMESPACE = "namespace"
QUOTED = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'|\"([^\"\\]*(?:\\.[^\"\\]*)*)\"")
TRACED = "__module."
"""The prefix of the names that OpenVINO assigns to the nodes of a traced torch module."""
MAX_PARTS = 12
"""The maximum number of modules in a module path; longer paths are truncated."""
MAX_TEXT = 10_000
"""The maximum number of characters of a metadata text or a name that is searched for modules."""
MAX_SHAPE = 8
"""The maximum number of elements of a constant that may be a shape; a larger constant is a parameter."""
MIN_SHARE = 0.25
"""The minimum fraction of nodes with a known module path; if fewer nodes have one, all paths of the graph are empty."""
MAX_NEIGHBOURS = 16
"""The maximum number of compared readers of one output; at most twice as many neighbours of a node are compared."""


def module_of(node: Node) -> str:
    """Return the module path of a node, its parts separated by "/"; "" for a node without one."""
    return "/".join(module_path(node))


def module_path(node: Node) -> tuple[str, ...]:
    """Return the names of the modules that contain a node, the outermost first; empty if metadata and names contain none.

    The metadata of torch's exporter contains the scopes of modules. In names of nodes and outputs that are paths
    ("/layers.0/attention/MatMul", "layers.0.attention.matmul") and in names of parameters ("layers.0.attention.weight"), the
    module path is the part before the last separator.
    """
    return tuple(next((path for path in _candidates(node) if path), [])[:MAX_PARTS])


def module_paths(graph: Graph) -> dict[Node, tuple[str, ...]]:
    """Return the module path of each node of a graph.

    A node without a path gets the path of the innermost module that contains all of its neighbours. A node with parameters but
    without a path gets no path. If less than the fraction MIN_SHARE of the nodes have a path, all paths are empty, because the
    modules would be incomplete.
    """
    paths = {node: module_path(node) for node in graph.nodes}
    computing = [node for node in graph.nodes if node.outputs and node.outputs[0].storage is None]
    if sum(bool(paths[node]) for node in computing) < MIN_SHARE * len(computing):
        return dict.fromkeys(graph.nodes, ())
    unknown = {node for node in computing if not paths[node] and not _has_parameters(node)}
    for node in computing:
        if node in unknown:
            near = [x.node for x in node.inputs if x is not None and x.node is not None and x.storage is None]
            near += [reader for y in node.outputs for _, (reader, _) in zip(range(MAX_NEIGHBOURS), y.uses, strict=False)]
            paths[node] = common_prefix([paths[each] for each in near[: 2 * MAX_NEIGHBOURS] if each not in unknown])
            unknown.discard(node)
    return paths


def _has_parameters(node: Node) -> bool:
    """Return whether a node reads a constant of more than MAX_SHAPE elements, which cannot be a list of axes or a shape."""
    return any(x is not None and (data := x.constant) is not None and data.size > MAX_SHAPE for x in node.inputs)


def _candidates(node: Node) -> Iterable[list[str]]:
    yield _from_metadata(node.metadata.get("metadata_props"))
    yield _path_before_last(node.name)
    # An output such as "present.0.key" is named for the model's user: output names count only if they contain slashes.
    yield from (_path_before_last(y.name) for y in node.outputs if "/" in y.name)
    for x in node.inputs:
        if x is not None and x.storage is not None:
            yield _path_before_last(x.name)


def _from_metadata(properties: object) -> list[str]:
    if not isinstance(properties, dict):
        return []
    scopes = properties.get(SCOPES)
    if isinstance(scopes, str) and 0 < len(scopes) < MAX_TEXT:
        # A list of cumulative paths that ends with the node: ['', 'layers.0', 'layers.0.linear', 'addmm'].
        return _relative_parts([first or second for first, second in QUOTED.findall(scopes)][:-1])
    namespace = properties.get(NAMESPACE)
    if isinstance(namespace, str) and len(namespace) < MAX_TEXT:
        # The namespace is a list of "name: class" with the separator "/"; its last item is the node.
        return _relative_parts([part.partition(":")[0].strip() for part in namespace.split("/")][:-1])
    return []


def _relative_parts(paths: list[str]) -> list[str]:
    """Return each cumulative path without the prefix that is its predecessor in ``paths``."""
    parts, before = [], ""
    for path in paths:
        if path and path != before:
            parts.append(path.removeprefix(f"{before}.") if before else path)
            before = path
    return parts


def _path_before_last(name: str) -> list[str]:
    """Return all parts of a name but the last; the separators are slashes, or dots in a name without slashes."""
    name = name[:MAX_TEXT]
    parts = [part for part in name.split("/") if part]
    if name.startswith(TRACED):
        module = parts[0].removeprefix(TRACED).split(".")
        return module if len(parts) > 1 else module[:-1]
    if "/" in name:
        return parts[:-1]
    pieces = [piece for piece in name.split(".") if piece]
    # Names such as 1.5 and v1::op.default are not module paths.
    return pieces[:-1] if len(pieces) > 1 and "::" not in name and re.search(r"[^\W\d]", pieces[0]) else []


def common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the longest path that all ``paths`` begin with; empty for no paths."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
