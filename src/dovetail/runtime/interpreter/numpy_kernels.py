"""Kernels in numpy of the operators that take most of the time of a model, with their products divided among threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dovetail.ir.arrays import Array
from dovetail.ir.arrays.convolution import convolve_blocks, multiply_matrices
from dovetail.ir.arrays.movement import pad
from dovetail.ir.op import Op
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.runtime.interpreter.worker_threads import WorkerThreads

Kernel: TypeAlias = Callable[[Any, WorkerThreads, Sequence[Array | None]], Array | None]
"""A function of an operator, the threads and the inputs that returns the output as a new array, or None for other operands."""


def _have_blas(*xs: Array) -> bool:
    """Return whether the arrays have one type for which BLAS exists, and elements."""
    return xs[0].dtype in (np.float32, np.float64) and all(x.dtype == xs[0].dtype and x.size for x in xs)


def convolve(op: Conv, threads: WorkerThreads, xs: Sequence[Array | None]) -> Array | None:
    x, w, bias = (*xs, None)[:3]
    if x is None or w is None or not _have_blas(x, w):
        return None
    geometry = op.geometry(x.shape[2:], w.shape[2:])
    x = pad(np, x, (0, 0, *geometry.begins), (0, 0, *geometry.ends))
    y = convolve_blocks(x, w, geometry.strides, geometry.dilations, op.group, threads.run, threads.count)
    if bias is not None:
        y += bias.reshape(1, -1, *(1,) * (y.ndim - 2))
    return y


def multiply(op: MatMul, threads: WorkerThreads, xs: Sequence[Array | None]) -> Array | None:
    x, y = xs
    if x is None or y is None or min(x.ndim, y.ndim) < 2 or not _have_blas(x, y):
        return None
    x = _blas_operand(np.matrix_transpose(x) if op.transpose_a else x)
    y = _blas_operand(np.matrix_transpose(y) if op.transpose_b else y)
    if y.ndim == 2 and x.ndim > 2 and x.flags.c_contiguous:
        # One product of all rows.
        product = multiply_matrices(x.reshape(-1, x.shape[-1]), y, threads.run, threads.count)
        return product.reshape(*x.shape[:-1], y.shape[-1])
    return multiply_matrices(x, y, threads.run, threads.count)


def multiply_add(op: Gemm, threads: WorkerThreads, xs: Sequence[Array | None]) -> Array | None:
    x, y, bias = (*xs, None)[:3]
    product = multiply(MatMul(op.transpose_a, op.transpose_b), threads, [x, y])
    if product is None:
        return None
    if op.alpha != 1:
        product *= op.alpha
    if bias is not None:
        product += bias if op.beta == 1 else bias * op.beta
    return product


def _blas_operand(x: Array) -> Array:
    """Return matrices with one stride of an element, which numpy passes to BLAS; it multiplies others in plain loops."""
    return x if x.itemsize in x.strides[-2:] else np.ascontiguousarray(x)


KERNELS: Mapping[type[Op], Kernel] = {Conv: convolve, Gemm: multiply_add, MatMul: multiply}
