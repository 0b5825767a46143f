"""Weights in a safetensors file. Source: the format of the safetensors library, version 0.8.

The header is JSON: per tensor its name, element type, shape and range of bytes after the header. Tensors follow each other
without gaps. The signature of a weights file is the entry ``dovetail`` of ``__metadata__``. Models name tensors by their offset
in the file, which is what ONNX and OpenVINO IR say of any weights file. The library parses the header of files that are read by
names; it writes only whole files of its own, which could not replace a pair of files together.
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
"""The entry of the metadata for the signature."""
_ALIGNMENT = 64
_UNSIGNED = " ".join(2 * ["0" * (2 * DIGEST)])
_SIGNATURE = re.compile(rb'.{8}\{"__metadata__":\{"dovetail":"([0-9a-f]{48}) ([0-9a-f]{48})"', re.DOTALL)
NAMES = {
    "boolean": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64",
    "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "complex64": "C64",
    "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2", "f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ", "f8e8m0": "F8_E8M0",
}  # fmt: skip
"""Element types by their names in the format. Tensors of other types are stored as their bytes, of type U8."""


class SafetensorsFile(WeightsFile):
    """Tensors in the order of their alignment.

    ``names`` are those in the file, by the number that ``store`` returns first. Offsets are known when all tensors are: a model
    file is written once to store them, and again for their offsets.
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
        """Return the offset of ``data``; before ``lay_out`` a number that only identifies it."""
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
        """Return the name, with a number behind it where it is taken, or reserved by the format."""
        chosen, number = name, 0
        while chosen in self._taken:
            number += 1
            chosen = f"{name}.{number}"
        self._taken.add(chosen)
        return chosen

    def lay_out(self) -> None:
        """Choose the offsets; the next calls of ``store`` return them, in the order of the calls before."""
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
    """Return the signature in the header of a safetensors file; None where it has none."""
    match = _SIGNATURE.match(data[: 8 + 256].tobytes())
    return None if match is None else PairSignature(match[1].decode(), match[2].decode())


def read_tensors(descriptor: int, file: str, content: Bytes | None = None) -> Mapping[str, tuple[DType, tuple[int, ...], Bytes]]:
    """Return element type, shape and bytes by name of every tensor of an open file, without a copy where files are mapped.

    ``content`` are the bytes of the file where the caller has them. Raises FormatError [array.file] where the safetensors
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
    """Return name, element type, shape and first byte of every tensor of an open file in their order there, and the metadata.

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
        raise FormatError("array.file", f"not a safetensors file: {error}", file=file) from None
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        stream.seek(0)
        offset = 8 + int.from_bytes(stream.read(8), "little")
    tensors = []
    for name, code, shape in rows:
        if code not in by_code:
            raise FormatError("array.file", f"the tensor {name!r} has the unknown element type {code}", file=file)
        tensors.append((name, by_code[code], tuple(shape), offset))
        offset += math.prod(shape) * by_code[code].numpy.itemsize
    return tensors, metadata


def _path_of(descriptor: int) -> str:
    """Return a path of an open file, through which no other file is opened."""
    return f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{descriptor}"
