"""A read-only store of zarr over the files of a dataset, which are opened without leaving its folder.

This module imports zarr, an optional package; ``zarr_arrays`` imports it when a dataset is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from dovetail.batch.dataset_files import DataFile, DataFolder
from dovetail.errors import FormatError

MAX_METADATA_BYTES = 1 << 24


class DatasetStore(Store):  # type: ignore[misc, unused-ignore]
    """The files of ``folder`` as keys. ``chunk_bytes`` has the bytes of a decoded chunk by the prefix of its array."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, folder: DataFolder) -> None:
        super().__init__(read_only=True)
        self._folder = folder
        self._files: dict[str, DataFile] = {file.name: file for file in folder.files}
        self.chunk_bytes: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetStore) and other._folder == self._folder

    def _check_size(self, key: str, size: int) -> None:
        """Raise FormatError [dataset.size] for a file that is too long for what it holds."""
        prefix = next((prefix for prefix in self.chunk_bytes if key.startswith(prefix)), None)
        is_metadata = key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
        # Incompressible data grows by headers and, in a shard, by the index of its chunks.
        limit = MAX_METADATA_BYTES if is_metadata or prefix is None else 2 * self.chunk_bytes[prefix] + (1 << 20)
        if size > limit:
            raise FormatError("dataset.size", f"the file must have at most {limit} bytes, got {size}", file=key)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        file = self._files.get(key)
        if file is None:
            return None
        self._check_size(key, file.size)
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
            return prototype.buffer.from_bytes(stream.read(max(stop - start, 0)))

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
