"""Strings and text."""

from dovetail.ops.text import (
    re2,
    strings,
    tfidf,
    tokenizer,
)

__all__ = [
    "re2",
    "strings",
    "tfidf",
    "tokenizer",
]
