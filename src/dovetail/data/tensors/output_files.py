"""Output files: the assignment of tensors to files, with their offsets and the headers of the files."""

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
    """OutputFile is a file to write: ``header``, followed by ``tensors``, each with its byte offset in the file."""

    name: str
    header: bytes
    size: int
    tensors: list[tuple[TensorBlocks, int]] = field(default_factory=list)


def parse_size(size: int | str, subject: str) -> int:
    """Parse a number of bytes such as 5000000000, ``5GB`` or ``2 GiB``. Raises RuleError [argument.value]."""
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
    """Assign tensors to files. ``template`` is the name of the first file if the input is a parallel set.

    If all tensors are named ``NAME@RANK``, each rank becomes a file. Raises RuleError [argument.conflict] for a number of files
    that contradicts the ranks or the number of tensors, [reshard.tensor] for ranks with gaps; UnsupportedError [dtype.unknown].
    """
    if format == "npy":
        return [_npy_file(tensor) for tensor in tensors]
    ranks = _by_rank(tensors)
    if ranks is not None:
        if shards not in (None, len(ranks)) or max_shard_size is not None:
            message = f"the number of files must be the number of ranks ({len(ranks)}) of the outputs NAME@RANK"
            raise RuleError("argument.conflict", message)
        names = rank_names(template, len(ranks))
        return [safetensors_file(name, rows, metadata) for name, rows in zip(names, ranks, strict=True)]
    groups = _groups(tensors, shards, max_shard_size)
    count = len(groups)
    names = ["model.safetensors"] if count == 1 else [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    pairs = [[(tensor.name, tensor) for tensor in group] for group in groups]
    return [safetensors_file(name, rows, metadata) for name, rows in zip(names, pairs, strict=True)]


def _by_rank(tensors: Sequence[TensorBlocks]) -> list[list[tuple[str, TensorBlocks]]] | None:
    """Return the names and tensors of each rank; None if a name has no rank."""
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
    """Return the names of the rank files, numbered like ``template``; without a template they are rank-00000.safetensors, ..."""
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
        message = f"shards must be from 1 to the number of tensors ({len(tensors)}), got {shards}"
        raise RuleError("argument.conflict", message)
    groups: list[list[TensorBlocks]] = [[]]
    total, size = sum(map(nbytes_of, tensors)), 0
    for index, tensor in enumerate(tensors):
        nbytes = nbytes_of(tensor)
        if shards is not None:
            # A file is full at its share of the bytes, or if each remaining file needs one of the remaining tensors.
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
    """Assign offsets to tensors in a safetensors file, by decreasing element size so that each tensor is aligned."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    tensors = []
    end = 0
    for own_name, tensor in sorted(rows, key=lambda row: -row[1].dtype.numpy.itemsize):
        code = NAMES.get(tensor.dtype.name)
        if code is None:
            message = f"{own_name!r} must have an element type of safetensors, got {tensor.dtype}"
            raise UnsupportedError("dtype.unknown", message)
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
        raise UnsupportedError("dtype.unknown", f"{tensor.name!r} must have an element type of .npy, got {tensor.dtype}")
    stream = BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tensor.shape}
    np.lib.format.write_array_header_1_0(stream, header)
    data = stream.getvalue()
    return OutputFile(f"{tensor.name}.npy", data, len(data) + nbytes_of(tensor), [(tensor, len(data))])


def index_of(files: Sequence[OutputFile]) -> bytes:
    """Return the index of several files as JSON, in the format of Hugging Face's libraries."""
    weight_map = {tensor.name: file.name for file in files for tensor, _ in file.tensors}
    total = sum(nbytes_of(tensor) for file in files for tensor, _ in file.tensors)
    data = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return (json.dumps(data, indent=2) + "\n").encode()
