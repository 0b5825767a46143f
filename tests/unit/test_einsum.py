"""Einsum where a size is open beside a known one, or beside another open one: numpy's einsum knows the answer."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from assertions import assert_close
from dovetail.errors import DovetailError
from dovetail.ops.linalg.einsum import Einsum

_SIZES = {"b": 2, "i": 3, "j": 4, "k": 5, "d": 3}
EQUATIONS = ("bij,bjk->bik", "bijd,bjdk->bik", "ij,ij->", "ij,ij->i", "bid,bjd->bij", "ij,jk,ki->")
OPEN = {"one axis of the first": "x0.1", "the first": "x0", "all": "x"}


def model_of(equation: str, shapes: list[tuple[int, ...]], which: str, *, broadcast: bool, is_apart: bool) -> dovetail.Model:
    """Return the operator, or what it is taken apart into; axes whose name begins with ``which`` are open."""
    b = dovetail.Builder()
    xs = [
        b.input(f"x{index}", "f32", [None if f"x{index}.{axis}".startswith(which) else size for axis, size in enumerate(shape)])
        for index, shape in enumerate(shapes)
    ]
    op = Einsum(equation, broadcast)
    b.output("y", op.decompose(b, *xs) if is_apart else b.add(op, *xs)[0])
    return b.model


def inputs(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    return {f"x{index}": chance.standard_normal(shape).astype(np.float32) for index, shape in enumerate(shapes)}


@pytest.mark.parametrize("which", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_size_that_is_open_is_that_of_its_letter(equation: str, which: str) -> None:
    shapes = [tuple(_SIZES[letter] for letter in term) for term in equation.partition("->")[0].split(",")]
    given = inputs(shapes)
    wanted = np.einsum(equation, *given.values())
    for broadcast, is_apart in product((False, True), repeat=2):
        model = model_of(equation, shapes, which, broadcast=broadcast, is_apart=is_apart)
        for engine in ("interpreter", "native"):
            assert_close(dovetail.compile(model, engine)(given)["y"], wanted, 2e-6, engine)
        data = oracles_bytes(model)
        assert_close(oracles.run_onnxruntime(data, given)[0], wanted, 2e-6, f"onnxruntime, broadcast={broadcast}")
        slopes = [
            dovetail.run(
                dovetail.grad(each, wrt=["x0", "x1"]), {**given, "grad:y": np.ones_like(wanted)} if wanted.ndim else given
            )
            for each in (model, model_of(equation, shapes, "none", broadcast=broadcast, is_apart=False))
        ]
        for name, slope in slopes[0].items():
            assert_close(slope, slopes[1][name], 2e-6, name)


def oracles_bytes(model: dovetail.Model) -> bytes:
    from dovetail.formats.onnx import write

    found = write.save(model, None, opset=oracles.RUNTIME_OPSET)
    assert found is not None
    return found


@pytest.mark.parametrize("which", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk->ik", [(2, 1), (3, 4)]), ("ij,ij->", [(1, 3), (4, 1)]), ("bij,bjk->bik", [(2, 3, 4), (1, 1, 5)])],
)
def test_an_open_size_may_be_one_that_broadcasts(equation: str, shapes: list[tuple[int, ...]], which: str) -> None:
    given = inputs(shapes)
    wanted = np.einsum(equation, *given.values())
    for is_apart in (False, True):
        model = model_of(equation, shapes, which, broadcast=True, is_apart=is_apart)
        for engine in ("interpreter", "native"):
            assert_close(dovetail.compile(model, engine)(given)["y"], wanted, 2e-6, engine)
        assert_close(oracles.run_onnxruntime(oracles_bytes(model), given)[0], wanted, 2e-6, "onnxruntime")


@pytest.mark.parametrize(
    ("broadcast", "shapes"), [(False, [(2, 6), (3, 4)]), (True, [(2, 6), (3, 4)]), (False, [(1, 12), (3, 4)])]
)
def test_sizes_that_agree_only_as_a_product_are_refused(broadcast: bool, shapes: list[tuple[int, ...]]) -> None:
    given = inputs(shapes)
    model = model_of("ij,ij->", shapes, "x", broadcast=broadcast, is_apart=True)
    for engine in ("interpreter", "native"):
        with pytest.raises(DovetailError):
            dovetail.compile(model, engine)(given)
