"""What a slot line of ONNX says of versions and attributes, held against onnx's own schemas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
import pytest

from dovetail import slots
from dovetail.formats.onnx.compose import ONNX
from dovetail.op import REGISTRY
from dovetail.slots import Slot, Spelling

UNREAD = {("LpPool", 1), ("GlobalLpPool", 1), ("Upsample", 10)}
"""What loads as Foreign: the exponent of the first two is a float, and Upsample-10 stands in no opset that was released."""

TOLD_ELSEWHERE = {
    ("Concat", 1, "axis"): "1",
    ("Split", 1, "axis"): "0",
    ("Reshape", 1, "shape"): None,
    ("BatchNormalization", 1, "is_test"): None,
    ("BatchNormalization", 6, "is_test"): None,
    ("Pad", 1, "value"): "left out",
    ("Pad", 2, "value"): "left out",
}
"""Defaults that are not the schema's: in its text alone; demanded, because what leaving it out means cannot be said; or an input
of ours that means the same where it is left out."""

NEWEST = 28
"""The opset up to which every version is known."""

Version = tuple[str, str, int]


@cache
def schemas() -> dict[Version, Any]:
    return {(item.domain, item.name, item.since_version): item for item in onnx.defs.get_all_schemas_with_history()}


def readers() -> dict[Version, list[Spelling]]:
    """The lines that read a version of an operator, in the order in which they are tried."""
    found: dict[Version, list[Spelling]] = {}
    for op in REGISTRY.values():
        for spelling in (slots.parse(op, line) for line in op.onnx):
            for version in () if spelling.is_written_only else spelling.versions:
                found.setdefault((spelling.domain, spelling.kind, version), []).append(spelling)
    return found


def versions() -> Iterator[Any]:
    for version, lines in readers().items():
        family = lines[0].op.__module__.rpartition(".")[2]
        yield pytest.param(version, lines, id=f"{family}: {lines[0].op.__name__}, {version[1]}-{version[2]}")


def names() -> Iterator[Any]:
    for op in REGISTRY.values():
        for kind in sorted({slots.parse(op, line).kind for line in op.onnx}):
            yield pytest.param(kind, id=f"{op.__module__.rpartition('.')[2]}: {op.__name__}, {kind}")


@pytest.mark.parametrize("kind", list(names()))
def test_every_version_of_an_operator_that_is_read_is_named(kind: str) -> None:
    said = {*readers(), *ONNX.lifts}
    real = {version for version in schemas() if version[1] == kind and version[0] == "" and version[2] <= NEWEST}
    assert {(name, number) for _, name, number in real - said} <= UNREAD


@pytest.mark.parametrize(("version", "lines"), list(versions()))
def test_every_attribute_is_spoken_of_and_none_that_the_schema_lacks(version: Version, lines: list[Spelling]) -> None:
    if version in ONNX.lifts:
        return
    known = frozenset[str]().union(*(spelling.known for spelling in lines)) - {"consumed_inputs"}
    assert known == set(schemas()[version].attributes) - {"consumed_inputs"}


@pytest.mark.parametrize(("version", "lines"), list(versions()))
def test_an_attribute_left_out_means_the_default_of_the_schema(version: Version, lines: list[Spelling]) -> None:
    for spelling in lines:
        for slot in spelling.attributes:
            if slot.is_ignored:
                continue
            for name in slot.theirs:
                check(version, spelling, slot, name, any(not demands(each, name) for each in lines))


def demands(spelling: Spelling, name: str) -> bool:
    return any(name in slot.theirs and slot.default is None and not slot.optional for slot in spelling.attributes)


def check(version: Version, spelling: Spelling, slot: Slot, name: str, may_be_left_out: bool) -> None:
    _, kind, number = version
    attribute = schemas()[version].attributes[name]
    if (kind, number, name) in TOLD_ELSEWHERE:
        told = TOLD_ELSEWHERE[kind, number, name]
        assert (slot.default, slot.optional) == ((None, True) if told == "left out" else (told, False))
        return
    default = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
    assert may_be_left_out != attribute.required, f"{spelling.line}: {name}"
    if attribute.required or demands(spelling, name):
        return
    if default is None:
        assert (slot.default, slot.optional) == (None, True), f"{spelling.line}: {name} has no default"
        return
    assert slot.default is not None, f"{spelling.line}: the default of {name} is {default!r}"
    if slot.ours in spelling.op.fields_by_name:
        given = default.decode() if isinstance(default, bytes) else default
        meant = slots.read_attribute(spelling, slot, {name: given}, is_text=False)
        assert slots.read_attribute(spelling, slot, {}, is_text=False) == meant, f"{spelling.line}: {name} is {default!r}"
    else:
        # An input of ours, whose default is the text of a number or of a list.
        assert slots.coerce("float" if isinstance(default, float) else "tuple[int, ...]", slot.default) == (
            default if isinstance(default, float) else tuple(default)
        ), f"{spelling.line}: {name} is {default!r}"
