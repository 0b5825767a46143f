"""Draw a model as SVG, PNG or an HTML page."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.graph import EXTENSIONS, Model
from dovetail.report.draw.colors import Measure
from dovetail.report.draw.layout import Placed, place_item
from dovetail.report.draw.scene import Frame, Scene, full_name
from dovetail.report.draw.scene_builder import build_scene
from dovetail.report.draw.svg import DARK_STYLE, FONT, write_svg

BOXES = 150
"""The default maximum number of drawn boxes; modules are opened while at most this many boxes are drawn."""
MAX_PIXELS = 60_000_000
"""The maximum number of pixels of a PNG."""

LETTER = f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20" font-family="{FONT}"><text x="2" y="16">M</text></svg>'
"""A test picture, which is rendered without its letter if no font is installed."""


@dataclass(slots=True)
class Drawing:
    """Drawing is a picture of a model, created by :func:`draw_model`; ``notes`` lists its simplifications."""

    name: str
    scene: Scene
    measure: Measure | None = None
    boxes: int = BOXES
    depth: int | None = None
    _placed: Placed | None = field(default=None, repr=False)

    @property
    def notes(self) -> list[str]:
        """The simplifications of the picture, for graphs that are too large or too dense for the layout, one line each."""
        return self.scene.notes

    def svg(self) -> str:
        """Return the picture as SVG text, which is well-formed XML without scripts."""
        if self._placed is None:
            open_frames(self.scene, self.boxes, self.depth)
            self._placed = place_item(self.scene.root)
        return write_svg(self._placed, self.name, self.notes, self.measure)

    def png(self, zoom: float = 1.0) -> bytes:
        """Return the picture as a PNG file with ``zoom`` pixels per SVG unit, or fewer to stay within MAX_PIXELS.

        Raises UnsupportedError [extra.missing] if the package resvg_py is missing or the machine has no font.
        """
        try:
            # Deferred: the library is optional.
            import resvg_py
        except ImportError:
            raise UnsupportedError("extra.missing", "a PNG needs the package resvg_py; install dovetail-graph[draw]") from None
        if not 0.01 <= zoom <= 16:
            raise RuleError("argument.value", f"zoom must be in [0.01, 16], got {zoom:g}")
        text = self.svg()
        assert self._placed is not None
        pixels = max(self._placed.width, 480) * (self._placed.height + 80)
        zoom = min(zoom, (MAX_PIXELS / pixels) ** 0.5)
        if _render(resvg_py, LETTER) == _render(resvg_py, LETTER.replace("M", "")):
            raise UnsupportedError(
                "extra.missing", "a PNG needs a font, but none is installed; install a font such as DejaVu Sans"
            )
        return _render(resvg_py, text.replace(f"<style>{DARK_STYLE}</style>", ""), zoom)

    def html(self) -> str:
        """Return an HTML page without external resources, with search, hover, folding of modules, pan and zoom."""
        # Deferred for start-up time.
        from dovetail.report.draw.page import write_page

        open_frames(self.scene, self.boxes, self.depth)
        return write_page(self.scene, self.name, self.measure)

    def as_dict(self) -> dict[str, Any]:
        """Return facts of the picture for JSON: the numbers of ``nodes``, ``boxes`` and ``drawn`` boxes, and the ``notes``."""
        items = list(self.scene.items())
        drawn = sum(item.parent is None or item.parent.is_open for item in items)
        return {"nodes": self.scene.root.total, "boxes": len(items), "drawn": drawn, "notes": self.notes}

    def _repr_html_(self) -> str:
        return self.svg()


def draw_model(
    model: Model,
    *,
    colors: Mapping[str, float] | None = None,
    measure: str = "value",
    unit: str = "",
    is_sum: bool = True,
    boxes: int = BOXES,
    depth: int | None = None,
) -> Drawing:
    """Draw a model; the Drawing gives the picture as SVG, PNG or HTML.

    ``colors`` maps node names (``Node.label``) to numbers, which determine the colours of the boxes. ``measure`` is the title of
    these numbers, and ``unit`` is "s", "B" or a text after each number. The number of a box with several nodes is their sum, or
    with ``is_sum=False`` their maximum. Modules are opened from the outermost on, while at most ``boxes`` boxes are drawn, or up
    to ``depth`` levels. An attention (Softmax between two products, or its module) is one box unless ``depth`` is given.

    Raises RuleError [argument.value] for ``boxes`` below 1, and RuleError [argument.type] for a colour that is not a number.
    ``Drawing.png`` raises UnsupportedError [extra.missing] if the package of ``dovetail-graph[draw]`` is missing.
    """
    if boxes < 1:
        raise RuleError("argument.value", f"boxes must be at least 1, got {boxes}")
    scene = build_scene(model)
    scale = None
    if colors is not None:
        try:
            scale = Measure(measure, {str(name): float(number) for name, number in colors.items()}, unit, is_sum)
        except (TypeError, ValueError) as error:
            raise RuleError("argument.type", f"colors must be numbers by node name: {error}") from None
        numbers = [number for item in scene.items() if item is not scene.root and (number := scale.of(item)) is not None]
        scale.largest = max((number for number in numbers if number != float("inf")), default=0.0)
    return Drawing(full_name(model.title), scene, scale, boxes, depth)


def _render(library: Any, text: str, zoom: float = 1.0) -> bytes:
    return bytes(library.svg_to_bytes(svg_string=text, zoom=zoom, font_family="DejaVu Sans"))


def open_frames(scene: Scene, boxes: int, depth: int | None) -> None:
    """Open frames from the outermost on, sections last, while at most ``boxes`` boxes are drawn, or up to ``depth`` levels.

    With ``depth`` frames of attention are opened too, without it they stay folded.
    """
    numbers = count()
    shown = len(scene.root.children)
    waiting: list[tuple[int, int, int, Frame]] = []

    def add(frame: Frame, level: int) -> None:
        for child in frame.children:
            if isinstance(child, Frame):
                child.is_open = False
                is_last = 100 if child.kind == "section" else 0
                heapq.heappush(waiting, (level + is_last, len(child.children), next(numbers), child))

    scene.root.is_open = True
    add(scene.root, 1)
    while waiting:
        level, size, _, frame = heapq.heappop(waiting)
        is_within = shown + size <= boxes and not frame.is_attention if depth is None else level % 100 <= depth
        if (is_within and frame.kind != "section") or (depth is not None and is_within):
            frame.is_open = True
            shown += size
            add(frame, level % 100 + 1)


def _svg(model: Model, **options: Any) -> str:
    return draw_model(model, **options).svg()


EXTENSIONS.model_svg = _svg
