"""dovetail.rebatch: change sizes of inputs, repair the constants that depend on these sizes, and verify the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.compare.verification.conversion import compare, random_outputs
from dovetail.compare.verification.engine import run_for_verification
from dovetail.errors import ArgumentTypeError, DovetailError, UnsupportedError, raise_all
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.substitution import substitute_type
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Size
from dovetail.passes.rebatching.axes import FreedSize
from dovetail.passes.rebatching.requests import NewSize, SizeRequest, alternatives, read_request, shapes_of_axes
from dovetail.runtime.random_inputs import random_inputs

if TYPE_CHECKING:
    from dovetail.passes.rebatching.search import RebatchReport
    from dovetail.passes.rebatching.verification import SampleComparison


@check_keywords
def rebatch(
    model: Model,
    dims: Mapping[str, NewSize] | None = None,
    shapes: Mapping[str, Sequence[NewSize]] | None = None,
    *,
    verify: bool = True,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Model:
    """Return a copy of ``model`` with changed input sizes: fixed sizes become symbols or other numbers.

    The ``report`` of the result is a RebatchReport: what was changed, and how the result was verified.

    ``dims`` maps a symbol (``"batch"``), an axis of all inputs (``"0"``) or an axis of one input (``"x.0"``) to a size or
    the name of a symbol. ``shapes`` maps inputs to complete shapes. Constants that contain an old size are repaired.

    With ``verify`` the result runs at the batch sizes 1, 3 and 8, or at its fixed batch size. Each sample is compared with a run
    of the original model at the original batch size. Samples are random; ``inputs``, arrays for the original model, give further
    samples and variations of these.

    Raises RuleError [rebatch.request] for sizes that the model does not have, UnsupportedError [rebatch.sample] with every node
    that combines samples or cannot be repaired, [write.mismatch] where a renamed or fixed symbol changes a result, and the errors
    of :func:`run`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Reshape(b.input("x", "f32", (1, 4)), b.constant([1, 2, 2])))
    >>> dovetail.rebatch(b.model, {"0": "batch"})
    <Model '': (x: f32[batch, 4]) -> (y: f32[batch, 2, 2]), 2 nodes>
    """
    if inputs is not None and not isinstance(inputs, Mapping):
        raise ArgumentTypeError("argument.type", f"inputs must be arrays by name, got {type(inputs).__name__}")
    dims, shapes = dims or {}, shapes or {}
    tried: list[list[FreedSize]] = []
    refusal: UnsupportedError | None = None
    for batch_axis in alternatives(model, dims, shapes):
        request = read_request(model, dims, shapes, batch_axis)
        if request.freed in tried:
            continue
        if batch_axis == 1 and not any(freed.is_batch for freed in request.freed):
            continue
        tried.append(request.freed)
        try:
            new, report = _rebatch(model, request, verify, seed, inputs)
        except UnsupportedError as error:
            refusal = refusal or error
            continue
        new.report = report
        return new
    assert refusal is not None
    raise _with_hint(refusal, model, dims, shapes, verify, seed) from None


def _with_hint(
    refusal: UnsupportedError,
    model: Model,
    dims: Mapping[str, NewSize],
    shapes: Mapping[str, Sequence[NewSize]],
    verify: bool,
    seed: int,
) -> UnsupportedError:
    """Add to the refusal of a batch axis other than 0 a hint whether the axis can be changed as an axis within each sample.

    Such a change is requested by ``shapes`` instead of ``dims``.
    """
    others = None if shapes else shapes_of_axes(model, dims)
    if others is None:
        return refusal
    option = " ".join(f"--shape {name}={','.join(map(str, sizes))}" for name, sizes in others.items())
    try:
        _rebatch(model, read_request(model, {}, others, None), verify, seed, None)
        text = f"{option} would change the axis as a size within one sample, and works"
    except DovetailError as error:
        text = f"{option} would change the axis as a size within one sample, and is refused too: {error.diagnostics[0].message}"
    *rest, last = refusal.diagnostics
    items = [*rest, replace(last, message=f"{last.message}; samples along this axis depend on each other, {text}")]
    message = items[0].message if not rest else refusal.message
    return UnsupportedError(
        refusal.code, message, node=refusal.node, op=refusal.op, file=refusal.file, diagnostics=items
    )  # fmt: skip


def _rebatch(
    model: Model, request: SizeRequest, verify: bool, seed: int, inputs: Mapping[str, Any] | None
) -> tuple[Model, RebatchReport]:
    # Deferred for start-up time: the repairs import the operators that they repair.
    from dovetail.compare.prove.proof import prove
    from dovetail.passes.rebatching.search import RebatchReport, Search

    with counting(model.limits):
        base = _substitute_symbols(model, request.symbols)
        compared = _compare_whole(model, base, seed) if verify and request.symbols else []
        if not request.freed:
            return base, RebatchReport([], compared)
        new, report = Search(base, request, verify, seed, inputs).run()
    verdict = prove(base, new, real=True, fit_sizes=True, regions=False).verdict if verify else ""
    # Models of two fixed sizes have no size in common.
    verdict = "" if verdict == "different" else verdict
    return new, RebatchReport(report.changes, [*compared, *report.comparisons], report.notes, verdict)


def _substitute_symbols(model: Model, symbols: Mapping[str, Size]) -> Model:
    new = copy_model(model)
    for value in new.graph.values():
        value.type = substitute_type(value.type, symbols)
    if symbols:
        infer_graph(new.graph, file=new.file)
    return new


def _compare_whole(model: Model, new: Model, seed: int) -> list[SampleComparison]:
    """Compare the outputs of both models on the same random inputs. Raises UnsupportedError [write.mismatch]."""
    from dovetail.passes.rebatching.verification import SampleComparison

    arrays = random_inputs(new, seed=seed, distinct=True)
    drawn = random_outputs(model)
    rows = [
        row
        for row in compare(run_for_verification(model, arrays), run_for_verification(new, arrays), random=drawn)
        if row.output not in drawn
    ]
    raise_all(
        [
            UnsupportedError(
                "write.mismatch", f"output {row.output} differs by {row.absolute:.3g} from the original {row.why}".strip()
            )
            for row in rows
            if not row.agrees
        ],
        "outputs differ at the new sizes",
    )
    return [SampleComparison(row.output, 0, row.dtype, row.absolute, row.relative, row.tolerance, True) for row in rows]
