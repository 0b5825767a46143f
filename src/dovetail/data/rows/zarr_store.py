"""A read-only zarr store over the files of a dataset, which are opened without leaving the dataset's folder.

This module imports zarr, an optional package; ``zarr_arrays`` imports it when a dataset is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.zarr_codecs import ChunkCodecs
from dovetail.errors import FormatError

MAX_METADATA_BYTES = 1 << 24


class DatasetStore(Store):  # type: ignore[misc, unused-ignore]
    """DatasetStore is a zarr store whose keys are the files of ``folder``.

    ``chunks`` maps the key prefix of an array to the codecs and the decoded bytes of its chunks.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, folder: DataFolder) -> None:
        super().__init__(read_only=True)
        self._folder = folder
        self._files: dict[str, DataFile] = {file.name: file for file in folder.files}
        self.chunks: dict[str, tuple[ChunkCodecs, int]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetStore) and other._folder == self._folder

    def _chunk_of(self, key: str) -> tuple[ChunkCodecs, int] | None:
        """Return the codecs and the decoded bytes of a chunk by its key; None for metadata."""
        if key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"):
            return None
        return next((chunk for prefix, chunk in self.chunks.items() if key.startswith(prefix)), None)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        file = self._files.get(key)
        if file is None:
            return None
        chunk = self._chunk_of(key)
        # The size of incompressible data increases by headers and, in a shard, by the index of its chunks.
        limit = MAX_METADATA_BYTES if chunk is None else 2 * chunk[1] + (1 << 20)
        if file.size > limit:
            raise FormatError("file.size", f"the file must have at most {limit} bytes, got {file.size}", file=key)
        start, stop = 0, file.size
        if isinstance(byte_range, RangeByteRequest):
            start, stop = byte_range.start, byte_range.end
        elif isinstance(byte_range, OffsetByteRequest):
            start = byte_range.offset
        elif isinstance(byte_range, SuffixByteRequest):
            start = max(0, file.size - byte_range.suffix)
        stop = min(stop, file.size)
        with self._folder.open(file) as stream:
            stream.seek(max(start, 0))
            data = stream.read(max(stop - start, 0))
        self._folder.check(file)
        # A byte range is one chunk of a shard; a suffix is the index of a shard, which is not compressed.
        if chunk is not None and not isinstance(byte_range, SuffixByteRequest):
            chunk[0].check(data, chunk[1], is_shard=byte_range is None)
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self._files

    async def set(self, key: str, value: Any) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        for name in self._files:
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in self._files:
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        for name in dict.fromkeys(name[len(start) :].partition("/")[0] for name in self._files if name.startswith(start)):
            yield name
