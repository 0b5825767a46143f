"""n-gram counts: TfIdfVectorizer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, View
from dovetail.ops.text.strings import strings_of

MODES = ("tf", "idf", "tfidf")


class TfIdfVectorizer(
    Op,
    sig="x: T -> y: f32",
    onnx="TfIdfVectorizer-9(x; max_gram_length, max_skip_count, min_gram_length, mode~lower, ngram_counts, "
    "ngram_indexes, pool_int64s?, pool_strings?, weights?)",
):
    """TfIdfVectorizer counts how often each n-gram of a pool occurs in ``x``, a vector or the rows of a matrix.

    The pool ``pool_strings`` or ``pool_int64s`` holds n-grams one after the other; the n-grams of length n begin at
    ``ngram_counts[n - 1]``. The i-th n-gram is counted at ``ngram_indexes[i]`` of the output. n-grams of length
    ``min_gram_length`` to ``max_gram_length`` are searched, with 0 to ``max_skip_count`` elements skipped between adjacent
    items. ``mode`` defines the result for an n-gram: ``tf`` the count; ``idf`` the i-th of ``weights`` (1 if empty) if the
    n-gram occurs, else 0; ``tfidf`` the count times the i-th of ``weights``.
    Source: ONNX TfIdfVectorizer 9.
    """

    mode: str
    min_gram_length: int
    max_gram_length: int
    max_skip_count: int
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def validate(self) -> None:
        if self.mode not in MODES:
            raise RuleError("attribute.value", f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if not 1 <= self.min_gram_length <= self.max_gram_length or self.max_skip_count < 0:
            raise RuleError(
                "attribute.range",
                f"min_gram_length must be in [1, max_gram_length ({self.max_gram_length})] and max_skip_count at least 0, got "
                f"{self.min_gram_length} and {self.max_skip_count}",
            )
        if bool(self.pool_int64s) == bool(self.pool_strings):
            raise RuleError(
                "attribute.conflict",
                f"TfIdfVectorizer needs either pool_int64s or pool_strings, got {'both' if self.pool_strings else 'neither'}",
            )
        if any(end < start for start, end in pairwise((0, *self.ngram_counts, self._pool_size()))) or not self.ngram_counts:
            raise RuleError(
                "attribute.length",
                f"ngram_counts must be ascending and at most {self._pool_size()}, got {list(self.ngram_counts)}",
            )
        if len(self.ngram_counts) < self.max_gram_length:
            raise RuleError(
                "attribute.range",
                f"max_gram_length ({self.max_gram_length}) must not exceed the number of ngram_counts ({len(self.ngram_counts)})",
            )
        if any((end - start) % length for length, start, end in self._pool_ranges()):
            raise RuleError("attribute.length", "the pool must hold only complete n-grams of each length, got a partial n-gram")
        if len(self.ngram_indexes) != self._ngram_count() or any(index < 0 for index in self.ngram_indexes):
            raise RuleError(
                "attribute.length",
                f"ngram_indexes must be {self._ngram_count()} numbers of at least 0, got {list(self.ngram_indexes)[:8]}",
            )
        if len(self._ngrams()) < self._ngram_count(self.min_gram_length, self.max_gram_length):
            raise RuleError("attribute.conflict", "n-grams of the pool must be distinct, got repeated n-grams")
        if self.mode == "idf" and len(set(self.ngram_indexes)) < len(self.ngram_indexes):
            raise UnsupportedError("op.unsupported", "ngram_indexes must be distinct with mode idf, got repeated indexes")
        if self.weights and len(self.weights) != self._ngram_count():
            raise RuleError("attribute.length", f"number of weights must be {self._ngram_count()}, got {len(self.weights)}")

    def _pool_size(self) -> int:
        return len(self.pool_int64s or self.pool_strings)

    def _pool_ranges(self) -> list[tuple[int, int, int]]:
        """Return (n, start, end) for each length n: the n-grams of length n are pool[start:end]."""
        bounds = pairwise((*self.ngram_counts, self._pool_size()))
        return [(length, start, end) for length, (start, end) in enumerate(bounds, 1)]

    def _ngram_count(self, shortest: int = 1, longest: int = 2**31) -> int:
        """Return the number of the pool's n-grams whose length is ``shortest`` to ``longest``."""
        return sum((end - start) // length for length, start, end in self._pool_ranges() if shortest <= length <= longest)

    def _ngrams(self) -> dict[tuple[Any, ...], int]:
        """Return a dictionary from each n-gram to be searched for to its index among the n-grams of the pool."""
        pool: tuple[Any, ...] = self.pool_int64s or self.pool_strings
        ngrams: dict[tuple[Any, ...], int] = {}
        number = 0
        for length, start, end in self._pool_ranges():
            for offset in range(start, end, length):
                if self.min_gram_length <= length <= self.max_gram_length:
                    ngrams.setdefault(pool[offset : offset + length], number)
                number += 1
        return ngrams

    def shape(self, x: View) -> Any:
        dtype = x.type.dtype if isinstance(x.type, Tensor) else None
        if dtype is not None and dtype.name not in (("string",) if self.pool_strings else ("i32", "i64")):
            raise RuleError("type.class", f"x must be {'string' if self.pool_strings else 'i32 or i64'}, got {dtype}")
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2):
            raise RuleError("shape.rank", f"x must have rank 1 or 2, got {len(x.shape)}")
        return (*x.shape[:-1], max(self.ngram_indexes, default=-1) + 1)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        items = strings_of(x) if self.pool_strings else x.reshape(-1).tolist()
        width = x.shape[-1]
        rows = (
            [items[start : start + width] for start in range(0, len(items), width)]
            if width
            else [[]] * int(np.prod(x.shape[:-1]))
        )
        y = np.zeros((len(rows), max(self.ngram_indexes, default=-1) + 1), np.float32)
        ngrams = self._ngrams()
        for row, counts in zip(rows, y, strict=True):
            self._count_row(row, ngrams, counts)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def _count_row(self, row: list[Any], ngrams: dict[tuple[Any, ...], int], y: Array) -> None:
        counts: dict[int, int] = {}
        # An n-gram longer than the row does not occur.
        for length in range(self.min_gram_length, min(self.max_gram_length, len(row)) + 1):
            max_step = 1 if length == 1 else min(self.max_skip_count + 1, (len(row) - 1) // (length - 1))
            for step in range(1, max_step + 1):
                for start in range(len(row) - (length - 1) * step):
                    number = ngrams.get(tuple(row[start : start + (length - 1) * step + 1 : step]))
                    if number is not None:
                        counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            weight = self.weights[number] if self.weights and self.mode != "tf" else 1.0
            y[self.ngram_indexes[number]] += np.float32(weight) * (1 if self.mode == "idf" else count)
