"""The project's words: none that docs/glossary.md has a better one for, in identifiers, prose, error texts and module names."""

from __future__ import annotations

from pathlib import Path

import pytest

import vocabulary

PLANTED = {
    "phrase in a comment": ("ops/nn/conv.py", "# The next row is asked for ahead.\n", "prose"),
    "phrase in a docstring": ("ops/nn/conv.py", 'def pad() -> None:\n    """Pad what is made inside."""\n', "prose"),
    "phrase in an error": ("ops/nn/conv.py", 'raise ValueError("what was said of the shape")\n', "prose"),
    "docstring opening": ("ops/nn/conv.py", 'def pad() -> None:\n    """What pads."""\n', "docstring opening"),
    "docstring without a verb": ("ops/nn/conv.py", 'def pad() -> None:\n    """The pads."""\n', "docstring opening"),
    "identifier": ("engine/planner.py", "shelf = 3\n", "identifier"),
    "class name": ("engine/planner.py", "class OutputShelf: ...\n", "identifier"),
    "past participle": ("formats/importer.py", "def lowered_graph_settled() -> None: ...\n", "function name"),
    "module name": ("ops/turned.py", "", "module name"),
    "participle as a module": ("ops/joining.py", "", "module name"),
    "preposition as a module": ("engine/on_grids.py", "", "module name"),
    "native comment": ("native/kernels/conv.cpp", "// Goes past the cache.\n", "prose"),
    "native identifier": ("native/kernels/conv.cpp", "int crew_size = 3;\n", "identifier"),
    "native module": ("native/kernels/running.cpp", "", "module name"),
    "phrase in a test's name": (
        "tests/unit/test_conv.py",
        "def test_a_size_that_is_asked_for() -> None: ...\n",
        "script function",
    ),
    "elision in a test's name": ("tests/unit/test_conv.py", "def test_what_a_kernel_reads() -> None: ...\n", "script function"),
    "pronoun in a test's name": ("tests/unit/test_conv.py", "def test_it_runs() -> None: ...\n", "script function"),
    "word in a helper's name": ("tests/unit/test_conv.py", "def turned() -> None: ...\n", "script function"),
    "document": ("docs/formats.md", "What the file said.\n", "prose"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_word_is_reported(name: str) -> None:
    path, source, rule = PLANTED[name]
    found = list(vocabulary.CHECKS[Path(path).suffix](Path(path), source))
    assert rule in {violation.rule for violation in found}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("engine/memory/aliasing.py", '"""Alias analysis."""\n\n\ndef is_closed() -> bool: ...\n'),
        ("ops/nn/conv.py", 'def feed(speed: int) -> None:\n    """Return the offset of the tensor that the kernel reads."""\n'),
        ("native/kernels/weight_packing.cpp", "// Packs a matrix panel by panel.\n"),
        ("docs/formats.md", "A `lifted` name in code, and\n```\nhalves of floats\n```\n"),
    ],
)
def test_terms_of_the_field_are_not_reported(path: str, source: str) -> None:
    assert list(vocabulary.CHECKS[Path(path).suffix](Path(path), source)) == []


@pytest.fixture(scope="module")
def found() -> list[vocabulary.Violation]:
    return vocabulary.all_violations()


def test_the_project_uses_no_banned_word(found: list[vocabulary.Violation]) -> None:
    assert [str(violation) for violation in found if not vocabulary.is_exception(violation)] == []


def test_exceptions_are_few_and_needed(found: list[vocabulary.Violation]) -> None:
    assert len(vocabulary.EXCEPTIONS) <= 20 and all(vocabulary.EXCEPTIONS.values())
    for path, word in vocabulary.EXCEPTIONS:
        assert any(each.path.as_posix().endswith(path) and word in each.word.lower() for each in found), (path, word)
