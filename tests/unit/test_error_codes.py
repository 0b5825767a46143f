"""docs/errors.md has an entry for every code that the source raises, and for no other.

``python tests/unit/test_error_codes.py`` prints a line to fill in for each code that has none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
# Whatever could be meant as a code, and how one is spelt.
CODE = re.compile(r"[A-Za-z]\w*\.[A-Za-z][\w-]*")
SPELLING = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
ENTRY = re.compile(r"\| `([^`]+)` \| (.+) \| (.+) \|")
RAISING = re.compile(r"(\w*Error|Diagnostic|warn|_?fault|unsupported_error|properties|element_type)$")
MOST_CODES = 200
# Words with a dot that are no codes: names of domains and kernels.
OTHER_WORDS = {"ai.onnx", "cast.f32", "dovetail.openvino", "recurrent.cells", "recurrent.dynamic_quantize_lstm"}


def _codes(call: ast.Call) -> Iterator[str]:
    """Yield the code that a call gives, or the two that it chooses from."""
    for argument in (each for each in call.args if isinstance(each, ast.Constant | ast.IfExp)):
        for item in ast.walk(argument):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and CODE.fullmatch(item.value):
                yield item.value


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@cache
def raised() -> dict[str, set[str]]:
    """Every code in the source with its modules: arguments of errors, and words of the same areas anywhere else."""
    folder = ROOT / "src" / "dovetail"
    # The names in the package's __init__ are modules.
    paths = [path for path in sorted(folder.rglob("*.py")) if path != folder / "__init__.py"]
    trees = {str(path.relative_to(folder)): ast.parse(path.read_text()) for path in paths}
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        for item in ast.walk(tree):
            if isinstance(item, ast.Call) and RAISING.search(_name(item)):
                for code in _codes(item):
                    found.setdefault(code, set()).add(name)
    areas = {code.partition(".")[0] for code in found}
    for name, tree in trees.items():
        for item in ast.walk(tree):
            word = item.value if isinstance(item, ast.Constant) and isinstance(item.value, str) else ""
            if CODE.fullmatch(word) and word.partition(".")[0] in areas and word not in OTHER_WORDS:
                found.setdefault(word, set()).add(name)
    return found


def described() -> dict[str, tuple[str, str]]:
    return {code: (meaning, mend) for code, meaning, mend in ENTRY.findall(PAGE.read_text()) if CODE.fullmatch(code)}


def test_the_source_raises_codes_that_can_be_found() -> None:
    found = raised()
    assert {"axis.range", "shape.disagree", "data.external", "ir.dtd", "graph.cycle", "type.declared", "run.memory"} <= set(found)
    assert 150 < len(found) <= MOST_CODES, "a code names a rule: take the one of the same rule"


def test_codes_are_lower_case_words_joined_by_hyphens() -> None:
    assert [code for code in sorted(raised()) if not SPELLING.fullmatch(code)] == []


def test_every_code_has_a_page_entry() -> None:
    missing = {code: sorted(modules) for code, modules in raised().items() if code not in described()}
    assert not missing, f"describe these in {PAGE.relative_to(ROOT)}: {missing}"


def test_every_page_entry_has_a_code() -> None:
    assert sorted(set(described()) - set(raised())) == []


def test_every_entry_says_what_it_means_and_how_to_mend_it_once() -> None:
    codes = [code for code, _, _ in ENTRY.findall(PAGE.read_text()) if CODE.fullmatch(code)]
    assert len(codes) == len(set(codes))
    for code, (meaning, mend) in described().items():
        assert len(meaning.split()) >= 4 and meaning.endswith("."), code
        assert len(mend.split()) >= 2 and mend.endswith("."), code


def test_the_changelog_names_the_new_code_of_every_old_one() -> None:
    table = (
        (ROOT / "CHANGELOG.md")
        .read_text()
        .partition("Error codes by their new names")[2]
        .partition("\n\n|")[2]
        .partition("\n\n")[0]
    )
    rows = [[set(re.findall(r"`([^`]+)`", cell)) for cell in row.split(" | ")] for row in table.splitlines()[2:]]
    old, new = (set().union(*column) for column in zip(*rows, strict=True))
    assert len(old) > 400 and not old & set(raised()) and new <= set(raised())


if __name__ == "__main__":
    for code in sorted(set(raised()) - set(described())):
        print(f"| `{code}` |  |  |")
