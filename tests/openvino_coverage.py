"""The table of the names of openvino that dovetail.compat.openvino covers: ``python tests/openvino_coverage.py`` writes it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dovetail.compat.openvino as ours
from dovetail.compat.openvino.errors import Refusal

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "openvino.md"
CLASSES = (
    "Core CompiledModel InferRequest AsyncInferQueue Model Output ConstOutput Node Tensor Type Shape PartialShape Dimension "
    "Layout Version"
).split()
OF_PREPROCESS = (
    "PrePostProcessor InputInfo InputTensorInfo InputModelInfo PreProcessSteps OutputInfo OutputTensorInfo OutputModelInfo "
    "PostProcessSteps ResizeAlgorithm ColorFormat PaddingMode"
).split()
OTHER_MODULES = (
    "preprocess layout_helpers helpers exceptions properties properties.hint properties.device properties.streams".split()
)
OTHER_MODULES += ["properties.log", "properties.intel_cpu", "properties.intel_auto"]
START = "| Name | Covered | Refused |"


def public_names(item: Any) -> set[str]:
    """Return the names of a class or a module that do not begin with an underscore, and of a module no imported helper."""
    names = {name for name in dir(item) if not name.startswith("_")}
    if inspect.isclass(item):
        return names - {"name", "value"} if hasattr(item, "__members__") else names
    return {name for name in names if name not in ("Any", "annotations", "get_version")}


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a name, and its attributes in openvino that are covered and that are refused."""
    theirs = importlib.import_module("openvino")
    yield "openvino", *_split(ours, theirs, public_names(theirs) | {"get_version"})
    for name in CLASSES:
        yield name, *_split(getattr(ours, name), getattr(theirs, name), public_names(getattr(theirs, name)))
    for name in OF_PREPROCESS:
        item = getattr(theirs.preprocess, name)
        yield f"preprocess.{name}", *_split(getattr(ours.preprocess, name), item, public_names(item))
    for name in OTHER_MODULES:
        own, other = ours, theirs
        for part in name.split("."):
            own, other = getattr(own, part), getattr(other, part)
        native = theirs._pyopenvino
        for part in name.split("."):
            native = getattr(native, part, None)
        yield name, *_split(own, other, public_names(other) | (public_names(native) if native else set()))


def _split(own: Any, other: Any, names: set[str]) -> tuple[list[str], list[str]]:
    covered = {name for name in names if has(own, name)}
    return sorted(covered), sorted(names - covered)


def has(item: Any, name: str) -> bool:
    """Return whether a class or a module of the interface has an attribute, and does not refuse it."""
    if hasattr(item, name):
        return not isinstance(getattr(item, name), Refusal)
    return inspect.isclass(item) and name in _attributes_of(item)


@cache
def _attributes_of(kind: type) -> set[str]:
    """Return the attributes that a class annotates or that its methods set."""
    annotated = {name for each in kind.__mro__ for name in getattr(each, "__annotations__", {})}
    return annotated | set(re.findall(r"self\.(\w+)(?::| =)", inspect.getsource(kind)))


def table() -> str:
    """Return the table as text."""
    lines = [START, "| --- | --- | --- |"]
    for name, covered, refused in rows():
        cells = (", ".join(f"`{each}`" for each in names) for names in (covered, refused))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_with(text: str, table: str, version: str) -> str:
    """Return the text of the page with a table and the version of openvino that it is of."""
    head = text.partition(START if START in text else "TABLE")[0]
    return re.sub(r"names of openvino [\w.]+;", f"names of openvino {version};", head) + table


def version() -> str:
    return str(importlib.import_module("openvino").__version__).partition("-")[0]


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), table(), version()))
