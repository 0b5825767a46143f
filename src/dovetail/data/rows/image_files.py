"""Images: reading a folder of images as rows of pixels, and writing u8 results as PNG.

Pillow decodes images to RGB, u8, [H, W, 3]. Of an animation the first frame is read, transparency is dropped, and the EXIF
orientation is not applied. Images are resized and scaled only by ``ImageOptions``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.arrow_columns import arrow_rows
from dovetail.data.rows.dataset import Source, fingerprint_of
from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.part_files import Sink, file_name_of, name_errors, part_name
from dovetail.data.rows.rows import RowBlock, RowFault, RowValues, check_range
from dovetail.errors import DovetailError, EngineError, FormatError, first_line
from dovetail.ir.host.extras import import_extra
from dovetail.storage.files import StrPath, check_location

IMAGE = "image"
FILE = "file"
"""The columns of an image dataset: the pixels, and the name of the file."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
MAX_PIXELS = 89_478_485
"""The maximum number of pixels of an image: Pillow's limit, above which it assumes a decompression bomb."""
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "La", "RGBa")
"""Pillow's modes with at most 8 bits per channel; conversion of other modes (16 bits, floats) would lose information."""
PillowImage: TypeAlias = Any
"""An image of Pillow, which is an optional package."""
_INDEX = "_rows"
_WRITERS = 8
_CHANNELS = (3, 4)
RESIZE_MODES = ("stretch", "letterbox", "center_crop")
LETTERBOX_COLOR = (114, 114, 114)
"""The color of the border of a letterboxed image, as in ultralytics."""


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """ImageOptions holds the conversion of u8 pixels to a model's input: ``(pixel * scale - mean) / std``, per channel, in f32.

    Without scale, mean and std the values are the u8 pixels. ``size`` is the (height, width) to resize to with Pillow's bilinear
    filter; None means no resizing. ``mode`` is one of:

    - "stretch": both sides are resized to ``size``
    - "letterbox": both sides are multiplied by min(height / h, width / w) and rounded, and the image is centered on a border of
      the color 114; the left and the upper border are narrower by one pixel where the borders cannot be equal
    - "center_crop": the shorter side is resized to ``resize_size`` and the longer side in proportion, rounded down; the center
      is cut out, from ``round((side - size) / 2)`` on. By default the resized image is the smallest that covers ``size``

    Sources: Resize and CenterCrop of torchvision, LetterBox of ultralytics. Raises EngineError [dataset.image].
    """

    size: tuple[int, int] | None = None
    layout: str = "NHWC"
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    mode: str = "stretch"
    resize_size: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in RESIZE_MODES:
            raise EngineError("dataset.image", f"image_resize must be one of {', '.join(RESIZE_MODES)}, got {self.mode!r}")
        if self.resize_size is not None and (self.mode != "center_crop" or self.size is None):
            raise EngineError("dataset.image", "image_resize_size, the shorter side before the crop, needs center_crop")
        if self.resize_size is not None and self.size is not None and self.resize_size < max(self.size):
            text = f"image_resize_size must be at least {max(self.size)}, the longer side of the crop, got {self.resize_size}"
            raise EngineError("dataset.image", text)
        if self.layout not in ("NHWC", "NCHW"):
            raise EngineError("dataset.image", f"the layout must be NHWC or NCHW, got {self.layout!r}")
        if self.size is not None and (min(self.size) < 1 or self.size[0] * self.size[1] > MAX_PIXELS):
            raise EngineError("dataset.image", f"the size must have 1 to {MAX_PIXELS} pixels, got {self.size}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and len(values) not in (1, 3):
                raise EngineError("dataset.image", f"{name} must have 1 or 3 numbers, got {len(values)}")
        if not np.isfinite([self.scale or 0.0, *(self.mean or ()), *(self.std or ())]).all() or 0 in (self.std or ()):
            raise EngineError("dataset.image", "scale, mean and std must be finite, and std must not be 0")

    @classmethod
    def for_shape(
        cls,
        shape: Sequence[int | str | None],
        *,
        resize: bool | str = False,
        resize_size: int | None = None,
        scale: float | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> ImageOptions:
        """Return the options for a model's input of ``shape``, including the batch axis: [N, 3, H, W] or [N, H, W, 3].

        ``resize``: resize images to the height and width of the input, which must be fixed; True is "stretch". Raises EngineError
        [dataset.image] for other shapes.
        """
        is_last, is_first = len(shape) == 4 and shape[3] == 3, len(shape) == 4 and shape[1] == 3
        if is_last == is_first:
            reason = "which fits both" if is_last else "which fits neither"
            text = ", ".join(map(str, shape))
            message = f"an input for images must have the shape [N, 3, H, W] or [N, H, W, 3], got [{text}], {reason}"
            raise EngineError("dataset.image", message)
        size = None
        if resize is not False:
            height, width = shape[1:3] if is_last else shape[2:4]
            if not isinstance(height, int) or not isinstance(width, int):
                raise EngineError("dataset.image", f"the model's height and width must be fixed, got {height} and {width}")
            size = height, width
        layout = "NHWC" if is_last else "NCHW"
        mode = "stretch" if isinstance(resize, bool) else resize
        means, stds = (None if numbers is None else tuple(numbers) for numbers in (mean, std))
        return cls(size, layout, scale, means, stds, mode, resize_size)

    def convert(self, image: PillowImage) -> NDArray[Any]:
        """Convert a Pillow image in RGB to the array of one row. Raises FormatError [dataset.image]."""
        if self.size is not None:
            image = self._resize(image, *self.size)
        pixels: NDArray[Any] = np.asarray(image)
        if (self.scale, self.mean, self.std) != (None, None, None):
            pixels = pixels.astype(np.float32) * np.float32(1 if self.scale is None else self.scale)
            if self.mean is not None:
                pixels = pixels - np.asarray(self.mean, np.float32)
            if self.std is not None:
                pixels = pixels / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1) if self.layout == "NCHW" else pixels)

    def _resize(self, image: PillowImage, height: int, width: int) -> Any:
        if self.mode == "letterbox":
            scale = min(height / image.height, width / image.width)
            sides = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            canvas = _pillow("PIL.Image").new("RGB", (width, height), LETTERBOX_COLOR)
            canvas.paste(_resize_to(image, sides), ((width - sides[0]) // 2, (height - sides[1]) // 2))
            return canvas
        if self.mode == "center_crop":
            sides = self._covering_sides(image.width, image.height)
            if sides[0] * sides[1] > MAX_PIXELS:
                message = f"a resized image must have at most {MAX_PIXELS} pixels, got {sides[0]} x {sides[1]}"
                raise FormatError("dataset.image", message)
            left, top = round((sides[0] - width) / 2), round((sides[1] - height) / 2)
            return _resize_to(image, sides).crop((left, top, left + width, top + height))
        return _resize_to(image, (width, height))

    def _covering_sides(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height of an image before its center is cut out."""
        assert self.size is not None
        to_height, to_width = self.size if self.resize_size is None else (self.resize_size, self.resize_size)
        if to_width * height >= to_height * width:
            return to_width, height * to_width // width
        return width * to_height // height, to_height


def _resize_to(image: PillowImage, sides: tuple[int, int]) -> Any:
    """Return an image of the width and height ``sides``, by Pillow's bilinear filter."""
    return image if image.size == sides else image.resize(sides, _pillow("PIL.Image").Resampling.BILINEAR)


def _pillow(module: str, purpose: str = "reading images") -> Any:
    return import_extra(module, "images", purpose)


class ImageSource(Source):
    """ImageSource is a dataset with one row for each image in a folder and its subfolders.

    A file that Pillow cannot decode is a fault of its row.
    """

    kind: ClassVar[str] = "images"

    def __init__(
        self, path: StrPath, columns: Sequence[str] | None, keep: Sequence[str], options: ImageOptions | None = None
    ) -> None:
        _pillow("PIL.Image")
        folder = DataFolder.scan(path, SUFFIXES)
        super().__init__(folder, [IMAGE] if columns is None else columns, [FILE, *keep], [IMAGE, FILE])
        self.options = options or ImageOptions()
        self.row_bytes = self._estimate_row_bytes()

    def _estimate_row_bytes(self) -> int:
        height, width = self.options.size or (224, 224)
        for file in self.folder.files[:1] if self.options.size is None else ():
            try:
                with self._open(file) as image:
                    height, width = image.height, image.width
            except DovetailError:
                # The error is reported as the fault of the image's row.
                pass
        item = 1 if (self.options.scale, self.options.mean, self.options.std) == (None, None, None) else 4
        return height * width * 3 * item

    @property
    def rows(self) -> int:
        return len(self.folder.files)

    def read(self, start: int, stop: int) -> RowBlock:
        check_range(start, stop, self.rows)
        rows: list[int] = []
        images: list[NDArray[Any]] = []
        faults: list[RowFault] = []
        for row in range(start, stop):
            file = self.folder.files[row]
            try:
                if IMAGE in self.selected or IMAGE in self.keep:
                    images.append(self._decode(file))
                rows.append(row)
            except EngineError:
                raise
            except DovetailError as error:
                faults.append(RowFault(row, error.code, error.message, file.name))
        names = np.array([_text(self.folder.files[row].name) for row in rows], object)
        values = {FILE: names, IMAGE: _stack(images)}
        columns, kept = ({name: values[name] for name in names} for names in (self.selected, self.keep))
        return RowBlock(np.array(rows, np.int64), columns, kept, faults)

    def _decode(self, file: DataFile) -> NDArray[Any]:
        with self._open(file) as image:
            if image.mode not in _MODES:
                message = f"the image must have at most 8 bits per channel, got Pillow's mode {image.mode}"
                raise FormatError("dataset.image", message)
            try:
                return self.options.convert(image.convert("RGB"))
            except DovetailError:
                raise
            except Exception as error:  # decoders raise OSError, ValueError, SyntaxError, struct.error, MemoryError and others
                raise FormatError("dataset.unreadable", f"the image cannot be decoded: {first_line(error)}") from None

    def _open(self, file: DataFile) -> Any:
        """Open an image and read its header. Raises FormatError [dataset.unreadable], [file.size]."""
        library = _pillow("PIL.Image")
        stream = self.folder.open(file)
        try:
            image = library.open(stream, formats=_FORMATS)
        except (library.DecompressionBombError, library.DecompressionBombWarning):
            stream.close()
            raise FormatError("file.size", f"an image must have at most {MAX_PIXELS} pixels") from None
        except library.UnidentifiedImageError:
            # Pillow's message names the stream, and differs from run to run.
            stream.close()
            raise FormatError("dataset.unreadable", f"an image must be one of {', '.join(_FORMATS)}") from None
        except Exception as error:  # SyntaxError, struct.error, ValueError and others
            stream.close()
            raise FormatError("dataset.unreadable", f"the file must be an image: {first_line(error)}") from None
        if image.width * image.height > MAX_PIXELS:
            stream.close()
            message = f"an image must have at most {MAX_PIXELS} pixels, got {image.width} x {image.height}"
            raise FormatError("file.size", message)
        return _ClosingImage(image, stream)

    def file_of(self, row: int) -> str | None:
        return self.folder.files[row].name if 0 <= row < self.rows else None

    def files_of(self, start: int, stop: int) -> Sequence[DataFile]:
        return self.folder.files[start:stop]

    def fingerprint(self) -> dict[str, Any]:
        return fingerprint_of(self.kind, self.columns, self.folder.files, None)


class _ClosingImage:
    """_ClosingImage is a context manager that closes an image and the stream that the image is decoded from."""

    def __init__(self, image: Any, stream: Any) -> None:
        self._image = image
        self._stream = stream

    def __enter__(self) -> Any:
        return self._image

    def __exit__(self, *_: object) -> None:
        self._image.close()
        self._stream.close()


def _stack(images: list[NDArray[Any]]) -> RowValues:
    if len({image.shape for image in images}) == 1:
        return np.stack(images)
    return images


def _text(name: str) -> str:
    """Return the name of a file as text; bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


class ImageSink(Sink):
    """ImageSink writes one PNG for each row and result: ``NAME/PATH-OF-INPUT.png``.

    If the rows of the input have no file names, the PNG is ``NAME/row-000000000000.png``. Results are u8 of shape [H, W],
    [H, W, C] or [C, H, W] per row, with 1, 3 or 4 channels. ``_rows/part-00000.jsonl`` has the row numbers and the kept columns,
    one JSON object per line.
    """

    format: ClassVar[str] = "images"
    markers: ClassVar[tuple[str, ...]] = (_INDEX,)

    def write_columns(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> None:
        values = {name: arrow_rows(name, column) for name, column in columns.items()}
        pictures = {name: column for name, column in values.items() if _is_picture(column)}
        index = {name: _texts(name, column) for name, column in values.items() if name not in pictures}
        if not pictures:
            message = "the format images needs a result of u8 with 2 or 3 axes per row, got none; write parquet"
            raise EngineError("dataset.output", message)
        if "pictures" in index:
            raise EngineError("dataset.output", "a kept column must not be named pictures, the column of the image names")
        lines = []
        files: dict[str, NDArray[Any]] = {}
        for position, row in enumerate(np.asarray(rows).tolist()):
            names = index.get(FILE)
            file = _safe_name(names[position]) if names else f"row-{row:012}.png"
            written = [f"{file_name_of(name)}/{file}" for name in pictures]
            files |= {name: column[position] for name, column in zip(written, pictures.values(), strict=True)}
            texts = {name: column[position] for name, column in index.items()}
            lines.append(json.dumps({"row": row, "pictures": written, **texts}))
        if len({os.path.normpath(name) for name in files}) < len(lines) * len(pictures):
            raise EngineError("dataset.output", f"the column {FILE!r} must have a different name for each row of a part")
        # Several threads, because writing waits for the disk, which can flush several files at a time.
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(self._write_picture, files, files.values()))
        self.write_bytes(os.path.join(_INDEX, f"{part_name(part)}.jsonl"), "".join(f"{line}\n" for line in lines).encode())

    def _write_picture(self, name: str, pixels: NDArray[Any]) -> None:
        image = _pillow("PIL.Image", "writing images").fromarray(_channels_last(pixels))
        with self.open_file(name) as stream:
            image.save(stream, "PNG")

    def _commit(self) -> tuple[str, str]:
        return _INDEX, ".jsonl"

    def remove(self) -> None:
        for part in sorted(self._numbers(*self._commit())):
            with open(self._path(_INDEX, f"{part_name(part)}.jsonl"), encoding="utf-8") as lines:
                names = [name for line in lines for name in _pictures_of(line, lines.name)]
            for name in names:
                with suppress(FileNotFoundError), name_errors(self._path(name), may_be_missing=True):
                    os.unlink(self._path(name))
            for name in dict.fromkeys(os.path.dirname(name) for name in names):
                with suppress(OSError):
                    # removedirs removes only empty folders: this folder and its empty parents.
                    os.removedirs(self._path(name))
        os.makedirs(self.folder, exist_ok=True)
        super().remove()


def picture_name(name: str) -> str:
    """Return the name of the PNG for an image file, distinct for each image file: a.png -> a.png, a.jpg -> a.jpg.png."""
    stem, suffix = os.path.splitext(name)
    if suffix.lower() == ".png" and os.path.splitext(stem)[1].lower() not in SUFFIXES:
        return name
    return f"{name}.png"


def _safe_name(name: str) -> str:
    try:
        check_location(name)
    except FormatError as error:
        raise EngineError("dataset.output", f"the column {FILE!r} must have names within a folder: {error.message}") from None
    return picture_name(name)


def _pictures_of(line: str, file: str) -> list[str]:
    """Return the names of the pictures in a line of the sink's index. Raises FormatError [folder.resume].

    The names are paths in the folder of the sink.
    """
    try:
        names = [str(name) for name in json.loads(line)["pictures"]]
        for name in names:
            check_location(name)
    except (ValueError, TypeError, KeyError, RecursionError, FormatError):
        message = f"a line must be an object with the names of pictures in this folder, got {line[:80]!r}"
        raise FormatError("folder.resume", message, file=file) from None
    return names


def _is_picture(values: RowValues) -> bool:
    rows = [values] if isinstance(values, np.ndarray) else values
    axes = 1 if isinstance(values, np.ndarray) else 0
    return bool(len(rows)) and all(
        isinstance(row, np.ndarray) and row.dtype == np.uint8 and row.ndim - axes in (2, 3) for row in rows
    )


def _channels_last(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return pixels as [H, W] or [H, W, C]. Raises EngineError [dataset.output] if no axis has 1, 3 or 4 channels."""
    if pixels.ndim == 3 and pixels.shape[2] not in (1, *_CHANNELS) and pixels.shape[0] in (1, *_CHANNELS):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS):
        message = f"an image must have the shape [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels, got {pixels.shape}"
        raise EngineError("dataset.output", message)
    return np.ascontiguousarray(pixels)


def _texts(name: str, values: RowValues) -> list[Any]:
    rows = values.tolist() if isinstance(values, np.ndarray) else [np.asarray(row).tolist() for row in values]
    try:
        json.dumps(rows)
    except TypeError:
        message = f"the column {name!r} has values that are neither pictures nor JSON; write parquet"
        raise EngineError("dataset.output", message) from None
    return rows
