"""Colours of boxes by a measure: a scale from light to dark over the numbers of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from dovetail.report.draw.scene import Item, node_names

RAMP = ((255, 247, 226), (253, 212, 158), (252, 141, 89), (215, 48, 31), (127, 0, 0))
"""The colours of the scale, lightest first (ColorBrewer OrRd)."""


@dataclass(slots=True)
class Measure:
    """Measure holds numbers by node name, for the colours of boxes.

    The number of a box with several nodes is their sum if ``is_sum`` (time, bytes), else their maximum (errors). ``unit`` follows
    a number: "s" and "B" with prefixes, any other text unchanged.
    """

    title: str
    values: Mapping[str, float]
    unit: str = ""
    is_sum: bool = True
    largest: float = field(default=0.0)

    def of(self, item: Item) -> float | None:
        """Return the combined number of all nodes that an item represents; None if no node has a number."""
        found = [self.values[name] for name in node_names(item) if name in self.values]
        numbers = [number for number in found if isfinite(number)]
        if len(numbers) < len(found) and not self.is_sum:
            return float("inf")
        return None if not numbers else sum(numbers) if self.is_sum else max(numbers)

    def color(self, number: float) -> str:
        """Return the colour of a number as #rrggbb; ``largest`` and non-finite numbers have the darkest colour."""
        share = min(max(number / self.largest, 0.0), 1.0) if isfinite(number) and self.largest > 0 else float(number != 0)
        position = share**0.5 * (len(RAMP) - 1)
        index = min(int(position), len(RAMP) - 2)
        part = position - index
        return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(RAMP[index], RAMP[index + 1], strict=True))

    def text_color(self, number: float) -> str:
        """Return black or white, whichever has the higher contrast with the colour of a number (at least 4.5:1)."""
        color = self.color(number)
        channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        # Relative luminance and contrast as in WCAG 2.
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        return "#000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fff"

    def text(self, number: float) -> str:
        """Return a number with its unit."""
        # Deferred for start-up time.
        from dovetail.report.text import duration, size

        if not isfinite(number):
            return str(number)
        return duration(number) if self.unit == "s" else size(number) if self.unit == "B" else f"{number:.3g}{self.unit}"
