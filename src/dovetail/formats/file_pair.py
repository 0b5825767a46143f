"""A model file and its weights file: proof that one save wrote both, so that a read never mixes two saves.

The weights file ends in a trailer that no tensor's offset reaches: MAGIC, the digest of the bytes before it, the digest of the
model file. The model file contains the first digest: ONNX in the metadata property ``dovetail.external_data``, IR in
``rt_info`` under ``dovetail/weights``. Digests are the first 24 bytes of SHA-256, so that equal models give equal bytes. A read
compares the digests and hashes nothing. A weights file without a trailer (of another tool) is accepted.

ONNX's own ``checksum`` is the SHA1 digest of the whole file, which cannot be verified without reading every weight. It is
verified where a file has it, and not written.

A save renames the weights file first. If the save is killed before it renames the model file, its complete draft is on the
disk, and the trailer names the draft by its digest: the next read reads the draft.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from dovetail.errors import DovetailError, FormatError
from dovetail.formats import atomic_write, files
from dovetail.formats.deviations import Deviations

T = TypeVar("T")
Chunks: TypeAlias = Iterable[tuple[int, "bytes | memoryview"]]
"""The content of a weights file as (zero bytes before, bytes)."""

MAGIC = b"dovetail pair 1\n"
DIGEST = 24
TRAILER = len(MAGIC) + 2 * DIGEST
PROPERTY = "dovetail.external_data"
"""The metadata property of an ONNX model for the digest of its weights file."""
RT_INFO = ("dovetail", "weights")
"""The path of the digest in the ``rt_info`` of an IR."""
# Repeated reads while other processes save: each repetition takes a whole save.
_ATTEMPTS = 32
_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""Seconds to wait before a refused pair is read again."""


class Trailer(NamedTuple):
    """The digests in a trailer, in hex: of the weights before it, and of the model file."""

    weights: str
    model: str


class Pair:
    """One read of a model file with its weights files. ``record`` is the digest in the model file, if any."""

    def __init__(self, file: str | None, record: str | None = None) -> None:
        self.file = file
        self.record = record
        self.torn: Trailer | None = None

    def check(self, name: str, data: files.Bytes) -> None:
        """Raise FormatError [file.pair] where the whole weights file ``name`` was written with another model file."""
        trailer = trailer_of(data)
        if trailer is None or trailer.weights == self.record:
            return
        self.torn = trailer
        actual = f"has the digest {self.record}" if self.record else "has no digest"
        message = f"{name!r} was saved with another model file: its digest is {trailer.weights}, and the model file {actual}"
        raise FormatError("file.pair", message, file=self.file)


def weights_digest(chunks: Chunks) -> str:
    """Return the digest of a weights file's content."""
    digest = hashlib.sha256()
    for gap, data in chunks:
        digest.update(bytes(gap))
        digest.update(data)
    return digest.digest()[:DIGEST].hex()


def trailer(weights: str, model: bytes) -> bytes:
    """Return the trailer of a weights file with the digest ``weights``, for the model file ``model``."""
    return MAGIC + bytes.fromhex(weights) + bytes.fromhex(_digest(model))


def trailer_of(data: files.Bytes) -> Trailer | None:
    """Return the trailer of a weights file; None where it has none."""
    if data.size < TRAILER:
        return None
    end = data[-TRAILER:].tobytes()
    if not end.startswith(MAGIC):
        return None
    digests = end[len(MAGIC) :]
    return Trailer(digests[:DIGEST].hex(), digests[DIGEST:].hex())


def write(path: str, model: bytes, side_path: str, chunks: Chunks, digest: str) -> None:
    """Write a model file that contains ``digest``, and its weights file; see :func:`atomic_write.replace_files`."""
    with atomic_write.replace_files([path, side_path]) as (main, side):
        main.write(model)
        for gap, data in chunks:
            side.write(bytes(gap))
            side.write(data)
        side.write(trailer(digest, model))


def read(
    path: files.StrPath,
    limit: int,
    attempt: Callable[[bytes, Pair, Deviations | None], T],
    deviations: Deviations | None,
) -> T:
    """Call ``attempt`` on the bytes of the model file; repeat with newer bytes while the weights file is of another save.

    Raises what ``attempt`` raises, and [file.pair] where no model file belongs to the weights file.
    """
    file = os.fspath(path)
    data = files.read_bytes(path, limit)
    interrupted: FormatError | None = None
    tried: set[tuple[str, Trailer]] = set()
    repeats = 0
    while True:
        pair = Pair(file)
        new_deviations = None if deviations is None else Deviations()
        try:
            model = attempt(data, pair, new_deviations)
        except DovetailError:
            if pair.torn is not None and len(tried) < _ATTEMPTS and repeats < len(_PAUSES):
                tried.add((_digest(data), pair.torn))
                newer, interrupted = _newer(path, limit, data, pair)
                if newer is None or (_digest(newer), pair.torn) in tried:
                    # No process is writing, or saves of the same few models follow each other.
                    time.sleep(_PAUSES[repeats])
                    repeats += 1
                    newer, interrupted = files.read_bytes(path, limit), None
                data = newer
                continue
            if deviations is not None and new_deviations is not None:
                deviations.extend(new_deviations)
            raise
        if deviations is not None and new_deviations is not None:
            deviations.extend(new_deviations)
            if interrupted is not None:
                deviations.add(interrupted)
        elif interrupted is not None:
            raise interrupted
        return model


def _newer(path: files.StrPath, limit: int, data: bytes, pair: Pair) -> tuple[bytes | None, FormatError | None]:
    """Return the model file if it is newer than ``data``, else the draft of the weights file's save, and the deviation."""
    assert pair.torn is not None
    for _ in range(2):
        again = files.read_bytes(path, limit)
        if again != data:
            return again, None
        for draft, is_alive in atomic_write.drafts_of(path, limit):
            if _digest(draft) == pair.torn.model:
                message = (
                    "a save was interrupted between its two files: the draft of its model file is read; save the model again"
                )
                return draft, None if is_alive else FormatError("file.pair", message, file=pair.file)
        # A writer may have renamed its draft between the two reads.
    return None, None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).digest()[:DIGEST].hex()
