"""A failing network made small: fewer outputs, steps and runs, smaller sizes, as long as it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from networks.network import Input, Network, Step
from networks.reference import Unstable, answers

Fails = Callable[[Network], bool]
ROUNDS = 40


def shrink(network: Network, fails: Fails) -> Network:
    """Return the smallest network found by greedy steps for which ``fails`` still holds."""
    current = network
    for _ in range(ROUNDS):
        smaller = next((candidate for candidate in _candidates(current) if _holds(candidate, fails)), None)
        if smaller is None:
            return current
        current = smaller
    return current


def _holds(network: Network, fails: Fails) -> bool:
    try:
        return fails(network)
    except (Unstable, DovetailError, ValueError, IndexError, KeyError, TypeError, ArithmeticError, NotImplementedError):
        return False


def _candidates(network: Network) -> Iterator[Network]:
    yield from _fewer_outputs(network)
    yield from _fewer_shots(network)
    yield from _cut(network)
    yield from _without_a_step(network)
    yield from _constants_for_inputs(network)
    yield from _smaller(network)


def _fewer_outputs(network: Network) -> Iterator[Network]:
    if len(network.outputs) > 1:
        for name in dict.fromkeys(network.outputs):
            yield replace(network, outputs=[name]).pruned()
        for place in range(len(network.outputs)):
            yield replace(network, outputs=[*network.outputs[:place], *network.outputs[place + 1 :]]).pruned()


def _fewer_shots(network: Network) -> Iterator[Network]:
    """One run, then with sizes that are numbers."""
    if len(network.shots) > 1:
        for shot in network.shots:
            yield _settled(replace(network, shots=[shot]))
        for place in range(len(network.shots)):
            yield replace(network, shots=[*network.shots[:place], *network.shots[place + 1 :]])
    elif any(isinstance(size, str) for item in network.inputs for size in item.shape):
        yield _settled(network)


def _settled(network: Network) -> Network:
    return replace(network, inputs=[Input(item.name, item.dtype, network.shots[0][item.name].shape) for item in network.inputs])


def _cut(network: Network) -> Iterator[Network]:
    """Yield a value in the middle as a graph input (where there is one run); the latest first."""
    if len(network.shots) > 1:
        return
    known = answers(network, network.shots[0])
    for step in reversed(network.steps):
        for name in step.writes:
            if name in network.outputs and not any(name in other.reads for other in network.steps):
                continue
            array = known[name].actual
            steps = [other for other in network.steps if other is not step]
            fresh = Input(name, str(dtypes.dtype(array.dtype).name), array.shape)
            others = set(step.writes) - {name}
            if any(others.intersection(read for read in each.reads if read) for each in steps) or others.intersection(
                network.outputs
            ):
                continue
            outputs = [each for each in network.outputs if each != name] or network.outputs
            yield replace(
                network, inputs=[*network.inputs, fresh], steps=steps, outputs=outputs, shots=[{**network.shots[0], name: array}]
            ).pruned()


def _without_a_step(network: Network) -> Iterator[Network]:
    """Yield networks without a step: its readers read one of its operands of the same type and shape."""
    known = answers(network, network.shots[0])
    for place, step in enumerate(network.steps):
        for name in step.reads:
            if (
                name is None
                or known[name].actual.shape != known[step.writes[0]].actual.shape
                or known[name].dtype != known[step.writes[0]].dtype
            ):
                continue
            steps = [_renamed(other, step.writes[0], name) for other in (*network.steps[:place], *network.steps[place + 1 :])]
            outputs = [name if each == step.writes[0] else each for each in network.outputs]
            yield replace(network, steps=steps, outputs=outputs).pruned()


def _renamed(step: Step, old: str, new: str) -> Step:
    return Step(step.op, tuple(new if name == old else name for name in step.reads), step.writes)


def _constants_for_inputs(network: Network) -> Iterator[Network]:
    """Fewer optional inputs."""
    for place, step in enumerate(network.steps):
        if len(step.reads) > 2:
            steps = [*network.steps[:place], Step(step.op, step.reads[:-1], step.writes), *network.steps[place + 1 :]]
            yield replace(network, steps=steps).pruned()


def _smaller(network: Network) -> Iterator[Network]:
    """All inputs with one size made smaller; what does not fit then is refused."""
    if len(network.shots) > 1 or any(isinstance(size, str) for item in network.inputs for size in item.shape):
        return
    sizes = sorted({size for item in network.inputs for size in item.shape if isinstance(size, int) and size > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if less < size:
                yield _resized(network, size, less, None)
                for item in network.inputs:
                    for axis, old in enumerate(item.shape):
                        if old == size:
                            yield _resized(network, size, less, (item.name, axis))


def _resized(network: Network, size: int, less: int, only: tuple[str, int] | None) -> Network:
    """Arrays cut: every axis of that size, constants too, or one axis of one input."""

    def cut(array: Any, name: str) -> Any:
        keys = tuple(
            slice(0, less) if length == size and (only is None or only == (name, axis)) else slice(None)
            for axis, length in enumerate(array.shape)
        )
        return np.ascontiguousarray(array[keys]) if array.ndim else array

    shot = {name: cut(array, name) for name, array in network.shots[0].items()}
    # Whole numbers in a row are most often axes or sizes.
    constants = {
        name: cut(array, name) if only is None and (array.ndim > 1 or array.dtype.kind == "f") else array
        for name, array in network.constants.items()
    }
    inputs = [Input(item.name, item.dtype, shot[item.name].shape) for item in network.inputs]
    return replace(network, inputs=inputs, constants=constants, shots=[shot])
