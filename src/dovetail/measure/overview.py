"""Report of a whole model: summary, shapes, plan, profile, drawing, faults, and blockers of each format and opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.errors import Diagnostic, DovetailError, printable
from dovetail.formats import load
from dovetail.formats.export_blockers import ExportTarget, export_blockers
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.limits import Limits, counting, within_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.measure.model_profile import NATIVE, ModelProfile, profile
from dovetail.passes.check import check_graph
from dovetail.passes.quantization.report import report_of
from dovetail.report.model_summary import describe_value, summarize
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.random_inputs import Inputs

if TYPE_CHECKING:
    from dovetail.engine.plan_report import PlanReport

Result = TypeVar("Result")
MAX_SHAPES = 400
"""The maximum number of values whose shapes the report lists."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """ModelReport holds the facts of a model. A failed section is None; ``failures`` maps the section's name to the reason."""

    name: str
    file: str | None
    summary: dict[str, Any]
    values: list[dict[str, Any]] = field(repr=False)
    """A row of name, type and operator for each of the first values of the graph, at most MAX_SHAPES rows."""
    value_count: int
    faults: list[Diagnostic]
    warnings: list[Diagnostic]
    targets: list[ExportTarget] | None = field(repr=False)
    plan: PlanReport | None = field(repr=False)
    profile: ModelProfile | None = field(repr=False)
    drawing: str = field(repr=False)
    failures: dict[str, str]
    quantization: dict[str, Any] | None = field(default=None, repr=False)
    """The report of :func:`dovetail.quantize`, if that returned the model or wrote it to the file."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report without the drawing, as data for JSON."""
        return {
            "name": self.name,
            "file": self.file,
            "summary": self.summary,
            "values": self.values,
            "value_count": self.value_count,
            "faults": [asdict(item) for item in self.faults],
            "warnings": [asdict(item) for item in self.warnings],
            "targets": None if self.targets is None else [{"name": each.name, **asdict(each)} for each in self.targets],
            "plan": None if self.plan is None else self.plan.as_dict(),
            "profile": None if self.profile is None else self.profile.as_dict(),
            "failures": self.failures,
            "quantization": self.quantization,
        }

    def html(self) -> str:
        """Return a self-contained HTML page with all sections."""
        from dovetail.report.model_page import page

        return page(self)

    def __repr__(self) -> str:
        summary, failed = self.summary, ", ".join(self.failures)
        text = (
            f"<report of {self.name!r}: {summary['nodes']} nodes, {summary['parameters']} parameters, {len(self.faults)} faults"
        )
        return printable(f"{text}; failed: {failed}>" if failed else f"{text}>")


@check_keywords
def model_report(
    model: Model | str | PathLike[str],
    inputs: Mapping[str, Any] | Inputs | None = None,
    *,
    engines: Sequence[str] = (NATIVE,),
    threads: int | None = None,
    runs: int | None = None,
    limits: Limits | None = None,
    precision: str | None = None,
) -> ModelReport:
    """Report on ``model``: its summary, shapes, memory plan, profile, drawing, faults, and what prevents each export.

    The parameters are those of :func:`dovetail.profile`. If a section fails, ``failures`` has the reason, so that a model that
    cannot run has a report too. For a model of :func:`dovetail.quantize`, also from a file, the report has the table of weights.

    Raises the errors of :func:`load` for a file that does not load, EngineError [argument.value] for an unknown precision.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.model_report(b.model, runs=1).summary["operators"]
    {'Relu': 1}
    """
    # Deferred: the engine imports most operators, which ``import dovetail`` must not do.
    from dovetail.engine.plan_report import report as plan_report
    from dovetail.engine.planner import PlanOptions
    from dovetail.engine.step_profile import RUN_SECONDS

    computed = precision_of(precision)
    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    quantized = report_of(loaded)
    sizes = {} if quantized is None else {"bytes": quantized.bytes, "bytes_before": quantized.bytes_before}
    chosen = loaded.limits if limits is None else limits
    loaded = copy_model(loaded)
    loaded.limits = replace(chosen, seconds=RUN_SECONDS if chosen.seconds is None else chosen.seconds)
    failures: dict[str, str] = {}

    def attempt(section: str, make: Callable[[], Result]) -> Result | None:
        try:
            with counting(replace(loaded.limits, seconds=None)), within_memory(section, loaded.file):
                return make()
        except DovetailError as error:
            failures[section] = f"[{error.code}] {error.message}"
        except RecursionError:
            failures[section] = "the model is nested too deeply"
        return None

    def make_profile(arrays: Mapping[str, Any]) -> ModelProfile:
        return profile(loaded, arrays, engines=engines, threads=threads, runs=runs, precision=computed)

    def make_plan(arrays: Mapping[str, Any]) -> PlanReport:
        return plan_report(loaded, arrays, PlanOptions(precision=computed), threads=threads, rounds=0)

    arrays = attempt("inputs", lambda: Inputs.of(inputs).complete(loaded))
    if arrays is None:
        failures |= dict.fromkeys(("plan", "profile"), f"there are no inputs to run: {failures.pop('inputs')}")
    plan = None if arrays is None else attempt("plan", lambda: make_plan(arrays))
    profiled = None if arrays is None else attempt("profile", lambda: make_profile(arrays))
    values = [(value, node) for node in loaded.graph.nodes if not hasattr(node.op, "data") for value in node.outputs]
    found = attempt("check", lambda: check_graph(loaded)) or []
    costs = [item for item in found if item.severity == "warning"]
    return ModelReport(
        loaded.title, loaded.file, summarize(loaded),
        [{**describe_value(value), "operator": node.title} for value, node in values[:MAX_SHAPES]], len(values),
        [item for item in found if item not in costs], [*_warnings(loaded), *costs],
        attempt("formats", lambda: export_blockers(loaded)), plan, profiled,
        attempt("drawing", lambda: drawing_of(loaded)) or "", failures,
        None if quantized is None else asdict(quantized) | sizes,
    )  # fmt: skip


def _warnings(model: Model) -> list[Diagnostic]:
    return [item for item in model.warnings if isinstance(item, Diagnostic)]


def drawing_of(model: Model) -> str:
    """Return the drawing of a model as an SVG element."""
    # Deferred for start-up time.
    from dovetail.report.draw import draw_model

    return draw_model(model).svg()
