"""Evaluation keeps the claims of inference: with numbers, with symbols in their place, and with nothing known at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from assertions import assert_claim_holds, is_vague
from case_laws import hold, law
from case_runner import answer, is_constant, shape_value, view, views
from cases import Case
from dovetail.ir import dtypes, symbolic as dims
from dovetail.ir.op import host_inputs, infer_types, infer_values
from dovetail.ir.types import UNKNOWN, Tensor, Type, View


def claims(case: Case, xs: Sequence[View | None]) -> list[Type]:
    found = infer_types(case.op, tuple(xs), "y")
    assert len(found) == len(answer(case))
    return found


@law()
def check_inferred_types(case: Case) -> None:
    for claim, y in zip(claims(case, views(case)), answer(case), strict=True):
        assert isinstance(claim, Tensor) and claim.dtype is not None, f"inferred {claim}"
        assert_claim_holds(claim, y)
        if "shape" not in case.skip:
            assert claim.shape == y.shape, f"inferred {claim}, and has the shape {y.shape}"


def symbolic(case: Case) -> Iterator[tuple[str, list[View | None], dict[str, int]]]:
    """Yield the inputs with sizes replaced by symbols, each way with what the symbols stand for."""
    sizes = [(index, axis) for index, x in enumerate(case.inputs) if x is not None for axis in range(x.ndim)]
    ways: list[tuple[str, set[tuple[int, int]], bool]] = [
        ("every size", set(sizes), False),
        ("equal sizes alike", set(sizes), True),
    ]
    ways += [(f"size {axis} of input {index}", {(index, axis)}, False) for index, axis in sizes] if len(sizes) > 1 else []
    known = views(case)
    for what, chosen, alike in ways:
        values: dict[str, int] = {}
        xs: list[View | None] = []
        for index, x in enumerate(known):
            if x is None:
                xs.append(None)
                continue
            shape = list(x.dims)
            for axis, size in enumerate(shape):
                if (index, axis) in chosen and isinstance(size, int):
                    name = f"n{size}" if alike else f"s{index}_{axis}"
                    values[name] = size
                    shape[axis] = dims.symbol(name)
            # A value that is known has a shape that is known.
            xs.append(View(Tensor(x.dtype, x.dims if x.value is not None else tuple(shape)), x.value))
        yield what, xs, values


@law()
def check_symbolic_sizes(case: Case) -> None:
    for what, xs, values in symbolic(case):
        for claim, y in zip(claims(case, xs), answer(case), strict=True):
            assert_claim_holds(claim, y, what, values)
            assert_is_substituted(claim, y, what, values)


def assert_is_substituted(claim: Type, y: Any, what: str, values: dict[str, int]) -> None:
    """No size is left that the symbols do not settle, but for those that inference says it does not know."""
    if isinstance(claim, Tensor) and claim.shape is not None:
        for size in claim.shape:
            found = size if isinstance(size, int) else dims.substitute(size, values)
            assert isinstance(found, int) or is_vague(found), (
                f"{what}: {size} of {claim} becomes {found}, where the shape is {y.shape}"
            )


@law()
def check_symbolic_elements(case: Case) -> None:
    known = views(case)
    for index, x in enumerate(known):
        if x is None or x.value is None or not x.dtype.is_integer or not np.size(x.value):
            continue
        values: dict[str, int] = {}
        elements = np.array(x.value, dtype=object)
        for place, item in np.ndenumerate(elements):
            name = f"e{'_'.join(map(str, place))}"
            values[name] = int(item)
            elements[place] = dims.symbol(name, *x.dtype.range())
        xs = [*known[:index], View(x.type, elements), *known[index + 1 :]]
        for claim, y in zip(claims(case, xs), answer(case), strict=True):
            assert_claim_holds(claim, y, f"symbols in input {index}", values)
            assert_is_substituted(claim, y, f"symbols in input {index}", values)
        # Elements of the other inputs, moved by symbols.
        given = [view(y, shape_value(y)) for y in case.inputs]
        check_values(case, (*given[:index], View(x.type, elements), *given[index + 1 :]), values, f"symbols in input {index}")


@law()
def check_partial_knowledge(case: Case) -> None:
    known = views(case)
    unknown: dict[str, list[View | None]] = {
        "no rank": [x and View(Tensor(x.dtype, None)) for x in known],
        "no values": [x and View(x.type) for x in known],
        "no ranks but values": [x and View(Tensor(x.dtype, None) if x.value is None else x.type, x.value) for x in known],
        "nothing": [x and View(UNKNOWN) for x in known],
        "no element types": [x and View(Tensor(None, x.shape), x.value) for x in known],
        "unnamed sizes": [
            x and View(Tensor(x.dtype, tuple(dims.symbol(f"?x{index}.{axis}") for axis in range(len(x.dims)))), None)
            for index, x in enumerate(known)
        ],
    }
    for index, x in enumerate(known):
        if x is not None:
            unknown[f"no rank of input {index}"] = [*known[:index], View(Tensor(x.dtype, None)), *known[index + 1 :]]
    for what, xs in unknown.items():
        for claim, y in zip(claims(case, xs), answer(case), strict=True):
            assert_claim_holds(claim, y, what)
        infer_values(case.op, tuple(xs), infer_types(case.op, tuple(xs), "y"))


@law()
def check_shape_values(case: Case) -> None:
    values = [shape_value(x) for x in case.inputs]
    xs = tuple(view(x, value) for x, value in zip(case.inputs, values, strict=True))
    check_values(case, xs, {}, "all inputs known")
    names: dict[str, int] = {}
    unknown: list[Any] = []
    constants = is_constant(case)
    for index, (x, value) in enumerate(zip(case.inputs, values, strict=True)):
        if value is None or constants[index] or not dtypes.dtype(x.dtype).is_integer or value.size > 64:
            unknown.append(value)
            continue
        elements = np.array(value, dtype=object)
        for place, item in np.ndenumerate(elements):
            name = f"v{index}_{'_'.join(map(str, place))}"
            names[name] = int(item)
            elements[place] = dims.symbol(name, *dtypes.dtype(x.dtype).range())
        unknown.append(elements)
    if names:
        check_values(
            case, tuple(view(x, value) for x, value in zip(case.inputs, unknown, strict=True)), names, "symbols for elements"
        )


def check_values(case: Case, xs: tuple[View | None, ...], names: dict[str, int], what: str) -> None:
    for found, y in zip(infer_values(case.op, xs, infer_types(case.op, xs, "y")), answer(case), strict=True):
        if found is None:
            continue
        found = np.asarray(found)
        assert found.shape == y.shape, f"{what}: a value of shape {found.shape} for {y.shape}"
        for place, item in np.ndenumerate(found):
            real = y[place]
            plain = dims.substitute(item, names) if isinstance(item, dims.Dim) else item
            assert isinstance(plain, dims.Dim) or int(plain) == int(real), (
                f"{what}: {item} at {place} is {plain}, and should be {real}"
            )


@law()
def check_ranks_with_symbolic_sizes(case: Case) -> None:
    """At the ends of precision: with every size a symbol, the rank at least is known where it follows from ranks and values."""
    if "rank" in case.skip:
        pytest.skip(case.skip["rank"])
    for what, xs, _ in symbolic(case):
        for claim, _y in zip(claims(case, xs), answer(case), strict=True):
            assert isinstance(claim, Tensor) and claim.shape is not None, f"{what}: inferred {claim}"


@law()
def check_ranks_from_ranks(case: Case) -> None:
    if "rank" in case.skip:
        pytest.skip(case.skip["rank"])
    hosts = host_inputs(case.op, len(case.inputs))
    xs = [
        None
        if x is None
        else View(Tensor(x.dtype, x.dims if host else tuple(dims.symbol(f"s{i}_{axis}") for axis in range(len(x.dims)))))
        for i, (x, host) in enumerate(zip(views(case), hosts, strict=True))
    ]
    for claim, y in zip(claims(case, xs), answer(case), strict=True):
        assert_claim_holds(claim, y)
        assert isinstance(claim, Tensor) and claim.shape is not None, f"inferred {claim}"


test_case = hold(
    check_inferred_types,
    check_symbolic_sizes,
    check_symbolic_elements,
    check_partial_knowledge,
    check_shape_values,
    check_ranks_with_symbolic_sizes,
    check_ranks_from_ranks,
)
