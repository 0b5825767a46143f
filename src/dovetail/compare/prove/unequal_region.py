"""UnequalRegion: a part of two models that is not proved equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class UnequalRegion:
    """UnequalRegion holds nodes of two models, by label, that compute values not proved equal from equal values.

    ``inputs`` are the names, in the first model, of the equal values at the boundary. ``outputs`` are pairs of the names of the
    computed values. ``difference`` is the largest difference of the computed values relative to the largest magnitude; both
    models run on the same seeded operands. ``difference`` is None if the region did not run. ``is_different`` means that this
    difference, and the difference of the outputs of the models, exceeds rounding.
    """

    nodes_a: list[str]
    nodes_b: list[str]
    inputs: list[str]
    outputs: list[tuple[str, str]]
    difference: float | None = None
    is_different: bool = False
