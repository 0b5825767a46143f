"""Seeded random inputs that a model accepts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.errors import ArgumentTypeError, EngineError, RuleError
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import unknown_input
from dovetail.ir.limits import active, counting, refuse_array
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.ir.types import Map, Optional, Sequence as List, Size, Tensor, Type, sizes_in as sizes_of
from dovetail.runtime.find_shapes import find_sizes, separate_sizes
from dovetail.runtime.interpreter.session import InitialStates

DEFAULT_LENGTH = 2
"""The length of a sequence input whose type has no length."""
DEFAULT_SIZE = 3
"""The size of a symbolic dimension for which the caller passes no size, within the dimension's bounds."""


@check_keywords
@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs describes the inputs of a run: arrays by name, and options for drawing the inputs without an array.

    ``sizes`` maps names of dimensions to sizes; ``shapes`` maps names of inputs to complete shapes; ``seed`` seeds the random
    generator. ``varied``: names of the inputs that a comparison of two models also fills with NaN, infinities, ties and extremes;
    by default the names of the drawn inputs.
    """

    arrays: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    seed: int = 0
    varied: Collection[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Mapping):
            raise ArgumentTypeError("argument.type", f"inputs must be arrays by name, got {type(self.arrays).__name__}")

    @classmethod
    def of(cls, inputs: Mapping[str, Any] | Inputs | None) -> Inputs:
        """Convert arrays by name, or None, to Inputs; return Inputs unchanged. Raises ArgumentTypeError [argument.type]."""
        return inputs if isinstance(inputs, Inputs) else cls({} if inputs is None else inputs)

    def complete(self, model: Model) -> dict[str, Any]:
        """Return an array for each input of ``model``. Raises the errors of :func:`random_inputs`."""
        arrays = dict(self.arrays)
        missing = [value.name for value in model.inputs if value.name not in arrays]
        if missing:
            drawn = random_inputs(
                model, seed=self.seed, sizes=self.sizes, shapes=self.shapes, only=missing, beside=arrays or None
            )  # fmt: skip
            arrays.update(drawn)
        return arrays


def random_inputs(
    model: Model,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    only: Collection[str] | None = None,
    beside: Mapping[str, Any] | None = None,
    distinct: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    """Draw a random array for each input, or only for the inputs named in ``only``.

    Floats are drawn from a normal distribution, integers are 0 or 1 (valid indices of most tables), booleans False or True.

    ``sizes`` maps names of dimensions to sizes; ``shapes`` maps names of inputs to complete shapes. Other dimensions have size
    DEFAULT_SIZE, or sizes with which every rule of the model holds. With ``distinct`` these sizes differ from each other, if the
    model runs with such sizes. With ``beside``, the arrays of the other inputs, the sizes are also checked by running the model.

    Raises EngineError [input.missing] for an input of unknown rank or of more than 2**33 elements, [input.shape] for a shape that
    contradicts the model, [input.unknown] for a shape of an unknown input; RuleError [name.unknown] for a name in ``sizes`` that
    is no dimension of an input.
    """
    shapes = shapes or {}
    given = {**sizes_in(model, shapes), **(sizes or {})}

    def arrays(chosen: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
        generator = np.random.default_rng(seed)
        return {
            value.name: _sample(value, value.type, chosen, generator, shapes.get(value.name))
            for value in model.inputs
            if only is None or value.name in only
        }

    def in_order(chosen: Mapping[str, int]) -> list[Any]:
        every = {**(beside or {}), **arrays(chosen)}
        if model.states:
            every = {**InitialStates(model)(every), **every}
        return [every[value.name] for value in model.inputs]

    with counting(None if active() else model.limits):
        chosen = choose_sizes(model, given)
        free = {name: symbol for name, symbol in _symbols(model).items() if name not in given}
        runner = None if beside is None else in_order
        if free:
            chosen = find_sizes(model, chosen, free, runner)
        if distinct and len(free) > 1:
            chosen = separate_sizes(model, chosen, free, runner)
        return arrays(chosen)


def run_sizes(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return a size for each symbol of the inputs: ``sizes``, else DEFAULT_SIZE, or sizes with which every rule holds.

    Raises RuleError [name.unknown] for a name in ``sizes`` that is no dimension of an input.
    """
    chosen = choose_sizes(model, sizes)
    free = {name: symbol for name, symbol in _symbols(model).items() if name not in sizes}
    return find_sizes(model, chosen, free) if free else chosen


def sizes_in(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of the symbolic dimensions that ``shapes`` determines, by name."""
    unknown = [name for name in shapes if name not in {value.name for value in model.inputs}]
    if unknown:
        raise unknown_input(unknown, [value.name for value in model.inputs])
    found: dict[str, int] = {}
    for value in model.inputs:
        if value.name in shapes and isinstance(value.type, Tensor) and value.type.shape is not None:
            found.update(_symbol_sizes(value.name, value.type.shape, shapes[value.name]))
    return found


def _symbol_sizes(name: str, wanted: Sequence[Size], given: Sequence[int]) -> dict[str, int]:
    fits = len(wanted) == len(given) and all(
        not isinstance(size, int) or size == each for size, each in zip(wanted, given, strict=True)
    )
    if not fits:
        message = f"the shape of input {name!r} must match [{', '.join(map(str, wanted))}], got {list(given)}"
        raise EngineError("input.shape", message)
    symbols = ((symbolic.name_of(size), each) for size, each in zip(wanted, given, strict=True) if not isinstance(size, int))
    return {symbol: each for symbol, each in symbols if symbol is not None}


def choose_sizes(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return a size for each symbol of the model's inputs."""
    symbols = _symbols(model)
    unknown = [name for name in sizes if name not in symbols]
    if unknown:
        known = ", ".join(symbols) or "none"
        message = f"no input has a dimension {', '.join(map(repr, unknown))}; the symbolic dimensions are: {known}"
        raise RuleError("name.unknown", message + closest(unknown[0], symbols))
    return {name: sizes.get(name, _default(symbol)) for name, symbol in symbols.items()}


def _symbols(model: Model) -> dict[str, Size]:
    """Return the symbols of the model's inputs by name."""
    symbols: dict[str, Size] = {}
    for value in model.inputs:
        for size in sizes_of(value.type):
            symbols.update({str(symbolic.name_of(symbol)): symbol for symbol in symbolic.symbols(size)})
    return symbols


def _default(symbol: Size) -> int:
    low, high = symbolic.bounds(symbol)
    size = DEFAULT_SIZE if low is None else max(DEFAULT_SIZE, low)
    return size if high is None else min(size, high)


def _sample(value: Value, type: Type, chosen: Mapping[str, int], generator: np.random.Generator, given: Any) -> Any:
    """Draw a value of an input's type: a sequence of unknown length has DEFAULT_LENGTH elements, an optional value is present."""
    if isinstance(type, Optional):
        return _sample(value, type.element, chosen, generator, given)
    if isinstance(type, List):
        length = DEFAULT_LENGTH if type.length is None else symbolic.evaluate(type.length, chosen)
        return [_sample(value, type.element, chosen, generator, given) for _ in range(length)]
    if isinstance(type, Map):
        raise EngineError("input.missing", f"a value must be passed for input {value.name!r} of type {type}")
    if type.dtype is None or (type.shape is None and given is None):
        raise EngineError("input.missing", f"a value must be passed for input {value.name!r} of type {value.type}")
    return _array(value, type.dtype, (type.shape if given is None else given) or (), chosen, generator)


def _array(
    value: Value, dtype: DType, sizes: Sequence[Size | None], chosen: Mapping[str, int], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    shape = [DEFAULT_SIZE if size is None else symbolic.evaluate(size, chosen) for size in sizes]
    if int(np.prod(np.array(shape, dtype=object), initial=1)) > 1 << 33:
        sizes_text = shape if len(shape) <= 16 else f"{len(shape)} axes of {shape[:8]} ..."
        raise EngineError("input.missing", f"input {value.name!r} must have at most 2**33 elements, got the shape {sizes_text}")
    what = f"input {value.name!r}"
    # numpy draws numbers of 8 bytes, which are afterwards converted to the input's element type.
    refuse_array(shape, max(8, dtype.numpy.itemsize), what)
    try:
        return _draw(shape, dtype, generator)
    except MemoryError as error:
        raise EngineError("run.memory", f"{what} does not fit into memory: {error}") from None


def _draw(shape: Sequence[int], dtype: DType, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype.is_float:
        return np.asarray(generator.standard_normal(shape).astype(np.float32)).astype(dtype.numpy)
    if dtype.kind == "complex":
        return np.asarray(generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype.numpy)
    if dtype.kind == "string":
        return generator.choice(np.array(["a", "b", "dovetail"], dtype=object), size=shape)
    return generator.integers(0, 2, size=shape).astype(dtype.numpy)
