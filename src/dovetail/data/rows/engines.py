"""The engines of a job: worker processes of this host, a Ray cluster, or a Dask cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import EngineError
from dovetail.ir.host.threads import thread_count

if TYPE_CHECKING:
    from dovetail.data.rows.job import Job
    from dovetail.data.rows.scheduler import WorkerPool

ENGINES = ("local", "ray", "dask")


@dataclass(frozen=True)
class EngineOptions:
    """EngineOptions holds the name of an engine and the options of its workers. Raises EngineError [argument.value]."""

    name: str
    address: str | None = None
    """The address of a cluster; if it is None, a cluster is started on this host."""
    workers: int | None = None
    """The number of workers; None means one for each core of this host, or all workers of the cluster at ``address``."""
    threads: int | None = None
    """The number of threads of a worker; None means 1, or with Dask the number of threads of the Dask worker."""

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise EngineError("argument.value", f"engine must be one of {', '.join(ENGINES)}, got {self.name!r}")
        for name, count in (("workers", self.workers), ("threads", self.threads)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise EngineError("argument.value", f"{name} must be an integer of at least 1, got {count!r}")
        if self.name == "local" and self.address is not None:
            raise EngineError("argument.value", "address needs the engine ray or dask, got 'local'")

    def start_pool(self, job: Job) -> WorkerPool:
        """Start or join the workers. Raises EngineError [job.address], UnsupportedError [extra.missing]."""
        threads = self.threads or 1
        local = self.workers or max(thread_count(None) // threads, 1)
        # Deferred imports: only the selected engine's package is imported.
        if self.name == "local":
            from dovetail.data.rows.local_pool import LocalPool

            return LocalPool(job, local, threads)
        workers = self.workers if self.address is not None else local
        if self.name == "ray":
            from dovetail.data.rows.ray_pool import RayPool

            return RayPool(job, self.address, workers, threads)
        from dovetail.data.rows.dask_pool import DaskPool

        return DaskPool(job, self.address, workers, self.threads)
