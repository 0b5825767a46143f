"""Beams read backwards: that end early, late, and not at all."""

from __future__ import annotations

import numpy as np

from cases import Case
from dovetail.ops.tensor.gather_tree import GatherTree

_CHANCE = np.random.default_rng(5)
_STEPS = _CHANCE.integers(1, 9, (5, 2, 3)).astype(np.int32)
_PARENTS = _CHANCE.integers(0, 3, (5, 2, 3)).astype(np.int32)
CASES: list[Case] = [
    Case(GatherTree(), (_STEPS, _PARENTS, np.int32([5, 3]), np.array(10, np.int32)), "GatherTree of lengths"),
    Case(GatherTree(), (_STEPS, _PARENTS, np.int32([5, 4]), np.array(_STEPS[2, 0, 0])), "GatherTree that meets its end"),
    Case(
        GatherTree(), tuple(x.astype(np.float32) for x in (_STEPS, _PARENTS, np.int32([4, 5]), np.array(10))),
        "GatherTree of f32",
        skip={"gradient": "tokens have no slope", "gradient in onnxruntime": "tokens have no slope"},
    ),
    Case(GatherTree(), (_STEPS[:1], _PARENTS[:1], np.int32([1, 1]), np.array(10, np.int32)), "GatherTree of one time"),
]  # fmt: skip
