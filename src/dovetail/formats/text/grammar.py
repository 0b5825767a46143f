"""The lexer of the text form: names, strings, numbers and signs of one line."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from dovetail.errors import FormatError

VERSION = 1
MAX_DEPTH = 64
"""The maximum nesting depth of types, and of subgraphs."""
MAX_LEVELS = 136
"""The maximum nesting depth of values; it suffices for rt_info of the maximum depth."""
_PLAIN_NAME = r"[A-Za-z_/][A-Za-z0-9_./$]*"
_is_plain_name = re.compile(_PLAIN_NAME, re.ASCII).fullmatch
_TOKEN = re.compile(
    rf"""[ ]*(?:(?P<bytes>b"[A-Za-z0-9+/=]*")|(?P<hex>hex"[0-9a-f]*")|(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)(?![A-Za-z0-9_./$]))
    |(?P<name>{_PLAIN_NAME})|(?P<sign>[][(){{}},;:=@.?*+%-]))""",
    re.ASCII | re.VERBOSE,
)


class Token(NamedTuple):
    """Token is one token of a line: its kind, its text, and its first column, counted from 0."""

    kind: str
    text: str
    column: int


def quote(text: str) -> str:
    """Return a string literal in which all non-printable characters are escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in quoted)


def name_text(name: str) -> str:
    """Return the text of a name; a name that is not a plain identifier is quoted."""
    return name if _is_plain_name(name) and name not in ("inf", "nan") else quote(name)


class Line:
    """Line reads one line from left to right. Raises FormatError [text.syntax] with the column."""

    def __init__(self, text: str, number: int) -> None:
        self.text = text
        self.number = number
        self.indent = len(text) - len(text.lstrip(" "))
        self.position = self.indent
        self._token: Token | None = None

    def fault(self, message: str, column: int | None = None) -> FormatError:
        """Return an error of this line at ``column``, by default at the current position."""
        at = (self.position if column is None else column) + 1
        return FormatError("text.syntax", f"line {self.number}, column {at}: {message}")

    def peek(self) -> Token:
        """Return the next token without consuming it; at the end of the line a token of kind "end"."""
        if self._token is None:
            match = _TOKEN.match(self.text, self.position)
            if match is not None and match.lastgroup is not None:
                self._token = Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            elif not self.text[self.position :].strip(" "):
                self._token = Token("end", "", len(self.text))
            else:
                raise self.fault(f"{self.text[self.position :].lstrip()[:20]!r} must be a token of the text form")
        return self._token

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.peek()
        self.position = token.column + len(token.text)
        self._token = None
        return token

    def accept(self, *texts: str) -> str | None:
        """Consume the next token if it is one of ``texts``, and return its text; else return None."""
        token = self.peek()
        if token.kind in ("sign", "name") and token.text in texts:
            return self.take().text
        return None

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            token = self.peek()
            raise self.fault(f"expected {text!r}, got {token.text[:40] or 'the end of the line'!r}", token.column)

    def expect_end(self) -> None:
        token = self.peek()
        if token.kind != "end":
            raise self.fault(f"expected the end of the line, got {token.text[:40]!r}", token.column)

    def name(self) -> str:
        """Consume a plain or quoted name, and return the name."""
        token = self.take()
        if token.kind == "name":
            return token.text
        if token.kind == "string":
            return self.unquote(token)
        raise self.fault(f"expected a name, got {token.text[:40] or 'the end of the line'!r}", token.column)

    def unquote(self, token: Token) -> str:
        """Return the text of a string literal."""
        try:
            text = str(json.loads(token.text, strict=False))
            text.encode()
        except UnicodeEncodeError:
            raise self.fault("a string must not have an unpaired surrogate", token.column) from None
        except ValueError:
            raise self.fault("a string must have valid JSON escapes only", token.column) from None
        return text

    def rest_until(self, signs: str) -> str:
        """Consume the text up to one of ``signs`` outside quotes and brackets, or to the end of the line; return the text."""
        self._token = None
        depth, start = 0, self.position
        position = start
        text = self.text
        while position < len(text):
            character = text[position]
            if character == '"':
                position += 1
                while position < len(text) and text[position] != '"':
                    position += 2 if text[position] == "\\" else 1
            elif depth == 0 and character in signs:
                break
            elif character in "([":
                depth += 1
            elif character in ")]":
                depth -= 1
            position += 1
        self.position = min(position, len(text))
        return text[start : self.position].strip(" ")
