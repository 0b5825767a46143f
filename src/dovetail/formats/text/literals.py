"""Convert values to text and back without loss: attributes, metadata, types and tensors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import Diagnostic, DovetailError, EngineError, FormatError, RuleError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.text import foreign_forms
from dovetail.formats.text.grammar import MAX_DEPTH, MAX_LEVELS, Line, quote
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import REGISTRY, Op
from dovetail.ir.symbolic import Dim, parse_print
from dovetail.ir.symbolic.algebra import Atom
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type

INLINE = 16
"""The maximum number of elements of a tensor in the text; tensors of strings are always in the text."""
Array = NDArray[Any]
Store = Callable[[Array, DType, str], str]
"""A function that stores a tensor (elements, element type, name) in the weights file, and returns its name in the file."""
_ERRORS: dict[str, type[DovetailError]] = {
    cls.__name__: cls for cls in (DovetailError, FormatError, UnsupportedError, RuleError, EngineError)
}
_DTYPES = frozenset(item.name for item in dtypes.ALL)
_DECIMAL = frozenset("f16 bf16 f32 f64".split())


class Symbols:
    """Symbols assigns names in the text to the symbols of a model; symbols of equal names get numeric suffixes."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, int | None, int | None], str] = {}
        self._taken: set[str] = set()

    def text_of(self, atom: Atom) -> str:
        """Return the name of the symbol ``atom`` in expressions of the text."""
        key = atom.args
        text = self._texts.get(key)
        if text is None:
            name = key[0] if key[0].isprintable() else "symbol"
            text, number = name, 1
            while text in self._taken:
                number += 1
                text = f"{name}#{number}"
            self._taken.add(text)
            self._texts[key] = text
        return parse_print.quoted_name(text)

    def lines(self) -> list[str]:
        """Return the declarations of symbols that have bounds other than 0.. or a changed name."""
        found = []
        for (name, low, high), text in self._texts.items():
            if (name, low, high) == (text, 0, None):
                continue
            bounds = f"{'' if low is None else low}..{'' if high is None else high}"
            of = "" if name == text else f" = {quote(name)}"
            found.append(f"symbol {quote(text)}{of} {quote(bounds)}")
        return found


class LiteralWriter:
    """LiteralWriter converts values to text. ``faults`` collects errors for values that the text form cannot express."""

    def __init__(self, symbols: Symbols, store: Store) -> None:
        self._symbols = symbols
        self._store = store
        self.faults: list[DovetailError] = []
        self._level = 0

    def value(self, value: object, name: str = "") -> str:
        """Return the text of a value; ``name`` is the name for a tensor that is stored in the weights file."""
        self._level += 1
        try:
            return self._value(value, name) if self._level <= MAX_LEVELS else self._refuse(value)
        finally:
            self._level -= 1

    def _value(self, value: Any, name: str) -> str:
        cls = value.__class__
        if value is None or cls is bool:
            return {None: "none", True: "true", False: "false"}[value]
        if cls is int or cls is float:
            return repr(value)
        if cls is str:
            return quote(value)
        if cls is bytes:
            return f'b"{base64.b64encode(value).decode()}"'
        if isinstance(value, tuple | list):
            items = ", ".join(self.value(item, name) for item in value)
            return (
                f"[{items}]"
                if cls is list
                else f"({items})"
                if hasattr(value, "_fields") or cls is tuple
                else self._refuse(value)
            )
        if cls is dict:
            return "{" + ", ".join(f"{self.value(key)}: {self.value(item, name)}" for key, item in value.items()) + "}"
        if isinstance(value, DType):
            return value.name
        if isinstance(value, Tensor | Sequence | Optional | Map):
            return f"type {self.type(value)}"
        if isinstance(value, np.ndarray):
            return self.array(value, _dtype_of(value), name)
        if isinstance(value, np.generic):
            return self.value(value.item(), name)
        if isinstance(value, ForeignTensor):
            return f"tensor({quote(value.name)}, {self.array(np.asarray(value.data), value.dtype, value.name or name)})"
        if isinstance(value, ForeignGraph | ForeignNode | ForeignValue):
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            return f"foreign({quote(type(value).__name__)}, {self.value(parts, name)})"
        if isinstance(value, Op):
            return f"op {self.operator(value, name)}"
        if isinstance(value, Dim):
            return f"size {quote(self.size(value))}"
        if isinstance(value, DovetailError):
            rows = [[item.code, item.message, item.node, item.file, item.op, item.severity] for item in value.diagnostics]
            base = next(name for name, known in reversed(_ERRORS.items()) if isinstance(value, known))
            return f"error({quote(base)}, {self.value(rows)})"
        return self._refuse(value)

    def _refuse(self, value: object) -> str:
        subject = f"values of more than {MAX_LEVELS} levels" if self._level > MAX_LEVELS else f"a Python {type(value).__name__}"
        self.faults.append(UnsupportedError("op.unsayable", f"the text form cannot express {subject}"))
        return "none"

    def operator(self, op: Op, name: str = "", inputs: str = "") -> str:
        """Return the text of an operator with the text ``inputs`` of its inputs, without the bodies of its subgraphs."""
        items = [
            f"{field.name}={'graph' if field.annotation == 'Graph' else self.value(op.__dict__[field.name], name)}"
            for field in op.fields
            if not _is_default(op.__dict__[field.name], field.default)
        ]
        attributes = f"; {', '.join(items)}" if items else ""
        return f"{type(op).__name__}({inputs}{attributes})"

    def type(self, type: Type) -> str:
        """Return the text of a type; sizes are expressions of symbols."""
        if isinstance(type, Tensor):
            shape = "..." if type.shape is None else ", ".join("?" if size is None else self.size(size) for size in type.shape)
            return f"{type.dtype or '?'}[{shape}]"
        if isinstance(type, Sequence):
            length = "" if type.length is None else f"; {self.size(type.length)}"
            return f"sequence({self.type(type.element)}{length})"
        if isinstance(type, Optional):
            return f"optional({self.type(type.element)})"
        return f"map({type.key}, {self.type(type.element)})"

    def size(self, size: Size) -> str:
        """Return the text of a size. An expression that is too long is a fault."""
        text = parse_print.dim_text(size, self._symbols.text_of)
        if len(text) > parse_print.LONGEST_TEXT:
            self.faults.append(
                UnsupportedError(
                    "op.unsayable",
                    f"an expression of dimensions must have at most {parse_print.LONGEST_TEXT} characters, got {len(text)}",
                )
            )
        return text

    def array(self, data: Array, dtype: DType, name: str) -> str:
        """Return the text of a tensor: at most INLINE elements, or else the tensor's name in the weights file."""
        head = f"{dtype}[{', '.join(map(str, data.shape))}]"
        if dtype is dtypes.string:
            return f"{head}{{{', '.join(self.value(item) for item in data.reshape(-1).tolist())}}}"
        if data.size > INLINE:
            return f"{head}@{quote(self._store(data, dtype, name))}"
        if dtype is dtypes.boolean or dtype.is_integer:
            elements = [int(item) for item in data.reshape(-1).tolist()]
            return f"{head}{{{', '.join(map(str, elements))}}}"
        flat = np.ascontiguousarray(data).reshape(-1)
        with np.errstate(invalid="ignore"):
            is_decimal = dtype.name in _DECIMAL and not np.isnan(flat).any()
        if is_decimal:
            return f"{head}{{{', '.join(map(_decimal, flat))}}}"
        return f'{head}hex"{flat.tobytes().hex()}"'


def _decimal(number: Any) -> str:
    """Return the shortest decimal text that converts back to the same element."""
    text = repr(float(number))
    if number.dtype == np.float32:
        short = repr(float(str(number)))
        text = short if np.float32(float(short)) == number and len(short) < len(text) else text
    return text


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and not isinstance(value, np.ndarray) and bool(value == default)
                                and repr(value) == repr(default))  # fmt: skip


def _dtype_of(array: Array) -> DType:
    return dtypes.string if array.dtype.hasobject else dtypes.dtype(array.dtype)


class LiteralReader:
    """LiteralReader parses values. ``weights`` maps names of tensors in the weights file to element type, shape and bytes."""

    def __init__(self, weights: Mapping[str, tuple[DType, tuple[int, ...], Any]]) -> None:
        self._weights = weights
        self.symbols: dict[str, Size] = {}
        self.depth = 0
        self._sequences = 0

    def value(self, line: Line) -> Any:
        """Parse one value."""
        self.depth += 1
        if self.depth > MAX_LEVELS:
            raise line.fault(f"values must nest at most {MAX_LEVELS} levels deep")
        try:
            return self._value(line)
        finally:
            self.depth -= 1

    def _value(self, line: Line) -> Any:
        token = line.peek()
        if token.kind == "string":
            return line.unquote(line.take())
        if token.kind == "number":
            return _number(line)
        if token.kind == "bytes":
            try:
                return base64.b64decode(line.take().text[2:-1], validate=True)
            except binascii.Error:
                raise line.fault("bytes must be in base64", token.column) from None
        if token.kind == "sign" and token.text == "?":
            raise line.fault("expected a value, got '?'", token.column)
        if token.kind == "sign" and token.text in "([{":
            line.take()
            return {"(": self._tuple, "[": self._list, "{": self._dict}[token.text](line)
        if token.kind != "name":
            raise line.fault(f"expected a value, got {token.text[:40] or 'the end of the line'!r}", token.column)
        return self._word(line, line.take().text, token.column)

    def _word(self, line: Line, word: str, column: int) -> Any:
        if word in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[word]
        if word == "type":
            return self.type(line)
        if word == "op":
            cls, inputs, attributes, graphs = self.operator_parts(line)
            if inputs or graphs:
                raise line.fault("an operator that is a value must have no inputs and no subgraphs", column)
            return cls(**attributes)
        if word == "size":
            return self._size(line, line.name(), column)
        if word == "tensor":
            line.expect("(")
            name = line.name()
            line.expect(",")
            data, dtype = self.tensor(line)
            line.expect(")")
            return ForeignTensor(dtype, data, name)
        if word == "foreign":
            return self._foreign(line)
        if word == "error":
            return self._error(line)
        if word not in _DTYPES:
            raise line.fault(f"expected a value, got {word!r}", column)
        if line.accept("["):
            return self._array(line, dtypes.dtype(word))[0]
        return dtypes.dtype(word)

    def _items(self, line: Line, end: str, read: Callable[[Line], Any]) -> list[Any]:
        found: list[Any] = []
        while line.accept(end) is None:
            if found:
                line.expect(",")
            found.append(read(line))
        return found

    def _tuple(self, line: Line) -> tuple[Any, ...]:
        return tuple(self._items(line, ")", self.value))

    def _list(self, line: Line) -> list[Any]:
        return self._items(line, "]", self.value)

    def _dict(self, line: Line) -> dict[Any, Any]:
        def entry(line: Line) -> tuple[Any, Any]:
            column = line.peek().column
            key = self.value(line)
            if not _is_key(key):
                raise line.fault("a key must be a string, an integer, or a tuple of strings and integers", column)
            line.expect(":")
            return key, self.value(line)

        return dict(self._items(line, "}", entry))

    def _foreign(self, line: Line) -> ForeignGraph | ForeignNode | ForeignValue:
        """Parse a ForeignGraph, ForeignNode or ForeignValue."""
        line.expect("(")
        column = line.peek().column
        cls = foreign_forms.KINDS.get(line.name())
        line.expect(",")
        items = self.value(line)
        line.expect(")")
        if cls is None or not isinstance(items, dict) or not foreign_forms.has_form(cls, items):
            raise line.fault("a part of a subgraph must have a known kind, and all fields of that kind with valid values", column)
        part: ForeignGraph | ForeignNode | ForeignValue = cls(**items)
        return part

    def _error(self, line: Line) -> DovetailError:
        line.expect("(")
        column = line.peek().column
        cls = _ERRORS.get(line.name())
        line.expect(",")
        rows = self.value(line)
        line.expect(")")
        is_row = isinstance(rows, list) and rows and all(
            isinstance(row, list) and len(row) == 6 and all(item is None or isinstance(item, str) for item in row) for row in rows
        )  # fmt: skip
        if cls is None or not is_row:
            raise line.fault("an error must have a known class, and diagnostics of six strings each", column)
        items = [Diagnostic(row[0] or "", row[1] or "", row[2], row[3], row[4], row[5] or "error") for row in rows]
        first = items[0]
        several = items if len(items) > 1 else ()
        return cls(first.code, first.message, node=first.node, op=first.op, file=first.file, diagnostics=several)

    def operator_parts(self, line: Line) -> tuple[type[Op], list[str | None], dict[str, Any], dict[str, int]]:
        """Parse an operator; return its class, inputs, attributes, and the column of each attribute that is a subgraph."""
        token = line.peek()
        cls = REGISTRY.get(line.name())
        if cls is None:
            raise line.fault(f"expected an operator, got {token.text[:40]!r}", token.column)
        line.expect("(")
        inputs: list[str | None] = []
        attributes: dict[str, Any] = {}
        graphs: dict[str, int] = {}
        while not (end := line.accept(")", ";")):
            if inputs:
                line.expect(",")
            inputs.append(None if line.accept("-") else line.name())
        while end == ";" and not line.accept(")"):
            if attributes or graphs:
                line.expect(",")
            column = line.peek().column
            name = line.name()
            if name in attributes or name in graphs:
                raise line.fault(f"attributes must have different names, got {name!r} twice", column)
            line.expect("=")
            if line.accept("graph"):
                graphs[name] = column
            else:
                attributes[name] = self.value(line)
        return cls, inputs, attributes, graphs

    def type(self, line: Line) -> Type:
        """Parse a type."""
        if not self.depth:
            self._sequences = 0
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise line.fault(f"types must nest at most {MAX_DEPTH} levels deep")
        try:
            return self._type(line)
        finally:
            self.depth -= 1

    def _type(self, line: Line) -> Type:
        token = line.take()
        word = token.text
        if word in ("sequence", "optional", "map"):
            line.expect("(")
            key = line.take().text if word == "map" else ""
            if word == "map":
                if key not in _DTYPES:
                    raise line.fault(f"expected an element type, got {key[:40]!r}", token.column)
                line.expect(",")
            self._sequences += word == "sequence"
            element = self.type(line)
            self._sequences -= word == "sequence"
            length = self._size(line, line.rest_until(")"), token.column) if word == "sequence" and line.accept(";") else None
            line.expect(")")
            return Sequence(element, length) if word == "sequence" else Optional(element) if word == "optional" else Map(
                dtypes.dtype(key), element
            )  # fmt: skip
        if word != "?" and word not in _DTYPES:
            raise line.fault(f"expected a type, got {word[:40]!r}", token.column)
        dtype = None if word == "?" else dtypes.dtype(word)
        line.expect("[")
        sizes: list[Any] = []
        while True:
            column = line.position
            text = line.rest_until(",]")
            if text == "..." and not sizes:
                line.expect("]")
                return Tensor(dtype, None)
            if text == "?" and not self._sequences:
                raise line.fault("only elements of a sequence may have the size '?'", column)
            if text or sizes:
                sizes.append(None if text == "?" else self._size(line, text, column))
            if line.accept("]"):
                return Tensor(dtype, tuple(sizes))
            line.expect(",")

    def _size(self, line: Line, text: str, column: int) -> Size:
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        try:
            return symbolic.parse(text, self._symbol)
        except FormatError as error:
            raise line.fault(error.message, column) from None

    def _symbol(self, name: str) -> Size:
        found = self.symbols.get(name)
        if found is None:
            found = self.symbols[name] = symbolic.symbol(name)
        return found

    def tensor(self, line: Line) -> tuple[Array, DType]:
        """Parse a tensor; return its elements, a read-only array, and its element type."""
        token = line.take()
        if token.text not in _DTYPES:
            raise line.fault(f"expected a tensor, got {token.text[:40]!r}", token.column)
        line.expect("[")
        return self._array(line, dtypes.dtype(token.text))

    def _array(self, line: Line, dtype: DType) -> tuple[Array, DType]:
        column = line.position
        shape = tuple(self._items(line, "]", _size_number))
        count = prod(shape)
        if len(shape) > 64 or prod(filter(None, shape)) >= 2**63:
            raise line.fault("a tensor must have at most 64 axes and 2**63 - 1 elements", column)
        if line.accept("@"):
            data = self._read_from_weights(line, line.name(), dtype, shape, column)
        elif line.peek().kind == "hex":
            raw = bytes.fromhex(line.take().text[4:-1]) if len(line.peek().text) % 2 else b""
            data = self._from_bytes(line, np.frombuffer(raw, np.uint8), dtype, count, column)
        else:
            line.expect("{")
            items = self._items(line, "}", self.value)
            if len(items) != count:
                raise line.fault(f"a tensor of shape {list(shape)} must have {count} elements, got {len(items)}", column)
            data = self._from_items(line, items, dtype, column)
        data = data.reshape(shape)
        data.setflags(write=False)
        return data, dtype

    def _from_items(self, line: Line, items: list[Any], dtype: DType, column: int) -> Array:
        kinds = (str, bytes) if dtype is dtypes.string else (int, float) if dtype.is_float else (int,)
        if not all(isinstance(item, kinds) and not isinstance(item, bool) for item in items):
            raise line.fault(f"all elements must be of type {dtype}", column)
        if dtype is dtypes.string:
            data = np.empty(len(items), object)
            data[:] = items
            return data
        low, high = (0, 1) if dtype is dtypes.boolean else dtype.range() if dtype.is_integer else (0, 0)
        if not dtype.is_float and not all(low <= item <= high for item in items):
            raise line.fault(f"all elements must be in the range of {dtype}", column)
        try:
            return np.array(items, np.float64).astype(dtype.numpy) if dtype.is_float else np.array(items).astype(dtype.numpy)
        except (OverflowError, ValueError, TypeError):
            raise line.fault(f"all elements must be of type {dtype}", column) from None

    def _read_from_weights(self, line: Line, name: str, dtype: DType, shape: tuple[int, ...], column: int) -> Array:
        row = self._weights.get(name)
        if row is None:
            raise line.fault(f"the weights file must have a tensor {name!r}", column)
        stored, stored_shape, data = row
        is_same = stored is dtype and stored_shape == shape
        if not is_same and (stored is not dtypes.u8 or len(stored_shape) != 1):
            raise line.fault(
                f"the tensor {name!r} must be {dtype}{list(shape)} in the weights file, got {stored}{list(stored_shape)}", column
            )
        return self._from_bytes(line, data, dtype, prod(shape), column)

    def _from_bytes(self, line: Line, data: NDArray[np.uint8], dtype: DType, count: int, column: int) -> Array:
        size = count * dtype.numpy.itemsize
        if dtype is dtypes.string or data.size != size:
            raise line.fault(f"{count} elements of {dtype} must have {size} bytes, got {data.size}", column)
        if dtype is dtypes.boolean and data.size and int(data.max()) > 1:
            raise line.fault("a boolean must be stored as 0 or 1", column)
        if dtype.bits < 8:
            # Bits above the width of the type are cleared, as in elements of ml_dtypes.
            codes = data & np.uint8((1 << dtype.bits) - 1)
            return codes.view(dtype.numpy) if dtype.numpy != np.uint8 else codes
        return np.frombuffer(data, dtype.numpy, count) if count else np.empty(0, dtype.numpy)


def _is_key(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, tuple) and all(map(_is_key, value)))


def _number(line: Line) -> int | float:
    token = line.take()
    text = token.text
    if text.lstrip("+-").isdigit():
        if len(text) > 400:
            raise line.fault("a number must have at most 400 digits", token.column)
        return int(text)
    return float(text)


def _size_number(line: Line) -> int:
    token = line.take()
    if token.kind != "number" or not token.text.isdigit() or len(token.text) > 19:
        raise line.fault("a size must be a number", token.column)
    return int(token.text)
