"""The param line: what it says, and how values go in and out through it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats import converter_index
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.attribute_types import REQUIRED
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import ParamMapping


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


def test_a_line_has_domain_kind_versions_inputs_attributes_and_fixed_fields() -> None:
    line = "ai.odd:Kind-1,12(x, theirs:more?, *xs; n:count=4, a+b:sizes?, old:_, m~{A:plain,B C:other}:mode=A | flag=false/true)"
    found = op_mapping.parse(_Thing, line)
    assert (found.op, found.domain, found.kind, found.versions) == (_Thing, "ai.odd", "Kind", (1, 12))
    assert found.inputs == (
        ParamMapping(("x",), "x"),
        ParamMapping(("theirs",), "more", is_optional=True),
        ParamMapping(("xs",), "xs", is_repeated=True),
    )
    assert found.attributes == (
        ParamMapping(("n",), "count", default="4"),
        ParamMapping(("a", "b"), "sizes", is_optional=True),
        ParamMapping(("old",), "_"),
        ParamMapping(("m",), "mode", default="A", conversion="table", table=(("A", "plain"), ("B C", "other"))),
    )
    assert found.fixed == (("flag", ("false", "true")),) and found.implied == (("flag", False),)
    assert found.foreign_attributes == {"n", "a", "b", "old", "m"} and not found.is_export_only and found.text == line
    assert [param.is_ignored for param in found.attributes] == [False, False, True, False]
    assert all(map(found.has_param, ("x", "more", "xs", "count", "sizes", "mode", "flag", "_")))
    assert not any(map(found.has_param, ("ratio", "n", "a", "theirs")))


def test_parts_of_a_line_may_be_left_out() -> None:
    bare = op_mapping.parse(_Thing, "Kind-7(x)")
    assert (bare.domain, bare.inputs, bare.attributes, bare.fixed, bare.implied) == ("", (ParamMapping(("x",), "x"),), (), (), ())
    assert bare.foreign_attributes == frozenset()
    assert (
        op_mapping.parse(_Thing, "Kind-7(x)").inputs
        == op_mapping.parse(_Thing, "Kind-7(x; count)").inputs
        == (ParamMapping(("x",), "x"),)
    )
    for line in ("Kind-7(; count~natural)", "Kind-7(;count~natural)"):
        only = op_mapping.parse(_Thing, line)
        assert (only.inputs, only.attributes) == ((), (ParamMapping(("count",), "count", conversion="natural"),))
    assert op_mapping.parse(_Thing, "Kind-7(x | more=none)").fixed == (("more", ("none",)),)
    # What is fixed of an input is no attribute.
    assert op_mapping.parse(_Thing, "Kind-7(x | more=none, sizes=none)").implied == (("sizes", None),)


def test_a_line_may_have_blanks_and_be_for_export_only() -> None:
    for line in ("> Kind-1(x)", ">Kind-1(x)", "  > Kind-1(x) "):
        found = op_mapping.parse(_Thing, line)
        assert found.is_export_only and (found.kind, found.inputs) == ("Kind", (ParamMapping(("x",), "x"),))
    spaced = op_mapping.parse(_Thing, " Kind-1( x ,more? ;count=4, flag | mode = other , ratio=1/2 ) ")
    assert [param.name for param in spaced.inputs] == ["x", "more"] and spaced.fixed == (
        ("mode", ("other",)),
        ("ratio", ("1", "2")),
    )


def test_commas_inside_of_brackets_separate_nothing() -> None:
    assert op_mapping.split_items("a=[1,2], b~{x:y,z:w}=x,, c ") == [(0, "a=[1,2]"), (9, "b~{x:y,z:w}=x"), (25, "c")]
    assert op_mapping.split_items("a;b;{;}", ";", 10) == [(10, "a"), (12, "b"), (14, "{;}")]
    found = op_mapping.parse(_Thing, "Kind-1(x; sizes=[1,2], weights=[0.5,-1])")
    assert [param.default for param in found.attributes] == ["[1,2]", "[0.5,-1]"]


@pytest.mark.parametrize(
    ("line", "position", "message"),
    [
        ("Kind(x)", 0, "must begin with"), ("Kind-one(x)", 0, "must begin with"), ("Kind-1", 0, "must begin with"),
        ("Kind-1(x", 8, "must end with )"), ("Kind-1(x, $)", 10, "'$' is not a parameter"),
        ("Kind-1(z)", 7, "_Thing has no input or attribute 'z'"), ("Kind-1(x; z)", 10, "_Thing has no input or attribute 'z'"),
        ("Kind-1(x; flag, a:z)", 16, "_Thing has no input or attribute 'z'"),
        ("Kind-1(x | flag=1, z=1)", 19, "_Thing has no input or attribute 'z'"),
        ("Kind-1(x; count=many)", 10, "the default 'many' of count is not a 64-bit integer"),
        ("Kind-1(x; flag=2)", 10, "the default '2' of flag is not a boolean"),
        ("Kind-1(x; mode~{A:plain}=B)", 10, "the default 'B' of mode is not one of A"),
        ("Kind-1(x; mode~{A}=A)", 15, "the rows of a table must be foreign:core"),
        ("Kind-1(x; count~odd)", 16, "no conversion is called 'odd'"),
        ("Kind-1(x; count~natural=-1)", 10, "the default '-1' of count is not a non-negative 64-bit integer"),
        ("Kind-1(x; n:count=4?)", 10, "the default '4?' of n is not a 64-bit integer"),
    ],
)  # fmt: skip
def test_a_malformed_op_mapping_is_an_error_with_the_position(line: str, position: int, message: str) -> None:
    with pytest.raises(op_mapping.OpMappingError) as caught:
        op_mapping.parse(_Thing, line)
    assert caught.value.position == position
    assert str(caught.value).startswith(f"_Thing: op mapping, position {position}: {message}")


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
def test_a_value_of_another_type_is_refused(annotation: str, raw: Any) -> None:
    with pytest.raises(ValueError):
        op_mapping.coerce(annotation, raw)


def param(text: str) -> ParamMapping:
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
def test_an_exported_value_is_the_imported_value(text: str, theirs: Any, ours: Any) -> None:
    found = op_mapping.coerce(ANNOTATIONS[param(text).name], op_mapping.import_value(param(text), theirs))
    assert found == ours
    out = op_mapping.export_value(param(text), found)
    assert out == theirs and type(out) is type(theirs)


def test_a_table_speaks_of_flags_too() -> None:
    inverted = param("mode~{yes:true,no:false}:flag")
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
def test_a_value_that_no_conversion_accepts_is_refused(text: str, raw: Any) -> None:
    with pytest.raises(ValueError):
        op_mapping.import_value(param(text), raw)


@pytest.mark.parametrize(
    ("text", "value"), [("count~natural", -1), ("sizes~natural", (0, -1)), ("mode~{A:plain}", "other"), ("mode~{A:plain}", "A")]
)
def test_a_value_that_the_op_mapping_cannot_express_is_refused(text: str, value: Any) -> None:
    with pytest.raises(KeyError):
        op_mapping.export_value(param(text), value)
    assert op_mapping.export_value(param("sizes~natural?"), None) is None


def read(text: str, attributes: dict[str, Any], is_text: bool = False) -> Any:
    mapping = op_mapping.parse(_Thing, f"Kind-1(; {text})")
    return op_mapping.read_attribute(mapping, mapping.attributes[0], attributes, is_text=is_text)


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
        ("n:count", "x", "n must be a 64-bit integer, got 'x'"),
        ("flag", 2, "flag must be a boolean, got 2"),
        ("ratio", None, "ratio must be a number, got None"),
        ("mode", 1, "mode must be a string, got 1"),
        ("to", "f31", "to must be an element type, got 'f31'"),
        ("sizes", 1, "sizes must be a list of 64-bit integers, got 1"),
        ("mode~{A:plain,B:other}", "C", "mode must be one of A, B, got 'C'"),
        ("a+b:sizes", [1.5], "a and b must be a list of 64-bit integers, got [1.5]"),
        ("more", "1", "more must be a number, got '1'"),
        ("count~natural", -1, "count must be a non-negative 64-bit integer, got -1"),
        ("sizes~natural", [-1], "sizes must be a list of non-negative 64-bit integers, got [-1]"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_the_expected_type(text: str, raw: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, dict.fromkeys(param(text).foreign_names, raw), text != "more")
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
        ("count", 4.0, "count must be a 64-bit integer, got float64[]"),
        ("count", True, "count must be a 64-bit integer, got bool[]"),
        ("count", [1, 2], "count must be a 64-bit integer, got int64[2]"),
        ("count", [[1]], "count must be a 64-bit integer, got int64[1, 1]"),
        ("count", np.zeros(0, dtype=np.int64), "count must be a 64-bit integer, got int64[0]"),
        ("count", np.array(["1"], dtype=object), "count must be a 64-bit integer, got object[1]"),
        ("count", np.array([True], dtype=object), "count must be a 64-bit integer, got object[1]"),
        ("count", np.uint64(2**63), "count must be a 64-bit integer, got uint64[]"),
        ("sizes", [[1, 2]], "sizes must be a list of 64-bit integers, got int64[1, 2]"),
        ("sizes", [1.0], "sizes must be a list of 64-bit integers, got float64[1]"),
        ("ratio", [0.5, 1], "ratio must be a number, got float64[2]"),
        ("ratio", np.array("0.5", dtype=object), "ratio must be a number, got object[]"),
        ("weights", np.array(["0.5"], dtype=object), "weights must be a list of numbers, got object[1]"),
        ("flag", 2, "flag must be a boolean, got int64[]"),
        ("count~scalar", [4], "count must be a 64-bit integer of rank 0, got int64[1]"),
        ("count~vector", 4, "count must be a 64-bit integer of rank 1, got int64[]"),
        ("sizes~vector", 4, "sizes must be a list of 64-bit integers of rank 1, got int64[]"),
    ],
)
def test_a_constant_of_another_type_or_rank_is_refused(text: str, data: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        constant(text, data)
    assert (caught.value.code, caught.value.message) == ("constant.value", words)


def test_attributes_that_no_param_speaks_of_are_refused_by_name() -> None:
    mapping = op_mapping.parse(_Thing, "Kind-1(x; n:count=1, a+b:sizes?, old:_ | flag=true)")
    op_mapping.refuse_unknown(mapping, {})
    op_mapping.refuse_unknown(mapping, {"n": 1, "a": 2, "b": 3, "old": 4})
    with pytest.raises(UnsupportedError) as caught:
        op_mapping.refuse_unknown(mapping, {"n": 1, "count": 2, "flag": 3})
    assert caught.value.code == "attribute.unknown"
    assert caught.value.message == "Kind has no attribute 'count', 'flag' that dovetail knows"


def test_none_in_a_fixed_field_is_none() -> None:
    fields = _Thing.fields_by_name
    assert op_mapping.fixed_value(fields["sizes"], "none") is None and op_mapping.fixed_value(fields["count"], "4") == 4
    assert op_mapping.field_of(_Thing, "count") is fields["count"] and op_mapping.field_of(_Thing, "x") is None


@pytest.mark.parametrize("dialect", [ONNX, OPENVINO], ids=["onnx", "openvino"])
def test_mappings_for_a_node_are_those_of_the_table(dialect: Dialect) -> None:
    for (domain, kind, version), mappings in dialect.import_mappings().items():
        found = dialect.mappings_for(ForeignNode(kind, version, [], [], {}, domain=domain))
        assert [mapping.text for mapping in found] == [mapping.text for mapping in mappings]
        assert not dialect.mappings_for(ForeignNode(kind, version, [], [], {}, domain="nobody.knows"))


@pytest.mark.parametrize("format", converter_index.FORMATS)
def test_the_index_names_the_converters_of_every_foreign_operator(format: str) -> None:
    program = f"from dovetail.formats import converter_index\nprint(converter_index.index_text({format!r}), end='')"
    text = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, encoding="utf-8").stdout
    is_current = converter_index.path_of(format).read_text(encoding="utf-8") == text
    assert is_current, f"the index is out of date: run `{converter_index.COMMAND}`"
