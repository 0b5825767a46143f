"""Integer codes of a weight matrix with scales and zero points, rounded to nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType

Array: TypeAlias = np.ndarray[Any, Any]
BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Numbers of codes of a block; MatMulNBits has powers of two from 16."""
SHRINK = np.linspace(1.0, 0.7, 16, dtype=np.float32)
"""Factors of a block's range among which the one of the smallest squared error is chosen."""
STRETCH = np.array([0.95, 1.0, 1.05], np.float32)
"""Factors of a scale with which the neighbours of a zero point are tried."""
CHUNK = 1 << 20
"""Number of elements that are rounded at a time."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid describes integer codes: ``bits``, the ``block`` of codes with one scale, and whether there are zero points.

    ``scale`` is the float type of scales, to which they are rounded.

    With ``dtype``, a float type of 8 bits, codes are numbers of that type, without zero points.

    Symmetric codes are signed, and their zero point is 0. Other codes are unsigned. ``block`` 0 means one block per row. Scales
    of symmetric blocks may be negative, so that the element of largest magnitude has the code of largest magnitude.
    """

    bits: int
    block: int = 0
    symmetric: bool = True
    scale: DType = dtypes.f32
    dtype: DType | None = None

    @property
    def code_type(self) -> DType:
        """The type in which codes are stored."""
        return dtypes.dtype(f"{'i' if self.symmetric else 'u'}{self.bits}") if self.dtype is None else self.dtype

    @property
    def array_type(self) -> type:
        """The type of arrays of codes: i16, or f32 for codes that are numbers of a float type."""
        return np.int16 if self.dtype is None else np.float32

    @property
    def low(self) -> int:
        """The smallest code. With one scale per row, -128 is left out, so that the range of 8 bits is symmetric."""
        if self.dtype is not None:
            return -self.high
        is_narrow = self.bits == 8 and not self.block
        return int(-127 if is_narrow else -(2 ** (self.bits - 1))) if self.symmetric else 0

    @property
    def high(self) -> int:
        if self.dtype is not None:
            return int(ml_dtypes.finfo(self.dtype.numpy).max)  # type: ignore[no-untyped-call]
        return int(2 ** (self.bits - 1) - 1 if self.symmetric else 2**self.bits - 1)

    def blocks(self, depth: int) -> int:
        """Return the number of blocks of a row of ``depth`` elements."""
        return -(-depth // self.block) if self.block else 1

    def bytes(self, rows: int, depth: int) -> int:
        """Return the bytes of the codes, scales and zero points of a matrix of ``rows`` rows."""
        scales = rows * self.blocks(depth)
        points = 0 if self.symmetric else rows * -(-self.blocks(depth) * self.bits // 8)
        return rows * depth * self.bits // 8 + self.scale.bits // 8 * scales + points


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes is a matrix of codes: ``codes`` i16 [rows, depth], f32 for float codes, and ``scales`` f32 [rows, blocks].

    ``zero_points`` i16 [rows, blocks] are all 0 on a symmetric grid. The elements are ``(code - zero_point) * scale``.
    """

    grid: Grid
    codes: Array
    scales: Array
    zero_points: Array

    def matrix(self) -> Array:
        """Return the elements in f32."""
        depth = self.codes.shape[1]
        width = self.grid.block or max(depth, 1)
        points, scales = (np.repeat(item, width, axis=1)[:, :depth] for item in (self.zero_points, self.scales))
        matrix: Array = (self.codes - points).astype(np.float32) * scales
        return matrix


def round_matrix(matrix: Array, grid: Grid) -> Codes:
    """Round each element of ``matrix`` f32 [rows, depth] to the nearest code of its block.

    A block's range is that of its elements, shrunk by the factor of SHRINK with the smallest squared error. A block of zeros has
    the scale 1. The elements must be finite.
    """
    rows, depth = matrix.shape
    count = grid.blocks(depth)
    codes = np.empty((rows, depth), grid.array_type)
    scales, points = np.empty((rows, count), np.float32), np.empty((rows, count), np.int16)
    step = max(1, CHUNK // max(depth, 1))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        blocks = split_blocks(matrix[part], grid)
        scales[part], points[part] = choose_scales(blocks, grid)
        rounded = encode(blocks, scales[part][..., None], points[part][..., None], grid)
        codes[part] = rounded.reshape(len(blocks), -1)[:, :depth]
    return Codes(grid, codes, scales, points)


def split_blocks(matrix: Array, grid: Grid) -> Array:
    """Return ``matrix`` as [rows, blocks, block], with zeros after a partial last block."""
    rows, depth = matrix.shape
    width = grid.block or depth
    count = grid.blocks(depth)
    if count * width != depth:
        matrix = np.pad(matrix, ((0, 0), (0, count * width - depth)))
    return matrix.reshape(rows, count, width)


# Errors above the range of f32 are infinite, and no smaller one is found.
@np.errstate(over="ignore", invalid="ignore")
def choose_scales(blocks: Array, grid: Grid) -> tuple[Array, Array]:
    """Return scales f32 and zero points i16 of ``blocks`` [..., block] with a small squared error.

    The candidates are the ranges of SHRINK; the least-squares scale of the codes of the best one; and, if there are zero points,
    the neighbours of its zero point, with the scales of STRETCH.
    """
    if grid.symmetric:
        low, high = None, _extremes(blocks) if grid.block else np.abs(blocks).max(axis=-1, initial=0)
    else:
        low, high = blocks.min(axis=-1, initial=0), blocks.max(axis=-1, initial=0)
    scales, points = _scales(low, high, grid)
    error = _squared_error(blocks, scales, points, grid)

    def consider(others: Array, other_points: Array) -> None:
        nonlocal scales, points, error
        other = _squared_error(blocks, others, other_points, grid)
        is_better = other < error
        scales = np.where(is_better, others, scales)
        points = np.where(is_better, other_points, points)
        error = np.where(is_better, other, error)

    for factor in SHRINK[1:]:
        consider(*_scales(None if low is None else low * factor, high * factor, grid))
    if not grid.symmetric:
        base, base_points = scales, points
        for step in (-1, 1):
            neighbours = np.clip(base_points + step, grid.low, grid.high).astype(np.int16)
            for factor in STRETCH:
                consider(_round_scales(base * factor, grid), neighbours)
    for _ in range(2):
        consider(_round_scales(_fit_scales(blocks, scales, points, grid), grid), points)
    return scales, points


def _fit_scales(blocks: Array, scales: Array, points: Array, grid: Grid) -> Array:
    """Return the scales with which the codes of ``blocks`` have the smallest squared error."""
    codes = (encode(blocks, scales[..., None], points[..., None], grid) - points[..., None]).astype(np.float32)
    squares, products = np.einsum("...i,...i->...", codes, codes), np.einsum("...i,...i->...", codes, blocks)
    fitted: Array = np.where(squares > 0, products / np.maximum(squares, np.float32(1)), scales)
    return fitted


def _extremes(blocks: Array) -> Array:
    """Return the element of largest magnitude of each block, with its sign."""
    high, low = blocks.max(axis=-1, initial=0), blocks.min(axis=-1, initial=0)
    extremes: Array = np.where(high > -low, high, low)
    return extremes


def _scales(low: Array | None, high: Array, grid: Grid) -> tuple[Array, Array]:
    """Return the scales and zero points of ranges; without ``low``, ``high`` has the largest magnitude.

    That gets the largest code, or in blocks the smallest code, whose magnitude is larger by 1.
    """
    if low is None:
        scales = high / np.float32(grid.low if grid.block else grid.high)
    else:
        scales = (high - low) / np.float32(grid.high - grid.low)
    scales = _round_scales(scales, grid)
    if low is None:
        return scales, np.zeros(scales.shape, np.int16)
    return scales, np.clip(np.rint(grid.low - low / scales), grid.low, grid.high).astype(np.int16)


def _round_scales(scales: Array, grid: Grid) -> Array:
    """Return scales in f32, rounded to the type in which they are stored; 1 for 0."""
    stored = scales.astype(grid.scale.numpy).astype(np.float32)
    rounded: Array = np.where(stored != 0, stored, np.float32(1))
    return rounded


def _squared_error(blocks: Array, scales: Array, points: Array, grid: Grid) -> Array:
    scales, points = scales[..., None], points[..., None]
    difference = (encode(blocks, scales, points, grid) - points).astype(np.float32) * scales - blocks
    errors: Array = np.einsum("...i,...i->...", difference, difference)
    return errors


def encode(values: Array, scales: Array, points: Array, grid: Grid) -> Array:
    """Return the codes of ``values``; ``scales`` and ``points`` broadcast to them."""
    if grid.dtype is not None:
        rounded: Array = np.clip(values / scales, grid.low, grid.high).astype(grid.dtype.numpy).astype(np.float32)
        return rounded
    codes: Array = np.clip(np.rint(values / scales) + points, grid.low, grid.high).astype(np.int16)
    return codes
