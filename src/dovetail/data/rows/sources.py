"""The choice of the source for the kind of a dataset."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from dovetail.data.rows import image_files, npz_files, numpy_files, parquet_files, zarr_arrays
from dovetail.data.rows.dataset import Source
from dovetail.data.rows.dataset_files import DataFolder, file_names
from dovetail.errors import EngineError, FormatError, UnsupportedError
from dovetail.storage.files import StrPath

_SUFFIXES = {
    **dict.fromkeys(parquet_files.SUFFIXES, "parquet"),
    numpy_files.SUFFIX: "npy",
    npz_files.SUFFIX: "npz",
    **dict.fromkeys(image_files.SUFFIXES, "images"),
}


def open_source(
    path: StrPath,
    columns: Sequence[str] | None = None,
    *,
    keep: Sequence[str] = (),
    images: image_files.ImageOptions | None = None,
) -> Source:
    """Open the dataset at ``path``, a file or a folder. ``columns`` are the columns for the model (None: all columns).

    ``keep`` lists columns that are passed through; ``images`` is the conversion of pixels to a model's input. Raises FormatError
    and EngineError [dataset.*]; one error lists all files that cannot be read or that differ from the first file.
    """
    kind = kind_of(path)
    if kind == "images":
        return image_files.ImageSource(path, columns, keep, images)
    if images is not None:
        raise EngineError("dataset.image", f"image options need a dataset of images, got {kind}")
    if kind == "parquet":
        return parquet_files.ParquetSource(path, columns, keep)
    if kind == "zarr":
        return zarr_arrays.ZarrSource(path, columns, keep)
    if kind == "npz":
        return npz_files.NpzSource(path, columns, keep)
    return numpy_files.NpySource(path, columns, keep)


def kind_of(path: StrPath) -> str:
    """Return the kind of the dataset at ``path``: parquet, npy, npz, zarr or images.

    Files with unknown suffixes are ignored. Raises MissingFileError [file.missing]; UnsupportedError [dataset.kind] if no file
    is of a known kind; FormatError [dataset.kind] for files of several kinds.
    """
    if os.path.isdir(path) and zarr_arrays.is_zarr(path):
        return "zarr"
    suffixes = [os.path.splitext(name)[1].lower() for name in file_names(path)]
    kinds = Counter(_SUFFIXES[suffix] for suffix in suffixes if suffix in _SUFFIXES)
    if not kinds:
        # scan raises the errors of folders that cannot be listed, which are more helpful than the error below.
        DataFolder.scan(path)
        message = f"a dataset must have files with one of the suffixes {', '.join(_SUFFIXES)}, or be a zarr array or group"
        raise UnsupportedError("dataset.kind", message, file=os.fspath(path))
    if len(kinds) > 1:
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        raise FormatError("dataset.kind", f"the files of a dataset must be of one kind, got {counts}", file=os.fspath(path))
    return kinds.most_common(1)[0][0]
