"""Identity: every element type, any shape."""

from __future__ import annotations

from cases import Case
from cases.concat_split import TYPES, elements
from dovetail.ops.constant import Identity

CASES: list[Case] = [
    *(Case(Identity(), (elements(name, (2, 3)),), f"Identity of {name}") for name in TYPES),
    Case(Identity(), (elements("f32", ()),), "Identity of a scalar"),
    Case(Identity(), (elements("i64", (0, 2)),), "Identity of nothing"),
]
