"""dovetail-check: check a certificate that two models in dovetail's text form are equal, without dovetail.

A certificate of ``dovetail.prove`` holds a derivation: the terms of both models, and steps that say which application of an
operator equals which term. The checker follows the steps one after the other. It knows operators as functions of elements with
indices over symbolic sizes (``elements``), and real numbers as polynomials (``reals``); no step is believed. What an operator
computes that it does not know is the same for the same operands. Types that it does not derive are counted in the verdict.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dovetail_check.replay import Conditions, Refused, Replay, Verdict
from dovetail_check.sizes import Parser, Size, Symbols, size
from dovetail_check.text import Line, Model, Reader, Tensor, declared_symbols, read_weights

__all__ = ["Refused", "Verdict", "check"]
_lock = threading.Lock()
"""Polynomials of one check share the number of sums around them."""
MAX_BYTES = 1 << 28
"""Maximum size in bytes of a certificate and of a text."""


def check(
    first: str | PathLike[str], second: str | PathLike[str], certificate: str | PathLike[str] | Mapping[str, Any]
) -> Verdict:
    """Check that a certificate proves two models in text form equal, and return the verdict.

    The weights files of the texts are read from their folders. Raises Refused where a step does not follow, or a file is not
    the one of the certificate; OSError for files that cannot be read.
    """
    try:
        data = certificate if isinstance(certificate, Mapping) else json.loads(_read(certificate))
        with _lock:
            return _check_files(data, Path(first), Path(second))
    except (OSError, Refused):
        raise
    except Exception as error:
        raise Refused(f"the certificate or a model is malformed: {type(error).__name__}: {error}") from None


def _check_files(data: Mapping[str, Any], *paths: Path) -> Verdict:
    derivation = data["derivation"]
    if derivation is None or data["verdict"] not in ("bits", "real"):
        raise Refused("the certificate has no derivation")
    symbols, sources = Symbols(), [_source(path) for path in paths]
    for (text, _), digest in zip(sources, derivation["texts"], strict=True):
        if hashlib.sha256(text.partition("\n")[2].encode()).hexdigest() != digest:
            raise Refused("a text must be the one of the certificate")
    conditions = _conditions_of(data)
    places: list[dict[str, dict[str, set[tuple[str, int]]]]] = [{}, {}]
    mappings = [
        _symbols_of(derivation, text, symbols, found, fixed, states)
        for (text, _), found, fixed, states in zip(sources, places, conditions.sizes, conditions.states, strict=True)
    ]
    _check_symbols(places)
    models = [_read_model(text, weights, symbols, mapping) for (text, weights), mapping in zip(sources, mappings, strict=True)]
    for model, states in zip(models, conditions.states, strict=True):
        model.make_step(states)
    return Replay({**derivation, "verdict": data["verdict"]}, (models[0], models[1]), symbols, conditions).run()


def _conditions_of(data: Mapping[str, Any]) -> Conditions:
    """Return the conditions of a certificate. Raises ValueError, TypeError for others than sizes, states and roundings."""
    given = dict(data.get("conditions") or {})
    sizes, states, rounded = given.pop("sizes", [{}, {}]), given.pop("states", [{}, {}]), given.pop("rounded", {})
    if given:
        raise Refused("the conditions of a certificate must be sizes, states and roundings")
    found = Conditions(
        ({**sizes[0]}, {**sizes[1]}),
        ({**states[0]}, {**states[1]}),
        {name: float(bound) for name, (_, _, bound) in rounded.items()},
    )
    if any(type(number) is not int for each in found.sizes for number in each.values()):
        raise Refused("the sizes of the conditions must be integers")
    return found


def _read(path: str | PathLike[str]) -> str:
    file = Path(path)
    # A pipe or a device has no size, and may have no end.
    if file.stat().st_size > MAX_BYTES or not file.is_file():
        raise Refused(f"{file} must be a file of at most {MAX_BYTES} bytes")
    # As dovetail, without a translation of line endings: a carriage return ends no line.
    return file.read_bytes().decode()


def _source(path: Path) -> tuple[str, dict[str, Tensor]]:
    text = _read(path)
    words = text.partition("\n")[0].split(" ", 3)
    if len(words) < 4:
        return text, {}
    name = json.loads(words[3][: words[3].rindex('"', 0, words[3].rindex('"')) - 1].strip())
    weights, folder = (path.parent / name).resolve(), path.parent.resolve()
    if not weights.is_relative_to(folder) or not weights.is_file():
        raise Refused("a weights file must be a file in the folder of its text")
    return text, read_weights(weights)


def _check_symbols(places: list[dict[str, dict[str, set[tuple[str, int]]]]]) -> None:
    """Refuse a symbol of the certificate that is several symbols of a text, unless these are one symbol of the other text."""
    for atom in {atom for found in places for atom in found}:
        groups = [axes for found in places for axes in found.get(atom, {}).values()]
        reached, rest = set(groups[0]), groups[1:]
        while near := [axes for axes in rest if not reached.isdisjoint(axes)]:
            rest = [axes for axes in rest if reached.isdisjoint(axes)]
            reached.update(*near)
        if rest:
            raise Refused("different sizes of the inputs must be different symbols of the certificate")


def _symbols_of(
    derivation: Any,
    text: str,
    symbols: Symbols,
    places: dict[str, dict[str, set[tuple[str, int]]]],
    fixed: dict[str, int],
    states: dict[str, list[str]],
) -> dict[str, Size]:
    """Return the sizes of the certificate that the symbols of a text are: those of the same axes of the same inputs.

    ``places`` collects the inputs and axes of each symbol of the text, for each symbol of the certificate. ``fixed`` has the
    symbols of the text that are numbers in the certificate, ``states`` the names of inputs that are states of the text.
    """
    own, declared = Symbols(), declared_symbols(text)
    types = {row[1]: row[2] for row in derivation["terms"] if row[0] == "input"}
    reader = Reader(text, {}, own, lambda name: own.symbol(f"text {name}"))
    ports = {state[1]: states[state[0]][0] for state in reader.states() if state[0] in states}
    inputs = [(ports.get(name, name), declared_type) for name, declared_type in reader.inputs()]
    found: dict[str, Size] = {}
    for name, type_ in inputs:
        if name not in types or type_.shape is None:
            continue
        parser = Line(
            types[name], 0, lambda part: size(int(part)) if part.isdigit() else Parser(part, own, own.symbol).whole(), {}
        )
        for axis, (extent, other) in enumerate(zip(type_.shape, parser.type().shape or (), strict=True)):
            atoms = extent.atoms() if extent is not None else set()
            if other is None or len(atoms) != 1 or extent != Size({tuple(atoms): 1}):
                continue
            symbol = next(iter(atoms)).removeprefix("text ")
            name_of_symbol, low, high = declared.get(unquote(symbol), (unquote(symbol), 0, None))
            if other.number is not None and name_of_symbol in fixed:
                number = fixed[name_of_symbol]
                if other != size(number) or number < (low or 0) or (high or number) < number:
                    raise Refused(f"the size {symbol!r} of input {name!r} must be {number}, and a size that the model permits")
                found[symbol] = other
                continue
            atom = next(iter(other.atoms()), "")
            if other != Size({(atom,): 1}):
                raise Refused(f"the size {symbol!r} of input {name!r} must be a symbol of the certificate")
            places.setdefault(atom, {}).setdefault(symbol, set()).add((name, axis))
            if symbol not in found:
                symbols.set_minimum(atom, low)
                found[symbol] = other
    if not fixed.keys() <= {
        declared.get(unquote(symbol), (unquote(symbol),))[0] for symbol, own in found.items() if own.number is not None
    }:
        raise Refused("the sizes of the conditions must be open sizes of the inputs")
    return found


def _read_model(text: str, weights: dict[str, Tensor], symbols: Symbols, mapping: dict[str, Size]) -> Model:
    def name_of(name: str) -> Size:
        return mapping[name] if name in mapping else symbols.symbol(f"text {name}")

    return Reader(text, weights, symbols, name_of).model()
