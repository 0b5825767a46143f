"""How often terms occur: TfIdfVectorizer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ops.text.strings import texts

MODES = ("tf", "idf", "tfidf")


class TfIdfVectorizer(
    Op,
    sig="x: T -> y: f32",
    onnx="TfIdfVectorizer-9(x; max_gram_length:longest, max_skip_count:most_skipped, min_gram_length:shortest, mode~lower, "
    "ngram_counts:starts, ngram_indexes:places, pool_int64s:numbers?, pool_strings:words?, weights?)",
):
    """How often each n-gram of a pool occurs in ``x``, a vector or the rows of a matrix.

    The pool is ``words`` or ``numbers``, laid end to end, those of length n from ``starts[n - 1]`` on; the i-th is counted at
    ``places[i]`` of the result. Those of length ``shortest`` to ``longest`` are looked for, with 0 to ``most_skipped`` elements
    left out between each two. ``tf``: the count; ``idf``: the i-th of ``weights`` (each 1 where there are none) where it occurs;
    ``tfidf``: the count times the weight. Source: ONNX TfIdfVectorizer 9.
    """

    mode: str
    shortest: int
    longest: int
    most_skipped: int
    starts: tuple[int, ...]
    places: tuple[int, ...]
    numbers: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def validate(self) -> None:
        if self.mode not in MODES:
            raise RuleError("terms.mode", f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if not 1 <= self.shortest <= self.longest or self.most_skipped < 0:
            raise RuleError("terms.length", f"lengths {self.shortest} to {self.longest}, with up to {self.most_skipped} left out")
        if bool(self.numbers) == bool(self.words):
            raise RuleError("terms.pool", "either numbers or words are looked for")
        if any(end < start for start, end in pairwise((0, *self.starts, self._size()))) or not self.starts:
            raise RuleError("terms.pool", f"n-grams that begin at {list(self.starts)} of {self._size()}")
        if len(self.starts) < self.longest:
            raise RuleError("terms.length", f"lengths up to {self.longest}, and {len(self.starts)} in the pool")
        if any((end - start) % length for length, start, end in self._levels()):
            raise RuleError("terms.pool", "an n-gram of the pool is cut off")
        if len(self.places) != self._count() or any(place < 0 for place in self.places):
            raise RuleError("terms.places", f"{len(self.places)} places for {self._count()} n-grams")
        if len(self._terms()) < self._count(self.shortest, self.longest):
            raise RuleError("terms.pool", "an n-gram stands in the pool twice")
        if self.mode == "idf" and len(set(self.places)) < len(self.places):
            raise UnsupportedError("terms.places", "what idf says of several n-grams that are counted in one place")
        if self.weights and len(self.weights) != self._count():
            raise RuleError("terms.weights", f"{len(self.weights)} weights for {self._count()} n-grams")

    def _size(self) -> int:
        return len(self.numbers or self.words)

    def _levels(self) -> list[tuple[int, int, int]]:
        """For each length where its n-grams begin and end in the pool."""
        bounds = pairwise((*self.starts, self._size()))
        return [(length, start, end) for length, (start, end) in enumerate(bounds, 1)]

    def _count(self, shortest: int = 1, longest: int = 2**31) -> int:
        """How many n-grams of these lengths there are."""
        return sum((end - start) // length for length, start, end in self._levels() if shortest <= length <= longest)

    def _terms(self) -> dict[tuple[Any, ...], int]:
        """The number of each n-gram that is looked for."""
        pool: tuple[Any, ...] = self.numbers or self.words
        found: dict[tuple[Any, ...], int] = {}
        number = 0
        for length, start, end in self._levels():
            for place in range(start, end, length):
                if self.shortest <= length <= self.longest:
                    found.setdefault(pool[place : place + length], number)
                number += 1
        return found

    def shape(self, x: Any) -> Any:
        if x.type.dtype is not None and x.type.dtype.name not in (("string",) if self.words else ("i32", "i64")):
            raise RuleError("type.class", f"{'words' if self.words else 'numbers'} are looked for in {x.type.dtype}")
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2):
            raise RuleError("input.rank", f"a vector or a matrix is needed, not rank {len(x.shape)}")
        return (*x.shape[:-1], max(self.places, default=-1) + 1)

    def evaluate(self, xp: Any, x: Any) -> Any:
        items = texts(x) if self.words else x.reshape(-1).tolist()
        width = x.shape[-1]
        rows = (
            [items[start : start + width] for start in range(0, len(items), width)]
            if width
            else [[]] * int(np.prod(x.shape[:-1]))
        )
        y = np.zeros((len(rows), max(self.places, default=-1) + 1), np.float32)
        terms = self._terms()
        for row, into in zip(rows, y, strict=True):
            self._count_row(row, terms, into)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def _count_row(self, row: list[Any], terms: dict[tuple[Any, ...], int], y: Any) -> None:
        counts: dict[int, int] = {}
        # What is longer than the row, or skips more than it has, occurs nowhere.
        for length in range(self.shortest, min(self.longest, len(row)) + 1):
            furthest = 1 if length == 1 else min(self.most_skipped + 1, (len(row) - 1) // (length - 1))
            for step in range(1, furthest + 1):
                for start in range(len(row) - (length - 1) * step):
                    number = terms.get(tuple(row[start : start + (length - 1) * step + 1 : step]))
                    if number is not None:
                        counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            weight = self.weights[number] if self.weights and self.mode != "tf" else 1.0
            y[self.places[number]] += np.float32(weight) * (1 if self.mode == "idf" else count)
