"""Recipes: descriptions of common ways to reshard a checkpoint by patterns of names, and the graph of a recipe for given files.

A recipe is a mapping, or a TOML file with the same keys:

- ``ranks``: the number of files of the result, whose tensors are ``NAME@RANK``; the default 1 merges all ranks.
- ``split``: maps shell patterns of names to the axis along which ranks split a tensor. Other tensors are equal in all ranks.
- ``unfuse``: a list of {tensor, into, sizes, axis}: splits a tensor of each rank into several tensors of relative sizes.
- ``transpose``: maps shell patterns to permutations, which are applied to the tensors of each rank.
- ``cast``: maps shell patterns to element types.
- ``fuse``: a list of {tensors, into, axis}: concatenates tensors of a rank after ``transpose`` and ``cast``.
- ``drop``: shell patterns of tensors that are left out.
- ``rename``: maps old names to new names.

A name in ``unfuse``, ``fuse`` and ``rename`` may contain one ``*``, which stands for the same text in all names of the entry.
Each tensor is unfused first, then split, transposed and cast; ``fuse``, ``drop`` and ``rename`` follow in this order. Each step
uses the names that result from the previous steps.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from dovetail.data.tensors.copy_worker import allocate, read_exactly
from dovetail.data.tensors.tensor_sets import StoredTensor, TensorSet, open_tensors
from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import dtype
from dovetail.ir.graph import Model, Value
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import static
from dovetail.storage.files import StrPath, read_bytes

INPUT_PREFIX, OUTPUT_PREFIX = "input:", "output:"
"""The prefixes of input and output names in the graph, which keep an input and an output of the same tensor name distinct."""
_MAX_RECIPE = 16 << 20
_COMPARED = 4 << 20


@dataclass(frozen=True)
class TensorFusion:
    """TensorFusion states that the tensors ``parts`` are parts of the tensor ``whole`` along ``axis``.

    ``sizes`` are the relative sizes of the parts for ``unfuse``; None for ``fuse``, which concatenates the parts.
    """

    parts: tuple[str, ...]
    whole: str
    axis: int
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Recipe:
    """Recipe holds the validated values of a resharding recipe; the module docstring defines them."""

    ranks: int = 1
    split: Mapping[str, int] = field(default_factory=dict)
    unfuse: tuple[TensorFusion, ...] = ()
    transpose: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cast: Mapping[str, str] = field(default_factory=dict)
    fuse: tuple[TensorFusion, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)


def read_recipe(source: Mapping[str, Any] | StrPath) -> Recipe:
    """Read a recipe from a mapping or a TOML file. Raises RuleError [reshard.recipe]."""
    file = None
    if not isinstance(source, Mapping):
        file = os.fspath(source)
        try:
            source = tomllib.loads(read_bytes(file, _MAX_RECIPE).decode())
        except (ValueError, RecursionError) as error:
            raise RuleError("reshard.recipe", f"the recipe must be a valid TOML file: {error}", file=file) from None
    try:
        return _check_recipe(source)
    except RuleError as error:
        raise error.at(file=file) from None


def _check_recipe(data: Mapping[str, Any]) -> Recipe:
    known = [each.name for each in fields(Recipe)]
    unknown = [key for key in data if key not in known]
    if unknown:
        raise RuleError("reshard.recipe", f"keys of a recipe must be among {', '.join(known)}, got {unknown[0]!r}")
    ranks = data.get("ranks", 1)
    if not _is_int(ranks) or not 1 <= ranks <= 1 << 16:
        raise RuleError("reshard.recipe", f"ranks must be an integer from 1 to 65536, got {ranks!r}")
    tables = {key: data.get(key, {}) for key in ("split", "transpose", "cast", "rename")}
    checks: dict[str, Callable[[object], bool]] = {
        "split": _is_int,
        "transpose": _is_order,
        "cast": _is_name,
        "rename": _is_name,
    }
    for key, table in tables.items():
        if not isinstance(table, Mapping) or not all(isinstance(name, str) and checks[key](item) for name, item in table.items()):
            raise RuleError("reshard.recipe", f"{key} must map names to {_VALUES[key]}, got {table!r}")
    try:
        elements = [dtype(name) for name in tables["cast"].values()]
    except UnsupportedError as error:
        raise RuleError("reshard.recipe", error.message) from None
    if any(element == "string" for element in elements):
        raise RuleError("reshard.recipe", "the element types of cast must be numbers, got string")
    drop = data.get("drop", [])
    if not isinstance(drop, list | tuple) or not all(isinstance(name, str) for name in drop):
        raise RuleError("reshard.recipe", f"drop must be a list of names, got {drop!r}")
    for pair in tables["rename"].items():
        _check_stars(pair)
    fuse = tuple(_fusion_of(row, ("into", "tensors", "axis")) for row in _rows(data, "fuse"))
    unfuse = tuple(_fusion_of(row, ("tensor", "into", "axis", "sizes")) for row in _rows(data, "unfuse"))
    return Recipe(ranks, tables["split"], unfuse, tables["transpose"], tables["cast"], fuse, tuple(drop), tables["rename"])


_VALUES = {"split": "axes", "transpose": "lists of axes", "cast": "element types", "rename": "names"}


def _is_int(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _is_order(item: object) -> bool:
    return _is_list(item, int)


def _is_name(item: object) -> bool:
    return isinstance(item, str)


def _rows(data: Mapping[str, Any], key: str) -> Sequence[Any]:
    rows = data.get(key, [])
    if not isinstance(rows, list | tuple):
        raise RuleError("reshard.recipe", f"{key} must be a list of tables, got {rows!r}")
    return rows


def _fusion_of(row: object, keys: tuple[str, ...]) -> TensorFusion:
    """Convert an entry of the list ``fuse`` or ``unfuse`` to a TensorFusion, with checks.

    ``keys`` are the names of the entry's keys for the whole, the parts, the axis, and for ``unfuse`` the sizes.
    """
    title = f"{'un' * (len(keys) > 3)}fuse"
    if not isinstance(row, Mapping) or row.keys() != set(keys):
        raise RuleError("reshard.recipe", f"a row of {title} must have {', '.join(keys)}, got {row!r}")
    whole, parts, axis, sizes = (row.get(key) for key in (*keys, "sizes")[:4])
    if not isinstance(whole, str) or not _is_list(parts, str) or not parts or not isinstance(axis, int) or isinstance(axis, bool):
        raise RuleError("reshard.recipe", f"a row of {title} must have names and an axis, got {row!r}")
    if sizes is not None and not (_is_list(sizes, int) and len(sizes) == len(parts) and all(size > 0 for size in sizes)):
        raise RuleError("reshard.recipe", f"sizes must be a positive integer for each part, got {sizes!r}")
    _check_stars((whole, *parts))
    return TensorFusion(tuple(parts), whole, axis, None if sizes is None else tuple(sizes))


def _is_list(items: object, kind: type) -> bool:
    return isinstance(items, list | tuple) and all(isinstance(item, kind) and not isinstance(item, bool) for item in items)


def _check_stars(names: Sequence[str]) -> None:
    if len({name.count("*") for name in names}) != 1 or names[0].count("*") > 1:
        message = f"all names of an entry must have one *, or none of them, got {', '.join(map(repr, names))}"
        raise RuleError("reshard.recipe", message)


@check_keywords
def reshard_graph(recipe: Mapping[str, Any] | StrPath, input: StrPath) -> Model:
    """Return the graph of a recipe for the tensors of ``input``, which can be shown, changed and passed to ``reshard``.

    Raises RuleError [reshard.recipe], and the errors of :func:`reshard` for the input.

    >>> np.save("w.npy", np.zeros((2, 3)))
    >>> dovetail.reshard_graph({"transpose": {"w": [1, 0]}}, "w.npy").outputs
    [<output:w: f64[3, 2]>]
    """
    checked = read_recipe(recipe)
    with open_tensors(input) as tensors:
        return graph_of(checked, tensors)


def graph_of(recipe: Recipe, tensors: TensorSet) -> Model:
    """Build the graph of a recipe for a set of tensors.

    Raises RuleError [reshard.recipe], EngineError [reshard.recipe], [reshard.tensor].
    """
    return _RecipeGraph(recipe, tensors).build()


class _RecipeGraph:
    def __init__(self, recipe: Recipe, tensors: TensorSet) -> None:
        self.recipe = recipe
        self.tensors = tensors
        self.b = Builder("reshard")
        self._matched: set[str] = set()

    def build(self) -> Model:
        recipe = self.recipe
        by_rank = self._unfuse(self._inputs())
        results = [self._parts_of(name, values) for name, values in by_rank.items()]
        outputs: dict[str, list[Value]] = dict(zip(by_rank, results, strict=True))
        for fusion in recipe.fuse:
            for text in _star_texts(fusion.parts, outputs, f"fuse into {fusion.whole!r}"):
                names = [_insert(name, text) for name in fusion.parts]
                if len(set(names)) < len(names):
                    raise RuleError("reshard.recipe", f"fuse into {fusion.whole!r}: the tensors must differ, got {names}")
                parts = [outputs.pop(name) for name in names]
                self._add(outputs, _insert(fusion.whole, text), self._concat_ranks(parts, fusion.axis))
        outputs = {
            name: values for name, values in outputs.items() if self._lookup(dict.fromkeys(recipe.drop, True), name) is None
        }
        for old, new in recipe.rename.items():
            for text in _star_texts([old], outputs, f"rename {old!r}"):
                self._add(outputs, _insert(new, text), outputs.pop(_insert(old, text)))
        unmatched = [
            pattern for pattern in (*recipe.split, *recipe.transpose, *recipe.cast, *recipe.drop) if pattern not in self._matched
        ]
        if unmatched:
            raise RuleError("reshard.recipe", f"no tensor has a name like {unmatched[0]!r}")
        for name, values in outputs.items():
            for rank, value in enumerate(values):
                self.b.output(
                    f"{OUTPUT_PREFIX}{name}@{rank}" if recipe.ranks > 1 else OUTPUT_PREFIX + name, self.b.Identity(value)
                )
        return self.b.model

    def _inputs(self) -> dict[str, list[tuple[Value, StoredTensor | None]]]:
        """Add the graph inputs; return the values of each tensor by name, one value for each rank of the input."""
        rows: dict[str, list[tuple[Value, StoredTensor | None]]] = {}
        for name, tensor in self.tensors.tensors.items():
            value = self.b.input(INPUT_PREFIX + name, tensor.dtype, tensor.shape)
            rows.setdefault(tensor.name, []).append((value, tensor))
        return rows

    def _unfuse(
        self, rows: dict[str, list[tuple[Value, StoredTensor | None]]]
    ) -> dict[str, list[tuple[Value, StoredTensor | None]]]:
        for fusion in self.recipe.unfuse:
            for text in _star_texts([fusion.whole], rows, f"unfuse {fusion.whole!r}"):
                whole = _insert(fusion.whole, text)
                parts: list[list[tuple[Value, StoredTensor | None]]] = [[] for _ in fusion.parts]
                for value, _ in rows.pop(whole):
                    for part, row in zip(self._cut(value, fusion, whole), parts, strict=True):
                        row.append((part, None))
                for name, row in zip(fusion.parts, parts, strict=True):
                    self._add(rows, _insert(name, text), row)
        return rows

    def _cut(self, value: Value, fusion: TensorFusion, name: str) -> Sequence[Value]:
        sizes = fusion.sizes or ()
        axis = self._axis(value, fusion.axis, name)
        unit, rest = divmod(static(value.shape)[axis], sum(sizes))
        if rest:
            raise RuleError("reshard.recipe", f"axis {axis} of {name!r}, {value.type}, must be a multiple of {sum(sizes)}")
        return self.b.Split(value, [unit * size for size in sizes], axis=axis, outputs=len(sizes))

    def _parts_of(self, name: str, values: list[tuple[Value, StoredTensor | None]]) -> list[Value]:
        """Split, transpose and cast a tensor; return its value for each rank of the result."""
        parts = self._split(name, values)
        order = self._lookup(self.recipe.transpose, name)
        if order is not None:
            if sorted(order) != list(range(len(parts[0].dims))):
                raise RuleError(
                    "reshard.recipe", f"the order of {name!r}, {parts[0].type}, must permute its axes, got {list(order)}"
                )
            parts = [self.b.Transpose(part, list(order)) for part in parts]
        element = self._lookup(self.recipe.cast, name)
        return parts if element is None else [self.b.Cast(part, to=dtype(element)) for part in parts]

    def _split(self, name: str, values: list[tuple[Value, StoredTensor | None]]) -> list[Value]:
        ranks = self.recipe.ranks
        wanted = self._lookup(self.recipe.split, name)
        if wanted is None:
            _check_replicas(name, [tensor for _, tensor in values])
            return [values[0][0]] * ranks
        if len(values) != max(self.tensors.ranks, 1):
            raise EngineError(
                "reshard.tensor", f"{name!r} must be in all {self.tensors.ranks} files to be split, got {len(values)}"
            )
        axis = self._axis(values[0][0], wanted, name)
        merged = values[0][0] if len(values) == 1 else self.b.Concat(*(value for value, _ in values), axis=axis)
        if ranks == 1:
            return [merged]
        if static(merged.shape)[axis] % ranks:
            raise RuleError("reshard.recipe", f"axis {axis} of {name!r}, {merged.type}, must be a multiple of {ranks} ranks")
        return list(self.b.Split(merged, axis=axis, outputs=ranks))

    def _concat_ranks(self, parts: list[list[Value]], axis: int) -> list[Value]:
        return [self.b.Concat(*values, axis=axis) for values in zip(*parts, strict=True)]

    def _axis(self, value: Value, axis: int, name: str) -> int:
        rank = len(value.dims)
        if not -rank <= axis < rank:
            raise RuleError("reshard.recipe", f"the axis of {name!r}, {value.type}, must be in [{-rank}, {rank - 1}], got {axis}")
        return axis % rank

    def _lookup(self, table: Mapping[str, Any], name: str) -> Any:
        """Return the value of the first pattern that matches ``name``; None if no pattern matches."""
        pattern = next((pattern for pattern in table if fnmatchcase(name, pattern)), None)
        self._matched |= {pattern for pattern in table if fnmatchcase(name, pattern)}
        return None if pattern is None else table[pattern]

    def _add(self, rows: dict[str, Any], name: str, row: object) -> None:
        if name in rows:
            raise RuleError("reshard.recipe", f"two tensors would be named {name!r}")
        rows[name] = row


def _star_texts(patterns: Sequence[str], names: Mapping[str, Any], subject: str) -> Iterator[str]:
    """Yield each text for * that turns all patterns into names of ``names``. Raises RuleError [reshard.recipe]."""
    before, star, after = patterns[0].partition("*")
    expression = re.compile(re.escape(before) + ("(.*)" if star else "()") + re.escape(after), re.DOTALL)
    texts = [match[1] for match in map(expression.fullmatch, list(names)) if match]
    if not texts:
        raise RuleError("reshard.recipe", f"{subject}: no tensor has a name like {patterns[0]!r}")
    for text in texts:
        missing = [_insert(pattern, text) for pattern in patterns if _insert(pattern, text) not in names]
        if missing:
            raise RuleError("reshard.recipe", f"{subject}: there is no tensor {missing[0]!r}")
        yield text


def _insert(pattern: str, text: str) -> str:
    return pattern.replace("*", text)


def _check_replicas(name: str, tensors: Sequence[StoredTensor | None]) -> None:
    """Raise EngineError [reshard.recipe] if a tensor without an axis in ``split`` differs between ranks."""
    if len(tensors) < 2:
        return
    first, *others = tensors
    if first is None:
        raise RuleError("reshard.recipe", f"split must have an axis for {name!r}, which is unfused from a tensor of each rank")
    for rank, other in enumerate(others, 1):
        if other is None or (other.dtype, other.shape, other.stored_strides) != (first.dtype, first.shape, first.stored_strides):
            raise EngineError(
                "reshard.recipe", f"split must have an axis for {name!r}, whose type in rank {rank} differs from rank 0"
            )
        if not _has_equal_bytes(first, other):
            raise EngineError(
                "reshard.recipe", f"split must have an axis for {name!r}, whose elements in rank {rank} differ from rank 0"
            )


def _has_equal_bytes(first: StoredTensor, second: StoredTensor) -> bool:
    one, other = allocate(min(first.nbytes, _COMPARED)), allocate(min(first.nbytes, _COMPARED))
    for start in range(0, first.nbytes, _COMPARED):
        size = min(_COMPARED, first.nbytes - start)
        read_exactly(first, one[:size], first.offset + start)
        read_exactly(second, other[:size], second.offset + start)
        if one[:size].tobytes() != other[:size].tobytes():
            return False
    return True
