"""Reader of models in dovetail's text form: nodes, types and tensors."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dovetail_check.sizes import Parser, Size, Symbols, size

Array = np.ndarray[Any, Any]
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
NUMPY: dict[str, Any] = {
    **FLOATS,
    "boolean": np.bool_,
    **{f"{kind}{bits}": getattr(np, f"{word}{bits}") for kind, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}
"""The element types whose elements are read and computed."""
NARROW = ("bf16", "f8e4m3", "f8e5m2")
READ: dict[str, Any] = {**NUMPY, **dict.fromkeys(NARROW, np.float32), "i4": np.int8, "u4": np.uint8}
"""The element types whose elements are read, and the types that hold these; elements of other types are bytes."""
_SAFETENSORS = {
    "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "BOOL": "boolean",
    "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2",
    **{f"{sign}{bits}": f"{sign.lower()}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)},
}  # fmt: skip
_TOKEN = re.compile(
    r"""[ ]*(?:(?P<bytes>b"[A-Za-z0-9+/=]*")|(?P<hex>hex"[0-9a-f]*")|(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)(?![A-Za-z0-9_./$]))
    |(?P<name>[A-Za-z_/][A-Za-z0-9_./$]*)|(?P<sign>[][(){},;:=@.?*+%-]))""",
    re.ASCII | re.VERBOSE,
)


class Type(NamedTuple):
    """Type is the type of a tensor: its element type, and its sizes; None for what is not known, or for no tensor."""

    dtype: str | None
    shape: tuple[Size | None, ...] | None


class Word(str):
    """Word is a value that is written without quotes, such as an element type."""

    def __repr__(self) -> str:
        return str(self)


class Tensor(NamedTuple):
    """Tensor is a constant: its element type, its sizes, its elements where they are numbers, and its text or bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Array | None
    raw: bytes

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}:{hashlib.sha256(self.raw).hexdigest()}"


class Operator(NamedTuple):
    """Operator is an operator with its attributes, those with their defaults left out."""

    name: str
    attributes: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in sorted(self.attributes.items()))})"


@dataclass
class Node:
    op: Operator
    inputs: list[str | None]
    outputs: list[tuple[str, Type]]
    line: int
    graphs: dict[str, Graph] = field(default_factory=dict)


@dataclass
class Graph:
    inputs: list[tuple[str, Type]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass
class Model:
    """Model is a graph with its facts. ``ports`` are names of states' inputs and outputs in the certificate, by their names.

    ``initial`` are the outputs that are initial values of these states.
    """

    graph: Graph
    facts: dict[str, Any]
    ports: dict[str, str] = field(default_factory=dict)
    initial: tuple[str, ...] = ()

    def inputs(self) -> list[tuple[str, Type]]:
        """Return the inputs by their names in the certificate."""
        return [(self.ports.get(name, name), declared) for name, declared in self.graph.inputs]

    def make_step(self, names: dict[str, list[str]]) -> None:
        """Make states inputs and outputs, of the names that the variables have in ``names``. Raises ValueError."""
        kept = []
        for state in self.facts.get("states", []):
            variable, own_input, own_output, initial = state
            if variable not in names:
                kept.append(state)
                continue
            past, present = names[variable]
            self.ports |= {own_input: past, own_output: present}
            self.initial += () if initial is None else (initial,)
        if len(self.facts.get("states", [])) - len(kept) != len(names) or len(self.ports) != 2 * len(names):
            raise ValueError("each variable must be a state, whose input and output are those of no other state")
        self.facts["states"] = kept


class Line:
    """Line reads the tokens of one line. Raises ValueError with the number of the line."""

    def __init__(self, text: str, number: int, read_size: Callable[[str], Size], weights: dict[str, Tensor]) -> None:
        self.text, self.number = text, number
        self.position = len(text) - len(text.lstrip(" "))
        self.indent = self.position
        self._read_size = read_size
        self._weights = weights

    def fault(self, message: str) -> ValueError:
        return ValueError(f"line {self.number}, column {self.position + 1}: {message}")

    def peek(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.position)
        if match is not None and match.lastgroup is not None:
            return match.lastgroup, match[match.lastgroup]
        if not self.text[self.position :].strip():
            return "end", ""
        raise self.fault("no token")

    def take(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.position)
        kind, text = self.peek()
        if match is not None:
            self.position = match.end()
        return kind, text

    def accept(self, sign: str) -> bool:
        if self.peek() in (("sign", sign), ("name", sign)):
            self.take()
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.fault(f"expected {sign!r}")

    def name(self) -> str:
        kind, text = self.take()
        if kind == "string":
            return str(json.loads(text, strict=False))
        if kind != "name":
            raise self.fault("expected a name")
        return text

    def items(self, end: str, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while not self.accept(end):
            if found:
                self.expect(",")
                if self.accept(end):
                    break
            found.append(read())
        return found

    def value(self) -> Any:
        kind, text = self.peek()
        if kind == "string":
            return self.name()
        if kind in ("bytes", "hex"):
            return Word(self.take()[1])
        if kind == "number":
            self.take()
            return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
        if kind == "sign":
            self.take()
            if text == "[":
                return self.items("]", self.value)
            if text == "(":
                return tuple(self.items(")", self.value))
            if text == "{":
                return dict(self.items("}", self._entry))
            raise self.fault("expected a value")
        word = self.name()
        if word in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[word]
        if word == "op":
            return self.operator()[0]
        if word == "type":
            return self.type()
        if word == "size":
            return self._read_size(self.name())
        following = self.peek()[1]
        if following == "[":
            return self.tensor(word)
        if following == "(" and word in ("error", "foreign", "tensor"):
            self.take()
            return (Word(word), *self.items(")", self.value))
        return Word(word)

    def _entry(self) -> tuple[Any, Any]:
        key = self.value()
        self.expect(":")
        return key, self.value()

    def operator(self) -> tuple[Operator, list[str | None]]:
        name = self.name()
        self.expect("(")
        inputs: list[str | None] = []
        attributes: dict[str, Any] = {}
        while not self.accept(")"):
            if self.accept(";"):
                attributes = dict(self.items(")", self._attribute))
                break
            if inputs:
                self.expect(",")
            inputs.append(None if self.accept("-") else self.name())
        return Operator(name, attributes), inputs

    def _attribute(self) -> tuple[str, Any]:
        name = self.name()
        self.expect("=")
        return name, self.value()

    def type(self) -> Type:
        if self.accept("?"):
            dtype = None
        else:
            dtype = self.name()
            if dtype in ("sequence", "optional", "map"):
                self._skip_parentheses()
                return Type(None, None)
        text = self._bracket()
        if text == "...":
            return Type(dtype, None)
        return Type(dtype, tuple(None if part == "?" else self._read_size(part) for part in _parts(text)))

    def _skip_parentheses(self) -> None:
        self.expect("(")
        depth = 1
        while depth:
            kind, text = self.take()
            if kind == "end":
                raise self.fault("a parenthesis is open")
            depth += (text == "(") - (text == ")")

    def _bracket(self) -> str:
        """Take the text in brackets, in which a quoted name may hold brackets."""
        self.expect("[")
        match = re.compile(r'(?:[^]"\[]|"(?:[^"\\]|\\.)*"|\[\w+\])*').match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        self.expect("]")
        return match[0].strip()

    def tensor(self, dtype: str) -> Tensor:
        text = self._bracket()
        shape = tuple(int(part) for part in _parts(text))
        kind, text = self.take()
        if text == "@":
            stored = self._weights[self.name()]
            if dtype in NUMPY and (stored.dtype, stored.shape) != (dtype, shape):
                raise self.fault("a tensor must have the type of the weights file")
            return read_tensor(dtype, shape, stored.raw)
        if kind == "hex":
            return read_tensor(dtype, shape, bytes.fromhex(text[4:-1]))
        if text != "{":
            raise self.fault("expected the elements of a tensor")
        items = self.items("}", self.value)
        if dtype not in READ:
            return Tensor(dtype, shape, None, repr(items).encode())
        numbers = np.array(items, np.float64 if dtype in (*FLOATS, *NARROW) else object)
        data = numbers.astype(READ[dtype]).reshape(shape)
        is_exact = bool(((data == numbers.reshape(shape)) | (data != data)).all())
        if dtype not in NUMPY and not (is_exact and _is_in(dtype, data)):
            raise self.fault(f"an element that is none of {dtype}")
        return Tensor(dtype, shape, data, data.tobytes())


def read_tensor(dtype: str, shape: tuple[int, ...], raw: Any) -> Tensor:
    """Read the bytes of a tensor. An element of 4 bits has a byte; narrow floats are read as f32. Raises ValueError."""
    if dtype in NUMPY:
        return Tensor(dtype, shape, np.frombuffer(raw, NUMPY[dtype]).reshape(shape), raw)
    if dtype not in READ:
        return Tensor(dtype, shape, None, raw)
    if dtype in NARROW:
        return Tensor(dtype, shape, _narrow_floats(dtype, raw).reshape(shape), raw)
    data = np.frombuffer(raw, READ[dtype])
    if not _is_in(dtype, data):
        raise ValueError(f"an element that is none of {dtype}")
    return Tensor(dtype, shape, data.reshape(shape), raw)


def _narrow_floats(dtype: str, raw: Any) -> Array:
    """Return the elements of bf16, f8e4m3 (4 bits of exponent with a bias of 7, NaN but no infinity) or f8e5m2 as f32."""
    if dtype == "bf16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    codes = np.frombuffer(raw, np.uint8).astype(np.int32)
    if dtype == "f8e5m2":
        return (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(exponent > 0, np.ldexp(8.0 + fraction, exponent - 10), np.ldexp(1.0 * fraction, -9))
    size = np.where(codes & 127 == 127, np.nan, size)
    return np.where(codes & 128, -size, size).astype(np.float32)


def _is_in(dtype: str, data: Array) -> bool:
    """Return whether all elements are of a type that a larger one holds."""
    if dtype.startswith("f8"):
        known = _narrow_floats(dtype, bytes(range(256)))
        return bool((np.isin(data, known) | np.isnan(data)).all())
    if dtype == "bf16":
        return not bool((np.ascontiguousarray(data).view(np.uint32) & 0xFFFF).any())
    low, high = (-8, 7) if dtype == "i4" else (0, 15)
    return bool(((data >= low) & (data <= high)).all())


def _parts(text: str) -> list[str]:
    """Split a list of sizes at its commas outside of parentheses and quotes."""
    found, depth, start, is_quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == '"' and (position == 0 or text[position - 1] != "\\"):
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (character == "(") - (character == ")")
            if character == "," and depth == 0:
                found.append(text[start:position])
                start = position + 1
    found.append(text[start:])
    return [part.strip() for part in found] if text.strip() else []


class Reader:
    """Reader reads a model. ``name_of`` gives the size of a symbol by its name in the text."""

    def __init__(self, text: str, weights: dict[str, Tensor], symbols: Symbols, name_of: Callable[[str], Size]) -> None:
        self._symbols = symbols
        self._name_of = name_of
        self._cache: dict[str, Size] = {}
        lines = ((number, line) for number, line in enumerate(text.split("\n"), 1))
        self._lines = [
            Line(line, number, self._size, weights)
            for number, line in lines
            if number > 1 and line.strip() and not line.lstrip().startswith("#")
        ]
        self._next = 0
        if not text.startswith("dovetail 1"):
            raise ValueError("the text must begin with 'dovetail 1'")

    def _size(self, text: str) -> Size:
        if text not in self._cache:
            self._cache[text] = size(int(text)) if text.isdigit() else Parser(text, self._symbols, self._name_of).whole()
        return self._cache[text]

    def model(self) -> Model:
        facts: dict[str, Any] = {}
        graph: Graph | None = None
        while self._next < len(self._lines):
            line = self._take()
            key = line.name()
            if key == "graph" and graph is None:
                graph = self._graph(line)
            elif key == "symbol":
                continue
            else:
                facts[key] = line.value()
        if graph is None:
            raise ValueError("the text must have a graph")
        return Model(graph, facts)

    def inputs(self) -> list[tuple[str, Type]]:
        """Read the inputs of the graph alone."""
        start = next(position for position, line in enumerate(self._lines) if line.text.startswith("graph "))
        found = []
        for line in self._lines[start + 1 :]:
            if line.text.startswith("  input ") and not line.text.startswith("  input:"):
                line.take()
                found.append(self._read_value(line))
        return found

    def states(self) -> list[Any]:
        """Read the states of the model alone: variables, with the names of their inputs, outputs and initial values."""
        found = next((line for line in self._lines if line.text.startswith("states ")), None)
        if found is None:
            return []
        start = found.position
        found.name()
        states = found.value()
        found.position = start
        return list(states)

    def _take(self) -> Line:
        self._next += 1
        return self._lines[self._next - 1]

    def _graph(self, heading: Line) -> Graph:
        graph = Graph()
        while self._next < len(self._lines) and self._lines[self._next].indent > heading.indent:
            line = self._take()
            if line.text.lstrip().startswith("."):
                continue
            start = line.position
            word = line.take()[1]
            if word == "input" and line.peek()[1] not in (":", ","):
                graph.inputs.append(self._read_value(line))
            elif word == "output" and line.peek()[1] not in (":", ","):
                graph.outputs.append(line.name())
            elif word == "graph" and graph.nodes and line.peek()[1] not in (":", ","):
                graph.nodes[-1].graphs[line.name()] = self._graph(line)
            else:
                line.position = start
                graph.nodes.append(self._node(line))
        return graph

    def _read_value(self, line: Line) -> tuple[str, Type]:
        name = line.name()
        line.expect(":")
        return name, line.type()

    def _node(self, line: Line) -> Node:
        outputs: list[tuple[str, Type]] = []
        while not line.accept("="):
            if outputs:
                line.expect(",")
            outputs.append(self._read_value(line))
        start = line.position
        word = line.take()[1]
        if line.peek()[1] == "[":
            return Node(Operator("Constant", {"data": line.tensor(word)}), [], outputs, line.number)
        line.position = start
        op, inputs = line.operator()
        return Node(op, inputs, outputs, line.number)


def declared_symbols(text: str) -> dict[str, tuple[str, int | None, int | None]]:
    """Return the name, the minimum and the maximum value of the symbols that a text declares."""
    found = {}
    for line in text.split("\n"):
        match = re.fullmatch(r'symbol ("(?:[^"\\]|\\.)*")(?: = ("(?:[^"\\]|\\.)*"))? "(-?\d*)\.\.(-?\d*)"', line)
        if match is not None:
            name = json.loads(match[1], strict=False)
            low, high = (int(part) if part else None for part in (match[3], match[4]))
            found[name] = json.loads(match[2], strict=False) if match[2] else name, low, high
    return found


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. Raises ValueError for another content."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        dtype, shape = _SAFETENSORS.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"])
        found[name] = read_tensor(dtype, shape, raw)
    return found
