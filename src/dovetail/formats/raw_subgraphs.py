"""Subgraphs of unknown operators, which stay ForeignGraphs and are attributes of a Foreign operator.

Such a subgraph reads values of enclosing graphs by their keys. The import makes these values inputs of the Foreign node. The
export renames the keys in the subgraph to the keys that the values have in the exported model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dovetail.formats.foreign import ForeignGraph, ForeignNode


def captured_keys(attributes: Mapping[str, Any]) -> list[str]:
    """Return the keys of outer values that the subgraphs in ``attributes`` read, each key once, in order of first use."""
    keys: dict[str, None] = {}
    for value in attributes.values():
        for graph in graphs_in(value):
            keys.update(dict.fromkeys(_free_keys(graph)))
    return list(keys)


def rename_captures(value: object, names: Mapping[str, str], claim: Callable[[str], str]) -> Any:
    """Return an attribute value in whose subgraphs ``names`` maps the keys of outer values to their new keys.

    ``claim`` returns the new key for each key that a subgraph defines.
    """
    if isinstance(value, ForeignGraph):
        return _rename(value, names, claim)
    if isinstance(value, list | tuple) and any(isinstance(item, ForeignGraph) for item in value):
        return type(value)(rename_captures(item, names, claim) for item in value)
    return value


def graphs_in(value: object) -> Iterator[ForeignGraph]:
    """Yield the subgraphs of an attribute value, which may be a subgraph or a list with subgraphs."""
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, ForeignGraph):
            yield item


def _defined_keys(graph: ForeignGraph) -> list[str]:
    produced = (key for node in graph.nodes for key in node.outputs if key is not None)
    return [*(value.key for value in graph.inputs), *graph.constants, *produced]


def _free_keys(graph: ForeignGraph) -> Iterator[str]:
    defined = set(_defined_keys(graph))
    for node in graph.nodes:
        for key in (*node.inputs, *captured_keys(node.attributes)):
            if key is not None and key not in defined:
                yield key
    for value in graph.outputs:
        if value.key not in defined:
            yield value.key


def _rename(graph: ForeignGraph, outer: Mapping[str, str], claim: Callable[[str], str]) -> ForeignGraph:
    names = {**outer, **{key: claim(key) for key in _defined_keys(graph)}}

    def rename_value(value: Any) -> Any:
        key = names.get(value.key, value.key)
        own_names = tuple(names.get(name, name) for name in value.names)
        return value if key == value.key and own_names == value.names else replace(value, key=key, names=own_names)

    def rename_node(node: ForeignNode) -> ForeignNode:
        return replace(
            node,
            inputs=[None if key is None else names.get(key, key) for key in node.inputs],
            outputs=[None if key is None else names.get(key, key) for key in node.outputs],
            attributes={name: rename_captures(value, names, claim) for name, value in node.attributes.items()},
        )

    return replace(
        graph,
        inputs=[rename_value(value) for value in graph.inputs],
        outputs=[rename_value(value) for value in graph.outputs],
        nodes=[rename_node(node) for node in graph.nodes],
        constants={
            names[key]: tensor if names[key] == key else replace(tensor, name=names[key])
            for key, tensor in graph.constants.items()
        },
        values={names.get(key, key): rename_value(value) for key, value in graph.values.items()},
    )
