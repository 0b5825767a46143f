"""Random graphs that split, compute and join in the native engine, under the verifier: the bits of the interpreter.

Parts of a Split (or Slices, transposed, reshaped) are joined again in and out of order, with other tensors between them, by
several Concats, and in nested blocks; some are computed in between, so that they may be written in place or over dead parts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from assertions import assert_same_bits
from dovetail.engine.engine import Engine
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value
from dovetail.runtime.interpreter.interpret import interpret

GRAPHS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def computed(draw: Any, b: Builder, x: Value) -> Value:
    """Return a tensor of the same shape, by exact operators: elementwise ones may overwrite what they read, a pooling may not."""
    match draw(st.sampled_from(("negate", "twice", "residual", "pool"))):
        case "negate":
            return b.Negative(x)
        case "twice":
            return b.Negative(b.Add(x, x))
        case "residual":
            # The product adds the residual in its epilogue; a permutation matrix keeps it exact.
            size = int(x.shape[-1])
            return b.Add(x, b.MatMul(b.Negative(x), np.roll(np.eye(size, dtype=np.float32), 1, axis=0)))
        case _:
            return b.MaxPool(x, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))


def parts_of(draw: Any, b: Builder, x: Value, axis: int) -> list[Value]:
    size = int(x.shape[axis])
    count = draw(st.integers(2, 3)) if size > 2 else 2
    equal = size % count == 0 and draw(st.booleans())
    lengths = [size // count] * count if equal else [1, *([1] if count == 3 else []), size - count + 1]
    if draw(st.booleans()):
        return list(b.Split(x, lengths, axis=axis, outputs=count))
    bounds = np.cumsum([0, *lengths]).tolist()
    return [b.Slice(x, [start], [end], [axis]) for start, end in pairwise(bounds)]


def moved(draw: Any, b: Builder, x: Value) -> Value:
    """Return the same elements by way of views."""
    match draw(st.sampled_from(("as is", "as is", "transposed", "flat"))):
        case "transposed":
            return b.Transpose(b.Transpose(x, [0, 2, 3, 1]), [0, 3, 1, 2])
        case "flat":
            return b.Reshape(b.Reshape(x, [int(np.prod(x.shape))]), list(x.shape))
        case _:
            return x


def block(draw: Any, b: Builder, x: Value, depth: int) -> Value:
    """Split, compute some parts, join: the shape of the result differs from that of ``x`` along one axis only."""
    axis = draw(st.integers(0, 3).filter(lambda axis: int(x.shape[axis]) > 1))
    parts = parts_of(draw, b, x, axis)
    pieces = [moved(draw, b, part) for part in parts]
    for place, part in enumerate(parts):
        what = draw(st.sampled_from(("keep", "keep", "replace", "append", "nest")))
        if what == "replace":
            pieces[place] = computed(draw, b, part)
        elif what == "append":
            pieces.append(computed(draw, b, pieces[-1]) if pieces[-1].shape == part.shape else computed(draw, b, part))
        elif what == "nest" and depth and max(int(size) for size in part.shape) > 1:
            nested = block(draw, b, computed(draw, b, part), depth - 1)
            others = [place for place in range(4) if place != axis]
            pieces += [nested] if all(nested.shape[place] == part.shape[place] for place in others) else []
    match draw(st.sampled_from(("in order", "in order", "permuted", "subset", "repeated"))):
        case "permuted":
            pieces = draw(st.permutations(pieces))
        case "subset":
            pieces = pieces[draw(st.integers(0, 1)) :]
        case "repeated":
            pieces.append(pieces[0])
    y = b.Concat(*pieces, axis=axis)
    if draw(st.booleans()):
        # A second target that wants the same parts.
        b.output(f"z{len(b.graph.outputs)}", b.Negative(b.Concat(*pieces[::-1], *parts[:1], axis=axis)))
    return y


@st.composite
def models(draw: Any) -> Model:
    with Builder("parts") as b:
        shape = draw(st.sampled_from(((1, 4, 2, 3), (2, 6, 2, 2), (2, 4, 3, 1), (1, 3, 4, 2))))
        y = b.input("x", "f32", shape)
        if draw(st.booleans()):
            y = computed(draw, b, y)
        for _ in range(draw(st.integers(1, 3))):
            if max(int(size) for size in y.shape) > 1 and np.prod(y.shape) < 2000:
                y = block(draw, b, y, 1)
            if draw(st.booleans()):
                y = computed(draw, b, y)
        b.output("y", y)
    return b.model


@GRAPHS
@given(models(), st.sampled_from(("auto", "all", "none")))
def test_split_computed_and_joined_again(model: Model, elide: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, model.inputs[0].shape).astype(np.float32)
    expected = interpret(model, {"x": x})
    engine = Engine(model, threads=2, elide=elide)
    for _ in range(2):
        found = engine({"x": x})
        for name, array in expected.items():
            # The sign of a zero that a product sums up is left open.
            assert_same_bits(found[name] + 0.0, array + np.float32(0.0), f"{elide}: {name}")
