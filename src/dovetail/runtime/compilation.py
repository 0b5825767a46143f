"""The functions ``compile``, ``plan`` and ``run``, which choose the engine for a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from dovetail.errors import EngineError, printable
from dovetail.ir.host import native_core, plugins
from dovetail.ir.host.threads import thread_count
from dovetail.ir.limits import Limits, counting, within_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.runtime.program import Program

# Modules that a program from the plan cache does not need are imported in functions, for start-up time.
if TYPE_CHECKING:
    from dovetail.engine.plan_report import PlanReport
    from dovetail.ir.graph import Model
    from dovetail.ir.results import Results
    from dovetail.runtime.native_program import NativeProgram
    from dovetail.runtime.plan_cache.cached_program import CacheKey
    from dovetail.runtime.random_inputs import Inputs
    from dovetail.storage.cache_folder import CacheFolder

LOGGER = logging.getLogger("dovetail")
ENGINES = ("native", "interpreter", "jax", "torch")
PRECISIONS = ("f32", "bf16", "int8", "auto")


@check_keywords
@dataclass(frozen=True)
class DeviceOptions:
    """DeviceOptions holds the options of the engines "jax" and "torch" (docs/howto/devices.md).

    - ``device``: a device of the library, or its name; default: the library's default device
    - ``results``: "numpy", or "device" for arrays of the library that stay on the device
    - ``torch_compile``: compile with torch.compile for the shapes of each call, instead of running one operator at a time
    - ``mesh``: sizes of the axes "data" and "model" of a mesh of devices (JAX only); inputs and weights are split over the mesh
      by the specs in ``program.shardings``
    - ``shardings``: specs that replace the proposed specs, by patterns of tensor names
    """

    device: Any = None
    results: str = "numpy"
    torch_compile: bool = False
    mesh: Mapping[str, int] | None = None
    shardings: Mapping[str, Any] | None = None


@check_keywords
def compile(
    model: Model | str | PathLike[str],
    engine: str = "auto",
    *,
    threads: int | None = None,
    elide: str = "auto",
    limits: Limits | None = None,
    cache_dir: str | PathLike[str] | None = None,
    reuse_caches: bool = False,
    device: DeviceOptions | None = None,
    precision: str | None = None,
    reproducible: bool = False,
) -> Program:
    """Compile ``model`` (a Model or the path of a model file) to a Program.

    ``engine``: "native" (planned memory, compiled kernels), "interpreter" (the reference: one operator at a time in numpy),
    "jax" or "torch" (that library runs the operators, with the options ``device``), or "auto": native if the native core is
    compiled, else numpy on the native engine's graph; or the engine of a plug-in (docs/howto/custom_operators.md).

    Options of "native" and "auto": ``threads``, by default DOVETAIL_THREADS or the number of usable processors; ``elide``, the
    elision of operators that only move data: "auto" (where elision is faster), "all" (wherever elision is
    possible) or "none".

    ``limits``: the limits of compilation and of each run, by default the limits of the model. The arena, outputs and constant
    tables are checked against ``limits.memory`` before they are allocated, and the outputs of loops while they grow.

    ``cache_dir``: a folder for plans of model files, by default the variable DOVETAIL_CACHE_DIR; without a folder no plan is
    written. The first call of a program writes its plan. A later process with the same file content, options, version and
    processor starts from the plan, and loads the model only for other shapes or attributes (docs/howto/start.md).

    ``reuse_caches``: if a call gets a growing cache (by Concat) that another call returned, the cache is extended in place. The
    results of such calls are views of one array; no call changes the elements that another call returned (docs/howto/sizes.md).
    Such a program does not use ``cache_dir``.

    ``precision``, an option of the native engine: "f32" computes products of floats in f32. "bf16" rounds the operands of
    convolutions and matrix products to bf16 where that is faster, and sums in f32, on processors with AVX512-BF16; values between
    operators stay in f32. "auto" is "bf16" on these processors, else "f32". "int8" rounds the rows that are multiplied by
    constant integer weights of up to 8 bits to 8 bits, in blocks as long as those of the weights, each scaled by its greatest
    magnitude (dynamic quantization). By default only products that permit this are rounded: MatMulNBits of accuracy level 4.

    ``reproducible``, an option of the native engine: outputs have the same bits on every x86-64 processor with AVX2, with any
    number of threads, and for a row in any batch, at any position (docs/howto/reproduce.md). Such a program computes with AVX2
    on processors with AVX-512 too, excludes ``precision="bf16"``, and refuses operators that only numpy computes, whose bits
    depend on the processor [run.bits].

    ``device``: options of the engines "jax" and "torch", which take ``limits`` and no other option (docs/howto/devices.md).

    Raises EngineError [argument.value], [argument.type], [argument.conflict], [cache.folder], [device.*], [file.changed],
    [plan.fault], [run.*], [runtime.run]; RuleError [name.unknown], [sharding.spec]; UnsupportedError [extra.missing],
    [constant.needed]; and the errors of :func:`load`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.compile(b.model)(x=np.array([[-1, 2]], np.float32))["y"]
    array([[0., 2.]], dtype=float32)
    """
    if is_plugin := engine not in ("auto", *ENGINES):
        names = ("auto", *ENGINES, *plugins.load("engines", ("auto", *ENGINES)))
        if engine not in names:
            raise EngineError("argument.value", f"engine must be one of {', '.join(names)}, got {engine!r}")
    # The precision of a reproducible program is that of any processor.
    precision = "f32" if reproducible and precision == "auto" else precision_of(precision, engine)
    if device is not None and not isinstance(device, DeviceOptions):
        raise EngineError("argument.type", f"device must be DeviceOptions(device={device!r}), got {device!r}")
    if is_plugin or engine in ("jax", "torch"):
        own = {"threads": threads, "elide": elide, "cache_dir": cache_dir, "reuse_caches": reuse_caches}
        own |= {"precision": precision, "reproducible": reproducible or None}
        wrong = [name for name, value in own.items() if value != {"elide": "auto", "reuse_caches": False}.get(name)]
        if wrong:
            raise EngineError("argument.conflict", f"engine={engine!r} does not take {', '.join(wrong)}")
    if device is not None and engine not in ("jax", "torch"):
        raise EngineError("argument.conflict", f"device is an option of the engines jax and torch, got engine={engine!r}")
    if is_plugin:
        # Deferred for start-up time.
        from dovetail.runtime.plugin_program import PluginProgram

        return PluginProgram(_load(model, limits), engine)
    if engine in ("jax", "torch"):
        # Deferred for start-up time.
        from dovetail.runtime.devices.compilation import compile_on_device

        return compile_on_device(_load(model, limits), engine, device or DeviceOptions())
    if engine == "interpreter" and (reuse_caches or precision in ("int8", "bf16")):
        option = "reuse_caches" if reuse_caches else f"precision={precision!r}"
        raise EngineError("argument.conflict", f"{option} is an option of the native engine")
    if reproducible:
        _check_reproducible(engine, precision)
    if engine == "interpreter" or (engine == "auto" and not native_core.is_compiled and not reuse_caches):
        thread_count(threads)
        if elide != "auto":
            _check_elide(elide)
        loaded = _load(model, limits)
        return _compile_interpreter(loaded) if engine == "interpreter" else _compile_without_core(loaded, threads)
    options = {"threads": threads, "elide": elide, "precision": precision, "reproducible": reproducible}
    if reuse_caches:
        return _compile_with_caches(_load(model, limits), options)
    folder = cache_dir or os.environ.get("DOVETAIL_CACHE_DIR")
    if folder and isinstance(model, str | PathLike) and native_core.is_compiled:
        return _compile_with_cache(folder, os.fspath(model), limits, {**options, "threads": thread_count(threads)})
    return _compile_native(_load(model, limits), options)


def precision_of(precision: str | None, engine: str = "native") -> str | None:
    """Return the precision to compile for: "auto" is replaced.

    Raises EngineError [argument.value] for an unknown precision, and for one that this processor lacks.
    """
    if precision not in (None, *PRECISIONS):
        raise EngineError("argument.value", f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    has_bf16 = native_core.has_bf16()
    if precision == "bf16" and not has_bf16:
        raise EngineError(
            "argument.value", f"precision 'bf16' needs the native core and AVX512-BF16, got {native_core.instruction_set()}"
        )
    if precision == "auto":
        return "bf16" if has_bf16 and engine in ("auto", "native") else "f32"
    return precision


def _check_reproducible(engine: str, precision: str | None) -> None:
    """Raise EngineError [argument.conflict] where no program can be reproducible."""
    if engine == "interpreter" or precision == "bf16":
        other = "engine='interpreter'" if engine == "interpreter" else "precision='bf16'"
        raise EngineError("argument.conflict", f"reproducible=True excludes {other}")
    if native_core.instruction_set() not in ("avx2", "avx512", "amx"):
        raise EngineError(
            "argument.conflict", f"reproducible=True needs the native core and AVX2, got {native_core.instruction_set()}"
        )


def _check_elide(elide: str) -> None:
    # Deferred for start-up time.
    from dovetail.engine.planner import check_elide

    check_elide(elide)


def _compile_interpreter(model: Model) -> Program:
    from dovetail.runtime.interpreter_program import InterpretedProgram

    if not native_core.is_compiled:
        native_core.warn_without_core()
    LOGGER.info("%s: interpreter engine, as requested", printable(model.file or "the model"))
    return InterpretedProgram(model)


def _compile_without_core(model: Model, threads: int | None) -> Program:
    from dovetail.runtime.numpy_program import NumpyProgram

    native_core.warn_without_core()
    LOGGER.info("%s: interpreter engine, the native core is not compiled", printable(model.file or "the model"))
    return NumpyProgram(model, threads)


def _compile_native(model: Model, options: Mapping[str, Any]) -> NativeProgram:
    from dovetail.runtime.native_program import NativeProgram

    program = NativeProgram(model, **options)
    LOGGER.info("%s: native engine, %s", printable(model.file or "the model"), native_core.build())
    return program


def _compile_with_caches(model: Model, options: Mapping[str, Any]) -> Program:
    # Deferred for start-up time.
    from dovetail.runtime.cache_program import CacheProgram
    from dovetail.runtime.specializations import specialize_caches
    from dovetail.runtime.specialized_program import SpecializedProgram

    return CacheProgram(model, **options) if specialize_caches(model) is None else SpecializedProgram(model, **options)


def _compile_with_cache(folder: str | PathLike[str], path: str, limits: Limits | None, options: dict[str, Any]) -> Program:
    """Return a program of the model file ``path`` from the plan cache ``folder``, or compile one that writes its plan there."""
    from dovetail.runtime.plan_cache.cached_program import CacheKey, open_program
    from dovetail.storage.cache_folder import CacheFolder

    cache = CacheFolder(folder)
    key = CacheKey(path, limits, options)
    program = open_program(cache, key, limits, options)
    return compile_for_cache(cache, key, limits, options) if program is None else program


def compile_for_cache(cache: CacheFolder, key: CacheKey, limits: Limits | None, options: Mapping[str, Any]) -> NativeProgram:
    """Compile a model file to a program whose first call writes its plan to the cache."""
    from dovetail.ir.op import graphs_of
    from dovetail.runtime.plan_cache.cached_program import PlanWriter
    from dovetail.storage.files import record_files

    with record_files() as files:
        program = _compile_native(_load(key.path, limits), options)
    model = program.model
    # A file with warnings has no plan in the cache, so that each process reads the file and logs the warnings. A model with
    # custom operators has none, since their code may differ in the next process.
    is_custom = any(node.op.is_custom for graph in graphs_of(model.graph) for node in graph.nodes)
    if not is_custom and not model.warnings and model.limits.seconds is None and not program.has_optional_inputs:
        program.record_plans(PlanWriter(cache, key, model, files))
    return program


def _load(model: Model | str | PathLike[str], limits: Limits | None) -> Model:
    """Return the model, loaded if ``model`` is a path, with ``limits`` set if they are not None."""
    from dovetail.formats import load
    from dovetail.ir.edit import copy_model
    from dovetail.ir.graph import Model
    from dovetail.storage.mapped_files import check_mapped_files

    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    check_mapped_files(loaded.graph, loaded.file)
    if limits is not None and limits != loaded.limits:
        loaded = copy_model(loaded)
        loaded.limits = limits
    return loaded


@check_keywords
def plan(
    model: Model | str | PathLike[str],
    inputs: Mapping[str, Any] | Inputs | None = None,
    *,
    elide: str = "auto",
    threads: int | None = None,
    rounds: int = 5,
    limits: Limits | None = None,
    precision: str | None = None,
) -> PlanReport:
    """Report the plan of the native engine for ``model``: copies with their reasons, memory over time, and time by kernel.

    ``inputs``: arrays by name, or :class:`dovetail.Inputs`; inputs without an array are random. The plan is for the shapes of
    these inputs. ``elide``, ``threads`` and ``precision`` are the options of :func:`compile`. ``rounds`` is the number of timed
    runs. ``limits`` are by default the limits of the model. A notebook shows the report as a figure; the report's ``html()``
    returns a standalone page.

    The units of the report are bytes and seconds.

    Raises EngineError [argument.value], [input.*], [run.*], and the errors of :func:`compile` and of :func:`run`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Concat(b.input("x", "f32", (2,)), b.input("z", "f32", (3,)), axis=0))
    >>> [(copy.nbytes, copy.reason) for copy in dovetail.plan(b.model, rounds=0).copies]
    [(8, 'x aliases the input x'), (12, 'z aliases the input z')]
    """
    from dovetail.engine.plan_report import report
    from dovetail.engine.planner import PlanOptions
    from dovetail.formats import load
    from dovetail.ir.edit import copy_model
    from dovetail.ir.graph import Model
    from dovetail.runtime.random_inputs import Inputs

    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    if limits is not None:
        loaded = copy_model(loaded)
        loaded.limits = limits
    with counting(loaded.limits), within_memory("the plan", loaded.file):
        options = PlanOptions(elide, precision_of(precision))
        return report(loaded, Inputs.of(inputs).complete(loaded), options, threads=threads, rounds=rounds)


@check_keywords
def run(model: Model | str | PathLike[str], inputs: Mapping[str, Any] | Sequence[Any] | Any, engine: str = "auto") -> Results:
    """Run a model or model file once. ``inputs``: arrays by name, a list of arrays in order, or a single array.

    Raises EngineError [input.*], [program.*], [run.*], [runtime.*] for unsuitable inputs, the errors of :func:`compile`, and the
    errors of :func:`interpret` for elements that break an operator's rule.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.run(b.model, np.array([[-1, 2]], np.float32))["y"]
    array([[0., 2.]], dtype=float32)
    """
    return compile(model, engine)(inputs)
