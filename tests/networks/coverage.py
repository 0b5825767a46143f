"""Count the plans of many networks that have each kernel, each fusion, each way to share memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dovetail.engine.memory.tensor import INTERPRET
from dovetail.engine.plan import COPY, Operand, Plan, Step

CHAIN = 8
"""Operators in a chain from which on it counts as long."""


class Coverage:
    """Counters by group and name: in how many plans something occurs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, plan: Plan, elide: str = "auto") -> None:
        found = {f"elide: {elide}"}
        for step in plan.steps:
            found |= _of_step(step)
        if plan.moved_bytes and elide != "none":
            found.add(
                "memory: moved nothing"
                if not plan.copied_bytes
                else "memory: moved less"
                if plan.copied_bytes < plan.moved_bytes
                else "memory: moved all"
            )
        self.counts.update(found)
        self.counts["plans"] += 1

    def kernels(self) -> set[str]:
        return {name.removeprefix("kernel: ") for name in self.counts if name.startswith("kernel: ")}

    def text(self) -> str:
        rows = sorted(self.counts.items())
        return "\n".join(f"{count:9d}  {name}" for name, count in rows)


def _of_step(step: Step) -> set[str]:
    kernel, attributes = step.kernel, step.attributes
    found = {f"kernel: {kernel}"}
    if kernel == INTERPRET:
        found |= {f"interpreted: {type(node.op).__name__}" for node in (step.call.nodes if step.call else ())}
    for name in ("has_bias", "has_factor", "residual_after_activation", "has_lengths", "has_inner", "has_h", "has_c"):
        if attributes.get(name):
            found.add(f"{kernel}: {name}")
    if attributes.get("has_residual"):
        found.add(f"{kernel}: has_residual")
        if (
            len(
                [
                    each
                    for each in step.reads
                    if each is not None and step.reads[-1] is not None and each.tensor is step.reads[-1].tensor
                ]
            )
            > 1
        ):
            found.add(f"{kernel}: residual is its input too")
    if "activation" in attributes:
        found.add(f"{kernel}: activation {attributes['activation']}")
    if "prologue_scale" in attributes:
        found.add(f"{kernel}: prologue{' with relu' * bool(attributes['prologue_relu'])}")
    if attributes.get("alpha", 1.0) != 1.0 and kernel == "matmul":
        found.add("matmul: factor")
    if attributes.get("groups", 1) > 1:
        found.add(f"{kernel}: groups")
    if kernel in ("conv", "conv_transpose", "pool"):
        found.add(f"{kernel}: {len(step.writes[0].sizes) - 2} axes")
    if kernel == "pool" and len(step.writes) > 1:
        found.add("pool: indices")
    if kernel in ("conv", "conv_transpose", "recurrent") and step.reads[1] is not None and step.reads[1].tensor.data is None:
        found.add(f"{kernel}: weights of a run")
    if "format" in attributes:
        found.add(f"{kernel}: weights {attributes['format']}, rows {attributes.get('rows', 'f32')}")
    if "precision" in attributes:
        found.add(f"{kernel}: operands {attributes['precision']}")
    if kernel == "elementwise" and "body" in attributes:
        count = len(attributes["body"])
        found.add(f"elementwise: {'one' if count == 1 else 'short' if count < CHAIN else 'long'}")
        found |= {f"in chains: {type(op).__name__}" for op, _ in attributes["body"]}
        if len(attributes["results"]) > 1:
            found.add("elementwise: several results")
    if kernel == "reduce":
        found.add(f"reduce: {attributes['mode']}")
    if kernel == "recurrent":
        found.add(f"recurrent: {attributes['cell']} {attributes['direction']}")
    return found | _of_memory(step)


def _of_memory(step: Step) -> set[str]:
    found = set()
    if step.kernel == COPY and step.reason == "the kernel reads channels-last":
        found.add("memory: channels-last copy")
    if step.kernel == COPY:
        return found
    operands = [each for each in (*step.reads, *step.writes) if each is not None and each.buffer >= 0]
    if any(_is_channels_last(each) for each in operands):
        found.add("memory: channels-last operand")
    if any(_is_strided(each) for each in operands):
        found.add("memory: piece of a buffer")
    for y in step.writes:
        if y.buffer == 0 and any(
            x is not None and x.buffer == 0 and x.offset == y.offset and x.sizes == y.sizes for x in step.reads
        ):
            found.add(f"memory: in place, {step.kernel}")
    return found


def _is_channels_last(operand: Operand) -> bool:
    sizes, strides = operand.sizes, operand.strides
    return len(sizes) >= 3 and sizes[1] > 1 and strides[1] == operand.tensor.itemsize and any(size > 1 for size in sizes[2:])


def _is_strided(operand: Operand) -> bool:
    span: Any = operand.tensor.itemsize + sum(
        (size - 1) * abs(stride) for size, stride in zip(operand.sizes, operand.strides, strict=True)
    )
    count = operand.tensor.itemsize
    for size in operand.sizes:
        count *= size
    return bool(span > count > 0)
