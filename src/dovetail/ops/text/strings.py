"""Operators on tensors of strings. Only numpy carries these, as Python's own strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import broadcast
from dovetail.limits import refuse_text
from dovetail.ops.text.re2 import check_pattern, full_matcher

_CASES = ("keep", "lower", "upper")
_OWN_LETTERS = ("tr", "az", "lt")
"""Languages in which a letter's other case is not the usual one."""


def texts(x: Any) -> list[str]:
    """The elements in row-major order; bytes are UTF-8."""
    return [item.decode() if isinstance(item, bytes) else item for item in x.reshape(-1).tolist()]


def tensor_of(found: list[Any], shape: tuple[int, ...]) -> Any:
    made = np.empty(len(found), dtype=object)
    made[:] = found
    return made.reshape(shape)


class StringConcat(Op, sig="x: string, y: string -> z: string", onnx="StringConcat-20(x, y)"):
    """Each text of ``x`` with the text of ``y`` behind it; shapes broadcast. Source: ONNX StringConcat 20."""

    def shape(self, x: Any, y: Any) -> Any:
        return broadcast(x.shape, y.shape)

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        x, y = np.broadcast_arrays(x, y)
        firsts, seconds = texts(x), texts(y)
        refuse_text(8 * x.size + sum(map(len, firsts)) + sum(map(len, seconds)), "StringConcat")
        return tensor_of([first + second for first, second in zip(firsts, seconds, strict=True)], x.shape)


class StringSplit(Op, sig="x: string -> pieces: string, counts: i64", onnx="StringSplit-20(x; delimiter?, maxsplit?)"):
    """Each text cut at ``delimiter``, ``maxsplit`` times at most, from the left: the pieces along a new last axis, with empty
    texts after them where others have more; and how many there are.

    Without a delimiter a text is cut at white space, however much, and begins and ends without any. White space is what Unicode
    calls so. Source: ONNX StringSplit 20.
    """

    delimiter: str = ""
    maxsplit: int | None = None

    def shape(self, x: Any) -> Any:
        return [None if x.shape is None else (*x.shape, None), x.shape]

    def evaluate(self, xp: Any, x: Any) -> Any:
        rows = [self._pieces(text) for text in texts(x)]
        most = max(map(len, rows), default=0)
        refuse_text(8 * most * len(rows), "StringSplit")
        pieces = [piece for row in rows for piece in (*row, *[""] * (most - len(row)))]
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        return tensor_of(pieces, (*x.shape, most)), counts.reshape(x.shape)

    def _pieces(self, text: str) -> list[str]:
        most = -1 if self.maxsplit is None or self.maxsplit < 0 else self.maxsplit
        if self.delimiter:
            return text.split(self.delimiter, most)
        return text.strip().split(None, most)


class StringNormalizer(
    Op,
    sig="x: string -> y: string",
    onnx="StringNormalizer-10(x; case_change_action~{NONE:keep,LOWER:lower,UPPER:upper}:case=NONE, "
    "is_case_sensitive:case_sensitive=0, locale?, stopwords?)",
):
    """The texts of a vector, or of the only row of a matrix, without ``stopwords``, and in lower or upper ``case``; one empty
    text where none is left.

    Unless ``case_sensitive``, a text is compared in the case that it will have, else in lower case. A letter becomes another one
    only, never several. Source: ONNX StringNormalizer 10.
    """

    case: str = "keep"
    case_sensitive: bool = False
    locale: str = ""
    stopwords: tuple[str, ...] = ()

    def validate(self) -> None:
        if self.case not in _CASES:
            raise RuleError("string.case", f"case {self.case!r} is none of {', '.join(_CASES)}")
        if re.split("[_.@-]", self.locale)[0].lower() in _OWN_LETTERS:
            raise UnsupportedError("string.locale", f"the letters of the locale {self.locale!r} have cases of their own")

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2) or (len(x.shape) == 2 and symbolic.equal(x.shape[0], 1) is False):
            raise RuleError("input.rank", f"texts should be a vector or one row, not of shape [{', '.join(map(str, x.shape))}]")
        count = x.shape[-1] if not self.stopwords and symbolic.less(0, x.shape[-1]) is True else None
        return (*(1 for _ in x.shape[1:]), count)

    def evaluate(self, xp: Any, x: Any) -> Any:
        self.shape(x)
        comparing = None if self.case_sensitive else "lower" if self.case == "keep" else self.case
        stops = {in_case(word, comparing) for word in self.stopwords}
        found = [in_case(text, self.case) for text in texts(x) if in_case(text, comparing) not in stops] or [""]
        return tensor_of(found, (*(1 for _ in x.shape[1:]), len(found)))


def in_case(text: str, case: str | None) -> str:
    """The text in lower or upper case, letter by letter."""
    if case not in ("lower", "upper"):
        return text
    changed = (letter.lower() if case == "lower" else letter.upper() for letter in text)
    return "".join(new if len(new) == 1 else old for old, new in zip(text, changed, strict=True))


class RegexFullMatch(Op, sig="x: string -> y: boolean", onnx="RegexFullMatch-20(x; pattern?)"):
    """Whether the whole of each text matches ``pattern``, a regular expression in the syntax of RE2.

    Without a pattern nothing is said of what matches, and it is refused. Source: ONNX RegexFullMatch 20.
    """

    pattern: str | None = None

    def validate(self) -> None:
        if self.pattern is None:
            raise RuleError("attribute.missing", "there is no pattern to match")
        check_pattern(self.pattern)

    def shape(self, x: Any) -> Any:
        return x.shape

    def evaluate(self, xp: Any, x: Any) -> Any:
        matches = full_matcher(self.pattern or "")
        return np.array([matches(text) for text in texts(x)], dtype=bool).reshape(x.shape)
