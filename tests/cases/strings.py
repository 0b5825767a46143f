"""Texts: joined, cut, put in order, matched, and counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ops.text.strings import RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from dovetail.ops.text.tfidf import TfIdfVectorizer


def strings(*items: str, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found if shape is None else found.reshape(shape)


_SPLIT = strings("a b  c ", "  x", "", " ", "a,b,,c", "abab", "é ü")
_FULL = strings("a b  c ", "  x", "a,b,,c", "abab", "é,ü", ",", shape=(2, 3))
_UNKNOWN = {"shape": "how many pieces there are is known when they are", "torch": "strings", "jax": "strings"}
_LEFT = {"shape": "how many are left is known when they are"}
_DAYS = strings("Monday", "tuesday", "monday", "s", "T")
_ITEMS = strings(
    "a", "aa", "aaa", "abcd", "12.5", "a b", "\n", "\u00a0", "é", "ABC", "a.b", "a.bb", "\x0b", " ", "a\nb", "a-c", "]", "a{,3}",
    "ab", "", "aaaaaa", "_", "\\", "^a$",
)  # fmt: skip
PATTERNS = (
    "", "a+", "(a|ab)(c|bcd)(d*)", r"\d+\.\d*", "[[:alpha:]]+", r"\w+\s\w+", "[^a]", "a{2,3}?", "a{2,}", "a{,3}", "(?s).", ".",
    r"\Qa.b\E+", r"\Q\E", "[a-c-e]+", r"\x{e9}", "é", "(?m)^a$\nb", "(?m:^a$)(?s:.)b", "(?P<n>a)b", "(?<x>a)b", "a|", "[]a]+",
    r"\v", r"\s+", r"\S", r"[\s]+", r"[\S]+", "a*?", r"\Ba", r"\ba\b.+", r"\141\x62", "(?U)a+", r"[\w-]+", r"a\z", r"\Aa", r"\\",
    r"\^a\$", "[^\\d]", r"[^\S]", "[[:punct:]]", "(?-s).", "()", r"[\x00-\x{10FFFF}]{2}",
    "(?i)aBc?d?", r"\pL+", "[[:^alpha:]]", r"(?i:A)B", r"[\PL]+", "[[:alpha]+",
)  # fmt: skip
_POOL = {
    "ngram_counts": (0, 4),
    "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 2,
}
_ROWS = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)
_WORDS = {"ngram_counts": (0, 1), "pool_strings": ("a", "a", "b", "b", "a"), "ngram_indexes": (0, 1, 2)}

CASES: list[Case] = [
    Case(StringConcat(), (strings("a", "", "é"), strings("x", "y", ""))),
    Case(StringConcat(), (strings("a", "b", shape=(2, 1)), strings("x", "y", "z")), "StringConcat broadcasts"),
    Case(StringConcat(), (strings("a", shape=()), strings("x", shape=())), "StringConcat of scalars"),
    Case(StringConcat(), (strings(shape=(0, 2)), strings("x", shape=(1,))), "StringConcat of none"),
    *(
        Case(
            StringSplit(delimiter, most),
            (_FULL if delimiter else _SPLIT,),
            f"StringSplit at {delimiter!r}, {most} times at most",
            skip=_UNKNOWN,
        )
        for delimiter in ("", ",", "ab")
        for most in (None, 0, 1, 2, -1)
    ),
    Case(StringSplit(), (strings(shape=(2, 0)),), "StringSplit of none", skip=_UNKNOWN),
    Case(StringSplit(), (strings("a b", shape=()),), "StringSplit of a scalar", skip=_UNKNOWN),
    Case(
        StringSplit(),
        (strings("a\tb\nc", "a\u2003b"),),
        "StringSplit at white space of all kinds",
        skip={**_UNKNOWN, "onnxruntime": "for onnxruntime a tab is no white space"},
    ),
    Case(
        StringSplit(","),
        (strings("", "a"),),
        "StringSplit of nothing at a comma",
        skip={**_UNKNOWN, "onnxruntime": "for onnxruntime there is no piece, though there is one between two commas"},
    ),
    *(
        Case(
            StringNormalizer(case, sensitive, "C", stopwords),
            (_DAYS,),
            f"StringNormalizer to {case}, {'case-sensitive ' if sensitive else ''}without {', '.join(stopwords)}",
            skip=_LEFT if stopwords else {},
        )
        for case in ("keep", "lower", "upper")
        for sensitive in (False, True)
        for stopwords in ((), ("Monday", "S"))
    ),
    Case(StringNormalizer(locale="C", stopwords=("a", "b")), (strings("a", "b", shape=(1, 2)),), "StringNormalizer", skip=_LEFT),
    Case(StringNormalizer("upper", locale="C"), (strings("a", "B", shape=(1, 2)),), "StringNormalizer of a row"),
    *(Case(RegexFullMatch(pattern), (_ITEMS,), f"RegexFullMatch of {pattern!r}") for pattern in PATTERNS),
    Case(RegexFullMatch("a+"), (strings("a", "b", "aa", "", shape=(2, 2)),), "RegexFullMatch of a matrix"),
    *(
        Case(TfIdfVectorizer(mode, ngram_indexes=places, weights=weights, **_POOL), (x,), f"TfIdfVectorizer {mode} {name}")
        for mode in ("tf", "idf", "tfidf")
        for places in ((0, 1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 9, 1, 0))
        for name, weights in (("weighted", (0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), ("alone", ()))
        for x in (_ROWS, _ROWS.astype(np.int64), _ROWS.ravel())
    ),
    Case(TfIdfVectorizer("tf", ngram_indexes=(0, 0, 1, 1, 2, 2, 2), **_POOL), (_ROWS,), "TfIdfVectorizer of shared places"),
    Case(TfIdfVectorizer("tf", 1, 2, 1, **_WORDS), (strings("a", "b", "a", "b"),), "TfIdfVectorizer of words"),
    Case(TfIdfVectorizer("tf", 2, 2, 0, **_WORDS), (strings("a", "b", "a", "b"),), "TfIdfVectorizer of words in pairs"),
    Case(TfIdfVectorizer("tf", 2, 2, 0, **_WORDS), (strings(shape=(2, 0)),), "TfIdfVectorizer of empty rows"),
]
