"""Bounds of the measures of ``python tests/structure.py``."""

from __future__ import annotations

import pytest

import structure

BOUNDS = {
    "entries": 16,
    "operator_tables": 10,
    "error_codes": 200,
    "circles": 0,
    "untyped_parameters": 375,
    "public_functions_without_example": 0,
}


@pytest.mark.parametrize("name", BOUNDS)
def test_measures_of_the_source_are_bounded(name: str) -> None:
    places = list(structure.MEASURES[name]())
    assert len(places) <= BOUNDS[name], "\n".join(places)
