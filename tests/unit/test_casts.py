"""Floats out of an integer type's range: toward zero within it, its nearest value beyond, NaN to 0, wherever a cast is run."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

import dovetail
from cases.cast import INTEGERS, edges, named
from dovetail.ir import arrays, dtypes

FLOATS = ("f64", "f32", "f16", "bf16")
PAIRS = [(source, target) for source in FLOATS for target in INTEGERS]


def expected(x: Any, target: str) -> list[int]:
    """By Python's own integers; fewer than 8 bits are the low bits of the i64, rounded to nearest even."""
    kind = named(target)
    low, high = (kind if kind.bits >= 8 else dtypes.i64).range()

    def one(value: float) -> int:
        if math.isnan(value):
            return 0
        rounded = (math.trunc if kind.bits >= 8 else round)(value) if math.isfinite(value) else 0
        whole = min(max(rounded, low), high) if math.isfinite(value) else low if value < 0 else high
        return whole if kind.bits >= 8 else (whole - kind.range()[0]) % 2**kind.bits + kind.range()[0]

    return [one(float(value)) for value in x.astype(np.float64).tolist()]


def whole(y: Any) -> list[int]:
    return [int(item) for item in np.asarray(y).reshape(-1)]


def cast(source: str, target: str, through: str = "") -> dovetail.Model:
    with dovetail.Builder() as b:
        x = b.input("x", source, ("n",))
        b.output("y", b.Cast(getattr(b, through)(x) if through else x, to=named(target)))
    return b.model


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_float_out_of_range_saturates_in_both_engines(source: str, target: str) -> None:
    x = edges(source, target)
    for through in ("", "Identity", "Negative"):
        model = cast(source, target, through)
        wanted = expected(-x if through == "Negative" else x, target)
        for engine in ("interpreter", "native"):
            assert whole(dovetail.run(model, {"x": x}, engine)["y"]) == wanted, (through, engine)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_folded_cast_saturates(source: str, target: str) -> None:
    x = edges(source, target)
    with dovetail.Builder(fold=True) as b:
        b.output("y", b.Cast(b.constant(x), to=named(target)))
    assert whole(dovetail.run(b.model, {})["y"]) == expected(x, target)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1000])
@pytest.mark.parametrize("target", INTEGERS[:8])
def test_every_length_of_a_vector_saturates(target: str, count: int) -> None:
    for source in ("f32", "f64"):
        x = np.resize(edges(source, target), count)
        assert whole(dovetail.run(cast(source, target), {"x": x})["y"]) == expected(x, target)


@pytest.mark.parametrize("library", ["array_api_compat.torch", "jax.numpy"])
@pytest.mark.parametrize("target", INTEGERS[:8])
def test_every_library_saturates(library: str, target: str) -> None:
    pytest.importorskip(library.split(".")[-1] if "compat" in library else library.split(".")[0])
    xp: Any = importlib.import_module(library)
    for source in FLOATS[:3]:
        x = edges(source, target)
        try:
            y = arrays.to_numpy(arrays.cast(xp, arrays.from_numpy(xp, x), named(target)))
        except dovetail.UnsupportedError:
            continue
        assert whole(y) == expected(x, target), source


def test_integers_wrap_as_before() -> None:
    x = np.array([300, -1, 2**31, -(2**31) - 1, 2**63 - 1], np.int64)
    for target in INTEGERS[:8]:
        for engine in ("interpreter", "native"):
            with dovetail.Builder() as b:
                b.output("y", b.Cast(b.input("x", "i64", (5,)), to=named(target)))
            y = dovetail.run(b.model, {"x": x}, engine)["y"]
            np.testing.assert_array_equal(y, x.astype(named(target).numpy))


def test_every_element_but_0_casts_to_true() -> None:
    x = np.array([0.0, -0.0, 0.3, -1e30, np.nan, np.inf], np.float32)
    for engine in ("interpreter", "native"):
        y = dovetail.run(cast("f32", "boolean"), {"x": x}, engine)["y"]
        assert y.tolist() == [False, False, True, True, True, True] and y.dtype == dtypes.boolean.numpy
