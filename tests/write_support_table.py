"""Write src/dovetail/report/operator_support.toml, what the cases show of each operator: ``python tests/write_support_table.py``.

``types``: the element types of the first input that some case has. ``gradient``: ``slope`` where the law of gradients holds for
some case, ``zero`` where it does and every slope is 0. ``native``: the types with which some case runs in steps of the compiled
core alone (``moves``: in any type).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from case_runner import CASES, feeds, model_of
from cases import Case
from dovetail.engine.engine import Engine
from dovetail.engine.run.executable import Executable
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.op import has
from dovetail.runtime.interpreter.interpret import interpret
from laws.test_gradients import DIFFERENTIABLE, backward, check_slope, forward, in_f64, seeds

TARGET = Path(__file__).parents[1] / "src" / "dovetail" / "report" / "operator_support.toml"
ORDER = {item.name: place for place, item in enumerate(dtypes.ALL)}
Facts = dict[str, str]


@cache
def by_operator() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for _, case in CASES:
        found[type(case.op).__name__].append(case)
    return found


@cache
def smooth_by_operator() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for _, case in DIFFERENTIABLE:
        found[type(case.op).__name__].append(case)
    return found


def facts(name: str) -> Facts:
    """Return the claims that cases show of one operator."""
    cases = by_operator().get(name, [])
    found: Facts = {"types": _listed(filter(None, map(_first_type, cases)))}
    slopes = {_slope(case) for case in smooth_by_operator().get(name, ())}
    found["gradient"] = next((word for word in ("slope", "zero") if word in slopes), "")
    found["native"] = _native(cases)
    return found


def unshown(name: str, claimed: Facts) -> list[str]:
    """Return the claims about an operator that no case shows. Stops at the first case that shows a claim."""
    cases = by_operator().get(name, [])
    types = set(claimed.get("types", "").split()) - set(filter(None, map(_first_type, cases)))
    gradient, native = claimed.get("gradient", ""), set(claimed.get("native", "").split())
    slopes = map(_slope, smooth_by_operator().get(name, ()))
    if gradient == "slope" and gradient not in slopes:
        types.add("gradient: slope")
    elif gradient == "zero" and set(slopes) - {""} != {gradient}:
        types.add("gradient: zero")
    if native == {"moves"}:
        native = set() if any(map(_is_native, cases)) else native
    for case in cases:
        if _first_type(case) in native and _is_native(case):
            native.discard(str(_first_type(case)))
    return sorted({*types, *(f"native: {kind}" for kind in native)})


def _first_type(case: Case) -> str | None:
    return next((dtypes.dtype(x.dtype).name for x in case.inputs if hasattr(x, "dtype")), None)


def _listed(names: Iterable[str]) -> str:
    return " ".join(sorted(set(names), key=ORDER.__getitem__))


def _slope(case: Case) -> str:
    """Return the verdict of the law of gradients on a case; nothing where the law skips it."""
    inputs, given = in_f64(case)
    try:
        gradients = backward(case, inputs)
        check_slope(forward(case, inputs), gradients, given)
        known = {**given, **seeds(case, inputs, 1)}
        found = interpret(gradients, {value.name: known[value.name] for value in gradients.inputs})
    except (pytest.skip.Exception, DovetailError):
        return ""
    return "slope" if any(np.any(each) for each in found.values()) else "zero"


def _native(cases: list[Case]) -> str:
    if cases and has(cases[0].op, "windows"):
        return "moves" if any(map(_is_native, cases)) else ""
    found: set[str] = set()
    for case in cases:
        kind = _first_type(case)
        if kind is not None and kind not in found and _is_native(case):
            found.add(kind)
    return _listed(found)


def _is_native(case: Case) -> bool:
    """Return whether every step is one of the compiled core, with constants behind the first input or without; test_native
    holds what they give against the interpreter.
    """
    return any(map(_runs_native, (case, replace(case, constants=tuple(range(1, len(case.inputs)))))))


def _runs_native(case: Case) -> bool:
    try:
        bound: Executable = Engine(model_of(case), 1).bind(feeds(case))[0]
    except DovetailError:
        return False
    return bool(bound.plan.steps) and not bound.python_steps


def _cell(key: str, item: str) -> str:
    return f'{key} = "{item}"'


def text(everything: dict[str, Facts]) -> str:
    rows = [f"# {(__doc__ or '').splitlines()[0]}"]
    for name, found in sorted(everything.items()):
        rows.append(f"{name} = {{ {', '.join(_cell(key, item) for key, item in found.items() if item)} }}")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    TARGET.write_text(text({name: facts(name) for name in by_operator()}))
    sys.exit(os.EX_OK)
