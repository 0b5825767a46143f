"""The function ``cost`` predicts memory, bytes moved, operations and time of a run."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from dovetail.errors import EngineError
from dovetail.formats import load
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.limits import Limits, counting, within_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.measure.cost_report import CostReport
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.random_inputs import run_sizes


@check_keywords
def cost(
    model: Model | str | PathLike[str],
    sizes: Mapping[str, int] | None = None,
    *,
    fits: int | None = None,
    vary: str | None = None,
    threads: int | None = None,
    precision: str | None = None,
    limits: Limits | None = None,
) -> CostReport:
    """Predict memory, bytes moved, operations and time of a run of ``model`` in the native engine; the model does not run.

    ``sizes``: sizes of open dimensions by name; another open dimension has the size 3, or one with which every rule of the model
    holds. The report has the costs at these sizes, and expressions in the open sizes. ``fits``: a number of bytes; the report
    then has the largest size of ``vary`` (by default the batch: the leading size that all inputs share) that takes at most these.
    ``threads`` and ``precision`` are options of :func:`dovetail.compile`. docs/howto/cost.md says what is counted.

    Raises EngineError [argument.value], [run.memory], RuleError [name.unknown], and the errors of :func:`dovetail.compile`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), np.ones((64, 32), np.float32)))
    >>> report = dovetail.cost(b.model, {"n": 10})
    >>> report.operations, report.expressions["operations"]
    (40960, '4096*n')
    """
    from dovetail.measure.cost_prediction import Prediction  # deferred for start-up time: the engine imports all operators

    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    if limits is not None:
        loaded = copy_model(loaded)
        loaded.limits = limits
    if fits is not None and (isinstance(fits, bool) or not isinstance(fits, int) or fits < 0):
        raise EngineError("argument.value", f"fits must be a number of bytes >= 0, got {fits!r}")
    with counting(loaded.limits), within_memory("the plan", loaded.file):
        return Prediction(loaded, run_sizes(loaded, sizes or {}), threads, precision_of(precision)).report(fits, vary)
