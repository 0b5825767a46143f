"""The notebook examples/tour.ipynb: its cells run in order in a new process, and stand there without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tour.ipynb"
CELLS = 10

RUNNER = """
import ast, json, sys
scope = {"__name__": "__main__"}
for number, cell in enumerate(cell for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"):
    tree = ast.parse("".join(cell["source"]), f"cell {number + 1}")
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number + 1}", "exec"), scope)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), f"cell {number + 1}", "eval"), scope)
        html = getattr(shown, "_repr_html_", lambda: "")()
        print(f"cell {number + 1}: {len(html)} characters of HTML")
    print(f"cell {number + 1} done")
"""
"""Runs the cells as a kernel does: the value of a last expression is displayed."""


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    if not NOTEBOOK.exists():
        pytest.skip("an installed package comes without its examples")
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["language_info"]["name"]) == (4, "python")
    return list(notebook["cells"])


def test_the_notebook_has_ten_cells_of_code_without_outputs(cells: list[dict[str, Any]]) -> None:
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == CELLS and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert not any(line.startswith(("%", "!")) for cell in code for line in cell["source"])


def test_the_notebook_runs_in_a_new_process(cells: list[dict[str, Any]], tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"cell {CELLS} done" in done.stdout
    assert {"squeezenet.xml", "slope.onnx", "trace.json", "report.html"} <= {path.name for path in tmp_path.iterdir()}
