"""Steps with a fault each, run between guard pages: ``python tests/faulty_steps.py [--seed N] [--count N] [--every N]``.

The steps of plans (every ``--every``-th case, and random networks) get one fault: another size or stride of an operand, an
operand left out or doubled, another number in an attribute, another element type. The core has to refuse such a step, or to run
it within the memory of its operands: each operand ends, or begins, beside a page that cannot be read, so that one byte beyond
kills the process. The last line counts; before each step its number is written to ``--progress``, which tells the step that
killed the process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

Step = tuple[str, list[Any], list[Any], dict[str, Any]]
PAGE = mmap.PAGESIZE
LARGEST = 1 << 22
"""Operands of more bytes are not tried."""
NUMBERS = (-(2**63), -(2**40), -65, -2, -1, 0, 1, 2, 3, 7, 64, 1000, 2**31, 2**40, 2**62, 2**63 - 1)
ELEMENTS = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "boolean": 1, "u32": 4}


# Steps as the planner makes them


def steps(every: int, networks: int) -> list[Step]:
    """Return the steps that the core gets for cases and random networks, each kind once."""
    from case_runner import CASES, feeds, model_of
    from dovetail.engine.run import executable as module
    from dovetail.errors import DovetailError
    from dovetail.runtime.compilation import compile
    from networks.generator import generate

    found: dict[str, Step] = {}
    executable: Any = module
    plain = executable.encode_step

    def record(step: Any) -> Any:
        made = plain(step)
        # The constants of a step live as long as its plan; a copy of their bytes stands for them.
        found.setdefault(
            _kind(made), (made[0], [_owned(row) for row in made[1]], [_owned(row) for row in made[2]], dict(made[3]))
        )
        return made

    # Replaced while the cases are compiled, and restored below.
    executable.encode_step = record
    try:
        for _, case in CASES[::every]:
            compile(model_of(case), engine="native", threads=1)(feeds(case))
        for number in range(networks):
            made = generate(number)
            for shot in made.shots[:1]:
                try:
                    compile(made.model(), engine="native", threads=1)(shot)
                except DovetailError:
                    continue
    finally:
        executable.encode_step = plain
    return list(found.values())


def _kind(step: Step) -> str:
    kernel, reads, writes, attributes = step
    return repr((kernel, [(row[2], len(row[4]), bool(row[6])) for row in (*reads, *writes)], sorted(attributes)))


def _owned(row: Any) -> Any:
    buffer, offset, element, itemsize, sizes, strides, address, low, high = row
    if not address:
        return (buffer, offset, element, itemsize, list(sizes), list(strides), None)
    data = ctypes.string_at(address + low, high - low)
    return (buffer, offset, element, itemsize, list(sizes), list(strides), (data, -low))


# Faults


def faulty(step: Step, draw: random.Random) -> Step:
    """Return the step with one fault, now and then with two."""
    kernel, reads, writes, attributes = deepcopy(step)
    for _ in range(draw.choice((1, 1, 1, 2))):
        draw.choice((_size, _size, _size, _axes, _operands, _attribute, _attribute, _element))(reads, writes, attributes, draw)
    return kernel, reads, writes, attributes


def _pick(reads: list[Any], writes: list[Any], draw: random.Random) -> tuple[list[Any], int]:
    rows = reads if reads and (draw.random() < 0.7 or not writes) else writes
    return rows, draw.randrange(len(rows)) if rows else 0


def _size(reads: list[Any], writes: list[Any], attributes: dict[str, Any], draw: random.Random) -> None:
    rows, place = _pick(reads, writes, draw)
    if rows and rows[place][4]:
        sizes = rows[place][4]
        axis = draw.randrange(len(sizes))
        sizes[axis] = max(0, draw.choice((sizes[axis] - 1, sizes[axis] + 1, 2 * sizes[axis], sizes[axis] // 2, 0, 1, 3)))
        if draw.random() < 0.5:
            rows[place][5][:] = _dense(sizes, rows[place][3])


def _axes(reads: list[Any], writes: list[Any], attributes: dict[str, Any], draw: random.Random) -> None:
    rows, place = _pick(reads, writes, draw)
    if not rows:
        return
    sizes, strides = rows[place][4], rows[place][5]
    if draw.random() < 0.5 and sizes:
        axis = draw.randrange(len(sizes))
        del sizes[axis], strides[axis]
    else:
        sizes.insert(0, draw.choice((1, 2)))
        strides.insert(0, 0)


def _operands(reads: list[Any], writes: list[Any], attributes: dict[str, Any], draw: random.Random) -> None:
    rows, place = _pick(reads, writes, draw)
    if not rows:
        return
    if draw.random() < 0.5:
        del rows[place]
    else:
        rows.insert(draw.randrange(len(rows) + 1), deepcopy(draw.choice([*reads, *writes])))


def _attribute(reads: list[Any], writes: list[Any], attributes: dict[str, Any], draw: random.Random) -> None:
    if not attributes:
        return
    name = draw.choice(sorted(attributes))
    value = attributes[name]
    if isinstance(value, int):
        attributes[name] = draw.choice((value + 1, value - 1, *NUMBERS))
    elif isinstance(value, list) and value:
        place = draw.randrange(len(value))
        if draw.random() < 0.3:
            del value[place]
        elif isinstance(value[place], int):
            value[place] = draw.choice((value[place] + 1, value[place] - 1, *NUMBERS))
        else:
            value[place] = draw.choice((float("nan"), float("inf"), -1e300, 0.0))
    elif draw.random() < 0.5:
        del attributes[name]


def _element(reads: list[Any], writes: list[Any], attributes: dict[str, Any], draw: random.Random) -> None:
    rows, place = _pick(reads, writes, draw)
    if rows:
        buffer, offset, _, _, sizes, _, data = rows[place]
        element = draw.choice(sorted(ELEMENTS))
        rows[place] = (buffer, offset, element, ELEMENTS[element], sizes, _dense(sizes, ELEMENTS[element]), data)


def _dense(sizes: Sequence[int], itemsize: int) -> list[int]:
    return [itemsize * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


# Guarded memory


class Guarded:
    """Memory of ``size`` bytes with a page that cannot be touched beside it: after its end, or before its beginning."""

    def __init__(self, size: int, at_end: bool) -> None:
        self.pages = -(-max(size, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, self.pages + 2 * PAGE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for guard in (first, first + PAGE + self.pages):
            if _protect(ctypes.c_void_p(guard), PAGE, 0):
                raise OSError("mprotect")
        self.address = first + PAGE + (self.pages - size if at_end else 0)


_libc = ctypes.CDLL(None, use_errno=True)
_protect = _libc.mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _span(row: Any) -> tuple[int, int]:
    """Return the bytes of an operand, counted from its first element."""
    if any(size <= 0 for size in row[4]):
        return 0, 0
    reaches = [(size - 1) * stride for size, stride in zip(row[4], row[5], strict=True)]
    return sum(each for each in reaches if each < 0), row[3] + sum(each for each in reaches if each > 0)


def attempt(core: Any, step: Step, draw: random.Random) -> str:
    """Give a step to the core and run it: "refused", "failed" (it found its data unfit), "ran" or "too large"."""
    kernel, reads, writes, attributes = step
    rows, reaches, addresses, memories = [], [], [0], []
    for row in (*reads, *writes):
        low, high = _span(row)
        if high - low > LARGEST:
            return "too large"
        memory = Guarded(high - low, draw.random() < 0.7)
        memories.append(memory)
        address = memory.address - low
        fill(memory.address, high - low, row, draw)
        number = len(addresses)
        constant = (address, low, high) if row[6] is not None else (0, 0, 0)
        rows.append((number, 0, row[2], row[3], row[4], row[5], *constant))
        reaches.append((low, high))
        addresses.append(address)
    program = core.Program(core.ThreadPool(1), core.WeightCache(), core.ArenaPool(), 0, reaches)
    try:
        program.add(kernel, rows[: len(reads)], rows[len(reads) :], attributes, False)
    except (ValueError, TypeError, IndexError, MemoryError, OverflowError):
        return "refused"
    try:
        core.Execution(program).run(addresses, 0, 1)
    except (core.StepFailed, MemoryError):
        return "failed"
    return "ran"


def fill(address: int, size: int, row: Any, draw: random.Random) -> None:
    """Write data: of a constant its own as far as they go, else small numbers, and now and then any bits."""
    if not size:
        return
    if row[6] is not None:
        data, _ = row[6]
        data = (data * (size // len(data) + 1))[:size] if data else bytes(size)
    elif draw.random() < 0.3:
        data = draw.randbytes(size)
    else:
        kind = {"f32": "f4", "f64": "f8", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "u32": "u4"}.get(row[2], "u1")
        data = (
            np.random.default_rng(draw.getrandbits(32)).integers(0, 3, size // np.dtype(kind).itemsize + 1).astype(kind).tobytes()
        )
    ctypes.memmove(address, data, size)


def trials(seed: int, count: int, every: int, networks: int) -> Iterator[tuple[int, Step, random.Random]]:
    made = steps(every, networks)
    for number in range(seed, seed + count):
        draw = random.Random(number)
        yield number, faulty(draw.choice(made), draw), draw


@click.command(help=__doc__)
@click.option("--seed", default=0)
@click.option("--count", default=2000)
@click.option("--every", default=5, help="Which part of the cases give steps.")
@click.option("--networks", default=60, help="How many random networks give steps.")
@click.option("--progress", type=click.Path(path_type=Path), help="A file for the number of the step under way.")
@click.option("--show", type=int, help="Print the step of this number, and run nothing.")
def main(seed: int, count: int, every: int, networks: int, progress: Path | None, show: int | None) -> None:
    from dovetail.ir.host import native_core

    core, counts = native_core.core(), Counter[tuple[str, str]]()
    note: Callable[[str], Any] = progress.write_text if progress else lambda text: None
    for number, step, draw in trials(seed, count, every, networks):
        if show is not None:
            if number == show:
                print(step[0], *(row[:6] for row in (*step[1], "->", *step[2])), step[3], sep="\n  ")
            continue
        note(f"{number} {step[0]}")
        counts[step[0], attempt(core, step, draw)] += 1
    outcomes = Counter[str]()
    for (_, outcome), found in counts.items():
        outcomes[outcome] += found
    print(
        ", ".join(f"{outcome} {found}" for outcome, found in sorted(outcomes.items())),
        f"of {len({kernel for kernel, _ in counts})} kernels",
    )


if __name__ == "__main__":
    main()
