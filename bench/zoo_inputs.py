"""Inputs that suit the trained models of the zoo, from the words of bench/zoo_models.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx


def write_inputs(source: Path, target: Path, which: int, words: Mapping[str, str]) -> None:
    """Seeded inputs for the model ``source``, in the element types that it declares."""
    graph = onnx.load(str(source), load_external_data=False).graph
    kinds = {x.name: onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type) for x in graph.input}
    generator = np.random.default_rng(which)
    found = {name: _made(text, generator).astype(kinds[name]) for name, text in words.items()}
    np.savez(target, **found)


def _made(words: str, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    kind, _, sizes = words.partition(" ")
    kind, _, value = kind.partition(":")
    shape = [int(size) for size in sizes.split(",")] if sizes else []
    match kind:
        case "image":
            return generator.uniform(0, 1, shape)
        case "signed":
            return generator.uniform(-1, 1, shape)
        case "normal":
            return generator.standard_normal(shape)
        case "audio":
            time = np.arange(np.prod(shape)).reshape(shape) / 16000
            return 0.3 * np.sin(2 * np.pi * 220 * time) + 0.05 * generator.standard_normal(shape)
        case "zeros":
            return np.zeros(shape)
        case "ones":
            return np.ones(shape)
        case "mask":
            return np.arange(shape[1]) < shape[1] - 2 * np.arange(shape[0])[:, None]
        case "ids":
            return generator.integers(1, int(value), shape)
        case "value":
            return np.full(shape, float(value))
    raise ValueError(f"{words!r} is no kind of input")
