"""Read and write TypeProto and ValueInfoProto. Source: onnx.proto, ``TypeProto``, ``TensorShapeProto``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignValue
from dovetail.formats.onnx.messages import present, properties, put_properties, refuse, refuse_rest
from dovetail.formats.onnx.tensors import element_type
from dovetail.ir import symbolic
from dovetail.ir.graph import INFERRED
from dovetail.ir.types import Map, Optional, Sequence, Shape, Size, Tensor, Type, impossible

if TYPE_CHECKING:
    from onnx import TensorShapeProto, TypeProto, ValueInfoProto

Denotations = dict[str, str]

_MAX_DEPTH = 32
_LONGEST_EXPRESSION = 256
_FUNCTIONS = re.compile(r"\bM(?:ax|in)(?=\()")
"""The functions Max and Min in the notation of sympy."""
VALUE_PROPERTY = "dovetail.value"
"""The metadata property that holds the exact value of a shape tensor as text."""
# The prefix of symbols for unnamed dimensions; no exporter writes identifiers with this prefix.
UNNAMED = "?"


class TypeReader:
    """TypeReader reads the types of one model; equal types are parsed once."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[Type | None, Denotations]] = {}
        self._declared: frozenset[str] = frozenset()
        self._parsed: dict[str, Size] = {}

    def declare(self, inputs: Iterable[ValueInfoProto]) -> None:
        """Record the dimension names that the inputs declare. Other dimension names may be expressions over these names."""
        names = (dim.dim_param for proto in inputs for dim in proto.type.tensor_type.shape.dim)
        self._declared = frozenset(name for name in names if name and not _is_expression(name))

    def size_of_name(self, name: str) -> Size:
        """Return the size that a dimension name denotes: an expression if the inputs declare all its symbols, else a symbol."""
        if name not in self._parsed:
            self._parsed[name] = self._parse(name)
        return self._parsed[name]

    def _parse(self, name: str) -> Size:
        if name not in self._declared and _is_expression(name):
            try:
                size = symbolic.parse(_FUNCTIONS.sub(lambda found: found[0].lower(), name))
            except (DovetailError, symbolic.Inexact):
                size = 0
            names = {symbolic.name_of(symbol) for symbol in symbolic.symbols(size)} if isinstance(size, symbolic.Dim) else set()
            if names and names <= self._declared:
                return size
        return symbolic.symbol(name)

    def read(self, proto: TypeProto, key: str) -> tuple[Type | None, Denotations]:
        """Return a type (None for an empty message), and its denotations by path.

        The path ``""`` is the type, ``"0"`` its first dimension. An unnamed dimension becomes the distinct symbol
        ``?<key>.<axis>``. Raises FormatError [type.element], UnsupportedError [type.kind], [limits.exceeded].
        """
        stored = proto.SerializeToString()
        cached = self._found.get(stored)
        if cached is None:
            fresh = _SymbolNames(key)
            notes: Denotations = {}
            cached = self._type(proto, fresh, "", notes, 0), notes
            if not fresh.count:
                self._found[stored] = cached
        return cached

    def _type(self, proto: TypeProto, fresh: _SymbolNames, path: str, notes: Denotations, depth: int) -> Type | None:
        if depth > _MAX_DEPTH:
            raise UnsupportedError("limits.exceeded", f"types must nest at most {_MAX_DEPTH} levels deep")
        fields = present(proto, "type")
        if denotation := fields.pop("denotation", ""):
            notes[path] = denotation
        kind, inner = fields.popitem() if fields else ("", None)
        if inner is None:
            return None
        if kind == "tensor_type":
            return self._tensor(inner, fresh, path, notes)
        if kind == "map_type":
            return self._map(inner, fresh, path, notes, depth)
        if kind not in ("sequence_type", "optional_type"):
            raise UnsupportedError("type.kind", f"values of type {kind.replace('_', ' ')} are not supported")
        parts = present(inner, "type")
        if "elem_type" not in parts:
            raise FormatError("type.element", f"a {kind.replace('_', ' ')} must have an element type")
        element = self._type(parts["elem_type"], fresh, f"{path}*", notes, depth + 1)
        if element is None:
            raise FormatError("type.element", f"a {kind.replace('_', ' ')} must have an element type")
        return Sequence(element) if kind == "sequence_type" else Optional(element)

    def _map(self, proto: TypeProto.Map, fresh: _SymbolNames, path: str, notes: Denotations, depth: int) -> Map:
        parts = present(proto, "type")
        key = element_type(parts.get("key_type", 0), "type.element")
        element = self._type(parts["value_type"], fresh, f"{path}*", notes, depth + 1) if "value_type" in parts else None
        if element is None:
            raise FormatError("type.element", "a map must have a value type")
        if not key.is_integer and key != "string":
            raise FormatError("type.element", f"map keys must be integers or strings, got {key}")
        return Map(key, element)

    def _tensor(self, proto: Any, fresh: _SymbolNames, path: str, notes: Denotations) -> Tensor:
        fields = present(proto, "type")
        number = fields.pop("elem_type", 0)
        shape = fields.pop("shape", None)
        # ONNX shape inference writes UNDEFINED (0) if only the shape is known.
        dtype = element_type(number, "type.element") if number else None
        return Tensor(dtype, None if shape is None else _shape(shape, fresh, path, notes, self.size_of_name))


class _SymbolNames:
    """_SymbolNames creates symbols for the unnamed dimensions of one value."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.count = 0

    def symbol(self, path: str, axis: int) -> Size:
        self.count += 1
        return symbolic.symbol(f"{UNNAMED}{self._key}.{path}{axis}")


def _is_expression(name: str) -> bool:
    """Return whether a name may be an expression in the notation of torch and onnxruntime: ``2*n``, ``((n - 1)//2) + 1``."""
    return any(character in name for character in "+-*/%(") and len(name) <= _LONGEST_EXPRESSION


def _shape(
    proto: TensorShapeProto, fresh: _SymbolNames, path: str, notes: Denotations, size_of_name: Callable[[str], Size]
) -> Shape:
    present(proto, "shape")
    sizes: list[Size] = []
    for axis, dim in enumerate(proto.dim):
        fields = present(dim, "dimension")
        if denotation := fields.get("denotation", ""):
            notes[f"{path}{axis}"] = denotation
        value, name = fields.get("dim_value", -1), fields.get("dim_param", "")
        if value < -1:
            # Several exporters write -1 for an unknown size; any other negative size is invalid.
            raise FormatError("type.dims", f"a size must not be negative, got {value}")
        if value >= 0:
            sizes.append(value)
        elif name and not name.startswith(UNNAMED):
            sizes.append(size_of_name(name))
        else:
            sizes.append(fresh.symbol(path, axis))
    if fault := impossible(sizes):
        raise FormatError("type.dims", fault)
    return tuple(sizes)


def read_value(
    proto: ValueInfoProto, types: TypeReader, scope: str, accept: Callable[[DovetailError], None] = refuse
) -> ForeignValue:
    """Read a declared value from a ValueInfoProto.

    ``scope`` distinguishes values of equal names in different subgraphs. ``accept`` receives deviations. Raises FormatError
    [name.missing].
    """
    fields = present(proto, "value info")
    name = fields.pop("name", "")
    if not name:
        raise FormatError("name.missing", "a declared value must have a name")
    value = ForeignValue(name, names=(name,))
    if "type" in fields:
        value.type, denotations = types.read(fields.pop("type"), scope + name)
        if denotations:
            value.metadata["denotations"] = dict(denotations)
    if not fields:
        return value
    value.doc = fields.pop("doc_string", "")
    if entries := fields.pop("metadata_props", None):
        kept = properties(entries, "metadata.repeated", accept)
        if text := kept.pop(VALUE_PROPERTY, None):
            value.metadata[INFERRED] = {"value": text}
        if kept:
            value.metadata["metadata_props"] = kept
    refuse_rest(fields, "value info")
    return value


def write_value(proto: ValueInfoProto, value: ForeignValue) -> None:
    """Write the declaration of ``value`` to ``proto``. Raises UnsupportedError [dtype.unknown]."""
    proto.name = value.key
    if value.type is not None:
        write_type(proto.type, value.type, value.metadata.get("denotations", {}))
    if value.doc:
        proto.doc_string = value.doc
    properties_by_key = value.metadata.get("metadata_props", {})
    if text := value.metadata.get(INFERRED, {}).get("value"):
        properties_by_key = {**properties_by_key, VALUE_PROPERTY: text}
    put_properties(proto.metadata_props, properties_by_key)


def write_type(proto: TypeProto, type: Type, notes: Denotations, path: str = "") -> None:
    """Write ``type`` to ``proto``. An expression is written as text; an unnamed size is omitted."""
    if path in notes:
        proto.denotation = notes[path]
    if isinstance(type, Tensor):
        _write_tensor(proto.tensor_type, type, notes, path)
    elif isinstance(type, Map):
        if type.key.onnx is None:
            raise UnsupportedError("dtype.unknown", f"the key type of a map must be an element type of ONNX, got {type.key}")
        proto.map_type.key_type = type.key.onnx
        write_type(proto.map_type.value_type, type.element, notes, f"{path}*")
    else:
        inner = proto.sequence_type if isinstance(type, Sequence) else proto.optional_type
        write_type(inner.elem_type, type.element, notes, f"{path}*")


def _write_tensor(proto: TypeProto.Tensor, type: Tensor, notes: Denotations, path: str) -> None:
    if type.dtype is None:
        proto.elem_type = 0
    elif type.dtype.onnx is None:
        raise UnsupportedError("dtype.unknown", f"the element type must be one of ONNX, got {type.dtype}")
    else:
        proto.elem_type = type.dtype.onnx
    if type.shape is None:
        return
    proto.shape.SetInParent()
    for axis, size in enumerate(type.shape):
        dim = proto.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None and not any(
            (symbolic.name_of(symbol) or "").startswith(UNNAMED) for symbol in symbolic.symbols(size)
        ):
            dim.dim_param = symbolic.name_of(size) or str(size)
        if f"{path}{axis}" in notes:
            dim.denotation = notes[f"{path}{axis}"]


def rename_symbols(type: Type | None, prefix: str) -> Type | None:
    """Return ``type`` with ``prefix`` before the name of every symbol; each call of a function has distinct symbols."""
    if isinstance(type, (Sequence, Optional, Map)):
        element = rename_symbols(type.element, prefix)
        assert element is not None
        if isinstance(type, Map):
            return Map(type.key, element)
        return Sequence(element) if isinstance(type, Sequence) else Optional(element)
    if type is None or type.shape is None:
        return type
    return Tensor(type.dtype, tuple(size if isinstance(size, int) else _prefix_symbol(size, prefix) for size in type.shape))


def _prefix_symbol(size: Size, prefix: str) -> Size:
    name = symbolic.name_of(size)
    if name is None:
        changes = {str(symbolic.name_of(symbol)): _prefix_symbol(symbol, prefix) for symbol in symbolic.symbols(size)}
        return symbolic.substitute(size, changes)
    unnamed = UNNAMED if name.startswith(UNNAMED) else ""
    return symbolic.symbol(f"{unnamed}{prefix}{name.removeprefix(UNNAMED)}")
