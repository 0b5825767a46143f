"""Constants that a tool folds in f32 equal the operators that they replace within a bound of rounding, and no other constants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_check
from dovetail.compare.prove.real_terms import FOLDED
from dovetail.compare.rounding.rounding_functions import evaluate_with_error
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.unary import Exp, Tanh
from dovetail.ops.linalg.matmul import MatMul

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
ROW = RNG.standard_normal(32).astype(np.float32)
WEIGHTS = RNG.standard_normal((32, 8)).astype(np.float32)

FOLDS: dict[str, tuple[Callable[..., Any], Callable[[type[np.floating[Any]]], Array]]] = {
    "Exp": (lambda b: b.Exp(b.constant(ROW[:8])), lambda kind: np.exp(ROW[:8].astype(kind))),
    "chain": (lambda b: b.Tanh(b.Exp(b.constant(ROW[:8])) * 3), lambda kind: np.tanh(np.exp(ROW[:8].astype(kind)) * kind(3))),
    "MatMul": (
        lambda b: b.MatMul(b.constant(ROW), b.constant(WEIGHTS)) + ROW[:8],
        lambda kind: ROW.astype(kind) @ WEIGHTS.astype(kind) + ROW[:8].astype(kind),
    ),
    "cubic Resize": (
        lambda b: b.Reshape(b.Resize(b.constant(ROW.reshape(1, 1, 4, 8)), np.int64([1, 1, 3, 8]), mode="cubic"), [3, 1, 8]),
        lambda kind: resize(ROW.reshape(1, 1, 4, 8).astype(kind), (3, 8)).reshape(3, 1, 8),
    ),
}


def resize(image: Array, sizes: tuple[int, int]) -> Array:
    torch = pytest.importorskip("torch")
    return np.asarray(torch.nn.functional.interpolate(torch.from_numpy(image), sizes, mode="bicubic").numpy())


def save_both(name: str, constant: Array, folder: Path) -> list[Path]:
    """Save a model with the operators of a fold, and a model with a constant in their place."""
    paths = [folder / "a.dt", folder / "b.dt"]
    for path, value in zip(paths, (FOLDS[name][0], lambda b: b.constant(constant)), strict=True):
        with dovetail.Builder() as b:
            b.output("y", b.Relu(b.input("x", "f32", ("n", 8)) * value(b)))
        dovetail.save(b.model, path)
    return paths


def with_ulps(constant: Array, count: int) -> Array:
    """Return a constant whose first element is ``count`` ulp larger."""
    changed = constant.astype(np.float32)
    changed.flat[0] += count * np.spacing(np.abs(changed.flat[0]))
    return changed


@pytest.mark.parametrize("name", FOLDS)
def test_a_constant_one_ulp_apart_is_the_folded_one(name: str, tmp_path: Path) -> None:
    paths = save_both(name, with_ulps(FOLDS[name][1](np.float64), 1), tmp_path)
    proof = dovetail.prove(*paths, real=True)
    assert proof.verdict == "real"
    assert FOLDED in proof.rewrites
    assert dovetail.prove(*paths).verdict == "open"
    certificate = proof.certificate()
    dovetail.check_certificate(certificate, *paths)
    if name == "Exp":
        # The checker compares folded constants by units in the last place, without a bound for other operators.
        assert dovetail_check.check(paths[0], paths[1], certificate).kind == "real"


@pytest.mark.parametrize("name", FOLDS)
def test_another_constant_is_not_the_folded_one(name: str, tmp_path: Path) -> None:
    changed = FOLDS[name][1](np.float64).astype(np.float32)
    changed.flat[0] += 2.0**-14 * np.max(np.abs(changed))
    assert not dovetail.prove(*save_both(name, changed, tmp_path), real=True).is_proved


def test_two_stored_constants_one_ulp_apart_are_not_equal(tmp_path: Path) -> None:
    paths = [tmp_path / "a.dt", tmp_path / "b.dt"]
    for path, count in zip(paths, (0, 1), strict=True):
        with dovetail.Builder() as b:
            b.output("y", b.Relu(b.input("x", "f32", ("n", 8)) * with_ulps(ROW[:8], count)))
        dovetail.save(b.model, path)
    assert not dovetail.prove(*paths, real=True).is_proved


def test_a_folded_constant_is_in_no_sum_that_cancels(tmp_path: Path) -> None:
    constant = with_ulps(FOLDS["Exp"][1](np.float64), 1)
    paths = [tmp_path / "a.dt", tmp_path / "b.dt"]
    for path, value in zip(paths, (FOLDS["Exp"][0], lambda b: b.constant(constant)), strict=True):
        with dovetail.Builder() as b:
            x, large = b.input("x", "f32", ("n", 8)), FOLDS["Exp"][1](np.float64).astype(np.float32)
            b.output("y", (x + value(b) - large) * 1e9)
        dovetail.save(b.model, path)
    assert not dovetail.prove(*paths, real=True).is_proved


def test_terms_that_cancel_are_not_equal_by_a_near_constant() -> None:
    """In f32 (x * (1 + e) - x) * 1e7 is 1.19 * x, and (x - x) * 1e7 is 0, although 1e7 * (1 + e) is 1e7 up to rounding."""
    models = []
    for factor in (np.float32(1) + np.finfo(np.float32).eps, np.float32(1)):
        with dovetail.Builder() as b:
            x = b.input("x", "f32", ("n", 3))
            b.output("y", b.Subtract(b.Multiply(x, factor), b.Multiply(x, np.float32(1))) * np.float32(1e7))
        models.append(b.model)
    assert not dovetail.prove(*models, real=True).is_proved


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_holds_for_evaluations_in_f32(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((3, 40), (40, 5)))
    wide, error = x.astype(np.float64), np.zeros(x.shape)
    narrow: Array = x
    for op, other in ((Multiply(), np.float32(0.3)), (Exp(), None), (Add(), np.float32(0.7)), (Tanh(), None), (MatMul(), w)):
        operands = [wide] if other is None else [wide, other.astype(np.float64)]
        errors = [error] if other is None else [error, np.zeros(np.shape(other))]
        found = evaluate_with_error(op, operands, errors)
        if found is None:
            # The bound is too large relative to the elements.
            assert isinstance(op, MatMul)
            return
        wide, error = found
        match op:
            case Multiply():
                narrow = narrow * other
            case Exp():
                narrow = np.exp(narrow)
            case Add():
                narrow = narrow + other
            case Tanh():
                narrow = np.tanh(narrow)
            case _:
                narrow = narrow @ w
        assert narrow.dtype == np.float32
        assert np.all(np.abs(narrow - wide) <= error)
