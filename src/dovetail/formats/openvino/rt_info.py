"""``<rt_info>``, the metadata of tools in IR files, as nested lists and dicts.

An item is ``{"tag": str, "attributes": {str: str}, "children": [item]}``, with ``"text"`` if it has text. As in OpenVINO, the
name of an item is its ``name`` attribute or else its tag, and the value of an item is its ``value`` attribute.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

from dovetail.errors import FormatError
from dovetail.ir.graph import INFERRED

Item: TypeAlias = dict[str, Any]

DEPTH = 64
_TAG = re.compile(r"(?!(?i:xml))[A-Za-z_][A-Za-z0-9_.-]*")


def items_of(element: Element, depth: int = 0) -> list[Item]:
    """Return the items below ``element``. Raises FormatError [limits.exceeded] if items nest deeper than DEPTH."""
    if depth > DEPTH:
        raise FormatError("limits.exceeded", f"<{element.tag}> must nest at most {DEPTH} levels deep")
    items = []
    for child in element:
        item: Item = {"tag": child.tag, "attributes": dict(child.attrib), "children": items_of(child, depth + 1)}
        if child.text and not child.text.isspace():
            item["text"] = child.text
        items.append(item)
    return items


def name_of(item: Item) -> str:
    return str(item["attributes"].get("name", item["tag"]))


def get(items: list[Item], *path: str) -> str | None:
    """Return the value of the item at ``path``, the names from the outermost item on; None if there is no such item."""
    for item in items:
        if path and name_of(item) == path[0]:
            return get(item["children"], *path[1:]) if len(path) > 1 else item["attributes"].get("value")
    return None


def set_value(items: list[Item], value: str, *path: str) -> None:
    """Set the value of the item at ``path``; missing items are added."""
    for item in items:
        if name_of(item) == path[0]:
            break
    else:
        # A name that is not a valid XML tag is stored in the attribute ``name``, as OpenVINO does.
        is_tag = _TAG.fullmatch(path[0]) is not None and path[0] != "info"
        item = {"tag": path[0] if is_tag else "info", "attributes": {} if is_tag else {"name": path[0]}, "children": []}
        items.append(item)
    if len(path) > 1:
        set_value(item["children"], value, *path[1:])
    else:
        item["attributes"]["value"] = value


def remove(items: list[Item], *path: str) -> list[Item]:
    """Return ``items`` without the item at ``path``; enclosing items that become empty are removed too."""
    kept: list[Item] = []
    for item in items:
        if not path or name_of(item) != path[0]:
            kept.append(item)
            continue
        rest = remove(item["children"], *path[1:]) if len(path) > 1 else []
        attributes = {} if len(path) == 1 else {name: text for name, text in item["attributes"].items() if name != "name"}
        if rest or attributes or item.get("text"):
            kept.append({**item, "children": rest})
    return kept


_INFERRED = {"shape": "dovetail_shape", "value": "dovetail_value"}
"""The names of the port items that hold the port's inferred shape and exact value as text."""


def port_items_of(metadata: dict[str, Any]) -> list[Item]:
    """Return the rt_info items of a port: the items that its file had, and items for the inferred shape and value."""
    texts = metadata.get(INFERRED, {})
    items = [
        {"tag": "attribute", "attributes": {"name": name, "version": "0", "value": texts[key]}, "children": []}
        for key, name in _INFERRED.items()
        if key in texts
    ]
    return [*metadata.get("rt_info", ()), *items]


def read_port(items: list[Item]) -> dict[str, Any]:
    """Return the metadata of a port from its items, with the inferred shape and value separated from the other items."""
    texts = {key: text for key, name in _INFERRED.items() if (text := get(items, name)) is not None}
    others = [item for item in items if name_of(item) not in _INFERRED.values()]
    return {**({"rt_info": others} if others else {}), **({INFERRED: texts} if texts else {})}
