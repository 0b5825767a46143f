"""Transforms against numpy's in f64, of every length and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Graph
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.signal.dft import DFT
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

LENGTHS = [
    *range(1, 34),
    49,
    60,
    64,
    97,
    100,
    121,
    127,
    169,
    210,
    243,
    255,
    256,
    257,
    400,
    512,
    625,
    1000,
    1009,
    1200,
    2048,
    4093,
]
TOLERANCE = {"float32": 3e-7, "float64": 2e-15}
"""Root mean square of the errors over that of the results."""


def transformed(
    x: Any, axis: int, length: int, inverse: bool, onesided: bool, layout: str = "row_major", threads: int = 2
) -> Any:
    size = length // 2 + 1 if onesided and not inverse else length
    shape = [*x.shape[:axis], size, *x.shape[axis + 1 : -1], 1 if onesided and inverse else 2]
    y = np.full(shape, 7, x.dtype)
    y = LAYOUTS[layout](y) if len(shape) > 2 else y
    attributes = {"axis": axis, "length": length, "inverse": int(inverse), "onesided": int(onesided)}
    run("dft", [LAYOUTS[layout](x) if x.ndim > 2 else x], [y], attributes, threads)
    return y


def by_numpy(x: Any, axis: int, length: int, inverse: bool, onesided: bool) -> Any:
    wide = x.astype(np.float64)
    signal = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
    if onesided and inverse:
        return np.fft.irfft(signal, length, axis)[..., None]
    y = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis)
    y = np.take(y, range(length // 2 + 1), axis) if onesided else y
    return np.stack([y.real, y.imag], -1)


def check(y: Any, expected: Any) -> None:
    error, scale = (float(np.sqrt(np.mean(np.square(array), dtype=np.float64))) for array in (y - expected, expected))
    assert error <= TOLERANCE[y.dtype.name] * scale, f"{error / scale}"


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(length: int, kind: str) -> None:
    """One line, and more than one vector of lines."""
    for lines in (1, 2, 21):
        for inverse in (False, True):
            x = random((lines, length, 2), kind)
            check(transformed(x, 1, length, inverse, False), by_numpy(x, 1, length, inverse, False))
        real, half = random((lines, length, 1), kind), random((lines, length // 2 + 1, 2), kind)
        check(transformed(real, 1, length, False, True), by_numpy(real, 1, length, False, True))
        check(transformed(half, 1, length, True, True), by_numpy(half, 1, length, True, True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis_of_every_layout(axis: int, layout: str) -> None:
    """Lines that are cut and padded with zeros, too."""
    x = random((5, 12, 7, 2), "float64")
    for length in (x.shape[axis], 3, 22):
        for inverse, onesided, parts in (
            (False, False, 2),
            (True, False, 2),
            (False, False, 1),
            (False, True, 1),
            (True, True, 2),
        ):
            y = transformed(x[..., :parts], axis, length, inverse, onesided, layout)
            check(y, by_numpy(x[..., :parts], axis, length, inverse, onesided))


def test_threads_make_no_difference() -> None:
    x = random((200, 640, 2))
    assert len({transformed(x, 1, 640, False, False, threads=threads).tobytes() for threads in (1, 2, 3)}) == 1


def test_long_lines_and_nothing() -> None:
    for length in (1 << 16, 3 * 7**5, 65_537):
        x = random((1, length, 2), "float64")
        check(transformed(x, 1, length, False, False), by_numpy(x, 1, length, False, False))
    assert transformed(np.zeros((0, 4, 2)), 1, 4, False, False).shape == (0, 4, 2)
    np.testing.assert_array_equal(transformed(np.zeros((3, 0, 2)), 1, 4, False, False), np.zeros((3, 4, 2)))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("signal_size", [None, [6, 9], [-1, 8], [16, -1]], ids=str)
def test_several_axes_of_the_engine(signal_size: list[int] | None, onesided: bool, inverse: bool) -> None:
    b = Builder(graph=Graph())
    parts = 1 if onesided and not inverse else 2
    x = b.input("x", dtypes.f64, (3, 8, 7, parts))
    sizes = [] if signal_size is None else [b.constant(signal_size)]
    (y,) = b.add(DFT(inverse, onesided), x, b.constant([-2, -1]), *sizes)
    b.output("y", y)
    data = random((3, 8, 7, parts), "float64")
    signal = data[..., 0] + (1j * data[..., 1] if parts == 2 else 0)
    given = signal_size or [-1, -1]
    lengths = [size if size > 0 else n for size, n in zip(given, (8, 2 * 6 if onesided and inverse else 7), strict=True)]
    program = dovetail.compile(Model(b.graph), engine="native")
    report = dovetail.plan(Model(b.graph), rounds=0)
    assert [step.kernel.split()[0] for step in report.steps if step.is_native and step.kernel.startswith("dft")] == ["dft", "dft"]
    function = {
        (False, False): np.fft.fft2,
        (True, False): np.fft.ifft2,
        (False, True): np.fft.rfft2,
        (True, True): np.fft.irfft2,
    }[inverse, onesided]
    expected = function(signal, lengths, axes=(1, 2))
    found = program({"x": data})["y"]
    np.testing.assert_allclose(found[..., 0] + (1j * found[..., 1] if found.shape[-1] == 2 else 0), expected, atol=1e-13)


@pytest.mark.parametrize(
    ("facts", "of", "made"),
    [
        ({"axis": 2, "length": 4}, (3, 4, 2), (3, 4, 2)),
        ({"axis": 1, "length": 0}, (3, 4, 2), (3, 0, 2)),
        ({"axis": 1, "length": 4}, (3, 4, 3), (3, 4, 2)),
        ({"axis": 1, "length": 4, "onesided": 1}, (3, 4, 1), (3, 4, 2)),
        ({"axis": 1, "length": 1 << 40}, (3, 4, 2), (3, 4, 2)),
    ],
)
def test_operands_that_do_not_fit_make_no_step(facts: Any, of: Any, made: Any) -> None:
    with pytest.raises(ValueError, match="dft"):
        run("dft", [np.zeros(of)], [np.zeros(made)], facts)
