"""Reshape by the rules of its documents: ONNX 1, 5, 13, 14, 19, 21, 23, 24, 25 and OpenVINO Reshape-1. Each test names its
rule after SEMANTICS."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from assertions import is_vague
from dovetail.errors import DovetailError, RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor
from dovetail.ops.tensor.reshape import Reshape
from single_node_models import (
    FIFTEEN,
    FLOATS,
    IR_TYPES,
    KNOWN,
    LATE,
    NODE,
    ONNX_TYPES,
    OPEN,
    RANKLESS,
    SIXTEEN,
    STORED,
    Operator,
    assert_bits,
    elements,
    feeds,
    given,
    holds,
    refused,
    sweep,
    write,
)

F8 = ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
ALLOWED = {
    1: FLOATS,
    5: FIFTEEN,
    13: SIXTEEN,
    14: SIXTEEN,
    19: (*SIXTEEN, *F8),
    21: (*SIXTEEN, *F8, "i4", "u4"),
    23: (*SIXTEEN, *F8, "i4", "u4", "f4e2m1"),
    24: (*SIXTEEN, *F8, "i4", "u4", "f4e2m1", "f8e8m0"),
    25: (*SIXTEEN, *F8, "i4", "u4", "f4e2m1", "f8e8m0", "i2", "u2"),
}
ALLOWZERO = (14, 19, 21, 23, 24, 25)
# Each meaning once in full; the other versions differ in types alone, and are swept below.
FULL = (1, 5, 13, 14, 25)
COPYING = [("onnx", version) for version in FULL] + [("openvino", 1)]
LITERAL = [("onnx", 14), ("onnx", 25), ("openvino", 1)]
copying = pytest.mark.parametrize(("format", "version"), COPYING)
literal = pytest.mark.parametrize(("format", "version"), LITERAL)
EIGHT = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def reshape(format: str, version: int, x: Any, target: Any, zeros: str = "copy", **attributes: Any) -> Operator:
    """Return a Reshape in which a 0 copies a dimension (``copy``) or stands for itself (``literal``)."""
    if format == "openvino":
        attributes = {"special_zero": zeros == "copy", **attributes}
    elif version == 1:
        return Operator(format, "Reshape", 1, (x,), {"shape": list(target), **attributes})
    elif zeros == "literal":
        attributes = {"allowzero": 1, **attributes}
    vector = target if hasattr(target, "dtype") else np.array(target, dtype=np.int64)
    return Operator(format, "Reshape", version, (x, vector), attributes, host=(1,))


def f32(*shape: int) -> Any:
    return elements("f32", int(np.prod(shape))).reshape(shape)


@copying
@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((2, 3), (3, 2), (3, 2)),
        ((2, 3), (6,), (6,)),
        ((6,), (1, 2, 1, 3), (1, 2, 1, 3)),
        ((2, 3), (-1,), (6,)),
        ((2, 3, 4), (2, -1), (2, 12)),
        ((2, 3, 4), (-1, 4), (6, 4)),
        ((), (1, 1), (1, 1)),
        ((), (-1,), (1,)),
    ],
)
def test_the_elements_keep_their_order(format: str, version: int, shape: Any, target: Any, result: Any) -> None:
    """SEMANTICS: (3) -1 = volume / product of the rest."""
    x = f32(*shape)
    holds(reshape(format, version, x, target), x.reshape(result))


@copying
@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((2, 3, 4), (0, 12), (2, 12)),
        ((2, 3, 4), (0, 0, 4), (2, 3, 4)),
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (-1, 0), (8, 3)),
        ((2, 3, 4), (0, 0, -1, 1), (2, 3, 4, 1)),
        ((0, 3), (0, 3), (0, 3)),
        ((3, 0), (3, 0), (3, 0)),
        ((2, 0, 3), (0, -1, 3), None),
    ],
)
def test_0_copies_the_dimension_at_its_index(format: str, version: int, shape: Any, target: Any, result: Any) -> None:
    """SEMANTICS: (2) 0 copies the input dim at that index (ONNX allowzero=0, OpenVINO special_zero=true)."""
    x = f32(*shape)
    holds(reshape(format, version, x, target), x.reshape(result or (2, 0, 3)))


@copying
@pytest.mark.parametrize(
    ("shape", "target"), [((6,), (6, 0)), ((2, 3), (2, 3, 0)), ((2, 3), (3, 2, 0)), ((), (0,)), ((6,), (-1, 0)), ((0,), (0, 0))]
)
def test_a_0_that_copies_needs_its_index_below_the_rank(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: (2) needs index < rank. Ruling 4: the index of a 0 must be smaller than the rank."""
    refused(reshape(format, version, f32(*shape), target), "reshape.target", silent=True)


@literal
@pytest.mark.parametrize(
    ("shape", "target"),
    [((0, 3), (3, 0)), ((2, 5, 5, 0), (0, 4)), ((0,), (4, 0, 7)), ((0,), (1, 2, 3, 0)), ((2, 0), (0,)), ((0, 3), (0, 0, 0))],
)
def test_otherwise_0_is_a_literal_zero(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: (2) otherwise 0 is a literal zero; with allowzero=1 a 0 has no rank limit."""
    x = f32(*shape)
    operator = reshape(format, version, x, target, "literal")
    # What an opset that has no allowzero cannot say is refused.
    holds(operator, x.reshape(target))


@pytest.mark.parametrize("opset", [5, 13])
def test_a_literal_0_needs_an_opset_with_allowzero(opset: int) -> None:
    """SEMANTICS: 14 + allowzero. A version before it copies."""
    x = f32(0, 3)
    operator = reshape("openvino", 1, x, (3, 0), "literal")
    holds(operator, x.reshape(3, 0), through=(KNOWN, OPEN, LATE, RANKLESS), other="op.unsayable", opset=opset)
    holds(reshape("openvino", 1, f32(2, 3), (3, 2), "literal"), f32(2, 3).reshape(3, 2), through=(KNOWN, OPEN), opset=opset)


@literal
@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [((2, 3), (1, -1), (1, 6)), ((2, 3), (-1, 2), (3, 2)), ((0, 3), (-1, 5), (0, 5)), ((0, 3), (1, 1, -1), (1, 1, 0))],
)
def test_minus_1_with_other_sizes_where_no_0_copies(format: str, version: int, shape: Any, target: Any, result: Any) -> None:
    """SEMANTICS: (3) -1 = volume / product of the rest."""
    x = f32(*shape)
    holds(reshape(format, version, x, target, "literal"), x.reshape(result))


@literal
@pytest.mark.parametrize(
    ("shape", "target"), [((2, 3), (0, 6)), ((2, 3), (0,)), ((), (0,)), ((2, 3), (2, 3, 0)), ((0, 3), (2, 3))]
)
def test_a_literal_0_makes_an_empty_tensor_and_takes_one(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: (4) volumes must be equal."""
    refused(reshape(format, version, f32(*shape), target, "literal"), "reshape.volume", silent=True)


@literal
@pytest.mark.parametrize(("shape", "target"), [((0, 3), (0, -1)), ((2, 3), (0, -1)), ((0, 3), (-1, 0)), ((0,), (3, 0, -1))])
def test_a_literal_0_together_with_minus_1_is_forbidden(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: 0 together with -1 is forbidden when allowzero is 1, also when the target arrives at run time; OpenVINO
    with a literal 0: refuse."""
    refused(reshape(format, version, f32(*shape), target, "literal"), "reshape.target", silent=True)


@copying
@pytest.mark.parametrize("target", [(-1, -1), (2, -1, -1), (-2, 3), (-2,), (-1, -3), (2, -(2**63)), (-1, 0, -1)])
def test_at_most_one_minus_1_and_no_size_below(format: str, version: int, target: Any) -> None:
    """SEMANTICS: (1) at most one -1, nothing below -1."""
    refused(reshape(format, version, f32(2, 3), target), "reshape.target", silent=True)


@literal
@pytest.mark.parametrize("target", [(-1, -1), (-2, -3)])
def test_at_most_one_minus_1_and_no_size_below_with_literal_zeros(format: str, version: int, target: Any) -> None:
    """SEMANTICS: (1) at most one -1, nothing below -1."""
    refused(reshape(format, version, f32(2, 3), target, "literal"), "reshape.target", silent=True)


@copying
@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((2, 3), (5,)),
        ((2, 3), (4, -1)),
        ((2, 3), (2, 2)),
        ((2, 3), ()),
        ((2, 3), (0, 4)),
        ((2, 3), (0, -1, 4)),
        ((2, 3, 5), (0, 4, -1)),
        ((0, 3), (6,)),
        ((2, 3), (7, -1)),
        ((), (2,)),
        ((1,), (0, 2)),
        ((3, 4), (8, -1)),
    ],
)
def test_volumes_are_equal(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: (3) must divide; (4) volumes must be equal, also when a 0 was copied. Ruling 5: [2,3] by [0,4] is refused."""
    refused(reshape(format, version, f32(*shape), target), "reshape.volume", silent=True)


def test_a_volume_error_has_the_numbers_of_elements() -> None:
    """SEMANTICS: (3) must divide; (4) volumes must be equal."""
    equal, multiple = r"as many elements as the input \(6\), got 10", r"number of elements \(6\) must be a multiple .* \(10\)"
    for target, words in [((5, 2), equal), ((2, 5, -1), multiple)]:
        with pytest.raises(RuleError, match=words):
            inferred(target, (2, 3))


@copying
@pytest.mark.parametrize(
    ("shape", "target"),
    [((), (2**32, 2**32)), ((2, 3), (2**62, 4)), ((1,), (2**63 - 1, 2)), ((6,), (-1, 2**33, 2**33)), ((6,), (2**32 + 6, 2**32))],
)
def test_volumes_are_counted_in_arithmetic_that_cannot_wrap(format: str, version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: (4) in arithmetic that cannot wrap."""
    refused(reshape(format, version, f32(*shape), target), "shape.range", silent=True)


def inferred(target: Any, shape: Any = None, **attributes: Any) -> Any:
    """Return the shape that inference gives a reshaped x, of which nothing is known unless ``shape`` tells."""
    b = dovetail.Builder()
    return b.Reshape(b.input("x", "f32", shape), target(b) if callable(target) else target, **attributes).shape


@pytest.mark.parametrize("shape", [None, ("n",)])
def test_a_target_is_counted_in_arithmetic_that_cannot_wrap_for_any_input(shape: Any) -> None:
    """SEMANTICS: (4) in arithmetic that cannot wrap, in shape inference, too."""
    for target in ([2**62, 4], [1, 2**62, 4], [-1, 2**62, 4], [2**32, -1, 2**31], [2**63 - 1, 2]):
        for attributes in ({}, {"special_zero": False}, {"empty": "cancel"}):
            with pytest.raises(RuleError) as caught:
                inferred(target, shape, **attributes)
            assert caught.value.code == "shape.range"
    assert inferred([2**63 - 1, 1]) == (2**63 - 1, 1)
    assert inferred([2**62, 0, 4], (0,), special_zero=False) == inferred([2**62, 0, 4], special_zero=False) == (2**62, 0, 4)


def test_the_length_of_an_open_target_is_the_rank() -> None:
    """SEMANTICS: the target is 1-D: its length is the rank. No array has more than 64 axes."""
    for dtype in (dtypes.i64, None):
        for length in (0, 1, 3, 64):
            target = Tensor(dtype, (length,))
            assert len(inferred(lambda b, target=target: b.input_of("target", target))) == length
        for shape in ((65,), (2**40,), (symbolic.symbol("n"),), None):
            target = Tensor(dtype, shape)
            assert inferred(lambda b, target=target: b.input_of("target", target)) is None


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((6,), (2, "?"), "2, 3"),
        ((6,), ("?", 2), "3, 2"),
        (("n", 6), ("?", 2), "3*n, 2"),
        ((symbolic.symbol("p", 1), "n"), (0, "?"), "p, n"),
        # A size that may be 0 divides nothing.
        (("n", "m"), (0, "?"), "n, ?"),
        ((6,), (4, "?"), "4, ?"),
        ((0, 3), (0, "?"), "0, ?"),
        ((6,), ("?",), "6"),
        ((6,), (2, -1), "2, 3"),
        ((6,), ("n", -1), "n, 6//n"),
        ((6,), ("p", -1), "p, 6//p"),
        (("m",), ("p", 2, -1), "p, 2, m//(2*p)"),
        (("n", 6), ("n", -1), "n, 6"),
        (("n", 6), (-1, 3), "2*n, 3"),
        (("n", "m", 6), (0, "m", -1), "n, m, 6"),
        ((6,), (2, "n - 1"), "2, 3"),
        ((6,), ("6 - n", 2), "3, 2"),
        ((6,), ("n - 1", "6 - n"), "?, ?"),
        ((6,), ("n - 1", "n"), "?, n"),
        ((6,), ("?", "?"), "?, ?"),
        ((6,), ("?", 2, "?"), "?, 2, ?"),
        ((6,), (-1, "?"), "?, ?"),
        ((12,), ("?", -1, 2), "?, ?, 2"),
        ((6, 1), ("?", 0, -1), "?, 1, ?"),
        (None, ("?", 0, -1, 2), "?, ?, ?, 2"),
        (("n",), (-1, 2), "n//2, 2"),
    ],
)
def test_an_unknown_size_follows_from_the_volume(shape: Any, target: Any, result: str) -> None:
    """SEMANTICS: (4) volumes must be equal, in shape inference, too."""

    def mixed(b: Any) -> Any:
        late, n = iter(b.Split(b.input("late", "i64", (4,)), outputs=4)), b.Shape(b.input("z", "f32", ("n",)))
        m, p = (b.Shape(b.input(f"z{size}", "f32", (size,))) for size in ("m", symbolic.symbol("p", 1)))
        words = {"n": n, "m": m, "p": p, "n - 1": b.Subtract(n, 1), "6 - n": b.Subtract(6, n)}
        return b.Concat(*(next(late) if size == "?" else words.get(size, [size]) for size in target), axis=0)

    found = inferred(mixed, shape)
    assert ", ".join("?" if is_vague(size) else str(size) for size in found) == result


def test_a_target_of_sums_of_sizes_is_the_shape() -> None:
    """SEMANTICS: the target's elements are the sizes, in inference, too, also where their product is too much to write down."""

    def sums(b: Any) -> Any:
        sizes = [b.Shape(b.input(f"{name}{index}", "f32", (f"{name}{index}",))) for index in range(12) for name in "uv"]
        return b.Concat(*(b.Add(u, v) for u, v in zip(sizes[::2], sizes[1::2], strict=True)), axis=0)

    assert list(map(str, inferred(sums))) == [f"u{index} + v{index}" for index in range(12)]


RESHAPES = [Reshape(copies, empty) for copies in (True, False) for empty in ("refuse", "cancel", "zero")]
SHAPES = [shape for rank in range(3) for shape in product((0, 1, 2, 3), repeat=rank)]
TARGETS = [target for length in range(3) for target in product((-1, 0, 1, 2, 6), repeat=length)]
TARGETS += [(0, -1, 2), (-1, 0, 0), (2, 0, -1), (0, 0, -1), (-1, -1, 2), (-2, 3), (1, 2, 0), (2**32, 2**32, -1)]


def shape_by(op: Op, shape: Any, target: Any) -> Any:
    """Return the shape that ``op`` makes, or that it refuses."""
    b = dovetail.Builder()
    try:
        (y,) = b.add(op, b.input("x", "f32", shape), b.constant(np.array(target, dtype=np.int64)))
    except RuleError:
        return "refused"
    return y.shape


def shape_run(model: Any, *arrays: Any) -> Any:
    try:
        (y,) = dovetail.run(model, list(arrays), engine="interpreter").values()
    except DovetailError:
        return "refused"
    return y.shape


@pytest.mark.parametrize("op", RESHAPES, ids=str)
def test_the_canonical_form_of_a_reshape_is_equivalent(op: Op) -> None:
    """SEMANTICS: Reshape, for every small shape and target."""
    for shape, target in product(SHAPES, TARGETS):
        if (said := shape_by(op, shape, target)) != "refused":
            b = dovetail.Builder()
            plain = op.canonical(b.input("x", "f32", shape), b.constant(np.array(target, dtype=np.int64)))
            assert shape_by(plain, shape, target) == said, f"{plain} for {op}: {shape} by {target}"
            assert 0 in target or plain == Reshape()
            assert -1 in target or getattr(plain, "empty", None) == "refuse"


@pytest.mark.parametrize("op", [each for each in RESHAPES if each.empty != "refuse"], ids=str)
def test_a_decomposed_reshape_has_the_same_shapes_and_refusals(op: Op) -> None:
    """SEMANTICS: Reshape, written where a format has no word for its ruling on -1 beside 0, for a known target and a late one."""
    late = dovetail.Builder()
    late.output("y", op.decompose(late, late.input("x", "f32"), late.input("target", "i64")))
    for shape, target in product(SHAPES, TARGETS):
        said = shape_by(op, shape, target)
        if op == Reshape(special_zero=False, empty="zero") and target == (0,):
            # Only nGraph refuses it; every other Reshape of no copies makes an empty vector.
            said = (0,) if 0 in shape else "refused"
        x = np.zeros(shape, dtype=np.float32)
        assert shape_run(late.model, x, np.array(target, dtype=np.int64)) == said, f"{op}: {shape} by a late {target}"
        if said != "refused":
            for sizes in (shape, tuple(f"n{axis}" for axis in range(len(shape)))):
                b = dovetail.Builder()
                b.output("y", op.decompose(b, b.input("x", "f32", sizes), b.constant(np.array(target, dtype=np.int64))))
                assert shape_run(b.model, x) == said, f"{op}: {sizes} by {target}"


def test_a_reshape_is_decomposed_only_as_far_as_its_inputs_require() -> None:
    """SEMANTICS: Reshape: -1 beside a copied 0 is a number where inference knows it; a late size is still checked."""
    b = dovetail.Builder()
    assert Reshape().decompose(b, b.input("x", "f32", (2, 3)), b.constant([0, -1])) is None
    assert Reshape(False).decompose(b, b.input("z", "f32", (2, 3)), b.constant([0, -1])) is None
    for shape, target, run, expected, is_one in (
        (("n", 6), [0, -1], (0, 6), (0, 6), True),
        (("n", 1, 6), [0, -1], (2, 1, 6), (2, 6), True),
        (("n", 3, 0), [0, -1], (2, 3, 0), (2, 0), False),
        (("n", "m"), [0, -1], (0, 5), (0, 5), False),
    ):
        b = dovetail.Builder()
        b.output("y", Reshape(empty="cancel").decompose(b, b.input("x", "f32", shape), b.constant(target)))
        assert shape_run(b.model, np.zeros(run, dtype=np.float32)) == expected
        kinds = [type(node.op).__name__ for node in b.graph if type(node.op).__name__ != "Constant"]
        assert (kinds == ["Reshape"]) == is_one
    b = dovetail.Builder()
    late = b.input("late", "i64", (1,))
    b.output("y", Reshape(empty="cancel").decompose(b, b.input("x", "f32", (2, 3)), b.Concat(late, [3], axis=0)))
    for size, expected_ in ((2, (2, 3)), (0, (2, 3)), (-1, (2, 3)), (5, "refused"), (1, "refused")):
        assert shape_run(b.model, np.array([size]), np.zeros((2, 3), dtype=np.float32)) == expected_


@pytest.mark.parametrize(
    ("op", "shape", "target", "plain"),
    [
        # A 0 that copies a size which is not 0 stands beside -1 as any other size.
        (Reshape(empty="cancel"), (2, 3), (0, -1), Reshape()),
        (Reshape(empty="zero"), (symbolic.symbol("p", 1), 3), (0, -1), Reshape()),
        (Reshape(empty="cancel"), ("n", 3), (0, -1), Reshape(empty="cancel")),
        (Reshape(empty="zero"), None, (0, -1), Reshape(empty="zero")),
        (Reshape(empty="cancel"), ("n", 3), (-1, 0), Reshape()),
        (Reshape(empty="cancel"), ("n", "m"), (0, 0), Reshape()),
        (Reshape(empty="cancel"), None, (2, -1), Reshape()),
        # Of a literal 0 there is nothing to cancel, and where the size it stands for is 0 it may as well copy.
        (Reshape(False, "cancel"), ("n",), (0, 3), Reshape(False)),
        (Reshape(False), (0, 3), (0, 5), Reshape()),
        (Reshape(False), (3, 0), (0, 5), Reshape(False)),
        (Reshape(False), (0,), (5, 0), Reshape(False)),
        (Reshape(False), None, (0, 5), Reshape(False)),
        (Reshape(False), None, (2, -1), Reshape()),
    ],
)
def test_the_canonical_form_of_a_reshape_has_only_the_attributes_that_its_inputs_need(
    op: Op, shape: Any, target: Any, plain: Op
) -> None:
    """SEMANTICS: Reshape: where the rulings on 0 and -1 do not differ, every version and format has the operator."""
    b = dovetail.Builder()
    assert op.canonical(b.input("x", "f32", shape), b.constant(np.array(target, dtype=np.int64))) == plain


def test_the_canonical_form_of_a_reshape_with_an_open_target() -> None:
    """SEMANTICS: Reshape: what a target that arrives at run time may hold keeps the ruling on it."""
    b = dovetail.Builder()
    x, n = b.input("x", "f32", (2, 3)), b.Shape(b.input("z", "f32", ("n",)))
    late = b.input("late", "i64")
    for op, target, plain in (
        (Reshape(empty="cancel"), late, Reshape(empty="cancel")),
        (Reshape(False, "cancel"), late, Reshape(False)),
        (Reshape(False, "zero"), late, Reshape(False, "zero")),
        (Reshape(empty="cancel"), b.input("two", "i64", (2,)), Reshape()),
        (Reshape(empty="cancel"), b.input("three", "i64", (3,)), Reshape(empty="cancel")),
        (Reshape(empty="cancel"), b.Concat(n, b.Add(n, 1), [6], axis=0), Reshape()),
        (Reshape(False), b.Concat(n, [6], axis=0), Reshape(False)),
        (Reshape(False, "zero"), b.Concat(n, [6], axis=0), Reshape(False)),
        (Reshape(False), b.Add(n, 1), Reshape()),
        (Reshape(False, "zero"), b.Add(n, 1), Reshape()),
    ):
        assert op.canonical(x, target) == plain, f"{op} by {target}"


@copying
def test_an_empty_target_is_a_scalar(format: str, version: int) -> None:
    """SEMANTICS: empty target = scalar."""
    x = f32(1, 1)
    holds(reshape(format, version, x, ()), x.reshape(()))


@pytest.mark.parametrize(("format", "version"), COPYING[1:])
@pytest.mark.parametrize("shape", [(), (1, 2), (2, 1)])
def test_the_target_is_a_vector(format: str, version: int, shape: Any) -> None:
    """SEMANTICS: the target is 1-D."""
    target = np.full(shape, 6 if shape == () else 1, dtype=np.int64)
    refused(reshape(format, version, f32(6) if shape == () else f32(1), target), "reshape.target", silent=True)


@pytest.mark.parametrize("version", [5, 13, 14, 25])
@pytest.mark.parametrize("name", ["i32", "u8", "u64", "f32", "boolean", "i4"])
def test_the_target_of_onnx_is_int64_only(version: int, name: str) -> None:
    """SEMANTICS: ONNX: int64 only."""
    code = "type.version" if name in ("i32", "u8", "u64") else "type.class"
    refused(reshape("onnx", version, f32(6), np.array([6], dtype=dtypes.dtype(name).numpy)), code)


@pytest.mark.parametrize("name", EIGHT)
def test_the_target_of_openvino_is_any_of_eight_integer_types(name: str) -> None:
    """SEMANTICS: OpenVINO: any of the eight integer types (unsigned 255 is 255)."""
    kind = dtypes.dtype(name)
    through = (KNOWN, OPEN, LATE, RANKLESS)
    x = f32(255)
    if kind.range()[1] >= 255:
        holds(reshape("openvino", 1, x, np.array([255], dtype=kind.numpy)), x, through=through, other=None)
    if kind.kind == "int":
        holds(reshape("openvino", 1, x, np.array([-1, 5], dtype=kind.numpy)), x.reshape(51, 5), through=through, other=None)
    else:
        largest = np.array([kind.range()[1]], dtype=kind.numpy)
        code = "shape.range" if name == "u64" else "reshape.volume"
        if name != "u8":
            refused(reshape("openvino", 1, x, largest), code, silent=True)
    holds(reshape("openvino", 1, x, np.array([0, 1], dtype=kind.numpy)), x.reshape(255, 1), through=through, other=None)


@pytest.mark.parametrize("name", EIGHT)
def test_a_target_of_any_type_reaches_onnx_as_int64(name: str) -> None:
    """SEMANTICS: ONNX: int64 only; OpenVINO: any of the eight integer types."""
    x = f32(2, 3)
    holds(
        reshape("openvino", 1, x, np.array([3, 2], dtype=dtypes.dtype(name).numpy)),
        x.reshape(3, 2),
        through=(KNOWN, STORED, OPEN),
    )


@pytest.mark.parametrize("name", EIGHT)
def test_a_target_of_any_type_that_arrives_at_run_time_reaches_onnx(name: str) -> None:
    """SEMANTICS: ONNX: int64 only; (2) 0 copies. A u64 is a size also beyond 2^63, and never -1."""
    x = f32(2, 1, 3)
    target = np.array([3, 0, 2], dtype=dtypes.dtype(name).numpy)
    holds(reshape("openvino", 1, x, target), x.reshape(3, 1, 2), through=(LATE,), other="")
    if name == "u64":
        for largest in (2**64 - 1, 2**64 - 7, 2**63):
            refused(
                reshape("openvino", 1, f32(7), np.array([largest], dtype=np.uint64)),
                "shape.range",
                through=(LATE,),
                silent=True,
            )


def test_a_target_that_is_int64_is_not_cast(tmp_path: Path) -> None:
    """SEMANTICS: ONNX: int64 only."""
    for name, count in (("i64", 0), ("i32", 1)):
        operator = reshape("openvino", 1, f32(2, 3), np.array([0, -1], dtype=dtypes.dtype(name).numpy))
        for way in (LATE, RANKLESS):
            dovetail.save(dovetail.load(write(operator, way, tmp_path)), tmp_path / "other.onnx")
            casts = [node for node in dovetail.load(tmp_path / "other.onnx").graph if type(node.op).__name__ == "Cast"]
            assert sum(node.inputs[0] is not None and node.inputs[0].dtype.is_integer for node in casts) == count


@pytest.mark.parametrize("name", ["f32", "f16", "boolean", "string", "i4", "u4", "u1", "u2", "u3", "u6", "nf4"])
def test_the_target_of_openvino_has_no_other_type(name: str) -> None:
    """SEMANTICS: OpenVINO: any of the eight integer types."""
    target = given(np.array(["1"], dtype=object) if name == "string" else np.array([1], dtype=dtypes.dtype(name).numpy), name)
    operator = Operator("openvino", "Reshape", 1, (f32(1), target), {"special_zero": False}, host=(1,))
    refused(operator, "type.class")


def test_onnx_1_demands_its_attribute() -> None:
    """SEMANTICS: 1 = attribute `shape` (demand it)."""
    refused(Operator("onnx", "Reshape", 1, (f32(6),)), "attribute.missing")
    refused(Operator("onnx", "Reshape", 1, (f32(6),), {"shape": 6}), "reshape.target")
    refused(Operator("onnx", "Reshape", 1, (f32(6),), {"shape": [6.0]}), "attribute.value")
    refused(Operator("onnx", "Reshape", 1, (f32(6), np.array([6])), {"shape": [6]}), "node.inputs")
    holds(Operator("onnx", "Reshape", 1, (f32(6),), {"shape": [2, 3], "consumed_inputs": [0]}), f32(2, 3))


@pytest.mark.parametrize("version", [5, 13, 14, 25])
def test_onnx_5_and_later_demand_their_input(version: int) -> None:
    """SEMANTICS: 5 = input."""
    refused(Operator("onnx", "Reshape", version, (f32(6),)), "node.inputs")
    refused(reshape("onnx", version, f32(6), (2, 3)).with_(shape=[2, 3]), "attribute.unknown")


@pytest.mark.parametrize("version", [5, 13])
def test_there_is_no_allowzero_before_onnx_14(version: int) -> None:
    """SEMANTICS: 14 + allowzero."""
    refused(reshape("onnx", version, f32(6), (2, 3), allowzero=0), "attribute.unknown")


@pytest.mark.parametrize("version", ALLOWZERO)
def test_allowzero_is_0_when_left_out_and_a_flag(version: int) -> None:
    """SEMANTICS: 14 + allowzero; 0 copies the input dim at that index (ONNX allowzero=0)."""
    x = f32(2, 3)
    holds(reshape("onnx", version, x, (0, -1)), x)
    holds(reshape("onnx", version, x, (0, -1), allowzero=0), x, through=(KNOWN,))
    holds(reshape("onnx", version, f32(0, 3), (3, 0), "literal"), f32(3, 0), through=(KNOWN, LATE))
    for wrong in (2, -1, 1.0, "1"):
        refused(reshape("onnx", version, x, (0, -1), allowzero=wrong), "attribute.value", through=(KNOWN,))


def test_special_zero_is_required_and_a_flag() -> None:
    """SEMANTICS: special_zero. Ruling 5: a missing required attribute is refused."""
    operator = reshape("openvino", 1, f32(6), (2, 3))
    refused(replace(operator, attributes={}), "attribute.missing")
    for wrong in ("", "yes", "2", "-1", "0.0"):
        refused(operator.with_(special_zero=wrong), "attribute.value")
    for right in ("1", "True", "true", "TRUE"):
        holds(reshape("openvino", 1, f32(2, 3), (0, 3), special_zero=right), f32(2, 3), through=(KNOWN,))
    for right in ("0", "False", "false"):
        holds(reshape("openvino", 1, f32(0, 3), (3, 0), special_zero=right), f32(3, 0), through=(KNOWN,))


@pytest.mark.parametrize(("version", "name", "is_allowed"), list(sweep(ALLOWED, ONNX_TYPES)))
def test_each_version_of_onnx_moves_its_types_bit_for_bit_and_no_other(version: int, name: str, is_allowed: bool) -> None:
    """SEMANTICS: 1: 3 float types; 5: 15; 13 + bf16; 19 + four f8; 21 + i4, u4; 23 + f4e2m1; 24 + f8e8m0; 25 + i2, u2.
    Ruling 7."""
    x = elements(name, 18).reshape(2, 9)
    operator = reshape("onnx", version, x, (3, 6))
    if is_allowed:
        holds(operator, x.reshape(3, 6), through=(KNOWN, STORED), other="" if dtypes.dtype(name).openvino else "type.version")
    else:
        refused(operator, "type.version", through=(KNOWN,))


@pytest.mark.parametrize("name", IR_TYPES)
def test_openvino_moves_any_type_bit_for_bit(name: str) -> None:
    """SEMANTICS: types any. Ruling 3: bool and string are moved too. Ruling 7: sub-byte elements move by element, not by byte."""
    x = elements(name, 15).reshape(3, 5)
    opset = next((version for version, names in ALLOWED.items() if name in names and version > 1), 25)
    other = "" if any(name in names for names in ALLOWED.values()) else "type.version"
    holds(reshape("openvino", 1, given(x, name), (5, -1)), x.reshape(5, 3), through=(KNOWN,), other=other, opset=opset)
    stored = None if other else other
    holds(reshape("openvino", 1, given(x, name), (5, -1)), x.reshape(5, 3), through=(STORED,), other=stored, opset=opset)


@copying
@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [((0, 3), (-1, 5), (0, 5)), ((0,), (-1, 2, 2), (0, 2, 2)), ((2, 0), (0, -1), (2, 0)), ((3, 0), (-1,), (0,))],
)
def test_minus_1_over_an_empty_tensor_is_fine_while_the_rest_is_not_zero(
    format: str, version: int, shape: Any, target: Any, result: Any
) -> None:
    """SEMANTICS: -1 over an empty tensor is fine while the rest is non-zero ([0,3] to [-1,5] = [0,5])."""
    x = f32(*shape)
    holds(reshape(format, version, x, target), x.reshape(result))


@pytest.mark.parametrize("version", FULL)
@pytest.mark.parametrize(
    ("shape", "target"), [((0, 3), (0, -1)), ((0, 3), (-1, 3)[::-1]), ((2, 0, 3), (-1, 0)), ((0, 0), (0, -1))]
)
def test_minus_1_with_a_rest_of_zero_is_refused_by_onnx(version: int, shape: Any, target: Any) -> None:
    """SEMANTICS: when the rest is 0: ONNX refuses."""
    if 0 not in target:
        return
    # IR has no word for refusing here; what it says instead answers where ONNX refuses, and is the same everywhere else.
    refused(reshape("onnx", version, f32(*shape), target), "reshape.target", silent=True, other=False)


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((0, 3), (0, -1), (0, 3)),
        ((2, 0, 3), (-1, 0), (6, 0)),
        ((0, 3, 4), (0, -1, 2), (0, 6, 2)),
        ((0, 0), (0, -1), (0, 0)),
        ((0, 0, 5), (0, 0, -1), (0, 0, 5)),
        ((0, 4), (0, 2, -1), (0, 2, 2)),
    ],
)
def test_openvino_cancels_copied_dims_first(shape: Any, target: Any, result: Any) -> None:
    """SEMANTICS: OpenVINO with special_zero=true cancels copied dims first ([0,3] by [0,-1] = [0,3])."""
    x = f32(*shape)
    operator = reshape("openvino", 1, x, target)
    holds(operator, x.reshape(result), through=(KNOWN, STORED))
    # ONNX refuses where a copied dimension turns out to be 0: it has to get the size in another way, or the node is refused.
    holds(operator, x.reshape(result), through=(OPEN, LATE, RANKLESS), other=None)


@pytest.mark.parametrize(("shape", "target"), [((0, 3), (0, -1, 2)), ((0, 5), (0, 3, -1)), ((0, 3), (0, 0, -1))])
def test_the_volume_left_after_cancelling_must_divide(shape: Any, target: Any) -> None:
    """SEMANTICS: (3) must divide, after OpenVINO cancels copied dims; (2) needs index < rank."""
    if target == (0, 0, -1):
        holds(reshape("openvino", 1, f32(*shape), target), f32(0, 3, 1), through=(KNOWN,))
        return
    refused(reshape("openvino", 1, f32(*shape), target), "reshape.volume", silent=True, other=False)


def test_inference_of_a_copied_size_is_its_symbol(tmp_path: Path) -> None:
    """SEMANTICS: (2) and (3) hold in shape inference, with symbols."""
    for format, version in COPYING:
        path = write(reshape(format, version, f32(2, 3, 4), (0, -1)), OPEN, tmp_path)
        model = dovetail.load(path)
        (first, second) = model.values["y0"].type.shape
        a, b, c = model.values["x0"].type.shape
        assert (first, second) == (a, b * c)
        path = write(reshape(format, version, f32(2, 3, 4), (-1, 4)), OPEN, tmp_path)
        model = dovetail.load(path)
        a, b, c = model.values["x0"].type.shape
        assert model.values["y0"].type.shape == (a * b * c // 4, 4)


@pytest.mark.parametrize("version", [5, 13, 14])
@pytest.mark.parametrize(
    ("shape", "target", "zeros"),
    [
        ((2, 3), (3, -1), "copy"),
        ((2, 3), (0, 3), "copy"),
        ((2, 3), (-1, 0), "copy"),
        ((1, 1), (), "copy"),
        ((0, 3), (3, 0), "literal"),
        ((0, 3), (-1, 5), "copy"),
    ],
)
def test_oracles_of_onnx_give_the_same(version: int, shape: Any, target: Any, zeros: str, tmp_path: Path) -> None:
    """SEMANTICS: Reshape, ONNX: by onnxruntime and onnx.reference."""
    if zeros == "literal" and version < 14:
        return
    operator = reshape("onnx", version, f32(*shape), target, zeros)
    data = write(operator, LATE, tmp_path).read_bytes()
    ours = dovetail.run(tmp_path / "model.onnx", feeds(operator, LATE))["y0"]
    for oracle in (oracles.run_onnxruntime, oracles.run_reference):
        assert_bits(ours, np.asarray(oracle(data, feeds(operator, LATE))[0]))


@pytest.mark.parametrize(
    ("shape", "target", "zeros"),
    [((2, 3), (4, -1), "copy"), ((2, 3), (0, 4), "copy"), ((6,), (6, 0), "copy"), ((2, 3), (-1, -1), "copy")],
)
def test_onnxruntime_has_the_same_refusals(shape: Any, target: Any, zeros: str, tmp_path: Path) -> None:
    """SEMANTICS: Reshape, ONNX: refusals by onnxruntime."""
    operator = reshape("onnx", 14, f32(*shape), target, zeros)
    with pytest.raises(DovetailError):
        dovetail.run(write(operator, LATE, tmp_path), feeds(operator, LATE))
    with pytest.raises(Exception, match=r"(?i)reshape|shape"):
        oracles.run_onnxruntime((tmp_path / "model.onnx").read_bytes(), feeds(operator, LATE))


def test_openvino_gives_the_same(tmp_path: Path) -> None:
    """SEMANTICS: Reshape-1: by OpenVINO, cancelled zeros included."""
    for shape, target, zeros in (
        ((2, 3), (3, -1), "copy"),
        ((2, 3), (0, 3), "copy"),
        ((2, 3, 4), (-1, 0), "copy"),
        ((1, 1), (), "copy"),
        ((0, 3), (3, 0), "literal"),
        ((0, 3), (0, -1), "copy"),
        ((0, 3), (-1, 5), "copy"),
    ):
        operator = reshape("openvino", 1, f32(*shape), target, zeros)
        path = write(operator, KNOWN, tmp_path)
        (theirs,) = oracles.run_openvino_file(str(path), feeds(operator, KNOWN), ["y0"])
        assert_bits(dovetail.run(path, feeds(operator, KNOWN))["y0"], theirs, f"{shape} by {target}")
    assert NODE


@pytest.mark.parametrize(("tail", "sizes"), [([3], (2, 4)), ([-1], (5, 2)), ([1, 3], (0, 4))])
def test_a_target_of_sizes_without_zeros_that_copy_goes_to_onnx(tail: list[int], sizes: tuple[int, int], tmp_path: Path) -> None:
    """Sizes of the input are written as zeros that copy, whatever a 0 in the target means."""
    with dovetail.Builder("sizes") as b:
        x = b.input("x", "f32", ("n", "t", 3))
        target = b.Concat(b.Slice(b.Shape(x), [0], [2]), tail, axis=0)
        b.output("y", b.add(Reshape(special_zero=False, empty="cancel"), b.Multiply(x, 2.0), target)[0])
    dovetail.save(b.model, tmp_path / "model.onnx")
    given = {"x": np.arange(3 * sizes[0] * sizes[1], dtype=np.float32).reshape(*sizes, 3)}
    (theirs,) = oracles.run_onnxruntime((tmp_path / "model.onnx").read_bytes(), given)
    assert_bits(dovetail.run(b.model, given)["y"], theirs, f"{sizes}")
    assert_bits(dovetail.run(tmp_path / "model.onnx", given)["y"], theirs, f"{sizes}, read back")
