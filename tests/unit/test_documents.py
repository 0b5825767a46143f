"""What README and docs show is run, and what they generate is what stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(text, id=f"{path.name}:{number}")
    for path in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    if path.name != "tutorial.md"
    for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S))
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_a_snippet_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_of_operators_is_what_the_operators_say() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs" / "make_operators.py", "--check"], check=False)
    assert made.returncode == 0, "python docs/make_operators.py renews it"


def test_every_link_between_documents_leads_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
