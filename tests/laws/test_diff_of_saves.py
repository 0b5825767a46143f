"""A model and what is read of its file are the same to ``diff``: every operator, in each format and through the text form."""

from __future__ import annotations

from pathlib import Path

import pytest

import dovetail
from case_runner import at_most, model_of, over
from cases import Case
from dovetail.errors import UnsupportedError


@over(at_most(3))
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_second_save_has_no_difference(case: Case, suffix: str, tmp_path: Path) -> None:
    """The first file decides how the format says it; from then on nothing changes, also not through a text."""
    first, second, text, third = (tmp_path / f"{name}" for name in (f"a{suffix}", f"b{suffix}", "c.dt", f"d{suffix}"))
    try:
        dovetail.save(model_of(case), first)
    except UnsupportedError as error:
        pytest.skip(f"the format cannot express it: {error.message}")
    loaded = dovetail.load(first)
    dovetail.save(loaded, second)
    dovetail.save(loaded, text)
    dovetail.save(dovetail.load(text), third)
    for other in (second, text, third):
        found = dovetail.diff(first, other)
        assert found.is_same, f"{other.name}: {found}"
