"""One operator alone in a file of either format, and what the public interface says of it: in check, in inference, at run
time, converted.

A rule that lets something through is held by :func:`holds`, one that refuses by :func:`refused`. Both put the operator into files
in several ways: with everything known when the file is read, with the sizes open, with the shape inputs arriving at run time,
with no ranks at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest

import dovetail
from assertions import assert_claim_holds
from dovetail.errors import DovetailError
from dovetail.formats.openvino import constants as packing
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model
from dovetail.ir.types import Tensor

NODE = "the node"
"""What the operator is called in every file, and therefore in every error."""


@dataclass(frozen=True)
class Given:
    """An input: its elements (one per numpy element) and their type."""

    data: np.ndarray[Any, Any]
    dtype: DType


def given(x: Any, name: str | None = None) -> Given:
    if isinstance(x, Given):
        return x
    data = np.asarray(x) if name is None else np.asarray(x, dtype=dtypes.dtype(name).numpy)
    return Given(data, dtypes.dtype(data.dtype if name is None else name))


@dataclass(frozen=True)
class Operator:
    """One foreign operator: ``version`` is its own (ONNX: since_version; OpenVINO: the opset that the layer names).

    ``host``: positions of inputs that shape rules read. ``fixed``: positions of inputs that a file has to hold as constants.
    """

    format: str
    kind: str
    version: int
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    host: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()

    @property
    def given(self) -> list[Given]:
        return [given(x) for x in self.inputs]

    def with_(self, **attributes: Any) -> Operator:
        """Return the same with other attributes."""
        return replace(self, attributes={**self.attributes, **attributes})

    def __str__(self) -> str:
        return f"{self.format} {self.kind}-{self.version}"


@dataclass(frozen=True)
class Way:
    """The knowledge that a file has of an operator's inputs: which are constants, and whether sizes and ranks are declared."""

    name: str
    data: str = "input"
    host: str = "constant"
    sizes: str = "known"

    @property
    def is_known(self) -> bool:
        return self.host == "constant" and self.sizes == "known"


KNOWN = Way("all known")
STORED = Way("stored", data="constant")
OPEN = Way("open sizes", sizes="open")
LATE = Way("late shape inputs", host="input")
RANKLESS = Way("no ranks", host="input", sizes="no rank")
WAYS = (KNOWN, STORED, OPEN, LATE, RANKLESS)


def ways(operator: Operator) -> tuple[Way, ...]:
    """Those that make a difference for it."""
    return WAYS if set(operator.host) - set(operator.fixed) else (KNOWN, STORED, OPEN, RANKLESS)


def is_constant(operator: Operator, way: Way, index: int) -> bool:
    """``data`` "half": every input but the first."""
    if way.data == "half":
        return index > 0
    return index in operator.fixed or (way.host if index in operator.host else way.data) == "constant"


def shape_of(operator: Operator, way: Way, index: int) -> list[Any] | None:
    """Return the shape that the file declares for an input: None for no rank, None inside for an open size."""
    sizes = list(operator.given[index].data.shape)
    if way.sizes == "no rank":
        return None
    return [None] * len(sizes) if way.sizes == "open" else sizes


def feeds(operator: Operator, way: Way) -> dict[str, Any]:
    return {f"x{index}": x.data for index, x in enumerate(operator.given) if not is_constant(operator, way, index)}


def write(operator: Operator, way: Way, folder: Path) -> Path:
    """Return the file of a model of ``operator`` alone: inputs x0, x1, ..., outputs y0, y1, ..."""
    return (write_onnx if operator.format == "onnx" else write_ir)(operator, way, folder)


# ONNX, by the onnx package


def write_onnx(operator: Operator, way: Way, folder: Path) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    inputs, constants = [], []
    for index, x in enumerate(operator.given):
        if is_constant(operator, way, index):
            constants.append(numpy_helper.from_array(x.data, f"x{index}"))
        else:
            shape = shape_of(operator, way, index)
            named = shape and [f"s{index}_{axis}" if size is None else size for axis, size in enumerate(shape)]
            inputs.append(helper.make_tensor_value_info(f"x{index}", x.dtype.onnx or 0, named))
    names = [f"y{index}" for index in range(operator.outputs)]
    node = helper.make_node(operator.kind, [f"x{index}" for index in range(len(operator.inputs))], names, NODE)
    node.attribute.extend(_attribute(name, value) for name, value in operator.attributes.items())
    element = operator.given[0].dtype.onnx if operator.inputs else 1
    outputs = [helper.make_tensor_value_info(name, element or 0, None) for name in names]
    graph = helper.make_graph([node], "alone", inputs, outputs, constants)
    opset = helper.make_opsetid("", operator.version)
    model = helper.make_model(
        graph, opset_imports=[opset], ir_version=max(10, helper.find_min_ir_version_for([opset], ignore_unknown=True))
    )
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def _attribute(name: str, value: Any) -> Any:
    from onnx import AttributeProto, helper

    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=AttributeProto.INTS)
    return helper.make_attribute(name, value)


# OpenVINO IR, as text


def port(number: int, sizes: list[Any] | None, dtype: DType | None = None, names: str = "") -> str:
    inner = "".join(f"<dim>{-1 if size is None else size}</dim>" for size in sizes or ())
    precision = "" if dtype is None else f' precision="{_PRECISION.get(dtype.name, dtype.name.upper())}"'
    return f'<port id="{number}"{precision}{names and f" names={quoteattr(names)}"}>{inner}</port>'


_PRECISION = {"boolean": "BOOL", "u1": "BIN", "f16": "FP16", "f32": "FP32", "f64": "FP64"}


def write_ir(operator: Operator, way: Way, folder: Path) -> Path:
    layers, edges, weights = [], [], bytearray()
    count = len(operator.inputs)
    for index, x in enumerate(operator.given):
        sizes = shape_of(operator, way, index)
        if is_constant(operator, way, index):
            sizes = list(x.data.shape)
            stored = bytes(packing.pack(x.data, x.dtype))
            data = f'element_type="{x.dtype.openvino}" shape="{_listed(sizes)}" offset="{len(weights)}" size="{len(stored)}"'
            weights += stored
            layers.append(_layer(index, f"x{index}", "Const", data, "", port(0, sizes, x.dtype)))
        else:
            text = "..." if sizes is None else _listed(["?" if size is None else size for size in sizes])
            data = f'shape="{text}" element_type="{x.dtype.openvino}"'
            layers.append(_layer(index, f"x{index}", "Parameter", data, "", port(0, sizes, x.dtype, f"x{index}")))
        edges.append((index, 0, count, index))
    element = operator.given[0].dtype if count else dtypes.f32
    data = " ".join(f"{name}={quoteattr(_text(value))}" for name, value in operator.attributes.items())
    inputs = "".join(port(index, shape_of(operator, way, index)) for index in range(count))
    outputs = "".join(port(count + index, None, element, f"y{index}") for index in range(operator.outputs))
    layers.append(_layer(count, NODE, operator.kind, data, inputs, outputs, operator.version))
    for index in range(operator.outputs):
        layers.append(_layer(count + 1 + index, f"result {index}", "Result", "", port(0, None), ""))
        edges.append((count, count + index, count + 1 + index, 0))
    return save_ir(folder, "".join(layers), edges, bytes(weights))


def save_ir(folder: Path, layers: str, edges: list[tuple[int, int, int, int]], weights: bytes = b"") -> Path:
    wires = "".join(f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in edges)
    path = folder / "model.xml"
    path.write_text(f'<?xml version="1.0"?><net name="alone" version="11"><layers>{layers}</layers><edges>{wires}</edges></net>')
    path.with_suffix(".bin").write_bytes(weights)
    return path


def _layer(number: int, name: str, kind: str, data: str, inputs: str, outputs: str, version: int = 1) -> str:
    parts = (data and f"<data {data}/>") + (inputs and f"<input>{inputs}</input>") + (outputs and f"<output>{outputs}</output>")
    return f'<layer id="{number}" name={quoteattr(name)} type="{kind}" version="opset{version}">{parts}</layer>'


def _listed(sizes: list[Any]) -> str:
    return ",".join(map(str, sizes))


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


# What the public interface says


def assert_bits(ours: Any, theirs: Any, what: str = "") -> None:
    """Compare type, shape and bytes, every bit of a NaN included."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (
        f"{what}: {ours.dtype}{ours.shape}, {theirs.dtype}{theirs.shape}"
    )
    if ours.dtype == object:
        assert ours.tolist() == theirs.tolist(), what
    else:
        assert ours.tobytes() == theirs.tobytes(), f"{what}: {ours.tolist()}, {theirs.tolist()}"


def moved(function: Any, *xs: Any) -> Any:
    """``function`` on the bits of arrays: what a move must give, whatever the bits mean."""
    kind = xs[0].dtype
    bits = kind if kind is np.dtype(object) else np.dtype(f"V{kind.itemsize}")
    found = function(*(x.view(bits) if x.ndim or kind is not np.dtype(object) else x for x in xs))
    return [each.view(kind) for each in found] if isinstance(found, list) else found.view(kind)


def place(operator: Operator, way: Way) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    folder = tempfile.TemporaryDirectory()
    return folder, write(operator, way, Path(folder.name))


def holds(
    operator: Operator, *expected: Any, through: tuple[Way, ...] = (), other: str | None = "", opset: int | None = None
) -> None:
    """``operator`` gives ``expected``, bit for bit, in all four places and in every way a file can say it.

    ``other``: "" where the other format says it too (ONNX at ``opset``), else the code with which it is refused there,
    naming the node.
    """
    for way in through or ways(operator):
        _holds(operator, way, expected, other, opset)


def _holds(operator: Operator, way: Way, expected: tuple[Any, ...], other: str | None, opset: int | None) -> None:
    what = f"{operator}, {way.name}"
    folder, path = place(operator, way)
    with folder:
        assert [str(item) for item in dovetail.check(path)] == [], what
        model = dovetail.load(path)
        assert_says(model, operator, way, expected, what)
        assert model.warnings == [], what
        assert_says(dovetail.infer(model), operator, way, expected, f"{what}, inferred anew")
        same = path.with_name(f"again{path.suffix}")
        dovetail.save(model, same)
        assert_says(dovetail.load(same), operator, way, expected, f"{what}, saved and loaded")
        converted = path.with_name("other.xml" if operator.format == "onnx" else "other.onnx")
        if other == "":
            dovetail.save(model, converted, opset=opset)
            assert dovetail.check(converted) == []
            assert_says(dovetail.load(converted), operator, way, expected, f"{what}, converted")
        elif other is not None:
            with pytest.raises(DovetailError) as caught:
                dovetail.save(model, converted, opset=opset)
            assert_blamed(caught.value, other, f"{what}, converted")
            assert not converted.exists()


ENGINES = ("interpreter", "native")


def assert_says(model: Model, operator: Operator, way: Way, expected: tuple[Any, ...], what: str) -> None:
    """Types as inferred, values as run, by either engine."""
    assert [y.name for y in model.outputs] == [f"y{index}" for index in range(operator.outputs)], what
    found = {engine: dovetail.run(model, feeds(operator, way), engine) for engine in ENGINES}
    for value, theirs in zip(model.outputs, expected, strict=True):
        claim = model.values[value.name].type
        assert isinstance(claim, Tensor) and claim.dtype is operator.given[0].dtype, f"{what}: inferred {claim}"
        assert_claim_holds(claim, theirs, what)
        if way.is_known:
            assert claim.shape == theirs.shape, f"{what}: inferred {claim}, and is {theirs.shape}"
        for engine, arrays in found.items():
            assert_bits(arrays[value.name], theirs, f"{what}, {engine}: {value.name}")


def refused(
    operator: Operator,
    code: str,
    *,
    through: tuple[Way, ...] = (),
    late: str | None = None,
    other: bool = True,
    silent: bool = False,
) -> None:
    """``operator`` is refused with ``code`` and its name: where all is known by check and load, else at the latest by a run.

    ``late``: the code at run time, where it is another. ``other``: the other format refuses at run time, too. ``silent``: the
    fault is in shape inputs or sizes, so that nothing is refused that is not yet known.
    """
    for way in through or ways(operator):
        _refused(operator, way, code, late or code, other, silent)


def _refused(operator: Operator, way: Way, code: str, late: str, other: bool, silent: bool) -> None:
    what = f"{operator}, {way.name}"
    folder, path = place(operator, way)
    with folder:
        found = [item for item in dovetail.check(path) if item.severity != "warning"]
        if way.is_known or found:
            assert [(item.code, item.node) for item in found] == [(code, NODE)], f"{what}: {list(map(str, found))}"
            assert found[0].file == str(path), what
            for action in (
                dovetail.compile,
                lambda path: dovetail.load(path, strict=True),
                lambda path: dovetail.run(path, feeds(operator, way)),
            ):
                with pytest.raises(DovetailError) as caught:
                    action(path)
                assert_blamed(caught.value, code, what)
            return
        assert silent, f"{what}: check finds nothing"
        model = dovetail.load(path)
        assert_run_refused(model, operator, way, late, what)
        assert_run_refused(dovetail.infer(model), operator, way, late, what)
        if other:
            converted = path.with_name("other.xml" if operator.format == "onnx" else "other.onnx")
            try:
                dovetail.save(model, converted)
            except DovetailError as error:
                assert error.diagnostics[0].node == NODE, what
            else:
                # Other operators may have to say it there; which of them refuses is theirs.
                with pytest.raises(DovetailError):
                    dovetail.run(dovetail.load(converted), feeds(operator, way))


def deviates(operator: Operator, code: str, sense: str = "") -> None:
    """``operator`` departs from its format: check and ``load(strict=True)`` refuse it with ``code``, and load warns of it.

    ``sense``: the code with which load refuses it all the same, because what it is read as makes no sense either.
    """
    for way in ways(operator):
        what = f"{operator}, {way.name}"
        folder, path = place(operator, way)
        with folder:
            first, *rest = dovetail.check(path)
            assert (first.code, first.node) == (code, NODE), what
            with pytest.raises(DovetailError) as caught:
                dovetail.load(path, strict=True)
            assert_blamed(caught.value, code, what)
            if sense and rest:
                with pytest.raises(DovetailError) as caught:
                    dovetail.compile(path)
                assert_blamed(caught.value, sense, what)
            else:
                assert not rest, what
                assert (code, NODE) in {(item.code, item.node) for item in dovetail.load(path).warnings}, what


def assert_run_refused(model: Model, operator: Operator, way: Way, code: str, what: str) -> None:
    for engine in ENGINES:
        try:
            found = dovetail.run(model, feeds(operator, way), engine)
        except DovetailError as error:
            assert_blamed(error, code, f"{what}, {engine}")
        else:
            raise AssertionError(f"{what}: the {engine} engine runs it, and gives {found}")


def assert_blamed(error: DovetailError, code: str, what: str) -> None:
    assert (error.code, error.diagnostics[0].node) == (code, NODE), f"{what}: {error}"


# What each type can hold


@cache
def elements(name: str, count: int, start: int = 0) -> np.ndarray[Any, Any]:
    """Elements with the bits that a careless move loses: NaNs of several payloads, -0, denormals, the ends of the range, odd
    texts."""
    kind = dtypes.dtype(name)
    if name == "string":
        texts = ["", "a", "ä", "two words", "\U0001f642", "x" * 40]
        found = np.empty(count, dtype=object)
        found[:] = [f"{texts[(start + index) % len(texts)]}{start + index}" for index in range(count)]
        return found
    if name == "boolean":
        return (np.arange(start, start + count) * 5 % 3 == 0).astype(bool)
    if kind.bits < 8:
        codes = (np.arange(start, start + count) % 2**kind.bits).astype(np.uint8)
        if kind.kind == "int":
            return np.where(codes >= 2 ** (kind.bits - 1), codes.astype(np.int16) - 2**kind.bits, codes).astype(kind.numpy)
        return codes.view(kind.numpy) if kind.is_float and kind.numpy.itemsize == 1 else codes.astype(kind.numpy)
    part = kind.bits // 2 if kind.kind == "complex" else kind.bits
    words = [_BITS[part][(start + index) % len(_BITS[part])] for index in range(count * kind.bits // part)]
    return np.array(words, dtype=f"u{part // 8}").view(kind.numpy)


_BITS = {
    8: [*range(0, 256, 5), 255, 128, 127, 254],
    16: [0x7E01, 0x8000, 0x0001, 0x7C01, 0x7F81, 0xFFFF, 0x8001, 0x3C00, 0x7FFF, 0x7F80],
    32: [0x7FC00001, 0x80000000, 0x00000001, 0x7F800001, 0xFFFFFFFF, 0x807FFFFF, 0x3F800000, 0x7FFFFFFF, 0x7F800000],
    64: [
        0x7FF8000000000001, 0x8000000000000000, 0x0000000000000001, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF,
        0x7FFFFFFFFFFFFFFF, 0x3FF0000000000000, 0x3FF0000000000001,
    ],
}  # fmt: skip

FLOATS = ("f16", "f32", "f64")
FIFTEEN = tuple("boolean complex128 complex64 f64 f32 f16 i16 i32 i64 i8 string u16 u32 u64 u8".split())
SIXTEEN = (*FIFTEEN, "bf16")
ONNX_TYPES = tuple(item.name for item in dtypes.ALL if item.onnx is not None)
IR_TYPES = tuple(item.name for item in dtypes.ALL if item.openvino is not None)


def sweep(allowed: dict[int, tuple[str, ...]], known: tuple[str, ...]) -> Iterator[Any]:
    """Every version with every type: (version, type, whether the version moves the type)."""
    for version, names in allowed.items():
        for name in known:
            yield pytest.param(version, name, name in names, id=f"{version}-{name}")
