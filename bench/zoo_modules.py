"""Small torch modules of the constructions that exporters meet, written as ONNX by both of torch's exporters.

    python bench/zoo_modules.py FOLDER

Writes FOLDER/<name>.<exporter><s|d>.onnx (ts: TorchScript, dyn: dynamo; static or dynamic sizes) with inputs for one or two sets
of sizes beside it. An export that torch itself refuses is written down in FOLDER/refused.json.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody writes it)

OPSETS = {"ts": 17, "dyn": 20}


class Residual(nn.Module):
    """Two convolutions with batch normalisation around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        y = torch.relu(y + self.body(y))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class C2f(nn.Module):
    """Split, a chain of bottlenecks that each read the one before, and one concatenation of all."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 16, 1), nn.Conv2d(32, 8, 1)
        self.blocks = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(F.silu(self.first(x)).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + F.silu(block(parts[-1])))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """A head on two levels, whose anchors are made from the sizes of the feature maps, and boxes from distributions."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList([nn.Conv2d(3, 12, 3, stride=4, padding=1), nn.Conv2d(12, 12, 3, stride=2, padding=1)])
        self.head = nn.Conv2d(12, 4 * 4 + 3, 1)
        self.register_buffer("bins", torch.arange(4.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        boxes, scores = [], []
        for index, level in enumerate(self.levels):
            x = F.silu(level(x))
            height, width = x.shape[2], x.shape[3]
            ys = torch.arange(height, dtype=x.dtype) + 0.5
            xs = torch.arange(width, dtype=x.dtype) + 0.5
            grid = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), -1).reshape(-1, 2)
            found = self.head(x).flatten(2).transpose(1, 2)
            distances = found[..., :16].reshape(x.shape[0], -1, 4, 4).softmax(-1) @ self.bins
            boxes.append(torch.cat([grid - distances[..., :2], grid + distances[..., 2:]], -1) * (4 << index))
            scores.append(found[..., 16:].sigmoid())
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class Postprocess(nn.Module):
    """The best scores by TopK, their boxes by gather, and a matrix of overlaps as NMS makes it."""

    def forward(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best, classes = scores.max(-1)
        values, places = best.topk(5, dim=1)
        chosen = boxes.gather(1, places.unsqueeze(-1).expand(-1, -1, 4))
        low = torch.maximum(chosen[:, :, None, :2], chosen[:, None, :, :2])
        high = torch.minimum(chosen[:, :, None, 2:], chosen[:, None, :, 2:])
        inside = (high - low).clamp(min=0).prod(-1)
        area = (chosen[..., 2:] - chosen[..., :2]).clamp(min=0).prod(-1)
        overlap = inside / (area[:, :, None] + area[:, None, :] - inside + 1e-6)
        kept = (overlap.triu(1) < 0.5).all(1)
        return chosen, torch.where(kept, values, torch.zeros_like(values)), classes.gather(1, places)


class Recurrent(nn.Module):
    """An LSTM of two layers and directions, then a GRU, with their states as inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(16, 7, batch_first=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h, c))
        z, last = self.gru(y)
        return z, last, h + c


class Block(nn.Module):
    """A transformer's encoder block, with a mask of what is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 16))
        return x + self.mlp(self.norm2(x))


class Pooled(nn.Module):
    """Embeddings of words and places, the mean of those that are no padding, of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 12, padding_idx=0), nn.Embedding(40, 12)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        mask = (ids != 0).unsqueeze(-1).to(x.dtype)
        return F.normalize((x * mask).sum(1) / mask.sum(1).clamp(min=1), dim=-1)


class UNet(nn.Module):
    """Down, up and a shortcut, with group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.leaky_relu(self.down1(x))
        second = F.hardswish(self.norm(self.down2(F.max_pool2d(first, 2))))
        return self.last(torch.cat([first, self.up(second)], 1))


class Inverted(nn.Module):
    """Expansion, a depthwise convolution, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(4, 24, 1), nn.Conv2d(24, 24, 5, padding=2, groups=24, stride=2)
        self.down, self.up, self.project = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1), nn.Conv2d(24, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.depthwise(F.relu6(self.expand(x))))
        scale = F.hardsigmoid(self.up(F.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return self.project(y * scale)


class Upscale(nn.Module):
    """Pixel shuffle, its inverse, and both kinds of interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = F.pixel_shuffle(self.first(x), 2)
        near = F.interpolate(x, scale_factor=2.0, mode="nearest")
        smooth = F.interpolate(x, size=(y.shape[2], y.shape[3]), mode="bilinear", align_corners=False)
        return y + smooth, near - y, F.pixel_unshuffle(y, 2)


class Warp(nn.Module):
    """A picture sampled along an affine grid."""

    def forward(self, x: Tensor, theta: Tensor) -> Tensor:
        grid = F.affine_grid(theta, [x.shape[0], x.shape[1], x.shape[2], x.shape[3]], align_corners=False)
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


class Windows(nn.Module):
    """Attention within shifted windows: roll, partition, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, depth = x.shape
        y = torch.roll(x, (-1, -1), (1, 2)).reshape(batch, height // 4, 4, width // 4, 4, depth)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, depth)
        q, k, v = self.qkv(y).chunk(3, -1)
        y = ((q @ k.transpose(-2, -1)) * depth**-0.5).softmax(-1) @ v
        y = y.reshape(batch, height // 4, width // 4, 4, 4, depth).permute(0, 1, 3, 2, 4, 5)
        return x + torch.roll(y.reshape(batch, height, width, depth), (1, 1), (1, 2))


class Sums(nn.Module):
    """Einsum with repeated and with free letters, and a norm of powers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 6))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.einsum("bti,hij->bhtj", x, self.weight)
        return torch.einsum("bhtj,bsj->bhts", z, y), torch.einsum("bti,bti->bt", x, x).sqrt()


class Scattered(nn.Module):
    """Sums scattered by index, and what is gathered back."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        base = torch.zeros(x.shape[0], 7, dtype=x.dtype)
        summed = base.scatter_add(1, index, x)
        return summed, x.scatter(1, index.flip(1).clamp(max=3), x * 2).gather(1, index.clamp(max=3))


class Sliced(nn.Module):
    """Slices whose ends come from sizes, steps, and assignment into a slice."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        half = x.shape[1] // 2
        y = x.clone()
        y[:, :half] = x[:, x.shape[1] - half :] * 2
        return y, x[:, 1::2], torch.cat([x[:, :1], x[:, :-1]], 1) - x.flip(1)


class Branches(nn.Module):
    """One of two computations, chosen by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: torch.relu(self.one(y)), lambda y: torch.tanh(self.two(y)), (x,))


class Steps(nn.Module):
    """A loop of which TorchScript keeps the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for index in range(int(count)):
            h = torch.tanh(self.cell(h) + x[index])
            if bool(h.sum() > 3):
                h = h * 0.5
        return h


class Indexed(nn.Module):
    """Indexing by tensors and by masks, and where."""

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        picked = x[rows, :, rows]
        positive = torch.where(x > 0, x, x.mean(-1, keepdim=True))
        return picked, positive, x.masked_fill(x < -0.5, float("-inf")).amax(-1)


class Running(nn.Module):
    """Cumulative sums, sorting, and a histogram by comparison."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, order = x.sort(-1, descending=True)
        counts = (x.unsqueeze(-1) > torch.linspace(-1, 1, 5)).to(torch.int64).sum(1)
        return x.cumsum(1), values, order, counts


class Spectrum(nn.Module):
    """A windowed short-time transform by convolution, as audio front ends write it, and its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        time = torch.arange(32)
        angle = 2 * np.pi * torch.outer(torch.arange(17), time) / 32
        self.register_buffer("basis", torch.cat([angle.cos(), angle.sin()]).unsqueeze(1) * torch.hann_window(32))

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv1d(F.pad(x.unsqueeze(1), (16, 16), mode="reflect"), self.basis, stride=8)
        real, imaginary = y.split(17, 1)
        return torch.log1p(real**2 + imaginary**2)


class Transformed(nn.Module):
    """A real Fourier transform and the energy of its frequencies."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.rfft(x)
        return y.real**2 + y.imag**2


class Cached(nn.Module):
    """One step of attention with keys and values of the steps before, and rotary places."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        past = keys.shape[2]
        batch, length, _ = x.shape
        q, k, v = (t.reshape(batch, length, 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        places = torch.arange(length, dtype=x.dtype) + past
        angle = torch.outer(places, torch.tensor([1.0, 0.1]))
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

        def rotated(t: Tensor) -> Tensor:
            return t * cos + torch.cat([-t[..., 2:], t[..., :2]], -1) * sin

        keys, values = torch.cat([keys, rotated(k)], 2), torch.cat([values, v], 2)
        causal = torch.ones(length, past + length, dtype=torch.bool).tril(past)
        weights = (rotated(q) @ keys.transpose(-2, -1) * 0.5).masked_fill(~causal, float("-inf")).softmax(-1)
        return (weights @ values).transpose(1, 2).reshape(batch, length, 8), keys, values


class Sample(NamedTuple):
    """A module's inputs: shapes with names for what may differ, two values for each name, and an element type where it is not f32
    (``i`` with the numbers that ids lie below, ``b`` for a mask)."""

    shapes: dict[str, tuple[Any, ...]]
    sizes: dict[str, tuple[int, int]] = {}
    kinds: dict[str, Any] = {}
    exporters: tuple[str, ...] = ("ts", "dyn")
    scripted: bool = False


IMAGE = {"b": (1, 2), "h": (32, 48), "w": (40, 32)}
MODULES: dict[str, tuple[type[nn.Module], Sample]] = {
    "residual": (Residual, Sample({"x": ("b", 3, "h", "w")}, IMAGE)),
    "c2f": (C2f, Sample({"x": ("b", 4, "h", "w")}, IMAGE)),
    "detector": (Detector, Sample({"x": ("b", 3, "h", "w")}, IMAGE)),
    "postprocess": (Postprocess, Sample({"boxes": ("b", "n", 4), "scores": ("b", "n", 3)}, {"b": (1, 2), "n": (20, 31)})),
    "recurrent": (Recurrent, Sample({"x": ("b", "t", 6), "h": (4, "b", 8), "c": (4, "b", 8)}, {"b": (2, 3), "t": (7, 11)})),
    "block": (Block, Sample({"x": ("b", "t", 16), "mask": ("b", "t")}, {"b": (2, 3), "t": (9, 12)}, {"mask": "b"})),
    "pooled": (Pooled, Sample({"ids": ("b", "t")}, {"b": (2, 3), "t": (9, 12)}, {"ids": 50})),
    "unet": (UNet, Sample({"x": ("b", 2, "h", "w")}, IMAGE)),
    "inverted": (Inverted, Sample({"x": ("b", 4, "h", "w")}, IMAGE)),
    "upscale": (Upscale, Sample({"x": ("b", 3, "h", "w")}, {"b": (1, 2), "h": (8, 11), "w": (9, 7)})),
    "warp": (Warp, Sample({"x": ("b", 3, "h", "w"), "theta": ("b", 2, 3)}, {"b": (1, 2), "h": (8, 11), "w": (9, 7)})),
    "windows": (Windows, Sample({"x": ("b", "h", "w", 8)}, {"b": (2, 3), "h": (8, 12), "w": (12, 8)})),
    "sums": (Sums, Sample({"x": ("b", "t", 5), "y": ("b", "s", 6)}, {"b": (2, 3), "t": (4, 7), "s": (5, 3)})),
    "scattered": (Scattered, Sample({"x": ("b", 4), "index": ("b", 4)}, {"b": (2, 3)}, {"index": 7})),
    "sliced": (Sliced, Sample({"x": ("b", "t", 3)}, {"b": (2, 3), "t": (8, 11)})),
    "branches": (Branches, Sample({"x": ("b", 4)}, {"b": (2, 3)}, {}, ("dyn",))),
    "steps": (Steps, Sample({"x": ("t", 4), "count": ()}, {"t": (5, 8)}, {"count": (4, 5)}, ("ts",), True)),
    "indexed": (Indexed, Sample({"x": (4, "t", 4), "rows": ("n",)}, {"t": (5, 6), "n": (3, 7)}, {"rows": 4})),
    "running": (Running, Sample({"x": ("b", "t")}, {"b": (2, 3), "t": (9, 14)})),
    "spectrum": (Spectrum, Sample({"x": ("b", "n")}, {"b": (1, 2), "n": (160, 200)})),
    "transformed": (Transformed, Sample({"x": ("b", 64)}, {"b": (2, 3)}, {}, ("dyn",))),
    "cached": (
        Cached,
        Sample(
            {"x": ("b", "t", 8), "keys": ("b", 2, "p", 4), "values": ("b", 2, "p", 4)}, {"b": (1, 2), "t": (3, 2), "p": (5, 9)}
        ),
    ),
}


def inputs(sample: Sample, which: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded inputs at the first or the second sizes."""
    generator = np.random.default_rng(which)
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, shape in sample.shapes.items():
        sizes = [sample.sizes[size][which] if isinstance(size, str) else size for size in shape]
        kind = sample.kinds.get(name)
        if kind == "b":
            found[name] = np.arange(sizes[-1]) < sizes[-1] - np.arange(sizes[0])[:, None]
        elif isinstance(kind, int):
            found[name] = generator.integers(0, kind, sizes)
        elif isinstance(kind, tuple):
            found[name] = np.array(kind[which])
        else:
            found[name] = generator.standard_normal(sizes).astype(np.float32)
    return found


def exports(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Write one module in every way; yields what was not written, with the reason."""
    kind, sample = MODULES[name]
    torch.manual_seed(0)
    module: Any = kind().eval()
    if sample.scripted:
        module = torch.jit.script(module)
    first = tuple(torch.from_numpy(np.asarray(array)) for array in inputs(sample, 0).values())
    for exporter in sample.exporters:
        for spelling in ("s", "d"):
            record = f"{name}.{exporter}{spelling}"
            try:
                _export(module, first, folder / f"{record}.onnx", sample, exporter, spelling == "d")
            except Exception as error:
                yield record, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                continue
            np.savez(folder / f"{record}.in.npz", **inputs(sample, 0))
            if spelling == "d":
                np.savez(folder / f"{record}.in2.npz", **inputs(sample, 1))


def _export(module: Any, args: tuple[Tensor, ...], path: Path, sample: Sample, exporter: str, dynamic: bool) -> None:
    axes = {name: {i: size for i, size in enumerate(shape) if isinstance(size, str)} for name, shape in sample.shapes.items()}
    options: dict[str, Any] = {"input_names": list(sample.shapes), "opset_version": OPSETS[exporter]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "ts":
            if dynamic:
                options["dynamic_axes"] = {name: found for name, found in axes.items() if found}
            torch.onnx.export(module, args, str(path), dynamo=False, **options)
            return
        if dynamic:
            options["dynamic_shapes"] = tuple(dict.fromkeys(found, torch.export.Dim.DYNAMIC) or None for found in axes.values())
        torch.onnx.export(module, args, str(path), dynamo=True, external_data=False, verbose=False, **options)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    refused: dict[str, str] = {}
    for name in sys.argv[2:] or MODULES:
        refused.update(exports(folder, name))
    (folder / "refused.json").write_text(json.dumps(refused, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
