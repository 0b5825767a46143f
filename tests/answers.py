"""Answers of the oracles, stored once and repeated: for tests that run where no foreign runtime can."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any

import pytest

import oracles

ASKED = ("run_onnxruntime", "run_reference", "run_openvino_file", "openvino_attributes")
"""The functions of ``oracles`` that ask: a file or its text, arrays, names."""
Answers = dict[str, tuple[bool, Any]]
"""By question: whether it was answered, and what; else why the oracle is silent."""


def note_answers(answers: Answers) -> None:
    """Let the oracles answer, and keep what they say."""

    def noting(ask: Callable[..., Any], *arguments: Any) -> Any:
        question = _question(ask.__name__, arguments)
        if question not in answers:
            try:
                answers[question] = (True, ask(*arguments))
            except oracles.Silent as reason:
                answers[question] = (False, str(reason))
        return value_of(answers[question])

    for name in ASKED:
        _put(name, partial(noting, getattr(oracles, name)))


def give_answers(answers: Answers) -> None:
    """Let the oracles repeat their answers; a test that asks anything else is skipped."""

    def repeating(name: str, *arguments: Any) -> Any:
        question = _question(name, arguments)
        if question not in answers:
            pytest.skip("a question that was not asked of the unharmed sources")
        return value_of(answers[question])

    for name in ASKED:
        _put(name, partial(repeating, name))


def _put(name: str, answering: Callable[..., Any]) -> None:
    # A test says by its name which oracle it heard.
    setattr(oracles, name, update_wrapper(answering, getattr(oracles, name)))


def value_of(answer: tuple[bool, Any]) -> Any:
    if not answer[0]:
        raise oracles.Silent(answer[1])
    return answer[1]


def _question(name: str, arguments: Sequence[Any]) -> str:
    """Return the key of a question: a file counts by its content."""
    told = hashlib.sha256(name.encode())

    def tell(x: Any) -> None:
        if isinstance(x, Mapping):
            for key, value in x.items():
                tell(key), tell(value)
        elif isinstance(x, str) and x.endswith(".xml") and Path(x).exists():
            for each in (Path(x), Path(x).with_suffix(".bin")):
                told.update(each.read_bytes() if each.exists() else b"-")
        elif isinstance(x, bytes):
            told.update(x)
        elif hasattr(x, "dtype"):
            told.update(f"{x.dtype}{x.shape}".encode())
            told.update(repr(x.tolist()).encode() if x.dtype.hasobject else x.tobytes())
        elif not isinstance(x, Path):
            told.update(repr(x).encode())

    for argument in arguments:
        tell(argument)
    return told.hexdigest()
