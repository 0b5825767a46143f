"""Read and write TensorProto: every element type, packing, external data. Source: onnx.proto, ``TensorProto``.

The declared size of a tensor is compared with the number of stored bytes before memory is allocated. The code requires a
little-endian host, because the format is little-endian.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.fixpoint import Weights
from dovetail.formats.foreign import ForeignTensor
from dovetail.formats.onnx.messages import present, properties, put_properties, refuse
from dovetail.formats.onnx.protobuf_scan import TICKET_BYTES, Elements, Tickets
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import current
from dovetail.ir.packed_elements import PackedElements
from dovetail.storage import files
from dovetail.storage.file_pair import Pair
from dovetail.storage.mapped_files import release_pages
from dovetail.storage.safetensors_file import SUFFIX, SafetensorsFile
from dovetail.storage.weights_file import Label, WeightsFile

if TYPE_CHECKING:
    from onnx import SparseTensorProto, TensorProto

Codes = NDArray[np.uint8]
Stored: TypeAlias = NDArray[Any] | PackedElements
Notes = dict[str, Any]

_INT64_MAX = 2**63 - 1
_MAX_RANK = 64  # The maximum number of axes of a numpy array.
# onnx.proto, external_data: offsets should be multiples of a page. Tensors below _WORTH_A_PAGE bytes are aligned to
# _ALIGNMENT bytes only, because padding to pages would exceed the data.
_PAGE, _WORTH_A_PAGE, _ALIGNMENT = 4096, 65536, 64

# The typed fields that hold elements outside raw_data (onnx.proto, comments of the fields).
_FIELDS = {
    "f32": "float_data",
    "complex64": "float_data",
    "f64": "double_data",
    "complex128": "double_data",
    "i64": "int64_data",
    "u32": "uint64_data",
    "u64": "uint64_data",
    "string": "string_data",
}
_VARINTS = 1024
"""The maximum number of elements that are written as varints; larger tensors use raw_data, which readers can map."""
_NOTED = frozenset(("doc_string", "metadata_props"))
_ALL_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")


class TensorReader:
    """TensorReader reads the tensors of one model.

    The reader keeps the content of external files, and counts the bytes of dense copies of sparse tensors.
    """

    def __init__(
        self,
        model_path: str | None,
        allow_symlinks_within: files.StrPath | None = None,
        elements: Elements | None = None,
        pair: Pair | None = None,
    ) -> None:
        self._model_path = model_path
        self._allow_symlinks_within = allow_symlinks_within
        self._elements = elements or {}
        self._pair = pair or Pair(model_path)
        self._mapped: dict[str, Codes] = {}
        self._checked: set[tuple[str, str]] = set()
        self._sparse_bytes = 0

    def read(self, proto: TensorProto, accept: Callable[[DovetailError], None] = refuse) -> tuple[ForeignTensor, Notes]:
        """Return a tensor with its documentation and properties.

        The tensor is a read-only view of raw or external data where possible. ``accept`` receives deviations. Raises FormatError
        [data.type], [data.size], [data.field], [data.value], [data.external] and the errors of :mod:`dovetail.storage.files`;
        UnsupportedError [op.unsupported], [data.size].
        """
        fields = present(proto, "tensor")
        name = fields.pop("name", "")
        notes = _notes(fields, accept) if not fields.keys().isdisjoint(_NOTED) else {}
        dtype = element_type(fields.pop("data_type", 0), "data.type")
        shape = _shape(fields.pop("dims", ()))
        if "segment" in fields:
            raise UnsupportedError("op.unsupported", f"tensor {name!r}: segments of tensors are not supported")
        is_raw = "raw_data" in fields
        data = self._data(fields, dtype, shape, accept)
        if fields:
            fault = FormatError("data.field", f"{dtype} elements must not be in {', '.join(sorted(fields))}")
            if not is_raw or not fields.keys() <= set(_ALL_FIELDS):
                raise fault
            # Every runtime ignores the typed fields of a tensor that has raw_data.
            accept(fault)
        return ForeignTensor(dtype, _reshape(data, shape), name), notes

    def read_sparse(
        self, proto: SparseTensorProto, accept: Callable[[DovetailError], None] = refuse
    ) -> tuple[ForeignTensor, Notes]:
        """Read a sparse tensor as a dense tensor. Raises FormatError [data.value], UnsupportedError [limits.exceeded]."""
        fields = present(proto, "sparse tensor")
        if "values" not in fields:
            raise FormatError("data.value", "a sparse tensor must have values")
        values, notes = self.read(fields.pop("values"), accept)
        # Absent indices are an empty tensor, which some writers omit.
        indices = self.read(fields.pop("indices"))[0].data if "indices" in fields else np.empty(0, np.int64)
        shape = _shape(fields.pop("dims", ()))
        self._sparse_bytes += math.prod(shape) * max(values.dtype.numpy.itemsize, 1)
        if self._sparse_bytes > (limits := current().limits).dense_bytes:
            raise UnsupportedError(
                "limits.exceeded",
                f"sparse tensors would take {self._sparse_bytes} bytes; {limits.describe('dense_bytes')}",
            )
        linear = _linear_indices(indices, values.data, shape)
        dense = (
            np.full(math.prod(shape), "", object)
            if values.dtype is dtypes.string
            else np.zeros(math.prod(shape), values.dtype.numpy)
        )
        dense[linear] = values.data
        dense.setflags(write=False)
        return ForeignTensor(values.dtype, _reshape(dense, shape), values.name), notes

    def _data(
        self, fields: dict[str, Any], dtype: DType, shape: tuple[int, ...], accept: Callable[[DovetailError], None]
    ) -> Stored:
        count = math.prod(shape)
        field = _FIELDS.get(dtype.name, "int32_data")
        if len(fields) == 1 and field in fields:
            return _from_values(dtype, fields.pop(field), count)
        external = fields.pop("external_data", None)
        if fields.pop("data_location", 0) == 1:
            stored = [field for field in _ALL_FIELDS if field in fields]
            if stored or dtype is dtypes.string:
                present = ", ".join(stored) or "strings"
                raise FormatError("data.external", f"a tensor with external data must not have {present}")
            return _from_bytes(dtype, self._external(external or (), _byte_count(dtype, count)), count)
        if external is not None:
            fault = FormatError("data.external", "a tensor with external_data must have data_location = EXTERNAL")
            if fields.keys().isdisjoint(_ALL_FIELDS):
                raise fault
            accept(fault)
        if "raw_data" in fields:
            if dtype is dtypes.string:
                raise FormatError("data.field", "strings must be in string_data, got raw_data")
            return _from_bytes(dtype, self._raw(fields.pop("raw_data")), count)
        return _from_values(dtype, fields.pop(field, ()), count)

    def _raw(self, stored: bytes) -> Codes:
        elements = self._elements.get(stored) if len(stored) == TICKET_BYTES else None
        return np.frombuffer(stored, np.uint8) if elements is None else elements

    def _external(self, entries: Any, size: int) -> Codes:
        keys = properties(entries, "data.external")
        location = keys.pop("location", "")
        offset, length = _number(keys, "offset"), _number(keys, "length")
        checksum = keys.pop("checksum", None)
        # onnxruntime stores prepacked weights under keys with this prefix; prepacked weights repeat the data in another layout.
        unknown = [key for key in keys if not key.startswith("prepacked_")]
        if unknown:
            raise UnsupportedError(
                "data.external", f"external data must have known keys only, got {', '.join(map(repr, unknown))}"
            )
        content = self._file(location)
        start = offset or 0
        end = content.size if length is None else start + length
        if not start <= end <= content.size:
            raise FormatError("data.range", f"bytes {start} to {end} must be in {location!r}, which has {content.size} bytes")
        if end - start != size:
            raise FormatError("data.size", f"the tensor must have {size} bytes, got {end - start} in {location!r}")
        if checksum is not None:
            self._verify(location, content, checksum)
        return content[start:end]

    def _file(self, location: str) -> Codes:
        if location not in self._mapped:
            files.check_location(location, file=self._model_path)
            if self._model_path is None:
                raise FormatError("data.external", f"a model with external data ({location!r}) must be loaded from a path")
            descriptor = files.open_beside(self._model_path, location, allow_symlinks_within=self._allow_symlinks_within)
            try:
                data = files.contents(descriptor)
            finally:
                os.close(descriptor)
            self._pair.check(location, data)
            self._mapped[location] = data
        return self._mapped[location]

    def _verify(self, location: str, content: Codes, checksum: str) -> None:
        """Check the SHA1 digest of the whole external file (onnx.proto, external_data, ``checksum``)."""
        # hashlib loads a library of several megabytes; the import is deferred, because few files have a checksum.
        import hashlib

        if (location, checksum) not in self._checked:
            if hashlib.sha1(content.data, usedforsecurity=False).hexdigest() != checksum.lower():
                raise FormatError(
                    "file.pair", f"the SHA1 digest of {location!r} must equal the checksum in the model, {checksum!r}"
                )
            self._checked.add((location, checksum))


class ReferenceReader(TensorReader):
    """ReferenceReader reads the tensors of a model whose external data is in memory."""

    def __init__(self, elements: Elements, weights: Weights) -> None:
        super().__init__(None, elements=elements)
        self._weights = weights

    def _file(self, location: str) -> Any:
        return self._weights


class ExternalReferences(Weights):
    """ExternalReferences stores tensors of at least ``threshold`` bytes in memory, by reference."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self.location = "weights"
        self.threshold = threshold


class ExternalData:
    """ExternalData stores tensors of at least ``threshold`` bytes in the external file ``location``.

    The suffix .safetensors selects that format.
    """

    def __init__(self, location: str, threshold: int) -> None:
        self.location = location
        self.threshold = threshold
        raw = WeightsFile(lambda size: _PAGE if size >= _WORTH_A_PAGE else _ALIGNMENT)
        self.file = SafetensorsFile() if location.endswith(SUFFIX) else raw

    def store(self, data: Codes, label: Label) -> int:
        """Store ``data``, and return its offset in the file."""
        return self.file.store(data, label)


Elsewhere: TypeAlias = ExternalData | ExternalReferences | Tickets
"""A store that keeps the elements of large tensors outside the protobuf messages of the tensors."""


def write_tensor(proto: TensorProto, tensor: ForeignTensor, name: str, notes: Notes, elsewhere: Elsewhere | None) -> None:
    """Write ``tensor`` to ``proto``. Raises UnsupportedError [dtype.unknown] if ONNX or numpy lacks the element type."""
    if tensor.dtype.onnx is None:
        raise UnsupportedError("dtype.unknown", f"the element type must be one of ONNX, got {tensor.dtype}")
    data: Any = tensor.storage if isinstance(tensor.storage, PackedElements) else np.asarray(tensor.storage)
    proto.data_type = tensor.dtype.onnx
    proto.dims.extend(data.shape)
    if name:
        proto.name = name
    if notes.get("doc"):
        proto.doc_string = notes["doc"]
    put_properties(proto.metadata_props, notes.get("metadata_props", {}))
    if tensor.dtype is dtypes.string:
        proto.string_data.extend(_encode_string(data))
        return
    stored = data.to_bytes() if isinstance(data, PackedElements) else _to_bytes(tensor.dtype, data)
    is_inline = elsewhere is None or stored.size < max(elsewhere.threshold, 1)
    if tensor.dtype is dtypes.i64 and (is_inline or isinstance(elsewhere, Tickets)) and _is_shorter_as_varints(data):
        proto.int64_data.extend(data.reshape(-1).tolist())
    elif is_inline or elsewhere is None:
        proto.raw_data = stored.tobytes()
    elif isinstance(elsewhere, Tickets):
        proto.raw_data = elsewhere.add(stored)
    else:
        offset = elsewhere.store(stored, Label(name, tensor.dtype, data.shape))
        proto.data_location = proto.EXTERNAL
        entries = {"location": elsewhere.location, "offset": str(offset), "length": str(stored.size)}
        put_properties(proto.external_data, entries)


def _is_shorter_as_varints(data: NDArray[Any]) -> bool:
    """Return whether varints in ``int64_data`` take fewer bytes than ``raw_data``; False for more than _VARINTS elements."""
    if not 0 < data.size <= _VARINTS:
        return False
    # A varint encodes 7 bits per byte; a negative number has 64 bits, which are 10 bytes.
    return sum(-(-max(value.bit_length(), 1) // 7) if value >= 0 else 10 for value in data.reshape(-1).tolist()) < data.nbytes


def write_sparse(proto: SparseTensorProto, tensor: ForeignTensor, name: str, notes: Notes) -> None:
    """Write the elements of ``tensor`` that are not zero or empty to ``proto``, with their linear indices."""
    data = np.asarray(tensor.data)
    flat = data.reshape(-1)
    if tensor.dtype is dtypes.string:
        indices = np.flatnonzero(flat != "")
    else:
        # Elements are compared with zero by their bits, so that -0.0 is preserved.
        indices = np.flatnonzero(np.ascontiguousarray(flat).view(np.uint8).reshape(flat.size, -1).any(axis=1))
    proto.dims.extend(data.shape)
    write_tensor(proto.values, ForeignTensor(tensor.dtype, flat[indices]), name, notes, None)
    write_tensor(proto.indices, ForeignTensor(dtypes.i64, indices.astype(np.int64)), "", {}, None)


def byte_size(tensor: ForeignTensor) -> int:
    """Return the size in bytes of a tensor's elements in a file; for strings 0, a lower bound."""
    return _byte_count(tensor.dtype, np.size(tensor.storage)) if tensor.dtype != "string" else 0


def element_type(number: int, code: str) -> DType:
    """Return the element type of a TensorProto.DataType number. Raises FormatError ``code`` for an unknown number."""
    dtype = dtypes.BY_ONNX.get(number)
    if dtype is None:
        raise FormatError(code, f"the element type must be a TensorProto.DataType, got {number}")
    return dtype


def _notes(fields: dict[str, Any], accept: Callable[[DovetailError], None]) -> Notes:
    notes: Notes = {}
    if doc := fields.pop("doc_string", ""):
        notes["doc"] = doc
    if entries := fields.pop("metadata_props", None):
        notes["metadata_props"] = properties(entries, "metadata.repeated", accept)
    return notes


def _shape(dims: Iterable[int]) -> tuple[int, ...]:
    shape = tuple(dims)
    if len(shape) > _MAX_RANK:
        raise UnsupportedError("data.size", f"the rank must be at most {_MAX_RANK}, got {len(shape)}")
    if shape and min(shape) < 0:
        raise FormatError("data.size", f"sizes must not be negative, got shape {list(shape)}")
    # Sizes of 0 are left out of the product, because strides in numpy and other libraries would overflow nevertheless.
    if math.prod(filter(None, shape)) > _INT64_MAX:
        raise FormatError("data.size", f"a tensor must have at most 2**63 - 1 elements, got shape {list(shape)}")
    return shape


def _reshape(data: Stored, shape: tuple[int, ...]) -> Stored:
    if data.shape == shape:
        return data
    try:
        return data.reshape(shape)
    except ValueError:
        raise FormatError("data.size", f"the shape must be valid for a numpy array, got {list(shape)}") from None


def _byte_count(dtype: DType, count: int) -> int:
    return -(-dtype.bits * count // 8)


def _from_bytes(dtype: DType, data: Codes, count: int) -> Stored:
    if data.size != _byte_count(dtype, count):
        raise FormatError("data.size", f"{count} elements of {dtype} need {_byte_count(dtype, count)} bytes, got {data.size}")
    if dtype.bits in (2, 4):
        return PackedElements(data, dtype, (count,), release_pages)
    if dtype.bits < 8:
        return _read_only(_unpack_codes(data, count).view(dtype.numpy))
    if dtype is dtypes.boolean and data.size and data.max() > 1:
        raise FormatError("data.value", f"a boolean must be stored as 0 or 1, got {data.max()}")
    # A tensor in a mapped file may be unaligned; numpy reads unaligned data, only slower.
    return np.frombuffer(data, dtype.numpy, count) if data.size else np.empty(0, dtype.numpy)


def _from_values(dtype: DType, values: Sequence[Any], count: int) -> Stored:
    expected = _value_count(dtype, count)
    if len(values) != expected:
        raise FormatError("data.size", f"{count} elements of {dtype} need {expected} stored values, got {len(values)}")
    if dtype is dtypes.string:
        return _decode_strings(values)
    if dtype.kind == "complex":
        return _read_only(np.array(values, np.float32 if dtype.bits == 64 else np.float64).view(dtype.numpy))
    if _FIELDS.get(dtype.name, "int32_data") != "int32_data":
        if dtype == "u32":
            _refuse_outside(np.array(values, np.uint64), 0, 2**32 - 1, dtype)
        return _read_only(np.array(values, dtype.numpy))
    numbers = np.array(values, np.int32)
    if dtype.kind == "float" or dtype.bits < 8:
        return _from_bits(dtype, numbers, count)
    low, high = (0, 1) if dtype is dtypes.boolean else dtype.range()
    _refuse_outside(numbers, low, high, dtype)
    return _read_only(numbers.astype(dtype.numpy))


def _from_bits(dtype: DType, numbers: NDArray[np.int32], count: int) -> Stored:
    """Read elements from int32 numbers, each of which holds the bits of one element, or a byte of packed elements.

    Some writers sign-extend the bits to negative numbers.
    """
    if dtype.bits == 6:
        _refuse_outside(numbers, 0, 63, dtype)
        return _read_only(numbers.astype(np.uint8).view(dtype.numpy))
    width = max(dtype.bits, 8)
    _refuse_outside(numbers, -(2 ** (width - 1)), 2**width - 1, dtype)
    codes = numbers.astype(np.uint16 if width == 16 else np.uint8)
    return PackedElements(codes, dtype, (count,)) if dtype.bits in (2, 4) else _read_only(codes.view(dtype.numpy))


def _value_count(dtype: DType, count: int) -> int:
    if dtype.kind == "complex":
        return 2 * count
    return -(-count * dtype.bits // 8) if dtype.bits in (2, 4) else count


def _refuse_outside(numbers: NDArray[Any], low: int, high: int, dtype: DType) -> None:
    if numbers.size and not low <= int(numbers.min()) <= int(numbers.max()) <= high:
        raise FormatError("data.value", f"stored values must be in the range of {dtype}, got {numbers.min()} to {numbers.max()}")


def _read_only(data: NDArray[Any]) -> NDArray[Any]:
    data.setflags(write=False)
    return data


def _decode_strings(values: Sequence[bytes]) -> NDArray[Any]:
    data = np.empty(len(values), object)
    try:
        data[:] = [value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise FormatError("data.value", f"a string must be UTF-8: {error}") from None
    return _read_only(data)


def _encode_string(data: NDArray[Any]) -> list[bytes]:
    texts = data.reshape(-1).tolist()
    try:
        return [text if isinstance(text, bytes) else str(text).encode() for text in texts]
    except UnicodeEncodeError as error:
        raise UnsupportedError("data.value", f"a string must be encodable as UTF-8: {error}") from None


def _unpack_codes(packed: Codes, count: int) -> Codes:
    """Unpack packed codes of 6 bits to one code per byte; the lowest bits of a group of bytes hold the first code."""
    bits = 6
    stride, per_group, word = _group(bits)
    groups = -(-count // per_group)
    padded = np.zeros((groups, stride), np.uint8) if packed.size != groups * stride else packed.reshape(groups, stride)
    if packed.size != groups * stride:
        padded.reshape(-1)[: packed.size] = packed
    words = sum((padded[:, byte].astype(word) << word(8 * byte) for byte in range(1, stride)), padded[:, 0].astype(word))
    codes = np.empty((groups, per_group), np.uint8)
    for code_index in range(per_group):
        codes[:, code_index] = (words >> word(bits * code_index)) & word(2**bits - 1)
    return codes.reshape(-1)[:count]


def _pack_codes(codes: Codes, bits: int) -> Codes:
    stride, per_group, word = _group(bits)
    groups = -(-codes.size // per_group)
    padded = np.zeros((groups, per_group), np.uint8)
    padded.reshape(-1)[: codes.size] = codes & np.uint8(2**bits - 1)
    words = np.zeros(groups, word)
    for code_index in range(per_group):
        words |= padded[:, code_index].astype(word) << word(bits * code_index)
    packed = np.empty((groups, stride), np.uint8)
    for byte in range(stride):
        packed[:, byte] = (words >> word(8 * byte)) & word(255)
    return packed.reshape(-1)[: -(-codes.size * bits // 8)]


def _group(bits: int) -> tuple[int, int, Any]:
    """Return the number of bytes and of codes of the smallest group of whole bytes, and an integer type that holds a group."""
    return (3, 4, np.uint32) if bits == 6 else (1, 8 // bits, np.uint8)


def _to_bytes(dtype: DType, data: NDArray[Any]) -> Codes:
    if data.dtype.newbyteorder("=") != dtype.numpy:
        raise UnsupportedError(
            "dtype.unknown", f"the array of a {dtype} tensor must have the type {dtype.numpy}, got {data.dtype}"
        )
    flat = np.ascontiguousarray(data.reshape(-1), dtype.numpy)
    codes = flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)
    return _pack_codes(codes, dtype.bits) if dtype.bits < 8 else codes


def _number(keys: dict[str, str], key: str) -> int | None:
    text = keys.pop(key, None)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise FormatError("data.external", f"{key} of external data must be a number of bytes, got {text[:40]!r}")
    return int(text)


def _linear_indices(indices: NDArray[Any], values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Check the indices of a sparse tensor (onnx.proto, ``SparseTensorProto``); return flat indices into the dense tensor."""
    count = values.size
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in ((count,), (count, len(shape))):
        raise FormatError(
            "data.value",
            f"for n values of rank {len(shape)} indices must be i64 [n] or [n, {len(shape)}], "
            f"got {indices.dtype}{list(indices.shape)} for values {list(values.shape)}",
        )
    bounds = (math.prod(shape),) if indices.ndim == 1 else shape
    columns = indices.reshape(count, -1) if count else np.empty((0, len(bounds)), np.int64)
    if count and any(column.min() < 0 or column.max() >= bound for column, bound in zip(columns.T, bounds, strict=True)):
        raise FormatError("data.value", f"the indices of a sparse tensor must be in the shape {list(shape)}")
    linear = np.zeros(count, np.int64)
    for column, bound in zip(columns.T, bounds, strict=True):
        linear = linear * bound + column
    if (np.diff(linear) <= 0).any():
        raise FormatError("data.value", "the indices of a sparse tensor must be in strictly ascending order")
    return linear
