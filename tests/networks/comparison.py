"""A network in both engines: numbers within the reference's tolerances, the same bits again, inputs left as they were."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.engine.engine import Engine
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.graph import Model
from dovetail.runtime.interpreter.interpret import interpret
from dovetail.runtime.numpy_program import NumpyProgram
from networks.coverage import Coverage
from networks.network import Network, Shot
from networks.reference import Answer, answers

SAMPLES = 16
HALVES_WIDER = 4.0
"""The interpreter rounds inside of an operator of f16 or bf16 too, where the truth does not: how much wider its tolerance is."""


@dataclass(frozen=True)
class Difference:
    """A difference: its kind (``values``, ``bits``, ``inputs``, ``build``, ``refused`` ...), the engine's options, words."""

    kind: str
    engine: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} [{self.engine}]: {self.text}"


@dataclass(frozen=True)
class Options:
    """One way to run the native engine. ``strided``: inputs are not contiguous; ``into``: the caller gives arrays for results."""

    elide: str
    threads: int
    strided: bool = False
    into: bool = False
    precision: str = "f32"

    def __str__(self) -> str:
        more = ", strided inputs" * self.strided + ", out=" * self.into
        more += f", precision={self.precision}" * (self.precision != "f32")
        return f"native, elide={self.elide}, threads={self.threads}{more}"


ALL = tuple(
    Options(elide, threads, strided, strided)
    for elide in ("auto", "all", "none")
    for threads in (1, 2)
    for strided in (False, True)
)


def options_of(seed: int, precision: str = "f32") -> tuple[Options, ...]:
    """Return the ways in which network ``seed`` is run: as users do, with either number of threads, and in another way."""
    chance = random.Random(f"options {seed}")
    other = chance.choice(("all", "none"))
    return (
        Options("auto", 1, into=chance.random() < 0.1, precision=precision),
        Options("auto", 2, strided=chance.random() < 0.15, precision=precision),
        Options(other, chance.choice((1, 2)), strided=chance.random() < 0.15, precision=precision),
    )


def compare(network: Network, options: Sequence[Options] = ALL, coverage: Coverage | None = None) -> Difference | None:
    """Return the first difference, None where all agree. Raises Unstable where rounding decides what the network answers.

    The native engine is run with its plan checker (``DOVETAIL_VERIFY``). Every program runs each shot, and the first one again.
    Two noisy runs may miss how far rounding reaches: a difference counts where it is beyond that of SAMPLES times as many.
    """
    os.environ["DOVETAIL_VERIFY"] = "1"
    precision = options[0].precision
    found = _compare(network, options, coverage, [answers(network, shot, precision=precision) for shot in network.shots])
    if found is None or found.kind != "values":
        return found
    return _compare(network, options, None, [_sampled(network, shot, precision) for shot in network.shots])


def _sampled(network: Network, shot: Shot, precision: str) -> dict[str, Answer]:
    """Every value of a network in one run, with SAMPLES times as many noisy ones."""
    rows = [answers(network, shot, seed, precision) for seed in range(SAMPLES)]
    return {
        name: answer if answer.is_exact else replace(answer, noisy=tuple(each for row in rows for each in row[name].noisy))
        for name, answer in rows[0].items()
    }


def _compare(
    network: Network, options: Sequence[Options], coverage: Coverage | None, wanted: Sequence[dict[str, Answer]]
) -> Difference | None:
    try:
        model = network.model()
    except DovetailError as error:
        return Difference("build", "Builder", str(error))
    expected = [[row[name] for name in network.outputs] for row in wanted]
    if found := _interpreter(network, model, expected):
        return found
    if options[0].precision == "f32" and (found := _without_core(network, model, expected, options[-1].threads)):
        return found
    bits: dict[tuple[str, bool], Any] = {}
    for option in options:
        found = _native(network, model, expected, option, coverage, bits)
        if found is not None:
            return found
    return None


def _interpreter(network: Network, model: Model, expected: Sequence[Sequence[Answer]]) -> Difference | None:
    for shot, row in zip(network.shots, expected, strict=True):
        try:
            found = interpret(model, shot)
        except Exception as error:
            return Difference("refused", "interpreter", f"{type(error).__name__}: {error}")
        if text := disagreement(list(found.values()), row, HALVES_WIDER):
            return Difference("values", "interpreter", text)
    return None


def _without_core(network: Network, model: Model, expected: Sequence[Sequence[Answer]], threads: int) -> Difference | None:
    name = f"without the core, threads={threads}"
    try:
        program = NumpyProgram(model, threads)
        for shot, row in zip((*network.shots, network.shots[0]), (*expected, expected[0]), strict=True):
            before = {key: array.copy() for key, array in shot.items()}
            found = list(program(shot).values())
            if text := _changed(shot, before):
                return Difference("inputs", name, text)
            if text := disagreement(found, row, HALVES_WIDER):
                return Difference("values", name, text)
    except DovetailError as error:
        return Difference("refused", name, str(error))
    except Exception as error:
        return Difference("raised", name, f"{type(error).__name__}: {error}")
    return None


def _native(
    network: Network,
    model: Model,
    expected: Sequence[Sequence[Answer]],
    option: Options,
    coverage: Coverage | None,
    bits: dict[tuple[str, bool], Any],
) -> Difference | None:
    name = str(option)
    try:
        engine = Engine(model, option.threads, option.elide, precision=option.precision)
        places = [*range(len(network.shots)), 0]
        first = None
        for place in places:
            given = {key: _spread(array) if option.strided else array for key, array in network.shots[place].items()}
            before = {key: array.copy() for key, array in given.items()}
            out = _room(expected[place], len(model.outputs)) if option.into else None
            found = list(engine(given, out).values())
            if text := _changed(given, before):
                return Difference("inputs", name, text)
            if text := disagreement(found, expected[place]):
                return Difference("values", name, text)
            if out is not None and any(
                result is not out[f"y{index}"] for index, result in enumerate(found) if f"y{index}" in out
            ):
                return Difference("out", name, "a result is not the caller's array")
            if place == 0 and first is not None and not _same_bits(first, found):
                return Difference("bits", name, "the same inputs give other bits in a second run")
            first = [np.array(array) for array in found] if place == 0 and first is None else first
        if text := _fast_call(engine, network.shots[0]):
            return Difference("bits", name, text)
        if coverage is not None:
            coverage.note(engine.bind(network.shots[0])[0].plan, option.elide)
    except DovetailError as error:
        return Difference("refused", name, str(error))
    except Exception as error:
        return Difference("raised", name, f"{type(error).__name__}: {error}")
    key = (option.elide, option.strided)
    if key in bits and not _same_bits(bits[key], first or []):
        return Difference("bits", name, "another number of threads gives other bits")
    bits[key] = first
    return None


def _fast_call(engine: Engine, shot: Shot) -> str:
    """Return the fault of a call by the core alone, where it serves the call: other bits than the engine's; empty without one."""
    if engine.fast_calls is None or engine.fast_calls.call is None:
        return ""
    dense = {key: np.array(array, order="C") for key, array in shot.items()}
    engine(dense)
    found = engine.fast_calls.call((dense,), {}, None)
    if found is None:
        return ""
    if not _same_bits(list(engine(dense).values()), list(found.values())):
        return "a call by the core alone gives other bits"
    return "" if not _changed(dense, shot) else "a call by the core alone changes an input"


def _room(row: Sequence[Answer], count: int) -> dict[str, Any]:
    """Arrays for results, filled with what no result is taken for."""
    return {f"y{place}": np.full_like(row[place].actual, 77 if row[place].dtype != "boolean" else True) for place in range(count)}


def _spread(array: Any) -> Any:
    """Return the same elements, each axis backwards in memory and with room between."""
    if not array.ndim:
        return array
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return view


def _changed(given: Shot, before: Shot) -> str:
    return next((f"input {name} is changed by the run" for name in given if not _same_bits([given[name]], [before[name]])), "")


def _same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes() for x, y in zip(first, second, strict=True))


def disagreement(found: Sequence[Any], row: Sequence[Answer], wider: float = 1.0) -> str:
    """Return the differences of results from the expected ones; empty without any."""
    for place, (y, answer) in enumerate(zip(found, row, strict=True)):
        want = answer.actual
        y = np.asarray(y)
        if y.shape != want.shape or dtypes.dtype(y.dtype) != dtypes.dtype(want.dtype):
            return f"y{place} is {y.dtype}{list(y.shape)}, expected {want.dtype}{list(want.shape)}"
        if not y.size:
            continue
        text = _exactly(y, want) if answer.is_exact else _nearly(y, answer, wider if answer.dtype in ("f16", "bf16") else 1)
        if text:
            return f"y{place} {list(y.shape)} differs {text}"
    return ""


def _exactly(y: Any, want: Any) -> str:
    wrong = np.argwhere(np.asarray(y != want))
    if not len(wrong):
        return ""
    first = tuple(wrong[0])
    return f"at {len(wrong)} of {y.size} places, first at {wrong[0].tolist()}: {y[first]}, expected {want[first]}"


def _nearly(y: Any, answer: Answer, wider: float) -> str:
    distance = np.abs(y.astype(np.float64) - answer.truth)
    limit = answer.tolerance() * wider
    if float(distance.max()) <= limit:
        return ""
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(distance), np.inf, distance))), y.shape)
    return (
        f"by {float(distance.max()):.3g} where {limit:.3g} is allowed, at {[int(index) for index in worst]}: {y[worst]}, "
        f"expected {answer.truth[worst]:.9g}; at {int((~(distance <= limit)).sum())} of {y.size} places"
    )
