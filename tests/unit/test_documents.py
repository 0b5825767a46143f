"""The examples of README and docs are run, and their generated parts are current."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from document_lines import COMMAND_LINES, SESSION
from dovetail.errors import UnsupportedError
from optional_packages import missing_package

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(text, id=f"{path.name}:{number}")
    for path in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    if path.name != "tutorial.md"
    for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S))
]


@pytest.mark.usefixtures("forget_operators")
@pytest.mark.parametrize("text", SNIPPETS)
def test_a_snippet_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})
    except (ModuleNotFoundError, UnsupportedError) as error:
        missing = missing_package(error)
        if missing is None:
            raise
        pytest.skip(f"the snippet needs {missing}, which is not installed")


def test_each_how_to_page_has_an_example_that_runs() -> None:
    pages = {path.name for path in (ROOT / "docs" / "howto").glob("*.md")} - {"README.md"}
    assert pages and pages == {page for page in pages if any(str(snippet.id).startswith(f"{page}:") for snippet in SNIPPETS)}
    linked = set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "howto" / "README.md").read_text()))
    assert linked == pages


def test_readme_groups_the_commands_as_the_help_does() -> None:
    cli = importlib.import_module("dovetail.cli")
    rows = re.findall(r"^\| ([A-Z][\w ]+) \| ((?:`\w+`(?:, )?)+) \|$", (ROOT / "README.md").read_text(), re.M)
    assert {title: tuple(re.findall(r"\w+", names)) for title, names in rows} == cli.SECTIONS
    assert sorted(name for names in cli.SECTIONS.values() for name in names) == sorted(cli.COMMANDS)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_each_command_line_of_a_document_is_understood(line: str) -> None:
    """Its command exists and takes its options and arguments; nothing runs."""
    words = shlex.split(line, comments=True)
    end = next((index for index, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
    group = importlib.import_module("dovetail.cli").dovetail
    with click.Context(group, info_name="dovetail") as context:
        found = group.get_command(context, words[1])
        assert found is not None, words[1]
        found.make_context(words[1], words[2:end], parent=context)


def test_the_session_of_readme_prints_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shown line but ``...`` is a line of stdout or stderr; words may be further apart, as in a table with more rows."""
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "index.md").read_text().partition("## The files of the README")[2]
    exec(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)[0], {})
    commands = [block.splitlines() for block in SESSION.strip().split("\n\n")]
    assert len(commands) >= 6
    for command, *shown in commands:
        words = shlex.split(command.removeprefix("$ "))
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        printed = [line.split() for line in (done.stdout + done.stderr).splitlines()]
        assert [line for line in shown if line != "..." and line.split() not in printed] == [], command


def test_draw_writes_the_picture_of_readme(tmp_path: Path) -> None:
    import transformers

    import dovetail
    from dovetail.cli import main

    dovetail.save(transformers.encoder(12, 64, 4, 256), tmp_path / "encoder.onnx")
    with pytest.raises(SystemExit):
        main(["draw", str(tmp_path / "encoder.onnx"), "-o", str(tmp_path / "encoder.svg")])
    assert (tmp_path / "encoder.svg").read_text() == (ROOT / "docs" / "assets" / "encoder.svg").read_text()


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_of_operators_is_up_to_date() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs" / "make_operators.py", "--check"], check=False)
    assert made.returncode == 0, "python docs/make_operators.py renews it"


def test_every_link_between_documents_leads_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_each_document_is_in_the_navigation_of_the_site() -> None:
    pages = re.findall(r"- (?:[\w ]+: )?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(pages) == len(set(pages))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert {page for page in pages if not page.startswith("project/")} == written


def test_each_public_name_has_a_place_in_one_page_of_the_api() -> None:
    import dovetail

    text = "".join(path.read_text() for path in sorted(ROOT.glob("docs/api/*.md")))
    assert sorted(re.findall(r"^::: dovetail\.(\w+)$", text, re.M)) == sorted(dovetail.__all__)


def test_the_front_page_of_the_site_links_the_page_of_each_task() -> None:
    linked = re.findall(r"\]\(howto/(\w+)\.md\)", (ROOT / "docs" / "index.md").read_text())
    tasks = "arrays compare convert custom_operators extract gradients infer memory quantize rebatch serving untrusted"
    assert set(tasks.split()) <= set(linked)


def test_each_how_to_page_is_within_two_links_of_the_front_page() -> None:
    docs = ROOT / "docs"
    reached = {docs / "index.md"}
    for _ in range(2):
        links = {
            (page.parent / target).resolve() for page in reached for target in re.findall(r"\]\(([\w/]+\.md)", page.read_text())
        }
        reached |= {page for page in links if page.exists()}
    assert set(docs.glob("howto/*.md")) <= reached


EDIT_TABLE = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "howto" / "edit.md").read_text().splitlines()
    if line.startswith("| `")
]
TABLE_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[4] w = {1, 2, 3, 4}>
{ h = Mul (x, w) y = Relu (h) z = Neg (h) }
"""


@pytest.mark.parametrize("row", EDIT_TABLE, ids=lambda row: row[0].strip("`"))
def test_each_cell_of_the_table_of_tools_works(row: list[str]) -> None:
    """The first cell is run and gives a sound model; names of the other tools must exist where those are installed."""
    import onnx.parser

    import dovetail

    model = dovetail.load(onnx.parser.parse_model(TABLE_MODEL))
    other = dovetail.load(
        onnx.parser.parse_model(
            TABLE_MODEL.replace("x", "u").replace("float[n, 4] y", "float[n, 4] v").replace("y = Relu", "v = Relu")
        )
    )
    fixed = dovetail.load(onnx.parser.parse_model(TABLE_MODEL.replace("[n, 4]", "[1, 4]")))
    result = eval(row[0].strip("`"), {"dovetail": dovetail, "model": model, "other": other, "fixed": fixed})
    result = result[0] if isinstance(result, tuple) else result
    assert isinstance(result, dovetail.Model)
    dovetail.check(result)
    packages = {"onnx": "onnx", "gs": "onnx_graphsurgeon", "ir": "onnx_ir"}
    for name in re.findall(r"`((?:onnx|gs|ir)\.[\w.]+)`", " ".join(row[1:4])):
        root, *attributes = name.split(".")
        assert attributes
        if importlib.util.find_spec(packages[root]) is not None:
            assert has_path(packages[root], attributes), name


def has_path(package: str, attributes: list[str]) -> bool:
    """Tell whether a package has a name: of modules, and of classes or their instances."""
    found = importlib.import_module(package)
    for attribute in attributes:
        if isinstance(found, type(sys)) and not hasattr(found, attribute):
            importlib.import_module(f"{found.__name__}.{attribute}")
        if isinstance(found, type) and not hasattr(found, attribute):
            found = found() if found.__name__ == "Graph" else found("x")
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return True
