"""The slot line: how one foreign operator is spelled in ours, read in both directions.

::

    [domain:]Kind-version[,version...](inputs; attributes | fixed)

``inputs`` stand in the foreign order under our names, ``attributes`` are ``theirs:ours`` (one name where both agree). Marks, in
this order: ``*name`` repeated, ``theirs~how`` converted, ``:ours`` renamed, ``?`` may be left out, ``=value`` what leaving it out
stands for, in their words. ``theirs:_`` is an attribute that the specification says is ignored. A core attribute among the
foreign inputs is read from a constant and written as one (an integer that only run time knows stays an input: RuntimeAttributes),
a core input among the foreign attributes is read from a constant likewise. ``a+b:ours`` joins two lists. ``fixed`` gives core
attributes that this spelling implies; ``name=value/other`` reads as ``value`` and can also say ``other`` (because ``other`` only
refuses where ``value`` answers).

Of several lines for one foreign version the first that fits reads it; a line that begins with ``>`` is only written.

Conversions: ``not`` (a flag inverted), ``lower`` (SAME_UPPER is same_upper), ``natural`` (an integer that must not be negative),
``front`` (an axis that must not be negative, but counts from the end in every reader that accepts it: a deviation),
``scalar`` (an input that must have rank 0, or an attribute that is one number), ``vector`` (an input that must have rank 1),
``unset`` (0 says that there is none), ``{theirs:ours,...}`` (a table).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import FormatError, UnsupportedError
from dovetail.ir.op import REQUIRED, Field, Op

_LINE = re.compile(r"(?:(?P<domain>[\w.]+):)?(?P<kind>\w+)-(?P<versions>[\d,]+)\((?P<body>.*)\)$", re.S)
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a foreign operator and the core input or attribute that fills it."""

    theirs: tuple[str, ...]
    ours: str
    repeated: bool = False
    optional: bool = False
    default: str | None = None
    how: str = ""
    table: tuple[tuple[str, str], ...] = ()

    @property
    def is_ignored(self) -> bool:
        return self.ours == "_"


@dataclass(frozen=True, slots=True)
class Spelling:
    """One slot line of an operator class. ``implied``: the core attributes that it fixes; ``known``: the foreign attributes
    it speaks of."""

    op: type[Op]
    domain: str
    kind: str
    versions: tuple[int, ...]
    inputs: tuple[Slot, ...]
    attributes: tuple[Slot, ...]
    fixed: tuple[tuple[str, tuple[str, ...]], ...]
    line: str
    is_written_only: bool
    implied: tuple[tuple[str, Any], ...]
    known: frozenset[str]

    def covers(self, name: str) -> bool:
        """Whether some place of this spelling speaks of the core input or attribute ``name``."""
        places = (*self.inputs, *self.attributes)
        return any(slot.ours == name for slot in places) or any(each == name for each, _ in self.fixed)


def split_top(text: str, mark: str = ",") -> list[str]:
    """``text`` cut at ``mark`` outside of braces and brackets."""
    pieces, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
        elif character == mark and not depth:
            pieces.append(text[start:place])
            start = place + 1
    pieces.append(text[start:])
    return [piece.strip() for piece in pieces if piece.strip()]


_SLOT = re.compile(
    r"(?P<star>\*)?(?P<theirs>[\w+-]+)(?:~(?P<how>\w+|\{[^}]*\}))?(?::(?P<ours>\w+))?(?P<optional>\?)?(?:=(?P<default>.*))?$",
    re.S,
)


def _parse_slot(text: str) -> Slot:
    match = _SLOT.match(text)
    assert match, f"not a slot: {text!r}"
    theirs = tuple(match["theirs"].split("+"))
    how, table = match["how"] or "", ()
    if how.startswith("{"):
        rows = [row.split(":") for row in how[1:-1].split(",")]
        how, table = "table", tuple((row[0].strip(), row[1].strip()) for row in rows)  # type: ignore[assignment]
    default = match["default"]
    return Slot(theirs, match["ours"] or match["theirs"], bool(match["star"]), bool(match["optional"]), default, how, table)


def parse(op: type[Op], line: str) -> Spelling:
    """Read one slot line of ``op``. A format's dialect keeps what it has read."""
    match = _LINE.match(line.strip().removeprefix(">").strip())
    assert match, f"{op.__name__}: not a slot line: {line!r}"
    body, *fixed = split_top(match["body"], "|")
    inputs, *attributes = split_top(body, ";") if not body.strip().startswith(";") else ["", body.strip()[1:]]
    pairs = [item.partition("=")[::2] for part in fixed for item in split_top(part)]
    fixed_words = tuple((name.strip(), tuple(value.strip().split("/"))) for name, value in pairs)
    slots = tuple(_parse_slot(text) for part in attributes for text in split_top(part))
    found = Spelling(
        op,
        match["domain"] or "",
        match["kind"],
        tuple(int(version) for version in match["versions"].split(",")),
        tuple(map(_parse_slot, split_top(inputs))),
        slots,
        fixed_words,
        line,
        line.strip().startswith(">"),
        tuple((name, fixed_value(op.fields_by_name[name], words[0])) for name, words in fixed_words if name in op.fields_by_name),
        frozenset(name for slot in slots for name in slot.theirs),
    )
    _check(found)
    return found


def _check(spelling: Spelling) -> None:
    known = {field.name for field in spelling.op.fields} | {port.name for port in spelling.op.signature.inputs}
    for slot in (*spelling.inputs, *spelling.attributes):
        assert slot.is_ignored or slot.ours in known, f"{spelling.op.__name__} has no {slot.ours!r}: {spelling.line}"
        _check_default(spelling, slot)
    for name, _ in spelling.fixed:
        assert name in known, f"{spelling.op.__name__} has no {name!r}: {spelling.line}"


def _check_default(spelling: Spelling, slot: Slot) -> None:
    field = field_of(spelling.op, slot.ours)
    if slot.default is None or field is None:
        return
    try:
        fixed_value(field, convert_in(slot, slot.default))
    except ValueError:
        raise AssertionError(
            f"{spelling.op.__name__}: {slot.default!r} is no word for {slot.theirs[0]}: {spelling.line}"
        ) from None


# Values: text or typed foreign values to core attributes, by the attribute's annotation.


def _integer(raw: Any) -> int:
    if raw.__class__ is int and raw in _INT64:
        return raw
    if isinstance(raw, str):
        text = raw.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ValueError
        raw = int(text)
    if isinstance(raw, bool) or not isinstance(raw, int | np.integer) or int(raw) not in _INT64:
        raise ValueError
    return int(raw)


def _float(raw: Any) -> float:
    if isinstance(raw, str):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float | np.floating | np.integer):
        raise ValueError
    return float(raw)


def _flag(raw: Any) -> bool:
    if isinstance(raw, str):
        # OpenVINO reads and writes true/false; older tools wrote 1/0 and True/False.
        found = {"true": True, "false": False, "1": True, "0": False}.get(raw.strip().lower())
        if found is None:
            raise ValueError
        return found
    if isinstance(raw, bool | np.bool_) or (isinstance(raw, int | np.integer) and raw in (0, 1)):
        return bool(raw)
    raise ValueError


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError
    return raw


def _dtype(raw: Any) -> DType:
    if isinstance(raw, DType):
        return raw
    found = dtypes._BY_NAME.get(raw) if isinstance(raw, str) else dtypes.BY_ONNX.get(_integer(raw))
    if found is None:
        raise ValueError
    return found


def _many(one: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read(raw: Any) -> tuple[Any, ...]:
        if isinstance(raw, str):
            text = raw.strip().removeprefix("[").removesuffix("]").strip()
            raw = [piece.strip() for piece in text.split(",")] if text else []
        if not isinstance(raw, (list, tuple, np.ndarray)):
            raise ValueError
        return tuple(one(item) for item in raw)

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _float,
    "bool": _flag,
    "str": _text,
    "DType": _dtype,
    "tuple[int, ...]": _many(_integer),
    "tuple[float, ...]": _many(_float),
    "tuple[str, ...]": _many(_text),
    "tuple[bool, ...]": _many(_flag),
}


_TEXTS = ("str", "DType")


def refuse_texts(annotation: str, raws: Iterable[Any]) -> None:
    """Raise ValueError for a text where a format with typed attributes has to have a number."""
    if annotation.removesuffix(" | None") not in _TEXTS:
        for raw in raws:
            if isinstance(raw, str):
                raise ValueError


def coerce(annotation: str, raw: Any) -> Any:
    """A foreign value as the attribute type ``annotation`` names. Raises ValueError where it does not fit."""
    bare = annotation.removesuffix(" | None")
    if raw is None and bare != annotation:
        return None
    reader = _READERS.get(bare)
    return raw if reader is None else reader(raw)


def fixed_value(field: Field, text: Any) -> Any:
    """A value as a slot line spells it: ``none`` is None."""
    return None if text == "none" and field.annotation.endswith("| None") else coerce(field.annotation, text)


def field_of(op: type[Op], name: str) -> Field | None:
    return op.fields_by_name.get(name)


def convert_in(slot: Slot, raw: Any) -> Any:
    """A foreign attribute value on its way into the core. Raises ValueError."""
    if not slot.how:
        return raw
    match slot.how:
        case "not":
            return not _flag(raw)
        case "lower":
            return _text(raw).lower()
        case "unset":
            return None if str(raw).strip() == "0" else raw
        case "natural":
            if any(_integer(item) < 0 for item in (raw if isinstance(raw, (list, tuple)) else (raw,))):
                raise ValueError
        case "scalar":
            if isinstance(raw, list | tuple | np.ndarray):
                raise ValueError
        case "table":
            if isinstance(raw, list | tuple):
                return [convert_in(slot, item) for item in raw]
            found = dict(slot.table).get(str(raw).strip())
            if found is None:
                raise ValueError
            return found
    return raw


def convert_out(slot: Slot, value: Any) -> Any:
    """A core attribute value on its way out. Raises KeyError where the spelling has no word for it."""
    match slot.how:
        case "not":
            return not value
        case "lower":
            return value.upper()
        case "natural" | "front":
            if value is not None and any(item < 0 for item in (value if isinstance(value, tuple) else (value,))):
                raise KeyError
        case "scalar":
            return value[0] if isinstance(value, tuple) and len(value) == 1 else value
        case "table":
            if isinstance(value, tuple):
                return tuple(convert_out(slot, item) for item in value)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            word = {ours: theirs for theirs, ours in slot.table}[text]
            # A table of numbers speaks of an integer attribute.
            return int(word) if re.fullmatch(r"-?\d+", word) else word
    return value


def read_attribute(spelling: Spelling, slot: Slot, attributes: dict[str, Any], *, is_text: bool) -> Any:
    """The value of one foreign attribute, coerced for the core attribute; REQUIRED where the core's own default stands.

    ``is_text``: the format writes everything as text. Raises FormatError [attribute.missing] or [attribute.value].
    """
    field = field_of(spelling.op, slot.ours)
    annotation = field.annotation if field else "a number"
    raws = [attributes[name] for name in slot.theirs if name in attributes]
    if len(raws) < len(slot.theirs):
        if slot.default is not None:
            return slot.default if field is None else fixed_value(field, convert_in(slot, slot.default))
        if slot.optional:
            return REQUIRED
        missing = [name for name in slot.theirs if name not in attributes]
        raise FormatError("attribute.missing", f"{spelling.kind} needs the attribute {missing[0]!r}")
    try:
        if not is_text and (slot.how != "table" or annotation == "int"):
            refuse_texts(annotation, raws)
        if len(raws) > 1:
            return tuple(item for raw in raws for item in coerce(annotation, raw))
        (raw,) = raws
        return coerce(annotation, convert_in(slot, raw))
    except ValueError:
        raise value_fault(spelling, slot, attributes) from None


def value_fault(spelling: Spelling, slot: Slot, attributes: dict[str, Any]) -> FormatError:
    """What is wrong with the value of a slot."""
    field = field_of(spelling.op, slot.ours)
    wanted = _wanted(slot, field.annotation if field else "a number")
    raw = next(attributes[name] for name in slot.theirs if name in attributes)
    return FormatError("attribute.value", f"{spelling.kind}: {' and '.join(slot.theirs)} = {raw!r} is not {wanted}")


def is_negative(value: Any) -> bool:
    """Whether a number, or one of several, is negative."""
    return any(
        isinstance(item, int | np.integer) and item < 0 for item in (value if isinstance(value, list | tuple) else [value])
    )


def as_floats(annotation: str, raw: Any) -> Any:
    """An integer, or a list of them, where floats belong, as floats; None where nothing is to be converted."""
    bare = annotation.removesuffix(" | None")
    if isinstance(raw, list) != bare.startswith("tuple") or not bare.removeprefix("tuple[").startswith("float") or not raw:
        return None
    items = raw if isinstance(raw, list) else [raw]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return None
    return list(map(float, items)) if isinstance(raw, list) else float(raw)


def other_case(slot: Slot, raw: str) -> str | None:
    """The word of a slot's table that ``raw`` is but for its case; None where it is one itself, or none."""
    text = raw.strip()
    known = {theirs for theirs, _ in slot.table}
    return text.lower() if text not in known and text.lower() in known else None


def _wanted(slot: Slot, kind: str) -> str:
    if slot.how == "table":
        return "one of " + ", ".join(theirs for theirs, _ in slot.table)
    if slot.how in ("natural", "front"):
        return "0 or a positive 64-bit integer" if kind.startswith("int") else "a list of integers, none of them negative"
    words = {"int": "a 64-bit integer", "bool": "a flag", "float": "a number", "str": "a text", "DType": "an element type"}
    return words.get(
        kind.removesuffix(" | None"), kind.removesuffix(" | None").replace("tuple[int, ...]", "a list of 64-bit integers")
    )


def read_constant(slot: Slot, field: Field, data: np.ndarray[Any, Any]) -> Any:
    """A constant input as the core attribute it fills. Raises FormatError [constant.value]."""
    kind = field.annotation
    try:
        if slot.how == "scalar" and data.ndim:
            raise ValueError
        if slot.how == "vector" and data.ndim != 1:
            raise ValueError
        if data.ndim > 1:
            raise ValueError
        if kind.startswith("tuple"):
            raws = np.atleast_1d(data).tolist()
            refuse_texts(kind, raws)
            return coerce(kind, raws)
        raw = data.reshape(()).item()
        refuse_texts(kind, [raw])
        return coerce(kind, raw)
    except ValueError:
        shape = list(data.shape)
        rank = {"scalar": " of rank 0", "vector": " of rank 1"}.get(slot.how, "")
        raise FormatError("constant.value", f"{slot.ours}: {data.dtype}{shape} is not {_wanted(slot, kind)}{rank}") from None


def check_rank(slot: Slot, shape: Sequence[Any] | None) -> None:
    """Raise FormatError [constant.value] where an attribute that comes as an input has a rank that the slot does not take."""
    rank = {"scalar": 0, "vector": 1}.get(slot.how)
    if shape is not None and rank is not None and len(shape) != rank:
        raise FormatError("constant.value", f"{slot.ours} should be of rank {rank}, not {len(shape)}")


def refuse_unknown(spelling: Spelling, attributes: dict[str, Any]) -> None:
    """Raise UnsupportedError [attribute.unknown] where a node has an attribute that no slot speaks of."""
    if not spelling.known.issuperset(attributes):
        extra = [name for name in attributes if name not in spelling.known]
        raise UnsupportedError(
            "attribute.unknown", f"{spelling.kind} has no attribute {', '.join(map(repr, extra))} that dovetail knows"
        )
