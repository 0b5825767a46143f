"""Deviations of a file that are collected in two collections and joined are those of one collection."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, strategies as st

from dovetail.errors import FormatError
from dovetail.storage import deviations as module
from dovetail.storage.deviations import Deviations, summarize

CODES = ("file.pair", "data.range", "path.kind")


def collection(codes: list[str]) -> Deviations:
    deviations = Deviations()
    for number, code in enumerate(codes):
        deviations.add(FormatError(code, f"number {number}"))
    return deviations


@given(st.lists(st.sampled_from(CODES), max_size=20), st.lists(st.sampled_from(CODES), max_size=20))
def test_joined_deviations_are_those_of_one_collection(first: list[str], second: list[str]) -> None:
    with mock.patch.object(module, "MAX_RECORDED", 4):
        joined, whole = collection(first), collection([*first, *second])
        joined.extend(collection(second))
        assert joined.counts == whole.counts == {code: [*first, *second].count(code) for code in {*first, *second}}
        assert [error.code for error in joined.errors] == [error.code for error in whole.errors]
        for code in CODES:
            assert sum(error.code == code for error in joined.errors) == min(whole.counts[code], 4)
        assert {item.severity for item in whole.warnings()} <= {"warning"}
        lines = summarize(whole.warnings())
        assert [line.split("]")[0] for line in lines] == [f"[{code}" for code in dict.fromkeys([*first, *second])]
        for line in lines:
            count = min(whole.counts[line[1:].split("]")[0]], 4)
            assert ("4 or more times" if count == 4 else f"{count} times" if count > 1 else "number") in line
