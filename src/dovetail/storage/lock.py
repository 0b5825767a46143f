"""The lock of an output folder: only one driver process at a time writes into the folder."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from dovetail.errors import EngineError
from dovetail.storage.atomic_write import lock_file

LOCK_NAME = "_lock"
HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
"""A driver on another host counts as dead when its last heartbeat is at least this many seconds old."""


class FolderLock:
    """FolderLock is a lock file that names the driver of a folder.

    The driver holds the file's flock while it lives, and touches the file every HEARTBEAT_SECONDS. Among processes of one kernel
    the flock decides: a new driver takes over the file of a dead driver at once. A shared file system may not propagate flock to
    other hosts, and Windows has no flock; there the file's age decides, by the clock of the file system.
    """

    def __init__(self, folder: str, token: str) -> None:
        self.path = os.path.join(folder, LOCK_NAME)
        self.token = token
        self._descriptor = -1
        self._touched = 0.0

    def __enter__(self) -> Self:
        while self._descriptor < 0:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            try:
                self._take(descriptor)
                # The former driver may have removed the file between its opening and its locking.
                if os.fstat(descriptor).st_nlink:
                    self._descriptor = descriptor
            finally:
                if self._descriptor < 0:
                    os.close(descriptor)
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "boot": boot_id(), "token": self.token}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        os.fsync(descriptor)
        self._touched = time.monotonic()
        return self

    def _take(self, descriptor: int) -> None:
        owner = _decode(os.pread(descriptor, 4096, 0))
        if not lock_file(descriptor):
            raise _lock_error(self.path, owner, "it is running")
        if owner and owner.get("boot") != boot_id():
            # The modification time of a newly created file gives the file system's clock.
            age = _clock_of(self.path) - os.fstat(descriptor).st_mtime
            if age < STALE_SECONDS:
                raise _lock_error(
                    self.path, owner, f"its last heartbeat is {max(age, 0):.0f} s old, and after {STALE_SECONDS:.0f} s"
                )

    def beat(self) -> None:
        """Touch the lock file as a heartbeat, at most once per HEARTBEAT_SECONDS."""
        if time.monotonic() - self._touched >= HEARTBEAT_SECONDS:
            self._touched = time.monotonic()
            with suppress(OSError):
                os.utime(self._descriptor if os.utime in os.supports_fd else self.path)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            os.unlink(self.path)
        os.close(self._descriptor)
        self._descriptor = -1


def token_in(folder: str) -> str | None:
    """Return the token of the driver that has locked ``folder``; None if there is no lock file."""
    with suppress(OSError), open(os.path.join(folder, LOCK_NAME), "rb") as stream:
        token = _decode(stream.read(4096)).get("token")
        return token if isinstance(token, str) else None
    return None


def boot_id() -> str:
    """Return an identifier of the running kernel; processes with equal identifiers see each other's flock."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()
    return socket.gethostname()


def _decode(data: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        owner: Any = json.loads(data)
        return owner if isinstance(owner, dict) else {}
    return {}


def _clock_of(path: str) -> float:
    probe = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    with open(probe, "xb"):
        pass
    try:
        return os.stat(probe).st_mtime
    finally:
        os.unlink(probe)


def _lock_error(path: str, owner: dict[str, Any], state: str) -> EngineError:
    name = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"
    end = " it counts as dead: start again then, or remove the file if it has ended" if "heartbeat" in state else ""
    return EngineError(
        "folder.locked", f"only one driver at a time may write into the folder; {name} has locked it: {state}{end}", file=path
    )
