"""The process of a local worker: it reads calls of a PartRunner as pickles from stdin, and writes results to stdout."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dovetail.data.rows.part_runner import Failure, PartRunner, call_runner
from dovetail.data.rows.scheduler import IN_FLIGHT
from dovetail.errors import EngineError


def main() -> None:
    """Run calls until stdin ends, which it does when the driver ends; unfinished parts are then discarded."""
    calls = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    # Output that a library prints must not be mixed with the results.
    os.dup2(2, 1)
    is_writing = threading.Lock()

    def answer(call: tuple[Any, ...], result: Any) -> None:
        with is_writing:
            pickle.dump((call, result), results)
            results.flush()

    runner = PartRunner(pickle.load(calls))
    answer(("start",), call_runner(runner, "start"))
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        while True:
            try:
                call = pickle.load(calls)
            except (EOFError, OSError, pickle.UnpicklingError):
                os._exit(0)
            threads.submit(_run, runner, call, answer)


def _run(runner: PartRunner, call: tuple[Any, ...], answer: Any) -> None:
    try:
        answer(call, call_runner(runner, *call))
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        # The result cannot be pickled.
        answer(call, Failure(EngineError("job.part", f"worker {runner.host} cannot answer {call[0]}: {error}")))
