"""A model made ready to be called."""

from __future__ import annotations

from collections.abc import Mapping
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
        return _owned(interpret(self.model, given), given.values() if isinstance(given, Mapping) else given)

    def __repr__(self) -> str:
        return f"<Program {self.engine}: {self.model!r}>"


def _owned(outputs: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Copies of those outputs that lie in an input, in a constant, or in another output."""
    found: dict[str, Any] = {}
    for name, array in outputs.items():
        if isinstance(array, np.ndarray) and array.dtype != object:
            mine = array if array.base is None else array.base
            shared = not array.flags.owndata or not array.flags.writeable
            shared = shared or any(mine is other for other in inputs) or any(mine is other for other in found.values())
            array = np.array(array, order="C") if shared else array
        found[name] = array
    return found


def compile(model: Model | str | PathLike[str], engine: str = "auto") -> Program:
    """A Program for ``model`` (a Model, or the path of one). ``engine``: "auto" or "interpreter".

    Raises EngineError [engine.unknown], and whatever loading raises.
    """
    if engine not in ("auto", *ENGINES):
        raise EngineError("engine.unknown", f"no engine is called {engine!r}; there is {', '.join(('auto', *ENGINES))}")
    return Program(model if isinstance(model, Model) else load(model), ENGINES[0] if engine == "auto" else engine)


def run(model: Model | str | PathLike[str], inputs: Mapping[str, Any] | Any, engine: str = "auto") -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a model (or the file of one) by name, for inputs by name or in order."""
    program = compile(model, engine)
    return program(inputs) if isinstance(inputs, Mapping) else program(*inputs)
