"""Suggestions for misspelled names in error messages, and errors with suggestions for wrong parameters of public functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from dovetail.errors import ArgumentTypeError

F = TypeVar("F", bound=Callable[..., Any])

RENAMED = {
    "Model.replace_constants": "with_constants",
    "algebra": "algebraic_simplification",
    "bisect(seed=)": "inputs=Inputs(seed=...)",
    "bisect(shapes=)": "inputs=Inputs(shapes=...)",
    "bisect(sizes=)": "inputs=Inputs(sizes=...)",
    "compare_layers(reference=)": "the first of engines",
    "compare_layers(seed=)": "inputs=Inputs(seed=...)",
    "compare_layers(shapes=)": "inputs=Inputs(shapes=...)",
    "compare_layers(sizes=)": "inputs=Inputs(sizes=...)",
    "compare_layers(varied=)": "inputs=Inputs(varied=...)",
    "compile(backend=)": "engine",
    "compile(max_memory=)": "limits=Limits(memory=...)",
    "compile(mesh=)": "device=DeviceOptions(mesh=...)",
    "compile(results=)": "device=DeviceOptions(results=...)",
    "compile(shardings=)": "device=DeviceOptions(shardings=...)",
    "compile(sizes=)": "program.prepare(sizes)",
    "compile(torch_compile=)": "device=DeviceOptions(torch_compile=...)",
    "conditions": "dead_branches",
    "constants": "constant_folding",
    "dead": "dead_code",
    "duplicates": "common_subexpressions",
    "expands": "expand_elimination",
    "gemm": "gemm_fusion",
    "identities": "nop_elimination",
    "map_rows(batch=)": "Mapper(model, batch=...)",
    "map_rows(cast=)": "Mapper(model, cast=...)",
    "map_rows(columns=)": "Mapper(model, columns=...)",
    "map_rows(constants=)": "Mapper(model, constants=...)",
    "map_rows(format=)": "options=MapOptions(format=...)",
    "map_rows(image_mean=)": "options=MapOptions(image_mean=...)",
    "map_rows(image_resize=)": "options=MapOptions(image_resize=...)",
    "map_rows(image_scale=)": "options=MapOptions(image_scale=...)",
    "map_rows(image_std=)": "options=MapOptions(image_std=...)",
    "map_rows(keep=)": "Mapper(model, keep=...)",
    "map_rows(limits=)": "Mapper(model, limits=...)",
    "map_rows(max_errors=)": "options=MapOptions(max_errors=...)",
    "map_rows(part_rows=)": "options=MapOptions(part_rows=...)",
    "map_rows(restart=)": "options=MapOptions(restart=...)",
    "map_rows(threads=)": "Mapper(model, threads=...)",
    "model_report(seed=)": "inputs=Inputs(seed=...)",
    "model_report(shapes=)": "inputs=Inputs(shapes=...)",
    "model_report(sizes=)": "inputs=Inputs(sizes=...)",
    "partitions": "slices_to_split",
    "plan(seed=)": "inputs=Inputs(seed=...)",
    "plan(shapes=)": "inputs=Inputs(shapes=...)",
    "plan(sizes=)": "inputs=Inputs(sizes=...)",
    "products": "horizontal_fusion",
    "profile(seed=)": "inputs=Inputs(seed=...)",
    "profile(shapes=)": "inputs=Inputs(shapes=...)",
    "profile(sizes=)": "inputs=Inputs(sizes=...)",
    "reshapes": "reshape_fusion",
    "reshard(max_shard_size=)": "shards",
    "shapes": "shape_folding",
    "slices": "slice_fusion",
    "transposes": "transpose_fusion",
    "weights": "weight_folding",
}
"""Maps the earlier names of renamed passes, parameters and methods to their current names, which errors suggest."""


def closest(name: str, candidates: Iterable[str]) -> str:
    """Return ``": did you mean 'axis'?"`` for the new name of ``name`` or the most similar candidate; "" if there is none."""
    # Deferred import for start-up time: only an error needs difflib.
    from difflib import get_close_matches

    if RENAMED.get(name) in (candidates := list(candidates)):
        return f": did you mean {RENAMED[name]!r}?"
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[matches[0]]!r}?" if matches else ""


def check_keywords(item: F) -> F:
    """Decorate a public function or class, so that a call with wrong parameters raises an error of dovetail.

    Raises ArgumentTypeError [attribute.unknown] for an unknown keyword, with the closest parameter, and [argument.type] for
    missing or superfluous arguments. The decorated function keeps its signature, name and docstring.
    """
    if isinstance(item, type):
        initialize: Callable[..., None] = item.__init__  # type: ignore[misc]
        setattr(item, "__init__", check_keywords(initialize))  # noqa: B010
        return item

    @wraps(item)
    def call(*arguments: object, **options: object) -> Any:
        try:
            return item(*arguments, **options)
        except TypeError as error:
            # A TypeError of the argument binding has no frame of the function.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
        raise _wrong_call(item, arguments, options)

    return cast(F, call)


def _wrong_call(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> ArgumentTypeError:
    from inspect import signature

    parameters = signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__")
    unknown = next((option for option in options if option not in parameters), None)
    if unknown is not None:
        renamed = RENAMED.get(f"{name}({unknown}=)")
        suggestion = closest(unknown, parameters) if renamed is None else f": did you mean {renamed}?"
        return ArgumentTypeError("attribute.unknown", f"{name} has no parameter {unknown!r}{suggestion}")
    try:
        signature(function).bind(*arguments, **options)
    except TypeError as error:
        return ArgumentTypeError("argument.type", f"{name}: {error}")
    raise AssertionError(f"{name} takes its arguments")
