"""Outputs with a map for each row, as ZipMap makes them: one column for each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

MapKeys = tuple[str, tuple[int | str, ...]]
"""The name of an output and the keys that all of its maps have."""


def column_of(output: str, key: int | str) -> str:
    """Return the name of the column of a key."""
    return f"{output}.{key}"


def call_with_columns(
    program: Callable[..., Mapping[str, Any]],
    inputs: dict[str, Any],
    out: Mapping[str, Any] | None,
    maps: Sequence[MapKeys],
) -> dict[str, Any]:
    """Run a program, and return f32 columns in place of its outputs ``maps``; ``out`` has columns too."""
    out = dict(out or {})
    columns = {column_of(name, key): out.pop(column_of(name, key), None) for name, keys in maps for key in keys}
    outputs = dict(program(inputs, out=out or None))
    for name, keys in maps:
        rows = outputs.pop(name)
        for key in keys:
            column = np.fromiter((row[key] for row in rows), np.float32, len(rows))
            memory = columns[column_of(name, key)]
            # A column of another length is reported by the caller.
            if memory is not None and len(memory) == len(column):
                memory[:] = column
            outputs[column_of(name, key)] = column
    return outputs
