"""Draw random docstrings, native comments and error texts to read: ``python docs/sample_prose.py --seed N``.

Reading 40 of each against the rules for prose shows how much of the text a newcomer understands at first sight.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ERRORS = (
    "RuleError",
    "FormatError",
    "EngineError",
    "UnsupportedError",
    "MissingFileError",
    "UnknownOutputError",
    "ArgumentTypeError",
)


def docstrings() -> Iterator[str]:
    """Docstrings of src, each with its place and the first words of what it documents."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                name = getattr(node, "name", path.stem)
                yield f"{path.relative_to(ROOT)}: {name}\n{text}"


def comments() -> Iterator[str]:
    """Comments of native; lines that follow each other are one comment."""
    for path in sorted((ROOT / "native").rglob("*")):
        if path.suffix in (".cpp", ".h"):
            text = path.read_text(encoding="utf-8")
            for match in re.finditer(r"(?:^[ \t]*//[^\n]*\n)+|(?<=\S)[ \t]+//[^\n]*", text, re.MULTILINE):
                line = text.count("\n", 0, match.start()) + 1
                words = re.sub(r"\s*//+\s?", " ", match.group()).strip()
                if words and not words.startswith("namespace"):
                    yield f"{path.relative_to(ROOT)}:{line}\n{words}"


def error_texts() -> Iterator[str]:
    """Messages of the errors that src raises, as they are written, with their codes."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in ERRORS and isinstance(node.args[0], ast.Constant):
                yield f"{path.relative_to(ROOT)}:{node.lineno} [{node.args[0].value}]\n{ast.unparse(node.args[1])}"


KINDS = {"docstrings": docstrings, "comments": comments, "errors": error_texts}


def main() -> None:
    """Print the samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--kind", choices=KINDS, action="append")
    arguments = parser.parse_args()
    for kind in arguments.kind or KINDS:
        every = list(KINDS[kind]())
        drawn = random.Random(f"{kind} {arguments.seed}").sample(every, min(arguments.count, len(every)))
        print(f"# {kind}: {len(drawn)} of {len(every)}, seed {arguments.seed}\n")
        for number, text in enumerate(drawn, 1):
            print(f"{number}. {text}\n")


if __name__ == "__main__":
    main()
