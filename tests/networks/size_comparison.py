"""A network at many sizes: a program that was called with others, by several threads too, gives the bits of a new one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.symbolic import symbols
from dovetail.ir.types import sizes_in
from dovetail.runtime.random_inputs import random_inputs

THREADS = 3
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 23, 30, 31, 32, 33, 40, 63, 64, 65, 100)
"""Sizes around the borders of ranges that one plan serves, and within them."""


def open_sizes(model: Model) -> list[str]:
    """Return the names of the open dimensions of the inputs."""
    found = (str(symbol) for value in model.inputs for size in sizes_in(value.type) for symbol in symbols(size))
    return list(dict.fromkeys(found))


def draw_sizes(names: Iterable[str], seed: int, calls: int) -> list[dict[str, int]]:
    """Sizes for each call; in each run of calls one alone changes, or all do, or all grow by 1."""
    chance = random.Random(f"sizes {seed}")
    names = list(names)
    drawn: list[dict[str, int]] = []
    while len(drawn) < calls:
        now = dict.fromkeys(names, 0)
        for name in names:
            now[name] = chance.choice(SIZES)
        changing = chance.choice([names, *([name] for name in names), []])
        for _ in range(chance.randint(2, calls)):
            if changing:
                now = {name: chance.choice(SIZES) if name in changing else size for name, size in now.items()}
            else:
                now = {name: size + 1 for name, size in now.items()}
            drawn.append(now)
    return drawn[:calls]


def compare_sizes(model: Model, seed: int, calls: int = 12) -> str:
    """Call one program of a model with several sizes, and a new one for each; what differs, "" where nothing does."""
    program = dovetail.compile(model, "native", threads=1)
    rows = []
    for sizes in draw_sizes(open_sizes(model), seed, calls):
        inputs = random_inputs(model, seed=seed, sizes=sizes)
        found, wanted = _answer(program, inputs), _answer(dovetail.compile(model, "native", threads=1), inputs)
        if found != wanted:
            return f"sizes {sizes}: {_describe(found)}, and a new program gives {_describe(wanted)}"
        rows.append((sizes, inputs, wanted))
    # A new program, whose plans several threads make and use at the same time.
    program = dovetail.compile(model, "native", threads=1)
    random.Random(seed).shuffle(rows)
    with ThreadPoolExecutor(THREADS) as pool:
        for (sizes, _, wanted), found in zip(rows, pool.map(lambda row: _answer(program, row[1]), rows), strict=True):
            if found != wanted:
                return f"sizes {sizes}, {THREADS} threads: {_describe(found)}, and a new program gives {_describe(wanted)}"
    return ""


def _answer(program: Any, inputs: dict[str, Any]) -> Any:
    """Return the types, shapes and bits of all outputs, or the code of an error."""
    try:
        outputs = flatten_outputs(program(inputs))
    except DovetailError as error:
        return error.code
    return {name: (str(array.dtype), array.shape, np.asarray(array).tobytes()) for name, array in outputs.items()}


def _describe(answer: Any) -> str:
    if isinstance(answer, str):
        return f"[{answer}]"
    return ", ".join(f"{name}: {dtype}{list(shape)} {hash(data):x}" for name, (dtype, shape, data) in answer.items())
