"""The table of docs/howto/onnxruntime.md: ``python tests/onnxruntime_table.py`` writes it."""

from __future__ import annotations

import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dovetail.compat.onnxruntime as ours
from dovetail.compat.onnxruntime import options, session

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "onnxruntime.md"
CLASSES = ("InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding", "OrtDevice", "ModelMetadata", "NodeArg")
METHODS_REFUSED = {
    "InferenceSession": set(session.REFUSED),
    "OrtValue": {"as_sparse_tensor", "ort_value_from_sparse_tensor"},
    "RunOptions": {"add_active_adapter"},
    "SessionOptions": set(options.REFUSED_METHODS) - {"add_active_adapter"},
}
"""The methods of each class that are refused."""
USED = {
    "SessionOptions": {
        "enable_profiling", "graph_optimization_level", "intra_op_num_threads", "optimized_model_filepath", "profile_file_prefix",
    },
    "RunOptions": {"terminate"},
}  # fmt: skip
"""The attributes of options that have an effect."""


def instance(name: str) -> Any:
    """Return an object of a class, or the class itself where its methods and attributes are those of the class."""
    kind = getattr(ours, name)
    if name == "NodeArg":
        return kind("x", "tensor(float)", [])
    return kind() if name in ("SessionOptions", "RunOptions", "ModelMetadata") else kind


def public_names(item: object) -> set[str]:
    return {name for name in dir(item) if not name.startswith("_")}


def plain_attributes(item: object) -> set[str]:
    return {name for name in public_names(item) if not callable(getattr(item, name))}


def table() -> str:
    """Return the rows of the table: a row for the module and for each class."""
    functions = sorted(name for name in ours.__all__ if isinstance(getattr(ours, name), types.FunctionType))
    kinds = sorted(name for name in ours.__all__ if isinstance(getattr(ours, name), type))
    lines = ["| Of | Covered | Stored only | Refused by name |", "| --- | --- | --- | --- |"]
    lines.append(f"| classes | {_list(kinds)} | - | {_list(name for name in ours.REFUSED if name[0].isupper())} |")
    lines.append(f"| functions | {_list(functions)} | - | {_list(name for name in ours.REFUSED if not name[0].isupper())} |")
    for name in CLASSES:
        names = public_names(instance(name))
        stored = plain_attributes(instance(name)) - USED[name] if name in USED else set()
        refused = METHODS_REFUSED.get(name, set())
        lines.append(f"| `{name}` | {_list(names - stored - refused)} | {_list(stored)} | {_list(refused)} |")
    return "\n".join(lines)


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "-"


def parts(text: str) -> tuple[str, str, str]:
    """Split the page into the text before the table, the table, and the text after it."""
    before, start, rest = text.partition("| Of |")
    rows, end, after = (start + rest).partition("\n\n")
    return before, rows, end + after


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text("utf-8"))
    PAGE.write_text(before + table() + after, "utf-8")
