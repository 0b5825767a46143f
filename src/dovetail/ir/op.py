"""Op: the base class of operators, which are immutable values with rules as methods.

A subclass declares its attributes as annotations, and its signature and op mappings in the class header::

    class Concat(Op, sig="*xs: T -> y: T", onnx=("Concat-1(*xs; axis=1)", "Concat-4(*xs; axis)"), openvino="Concat-1(*xs; axis)"):
        axis: int

``sig`` declares inputs and outputs: see :mod:`dovetail.ir.signature`. An operator with a variable number of outputs has the
attribute ``outputs: int``. A rule takes each input as a parameter; a subclass names these parameters like the signature:

- ``shape``, ``types``, ``value``, ``canonical``, ``windows`` and ``is_random`` take ``View``, and ``View | None`` for an optional
  input.
- ``vjp``, ``pull_back`` and ``decompose`` take ``b: Builder``, and ``Value`` or ``Value | None``; a Value is a View.
- ``evaluate`` takes ``xp: Namespace``, and ``Array`` or ``Array | None``, as :mod:`dovetail.ir.arrays` names them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence as Several
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, dataclass_transform

import numpy as np

from dovetail.errors import DovetailError, RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.arrays.backends import Namespace
from dovetail.ir.attribute_types import REQUIRED, Field, WrongType, annotation_text, attribute_type
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import VALUE_LIMIT
from dovetail.ir.registry import Registry
from dovetail.ir.signature import CLASS_NAMES, Signature, parse_signature
from dovetail.ir.substitution import map_elements
from dovetail.ir.suggestions import closest
from dovetail.ir.types import UNKNOWN, Bounded, Optional, Shape, Size, Tensor, Type, Unknown, View, is_static, static

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Graph, Node, Value

    Adjoints: TypeAlias = Callable[[Builder, Several[Value], Several[Value], Several[Value]], list[Value]]

DEFAULT_NEEDED = "default.needed"
"""The error code for a node that needs the default of an optional input as a constant."""
REGISTRY: Registry[type[Op]] = Registry()
"""The operators by name."""
RuleInput: TypeAlias = Any
"""One input of a rule; a subclass declares each as View, Value or Array, or as optional."""
Sizes: TypeAlias = tuple[int, ...]
"""A static shape."""
RuleShape: TypeAlias = Several[Size | Bounded | None]
"""A shape that a rule returns; None and Bounded stand for unknown sizes."""


class Window(NamedTuple):
    """Window is a region of one output that holds elements of one input: an affine map over a box of ``sizes``.

    Element ``i`` (an index into the box) is read at ``source_offset + sum(i * source_strides)`` of the input and written at
    ``target_offset + sum(i * target_strides)`` of the output, both counted in elements of dense row-major arrays.
    """

    input: int
    output: int
    sizes: tuple[int, ...]
    source_offset: int
    source_strides: tuple[int, ...]
    target_offset: int
    target_strides: tuple[int, ...]


class Windows(NamedTuple):
    """Windows holds the windows of a node; later windows overwrite earlier ones.

    ``fill`` is the scalar outside of all windows; None if the windows cover the output.
    """

    windows: tuple[Window, ...]
    fill: Any = None

    @classmethod
    def whole(cls, shape: Shape | None) -> Windows:
        """Return the window of an output that holds all elements of the first input, of static ``shape``, in order."""
        size = int(np.prod(static(shape), dtype=object))
        return cls((Window(0, 0, (size,), 0, (1,), 0, (1,)),))


@dataclass_transform(frozen_default=True)
class Op:
    """Op is the base class of operators. An Op is immutable, hashable and comparable, prints as code, and works in ``match``.

    A subclass has the keywords ``sig``, ``onnx`` and ``openvino``, and registers itself: ``Builder`` then has a method for it,
    and ``load`` and ``save`` use its op mappings (docs/howto/custom_operators.md). ``is_registered=False`` leaves that out.

    The definition of a subclass raises RuleError [argument.type], [argument.value], [attribute.unknown], [name.taken] for a fault
    of the class. An instance raises RuleError [attribute.missing], [attribute.repeated], [attribute.unknown], [attribute.value].

    >>> class Third(dovetail.Op, sig="x: F -> y: F", onnx="com.example:Third-1(x)"):
    ...     def shape(self, x): return x.dims
    ...     def evaluate(self, xp, x): return x / 3
    >>> with dovetail.Builder() as b: y = b.output("y", b.add(Third(), b.input("x", "f32", ("n",)))[0])
    >>> dovetail.run(b.model, np.array([6], np.float32))["y"]
    array([2.], dtype=float32)
    """

    sig: ClassVar[str] = ""
    onnx: ClassVar[tuple[str, ...]] = ()
    openvino: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[Field, ...]] = ()
    fields_by_name: ClassVar[dict[str, Field]] = {}
    __match_args__: ClassVar[tuple[str, ...]] = ()
    signature: ClassVar[Signature] = Signature((), ())
    holds_graphs: ClassVar[bool] = False
    sizes_depend_on_data: ClassVar[bool] = False
    selects_by_score: ClassVar[bool] = False
    is_custom: ClassVar[bool] = False
    """True if the class is defined outside of dovetail: its definition and its results are checked."""
    is_in_catalog: ClassVar[bool] = True
    """True if a specification defines the operator; False for an operator that only this IR has."""
    moves_elements: ClassVar[bool] = False
    """True if each output element is an input element or a fill value, as for all operators with ``windows``."""
    is_algebraic: ClassVar[bool] = False
    """True if each output element is a sum, product, quotient, power or root of elements of the inputs."""
    rounds_half_once: ClassVar[bool] = True
    """True if f16 and bf16 may be computed in f32 and rounded once; False for data movement and for special rounding."""
    decomposes_in_f32: ClassVar[bool] = False
    """True if the decomposition of the operator on f16 and bf16 is computed in f32."""
    is_composite: ClassVar[bool] = False
    """True if the specification defines the operator by other operators: ``decompose`` gives the same bits as ``evaluate``."""
    commutes: ClassVar[bool] = False
    """True if ``is_commutative`` returns True for all inputs."""
    commutes_with_rounding: ClassVar[bool] = False
    """True if rounding the first input to a narrower float type gives the same output as rounding the output."""
    fixed_ports: ClassVar[tuple[int, ...]] = ()
    """Inputs that are no weights although they are floats: training_step keeps them constant unless they are named."""
    cache_ports: ClassVar[tuple[tuple[int, int], ...]] = ()
    """Pairs of indices of an input and an output that is its next value: caches that the steps of a sequence carry."""
    _defaults: ClassVar[dict[str, Any]] = {}
    _required: ClassVar[tuple[str, ...]] = ()
    _checks: ClassVar[dict[str, tuple[frozenset[type], Callable[[Any], Any]]]] = {}

    @property
    def first_capture(self) -> int:
        """The index of the first input that the subgraphs capture; the subgraphs capture all later inputs too."""
        return 0

    def __init_subclass__(
        cls,
        *,
        sig: str | None = None,
        onnx: str | tuple[str, ...] = (),
        openvino: str | tuple[str, ...] = (),
        is_registered: bool = True,
        **rest: object,
    ) -> None:
        # Operators that only the engine creates are not registered: they have no builder method and no op mapping.
        cls.is_custom = not cls.__module__.startswith("dovetail.")
        if cls.is_custom:
            # Deferred for start-up time.
            from dovetail.ir.definition import check_header

            check_header(cls, sig, (onnx, openvino), rest)
        super().__init_subclass__(**rest)
        if sig is not None:
            cls.sig = sig
            try:
                cls.signature = parse_signature(sig)
            except RuleError as error:
                raise RuleError(error.code, f"{cls.__name__}: {error.message}") from None
        cls.moves_elements = cls.moves_elements or "windows" in cls.__dict__
        cls.onnx = (onnx,) if isinstance(onnx, str) else tuple(onnx)
        cls.openvino = (openvino,) if isinstance(openvino, str) else tuple(openvino)
        annotations = {name: annotation_text(annotation) for name, annotation in inspect.get_annotations(cls).items()}
        own = {
            name: Field(name, annotation, cls.__dict__.get(name, REQUIRED))
            for name, annotation in annotations.items()
            if not annotation.startswith("ClassVar")
        }
        inherited = tuple(
            Field(field.name, field.annotation, cls.__dict__[field.name]) if field.name in cls.__dict__ else field
            for field in cls.fields
            if field.name not in own
        )
        cls.fields = inherited + tuple(own.values())
        cls.fields_by_name = {field.name: field for field in cls.fields}
        cls.__match_args__ = tuple(cls.fields_by_name)  # type: ignore[misc]
        cls._defaults = {field.name: field.default for field in cls.fields}
        cls._required = tuple(field.name for field in cls.fields if field.default is REQUIRED)
        cls._checks = {}
        for field in cls.fields:
            check = attribute_type(field.annotation)
            cls._checks[field.name] = check.classes, check.convert
        if cls.is_custom:
            from dovetail.ir.definition import check_class

            check_class(cls)
        if is_registered and not cls.__name__.startswith("_") and cls.sig:
            _register(cls)

    def __init__(self, *args: object, **attributes: object) -> None:
        cls = type(self)
        if args:
            attributes = cls._bind_arguments(args, attributes)
        checks = cls._checks
        for name, value in attributes.items():
            if name not in checks:
                raise unknown_attribute(cls, name)
            classes, convert = checks[name]
            if value.__class__ not in classes:
                try:
                    attributes[name] = convert(value)
                except WrongType:
                    raise _wrong_type(cls, name, value) from None
        state = self.__dict__
        state.update(cls._defaults)
        state.update(attributes)
        for name in cls._required:
            if state[name] is REQUIRED:
                raise RuleError("attribute.missing", f"{cls.__name__} needs the attribute {name!r}")
        try:
            self.validate()
        except DovetailError:
            raise
        except UNFORESEEN as error:
            raise failure(error) from error

    @classmethod
    def _bind_arguments(cls, args: tuple[object, ...], attributes: dict[str, object]) -> dict[str, object]:
        """Return all passed attributes by name; ``args`` are the values of the first attributes in the order of declaration."""
        if len(args) > len(cls.fields):
            raise RuleError("attribute.unknown", f"{cls.__name__} has {len(cls.fields)} attributes, got {len(args)}")
        by_name = dict(zip(cls._defaults, args, strict=False))
        if not attributes:
            return by_name
        if not by_name.keys().isdisjoint(attributes):
            names = ", ".join(repr(name) for name in by_name if name in attributes)
            raise RuleError("attribute.repeated", f"{cls.__name__}: the attribute {names} is passed twice")
        return by_name | attributes

    @property
    def title(self) -> str:
        """The operator's name in messages."""
        return type(self).__name__

    def validate(self) -> None:
        """Raise RuleError if the attributes contradict the specification for every possible input."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use .with_({name}=...)")

    def with_(self, **changes: object) -> Op:
        """Return a copy with some attributes changed."""
        return type(self)(**{**self.__dict__, **changes})

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.__dict__.values())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        parts = [f"{field.name}={_text(self.__dict__[field.name])}" for field in self.fields if not _is_default(self, field)]
        return f"{type(self).__name__}({', '.join(parts)})" if parts else type(self).__name__

    @property
    def fills_with_zeros(self) -> bool:
        """Return whether an operator that moves elements may write zeros to output positions that receive no input element."""
        return False

    # The rules. A subclass overrides the rules that it supports; `has` tests whether an operator overrides a rule.

    def shape(self, *xs: RuleInput) -> Any:
        """Infer the output's shape, or a list of shapes, one per output.

        A shape is None if its rank is unknown; a size is None or Bounded if it is unknown. Raises RuleError, and Unknown.
        """
        raise Unknown

    def usual_rank(self, *xs: RuleInput) -> int | None:
        """Return the rank that the output has at all but exceptional input sizes; needed if ``shape`` returns no rank."""
        return None

    def types(self, *xs: RuleInput) -> list[Type]:
        """Infer the outputs' types. The default takes element types from ``sig`` and shapes from ``shape``."""
        return default_types(self, xs)

    def value(self, *xs: RuleInput) -> Any:
        """Infer the outputs' values as exact arrays of integers and Dims, or raise Unknown.

        The default runs ``evaluate`` on the inputs' values in the namespace ``symbolic.xp``.
        """
        return self.evaluate(symbolic.xp, *(None if x is None else symbolic.xp.asarray(x.exact) for x in xs))

    def evaluate(self, xp: Namespace, *xs: RuleInput) -> Any:
        """Compute the output array, or a tuple of arrays, in the namespace ``xp``. Inputs marked ``!`` are numpy arrays."""
        raise NotImplementedError

    def vjp(self, b: Builder, g: RuleInput, y: RuleInput, /, *xs: RuleInput) -> Any:
        """Emit the vector-Jacobian product: return the gradient of each input, None for an input without gradient.

        ``g`` is the incoming gradient and ``y`` the output. Both are Values, or tuples of Values for several outputs; the
        gradient of an unused output is None.
        """
        raise NotImplementedError

    def pull_back(
        self, b: Builder, adjoints: Adjoints, node: Node, g: Several[Value | None], wanted: Several[bool]
    ) -> Several[Value | None]:
        """Emit the vector-Jacobian product of an operator with subgraphs: return the gradient of each input.

        ``adjoints(b, outputs, deltas, sources)`` differentiates a subgraph. ``wanted`` states for each input whether its gradient
        is needed. The rule may add outputs to ``node``.
        """
        raise NotImplementedError

    def straight_through(self, b: Builder, fixed: Several[RuleInput], /, *xs: RuleInput) -> Any:
        """Emit the straight-through estimate of a quantization: the output as a differentiable function of ``xs``.

        Its gradient replaces that of the operator, where a caller demands it. ``xs`` are the inputs, with integers as floats;
        ``fixed`` are the inputs as they are, through which no gradient flows.
        """
        raise NotImplementedError

    def is_random(self, *xs: RuleInput) -> bool:
        """Return whether the outputs may depend on random numbers for these inputs; an operator that does is not folded."""
        return False

    def is_commutative(self, *xs: RuleInput) -> bool:
        """Return whether swapping these inputs leaves the bits of the result unchanged; the payloads of NaNs may differ."""
        return self.commutes

    def multiply_adds(self, inputs: Several[Sizes | None], output: Sizes) -> int:
        """Return the number of multiply-adds of a contraction, for static shapes of the inputs and the first output."""
        raise NotImplementedError

    def operations(self, inputs: Several[Sizes | None], outputs: Several[Sizes]) -> int:
        """Return the number of arithmetic operations for static shapes.

        The default is 2 per multiply-add of a contraction and 0 for data movement. For other operators the default is 1 per
        element of the largest input or output.
        """
        if has(self, "multiply_adds"):
            return 2 * self.multiply_adds(inputs, outputs[0])
        return 0 if self.moves_elements else max(prod(shape) for shape in (*inputs, *outputs) if shape is not None)

    def canonical(self, *xs: RuleInput) -> Op:
        """Return an equivalent operator for these inputs with attributes in canonical form: axes counted from the front."""
        return self

    def windows(self, *xs: RuleInput) -> Windows:
        """Return the regions of the outputs that hold elements of the inputs; for static shapes only."""
        raise NotImplementedError

    def decompose(self, b: Builder, /, *xs: RuleInput) -> Any:
        """Decompose the operator into other operators: return the output as a Value, or several outputs as a list."""
        raise NotImplementedError


def _register(cls: type[Op]) -> None:
    """Add a class to the registry. Raises RuleError [name.taken] if another class has the same name."""
    own = cls.__module__, cls.__qualname__
    other = REGISTRY.definition_of(cls.__name__)
    # A module that is executed again defines the same class again.
    if other is not None and other != own:
        raise RuleError("name.taken", f"{cls.__module__} and {other[0]} both define an operator {cls.__name__}")
    REGISTRY[cls.__name__] = cls


def unknown_attribute(cls: type[Op], name: str) -> RuleError:
    """Return the error for a name that is no attribute of an operator; the error suggests the closest attribute name."""
    if any(port.name == name for port in cls.signature.inputs):
        return RuleError("attribute.unknown", f"{name!r} is an input of {cls.__name__}; inputs are positional")
    return RuleError("attribute.unknown", f"{cls.__name__} has no attribute {name!r}{closest(name, cls.fields_by_name)}")


def _wrong_type(cls: type[Op], name: str, value: object) -> RuleError:
    # Deferred for start-up time: only an error needs it.
    from reprlib import repr as short_repr

    expected = attribute_type(cls.fields_by_name[name].annotation).text
    return RuleError("attribute.value", f"{cls.__name__}: the attribute {name!r} must be {expected}, got {short_repr(value)}")


def has(op: Op | type[Op], rule: str) -> bool:
    """Return whether an operator overrides a rule."""
    cls = op if isinstance(op, type) else type(op)
    return getattr(cls, rule) is not getattr(Op, rule)


def moves_first_input(op: Op) -> bool:
    """Return whether each element of the outputs is an element of the first input, never a fill value."""
    if not op.moves_elements or op.fills_with_zeros:
        return False
    result, (first, *rest) = op.signature.outputs[0].type, op.signature.inputs
    return first.type == result and not first.repeated and all(port.type != result for port in rest)


def bodies(op: Op) -> Iterator[tuple[str, Any]]:
    """Yield the subgraphs among the attributes, by name."""
    for field in op.fields:
        if field.annotation == "Graph":
            yield field.name, op.__dict__[field.name]


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and all subgraphs of its nodes, the innermost first."""
    for node in graph.nodes:
        for _, body in bodies(node.op):
            yield from graphs_of(body)
    yield graph


def draws(op: Op, xs: Several[View | None]) -> bool:
    """Return whether the operator, or a node in one of its subgraphs, may draw random numbers for these inputs."""
    return op.is_random(*xs) or any(draws(node.op, node.inputs) for _, body in bodies(op) for node in body.nodes)


def faults(op: Op) -> Iterator[DovetailError]:
    """Yield the errors that the last type inference found in the subgraphs of the operator, including nested subgraphs."""
    for _, body in bodies(op):
        if body.fault is not None:
            yield body.fault
        for node in body.nodes:
            yield from faults(node.op)


def raise_fault(op: Op) -> None:
    """Raise the first error that :func:`faults` yields, if any: all subgraphs of a new operator must be able to run."""
    for fault in faults(op):
        raise fault.with_traceback(None)


def output_count(op: Op) -> int:
    """Return the number of outputs: the attribute ``outputs``, or else the number in the signature."""
    count = op.__dict__.get("outputs")
    return len(op.signature.outputs) if count is None else int(count)


def host_inputs(op: Op, count: int) -> tuple[bool, ...]:
    """Return for each of ``count`` inputs whether shape rules read it, so that it stays a numpy array on the host."""
    signature = op.signature
    if not signature.has_hosts:
        return (False,) * count
    return tuple(signature.port(index, count).host for index in range(count))


def check_count(op: Op, xs: Several[View | None]) -> None:
    """Check the number of inputs, and which inputs are omitted, against the signature. Raises RuleError [node.inputs]."""
    signature = op.signature
    count = len(xs)
    if count < signature.min_inputs or (signature.repeated is None and count > len(signature.inputs)):
        raise RuleError("node.inputs", f"{_count_text(signature)}, got {count}")
    if None in xs:
        for index, x in enumerate(xs):
            if x is None and not (port := signature.port(index, count)).optional:
                raise RuleError("node.inputs", f"input {port.name!r} is missing")


def _count_text(signature: Signature) -> str:
    minimum, maximum = signature.min_inputs, len(signature.inputs)
    if signature.repeated is not None:
        return f"needs at least {minimum} input{'s' * (minimum != 1)}"
    return f"takes {maximum if minimum == maximum else f'{minimum} to {maximum}'} input{'s' * (maximum != 1)}"


def check_inputs(op: Op, xs: Several[View | None]) -> dict[str, DType]:
    """Check the number and element types of the inputs against the signature. Returns the element types of type variables.

    Raises RuleError [node.inputs], [type.disagree], [type.class].
    """
    check_count(op, xs)
    signature = op.signature
    ports = signature.inputs
    count = len(xs)
    is_fixed = signature.repeated is None
    bound: dict[str, DType] = {}
    for index, x in enumerate(xs):
        port = ports[index] if is_fixed else signature.port(index, count)
        if x is None or port.allowed is None:
            continue
        type = x.type
        if not isinstance(type, Tensor):
            raise RuleError("type.kind", f"input {port.name!r} must be a tensor, got {type}")
        dtype = type.dtype
        if dtype is None:
            continue
        known = bound.setdefault(port.type, dtype)
        if known is not dtype:
            raise RuleError("type.disagree", f"element types must be equal, got {known} and {dtype}")
        if dtype.name not in port.allowed:
            expected = port.type if dtypes.by_name(port.type) else CLASS_NAMES[port.type[0]]
            raise RuleError("type.class", f"input {port.name!r} must be {expected}, got {dtype}")
    return bound


def default_types(op: Op, xs: Several[View | None]) -> list[Type]:
    """Infer the outputs' types from the signature and the rule ``shape``."""
    bound = check_inputs(op, xs)
    ports = op.signature.outputs
    count = output_count(op)
    try:
        shapes = op.shape(*xs)
    except (Unknown, symbolic.Inexact):
        shapes = [None] * count
    if not isinstance(shapes, list):
        shapes = [shapes]
    if len(shapes) != count:
        raise RuleError("node.outputs", f"the number of outputs must be {len(shapes)}, got {count}")
    if count == 1:
        return [Tensor(_output_dtype(ports[0].type, bound), shapes[0])]
    last = len(ports) - 1
    return [Tensor(_output_dtype(ports[min(index, last)].type, bound), shape) for index, shape in enumerate(shapes)]


def _output_dtype(variable: str, bound: dict[str, DType]) -> DType | None:
    return bound.get(variable) or dtypes.by_name(variable)


UNFORESEEN = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError)
"""Python's errors from a rule of an operator, which are converted to RuleError [op.failed]."""


def failure(error: Exception) -> RuleError:
    """Return RuleError [op.failed] for an exception of a class in UNFORESEEN."""
    fault = RuleError("op.failed", f"a rule of the operator fails: {type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault


def infer_types(op: Op, xs: tuple[View | None, ...], name: str = "") -> list[Type]:
    """Infer the outputs' types; each size that the rules leave unknown becomes a new symbol ``?name.axis``.

    Raises RuleError without the name of a node; the caller adds the name.
    """
    if has(op, "types"):
        # `types` takes the inputs as parameters: a wrong number of inputs would raise a TypeError.
        check_count(op, xs)
    try:
        types = op.types(*xs)
    except (Unknown, symbolic.Inexact):
        return [UNKNOWN] * output_count(op)
    except DovetailError:
        raise
    except UNFORESEEN as error:
        raise failure(error) from error
    for index, type in enumerate(types):
        if isinstance(type, Tensor) and type.shape is not None:
            shape = type.shape
            for size in shape:
                if size is None or isinstance(size, Bounded) or (size.__class__ is int and not 0 <= size < 2**63):
                    types[index] = Tensor(type.dtype, _name_unknown(shape, f"{name}:{index}" if index else name))
                    break
        elif isinstance(type, Optional) and isinstance(type.element, Tensor) and type.element.shape is not None:
            element = type.element
            shape = _name_unknown(element.shape or (), f"{name}:{index}" if index else name)
            types[index] = Optional(Tensor(element.dtype, shape))
    return types


def _name_unknown(shape: RuleShape, name: str) -> Shape:
    """Replace unknown sizes by symbols. Raises RuleError [shape.range]."""
    for size in shape:
        if isinstance(size, int) and not 0 <= size < 2**63:
            raise RuleError("shape.range", f"a dimension must be in [0, 2**63 - 1], got {size}")
    return tuple(_symbol(f"?{name}.{axis}", size) for axis, size in enumerate(shape))


def _symbol(name: str, size: Size | Bounded | None) -> Size:
    if size is None:
        return symbolic.symbol(name)
    return symbolic.symbol(name, size.low, size.high) if isinstance(size, Bounded) else size


def infer_values(op: Op, xs: tuple[View | None, ...], types: list[Type]) -> list[Any]:
    """Infer the outputs' elements if all outputs are small integer tensors of static shape; None for an output if unknown."""
    none: list[Any] = [None] * len(types)
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or not (type.dtype.is_integer or type.dtype.kind == "bool"):
            return none
        if not is_static(type) or len(type.shape or ()) > 8:
            return none
        # numpy counts an axis of size 0 as 1.
        if prod(size or 1 for size in static(type.shape)) > VALUE_LIMIT:
            return none
    try:
        result = op.value(*xs)
    except (Unknown, symbolic.Inexact, NotImplementedError):
        return none
    except DovetailError:
        raise
    except UNFORESEEN as error:
        raise failure(error) from error
    values = list(result) if isinstance(result, tuple | list) else [result]
    return [_checked_value(value, type) for value, type in zip(values, types, strict=True)]


def _checked_value(value: symbolic.Array | None, type: Type) -> symbolic.Array | None:
    """Return an inferred value; None if the element type may be unable to represent one of its elements."""
    assert isinstance(type, Tensor) and type.dtype is not None
    if value is None or type.dtype.kind == "bool":
        return value
    array = np.asarray(value)
    return array if _fits(array, type.dtype) else None


def _fits(array: symbolic.Array, dtype: DType) -> bool:
    """Return whether ``dtype`` can represent all elements.

    A Dim is assumed to be representable in 32 and 64 bits, in an unsigned type only if its lower bound is not negative. A symbol
    that stands for an element of a u64 tensor is not a size, and may exceed the range of every signed type.
    """
    low, high = dtype.range()
    answer = symbolic.fits(array, low, high)
    if answer is False and dtype.bits >= 32:
        # An analysis (rebatching) may set a lower bound so high that no run has such a size.
        answer = symbolic.fits(map_elements(array, _with_usual_bounds), low, high)
    if answer is not None or dtype.bits < 32:
        return bool(answer)
    if low < 0:
        return not any(map(_is_wide_element, array.reshape(-1).tolist()))
    lows = [symbolic.bounds(item)[0] for item in array.reshape(-1).tolist()]
    return all(lower is not None and lower >= 0 for lower in lows)


USUAL_MINIMUM = 1 << 10
"""The lower bound to which larger lower bounds of symbols are reduced to test whether an element type can hold an expression."""


def _with_usual_bounds(size: Size) -> Size:
    """Return an expression whose symbols have lower bounds reduced to at most USUAL_MINIMUM."""
    if isinstance(size, int):
        return size
    changes: dict[str, Size] = {}
    for symbol in symbolic.symbols(size):
        name, (low, high) = symbolic.name_of(symbol), symbolic.bounds(symbol)
        if name is not None and low is not None and low > USUAL_MINIMUM:
            changes[name] = symbolic.symbol(name, USUAL_MINIMUM, high)
    return symbolic.substitute(size, changes) if changes else size


def _is_wide_element(item: Size) -> bool:
    """Return whether a size is a single symbol that may exceed 2**63 - 1: an element of a u64 tensor."""
    if isinstance(item, int):
        return False
    upper = symbolic.bounds(item)[1]
    return upper is not None and upper >= 2**63 and any(item == symbol for symbol in symbolic.symbols(item))


def _is_default(op: Op, field: Field) -> bool:
    value = op.__dict__[field.name]
    return field.default is not REQUIRED and type(value) is type(field.default) and bool(value == field.default)


def _text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{dtypes.dtype(value.dtype)}{list(value.shape)}" if value.size > 8 else str(value.tolist())
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, DType):
        return value.name
    return repr(value)
