"""The number of threads of a program in a worker process: 1 if an engine runs a worker or task for each core."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from dovetail.ir.host.threads import thread_count


def worker_thread_count(threads: int | None) -> int:
    """Return ``threads``, else DOVETAIL_THREADS, else in a worker process the cores of the task, else those of the process.

    The cores of a task are the cores that Ray or Spark assigns to the task; 1 in a Dask worker and in a child process of
    multiprocessing. Raises EngineError [argument.value].
    """
    if threads is None and not os.environ.get("DOVETAIL_THREADS"):
        threads = _task_cores()
    return thread_count(threads)


def _task_cores() -> int | None:
    """Return the number of cores of the task that this process runs for an engine; None outside of a worker process."""
    # An engine runs this process only if the engine's package is imported.
    for package, cores in (("ray", _ray_cores), ("distributed", _dask_cores), ("pyspark", _spark_cores)):
        module = sys.modules.get(package)
        count = None if module is None else cores(module)
        if count is not None:
            return count
    processes = sys.modules.get("multiprocessing.process")
    return 1 if processes is not None and processes.parent_process() is not None else None


def _ray_cores(ray: ModuleType) -> int | None:
    try:
        worker = ray._private.worker.global_worker
        if not worker.connected or worker.mode != ray.WORKER_MODE:
            return None
        return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
    except AttributeError:
        return None


def _dask_cores(distributed: ModuleType) -> int | None:
    try:
        distributed.get_worker()
    except (AttributeError, ValueError):
        return None
    return 1


def _spark_cores(pyspark: ModuleType) -> int | None:
    try:
        context = pyspark.TaskContext.get()
        return None if context is None else max(1, context.cpus())
    except AttributeError:
        return None
