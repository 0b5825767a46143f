"""Random graphs of operators that only move data, with what numpy makes of the same moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value
from dovetail.passes.check import validate

MOVED = ("f32", "f64", "f16", "i64", "i32", "i8", "u8", "boolean")
LARGEST = 600


@dataclass
class Moves:
    """A graph under way: each value beside its array, in order."""

    b: Builder
    values: list[tuple[Value, Any]] = field(default_factory=list)

    def put(self, made: Any, arrays: Any) -> None:
        values = made if isinstance(made, list) else [made]
        self.values.extend(zip(values, arrays if isinstance(made, list) else [arrays], strict=True))


@dataclass(frozen=True)
class Moved:
    """A model, its inputs, and its outputs by numpy."""

    model: Model
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.model}\nwith { ({name: (x.dtype.name, x.shape) for name, x in self.inputs.items()}) }"


def arrays_of(dtype: str, shape: tuple[int, ...], first: int) -> Any:
    kind = dtypes.dtype(dtype)
    count = math.prod(shape)
    if dtype == "boolean":
        return np.random.default_rng(first).integers(0, 2, shape).astype(bool)
    return (np.arange(first, first + count) % 97).astype(kind.numpy).reshape(shape)


shapes = (
    st.lists(st.sampled_from((1, 2, 3, 4, 0, 5, 6)), min_size=1, max_size=4)
    .map(tuple)
    .filter(lambda shape: math.prod(shape) <= LARGEST)
)


def either(axis: int, rank: int, flag: bool) -> int:
    """Return the same axis, counted from the end where ``flag`` says so."""
    return axis - rank if flag else axis


def concat(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axis = draw(st.integers(0, array.ndim - 1))
    off = [size for place, size in enumerate(array.shape) if place != axis]
    fitting = [
        (value, other)
        for value, other in moves.values
        if other.ndim == array.ndim and [size for place, size in enumerate(other.shape) if place != axis] == off
    ]
    others = draw(st.lists(st.sampled_from(fitting), max_size=2))
    chosen = [(x, array), *others]
    made = moves.b.Concat(*(value for value, _ in chosen), axis=either(axis, array.ndim, draw(st.booleans())))
    moves.put(made, np.concatenate([other for _, other in chosen], axis))


def split(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axis = draw(st.integers(0, array.ndim - 1))
    size = array.shape[axis]
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=0, max_size=2)))
    lengths = np.diff([0, *cuts, size]).tolist()
    named = either(axis, array.ndim, draw(st.booleans()))
    # onnxruntime refuses to cut nothing into equal pieces.
    if size and len(set(lengths)) == 1 and draw(st.booleans()):
        made = moves.b.Split(x, axis=named, outputs=len(lengths))
    else:
        made = moves.b.Split(x, lengths, axis=named, outputs=len(lengths))
    moves.put(made, np.split(array, cuts, axis))


def reshape(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    sizes: list[int] = []
    rest = array.size
    while rest > 1 and len(sizes) < 4:
        size = draw(st.sampled_from([factor for factor in range(1, rest + 1) if rest % factor == 0]))
        sizes.append(size)
        rest //= size
    shape = [*sizes, rest] if array.size else list(draw(st.permutations(array.shape)))
    target = list(shape)
    for place, size in enumerate(shape[: array.ndim]):
        if size == array.shape[place] and draw(st.booleans()):
            target[place] = 0
    plain = [place for place, size in enumerate(target) if size > 0]
    if plain and array.size and draw(st.booleans()):
        target[draw(st.sampled_from(plain))] = -1
    if not array.size and any(size == 0 and (place >= array.ndim or array.shape[place]) for place, size in enumerate(target)):
        moves.put(moves.b.Reshape(x, shape, special_zero=False), array.reshape(shape))
        return
    moves.put(moves.b.Reshape(x, target), array.reshape(shape))


def slice_(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axes = draw(st.lists(st.integers(0, array.ndim - 1), min_size=1, max_size=2, unique=True))
    keys: list[Any] = [slice(None)] * array.ndim
    rows = []
    for axis in axes:
        size = array.shape[axis]
        step = draw(st.sampled_from((1, 1, 2, -1, -2, 3)))
        start, stop = draw(st.integers(-size, size)), draw(st.integers(-size - 1, size + 1))
        keys[axis] = slice(start, stop, step)
        rows.append((start, stop, axis, step))
    starts, stops, named, steps = (list(row) for row in zip(*rows, strict=True))
    moves.put(moves.b.Slice(x, starts, stops, named, steps), array[tuple(keys)])


def unsqueeze(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axis = draw(st.integers(0, array.ndim))
    made = moves.b.Unsqueeze(x, [either(axis, array.ndim + 1, draw(st.booleans()))])
    moves.put(made, np.expand_dims(array, axis))


def squeeze(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    ones = [axis for axis, size in enumerate(array.shape) if size == 1]
    if not ones or array.ndim == 1:
        return unsqueeze(draw, moves, x, array)
    axis = draw(st.sampled_from(ones))
    moves.put(moves.b.Squeeze(x, [either(axis, array.ndim, draw(st.booleans()))]), np.squeeze(array, axis))
    return None


def flatten(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axis = draw(st.integers(0, array.ndim))
    rows = math.prod(array.shape[:axis])
    moves.put(moves.b.Flatten(x, axis=axis), array.reshape(rows, math.prod(array.shape[axis:])))


def transpose(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    order = list(draw(st.permutations(range(array.ndim))))
    moves.put(moves.b.Transpose(x, order), np.transpose(array, order))


def expand(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    repeated = [size if size != 1 else draw(st.sampled_from((1, 2, 3))) for size in array.shape]
    shape = [draw(st.sampled_from((1, 2))), *repeated] if array.ndim < 5 and draw(st.booleans()) else repeated
    # OpenVINO aborts on a Broadcast of nothing.
    if 0 < math.prod(shape) <= LARGEST:
        moves.put(moves.b.Expand(x, shape), np.broadcast_to(array, shape))


def tile(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    repeats = [draw(st.sampled_from((1, 1, 2, 3))) for _ in array.shape]
    if math.prod(repeats) * array.size <= LARGEST:
        moves.put(moves.b.Tile(x, repeats), np.tile(array, repeats))


def pad(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    mode = draw(st.sampled_from(("constant", "edge", "reflect"))) if array.size else "constant"
    rows = []
    for size in array.shape:
        most = min(size - 1, 2) if mode == "reflect" else 2
        rows.append((draw(st.integers(0, most)), draw(st.integers(0, most))))
    if math.prod(size + sum(row) for size, row in zip(array.shape, rows, strict=True)) <= LARGEST:
        made = moves.b.Pad(x, [row[0] for row in rows] + [row[1] for row in rows], mode=mode)
        moves.put(made, np.pad(array, rows, mode=mode))


def gather(draw: Any, moves: Moves, x: Value, array: Any) -> None:
    axis = draw(st.integers(0, array.ndim - 1))
    size = array.shape[axis]
    if size:
        places = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=3))
        made = moves.b.Gather(x, places, axis=either(axis, array.ndim, draw(st.booleans())))
        moves.put(made, np.take(array, places, axis))


STEPS: dict[str, Callable[[Any, Moves, Value, Any], None]] = {
    "Concat": concat,
    "Split": split,
    "Reshape": reshape,
    "Slice": slice_,
    "Unsqueeze": unsqueeze,
    "Squeeze": squeeze,
    "Flatten": flatten,
    "Transpose": transpose,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "Gather": gather,
}


@st.composite
def movements(draw: Any) -> Moved:
    """Return a sound model of one to six moves over one element type."""
    b = Builder("moves")
    dtype = draw(st.sampled_from(MOVED))
    moves = Moves(b)
    inputs: dict[str, Any] = {}
    for index in range(draw(st.integers(1, 2))):
        array = arrays_of(dtype, draw(shapes), 1 + 31 * index)
        inputs[f"x{index}"] = array
        moves.put(b.input(f"x{index}", dtype, array.shape), array)
    steps = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
    for step in steps:
        fitting = [(value, array) for value, array in moves.values if array.ndim and array.ndim < 6 and array.size <= LARGEST]
        STEPS[step](draw, moves, *draw(st.sampled_from(fitting[-3:])))
    if len(moves.values) == len(inputs):
        transpose(draw, moves, *moves.values[0])
    outputs: dict[str, Any] = {}
    made = moves.values[len(inputs) :]
    unread = [(value, array) for value, array in made if not value.uses]
    for value, array in unread:
        name = f"y{len(outputs)}"
        b.output(name, value)
        outputs[name] = array
    assert not validate(b.graph)
    return Moved(b.model, inputs, outputs)
