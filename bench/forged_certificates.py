"""Write a certificate that claims values of two models in text form equal, whether they are or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dovetail_check.sizes import Size, Symbols
from dovetail_check.text import Model, Operator, Reader, Type, Word

SIDES = "ab"


def write_value(value: Any) -> str:
    """Return an attribute in text form. Raises TypeError for tensors and operators."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(map(write_value, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(write_value, value))}]"
    raise TypeError(f"no text of {type(value).__name__}")


def write_operator(op: Operator) -> str:
    attributes = ", ".join(f"{name}={write_value(value)}" for name, value in op.attributes.items())
    return f"{op.name}(; {attributes})" if attributes else f"{op.name}()"


def digest_of_text(text: str) -> str:
    return hashlib.sha256(text.partition("\n")[2].encode()).hexdigest()


class ForgedCertificate:
    """ForgedCertificate has the terms of all nodes of two models, and a step for each claim.

    A value is called ``a.NAME`` or ``b.NAME``. ``claims`` maps values of the first model to values of the second, ``integers``
    values to known integers, which need not be true. The definitions of all terms are parts of each claim.
    """

    def __init__(
        self,
        models: tuple[Model, Model],
        symbols: Symbols,
        verdict: str,
        claims: Mapping[str, str],
        integers: Mapping[str, list[str]] | None = None,
    ) -> None:
        self._symbols, self._verdict, self._claims, self._integers = symbols, verdict, claims, integers or {}
        self._operators: list[str] = []
        self._terms: list[list[Any]] = []
        self._sources: dict[Any, int] = {}
        self._applications: dict[tuple[int, tuple[int | None, ...]], list[int]] = {}
        self._links: dict[int, int] = {}
        self._steps: list[list[Any]] = [[], []]
        self._env: list[dict[str, int]] = [{}, {}]
        for side in (1, 0):
            self._add_model(models[side], side)

    def _term(self, *row: Any) -> int:
        self._terms.append(list(row))
        return len(self._terms) - 1

    def _source(self, key: Any, *row: Any) -> int:
        """Return the term of an input or a constant, which is its own term over the real numbers."""
        if key not in self._sources:
            number = self._sources[key] = self._term(*row)
            self._links[number] = number
        return self._sources[key]

    def _apply(self, op: int, operands: list[int | None], types: list[str]) -> list[int]:
        key = op, tuple(operands)
        if key not in self._applications:
            rows = enumerate(types)
            self._applications[key] = [self._term("operator", type_, op, operands, output) for output, type_ in rows]
        return self._applications[key]

    def _claim(self, section: int, op: int, operands: list[int | None], result: int) -> None:
        parts = [[part, list(xs), ys] for (part, xs), ys in self._applications.items()]
        self._steps[section].append([[op, operands, [result]], *parts])

    def _add_model(self, model: Model, side: int) -> None:
        env, is_real = self._env[side], self._verdict == "real"
        for name, declared in model.graph.inputs:
            env[name] = self._source(("input", name), "input", name, self._type(declared))
        for node in model.graph.nodes:
            names, types = [name for name, _ in node.outputs], [self._type(declared) for _, declared in node.outputs]
            if node.op.name == "Constant":
                data = node.op.attributes["data"]
                env[names[0]] = self._source((data.dtype, data.shape, data.raw), "constant", types[0], side, names[0])
                continue
            text, label = write_operator(node.op), f"{SIDES[side]}.{names[0]}"
            if text not in self._operators:
                self._operators.append(text)
            op, operands = self._operators.index(text), [None if x is None else env[x] for x in node.inputs]
            claimed = self._claims.get(label)
            result = None if claimed is None else self._env[SIDES.index(claimed[0])][claimed[2:]]
            if label in self._integers:
                result = self._term("integers", types[0], self._integers[label])
                self._links[result] = result
                self._claim(0, op, operands, result)
                env[names[0]] = result
                continue
            if result is not None and not is_real:
                self._claim(0, op, operands, result)
                env[names[0]] = result
                continue
            results = self._apply(op, operands, types)
            env.update(zip(names, results, strict=True))
            if is_real:
                linked = [None if x is None else self._links[x] for x in operands]
                reals = self._apply(op, linked, types) if result is None else [self._links[result]]
                if result is not None:
                    self._claim(1, op, linked, self._links[result])
                for exact, real in zip(results, reals, strict=True):
                    self._links[exact] = real
                    self._links.setdefault(real, real)

    # Types

    def _type(self, declared: Type) -> str:
        sizes = "..." if declared.shape is None else ", ".join(map(self._size, declared.shape))
        return f"{declared.dtype or '?'}[{sizes}]"

    def _size(self, extent: Size | None) -> str:
        if extent is None:
            return "?"
        rows = []
        for key, coefficient in extent.terms.items():
            factors = [str(coefficient) if coefficient >= 0 else f"(0 - {-coefficient})"]
            for atom in key:
                operands, name = self._symbols.operation_of(atom), atom.partition("(")[0]
                texts = [self._size(each) for each in operands or ()]
                if operands is None:
                    factors.append(json.dumps(atom))
                else:
                    factors.append(
                        f"(({texts[0]}) {name} ({texts[1]}))" if name in ("//", "%") else f"{name}({', '.join(texts)})"
                    )
            rows.append("*".join(factors))
        return " + ".join(rows) or "0"

    def data(self, texts: tuple[str, str]) -> dict[str, Any]:
        """Return the certificate of two texts, which are those of the models."""
        is_real = self._verdict == "real"
        derivation = {
            "texts": list(map(digest_of_text, texts)),
            "operators": self._operators,
            "terms": self._terms,
            "links": [list(pair) for pair in self._links.items()] if is_real else [],
            "steps": self._steps if is_real else self._steps[:1],
        }
        return {"verdict": self._verdict, "derivation": derivation}


def forge_equal_outputs(texts: tuple[str, str], weights: tuple[Any, Any], verdict: str) -> dict[str, Any]:
    """Return a certificate that claims the outputs of two models equal, of the same names."""
    symbols = Symbols()
    first, second = (Reader(text, each, symbols, symbols.symbol).model() for text, each in zip(texts, weights, strict=True))
    claims = {f"a.{name}": f"b.{name}" for name in first.graph.outputs}
    return ForgedCertificate((first, second), symbols, verdict, claims).data(texts)
