"""The scene of a graph, a picture before its layout: cards of nodes in nested frames, and links between items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dovetail.errors import printable
from dovetail.ir import symbolic
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Size, Tensor, shape_of

MAX_LABEL = 30
"""The maximum length, in characters, of a label in the picture."""
TIMES = "\u00d7"
"""The sign between the sizes of a shape."""
MAX_TITLE = 300
"""The maximum length, in characters, of a name in a tooltip."""


@dataclass(eq=False, slots=True)
class Card:
    """Card is a box without inner boxes: a node with its weights, or inputs or outputs of a graph.

    ``kind`` is operator, weighted, movement, control, input or output. ``total`` is the number of nodes that the card represents,
    including the copies in ``hidden``; it is 0 for cards of inputs and outputs.
    """

    kind: str
    title: str
    name: str
    position: int
    lines: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    token: int = 0
    count: int = 1
    total: int = 1
    hidden: list[Item] = field(default_factory=list)
    parent: Frame | None = None
    detail: str = ""
    node: Node | None = None
    """The node of the card, without the nodes that compute its weights; None for cards of inputs and outputs."""


@dataclass(eq=False, slots=True)
class Frame:
    """Frame is a box with items: a module, a repeated block, a section of a large graph, a node with subgraphs, or a subgraph.

    ``count`` is the number of copies that the frame represents; ``hidden`` has the copies that are not drawn. ``nodes`` has the
    label of a node with subgraphs. ``links`` maps each edge (source, target) among the children to its values. A gate of the
    frame, where edges cross its border, may also be a source or target.
    """

    kind: str
    title: str
    position: int
    children: list[Item] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    token: int = 0
    count: int = 1
    total: int = 0
    hidden: list[Item] = field(default_factory=list)
    parent: Frame | None = None
    links: dict[tuple[End, End], dict[Value, None]] = field(default_factory=dict)
    entries: dict[Value, Gate] = field(default_factory=dict)
    exits: dict[Value, Gate] = field(default_factory=dict)
    is_open: bool = False
    detail: str = ""
    summary: str = ""
    """The most frequent operators in the frame, as text."""
    node: Node | None = None
    """The node with subgraphs that the frame shows; None for other frames."""
    is_attention: bool = False
    """True for an attention, which pictures show as one box unless a depth is chosen."""


@dataclass(eq=False, slots=True)
class Gate:
    """Gate is a position where edges of one or more values cross the border of a frame."""

    is_entry: bool
    parent: Frame | None = None


Item: TypeAlias = Card | Frame
End: TypeAlias = Card | Frame | Gate


@dataclass(slots=True)
class Scene:
    """Scene is a picture without positions: the outermost frame, and ``notes`` on simplifications."""

    root: Frame
    notes: list[str]

    def items(self) -> Iterator[Item]:
        """Yield every item that can be drawn, frames before their content; hidden copies are excluded."""
        pending: list[Item] = [self.root]
        while pending:
            item = pending.pop()
            yield item
            if isinstance(item, Frame):
                pending += reversed(item.children)


def all_items(item: Item) -> Iterator[Item]:
    """Yield an item and all items inside it, hidden copies included."""
    pending: list[Item] = [item]
    while pending:
        each = pending.pop()
        pending += each.hidden
        if isinstance(each, Frame):
            pending += each.children
        yield each


def all_cards(item: Item) -> Iterator[Card]:
    return (each for each in all_items(item) if isinstance(each, Card))


def all_frames(item: Item) -> Iterator[Frame]:
    return (each for each in all_items(item) if isinstance(each, Frame))


def summarize(frame: Frame) -> str:
    """Return the three most frequent operators in a frame with their counts, including hidden copies."""
    counts = Counter(card.title for card in all_cards(frame) if card.total)
    return " · ".join(f"{title} {count:,}" for title, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:3])


def node_names(item: Item) -> Iterator[str]:
    """Yield the labels of the nodes that an item represents, including hidden copies."""
    pending: list[Item] = [item]
    while pending:
        each = pending.pop()
        yield from each.nodes
        pending += each.hidden
        if isinstance(each, Frame):
            pending += each.children


def shorten(text: str, length: int = MAX_LABEL) -> str:
    """Return the escaped ``text``; if it exceeds ``length`` characters, its middle is replaced by an ellipsis."""
    text = printable(text if len(text) <= 4 * length else f"{text[: 2 * length]}{text[-2 * length :]}")
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def full_name(text: str) -> str:
    """Return an escaped name, shortened to MAX_TITLE characters."""
    return shorten(text, MAX_TITLE)


def shape_label(value: Value) -> str:
    """Return the shape of a value as the label of an edge, preceded by the element type unless it is f32."""
    type = value.type
    if not isinstance(type, Tensor):
        return shorten(str(type), 24)
    shape = shape_of(type)
    dtype = "" if type.dtype is None or type.dtype.name == "f32" else f"{type.dtype} "
    if shape is None:
        return f"{dtype}…"
    sizes = [_size_label(size) for size in shape]
    return dtype + TIMES.join([*sizes[:6], *(["…"] if len(sizes) > 6 else [])]) if sizes else f"{dtype}scalar"


def _size_label(size: Size | None) -> str:
    """Return the text of a size: "?" if the file has no name for it, and the first symbol of an expression that is long."""
    text = "?" if size is None else str(size)
    if size is None or "?" in text:
        return "?"
    symbols = symbolic.symbols(size)
    if len(text) > 14 and symbols and symbolic.name_of(size) is None:
        return f"{shorten(str(symbols[0]), 13)}…"
    text = shorten(text, 14)
    return f"({text})" if " " in text and not text.endswith(")") else text
