"""Plug-ins: entry points of installed distributions, in the groups ``dovetail.ops``, ``.passes``, ``.formats``, ``.engines``.

A group is loaded at its first use. ``DOVETAIL_PLUGINS=0`` leaves all of them out. Distributions in the current directory and in
the folder of the running script are never searched: these folders may hold files of others, such as the model's. A file selects
no plug-in: all plug-ins of a group are loaded, or none. Source: Python's entry points specification.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError, EngineError, printable
from dovetail.ir.host.forks import ForkLock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LOGGER = logging.getLogger("dovetail.plugins")
"""The logger of the warnings about broken plug-ins; the command line prints its records on stderr."""
GROUPS = ("ops", "passes", "formats", "engines")


class Plugin(NamedTuple):
    """Plugin is an entry point of the group ``dovetail.<group>``, with the name and version of its distribution."""

    group: str
    name: str
    distribution: str
    entry: EntryPoint

    def __str__(self) -> str:
        return printable(f"dovetail.{self.group}: {self.name} = {self.entry.value} ({self.distribution})")


@cache
def find_plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins of all installed distributions, without loading them."""
    if os.environ.get("DOVETAIL_PLUGINS", "1") == "0":
        return ()
    # Deferred for start-up time: the module parses metadata with the package `email`.
    from importlib import metadata

    plugins: dict[tuple[str, str, str], Plugin] = {}
    seen: set[str] = set()
    for distribution in metadata.distributions(path=_folders()):
        try:
            # The name, which is slow to parse, is needed only with entry points.
            entries = [entry for entry in distribution.entry_points if entry.group.partition(".")[0] == "dovetail"]
            if not entries:
                continue
            name, version = distribution.metadata["Name"] or "unnamed", distribution.version or "without version"
        except Exception as error:
            # A file of metadata is damaged, of dovetail's plug-ins or of another distribution.
            where = printable(str(distribution.locate_file("")))
            LOGGER.warning("the entry points of a distribution in %s were left out: %s", where, _text_of(error))
            continue
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        for entry in entries:
            group = entry.group.partition(".")[2]
            plugin = Plugin(group, entry.name, f"{name} {version}", entry)
            if group in GROUPS:
                plugins[group, entry.name, name] = plugin
            else:
                _warn(plugin, f"the group must be one of {', '.join(f'dovetail.{each}' for each in GROUPS)}")
    return tuple(sorted(plugins.values(), key=lambda plugin: (GROUPS.index(plugin.group), plugin.name, plugin.distribution)))


def _folders() -> list[str]:
    """Return the folders of ``sys.path`` without the current directory and the folder of the running script."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    excluded = {None, _real_path(os.curdir), *([os.path.dirname(_real_path(script) or "")] if script else [])}
    return [folder for folder in sys.path if folder and _real_path(folder) not in excluded]


def _real_path(path: str) -> str | None:
    """Return a path without links; None for a path in a current directory that was removed."""
    try:
        return os.path.realpath(path)
    except OSError:
        return None


_loaded: dict[str, dict[str, Any]] = {}
_lock = ForkLock()


def load(group: str, reserved: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return the objects of the plug-ins of ``group`` by name; the first call imports them.

    A plug-in that fails, or has one of the ``reserved`` names, is named in a warning and left out.
    """
    with _lock:
        if group not in _loaded:
            # A plug-in that uses dovetail while it is imported sees the plug-ins before it.
            objects = _loaded[group] = {}
            for plugin in find_plugins():
                if plugin.group == group:
                    _load(plugin, objects, reserved)
        return _loaded[group]


def _load(plugin: Plugin, objects: dict[str, Any], reserved: Iterable[str]) -> None:
    if plugin.name in objects or plugin.name in reserved:
        _warn(plugin, f"the name {plugin.name!r} is taken")
        return
    try:
        loaded = plugin.entry.load()
    except (Exception, SystemExit) as error:
        _warn(plugin, _text_of(error))
        return
    if plugin.group in ("passes", "engines") and not callable(loaded):
        _warn(plugin, f"must be callable, got an object of the class {type(loaded).__name__}")
        return
    objects[plugin.name] = loaded


def call(group: str, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the plug-in ``name``. Raises EngineError [run.failed], which names the plug-in, for its exceptions.

    Errors of dovetail, of the operating system and of exhausted memory are not changed.
    """
    try:
        return function(*arguments)
    except (DovetailError, OSError, MemoryError):
        raise
    except Exception as error:
        raise EngineError("run.failed", f"the plug-in {name!r} of dovetail.{group} failed: {_text_of(error)}") from error


def _text_of(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}")


def _warn(plugin: Plugin, fault: str) -> None:
    LOGGER.warning("the plug-in %s was left out: %s", plugin, printable(fault))
