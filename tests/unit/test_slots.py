"""The slot line: what it says, and how values go in and out through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats import op_mapping
from dovetail.formats.op_mapping import ParamMapping
from dovetail.ir.op import REQUIRED, Op


class _Thing(Op, sig="x: T, more?!: I, *xs: T -> y: T"):
    count: int = 3
    ratio: float = 0.5
    flag: bool = True
    mode: str = "plain"
    to: DType | None = None
    sizes: tuple[int, ...] | None = None
    weights: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    marks: tuple[bool, ...] = ()
    free: Any = None


ANNOTATIONS = {field.name: field.annotation for field in _Thing.fields}


def test_a_line_says_domain_kind_versions_inputs_attributes_and_what_is_fixed() -> None:
    line = "ai.odd:Kind-1,12(x, theirs:more?, *xs; n:count=4, a+b:sizes?, old:_, m~{A:plain,B C:other}:mode=A | flag=false/true)"
    found = op_mapping.parse(_Thing, line)
    assert (found.op, found.domain, found.kind, found.versions) == (_Thing, "ai.odd", "Kind", (1, 12))
    assert found.inputs == (ParamMapping(("x",), "x"), ParamMapping(("theirs",), "more", optional=True), ParamMapping(("xs",), "xs", repeated=True))
    assert found.attributes == (
        ParamMapping(("n",), "count", default="4"),
        ParamMapping(("a", "b"), "sizes", optional=True),
        ParamMapping(("old",), "_"),
        ParamMapping(("m",), "mode", default="A", how="table", table=(("A", "plain"), ("B C", "other"))),
    )
    assert found.fixed == (("flag", ("false", "true")),) and found.implied == (("flag", False),)
    assert found.known == {"n", "a", "b", "old", "m"} and not found.is_export_only and found.line == line
    assert [slot.is_ignored for slot in found.attributes] == [False, False, True, False]
    assert all(map(found.covers, ("x", "more", "xs", "count", "sizes", "mode", "flag", "_")))
    assert not any(map(found.covers, ("ratio", "n", "a", "theirs")))


def test_parts_of_a_line_may_be_left_out() -> None:
    bare = op_mapping.parse(_Thing, "Kind-7(x)")
    assert (bare.domain, bare.inputs, bare.attributes, bare.fixed, bare.implied) == ("", (ParamMapping(("x",), "x"),), (), (), ())
    assert bare.known == frozenset()
    assert (
        op_mapping.parse(_Thing, "Kind-7(x)").inputs
        == op_mapping.parse(_Thing, "Kind-7(x; count)").inputs
        == (ParamMapping(("x",), "x"),)
    )
    for line in ("Kind-7(; count~natural)", "Kind-7(;count~natural)"):
        only = op_mapping.parse(_Thing, line)
        assert (only.inputs, only.attributes) == ((), (ParamMapping(("count",), "count", how="natural"),))
    assert op_mapping.parse(_Thing, "Kind-7(x | more=none)").fixed == (("more", ("none",)),)
    # What is fixed of an input is no attribute.
    assert op_mapping.parse(_Thing, "Kind-7(x | more=none, sizes=none)").implied == (("sizes", None),)


def test_a_line_may_stand_between_blanks_and_be_for_writing_only() -> None:
    for line in ("> Kind-1(x)", ">Kind-1(x)", "  > Kind-1(x) "):
        found = op_mapping.parse(_Thing, line)
        assert found.is_export_only and (found.kind, found.inputs) == ("Kind", (ParamMapping(("x",), "x"),))
    spaced = op_mapping.parse(_Thing, " Kind-1( x ,more? ;count=4, flag | mode = other , ratio=1/2 ) ")
    assert [slot.name for slot in spaced.inputs] == ["x", "more"] and spaced.fixed == (
        ("mode", ("other",)),
        ("ratio", ("1", "2")),
    )


def test_commas_inside_of_brackets_separate_nothing() -> None:
    assert op_mapping.split_items("a=[1,2], b~{x:y,z:w}=x,, c ") == ["a=[1,2]", "b~{x:y,z:w}=x", "c"]
    assert op_mapping.split_items("a;b;{;}", ";") == ["a", "b", "{;}"]
    found = op_mapping.parse(_Thing, "Kind-1(x; sizes=[1,2], weights=[0.5,-1])")
    assert [slot.default for slot in found.attributes] == ["[1,2]", "[0.5,-1]"]


@pytest.mark.parametrize(
    "line",
    [
        "Kind(x)", "Kind-1(x", "Kind-1", "Kind-one(x)", "Kind-1(z)", "Kind-1(x; z)", "Kind-1(x; a:z)", "Kind-1(x | z=1)",
        "Kind-1(x; count=many)", "Kind-1(x; flag=2)", "Kind-1(x; mode~{A:plain}=B)", "Kind-1(x; count~natural=-1)",
        "Kind-1(x; n:count=4?)",
    ],
)  # fmt: skip
def test_a_line_that_speaks_of_what_the_operator_lacks_is_a_mistake(line: str) -> None:
    with pytest.raises(AssertionError, match="Kind"):
        op_mapping.parse(_Thing, line)


F32 = dtypes.f32
GOOD = [
    ("int", "7", 7), ("int", " -7 ", -7), ("int", "+7", 7), ("int", "007", 7), ("int", 2**63 - 1, 2**63 - 1),
    ("int", -(2**63), -(2**63)), ("int", "9223372036854775807", 2**63 - 1), ("int", np.int32(5), 5), ("int", np.uint8(255), 255),
    ("float", "0.5", 0.5), ("float", "1e-3", 1e-3), ("float", 2, 2.0), ("float", np.float32(0.5), 0.5),
    ("float", np.int64(2), 2.0),
    ("float", "inf", float("inf")), ("float", 0.5, 0.5),
    ("bool", "true", True), ("bool", "True", True), ("bool", "1", True), ("bool", " false ", False), ("bool", "0", False),
    ("bool", 1, True), ("bool", 0, False), ("bool", True, True), ("bool", np.bool_(False), False), ("bool", np.int64(1), True),
    ("str", "a b", "a b"), ("str", "", ""),
    ("DType", F32, F32), ("DType", "f32", F32), ("DType", 1, F32), ("DType", "boolean", dtypes.boolean), ("DType", 7, dtypes.i64),
    ("tuple[int, ...]", "1,2", (1, 2)), ("tuple[int, ...]", "[ 1, -2 ]", (1, -2)), ("tuple[int, ...]", "", ()),
    ("tuple[int, ...]", " [] ", ()), ("tuple[int, ...]", [1, 2], (1, 2)), ("tuple[int, ...]", (), ()),
    ("tuple[int, ...]", np.array([1, 2]), (1, 2)), ("tuple[float, ...]", "0.5,1", (0.5, 1.0)), ("tuple[float, ...]", [1], (1.0,)),
    ("tuple[str, ...]", "a, b", ("a", "b")), ("tuple[bool, ...]", "1,false", (True, False)),
    ("tuple[bool, ...]", [0, 1], (False, True)),
    ("int | None", None, None), ("int | None", "7", 7), ("tuple[int, ...] | None", "1,2", (1, 2)),
    ("Any", {"what": 1}, {"what": 1}),
]  # fmt: skip
BAD = [
    ("int", "1.0"), ("int", ""), ("int", "0x1"), ("int", "1_0"), ("int", "9223372036854775808"), ("int", "1" * 21),
    ("int", 2**63),
    ("int", -(2**63) - 1), ("int", True), ("int", 1.0), ("int", None), ("int", [1]), ("int", "- 7"), ("int", np.uint64(2**63)),
    ("int", np.bool_(True)), ("int", "\u0661"),
    ("float", "half"), ("float", True), ("float", None), ("float", [0.5]), ("float", ""),
    ("bool", "yes"), ("bool", ""), ("bool", 2), ("bool", -1), ("bool", 1.0), ("bool", None), ("bool", "2"), ("bool", [1]),
    ("str", 1), ("str", None), ("str", b"a"),
    ("DType", "f31"), ("DType", 0), ("DType", 10**6), ("DType", None), ("DType", True), ("DType", 1.0),
    ("tuple[int, ...]", "1,"), ("tuple[int, ...]", "1,x"), ("tuple[int, ...]", 1), ("tuple[int, ...]", [1.5]),
    ("tuple[int, ...]", None), ("tuple[int, ...]", {1: 2}), ("tuple[float, ...]", "a"), ("tuple[str, ...]", [1]),
    ("tuple[bool, ...]", [2]),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "raw", "value"), GOOD)
def test_a_foreign_value_becomes_one_of_the_attributes_type(annotation: str, raw: Any, value: Any) -> None:
    found = op_mapping.coerce(annotation, raw)
    assert found == value and type(found) is type(value)
    if isinstance(value, tuple):
        assert list(map(type, found)) == list(map(type, value))


@pytest.mark.parametrize(("annotation", "raw"), BAD)
def test_what_is_no_value_of_that_type_is_refused(annotation: str, raw: Any) -> None:
    with pytest.raises(ValueError):
        op_mapping.coerce(annotation, raw)


def slot(text: str) -> ParamMapping:
    return op_mapping.parse(_Thing, f"Kind-1(; {text})").attributes[0]


@pytest.mark.parametrize(
    ("text", "theirs", "ours"),
    [
        ("flag", True, True),
        ("no~not:flag", True, False),
        ("no~not:flag", False, True),
        ("mode~lower", "SAME_UPPER", "same_upper"),
        ("count~natural", 0, 0),
        ("count~natural", 7, 7),
        ("sizes~natural", (0, 2), (0, 2)),
        ("sizes~natural", (), ()),
        ("mode~{A:plain,B:other}", "B", "other"),
        ("count~{-1:5,2:6}", -1, 5),
        ("count~{-1:5,2:6}", 2, 6),
    ],
)
def test_what_goes_out_is_what_came_in(text: str, theirs: Any, ours: Any) -> None:
    found = op_mapping.coerce(ANNOTATIONS[slot(text).ours], op_mapping.import_value(slot(text), theirs))
    assert found == ours
    out = op_mapping.export_value(slot(text), found)
    assert out == theirs and type(out) is type(theirs)


def test_a_table_speaks_of_flags_too() -> None:
    inverted = slot("mode~{yes:true,no:false}:flag")
    assert [op_mapping.coerce("bool", op_mapping.import_value(inverted, word)) for word in ("yes", "no")] == [True, False]
    assert [op_mapping.export_value(inverted, value) for value in (True, False)] == ["yes", "no"]
    assert op_mapping.import_value(inverted, " yes ") == "true"


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("no~not:flag", "maybe"),
        ("mode~lower", 1),
        ("count~natural", -1),
        ("count~natural", "many"),
        ("sizes~natural", [1, -1]),
        ("mode~{A:plain}", "B"),
        ("mode~{A:plain}", "plain"),
    ],
)
def test_what_no_conversion_takes_is_refused(text: str, raw: Any) -> None:
    with pytest.raises(ValueError):
        op_mapping.import_value(slot(text), raw)


@pytest.mark.parametrize(
    ("text", "value"), [("count~natural", -1), ("sizes~natural", (0, -1)), ("mode~{A:plain}", "other"), ("mode~{A:plain}", "A")]
)
def test_what_the_spelling_has_no_word_for_does_not_go_out(text: str, value: Any) -> None:
    with pytest.raises(KeyError):
        op_mapping.export_value(slot(text), value)
    assert op_mapping.export_value(slot("sizes~natural?"), None) is None


def read(text: str, attributes: dict[str, Any], is_text: bool = False) -> Any:
    spelling = op_mapping.parse(_Thing, f"Kind-1(; {text})")
    return op_mapping.read_attribute(spelling, spelling.attributes[0], attributes, is_text=is_text)


def test_an_attribute_left_out_is_its_default_or_left_to_ours_or_missing() -> None:
    assert read("n:count=4", {}) == 4 and read("n:count=4", {"n": 5}) == 5
    assert read("mode~{A:plain,B:other}=B", {}) == "other" and read("no~not:flag=0", {}) is True
    assert read("sizes=none", {}) is None and read("sizes=[1,2]", {}) == (1, 2)
    assert read("n:more=4", {}) == "4"
    assert read("count?", {}) is REQUIRED and read("a+b:sizes?", {"a": [1]}) is REQUIRED
    for text, attributes, name in (
        ("n:count", {"count": 1}, "n"),
        ("a+b:sizes", {"b": [1]}, "a"),
        ("a+b:sizes", {"a": [1]}, "b"),
    ):
        with pytest.raises(FormatError) as caught:
            read(text, attributes)
        assert (caught.value.code, caught.value.message) == ("attribute.missing", f"Kind needs the attribute '{name}'")


def test_two_lists_become_one() -> None:
    assert read("a+b:sizes", {"a": [1, 2], "b": [3, 4]}) == read("a+b:sizes", {"b": "3,4", "a": "1,2"}, True) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("text", "raw", "words"),
    [
        ("n:count", "x", "n = 'x' is not a 64-bit integer"),
        ("flag", 2, "flag = 2 is not a flag"),
        ("ratio", None, "ratio = None is not a number"),
        ("mode", 1, "mode = 1 is not a text"),
        ("to", "f31", "to = 'f31' is not an element type"),
        ("sizes", 1, "sizes = 1 is not a list of 64-bit integers"),
        ("mode~{A:plain,B:other}", "C", "mode = 'C' is not one of A, B"),
        ("a+b:sizes", [1.5], "a and b = [1.5] is not a list of 64-bit integers"),
        ("more", "1", "more = '1' is not a number"),
        ("count~natural", -1, "count = -1 is not 0 or a positive 64-bit integer"),
        ("sizes~natural", [-1], "sizes = [-1] is not a list of integers, none of them negative"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_is_wanted(text: str, raw: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, dict.fromkeys(slot(text).foreign_names, raw), text != "more")
    assert (caught.value.code, caught.value.message) == ("attribute.value", f"Kind: {words}")


def test_a_format_with_typed_attributes_takes_no_text_for_a_number() -> None:
    for text, raw in (("count", "7"), ("ratio", "0.5"), ("flag", "1"), ("sizes", "1,2"), ("count~natural", "7"), ("more", "1")):
        assert read(text, {text.partition("~")[0]: raw}, True) is not None
        with pytest.raises(FormatError) as caught:
            read(text, {text.partition("~")[0]: raw})
        assert caught.value.code == "attribute.value"
    with pytest.raises(FormatError):
        read("a+b:sizes", {"a": [1], "b": "2"})
    with pytest.raises(FormatError):
        read("names", {"names": "a"})
    for text, raw, value in (
        ("mode", "x", "x"),
        ("to", "f32", F32),
        ("names", ["a"], ("a",)),
        ("mode~{A:plain}", "A", "plain"),
        ("mode~lower", "A", "a"),
        ("flag~{yes:true,no:false}", "no", False),
    ):
        assert read(text, {text.partition("~")[0]: raw}) == value


def constant(text: str, data: Any) -> Any:
    found = op_mapping.parse(_Thing, f"Kind-1({text})").inputs[0]
    return op_mapping.read_constant(found, _Thing.fields_by_name[found.name], np.asarray(data))


def test_a_constant_input_becomes_the_attribute_that_it_fills() -> None:
    for data in (4, [4], np.array([4], dtype=np.uint8), np.array(4, dtype=object)):
        found = constant("count", data)
        assert found == 4 and type(found) is int
    assert constant("ratio", np.float32(0.5)) == constant("ratio", [0.5]) == 0.5
    assert constant("ratio", 2) == 2.0 and constant("flag", np.bool_(False)) is False and constant("flag", [1]) is True
    assert constant("sizes", [1, 2]) == (1, 2) and constant("sizes", 3) == (3,) and constant("sizes", np.zeros(0, np.int64)) == ()
    assert constant("weights", [0.5, 1]) == (0.5, 1.0)
    assert constant("count~scalar", 4) == 4 and constant("count~vector", [4]) == 4 and constant("sizes~vector", [4]) == (4,)


@pytest.mark.parametrize(
    ("text", "data", "words"),
    [
        ("count", 4.0, "count: float64[] is not a 64-bit integer"),
        ("count", True, "count: bool[] is not a 64-bit integer"),
        ("count", [1, 2], "count: int64[2] is not a 64-bit integer"),
        ("count", [[1]], "count: int64[1, 1] is not a 64-bit integer"),
        ("count", np.zeros(0, dtype=np.int64), "count: int64[0] is not a 64-bit integer"),
        ("count", np.array(["1"], dtype=object), "count: object[1] is not a 64-bit integer"),
        ("count", np.array([True], dtype=object), "count: object[1] is not a 64-bit integer"),
        ("count", np.uint64(2**63), "count: uint64[] is not a 64-bit integer"),
        ("sizes", [[1, 2]], "sizes: int64[1, 2] is not a list of 64-bit integers"),
        ("sizes", [1.0], "sizes: float64[1] is not a list of 64-bit integers"),
        ("ratio", [0.5, 1], "ratio: float64[2] is not a number"),
        ("ratio", np.array("0.5", dtype=object), "ratio: object[] is not a number"),
        ("weights", np.array(["0.5"], dtype=object), "weights: object[1] is not tuple[float, ...]"),
        ("flag", 2, "flag: int64[] is not a flag"),
        ("count~scalar", [4], "count: int64[1] is not a 64-bit integer of rank 0"),
        ("count~vector", 4, "count: int64[] is not a 64-bit integer of rank 1"),
        ("sizes~vector", 4, "sizes: int64[] is not a list of 64-bit integers of rank 1"),
    ],
)
def test_a_constant_of_another_type_or_rank_is_refused(text: str, data: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        constant(text, data)
    assert (caught.value.code, caught.value.message) == ("constant.value", words)


def test_attributes_that_no_slot_speaks_of_are_refused_by_name() -> None:
    spelling = op_mapping.parse(_Thing, "Kind-1(x; n:count=1, a+b:sizes?, old:_ | flag=true)")
    op_mapping.refuse_unknown(spelling, {})
    op_mapping.refuse_unknown(spelling, {"n": 1, "a": 2, "b": 3, "old": 4})
    with pytest.raises(UnsupportedError) as caught:
        op_mapping.refuse_unknown(spelling, {"n": 1, "count": 2, "flag": 3})
    assert caught.value.code == "attribute.unknown"
    assert caught.value.message == "Kind has no attribute 'count', 'flag' that dovetail knows"


def test_what_a_fixed_part_calls_none_is_none() -> None:
    fields = _Thing.fields_by_name
    assert op_mapping.fixed_value(fields["sizes"], "none") is None and op_mapping.fixed_value(fields["count"], "4") == 4
    assert op_mapping.field_of(_Thing, "count") is fields["count"] and op_mapping.field_of(_Thing, "x") is None
