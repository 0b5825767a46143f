"""Texts cut into tokens: Tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.limits import current, refuse_text
from dovetail.ops.text.re2 import check_pattern, compiled
from dovetail.ops.text.strings import tensor_of, texts

_START, _END = "\x02", "\x03"


class Tokenizer(
    Op,
    sig="x: string -> y: string",
    onnx="com.microsoft:Tokenizer-1(x; mark, mincharnum, pad_value, separators?, tokenexp?)",
):
    """The tokens of each text of a vector or matrix, along a new last axis; ``pad_value`` after those of a text that has fewer.

    Tokens are the longest matches of ``tokenexp`` from the left; what lies between the matches of ``separators``, each of which
    cuts what those before it left; or single characters, where the only separator is empty. Patterns are in the syntax of RE2.
    Tokens of fewer than ``mincharnum`` characters are left out. With ``mark`` U+0002 comes before the tokens of
    a text, and U+0003 after them.
    Source: onnxruntime com.microsoft Tokenizer 1.
    """

    mark: bool
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    def validate(self) -> None:
        if bool(self.separators) == bool(self.tokenexp):
            raise RuleError("string.tokens", "Tokenizer needs either separators or tokenexp")
        if self.mincharnum < 1 or (self._is_by_character() and self.mincharnum > 1):
            raise RuleError("string.tokens", f"mincharnum is {self.mincharnum}")
        if "" in self.separators and not self._is_by_character():
            raise RuleError("string.tokens", "an empty separator beside others")
        for pattern in (self.tokenexp, *self.separators):
            if pattern:
                check_pattern(pattern)

    def _is_by_character(self) -> bool:
        return self.separators == ("",)

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2):
            raise RuleError("input.rank", f"a vector or a matrix of texts is needed, not rank {len(x.shape)}")
        return (*x.shape, None)

    def evaluate(self, xp: Any, x: Any) -> Any:
        rows = [self._tokens(text) for text in texts(x)]
        most = max(map(len, rows), default=0)
        refuse_text(8 * (most + 2) * len(rows), "Tokenizer")
        if not most:
            return tensor_of([], (*x.shape, 0))
        marked = [[_START, *row, _END] if self.mark else row for row in rows]
        flat = [token for row in marked for token in (*row, *[self.pad_value] * (most + 2 * self.mark - len(row)))]
        return tensor_of(flat, (*x.shape, most + 2 * self.mark))

    def _tokens(self, text: str) -> list[str]:
        if self._is_by_character():
            return list(text)
        encoded = text.encode(errors="surrogatepass")
        if self.tokenexp:
            found = [encoded[start:end] for start, end in _Pattern(self.tokenexp).matches(encoded)]
        else:
            found = [encoded]
            for separator in map(_Pattern, self.separators):
                found = [piece for each in found for piece in separator.split(each)]
        tokens = (token.decode(errors="surrogatepass") for token in found)
        return [token for token in tokens if len(token) >= self.mincharnum]


class _Pattern:
    """A pattern of RE2 that is looked for in a text, the longest match from the left.

    Raises RuleError [regex.syntax], UnsupportedError [regex.engine].
    """

    def __init__(self, pattern: str) -> None:
        self.search = compiled(pattern, longest=True).search

    def matches(self, text: bytes) -> Iterator[tuple[int, int]]:
        """The matches that are not empty, in bytes."""
        usage = current()
        place = 0
        while place < len(text) and (match := self.search(text, place)) is not None:
            usage.check_time()
            start, end = match.span()
            if end > start:
                yield start, end
            place = max(end, start + 1)

    def split(self, text: bytes) -> Iterator[bytes]:
        """What lies between the matches."""
        place = 0
        for start, end in self.matches(text):
            yield text[place:start]
            place = end
        yield text[place:]


__all__ = ["Tokenizer"]
