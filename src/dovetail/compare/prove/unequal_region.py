"""UnequalRegion: a part of two models that is not proved equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class UnequalRegion:
    """Nodes of two models, by their labels, that compute values which are not proved equal from values that are equal.

    ``inputs`` are the names of the equal values at its boundary, in the first model; ``outputs`` the pairs of names of the values
    that it computes. ``difference`` is their largest difference, relative to the largest magnitude, where the region ran on the
    same seeded operands in both models; None where it did not run. ``is_different``: it is more than rounding, and so is that of
    the outputs of the models.
    """

    nodes_a: list[str]
    nodes_b: list[str]
    inputs: list[str]
    outputs: list[tuple[str, str]]
    difference: float | None = None
    is_different: bool = False
