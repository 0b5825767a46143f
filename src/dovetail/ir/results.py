"""Results of a run, by name, by position, and unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import UnknownOutputError


class Results(dict[Any, Any]):
    """Results maps names to the outputs of a run; an integer selects by position, in the order of the model's outputs.

    Iteration yields the outputs in this order, so that ``h, q = program(x)`` unpacks them; ``keys()`` yields the names. For type
    checkers the keys are Any, because they derive the unpacked items from the type of the keys.
    """

    if TYPE_CHECKING:

        def __getitem__(self, key: str | int) -> Any: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self.values())

    def __missing__(self, key: object) -> Any:
        names = list(self.keys())
        if isinstance(key, int | np.integer) and not isinstance(key, bool) and -len(names) <= key < len(names):
            return self[names[int(key)]]
        raise UnknownOutputError("output.unknown", f"the results hold no output {key!r}; they hold {', '.join(map(repr, names))}")
