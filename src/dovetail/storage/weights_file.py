"""The content of a weights file to be written; equal tensors are stored once.

A weights file identifies its model file. A raw weights file ends in a trailer behind all tensors: MAGIC, the digest of the
weights, the digest of the model file. Threads compute the digests of blocks while the blocks are copied. Tensors that are views
of a mapped file are copied from file to file by the system (copy_file_range), without passing through memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import FormatError
from dovetail.ir.dtypes import DType
from dovetail.storage.mapped_files import address_of, region_of

Bytes: TypeAlias = NDArray[np.uint8]

DIGEST = 24
"""The size of a digest in bytes: a SHA-256 is truncated to this many bytes."""
MAGIC = b"dovetail pair 1\n"
TRAILER = len(MAGIC) + 2 * DIGEST
BLOCK = 32 << 20
"""The block size of hashing in bytes; one thread hashes one block at a time."""
_FLUSH = 128 << 20
"""The number of bytes written to a file before an fsync starts in the background."""
_SAMPLE = 256
_COPY = getattr(os, "copy_file_range", None)


class PairSignature(NamedTuple):
    """PairSignature holds the two hex digests in a weights file: those of the weights and of the model file."""

    weights: str
    model: str


class Label(NamedTuple):
    """Label is the name, element type and shape of a tensor, for weights files that store named tensors."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class WeightsFile:
    """WeightsFile collects tensors and their offsets in one file; tensors of equal bytes have one offset.

    ``alignment_of(size)`` returns the alignment, in bytes, of a tensor of ``size`` bytes.
    """

    def __init__(self, alignment_of: Callable[[int], int]) -> None:
        self.size = 0
        self.parts: list[tuple[int, Bytes]] = []
        self._alignment_of = alignment_of
        self._known: dict[tuple[int, bytes, Any], list[_Known]] = {}

    def lay_out(self) -> None:
        """Choose the offsets of the tensors. Only subclasses whose ``store`` does not choose them override this method."""

    def store(self, data: Bytes, label: Label) -> int:
        """Add a tensor unless an equal one is stored, and return its offset; ``data`` must be contiguous and not empty."""
        known = self._known.setdefault((data.size, _sample(data), self._form_of(label)), [])
        candidate = _Known(data)
        for other in known:
            if candidate.equals(other):
                return other.offset
        candidate.offset = self._add(data, label)
        known.append(candidate)
        return candidate.offset

    def _form_of(self, label: Label) -> Any:
        """Return the part of ``label`` that must be equal, in addition to the bytes, for two tensors to be stored once."""
        return None

    def _add(self, data: Bytes, label: Label) -> int:
        alignment = self._alignment_of(data.size)
        offset = -(-self.size // alignment) * alignment
        self.parts.append((offset, data))
        self.size = offset + data.size
        return offset

    @contextmanager
    def hashing(self) -> Iterator[Callable[[], str]]:
        """Hash the content in threads during the ``with`` block. Yields a function that waits for and returns the hex digest."""
        # Deferred for start-up time.
        import hashlib
        from concurrent.futures import ThreadPoolExecutor

        blocks = [
            (offset + start, data[start : start + BLOCK]) for offset, data in self.parts for start in range(0, data.size, BLOCK)
        ]
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(blocks) or 1)) as pool:
            digests = pool.map(lambda block: hashlib.sha256(block[1].data).digest(), blocks)

            def wait() -> str:
                whole = hashlib.sha256()
                for (offset, data), digest in zip(blocks, digests, strict=True):
                    whole.update(offset.to_bytes(8, "little") + data.size.to_bytes(8, "little") + digest)
                return whole.digest()[:DIGEST].hex()

            try:
                yield wait
            finally:
                pool.shutdown(cancel_futures=True)

    def copy_to(self, stream: BinaryIO) -> None:
        """Write the tensors and the zero padding between them to a file, and fsync it. Raises FormatError [file.changed]."""
        self._copy_parts(stream, 0)

    def write_to(self, stream: BinaryIO) -> None:
        """Write the tensors and the zero padding between them to a stream that need not be a file."""
        end = 0
        for offset, data in self.parts:
            stream.write(bytes(offset - end))
            stream.write(data.data)
            end = offset + data.size

    def _copy_parts(self, stream: BinaryIO, end: int) -> None:
        from concurrent.futures import Future, ThreadPoolExecutor

        flushes: list[Future[None]] = []
        pending = 0
        with ThreadPoolExecutor(1) as disk:
            for offset, data in self.parts:
                stream.write(bytes(offset - end))
                copy_array(data, stream)
                pending += data.size
                end = offset + data.size
                if pending > _FLUSH and (not flushes or flushes[-1].done()):
                    # The disk writes while the next tensors are copied.
                    stream.flush()
                    flushes.append(disk.submit(os.fsync, stream.fileno()))
                    pending = 0
        for flush in flushes:
            # The system reports a disk error to one fsync only: the result of every background fsync is checked.
            flush.result()
        stream.flush()
        os.fsync(stream.fileno())

    def sign(self, stream: BinaryIO, signature: PairSignature) -> None:
        """Write the signature to ``stream``, the file that ``copy_to`` wrote."""
        stream.write(MAGIC + bytes.fromhex(signature.weights) + bytes.fromhex(signature.model))


def signature_in_trailer(data: Bytes) -> PairSignature | None:
    """Return the signature in the trailer of a weights file; None for a file without a trailer."""
    end = data[-TRAILER:].tobytes()
    if len(end) < TRAILER or not end.startswith(MAGIC):
        return None
    digests = end[len(MAGIC) :]
    return PairSignature(digests[:DIGEST].hex(), digests[DIGEST:].hex())


class _Known:
    """_Known is a stored tensor, whose digest is computed only for a comparison with another tensor."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.offset = 0
        self._digest: bytes | None = None

    def equals(self, other: _Known) -> bool:
        return self.data is other.data or address_of(self.data) == address_of(other.data) or self.digest() == other.digest()

    def digest(self) -> bytes:
        if self._digest is None:
            # Deferred for start-up time.
            import hashlib

            self._digest = hashlib.sha256(self.data.data).digest()
        return self._digest


def contiguous_bytes(data: NDArray[Any]) -> Bytes:
    """Return the bytes of an array in row-major order: a view if the array is contiguous in that order, else a copy."""
    flat = np.ascontiguousarray(data).reshape(-1)
    return flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)


def copy_array(data: Bytes, stream: BinaryIO) -> None:
    """Write the bytes of a contiguous array. Raises FormatError [file.changed] if a mapped file became shorter."""
    region = region_of(data) if data.size >= BLOCK >> 5 and _COPY is not None else None
    if region is None or not _copy_region(region[0], region[1], data.size, stream):
        stream.write(data.data)


def _copy_region(source: int, offset: int, size: int, stream: BinaryIO) -> bool:
    """Copy a range of a file with copy_file_range; return False, with nothing written, if the system cannot copy it."""
    try:
        stream.flush()
        target = stream.fileno()
    except (OSError, ValueError):
        return False
    done = 0
    while done < size:
        try:
            count = _COPY(source, target, size - done, offset_src=offset + done)  # type: ignore[misc]
        except OSError:
            if done:
                raise
            return False
        if not count:
            raise FormatError("file.changed", f"the weights file became {size - done} bytes shorter while it was copied")
        done += count
    return True


def _sample(data: Bytes) -> bytes:
    """Return up to 3 * _SAMPLE bytes from begin, middle and end of ``data``; different tensors usually differ in them."""
    middle = data.size // 2
    return data[:_SAMPLE].tobytes() + data[middle : middle + _SAMPLE].tobytes() + data[-_SAMPLE:].tobytes()
