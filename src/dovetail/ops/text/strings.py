"""StringConcat, StringSplit, StringNormalizer, RegexFullMatch: operators on string tensors, which are numpy arrays only."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.limits import refuse_text
from dovetail.ir.op import Op
from dovetail.ir.types import View, broadcast
from dovetail.ops.text.re2 import check_pattern, full_matcher_of

_CASES = ("keep", "lower", "upper")
_LANGUAGES_WITH_OWN_CASE = ("tr", "az", "lt")
"""Languages whose case mappings differ from the default of Unicode."""


def strings_of(x: Array) -> list[str]:
    """Return the elements as strings in row-major order; bytes are decoded as UTF-8."""
    return [item.decode() if isinstance(item, bytes) else item for item in x.reshape(-1).tolist()]


def string_tensor_of(items: list[Any], shape: tuple[int, ...]) -> Any:
    """Return a string tensor of ``shape`` with the elements ``items`` in row-major order."""
    tensor = np.empty(len(items), dtype=object)
    tensor[:] = items
    return tensor.reshape(shape)


class StringConcat(Op, sig="x: string, y: string -> z: string", onnx="StringConcat-20(x, y)"):
    """StringConcat appends the strings of ``y`` to the strings of ``x``; shapes broadcast. Source: ONNX StringConcat 20."""

    def shape(self, x: View, y: View) -> Any:
        return broadcast(x.shape, y.shape)

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        x, y = np.broadcast_arrays(x, y)
        firsts, seconds = strings_of(x), strings_of(y)
        refuse_text(8 * x.size + sum(map(len, firsts)) + sum(map(len, seconds)), "StringConcat")
        return string_tensor_of([first + second for first, second in zip(firsts, seconds, strict=True)], x.shape)


class StringSplit(Op, sig="x: string -> y: string, z: i64", onnx="StringSplit-20(x; delimiter?, maxsplit?)"):
    """StringSplit splits each string at ``delimiter``, at most ``maxsplit`` times from the left.

    ``y`` holds the substrings along a new last axis, padded with empty strings; ``z`` holds the number of substrings of each
    string. Without a delimiter a string is split at runs of Unicode white space, and leading and trailing white space is removed.
    Source: ONNX StringSplit 20.
    """

    sizes_depend_on_data = True

    delimiter: str = ""
    maxsplit: int | None = None

    def shape(self, x: View) -> Any:
        return [None if x.shape is None else (*x.shape, None), x.shape]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        rows = [self._split(text) for text in strings_of(x)]
        longest = max(map(len, rows), default=0)
        refuse_text(8 * longest * len(rows), "StringSplit")
        pieces = [piece for row in rows for piece in (*row, *[""] * (longest - len(row)))]
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        return string_tensor_of(pieces, (*x.shape, longest)), counts.reshape(x.shape)

    def _split(self, text: str) -> list[str]:
        maxsplit = -1 if self.maxsplit is None or self.maxsplit < 0 else self.maxsplit
        if self.delimiter:
            return text.split(self.delimiter, maxsplit)
        return text.strip().split(None, maxsplit)


class StringNormalizer(
    Op,
    sig="x: string -> y: string",
    onnx="StringNormalizer-10(x; case_change_action~{NONE:keep,LOWER:lower,UPPER:upper}=NONE, "
    "is_case_sensitive=0, locale?, stopwords?)",
):
    """StringNormalizer removes ``stopwords`` from a vector or one-row matrix, and changes the case of the other strings.

    If no string is left, the result is one empty string. Unless ``is_case_sensitive``, strings are compared in the case of
    ``case_change_action``, for ``keep`` in lower case. A letter whose other case has several letters is not changed.
    Source: ONNX StringNormalizer 10.
    """

    case_change_action: str = "keep"
    is_case_sensitive: bool = False
    locale: str = ""
    stopwords: tuple[str, ...] = ()

    def validate(self) -> None:
        if self.case_change_action not in _CASES:
            raise RuleError(
                "attribute.value", f"case_change_action must be one of {', '.join(_CASES)}, got {self.case_change_action!r}"
            )
        if re.split("[_.@-]", self.locale)[0].lower() in _LANGUAGES_WITH_OWN_CASE:
            raise UnsupportedError("op.unsupported", f"locale must use the default case mappings of Unicode, got {self.locale!r}")

    def shape(self, x: View) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) not in (1, 2) or (len(x.shape) == 2 and symbolic.equal(x.shape[0], 1) is False):
            raise RuleError("shape.rank", f"x must be a vector or one row, got shape [{', '.join(map(str, x.shape))}]")
        count = x.shape[-1] if not self.stopwords and symbolic.less(0, x.shape[-1]) is True else None
        return (*(1 for _ in x.shape[1:]), count)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        self.shape(x)
        compared_case = (
            None if self.is_case_sensitive else "lower" if self.case_change_action == "keep" else self.case_change_action
        )
        stopwords = {change_case(word, compared_case) for word in self.stopwords}
        remaining = [
            change_case(text, self.case_change_action)
            for text in strings_of(x)
            if change_case(text, compared_case) not in stopwords
        ] or [""]
        return string_tensor_of(remaining, (*(1 for _ in x.shape[1:]), len(remaining)))


def change_case(text: str, case: str | None) -> str:
    """Return the string in lower or upper case, letter by letter."""
    if case not in ("lower", "upper"):
        return text
    letters = (letter.lower() if case == "lower" else letter.upper() for letter in text)
    return "".join(new if len(new) == 1 else old for old, new in zip(text, letters, strict=True))


class RegexFullMatch(Op, sig="x: string -> y: boolean", onnx="RegexFullMatch-20(x; pattern?)"):
    """RegexFullMatch tests whether each entire string matches ``pattern``, a regular expression of RE2.

    A missing ``pattern`` is refused, because ONNX does not define the result.
    Source: ONNX RegexFullMatch 20.
    """

    pattern: str | None = None

    def validate(self) -> None:
        if self.pattern is None:
            raise RuleError("attribute.missing", "RegexFullMatch needs the attribute pattern, got none")
        check_pattern(self.pattern)

    def shape(self, x: View) -> Any:
        return x.shape

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        matches = full_matcher_of(self.pattern or "")
        return np.array([matches(text) for text in strings_of(x)], dtype=bool).reshape(x.shape)
