"""Random graphs of moves in the native engine, under the checker: the same bits, whatever is planned away.

``pytest tests/laws/test_native_graphs.py --hypothesis-profile=long`` tries ten thousand of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from assertions import assert_same_bits
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model, Node
from dovetail.ir.rewrite import rewrite
from dovetail.runtime.compilation import compile
from strategies import Moved, movements

GRAPHS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
ELIDE = st.sampled_from(("auto", "all", "none"))


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def assert_gives(model: Model, moved: Moved, elide: str, inputs: dict[str, Any]) -> None:
    program = compile(model, "native", elide=elide, threads=2)
    for _ in range(2):
        found = program(inputs)
        for name, array in moved.outputs.items():
            assert_same_bits(found[name], array, f"{elide}: {name}")


@GRAPHS
@given(movements(), ELIDE)
def test_moves_of_inputs(moved: Moved, elide: str) -> None:
    assert_gives(moved.model, moved, elide, moved.inputs)


@GRAPHS
@given(movements(), ELIDE, st.lists(st.booleans(), min_size=8, max_size=8))
def test_moves_between_computations(moved: Moved, elide: str, computed: list[bool]) -> None:
    model = _with_computations(moved.model, computed)
    if model is not None:
        assert_gives(model, moved, elide, moved.inputs)


@GRAPHS
@given(movements(), ELIDE)
def test_inputs_that_are_not_contiguous(moved: Moved, elide: str) -> None:
    turned = {name: _spread(array) for name, array in moved.inputs.items()}
    assert_gives(moved.model, moved, elide, turned)


def _spread(array: Any) -> Any:
    """Return the same elements, each axis backwards in memory and with room between."""
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return view


def _with_computations(model: Model, computed: Sequence[bool]) -> Model | None:
    """Some moves read what was computed: their input, negated twice. None for a type that is not negated exactly."""
    if any(value.dtype.name not in ("f32", "f64", "i32", "i64") for value in model.inputs):
        return None
    new = copy_model(model)
    wanted = iter([*computed, *[True] * len(new.graph.nodes)])

    def rule(b: Builder, node: Node) -> Any:
        x = node.inputs[0] if node.inputs else None
        if x is None or x.constant is not None or not next(wanted):
            return None
        return b.add(node.op, b.Negative(b.Negative(x)), *node.inputs[1:])

    rewrite(new.graph, rule)
    return new
