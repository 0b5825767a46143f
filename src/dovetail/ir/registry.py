"""Registry of the operators by name. It imports an operator's module at the first use of the operator.

``operator_index.py`` names the module of each operator; ``python -m dovetail.ir.operator_stub`` generates it.
"""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, TypeVar

from dovetail.ir.host import plugins
from dovetail.ir.operator_index import KINDS, MODULES

Class = TypeVar("Class", bound=type)


class Registry(dict[str, Class]):
    """Registry maps names to operator classes. A lookup imports one module, iteration imports all modules of the index.

    The lookup of an unknown name, and iteration, load the plug-ins of the group ``dovetail.ops``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_complete = False
        self.custom_count = 0
        """The number of registrations of classes that the index does not know; mappings that were cached before are outdated."""

    def __setitem__(self, name: str, cls: Class) -> None:
        super().__setitem__(name, cls)
        self.custom_count += name not in MODULES

    def definition_of(self, name: str) -> tuple[str, str] | None:
        """Return the module and the qualified name of the class ``name``, also if it is not imported; None if there is none."""
        if self.is_loaded(name):
            return self[name].__module__, self[name].__qualname__
        return (MODULES[name], name) if name in MODULES else None

    def is_loaded(self, name: str) -> bool:
        """Return whether the module of an operator is imported."""
        return super().__contains__(name)

    def importing(self, format: str, label: str) -> list[Class]:
        """Return the classes that may import a foreign operator (``[domain:]Kind``).

        These are the classes that the index lists for it, and all registered classes that the index does not know.
        """
        names = KINDS[format].get(label, label.rpartition(":")[2]).split()
        own = [name for name in super().__iter__() if name not in MODULES]
        return [self[name] for name in (*names, *own) if name in self]

    def load_plugins(self) -> None:
        """Load the plug-ins of the group ``dovetail.ops``, whose classes register themselves."""
        plugins.load("ops")

    def load_all(self) -> None:
        """Import every module of the index, and load the plug-ins."""
        if not self._is_complete:
            for module in dict.fromkeys(MODULES.values()):
                importlib.import_module(module)
            self.load_plugins()
            self._is_complete = True

    def __missing__(self, name: str) -> Class:
        module = MODULES.get(name)
        if module is None:
            self.load_plugins()
            if not self.is_loaded(name):
                raise KeyError(name)
        else:
            importlib.import_module(module)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in MODULES

    def __iter__(self) -> Iterator[str]:
        self.load_all()
        return super().__iter__()

    def __len__(self) -> int:
        self.load_all()
        return super().__len__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self.load_all()
        return super().keys()

    def values(self) -> ValuesView[Class]:  # type: ignore[override]
        self.load_all()
        return super().values()

    def items(self) -> ItemsView[str, Class]:  # type: ignore[override]
        self.load_all()
        return super().items()
