"""Errors of the interface: every failure is a RuntimeError, as in OpenVINO, and names that are absent are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from dovetail.errors import DovetailError, EngineError, MissingAttributeError, UnsupportedError


@contextmanager
def runtime_errors() -> Iterator[None]:
    """Raise errors of dovetail that are no RuntimeError as EngineError, with their code and diagnostics."""
    try:
        yield
    except DovetailError as error:
        if isinstance(error, RuntimeError):
            raise
        raise error.as_kind(EngineError) from error


class Partial:
    """Partial is the base of classes with a part of the attributes of OpenVINO's class; any other attribute is refused."""

    def __getattr__(self, name: str) -> object:
        owner = type(self).__name__
        if name.startswith("__"):
            raise AttributeError(f"{owner!r} object has no attribute {name!r}")
        raise MissingAttributeError("argument.value", f"{owner}.{name} of openvino is not supported (docs/howto/openvino.md)")


class Refusal:
    """Refusal is a method that raises UnsupportedError [argument.value] with its name and a reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., NoReturn] | Refusal:
        return self if instance is None else self.refuse

    def refuse(self, *arguments: object, **options: object) -> NoReturn:
        raise UnsupportedError("argument.value", f"{self.name} of openvino is not supported: {self.reason}")
