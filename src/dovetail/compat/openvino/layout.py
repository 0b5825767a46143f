"""Layout: the names of a tensor's axes."""

from __future__ import annotations

import re

from dovetail.errors import EngineError

REST = "..."
"""The entry of a layout that stands for any number of axes."""


_SYNONYMS = {"BATCH": "N", "B": "N", "CHANNELS": "C", "CHANNEL": "C", "DEPTH": "D", "HEIGHT": "H", "WIDTH": "W"}
"""Names that stand for another name."""


def _canonical(name: str) -> str:
    return _SYNONYMS.get(name.upper(), name.upper())


class Layout:
    """Layout holds the names of the axes: ``NCHW``, ``[N,C,H,W]``, ``N...C`` (any axes between) or ``N??C`` (axes without name).

    >>> Layout("nchw"), Layout("N...C").get_index_by_name("C"), Layout("NHWC") == "[N,H,W,C]"
    (<Layout: [N,C,H,W]>, -1, True)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, layout: str = "") -> None:
        self._names = _parse(layout)

    @staticmethod
    def scalar() -> Layout:
        """Return the layout of a tensor without axes."""
        layout = Layout()
        layout._names = []
        return layout

    @property
    def empty(self) -> bool:
        return self._names == [REST]

    @property
    def names(self) -> list[str]:
        """The names of the axes, with "?" for an axis without name and "..." for any number of axes."""
        return list(self._names)

    def has_name(self, name: str) -> bool:
        return _canonical(name) in self._names

    def get_index_by_name(self, name: str) -> int:
        """Return the axis of that name, negative if it follows the "...". Raises EngineError [argument.value]."""
        if not self.has_name(name):
            raise EngineError("argument.value", f"{name} dimension index is not defined in the layout {self}")
        index = self._names.index(_canonical(name))
        return index - len(self._names) if REST in self._names[:index] else index

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = Layout(other)
        return isinstance(other, Layout) and self._names == other._names

    def to_string(self) -> str:
        return f"[{','.join(self._names)}]" if self._names else "**SCALAR**"

    __str__ = to_string

    def __repr__(self) -> str:
        return f"<Layout: {self}>"


def _parse(text: str) -> list[str]:
    """Return the names of a layout. Raises EngineError [argument.value] for a text that is no layout."""
    if not text:
        return [REST]
    if text.startswith("[") and text.endswith("]"):
        names = [_canonical(item.strip()) for item in text[1:-1].split(",")]
    else:
        names = [_canonical(item) for item in re.findall(r"\.\.\.|.", text)]
    for name in names:
        if name not in (REST, "?") and not re.fullmatch(r"[A-Z0-9_]+", name):
            raise EngineError("argument.value", f"Layout name is invalid ({name}). Only english letters, digits and _ is allowed")
        if name != "?" and names.count(name) > 1:
            raise EngineError("argument.value", f"Dimension ({name}) is defined multiple times in layout")
    return names


def common_transpose(source: Layout, target: Layout, rank: int) -> list[int] | None:
    """Return the axes of ``source`` in the order of ``target``; None if the layouts are equal or one of them is empty.

    Raises EngineError [argument.value] for layouts whose axes differ.
    """
    if source.empty or target.empty or source == target:
        return None
    first, second = (_expand(layout, rank) for layout in (source, target))
    if first == second:
        return None
    free = [axis for axis, name in enumerate(first) if name == "?"]
    order: list[int] = []
    for name in second:
        if not free if name == "?" else name not in first:
            raise EngineError("argument.value", f"the layout {source} must have the axes of the layout {target}")
        order.append(free.pop(0) if name == "?" else first.index(name))
    return None if order == list(range(rank)) else order


def _expand(layout: Layout, rank: int) -> list[str]:
    """Return the names of ``rank`` axes. Raises EngineError [argument.value] for another number of names."""
    names = layout.names
    if REST in names:
        place = names.index(REST)
        names[place : place + 1] = ["?"] * (rank - len(names) + 1)
    if len(names) != rank:
        raise EngineError("argument.value", f"the layout {layout} must have as many axes as its tensor, got rank {rank}")
    return names
