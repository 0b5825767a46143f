"""A pause of the cyclic garbage collector during the creation of many objects that all stay alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.ir.host.forks import ForkLock, renew_in_child

START_PAUSES = 6
"""The number of pauses after which objects are moved to the oldest generation: the imports, the first load and compilation."""
OWN_FROZEN = 2000
"""More objects than Python itself freezes, some hundreds from 3.12 on; an application that freezes all its objects has more."""


class _Pauses:
    """_Pauses counts the pauses of all threads: the last one to end resumes the collection that the first one paused."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._count = self._ended = 0
        self._resumes = False
        renew_in_child(self)

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._resumes = gc.isenabled()
            self._count += 1
            gc.disable()

    def end(self) -> None:
        with self._lock:
            # The count is 0 in a child process that was forked inside the block.
            if self._count:
                self._count -= 1
                if not self._count and self._resumes:
                    self._ended += 1
                    # An application that froze objects keeps them frozen.
                    if self._ended <= START_PAUSES and gc.get_freeze_count() < OWN_FROZEN:
                        gc.freeze()
                        gc.unfreeze()
                    gc.enable()

    def renew(self) -> None:
        """Resume garbage collection in a forked child: the threads that paused it exist in the parent only."""
        if self._count and self._resumes:
            gc.enable()
        self._count = 0


_pauses = _Pauses()


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause cyclic garbage collection in the ``with`` block; resume it afterwards if it was enabled before.

    All objects of a graph under construction are alive, so that a collection frees nothing. Without the pause, collections took
    a quarter of the time to load densenet121. After the first pauses of a process, two collections would traverse them all to
    move them to the oldest generation; they are moved there at once. Later models stay young, so that one that is dropped is
    collected soon.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
