"""Declared sizes of 0 or beyond any memory: writing, decomposing and differentiating end in a file or an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import dovetail
from case_laws import hold, law
from case_runner import at_most, is_constant, model_of
from cases import Case
from dovetail.errors import DovetailError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value
from dovetail.ir.op import has

SIZES = (0, 1 << 36, 1 << 58)
"""Sizes of an axis: none, 512 GiB of i64 numbers, and more than any address space holds."""


def resized(case: Case) -> Iterator[tuple[Any, ...]]:
    """Yield the inputs with all axes of one size of the graph inputs replaced; the elements are never read."""
    constants = is_constant(case)
    free = [
        place
        for place, x in enumerate(case.inputs)
        if isinstance(x, np.ndarray) and not constants[place] and x.dtype.kind not in "OUS"
    ]
    for size in sorted({size for place in free for size in case.inputs[place].shape if size}):
        for factor in SIZES:
            inputs = list(case.inputs)
            for place in free:
                x = case.inputs[place]
                shape = [factor if each == size else each for each in x.shape]
                if prod(float(each or 1) for each in shape) * x.itemsize >= 2.0**62:
                    break
                inputs[place] = np.broadcast_to(np.zeros((), x.dtype), shape)
            else:
                yield tuple(inputs)


def with_extreme_attributes(case: Case) -> Iterator[Case]:
    """Yield the case with one integer attribute, or all elements of one list of integers, made 0 or huge."""
    for name in case.op.fields_by_name:
        value = getattr(case.op, name)
        is_list = isinstance(value, tuple) and value and all(type(item) is int for item in value)
        # Where ``outputs`` is an attribute, the node of a file has that many.
        if name == "outputs" or (type(value) is not int and not is_list):
            continue
        for size in SIZES:
            with suppress(DovetailError):
                yield replace(case, op=case.op.with_(**{name: (size,) * len(value) if is_list else size}))


def decompose(model: Model) -> None:
    node = model.graph.nodes[-1]
    if has(node.op, "decompose"):
        b = Builder("decomposed")
        xs: list[Value | None] = []
        for x in node.inputs:
            if x is None:
                xs.append(None)
            else:
                xs.append(b.input(x.name, x.dtype, x.shape) if x.constant is None else b.constant(x.constant, x.dtype))
        node.op.decompose(b, *xs)


def differentiate(model: Model) -> None:
    floats = [x.name for x in model.inputs if x.dtype.is_float]
    if floats and model.outputs[0].dtype.is_float:
        dovetail.grad(model, of=model.outputs[0].name, wrt=floats[:1])


def write_ir(model: Model) -> None:
    from dovetail.formats.openvino import write

    write.to_foreign(model)


USES: dict[str, Callable[[Model], object]] = {
    "onnx": lambda model: onnx_write.to_foreign(model, None),
    "onnx 9": lambda model: onnx_write.to_foreign(model, 9),
    "ir": write_ir,
    "decompose": decompose,
    "gradient": differentiate,
}


@law(at_most(1), is_slow=True)
def check_extreme_sizes(case: Case) -> None:
    tested = 0
    variants = [(case, inputs) for inputs in resized(case)] + [(other, case.inputs) for other in with_extreme_attributes(case)]
    for variant, inputs in variants:
        try:
            model = model_of(variant, inputs)
        except DovetailError as error:
            assert error.code != "op.failed", error
            continue
        for use in USES.values():
            tested += 1
            try:
                use(model)
            except DovetailError as error:
                codes = {item.code for item in error.diagnostics}
                assert not codes & {"op.failed", "run.memory"}, error
    if not tested:
        pytest.skip("neither an axis of a graph input nor an integer attribute takes these sizes")


test_case = hold(check_extreme_sizes)
