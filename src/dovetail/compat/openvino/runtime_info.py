"""OVAny and the tree of a model's runtime information: entries by path, such as ``["model_info", "labels"]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from dovetail.errors import EngineError
from dovetail.formats.openvino import rt_info

Tree: TypeAlias = dict[str, object]
Path: TypeAlias = str | Sequence[str]
WORDS = {"YES": True, "TRUE": True, "NO": False, "FALSE": False}
"""The texts of booleans."""


class OVAny:
    """OVAny holds an entry: ``value`` is a number, a list, a text or a dict. An entry of a file is a text."""

    def __init__(self, value: object) -> None:
        self.value = value

    def get(self) -> object:
        return self.value

    def astype(self, dtype: type) -> object:
        """Return the value as bool, int, float or str. Raises EngineError [argument.value] for a text that is none."""
        text = str(self.value)
        if dtype is not bool:
            try:
                return dtype(text)
            except ValueError:
                raise EngineError("argument.value", f"Could not convert to {dtype.__name__} from string {text}") from None
        if text.upper() not in WORDS:
            raise EngineError("argument.value", f"Could not convert to bool from string {text}")
        return WORDS[text.upper()]

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, OVAny) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<OVAny: {self.value!r}>"


def tree_of(metadata: Mapping[str, object]) -> Tree:
    """Return the tree of the metadata of a model from IR."""
    items = metadata.get("rt_info", [])
    assert isinstance(items, list)
    return _tree(items)


def _tree(items: Iterable[rt_info.Item]) -> Tree:
    return {
        rt_info.name_of(item): _tree(item["children"]) if item["children"] else item["attributes"].get("value", "")
        for item in items
    }


def keys_of(path: Path) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


def find(tree: Tree, path: Path) -> object:
    """Return the entry at a path. Raises EngineError [name.unknown]."""
    entry: object = tree
    for key in keys_of(path):
        if not isinstance(entry, dict) or key not in entry:
            message = f"Cannot get runtime attribute. Path to runtime attribute is incorrect: {keys_of(path)}"
            raise EngineError("name.unknown", message)
        entry = entry[key]
    return entry


def store(tree: Tree, path: Path, value: object) -> None:
    """Set the entry at a path; entries above it become dicts."""
    *above, last = keys_of(path)
    for key in above:
        entry = tree.setdefault(key, {})
        if not isinstance(entry, dict):
            tree[key] = entry = {}
        tree = entry
    tree[last] = value


def text_of(value: object) -> str:
    """Return an entry as the text of an IR file: a list with spaces between its items."""
    if isinstance(value, list | tuple):
        return " ".join(map(text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
