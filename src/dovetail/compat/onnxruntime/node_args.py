"""NodeArg and ModelMetadata: the inputs, outputs and metadata of a model as onnxruntime describes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.errors import printable
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type, is_unnamed

NO_VERSION = 2**63 - 1
"""The version of a model that declares none."""

_WORDS = {
    "f64": "double", "f32": "float", "f16": "float16", "bf16": "bfloat16",
    "f8e4m3": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz", "f8e5m2": "float8e5m2", "f8e5m2fnuz": "float8e5m2fnuz",
    "f8e8m0": "float8e8m0", "f6e2m3": "float6e2m3", "f6e3m2": "float6e3m2", "f4e2m1": "float4e2m1",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "i4": "int4", "i2": "int2",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "u4": "uint4", "u2": "uint2",
    "boolean": "bool",
}  # fmt: skip


def element_text(dtype: DType | None) -> str:
    """Return onnxruntime's name of an element type, such as ``float`` for f32."""
    return "undefined" if dtype is None else _WORDS.get(dtype.name, dtype.name)


def type_text(type: Type) -> str:
    """Return the text of a type, such as ``tensor(float)`` or ``seq(map(string,tensor(float)))``."""
    if isinstance(type, Tensor):
        return f"tensor({element_text(type.dtype)})"
    if isinstance(type, Map):
        return f"map({element_text(type.key)},{type_text(type.element)})"
    return f"{'seq' if isinstance(type, Sequence) else 'optional'}({type_text(type.element)})"


@dataclass(frozen=True)
class NodeArg:
    """NodeArg describes an input or output of a model.

    ``shape`` has for each axis an integer, the name of a symbol, or None for an unknown size; it is empty for an unknown rank, a
    sequence or a map.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return printable(f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})")


def node_arg(name: str, type: Type, declared: Type | None = None) -> NodeArg:
    """Return the NodeArg of a value; the sizes that the file declares come before the sizes that inference finds."""
    inner = type.element if isinstance(type, Optional) else type
    sizes = list(inner.shape or ()) if isinstance(inner, Tensor) else []
    first = declared.shape if isinstance(declared, Tensor) and declared.shape is not None else ()
    if len(first) != len(sizes):
        return NodeArg(name, type_text(type), [_size(size) for size in sizes])
    shape = [
        _size(size) if is_unnamed(own) else own if isinstance(own, int) else symbolic.name_of(own) or str(own)
        for own, size in zip(first, sizes, strict=True)
    ]
    return NodeArg(name, type_text(type), shape)


def _size(size: Size) -> int | str | None:
    """Return an inferred size: None for an expression, as in onnxruntime."""
    if isinstance(size, int):
        return size
    return None if is_unnamed(size) else symbolic.name_of(size)


@dataclass
class ModelMetadata:
    """ModelMetadata holds the metadata of a model; ``version`` is 2**63 - 1 if the model declares no version."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata_of(model: Model) -> ModelMetadata:
    return ModelMetadata(
        model.producer[0],
        model.graph.name,
        str(model.metadata.get("domain", "")),
        model.doc,
        model.graph.doc,
        int(model.metadata.get("model_version", NO_VERSION)),
        dict(model.metadata.get("metadata_props", {})),
    )
