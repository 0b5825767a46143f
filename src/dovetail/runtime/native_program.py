"""NativeProgram: a Program with planned memory and compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.limits import active, counting, within_memory
from dovetail.ir.results import Results
from dovetail.runtime.program import LoadedProgram, Statistics

if TYPE_CHECKING:
    from dovetail.engine.engine import Engine, PlanRecorder
    from dovetail.engine.run.executable import SharedPorts
    from dovetail.ir.graph import Model


class NativeProgram(LoadedProgram):
    """NativeProgram is a Program of the native engine. ``threads``, ``elide``, ``precision`` and ``reproducible`` are the
    options of ``compile``.

    ``shared``: pairs of inputs and outputs that may share memory, see :class:`dovetail.engine.engine.Engine`.
    """

    def __init__(
        self,
        model: Model,
        threads: int | None = None,
        elide: str = "auto",
        shared: Sequence[SharedPorts] = (),
        precision: str | None = None,
        reproducible: bool = False,
    ) -> None:
        # Deferred import: a program from the plan cache imports this module, and needs no engine.
        from dovetail.engine.engine import Engine

        options = {"threads": threads, "elide": elide, "precision": precision, "reproducible": reproducible}
        super().__init__(model, "native", options)
        with pause_gc(), counting(self.model.limits), within_memory("the program", self.model.file):
            self._engine: Engine | None = Engine(
                self.model, threads, elide, shared=shared, precision=precision, reproducible=reproducible
            )
        self._call_fast = fast_call_of(self._engine)
        self._stream: _Stream | None = None

    @property
    def _threads(self) -> int:
        return 1 if self._engine is None else self._engine.threads

    @property
    def statistics(self) -> Statistics:
        if self._engine is None:
            return Statistics()
        memory = self._engine.plan_memory
        evictions, cached, nbytes = map(sum, zip((0, 0, 0), *(calls.counts for calls in memory.fast_calls), strict=True))
        return Statistics(
            memory.plans, memory.ranges, memory.cached + cached, memory.evictions + evictions, memory.bytes + nbytes,
            self._engine.packed_bytes, self._engine.copies.nbytes,
        )  # fmt: skip

    @property
    def call_fast(self) -> Callable[..., Any] | None:
        """The native fast call, which returns None for a call that it does not support."""
        return self._call_fast

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Create plans for some sets of sizes before the first call. Raises EngineError [argument.value]."""
        assert self._engine is not None
        with counting(self.model.limits):
            self._engine.prepare(sizes)

    @property
    def call_growing(self) -> Callable[..., Any] | None:
        """The native fast call for growing caches, which returns None for a call that it does not support."""
        fast_calls = None if self._engine is None else self._engine.fast_calls
        return None if fast_calls is None or fast_calls.call is None else fast_calls.call.call_growing

    @property
    def output_pool(self) -> Any:
        """The core's pool of result buffers; None without a core."""
        return None if self._engine is None else self._engine.output_pool

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        assert self._engine is not None
        return self._engine(inputs, out)

    def record_plans(self, recorder: PlanRecorder) -> None:
        """Pass the plan of the first call, and all parametric plans, to ``recorder``."""
        assert self._engine is not None
        self._engine.plan_recorder = self._engine.range_recorder = recorder

    def _call_in_one_thread(self) -> Callable[[Any], Results]:
        if self._engine is None or self._engine.threads == 1:
            return self
        if self._stream is None:
            self._stream = _Stream(self, self._engine.copy_for_one_thread())
        return self._stream

    def close(self) -> None:
        super().close()
        self._engine = self._stream = None


class _Stream:
    """_Stream runs calls in one thread; all streams of a program share the program's graph and packed weights."""

    def __init__(self, program: NativeProgram, engine: Engine) -> None:
        self._program = program
        self._engine = engine
        self._call_fast = fast_call_of(engine)

    def __call__(self, item: object) -> Results:
        program = self._program
        if program._is_closed:
            return program(item)
        if self._call_fast is not None and active() is None:
            results = self._call_fast((item,), {}, None)
            if results is not None:
                return results  # type: ignore[no-any-return]
        return program._run_with(self._engine, (item,), {}, None)


def fast_call_of(engine: Engine) -> Callable[..., Any] | None:
    """Return the native fast call of an engine, or None. A fast call returns None for a call that it does not support."""
    return None if engine.fast_calls is None else engine.fast_calls.call
