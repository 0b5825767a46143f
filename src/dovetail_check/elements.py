"""Elements: an element of a tensor as an expression over elements of other tensors, with indices over symbolic sizes.

An expression is a tuple:

- ("at", term, offset): the element of a term at an offset in row-major order
- ("number", size, dtype): an integer that is known as an expression of sizes
- ("constant", dtype, bytes): one number
- ("apply", operator, expressions): an operator that computes each element from elements of its operands alone
- ("cases", index, ((bound, expression), ...)): the first expression whose bound is greater than the index
- ("take", term, offset, axis stride, size, expression, bounds): an element whose index along one axis is an element
- ("reduce", operator, sizes, expression): a reduction over bound indices "b0", "b1", ...

Two elements are equal if their expressions are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dovetail_check.pointwise import POINTWISE, apply_pointwise, number_of
from dovetail_check.sizes import ONE, ZERO, Size, SizeLike, Symbols, Unproved, product, size
from dovetail_check.text import NUMPY, Operator, Word

Expression: TypeAlias = tuple[Any, ...]
Index: TypeAlias = tuple[Size, ...]
Operands: TypeAlias = tuple[int | None, ...]

RESHAPES = frozenset("Flatten Reshape Squeeze Unsqueeze".split())
REDUCTIONS = frozenset(
    "ReduceAll ReduceAny ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare".split()
)
ALONG = frozenset("LogSoftmax Softmax".split())
MAX_EXPRESSIONS = 400
"""Maximum number of expressions of a step."""
MAX_PARTS = 1 << 17
"""Maximum number of parts of the expressions of a step; an expression that is used twice has its parts twice."""
MAX_ELEMENTS = 1 << 20
"""Maximum number of elements of a constant that are compared by their bytes."""
MAX_HASHED = 1 << 22
"""Maximum size in bytes of a constant that is hashed as a whole."""
_SIGNED = ("f32", "f64", "i8", "i16", "i32", "i64")
"""Element types of which a - b is a + (-b), bit for bit."""
MAX_LEVELS = 6
"""Maximum number of applications in a row that are expanded in a step."""


class Term:
    """Term is a value of a derivation: an input, a constant, known integers, or an output of an operator."""

    __slots__ = ("data", "digest", "dtype", "integers", "number", "op", "operands", "output", "shape", "uniform")

    def __init__(self, number: int, dtype: str | None, shape: tuple[Size, ...] | None) -> None:
        self.number, self.dtype, self.shape = number, dtype, shape
        self.op: Operator | None = None
        self.operands: tuple[int | None, ...] = ()
        self.output = 0
        self.data: Any = None
        self.digest: bytes | None = None
        self.integers: tuple[Size, ...] | None = None
        self.uniform: Any = None


def offset_of(index: Index, shape: Sequence[SizeLike]) -> Size:
    offset = ZERO
    for each, extent in zip(index, shape, strict=True):
        offset = offset * extent + each
    return offset


class Elements:
    """Elements builds the expressions of one step. ``forms`` maps terms to the applications that the step gives for them.

    ``leaves`` are terms whose elements stay as they are. ``views`` maps terms to operands of slices of them, and the terms that
    these slices equal: their elements are those of the slices. An expression stands for bits where ``is_exact``: reductions
    and products of other extents differ.
    """

    is_exact = True

    def __init__(
        self,
        terms: Sequence[Term],
        symbols: Symbols,
        forms: dict[int, tuple[Operator, tuple[int | None, ...], int]],
        leaves: frozenset[int],
        views: dict[int, list[tuple[Operands, int]]] | None = None,
        find: Callable[..., int | None] = lambda op, xs, output=0: None,
    ) -> None:
        self._find = find
        self._views = views or {}
        self.terms, self.symbols, self._forms, self._leaves = terms, symbols, forms, leaves
        self._depth = self._count = self._level = 0
        self._open: set[int] = set()
        self._memo: dict[Any, Expression] = {}
        self._parts: dict[int, int] = {}
        self._parts_left = MAX_PARTS

    # Elements of terms

    def shape_of(self, number: int | None) -> tuple[Size, ...]:
        shape = None if number is None else self.terms[number].shape
        if shape is None:
            raise Unproved("the rank of an operand is not known")
        return shape

    def integers_of(self, number: int | None) -> tuple[Size, ...]:
        found = None if number is None else self.terms[number].integers
        if found is None:
            raise Unproved("the elements of an operand are not known")
        return found

    def at(self, number: int, index: Index) -> Expression:
        """Return the element of a term at an index."""
        return self._at(number, index, None)

    def at_offset(self, number: int, offset: Size) -> Expression:
        return self._at(number, None, offset)

    def _at(self, number: int, index: Index | None, offset: Size | None) -> Expression:
        key = number, index, offset, self._depth
        if key not in self._memo:
            found = self._memo[key] = self._new(number, index, offset)
            self._parts[id(found)] = count = self._count_parts(found)
            self._parts_left -= count
            if self._parts_left < 0:
                raise Unproved("too large expressions")
        return self._memo[key]

    def _count_parts(self, item: Any) -> int:
        """Return the number of parts of an expression; those of the elements of terms are known."""
        if isinstance(item, Size):
            return len(item.terms)
        if not isinstance(item, tuple):
            return 1 if not hasattr(item, "terms") else self._count_parts(tuple(item.terms.items()))
        return self._parts.get(id(item)) or 1 + sum(map(self._count_parts, item))

    def _new(self, number: int, index: Index | None, offset: Size | None) -> Expression:
        self._count += 1
        if self._count > MAX_EXPRESSIONS:
            raise Unproved("too many expressions")
        term = self.terms[number]
        form = self._forms.get(number)
        if number in self._views:
            whole = index if index is not None else self.index_of(offset or ZERO, self.shape_of(number))
            for operands, result in self._views[number]:
                inner = self._inside(operands, whole)
                if inner is not None:
                    return self.at(result, inner)
        if form is None and term.op is None and isinstance(term.data, np.ndarray):
            return self.constant(term, offset if offset is not None else offset_of(index or (), self.shape_of(number)))
        if form is None and number not in self._leaves and term.op is not None:
            form = term.op, term.operands, term.output
        is_part = number in self._forms
        # Parts may define a term by itself, as transposed twice: it is then a leaf.
        if form is not None and number not in self._open and (is_part or self._level < MAX_LEVELS):
            depth = self._depth
            self._level += not is_part
            self._open.add(number)
            try:
                found = self.of_application(*form, self.shape_of(number), index, offset)
                if found is not None:
                    return found
            except Unproved:
                self._depth = depth
            finally:
                self._level -= not is_part
                self._open.discard(number)
        shape = self.shape_of(number)
        place = offset if offset is not None else self.symbols.join(offset_of(index or (), shape))
        if term.integers is not None and (len(term.integers) == 1 or place.number in range(len(term.integers))):
            return ("number", term.integers[place.number or 0], term.dtype)
        return ("at", number, place)

    def _inside(self, operands: Operands, index: Index) -> Index | None:
        """Return the index in a slice of an index that is inside of it for all values of its sizes; None for others."""
        starts, lengths, axes, steps = (self.integers_of(x) for x in operands[1:5])
        chosen = list(index)
        for start, length, axis, step in zip(starts, lengths, axes, steps, strict=True):
            inner = chosen[axis.number or 0] - start
            if step != 1 or not self.symbols.is_never_negative(inner) or not self.symbols.is_less(inner, length):
                return None
            chosen[axis.number or 0] = inner
        return tuple(chosen)

    def constant(self, term: Term, offset: Size) -> Expression:
        """Return the elements of a constant at an offset, by their bytes, so that equal elements are equal expressions."""
        if term.uniform is not None:
            return ("constant", term.dtype, term.uniform)
        place = ("at", term.number, self.symbols.join(offset))
        names = tuple(sorted(place[2].atoms()))
        data = elements_at(self.symbols, term.data, place[2], names)
        if data is None:
            return self.whole_constant(term, place[2])
        flat = data.reshape(-1)
        if flat.size and bool((flat.view(np.uint8).reshape(flat.size, -1) == flat[:1].view(np.uint8)).all()):
            return ("constant", term.dtype, flat[:1].tobytes())
        # Indices that change nothing are left out.
        kept = [
            axis for axis, extent in enumerate(data.shape) if extent > 1 and not bool((data == np.take(data, [0], axis)).all())
        ]
        data = data[tuple(slice(None) if axis in kept else 0 for axis in range(data.ndim))]
        return (
            "elements",
            term.dtype,
            tuple(names[axis] for axis in kept),
            hashlib.sha256(np.ascontiguousarray(data).tobytes()).digest(),
        )

    def whole_constant(self, term: Term, offset: Size) -> Expression:
        """Return the element of a constant, which its elements identify, at an offset."""
        if term.data.nbytes > MAX_HASHED:
            return ("at", term.number, offset)
        if term.digest is None:
            term.digest = hashlib.sha256(np.ascontiguousarray(term.data).tobytes()).digest()
        return ("constant at", term.dtype, term.digest, offset)

    # Elements of applications

    def of_application(
        self,
        op: Operator,
        xs: tuple[int | None, ...],
        output: int,
        shape: tuple[Size, ...],
        index: Index | None,
        offset: Size | None,
    ) -> Expression | None:
        """Return the element of an application's output of ``shape``; None for an operator that is compared as a whole."""
        name = op.name
        if (name == "Identity" or (name == "Dropout" and self.is_inference(xs))) and output == 0:
            return self._at(xs[0], index, offset)  # type: ignore[arg-type]
        if name in RESHAPES:
            source = xs[0]
            assert source is not None
            return self.at_offset(source, self.symbols.join(offset_of(index or (), shape)) if offset is None else offset)
        rule = getattr(self, f"_{name.lower()}", None)
        if rule is None and name in POINTWISE:
            rule = self._pointwise
        elif rule is None and name in REDUCTIONS:
            rule = self._reduction
        elif rule is None and name in ALONG:
            rule = self._along
        if rule is None:
            return None
        if index is None:
            assert offset is not None
            index = self.index_of(offset, shape)
        return rule(op, xs, output, shape, index)  # type: ignore[no-any-return]

    def is_inference(self, xs: Operands) -> bool:
        """Return whether a Dropout with these operands drops no elements."""
        training = None if len(xs) < 3 or xs[2] is None else self.terms[xs[2]].data
        return (len(xs) < 3 or xs[2] is None) if training is None else not np.any(training)

    def index_of(self, offset: Size, shape: Sequence[Size]) -> Index:
        """Return the index of an offset in a tensor of ``shape``. Raises Unproved."""
        found: list[Size] = []
        for extent in reversed(shape[1:]):
            offset, rest = self.symbols.parts_of(offset, extent)
            found.append(rest)
        return tuple(reversed([*found, offset])) if shape else ()

    def _broadcast(self, number: int, index: Index, shape: Sequence[Size]) -> Expression:
        """Return the element of an operand that is broadcast to ``shape``."""
        return self.at(number, self._broadcast_index(number, index, shape))

    def _broadcast_index(self, number: int, index: Index, shape: Sequence[Size]) -> Index:
        own = self.shape_of(number)
        short = len(shape) - len(own)
        if short < 0:
            raise Unproved("an operand has more axes than the result")
        places = zip(own, index[short:], shape[short:], strict=True)
        return tuple(self.broadcast_index_of(extent, each, whole) for extent, each, whole in places)

    def broadcast_index_of(self, extent: Size, index: Size, whole: Size) -> Size:
        """Return the index on an axis that is broadcast to ``whole``: 0 where its extent is 1, else ``index``."""
        if extent == 1 or index == 0:
            return ZERO
        if extent == whole or self.symbols.is_less(1, extent) or self.symbols.is_minimum_of(extent, whole):
            return index
        return self.symbols.broadcast_index_of(extent, index)

    def _pointwise(self, op: Operator, xs: tuple[int | None, ...], output: int, shape: Any, index: Index) -> Expression:
        operands = tuple(None if x is None else self._broadcast(x, index, shape) for x in xs)
        return self.apply(op, operands, [None if x is None else self.terms[x].dtype for x in xs])

    def _subtract(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        # The negative of a constant may be a constant that was proved.
        term = self.terms[xs[1]]
        if not isinstance(term.data, np.ndarray) or term.dtype not in _SIGNED:
            return self._pointwise(op, xs, output, shape, index)
        if self.is_exact and term.uniform is None and term.data.nbytes <= MAX_HASHED:
            opposite = Term(term.number, term.dtype, term.shape)
            opposite.data = -term.data
            place = offset_of(self._broadcast_index(xs[1], index, shape), self.shape_of(xs[1]))
            operands = self._broadcast(xs[0], index, shape), self.constant(opposite, place)
            return self.apply(Operator("Add", {}), operands, [self.terms[xs[0]].dtype, term.dtype])
        negative = self._find(Operator("Negative", {}), (xs[1],))
        if negative is None:
            return self._pointwise(op, xs, output, shape, index)
        return self._pointwise(Operator("Add", {}), (xs[0], negative), output, shape, index)

    def _castlike(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        cast = Operator("Cast", {**op.attributes, "to": Word(str(self.terms[xs[1]].dtype))})
        return self.apply(cast, (self.at(xs[0], index),), [self.terms[xs[0]].dtype])

    def apply(self, op: Operator, operands: tuple[Any, ...], dtypes: Sequence[str | None]) -> Expression:
        """Return an operator applied to elements, in one form."""
        return apply_pointwise(op, operands, dtypes)

    # Movement

    def _transpose(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        order = self._order(xs, len(shape))
        chosen: list[Any] = [None] * len(order)
        for position, axis in enumerate(order):
            chosen[axis] = index[position]
        return self.at(xs[0], tuple(chosen))

    def _order(self, xs: Any, rank: int) -> list[int]:
        numbers = [each.number for each in self.integers_of(xs[1])] if len(xs) > 1 and xs[1] is not None else []
        order = numbers or list(reversed(range(rank)))
        if sorted(order, key=str) != sorted(range(rank), key=str):
            raise Unproved("no permutation")
        return order  # type: ignore[return-value]

    def _expand(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        return self._broadcast(xs[0], index, shape)

    def _tile(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own = self.shape_of(xs[0])
        short = len(shape) - len(own)
        chosen = []
        for extent, each, whole in zip(own, index[short:], shape[short:], strict=True):
            chosen.append(each if extent == whole else ZERO if extent == 1 else self.symbols.parts_of(each, extent)[1])
        return self.at(xs[0], tuple(chosen))

    def _exactslice(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        starts, _, axes, steps = (self.integers_of(x) for x in xs[1:5])
        chosen = list(index)
        for start, axis, step in zip(starts, axes, steps, strict=True):
            number = axis.number
            if number is None or not 0 <= number < len(chosen):
                raise Unproved("an axis")
            chosen[number] = chosen[number] * step + start
        return self.at(xs[0], tuple(chosen))

    def _slice(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own, chosen = self.shape_of(xs[0]), list(index)
        for axis, (start, _, step) in slices_of(self, xs, own).items():
            chosen[axis] = chosen[axis] * step + start
        return self.at(xs[0], tuple(chosen))

    def _split(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own = self.shape_of(xs[0])
        axis = int(op.attributes.get("axis", 0)) % len(own)
        lengths = split_lengths(self, op, xs, own[axis])
        start = ZERO
        for length in lengths[:output]:
            start = start + length
        chosen = list(index)
        chosen[axis] = chosen[axis] + start
        return self.at(xs[0], tuple(chosen))

    def _concat(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        return self.concat(op, xs, index, lambda place, inner: self.at(xs[place], inner))

    def concat(self, op: Operator, xs: Any, index: Index, element: Callable[[int, Index], Expression]) -> Expression:
        """Return the element of a concatenation; ``element`` gives that of an operand by its position and an index."""
        axis = int(op.attributes["axis"]) % len(index)
        position = index[axis]
        cases: list[tuple[Size, Expression]] = []
        start = ZERO
        for place, x in enumerate(xs):
            extent = self.shape_of(x)[axis]
            end = start + extent
            if extent != 0 and not self.symbols.is_less_or_equal(end, position):
                chosen = list(index)
                chosen[axis] = position - start
                cases.append((end, element(place, tuple(chosen))))
                if self.symbols.is_less(position, end):
                    break
            start = end
        return self.cases(position, cases)

    def cases(self, position: Size, cases: list[tuple[Size, Expression]]) -> Expression:
        """Return the first expression whose bound is greater than ``position``; nested cases of one index are merged."""
        constant = position.terms.get((), 0)
        flat: list[tuple[Size, Expression]] = []
        moving = position - constant
        for end, expression in cases:
            inner = expression[2] if expression[0] == "cases" and expression[1] == moving else ()
            within = [self.symbols.is_less_or_equal(bound, end - constant) for bound, _ in inner]
            # The first bound that is beyond the end, if the order of all before it is known.
            last = within.index(False) if False in within else len(inner)
            if inner and (last == len(inner) or self.symbols.is_less_or_equal(end - constant, inner[last][0])):
                flat += inner[:last]
                flat += [(end - constant, inner[last][1])] if last < len(inner) else []
            else:
                flat.append((end - constant, expression))
        merged: list[tuple[Size, Expression]] = []
        for end, expression in flat:
            if merged and self.symbols.is_less_or_equal(end, merged[-1][0]):
                continue
            if merged and merged[-1][1] == expression and self.symbols.is_less_or_equal(merged[-1][0], end):
                merged[-1] = end, expression
            else:
                merged.append((end, expression))
        if len(merged) == 1:
            return merged[0][1]
        return ("cases", moving, tuple(merged))

    def _pad(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own = self.shape_of(xs[0])
        pads = self.integers_of(xs[1])
        axes = [each.number for each in self.integers_of(xs[3])] if len(xs) > 3 and xs[3] is not None else list(range(len(own)))
        before = dict(zip([int(axis) % len(own) for axis in axes], pads, strict=False))  # type: ignore[arg-type]
        after = dict(zip(before, pads[len(axes) :], strict=True))
        if all(each == 0 for each in (*before.values(), *after.values())):
            return self.at(xs[0], index)
        mode = op.attributes.get("mode", "constant")
        dtype = self.terms[xs[0]].dtype
        if mode != "constant" or dtype not in NUMPY:
            raise Unproved("padding that is no constant")
        zero = ("constant", dtype, NUMPY[dtype](0).tobytes())
        fill = self.at(xs[2], ()) if len(xs) > 2 and xs[2] is not None else zero
        inside = self.at(xs[0], tuple(each - before.get(axis, 0) for axis, each in enumerate(index)))
        for axis, start in before.items():
            end = start + own[axis]
            cases = [(start, fill), (end, inside), (end + after[axis], fill)]
            kept = [case for case, length in zip(cases, (start, None, after[axis]), strict=True) if length != 0]
            inside = inside if len(kept) == 1 else self.cases(index[axis], kept)
        return inside

    def _trilu(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression | None:
        """Return a choice by a constant matrix between an element and 0; None for matrices of open sizes."""
        diagonals = self.integers_of(xs[1]) if len(xs) > 1 and xs[1] is not None else (ZERO,)
        if len(shape) < 2 or len(diagonals) != 1:
            return None
        rows, columns, diagonal = (each.number for each in (*self.shape_of(xs[0])[-2:], *diagonals))
        dtype = self.terms[xs[0]].dtype
        if not rows or not columns or diagonal is None or rows * columns > MAX_ELEMENTS or dtype not in NUMPY:
            return None
        distance = np.arange(columns) - np.arange(rows)[:, None]
        keep = Term(xs[0], "boolean", (size(rows), size(columns)))
        keep.data = distance >= diagonal if op.attributes.get("upper", True) else distance <= diagonal
        operands = self.constant(keep, index[-2] * columns + index[-1]), self.at(xs[0], index)
        zero = ("constant", dtype, NUMPY[dtype](0).tobytes())
        return self.apply(Operator("Where", {}), (*operands, zero), ["boolean", dtype, dtype])

    def _constantofshape(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        if len(xs) < 2 or xs[1] is None:
            raise Unproved("a fill value that is not given")
        return self.at_offset(xs[1], ZERO)

    def _gather(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own, indices = self.shape_of(xs[0]), self.shape_of(xs[1])
        if op.attributes.get("batch_dims", 0):
            raise Unproved("batch axes")
        axis = int(op.attributes.get("axis", 0)) % len(own)
        rank = len(indices)
        before, within, after = index[:axis], index[axis : axis + rank], index[axis + rank :]
        term = self.terms[xs[1]]
        if term.integers is not None:
            position = self._progression(term.integers, offset_of(within, indices))
            if position is not None:
                first, last, chosen = position
                extent = own[axis]
                if self.symbols.is_never_negative(first) and self.symbols.is_less(last, extent):
                    return self.at(xs[0], (*before, chosen, *after))
                is_counted = op.attributes.get("bounds") != "natural"
                if is_counted and self.symbols.is_less(last, 0) and self.symbols.is_never_negative(first + extent):
                    return self.at(xs[0], (*before, chosen + extent, *after))
        depth = self._depth
        uniform = self.at(xs[0], (*before, *self.bind([own[axis]]), *after))
        self._depth = depth
        if uniform[0] == "constant":
            # Every index that is valid gives this element.
            return uniform
        element = self.at(xs[1], within)
        if element[:2] == ("apply", "Cast") and element[3:] == ("i32", "[('to', i64)]"):
            element = element[2][0]
        bounds = op.attributes.get("bounds", "error")
        if bounds == "natural":
            element, bounds = self._counted_from_end(element, own[axis])
        stride = product(own[axis + 1 :])
        offset = offset_of((*before, ZERO, *after), own)
        source = self._source_of_reshapes(xs[0])
        return ("take", source, offset, stride, own[axis], element, "error" if bounds == "zero" else bounds)

    def _source_of_reshapes(self, number: int) -> int:
        """Return the term that a term is a Reshape of: its elements have the same offsets."""
        for _ in range(MAX_LEVELS):
            term = self.terms[number]
            form = self._forms.get(number)
            if form is None and number not in self._leaves and term.op is not None:
                form = term.op, term.operands, term.output
            if form is None or form[0].name not in RESHAPES or form[1][0] is None:
                break
            number = form[1][0]
        return number

    def _topk(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression | None:
        kind = op.attributes.get("index_element_type")
        plain = Operator("TopK", {key: value for key, value in op.attributes.items() if key != "index_element_type"})
        found = None if kind is None or output == 0 else self._find(plain, xs, 1)
        return None if found is None else self.apply(Operator("Cast", {"to": kind}), (self.at(found, index),), ["i64"])

    def _counted_from_end(self, element: Expression, extent: Size) -> tuple[Expression, str]:
        """Return i, which may count from the end, for where(i < 0, i + extent, i), with the bounds that read it so."""
        if element[:2] == ("apply", "Where"):
            condition, counted, plain = element[2]
            sums = [x for x in counted[2] if x != plain] if counted[:2] == ("apply", "Add") and plain in counted[2] else []
            is_negative = condition[:2] == ("apply", "Less") and condition[2][0] == plain and number_of(condition[2][1]) == 0
            is_extent = len(sums) == 1 and (
                sums[0][:2] == ("number", extent) or (extent.number is not None and number_of(sums[0]) == extent.number)
            )
            if is_negative and is_extent:
                return plain, "error"
        return element, "natural"

    def _progression(self, numbers: tuple[Size, ...], offset: Size) -> tuple[Size, Size, Size] | None:
        """Return the first and last of ascending numbers at equal distances, and the one at ``offset``; None for others."""
        first = numbers[0]
        step = numbers[1] - first if len(numbers) > 1 else ONE
        if any(each != first + step * position for position, each in enumerate(numbers)):
            return None
        if not self.symbols.is_never_negative(step):
            return None
        return first, numbers[-1], first + step * offset if len(numbers) > 1 else first

    # Reductions

    def bind(self, extents: Sequence[Size]) -> list[Size]:
        """Return indices of the axes of a reduction; an axis of size 1 has index 0."""
        found = []
        for extent in extents:
            if extent == 1:
                found.append(ZERO)
                continue
            name = f"b{self._depth}:{extent!r}"
            self._depth += 1
            found.append(self.symbols.symbol(name, 0, extent - 1))
        return found

    def _reduction(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        own, axes = self.shape_of(xs[0]), self.reduced_axes(op, xs)
        if not axes:
            raise Unproved("a reduction of no axes")
        places = kept_places(op, [axis for axis in range(len(own)) if axis not in axes], index)
        name = f"{op.name} of the last" if op.attributes.get("select_last_index", False) else op.name
        return self.reduce(name, own, axes, places, lambda inner: self.at(xs[0], inner))

    _argmax = _argmin = _reduction

    def reduce(
        self, name: str, own: Sequence[Size], axes: list[int], places: dict[int, Size], element: Callable[[Index], Expression]
    ) -> Expression:
        """Return a reduction over axes of ``element`` of an index; ``places`` is the index on the other axes."""
        depth = self._depth
        ranges = self.bind([own[axis] for axis in axes])
        inner = tuple(places[axis] if axis in places else ranges[axes.index(axis)] for axis in range(len(own)))
        extents: tuple[Any, ...] = tuple(own[axis] for axis in axes if own[axis] != 1)
        if self.is_exact:
            extents = (
                extents,
                tuple(own[axis] for axis in places if own[axis] != 1),
                tuple(axis in axes for axis in range(len(own)) if own[axis] != 1),
            )
        body = element(inner)
        self._depth = depth
        return ("reduce", name, extents, body)

    def _along(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        axis = int(op.attributes.get("axis", -1)) % len(shape)
        if op.attributes.get("coerce_to_2d") and any(each != 1 for each in shape[axis + 1 :]):
            raise Unproved("a softmax of several axes")
        depth = self._depth
        (bound,) = self.bind([shape[axis]])
        body = self.at(xs[0], (*index[:axis], bound, *index[axis + 1 :]))
        self._depth = depth
        extents: Any = shape[axis]
        if self.is_exact:
            extents = tuple(each for each in shape if each != 1), sum(each != 1 for each in shape[:axis])
        return ("along", op.name, extents, index[axis], body)

    def _gemm(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        dtype = self.terms[xs[0]].dtype
        if dtype not in ("f32", "f64") or op.attributes.get("alpha", 1.0) != 1 or op.attributes.get("beta", 1.0) != 1:
            raise Unproved("a product with factors")
        product_ = self._matmul(op, xs, output, shape, index)
        if len(xs) < 3 or xs[2] is None:
            return product_
        return self.apply(Operator("Add", {}), (product_, self._broadcast(xs[2], index, shape)), (dtype, dtype))

    def reduced_axes(self, op: Operator, xs: Any) -> list[int]:
        """Return the axes of a reduction in ascending order: those of the second operand, or all."""
        rank = len(self.shape_of(xs[0]))
        if op.name in ("ArgMax", "ArgMin"):
            return [int(op.attributes.get("axis", 0)) % rank]
        listed = self.integers_of(xs[1]) if len(xs) > 1 and xs[1] is not None else ()
        if not listed:
            return [] if op.attributes.get("noop_with_empty_axes") else list(range(rank))
        return sorted({_axis_of(each, rank) for each in listed})

    def factors_of(self, op: Operator, xs: Any, shape: Any, index: Index) -> tuple[Size, list[Size], list[tuple[int, Index]]]:
        """Return the extent and the index of the sum of a matrix product, and both operands with their indices."""
        left, right = self.shape_of(xs[0]), self.shape_of(xs[1])
        if len(left) < 2 or len(right) < 2:
            raise Unproved("a product with a vector")
        first, second = op.attributes.get("transpose_a", False), op.attributes.get("transpose_b", False)
        inner = _prefer_number(left[-2] if first else left[-1], right[-1] if second else right[-2])
        ranges = self.bind([inner])
        places = [(ranges[0], index[-2]) if first else (index[-2], ranges[0])]
        places += [(index[-1], ranges[0]) if second else (ranges[0], index[-1])]
        return inner, ranges, [(x, self.matrix_index(x, shape, index, place)) for x, place in zip(xs[:2], places, strict=True)]

    def matrix_index(self, x: int, shape: Any, index: Index, place: Index) -> Index:
        """Return the index of an operand whose batch axes broadcast to those of ``shape``; ``place`` is that in its matrix."""
        batch = self.shape_of(x)[:-2]
        short = len(shape) - 2 - len(batch)
        return (*map(self.broadcast_index_of, batch, index[short:-2], shape[short:-2]), *place)

    def _matmul(self, op: Operator, xs: Any, output: int, shape: Any, index: Index) -> Expression:
        depth = self._depth
        inner, _, factors = self.factors_of(op, xs, shape, index)
        parts = tuple(self.at(*factor) for factor in factors)
        self._depth = depth
        extents: Any = (inner,)
        if self.is_exact:
            extents = inner, tuple(each for each in shape[:-2] if each != 1), shape[-2:]
        return ("reduce", "dot", extents, parts)


def _axis_of(value: Size, rank: int) -> int:
    if value.number is None:
        raise Unproved("an axis that is not known")
    return value.number % rank


def kept_places(op: Operator, kept: Sequence[int], index: Index) -> dict[int, Size]:
    """Return the indices of the axes that a reduction keeps, from that of its result."""
    return {axis: index[axis] for axis in kept} if op.attributes.get("keepdims", True) else dict(zip(kept, index, strict=True))


def elements_at(symbols: Symbols, data: Any, offset: Size, names: Sequence[str]) -> Any:
    """Return the elements of a constant for all values of the indices ``names``; None where these are too many or not known."""
    extents = []
    for name in names:
        maximum = symbols.maximum.get(name)
        if maximum is None or maximum.number is None:
            return None
        extents.append(maximum.number + 1)
    if int(np.prod(extents, dtype=np.int64)) > MAX_ELEMENTS:
        return None
    grid = dict(zip(names, np.ix_(*(np.arange(extent) for extent in extents)), strict=True)) if names else {}
    places: Any = np.zeros([1] * len(names), np.int64)
    for key, coefficient in offset.terms.items():
        step: Any = np.int64(coefficient)
        for name in key:
            step = step * grid[name]
        places = places + step
    if np.size(places) and (places.min() < 0 or places.max() >= np.size(data)):
        # The element is one of a case, whose condition the indices do not hold.
        return None
    return np.ascontiguousarray(data).reshape(-1)[np.broadcast_to(places, extents)]


def slices_of(elements: Any, xs: Any, own: tuple[Size, ...]) -> dict[int, tuple[Size, Size, int]]:
    """Return the start, the length and the step of each axis that a Slice cuts. Raises Unproved."""
    symbols: Symbols = elements.symbols
    starts, ends = elements.integers_of(xs[1]), elements.integers_of(xs[2])
    axes = (
        [each.number for each in elements.integers_of(xs[3])] if len(xs) > 3 and xs[3] is not None else list(range(len(starts)))
    )
    steps = [each.number for each in elements.integers_of(xs[4])] if len(xs) > 4 and xs[4] is not None else [1] * len(starts)
    found = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis is None or not step:
            raise Unproved("a slice with an unknown axis or step")
        axis %= len(own)
        extent = own[axis]
        if None not in (start.number, end.number, extent.number):
            chosen = range(extent.number or 0)[slice(start.number, end.number, step)]
            found[axis] = size(chosen.start), size(len(chosen)), step
            continue
        if step < 1:
            raise Unproved("a slice backwards of an open size")
        first = _clamp(symbols, start, extent)
        last = _clamp(symbols, end, extent)
        if symbols.is_less_or_equal(last, first):
            length = ZERO
        elif all(symbols.is_less_or_equal(each, last) for each in symbols.operands_of("max", first)):
            # last - max(0, n - 1) is min(last, last - n + 1).
            length = symbols.operation("min", *(last - each for each in symbols.operands_of("max", first)))
            length = length if step == 1 else symbols.operation("//", length + (step - 1), step)
        else:
            # A start beyond the end of the axis is the end.
            after = last == extent and symbols.is_never_negative(start)
            first = start if after else first
            length = symbols.operation("max", 0, last - first)
            if step != 1:
                raise Unproved("a slice")
        found[axis] = first, length, step
    return found


def _clamp(symbols: Symbols, bound: Size, extent: Size) -> Size:
    number = bound.number
    if number is not None and number >= 2**31 - 1:
        return extent
    if number is not None and number <= -(2**31):
        return ZERO
    if bound + extent == 0:
        # The begin of the axis, also of an empty one.
        return ZERO
    if symbols.is_less(bound, 0):
        bound = bound + extent
        return bound if symbols.is_never_negative(bound) else symbols.operation("max", 0, bound)
    if not symbols.is_never_negative(bound):
        raise Unproved("a bound of a slice")
    return bound if symbols.is_less_or_equal(bound, extent) else symbols.operation("min", bound, extent)


def _prefer_number(first: Size, second: Size) -> Size:
    """Return the one of two equal sizes that is a number, if one is."""
    return second if first.number is None else first


def split_lengths(elements: Any, op: Operator, xs: Any, extent: Size) -> list[Size]:
    if len(xs) > 1 and xs[1] is not None:
        lengths = list(elements.integers_of(xs[1]))
        if any(each == -1 for each in lengths):
            rest = extent
            for each in lengths:
                rest = rest - (0 if each == -1 else each)
            lengths = [rest if each == -1 else each for each in lengths]
        return lengths
    count = int(op.attributes.get("outputs", 1))
    if not 0 < count <= 1 << 16:
        raise Unproved("a split into too many parts")
    if op.attributes.get("ragged"):
        number = extent.number
        if number is None:
            raise Unproved("a ragged split")
        part = -(-number // count)
        return [size(max(0, min(part, number - part * position))) for position in range(count)]
    # Where the extent is no multiple, the model is not defined.
    return [elements.symbols.operation("//", extent, count)] * count
