"""Rows of the tables of docs/howto/migrate.md: the cells of dovetail run, and give what those of the other tool give."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import dovetail
from dovetail.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "migrate.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"(dovetail|polygraphy|onnxsim|onnxslim|ovc|benchmark_app|python) (-m )?[\w.-]")
ROUNDED = re.compile(r"\b(?:f16|fp16|int4|int8)\b")


class Row(NamedTuple):
    """Row is one row of a table: its cells as spans of code, the imports of its section, and the rows that assign names."""

    imports: list[str]
    prelude: list[list[list[str]]]
    cells: list[list[str]]


def spans(text: str) -> list[str]:
    """Return the spans of code of a text."""
    return re.findall(r"`([^`]+)`", text)


def is_name(cell: list[str]) -> bool:
    """Return whether a cell assigns a name and does nothing else."""
    if not cell or COMMAND.match(cell[0]):
        return not cell
    body = ast.parse("\n".join(cell)).body
    return all(isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) for item in body)


def rows() -> Iterator[Any]:
    """Yield each row of the tables as a parameter."""
    for section in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        intro = text.partition("\n|")[0]
        imports = [span for span in spans(intro) if span.startswith(("import ", "from "))]
        prelude: list[list[list[str]]] = []
        for line in lines[2:]:
            columns = line.strip()[1:-1].split("|")
            assert len(columns) == 3, line
            cells = [spans(cell) for cell in columns[:2]]
            yield pytest.param(Row(imports, list(prelude), cells), id=f"{title}:{(cells[0] or cells[1])[0]}"[:60])
            if all(is_name(cell) for cell in cells):
                prelude.append(cells)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of the first snippet of the page."""
    folder = tmp_path_factory.mktemp("files")
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)[0], {})
    finally:
        os.chdir(before)
    return folder


def evaluate(cell: list[str], names: dict[str, Any]) -> Any:
    """Run the spans of a cell in order, and return the result of the last one if it is an expression."""
    result = None
    for span in cell:
        if COMMAND.match(span):
            run_command(shlex.split(span))
            continue
        body = ast.parse(span).body
        code: CodeType = compile(span, span, "eval" if isinstance(body[-1], ast.Expr) else "exec")
        result = eval(code, names)
    return result


def run_command(words: list[str]) -> None:
    if words[0] == "dovetail":
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert ended.value.code in (0, None), words
        return
    program = sys.executable if words[0] == "python" else shutil.which(words[0], path=search_path())
    assert program is not None
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def is_installed(row: Row) -> bool:
    """Return whether the tool of a row is installed."""
    names: dict[str, Any] = {}
    try:
        for text in row.imports:
            exec(text, names)
    except ImportError:
        return False
    commands = [shlex.split(span)[0] for span in row.cells[0] if COMMAND.match(span)]
    return all(shutil.which(name, path=search_path()) for name in commands)


def side(index: int, row: Row, names: dict[str, Any], folder: Path) -> Any:
    """Return what a side of a row gives: a Model, arrays, or another value. The folder gets its files."""
    os.chdir(folder)
    before = set(folder.iterdir())
    for cells in row.prelude:
        evaluate(cells[index], names)
    result = evaluate(row.cells[index], names)
    written = [path for path in set(folder.iterdir()) - before if path.name in ("new.onnx", "new.xml")]
    assert len(written) == any("new." in span for span in row.cells[index])
    if written:
        return dovetail.load(written[0])
    return as_model(result, folder)


def as_model(result: Any, folder: Path) -> Any:
    """Return the model of another tool as a Model, and other results as they are."""
    kind = f"{type(result).__module__.partition('.')[0]}.{type(result).__name__}"
    if kind == "onnx.ModelProto":
        return dovetail.load(result)
    if kind == "onnx_graphsurgeon.Graph":
        return dovetail.load(importlib.import_module("onnx_graphsurgeon").export_onnx(result))
    if kind == "openvino.Model":
        import openvino

        openvino.serialize(result, folder / "side.xml")
        return dovetail.load(folder / "side.xml")
    return result


def arrays(result: Any) -> list[Any]:
    """Return the arrays in a result, and [] for a result of another kind."""
    if isinstance(result, np.ndarray):
        return [result]
    if isinstance(result, Mapping):
        return [array for item in result.values() for array in arrays(item)]
    return [array for item in result for array in arrays(item)] if isinstance(result, (list, tuple)) else []


def answers(model: dovetail.Model) -> list[Any]:
    """Return the outputs of a model for inputs that its names and sizes determine."""
    inputs = {}
    for value in model.inputs:
        assert value.type.shape is not None
        sizes = [size if isinstance(size, int) else 2 for size in value.type.shape]
        array = np.random.default_rng(1).standard_normal(sizes)
        inputs[value.name] = array.astype(value.type.dtype.numpy)
    return [dovetail.run(model, inputs)[index] for index in range(len(model.outputs))]


@pytest.mark.parametrize("row", list(rows()))
def test_both_cells_of_a_row_give_the_same(row: Row, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippet: dict[str, Any] = {}
    exec(PAGE.partition("```python\n")[2].partition("with ")[0], snippet)
    names = {key: value for key, value in snippet.items() if isinstance(value, (np.ndarray, ModuleType))}
    folders = [Path(shutil.copytree(files, tmp_path / name)) for name in ("there", "here")]
    here = side(1, row, dict(names), folders[1])
    if not row.cells[0] or not is_installed(row):
        return
    for text in row.imports:
        exec(text, names)
    try:
        there = side(0, row, names, folders[0])
    except ModuleNotFoundError as error:
        pytest.skip(f"a part of the tool needs {error.name}, which is not installed")
    tolerance = 0.1 if any(ROUNDED.search(span) for cell in row.cells for span in cell) else 1e-5
    if isinstance(here, dovetail.Model) and isinstance(there, dovetail.Model):
        assert [value.name for value in here.inputs] == [value.name for value in there.inputs]
        there, here = answers(there), answers(here)
    if arrays(there) and arrays(here):
        for first, second in zip(arrays(there), arrays(here), strict=True):
            assert np.allclose(first, second, atol=tolerance * np.abs(second).max())
    elif isinstance(there, (int, list, tuple)) and type(there) is type(here):
        assert there == here
