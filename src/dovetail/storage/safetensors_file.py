"""Weights in a safetensors file. Source: the format of the safetensors library, version 0.8.

The JSON header has, for each tensor, the name, the element type, the shape and the range of bytes after the header. Tensors
follow each other without gaps. The entry ``dovetail`` of ``__metadata__`` is the signature of a weights file. Models refer to
tensors by file offset, as ONNX and OpenVINO IR do for any weights file. The safetensors library parses the header where
tensors are read by name. Files are written without the library, which cannot replace a model file and a weights file together.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from dovetail.errors import FormatError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.storage import files
from dovetail.storage.weights_file import DIGEST, Bytes, Label, PairSignature, WeightsFile

SUFFIX = ".safetensors"
KEY = "dovetail"
"""The metadata entry that holds the signature."""
_ALIGNMENT = 64
_UNSIGNED = " ".join(2 * ["0" * (2 * DIGEST)])
_SIGNATURE = re.compile(rb'.{8}\{"__metadata__":\{"dovetail":"([0-9a-f]{48}) ([0-9a-f]{48})"', re.DOTALL)
NAMES = {
    "boolean": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64",
    "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "complex64": "C64",
    "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2", "f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ", "f8e8m0": "F8_E8M0",
}  # fmt: skip
"""The safetensors names of element types. Tensors of any other type are stored as bytes, with the type U8."""


class SafetensorsFile(WeightsFile):
    """SafetensorsFile is a weights file in the safetensors format; tensors are ordered by descending alignment.

    ``store`` returns the index of a tensor at first; ``names[index]`` is its name in the file. Offsets are known only after all
    tensors are stored. The model file is therefore generated twice: once to store the tensors, once with their offsets.
    """

    def __init__(self) -> None:
        super().__init__(lambda size: 1)
        self._labels: list[Label] = []
        self.names: list[str] = []
        self._taken = {"__metadata__"}
        self._calls: list[int] = []
        self._offsets: list[int] | None = None
        self._turn: Iterator[int] = iter(())
        self._header = b""

    def store(self, data: Bytes, label: Label) -> int:
        """Return the file offset of ``data``. Before the call of ``lay_out`` it returns the index of the tensor instead."""
        if self._offsets is not None:
            return self._offsets[next(self._turn)]
        index = super().store(data, label)
        self._calls.append(index)
        return index

    def _form_of(self, label: Label) -> Any:
        return label.dtype.name, label.shape

    def _add(self, data: Bytes, label: Label) -> int:
        self._labels.append(label)
        self.names.append(self._unique_name(label.name or "tensor"))
        self.parts.append((0, data))
        self.size += data.size
        return len(self.parts) - 1

    def _unique_name(self, name: str) -> str:
        """Return ``name``, with a numeric suffix if another tensor has the name or the format reserves it."""
        chosen, number = name, 0
        while chosen in self._taken:
            number += 1
            chosen = f"{name}.{number}"
        self._taken.add(chosen)
        return chosen

    def lay_out(self) -> None:
        """Choose the tensors' offsets. Later calls of ``store`` return them, and must be in the order of the earlier calls."""
        order = sorted(range(len(self.parts)), key=lambda index: -_alignment(self._labels[index].dtype))
        entries: dict[str, Any] = {"__metadata__": {KEY: _UNSIGNED}}
        starts = [0] * len(order)
        end = 0
        for index in order:
            data, label = self.parts[index][1], self._labels[index]
            starts[index] = end
            name = NAMES.get(label.dtype.name)
            shape = [data.size] if name is None else list(label.shape)
            entries[self.names[index]] = {"dtype": name or "U8", "shape": shape, "data_offsets": [end, end + data.size]}
            end += data.size
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGNMENT)
        self._header = len(text).to_bytes(8, "little") + text
        base = len(self._header)
        self._offsets = [base + starts[index] for index in self._calls]
        self._turn = iter(range(len(self._offsets)))
        self.parts = [(base + starts[index], self.parts[index][1]) for index in order]
        self.size = base + end

    def copy_to(self, stream: BinaryIO) -> None:
        stream.write(self._header)
        self._copy_parts(stream, len(self._header))

    def sign(self, stream: BinaryIO, signature: PairSignature) -> None:
        stream.seek(self._header.index(_UNSIGNED.encode()))
        stream.write(" ".join(signature).encode())
        stream.seek(0, os.SEEK_END)


def _alignment(dtype: DType) -> int:
    return dtype.numpy.itemsize if dtype.name in NAMES else 1


def signature_in_header(data: Bytes) -> PairSignature | None:
    """Return the signature in the header of a safetensors file; None for a file without a signature."""
    match = _SIGNATURE.match(data[: 8 + 256].tobytes())
    return None if match is None else PairSignature(match[1].decode(), match[2].decode())


def read_tensors(descriptor: int, file: str, content: Bytes | None = None) -> Mapping[str, tuple[DType, tuple[int, ...], Bytes]]:
    """Return element type, shape and bytes of every tensor of an open file by name; the bytes of a mapped file are views.

    ``content``: the bytes of the file, if the caller has read them already. Raises FormatError [array.file] if the safetensors
    library refuses the file, and for an element type that is not in NAMES.
    """
    content = files.contents(descriptor) if content is None else content
    rows, _ = read_header(descriptor, file)
    sizes = [math.prod(shape) * dtype.numpy.itemsize for _, dtype, shape, _ in rows]
    return {
        name: (dtype, shape, content[offset : offset + size])
        for (name, dtype, shape, offset), size in zip(rows, sizes, strict=True)
    }


def read_header(descriptor: int, file: str) -> tuple[list[tuple[str, DType, tuple[int, ...], int]], dict[str, str]]:
    """Return name, element type, shape and file offset of every tensor of an open file, in file order, and the metadata.

    The elements are not read. Raises FormatError [array.file] like :func:`read_tensors`.
    """
    from safetensors import SafetensorError, safe_open

    by_code = {code: dtypes.dtype(name) for name, code in NAMES.items()}
    try:
        with safe_open(_path_of(descriptor), framework="numpy") as header:
            rows = [
                (name, header.get_slice(name).get_dtype(), header.get_slice(name).get_shape()) for name in header.offset_keys()
            ]
            metadata = dict(header.metadata() or {})
    except (SafetensorError, OSError, UnicodeError) as error:
        raise FormatError("array.file", f"the file must be a valid safetensors file: {error}", file=file) from None
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        stream.seek(0)
        offset = 8 + int.from_bytes(stream.read(8), "little")
    tensors = []
    for name, code, shape in rows:
        if code not in by_code:
            raise FormatError("array.file", f"dovetail cannot read the element type {code} of tensor {name!r}", file=file)
        tensors.append((name, by_code[code], tuple(shape), offset))
        offset += math.prod(shape) * by_code[code].numpy.itemsize
    return tensors, metadata


def _path_of(descriptor: int) -> str:
    """Return a path that always refers to the open file ``descriptor``, even if the file was renamed or replaced."""
    return f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{descriptor}"
