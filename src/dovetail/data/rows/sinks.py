"""The choice of the sink for the format of a folder of results."""

from __future__ import annotations

from dovetail.data.rows.image_files import ImageSink
from dovetail.data.rows.npz_files import NpzSink
from dovetail.data.rows.numpy_files import NpySink
from dovetail.data.rows.parquet_files import ParquetSink
from dovetail.data.rows.part_files import Sink
from dovetail.data.rows.zarr_arrays import ZarrSink
from dovetail.errors import EngineError
from dovetail.storage.files import StrPath

_SINKS: dict[str, type[Sink]] = {"parquet": ParquetSink, "npy": NpySink, "npz": NpzSink, "zarr": ZarrSink, "images": ImageSink}
FORMATS: tuple[str, ...] = tuple(_SINKS)
"""The formats of results."""


def open_sink(folder: StrPath, format: str, *, rows: int, part_rows: int) -> Sink:
    """Return the sink of a job with ``rows`` rows in parts of ``part_rows``. The sink accesses no file before ``prepare``.

    Raises EngineError [argument.value] for an unknown format.
    """
    if format not in _SINKS:
        raise EngineError("argument.value", f"the format must be one of {', '.join(FORMATS)}, got {format!r}")
    return _SINKS[format](folder, rows, part_rows)


def default_format(kind: str) -> str:
    """Return the default format of results: the format of the dataset, but parquet for images."""
    return kind if kind in _SINKS and kind != "images" else "parquet"
