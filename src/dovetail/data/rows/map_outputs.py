"""Conversion of outputs with a map for each row (ZipMap) to one column for each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

MapKeys = tuple[str, tuple[int | str, ...]]
"""The name of an output, and the keys of each of its maps."""


def column_of(output: str, key: int | str) -> str:
    """Return the name of the column for a key of an output's maps."""
    return f"{output}.{key}"


def call_with_columns(
    program: Callable[..., Mapping[str, Any]],
    inputs: dict[str, Any],
    out: Mapping[str, Any] | None,
    maps: Sequence[MapKeys],
) -> dict[str, Any]:
    """Run a program, and replace its outputs ``maps`` by f32 columns; ``out`` may contain arrays for these columns."""
    out = dict(out or {})
    columns = {column_of(name, key): out.pop(column_of(name, key), None) for name, keys in maps for key in keys}
    outputs = dict(program(inputs, out=out or None))
    for name, keys in maps:
        rows = outputs.pop(name)
        for key in keys:
            column = np.fromiter((row[key] for row in rows), np.float32, len(rows))
            memory = columns[column_of(name, key)]
            # The caller reports a column of the wrong length.
            if memory is not None and len(memory) == len(column):
                memory[:] = column
            outputs[column_of(name, key)] = column
    return outputs
