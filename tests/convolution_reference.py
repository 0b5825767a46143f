"""Convolution and its activations in f64, as sums written out in numpy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np


def convolved(x: Any, w: Any, strides: Any, dilations: Any, begin: Any, end: Any, groups: int) -> Any:
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(begin, end, strict=True)])
    kernel = w.shape[2:]
    out = [(size - (k - 1) * d - 1) // s + 1 for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    x = x.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype(np.float64)
    y: Any = 0.0
    for tap in itertools.product(*map(range, kernel)):
        where = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, out, strides, strict=True))
        y = y + np.einsum("ngc...,goc->ngo...", x[(..., *where)], w[(..., *tap)])
    return y.reshape(x.shape[0], w.shape[0] * w.shape[1], *out)


SQRT_HALF = math.sqrt(0.5)
ACTIVATIONS = {
    "leaky_relu": lambda x: np.where(x < 0, 0.2 * x, x),
    "elu": lambda x: np.where(x < 0, 0.2 * np.expm1(x), x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x * SQRT_HALF)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
