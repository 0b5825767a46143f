"""Words that the project does not use, and where they stand: ``python tests/vocabulary.py [PATH...]`` lists them.

docs/glossary.md has the words to use. Identifiers, docstrings, comments and texts of src and native are searched, and the
documents; code in documents is not. Of tests, bench and fuzz the names of modules and functions, docstrings, comments and texts
are searched.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

PHRASES = {
    r"past the caches?": "non-temporal store",
    r"goes? out in whole lines": "non-temporal store",
    r"asked for ahead|asks? ahead|asked for before": "prefetch",
    r"(first|second) caches?": "L1, L2",
    r"falls? on the same places?": "set conflict",
    r"made (inside|there)( in the first place)?": "written in place, aliases",
    r"who lives when": "lifetime, liveness",
    r"lies? ready": "workspace, buffer pool",
    r"at (one|each|a|every) moment|moments": "time step",
    r"floats of (16 bits|halves)|halves of floats": "half precision",
    r"grids? of bytes": "integer (quantized) tensor",
    r"loose(ly)?": "dynamic",
    r"turned": "transposed, rotated, channels-last",
    r"said|told|laid|borne|unsaid|sayable|unsayable": "the verb that happens: encode, report, allocate, read, place",
    r"spelled|spelling": "op mapping",
    r"lifted|lifting": "import",
    r"held against|holds? against": "checked against",
    r"bears|bear": "allows, causes",
    r"nobody|somebody|whoever": "the subject of the sentence",
    r"the plain form|plainest": "canonical form, decomposition",
    r"goes by": "the rule or name",
    r"in turns": "interleaved",
    r"asks? for|asked for": "the verb that happens: read, call, request",
    r"so many": "the number's name",
    r"beforehand": "before what",
    r"what (becomes of|goes with|goes into) ": "the noun",
}
"""Phrases that prose does not use (regular expressions, whole words), and what stands there instead."""

WORDS = {
    "shelf": "output pool",
    "shelves": "output pool",
    "loan": "pooled block",
    "crew": "workers",
    "muster": "start workers",
    "manner": "copy options",
    "movers": "copy kernels",
    "moment": "time step",
    "moments": "time steps",
    "halves": "half precision",
    "unsaid": "no instruction",
    "said": "the noun",
    "told": "the noun",
    "laid": "the noun",
    "borne": "the noun",
    "loose": "dynamic",
    "turned": "transposed, rotated",
    "turns": "transposes, rotations",
    "spelled": "op mapping",
    "spelling": "op mapping",
    "lifted": "imported",
    "lifting": "import",
    "lifter": "importer",
    "unlisted": "eliminate sequences",
    "ahead": "prefetch",
    "settle": "assign, fence",
    "least": "minimum",
    "most": "maximum",
}
"""Words that identifiers do not hold (parts of snake_case and CamelCase), and what stands there instead."""

TEST_WORDS = {
    "what": "the noun",
    "whatever": "the noun",
    "say": "express, report",
    "says": "express, report",
    "tells": "report",
    "stand": "the verb that happens",
    "stands": "the verb that happens",
    "held": "the verb that happens",
    "beside": "next to, with",
}
"""Words that names of tests do not hold. A test's name does not open with "it" or "they" either."""
PROSE_WORDS = frozenset({"least", "most"})
"""Words that identifiers do not hold, and that names of functions of tests may: "at least" is prose."""

PARTICIPLES = frozenset(
    "made said told given held kept laid borne found left written shown drawn taken gone seen known spelt built sent lost bound "
    "put met begun torn worn chosen hidden thrown".split()
)
NOT_PARTICIPLES = frozenset("need feed embed seed speed shed bed red indeed exceed proceed breed bleed weed".split())
PREDICATES = ("is", "has", "are", "was", "can", "may", "must", "needs", "test")

NOUNS_IN_ING = frozenset(
    "indexing aliasing packing pooling convolving training encoding profiling mapping casting binding string ring padding "
    "sampling embedding streaming broadcasting combining numbering".split()
)
NOUNS_IN_ED = frozenset("speed seed feed embed quantized tiled batched searchsorted".split())
PREPOSITIONS = frozenset("on in of within from past before after over under by with at to into for beside between".split())

OPENINGS = ("What", "Where", "Whether", "How", "From", "Of")
"""Words that no docstring opens with."""
ARTICLES = ("The", "A", "An")
"""Words that no function's docstring opens with, properties aside: a verb does."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("memory/in_place.py", "in_place"): "the field's term, in-place computation",
    ("nms_rotated.py", "nms_rotated"): "the operator NMSRotated",
    ("plan_report.py", "interpreted"): "a field of the report's JSON",
}
"""(path, word) that stay, and why; the path ends with the first, the rule's word is the second. At most 20."""


class Violation(NamedTuple):
    """A banned word: the rule, the word, what to write instead, and its place."""

    path: Path
    line: int
    rule: str
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.word!r}{f' ({self.instead})' if self.instead else ''}"


@cache
def _phrases() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rf"(?<![\w`.])(?:{pattern})(?![\w`])", re.IGNORECASE), instead) for pattern, instead in PHRASES.items()]


def check_prose(path: Path, line: int, text: str) -> Iterator[Violation]:
    """Violations in a docstring, a comment, an error text or a paragraph."""
    for pattern, instead in _phrases():
        for match in pattern.finditer(text):
            yield Violation(path, line + text.count("\n", 0, match.start()), "prose", match.group(), instead)


def words_of(identifier: str) -> list[str]:
    """Return the lower-case words of a snake_case or CamelCase identifier."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return [part.lower() for part in parts]


def check_identifier(path: Path, line: int, name: str) -> Iterator[Violation]:
    for word in words_of(name):
        if word in WORDS:
            yield Violation(path, line, "identifier", name, WORDS[word])


def is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and word not in NOT_PARTICIPLES and len(word) > 3)


def check_function_name(path: Path, line: int, name: str) -> Iterator[Violation]:
    """A function is a verb or ``x_of``, and no past participle. Python names its special methods."""
    words = [] if name[:1].isupper() or name.startswith("__") else words_of(name)
    if words and words[0] not in PREDICATES and is_participle(words[-1]):
        yield Violation(path, line, "function name", name, "a verb, or x_of")


def check_script_function(path: Path, line: int, name: str) -> Iterator[Violation]:
    """The name of a function of tests, bench or fuzz is prose without banned words; that of a test has its subject."""
    for violation in check_prose(path, line, name.replace("_", " ")):
        yield violation._replace(rule="script function", word=name)
    words, is_test = words_of(name), name.startswith("test_")
    if is_test and words[1:2] in (["it"], ["they"]):
        yield Violation(path, line, "script function", name, "the subject")
    for word in words:
        if instead := (TEST_WORDS.get(word) if is_test else None) or (WORDS.get(word) if word not in PROSE_WORDS else None):
            yield Violation(path, line, "script function", name, instead)


def check_module_name(path: Path) -> Iterator[Violation]:
    """A module is a noun of the field: no participle, adjective or preposition."""
    words = words_of(path.stem)
    if not words or path.stem.startswith("__"):
        return
    last = words[-1]
    wrong = (
        (last.endswith("ing") and last not in NOUNS_IN_ING)
        or (is_participle(last) and last not in NOUNS_IN_ED)
        or words[0] in PREPOSITIONS
        or last in PREPOSITIONS
        or last in WORDS
    )
    if wrong:
        yield Violation(path, 1, "module name", path.stem, "a noun of the field")


def check_opening(path: Path, node: ast.FunctionDef | ast.ClassDef | ast.Module, docstring: str) -> Iterator[Violation]:
    line = node.body[0].lineno
    first = docstring.strip().split(maxsplit=1)[:1]
    banned = OPENINGS
    # The docstring of a test is a claim.
    is_claim = isinstance(node, ast.FunctionDef) and node.name.startswith(("test_", "check_"))
    is_property = isinstance(node, ast.FunctionDef) and any("property" in ast.unparse(item) for item in node.decorator_list)
    if isinstance(node, ast.FunctionDef) and not is_claim and not is_property:
        banned += ARTICLES
    if first and first[0].rstrip(",:;") in banned:
        yield Violation(path, line, "docstring opening", first[0], "subject and verb")


def check_python(path: Path, source: str) -> Iterator[Violation]:
    """Violations in a Python file: its name, identifiers, function names, docstrings, comments and texts."""
    yield from check_module_name(path)
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            body = node.body[0] if node.body else None
            if isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant) and isinstance(body.value.value, str):
                docstrings.add(id(body.value))
                yield from check_opening(path, node, body.value.value)
        if isinstance(node, ast.FunctionDef):
            yield from check_identifier(path, node.lineno, node.name)
            yield from check_function_name(path, node.lineno, node.name)
            yield from check_script_function(path, node.lineno, node.name)
        elif isinstance(node, ast.ClassDef):
            yield from check_identifier(path, node.lineno, node.name)
        elif isinstance(node, ast.arg):
            yield from check_identifier(path, node.lineno, node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from check_identifier(path, node.lineno, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from check_identifier(path, node.lineno, node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from check_prose(path, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from check_prose(path, token.start[0], token.string)


_CPP = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>\"(?:\\.|[^\"\\\n])*\")|(?P<name>[A-Za-z_]\w*)", re.DOTALL)


def check_cpp(path: Path, source: str) -> Iterator[Violation]:
    """Violations in a C++ file: its name, identifiers, comments and texts."""
    yield from check_module_name(path)
    named: set[str] = set()
    for match in _CPP.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match.group("name") is None:
            yield from check_prose(path, line, match.group())
        elif match.group() not in named:
            named.add(match.group())
            yield from check_identifier(path, line, match.group())


def check_document(path: Path, source: str) -> Iterator[Violation]:
    """Violations in a document's prose; code blocks and inline code are left out."""
    text = re.sub(r"```.*?```", lambda match: "\n" * match.group().count("\n"), source, flags=re.DOTALL)
    yield from check_prose(path, 1, re.sub(r"`[^`\n]*`", "`code`", text))


CHECKS = {".py": check_python, ".pyi": check_python, ".cpp": check_cpp, ".h": check_cpp, ".md": check_document}
NOT_SEARCHED = ("operators.md", "corpus.md", "zoo.md", "conformance.md", "glossary.md", "vocabulary.py", "test_vocabulary.py")
"""Documents that a program writes, and the files that list the words."""
SCRIPTS = ("tests", "bench", "fuzz")
"""Folders whose variables have names of any words, and whose functions have names of check_script_function."""
RULES_OF_SOURCES, RULES_OF_SCRIPTS = ("identifier", "function name"), ("script function",)


def files(paths: Iterable[Path] = ()) -> list[Path]:
    """Return the files that are searched."""
    folders = ("src", "native", "docs", "README.md", "CONTRIBUTING.md", *SCRIPTS)
    roots = list(paths) or [ROOT / name for name in folders]
    every = (path for root in roots for path in ([root] if root.is_file() else root.rglob("*")))
    return sorted(
        path for path in every if path.suffix in CHECKS and path.name not in NOT_SEARCHED and "__pycache__" not in path.parts
    )


def all_violations(paths: Iterable[Path] = ()) -> list[Violation]:
    """Every violation, exceptions included."""
    found = (item for path in files(paths) for item in CHECKS[path.suffix](path, path.read_text(encoding="utf-8")))
    return [item for item in found if item.rule not in (RULES_OF_SOURCES if _is_script(item.path) else RULES_OF_SCRIPTS)]


def _is_script(path: Path) -> bool:
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in SCRIPTS


def violations(paths: Iterable[Path] = ()) -> list[Violation]:
    """Every violation, but for the exceptions."""
    return [found for found in all_violations(paths) if not is_exception(found)]


def is_exception(violation: Violation) -> bool:
    return any(violation.path.as_posix().endswith(path) and word.lower() in violation.word.lower() for path, word in EXCEPTIONS)


if __name__ == "__main__":
    listed = violations(map(Path, sys.argv[1:]))
    print(*listed, sep="\n")
    print(f"{len(listed)} in {len({item.path for item in listed})} files", file=sys.stderr)
