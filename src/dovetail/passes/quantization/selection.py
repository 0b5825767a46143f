"""Selection of the weights that keep their type, so that the error of the outputs stays within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.passes.quantization.weights import ModelWeight


def order_to_keep(weights: Sequence[ModelWeight], errors: Sequence[float]) -> list[int]:
    """Return the indices of weights by squared error for each byte that rounding saves, the largest first."""
    return sorted(range(len(weights)), key=lambda index: -(errors[index] ** 2) / max(weights[index].saving, 1))


def predict_count(order: Sequence[int], errors: Sequence[float], budget: float) -> int:
    """Return the smallest number of kept weights with which the predicted error is within ``budget``.

    The errors of different weights are taken as uncorrelated, so that their squares add up.
    """
    squares = [errors[index] ** 2 for index in order]
    for count in range(len(order)):
        if sum(squares[count:]) <= budget**2:
            return count
    return len(order)


def smallest_count(first: int, count: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number in 0 .. ``count`` for which ``holds`` is true, by bisection from the guess ``first``.

    ``holds`` is true for ``count``. The distance from the guess doubles until the answer changes.
    """
    low, high, step = -1, count, 1
    probe = min(first, count - 1)
    while high - low > 1:
        if holds(probe):
            high = probe
            candidate = probe - step
        else:
            low = probe
            candidate = probe + step
        step *= 2
        probe = candidate if low < candidate < high else (low + high) // 2
    return high
