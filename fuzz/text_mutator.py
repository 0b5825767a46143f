"""Mutate models in the text form by lines, words and characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z0-9_./$]+|[^\sA-Za-z0-9]')
_EXTREMES = (
    "0", "-1", "1", "2147483648", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1e308", "inf", "nan",
    "none", "true", "-", "graph", "[]", "()", "{}", "...", "?", '""', "f32[2]{1.0, 2.0}", "i64[3]{1, 2, 3}", 'hex"00"', 'b"AA=="',
    "f32[]", "string[1]{\"a\"}", "type f32[N]", "op Relu()", 'size "N + 1"', "f32[99999999999]",
)  # fmt: skip


def mutate(data: bytes, donor: bytes, kinds: tuple[str, ...], random: Random) -> bytes:
    """Return ``data`` with a few mutations; ``donor`` lends lines and words, ``kinds`` the names of operators."""
    lines = data.decode().split("\n")
    others = donor.decode().split("\n")
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        change = random.choice(_CHANGES)
        if lines:
            change(lines, others, kinds, random)
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    if random.random() < 0.05 and text:
        at = random.randrange(len(text))
        text = text[:at] + bytes([random.randrange(256)]) + text[at + random.choice((0, 1)) :]
    return text


def _replace_word(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    index = random.randrange(len(lines))
    words = list(_WORDS.finditer(lines[index]))
    if not words:
        return
    word = random.choice(words)
    lent = _WORDS.findall(random.choice(others))
    new = random.choice((random.choice(_EXTREMES), random.choice(lent) if lent else "", random.choice(kinds), "", word[0] * 2))
    lines[index] = lines[index][: word.start()] + new + lines[index][word.end() :]


def _copy_line(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    lines.insert(random.randrange(len(lines) + 1), random.choice(random.choice((lines, others))))


def _remove_line(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    del lines[random.randrange(len(lines))]


def _swap_lines(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]


def _indent(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    index = random.randrange(len(lines))
    lines[index] = " " * random.choice((0, 1, 2, 4, 6, 40)) + lines[index].lstrip(" ")


def _nest(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    index = random.randrange(len(lines))
    at = random.randrange(len(lines[index]) + 1)
    lines[index] = lines[index][:at] + random.choice('([{"') * random.choice((1, 70, 5000)) + lines[index][at:]


def _replace_operator(lines: list[str], others: list[str], kinds: tuple[str, ...], random: Random) -> None:
    index = random.randrange(len(lines))
    lines[index] = re.sub(r"= [A-Za-z0-9]+\(", f"= {random.choice(kinds)}(", lines[index], count=1)


_Change = Callable[[list[str], list[str], tuple[str, ...], Random], None]
_CHANGES: tuple[_Change, ...] = (
    _replace_word, _replace_word, _replace_word, _replace_word, _copy_line, _remove_line, _swap_lines, _indent, _nest,
    _replace_operator, _replace_operator,
)  # fmt: skip
