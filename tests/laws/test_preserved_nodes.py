"""A node that cannot be converted or run exactly still loads: every operator with a broken node, in both formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dovetail
from case_runner import at_most, feeds, model_of, over
from cases import Case
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import read
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.model_source import resolve_source
from dovetail.report.draw import draw_model
from dovetail.report.model_summary import summarize

UNKNOWN = "no_such_attribute"
CODES = {"attribute.unknown", "attribute.value"}
"""The second one where the first op mapping of an operator is for other values of its attributes."""


def write(foreign: ForeignModel, path: Path) -> None:
    if path.suffix == ".onnx":
        from dovetail.formats.onnx import codec
    else:
        from dovetail.formats.openvino import codec  # type: ignore[no-redef]
    codec.write(foreign, path)  # type: ignore[arg-type]


def broken(case: Case, path: Path) -> str:
    """Write the case's model with an attribute at its last node that no operator has; return the label of the node."""
    try:
        dovetail.save(model_of(case), path)
    except UnsupportedError as error:
        pytest.skip(f"the format cannot express it: {error.message}")
    foreign = read(resolve_source(path))
    if not foreign.graph.nodes:
        pytest.skip("the format says it with constants alone")
    node = foreign.graph.nodes[-1]
    value: Any = "1" if path.suffix == ".xml" else 1
    foreign.graph.nodes[-1] = replace(node, name="broken", attributes={**node.attributes, UNKNOWN: value})
    write(foreign, path)
    return "broken"


def nodes_of(path: Path) -> list[tuple[Any, ...]]:
    graph = read(resolve_source(path)).graph
    return [(node.domain, node.kind, node.version, repr(node.attributes), len(node.inputs)) for node in graph.nodes]


def refusal(action: Any) -> DovetailError:
    with pytest.raises(DovetailError) as caught:
        action()
    return caught.value


def assert_blamed(error: DovetailError, label: str) -> None:
    assert any(item.node == label and item.code in CODES for item in error.diagnostics), error


@over(at_most(1))
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_model_with_a_node_without_a_meaning_is_read_shown_and_saved(case: Case, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    label = broken(case, path)
    model = dovetail.load(path)
    assert [item.node for item in model.warnings if item.code in CODES] == [label]
    assert sum(summarize(model)["operators"].values()) >= 1
    assert label in str(model)
    draw_model(model)
    check = dovetail.check(path)
    assert any(item.node == label and item.code in CODES and item.severity == "error" for item in check)
    assert dovetail.infer(model)
    again = tmp_path / f"again{suffix}"
    # A part with all outputs has all inputs that an operator reads.
    for whole in (dovetail.extract(model, outputs=[y.name for y in model.outputs]), model):
        dovetail.save(whole, again)
        assert nodes_of(again) == nodes_of(path)
    assert dovetail.diff(model, dovetail.load(again)).is_same
    text = tmp_path / "model.dt"
    dovetail.save(model, text)
    dovetail.save(dovetail.load(text), again)
    assert nodes_of(again) == nodes_of(path)


@over(at_most(1))
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_preserved_node_is_refused_by_name_where_it_is_run_or_converted(case: Case, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    label = broken(case, path)
    model = dovetail.load(path)
    assert_blamed(refusal(lambda: dovetail.load(path, strict=True)), label)
    for engine in ("native", "interpreter"):
        assert_blamed(refusal(lambda engine=engine: dovetail.compile(model, engine)), label)
    assert_blamed(refusal(lambda: dovetail.interpret(model, feeds(case))), label)
    other = tmp_path / ("other.xml" if suffix == ".onnx" else "other.onnx")
    assert_blamed(refusal(lambda: dovetail.save(model, other)), label)
    assert not other.exists()
