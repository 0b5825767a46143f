"""The native engine in bf16 and int8: the bits of f32 where an operator multiplies nothing, else within the bound of rounding.

With u = 2^-8, the unit roundoff of bf16, and v = 2^-24, that of f32, a product of rounded operands with sums of ``depth`` terms
in f32 is at most ((1 + u)^2 - 1 + 2 depth v) times the product of magnitudes away from one of f32 (Higham, Accuracy and Stability
of Numerical Algorithms, chapter 3). Rows of 8 bits are at most half a step of a block's greatest magnitude / 127 away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from case_laws import hold, law
from case_runner import feeds, model_of
from cases import Case
from dovetail.compare.arrays import same_bits
from dovetail.engine.engine import Engine
from dovetail.ir import dtypes
from dovetail.ir.evaluate import apply
from dovetail.ir.host import native_core
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.ops.attention.group_query_attention import GroupQueryAttention
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose
from dovetail.ops.quantization.matmul_nbits import MatMulNBits

Array = np.ndarray[Any, Any]
U, V = 2.0**-8, 2.0**-24
ROUNDED = (1 + U) ** 2 - 1

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


def wide(xs: Sequence[Any]) -> list[Any]:
    """Return the inputs with floats in f64."""
    return [x if x is None or not dtypes.dtype(x.dtype).is_float else np.asarray(x).astype(np.float64) for x in xs]


def magnitudes(xs: Sequence[Any]) -> list[Any]:
    return [x if x is None or x.dtype != np.float64 else np.abs(x) for x in wide(xs)]


def bound_of_product(case: Case, precision: str) -> Array:
    """Return the bound of an operator that is one product, from the operator on magnitudes."""
    op: Any = case.op
    if isinstance(op, Gemm):
        op = op.with_(alpha=abs(op.alpha), beta=abs(op.beta))
    if precision == "int8":
        return np.zeros(())
    ones = [x if x is None or x.dtype != np.float64 else np.ones_like(x) for x in wide(case.inputs[:2])]
    plain = op.with_(alpha=1.0, beta=1.0) if isinstance(op, Gemm) else op
    (depths,) = apply(plain, np, ones)
    (sums,) = apply(op, np, magnitudes(case.inputs))
    return np.asarray((ROUNDED + 2 * (float(np.max(depths, initial=0)) + 4) * V) * sums)


def bound_of_blocks(case: Case, precision: str) -> Array:
    """Return the bound of MatMulNBits, whose weights are its product with a matrix of ones on the diagonal."""
    op: Any = case.op
    _, *weights = case.inputs[:5]
    (w,) = apply(op, np, [np.eye(op.k), *wide(weights)])
    x = np.asarray(case.inputs[0]).astype(np.float64)
    bias = np.abs(np.asarray(case.inputs[5]).astype(np.float64)) if len(case.inputs) > 5 and case.inputs[5] is not None else 0.0
    products = np.abs(x) @ np.abs(w)
    sums = 2 * (op.k + 4) * V * (products + bias)
    if precision == "bf16":
        return np.asarray(ROUNDED * products + sums)
    steps = np.zeros_like(x)
    for start in range(0, op.k, op.block_size):
        part = slice(start, start + op.block_size)
        steps[..., part] = np.abs(x[..., part]).max(-1, keepdims=True, initial=0) / 254
    return np.asarray((1 + U) * steps @ np.abs(w) + sums)


def bound_of_attention(case: Case, precision: str) -> Array:
    """Return the bound of attention: scores within e change weights by a factor of at most exp(2 e).

    The scores of a query and a key are at most the product of their norms, which a rotation of positions keeps.
    """
    if precision == "int8":
        return np.zeros(())
    op: Any = case.op
    xs = wide(case.inputs)
    if isinstance(op, GroupQueryAttention):
        heads, kv = op.num_heads, op.kv_num_heads
        size = xs[0].shape[-1] // (heads if xs[1] is not None else heads + 2 * kv)
        rows = [xs[0].reshape(-1, size), *(x.reshape(-1, size) for x in (xs[1], xs[3]) if x is not None)]
        values, past = 2, 4
        if xs[2] is None:
            xs[0] = xs[0].copy()
            xs[0][..., -kv * size :] = np.abs(xs[0][..., -kv * size :])
    else:
        is_flat = isinstance(op, Attention) and xs[0].ndim == 3
        sizes = (xs[0].shape[-1] // (op.q_num_heads if is_flat else 1), xs[1].shape[-1] // (op.kv_num_heads if is_flat else 1))
        rows = [xs[0].reshape(-1, sizes[0]), xs[1].reshape(-1, sizes[1])]
        if isinstance(op, Attention) and len(xs) > 4 and xs[4] is not None:
            rows.append(xs[4].reshape(-1, sizes[1]))
        values, past = 2, 5 if isinstance(op, Attention) else len(xs)
        size = sizes[0]
    scale = getattr(op, "scale", None) or 1 / np.sqrt(size)
    if isinstance(op, ScaledDotProductAttention) and len(xs) > 4 and xs[4] is not None:
        scale = float(np.abs(xs[4]).max())
    norms = [float(np.sqrt((row**2).sum(-1)).max(initial=0)) for row in rows]
    error = (ROUNDED + 2 * (size + 4) * V) * norms[0] * max(norms[1:] or norms) * abs(scale)
    for place in (values, past):
        if place < len(xs) and xs[place] is not None:
            xs[place] = np.abs(xs[place])
    sums = apply(op, np, xs)[0]
    return np.asarray((np.exp(2 * error) * (1 + U) ** 2 - 1 + 1e-5) * np.abs(sums))


BOUNDS: dict[type, Callable[[Case, str], Array]] = {
    **dict.fromkeys((Conv, ConvTranspose, GroupConv, GroupConvTranspose, MatMul, Gemm), bound_of_product),
    MatMulNBits: bound_of_blocks,
    **dict.fromkeys((Attention, ScaledDotProductAttention, GroupQueryAttention), bound_of_attention),
}
"""Maps each operator that multiplies matrices to the bound of its first output; other outputs have the bits of f32."""


@law()
def check_precisions(case: Case) -> None:
    """Each case twice: with all operands computed, and with all operands but the first constant."""
    constants = tuple(range(1, len(case.inputs)))
    for form in (case, replace(case, constants=constants)) if constants else (case,):
        model, given = model_of(form), feeds(form)
        exact = flatten_outputs(dict(Engine(model, 2, precision="f32")(given)))
        for precision in ("bf16", "int8"):
            found = flatten_outputs(dict(Engine(model, 2, precision=precision)(given)))
            assert found.keys() == exact.keys()
            for place, (name, want) in enumerate(exact.items()):
                bound = BOUNDS.get(type(case.op)) if place == 0 else None
                assert_within(found[name], want, None if bound is None else bound(case, precision), f"{precision}: {name}")


def assert_within(found: Any, want: Any, bound: Array | None, name: str) -> None:
    """Assert equal bits, or floats within ``bound`` and two roundings to their type."""
    found, want = np.asarray(found), np.asarray(want)
    assert (found.shape, found.dtype) == (want.shape, want.dtype), name
    if bound is None or not np.any(bound) or not dtypes.dtype(want.dtype).is_float:
        assert same_bits(found, want).all(), name
        return
    y, exact = found.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(y[~finite], exact[~finite], name)
    kind = dtypes.dtype(want.dtype).name
    unit = {"f16": 2.0**-11, "bf16": U, "f32": V}.get(kind, V)
    limit = np.broadcast_to(bound, exact.shape) * (1 + unit) + 2 * unit * np.abs(exact) + 1e-30
    apart = np.abs(y - exact)[finite]
    assert (apart <= limit[finite]).all(), f"{name}: {float((apart / limit[finite]).max()):.3g} of the bound"


test_case = hold(check_precisions)
