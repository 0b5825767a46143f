"""A network as plain data: what a seed becomes, what a shrinker takes apart, and what a report prints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.op import Op, bodies

Size = int | str
Shot = dict[str, Any]
"""The arrays of the graph inputs, by name, of one run."""


@dataclass(frozen=True)
class Input:
    """A graph input; a size that is a string is a symbol."""

    name: str
    dtype: str
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Step:
    """One operator applied to named values; None is an optional input left out."""

    op: Op
    reads: tuple[str | None, ...]
    writes: tuple[str, ...]


@dataclass
class Network:
    """Inputs, constants and steps in order. ``outputs`` are names of values; an input or a repeated value may be among them."""

    inputs: list[Input] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    shots: list[Shot] = field(default_factory=list)
    """Inputs of several runs; they differ in the sizes of symbols."""

    def model(self) -> Model:
        """Return the network as a model whose outputs are ``y0``, ``y1``, ..."""
        b = Builder("network")
        values: dict[str, Any] = {item.name: b.input(item.name, item.dtype, item.shape) for item in self.inputs}
        read = {name for step in self.steps for name in step.reads} | set(self.outputs)
        for name, array in self.constants.items():
            if name in read:
                values[name] = b.constant(array, name=name)
        for step in self.steps:
            made = b.add(step.op, *(None if name is None else values[name] for name in step.reads), names=step.writes)
            values.update(zip(step.writes, made, strict=True))
        for place, name in enumerate(self.outputs):
            b.output(f"y{place}", values[name])
        return b.model

    def pruned(self) -> Network:
        """Return the same without steps, constants and inputs that lead to no output. (At least one input is kept.)"""
        needed = set(self.outputs)
        steps = []
        for step in reversed(self.steps):
            if needed.intersection(step.writes):
                steps.append(step)
                needed.update(name for name in step.reads if name is not None)
        inputs = [item for item in self.inputs if item.name in needed] or self.inputs[:1]
        return replace(
            self,
            inputs=inputs,
            constants={name: array for name, array in self.constants.items() if name in needed},
            steps=steps[::-1],
            shots=[{item.name: shot[item.name] for item in inputs} for shot in self.shots],
        )

    def text(self) -> str:
        """Return the network as Python that writes it with a Builder. Large constants are shown by type and shape."""
        lines = ["b = dovetail.Builder()"]
        lines += [f"{item.name} = b.input({item.name!r}, {item.dtype!r}, {item.shape!r})" for item in self.inputs]
        lines += [f"{name} = {_array(array)}" for name, array in self.constants.items()]
        for step in self.steps:
            written = ", ".join(step.writes)
            reads = ", ".join(str(name) for name in step.reads)
            lines.append(f"{written}{',' if len(step.writes) == 1 else ''} = b.add({step.op!r}, {reads})")
            for name, body in bodies(step.op):
                lines += [f"    # {name}: {line}" for line in str(body).splitlines()]
        lines += [f'b.output("y{place}", {name})' for place, name in enumerate(self.outputs)]
        lines += [
            f"# inputs: {', '.join(f'{name} {array.dtype}{list(array.shape)}' for name, array in shot.items())}"
            for shot in self.shots
        ]
        return "\n".join(lines)


def _array(array: Any) -> str:
    if array.size <= 8:
        return f"np.array({array.tolist()!r}, {dtypes.dtype(array.dtype).name!r})"
    return f"<{array.dtype}{list(array.shape)}>"
