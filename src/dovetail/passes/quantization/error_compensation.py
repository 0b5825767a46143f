"""Rounding of a weight matrix column by column, in which later columns compensate the errors of earlier ones.

Source: Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2023, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.passes.quantization.codes import Array, Codes, Grid, choose_scales, encode, split_blocks

DAMPING = (0.01, 0.3)
"""Shares of the mean of the Hessian's diagonal, one of which is added to the diagonal: the more, the less is compensated."""
COLUMNS = 128
"""Number of columns after which the errors are propagated to all later columns, and size of a matrix inverted at once."""


def compensate(matrix: Array, hessians: Sequence[Array], grid: Grid, nearest: Codes) -> Codes:
    """Round ``matrix`` f32 [rows, depth] with the damping of DAMPING that suits its inputs; return ``nearest`` if none does.

    ``hessians`` are two Hessians of different inputs. A damping is judged by the error on the inputs of the second one, of the
    matrix that is rounded with the first one: where inputs are not correlated, or few, compensation makes the error larger.
    """
    fit, judge = hessians
    if not (np.all(np.isfinite(fit)) and np.all(np.isfinite(judge))):
        return nearest
    smallest, best = _output_error(nearest, matrix, judge), None
    for damping in DAMPING:
        codes = round_with_compensation(matrix, fit, grid, damping)
        if codes is not None and (error := _output_error(codes, matrix, judge)) < smallest:
            smallest, best = error, damping
    if best is None:
        return nearest
    return round_with_compensation(matrix, fit + judge, grid, best) or nearest


@np.errstate(over="ignore", invalid="ignore")
def _output_error(codes: Codes, matrix: Array, hessian: Array) -> float:
    """Return the squared error of ``x @ matrix.T`` over the inputs x of ``hessian``."""
    difference = (codes.matrix() - matrix).astype(np.float64)
    return float(np.einsum("ij,ij->", difference @ hessian, difference))


# Columns that overflow f32 have an error of NaN, with which `compensate` returns the nearest codes.
@np.errstate(over="ignore", invalid="ignore")
def round_with_compensation(matrix: Array, hessian: Array, grid: Grid, damping: float = DAMPING[0]) -> Codes | None:
    """Round ``matrix`` f32 [rows, depth] so that ``x @ matrix.T`` changes little for the inputs x of ``hessian``.

    ``hessian`` f64 [depth, depth] is the sum of ``x.T @ x``. The scales of a block are chosen when its first column is rounded,
    from the columns that then contain the errors of earlier ones. ``damping`` is a share of the mean of the diagonal. Returns
    None if the damped Hessian is not positive definite.
    """
    rows, depth = matrix.shape
    factor = _inverse_factor(hessian, damping)
    if factor is None:
        return None
    work = matrix.astype(np.float32)
    codes = np.empty((rows, depth), np.int16)
    count, width = grid.blocks(depth), grid.block or depth
    scales, points = np.empty((rows, count), np.float32), np.empty((rows, count), np.int16)
    for start in range(0, depth, COLUMNS):
        stop = min(start + COLUMNS, depth)
        errors = np.empty((rows, stop - start), np.float32)
        for column in range(start, stop):
            index = column // width
            if column % width == 0:
                if stop < min(column + width, depth):
                    # The block ends after the columns that the inner loop updates.
                    tail = factor[start:column, stop : column + width]
                    later = work[:, stop : column + width] - errors[:, : column - start] @ tail
                    block = np.concatenate([work[:, column:stop], later], axis=1)
                else:
                    block = work[:, column : column + width]
                parts = split_blocks(block, Grid(grid.bits, width, grid.symmetric))
                block_scales, block_points = choose_scales(parts, grid)
                scales[:, index], points[:, index] = block_scales[:, 0], block_points[:, 0]
            codes[:, column] = encode(work[:, column], scales[:, index], points[:, index], grid)
            rounded = (codes[:, column] - points[:, index]) * scales[:, index]
            error = (work[:, column] - rounded) / factor[column, column]
            work[:, column:stop] -= np.outer(error, factor[column, column:stop])
            errors[:, column - start] = error
        work[:, stop:] -= errors @ factor[start:stop, stop:]
    return Codes(grid, codes, scales, points)


def _inverse_factor(hessian: Array, damping: float) -> Array | None:
    """Return the upper Cholesky factor of the inverse of the damped Hessian in f32; None if it has none."""
    damped = np.array(hessian, np.float64)
    diagonal = np.einsum("ii->i", damped)
    mean = float(diagonal.mean()) if len(diagonal) else 0.0
    if not np.isfinite(mean) or mean <= 0:
        return None
    diagonal += damping * mean
    try:
        # With the order of rows and columns reversed, the lower factor becomes an upper one, whose inverse is upper as well.
        factor = _invert_upper(np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1])
    except np.linalg.LinAlgError:
        return None
    factor = factor.astype(np.float32)
    return factor if np.all(np.isfinite(factor)) else None


def _invert_upper(matrix: Array) -> Array:
    """Return the inverse of an upper triangular matrix: of its four parts, recursively."""
    size = len(matrix)
    if size <= COLUMNS:
        inverse: Array = np.triu(np.linalg.inv(matrix))
        return inverse
    half = size // 2
    inverse = np.zeros_like(matrix)
    inverse[:half, :half] = _invert_upper(matrix[:half, :half])
    inverse[half:, half:] = _invert_upper(matrix[half:, half:])
    inverse[:half, half:] = -inverse[:half, :half] @ matrix[:half, half:] @ inverse[half:, half:]
    return inverse
