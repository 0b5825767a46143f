"""Codecs of zarr that are safe to decode, and upper bounds of the decoded size of chunks.

A codec of a file may execute code (pickle), and a chunk of a few bytes may decode to more than the memory. Therefore codecs must
be in a list of safe codecs, a chunk may have only one compressor, and the decoded size of a chunk is bounded before it is
decoded.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from dovetail.errors import FormatError, UnsupportedError

_COMPRESSORS = frozenset("blosc bz2 gzip lz4 lzma zlib zstd".split())
_FILTERS = frozenset("bitround bytes delta fixedscaleoffset packbits quantize shuffle transpose vlen-utf8".split())
_CHECKSUMS = frozenset(["crc32c"])
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK = 1 << 17
_STEP = 1 << 20
_SLACK = 1 << 26
"""Bytes that a chunk of any declared size may decode to."""


@dataclass(frozen=True, slots=True)
class ChunkCodecs:
    """ChunkCodecs holds the codecs of the chunks of one array."""

    compressor: str | None
    has_text: bool
    inner_chunks: int = 0
    """The number of chunks in a shard; 0 if the array has no shards."""

    def check(self, data: bytes, chunk_bytes: int, *, is_shard: bool) -> None:
        """Raise FormatError [file.size] if a chunk or shard would decode to far more than ``chunk_bytes``."""
        limit = 4 * chunk_bytes + _SLACK
        parts = _chunks_of_shard(data, self.inner_chunks) if is_shard and self.inner_chunks else [data]
        bound = _BOUNDS.get(self.compressor or "")
        total = 0
        for part in parts if bound is not None else ():
            total += bound(part, limit)  # type: ignore[misc]
            if total > limit:
                raise FormatError("file.size", f"a chunk must decode to {chunk_bytes} bytes, got more than {limit}")


def codecs_of(metadata: Mapping[str, Any], shape: tuple[int, ...]) -> ChunkCodecs:
    """Return the codecs of an array from its metadata; ``shape`` is the shape of a chunk or shard.

    Raises UnsupportedError [dataset.type] for codecs that are not in the list, and for a second compressor.
    """
    if metadata["zarr_format"] == 2:
        codecs = [*(metadata.get("filters") or ()), *filter(None, [metadata.get("compressor")])]
        return _chain([str(codec.get("id")) for codec in codecs])
    codecs = list(metadata["codecs"])
    names = [str(codec["name"]).removeprefix("numcodecs.") for codec in codecs]
    if "sharding_indexed" not in names:
        return _chain(names)
    if names != ["sharding_indexed"]:
        raise UnsupportedError("dataset.type", f"sharding_indexed must be the only codec of an array, got {', '.join(names)}")
    shards = codecs[0]["configuration"]
    index = [str(codec["name"]) for codec in shards.get("index_codecs", ())]
    if index != ["bytes", "crc32c"] or str(shards.get("index_location", "end")).rpartition(".")[2] != "end":
        raise UnsupportedError("dataset.type", "the index of a shard must be at its end, with the codecs bytes and crc32c")
    inner = _chain([str(codec["name"]).removeprefix("numcodecs.") for codec in shards["codecs"]])
    count = prod(outer // size for outer, size in zip(shape, shards["chunk_shape"], strict=True))
    return ChunkCodecs(inner.compressor, inner.has_text, count)


def _chain(names: list[str]) -> ChunkCodecs:
    unknown = [name for name in names if name not in _COMPRESSORS | _FILTERS | _CHECKSUMS]
    if unknown:
        known = ", ".join(sorted(_COMPRESSORS | _FILTERS | _CHECKSUMS))
        raise UnsupportedError("dataset.type", f"codecs must be among {known}, got {', '.join(unknown)}")
    compressors = [name for name in names if name in _COMPRESSORS]
    outer = [name for name in names if name not in _CHECKSUMS][-1:]
    if len(compressors) > 1 or (compressors and outer != compressors):
        raise UnsupportedError(
            "dataset.type", f"an array must have at most one compressor, its last codec, got {', '.join(names)}"
        )
    return ChunkCodecs(compressors[0] if compressors else None, "vlen-utf8" in names)


def _chunks_of_shard(data: bytes, count: int) -> list[bytes]:
    """Return the encoded chunks of a shard. Its index at the end has offset and size of each chunk (u64) and a u32 checksum."""
    start = len(data) - 16 * count - 4
    if start < 0:
        raise FormatError("dataset.unreadable", f"a shard of {count} chunks must have at least {16 * count + 4} bytes")
    numbers = [int.from_bytes(data[offset : offset + 8], "little") for offset in range(start, len(data) - 4, 8)]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [data[offset : offset + size] for offset, size in pairs if offset < len(data)]


def _blosc_size(data: bytes, limit: int) -> int:
    return int.from_bytes(data[4:8], "little")


def _lz4_size(data: bytes, limit: int) -> int:
    return int.from_bytes(data[:4], "little")


def _inflated_size(data: bytes, limit: int) -> int:
    # The compression ratio of deflate is at most 1032.
    return 1032 * len(data) if 1032 * len(data) <= limit else _streamed_size(lambda: zlib.decompressobj(47), data, limit)


def _bz2_size(data: bytes, limit: int) -> int:
    return _streamed_size(bz2.BZ2Decompressor, data, limit)


def _lzma_size(data: bytes, limit: int) -> int:
    return _streamed_size(lzma.LZMADecompressor, data, limit)


def _streamed_size(start: Callable[[], Any], data: bytes, limit: int) -> int:
    """Decompress in steps, and count the bytes up to ``limit``. The count ends at damaged data, which cannot be decoded."""
    total = 0
    while data and total <= limit:
        decompressor = start()
        rest = data
        try:
            while not decompressor.eof and total <= limit:
                step = len(decompressor.decompress(rest, _STEP))
                rest = getattr(decompressor, "unconsumed_tail", b"")
                total += step
                if not step and not rest:
                    break
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            break
        data = decompressor.unused_data
    return total


def _zstd_size(data: bytes, limit: int) -> int:
    """Return an upper bound of the decoded size: a sum over all frames.

    The addend of a frame is its declared size, or else the sum of the maximum sizes of its blocks.
    """
    total = offset = 0
    while data[offset : offset + 4] == _ZSTD_FRAME and total <= limit:
        flags = data[offset + 4] if offset + 4 < len(data) else 0
        is_single = flags >> 5 & 1
        offset += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
        size_bytes = (is_single, 2, 4, 8)[flags >> 6]
        declared = int.from_bytes(data[offset : offset + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        offset += size_bytes
        held = 0
        is_last = False
        while not is_last and offset + 3 <= len(data) and held <= limit:
            header = int.from_bytes(data[offset : offset + 3], "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            held += _ZSTD_BLOCK if kind == 2 else size
            offset += 3 + (1 if kind == 1 else size)
        offset += 4 * (flags >> 2 & 1)
        total += declared if size_bytes else held
    return total


_BOUNDS: dict[str, Callable[[bytes, int], int]] = {
    "blosc": _blosc_size,
    "lz4": _lz4_size,
    "gzip": _inflated_size,
    "zlib": _inflated_size,
    "bz2": _bz2_size,
    "lzma": _lzma_size,
    "zstd": _zstd_size,
}
