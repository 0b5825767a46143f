"""Dims against brute force: whatever an expression becomes, its values are those of Python's integers."""

from __future__ import annotations

import copy
import itertools
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from dovetail.errors import FormatError
from dovetail.ir import symbolic
from dovetail.ir.symbolic import Dim, Inexact, symbol, xp

N, M, K = symbol("n"), symbol("m"), symbol("k")
P = symbol("p", 1)  # at least 1
X = symbol("x", None)  # any integer
Q = symbol("q", -7, 9)
R = symbol("r", None, -1)
SYMBOLS = {"n": N, "m": M, "k": K, "p": P, "x": X, "q": Q, "r": R}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": symbolic.minimum,
    "max": symbolic.maximum,
}

# An expression is an int, a name, or (operation, left, right); it is built as a Dim and, independently, computed.
Tree = Any


def trees(names: str = "nmkpxqr", numbers: int = 12) -> st.SearchStrategy[Tree]:
    leaves = st.one_of(st.sampled_from(list(names)), st.integers(-numbers, numbers))
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(sorted(BINARY)), inner, inner), max_leaves=8)


def assignments() -> st.SearchStrategy[dict[str, int]]:
    natural, near = st.integers(0, 40), st.integers(-40, 40)
    return st.fixed_dictionaries(
        {
            "n": natural,
            "m": natural,
            "k": natural,
            "p": st.integers(1, 40),
            "x": near,
            "q": st.integers(-7, 9),
            "r": st.integers(-40, -1),
        }
    )


def built(tree: Tree, symbols: dict[str, Dim] = SYMBOLS) -> int | Dim:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbols[tree]
    operation, left, right = tree
    try:
        result: int | Dim = BINARY[operation](built(left, symbols), built(right, symbols))
    except (ZeroDivisionError, Inexact):
        assume(False)
        raise
    return result


def computed(tree: Tree, values: dict[str, int]) -> int:
    """Evaluate with Python's integers. Division by zero has no value."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    operation, left, right = tree
    first, second = computed(left, values), computed(right, values)
    if operation in ("min", "max"):
        return (min if operation == "min" else max)(first, second)
    result: int = BINARY[operation](first, second)
    return result


def computed_or_skip(tree: Tree, values: dict[str, int]) -> int:
    try:
        return computed(tree, values)
    except ZeroDivisionError:
        assume(False)
        raise


# Values: no simplification changes one.


@settings(max_examples=1000)
@given(trees(), st.lists(assignments(), min_size=1, max_size=4))
def test_an_expression_has_the_values_of_its_tree(tree: Tree, points: list[dict[str, int]]) -> None:
    size = built(tree)
    assert isinstance(size, int) or size._terms, "what is constant is an int"
    for values in points:
        try:
            expected = computed(tree, values)
        except ZeroDivisionError:
            continue
        assert symbolic.evaluate(size, values) == expected
        low, high = symbolic.bounds(size)
        assert (low is None or low <= expected) and (high is None or expected <= high)


NESTED: list[Callable[[Any, Any, Any, Any], Any]] = [
    lambda n, p, q, r: n % 3 % 2,
    lambda n, p, q, r: (n % 6 + q) % 3,
    lambda n, p, q, r: n // 2 // r,
    lambda n, p, q, r: n // p // r,
    lambda n, p, q, r: n // r // p,
    lambda n, p, q, r: q // r // 3,
    lambda n, p, q, r: (q // -3 + n // 2) // 2,
    lambda n, p, q, r: (n // 2 + q // 3 + 1) // 2,
    lambda n, p, q, r: (6 * q - 4 * n + 5) // -4,
    lambda n, p, q, r: (6 * q - 4 * n + 5) % -4,
    lambda n, p, q, r: (2 * n * p + 3 * p + q) // (2 * p),
    lambda n, p, q, r: (n * p + q) % p,
    lambda n, p, q, r: -3 // (n + 1) + 3 // r,
]


@pytest.mark.parametrize("expression", NESTED)
def test_nested_divisions_are_exact_on_a_grid_of_points(expression: Callable[[Any, Any, Any, Any], Any]) -> None:
    size = expression(N, P, Q, R)
    low, high = symbolic.bounds(size)
    for n, p, q, r in itertools.product(range(9), range(1, 5), range(-7, 10), range(-4, 0)):
        expected = expression(n, p, q, r)
        assert symbolic.evaluate(size, {"n": n, "p": p, "q": q, "r": r}) == expected
        assert (low is None or low <= expected) and (high is None or expected <= high)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (N, (0, None)),
        (3 - N, (None, 3)),
        (-3 // (N + 1), (-3, -1)),
        (N % 5 + 1, (1, 5)),
        (Q * Q, (0, 81)),
        (Q % (N + 9), (0, None)),
        (P * symbol("s", 1) - P, (0, None)),
        (N - 2 * (N // 2), (0, 1)),
        (symbolic.minimum(N, 4) + symbolic.maximum(Q, 3), (3, 13)),
        (N - symbolic.minimum(N, 4), (0, None)),
        (5, (5, 5)),
    ],
)
def test_bounds_are_as_close_as_these(size: int | Dim, expected: tuple[int | None, int | None]) -> None:
    assert symbolic.bounds(size) == expected


@settings(max_examples=800)
@given(trees(), trees(), st.lists(assignments(), min_size=1, max_size=6))
def test_comparisons_agree_with_every_point(left: Tree, right: Tree, points: list[dict[str, int]]) -> None:
    a, b = built(left), built(right)
    equal, less, less_equal = symbolic.equal(a, b), symbolic.less(a, b), symbolic.less_equal(a, b)
    for values in points:
        try:
            x, y = computed(left, values), computed(right, values)
        except ZeroDivisionError:
            continue
        assert equal in (None, x == y)
        assert less in (None, x < y)
        assert less_equal in (None, x <= y)


@settings(max_examples=300)
@given(trees("nmp", 4), trees("nmp", 4), st.lists(assignments(), min_size=1, max_size=3))
def test_structural_equality_means_equal_values(left: Tree, right: Tree, points: list[dict[str, int]]) -> None:
    a, b = built(left), built(right)
    if a == b:
        assert hash(a) == hash(b) and str(a) == str(b) and symbolic.equal(a, b) is True
        for values in points:
            assert computed_or_skip(left, values) == computed_or_skip(right, values)


@settings(max_examples=300)
@given(trees(), trees("nmp", 5), assignments())
def test_substitution_is_evaluation_in_steps(tree: Tree, inner: Tree, values: dict[str, int]) -> None:
    # The bounds of x are all integers, so that anything may stand for it.
    value = computed_or_skip(inner, values)
    expected = computed_or_skip(tree, {**values, "x": value})
    replaced = symbolic.substitute(built(tree), {"x": built(inner)})
    assert symbolic.evaluate(replaced, values) == expected


@given(trees(), trees(), trees())
def test_the_normal_form_satisfies_the_ring_laws(left: Tree, middle: Tree, right: Tree) -> None:
    a, b, c = built(left), built(middle), built(right)
    try:
        assert a + b == b + a and a * b == b * a
        assert (a + b) + c == a + (b + c) and (a * b) * c == a * (b * c)
        assert a * (b + c) == a * b + a * c
        assert a - a == 0 and a + 0 == a and a * 1 == a and a * 0 == 0 and 0 - (0 - a) == a
        assert a - b == a + -b and (a * a if isinstance(a, int) else a**2) == a * a
    except Inexact:
        assume(False)


# Quotients


@settings(max_examples=300)
@given(trees("nmp", 6), trees("nmp", 6))
def test_a_product_divides_by_its_factors(left: Tree, right: Tree) -> None:
    a, b = built(left), built(right)
    assume(b != 0)
    try:
        whole = a * b
    except Inexact:
        assume(False)
    assert symbolic.exact_quotient(whole, b) == a


@settings(max_examples=300)
@given(trees("nmp", 6), trees("nmp", 6))
def test_an_exact_quotient_times_the_divisor_is_the_dividend(left: Tree, right: Tree) -> None:
    a, b = built(left), built(right)
    quotient = symbolic.exact_quotient(a, b)
    if quotient is not None:
        assert quotient * b == a


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (2 * N * M, N, 2 * M),
        (N * (N + 1), N, N + 1),
        (N * N - M * M, N + M, N - M),
        (6, 3, 2),
        (6, 4, None),
        (2 * N, 4, None),
        (0, N, 0),
        (N, 0, None),
        (5, N, None),
        (N + 1, N, None),
        (4 * (N // 2), N // 2, 4),
    ],
)
def test_exact_quotients(a: int | Dim, b: int | Dim, expected: int | Dim | None) -> None:
    assert symbolic.exact_quotient(a, b) == expected


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_ceil_divide_rounds_up(number: int, divisor: int) -> None:
    assert symbolic.ceil_divide(number, divisor) == -(-number // divisor)
    assert symbolic.evaluate(symbolic.ceil_divide(X, divisor), {"x": number}) == -(-number // divisor)


# Normal form and text

FORMS: list[tuple[int | Dim, str]] = [
    (N, "n"),
    (1 + 2 * N, "2*n + 1"),
    (N // 2 + 3, "n//2 + 3"),
    ((N + 1) // 2, "(n + 1)//2"),
    (symbolic.ceil_divide(N, 2), "(n + 1)//2"),
    (symbolic.ceil_divide(N, 4) * 4, "4*((n + 3)//4)"),
    (M * N, "m*n"),
    (N + M, "m + n"),
    (M - N, "m - n"),
    (N - M, "n - m"),
    (1 - N, "1 - n"),
    (-N, "-n"),
    (-N - M, "-m - n"),
    (-(N // 2), "-(n//2)"),
    (3 * (N // 2), "3*(n//2)"),
    (M * (N // 2), "m*(n//2)"),
    ((N // 2) ** 2, "(n//2)**2"),
    ((N - 1) ** 2, "n**2 - 2*n + 1"),
    (symbolic.minimum(4, N), "min(n, 4)"),
    (symbolic.maximum(N, M, 5), "max(m, n, 5)"),
    (symbolic.minimum(N, symbolic.minimum(M, 3), 2), "min(m, n, 2)"),
    (4 * N // 2, "2*n"),
    ((4 * N + 3) // 4, "n"),
    ((6 * N + 3) // 4, "(3*n + 1)//2"),
    (N // 2 // 3, "n//6"),
    ((N // 2 + 1) // 2, "(n + 2)//4"),
    ((N // 2 + M // 2) // 2, "(m//2 + n//2)//2"),
    ((N + 8) // 8, "n//8 + 1"),
    (N // 1, "n"),
    (N // -2, "-((n + 1)//2)"),
    (N % 1, "0"),
    (2 * N % 2, "0"),
    ((2 * N + 3) % 2, "1"),
    ((3 * N + 5) % 2, "(n + 1)%2"),
    (N % 4 % 2, "n%2"),
    (Q // 16, "q//16"),
    ((Q + 7) // 17, "0"),
    (N * M // M, "(m*n)//m"),
    (N * P // P, "n"),
    ((N * P + P + 3) // P, "n + 3//p + 1"),
    (N * R // R, "n"),
    (N // M, "n//m"),
    ((N + 1) // (M + 2), "(n + 1)//(m + 2)"),
    (7 // (N + 8), "0"),
    (N - N, "0"),
    (abs(N), "n"),
    (abs(R), "-r"),
    (symbolic.maximum(N, 0), "n"),
    (symbolic.minimum(N, N + 1), "n"),
    (symbolic.minimum(N, N // 2), "n//2"),
    (N**0, "1"),
    (N.__rfloordiv__(7), "7//n"),
    (7 % N, "7%n"),
    (symbol("batch size"), '"batch size"'),
    (symbol('a"b\\'), '"a\\"b\\\\"'),
    (symbol("min"), '"min"'),
    (symbol(""), '""'),
    (symbol("shape[0]") + 1, "shape[0] + 1"),
    (symbol("?conv.2"), "?conv.2"),
    (symbol("größe") * 2, "2*größe"),
    (symbol("unk__123"), "unk__123"),
    (symbol("seq+1"), '"seq+1"'),
]


@pytest.mark.parametrize(("size", "text"), FORMS, ids=[text for _, text in FORMS])
def test_an_expression_prints_as_people_write_it(size: int | Dim, text: str) -> None:
    assert str(size) == text == repr(size) == f"{size}"


@pytest.mark.parametrize("text", [text for _, text in FORMS])
def test_printed_forms_are_read_back(text: str) -> None:
    assert str(symbolic.parse(text)).count('"') == text.count('"')
    again = symbolic.parse(text)
    assert symbolic.parse(str(again)) == again


@settings(max_examples=300)
@given(trees("nmk"))
def test_parse_inverts_str(tree: Tree) -> None:
    size = built(tree)
    assert symbolic.parse(str(size)) == size


@settings(max_examples=300)
@given(trees())
def test_parse_reads_symbols_that_have_bounds(tree: Tree) -> None:
    size = built(tree)
    assert symbolic.parse(str(size), SYMBOLS.__getitem__) == size


@given(st.text(max_size=12))
def test_any_name_is_read_back(name: str) -> None:
    assert symbolic.name_of(symbolic.parse(str(symbol(name)))) == name


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=30), st.text(alphabet='nm12()+-*/%,min"\\ ', max_size=40)))
def test_any_text_is_an_expression_or_a_format_error(text: str) -> None:
    try:
        size = symbolic.parse(text)
    except FormatError as error:
        assert error.code == "dims.text"
    else:
        assert symbolic.parse(str(size)) == size


HOSTILE = {
    "nothing": "",
    "no second operand": "1 +",
    "two names": "n m",
    "open": "(n",
    "closed": "n)",
    "no arguments": "min()",
    "a function alone": "min",
    "a fraction": "1.5",
    "true division": "n/2",
    "an unknown exponent": "n**m",
    "a negative exponent": "n**-1",
    "a large exponent": "n**999",
    "zero": "1//0",
    "unknown over zero": "n//0",
    "an open quote": '"n',
    "an empty argument": "max(n,)",
    "a long number": "9" * 100,
    "deep": "(" * 500 + "n" + ")" * 500,
    "long": "+".join("n" * 9000),
    "a high degree": "n" + "*n" * 500,
    "a large power": "((2**64)**64)**64",
    "many terms": "*".join(["(a+b+c+d+e+f+g+h)"] * 60),
    "many arguments": "min(" + ",".join(f"v{index}" for index in range(100)) + ")",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match=r"dims\.text"):
        symbolic.parse(text)


def test_printing_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from dovetail.ir.symbolic import *; n, m, k = map(symbol, 'nmk');"
        "print((n + m//2 + k*n + 3)**2, minimum(n*m, k + 1, 3*m), symbols(k//n + m))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


@given(trees())
def test_a_dim_travels(tree: Tree) -> None:
    size = built(tree)
    again = pickle.loads(pickle.dumps(size))
    assert again == size and hash(again) == hash(size) and str(again) == str(size)
    assert copy.deepcopy(size) is size or isinstance(size, int)


# Questions


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (N, N, True),
        (N, N + 1, False),
        (N, 0, None),
        (P, 0, False),
        (2 * N, 3, False),
        (2 * N + 4 * M, 7, False),
        (N, M, None),
        (N, -1, False),
        (Q, 10, False),
        (3, 3, True),
        (N * M, 0, None),
        (P * symbol("s", 1), 0, False),
        (3 * N // 2, N + N // 2, True),
        (2 * (N // 2) + N % 2, N, True),
        (N % 2, N - 2 * (N // 2), True),
        (N % 8, 8, False),
        (symbol("c", 5, 5), 5, True),
        (symbol("n"), symbol("n", 1), None),
        (symbolic.minimum(N, 4), 5, False),
    ],
)
def test_equal(a: int | Dim, b: int | Dim, expected: bool | None) -> None:
    assert symbolic.equal(a, b) is expected
    assert symbolic.equal(b, a) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (N, N + 1, True),
        (N + 1, N, False),
        (-1, N, True),
        (N, 0, False),
        (0, N, None),
        (0, P, True),
        (2 * (N // 2), N + 1, True),
        (N, 4 * symbolic.ceil_divide(N, 4) + 1, True),
        (symbolic.minimum(N, 4), N + 1, True),
        (symbolic.maximum(N, M) + 1, M, False),
        (N % 3, 3, True),
        (P - 1, P * P, True),
        (P * symbol("s", 1), P, False),
        (symbolic.minimum(N, M), symbolic.maximum(N, M) + 1, True),
    ],
)
def test_less(a: int | Dim, b: int | Dim, expected: bool | None) -> None:
    assert symbolic.less(a, b) is expected
    if expected is not None:
        assert (a < b) is expected
        assert symbolic.less_equal(b, a) is (not expected)


def test_comparisons_that_bounds_do_not_decide_are_inexact() -> None:
    for question in (lambda: N < M, lambda: N > 3, lambda: M <= N, lambda: N >= 1, lambda: bool(N)):
        with pytest.raises(Inexact):
            question()
    for conversion in (int, float, operator.index, range):
        with pytest.raises(Inexact):
            conversion(N)
    assert bool(P) and not bool(symbol("zero", 0, 0)) and (N >= 0) and not (N < 0)
    assert N != 1.5 and N != "n"
    for number in (1.5, "n", None):
        with pytest.raises(TypeError):
            N + number


def test_division_by_zero_has_no_value() -> None:
    for operation in (operator.floordiv, operator.mod):
        with pytest.raises(Inexact):
            operation(N, 0)
        with pytest.raises(ZeroDivisionError):
            symbolic.evaluate(operation(N, M), {"n": 3, "m": 0})
    assert symbolic.product([0, N // M]) == 0


def test_numpy_integers_are_integers() -> None:
    for made in (N + np.int64(2), np.int64(2) + N, N * np.int32(1) + 2):
        assert made == N + 2
    assert type(symbolic.minimum(*[np.int64(3).item(), 4])) is int
    assert (N * np.array([1, 2])).tolist() == [N, 2 * N]


def test_symbols_are_found_in_the_order_of_printing() -> None:
    size = K // N + M * (X % 3) + 1
    assert [str(each) for each in symbolic.symbols(size)] == ["m", "x", "k", "n"]
    assert (
        symbolic.symbols(3) == ()
        and symbolic.name_of(N) == "n"
        and symbolic.name_of(N + 1) is None
        and symbolic.name_of(3) is None
    )
    assert symbol("n") == N and symbol("n", 1) != N
    with pytest.raises(ValueError, match="must not exceed"):
        symbol("n", 3, 2)
    with pytest.raises(Inexact, match="m, n"):
        symbolic.evaluate(N + M, {})


def test_expressions_stay_small_or_are_refused() -> None:
    growths: list[Callable[[Any], Any]] = [
        lambda size: size * size,
        lambda size: size * (size // 3 + M),
        lambda size: (size // M) % N,
        lambda size: size * 2**40,
        lambda size: symbolic.minimum(size * M, size // 5 + N),
    ]
    for grow in growths:
        size: Any = N + 1
        with pytest.raises(Inexact):
            for _ in range(1000):
                size = grow(size)


# Arrays

UNARY = {"negative": operator.neg, "abs": abs, "positive": operator.pos, "sign": lambda x: (x > 0) - (x < 0)}
ELEMENTWISE = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "floor_divide": "//",
    "remainder": "%",
    "minimum": "min",
    "maximum": "max",
}


def at(array: Any, values: dict[str, int]) -> Any:
    found = np.array([symbolic.evaluate(each, values) for each in np.asarray(array).reshape(-1).tolist()], dtype=np.int64)
    return found.reshape(np.shape(array))


VALUES = {"n": 6, "m": 3, "k": 0, "p": 5, "x": -4, "q": -7, "r": -2}
TABLE = [[N, 2, P], [X + 1, Q, N * M]]


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
@pytest.mark.parametrize("other", [[P, R, 4], [[2], [P]], 3, R])
def test_elementwise_functions_follow_numpy(name: str, other: Any) -> None:
    x, y = xp.asarray(TABLE), xp.asarray(other)
    ours = getattr(xp, name)(x, y)
    theirs = getattr(np, name)(at(x, VALUES), at(y, VALUES))
    assert isinstance(ours, symbolic.SymbolicArray)
    np.testing.assert_array_equal(at(ours, VALUES), theirs)
    # The operators of an array, and numpy's own functions on it, are the same.
    np.testing.assert_array_equal(at(getattr(np, name)(x, y), VALUES), theirs)
    if name not in ("minimum", "maximum"):
        np.testing.assert_array_equal(at(BINARY[ELEMENTWISE[name]](x, y), VALUES), theirs)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_array_follow_python(name: str) -> None:
    x = xp.asarray(TABLE)
    expected = [[UNARY[name](each) for each in row] for row in at(x, VALUES).tolist()]
    np.testing.assert_array_equal(at(getattr(xp, name)(x), VALUES), expected)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_follow_numpy(name: str, axis: Any, keepdims: bool) -> None:
    x = xp.asarray(TABLE)
    ours = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(at(ours, VALUES), getattr(np, name)(at(x, VALUES), axis=axis, keepdims=keepdims))


MOVES: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any], Any]]] = [
    ("reshape", lambda lib, x: lib.reshape(x, (3, 2)), lambda x: x.reshape(3, 2)),
    ("reshape -1", lambda lib, x: lib.reshape(x, (-1,)), lambda x: x.reshape(-1)),
    ("permute_dims", lambda lib, x: lib.permute_dims(x, (1, 0)), lambda x: x.T),
    ("expand_dims", lambda lib, x: lib.expand_dims(x, axis=1), lambda x: x[:, None]),
    ("squeeze", lambda lib, x: lib.squeeze(lib.expand_dims(x, axis=0), axis=0), lambda x: x),
    ("take", lambda lib, x: lib.take(x, np.array([2, 0]), axis=1), lambda x: x[:, [2, 0]]),
    ("flip", lambda lib, x: lib.flip(x, axis=1), lambda x: x[:, ::-1]),
    ("roll", lambda lib, x: lib.roll(x, 1, axis=1), lambda x: np.roll(x, 1, axis=1)),
    ("tile", lambda lib, x: lib.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1))),
    ("repeat", lambda lib, x: lib.repeat(x, 2, axis=0), lambda x: np.repeat(x, 2, axis=0)),
    ("broadcast_to", lambda lib, x: lib.broadcast_to(x, (4, 2, 3)), lambda x: np.broadcast_to(x, (4, 2, 3))),
    ("concat", lambda lib, x: lib.concat([x, x[:, :1], lib.asarray([[1], [2]])], axis=1), lambda x: np.c_[x, x[:, :1], [1, 2]]),
    ("stack", lambda lib, x: lib.stack([x, x], axis=-1), lambda x: np.stack([x, x], axis=-1)),
    ("cumulative_sum", lambda lib, x: lib.cumulative_sum(x, axis=1), lambda x: np.cumsum(x, axis=1)),
    ("where", lambda lib, x: lib.where(np.array([True, False, True]), x, 0), lambda x: np.where([True, False, True], x, 0)),
    ("broadcast_arrays", lambda lib, x: lib.broadcast_arrays(x, N)[1], lambda x: np.full((2, 3), 6)),
    ("pow", lambda lib, x: lib.pow(x, xp.asarray([0, 1, 3])), lambda x: x ** np.array([0, 1, 3])),
    ("slice", lambda lib, x: x[::-1, 1:], lambda x: x[::-1, 1:]),
    ("zeros_like", lambda lib, x: lib.zeros_like(x), np.zeros_like),
    ("full", lambda lib, x: lib.full((2, 2), N), lambda x: np.full((2, 2), 6)),
    ("arange", lambda lib, x: lib.arange(1, 9, 3), lambda x: np.arange(1, 9, 3)),
    ("clip", lambda lib, x: lib.clip(x, -2, 4), lambda x: np.clip(x, -2, 4)),
    ("astype", lambda lib, x: lib.astype(x, lib.int64), lambda x: x),
]


@pytest.mark.parametrize(("ours", "theirs"), [move[1:] for move in MOVES], ids=[move[0] for move in MOVES])
def test_moves_follow_numpy(ours: Callable[[Any, Any], Any], theirs: Callable[[Any], Any]) -> None:
    x = xp.asarray(TABLE)
    made = ours(xp, x)
    assert isinstance(made, symbolic.SymbolicArray)
    np.testing.assert_array_equal(at(made, VALUES), theirs(at(x, VALUES)))


COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


@pytest.mark.parametrize("name", sorted(COMPARISONS))
@settings(max_examples=60)
@given(left=trees("nmpq", 5), right=trees("nmpq", 5), values=assignments())
def test_a_comparison_of_arrays_is_right_or_inexact(name: str, left: Tree, right: Tree, values: dict[str, int]) -> None:
    x, y = xp.asarray([built(left)]), xp.asarray([built(right)])
    expected = COMPARISONS[name](computed_or_skip(left, values), computed_or_skip(right, values))
    for compare in (getattr(xp, name), getattr(np, name)):
        try:
            found = compare(x, y)
        except Inexact:
            continue
        assert found.dtype == bool and found.tolist() == [expected]


INEXACT: dict[str, Callable[[], Any]] = {
    "undecided ==": lambda: xp.asarray([N]) == 4,
    "undecided <": lambda: xp.asarray([N]) < M,
    "undecided where": lambda: xp.where(xp.asarray([N]), 1, 2),
    "undecided divisor": lambda: xp.floor_divide(xp.asarray([4]), N),
    "zero divisor": lambda: xp.remainder(xp.asarray([N]), 0),
    "true division": lambda: xp.asarray([3]) / 2,
    "a float": lambda: xp.asarray([N]) * 0.5,
    "a float array": lambda: xp.asarray(np.ones(3)),
    "astype float": lambda: xp.astype(xp.asarray([N]), np.float32),
    "astype int8": lambda: xp.astype(xp.asarray([N]), xp.int8),
    "astype unsigned": lambda: xp.astype(xp.asarray([N - 1]), xp.uint64),
    "astype wraps": lambda: xp.astype(xp.asarray([300]), xp.uint8),
    "wraps": lambda: xp.multiply(xp.asarray([2**40]), 2**40),
    "sum wraps": lambda: xp.sum(xp.asarray([2**63, 2**63])),
    "missing": lambda: xp.exp(xp.asarray([N])),
    "numpy's sin": lambda: np.sin(xp.asarray([N])),
    "numpy's unique": lambda: np.unique(xp.asarray([N, M])),
    "numpy's array_equal": lambda: np.array_equal(xp.asarray([N]), xp.asarray([M])),
    "add.reduce": lambda: np.add.reduce(xp.asarray([N, M])),
    "bounds of a slice": lambda: xp.asarray([1, 2, 3])[:N],
    "indices": lambda: xp.take(xp.asarray([1, 2, 3]), xp.asarray([N])),
    "index out of range": lambda: xp.take(xp.asarray([1, 2, 3]), [3]),
    "a shape": lambda: xp.reshape(xp.asarray([1, 2, 3]), (N,)),
    "a volume": lambda: xp.reshape(xp.asarray([1, 2, 3]), (2,)),
    "empty min": lambda: xp.min(xp.asarray([])),
    "axis": lambda: xp.sum(xp.asarray([N]), axis=1),
    "sort": lambda: np.sort(xp.asarray([N, M])),
    "huge zeros": lambda: xp.zeros((10**6, 10**6)),
    "huge broadcast": lambda: xp.broadcast_to(xp.asarray([N]), (10**12,)),
    "huge tile": lambda: xp.tile(xp.asarray([N]), (10**12,)),
    "huge repeat": lambda: xp.repeat(xp.asarray([N]), 10**12),
    "huge arange": lambda: xp.arange(10**12),
    "huge sum": lambda: xp.add(xp.zeros((1, 60000)), xp.zeros((60000, 1))),
    "unlike shapes": lambda: xp.concat([xp.asarray([N]), xp.asarray([[N]])]),
    "unlike sizes": lambda: xp.add(xp.asarray([N, M]), xp.asarray([N, M, K])),
    "text": lambda: xp.asarray(["n"]),
    "inexact quotient": lambda: xp.divide(xp.asarray([N]), 2),
}


@pytest.mark.parametrize("name", INEXACT)
def test_inexact_conversions_are_refused(name: str) -> None:
    with pytest.raises(Inexact):
        INEXACT[name]()


def test_truth_values_are_truth_values() -> None:
    x = xp.asarray([N, P, 0])
    assert (x >= 0).tolist() == [True, True, True] and (x[1:] == 0).tolist() == [False, True]
    assert xp.logical_not(x[1:]).tolist() == [False, True]
    assert xp.astype(x[1:], xp.bool).tolist() == [True, False]
    assert xp.astype(xp.asarray([True, False]), xp.int64).tolist() == [1, 0]
    assert bool(xp.all(x >= 0)) and not bool(xp.any(x < 0))
    assert xp.logical_xor(x[1:], [True, True]).tolist() == [False, True]
    assert xp.divide(xp.asarray([2 * N, 6]), 2).tolist() == [N, 3]


def test_concrete_values_are_python_integers() -> None:
    for array in (xp.asarray(np.array([1, 2], dtype=np.uint8)), xp.add(np.array([1]), 2), xp.sum(np.array([1, 2])), xp.zeros(3)):
        assert all(type(each) is int for each in array.reshape(-1).tolist())
    scalar = xp.add(xp.asarray(N), 1)
    assert scalar.shape == () and scalar[()] == N + 1
    x = xp.asarray([N, 1])
    x += 1
    assert x.tolist() == [N + 1, 2] and repr(x) == "SymbolicArray([n + 1, 2])"


def test_fits_is_a_three_valued_comparison() -> None:
    assert symbolic.fits(xp.asarray([1, 255]), 0, 255) is True
    assert symbolic.fits(xp.asarray([256]), 0, 255) is False
    assert symbolic.fits(xp.asarray([N]), 0, 255) is None
    assert symbolic.fits(xp.asarray([Q]), -128, 127) is True
    assert symbolic.fits(xp.asarray([R, 3]), 0, 255) is False
    assert symbolic.fits(xp.asarray([]), 0, 255) is True
