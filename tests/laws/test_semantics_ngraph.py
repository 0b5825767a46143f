"""nGraph's operators by the rules of their documents. Each test names its rule after SEMANTICS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import ngraph
from dovetail.errors import DovetailError, RuleError
from dovetail.ir import dtypes
from dovetail.ngraph import Constant, Function, Parameter, v1
from single_node_models import IR_TYPES, ONNX_TYPES, assert_bits, elements, moved

EVERY_TYPE = tuple(dict.fromkeys((*ONNX_TYPES, *IR_TYPES)))
Make = Callable[..., ngraph.Node]


def f32(*shape: int, start: int = 0) -> Any:
    return elements("f32", int(np.prod(shape)), start).reshape(shape)


def i64(*items: int) -> Constant:
    return Constant("i64", (len(items),), list(items))


def holds(make: Make, xs: Sequence[Any], *expected: Any, is_late: bool = False) -> None:
    """Check that the node of ``make`` for these inputs gives ``expected`` in check, in inference, at run time and in both
    formats, with sizes known and open; and its constants are what it gives at run time. ``is_late``: inputs decide the shape.
    """
    for way in ("known", "open", "no rank"):
        sizes = [{"known": x.shape, "open": (None,) * x.ndim, "no rank": None}[way] for x in xs]
        parameters = [Parameter(x.dtype, shape, f"x{index}") for index, (x, shape) in enumerate(zip(xs, sizes, strict=True))]
        node = make(*parameters)
        assert node.as_constants() == []
        node.validate_and_infer_types()
        function = Function(node.outputs(), parameters)
        assert dovetail.check(function) == []
        for model in (function, *trips(function)):
            found = dovetail.run(model, xs)
            assert [y.name for y in model.outputs] == list(found.keys())
            for value, y, theirs in zip(model.outputs, found.values(), expected, strict=True):
                assert_bits(y, theirs, way)
                if way == "known" and not is_late:
                    assert value.type.shape == theirs.shape
        if way == "known" and not is_late:
            assert [each.get_shape() for each in node.outputs()] == [each.shape for each in expected]
            assert {each.get_element_type() for each in node.outputs()} == {dtypes.dtype(expected[0].dtype)}
    constants = make(*(Constant(x.dtype, x.shape, x) for x in xs)).as_constants()
    for constant, theirs in zip(constants, expected, strict=True):
        assert_bits(constant.data, theirs, "as constants")


def trips(function: Function) -> list[dovetail.Model]:
    """Return the function as saved in each format and loaded again."""
    import tempfile

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("m.onnx", "m.xml"):
            path = Path(folder) / name
            dovetail.save(function, path)
            assert dovetail.check(path) == []
            found.append(dovetail.load(path))
    return found


def refused(make: Make, xs: Sequence[Any], code: str, *, late: str | None = None) -> None:
    """Construction refuses with ``code``; where sizes are open, a run does at the latest, here and converted (``late``: with
    that code)."""
    with pytest.raises(RuleError) as caught:
        make(*(Parameter(x.dtype, x.shape, f"x{index}") for index, x in enumerate(xs)))
    assert caught.value.code == code
    with pytest.raises(RuleError) as caught:
        make(*(Constant(x.dtype, x.shape, x) for x in xs))
    assert caught.value.code == code
    if late is None:
        return
    for rankless in (False, True):
        parameters = [Parameter(x.dtype, None if rankless else (None,) * x.ndim, f"x{index}") for index, x in enumerate(xs)]
        try:
            function = Function(make(*parameters).outputs(), parameters)
        except RuleError as error:
            assert error.code == code
            continue
        with pytest.raises(DovetailError) as failed:
            dovetail.run(function, xs)
        assert failed.value.code == late, failed.value
        for model in trips(function):
            with pytest.raises(DovetailError):
                dovetail.run(model, xs)


def concat(axis: int) -> Make:
    return lambda *xs: ngraph.Concat(xs, axis)


@pytest.mark.parametrize(
    ("axis", "shapes"), [(0, [(2,), (3,)]), (1, [(2, 1), (2, 3)]), (-1, [(2, 1), (2, 3)]), (-2, [(1, 2), (2, 2)]), (0, [(2, 3)])]
)
def test_concat_joins_its_arguments_along_the_axis(axis: int, shapes: Any) -> None:
    """SEMANTICS: nGraph Concat: axis required, accept [-R, R-1]; one input is a copy."""
    xs = [f32(*shape, start=index) for index, shape in enumerate(shapes)]
    holds(concat(axis), xs, moved(lambda *xs: np.concatenate(xs, axis), *xs))


def test_concat_is_its_definition() -> None:
    """SEMANTICS: ruling 2: args[j] is meant in s(i), and t takes the coordinate on the concatenation axis."""
    axis = 1
    args = [f32(2, size, 3, start=size) for size in (2, 0, 1, 3)]

    def s(i: int) -> int:
        return sum(args[j].shape[axis] for j in range(i))

    def t(coordinate: int) -> int:
        return max(j for j in range(len(args)) if coordinate >= s(j) and args[j].shape[axis])

    output = np.empty((2, s(len(args)), 3), np.float32)
    for c in np.ndindex(output.shape):
        j = t(c[axis])
        p = tuple(c[i] - s(j) if i == axis else c[i] for i in range(3))
        output[c] = args[j][p]
    holds(concat(axis), args, output)


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_concat_moves_any_type_and_folds_it_bit_for_bit(name: str) -> None:
    """SEMANTICS: nGraph Concat: types any; as_constants may decline, it may never be wrong: bit for bit the run-time value."""
    x, y = elements(name, 6).reshape(2, 3), elements(name, 10, 6).reshape(2, 5)
    expected = moved(lambda *xs: np.concatenate(xs, 1), x, y)
    parameters = [Parameter(name, x.shape), Parameter(name, y.shape)]
    function = Function(ngraph.Concat(parameters, 1), parameters)
    (ours,) = dovetail.run(function, [x, y]).values()
    assert_bits(ours, expected)
    (constant,) = ngraph.Concat([Constant(name, x.shape, x), Constant(name, y.shape, y)], 1).as_constants()
    assert constant.get_element_type() is dtypes.dtype(name)
    assert_bits(constant.data, expected)


def test_concat_needs_an_argument_and_no_scalar() -> None:
    """SEMANTICS: at least one input; no scalar, not even alone."""
    with pytest.raises(RuleError) as caught:
        ngraph.Concat([], 0)
    assert caught.value.code == "node.inputs"
    scalar = np.float32(1).reshape(())
    refused(concat(0), [scalar], "shape.rank", late="shape.rank")
    refused(concat(0), [scalar, scalar], "shape.rank", late="shape.rank")


@pytest.mark.parametrize("axis", [2, -3, 2**32, 2**32 + 1])
def test_concat_checks_its_axis_as_a_64_bit_value(axis: int) -> None:
    """SEMANTICS: check the axis as a 64-bit value (2^32 must not pass as 0)."""
    refused(concat(axis), [f32(2, 2), f32(2, 2)], "axis.range", late="axis.range")


@pytest.mark.parametrize("axis", [2**63, -(2**63) - 1, 1.0, "1", None, True, np.float32(1)])
def test_the_axis_is_an_integer(axis: Any) -> None:
    """SEMANTICS: axis required; check the axis as a 64-bit value."""
    x = Parameter("f32", None)
    for make in (
        concat(axis),
        lambda x: ngraph.Split(x, axis, 2),
        lambda x: v1.Split(x, axis, 2),
        lambda x: v1.VariadicSplit(x, axis, [1, 1]),
    ):
        with pytest.raises(RuleError) as caught:
            make(x)
        assert caught.value.code == "argument.type" if axis is not None else True
    with pytest.raises(TypeError):
        ngraph.Concat([x])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("xs", "axis", "code"),
    [
        ([f32(2, 3), f32(2)], 0, "shape.rank"),
        ([f32(2, 3), f32(2, 4)], 0, "shape.disagree"),
        ([f32(2, 3), f32(0, 4)], 0, "shape.disagree"),
        ([f32(0), f32(2, 3)], 0, "shape.rank"),
        ([f32(2, 3), f32(1, 3)], 1, "shape.disagree"),
    ],
)
def test_the_arguments_of_concat_agree_off_the_axis(xs: Any, axis: int, code: str) -> None:
    """SEMANTICS: same rank, same dims off the axis; an empty input still has to agree; no broadcasting."""
    refused(concat(axis), xs, code, late=code)


def test_the_arguments_of_concat_have_one_type() -> None:
    """SEMANTICS: same type; no type promotion."""
    refused(concat(0), [f32(2), f32(2).astype(np.float64)], "type.disagree", late="type.disagree")


@pytest.mark.parametrize(("axis", "shapes"), [(0, [(2, 3), (0, 3)]), (0, [(0,), (0,)]), (1, [(0, 3), (0, 1)])])
def test_a_zero_length_input_of_concat_is_fine(axis: int, shapes: Any) -> None:
    """SEMANTICS: a zero-length input of Concat is fine."""
    xs = [f32(*shape) for shape in shapes]
    holds(concat(axis), xs, np.concatenate(xs, axis))


def test_an_axis_sum_past_2_63_is_an_error() -> None:
    """SEMANTICS: an axis sum past 2^63-1 is an error."""
    x = Parameter("i8", (2**62,))
    with pytest.raises(RuleError) as caught:
        ngraph.Concat([x, x], 0)
    assert caught.value.code == "shape.range"
    assert ngraph.Concat([x, Parameter("i8", (2**62 - 1,))], 0).get_shape() == (2**63 - 1,)


def test_the_concatenation_axis_is_not_negative_once_the_rank_is_known() -> None:
    """SEMANTICS: get_concatenation_axis() is non-negative once the rank is known."""
    x, y = Parameter("f32", (2, 3)), Parameter("f32", None)
    assert [ngraph.Concat([x, x], axis).get_concatenation_axis() for axis in (0, 1, -1, -2)] == [0, 1, 1, 0]
    assert ngraph.Concat([y, x], -1).get_concatenation_axis() == 1
    assert ngraph.Concat([y, y], -1).get_concatenation_axis() == -1
    assert ngraph.Concat([y, y], 1).get_concatenation_axis() == 1
    assert ngraph.Concat([x, x], np.int8(-1)).get_concatenation_axis() == 1


def test_validate_and_infer_types_raises_where_the_node_is_invalid() -> None:
    """SEMANTICS: validate_and_infer_types() raises if the node is invalid. Construction validates."""
    x, y = Parameter("f32", (2, 3)), Parameter("f32", (3, 3))
    node = ngraph.Concat([x, x], 1)
    node.arguments[1] = y.output(0)
    with pytest.raises(RuleError) as caught:
        node.validate_and_infer_types()
    assert caught.value.code == "shape.disagree"
    node.arguments[1] = Parameter("f32", (2, 5)).output(0)
    node.validate_and_infer_types()
    assert node.get_shape() == (2, 8)


def test_constants_follow_through_nodes_and_stop_at_parameters() -> None:
    """SEMANTICS: as_constants() returns the constants that can replace the node's outputs or an empty list."""
    x = f32(2, 3)
    constant = Constant("f32", (2, 3), x)
    nested = ngraph.Concat([ngraph.Reshape(constant, [1, 0], [2, 3]), constant], 0)
    (found,) = nested.as_constants()
    assert_bits(found.data, np.concatenate([x.T.reshape(2, 3), x]))
    assert ngraph.Concat([constant, Parameter("f32", (2, 3))], 0).as_constants() == []
    first, second = ngraph.Split(constant, 0, 2).as_constants()
    assert_bits(first.data, x[:1]), assert_bits(second.data, x[1:])
    assert constant.as_constants() == [constant]
    deep: ngraph.Node = Constant("f32", (1,), [1.0])
    for _ in range(60):
        deep = ngraph.Slice(ngraph.Concat([deep, deep], 0), [1], [2])
    assert [each.data.tolist() for each in deep.as_constants()] == [[1.0]]


def test_backprop_slices_the_incoming_gradient() -> None:
    """SEMANTICS: backprop by slicing; a value in several slots gets the sum."""
    x, y = Parameter("f32", (2, 3), "x"), Parameter("f32", (2, 2), "y")
    joined = ngraph.Concat([x, y, x], 1)
    delta = Parameter("f32", (2, 8), "delta")
    found = ngraph.adjoints(joined, delta)
    function = Function([found[x], found[y]], [x, y, delta])
    g = np.arange(16, dtype=np.float32).reshape(2, 8)
    first, second = dovetail.run(function, [f32(2, 3), f32(2, 2), g]).values()
    assert_bits(first, g[:, :3] + g[:, 5:])
    assert_bits(second, g[:, 3:5].copy())


@pytest.mark.parametrize(
    ("shape", "order", "target"),
    [
        ((2, 3), (0, 1), (3, 2)),
        ((2, 3), (1, 0), (3, 2)),
        ((2, 3), (1, 0), (6,)),
        ((2, 3, 4), (2, 0, 1), (8, 3)),
        ((1,), (0,), ()),
        ((), (), (1, 1)),
        ((0, 3), (1, 0), (0, 7)),
    ],
)
def test_reshape_0_is_a_transpose_and_then_a_reshape(shape: Any, order: Any, target: Any) -> None:
    """SEMANTICS: Reshape v0: a transpose by input_order (a permutation), then a reshape; volumes equal."""
    x = f32(*shape)
    holds(lambda x: ngraph.Reshape(x, order, target), [x], np.ascontiguousarray(x.transpose(order)).reshape(target))


@pytest.mark.parametrize(
    ("order", "target", "code"),
    [
        ((0,), (6,), "axis.repeated"),
        ((0, 0), (6,), "axis.repeated"),
        ((0, 2), (6,), "axis.repeated"),
        ((0, -1), (6,), "axis.repeated"),
        ((0, 1, 2), (6,), "axis.repeated"),
        ((0, 1), (5,), "reshape.volume"),
        ((0, 1), (0, 6), "reshape.volume"),
        ((0, 1), (), "reshape.volume"),
        ((0, 1), (-1,), "reshape.target"),
        ((1, 0), (2, -1), "reshape.target"),
    ],
)
def test_reshape_0_needs_a_permutation_and_equal_volumes(order: Any, target: Any, code: str) -> None:
    """SEMANTICS: Reshape v0: input_order a permutation; volumes equal."""
    with pytest.raises(RuleError) as caught:
        ngraph.Reshape(Parameter("f32", (2, 3)), order, target)
    assert caught.value.code == code
    late = "reshape.volume" if code == "reshape.volume" else None
    refused(lambda x: ngraph.Reshape(x, order, target), [f32(2, 3)], code, late=late)


def test_reshape_0_of_an_unknown_rank_checks_the_rank_at_run_time() -> None:
    """SEMANTICS: Reshape v0: input_order is a permutation of the input's axes."""
    x = Parameter("f32", None)
    function = Function(ngraph.Reshape(x, (0, 1), (6,)), [x])
    assert_bits(next(iter(dovetail.run(function, [f32(2, 3)]).values())), f32(2, 3).reshape(6))
    for model in (function, *trips(function)):
        with pytest.raises(DovetailError):
            dovetail.run(model, [f32(1, 2, 3)])


def reshape_1(special_zero: bool) -> Make:
    return lambda x, pattern: v1.Reshape(x, pattern, special_zero)


@pytest.mark.parametrize(
    ("shape", "pattern", "special_zero", "result"),
    [
        ((2, 3), (3, -1), True, (3, 2)),
        ((2, 3), (0, -1), True, (2, 3)),
        ((2, 3, 4), (-1, 0), True, (8, 3)),
        ((2, 3), (3, -1), False, (3, 2)),
        ((0, 3), (3, 0), False, (3, 0)),
        ((0, 3), (0, -1), True, (0, 0)),
        ((0, 3), (-1, 5), True, (0, 5)),
        ((2, 0), (0, -1), True, (2, 0)),
        ((1, 1), (), False, ()),
        ((0,), (0,), True, (0,)),
    ],
)
def test_reshape_1_is_openvinos_with_one_difference(shape: Any, pattern: Any, special_zero: bool, result: Any) -> None:
    """SEMANTICS: Reshape v1: as OpenVINO's, except that [0,3] by [0,-1] with copied zeros is [0,0]."""
    x = f32(*shape)
    holds(lambda x: v1.Reshape(x, i64(*pattern), special_zero), [x], x.reshape(result))
    holds(reshape_1(special_zero), [x, np.array(pattern, dtype=np.int64)], x.reshape(result), is_late=True)


@pytest.mark.parametrize(
    ("shape", "pattern", "special_zero", "code"),
    [
        ((2, 3), (-1, -1), True, "reshape.target"),
        ((2, 3), (-2, 3), False, "reshape.target"),
        ((6,), (6, 0), True, "reshape.target"),
        ((2, 3), (0, 4), True, "reshape.volume"),
        ((2, 3), (4, -1), False, "reshape.volume"),
        ((0, 3), (0, -1), False, "reshape.target"),
        ((2, 3), (0, 6), False, "reshape.volume"),
    ],
)
def test_reshape_1_has_the_refusals_of_openvino(shape: Any, pattern: Any, special_zero: bool, code: str) -> None:
    """SEMANTICS: Reshape v1: as OpenVINO's."""
    with pytest.raises(RuleError) as caught:
        v1.Reshape(Parameter("f32", shape), i64(*pattern), special_zero)
    assert caught.value.code == code
    with pytest.raises(RuleError) as caught:
        v1.Reshape(Parameter("f32", shape), Constant("u64", (1,), [2**64 - 1]), special_zero)
    x, target = Parameter("f32", None, "x"), Parameter("i64", None, "target")
    function = Function(v1.Reshape(x, target, special_zero), [x, target])
    for model in (function, *trips(function)):
        with pytest.raises(DovetailError):
            dovetail.run(model, [f32(*shape), np.array(pattern, dtype=np.int64)])


def test_a_pattern_of_0_needs_special_zero() -> None:
    """SEMANTICS: Reshape v1: a pattern [0] without special_zero is refused."""
    with pytest.raises(RuleError) as caught:
        v1.Reshape(Parameter("f32", (0, 3)), i64(0), False)
    assert caught.value.code == "reshape.target"
    x, target = Parameter("f32", (0, 3)), Parameter("i64", (1,))
    with pytest.raises(RuleError) as caught:
        dovetail.run(Function(v1.Reshape(x, target, False), [x, target]), [f32(0, 3), np.array([0])])
    assert caught.value.code == "reshape.target"
    holds(lambda x: v1.Reshape(x, i64(0, 0), False), [f32(0, 3)], f32(0, 0))


def cut(lows: Any, highs: Any, strides: Any = None) -> Make:
    return lambda x: ngraph.Slice(x, lows, highs, strides)


@pytest.mark.parametrize(
    ("shape", "lows", "highs", "strides"),
    [
        ((5,), (1,), (4,), None),
        ((5,), (0,), (5,), (2,)),
        ((5,), (1,), (5,), (3,)),
        ((4, 6), (1, 0), (3, 6), (1, 4)),
        ((4, 6), (4, 2), (4, 2), None),
        ((0,), (0,), (0,), (7,)),
        ((5,), (0,), (5,), (2**40,)),
        ((), (), (), ()),
    ],
)
def test_slice_takes_every_stride_th_element_between_its_bounds(shape: Any, lows: Any, highs: Any, strides: Any) -> None:
    """SEMANTICS: Slice v0: lower <= upper <= dim; strides >= 1; result ceil((upper - lower) / stride)."""
    x = f32(*shape)
    steps = strides or (1,) * len(lows)
    expected = np.ascontiguousarray(x[tuple(slice(*each) for each in zip(lows, highs, steps, strict=True))]).reshape(
        [-(-(high - low) // step) for low, high, step in zip(lows, highs, steps, strict=True)]
    )
    holds(cut(lows, highs, strides), [x], expected)


@pytest.mark.parametrize(
    ("lows", "highs", "strides", "code"),
    [
        ((0, 0), (5, 6), None, "attribute.range"),
        ((3, 0), (2, 6), None, "attribute.range"),
        ((-1, 0), (4, 6), None, "attribute.range"),
        ((5, 0), (5, 6), None, "attribute.range"),
        ((0, 0), (4, 7), (1, 2), "attribute.range"),
        ((0, 0), (4, 6), (0, 1), "attribute.range"),
        ((0, 0), (4, 6), (1, -1), "attribute.range"),
        ((0,), (4,), None, "attribute.length"),
        ((0, 0), (4,), None, "attribute.length"),
        ((0, 0), (4, 6), (1,), "attribute.length"),
        ((0, 0, 0), (1, 1, 1), None, "attribute.length"),
    ],
)
def test_the_bounds_of_slice_are_checked_never_clamped(lows: Any, highs: Any, strides: Any, code: str) -> None:
    """SEMANTICS: Slice v0: bounds are checked, never clamped; lower <= upper <= dim; strides >= 1."""
    is_late = code == "attribute.range" and min(strides or (1,)) > 0
    refused(cut(lows, highs, strides), [f32(4, 6)], code, late="split.sizes" if is_late else None)


def test_slice_of_an_unknown_rank_checks_rank_and_bounds_at_run_time() -> None:
    """SEMANTICS: Slice v0: bounds are checked, never clamped."""
    x = Parameter("f32", None)
    function = Function(ngraph.Slice(x, (0,), (2,)), [x])
    for model in (function, *trips(function)):
        assert_bits(next(iter(dovetail.run(model, [f32(3)]).values())), f32(3)[:2].copy())
        for wrong in (f32(1), f32(3, 3), np.float32(1).reshape(())):
            with pytest.raises(DovetailError):
                dovetail.run(model, [wrong])


@pytest.mark.parametrize("make", [ngraph.Split, v1.Split])
def test_split_into_equal_pieces(make: Any) -> None:
    """SEMANTICS: Split v0: the axis is a scalar constant. Split v1 as OpenVINO's."""
    x = f32(4, 6)
    for axis in (1, -1, np.int64(1), Constant("i32", (), 1), Constant("i64", (), -1)):
        holds(lambda x, axis=axis: make(x, axis, 3), [x], *(np.ascontiguousarray(each) for each in np.split(x, 3, 1)))
    refused(lambda x: make(x, 0, 3), [x], "shape.multiple")
    refused(lambda x: make(x, 2, 3), [x], "axis.range")
    refused(lambda x: make(x, 0, 0), [x], "split.sizes")
    refused(lambda x: make(x, 0, 1.5), [x], "argument.type")
    refused(lambda x: make(x, 0, 1), [np.float32(1).reshape(())], "shape.rank")
    for wrong in (Constant("i64", (1,), [1]), Constant("f32", (), 1.0), Parameter("i64", ())):
        refused(lambda x, axis=wrong: make(x, axis, 3), [x], "argument.type")


def test_split_0_into_given_lengths() -> None:
    """SEMANTICS: Split v0: explicit lengths must be > 0."""
    x = f32(4, 6)
    holds(lambda x: ngraph.Split(x, 1, [1, 2, 3]), [x], *(np.ascontiguousarray(each) for each in np.split(x, [1, 3], 1)))
    for wrong in ([0, 6], [-1, 7], [6, -1]):
        refused(lambda x, lengths=wrong: ngraph.Split(x, 1, lengths), [x], "split.sizes")
    refused(lambda x: ngraph.Split(x, 1, [1, 2]), [x], "split.sizes", late="split.sizes")
    refused(lambda x: ngraph.Split(x, 1, [1.5, 4.5]), [x], "argument.type")


def test_variadic_split_takes_a_remainder() -> None:
    """SEMANTICS: VariadicSplit as OpenVINO's: axis a scalar or [1], one -1 = the remainder, zero lengths are fine."""
    x = f32(4, 6)
    pieces = [np.ascontiguousarray(each) for each in np.split(x, [1, 3], 1)]
    for axis in (1, -1, Constant("i32", (), 1), Constant("i64", (1,), [-1])):
        holds(lambda x, axis=axis: v1.VariadicSplit(x, axis, [1, 2, -1]), [x], *pieces)
    holds(lambda x: v1.VariadicSplit(x, 1, Constant("u8", (2,), [0, 6])), [x], x[:, :0], x)
    holds(lambda x: v1.VariadicSplit(x, 0, [4, -1]), [x], x, x[:0])
    for wrong in ([-1, -1], [7, -1], [5, 2], [-2, 8]):
        refused(
            lambda x, lengths=wrong: v1.VariadicSplit(x, 1, lengths),
            [x],
            "split.sizes",
            late="split.sizes" if wrong[0] > 0 else None,
        )
    refused(lambda x: v1.VariadicSplit(x, Constant("i64", (2,), [0, 1]), [1, -1]), [x], "argument.type")
    refused(lambda x: v1.VariadicSplit(x, 1, Constant("i64", (), 6)), [x], "split.sizes")
    refused(lambda x: v1.VariadicSplit(x, 1, Parameter("i64", None)), [x], "split.sizes")
    lengths = Parameter("i64", (2,), "lengths")
    parameter = Parameter("f32", (4, 6), "x")
    node = v1.VariadicSplit(parameter, 1, lengths.output(0))
    function = Function(node.outputs(), [parameter, lengths])
    for model in (function, *trips(function)):
        first, second = dovetail.run(model, [x, np.array([-1, 2])]).values()
        assert_bits(first, np.ascontiguousarray(x[:, :4])), assert_bits(second, np.ascontiguousarray(x[:, 4:]))
        with pytest.raises(DovetailError):
            dovetail.run(model, [x, np.array([-1, 7])])


def test_elements_that_do_not_fit_their_type_are_refused() -> None:
    """SEMANTICS: ruling 7: types are never promoted or narrowed."""
    for kind, data in (
        ("i8", [128]),
        ("u8", [-1]),
        ("i4", [8]),
        ("u1", [2]),
        ("i32", [1.5]),
        ("i64", [2.0**63]),
        ("i64", [np.nan]),
    ):
        with pytest.raises(RuleError) as caught:
            Constant(kind, (1,), data)
        assert caught.value.code == "constant.data"
    for shape, data in (((2,), [1, 2, 3]), ((0,), [1, 2]), ((2, 2), [1, 2, 3])):
        with pytest.raises(RuleError) as caught:
            Constant("i64", shape, data)
        assert caught.value.code == "constant.data"
    for shape in ((-1,), (2, -3)):
        with pytest.raises(RuleError) as caught:
            Constant("f32", shape, 1.0)
        assert caught.value.code == "shape.range"
    assert Constant("f32", (2, 2), 1.0).data.tolist() == [[1, 1], [1, 1]]


def test_arithmetic_does_not_broadcast() -> None:
    """nGraph's version 0 of Add, Subtract, Multiply: the shapes are equal."""
    x, y = Parameter("f32", ("n",)), Parameter("f32", ("m",))
    for node, function in ((x + y, np.add), (x - y, np.subtract), (x * y, np.multiply)):
        model = Function(node, [x, y])
        a, b = np.float32([1, 2]), np.float32([3, 5])
        assert_bits(next(iter(dovetail.run(model, [a, b]).values())), function(a, b))
    with pytest.raises(RuleError):
        ngraph.Add(Parameter("f32", (2,)), Parameter("f32", (1,)))
