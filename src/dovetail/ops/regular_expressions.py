"""Regular expressions of RE2 said in Python's syntax, which is like it and means other things in places.

Only what means exactly the same is said; the rest is refused by name: letters of either case (``(?i)``), classes of Unicode
(``\\p``) and single bytes (``\\C``). Which of several ways to match is preferred makes no difference to whether a whole text
matches.
Source: RE2, ``doc/syntax.txt``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dovetail.errors import RuleError, UnsupportedError

_ESCAPED = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_COMPLEMENTS = {"D": r"\D", "W": r"\W", "S": r"\S\x0b"}
"""As parts of a class; Python's white space has a vertical tab, RE2's has not."""
_NAMED = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\?(?:P?<(?P<name>[A-Za-z0-9_]+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
MOST_REPEATS = 1000
MOST_NESTED = 50
"""Groups within each other; Python's ``re`` calls itself for each."""


@lru_cache(256)
def translated(pattern: str) -> str:
    """``pattern`` for Python's ``re``, to be compiled with ASCII and matched against a whole text.

    Raises RuleError [regex.syntax] for what RE2 refuses, UnsupportedError [regex.unsupported].
    """
    return _Translation(pattern).whole()


class _Translation:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.depth = 0

    def fault(self, what: str) -> RuleError:
        return RuleError("regex.syntax", f"{what} at {self.place} of the pattern {self.pattern!r}")

    def refusal(self, what: str) -> UnsupportedError:
        return UnsupportedError("regex.unsupported", f"{what} in the pattern {self.pattern!r}")

    def is_at(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def take(self) -> str:
        if self.place >= len(self.pattern):
            raise self.fault("the end comes too early")
        self.place += 1
        return self.pattern[self.place - 1]

    def whole(self) -> str:
        found = self.alternatives(frozenset())
        if self.place < len(self.pattern):
            raise self.fault("an unopened ')'")
        return found

    def alternatives(self, flags: frozenset[str]) -> str:
        """Everything up to the end of the group. Flags set on the way hold until there."""
        made: list[str] = []
        can_repeat = False
        while self.place < len(self.pattern) and not self.is_at(")"):
            if self.is_at("(") and (found := _GROUP.match(self.pattern, self.place + 1)) and found["end"] == ")":
                flags = self.changed(flags, found["flags"])
                self.place = found.end()
                can_repeat = False
                continue
            if repeat := self.repeat():
                if not can_repeat:
                    raise self.fault("nothing to repeat")
                made[-1] = f"(?:{made[-1]}){repeat}"
                can_repeat = False
                continue
            if self.is_at("\\Q"):
                quoted = self.quoted()
                made.extend(quoted)
                can_repeat = bool(quoted) or can_repeat
                continue
            character = self.take()
            made.append("|" if character == "|" else self.atom(character, flags))
            can_repeat = character != "|"
        return "".join(made)

    def repeat(self) -> str:
        """A repetition, where one stands here; whether it is greedy does not matter."""
        found = _REPEAT.match(self.pattern, self.place)
        if found:
            least, most = int(found[1]), int(found[3] or found[1]) if found[3] or not found[2] else None
            if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
                raise self.fault("a bad repetition")
            text = found[0]
            self.place = found.end()
        elif self.place < len(self.pattern) and self.pattern[self.place] in "*+?":
            text = self.take()
        else:
            return ""
        if self.is_at("?"):
            self.place += 1
        return text

    def changed(self, flags: frozenset[str], text: str) -> frozenset[str]:
        on, _, off = text.partition("-")
        if "i" in on:
            raise self.refusal("(?i), letters of either case,")
        return (flags | frozenset(on)) - frozenset(off)

    def atom(self, character: str, flags: frozenset[str]) -> str:
        match character:
            case "(":
                return self.group(flags)
            case "[":
                return self.bracket()
            case ".":
                return r"(?s:.)" if "s" in flags else r"[^\n]"
            case "^":
                return "(?m:^)" if "m" in flags else r"\A"
            case "$":
                return "(?m:$)" if "m" in flags else r"\Z"
            case "\\":
                return self.escape()
        return literal(character)

    def group(self, flags: frozenset[str]) -> str:
        if self.is_at("?"):
            found = _GROUP.match(self.pattern, self.place)
            if found is None:
                raise self.fault("a group that RE2 does not know")
            self.place = found.end()
            flags = self.changed(flags, found["flags"] or "")
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.refusal(f"more than {MOST_NESTED} groups within each other")
        inner = self.alternatives(flags)
        if not self.is_at(")"):
            raise self.fault("an unclosed '('")
        self.place += 1
        self.depth -= 1
        return f"(?:{inner})"

    def quoted(self) -> list[str]:
        """What stands between ``\\Q`` and ``\\E``, or the end."""
        end = self.pattern.find("\\E", self.place)
        text = self.pattern[self.place + 2 : end if end >= 0 else len(self.pattern)]
        self.place = end + 2 if end >= 0 else len(self.pattern)
        return list(map(literal, text))

    def escape(self) -> str:
        character = self.take()
        if character in "Az":
            return r"\A" if character == "A" else r"\Z"
        if character in "bB":
            return f"\\{character}"
        if character in _CLASSES:
            return f"[{_CLASSES[character]}]"
        if character in _COMPLEMENTS:
            return f"[{_COMPLEMENTS[character]}]"
        return literal(self.code(character))

    def code(self, character: str) -> str:
        """The one character that an escape stands for; ``character`` is what stands behind the backslash."""
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character in "pPC":
            raise self.refusal(f"\\{character}")
        if character == "x":
            found = re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})").match(self.pattern, self.place)
            if found is None or int(found[1] or found[2], 16) > 0x10FFFF:
                raise self.fault("a bad code")
            self.place = found.end()
            return chr(int(found[1] or found[2], 16))
        if character in "01234567":
            found = re.compile("[0-7]{0,2}" if character == "0" else "[0-7]{1,2}").match(self.pattern, self.place)
            if found is None:
                raise self.fault("a reference to a group, which RE2 does not have,")
            self.place = found.end()
            return chr(int(character + found[0], 8))
        if character.isascii() and (character.isalnum() or character == "_"):
            raise self.fault(f"\\{character}, which RE2 does not know,")
        return character

    def bracket(self) -> str:
        is_complement = self.is_at("^")
        self.place += is_complement
        parts: list[str] = []
        while not self.is_at("]") or not parts:
            if self.is_at("[:"):
                parts.append(self.named())
                continue
            first = self.take()
            if first == "\\":
                first = self.take()
                if first in _CLASSES or first in _COMPLEMENTS:
                    parts.append(_CLASSES.get(first) or _COMPLEMENTS[first])
                    continue
                first = self.code(first)
            parts.append(self.range(first))
        self.place += 1
        return f"[{'^' if is_complement else ''}{''.join(parts)}]"

    def range(self, first: str) -> str:
        if not self.is_at("-") or self.pattern.startswith("-]", self.place):
            return literal(first)
        self.place += 1
        last = self.take()
        last = self.code(self.take()) if last == "\\" else last
        if last < first:
            raise self.fault("a range that ends before it begins")
        return f"{literal(first)}-{literal(last)}"

    def named(self) -> str:
        found = re.compile(r"\[:(\^?)(\w+):\]").match(self.pattern, self.place)
        if found is None or found[2] not in _NAMED:
            raise self.fault("a class that RE2 does not know")
        if found[1]:
            raise self.refusal(found[0])
        self.place = found.end()
        return _NAMED[found[2]]


def literal(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\U{ord(character):08x}"
