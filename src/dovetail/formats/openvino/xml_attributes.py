"""What stands in the attributes of an IR file: numbers, element types, sizes, lists of names, constants' bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dovetail import symbolic
from dovetail.dtypes import BY_OPENVINO, DType
from dovetail.errors import DovetailError, FormatError
from dovetail.formats.openvino import constants
from dovetail.ir.types import INT64_MAX, Size, impossible

# IR's names for port precisions, where they are not the element type's name in capitals.
PRECISIONS = {"boolean": "BOOL", "u1": "BIN", "f16": "FP16", "f32": "FP32", "f64": "FP64"}
TYPES: dict[str, DType | None] = {name.upper(): item for name, item in BY_OPENVINO.items()}
TYPES.update({precision: BY_OPENVINO[name] for name, precision in PRECISIONS.items()})
TYPES.update({"UNSPECIFIED": None, "DYNAMIC": None, "UNDEFINED": None})


NUMBER = re.compile(r"-?[0-9]{1,19}")
SIZES = re.compile(r"\s*(?:(\?|-1)|([0-9]{1,19})|([0-9]{1,19})?\s*\.\.\s*([0-9]{1,19})?)\s*")
LEADING_NUMBER = re.compile(r"\s*[0-9]")
COMMA = re.compile(r"(?<!\\),")


def names(text: str) -> tuple[str, ...]:
    """A list of tensor names: separated by commas, a comma inside a name behind a backslash; empty ones do not count."""
    if not text:
        return ()
    return tuple(dict.fromkeys(piece.replace("\\,", ",") for piece in COMMA.split(text) if piece))


def size_of(match: re.Match[str], name: str) -> Size | None:
    unknown, exact, low, high = match.groups()
    if unknown:
        return symbolic.symbol(name)
    if exact:
        return int(exact) if int(exact) <= INT64_MAX else None
    least, most = int(low or 0), None if high is None else int(high)
    if least > INT64_MAX or (most is not None and not least <= most <= INT64_MAX):
        return None
    return symbolic.symbol(name, least, most)


def port_sizes(texts: tuple[str | None, ...]) -> tuple[Size | None, ...] | str:
    sizes: list[Size | None] = []
    for text in texts:
        stripped = (text or "").strip()
        if stripped == "?":
            stripped = "-1"
        if NUMBER.fullmatch(stripped) is None or not -1 <= int(stripped) <= INT64_MAX:
            return f"{stripped[:40]!r} is no dimension"
        sizes.append(None if stripped == "-1" else int(stripped))
    return impossible(sizes) or tuple(sizes)


def constant(
    weights: constants.Bytes,
    dtype: DType,
    shape: tuple[int, ...],
    offset: int,
    size: int,
    accept: Callable[[DovetailError], None],
) -> constants.Array:
    """The elements, after offset and size have been held against the bytes there and against what the shape needs.

    Bytes beyond these are passed over by OpenVINO: ``accept`` gets that deviation."""
    if offset > weights.size or size > weights.size - offset:
        raise FormatError("ir.constant-range", f"bytes {offset} to {offset + size} of a .bin of {weights.size} bytes")
    count = 1
    for each in shape:
        count *= each
    needed = constants.size_of(dtype, count)
    if not count:
        # OpenVINO writes a byte or more for a constant without elements.
        try:
            return constants.unpack(weights[:0], dtype, shape)
        except ValueError:
            raise FormatError("ir.dims", f"no array can have the shape {list(shape)}") from None
    if needed is not None and needed != size:
        fault = FormatError("ir.constant-size", f"{dtype}{list(shape)} takes {needed} bytes, and the constant has {size}")
        if size < needed:
            raise fault
        accept(fault)
        size = needed
    return constants.unpack(weights[offset : offset + size], dtype, shape)


def partial_text(shape: Iterable[Size]) -> str:
    """A shape as a Parameter's ``shape`` says it, without brackets."""
    return ",".join(map(_size_text, shape))


def _size_text(size: Size) -> str:
    """A size as a Parameter's ``shape`` says it: a number, "?", "2..", "..8", "1..8"."""
    if isinstance(size, int):
        return str(size)
    low, high = symbolic.bounds(size)
    least = max(low or 0, 0)
    if not least and high is None:
        return "?"
    return f"{least or ''}..{'' if high is None else high}"
