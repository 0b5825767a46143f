"""The content of a weights file to be written: equal tensors once, copied from mapped files without passing through memory.

A weights file identifies its model file. One without a format of its own ends in a trailer, which no tensor's offset reaches:
MAGIC, the digest of the weights, the digest of the model file. Digests of blocks are computed by threads while the blocks are
copied. The system copies between files in one call where the tensor is a view of a mapped file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import FormatError
from dovetail.ir.dtypes import DType
from dovetail.storage.mapped_files import region_of

Bytes: TypeAlias = NDArray[np.uint8]

DIGEST = 24
"""The bytes of a digest: the first ones of a SHA-256."""
MAGIC = b"dovetail pair 1\n"
TRAILER = len(MAGIC) + 2 * DIGEST
BLOCK = 32 << 20
"""The bytes that one thread hashes at a time."""
_FLUSH = 128 << 20
"""The bytes after which the disk starts to write."""
_SAMPLE = 256
_COPY = getattr(os, "copy_file_range", None)


class PairSignature(NamedTuple):
    """The digests in a weights file, in hex: of its content, and of the model file."""

    weights: str
    model: str


class Label(NamedTuple):
    """Name, element type and shape of a tensor in the model, for a container of named tensors."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class WeightsFile:
    """Tensors with their offsets in one file; tensors of equal bytes have one offset. ``alignment_of`` maps a size to bytes."""

    def __init__(self, alignment_of: Callable[[int], int]) -> None:
        self.size = 0
        self.parts: list[tuple[int, Bytes]] = []
        self._alignment_of = alignment_of
        self._known: dict[tuple[int, bytes, Any], list[_Known]] = {}

    def lay_out(self) -> None:
        """Choose the offsets of tensors where ``store`` has not."""

    def store(self, data: Bytes, label: Label) -> int:
        """Return the offset of ``data``, which must be contiguous and must not be empty."""
        known = self._known.setdefault((data.size, _sample(data), self._form_of(label)), [])
        candidate = _Known(data)
        for other in known:
            if candidate.equals(other):
                return other.offset
        candidate.offset = self._add(data, label)
        known.append(candidate)
        return candidate.offset

    def _form_of(self, label: Label) -> Any:
        """Return what must be equal beside the bytes for two tensors to be stored once."""
        return None

    def _add(self, data: Bytes, label: Label) -> int:
        alignment = self._alignment_of(data.size)
        offset = -(-self.size // alignment) * alignment
        self.parts.append((offset, data))
        self.size = offset + data.size
        return offset

    @contextmanager
    def hashing(self) -> Iterator[Callable[[], str]]:
        """Hash the content in threads while the block runs; it gets a function that waits for the digest, in hex."""
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
        """Write the content to the disk, with zero bytes between the tensors. Raises FormatError [file.changed]."""
        self._copy_parts(stream, 0)

    def write_to(self, stream: BinaryIO) -> None:
        """Write the content to a stream that is no file of a disk."""
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
            # A system reports an error of the disk once.
            flush.result()
        stream.flush()
        os.fsync(stream.fileno())

    def sign(self, stream: BinaryIO, signature: PairSignature) -> None:
        """Write the signature into the file that copy_to wrote."""
        stream.write(MAGIC + bytes.fromhex(signature.weights) + bytes.fromhex(signature.model))


def signature_in_trailer(data: Bytes) -> PairSignature | None:
    """Return the signature at the end of a weights file; None where it has none."""
    end = data[-TRAILER:].tobytes()
    if len(end) < TRAILER or not end.startswith(MAGIC):
        return None
    digests = end[len(MAGIC) :]
    return PairSignature(digests[:DIGEST].hex(), digests[DIGEST:].hex())


class _Known:
    """A stored tensor; its digest is computed where another one may be equal to it."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.offset = 0
        self._digest: bytes | None = None

    def equals(self, other: _Known) -> bool:
        return self.data is other.data or _address(self.data) == _address(other.data) or self.digest() == other.digest()

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = hashlib.sha256(self.data.data).digest()
        return self._digest


def contiguous_bytes(data: NDArray[Any]) -> Bytes:
    """Return the bytes of an array in row-major order: a view where it has that order, else a copy."""
    flat = np.ascontiguousarray(data).reshape(-1)
    return flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)


def copy_array(data: Bytes, stream: BinaryIO) -> None:
    """Write the bytes of a contiguous array. Raises FormatError [file.changed] where a mapped file became shorter."""
    region = region_of(data) if data.size >= BLOCK >> 5 and _COPY is not None else None
    if region is None or not _copy_region(region[0], region[1], data.size, stream):
        stream.write(data.data)


def _copy_region(source: int, offset: int, size: int, stream: BinaryIO) -> bool:
    """Copy a range of a file by the system; False where it cannot, and nothing was written."""
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
    """Return some of the bytes, in which different tensors usually differ."""
    middle = data.size // 2
    return data[:_SAMPLE].tobytes() + data[middle : middle + _SAMPLE].tobytes() + data[-_SAMPLE:].tobytes()


def _address(data: NDArray[Any]) -> int:
    return int(data.__array_interface__["data"][0])
