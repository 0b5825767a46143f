"""Profiles of a session: ``SessionOptions.enable_profiling`` and ``InferenceSession.end_profiling``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from dovetail.ir.graph import Model


class Profiler:
    """Profiler keeps the inputs of the last run, and profiles the model on them at the end."""

    def __init__(self, prefix: str) -> None:
        self.start = time.monotonic_ns()
        self._prefix = prefix
        self._last: tuple[Model, dict[str, Any]] | None = None

    def record(self, model: Model, inputs: Mapping[str, Any]) -> None:
        self._last = model, dict(inputs)

    def write(self, threads: int) -> str:
        """Write the events of a profile to a new file, and return its path; the list of events is empty without a run."""
        # Deferred for start-up time.
        from dovetail.measure.model_profile import profile

        events: list[Any] = []
        if self._last is not None:
            model, inputs = self._last
            trace = profile(model, inputs, threads=threads if threads > 0 else None, runs=1).trace()
            events = json.loads(trace)["traceEvents"]
        path = f"{self._prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.getpid()}.json"
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(events, stream)
        return path
