"""Rounding of a weight matrix column by column, in which later columns compensate the errors of earlier ones.

Source: Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2023, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.passes.quantization.codes import Array, Codes, Grid, choose_scales, encode

DAMPING = (0.01, 0.3)
"""Shares of the mean of the Hessian's diagonal, one of which is added to the diagonal: the more, the less is compensated."""
COLUMNS = 128
"""Number of columns after which the errors are propagated to all later columns, and size of a matrix inverted at once."""


def compensate(matrix: Array, hessians: Sequence[Array], grid: Grid, nearest: Codes) -> Codes:
    """Round ``matrix`` f32 [rows, depth] with the damping of DAMPING that suits its inputs; return ``nearest`` if none does.

    ``hessians`` are two Hessians of different inputs, each of the form that :func:`round_with_compensation` takes. A damping is
    judged by the error on the inputs of the second one, of the matrix that is rounded with the first one: where inputs are not
    correlated, or few, compensation makes the error larger.
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
    difference = _split_groups((codes.matrix() - matrix).astype(np.float64), hessian)
    return float(np.einsum("gij,gij->", difference @ hessian, difference))


def _split_groups(matrix: Array, hessian: Array) -> Array:
    """Return ``matrix`` [rows, depth] as [groups, rows of a group, depth]; a Hessian of one group has no axis of groups."""
    groups = len(hessian) if hessian.ndim == 3 else 1
    return matrix.reshape(groups, -1, matrix.shape[1])


# Columns that overflow f32 have an error of NaN, with which `compensate` returns the nearest codes.
@np.errstate(over="ignore", invalid="ignore")
def round_with_compensation(matrix: Array, hessian: Array, grid: Grid, damping: float = DAMPING[0]) -> Codes | None:
    """Round ``matrix`` f32 [rows, depth] so that ``x @ matrix.T`` changes little for the inputs x of ``hessian``.

    ``hessian`` f64 [depth, depth] is the sum of ``x.T @ x``; for [groups, depth, depth], consecutive rows of the matrix form
    groups with a Hessian each. The scales of a block are chosen when its first column is rounded, from the columns that then
    contain the errors of earlier ones. ``damping`` is a share of the mean of the diagonal. Returns None if a damped Hessian is
    not positive definite.
    """
    depth = matrix.shape[1]
    factor = _inverse_factor(hessian.reshape(-1, depth, depth), damping)
    if factor is None:
        return None
    work = _split_groups(matrix.astype(np.float32), hessian)
    groups, rows, _ = work.shape
    codes = np.empty((groups, rows, depth), grid.array_type)
    count, width = grid.blocks(depth), grid.block or depth
    scales, points = np.empty((groups, rows, count), np.float32), np.empty((groups, rows, count), np.int16)
    for start in range(0, depth, COLUMNS):
        stop = min(start + COLUMNS, depth)
        errors = np.empty((groups, rows, stop - start), np.float32)
        for column in range(start, stop):
            index = column // width
            if column % width == 0:
                if stop < min(column + width, depth):
                    # The block ends after the columns that the inner loop updates.
                    tail = factor[:, start:column, stop : column + width]
                    later = work[..., stop : column + width] - errors[..., : column - start] @ tail
                    block = np.concatenate([work[..., column:stop], later], axis=-1)
                else:
                    block = work[..., column : column + width]
                scales[..., index], points[..., index] = choose_scales(block, grid)
            codes[..., column] = encode(work[..., column], scales[..., index], points[..., index], grid)
            rounded = (codes[..., column] - points[..., index]) * scales[..., index]
            error = (work[..., column] - rounded) / factor[:, None, column, column]
            work[..., column:stop] -= error[..., None] * factor[:, None, column, column:stop]
            errors[..., column - start] = error
        work[..., stop:] -= errors @ factor[:, start:stop, stop:]
    return Codes(grid, codes.reshape(-1, depth), scales.reshape(-1, count), points.reshape(-1, count))


def _inverse_factor(hessian: Array, damping: float) -> Array | None:
    """Return the upper Cholesky factors of the inverses of damped Hessians [groups, depth, depth] in f32; None if one has none.

    For a Hessian of zeros, whose inputs are all 0, the factor is the identity.
    """
    damped = np.array(hessian, np.float64)
    diagonals = np.einsum("gii->gi", damped)
    means = diagonals.mean(axis=1) if damped.shape[1] else np.zeros(len(damped))
    if not np.all(np.isfinite(means)):
        return None
    diagonals += np.where(means > 0, damping * means, 1)[:, None]
    try:
        # With the order of rows and columns reversed, the lower factor becomes an upper one, whose inverse is upper as well.
        factor = _invert_upper(np.linalg.cholesky(damped[:, ::-1, ::-1])[:, ::-1, ::-1])
    except np.linalg.LinAlgError:
        return None
    factor = factor.astype(np.float32)
    return factor if np.all(np.isfinite(factor)) else None


def _invert_upper(matrix: Array) -> Array:
    """Return the inverses of upper triangular matrices [..., n, n]: of their four parts, recursively."""
    size = matrix.shape[-1]
    if size <= COLUMNS:
        inverse: Array = np.triu(np.linalg.inv(matrix))
        return inverse
    half = size // 2
    inverse = np.zeros_like(matrix)
    inverse[..., :half, :half] = _invert_upper(matrix[..., :half, :half])
    inverse[..., half:, half:] = _invert_upper(matrix[..., half:, half:])
    inverse[..., :half, half:] = -inverse[..., :half, :half] @ matrix[..., :half, half:] @ inverse[..., half:, half:]
    return inverse
