"""Results of a run, by name and by position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import UnknownOutputError


class Results(dict[str, Any]):
    """Results maps names to the outputs of a run; an integer selects by position, in the order of the model's outputs."""

    if TYPE_CHECKING:

        def __getitem__(self, key: str | int) -> Any: ...

    def __missing__(self, key: object) -> Any:
        names = list(self)
        if isinstance(key, int | np.integer) and not isinstance(key, bool) and -len(names) <= key < len(names):
            return self[names[int(key)]]
        raise UnknownOutputError("output.unknown", f"the results hold no output {key!r}; they hold {', '.join(map(repr, names))}")
