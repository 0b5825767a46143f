"""Imports of the packages that ``pip install "dovetail-graph[EXTRA]"`` adds."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dovetail.errors import UnsupportedError


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import ``module``, a package of the extra ``extra``.

    Raises UnsupportedError [extra.missing] if the package is not installed; the message says that ``purpose`` needs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        package = module.partition(".")[0]
        message = f'{purpose} needs the package {package}: pip install "dovetail-graph[{extra}]"'
        raise UnsupportedError("extra.missing", message) from None
