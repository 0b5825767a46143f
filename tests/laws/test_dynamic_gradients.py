"""Gradients whose weights depend on sizes that only run time knows: the same in every engine, and torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.compare.verification.conversion import compare, runner_for
from dovetail.ops.nn.resize import Resize
from dovetail.ops.signal.dft import DFT, IRDFT, RDFT

SHAPES = ((1, 2, 5, 4), (2, 1, 3, 8))
RESIZES = {
    "nearest": Resize("nearest", "asymmetric", "floor"),
    "linear": Resize("linear"),
    "aligned": Resize("linear", "align_corners"),
    "cubic": Resize("cubic", "pytorch_half_pixel"),
    "cubic, none outside": Resize("cubic", exclude_outside=True),
    "antialiased": Resize("linear", antialias=True, exclude_outside=True),
}
TRANSFORMS = {
    "forward": (DFT(), (3, 6, 2), ()),
    "back": (DFT(True), (3, 6, 2), ()),
    "real": (DFT(), (3, 6, 1), ()),
    "of one side": (DFT(False, True), (3, 6, 1), ()),
    "of one side, cut": (RDFT(), (3, 6), (5,)),
    "from one side": (DFT(True, True), (3, 4, 2), ()),
    "from one side, odd": (IRDFT(), (3, 4, 2), (9,)),
}


def resized(op: Resize, to: Any) -> dovetail.Model:
    """``to``: sizes of rows and columns at run time, or scales of all axes."""
    b = Builder()
    x = b.input("x", "f32", ("n", "c", "h", "w"))
    if to is None:
        sizes = b.Concat(b.Shape(x, start=0, end=2), b.input("to", "i64", (2,)), axis=0)
        y = b.add(op, x, sizes)[0]
    else:
        y = b.add(op, x, None, b.constant(np.asarray(to, np.float32)))[0]
    b.output("y", y)
    return dovetail.grad(b.model, of="y", wrt="x")


def agree(gradient: dovetail.Model, inputs: dict[str, Any], folder: Path, engines: tuple[str, ...]) -> dict[str, Any]:
    """Hold the native engine, and what others make of the files, against the interpreter."""
    expected = dovetail.run(gradient, inputs, engine="interpreter")
    others = {"native": dovetail.run(gradient, inputs, engine="native")}
    for engine in engines:
        path = folder / ("a.xml" if engine == "openvino" else "a.onnx")
        dovetail.save(gradient, path)
        others[engine] = runner_for(path, engine).run(inputs)
    for name, found in others.items():
        for row in compare(expected, found):
            assert row.agrees, (name, row)
    return expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("to", [None, (1, 1, 2.5, 0.5)], ids=["sizes", "scales"])
@pytest.mark.parametrize("name", RESIZES)
def test_a_resize_at_any_size(name: str, to: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    torch, op = pytest.importorskip("torch"), RESIZES[name]
    if to is not None and op.coordinate_transformation_mode == "align_corners":
        pytest.skip("ONNX aligns corners by scaled lengths, which need not be whole")
    gradient = resized(op, to)
    wanted = (7, 3) if to is None else tuple(int(size * scale) for size, scale in zip(shape[2:], to[2:], strict=True))
    chance = np.random.default_rng(0)
    x, g = (chance.standard_normal(size).astype(np.float32) for size in (shape, (*shape[:2], *wanted)))
    inputs = {"x": x, "grad:y": g, **({"to": np.array(wanted)} if to is None else {})}
    inputs = {value.name: inputs[value.name] for value in gradient.inputs}
    # IR has neither of these at open sizes.
    is_in_ir = not (op.antialias or op.exclude_outside)
    found = agree(gradient, inputs, tmp_path, ("onnxruntime", "openvino") if is_in_ir else ("onnxruntime",))
    if op.mode == "cubic" and op.exclude_outside:
        return
    source = torch.tensor(x, requires_grad=True)
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(op.mode, op.mode)
    aligns = (
        {}
        if op.mode == "nearest"
        else {"align_corners": op.coordinate_transformation_mode == "align_corners", "antialias": op.antialias}
    )
    size: dict[str, Any] = {"size": wanted} if to is None else {"scale_factor": to[2:], "recompute_scale_factor": False}
    torch.nn.functional.interpolate(source, mode=mode, **size, **aligns).backward(torch.tensor(g))
    np.testing.assert_allclose(found["grad:x"], source.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_at_any_size(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    op, shape, lengths = TRANSFORMS[name]
    b = Builder()
    parts = () if isinstance(op, RDFT) else shape[-1:]
    x = b.input("x", "f32", ("n", "m", *parts))
    b.output("y", b.add(op, x, b.constant([1]), *([b.constant(list(lengths))] if lengths else []))[0])
    gradient = dovetail.grad(b.model, of="y", wrt="x")
    chance = np.random.default_rng(0)
    data = chance.standard_normal(shape).astype(np.float32)
    y = dovetail.run(b.model, {"x": data})["y"]
    g = chance.standard_normal(y.shape).astype(np.float32)
    found = agree(
        gradient, {value.name: {"x": data, "grad:y": g}[value.name] for value in gradient.inputs}, tmp_path, ("onnxruntime",)
    )
    source = torch.tensor(data, requires_grad=True)
    signal = source if isinstance(op, RDFT) else source[..., 0] if shape[-1] == 1 else torch.view_as_complex(source)
    size = lengths[0] if lengths else None
    is_half = isinstance(op, RDFT | IRDFT) or (isinstance(op, DFT) and op.onesided)
    is_inverse = isinstance(op, IRDFT) or (isinstance(op, DFT) and op.inverse)
    name = ("i" if is_inverse else "") + ("rfft" if is_half else "fft")
    made = getattr(torch.fft, name)(signal, size, dim=1)
    made = torch.view_as_real(made) if made.is_complex() else made
    made.reshape(y.shape).backward(torch.tensor(g))
    np.testing.assert_allclose(found["grad:x"], source.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, -3])
def test_a_concat_of_one_value_several_times_at_any_size(axis: int, tmp_path: Path) -> None:
    """Each occurrence adds its slice of the gradient."""
    torch = pytest.importorskip("torch")
    b = Builder()
    first, second = (b.input(name, "f32", (f"{name}0", f"{name}1", f"{name}2")) for name in "ab")
    joined = [b.Concat(first, b.Sigmoid(second), first, axis=axis), b.Concat(second, first, first, axis=axis)]
    b.output("y", b.ReduceSum(b.Multiply(*joined), keepdims=False))
    gradient = dovetail.grad(b.model, of="y", wrt=["a", "b"])
    chance = np.random.default_rng(0)
    for shape in ((2, 3, 4), (1, 5, 2)):
        arrays = {name: chance.standard_normal(shape).astype(np.float32) for name in "ab"}
        inputs = {value.name: arrays.get(value.name, np.float32(1)) for value in gradient.inputs}
        found = agree(gradient, inputs, tmp_path, ("onnxruntime", "openvino"))
        sources = [torch.tensor(arrays[name], requires_grad=True) for name in "ab"]
        left, right = sources
        products = torch.cat([left, right.sigmoid(), left], axis) * torch.cat([right, left, left], axis)
        products.sum().backward()
        for name, source in zip("ab", sources, strict=True):
            np.testing.assert_allclose(found[f"grad:{name}"], source.grad.numpy(), rtol=1e-4, atol=1e-5)
