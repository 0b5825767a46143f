"""A network under way: its steps beside the answers of each run, and how operands are chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.op import REGISTRY, Op, infer_types, output_count
from dovetail.ir.types import Tensor, View
from networks.network import Input, Network, Size, Step
from networks.reference import Answer, Unstable, evaluate, exact

REAL = "real"
"""In place of an element type: the network's own floats."""
LARGEST = 20_000
"""Elements of a tensor beyond which a network is not carried on."""
CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40)
"""They cross the widths of vectors and the edges of tiles."""


class Maker:
    """Writes one network. ``sizes``: for each symbol its size in every run."""

    def __init__(self, seed: Any, sizes: dict[str, tuple[int, ...]] | None = None, shots: int = 1) -> None:
        self.random = random.Random(f"network {seed}")
        self.arrays = np.random.default_rng(self.random.getrandbits(63))
        self.network = Network(shots=[{} for _ in range(shots)])
        self.sizes = sizes or {}
        self.answers: list[dict[str, Answer]] = [{} for _ in range(shots)]
        self.values: list[str] = []
        """Names of what is no constant, in order."""
        self.uses: dict[str, int] = {}
        self.shapes: dict[str, tuple[Size, ...]] = {}
        """Of graph inputs, with their symbols."""
        self.grids: dict[str, tuple[str, str]] = {}
        """Scale and zero point with which a value is quantised."""
        self.kind = "f32"
        """The floats of which steps that compute are made."""
        self.precision = "f32"
        """What products an engine may round, for the tolerances; see :func:`networks.reference.evaluate`."""
        self.largest = LARGEST
        self.refused = 0
        self.depth = 0

    # Choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def among(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    # What is known of a value

    def answer(self, name: str) -> Answer:
        return self.answers[0][name]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.answers[0][name].actual.shape)

    def rank(self, name: str) -> int:
        return int(self.answers[0][name].actual.ndim)

    def dtype(self, name: str) -> str:
        return self.answers[0][name].dtype

    def is_open(self, name: str, axis: int | None = None) -> bool:
        """Return whether a size differs from run to run."""
        shapes = {answers[name].actual.shape for answers in self.answers}
        return len(shapes if axis is None else {shape[axis] for shape in shapes}) > 1

    def count(self, name: str) -> int:
        return max(int(answers[name].actual.size) for answers in self.answers)

    def pick(
        self, suits: Callable[[str], bool] | None = None, dtype: str | None = REAL, rank: int | None = None, least: int = 0
    ) -> str | None:
        """Return a value: most often a late one, now and then an early one or a graph input, which is so used once more."""
        dtype = self.kind if dtype == REAL else dtype
        found = [
            name
            for name in self.values
            if (dtype is None or self.dtype(name) == dtype)
            and (rank is None or self.rank(name) == rank)
            and self.rank(name) >= least
            and self.count(name) <= self.largest
            and (suits is None or suits(name))
        ]
        if not found:
            return None
        return str(self.among(found[-3:] if self.chance(0.65) else found))

    def alike(self, name: str, but: Sequence[str] = ()) -> list[str]:
        """Values of the same type and shape in every run."""
        return [
            other
            for other in self.values
            if other not in but
            and self.dtype(other) == self.dtype(name)
            and all(answers[other].actual.shape == answers[name].actual.shape for answers in self.answers)
        ]

    # What is written

    def constant(self, array: Any) -> str:
        name = f"c{len(self.network.constants)}"
        array = np.asarray(array)
        self.network.constants[name] = array
        for answers in self.answers:
            answers[name] = exact(array)
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def input(self, dtype: str, shape: Sequence[Size], make: Callable[[tuple[int, ...]], Any] | None = None) -> str:
        """Return a new graph input; ``make`` gives the array of a shape."""
        name = f"x{len(self.network.inputs)}"
        self.network.inputs.append(Input(name, dtype, tuple(shape)))
        style = self.number(0, 7)
        for place, (answers, shot) in enumerate(zip(self.answers, self.network.shots, strict=True)):
            sizes = tuple(size if isinstance(size, int) else self.sizes[size][place] for size in shape)
            shot[name] = self.data(dtype, sizes, style) if make is None else make(sizes)
            answers[name] = exact(shot[name])
        self.values.append(name)
        self.shapes[name] = tuple(shape)
        return name

    def data(self, dtype: str, shape: Sequence[int], style: int = 7) -> Any:
        """Return an array: from a normal distribution, now and then of few different numbers, which makes ties."""
        kind = dtypes.dtype(dtype)
        if dtype == "boolean":
            return self.arrays.random(shape) < 0.5
        if kind.is_float:
            found = self.arrays.standard_normal(shape)
            if style == 0:
                found = np.round(found)
            if style == 1:
                found = np.maximum(found, 0)
            return np.asarray(found, np.float32).astype(kind.numpy)
        low, high = kind.range()
        wide = max(int(low), -100), min(int(high), 100)
        return self.arrays.integers(
            *(wide if dtype in ("i32", "i64") else (int(low), int(high))), tuple(shape), endpoint=True
        ).astype(kind.numpy)

    def weights(self, shape: Sequence[int], fan: int | None = None, share: float = 0.04) -> str:
        """Constants scaled so that sums of ``fan`` products keep their magnitude; seldom a graph input."""
        scale = 1 / np.sqrt(max(1, prod(shape[1:]) if fan is None else fan))
        if self.depth == 0 and self.chance(share):
            return self.input(self.kind, shape, lambda sizes: self.real(self.arrays.standard_normal(sizes) * scale))
        return self.constant(self.real(self.arrays.standard_normal(tuple(shape)) * scale))

    def real(self, array: Any) -> Any:
        """Return an array of the network's own floats."""
        return np.asarray(array, np.float32).astype(dtypes.dtype(self.kind).numpy)

    def same_input(self, name: str, dtype: str | None = None) -> str | None:
        """Return a new graph input of the shape of a value, where its sizes can be declared."""
        shape: tuple[Size, ...] | None = self.shapes.get(name)
        if shape is None and not self.is_open(name):
            shape = self.shape(name)
        return None if shape is None or self.depth else self.input(dtype or self.dtype(name), shape)

    def add(self, kind: str | Op, *reads: str | None, **attributes: Any) -> list[str] | None:
        """One operator; None where it refuses its operands, is ill-conditioned, or would be too large."""
        try:
            op = REGISTRY[kind](**attributes) if isinstance(kind, str) else kind
            for answers in self.answers:
                infer_types(op, tuple(_view(answers, x, x in self.network.constants) for x in reads))
            made = [
                evaluate(op, [None if x is None else answers[x] for x in reads], self.arrays, self.precision)
                for answers in self.answers
            ]
        except (
            DovetailError,
            Unstable,
            ValueError,
            IndexError,
            TypeError,
            ArithmeticError,
            NotImplementedError,
            symbolic.Inexact,
        ):
            self.refused += 1
            return None
        if any(answer.actual.size > 4 * self.largest for row in made for answer in row):
            return None
        kept = made[0][: output_count(op)]
        start = sum(len(step.writes) for step in self.network.steps)
        names = tuple(f"v{start + place}" for place in range(len(kept)))
        for answers, row in zip(self.answers, made, strict=True):
            answers.update(zip(names, row, strict=False))
        self.network.steps.append(Step(op, tuple(reads), names))
        self.values.extend(names)
        for read in reads:
            if read is not None:
                self.uses[read] = self.uses.get(read, 0) + 1
        return list(names)

    def one(self, kind: str | Op, *reads: str | None, **attributes: Any) -> str | None:
        """Return the first output of :meth:`add`."""
        found = self.add(kind, *reads, **attributes)
        return found[0] if found else None


def _view(answers: Mapping[str, Answer], name: str | None, is_constant: bool) -> View | None:
    """Return the view of a value for an operator's type rule, which refuses operands that ``evaluate`` alone would accept."""
    if name is None:
        return None
    array = answers[name].actual
    is_small = is_constant and array.size <= 64 and array.dtype.kind in "iu"
    return View(Tensor(dtypes.dtype(array.dtype), array.shape), array.astype(np.int64) if is_small else None)
