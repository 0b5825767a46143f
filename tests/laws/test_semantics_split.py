"""Split by the rules of its documents: ONNX 1, 2, 11, 13, 18, OpenVINO Split-1 and VariadicSplit-1. Each test names its rule
after SEMANTICS."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from assertions import is_vague
from dovetail.errors import DovetailError, RuleError
from dovetail.ir import dtypes
from dovetail.ir.edit import remove_dead
from dovetail.ops.tensor.concat_split import Split
from single_node_models import (
    FIFTEEN,
    FLOATS,
    IR_TYPES,
    KNOWN,
    LATE,
    ONNX_TYPES,
    OPEN,
    RANKLESS,
    SIXTEEN,
    STORED,
    Operator,
    assert_bits,
    deviates,
    elements,
    feeds,
    given,
    holds,
    refused,
    sweep,
    write,
)

ALLOWED = {1: FLOATS, 2: FIFTEEN, 11: FIFTEEN, 13: SIXTEEN, 18: SIXTEEN}
VERSIONS = (1, 2, 11, 13, 18)
EQUAL = [*(("onnx", version) for version in VERSIONS[:4]), ("openvino", 1)]
EXPLICIT = [*(("onnx", version) for version in VERSIONS), ("openvino", 1)]
FROM_THE_END = [("onnx", 11), ("onnx", 13), ("onnx", 18), ("openvino", 1)]
equal_forms = pytest.mark.parametrize(("format", "version"), EQUAL)
explicit_forms = pytest.mark.parametrize(("format", "version"), EXPLICIT)
ORT_TYPES = ("f32", "i64", "boolean", "string")


def f32(*shape: int) -> Any:
    return elements("f32", int(np.prod(shape))).reshape(shape)


def equal(format: str, version: int, x: Any, count: int, axis: int | None = 0) -> Operator:
    """Return a split into ``count`` equal pieces."""
    if format == "openvino":
        return Operator(
            format, "Split", 1, (x, np.array(axis, dtype=np.int64)), {"num_splits": count}, count, fixed=(1,), host=(1,)
        )
    return Operator(format, "Split", version, (x,), {} if axis is None else {"axis": axis}, count)


def explicit(format: str, version: int, x: Any, lengths: Any, axis: Any = 0, outputs: int | None = None) -> Operator:
    """Return a split into pieces of these lengths."""
    count = len(lengths) if outputs is None else outputs
    vector = lengths if hasattr(lengths, "dtype") else np.array(lengths, dtype=np.int64)
    if format == "openvino":
        place = axis if hasattr(axis, "dtype") or hasattr(axis, "data") else np.array(axis, dtype=np.int64)
        return Operator(format, "VariadicSplit", 1, (x, place, vector), {}, count, host=(1, 2), fixed=(1,))
    if version < 13:
        return Operator(format, "Split", version, (x,), {"axis": axis, "split": list(lengths)}, count)
    return Operator(format, "Split", version, (x, vector), {"axis": axis}, count, host=(1,))


def ragged(x: Any, count: Any, axis: int = 0, outputs: int | None = None) -> Operator:
    return Operator("onnx", "Split", 18, (x,), {"axis": axis, "num_outputs": count}, count if outputs is None else outputs)


def cut(x: Any, lengths: Any, axis: int = 0) -> list[Any]:
    return np.split(x, np.cumsum(lengths)[:-1].astype(int), axis) if len(lengths) > 1 else [x]


@equal_forms
@pytest.mark.parametrize(
    ("shape", "count", "axis"), [((6,), 3, 0), ((2, 4), 2, 1), ((4, 2, 3), 4, 0), ((3, 2), 1, 0), ((0, 2), 3, 0), ((2, 0), 2, 0)]
)
def test_equal_pieces(format: str, version: int, shape: Any, count: int, axis: int) -> None:
    """SEMANTICS: without lengths the dim must divide by the number of outputs; Split-1: num_splits must divide."""
    x = f32(*shape)
    holds(equal(format, version, x, count, axis), *np.split(x, count, axis))


@equal_forms
@pytest.mark.parametrize(("shape", "count"), [((5,), 2), ((2, 3), 4), ((1,), 2), ((7, 2), 3)])
def test_a_dimension_that_does_not_divide_is_refused(format: str, version: int, shape: Any, count: int) -> None:
    """SEMANTICS: without lengths the dim must divide by the number of outputs; Split-1: num_splits must divide."""
    # The newest ONNX cuts such a dimension raggedly: there is no way to say there that it is refused.
    refused(equal(format, version, f32(*shape), count), "shape.multiple", silent=True, other=format == "onnx")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_axis_of_onnx_is_0_when_left_out(version: int) -> None:
    """SEMANTICS: ONNX Split: axis default 0."""
    x = f32(4, 2)
    operator = ragged(x, 2) if version == 18 else equal("onnx", version, x, 2, None)
    holds(
        replace(operator, attributes={name: value for name, value in operator.attributes.items() if name != "axis"}),
        *np.split(x, 2),
    )
    lengths = explicit("onnx", version, x, (1, 3))
    holds(
        replace(lengths, attributes={name: value for name, value in lengths.attributes.items() if name != "axis"}),
        *cut(x, (1, 3)),
    )


@pytest.mark.parametrize(("format", "version"), FROM_THE_END)
@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_a_negative_axis_counts_from_the_end(format: str, version: int, axis: int) -> None:
    """SEMANTICS: negative axis from 11; VariadicSplit-1: -rank..rank-1."""
    x = f32(4, 4, 4)
    operator = ragged(x, 2, axis) if version == 18 else equal(format, version, x, 2, axis)
    holds(operator, *np.split(x, 2, axis))
    holds(explicit(format, version, x, (1, 3), axis), *cut(x, (1, 3), axis))


@pytest.mark.parametrize("version", [1, 2])
def test_there_is_no_negative_axis_before_onnx_11(version: int) -> None:
    """SEMANTICS: negative axis from 11. Ruling 6: a fault to check, a warning to load, refused by strict."""
    for axis in (-1, -2, -(2**63)):
        sense = "" if axis >= -2 else "axis.range"
        deviates(equal("onnx", version, f32(2, 2), 2, axis), "attribute.value", sense)
        deviates(explicit("onnx", version, f32(2, 2), (1, 1), axis), "attribute.value", sense)


@explicit_forms
@pytest.mark.parametrize("axis", [2, -3, 2**32, 2**63 - 1])
def test_the_axis_lies_in_the_rank(format: str, version: int, axis: int) -> None:
    """SEMANTICS: -rank..rank-1."""
    if axis < 0 and (format, version) not in FROM_THE_END:
        return
    refused(explicit(format, version, f32(2, 2), (1, 1), axis), "axis.range", silent=True)
    operator = ragged(f32(2, 2), 2, axis) if version == 18 else equal(format, version, f32(2, 2), 2, axis)
    refused(operator, "axis.range", silent=True)


@explicit_forms
def test_a_scalar_cannot_be_cut(format: str, version: int) -> None:
    """SEMANTICS: -rank..rank-1."""
    x = np.float32(1).reshape(())
    refused(explicit(format, version, x, (1,)), "shape.rank", silent=True)
    refused(ragged(x, 1) if version == 18 else equal(format, version, x, 1), "shape.rank", silent=True)


@explicit_forms
@pytest.mark.parametrize(
    ("shape", "axis", "lengths"),
    [
        ((6,), 0, (1, 2, 3)),
        ((2, 6), 1, (4, 2)),
        ((2, 6), 1, (0, 6, 0)),
        ((3, 2), 0, (3,)),
        ((0, 2), 0, (0, 0)),
        ((2, 0, 3), 2, (1, 2)),
    ],
)
def test_pieces_of_given_lengths(format: str, version: int, shape: Any, axis: int, lengths: Any) -> None:
    """SEMANTICS: lengths >= 0, sum == dim; zero lengths are fine."""
    x = f32(*shape)
    holds(explicit(format, version, x, lengths, axis), *cut(x, lengths, axis))


@explicit_forms
@pytest.mark.parametrize("lengths", [(1, 2), (3, 4), (6, 1), (0, 0), (5,), (2**62, 2**62)])
def test_the_lengths_add_up(format: str, version: int, lengths: Any) -> None:
    """SEMANTICS: the sum must equal the dim."""
    refused(explicit(format, version, f32(6), lengths), "split.sizes", silent=True)


@explicit_forms
def test_lengths_are_added_in_arithmetic_that_cannot_wrap(format: str, version: int) -> None:
    """SEMANTICS: the sum must equal the dim."""
    refused(explicit(format, version, f32(6), (2**63 - 1, 2**63 - 1, 8)), "split.sizes", silent=True)


def kinds(path: Path) -> list[str]:
    return [type(node.op).__name__ for node in dovetail.load(path).graph if type(node.op).__name__ != "Constant"]


def test_a_split_error_has_the_lengths_and_the_dimension() -> None:
    """SEMANTICS: the sum must equal the dim."""
    for lengths, words in [
        ((4, 3), "must add up to the dimension (6), got [4, 3]"),
        ((-1, 7), "must add up to at most the dimension (6), got [-1, 7]"),
    ]:
        with pytest.raises(RuleError, match=re.escape(words)):
            dovetail.Builder().Split(f32(6), lengths, outputs=2, wildcard=True)
    with pytest.raises(RuleError, match=re.escape("must not be negative, got [8, -2]")):
        dovetail.Builder().Split(f32(6), [8, -2], outputs=2)


def test_lengths_of_an_open_dimension_add_up_to_a_size() -> None:
    """SEMANTICS: the sum must equal the dim; a dim is at most 2^63-1."""
    b = dovetail.Builder()
    for x in (b.input("open", "f32", ("n",)), b.input("rankless", "f32")):
        b.Split(x, [2**62, 2**62 - 1], outputs=2)
        b.Split(x, [-1, 2**62, 0, 2**62 - 1], outputs=4, wildcard=True)
        for lengths in ([2**62, 2**62], [2**63 - 1, 1], [-1, 2**62, 2**62], [-1, 2**63 - 1, 0, 1]):
            with pytest.raises(RuleError) as caught:
                b.Split(x, lengths, outputs=len(lengths), wildcard=True)
            assert caught.value.code == "split.sizes"


def test_a_length_that_arrives_at_run_time_may_be_the_remainder() -> None:
    """SEMANTICS: at most one -1 = the remainder: lengths of a narrow type need not reach the dimension without it."""
    holds(explicit("openvino", 1, f32(1000), np.array([-1, 100], dtype=np.int8)), *cut(f32(1000), (900, 100)))


def test_lengths_computed_from_sizes_are_the_pieces_where_they_cannot_be_negative() -> None:
    """SEMANTICS: lengths each >= -1, at most one -1 = the remainder; in inference, too."""
    for wildcard in (False, True):
        b = dovetail.Builder()
        x, z = b.input("x", "f32", (6, 2)), b.input("z", "f32", ("n",))
        n = b.Shape(z)
        pieces = b.Split(x, b.Concat(n, b.Subtract([6], n), axis=0), outputs=2, wildcard=wildcard)
        for index, y in enumerate(pieces):
            b.output(f"y{index}", y)
        first, second = (y.shape[0] for y in pieces)
        assert str(first) == "n" and is_vague(second)
        before, _ = b.Split(x, b.Concat(b.Subtract(n, 1), [2], axis=0), outputs=2, wildcard=wildcard)
        assert is_vague(before.shape[0])
        remove_dead(b.graph)
        for size in (0, 4, 6):
            arrays = dovetail.run(b.model, [f32(6, 2), f32(size)])
            for y, expected in zip(arrays.values(), cut(f32(6, 2), (size, 6 - size)), strict=True):
                assert_bits(y, expected)


def test_lengths_that_cannot_be_negative_are_no_remainder_in_any_format(tmp_path: Path) -> None:
    """SEMANTICS: lengths each >= -1, at most one -1 = the remainder. Where none can be -1, ONNX takes them as they are."""
    for open_lengths, nodes in [(False, ["Shape", "Split"]), (True, None)]:
        b = dovetail.Builder()
        x = b.input("x", "f32", ("n", 2))
        z = b.input("lengths", "i64", (2,)) if open_lengths else b.Shape(b.input("z", "f32", ("a", "b")))
        for index, y in enumerate(b.Split(x, z, outputs=2, wildcard=True)):
            b.output(f"y{index}", y)
        dovetail.save(b.model, tmp_path / "model.onnx")
        # Lengths of which nothing is known may hold a -1, so that the remainder has to be computed.
        assert kinds(tmp_path / "model.onnx") == nodes or (nodes is None and "Where" in kinds(tmp_path / "model.onnx"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lengths", [(-1, 2), (7, -1), (4, -1, 3), (-2, 8), (-1,), (8, -2)])
def test_minus_1_is_no_wildcard_in_onnx(version: int, lengths: Any) -> None:
    """SEMANTICS: lengths >= 0; -1 is no wildcard."""
    # OpenVINO takes a -1 for the remainder: there is no way to say there that it is refused.
    refused(explicit("onnx", version, f32(6), lengths), "split.sizes", silent=True, other=False)


@pytest.mark.parametrize(
    ("lengths", "whole"),
    [
        ((-1, 2), (4, 2)),
        ((2, -1, 3), (2, 1, 3)),
        ((6, -1), (6, 0)),
        ((-1,), (6,)),
        ((0, -1, 0), (0, 6, 0)),
        ((1, 5, -1), (1, 5, 0)),
    ],
)
def test_one_minus_1_is_the_remainder_in_openvino(lengths: Any, whole: Any) -> None:
    """SEMANTICS: at most one -1 = the remainder, which may be 0."""
    x = f32(6, 2)
    holds(explicit("openvino", 1, x, lengths), *cut(x, whole), through=(KNOWN, STORED, OPEN, LATE, RANKLESS))


@pytest.mark.parametrize("lengths", [(-1, 7), (4, -1, 3), (-1, 2**62)])
def test_the_remainder_is_never_negative(lengths: Any) -> None:
    """SEMANTICS: the remainder may be 0 but never negative. Ruling 5: lengths [-1,7] on 6 are refused."""
    refused(explicit("openvino", 1, f32(6), lengths), "split.sizes", silent=True)


@pytest.mark.parametrize("lengths", [(-1, -1), (-1, -1, 6), (-2, 8), (-1, -3), (3, 5, -2), (-(2**63), 6)])
def test_at_most_one_minus_1_and_no_length_below(lengths: Any) -> None:
    """SEMANTICS: lengths each >= -1, at most one -1."""
    refused(explicit("openvino", 1, f32(6), lengths), "split.sizes", silent=True)


@explicit_forms
@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_outputs_is_the_number_of_lengths(format: str, version: int, count: int) -> None:
    """SEMANTICS: the number of outputs is the number of lengths; count == outputs."""
    through = (KNOWN, STORED, OPEN, LATE)
    refused(explicit(format, version, f32(6), (4, 2), outputs=count), "split.sizes", through=through)
    refused(explicit(format, version, f32(6), (4, 2), outputs=count), "split.sizes", through=(RANKLESS,), silent=True)


@pytest.mark.parametrize(("format", "version"), EXPLICIT[3:])
@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_the_lengths_are_a_vector(format: str, version: int, shape: Any) -> None:
    """SEMANTICS: lengths 1-D."""
    refused(explicit(format, version, f32(6), np.full(shape, 6, dtype=np.int64), outputs=1), "split.sizes", silent=True)


@pytest.mark.parametrize("version", [13, 18])
@pytest.mark.parametrize("name", ["i32", "u64", "f32"])
def test_the_lengths_of_onnx_are_int64(version: int, name: str) -> None:
    """SEMANTICS: int64 input from 13."""
    code = "type.class" if name == "f32" else "type.version"
    refused(explicit("onnx", version, f32(6), np.array([4, 2], dtype=dtypes.dtype(name).numpy)), code)


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_lengths_and_axis_of_openvino_are_any_integers(name: str) -> None:
    """SEMANTICS: axis any integer type; lengths 1-D, any integer type."""
    kind = dtypes.dtype(name).numpy
    x = f32(2, 6)
    for axis in (np.array(1, dtype=kind), np.array([1], dtype=kind)):
        holds(explicit("openvino", 1, x, np.array([4, 2], dtype=kind), axis), *cut(x, (4, 2), 1))
    if name.startswith("i"):
        holds(explicit("openvino", 1, x, np.array([4, -1], dtype=kind), np.array(-1, dtype=kind)), *cut(x, (4, 2), 1))
    else:
        largest = np.array([dtypes.dtype(name).range()[1], 6], dtype=kind)
        refused(explicit("openvino", 1, x, largest, np.array(1, dtype=kind)), "split.sizes", silent=True)
    operator = replace(equal("openvino", 1, x, 3, 1), inputs=(x, np.array(1, dtype=kind)))
    holds(operator, *np.split(x, 3, 1))


@pytest.mark.parametrize("name", ["f32", "f16", "f64", "boolean", "string"])
def test_a_float_axis_is_refused(name: str) -> None:
    """SEMANTICS: axis any integer type. Ruling 5: OpenVINO accepts float axes; we refuse."""
    kind = dtypes.dtype(name)
    axis = np.array("1", dtype=object) if name == "string" else np.array(1, dtype=kind.numpy)
    refused(explicit("openvino", 1, f32(2, 6), (4, 2), axis), "constant.value")
    refused(replace(equal("openvino", 1, f32(2, 6), 3), inputs=(f32(2, 6), axis)), "constant.value")
    if name != "boolean":
        lengths = np.array(["4", "2"], dtype=object) if name == "string" else np.array([4, 2], dtype=kind.numpy)
        refused(explicit("openvino", 1, f32(2, 6), lengths, 1), "type.class")


def test_the_axis_of_variadic_split_is_a_scalar_or_one_number() -> None:
    """SEMANTICS: VariadicSplit-1: axis a scalar or [1]."""
    x = f32(2, 6)
    holds(explicit("openvino", 1, x, (4, 2), np.array([1])), *cut(x, (4, 2), 1))
    for wrong in (np.array([1, 1]), np.array([[1]]), np.array([], dtype=np.int64)):
        refused(explicit("openvino", 1, x, (4, 2), wrong), "constant.value")


def test_the_axis_of_split_1_is_a_scalar_only() -> None:
    """SEMANTICS: Split-1: axis scalar only."""
    x = f32(2, 6)
    for wrong in (np.array([1]), np.array([[1]]), np.array([0, 1])):
        refused(replace(equal("openvino", 1, x, 3), inputs=(x, wrong)), "constant.value")


@pytest.mark.parametrize("axis", [1, -1])
def test_an_axis_that_arrives_at_run_time_is_the_axis(axis: int) -> None:
    """SEMANTICS: the axis is an input, in -rank..rank-1."""
    x = f32(2, 6)
    for operator, sizes in ((equal("openvino", 1, x, 3, axis), (2, 2, 2)), (explicit("openvino", 1, x, (4, 2), axis), (4, 2))):
        late = replace(operator, fixed=())
        holds(late, *cut(x, sizes, 1), through=(KNOWN, STORED, OPEN, LATE))
        # One form for each axis takes a rank.
        holds(late, *cut(x, sizes, 1), through=(RANKLESS,), other="constant.needed")


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_num_splits_is_at_least_1(count: int) -> None:
    """SEMANTICS: Split-1: num_splits >= 1."""
    refused(replace(equal("openvino", 1, f32(6), 1), attributes={"num_splits": count}), "split.sizes")
    refused(ragged(f32(6), count, outputs=1), "split.sizes")


@pytest.mark.parametrize("count", [1, 3, 2**31, 2**62])
def test_num_splits_is_the_number_of_outputs(count: int) -> None:
    """SEMANTICS: num_outputs == number of the node's outputs; Split-1's num_splits likewise."""
    refused(replace(equal("openvino", 1, f32(6), 2), attributes={"num_splits": count}), "node.outputs")
    refused(ragged(f32(6), count, outputs=2), "node.outputs")


def test_num_splits_is_required_and_an_integer() -> None:
    """SEMANTICS: Split-1: num_splits required. Ruling 5: a missing required attribute is refused."""
    operator = equal("openvino", 1, f32(6), 2)
    refused(replace(operator, attributes={}), "attribute.missing")
    for wrong in ("", "two", "2.0", "2**1"):
        refused(operator.with_(num_splits=wrong), "attribute.value")


@pytest.mark.parametrize(
    ("size", "count", "lengths"),
    [
        (7, 3, (3, 3, 1)),
        (10, 4, (3, 3, 3, 1)),
        (6, 2, (3, 3)),
        (3, 4, (1, 1, 1, 0)),
        (5, 1, (5,)),
        (0, 2, (0, 0)),
        (6, 3, (2, 2, 2)),
    ],
)
def test_in_18_only_the_last_piece_may_be_smaller(size: int, count: int, lengths: Any) -> None:
    """SEMANTICS: 18: num_outputs, chunk = ceil(dim/n), only the last may be smaller."""
    x = f32(size, 2)
    holds(ragged(x, count), *cut(x, lengths))
    holds(ragged(f32(2, size), count, -1), *cut(f32(2, size), lengths, 1))


def test_in_18_ragged_pieces_stay_one_node(tmp_path: Path) -> None:
    """SEMANTICS: 18: num_outputs. The rule for an open size also holds with num_outputs, and a size that is known as
    lengths."""
    for way in (KNOWN, OPEN):
        model = dovetail.load(write(ragged(f32(7, 2), 3), way, tmp_path))
        dovetail.save(model, tmp_path / "again.onnx")
        again = dovetail.load(tmp_path / "again.onnx")
        assert [(type(node.op).__name__, node.op) for node in again.graph] == [("Split", model.graph.nodes[0].op)]
        shapes = [value.type.shape for value in model.outputs]
        n = model.inputs[0].type.shape[0]
        chunk = -(-n // 3)
        assert [shape[0] for shape in shapes] == [chunk, chunk, n - 2 * chunk]


@pytest.mark.parametrize(("shape", "is_equal"), [((6,), True), ((7,), False), (("3*n",), True), (("n",), False), (None, False)])
def test_ragged_pieces_are_equal_ones_where_the_dimension_divides(shape: Any, is_equal: bool, tmp_path: Path) -> None:
    """SEMANTICS: 18: chunk = ceil(dim/n), only the last may be smaller: where none is, every format has the equal split."""
    b = dovetail.Builder()
    for index, y in enumerate(b.Split(b.input("x", "f32", shape), outputs=3, ragged=True)):
        b.output(f"y{index}", y)
    dovetail.save(b.model, tmp_path / "model.xml")
    layers = re.findall(r'type="(Split|VariadicSplit)"', (tmp_path / "model.xml").read_text())
    assert layers == ["Split" if is_equal else "VariadicSplit"]


def test_equal_pieces_of_an_open_size_are_equal_in_inference(tmp_path: Path) -> None:
    """SEMANTICS: without lengths the dim must divide by the number of outputs: in inference, too."""
    for format, version in EQUAL:
        model = dovetail.load(write(equal(format, version, f32(6, 2), 3), OPEN, tmp_path))
        n, m = model.inputs[0].type.shape
        assert [value.type.shape for value in model.outputs] == [(n // 3, m)] * 3
        lengths = dovetail.load(write(explicit(format, version, f32(6, 2), (4, 2)), OPEN, tmp_path))
        assert [value.type.shape[0] for value in lengths.outputs] == [4, 2]
    rest = dovetail.load(write(explicit("openvino", 1, f32(6, 2), (1, -1, 2)), OPEN, tmp_path))
    n = rest.inputs[0].type.shape[0]
    assert [value.type.shape[0] for value in rest.outputs] == [1, n - 3, 2]


def test_the_default_attributes_of_a_split() -> None:
    """SEMANTICS: ONNX Split: axis default 0."""
    assert Split() == Split(axis=0, outputs=1, ragged=False, wildcard=False)


@pytest.mark.parametrize(("size", "count"), [(2, 4), (5, 4), (1, 3), (3, 5)])
def test_in_18_no_piece_is_negative(size: int, count: int) -> None:
    """SEMANTICS: 18: only the last may be smaller, never negative."""
    refused(ragged(f32(size), count), "shape.multiple", silent=True)


def test_18_takes_exactly_one_of_lengths_and_num_outputs() -> None:
    """SEMANTICS: 18: exactly one of split / num_outputs."""
    refused(explicit("onnx", 18, f32(6), (4, 2)).with_(num_outputs=2), "split.sizes")
    refused(equal("onnx", 18, f32(6), 2), "split.sizes")


@pytest.mark.parametrize("version", [1, 2, 11, 13])
def test_there_is_no_num_outputs_before_18(version: int) -> None:
    """SEMANTICS: except in 18: num_outputs."""
    refused(equal("onnx", version, f32(6), 2).with_(num_outputs=2), "attribute.unknown")


@pytest.mark.parametrize("version", [13, 18])
def test_the_lengths_are_no_attribute_from_13(version: int) -> None:
    """SEMANTICS: lengths: attribute in 1/2/11, int64 input from 13."""
    refused(explicit("onnx", version, f32(6), (4, 2)).with_(split=[4, 2]), "attribute.unknown")


@pytest.mark.parametrize("version", [2, 11])
def test_the_lengths_are_no_input_in_2_and_11(version: int) -> None:
    """SEMANTICS: lengths: attribute in 1/2/11 (Split-1 also as a second input of the data type)."""
    refused(Operator("onnx", "Split", version, (f32(6), np.array([4, 2])), {}, 2), "node.inputs")


@pytest.mark.parametrize("name", FLOATS)
def test_split_1_takes_its_lengths_as_a_second_input_of_the_data_type(name: str) -> None:
    """SEMANTICS: Split-1 also as a second input of the data type."""
    kind = dtypes.dtype(name).numpy
    x = elements(name, 6)

    def split(lengths: Any, **attributes: Any) -> Operator:
        return Operator("onnx", "Split", 1, (x, np.array(lengths, dtype=kind)), attributes, 2, host=(1,), fixed=(1,))

    holds(split([4, 2]), *cut(x, (4, 2)))
    holds(split([6, 0], axis=0), *cut(x, (6, 0)))
    refused(split([4, 3]), "split.sizes", silent=True)
    refused(split([2.5, 3.5]), "split.sizes")
    refused(split([7, -1]), "split.sizes")
    refused(split([np.nan, 6]), "split.sizes")
    refused(split([4, 2], split=[4, 2]), "split.sizes")
    refused(split([4, 2], axis=-1), "attribute.value")
    refused(split([4, 2], axis=1), "axis.range", silent=True)
    other = np.array([4, 2], dtype=np.float64 if name != "f64" else np.float32)
    refused(replace(split([4, 2]), inputs=(x, other)), "type.disagree")
    refused(replace(split([4, 2]), fixed=()), "constant.needed", through=(LATE,))


@pytest.mark.parametrize(("version", "name", "is_allowed"), list(sweep(ALLOWED, ONNX_TYPES)))
def test_each_version_of_onnx_moves_its_types_bit_for_bit_and_no_other(version: int, name: str, is_allowed: bool) -> None:
    """SEMANTICS: types as Concat. Ruling 7."""
    x = elements(name, 15).reshape(3, 5)
    operator = explicit("onnx", version, x, (2, 3), 1)
    if is_allowed:
        holds(operator, *cut(x, (2, 3), 1), through=(KNOWN, STORED), other="" if dtypes.dtype(name).openvino else "type.version")
    else:
        refused(operator, "type.version", through=(KNOWN,))


@pytest.mark.parametrize("name", IR_TYPES)
def test_openvino_moves_any_type_bit_for_bit(name: str) -> None:
    """SEMANTICS: types as Concat. Ruling 3 and 7: sub-byte elements move by element, not by byte."""
    x = elements(name, 15).reshape(3, 5)
    other = "" if name in SIXTEEN else "type.version"
    holds(explicit("openvino", 1, given(x, name), (2, -1), 1), *cut(x, (2, 3), 1), through=(KNOWN,), other=other)
    holds(explicit("openvino", 1, given(x, name), (2, -1), 1), *cut(x, (2, 3), 1), through=(STORED,), other=None)
    holds(equal("openvino", 1, given(x, name), 3), *np.split(x, 3), through=(KNOWN,), other=other)


@pytest.mark.parametrize(("opset", "version"), [(1, 1), (2, 2), (11, 11), (13, 13), (18, 18), (21, 18)])
def test_each_version_of_onnx_can_express_ir(opset: int, version: int) -> None:
    """SEMANTICS: lengths and axis as each version of ONNX has them."""
    x = f32(4, 6)
    late = "" if version >= 13 else "op.unsayable"
    known = (KNOWN, STORED, OPEN)
    holds(explicit("openvino", 1, x, (4, 2), -1), *cut(x, (4, 2), 1), through=known, opset=opset)
    holds(explicit("openvino", 1, x, (4, -1), 1), *cut(x, (4, 2), 1), through=(KNOWN, STORED), opset=opset)
    holds(
        explicit("openvino", 1, x, (4, 2), 1),
        *cut(x, (4, 2), 1),
        through=(LATE, RANKLESS),
        other=None if version < 13 else late,
        opset=opset,
    )
    holds(equal("openvino", 1, x, 3, -1), *np.split(x, 3, 1), through=known, opset=opset)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_oracles_of_onnx_give_the_same(version: int, tmp_path: Path) -> None:
    """SEMANTICS: Split, ONNX: by onnxruntime and onnx.reference."""
    for name in ORT_TYPES:
        x = elements(name, 14).reshape(2, 7)
        cases = [(explicit("onnx", version, x, (1, 6), 1), KNOWN), (explicit("onnx", version, x, (3, 4), 1), LATE)]
        cases += [(ragged(x, 4, -1) if version == 18 else equal("onnx", version, x, 7, 1), KNOWN)]
        for operator, way in cases:
            data = write(operator, way, tmp_path).read_bytes()
            ours = list(dovetail.run(tmp_path / "model.onnx", feeds(operator, way)).values())
            heard = 0
            for oracle in (oracles.run_onnxruntime, oracles.run_reference):
                try:
                    theirs = oracle(data, feeds(operator, way))
                except oracles.Silent:
                    continue
                for mine, other in zip(ours, theirs, strict=True):
                    assert_bits(mine, np.asarray(other), f"{name} by {oracle.__name__}")
                heard += 1
            assert heard or version < 11


def test_onnxruntime_has_the_same_refusals(tmp_path: Path) -> None:
    """SEMANTICS: Split, ONNX: refusals by onnxruntime."""
    for operator in (explicit("onnx", 13, f32(6), (4, 3)), explicit("onnx", 13, f32(6), (7, -1)), equal("onnx", 13, f32(5), 2)):
        data = write(operator, OPEN, tmp_path).read_bytes()
        with pytest.raises(DovetailError):
            dovetail.run(tmp_path / "model.onnx", feeds(operator, OPEN))
        with pytest.raises(Exception, match=r"(?i)split"):
            oracles.run_onnxruntime(data, feeds(operator, OPEN))


def test_openvino_gives_the_same(tmp_path: Path) -> None:
    """SEMANTICS: Split-1, VariadicSplit-1: by OpenVINO."""
    x = f32(2, 6)
    for operator in (
        explicit("openvino", 1, x, (1, 2, 3), 1),
        explicit("openvino", 1, x, (-1, 2), -1),
        explicit("openvino", 1, x, (4, 2), np.array([1])),
        explicit("openvino", 1, x, np.array([4, 2], dtype=np.int32), np.array(1, dtype=np.int32)),
        equal("openvino", 1, x, 3, -1),
    ):
        path = write(operator, KNOWN, tmp_path)
        names = [f"y{index}" for index in range(operator.outputs)]
        theirs = oracles.run_openvino_file(str(path), feeds(operator, KNOWN), names)
        for mine, other in zip(dovetail.run(path, feeds(operator, KNOWN)).values(), theirs, strict=True):
            assert_bits(mine, other, str(operator))
