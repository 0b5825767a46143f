"""Products in bf16: convolutions and matrix products of operands that are rounded to bf16, against torch in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import dovetail
from dovetail import Builder, Model, Value
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A product: its model, and the function of torch that computes it from the operands."""

    model: Model
    oracle: Callable[..., Any]
    operands: dict[str, Array]
    """Inputs, and constants."""


def rounded(array: Array) -> Array:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def conv(
    shape: tuple[int, ...], outputs: int, kernel: tuple[int, ...], groups: int = 1, transposed: bool = False, **more: Any
) -> Case:
    """Return a convolution with weights of (outputs, channels of a group, *kernel). ``more``: strides, pads, dilations."""
    rng = np.random.default_rng(len(shape) + outputs)
    rank = len(kernel)
    x = rng.standard_normal(shape).astype(np.float32)
    sizes = (shape[1], outputs // groups) if transposed else (outputs, shape[1] // groups)
    w = rng.standard_normal((*sizes, *kernel)).astype(np.float32)
    strides, dilations = (more.get(name, [1] * rank) for name in ("strides", "dilations"))
    pad = more.get("pad", 0)
    with Builder() as b:
        build = b.ConvTranspose if transposed else b.Conv
        y = build(b.input("x", "f32", shape), w, group=groups, strides=strides, dilations=dilations, pads=[pad] * (2 * rank))
        b.output("y", y)
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    function = getattr(torch.nn.functional, name)
    return Case(
        b.model,
        lambda x, w: function(x, w, stride=strides, dilation=dilations, padding=pad, groups=groups),
        {"x": x, "w": w},
    )


def product(a: tuple[int, ...], b_shape: tuple[int, ...], *, constant: bool = True, transposed: bool = False) -> Case:
    """``a`` @ ``b_shape``, whose last axes are exchanged in memory if ``transposed``."""
    rng = np.random.default_rng(a[-1])
    x, w = rng.standard_normal(a).astype(np.float32), rng.standard_normal(b_shape).astype(np.float32)
    with Builder() as b:
        right: Value | Array = np.swapaxes(w, -1, -2).copy() if transposed else w
        if not constant:
            right = b.input("w", "f32", right.shape)
        if transposed:
            right = b.Transpose(right, [*range(len(b_shape) - 2), len(b_shape) - 1, len(b_shape) - 2])
        b.output("y", b.MatMul(b.input("x", "f32", a), right))
    given = {"x": x, "w": w}
    if not constant and transposed:
        return Case(b.model, lambda x, w: x @ w.swapaxes(-1, -2), {"x": x, "w": np.swapaxes(w, -1, -2).copy()})
    return Case(b.model, lambda x, w: x @ w, given)


CASES = {
    "image of 3 channels": conv((1, 3, 33, 30), 16, (7, 7), strides=[2, 2], pad=3),
    "pointwise": conv((2, 64, 14, 15), 96, (1, 1)),
    "pointwise with strides": conv((1, 33, 15, 15), 40, (1, 1), strides=[2, 2]),
    "odd channels": conv((1, 33, 15, 17), 17, (3, 3), pad=1),
    "few pixels": conv((1, 64, 7, 7), 70, (3, 3), pad=1),
    "many channels": conv((1, 600, 5, 5), 40, (3, 3), pad=1),
    "dilations": conv((1, 33, 15, 15), 17, (3, 3), pad=2, dilations=[2, 2]),
    "groups": conv((2, 32, 15, 15), 48, (3, 3), groups=8, pad=1),
    "groups of odd channels": conv((2, 24, 9, 9), 48, (3, 3), groups=8, pad=1),
    "three axes": conv((2, 7, 6, 9, 9), 16, (3, 3, 3), pad=1),
    "one axis": conv((2, 9, 50), 16, (5,), pad=2),
    "few outputs": conv((1, 16, 20, 64), 2, (3, 3), pad=1),
    "transposed": conv((1, 24, 9, 9), 18, (4, 4), strides=[2, 2], pad=1, transposed=True),
    "transposed with groups": conv((1, 24, 9, 9), 18, (3, 3), strides=[2, 2], groups=3, transposed=True),
    **{f"{rows} rows": product((rows, 100), (100, 70)) for rows in (1, 2, 3, 5, 14, 15, 40)},
    "odd depth": product((33, 301), (301, 129)),
    "depth of 1": product((33, 1), (1, 129)),
    "great depth": product((60, 4097), (4097, 33)),
    "batches": product((3, 4, 30, 64), (3, 4, 64, 50), constant=False),
    "batches transposed": product((3, 4, 30, 65), (3, 4, 65, 50), constant=False, transposed=True),
    "batches with constants": product((5, 30, 64), (5, 64, 17)),
    "few rows in batches": product((3, 4, 5, 64), (3, 4, 64, 50), constant=False),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_rounded_and_sums_are_not(name: str) -> None:
    """The engine computes the product of the rounded operands, or of the operands themselves, but for rounding sums in f32.

    On processors without bf16 the dot products are emulated. A product in f32 is permitted: where it is faster.
    """
    case = CASES[name]
    inputs = {each.name: case.operands[each.name] for each in case.model.inputs}
    engine = Engine(case.model, precision="bf16")
    found = engine(inputs)["y"]
    x, w = (torch.from_numpy(array.astype(np.float64)) for array in case.operands.values())
    low_x, low_w = (torch.from_numpy(rounded(array)) for array in case.operands.values())
    magnitudes = case.oracle(x.abs(), w.abs())
    depth = float((case.oracle(torch.ones_like(x), torch.ones_like(w))).max())
    bound = (depth + 1) * 2.0**-24 * magnitudes + 1e-35
    of_rounded = (torch.from_numpy(found.astype(np.float64)) - case.oracle(low_x, low_w)).abs()
    of_operands = (torch.from_numpy(found.astype(np.float64)) - case.oracle(x, w)).abs()
    is_rounded, is_exact = bool((of_rounded <= bound).all()), bool((of_operands <= bound).all())
    assert is_rounded or is_exact, f"{float((of_rounded / bound).max()):.3g} of the bound"
    assert is_rounded or name not in ROUNDED
    assert not engine.bind(inputs)[0].python_steps


ROUNDED = ("image of 3 channels", "pointwise", "groups", "three axes", "40 rows", "batches", "batches with constants")
"""Cases whose operands are rounded on every processor. Others may be computed in f32, by Winograd's algorithm for instance."""


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("rows", "depth"), [(3, 96), (30, 96), (70, 3300)])
def test_weights_of_few_bits_are_rounded_after_decoding(bits: int, rows: int, depth: int) -> None:
    """Few rows are multiplied in f32; for more, decoded weights and rows are rounded."""
    rng = np.random.default_rng(bits)
    columns, block = 70, 32
    count = -(-depth // block)
    codes = rng.integers(0, 256, (columns, count, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.02, (columns, count)).astype(np.float32)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    with Builder() as b:
        y = b.MatMulNBits(b.input("x", "f32", ("n", depth)), codes, scales, k=depth, n=columns, bits=bits, block_size=block)
        b.output("y", y)
    found = Engine(b.model, precision="bf16")({"x": x})["y"]
    weights = dovetail.interpret(b.model, {"x": np.eye(depth, dtype=np.float32)})["y"]
    operands = (x, weights) if rows <= 4 else (rounded(x), rounded(weights))
    want, magnitudes = (np.matmul(*(f(array.astype(np.float64)) for array in operands)) for f in (np.asarray, np.abs))
    assert (np.abs(found - want) <= (depth + 1) * 2.0**-24 * magnitudes).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-40, 3.4e38])
def test_extreme_elements(value: float) -> None:
    """An element beyond the range of bf16 becomes infinite; NaN and infinities stay in their rows and windows."""
    for case in (product((3, 40), (40, 33)), conv((1, 24, 6, 6), 33, (3, 3), pad=1)):
        x, w = case.operands.values()
        x.flat[3] = value
        found = Engine(case.model, precision="bf16")({"x": x})["y"]
        with np.errstate(all="ignore"):
            want = case.oracle(*(torch.from_numpy(rounded(array)) for array in (x, w))).to(torch.float32).numpy()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        finite = np.isfinite(want)
        np.testing.assert_allclose(found[finite], want[finite], rtol=1e-4, atol=1e-4)


def test_normalization_before_a_convolution_is_rounded_once() -> None:
    """BatchNormalization and Relu before a convolution are computed in f32 and rounded with the copy of its input."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 37, 9, 9)).astype(np.float32), rng.standard_normal((20, 37, 1, 1)).astype(np.float32)
    scale, shift = (rng.standard_normal((1, 37, 1, 1)).astype(np.float32) for _ in range(2))
    for kernel in ((1, 1), (3, 3)):
        weights = np.broadcast_to(w, (20, 37, *kernel)).copy()
        with Builder() as b:
            y = b.Relu(b.Add(b.Multiply(b.input("x", "f32", x.shape), scale), shift))
            b.output("y", b.Conv(y, weights))
        found = Engine(b.model, precision="bf16")({"x": x})["y"]
        activated = rounded(np.maximum(x * scale + shift, 0))
        want = torch.nn.functional.conv2d(torch.from_numpy(activated), torch.from_numpy(rounded(weights))).numpy()
        np.testing.assert_allclose(found, want, rtol=0, atol=0.02)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("hidden", [33, 64])
def test_recurrent_layers_round_their_states_for_the_product_alone(cell: str, batch: int, hidden: int) -> None:
    rng = np.random.default_rng(hidden)
    steps, width, gates = 4, 24, 4 if cell == "LSTM" else 3
    x = rng.standard_normal((steps, batch, width)).astype(np.float32)
    w, r = (rng.standard_normal((1, gates * hidden, size)).astype(np.float32) * 0.2 for size in (width, hidden))
    bias = rng.standard_normal((1, 2 * gates * hidden)).astype(np.float32)
    with Builder() as b:
        given = b.input("x", "f32", x.shape)
        y = b.LSTM(given, w, r, bias) if cell == "LSTM" else b.GRU(given, w, r, bias, linear_before_reset=True)
        b.output("y", y[0])
    engine = Engine(b.model, precision="bf16")
    found = engine({"x": x})["y"].reshape(steps, batch, hidden)
    assert not engine.bind({"x": x})[0].python_steps

    # ONNX orders the gates i, o, f, c and z, r, h; torch i, f, c, o and r, z, h.
    order = [0, 2, 3, 1] if cell == "LSTM" else [1, 0, 2]
    rows = np.concatenate([np.arange(gate * hidden, (gate + 1) * hidden) for gate in order])
    oracle = getattr(torch.nn, f"{cell}Cell")(width, hidden, dtype=torch.float64)
    parts = {"weight_ih": rounded(w[0])[rows], "weight_hh": rounded(r[0])[rows]}
    parts |= {"bias_ih": bias[0, : len(rows)][rows], "bias_hh": bias[0, len(rows) :][rows]}
    for name, array in parts.items():
        getattr(oracle, name).data = torch.from_numpy(array.astype(np.float64))
    h = c = torch.zeros((batch, hidden), dtype=torch.float64)
    with torch.no_grad():
        for t in range(steps):
            low_x, low_h = torch.from_numpy(rounded(x[t])), torch.from_numpy(rounded(h.numpy()))
            if cell == "LSTM":
                h, c = oracle(low_x, (low_h, c))
            else:
                # GRU mixes the state itself: the state that the product reads is rounded, the mixed one is not.
                mixed, z = oracle(low_x, low_h), gate_of(oracle, low_x, low_h)
                h = mixed + z * (h - low_h)
            # A state at a boundary may be rounded to another neighbour: one step of bf16 in one of `hidden` terms.
            np.testing.assert_allclose(found[t], h.numpy(), rtol=0, atol=1e-5 if t == 0 else 3e-3)


def gate_of(cell: Any, x: Any, h: Any) -> Any:
    """Return the update gate of a GRU cell, the second of torch's three."""
    size = h.shape[1]
    part = slice(size, 2 * size)
    inner = x @ cell.weight_ih[part].T + cell.bias_ih[part] + h @ cell.weight_hh[part].T + cell.bias_hh[part]
    return torch.sigmoid(inner)
