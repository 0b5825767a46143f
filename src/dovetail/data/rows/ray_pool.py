"""Workers in a Ray cluster: each worker is an actor."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Hashable
from contextlib import suppress
from types import ModuleType
from typing import Any

from dovetail.data.rows.job import Job
from dovetail.data.rows.part_runner import Failure, PartRunner, call_runner
from dovetail.data.rows.scheduler import IN_FLIGHT, Event
from dovetail.errors import EngineError
from dovetail.ir.host.extras import import_extra

START_SECONDS = 120.0
"""Seconds within which a cluster must start the first worker."""
CONNECT_SECONDS = 10.0
OBJECT_STORE_BYTES = 100 << 20
"""The shared memory of a local cluster in bytes; the results of parts take only a few bytes."""


class RayPool:
    """RayPool is a pool of actors in the cluster at ``address``, or in a cluster started on this host.

    An actor has IN_FLIGHT threads and occupies ``threads`` processors. The default of ``workers`` is the number of actors that
    fit the processors of the cluster. A lost actor is replaced by a new actor on any node with free processors.
    """

    def __init__(self, job: Job, address: str | None, workers: int | None, threads: int) -> None:
        self._ray = ray = import_extra("ray", "ray", "the engine ray")
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            _connect(ray, address, (workers or 1) * threads)
        self._calls: dict[Any, tuple[Hashable, tuple[Any, ...]]] = {}
        self._actors: dict[Hashable, Any] = {}
        self._count = 0
        self._deadline = time.monotonic() + START_SECONDS
        try:
            self._job = ray.put(job)
            self._actor = ray.remote(_Worker).options(
                num_cpus=threads, max_concurrency=IN_FLIGHT, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
            )
            for _ in range(workers or max(int(ray.cluster_resources().get("CPU", 1)) // threads, 1)):
                self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._count += 1
        self._actors[self._count] = self._actor.remote(self._job)
        self._submit(self._count, ("start",))

    @property
    def size(self) -> int:
        return len(self._actors)

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        if worker in self._actors:
            self._submit(worker, call)

    def _submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        self._calls[self._actors[worker].call.remote(*call)] = (worker, call)

    def wait(self, seconds: float) -> list[Event]:
        ray = self._ray
        references = list(self._calls)
        ready, _ = ray.wait(references, num_returns=1, timeout=seconds)
        if len(ready) < len(references):
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        events: list[Event] = []
        for reference in ready:
            if reference in self._calls:
                events += self._event_of(reference)
        if self._deadline and not events and time.monotonic() > self._deadline:
            message = f"a worker must start within {START_SECONDS:.0f} s, but the Ray cluster has no free processors"
            raise EngineError("job.worker", message)
        return events

    def _event_of(self, reference: object) -> list[Event]:
        worker, call = self._calls.pop(reference)
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            return self._lose(worker, str(error).strip().splitlines()[0])
        except self._ray.exceptions.RayError as error:
            text = str(error).strip().splitlines()[-1]
            return [Event("done", worker, call, Failure(EngineError("job.worker", f"a Ray worker cannot run a call: {text}")))]
        is_start = call == ("start",) and not isinstance(result, Failure)
        if is_start:
            self._deadline = 0.0
        return [Event("started" if is_start else "done", worker, call, result)]

    def _lose(self, worker: Hashable, reason: str) -> list[Event]:
        """Remove a lost actor and its calls, and start a new actor."""
        for reference in [reference for reference, (owner, _) in self._calls.items() if owner == worker]:
            del self._calls[reference]
        self._actors.pop(worker, None)
        self._start()
        return [Event("lost", worker, (), reason)]

    def close(self) -> None:
        for actor in self._actors.values():
            with suppress(Exception):
                self._ray.kill(actor)
        self._actors.clear()
        self._calls.clear()
        if self._owns_cluster:
            self._ray.shutdown()


class _Worker:
    """_Worker is the actor, which holds a PartRunner."""

    def __init__(self, job: Job) -> None:
        self._runner = PartRunner(job)

    def call(self, method: str, *arguments: object) -> Any:
        return call_runner(self._runner, method, *arguments)


def _connect(ray: ModuleType, address: str | None, processors: int) -> None:
    """Join the cluster at ``address``, or start one on this host, without a dashboard and without usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        local = {"num_cpus": processors, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        # "local" starts a cluster even if the variable RAY_ADDRESS or a file of this host names another cluster.
        options |= {"address": "local", **local}
    else:
        options["address"] = address
    place = "on this host" if address is None else f"at {address}"
    try:
        _check_port(address or "")
        ray.init(**options)
    except (ray.exceptions.RayError, ValueError, RuntimeError, OSError) as error:
        raise EngineError("job.address", f"a Ray cluster must be reachable {place}: {error}") from error


def _check_port(address: str) -> None:
    """Connect to ``[ray://]HOST:PORT`` once to fail early, because Ray retries for minutes. Raises OSError."""
    host, mark, port = address.removeprefix("ray://").rpartition(":")
    if mark and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
