"""Low-rank adapters of matrix products: attach_lora, merge_lora and detach_lora."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from math import prod, sqrt
from typing import Any, NamedTuple, cast

import numpy as np

from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, remove_dead
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.rewrite import rewrite
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant
from dovetail.storage import files
from dovetail.storage.safetensors_file import read_tensors

A, B = ".lora_A", ".lora_B"
"""The suffixes of the names of both factors, behind the name of the weight."""
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES = 1 << 20
_KEY = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")

Array = np.ndarray[Any, Any]


class _Factors(NamedTuple):
    """_Factors holds both factors [depth, rank] and [rank, columns], and the number that multiplies their product."""

    a: Array
    b: Array
    scale: float


@check_keywords
def attach_lora(
    model: Model,
    targets: str | Iterable[str] = "*",
    *,
    rank: int = 8,
    alpha: float = 16.0,
    adapter: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Model:
    """Return a copy of ``model`` in which products by constant matrices have low-rank adapters; ``report`` lists the matrices.

    A product ``x @ w`` becomes ``x @ w + alpha / rank * (x @ a @ b)``. The constants ``a`` [depth, ``rank``] and ``b`` [``rank``,
    columns] have the name of ``w``, followed by ``.lora_A`` and ``.lora_B``; ``b`` is zeros, so that the results are those of
    ``model`` at first. ``training_step(model, weights="*.lora_?")`` trains them alone.

    ``targets`` are names of weights or of nodes, or patterns such as ``"*q_proj*"``. Products are MatMul and Gemm with an f32
    matrix as second operand, which may be computed from constants, such as by DequantizeLinear or Cast, and MatMulNBits. The
    weight of such a product is the largest of its constants; it stays as it is.

    ``adapter`` is a folder that peft has written, with adapter_config.json and adapter_model.safetensors: both factors, ``rank``
    and ``alpha`` are read from it. A module ``layers.0.q_proj`` of the adapter belongs to the weight ``layers.0.q_proj.weight``
    or the node ``/layers/0/q_proj/MatMul``, also behind other modules.

    Raises RuleError [name.unknown] where no product has a name of ``targets`` or of the adapter, [argument.value] for a rank
    below 1, [shape.disagree] for factors that do not fit; FormatError [array.file] and those of opening files
    [path.*] for the adapter; UnsupportedError [constant.needed] for an adapter of other layers than products.
    Sources: Hu et al., "LoRA", 2021; the files of peft 0.21.

    >>> with dovetail.Builder() as b:
    ...     y = b.output("y", b.MatMul(b.input("x", "f32", ("n", 4)), b.constant(np.eye(4, dtype=np.float32), name="w")))
    >>> tuned = dovetail.attach_lora(b.model, rank=2)
    >>> tuned.report, dovetail.detach_lora(tuned).graph.nodes[-1].op == b.model.graph.nodes[-1].op
    (['w'], True)
    """
    if rank < 1:
        raise RuleError("argument.value", f"rank must be at least 1, got {rank}")
    patterns = [targets] if isinstance(targets, str) else list(targets)
    known = None if adapter is None else _read_adapter(os.fspath(adapter))
    uses = Counter[str]()
    rng = np.random.default_rng(seed)
    new = copy_model(model)
    names: list[str] = []

    def rule(b: Builder, node: Node) -> Value | None:
        layer = _layer_of(node)
        if layer is None:
            return None
        weight, depth, columns = layer
        if known is None:
            matches = [
                pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in (weight.name, node.name or ""))
            ]
            bound = 1 / sqrt(max(depth, 1))
            factors = _Factors(rng.uniform(-bound, bound, (depth, rank)), np.zeros((rank, columns)), alpha / rank)
        else:
            matches = [module for module in known if _belongs(module, node, weight)]
            factors = known[matches[0]] if matches else _Factors(np.zeros((0, 0)), np.zeros((0, 0)), 0)
        if not matches:
            return None
        uses.update(matches)
        if factors.a.shape[0] != depth or factors.b.shape[1] != columns:
            text = f"the factors of {weight.name!r} must be [{depth}, rank] and [rank, {columns}]"
            raise RuleError("shape.disagree", f"{text}, got {list(factors.a.shape)} and {list(factors.b.shape)}")
        names.append(weight.name)
        return _attach(b, node, weight, factors)

    with counting(new.limits):
        rewrite(new.graph, rule)
        for name in patterns if known is None else known:
            if not uses[name]:
                text = f"the model has no product by a constant f32 matrix named {name!r}"
                raise RuleError("name.unknown", text, file=model.file)
            if known is not None and uses[name] > 1:
                text = f"{name!r} must be the module of one product, got {uses[name]} products with names that end so"
                raise RuleError("name.unknown", text, file=model.file)
        infer_graph(new.graph, file=new.file)
    new.report = names
    return new


class _Layer(NamedTuple):
    """_Layer holds the constant that names a product, and the sizes of the matrix that the product multiplies by."""

    weight: Value
    depth: int
    columns: int


def _layer_of(node: Node) -> _Layer | None:
    """Return the layer of a product by a constant f32 matrix; None for other nodes."""
    # Deferred for start-up time: public functions import few operators.
    from dovetail.ops.linalg.matmul import Gemm, MatMul
    from dovetail.ops.quantization.matmul_nbits import MatMulNBits

    op = node.op
    if isinstance(op, MatMulNBits):
        is_constant = node.input(1).constant is not None and node.outputs[0].dtype.name == "f32"
        return _Layer(node.input(1), op.k, op.n) if is_constant else None
    if not isinstance(op, MatMul | Gemm) or len(node.inputs) < 2 or node.inputs[0] is None or op.transpose_a:
        return None
    matrix = node.input(1)
    if not isinstance(matrix.type, Tensor) or matrix.dtype is None or matrix.dtype.name != "f32" or matrix.shape is None:
        return None
    constants = _constants_of(matrix)
    if len(matrix.shape) != 2 or not constants or not all(isinstance(size, int) for size in matrix.shape):
        return None
    depth, columns = cast(tuple[int, int], matrix.shape)
    weight = max(constants, key=lambda value: prod(value.dims))
    return _Layer(weight, columns, depth) if op.transpose_b else _Layer(weight, depth, columns)


def _constants_of(value: Value) -> list[Value]:
    """Return the constants from which a value is computed; none where it also depends on inputs."""
    found: list[Value] = []
    seen: set[int] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.node is None or current.node.op.holds_graphs:
            return []
        if isinstance(current.node.op, Constant):
            found.append(current)
        stack.extend(x for x in current.node.inputs if x is not None)
    return found


def _belongs(module: str, node: Node, weight: Value) -> bool:
    paths = (weight.name.removesuffix(".weight"), (node.name or "").rsplit("/", 1)[0].replace("/", "."))
    return any(f".{path}".endswith(f".{module}") or f".{module}".endswith(f".{path}") for path in paths if path.strip("."))


def _attach(b: Builder, node: Node, weight: Value, factors: _Factors) -> Value:
    y = b.add(node.op, *node.inputs, name=node.name)[0]
    first = b.constant(factors.a.astype(np.float32), name=b.graph.free_name(weight.name + A))
    second = b.constant(factors.b.astype(np.float32), name=b.graph.free_name(weight.name + B))
    product = b.MatMul(b.MatMul(node.input(0), first), second)
    return b.Add(y, b.Multiply(product, b.constant(np.float32(factors.scale))))


def _read_adapter(folder: str) -> dict[str, _Factors]:
    """Return the factors of each module of an adapter of peft."""
    path = os.path.join(folder, CONFIG)
    try:
        config = json.loads(files.read_bytes(path, MAX_CONFIG_BYTES))
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"the configuration of an adapter must have the numbers r and lora_alpha: {type(error).__name__}"
        raise FormatError("array.file", message, file=path) from None
    scale = alpha / (sqrt(max(rank, 1)) if config.get("use_rslora") else max(rank, 1))
    tensors = _read_tensors(os.path.join(folder, TENSORS))
    parts: dict[str, dict[str, Array]] = {}
    for key, array in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None or array.ndim != 2:
            text = f"the adapter must have pairs of matrices lora_A.weight and lora_B.weight, got {key!r}"
            raise UnsupportedError("constant.needed", text, file=folder)
        parts.setdefault(match[1], {})[match[2]] = array
    if lone := [module for module, pair in parts.items() if len(pair) != 2]:
        raise FormatError("array.file", f"the adapter must have both factors of {lone[0]!r}, got one", file=folder)
    return {module: _Factors(pair["A"].T, pair["B"].T, scale) for module, pair in parts.items()}


def _read_tensors(path: str) -> Mapping[str, Array]:
    descriptor = files.open_beside(path, os.path.basename(path))
    try:
        found = read_tensors(descriptor, path)
    finally:
        os.close(descriptor)
    return {
        name: np.frombuffer(data, dtype.numpy).reshape(shape).astype(np.float32) for name, (dtype, shape, data) in found.items()
    }


class _Adapter(NamedTuple):
    """_Adapter holds the nodes of an adapter: the sum, the product that is adapted, and the factors."""

    sum: Node
    product: Node
    factors: _Factors


def _find_adapters(graph: Graph) -> list[_Adapter]:
    # Deferred for start-up time, as in _weight_of.
    from dovetail.ops.elementwise.binary import Add, Multiply
    from dovetail.ops.linalg.matmul import MatMul

    found = []
    for node in graph.nodes:
        if not isinstance(node.op, Add) or any(x is None or x.node is None for x in node.inputs):
            continue
        product, scaled = node.input(0).node, node.input(1).node
        if product is None or scaled is None or not isinstance(scaled.op, Multiply):
            continue
        second, scale = scaled.input(0).node, scaled.input(1).constant
        first = second.input(0).node if second is not None and isinstance(second.op, MatMul) else None
        if second is None or first is None or scale is None or scale.size != 1 or not isinstance(first.op, MatMul):
            continue
        a, b = first.input(1), second.input(1)
        if a.constant is None or b.constant is None or A not in a.name or B not in b.name:
            continue
        found.append(_Adapter(node, product, _Factors(a.constant, b.constant, float(scale))))
    return found


@check_keywords
def detach_lora(model: Model) -> Model:
    """Return a copy of ``model`` without the adapters of :func:`attach_lora`: the products are those of the original model.

    Raises RuleError [argument.value] for a model without adapters.

    >>> with dovetail.Builder() as b: y = b.output("y", b.input("x", "f32", ("n", 4)))
    >>> dovetail.detach_lora(b.model)
    Traceback (most recent call last):
        ...
    dovetail.errors.RuleError: [argument.value] the model must have adapters of attach_lora, got none
    """
    return _without_adapters(model, merges=False)


@check_keywords
def merge_lora(model: Model) -> Model:
    """Return a copy of ``model`` in which the products of the adapters' factors are added to the weights, in f32.

    Weights that are computed from constants, such as quantized ones, become f32 matrices; quantize the result again if needed.

    Raises RuleError [argument.value] for a model without adapters.

    >>> with dovetail.Builder() as b:
    ...     y = b.output("y", b.MatMul(b.input("x", "f32", ("n", 4)), b.constant(np.eye(4, dtype=np.float32), name="w")))
    >>> tuned = dovetail.attach_lora(b.model, rank=1, alpha=1)
    >>> tuned = tuned.with_constants({"w.lora_A": np.ones((4, 1), np.float32), "w.lora_B": np.ones((1, 4), np.float32)})
    >>> dovetail.merge_lora(tuned).values["w"].constant[0]
    array([2., 1., 1., 1.], dtype=float32)
    """
    return _without_adapters(model, merges=True)


def _without_adapters(model: Model, *, merges: bool) -> Model:
    new = copy_model(model)
    adapters = {id(adapter.sum): adapter for adapter in _find_adapters(new.graph)}
    if not adapters:
        raise RuleError("argument.value", "the model must have adapters of attach_lora, got none", file=model.file)

    def rule(b: Builder, node: Node) -> Value | None:
        adapter = adapters.get(id(node))
        if adapter is None:
            return None
        if not merges:
            return node.input(0)
        return _merge(b, adapter)

    with counting(new.limits):
        rewrite(new.graph, rule)
        remove_dead(new.graph)
        infer_graph(new.graph, file=new.file)
    return new


def _merge(b: Builder, adapter: _Adapter) -> Value:
    node, factors = adapter.product, adapter.factors
    layer, op = _layer_of(node), cast(Any, node.op)
    assert layer is not None
    change = (factors.a.astype(np.float64) @ factors.b.astype(np.float64)) * factors.scale
    weight = layer.weight
    is_transposed = _is_transpose_of(node.input(1), weight)
    if weight.dtype.name != "f32" or not (is_transposed or node.input(1) is weight):
        return _merge_into_matrix(b, node, layer, change)
    change /= getattr(op, "alpha", 1)
    if op.transpose_b:
        change = change.T
    assert weight.constant is not None
    merged = (weight.constant + (change.T if is_transposed else change)).astype(np.float32)
    if len(weight.uses) == 1 and weight.node is not None and len(node.input(1).uses) == 1:
        merged.flags.writeable = False
        weight.node.op = Constant(merged, weight.dtype)
        weight.value = None
        return adapter.sum.input(0)
    # Other nodes read the weight too.
    constant = b.constant(merged.T if is_transposed else merged, name=b.graph.free_name(f"{weight.name}.merged"))
    return b.add(node.op, node.inputs[0], constant, *node.inputs[2:], name=node.name)[0]


def _is_transpose_of(value: Value, weight: Value) -> bool:
    node = value.node
    if node is None or type(node.op).__name__ != "Transpose" or node.input(0) is not weight:
        return False
    order = node.input(1).constant if len(node.inputs) > 1 else None
    return order is not None and order.tolist() in ([], [1, 0])


def _merge_into_matrix(b: Builder, node: Node, layer: _Layer, change: Array) -> Value:
    """Emit the product by the f32 matrix that is computed from constants, plus ``change``."""
    # Deferred for start-up time, as in _layer_of.
    from dovetail.ops.quantization.matmul_nbits import MatMulNBits

    op = cast(Any, node.op)
    name = b.graph.free_name(f"{layer.weight.name}.merged")
    if isinstance(op, MatMulNBits):
        rows = b.constant(np.eye(op.k, dtype=np.float32))
        parts = [rows, *node.inputs[1:5]]
        matrix = _elements_of(b.add(op, *parts)[0])
        product = b.MatMul(node.input(0), b.constant((matrix + change).astype(np.float32), name=name))
        bias = node.inputs[5] if len(node.inputs) > 5 else None
        return product if bias is None else b.Add(product, bias)
    change = change / getattr(op, "alpha", 1)
    matrix = _elements_of(node.input(1)) + (change.T if op.transpose_b else change)
    return b.add(op, node.inputs[0], b.constant(matrix.astype(np.float32), name=name), *node.inputs[2:], name=node.name)[0]


def _elements_of(value: Value) -> Array:
    """Return the elements of a value that is computed from constants."""
    arrays: dict[int, Array] = {}
    stack = [value]
    while stack:
        current = stack[-1]
        node = current.node
        assert node is not None
        missing = [x for x in node.inputs if x is not None and id(x) not in arrays]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if id(current) in arrays:
            continue
        if current.constant is not None:
            arrays[id(current)] = current.constant
            continue
        results = apply(node.op, np, [None if x is None else arrays[id(x)] for x in node.inputs])
        arrays |= {id(y): result for y, result in zip(node.outputs, results, strict=False)}
    return arrays[id(value)]
