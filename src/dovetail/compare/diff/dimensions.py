"""Equality of types of two models whose dimensions may have different names."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.ir import symbolic
from dovetail.ir.graph import Value
from dovetail.ir.types import Sequence, Size, Tensor, Type


class Dimensions:
    """Dimensions maps the names of one model's dimensions to those of another, by the types of paired inputs."""

    def __init__(self, pairs: Iterable[tuple[Value, Value]]) -> None:
        self._names: dict[str, str] = {}
        self._merged: set[str] = set()
        """Names of the first model's dimensions that correspond to the same name of the second model as another name.

        For such dimensions only the second model requires equal sizes.
        """
        claimed: dict[str, str] = {}
        for first, second in pairs:
            for one, other in zip(_sizes(first.type), _sizes(second.type), strict=False):
                if one is None or other is None:
                    continue
                names = symbolic.name_of(one), symbolic.name_of(other)
                if names[0] is not None and names[1] is not None:
                    self._names.setdefault(names[0], names[1])
                    if claimed.setdefault(names[1], names[0]) != names[0]:
                        self._merged.add(names[0])

    def are_equal(self, first: Type, second: Type) -> bool:
        """Return whether types are equal as far as both are known; a size with a name from inference is not known."""
        if isinstance(first, Tensor) and isinstance(second, Tensor):
            if first.dtype is not second.dtype and first.dtype is not None and second.dtype is not None:
                return False
            if first.shape is None or second.shape is None:
                return True
            return len(first.shape) == len(second.shape) and all(map(self._is_same, first.shape, second.shape))
        if type(first) is not type(second):
            return False
        if isinstance(first, Sequence) and isinstance(second, Sequence):
            return self.are_equal(first.element, second.element)
        return str(first) == str(second)

    def _is_same(self, first: Size | None, second: Size | None) -> bool:
        if first is None or second is None:
            return True
        if not isinstance(first, int) and any(symbolic.name_of(each) in self._merged for each in symbolic.symbols(first)):
            return False
        if first == second:
            return True
        if isinstance(first, int) and isinstance(second, int):
            return False
        symbols = [str(symbolic.name_of(each)) for size in (first, second) if not isinstance(size, int)
                   for each in symbolic.symbols(size)]  # fmt: skip
        if any(name.startswith("?") for name in symbols):
            return True
        if isinstance(first, int) or isinstance(second, int):
            return False
        renamed = {}
        for each in symbolic.symbols(first):
            name = str(symbolic.name_of(each))
            if name in self._names:
                renamed[name] = symbolic.symbol(self._names[name], *symbolic.bounds(each))
        try:
            return str(symbolic.substitute(first, renamed)) == str(second)
        except symbolic.Inexact:
            return True


def _sizes(type: Type) -> tuple[Size | None, ...]:
    if isinstance(type, Sequence):
        return _sizes(type.element)
    return type.shape or () if isinstance(type, Tensor) else ()
