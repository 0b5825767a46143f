"""Single layers of known networks: the compiled core beside oneDNN as torch calls it; weights are packed before the timing.

Convolutions read and write channels-last data; ``--strided`` gives ours slices of wider pixels, which oneDNN cannot take. The two
are run interleaved in one process; printed are the ratio of their medians (below 1: ours is faster) and our speed as a share of
a yardstick, a small product of ours run in the same turns. With several threads on a busy machine oneDNN's barriers wait for a
core: such ratios say nothing about kernels.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from dovetail import _native
from dovetail.engine.run.step_encoding import extent_of


class Layer(NamedTuple):
    name: str
    channels: int
    outputs: int
    size: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1


class Product(NamedTuple):
    name: str
    batch: int
    rows: int
    depth: int
    columns: int
    constant: bool = True


LAYERS = {
    "densenet121": [
        Layer("first 7x7", 3, 64, 224, 7, 2),
        Layer("block 1 1x1", 128, 128, 56),
        Layer("block 1 3x3", 128, 32, 56, 3),
        Layer("block 2 1x1", 320, 128, 28),
        Layer("block 2 3x3", 128, 32, 28, 3),
        Layer("block 3 1x1", 640, 128, 14),
        Layer("block 3 3x3", 128, 32, 14, 3),
        Layer("block 4 1x1", 768, 128, 7),
        Layer("block 4 3x3", 128, 32, 7, 3),
        Layer("transition 2", 512, 256, 28),
    ],
    "resnet50": [
        Layer("stage 1 1x1 in", 256, 64, 56),
        Layer("stage 1 3x3", 64, 64, 56, 3),
        Layer("stage 1 1x1 out", 64, 256, 56),
        Layer("stage 2 3x3 /2", 128, 128, 56, 3, 2),
        Layer("stage 2 3x3", 128, 128, 28, 3),
        Layer("stage 2 1x1 out", 128, 512, 28),
        Layer("stage 3 1x1 in", 1024, 256, 14),
        Layer("stage 3 3x3", 256, 256, 14, 3),
        Layer("stage 3 1x1 out", 256, 1024, 14),
        Layer("stage 4 3x3", 512, 512, 7, 3),
        Layer("stage 4 1x1 in", 2048, 512, 7),
        Layer("stage 4 1x1 out", 512, 2048, 7),
        Layer("shortcut /2", 256, 512, 56, 1, 2),
    ],
    "inception_v1": [
        Layer("3a 3x3", 96, 128, 28, 3),
        Layer("3a 5x5", 16, 32, 28, 5),
        Layer("4c 1x1", 512, 128, 14),
        Layer("4c 3x3", 128, 256, 14, 3),
        Layer("5b 1x1", 832, 384, 7),
    ],
    "squeezenet": [
        Layer("first 7x7", 3, 96, 224, 7, 2),
        Layer("fire 2 squeeze", 96, 16, 54),
        Layer("fire 2 expand", 16, 64, 54),
        Layer("fire 2 expand 3x3", 16, 64, 54, 3),
        Layer("fire 8 expand 3x3", 64, 256, 27, 3),
        Layer("last", 512, 1000, 13),
    ],
    "shufflenet": [
        Layer("grouped 1x1", 272, 272, 28, 1, 1, 4),
        Layer("depthwise /2", 68, 68, 56, 3, 2, 68),
        Layer("depthwise", 136, 136, 28, 3, 1, 136),
    ],
}
PRODUCTS = {
    "bert": [
        Product("projection", 1, 128, 768, 768),
        Product("wide", 1, 128, 768, 3072),
        Product("narrow", 1, 128, 3072, 768),
        Product("scores", 12, 128, 64, 128, False),
        Product("mixing", 12, 128, 128, 64, False),
    ],
    "decoder": [
        Product("one row", 1, 1, 1024, 4096),
        Product("one row, back", 1, 1, 4096, 1024),
        Product("scores", 32, 1, 128, 1000, False),
        Product("mixing", 32, 1, 1000, 128, False),
    ],
    "square": [Product("1024", 1, 1024, 1024, 1024), Product("512", 1, 512, 512, 512, False)],
}


class Ours:
    """A program of one step over arrays that it keeps."""

    def __init__(
        self, kernel: str, inputs: list[Any], constants: set[int], y: Any, attributes: dict[str, Any], threads: int
    ) -> None:
        arrays = [*inputs, y]
        rows = [
            (
                i + 1,
                0,
                "f32",
                4,
                list(x.shape),
                list(x.strides),
                x.ctypes.data if i in constants else 0,
                *extent_of(x),
            )
            for i, x in enumerate(arrays)
        ]
        program = _native.Program(
            _native.ThreadPool(threads), _native.WeightCache(), _native.ArenaPool(), 0, [extent_of(each) for each in arrays]
        )
        program.add(kernel, rows[:-1], rows[-1:], attributes)
        self.kept, self.name = arrays, program.names()[0]
        self.visit, self.addresses = _native.Execution(program), [0, *(each.ctypes.data for each in arrays)]

    def __call__(self) -> None:
        self.visit.run(self.addresses, 0, 1)


def channels_last(values: Any, wider: int) -> Any:
    images, channels, height, width = values.shape
    room = np.zeros((images, height, width, channels + wider), np.float32)
    room[..., :channels] = values.transpose(0, 2, 3, 1)
    return room[..., :channels].transpose(0, 3, 1, 2)


def layer_pair(layer: Layer, images: int, threads: int, strided: bool) -> tuple[Ours, Callable[[], Any], float]:
    random = np.random.default_rng(0)
    x = random.standard_normal((images, layer.channels, layer.size, layer.size), np.float32)
    w = random.standard_normal((layer.outputs, layer.channels // layer.groups, layer.kernel, layer.kernel), np.float32)
    bias = random.standard_normal(layer.outputs, np.float32)
    pad = layer.kernel // 2
    size = (layer.size + 2 * pad - layer.kernel) // layer.stride + 1
    wider = 32 if strided else 0
    y = channels_last(np.zeros((images, layer.outputs, size, size), np.float32), wider)
    two = {"strides": layer.stride, "dilations": 1, "pads_begin": pad, "pads_end": pad}
    attributes = {"groups": layer.groups, "has_bias": 1, "activation": "relu"} | {name: [n, n] for name, n in two.items()}
    ours = Ours("conv", [channels_last(x, wider if layer.channels > 3 else 0), w, bias], {1, 2}, y, attributes, threads)
    numbers = [pad, pad], [layer.stride, layer.stride], [1, 1], layer.groups
    like = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    packed = torch.ops.mkldnn._reorder_convolution_weight(torch.from_numpy(w), *numbers, list(x.shape))
    bound = torch.from_numpy(bias)
    call = torch.ops.mkldnn._convolution_pointwise.default
    theirs = lambda: call(like, packed, bound, *numbers, "relu", [], "")  # noqa: E731
    ours()
    np.testing.assert_allclose(y, theirs().numpy(), rtol=1e-3, atol=1e-3)
    return ours, theirs, 2.0 * y.size * layer.channels // layer.groups * layer.kernel**2


def product_pair(product: Product, threads: int) -> tuple[Ours, Callable[[], Any], float]:
    random = np.random.default_rng(0)
    turned = not product.constant and product.name == "scores"
    a = random.standard_normal((product.batch, product.rows, product.depth), np.float32)
    b = random.standard_normal(
        (product.batch, *((product.columns, product.depth) if turned else (product.depth, product.columns))), np.float32
    )
    b = b.swapaxes(1, 2) if turned else b
    y, like = (
        np.zeros((product.batch, product.rows, product.columns), np.float32),
        torch.zeros(product.batch, product.rows, product.columns),
    )
    ours = Ours("matmul", [a, b], {1} if product.constant else set(), y, {}, threads)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    theirs = lambda: torch.matmul(left, right, out=like)  # noqa: E731
    ours()
    np.testing.assert_allclose(y, theirs().numpy(), rtol=1e-3, atol=1e-2)
    return ours, theirs, 2.0 * y.size * product.depth


def seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    begin = clock()
    for _ in range(repeats):
        work()
    return (clock() - begin) / repeats


def medians(works: list[Callable[[], Any]], budget: float, clock: Callable[[], float]) -> list[float]:
    repeats = [max(1, int(2e-3 / seconds(work, 3))) for work in works]
    times: list[list[float]] = [[] for _ in works]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for each, work, count in zip(times, works, repeats, strict=True):
            each.append(seconds(work, count, clock))
    return [statistics.median(each) for each in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--strided", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each layer")
    parser.add_argument("--only", default="", help="part of a network's name")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    # On one thread the processor's own time: what else the machine does then shows less.
    clock = time.process_time if options.threads == 1 else time.perf_counter
    peak, _, peak_work = product_pair(Product("peak", 1, 96, 128, 192), 1)
    overall = []
    networks: dict[str, Sequence[Layer | Product]] = {**LAYERS, **PRODUCTS}
    for network, works in networks.items():
        if options.only not in network:
            continue
        ratios = []
        for each in works:
            convolution = isinstance(each, Layer)
            pair = (
                layer_pair(each, options.images, options.threads, options.strided)
                if convolution
                else product_pair(each, options.threads)
            )
            ours, theirs, work = pair
            mine, other, most = medians([ours, theirs, peak], options.seconds, clock)
            share = work / mine / (peak_work / most) / options.threads
            ratios.append(mine / other)
            times = (
                f"{mine * 1e6:9.1f} us  oneDNN {other * 1e6:9.1f} us  ratio {mine / other:5.2f}  {share:4.0%} of the yardstick"
            )
            print(f"{network:12} {each.name:18} {ours.name:22} {times}", flush=True)
        overall += ratios
        print(f"{network:12} geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}\n")
    print(f"all layers: geometric mean {math.exp(statistics.fmean(map(math.log, overall))):.3f}")


if __name__ == "__main__":
    main()
