"""docs/errors.md has an entry for every code that the source raises, and for no other.

``PYTHONPATH=tests python tests/unit/test_error_codes.py`` prints a line to fill in for each code that has none.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from structure import CODE, raised

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
SPELLING = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
ENTRY = re.compile(r"\| `([^`]+)` \| (.+) \| (.+) \|")


@cache
def described() -> dict[str, tuple[str, str]]:
    return {code: (meaning, mend) for code, meaning, mend in ENTRY.findall(PAGE.read_text()) if CODE.fullmatch(code)}


def test_the_source_raises_codes_that_can_be_found() -> None:
    found = raised()
    assert {"axis.range", "shape.disagree", "data.external", "ir.dtd", "graph.cycle", "type.declared", "run.memory"} <= set(found)
    assert len(found) > 150


def test_codes_are_lower_case_words_joined_by_hyphens() -> None:
    assert [code for code in sorted(raised()) if not SPELLING.fullmatch(code)] == []


def test_every_code_has_a_page_entry() -> None:
    missing = {code: sorted(modules) for code, modules in raised().items() if code not in described()}
    assert not missing, f"describe these in {PAGE.relative_to(ROOT)}: {missing}"


def test_every_page_entry_has_a_code() -> None:
    assert sorted(set(described()) - set(raised())) == []


def test_every_code_has_one_entry_with_a_meaning_and_a_remedy() -> None:
    codes = [code for code, _, _ in ENTRY.findall(PAGE.read_text()) if CODE.fullmatch(code)]
    assert len(codes) == len(set(codes))
    for code, (meaning, mend) in described().items():
        assert len(meaning.split()) >= 4 and meaning.endswith("."), code
        assert len(mend.split()) >= 2 and mend.endswith("."), code


def test_the_changelog_names_the_new_code_of_every_old_one_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text().partition("Error codes by their new names")[2]
    table = text.partition("\n\n|")[2].partition("\n\n")[0]
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in row.split(" | ")] for row in table.splitlines()[2:]]
    old, new = Counter(code for row in rows for code in row[0]), {code for row in rows for code in row[1]}
    assert len(old) > 400 and max(old.values()) == 1
    assert not old.keys() & raised().keys() and new <= raised().keys()


if __name__ == "__main__":
    for code in sorted(set(raised()) - set(described())):
        print(f"| `{code}` |  |  |")
