"""A model file and the side file of its weights: proof that one save wrote both, and reading that never mixes two saves.

The side file ends in a trailer that no tensor's offset reaches: MAGIC, the digest of the bytes before it, the digest of the
model file. The model file holds the first digest: ONNX in the metadata property ``dovetail.external_data``, IR in ``rt_info``
under ``dovetail/weights``. Digests are the first 24 bytes of SHA-256, so that equal models give equal bytes. Reading compares
the digests and hashes nothing. A side file without a trailer (of another tool) is taken as it is.

ONNX's own ``checksum`` is the SHA1 digest of the whole file, which nobody can verify without reading every weight. It is
verified where a file has it, and not written.

A save renames the side file first. Where the model file is then still the old one, its draft is on the disk, whole, and the
trailer names it by its digest: reading takes that draft. So a save that is killed between its two renames is completed by
whoever reads.
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
"""The content of a side file: zero bytes before, and bytes."""

MAGIC = b"dovetail pair 1\n"
DIGEST = 24
TRAILER = len(MAGIC) + 2 * DIGEST
PROPERTY = "dovetail.external_data"
"""The metadata property of an ONNX model that holds the digest of its side file."""
RT_INFO = ("dovetail", "weights")
"""Where the ``rt_info`` of an IR holds it."""
# Times that files are read anew while others write them: each takes a whole save of somebody else.
_ATTEMPTS = 32
_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""Seconds before a pair that was refused before is read once more."""


class Trailer(NamedTuple):
    """The digests at the end of a side file: of the weights before them, and of the model file, both as hex digits."""

    weights: str
    model: str


class Pair:
    """One reading of a model file with its side files. ``record`` is the digest that the model file holds, if any."""

    def __init__(self, file: str | None, record: str | None = None) -> None:
        self.file = file
        self.record = record
        self.torn: Trailer | None = None

    def check(self, name: str, data: files.Bytes) -> None:
        """Raises FormatError [file.pair] where ``data``, the whole side file ``name``, was written with another model file."""
        trailer = trailer_of(data)
        if trailer is None or trailer.weights == self.record:
            return
        self.torn = trailer
        holds = f"holds the digest {self.record}" if self.record else "holds no digest"
        what = f"{name!r} was saved with another model file: its digest is {trailer.weights}, and the model file {holds}"
        raise FormatError("file.pair", what, file=self.file)


def weights_digest(chunks: Chunks) -> str:
    """The digest of a side file's content."""
    found = hashlib.sha256()
    for gap, data in chunks:
        found.update(bytes(gap))
        found.update(data)
    return found.digest()[:DIGEST].hex()


def trailer(weights: str, model: bytes) -> bytes:
    """The end of a side file whose content has the digest ``weights``, for the model file ``model``."""
    return MAGIC + bytes.fromhex(weights) + bytes.fromhex(_digest(model))


def trailer_of(data: files.Bytes) -> Trailer | None:
    """The trailer of a side file; None where it has none."""
    if data.size < TRAILER:
        return None
    end = data[-TRAILER:].tobytes()
    if not end.startswith(MAGIC):
        return None
    digests = end[len(MAGIC) :]
    return Trailer(digests[:DIGEST].hex(), digests[DIGEST:].hex())


def write(path: str, model: bytes, side_path: str, chunks: Chunks, digest: str) -> None:
    """Write a model file, which holds ``digest``, and its side file; see :func:`dovetail.formats.drafts.replacing_all`."""
    with atomic_write.replacing_all([path, side_path]) as (main, side):
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
    """``attempt`` on the bytes of the model file, repeated on newer ones while its side file turns out to be of another save.

    Raises what ``attempt`` raises; [file.pair] where no model file that belongs to the side file can be had.
    """
    file = os.fspath(path)
    data = files.read_bytes(path, limit)
    interrupted: FormatError | None = None
    tried: set[tuple[str, Trailer]] = set()
    repeats = 0
    while True:
        pair = Pair(file)
        found = None if deviations is None else Deviations()
        try:
            model = attempt(data, pair, found)
        except DovetailError:
            if pair.torn is not None and len(tried) < _ATTEMPTS and repeats < len(_PAUSES):
                tried.add((_digest(data), pair.torn))
                newer, interrupted = _newer(path, limit, data, pair)
                if newer is None or (_digest(newer), pair.torn) in tried:
                    # Nobody writes, or saves of the same few models follow each other.
                    time.sleep(_PAUSES[repeats])
                    repeats += 1
                    newer, interrupted = files.read_bytes(path, limit), None
                data = newer
                continue
            if deviations is not None and found is not None:
                deviations.extend(found)
            raise
        if deviations is not None and found is not None:
            deviations.extend(found)
            if interrupted is not None:
                deviations.add(interrupted)
        elif interrupted is not None:
            raise interrupted
        return model


def _newer(path: files.StrPath, limit: int, data: bytes, pair: Pair) -> tuple[bytes | None, FormatError | None]:
    """The model file in place if it is newer than ``data``, else the draft that belongs to the side file, and the deviation."""
    assert pair.torn is not None
    for _ in range(2):
        again = files.read_bytes(path, limit)
        if again != data:
            return again, None
        for draft, is_alive in atomic_write.drafts_of(path, limit):
            if _digest(draft) == pair.torn.model:
                what = "a save was interrupted between its two files: its draft of the model file is read; save the model again"
                return draft, None if is_alive else FormatError("file.pair", what, file=pair.file)
        # A writer may have renamed its draft between the two looks.
    return None, None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).digest()[:DIGEST].hex()
