"""Quantization-aware training: straight-through estimates beside torch's fake_quantize, and adapters of quantized layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.host import native_core
from report_routes import run_saved

torch = pytest.importorskip("torch")

RATE, STEPS = 0.05, 100
SCALES = np.float32([1 / 256, 1 / 128, 1 / 512, 1 / 256, 1 / 128])
"""Powers of two, so that all sums of products of codes are exact: one code that differs changes a loss by more than 1e-4."""


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized_network(is_channelwise: bool) -> dovetail.Model:
    """Build a convolution and a product whose weights and activations pass through QuantizeLinear and DequantizeLinear."""

    def rounded(b: Any, x: Any, scale: Any, zero: Any, axis: int = 1) -> Any:
        parameters = b.constant(scale), b.constant(zero)
        return b.DequantizeLinear(b.QuantizeLinear(x, *parameters, axis=axis), *parameters, axis=axis)

    with dovetail.Builder("quantized") as b:
        x = b.input("x", "f32", ("n", 2, 6, 6))
        w, v = (b.constant(normal(*shape, seed=i) * 0.3, name=f"w{i}") for i, shape in ((1, (4, 2, 3, 3)), (2, (64, 5))))
        scales = SCALES[:4] if is_channelwise else SCALES[0]
        zeros = np.zeros(scales.shape, np.int8)
        x = rounded(b, x, np.float32(1 / 64), np.uint8(120))
        x = b.Relu(b.Conv(x, rounded(b, w, scales, zeros, axis=0)))
        x = rounded(b, b.Reshape(x, [0, -1]), np.float32(1 / 128), np.uint8(0))
        scales = SCALES if is_channelwise else SCALES[0]
        b.output("y", b.MatMul(x, rounded(b, v, scales, np.zeros(scales.shape, np.int8))))
    return b.model


def network_of_torch(x: Any, w: Any, v: Any, is_channelwise: bool) -> Any:
    def weight(t: Any, axis: int) -> Any:
        if not is_channelwise:
            return torch.fake_quantize_per_tensor_affine(t, float(SCALES[0]), 0, -128, 127)
        scales = torch.tensor(SCALES[: t.shape[axis]])
        return torch.fake_quantize_per_channel_affine(t, scales, torch.zeros(t.shape[axis], dtype=torch.int32), axis, -128, 127)

    x = torch.fake_quantize_per_tensor_affine(x, 1 / 64, 120, 0, 255)
    x = torch.relu(torch.conv2d(x, weight(w, 0)))
    x = torch.fake_quantize_per_tensor_affine(x.flatten(1), 1 / 128, 0, 0, 255)
    return x @ weight(v, 1)


@pytest.mark.parametrize("is_channelwise", [False, True])
def test_quantized_layers_are_trained_as_by_torch(is_channelwise: bool) -> None:
    model = quantized_network(is_channelwise)
    step = dovetail.training_step(model, "mse", optimizer="sgd", straight_through=True)
    assert step.report.weights == ["w1", "w2"]
    session = dovetail.compile(step, threads=1).session(step.report.states)
    session.states = step.report.initial
    w, v = (torch.nn.Parameter(torch.tensor(step.report.initial[name])) for name in ("w1", "w2"))
    optimizer = torch.optim.SGD([w, v], lr=RATE)
    losses = []
    for number in range(STEPS):
        x = normal(8, 2, 6, 6, seed=number)
        target = x[:, 0, :5, 0] * 0.5
        losses.append(session(x=x, target=target, learning_rate=RATE)["loss"].item())
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network_of_torch(torch.tensor(x), w, v, is_channelwise), torch.tensor(target))
        loss.backward()
        optimizer.step()
        assert abs(losses[-1] - loss.item()) < 1e-4, number
    assert losses[-1] < losses[0] / 2


def gradients_of(model: dovetail.Model, x: Any, weights: list[str], **options: Any) -> dict[str, Any]:
    """Return the gradients of the sum of an output times ``g``."""
    with dovetail.Builder("weighted") as b:
        y, g = b.input("y", "f32", x.shape), b.input("g", "f32", x.shape)
        b.output("loss", b.ReduceSum(y * g, list(range(x.ndim)), keepdims=False))
    step = dovetail.training_step(model, b.model, weights=weights, optimizer="sgd", straight_through=True, **options)
    feed = {"g": normal(*x.shape, seed=9), "learning_rate": 1.0, **step.report.initial}
    outputs = dovetail.run(step, feed)
    return {name: step.report.initial[name] - outputs[f"next.{name}"] for name in step.report.weights}


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_data_outside_of_the_range_have_no_gradient(axis: int | None) -> None:
    """The estimate for the data is that of torch's fake_quantize; that for the scale is that of torch's learned step sizes."""
    x = normal(4, 5) * 3
    count = 1 if axis is None else x.shape[axis]
    scales, zeros = SCALES[:count] * 4, np.arange(count, dtype=np.int8)
    with dovetail.Builder() as b:
        data = b.constant(x, name="x")
        parameters = (b.constant(scales if count > 1 else scales[0], name="scale"), b.constant(zeros if count > 1 else zeros[0]))
        b.output("y", b.DequantizeLinear(b.QuantizeLinear(data, *parameters, axis=axis), *parameters, axis=axis))
    found = gradients_of(b.model, x, ["x", "scale"])
    t, s, z = (
        torch.tensor(x, requires_grad=True),
        torch.tensor(scales, requires_grad=True),
        torch.tensor(zeros, dtype=torch.float),
    )
    g = torch.tensor(normal(*x.shape, seed=9))
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(t, float(scales[0]), int(zeros[0]), -128, 127)
        learned = torch._fake_quantize_learnable_per_tensor_affine(t.detach(), s, z, -128, 127, 1.0)
    else:
        y = torch.fake_quantize_per_channel_affine(t, s.detach(), z.int(), axis, -128, 127)
        learned = torch._fake_quantize_learnable_per_channel_affine(t.detach(), s, z, axis, -128, 127, 1.0)
    np.testing.assert_array_equal(dovetail.run(b.model, {})["y"], y.detach().numpy())
    (y * g).sum().backward()
    (learned * g).sum().backward()
    assert 0 < (t.grad == 0).sum() < x.size
    np.testing.assert_allclose(found["x"], t.grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["scale"], s.grad.reshape(found["scale"].shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_channelwise", [False, True])
def test_limits_of_fake_quantize_bound_the_gradient(is_channelwise: bool) -> None:
    x = normal(4, 5) * 2
    limits = dict(zip(("low", "high", "output_low", "output_high"), (-1.5, 2, -1.25, 2.5), strict=True))
    limits = {name: np.float32([[value - 0.1 * i] for i in range(4 if is_channelwise else 1)]) for name, value in limits.items()}
    with dovetail.Builder() as b:
        values = [b.constant(array, name=name) for name, array in {"x": x, **limits}.items()]
        b.output("y", b.FakeQuantize(*values, levels=16))
    found = gradients_of(b.model, x, ["x", *limits])
    t, low, high, bottom, top = (torch.tensor(array, requires_grad=True) for array in (x, *limits.values()))
    share = (torch.minimum(torch.maximum(t, low), high) - low) / (high - low) * 15
    share = share + (torch.round(share) - share).detach()
    y = share / 15 * (top - bottom) + bottom
    np.testing.assert_allclose(dovetail.run(b.model, {})["y"], y.detach(), rtol=1e-5, atol=1e-6)
    (y * torch.tensor(normal(*x.shape, seed=9))).sum().backward()
    for name, parameter in zip(found, (t, low, high, bottom, top), strict=True):
        np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-4, atol=1e-4, err_msg=name)
    assert (found["x"][(x < limits["low"]) | (x > limits["high"])] == 0).all()


def test_rounding_is_refused_without_the_option() -> None:
    model = quantized_network(False)
    for refused in (lambda: dovetail.training_step(model, "mse"), lambda: dovetail.grad(model, of="y", wrt=["w1"])):
        with pytest.raises(dovetail.UnsupportedError, match=r"\[grad.op\]"):
            refused()
    with dovetail.Builder() as b:
        codes, scale, zero = b.DynamicQuantizeLinear(b.constant(normal(4, 4), name="w"))
        b.output("y", b.DequantizeLinear(codes, scale, zero))
    with pytest.raises(dovetail.UnsupportedError, match=r"\[grad.op\].*quantization has no gradient"):
        dovetail.training_step(b.model, "mse", straight_through=True)
    with dovetail.Builder() as b:
        w, scale, zero = b.constant(normal(4, 4), name="w"), b.constant(np.float32(1)), b.constant(np.zeros((), "f4"), "f8e4m3")
        b.output("y", b.DequantizeLinear(b.QuantizeLinear(w, scale, zero), scale, zero))
    with pytest.raises(dovetail.UnsupportedError, match=r"\[grad.op\].*integer codes"):
        dovetail.training_step(b.model, "mse", straight_through=True)


@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
def test_no_step_of_quantized_layers_is_interpreted() -> None:
    step = dovetail.training_step(quantized_network(True), "mse", straight_through=True)
    feed = {"x": normal(8, 2, 6, 6), "target": normal(8, 5), "learning_rate": np.float32(0.1), **step.report.initial}
    assert [row.label for row in dovetail.plan(step, feed, rounds=0).steps if not row.is_native] == []


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_other_runtimes_train_quantized_layers(runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    model = dovetail.rebatch(quantized_network(True), shapes={"x": (8, 2, 6, 6)}, verify=False)
    step = dovetail.training_step(model, "mse", optimizer="sgd", straight_through=True)
    feed = {"x": normal(8, 2, 6, 6), "target": normal(8, 5), "learning_rate": np.array(0.1, np.float32), **step.report.initial}
    expected = dovetail.run(step, feed)
    found = run_saved(runtime, step, feed, tmp_path)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)


def quantized_product(kind: str) -> tuple[dovetail.Model, str, Any]:
    """Return tanh(x @ w) with a quantized w [64, 16], the name of its codes, and w as floats."""
    rng = np.random.default_rng(0)
    with dovetail.Builder(kind) as b:
        x = b.input("x", "f32", ("n", 64))
        scales = rng.uniform(0.01, 0.02, (16, 2)).astype(np.float32)
        if kind == "MatMulNBits":
            codes = rng.integers(0, 256, (16, 2, 16)).astype(np.uint8)
            wide = np.stack([codes & 15, codes >> 4], -1).reshape(16, 2, 32).astype(np.float32) - 8
            w = (wide * scales[..., None]).reshape(16, 64).T
            y = b.MatMulNBits(x, b.constant(codes, name="codes"), b.constant(scales), k=64, n=16)
        elif kind == "f16":
            w = (rng.standard_normal((64, 16)) * 0.1).astype(np.float16)
            y, w = b.MatMul(x, b.Cast(b.constant(w, name="codes"), to="f32")), w.astype(np.float32)
        elif kind == "blocks":
            codes = rng.integers(-8, 8, (64, 16)).astype(np.int8)
            w = codes * np.repeat(scales.T, 32, 0)
            y = b.MatMul(x, b.DequantizeLinear(b.constant(codes, name="codes"), b.constant(scales.T), axis=0, block_size=32))
        else:
            codes = rng.integers(-128, 128, (16, 64)).astype(np.int8)
            w = (codes * scales[:, :1] / 10).T
            dequantized = b.DequantizeLinear(b.constant(codes, name="codes"), b.constant(scales[:, 0] / 10), axis=0)
            y = b.Gemm(x, dequantized, b.constant(np.zeros(16, np.float32), name="bias"), transpose_b=True)
        b.output("y", b.Tanh(y))
    return b.model, "codes", w


@pytest.mark.parametrize("kind", ["MatMulNBits", "blocks", "Gemm", "f16"])
def test_adapters_of_quantized_products_are_trained_as_by_torch(kind: str) -> None:
    """The base stays as it is, as in QLoRA, and the gradient flows through it to the layers before."""
    model, name, w = quantized_product(kind)
    with dovetail.Builder() as b:
        b.output("x", b.Tanh(b.MatMul(b.input("rows", "f32", ("n", 8)), b.constant(normal(8, 64), name="before"))))
    model = dovetail.merge(b.model, model)
    adapted = dovetail.attach_lora(model, [name, "before"], rank=2)
    assert sorted(adapted.report) == ["before", name]
    step = dovetail.training_step(adapted, "mse", weights="*.lora_?")
    session = dovetail.compile(step, threads=1).session(step.report.states)
    session.states = step.report.initial
    parameters = {key: torch.nn.Parameter(torch.tensor(step.report.initial[key])) for key in step.report.weights}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2)
    before, after = torch.tensor(normal(8, 64)), torch.tensor(w)
    losses = []
    for number in range(STEPS):
        rows = normal(16, 8, seed=number)
        target = np.tanh(rows @ normal(8, 16, seed=1))
        losses.append(session(rows=rows, target=target, learning_rate=1e-2)["loss"].item())
        optimizer.zero_grad()
        x = torch.tensor(rows)
        for key, weight in (("before", before), (name, after)):
            x = torch.tanh(x @ weight + 8 * (x @ parameters[f"{key}.lora_A"] @ parameters[f"{key}.lora_B"]))
        loss = torch.nn.functional.mse_loss(x, torch.tensor(target))
        loss.backward()
        optimizer.step()
        assert abs(losses[-1] - loss.item()) < 1e-4, number
    assert losses[-1] < losses[0] / 2
    trained = adapted.with_constants({key: session.states[key] for key in step.report.weights})
    rows = normal(16, 8)
    y = dovetail.run(trained, rows)["y"]
    np.testing.assert_allclose(dovetail.run(dovetail.merge_lora(trained), rows)["y"], y, atol=1e-4)
    assert dovetail.diff(model, dovetail.detach_lora(trained)).is_same
    np.testing.assert_array_equal(trained.values[name].constant, model.values[name].constant)
