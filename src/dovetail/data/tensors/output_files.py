"""Output files: which tensors each file of a set holds, at which bytes, and the header before them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import prod
from typing import Any

import numpy as np

from dovetail.data.tensors.blocks import TensorBlocks
from dovetail.errors import RuleError, UnsupportedError
from dovetail.storage.safetensors_file import NAMES

_ALIGNMENT = 64
_RANKED = re.compile(r"(.+)@([0-9]{1,6})")
_DECIMAL_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS = _DECIMAL_UNITS | {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass
class OutputFile:
    """A file to write: ``header``, then each tensor at its byte."""

    name: str
    header: bytes
    size: int
    tensors: list[tuple[TensorBlocks, int]] = field(default_factory=list)


def parse_size(size: int | str, subject: str) -> int:
    """Parse a number of bytes, as 5000000000 or ``5GB`` or ``2 GiB``. Raises RuleError [argument.value]."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(size))
    if match is None or match[2].upper() not in _UNITS or not float(match[1]):
        raise RuleError("argument.value", f"{subject} must be a number of bytes such as 500MB, got {size!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def plan_files(
    tensors: Sequence[TensorBlocks],
    *,
    format: str,
    metadata: Mapping[str, str],
    template: str | None,
    shards: int | None,
    max_shard_size: int | None,
) -> list[OutputFile]:
    """Assign tensors to files. ``template`` is the name of the first file of a parallel set that was read.

    Tensors that are all named ``NAME@RANK`` become one file per rank. Raises RuleError [argument.conflict] where the number of
    files contradicts that or the number of tensors, [reshard.tensor] for ranks with gaps; UnsupportedError [dtype.unknown].
    """
    if format == "npy":
        return [_npy_file(tensor) for tensor in tensors]
    ranks = _by_rank(tensors)
    if ranks is not None:
        if shards not in (None, len(ranks)) or max_shard_size is not None:
            raise RuleError("argument.conflict", f"outputs named NAME@RANK decide the number of files ({len(ranks)})")
        names = rank_names(template, len(ranks))
        return [safetensors_file(name, rows, metadata) for name, rows in zip(names, ranks, strict=True)]
    groups = _groups(tensors, shards, max_shard_size)
    count = len(groups)
    names = ["model.safetensors"] if count == 1 else [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    pairs = [[(tensor.name, tensor) for tensor in group] for group in groups]
    return [safetensors_file(name, rows, metadata) for name, rows in zip(names, pairs, strict=True)]


def _by_rank(tensors: Sequence[TensorBlocks]) -> list[list[tuple[str, TensorBlocks]]] | None:
    """Return the names and tensors of each rank; None where a name has no rank."""
    matches = [_RANKED.fullmatch(tensor.name) for tensor in tensors]
    if not matches or any(match is None for match in matches):
        return None
    rows: dict[int, list[tuple[str, TensorBlocks]]] = {}
    for match, tensor in zip(matches, tensors, strict=True):
        assert match is not None
        rows.setdefault(int(match[2]), []).append((match[1], tensor))
    if sorted(rows) != list(range(len(rows))):
        raise RuleError("reshard.tensor", f"ranks of outputs must be 0, 1, ... without gaps, got {sorted(rows)[:8]}")
    return [rows[rank] for rank in sorted(rows)]


def rank_names(template: str | None, count: int) -> list[str]:
    """Return names of rank files: numbered as ``template``, or ``rank-00000.safetensors`` and so on."""
    stem = (template or "rank-00000.safetensors").removesuffix(".safetensors")
    total = re.search(r"([0-9]+)-of-([0-9]+)", stem)
    number = total or re.search(r"([0-9]+)(?=[^0-9]*$)", stem)
    names = []
    for rank in range(count):
        if number is None:
            names.append(f"{stem}-{rank:05}.safetensors")
            continue
        text = f"{int(number[1]) + rank:0{len(number[1])}}"
        text += f"-of-{count:0{len(number[2])}}" if total else ""
        names.append(f"{stem[: number.start()]}{text}{stem[number.end() :]}.safetensors")
    return names


def _groups(tensors: Sequence[TensorBlocks], shards: int | None, max_shard_size: int | None) -> list[list[TensorBlocks]]:
    if shards is not None and not 1 <= shards <= max(len(tensors), 1):
        raise RuleError("argument.conflict", f"{len(tensors)} tensors fill 1 to {len(tensors)} files, got {shards}")
    groups: list[list[TensorBlocks]] = [[]]
    total, size = sum(map(nbytes_of, tensors)), 0
    for index, tensor in enumerate(tensors):
        nbytes = nbytes_of(tensor)
        if shards is not None:
            # A file ends at its share of the bytes, or where each file that is left needs a tensor.
            is_full = size * shards >= len(groups) * total or len(tensors) - index == shards - len(groups)
            is_full = is_full and len(groups) < shards
        else:
            is_full = max_shard_size is not None and size + nbytes > max_shard_size
        if groups[-1] and is_full:
            groups.append([])
            size = size if shards is not None else 0
        groups[-1].append(tensor)
        size += nbytes
    return groups


def nbytes_of(tensor: TensorBlocks) -> int:
    return prod(tensor.shape) * tensor.dtype.numpy.itemsize


def safetensors_file(name: str, rows: Sequence[tuple[str, TensorBlocks]], metadata: Mapping[str, str]) -> OutputFile:
    """Place tensors in a safetensors file, those of the largest elements first, so that each is aligned."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    tensors = []
    end = 0
    for own_name, tensor in sorted(rows, key=lambda row: -row[1].dtype.numpy.itemsize):
        code = NAMES.get(tensor.dtype.name)
        if code is None:
            raise UnsupportedError("dtype.unknown", f"safetensors has no element type {tensor.dtype}, which {own_name!r} has")
        if own_name == "__metadata__":
            raise RuleError("name.invalid", "safetensors reserves the name '__metadata__'")
        start, end = end, end + nbytes_of(tensor)
        entries[own_name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [start, end]}
        tensors.append((tensor, start))
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    return OutputFile(name, header, len(header) + end, [(tensor, len(header) + start) for tensor, start in tensors])


def _npy_file(tensor: TensorBlocks) -> OutputFile:
    if not re.fullmatch(r"[^/\\\0]{1,200}", tensor.name):
        raise RuleError("name.invalid", f"{tensor.name!r} cannot be the name of a file")
    dtype = tensor.dtype.numpy
    if np.dtype(np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))) != dtype:
        raise UnsupportedError("dtype.unknown", f".npy has no element type {tensor.dtype}, which {tensor.name!r} has")
    stream = BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tensor.shape}
    np.lib.format.write_array_header_1_0(stream, header)
    data = stream.getvalue()
    return OutputFile(f"{tensor.name}.npy", data, len(data) + nbytes_of(tensor), [(tensor, len(data))])


def index_of(files: Sequence[OutputFile]) -> bytes:
    """Return the index of several files in the form of Hugging Face's libraries."""
    weight_map = {tensor.name: file.name for file in files for tensor, _ in file.tensors}
    total = sum(nbytes_of(tensor) for file in files for tensor, _ in file.tensors)
    data = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return (json.dumps(data, indent=2) + "\n").encode()
