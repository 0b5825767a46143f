"""Parse XML attributes of IR (numbers, element types, sizes, lists of names), and read the elements of constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dovetail.errors import DovetailError, FormatError
from dovetail.formats.openvino import constants
from dovetail.ir import symbolic
from dovetail.ir.dtypes import BY_OPENVINO, DType
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import INT64_MAX, Shape, Size, impossible

# The port precisions that differ from the upper-case name of the element type.
PRECISIONS = {"boolean": "BOOL", "u1": "BIN", "f16": "FP16", "f32": "FP32", "f64": "FP64"}
TYPES: dict[str, DType | None] = {name.upper(): item for name, item in BY_OPENVINO.items()}
TYPES.update({precision: BY_OPENVINO[name] for name, precision in PRECISIONS.items()})
TYPES.update({"UNSPECIFIED": None, "DYNAMIC": None, "UNDEFINED": None})


NUMBER = re.compile(r"-?[0-9]{1,19}")
SIZES = re.compile(r"\s*(?:(\?|-1)|([0-9]{1,19})|([0-9]{1,19})?\s*\.\.\s*([0-9]{1,19})?)\s*")
LEADING_NUMBER = re.compile(r"\s*[0-9]")
COMMA = re.compile(r"(?<!\\),")


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of tensor names; ``\\`` escapes a comma in a name, and empty names are dropped."""
    if not text:
        return ()
    return tuple(dict.fromkeys(piece.replace("\\,", ",") for piece in COMMA.split(text) if piece))


def size_of(match: re.Match[str], name: str) -> Size | None:
    unknown, exact, low, high = match.groups()
    if unknown:
        return symbolic.symbol(name)
    if exact:
        return int(exact) if int(exact) <= INT64_MAX else None
    minimum, maximum = int(low or 0), None if high is None else int(high)
    if minimum > INT64_MAX or (maximum is not None and not minimum <= maximum <= INT64_MAX):
        return None
    return symbolic.symbol(name, minimum, maximum)


def parse_shape(text: str, name: str, owner: str = "") -> Shape | None:
    """Parse a partial shape such as "1,3,?", "1..8,2..", "..." (unknown rank) or "" (scalar); None for unknown rank.

    Unknown sizes are named after ``name``. Raises FormatError [ir.number], with ``owner`` after the shape.
    """
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1].strip()
    if inner == "...":
        return None
    shape: list[Size] = []
    for axis, piece in enumerate(inner.split(",") if inner else ()):
        match = SIZES.fullmatch(piece)
        size = None if match is None else size_of(match, f"?{name}.{axis}")
        if size is None:
            rule = f"sizes in the shape {text!r}{owner} must be numbers, bounds or '?'"
            raise FormatError("ir.number", f"{rule}, got {piece.strip()!r}")
        shape.append(size)
    if fault := impossible(shape):
        raise FormatError("ir.number", fault)
    return tuple(shape)


def port_sizes(texts: tuple[str | None, ...]) -> tuple[Size | None, ...] | str:
    sizes: list[Size | None] = []
    for text in texts:
        stripped = (text or "").strip()
        if stripped == "?":
            stripped = "-1"
        if NUMBER.fullmatch(stripped) is None or not -1 <= int(stripped) <= INT64_MAX:
            return f"a dimension must be -1 or an integer from 0 to 2**63 - 1, got {stripped[:40]!r}"
        sizes.append(None if stripped == "-1" else int(stripped))
    return impossible(sizes) or tuple(sizes)


def read_elements(
    weights: constants.Bytes,
    dtype: DType,
    shape: tuple[int, ...],
    offset: int,
    size: int,
    accept: Callable[[DovetailError], None],
) -> constants.Array | PackedElements:
    """Read the elements of a constant, after checking ``offset`` and ``size``.

    The range must be within the weights, and have at least the bytes of the shape. OpenVINO ignores additional bytes: ``accept``
    receives that deviation.
    """
    if offset > weights.size or size > weights.size - offset:
        raise FormatError("ir.constant", f"bytes {offset} to {offset + size} must be in the .bin file of {weights.size} bytes")
    count = 1
    for axis_size in shape:
        count *= axis_size
    needed = constants.size_of(dtype, count)
    if not count:
        # OpenVINO writes at least one byte for a constant without elements, so that ``size`` is not checked.
        try:
            return constants.read(weights[:0], dtype, shape)
        except ValueError:
            raise FormatError("ir.number", f"the shape must be valid for a numpy array, got {list(shape)}") from None
    if needed is not None and needed != size:
        fault = FormatError("ir.constant", f"{dtype}{list(shape)} must have {needed} bytes, got {size}")
        if size < needed:
            raise fault
        accept(fault)
        size = needed
    return constants.read(weights[offset : offset + size], dtype, shape)


def format_shape(shape: Iterable[Size]) -> str:
    """Return the text of a Parameter's ``shape`` attribute, without brackets."""
    return ",".join(map(_format_size, shape))


def _format_size(size: Size) -> str:
    """Return the text of a size in a Parameter's ``shape`` attribute: a number, "?", or bounds "2..", "..8", "1..8"."""
    if isinstance(size, int):
        return str(size)
    low, high = symbolic.bounds(size)
    minimum = max(low or 0, 0)
    if not minimum and high is None:
        return "?"
    return f"{minimum or ''}..{'' if high is None else high}"
