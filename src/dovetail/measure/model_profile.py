"""Profile of a model in several engines: time by operator, kernel and module, and shares of the machine's limits."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike, path as paths
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError, EngineError, UnsupportedError, printable
from dovetail.formats import load, save
from dovetail.formats.model_source import format_of
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model, Node
from dovetail.ir.host.threads import processor_count, thread_count
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.limits import Limits, counting, within_memory
from dovetail.ir.modules import module_of
from dovetail.ir.op import REGISTRY, Op
from dovetail.ir.operator_index import KINDS
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.ir.suggestions import check_keywords
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.peers import Names, NodeTime, Runner, is_installed, runner
from dovetail.runtime.random_inputs import Inputs

if TYPE_CHECKING:
    from dovetail.engine.machine_limits import MachineLimits
    from dovetail.engine.step_profile import NativeProfile, StepProfile

# Imports of the engine are deferred: the engine imports most operators, which ``import dovetail`` must not do.

NATIVE = "native"
ENGINES = (NATIVE, "onnxruntime", "openvino")
NO_MODULE = "(no module)"
MAX_MODULES = 60
"""The maximum number of rows by module: module paths are cut at the deepest level that has at most this number of rows."""
SUFFIX = re.compile(r"(_nchwc|_token_\d+|/WithoutBiases|/MatMulAddFusion|/GemmActivationFusion)+$")
"""Suffixes that onnxruntime and OpenVINO append to the name of a node that they rewrite."""
KIND = re.compile(r"(?:[\w.]+:)?(\w+)-")
FUSED = re.compile(r"(Fused|QLinear)(?=[A-Z])")
"""Prefixes that onnxruntime adds to the name of an operator that it fuses with neighbouring operators."""
PLUGIN_KINDS = {"FullyConnected": "MatMul", "Deconvolution": "ConvTranspose"}
"""Operators that only OpenVINO's CPU plugin has, with the operator that each of these computes."""
PRODUCTS = ("MatMul", "Gemm")
"""Operators that onnxruntime and OpenVINO rewrite to one another."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """EngineStep is one step of dovetail, or one node of a peer, for which only operator, kernel and time are known.

    ``read`` and ``written``: bytes that the step reads and writes; ``operations``: arithmetic operations; ``attainable``: seconds
    at the machine's limits; ``bound``: the limit that dominates; ``live_bytes``: live bytes of the arena. ``runs``: executions of
    the step within a run of the model; time, bytes and operations are sums over these executions. ``subgraphs``: subgraphs of
    an If or Loop that ran, whose time is part of the step's time. ``arithmetic``: the operands of products, "f32", "bf16" or
    "int8", whose rate is the limit of computation; "f32" for a peer.
    """

    number: int
    label: str
    operator: str
    kernel: str
    module: str
    seconds: float
    fused: tuple[str, ...] = ()
    is_native: bool = True
    read: int | None = None
    written: int | None = None
    operations: int | None = None
    attainable: float | None = None
    bound: str = ""
    live_bytes: int | None = None
    runs: int = 1
    subgraphs: tuple[EngineSubgraph, ...] = ()
    arithmetic: str = "f32"

    @property
    def nbytes(self) -> int | None:
        return None if self.read is None or self.written is None else self.read + self.written

    @property
    def share_of_limit(self) -> float | None:
        """The time at the machine's limits as a share of the measured time.

        It is above 1 where operands are in a cache, or where other programs slowed the measurement of the limits.
        """
        return None if self.attainable is None or not self.seconds else self.attainable / self.seconds


@dataclass(frozen=True, slots=True)
class EngineSubgraph:
    """EngineSubgraph is a subgraph of an If or Loop: its name, its runs within a run of the model, and its steps."""

    name: str
    runs: int
    steps: list[EngineStep]


@dataclass(frozen=True, slots=True)
class ProfileGroup:
    """ProfileGroup sums up the steps of one operator, kernel or module; ``share``: their fraction of the time of all steps."""

    name: str
    count: int
    seconds: float
    share: float
    nbytes: int | None
    operations: int | None
    share_of_limit: float | None
    bound: str


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """EngineProfile is the profile of one engine.

    ``run_seconds``: the median time of complete runs; None if the engine does not run the model (``notes`` has the reason).
    """

    engine: str
    name: str
    run_seconds: float | None = None
    runs: int = 0
    steps: list[EngineStep] = field(default_factory=list, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def step_seconds(self) -> float:
        """The seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    def operators(self) -> list[ProfileGroup]:
        return self._groups([step.operator for step in self.steps])

    def kernels(self) -> list[ProfileGroup]:
        return self._groups([step.kernel for step in self.steps])

    def modules(self, depth: int | None = None) -> list[ProfileGroup]:
        """Return groups by the first ``depth`` parts of the steps' module; None: the deepest level of at most MAX_MODULES."""
        split = [step.module.split("/") for step in self.steps]
        if depth is None:
            depth = max(map(len, split), default=1)
            while depth > 1 and len({tuple(parts[:depth]) for parts in split}) > MAX_MODULES:
                depth -= 1
        return self._groups(["/".join(parts[:depth]) or NO_MODULE for parts in split])

    def _groups(self, names: Sequence[str]) -> list[ProfileGroup]:
        """Return groups of the steps by name, the slowest first."""
        groups: dict[str, list[EngineStep]] = {}
        for name, step in zip(names, self.steps, strict=True):
            groups.setdefault(name, []).append(step)
        total = self.step_seconds
        rows = [_group(name, steps, total) for name, steps in groups.items()]
        return sorted(rows, key=lambda row: (-row.seconds, row.name))


def _group(name: str, steps: Sequence[EngineStep], total: float) -> ProfileGroup:
    seconds = sum(step.seconds for step in steps)
    attainable = [step for step in steps if step.attainable is not None]
    limited = sum(step.attainable or 0.0 for step in attainable)
    by_bound = {
        bound: sum(step.attainable or 0.0 for step in attainable if step.bound == bound) for bound in ("memory", "compute")
    }
    return ProfileGroup(
        name,
        len(steps),
        seconds,
        seconds / total if total else 0.0,
        _sum(step.nbytes for step in steps),
        _sum(step.operations for step in steps),
        limited / seconds if attainable and seconds else None,
        max(by_bound, key=lambda bound: by_bound[bound]) if attainable else "",
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


class MachineLoad(NamedTuple):
    """MachineLoad is the average number of threads that ran or waited in the minute before a profile, and the processors."""

    average: float
    processors: int

    @property
    def is_high(self) -> bool:
        """Return whether more threads ran or waited than there are processors, so that measured times are too long."""
        return self.average > self.processors

    def __str__(self) -> str:
        noun = "processor" if self.processors == 1 else "processors"
        text = f"{self.average:.1f} on {self.processors} {noun} in the minute before"
        return f"{text}: the machine was busy, and times are too long" if self.is_high else text


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """ModelProfile holds a model's profiles in engines on inputs of ``shapes``, and the machine's ``limits`` if measured.

    ``load``: the load of the machine before the profile; None where the system does not report it.
    """

    name: str
    shapes: dict[str, list[int]]
    threads: int
    limits: MachineLimits | None
    engines: list[EngineProfile]
    load: MachineLoad | None = None

    def operators(self) -> list[tuple[str, list[ProfileGroup | None]]]:
        """Return the time of each operator in each engine; None where an engine has no step of that name."""
        columns = [{row.name: row for row in engine.operators()} for engine in self.engines]
        names = dict.fromkeys(name for column in columns for name in column)
        rows: list[tuple[str, list[ProfileGroup | None]]] = [(name, [column.get(name) for column in columns]) for name in names]
        return sorted(rows, key=lambda row: -max(0.0 if cell is None else cell.seconds for cell in row[1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the profile as data for JSON."""
        facts: dict[str, Any] = {
            "name": self.name,
            "shapes": self.shapes,
            "threads": self.threads,
            "limits": None if self.limits is None else self.limits._asdict(),
            "load": None if self.load is None else self.load._asdict(),
            "engines": [],
        }
        for engine in self.engines:
            row = asdict(engine)
            groups = {"operators": engine.operators(), "kernels": engine.kernels(), "modules": engine.modules()}
            row |= {kind: [asdict(group) for group in rows] for kind, rows in groups.items()}
            _add_shares(engine.steps, row["steps"])
            facts["engines"].append(row)
        return facts

    def trace(self) -> str:
        """Return a trace in the Trace Event Format, which Perfetto opens."""
        from dovetail.report.trace import chrome_trace

        return chrome_trace(self)

    def svg(self) -> str:
        """Return a picture: bars of time by operator, kernel and module, and the roofline."""
        from dovetail.report.profile_chart import picture

        return picture(self)

    def html(self) -> str:
        """Return a self-contained HTML page."""
        from dovetail.report.profile_page import page

        return page(self)

    def __repr__(self) -> str:
        from dovetail.report.profile_text import summary

        lines = (f"<profile of {self.name!r}", *(f"  {label}: {text}" for label, text in summary(self)))
        return "\n".join(map(printable, lines)) + ">"

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}</div>"


@check_keywords
def profile(
    model: Model | str | PathLike[str],
    inputs: Mapping[str, Any] | Inputs | None = None,
    *,
    engines: Sequence[str] = (NATIVE,),
    threads: int | None = None,
    runs: int | None = None,
    limits: Limits | None = None,
    precision: str | None = None,
) -> ModelProfile:
    """Profile ``model`` in ``engines`` ("native", "onnxruntime", "openvino"): the time of each step, by operator and module.

    ``inputs``: arrays by name, or :class:`dovetail.Inputs`; inputs without an array are random. ``runs``: timed runs of each
    engine, by default the number that fits into two seconds. The first native run ends at the limit ``seconds``, 20 by default.
    ``precision`` is the option of :func:`compile`; "bf16" is a hint for OpenVINO too, and onnxruntime has no such option.

    Raises EngineError [run.time], [argument.value]; UnsupportedError [runtime.missing] for an engine that is not installed; and
    the errors of :func:`run`. A peer that refuses the model has the reason in its ``notes``.

    Source: the roofline model (Williams et al., 2009); times are in seconds.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.profile(b.model, dovetail.Inputs(sizes={"n": 4}), runs=1).shapes
    {'x': [4, 2]}
    """
    from dovetail.engine.step_profile import profile_steps

    for engine in engines:
        _check_engine(engine)
    precision = precision_of(precision)
    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    if limits is not None:
        loaded = copy_model(loaded)
        loaded.limits = limits
    load_before = machine_load()
    with counting(loaded.limits), within_memory("the profile", loaded.file):
        arrays = Inputs.of(inputs).complete(loaded)
        count = thread_count(threads)
        found: list[EngineProfile] = []
        machine: MachineLimits | None = None
        for engine in dict.fromkeys(engines):
            if engine == NATIVE:
                native = profile_steps(loaded, arrays, count, runs, precision=precision)
                machine = native.limits
                found.append(_native(native))
            else:
                found.append(_peer(engine, loaded, arrays, count, runs, precision))
    shapes_run = {name: list(array.shape) for name, array in flatten_outputs(arrays).items()}
    return ModelProfile(loaded.title, shapes_run, count, machine, found, load_before)


def machine_load() -> MachineLoad | None:
    """Return the load of the machine over the last minute; None where the system does not report it."""
    try:
        return MachineLoad(os.getloadavg()[0], processor_count())
    except (AttributeError, OSError):
        # Windows has no load average.
        return None


def _add_shares(steps: Sequence[EngineStep], rows: Sequence[dict[str, Any]]) -> None:
    """Add the property ``share_of_limit`` to the fields of steps and of their subgraphs' steps."""
    for step, cells in zip(steps, rows, strict=True):
        cells["share_of_limit"] = step.share_of_limit
        for subgraph, inner in zip(step.subgraphs, cells["subgraphs"], strict=True):
            _add_shares(subgraph.steps, inner["steps"])


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise EngineError("argument.value", f"an engine to profile must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine != NATIVE and not is_installed(engine):
        raise UnsupportedError("runtime.missing", f"{engine} is not installed")


def _native(native: NativeProfile) -> EngineProfile:
    steps = [_native_step(step, live) for step, live in zip(native.steps, native.live_bytes, strict=True)]
    return EngineProfile(NATIVE, "dovetail", native.run_seconds, native.runs, steps)


def _native_step(step: StepProfile, live_bytes: int | None) -> EngineStep:
    subgraphs = tuple(
        EngineSubgraph(each.name, each.runs, [_native_step(inner, None) for inner in each.steps]) for each in step.subgraphs
    )
    return EngineStep(
        step.number, step.label, step.operator, step.kernel + ("" if step.is_native else " (interpreter)"), step.module,
        step.seconds, step.fused, step.is_native, step.read, step.written, step.operations, step.attainable, step.bound,
        live_bytes, step.runs, subgraphs, step.arithmetic,
    )  # fmt: skip


# Peers


def _peer(
    engine: str, model: Model, inputs: Mapping[str, Any], threads: int, runs: int | None, precision: str | None
) -> EngineProfile:
    """Profile another engine with that engine's profiler; a failure becomes a note."""
    names = Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    with tempfile.TemporaryDirectory(prefix="dovetail-profile-") as folder:
        try:
            file, notes = _file_for(engine, model, folder)
            found = runner(engine, file, threads, names, profiles=folder, precision=precision)
            seconds, rounds = _time_peer(found, inputs, runs)
            assert found.collect is not None
            steps = _peer_steps(found.collect(), rounds + 1, _OperatorNames(model))
        except DovetailError as error:
            return EngineProfile(engine, engine, notes=(error.message,))
        except Exception as error:
            # Other engines raise errors of classes that dovetail does not know.
            return EngineProfile(engine, engine, notes=(f"cannot run the model: {' '.join(str(error).split())[:500]}",))
    return EngineProfile(engine, found.name, seconds, rounds, steps, notes)


def _file_for(engine: str, model: Model, folder: str) -> tuple[str, tuple[str, ...]]:
    """Return a file of the model that the engine reads: the model's file, or a conversion to ONNX; and notes about it."""
    own = model.file or ""
    if own and paths.isfile(own) and format_of(own) == ("onnx" if engine == "onnxruntime" else model.format) != "text":
        return own, ()
    converted = str(Path(folder) / "converted.onnx")
    save(model, converted)
    return converted, (f"{engine} runs dovetail's conversion to ONNX",)


def _time_peer(found: Runner, inputs: Mapping[str, Any], runs: int | None) -> tuple[float, int]:
    """Return the median seconds of all runs but the first, and the number of runs in this median."""
    from dovetail.engine.step_profile import MAX_RUNS, TIMED_SECONDS

    call = found.call(inputs)
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    rounds = runs or max(1, min(MAX_RUNS, int(TIMED_SECONDS / max(first, 1e-9))))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times), rounds


def _peer_steps(times: Sequence[NodeTime], runs: int, joiner: _OperatorNames) -> list[EngineStep]:
    """Return a step for each node, in the order of ``times``, with the node's median seconds; the first run does not count."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for each in times:
        rows.setdefault((each.node, each.kind, each.kernel), []).append(each.seconds)
    steps = []
    for number, ((node, kind, kernel), seconds) in enumerate(rows.items()):
        per_run = len(seconds) / runs
        counted = seconds[max(1, round(per_run)) :] or seconds
        operator, module = joiner.of(node, kind)
        steps.append(EngineStep(number, node, operator, kernel, module, median(counted) * max(per_run, 1.0)))
    return steps


class _OperatorNames:
    """_OperatorNames maps another engine's nodes to operators of the model, by kind or else by name, and to modules by name."""

    def __init__(self, model: Model) -> None:
        self._nodes: dict[str, Node] = {}
        self._titles: dict[str, str] = {}
        for node in model.graph.nodes:
            for name in (node.name, *(name for y in node.outputs for name in (y.name, *y.names))):
                self._nodes.setdefault(name, node)
            for kind in _foreign_kinds(type(node.op)):
                self._titles.setdefault(kind, node.title)

    def of(self, name: str, kind: str) -> tuple[str, str]:
        """Return the operator and the module of a node."""
        node = self._nodes.get(name) or self._nodes.get(SUFFIX.sub("", name))
        by_kind = self._titles.get(kind) or self._title_of_peer(kind)
        if by_kind in PRODUCTS and node is not None and node.op.title in PRODUCTS:
            by_kind = node.title
        return by_kind or (kind if node is None else node.title), "" if node is None else module_of(node)

    def _title_of_peer(self, kind: str) -> str | None:
        """Return the name in the model's file of another engine's operator ``kind``; None for an unknown kind."""
        operator = _operator_of_peer(kind)
        return None if operator is None else self._titles.get(operator, operator)


def _operator_of_peer(kind: str) -> str | None:
    """Return the operator of dovetail for another engine's operator ``kind``; None for an unknown kind."""
    fused = FUSED.sub("", kind)
    return PLUGIN_KINDS.get(kind) or KINDS["openvino"].get(kind) or (fused if fused != kind and fused in REGISTRY else None)


def _foreign_kinds(op: type[Op]) -> set[str]:
    """Return the names that an operator has in the file formats."""
    return {found[1] for line in (*op.onnx, *op.openvino) if (found := KIND.match(line))} | {op.__name__}
