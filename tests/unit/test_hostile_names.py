"""A name from a file is text wherever it is shown: nothing in it reaches a terminal or a page as a command."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import cli

TERMINAL = "\x1b[31mRED\x1b[0m\x07\x9b31m\r\n\u202eback\u2066\u2028\u2029\x7f\ud7ff\ue000"
PAGE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${1}&lt;--><!--]]>"
RICH = "[bold red]rich[/bold red][link=http://x]l[/link]:smile:"
HOSTILE = {"terminal": TERMINAL, "page": PAGE, "rich": RICH}

OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What no output for people has: every control but the line break."""


def model_named(text: str, foreign: bool = False) -> onnx.ModelProto:
    """Return a model with ``text`` in each of its fields; with ``foreign`` in an operator, a domain and an attribute too."""
    inputs = [helper.make_tensor_value_info(f"x{text}", TensorProto.FLOAT, [f"s{text}", 3])]
    nodes = [
        helper.make_node("Relu", [f"x{text}"], [f"y{text}"], name=f"relu{text}", doc_string=text),
        helper.make_node("Transpose", [f"y{text}"], [f"t{text}"], name=f"turn{text}", perm=[1, 0]),
        helper.make_node("Concat", [f"t{text}", f"t{text}"], [f"z{text}"], name=f"join{text}", axis=0),
    ]
    last, imports = f"z{text}", [helper.make_opsetid("", 18)]
    if foreign:
        attributes = {f"a{text}": text}
        nodes.append(helper.make_node(f"Op{text}", [last], [f"f{text}"], name=f"own{text}", domain=f"d{text}", **attributes))
        last, imports = f"f{text}", [*imports, helper.make_opsetid(f"d{text}", 1)]
    outputs = [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, f"g{text}", inputs, outputs, doc_string=text)
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name=f"p{text}", doc_string=text)
    model.producer_version = f"v{text}"
    helper.set_model_props(model, {f"k{text}": f"m{text}"})
    return model


@pytest.fixture(params=[(kind, foreign) for kind in HOSTILE for foreign in (False, True)], ids=str)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return a file with hostile names in it, hostile in its own name as far as a file may be; and the hostile text."""
    kind, foreign = request.param
    path = tmp_path / f"m{HOSTILE[kind].replace('/', '')[:40]}.onnx"
    path.write_bytes(model_named(HOSTILE[kind], foreign).SerializeToString())
    return path, HOSTILE[kind]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of a command that is run on a terminal which shows no colours."""
    out, err = _Terminal(), _Terminal()
    for name, value in {"TERM": "dumb", "COLUMNS": "4000", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
    return int(caught.value.code or 0), out.getvalue(), err.getvalue()


RELU = "sh -c 'if grep -q Relu \"$1\"; then exit 1; fi' sh {}"
COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "info": lambda path, folder: ["info", path],
    "show": lambda path, folder: ["show", path],
    "check": lambda path, folder: ["check", path],
    "run": lambda path, folder: ["run", path, "--dim", "nothing=2"],
    "plan": lambda path, folder: ["plan", path, "--rounds", "0", "--html", f"{folder}/plan.html"],
    "profile": lambda path, folder: ["profile", path, "--runs", "1", "-o", f"{folder}/trace.json"],
    "profile-engines": lambda path, folder: ["profile", path, "--runs", "1", "--engines", "onnxruntime,openvino"],
    "diff": lambda path, folder: ["diff", path, path, "--html", f"{folder}/diff.html"],
    "reduce": lambda path, folder: ["reduce", path, "--check", RELU, "--runs", "20", "-o", f"{folder}/r.onnx"],
    "draw": lambda path, folder: ["draw", path, "-o", f"{folder}/m.svg"],
    "draw-difference": lambda path, folder: ["draw", path, "-o", f"{folder}/m.html", "--difference", path],
    "report": lambda path, folder: ["report", path, "--runs", "1", "-o", f"{folder}/report.html"],
    "cost": lambda path, folder: ["cost", path, "--threads", "1"],
    "inspect": lambda path, folder: ["inspect", path, "-o", f"{folder}/inspect.html"],
    "compare": lambda path, folder: ["compare", path, "--all", "--html", f"{folder}/compare.html"],
    "convert-onnx": lambda path, folder: ["convert", path, f"{folder}/c.onnx"],
    "convert-ir": lambda path, folder: ["convert", path, f"{folder}/c.xml"],
    "grad": lambda path, folder: ["grad", path, f"{folder}/g.onnx"],
    "bench": lambda path, folder: ["bench", path, "--rounds", "1", "--no-memory", "--against", ""],
    "missing": lambda path, folder: ["info", f"{path}.missing.onnx"],
    "unknown": lambda path, folder: ["run", path, "--input", f"{path}={path}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_names_as_text(
    name: str, hostile: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = hostile
    code, out, err = command(monkeypatch, *COMMANDS[name](str(path), str(tmp_path)))
    assert code != cli.INTERNAL, err
    assert not OBEYED.search(out + err), repr(out + err)
    if text == RICH and name in ("info", "show", "plan", "run") and not code:
        assert "[bold red]rich[/bold red]" in out and ":smile:" in out


@pytest.mark.parametrize("name", ["info", "show", "plan", "profile", "report"])
def test_json_has_the_true_names(name: str, hostile: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = hostile
    code, out, _ = command(monkeypatch, *COMMANDS[name](str(path), str(tmp_path)), "--json")
    assert not OBEYED.search(out)
    found = json.loads(out)
    if not code:
        assert f"x{text}" in strings(found)


def strings(item: Any) -> Iterator[str]:
    """Every text in what JSON says, keys included."""
    if isinstance(item, dict):
        for key, each in item.items():
            yield key
            yield from strings(each)
    elif isinstance(item, list):
        for each in item:
            yield from strings(each)
    elif isinstance(item, str):
        yield item


def test_repr_and_str_of_a_model_show_names_as_text(hostile: tuple[Path, str]) -> None:
    model = dovetail.load(hostile[0])
    graph = model.graph
    shown = [model, graph, *graph.nodes, *graph.values(), *(node.op for node in graph.nodes), *graph.inputs[0].dims]
    shown += [value.type for value in graph.values()]
    texts = [*map(repr, shown), *map(str, (model, graph, *graph.nodes, *graph.values()))]
    try:
        found = dovetail.plan(model, rounds=0)
        program = dovetail.compile(model)
    except dovetail.DovetailError as error:
        texts += [str(error), repr(error)]
    else:
        texts += [
            repr(found),
            str(found),
            repr(program),
            *map(repr, (*found.steps, *found.buffers, *found.copies, *found.kernels)),
        ]
    for text in texts:
        assert not OBEYED.search(text), repr(text)


def test_errors_and_faults_show_names_as_text(tmp_path: Path) -> None:
    path = tmp_path / f"m{TERMINAL}.onnx"
    proto = model_named(TERMINAL)
    proto.graph.node[0].input[0] = f"gone{TERMINAL}"
    proto.graph.node[1].input[0] = f"lost{TERMINAL}"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.load(path)
    assert [item.node for item in caught.value.diagnostics] == [f"relu{TERMINAL}", f"turn{TERMINAL}"]
    assert not OBEYED.search(str(caught.value)) and not OBEYED.search(repr(caught.value))
    faults = dovetail.check(path)
    assert faults
    for item in faults:
        assert not OBEYED.search(str(item)) and not OBEYED.search(repr(item))


def test_a_record_of_the_log_shows_names_as_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"m{TERMINAL}.onnx"
    proto = model_named(TERMINAL)
    proto.metadata_props.add(key=f"k{TERMINAL}", value="stored before")
    path.write_bytes(proto.SerializeToString())
    with caplog.at_level(logging.DEBUG, logger="dovetail"):
        assert dovetail.load(path).warnings
    assert "metadata.repeated" in caplog.text and not OBEYED.search(caplog.text)


def test_a_page_and_a_notebook_hold_names_as_text(hostile: tuple[Path, str]) -> None:
    model = dovetail.load(hostile[0])
    views = [model._repr_html_()]
    try:
        found = dovetail.plan(model, rounds=0)
    except dovetail.DovetailError:
        assert len(model.graph.nodes) == 4  # There is no plan of an unknown operator.
    else:
        views += [found._repr_html_(), found.html()]
        assert found.html().count("<script") == 2
    try:
        profile = dovetail.profile(model, runs=1)
    except dovetail.DovetailError:
        assert model.graph.nodes[-1].op.title == "Foreign" or "own" in model.graph.nodes[-1].name
    else:
        views[1:1] = [profile.svg(), profile.html(), profile.trace()]
        assert not OBEYED.search(repr(profile))
        for event in json.loads(profile.trace())["traceEvents"]:
            assert all(text.isprintable() for text in strings(event))
    report = dovetail.model_report(model, runs=1).html()
    assert report.count("<script") in (0, 2)
    for view in [*views, report]:
        assert not OBEYED.search(view)
        assert "<script>alert" not in view and "<img" not in view
    assert all("<script" not in view for view in views[:-1])


def test_the_policy_of_a_page_allows_its_own_style_and_script_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model_named("").SerializeToString())
    page = dovetail.plan(path, rounds=0).html()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"/>', page)
    assert policy is not None and page.index(policy.group()) < page.index("<style")
    rules = {words[0]: words[1:] for words in (rule.split() for rule in policy.group(1).split(";"))}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert "unsafe" not in policy.group(1) and set(rules) == {"default-src", "base-uri", "form-action", "style-src", "script-src"}
    for kind in ("style", "script"):
        allowed = [
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
            for each in re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        ]
        assert rules[f"{kind}-src"] == allowed and len(allowed) == 1
    # A policy without 'unsafe-inline' lets no attribute set a style or a handler.
    assert not re.search(r"<[^>]*\s(style|on\w+)=", re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL))
