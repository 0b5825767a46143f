"""Tables of OpenVINO operators: each row is a model of one of them, built with the openvino package, read, run and written by us.

``Row("TopK-11", (x, fixed(k)), {"axis": 1, ...})``: the operator by its name in IR and its version, the inputs by their order
(arrays are inputs of the model, ``fixed`` ones constants in it), the attributes as the openvino package takes them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Fixed:
    """An input that is a constant of the model."""

    array: Any


def fixed(data: Any, dtype: Any = None) -> Fixed:
    """Return a constant: whole numbers are i64, others f32, by default."""
    array = np.asarray(data)
    if dtype is None:
        is_plain = not hasattr(data, "dtype")
        dtype = np.int64 if is_plain and not array.size else np.float32 if is_plain and array.dtype.kind == "f" else array.dtype
    return Fixed(array.astype(dtype))


@dataclass(frozen=True, eq=False)
class Row:
    """One model of one operator.

    ``build`` makes the nodes where a kind, inputs and attributes do not say it: it gets the openvino package and the parameters,
    and returns the outputs (and what else the model holds: see :mod:`openvino_runner`). ``answers``: what comes out by the
    specification, where OpenVINO says something else or nothing (``why`` says what); ``is_unsafe``: it may not even be run there.
    ``refused``: the code with which we refuse to read it; ``ir`` and ``onnx``: with which we refuse to write it, each followed by
    the reason. ``is_random``: only shapes and types can be compared.
    """

    operator: str
    inputs: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    build: Callable[..., Any] | None = None
    answers: Callable[..., Any] | None = None
    why: str = ""
    refused: str = ""
    ir: str = ""
    onnx: str = ""
    is_random: bool = False
    is_unsafe: bool = False
    tolerance: float | None = None

    @property
    def kind(self) -> str:
        return self.operator.rpartition("-")[0]

    @property
    def version(self) -> int:
        return int(self.operator.rpartition("-")[2])

    def __str__(self) -> str:
        said = self.name or ", ".join(f"{key}={_text(value)}" for key, value in self.attributes.items())
        types = " ".join(_type(x) for x in self.inputs)
        return f"{self.operator} {said}" if self.name else f"{self.operator} {types}{' ' if said else ''}{said}"


def _text(value: Any) -> str:
    return str(value).replace(" ", "")


def _type(x: Any) -> str:
    if x is None:
        return "-"
    array = x.array if isinstance(x, Fixed) else x
    if isinstance(x, Fixed) and array.size <= 6:
        return _text(array.tolist())
    return _text(f"{array.dtype}{list(array.shape)}")


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32, low: float = -2, high: float = 2) -> Any:
    """Numbers of this shape, spread evenly from ``low`` to below ``high``."""
    chance = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return chance.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        return chance.integers(int(low), int(high), shape).astype(kind)
    return chance.uniform(low, high, shape).astype(kind)


def all_rows() -> list[tuple[str, Row]]:
    """Every row of every family module of this package: (family, row). Rows that read alike are numbered."""
    found, seen = [], Counter[str]()
    for family, row in _rows():
        seen[str(row)] += 1
        count = seen[str(row)]
        name = str(row).removeprefix(f"{row.operator} ")
        found.append((family, row if count == 1 else replace(row, name=f"{name} ({count})")))
    return found


def _rows() -> Iterator[tuple[str, Row]]:
    for module in sorted(item.name for item in pkgutil.iter_modules(__path__)):
        for row in importlib.import_module(f"{__name__}.{module}").ROWS:
            yield module, row
