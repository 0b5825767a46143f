"""The report of `dovetail plan`: facts of small graphs, the page, the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Inputs, cli
from dovetail.engine.plan_report import PlanReport
from dovetail.ir.host import native_core
from dovetail.runtime.compilation import plan

NAMES = ("left", "right", "joined")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def joining() -> dovetail.Model:
    """Two results concatenated, and read as one: f32[2, 8] of 64 bytes."""
    with Builder("joining") as b:
        x, z = b.input("x", "f32", (2, 4)), b.input("z", "f32", (2, 4))
        joined = b.Concat(b.Sqrt(b.Abs(x)), b.Exp(z), axis=1)
        b.output("y", b.Softmax(joined, axis=1))
    return b.model


def doubling() -> dovetail.Model:
    """Return a result concatenated with itself: 32 bytes are in place, 32 are copied."""
    with Builder("doubling") as b:
        twice = b.Exp(b.input("x", "f32", (2, 4)))
        b.output("y", b.Softmax(b.Concat(twice, twice, axis=1), axis=1))
    return b.model


def inception(wide: int = 4) -> dovetail.Model:
    """Branches that are joined, three times over."""
    with Builder("inception") as b:
        x = b.input("x", "f32", (1, 32, 32, 32))
        for _ in range(3):
            x = b.Concat(*(b.Softmax(x, axis=1) for _ in range(wide)), axis=2)
        b.output("y", b.ReduceMean(x, b.constant([2, 3], "i64"), keepdims=True))
    return b.model


def facts(model: dovetail.Model, **options: Any) -> PlanReport:
    return plan(model, **{"rounds": 0, "threads": 1, **options})


# Facts


def test_joining_two_results_copies_nothing() -> None:
    found = facts(joining())
    assert (found.moved_bytes, found.copied_bytes, found.copies) == (64, 0, [])
    (shared,) = [buffer for buffer in found.buffers if buffer.is_shared]
    assert shared.nbytes == 64 and [piece.nbytes for piece in shared.pieces if piece.end - piece.start < 1] == [32, 32]


def test_a_repeated_value_is_copied_once_with_a_reason() -> None:
    found = facts(doubling())
    assert (found.moved_bytes, found.copied_bytes) == (64, sum(copy.nbytes for copy in found.copies))
    assert 32 <= found.copied_bytes <= 64
    assert all("is read more than once" in copy.reason for copy in found.copies)


def test_cutting_a_result_copies_nothing() -> None:
    with Builder("cutting") as b:
        a, z = b.Split(b.Softmax(b.input("x", "f32", (2, 8)), axis=1), [2, 6], axis=1, outputs=2)
        b.output("a", b.Softmax(a, axis=1))
        b.output("z", b.Softmax(z, axis=1))
    found = facts(b.model)
    assert (found.moved_bytes, found.copied_bytes) == (64, 0)
    (cut,) = [buffer for buffer in found.buffers if buffer.is_shared]
    assert cut.cuts == [0.25] and len(cut.pieces) == 1 and len(cut.views) == 2


def test_all_bytes_are_copied_where_nothing_is_planned_away() -> None:
    found = facts(joining(), elide="none")
    assert found.copied_bytes == found.moved_bytes == 64
    assert {copy.reason for copy in found.copies} == {"elide is none"}
    assert [buffer for buffer in found.buffers if buffer.is_shared] == []


def test_the_arena_has_at_least_the_largest_live_set_and_at_most_all_activations() -> None:
    found = facts(inception())
    assert 0 < found.lower_bound <= found.arena_bytes < found.activation_bytes
    assert all(buffer.offset >= 0 and buffer.offset + buffer.nbytes <= found.arena_bytes for buffer in found.buffers)


def test_pieces_are_within_the_range_and_lifetime_of_their_buffer() -> None:
    for buffer in facts(inception()).buffers:
        assert buffer.pieces and all(buffer.first <= piece.first <= piece.last <= buffer.last for piece in buffer.pieces)
        assert all(0 <= piece.start < piece.end <= 1 for piece in buffer.pieces)


def test_every_step_is_counted_once_and_timed() -> None:
    found = facts(inception(), rounds=2)
    assert sum(kernel.count for kernel in found.kernels) == len(found.steps)
    assert [step.number for step in found.steps] == list(range(len(found.steps)))
    assert all(step.seconds is not None and step.seconds > 0 for step in found.steps)
    assert sum(kernel.share or 0 for kernel in found.kernels) == pytest.approx(1)
    assert found.run_seconds is not None and found.run_seconds > 0


def test_steps_in_the_interpreter_have_a_reason() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (4, 4))
        b.output("y", b.Inverse(b.Exp(x)))
    found = facts(b.model, rounds=1)
    assert "Inverse" in {step.kernel for step in found.interpreted}
    assert all(step.reason for step in found.interpreted)


def test_without_a_core_every_step_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "core", lambda: None)
    found = facts(joining(), rounds=1)
    assert len(found.interpreted) == len(found.steps)
    assert all(step.seconds is not None for step in found.steps)


def test_a_plan_is_for_given_shapes_or_sizes() -> None:
    with Builder() as b:
        b.output("y", b.Exp(b.input("x", "f32", ("n", 4))))
    for inputs in (Inputs(shapes={"x": [7, 4]}), Inputs(sizes={"n": 7})):
        assert facts(b.model, inputs=inputs).shapes == {"x": [7, 4]}
    with pytest.raises(dovetail.EngineError, match="the shape of input 'x' must match") as caught:
        facts(b.model, inputs=Inputs(shapes={"x": [7, 5]}))
    assert caught.value.code == "input.shape"
    with pytest.raises(dovetail.EngineError) as caught:
        facts(b.model, inputs=Inputs(shapes={"z": [7, 5]}))
    assert caught.value.code == "input.unknown"


def test_the_public_name_takes_a_model_or_a_file(tmp_path: Path) -> None:
    dovetail.save(joining(), tmp_path / "m.onnx")
    found = dovetail.plan(tmp_path / "m.onnx", rounds=0)
    assert repr(found).replace("'m.onnx'", "'joining'") == repr(dovetail.plan(joining(), rounds=0))
    assert "64 B would be copied, 0 B are (0.0 %)" in repr(found) and len(repr(found).splitlines()) < 10


@pytest.mark.skipif(not native_core.has_bf16(), reason="needs AVX512-BF16")
def test_a_plan_has_the_kernels_of_its_precision() -> None:
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", (40, 64)), np.ones((64, 48), np.float32)))
    for precision in ("f32", "bf16"):
        (kernel,) = dovetail.plan(b.model, rounds=0, precision=precision).kernels
        assert ("bf16" in kernel.kernel.split()) == (precision == "bf16")
        report = dovetail.model_report(b.model, runs=1, precision=precision)
        assert report.plan is not None and [each.kernel for each in report.plan.kernels] == [kernel.kernel]


def test_an_empty_program_has_a_report() -> None:
    with Builder("nothing") as b:
        b.output("y", b.constant([1.0], "f32"))
    found = facts(b.model, rounds=1)
    assert repr(found) and len(parsed(found.html())) and found._repr_html_()


# The page


def parsed(page: str) -> ElementTree.Element:
    """Return the page, which has to be well-formed XML and to name nothing outside itself."""
    assert page.startswith("<!DOCTYPE html>")
    root = ElementTree.fromstring(page.split("\n", 1)[1])
    for element in root.iter():
        assert not {"src", "href", "data", "action"} & set(element.attrib), element.tag
        assert element.tag.rpartition("}")[2] not in ("link", "iframe", "object", "image", "img", "embed", "base")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert set(re.findall(r"https?://[^\"' ]*", page)) <= {"http://www.w3.org/2000/svg"}
    return root


def test_the_page_is_well_formed_and_draws_every_buffer() -> None:
    found = facts(inception(), rounds=1)
    root = parsed(found.html())
    drawn = [element for element in root.iter() if "data-buffer" in element.attrib]
    assert len(drawn) == len(found.buffers)
    kinds = Counter(element.attrib["class"] for element in drawn)
    assert kinds["buffer shared"] == sum(buffer.is_shared for buffer in found.buffers) > 0
    data = json.loads(root.find(".//script[@id='facts']").text or "")
    assert [len(buffer["pieces"]) for buffer in data["buffers"]] == [len(buffer.pieces) for buffer in found.buffers]


def test_names_from_a_file_are_only_text() -> None:
    nasty = "</script><script>alert('1')</script>&\x1b\u202e\"]]>"
    with Builder(nasty) as b:
        x = b.input(f"x{nasty}", "f32", (2, 4))
        y = b.Concat(b.Exp(x), b.Exp(b.Abs(x)), axis=0)
        y.name = nasty
        b.output(f"y{nasty}", b.Softmax(y, axis=0))
    found = facts(b.model, rounds=1)
    assert len(list(parsed(found.html()).iter("script"))) == 2
    for text in (found.html(), found._repr_html_(), repr(found)):
        assert "\x1b" not in text and "\u202e" not in text
    assert "<script" not in found._repr_html_()


# The command


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    return (caught.value.code, *capsys.readouterr())


@pytest.fixture
def path(tmp_path: Path) -> str:
    dovetail.save(doubling(), tmp_path / "doubling.onnx")
    return str(tmp_path / "doubling.onnx")


def test_plan_in_json_has_every_field(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "plan", path, "--json", "--rounds", "1", "--threads", "1", "--elide", "all")
    found = json.loads(out)
    assert code == 0 and (found["dovetail"], found["elide"], found["threads"]) == ("plan", "all", 1)
    assert found["copied_bytes"] == sum(copy["nbytes"] for copy in found["copies"]) > 0
    assert {"moved_bytes", "arena_bytes", "activation_bytes", "lower_bound", "kernels", "buffers", "interpreted"} <= set(found)


def test_plan_as_tables_and_as_a_page(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    code, out, err = run_command(capsys, "plan", path, "--html", str(page), "--shape", "x=2,4")
    assert code == 0 and "is read more than once" in out and "64 B would be copied" in out and str(page) in err
    parsed(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("shape", ["x", "x=a,2", "x=1,,2", "x=-1"])
def test_a_shape_is_numbers(shape: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "plan", path, "--shape", shape)
    assert code == 2 and "--shape takes NAME=SIZE,SIZE,..." in err


# The picture, in a browser


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_draws_the_shared_buffers(dark: bool, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    page.write_text(facts(inception(), rounds=1).html(), encoding="utf-8")
    colours = Counter(pixels(screenshot(page, tmp_path, dark)))
    paper, _ = colours.most_common(1)[0]
    assert (sum(paper) < 200) == dark
    # The bands of shared buffers are the only strong colours that fill an area.
    bands = [colour for colour, count in colours.items() if count > 500 and max(colour) - min(colour) > 60]
    assert len(bands) >= 4, colours.most_common(12)


def screenshot(page: Path, folder: Path, dark: bool) -> bytes:
    target = folder / "page.png"
    options = (
        "headless no-sandbox disable-gpu hide-scrollbars disable-background-networking disable-component-update disable-sync"
    )
    command = [str(CHROMIUM), *(f"--{option}" for option in options.split()), f"--user-data-dir={folder / 'browser'}"]
    command += [f"--screenshot={target}", "--window-size=1000,620", "--force-color-profile=srgb"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target.read_bytes()


def pixels(png: bytes) -> list[tuple[int, ...]]:
    """Return the pixels of a PNG of 8-bit RGB or RGBA, row by row."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = *(int.from_bytes(png[at : at + 4], "big") for at in (16, 20)), png[24], png[25]
    assert depth == 8 and kind in (2, 6)
    size = 3 if kind == 2 else 4
    data, place = b"", 8
    while place < len(png):
        length = int.from_bytes(png[place : place + 4], "big")
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    raw = zlib.decompress(data)
    found = []
    above = bytearray(width * size)
    for row in range(height):
        start = row * (width * size + 1)
        above = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + width * size]), above, size)
        found += [tuple(above[at : at + 3]) for at in range(0, len(above), size)]
    return found


def unfiltered(kind: int, row: bytearray, above: bytearray, size: int) -> bytearray:
    """Return a row of a PNG as it was before its filter (PNG specification, section 9)."""
    for at in range(len(row)):
        left, up = row[at - size] if at >= size else 0, above[at]
        corner = above[at - size] if at >= size else 0
        row[at] = (row[at] + (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]) & 255
    return row


def paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda each: abs(guess - each))
