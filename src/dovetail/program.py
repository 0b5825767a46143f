"""A model made ready to be called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from dovetail.edit import copy_model
from dovetail.errors import EngineError
from dovetail.formats import load
from dovetail.graph import Model
from dovetail.interpret import interpret

ENGINES = ("interpreter",)


class Program:
    """A compiled model: ``program({"x": array})`` or ``program(array, ...)`` gives the outputs by name, as numpy arrays.

    No result shares memory with an input or another result. A Program holds no state and can be called from several threads.
    """

    def __init__(self, model: Model, engine: str) -> None:
        self.model = copy_model(model)
        self.engine = engine

    def __call__(self, *inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
        given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs
        outputs = interpret(self.model, given)
        try:
            return _owned(outputs, _arrays(given.values() if isinstance(given, Mapping) else given))
        except MemoryError as error:
            raise EngineError("run.memory", f"the outputs do not fit into memory: {error}", file=self.model.file) from None

    def __repr__(self) -> str:
        return f"<Program {self.engine}: {self.model!r}>"


def _arrays(inputs: Iterable[Any]) -> Iterator[Any]:
    """The arrays themselves, those in lists included."""
    for item in inputs:
        yield from _arrays(item) if isinstance(item, list) else (item,)


def _owned(outputs: dict[str, Any], inputs: Iterable[Any]) -> dict[str, Any]:
    """The outputs, copied where they lie in an input, in a constant, or in another output."""
    taken = {id(array) for array in inputs}
    return {name: _own(array, taken) for name, array in outputs.items()}


def _own(item: Any, taken: set[int]) -> Any:
    if isinstance(item, list):
        return [_own(each, taken) for each in item]
    if not isinstance(item, np.ndarray):
        return item
    # What owns its memory and can be written is no view and no constant, and so fresh from an operator.
    if not item.flags.owndata or not item.flags.writeable or id(item) in taken:
        item = np.array(item, order="C")
    taken.add(id(item))
    return item


def compile(model: Model | str | PathLike[str], engine: str = "auto") -> Program:
    """A Program for ``model`` (a Model, or the path of one). ``engine``: "auto" or "interpreter".

    Raises EngineError [engine.unknown], and whatever loading raises.
    """
    if engine not in ("auto", *ENGINES):
        raise EngineError("engine.unknown", f"no engine is called {engine!r}; there is {', '.join(('auto', *ENGINES))}")
    return Program(model if isinstance(model, Model) else load(model), ENGINES[0] if engine == "auto" else engine)


def run(
    model: Model | str | PathLike[str], inputs: Mapping[str, Any] | Sequence[Any] | Any, engine: str = "auto"
) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a model (or the file of one) by name, for inputs by name, in a list in order, or the only one."""
    program = compile(model, engine)
    return program(*inputs) if isinstance(inputs, list | tuple) else program(inputs)
