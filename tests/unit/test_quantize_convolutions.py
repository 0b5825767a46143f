"""quantize: Hessians of convolutions, biases that correct mean errors, scales for each channel, rows on other axes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Model, QuantizeOptions, quantize
from dovetail.compare.verification.conversion import runner_for
from dovetail.passes.quantization.codes import Grid
from dovetail.passes.quantization.error_compensation import round_with_compensation
from dovetail.passes.quantization.hessians import collect_hessians
from dovetail.passes.quantization.weights import find_weights

RNG = np.random.default_rng(17)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def images(count: int, channels: int = 8, size: int = 14, seed: int = 0) -> Any:
    """Draw smooth images whose channels have different magnitudes and means that are not 0."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((count, channels, size // 2, size // 2)).repeat(2, 2).repeat(2, 3)
    scales = 4.0 ** np.linspace(-2, 1, channels)[:, None, None]
    return ((coarse + 0.3 * rng.standard_normal(coarse.shape) + 0.5) * scales).astype(np.float32)


def layers(*specs: dict[str, Any], channels: int = 8, has_bias: bool = True) -> Model:
    """Build a chain of convolutions with Relu between them; each spec has the attributes, ``out`` and ``kernel``."""
    rng = np.random.default_rng(3)
    with Builder() as b:
        h = b.input("x", "f32", ("n", channels, 14, 14))
        for index, spec in enumerate(specs):
            spec = dict(spec)
            width, kernel, group = spec.pop("out"), spec.pop("kernel", (3, 3)), spec.get("group", 1)
            shape = (width, channels // group, *kernel)
            w = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
            bias = b.constant(rng.standard_normal(width).astype(np.float32), name=f"b{index}") if has_bias else None
            h = b.Conv(h, b.constant(w, name=f"w{index}"), bias, **spec)
            h = b.Relu(h) if index < len(specs) - 1 else h
            channels = width
        b.output("y", h)
    return b.model


@pytest.mark.parametrize(
    "spec",
    [
        {"out": 6}, {"out": 6, "kernel": (1, 1)}, {"out": 6, "kernel": (5, 2), "strides": (2, 1), "pads": (2, 0, 1, 1)},
        {"out": 12, "group": 4, "dilations": (2, 1)}, {"out": 16, "group": 8, "pads": (1, 1, 1, 1)},
        {"out": 8, "group": 8, "auto_pad": "same_upper", "strides": (2, 2)},
    ],
    ids=["plain", "pointwise", "strided", "groups", "depthwise", "auto"],
)  # fmt: skip
def test_the_hessian_of_a_convolution_gives_the_squares_of_its_results(spec: dict[str, Any]) -> None:
    model = layers(spec, has_bias=False)
    calls = [{"x": images(4, seed=seed)} for seed in range(2)]
    expected = [float(np.sum(dovetail.run(model, call)["y"].astype(np.float64) ** 2)) for call in calls]
    weight = find_weights(model.graph)[0]
    matrix = weight.matrix()
    for hessian, squares in zip(collect_hessians(model, [weight], calls)[0], expected, strict=True):
        rows = matrix.reshape(len(hessian), -1, matrix.shape[1])
        assert np.einsum("gri,gij,grj->", rows, hessian, rows) == pytest.approx(squares, rel=1e-4)


def test_a_convolution_with_many_positions_skips_some() -> None:
    with Builder() as b:
        b.output("y", b.Conv(b.input("x", "f32", ("n", 2, 96, 96)), normal(4, 2, 3, 3)))
    calls = [{"x": normal(4, 2, 96, 96)} for _ in range(2)]
    hessian = collect_hessians(b.model, find_weights(b.model.graph), calls)[0][0][0]
    # White noise: each element of a patch has the variance 1, so that the diagonal counts the patches.
    assert 2048 / 4 < np.diag(hessian).mean() < 2048 * 1.1
    assert np.abs(hessian - np.diag(np.diag(hessian))).max() < 0.2 * np.diag(hessian).mean()


def test_groups_are_compensated_as_matrices_of_their_own() -> None:
    matrix, grid = normal(12, 40), Grid(4)
    roots = normal(4, 100, 40) @ normal(4, 40, 40)
    hessians = np.einsum("gni,gnj->gij", roots, roots).astype(np.float64)
    together = round_with_compensation(matrix, hessians, grid, 0.05)
    assert together is not None
    for index, (start, stop) in enumerate(pairwise(range(0, 13, 3))):
        alone = round_with_compensation(matrix[start:stop], hessians[index], grid, 0.05)
        assert alone is not None
        assert np.mean(together.codes[start:stop] != alone.codes) < 0.02


NETWORK = ({"out": 16, "pads": (1, 1, 1, 1)}, {"out": 16, "group": 16, "pads": (1, 1, 1, 1)}, {"out": 12, "kernel": (1, 1)})


@pytest.mark.parametrize("activations", [None, "minmax", "mse"])
def test_rows_make_the_error_of_convolutions_smaller(activations: str | None) -> None:
    model, others = layers(*NETWORK), images(64, seed=2)
    y = dovetail.run(model, others)["y"]
    errors = {}
    for rounding in ("nearest", "gptq"):
        options = QuantizeOptions(rounding=rounding, activations=activations)
        new = quantize(model, inputs={"x": images(64, seed=1)}, options=options)
        errors[rounding] = relative(dovetail.run(new, others)["y"], y)
        assert new.report.measured == pytest.approx(errors[rounding], rel=0.3)
    assert errors["gptq"] < errors["nearest"] * (0.8 if activations is None else 0.98)


def test_the_mean_error_of_each_channel_goes_into_its_bias() -> None:
    rows = images(64, seed=1)
    with Builder() as b:
        x = b.input("x", "f32", ("n", 8, 14, 14))
        h = b.Conv(x, b.constant(normal(6, 8, 3, 3), name="w"), b.constant(normal(6), name="bias"))
        b.output("with_bias", h)
        h = b.Add(b.Conv(x, b.constant(normal(6, 8, 3, 3), name="v")), b.constant(normal(6, 1, 1), name="other"))
        b.output("with_add", h)
        b.output(
            "with_product", b.Add(b.constant(normal(14), name="vector"), b.MatMul(x, b.constant(normal(14, 14) / 4, name="u")))
        )
        b.output("without", b.Conv(x, b.constant(normal(6, 8, 3, 3), name="t")))
    expected = dovetail.run(b.model, rows)
    means, counts = {}, []
    for rounding in ("nearest", "gptq"):
        new = quantize(b.model, inputs={"x": rows}, options=QuantizeOptions(rounding=rounding, activations="minmax"))
        found = dovetail.run(new, rows)
        for name, y in dict(expected).items():
            axes = (0, 1, 2) if name == "with_product" else (0, 2, 3)
            means[rounding, name] = np.abs((found[name].astype(np.float64) - y).mean(axis=axes)).mean() / np.abs(y).mean()
        counts.append(sum(value.constant is not None for value in new.graph.values()))
    assert counts[0] == counts[1]
    for name in ("with_bias", "with_add", "with_product"):
        assert means["gptq", name] < 0.3 * means["nearest", name]


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
@pytest.mark.parametrize("ratio", [1, 256])
def test_the_input_of_a_depthwise_convolution_has_scales_for_its_channels_if_they_differ(
    suffix: str, ratio: int, tmp_path: Path
) -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 8, 14, 14))
        scales = (np.linspace(1, ratio, 8) / ratio).astype(np.float32)
        h = b.Relu(b.Conv(x, b.constant(normal(8, 8, 1, 1) * scales[:, None, None, None]), b.constant(normal(8) * scales)))
        h = b.Conv(h, b.constant(normal(8, 1, 3, 3) / scales[:, None, None, None] / 3), b.constant(normal(8)), group=8)
        b.output("y", b.Conv(h, b.constant(normal(12, 8, 1, 1)), b.constant(normal(12))))
    others = normal(32, 8, 14, 14)
    options = QuantizeOptions(activations="mse", encoding="ir" if suffix == "xml" else "qdq")
    new = quantize(b.model, inputs={"x": normal(64, 8, 14, 14)}, options=options)
    bits = [8, 8 if suffix == "xml" or ratio == 1 else 32, 8]
    assert [node.activation_bits for node in new.report.nodes] == bits
    dovetail.save(new, path := tmp_path / f"new.{suffix}")
    y = dovetail.run(new, others)["y"]
    assert relative(y, dovetail.run(b.model, others)["y"]) < 0.04
    assert relative(runner_for(path).run({"x": others})["y"], y) < 0.015
    assert relative(dovetail.run(path, others)["y"], y) < 0.015


def test_rows_on_another_axis_are_split_by_the_symbol_of_the_first() -> None:
    with Builder() as b:
        x, state, whole = b.input("x", "f32", ("n", 64)), b.input("state", "f32", (2, "n", 64)), b.input("whole", "f32", (64,))
        h = b.Add(b.Add(x, b.ReduceSum(state, [0], keepdims=False)), whole)
        b.output("y", b.MatMul(h, b.constant(normal(64, 32))))
    report = quantize(b.model, inputs={"x": normal(40, 64), "state": normal(2, 40, 64), "whole": normal(64)}).report
    assert report.calls >= 2 and report.held_out == 10 and report.drawn == []


def test_named_nodes_and_constants_keep_their_weights() -> None:
    model = layers(*NETWORK)
    node = next(node for node in model.graph.nodes if node.title == "Conv")
    report = quantize(model, options=QuantizeOptions(keep=[node.label, "w2"])).report
    assert [each.kept for each in report.nodes] == ["the caller keeps it", "", "the caller keeps it"]
    with pytest.raises(dovetail.RuleError, match=r"name\.unknown.*'w3'.*'w2'|name\.unknown.*'w3'"):
        quantize(model, options=QuantizeOptions(keep=["w3"]))
