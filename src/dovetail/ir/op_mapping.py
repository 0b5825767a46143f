"""Op mappings: one line per operator and format version that maps a foreign operator to a core operator, in both directions.

::

    [domain:]Kind-version[,version...](inputs; attributes | fixed)

``inputs`` are in the order of the foreign operator and have core names. ``attributes`` are ``foreign:core``, or a single name if
both names agree. The marks of a parameter, in this order: ``*name`` is a repeated input, ``foreign~conversion`` is converted,
``:core`` gives the core name, ``?`` marks an optional parameter, ``=value`` gives the foreign default. ``foreign:_`` is an
attribute that the specification declares as ignored, and ``a+b:core`` concatenates two lists.

A core attribute among the inputs is imported from a constant and exported as a constant; an integer that is computed at run time
stays an input (RuntimeAttributes). A core input among the attributes becomes a constant. ``fixed`` lists the core attributes
that the foreign operator implies. ``name=value/other`` is imported as ``value``, and an operator with ``other`` is exported too.
The values ``value`` and ``other`` of such an attribute differ only in the errors that the operator raises.

If several mappings have the same foreign version, the first mapping that fits imports a node. A mapping that begins with ``>``
only exports.

Conversions: ``not`` (an inverted boolean), ``lower`` (SAME_UPPER is same_upper), ``natural`` (a non-negative integer),
``positive`` (an integer above 0), ``enlarging`` (an input whose constant elements must be at least 1), ``planar`` (an input of
rank 4), ``front`` (a non-negative axis; runtimes that accept a negative axis count it from the end, against the specification),
``scalar`` (an input of rank 0, or an attribute that is one number), ``vector`` (an input of rank 1), ``unset`` (0 stands for no
value), ``{foreign:core,...}`` (a table). docs/op_mapping.md has examples.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.attribute_types import REQUIRED, Field
from dovetail.ir.dtypes import DType
from dovetail.ir.suggestions import closest

if TYPE_CHECKING:
    from dovetail.ir.op import Op

Attributes = Mapping[str, Any]
"""Foreign attributes by name: typed values in ONNX, strings in OpenVINO IR."""

_INT64 = range(-(2**63), 2**63)


class OpMappingError(ValueError):
    """OpMappingError is raised for a malformed op mapping, and for one that names an unknown input or attribute.

    ``position`` is the offset of the fault ``message`` in ``text``.
    """

    def __init__(self, op: type[Op], text: str, position: int, message: str) -> None:
        super().__init__(f"{op.__name__}: op mapping, position {position}: {message}\n    {text}\n    {' ' * position}^")
        self.message = message
        self.text = text
        self.position = position


class ParamMapping(NamedTuple):
    """ParamMapping maps one parameter of a foreign operator to a core input or attribute."""

    foreign_names: tuple[str, ...]
    name: str
    is_repeated: bool = False
    is_optional: bool = False
    default: str | None = None
    conversion: str = ""
    table: tuple[tuple[str, str], ...] = ()

    @property
    def is_ignored(self) -> bool:
        return self.name == "_"


class OpMapping(NamedTuple):
    """OpMapping is a parsed op mapping of one operator class.

    ``implied`` holds the fixed core attributes with their values, ``foreign_attributes`` the names of all mapped attributes of
    the foreign operator.
    """

    op: type[Op]
    domain: str
    kind: str
    versions: tuple[int, ...]
    inputs: tuple[ParamMapping, ...]
    attributes: tuple[ParamMapping, ...]
    fixed: tuple[tuple[str, tuple[str, ...]], ...]
    text: str
    is_export_only: bool
    implied: tuple[tuple[str, Any], ...]
    foreign_attributes: frozenset[str]

    def has_param(self, name: str) -> bool:
        """Return whether the mapping maps or fixes the core input or attribute ``name``."""
        params = (*self.inputs, *self.attributes)
        return any(param.name == name for param in params) or any(fixed == name for fixed, _ in self.fixed)


# Parsing

_HEAD = re.compile(r"\s*(?P<export>>)?\s*(?:(?P<domain>[\w.-]+):)?(?P<kind>\w+)-(?P<versions>\d[\d,]*)\(")
_PARAM = re.compile(
    r"(?P<star>\*)?(?P<foreign>[\w+-]+)(?:~(?P<conversion>\w+|\{[^}]*\}))?"
    r"(?::(?P<core>\w+))?(?P<optional>\?)?(?:=(?P<default>.*))?$",
    re.S,
)

_Piece = tuple[int, str]
"""The offset of a section in the text of its op mapping, and the text of the section."""


def _sections(text: str, separator: str, start: int) -> list[_Piece]:
    """Split ``text`` at each ``separator`` outside of braces and brackets; ``start`` is the offset of ``text`` in the line."""
    sections, depth, first = [], 0, 0
    for offset, character in enumerate(text):
        depth += (character in "{[") - (character in "}]")
        if character == separator and not depth:
            sections.append((start + first, text[first:offset]))
            first = offset + 1
    return [*sections, (start + first, text[first:])]


def split_items(text: str, separator: str = ",", start: int = 0) -> list[_Piece]:
    """Split like :func:`_sections`, strip blanks around the items and drop empty items."""
    sections = _sections(text, separator, start)
    return [(offset + len(item) - len(item.lstrip()), item.strip()) for offset, item in sections if item.strip()]


def parse(op: type[Op], line: str) -> OpMapping:
    """Parse one op mapping of ``op``. Raises OpMappingError."""
    head = _HEAD.match(line)
    if head is None:
        raise OpMappingError(op, line, 0, "must begin with [domain:]Kind-version[,version...](")
    end = len(line.rstrip())
    if line[:end][-1] != ")":
        raise OpMappingError(op, line, end, "must end with )")
    body, *fixed = _sections(line[head.end() : end - 1], "|", head.end())
    inputs, *attributes = _sections(body[1], ";", body[0])
    input_params = [(offset, _parse_param(op, line, offset, text)) for offset, text in split_items(inputs[1], ",", inputs[0])]
    attribute_params = [
        (offset, _parse_param(op, line, offset, text))
        for part in attributes
        for offset, text in split_items(part[1], ",", part[0])
    ]
    _check_params(op, line, [*input_params, *attribute_params])
    fixed_values = _parse_fixed_values(op, line, [piece for part in fixed for piece in split_items(part[1], ",", part[0])])
    return OpMapping(
        op,
        head["domain"] or "",
        head["kind"],
        tuple(int(version) for version in head["versions"].split(",")),
        tuple(param for _, param in input_params),
        tuple(param for _, param in attribute_params),
        fixed_values,
        line,
        head["export"] is not None,
        tuple(
            (name, fixed_value(op.fields_by_name[name], words[0])) for name, words in fixed_values if name in op.fields_by_name
        ),
        frozenset(name for _, param in attribute_params for name in param.foreign_names),
    )


def imported_kind(line: str) -> str | None:
    """Return ``[domain:]Kind`` of the foreign operator that an op mapping imports; None if the mapping only exports."""
    head = _HEAD.match(line)
    if head is None or head["export"] is not None:
        return None
    return f"{head['domain']}:{head['kind']}" if head["domain"] else head["kind"]


def _parse_param(op: type[Op], line: str, offset: int, text: str) -> ParamMapping:
    match = _PARAM.match(text)
    if match is None:
        raise OpMappingError(op, line, offset, f"{text!r} is not a parameter")
    conversion, table = match["conversion"] or "", ()
    if conversion.startswith("{"):
        rows = [row.split(":") for row in conversion[1:-1].split(",")]
        if any(len(row) != 2 for row in rows):
            raise OpMappingError(op, line, offset + match.start("conversion"), "the rows of a table must be foreign:core")
        conversion, table = "table", tuple((row[0].strip(), row[1].strip()) for row in rows)  # type: ignore[assignment]
    elif conversion and conversion not in _CONVERSIONS:
        raise OpMappingError(op, line, offset + match.start("conversion"), f"no conversion is called {conversion!r}")
    return ParamMapping(
        tuple(match["foreign"].split("+")),
        match["core"] or match["foreign"],
        bool(match["star"]),
        bool(match["optional"]),
        match["default"],
        conversion,
        table,
    )


_CONVERSIONS = ("not", "lower", "natural", "positive", "enlarging", "planar", "front", "scalar", "vector", "unset")


def _check_params(op: type[Op], line: str, params: Iterable[tuple[int, ParamMapping]]) -> None:
    names = _param_names(op)
    for offset, param in params:
        if not param.is_ignored and param.name not in names:
            raise OpMappingError(op, line, offset, _unknown_param(op, param.name))
        field = field_of(op, param.name)
        if param.default is None or field is None:
            continue
        try:
            fixed_value(field, import_value(param, param.default))
        except ValueError:
            message = f"the default {param.default!r} of {param.foreign_names[0]} is not {_expected_values(param, field)}"
            raise OpMappingError(op, line, offset, message) from None


def _parse_fixed_values(op: type[Op], line: str, pieces: Iterable[_Piece]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    values = []
    for offset, text in pieces:
        name, _, words = (part.strip() for part in text.partition("="))
        if name not in _param_names(op):
            raise OpMappingError(op, line, offset, _unknown_param(op, name))
        values.append((name, tuple(words.split("/"))))
    return tuple(values)


def _param_names(op: type[Op]) -> set[str]:
    return {field.name for field in op.fields} | {port.name for port in op.signature.inputs}


def _unknown_param(op: type[Op], name: str) -> str:
    if name in op.__dict__:
        return f"the attribute {name!r} of {op.__name__} needs an annotation with its type, such as {name}: float"
    return f"{op.__name__} has no input or attribute {name!r}{closest(name, sorted(_param_names(op)))}"


# Values: strings or typed foreign values to core attributes, by the attribute's annotation.


def _integer(raw: object) -> int:
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


def _float(raw: object) -> float:
    if isinstance(raw, str):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float | np.floating | np.integer):
        raise ValueError
    return float(raw)


def _boolean(raw: object) -> bool:
    if isinstance(raw, str):
        # OpenVINO uses true/false; older tools wrote 1/0 and True/False.
        value = {"true": True, "false": False, "1": True, "0": False}.get(raw.strip().lower())
        if value is None:
            raise ValueError
        return value
    if isinstance(raw, bool | np.bool_) or (isinstance(raw, int | np.integer) and raw in (0, 1)):
        return bool(raw)
    raise ValueError


def _string(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError
    return raw


def _dtype(raw: object) -> DType:
    if isinstance(raw, DType):
        return raw
    dtype = dtypes._BY_NAME.get(raw) if isinstance(raw, str) else dtypes.BY_ONNX.get(_integer(raw))
    if dtype is None:
        raise ValueError
    return dtype


def _tuple_of(read_item: Callable[[Any], Any], item_class: type) -> Callable[[Any], tuple[Any, ...]]:
    def read(raw: Any) -> tuple[Any, ...]:
        if raw.__class__ is list and _are_plain(raw, item_class):
            return tuple(raw)
        if isinstance(raw, str):
            text = raw.strip().removeprefix("[").removesuffix("]").strip()
            raw = [item.strip() for item in text.split(",")] if text else []
        if not isinstance(raw, (list, tuple, np.ndarray)):
            raise ValueError
        return tuple(read_item(item) for item in raw)

    return read


def _are_plain(raw: list[Any], item_class: type) -> bool:
    """Return whether all items of a list have the class ``item_class`` and integers fit 64 bits, so that none is converted."""
    if set(map(type, raw)) != {item_class}:
        return False
    if item_class is int:
        try:
            array("q", raw)
        except OverflowError:
            return False
    return True


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": _string,
    "DType": _dtype,
    "tuple[int, ...]": _tuple_of(_integer, int),
    "tuple[float, ...]": _tuple_of(_float, float),
    "tuple[str, ...]": _tuple_of(_string, str),
    "tuple[bool, ...]": _tuple_of(_boolean, bool),
}

_READ_FROM_STRINGS = ("str", "DType")


def refuse_strings(annotation: str, raws: Iterable[object]) -> None:
    """Raise ValueError for a string if the attribute type ``annotation`` is numeric; used for formats with typed attributes."""
    if annotation.removesuffix(" | None") not in _READ_FROM_STRINGS:
        for raw in raws:
            if isinstance(raw, str):
                raise ValueError


def is_mappable(annotation: str) -> bool:
    """Return whether attributes of the type ``annotation`` can be read from foreign attributes."""
    bare = annotation.removesuffix(" | None")
    return bare in _READERS or bare.startswith("Literal[")


def coerce(annotation: str, raw: object) -> Any:
    """Convert a foreign value to the attribute type ``annotation``. Raises ValueError if the value has the wrong type."""
    bare = annotation.removesuffix(" | None")
    if raw is None and bare != annotation:
        return None
    reader = _READERS.get(bare)
    return raw if reader is None else reader(raw)


def fixed_value(field: Field, text: object) -> Any:
    """Convert a value that an op mapping states to the attribute's type; ``none`` becomes None if the attribute may be None."""
    return None if text == "none" and field.annotation.endswith("| None") else coerce(field.annotation, text)


def field_of(op: type[Op], name: str) -> Field | None:
    return op.fields_by_name.get(name)


def import_value(param: ParamMapping, raw: object) -> Any:
    """Apply the conversion of ``param`` to a foreign attribute value. Raises ValueError."""
    if not param.conversion:
        return raw
    match param.conversion:
        case "not":
            return not _boolean(raw)
        case "lower":
            return _string(raw).lower()
        case "unset":
            return None if str(raw).strip() == "0" else raw
        case "natural":
            if any(_integer(item) < 0 for item in (raw if isinstance(raw, (list, tuple)) else (raw,))):
                raise ValueError
        case "positive":
            if _integer(raw) < 1:
                raise ValueError
        case "scalar":
            if isinstance(raw, list | tuple | np.ndarray):
                raise ValueError
        case "table":
            if isinstance(raw, list | tuple):
                return [import_value(param, item) for item in raw]
            word = dict(param.table).get(str(raw).strip())
            if word is None:
                raise ValueError
            return word
    return raw


def export_value(param: ParamMapping, value: Any) -> Any:
    """Convert a core attribute value to a foreign value: the inverse of :func:`import_value`.

    Raises KeyError if the foreign operator cannot express the value.
    """
    match param.conversion:
        case "not":
            return not value
        case "lower":
            return value.upper()
        case "natural" | "front":
            if value is not None and any(item < 0 for item in (value if isinstance(value, tuple) else (value,))):
                raise KeyError
        case "positive":
            if np.any(np.less(value, 1)):
                raise KeyError
            return value[0] if isinstance(value, tuple) and len(value) == 1 else value
        case "scalar":
            return value[0] if isinstance(value, tuple) and len(value) == 1 else value
        case "table":
            if isinstance(value, tuple):
                return tuple(export_value(param, item) for item in value)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            word = {core: foreign for foreign, core in param.table}[text]
            # If the foreign values of a conversion table are numbers, the foreign attribute is an integer.
            return int(word) if re.fullmatch(r"-?\d+", word) else word
    return value


def read_attribute(mapping: OpMapping, param: ParamMapping, attributes: Attributes, *, is_text: bool) -> Any:
    """Read one foreign attribute and convert it to the core attribute; return REQUIRED to use the core attribute's default.

    ``is_text`` states that the format stores all attributes as strings. Raises FormatError [attribute.missing] or
    [attribute.value].
    """
    field = field_of(mapping.op, param.name)
    annotation = field.annotation if field else "a number"
    raws = [attributes[name] for name in param.foreign_names if name in attributes]
    if len(raws) < len(param.foreign_names):
        if param.default is not None:
            return param.default if field is None else fixed_value(field, import_value(param, param.default))
        if param.is_optional:
            return REQUIRED
        missing = [name for name in param.foreign_names if name not in attributes]
        raise FormatError("attribute.missing", f"{mapping.kind} needs the attribute {missing[0]!r}")
    try:
        if not is_text and (param.conversion != "table" or annotation == "int"):
            refuse_strings(annotation, raws)
        if len(raws) > 1:
            return tuple(item for raw in raws for item in coerce(annotation, raw))
        (raw,) = raws
        return coerce(annotation, import_value(param, raw))
    except ValueError:
        raise value_error(mapping, param, attributes) from None


def value_error(mapping: OpMapping, param: ParamMapping, attributes: Attributes) -> FormatError:
    """Build the error [attribute.value] for a foreign attribute: its names, the expected value, the actual value."""
    expected = _expected_values(param, field_of(mapping.op, param.name))
    raw = next(attributes[name] for name in param.foreign_names if name in attributes)
    return FormatError("attribute.value", f"{mapping.kind}: {' and '.join(param.foreign_names)} must be {expected}, got {raw!r}")


def is_negative(value: object) -> bool:
    """Return whether a number, or an item of a list, is a negative integer."""
    return any(
        isinstance(item, int | np.integer) and item < 0 for item in (value if isinstance(value, list | tuple) else [value])
    )


def as_floats(annotation: str, raw: object) -> Any:
    """Convert an integer or a list of integers to floats if ``annotation`` is a float type; return None otherwise."""
    bare = annotation.removesuffix(" | None")
    if isinstance(raw, list) != bare.startswith("tuple") or not bare.removeprefix("tuple[").startswith("float") or not raw:
        return None
    items: list[Any] = raw if isinstance(raw, list) else [raw]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return None
    floats = [float(item) for item in items]
    return floats if isinstance(raw, list) else floats[0]


def with_floats(annotation: str, value: Any) -> Any:
    """Return the value of an attribute with its integers as floats if ``annotation`` is a float type."""
    floats = as_floats(annotation, list(value) if isinstance(value, tuple) else value)
    return value if floats is None else tuple(floats) if isinstance(value, tuple) else floats


def other_case(param: ParamMapping, raw: str) -> str | None:
    """Return ``raw`` in lower case if the conversion table contains that form, but not ``raw`` itself; else None."""
    text = raw.strip()
    words = {foreign for foreign, _ in param.table}
    return text.lower() if text not in words and text.lower() in words else None


_TYPE_NAMES = {
    "int": "a 64-bit integer",
    "bool": "a boolean",
    "float": "a number",
    "str": "a string",
    "DType": "an element type",
    "tuple[int, ...]": "a list of 64-bit integers",
    "tuple[float, ...]": "a list of numbers",
    "tuple[str, ...]": "a list of strings",
    "tuple[bool, ...]": "a list of booleans",
}


def type_name(annotation: str) -> str:
    """Return an attribute type's name for messages: "a list of 64-bit integers" for ``tuple[int, ...]``."""
    bare = annotation.removesuffix(" | None")
    return _TYPE_NAMES.get(bare, bare)


def _expected_values(param: ParamMapping, field: Field | None) -> str:
    """Return a description of the values that a parameter accepts, for messages."""
    annotation = "a number" if field is None else field.annotation
    if param.conversion == "table":
        return "one of " + ", ".join(foreign for foreign, _ in param.table)
    if param.conversion in ("natural", "front"):
        is_list = not annotation.startswith("int")
        return "a list of non-negative 64-bit integers" if is_list else "a non-negative 64-bit integer"
    return type_name(annotation)


def read_constant(param: ParamMapping, field: Field, data: Array) -> Any:
    """Convert a constant input to the core attribute ``field``. Raises FormatError [constant.value]."""
    annotation = field.annotation
    try:
        if param.conversion == "scalar" and data.ndim:
            raise ValueError
        if param.conversion == "vector" and data.ndim != 1:
            raise ValueError
        if data.ndim > 1:
            raise ValueError
        if annotation.startswith("tuple"):
            raws = np.atleast_1d(data).tolist()
            refuse_strings(annotation, raws)
            return coerce(annotation, raws)
        raw = data.reshape(()).item()
        refuse_strings(annotation, [raw])
        return coerce(annotation, raw)
    except ValueError:
        rank = {"scalar": " of rank 0", "vector": " of rank 1"}.get(param.conversion, "")
        expected = _expected_values(param, field)
        raise FormatError(
            "constant.value", f"{param.name} must be {expected}{rank}, got {data.dtype}{list(data.shape)}"
        ) from None


def check_rank(param: ParamMapping, shape: Sequence[object] | None) -> None:
    """Raise FormatError [constant.value] if the input of a core attribute has a rank that ``param`` does not accept."""
    rank = {"scalar": 0, "vector": 1}.get(param.conversion)
    if shape is not None and rank is not None and len(shape) != rank:
        raise FormatError("constant.value", f"{param.name} must have rank {rank}, got rank {len(shape)}")


def refuse_unknown(mapping: OpMapping, attributes: Attributes) -> None:
    """Raise UnsupportedError [attribute.unknown] if a node has an attribute that ``mapping`` does not map."""
    if not mapping.foreign_attributes.issuperset(attributes):
        extra = [name for name in attributes if name not in mapping.foreign_attributes]
        raise UnsupportedError(
            "attribute.unknown", f"{mapping.kind} has no attribute {', '.join(map(repr, extra))} that dovetail knows"
        )
