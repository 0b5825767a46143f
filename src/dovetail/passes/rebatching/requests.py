"""Requests to change sizes of inputs: `batch=4`, `0=batch`, `x.0=batch`, or whole shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from dovetail.errors import DovetailError, RuleError, raise_all
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.types import Shape, Size, Tensor
from dovetail.passes.rebatching.axes import FreedSize, freed_symbol

NewSize: TypeAlias = int | str


class SizeRequest(NamedTuple):
    """SizeRequest holds the sizes to change: symbols by name, and fixed sizes by position and axis of the input."""

    symbols: dict[str, Size]
    freed: list[FreedSize]
    axes: dict[tuple[int, int], FreedSize]


def read_request(
    model: Model, dims: Mapping[str, NewSize], shapes: Mapping[str, Sequence[NewSize]], batch_axis: int | None = 0
) -> SizeRequest:
    """Convert ``dims`` and ``shapes`` to a SizeRequest for the inputs of a model.

    A key of ``dims`` is a symbol, or a batch axis of all inputs (``0``) or of one input (``x.0``). A new size is an integer, or
    the name of a symbol. ``batch_axis`` is the batch axis of the inputs in ``shapes``; None means that these inputs have no
    batch. Raises RuleError [rebatch.request] with every fault.
    """
    reader = _Reader(model, batch_axis)
    for key, new in dims.items():
        reader.collect(partial(reader.read_dim, str(key), new))
    for name, sizes in shapes.items():
        reader.collect(partial(reader.read_shape, name, sizes))
    raise_all(reader.errors, "faults in the sizes to change")
    return SizeRequest(reader.symbols, list(dict.fromkeys(reader.axes.values())), reader.axes)


def alternatives(model: Model, dims: Mapping[str, NewSize], shapes: Mapping[str, Sequence[NewSize]]) -> list[int | None]:
    """Return the batch axes of ``shapes`` to try, the likeliest first; only None where ``dims`` names the batch.

    An axis 0 of size 1 is the batch. A larger axis 0 may be the length of a sequence, with the batch on axis 1 or without batch.
    """
    if any(key.rpartition(".")[2].lstrip("-").isdigit() for key in map(str, dims)):
        return [None if shapes else 0]
    found = [shape for value in model.inputs if value.name in shapes and (shape := _shape(value))]
    is_length = any(isinstance(shape[0], int) and shape[0] > 1 for shape in found)
    return [0, 1, None] if is_length else [0]


def shapes_of_axes(model: Model, dims: Mapping[str, NewSize]) -> dict[str, list[NewSize]] | None:
    """Return ``shapes`` equivalent to ``dims``; None unless all keys of ``dims`` are INPUT.AXIS with an axis other than 0."""
    found: dict[str, list[NewSize]] = {}
    for key, new in dims.items():
        name, _, axis = str(key).rpartition(".")
        value = next((value for value in model.inputs if name in (value.name, *value.names)), None)
        shape = None if value is None else _shape(value)
        if value is None or shape is None or not axis.lstrip("-").isdigit() or not _has_axis(shape, int(axis)):
            return None
        if int(axis) % len(shape) == 0:
            return None
        sizes = found.setdefault(value.name, [size if isinstance(size, int) else str(size) for size in shape])
        sizes[int(axis)] = new
    return found or None


class _Reader:
    def __init__(self, model: Model, batch_axis: int | None) -> None:
        self.inputs = model.inputs
        self.batch_axis = batch_axis
        self.symbols: dict[str, Size] = {}
        self.axes: dict[tuple[int, int], FreedSize] = {}
        self.errors: list[DovetailError] = []
        self.known = {
            str(symbolic.name_of(symbol)): symbol
            for value in self.inputs
            for size in _shape(value) or ()
            for symbol in symbolic.symbols(size)
        }

    def collect(self, read: Callable[[], None]) -> None:
        try:
            read()
        except DovetailError as error:
            self.errors.append(error)

    def read_dim(self, key: str, new: NewSize) -> None:
        size = _new_size(key, new)
        if key in self.known:
            self.set_symbol(key, size)
        elif key.lstrip("-").isdigit():
            self.set_axis_of_all(int(key), size)
        else:
            name, _, axis = key.rpartition(".")
            found = self.find(name)
            if found is None or not axis.lstrip("-").isdigit():
                names = ", ".join([*self.known, *(f"{value.name}.0" for value in self.inputs if _shape(value))])
                raise _fault(f"{key!r} must be a symbol of the inputs, an axis, or INPUT.AXIS; the model has {names}")
            self.set_size(found, int(axis), size, is_batch=True)

    def read_shape(self, name: str, sizes: Sequence[NewSize]) -> None:
        found = self.find(name)
        if found is None:
            raise _fault(f"the model has no input {name!r}; it has {', '.join(value.name for value in self.inputs)}")
        shape = _shape(self.inputs[found])
        if shape is None or len(shape) != len(sizes):
            type = self.inputs[found].type
            raise _fault(f"the sizes of input {name!r} must have the rank of its type {type}, got {len(sizes)} sizes")
        for axis, new in enumerate(sizes):
            size = _new_size(name, new)
            if shape[axis] != size:
                self.set_size(found, axis, size, is_batch=axis == self.batch_axis)

    def find(self, name: str) -> int | None:
        return next((index for index, value in enumerate(self.inputs) if name in (value.name, *value.names)), None)

    def set_axis_of_all(self, axis: int, size: Size) -> None:
        """Change an axis of every input that has the axis: the axis is the common batch, so that fixed sizes must be equal.

        Symbols may differ, because exporters name the dynamic batch of each input separately.
        """
        found = [index for index, value in enumerate(self.inputs) if _has_axis(_shape(value), axis)]
        olds = {index: (_shape(self.inputs[index]) or ())[axis] for index in found}
        are_symbols = all(symbolic.name_of(old) is not None for old in olds.values())
        if len({str(old) for old in olds.values()}) > 1 and not are_symbols:
            sizes = ", ".join(f"{self.inputs[index].name} {old}" for index, old in olds.items())
            raise _fault(f"axis {axis} must have one size in all inputs, got {sizes}; name the inputs as INPUT.{axis}")
        if not found:
            raise _fault(f"the model must have an input with an axis {axis}")
        for index in found:
            self.set_size(index, axis, size, is_batch=True)

    def set_symbol(self, name: str, size: Size) -> None:
        low, high = symbolic.bounds(self.known[name])
        if isinstance(size, int) and ((low is not None and size < low) or (high is not None and size > high)):
            raise _fault(f"{name} must be in [{low}, {'...' if high is None else high}], got {size}")
        if self.symbols.setdefault(name, size) != size:
            raise _fault(f"{name} must get one size, got {self.symbols[name]} and {size}")

    def set_size(self, index: int, axis: int, size: Size, *, is_batch: bool) -> None:
        value = self.inputs[index]
        shape = _shape(value)
        if not _has_axis(shape, axis) or shape is None:
            raise _fault(f"the input {value.name!r} of type {value.type} has no axis {axis}")
        axis %= len(shape)
        old = shape[axis]
        if not isinstance(old, int):
            name = symbolic.name_of(old)
            if name is None:
                raise _fault(f"axis {axis} of {value.name!r} must be a number or a symbol, got {old}; change its symbols by name")
            self.set_symbol(name, size)
        elif old != size:
            name = str(size) if not isinstance(size, int) else f"{old} to {size}"
            freed = FreedSize(freed_symbol(name), old, size, is_batch)
            for other in self.axes.values():
                if other.new == size and not isinstance(size, int) and other.old != old:
                    raise _fault(f"{size} must have one size in the model, got {other.old} and {old} ({value.name!r})")
                if other.symbol == freed.symbol:
                    freed = other
            self.axes[index, axis] = freed


def _shape(value: Value) -> Shape | None:
    return value.type.shape if isinstance(value.type, Tensor) else None


def _has_axis(shape: Shape | None, axis: int) -> bool:
    return shape is not None and -len(shape) <= axis < len(shape)


def _new_size(key: str, new: NewSize) -> Size:
    if isinstance(new, str) and new.strip().isdigit():
        new = int(new)
    if isinstance(new, str):
        try:
            size = symbolic.parse(new)
        except DovetailError as error:
            raise _fault(f"the new size of {key} must be an integer or a name: {error.message}") from None
        if not isinstance(size, int) and symbolic.name_of(size) is None:
            raise _fault(f"the new size of {key} must be an integer or a name, got {new!r}")
        return size
    if isinstance(new, bool) or not isinstance(new, int) or not 0 < new < 2**31:
        raise _fault(f"the new size of {key} must be an integer from 1, or a name, got {new!r}")
    return new


def _fault(message: str) -> RuleError:
    return RuleError("rebatch.request", message)
