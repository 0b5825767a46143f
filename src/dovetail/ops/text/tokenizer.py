"""Splitting of strings into tokens: Tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.errors import RuleError
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.limits import current, refuse_text
from dovetail.ir.op import Op
from dovetail.ir.types import View
from dovetail.ops.text.re2 import check_pattern, compile_pattern
from dovetail.ops.text.strings import string_tensor_of, strings_of

_START, _END = "\x02", "\x03"


class Tokenizer(
    Op,
    sig="x: string -> y: string",
    onnx="com.microsoft:Tokenizer-1(x; mark, mincharnum, pad_value, separators?, tokenexp?)",
):
    """Tokenizer splits each string of a vector or matrix into tokens along a new last axis, padded with ``pad_value``.

    With ``tokenexp`` tokens are the longest matches of that pattern from the left. With ``separators`` tokens are the text
    between the matches: each separator splits the text that remains after the previous separators. If the only separator is
    empty, tokens are single characters. Patterns are regular expressions of RE2. Tokens of fewer than ``mincharnum`` characters
    are dropped. With ``mark`` the tokens of each string are preceded by U+0002 and followed by U+0003.
    Source: onnxruntime com.microsoft Tokenizer 1.
    """

    sizes_depend_on_data = True

    mark: bool
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    def validate(self) -> None:
        if bool(self.separators) == bool(self.tokenexp):
            raise RuleError(
                "attribute.conflict",
                f"Tokenizer needs either separators or tokenexp, got {'both' if self.separators else 'neither'}",
            )
        if self.mincharnum < 1 or (self._splits_characters() and self.mincharnum > 1):
            raise RuleError("attribute.range", f"mincharnum must be at least 1, with an empty separator 1, got {self.mincharnum}")
        if "" in self.separators and not self._splits_characters():
            raise RuleError("attribute.conflict", "an empty separator must be the only separator")
        for pattern in (self.tokenexp, *self.separators):
            if pattern:
                check_pattern(pattern)

    def _splits_characters(self) -> bool:
        return self.separators == ("",)

    def shape(self, x: View) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2):
            raise RuleError("shape.rank", f"x must have rank 1 or 2, got {len(x.shape)}")
        return (*x.shape, None)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        rows = [self._tokenize(text) for text in strings_of(x)]
        longest = max(map(len, rows), default=0)
        refuse_text(8 * (longest + 2) * len(rows), "Tokenizer")
        if not longest:
            return string_tensor_of([], (*x.shape, 0))
        marked = [[_START, *row, _END] if self.mark else row for row in rows]
        flat = [token for row in marked for token in (*row, *[self.pad_value] * (longest + 2 * self.mark - len(row)))]
        return string_tensor_of(flat, (*x.shape, longest + 2 * self.mark))

    def _tokenize(self, text: str) -> list[str]:
        if self._splits_characters():
            return list(text)
        encoded = text.encode(errors="surrogatepass")
        if self.tokenexp:
            pieces = [encoded[start:end] for start, end in _Pattern(self.tokenexp).matches(encoded)]
        else:
            pieces = [encoded]
            for separator in map(_Pattern, self.separators):
                pieces = [part for piece in pieces for part in separator.split(piece)]
        tokens = (token.decode(errors="surrogatepass") for token in pieces)
        return [token for token in tokens if len(token) >= self.mincharnum]


class _Pattern:
    """_Pattern searches a text for an RE2 pattern: the leftmost, longest matches.

    Raises RuleError [attribute.value], UnsupportedError [extra.missing].
    """

    def __init__(self, pattern: str) -> None:
        self.search = compile_pattern(pattern, longest=True).search

    def matches(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of the matches that are not empty."""
        usage = current()
        position = 0
        while position < len(text) and (match := self.search(text, position)) is not None:
            usage.check_time()
            start, end = match.span()
            if end > start:
                yield start, end
            position = max(end, start + 1)

    def split(self, text: bytes) -> Iterator[bytes]:
        """Yield the text between the matches."""
        position = 0
        for start, end in self.matches(text):
            yield text[position:start]
            position = end
        yield text[position:]
