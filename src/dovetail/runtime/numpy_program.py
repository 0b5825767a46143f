"""NumpyProgram: a rewritten model that runs in numpy, for an installation without the native core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from dovetail.errors import EngineError
from dovetail.ir.host.blas import single_threaded_blas, thread_control
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.host.threads import thread_count
from dovetail.ir.limits import counting, within_memory
from dovetail.runtime.program import LoadedProgram, write_outputs

if TYPE_CHECKING:
    from dovetail.ir.graph import Model


class NumpyProgram(LoadedProgram):
    """NumpyProgram is a Program that runs the graph of the native engine in numpy. ``threads`` is the option of ``compile``.

    Results are those of the interpreter to within rounding. The threads of the program divide products and elementwise groups
    where numpy's BLAS is OpenBLAS, which then uses one thread of its own; with another BLAS the program has one thread.
    """

    def __init__(self, model: Model, threads: int | None = None) -> None:
        # Deferred for start-up time.
        from dovetail.engine.rewrite.pipeline import rewrite_for_engine
        from dovetail.runtime.interpreter.schedule import NodeSchedule
        from dovetail.runtime.interpreter.worker_threads import WorkerThreads

        super().__init__(model, "interpreter", {"threads": threads})
        count = thread_count(threads)
        with pause_gc(), counting(self.model.limits), within_memory("the program", self.model.file):
            self._schedule: NodeSchedule | None = NodeSchedule(
                rewrite_for_engine(self.model.graph, file=self.model.file, precision="f32")
            )
        self._workers = WorkerThreads(1 if thread_control() is None else count)

    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        from dovetail.ir.inputs_outputs import check_inputs, copy_shared_outputs, named_inputs, to_array

        assert self._schedule is not None
        by_name = named_inputs(self.model, inputs)
        arrays = [to_array(by_name[value.name], value) for value in self.model.inputs]
        check_inputs(self.model, arrays)
        with nullcontext() if thread_control() is None else single_threaded_blas():
            results = self._schedule.run(arrays, self._workers)
        named = {value.name: result for value, result in zip(self.model.outputs, results, strict=True)}
        try:
            outputs = copy_shared_outputs(named, arrays)
        except MemoryError as error:
            raise EngineError("run.memory", f"the outputs do not fit into memory: {error}", file=self.model.file) from None
        return write_outputs(outputs, out)

    def close(self) -> None:
        super().close()
        self._schedule = None
        self._workers.close()
