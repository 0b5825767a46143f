"""Convolutions write outputs of the graph in place, with the results of onnxruntime: few channels row-major, any number
channels-last."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

RNG = np.random.default_rng(23)
SIZES = ((2, 7, 9), (1, 1, 33), (1, 40, 1), (3, 13, 5), (0, 4, 4))
"""Images, height and width."""


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def model_of(shape: tuple[int, ...], build: Callable[[Builder, Any], list[Any]]) -> Model:
    """Return a model whose outputs are computed from nine channels."""
    with Builder("heads") as b:
        x = b.Relu(
            b.Conv(b.input("x", "f32", shape), weights(9, shape[1], *[3] * (len(shape) - 2)), pads=[1] * 2 * (len(shape) - 2))
        )
        for place, y in enumerate(build(b, x)):
            b.output(f"y{place}", y)
    return b.model


def head(b: Builder, x: Any, channels: int, **attributes: Any) -> Any:
    group, rank = attributes.get("group", 1), len(x.type.shape) - 2
    return b.Conv(x, weights(channels, x.type.shape[1] // group, *[1] * rank), weights(channels), **attributes)


def masks(b: Builder, x: Any) -> list[Any]:
    return [head(b, x, channels) for channels in (1, 2, 3, 4)]


def activated(b: Builder, x: Any) -> list[Any]:
    y, z = head(b, x, 3), head(b, x, 4)
    return [b.Sigmoid(y), b.Add(b.Clip(z, -0.2, 0.3), head(b, x, 4))]


def with_strides(b: Builder, x: Any) -> list[Any]:
    return [head(b, x, 3, group=3, strides=(2, 2)), head(b, x, 2, pads=(1, 0, 2, 1))]


def depthwise(b: Builder, x: Any) -> list[Any]:
    return [head(b, head(b, x, 4), 4, group=4)]


def read_again(b: Builder, x: Any) -> list[Any]:
    """Outputs that are operands too, of kernels that read channels-last."""
    y = head(b, x, 4)
    return [y, head(b, y, 12), b.MaxPool(y, kernel_shape=(2, 2), pads=(1, 1, 1, 1))]


def joined(b: Builder, x: Any) -> list[Any]:
    return [b.Concat(head(b, x, 4), head(b, x, 1), axis=1), b.Concat(head(b, x, 2), b.Relu(head(b, x, 7)), axis=1)]


def reshaped(b: Builder, x: Any) -> list[Any]:
    images, _, height, width = x.type.shape
    return [b.Reshape(head(b, x, 4), [images, 4 * height * width]), b.Transpose(head(b, x, 3), [0, 1, 3, 2])]


def channels_last(b: Builder, x: Any) -> list[Any]:
    return [b.Transpose(head(b, x, channels), [0, 2, 3, 1]) for channels in (1, 4, 17)]


def partly_channels_last(b: Builder, x: Any) -> list[Any]:
    """One result in two layouts, and parts of one."""
    y, z = head(b, x, 4), head(b, x, 20)
    return [
        y,
        b.Transpose(y, [0, 2, 3, 1]),
        *(b.Transpose(part, [0, 2, 3, 1]) for part in b.Split(z, [3, 17], axis=1, outputs=2)),
    ]


def detections(b: Builder, x: Any) -> list[Any]:
    """Heads as single-shot detectors join them."""
    images = x.type.shape[0]
    rows = [
        b.Reshape(b.Transpose(head(b, x, c), [0, 2, 3, 1]), [images, x.type.shape[2] * x.type.shape[3] * c // 4, 4])
        for c in (4, 8)
    ]
    return [b.Concat(*rows, axis=1)]


BUILDS = (
    masks,
    activated,
    with_strides,
    depthwise,
    read_again,
    joined,
    reshaped,
    channels_last,
    partly_channels_last,
    detections,
)


def models() -> Iterator[tuple[str, Model]]:
    for images, height, width in SIZES:
        for build in BUILDS:
            yield f"{build.__name__} of {images}x{height}x{width}", model_of((images, 5, height, width), build)
    for shape in ((2, 5, 31), (1, 5, 3, 5, 7)):
        yield f"masks of rank {len(shape)}", model_of(shape, masks)


def check_models() -> None:
    for name, model in models():
        x = RNG.standard_normal(model.inputs[0].shape).astype(np.float32)
        data = onnx_write.save(model, None)
        assert data is not None
        expected = oracles.run_onnxruntime(data, {"x": x})
        for elide in ("auto", "all", "none"):
            for threads in (1, 2, 3):
                program = dovetail.compile(model, "native", elide=elide, threads=threads)
                for _ in range(2):
                    for ours, theirs in zip(program({"x": x}).values(), expected, strict=True):
                        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=f"{name}, {elide}, {threads}")


def test_results_are_those_of_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    check_models()


@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
def test_results_in_another_instruction_set(isa: str) -> None:
    if native_core.core().isa() == isa:
        pytest.skip("the test above runs this instruction set")
    here = Path(__file__).parent
    path = os.pathsep.join([str(Path(native_core.__file__).parents[3]), *sys.path])
    environment = {**os.environ, "DOVETAIL_ISA": isa, "DOVETAIL_VERIFY": "1", "PYTHONPATH": path}
    subprocess.run(
        [sys.executable, "-c", "import test_outputs_in_place as it; it.check_models()"], env=environment, cwd=here, check=True
    )


@pytest.mark.parametrize("build", [masks, depthwise, channels_last])
def test_no_output_is_copied(build: Callable[[Builder, Any], list[Any]]) -> None:
    plan = dovetail.plan(model_of((1, 3, 7, 9), build), rounds=0)
    assert not plan.copies


def test_more_channels_are_copied_from_channels_last() -> None:
    plan = dovetail.plan(model_of((1, 3, 7, 9), lambda b, x: [head(b, x, 5)]), rounds=0)
    assert [(copy.target, copy.nbytes) for copy in plan.copies] == [("y0", 7 * 9 * 5 * 4)]
