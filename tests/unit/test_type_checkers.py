"""Code of users passes mypy --strict and pyright: the documents' snippets, and the tour of the public interface."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tour

import dovetail

ROOT = Path(__file__).parents[2]
# make calls the Python of .venv, whose folder PATH does not have.
FOLDERS = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
PYRIGHT = shutil.which("pyright", path=FOLDERS) or shutil.which("basedpyright", path=FOLDERS)
WRONG = {
    "operator": "b.Concatenate(x, axis=0)",
    "attribute": "b.Concat(x, axes=0)",
    "attribute type": 'b.Concat(x, axis="0")',
    "missing attribute": "b.Concat(x)",
    "missing input": "b.MatMul(x)",
    "too many inputs": "b.Relu(x, x)",
    "result": "b.Split(x, axis=0, outputs=2).name",
}


@pytest.fixture
def scripts(tmp_path: Path) -> list[Path]:
    """Return the tour, and the Python snippets of each document as one file."""
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    if not documents:
        pytest.skip("an installed package comes without its documents")
    texts = {"tour": Path(tour.__file__).read_text()}
    for document in documents:
        # The snippets of a document continue one another.
        snippets = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
        if snippets:
            texts[document.stem.lower()] = "\n".join(snippets)
    assert "readme" in texts
    paths = [tmp_path / f"{name}.py" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """Return a script whose last lines are each a mistake."""
    lines = ["import dovetail", "b = dovetail.Builder()", 'x = b.input("x", "f32", (2,))', *WRONG.values()]
    path = tmp_path / "wrong.py"
    path.write_text("\n".join(lines) + "\n")
    return path


def mypy(*paths: Path) -> str:
    pytest.importorskip("mypy")
    # Of the package, whose function bodies `make lint` checks, the signatures are enough. The cache is that of these options.
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--follow-imports", "silent"]
    options += ["--cache-dir", str(ROOT / ".mypy_cache" / "signatures")]
    # Mistakes that mypy does not report in tests, it reports to users.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    options += [f"--enable-error-code={code}" for code in settings["disable_error_code"]]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, paths)], cwd=ROOT, capture_output=True, text=True
    ).stdout


def pyright(folder: Path) -> list[int]:
    """Return the lines of all errors, in the order of lines."""
    if PYRIGHT is None:
        pytest.skip("pyright is not installed")
    (folder / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "standard", "reportIncompatibleMethodOverride": false, "pythonVersion": "3.11"}'
    )
    command = [PYRIGHT, "--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    assert all(item["file"].endswith("wrong.py") for item in errors), errors
    return sorted({item["range"]["start"]["line"] + 1 for item in errors})


def test_mypy_accepts_the_documents_and_the_tour(scripts: list[Path]) -> None:
    assert mypy(*scripts) == ""


def test_pyright_accepts_the_documents_and_the_tour(scripts: list[Path]) -> None:
    assert pyright(scripts[0].parent) == []


def test_type_checkers_refuse_every_mistake(wrong: Path) -> None:
    lines = list(range(4, 4 + len(WRONG)))
    assert sorted({int(line) for line in re.findall(r"wrong\.py:(\d+): error", mypy(wrong))}) == lines
    assert pyright(wrong.parent) == lines


@pytest.mark.usefixtures("forget_operators")
def test_the_tour_visits_every_public_name(capsys: pytest.CaptureFixture[str]) -> None:
    tree = ast.parse(Path(tour.__file__).read_text())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(dovetail.__all__) <= attributes | names
    tour.main()
    assert "24" in capsys.readouterr().out
