"""Printing and parsing of expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby

from dovetail.errors import FormatError
from dovetail.ir.symbolic.algebra import (
    MAX_DEGREE,
    MAX_DEPTH,
    Atom,
    Inexact,
    Monomial,
    Size,
    apply_operation,
    bare_atom,
    check_coefficient,
    sorted_terms,
    symbol,
)

LONGEST_TEXT = 10_000
_FUNCTIONS = ("min", "max", "broadcast")

_PLAIN_NAME = r"(?:[^\W\d]|\?[\w.])[\w.]*(?:\[\w+\])*"  # names that inference chooses begin with "?"
_is_plain = re.compile(_PLAIN_NAME).fullmatch


def written_name(atom: Atom) -> str:
    return quoted_name(atom.args[0])


def quoted_name(name: str) -> str:
    """Return the name of a symbol in the syntax of ``parse``: in quotes if the name is no identifier."""
    if _is_plain(name) and name not in _FUNCTIONS:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def full_name(atom: Atom) -> str:
    return f"{atom.args[0]}\0{atom.args[1]}:{atom.args[2]}\0"


def dim_text(size: Size, name: Callable[[Atom], str]) -> str:
    if isinstance(size, int):
        return str(size)
    terms = sorted_terms(size) + ([((), size._constant)] if size._constant else [])
    first = next((index for index, (_, coefficient) in enumerate(terms) if coefficient > 0), 0)
    terms.insert(0, terms.pop(first))
    text = _term_text(*terms[0], name, leads=True)
    for monomial, coefficient in terms[1:]:
        text += f" {'-' if coefficient < 0 else '+'} {_term_text(monomial, abs(coefficient), name)}"
    return text


def _term_text(monomial: Monomial, coefficient: int, name: Callable[[Atom], str], leads: bool = False) -> str:
    if not monomial:
        return str(coefficient)
    if coefficient == 1 and len(monomial) == 1:
        return atom_text(monomial[0], name)
    factors = [] if abs(coefficient) == 1 else [str(abs(coefficient))]
    for atom, group in groupby(monomial):
        count = len(list(group))
        text = atom_text(atom, name)
        text = f"({text})" if atom.kind in ("//", "%") else text
        factors.append(text if count == 1 else f"{text}**{count}")
    return ("-" if leads and coefficient < 0 else "") + "*".join(factors)


def atom_text(atom: Atom, name: Callable[[Atom], str]) -> str:
    if atom.kind == "symbol":
        return name(atom)
    if atom.kind in ("//", "%"):
        return atom.kind.join(_operand_text(arg, name) for arg in atom.args)
    return f"{atom.kind}({', '.join(dim_text(arg, name) for arg in atom.args)})"


def _operand_text(size: Size, name: Callable[[Atom], str]) -> str:
    text = dim_text(size, name)
    if isinstance(size, int):
        return text if size >= 0 else f"({text})"
    atom = bare_atom(size)
    return text if atom is not None and atom.kind not in ("//", "%") else f"({text})"


def parse(text: str, name: Callable[[str], Size] = symbol) -> Size:
    """Parse the output of ``str``: integers, names (in quotes if they are no identifiers), operators and functions.

    The operators are ``+ - * // % **``, the functions min, max and broadcast. ``name`` converts a name to a symbol. Raises
    FormatError [dims.text] for other text. The time is bounded.
    """
    if len(text) > LONGEST_TEXT:
        raise FormatError("dims.text", f"an expression must have at most {LONGEST_TEXT} characters, got {len(text)}")
    try:
        return _Parser(text, name).whole()
    except Inexact as error:
        raise FormatError("dims.text", f"{_excerpt_of(text)}: {error}") from None
    except ZeroDivisionError:
        raise FormatError("dims.text", f"{_excerpt_of(text)} divides by zero") from None


def _excerpt_of(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


_TOKEN = re.compile(
    rf'\s*(?:(?P<number>\d+)|(?P<name>{_PLAIN_NAME})|"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<sign>//|\*\*|[-+*%(),]))'
)


class _Parser:
    """_Parser is a recursive descent parser with Python's operator precedence."""

    def __init__(self, text: str, name: Callable[[str], Size]) -> None:
        self.text = text
        self.name = name
        self.depth = 0
        self.tokens = list(self.read())[::-1]

    def read(self) -> Iterator[tuple[str, str]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None or match.lastgroup is None:
                raise self.error(f"unexpected text at character {position + 1}")
            yield match.lastgroup, match[match.lastgroup]
            position = match.end()

    def error(self, fact: str) -> FormatError:
        return FormatError("dims.text", f"{_excerpt_of(self.text)} is no expression of dimensions: {fact}")

    def take(self, *signs: str) -> str | None:
        if self.tokens and self.tokens[-1][0] == "sign" and self.tokens[-1][1] in signs:
            return self.tokens.pop()[1]
        return None

    def expect(self, sign: str) -> None:
        if self.take(sign) is None:
            raise self.error(f"{sign!r} is missing")

    def whole(self) -> Size:
        result = self.sum()
        if self.tokens:
            raise self.error(f"unexpected {self.tokens[-1][1]!r} after the expression")
        return result

    def sum(self) -> Size:
        self.depth += 1
        if self.depth > 2 * MAX_DEPTH:
            raise self.error(f"parentheses must be nested at most {2 * MAX_DEPTH} levels deep")
        result = self.term()
        while sign := self.take("+", "-"):
            other = self.term()
            result = self.check_number(result + other if sign == "+" else result - other)
        self.depth -= 1
        return result

    def term(self) -> Size:
        result = self.factor()
        while sign := self.take("*", "//", "%"):
            other = self.factor()
            if sign == "*":
                result = self.check_number(result * other)
            else:
                result = self.check_number(result // other if sign == "//" else result % other)
        return result

    def factor(self) -> Size:
        negative = False
        while sign := self.take("-", "+"):
            negative ^= sign == "-"
        result = self.power()
        return -result if negative else result

    def power(self) -> Size:
        result = self.atom()
        if self.take("**"):
            exponent = self.number() if self.tokens and self.tokens[-1][0] == "number" else -1
            if not 0 <= exponent <= MAX_DEGREE:
                raise self.error(f"an exponent must be a number from 0 to {MAX_DEGREE}")
            result = self.check_number(result**exponent)
        return result

    def number(self) -> int:
        digits = self.tokens.pop()[1]
        if len(digits) > 80 or not digits.isascii():
            raise self.error("a number must have at most 80 digits")
        return int(digits)

    def atom(self) -> Size:
        if self.take("("):
            result = self.sum()
            self.expect(")")
            return result
        if not self.tokens or self.tokens[-1][0] == "sign":
            raise self.error("a number or name is missing")
        if self.tokens[-1][0] == "number":
            return self.check_number(self.number())
        kind, name = self.tokens.pop()
        if kind == "quoted":
            return self.name(re.sub(r"\\(.)", r"\1", name))
        return self.application(name) if name in _FUNCTIONS else self.name(name)

    def application(self, kind: str) -> Size:
        self.expect("(")
        args = [self.sum()]
        while self.take(","):
            args.append(self.sum())
        self.expect(")")
        return apply_operation(kind, args)

    def check_number(self, size: Size) -> Size:
        return check_coefficient(size) if isinstance(size, int) else size
